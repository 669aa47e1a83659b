"""The provider of an exploration: a pure function from its state and a call to all that it may say."""

import uuid
from collections.abc import Iterator
from typing import Any

from shared.codec import dumps
from shared.errors import TransportError
from shared.provider.wire.message import Call, Reply
from tests.explorer.scenario import OLD_MS, TASK, ProviderState, Submit, Trouble, Violation, generation_of
from tests.support.clock import START_MS

_KEYS = {
    str(uuid.uuid5(uuid.NAMESPACE_URL, f"{TASK.id}@{generation}.{resubmits}")): (generation, resubmits)
    for generation in (*range(OLD_MS, OLD_MS + 10), *range(START_MS, START_MS + 10))
    for resubmits in range(3)
}


def answers(
    state: ProviderState, call: Call, actor: int, is_stalled: bool, troubles: frozenset[Trouble]
) -> Iterator[tuple[str, ProviderState, Reply | TransportError]]:
    """What the provider may say: first what is usual, then each trouble while its budget lasts."""
    may_trouble = troubles if state.trouble else frozenset()
    worse = state._replace(trouble=state.trouble - 1)
    match call.method:
        case "POST":
            begun = _begun(state, call, actor, is_stalled)
            yield from _submit_answers(state, worse, call, begun, may_trouble)
        case "DELETE":
            yield f"cancels {_job(call)}", state, Reply(204, {}, b"", call.url)
        case _:
            generation = generation_of(_job(call))
            done = _reply(call, 200, status="done", data={"generation": generation})
            yield f"polls {_job(call)}: done", state, done
            bodies: dict[Trouble, tuple[int, dict[str, Any]]] = {
                "still running": (200, {"status": "running", "partial": {"generation": generation}}),
                "failed": (200, {"status": "failed", "error": "no"}),
                "lost job": (200, {"status": "lost"}),
                "error": (500, {}),
            }
            for trouble, (status, body) in bodies.items():
                if trouble in may_trouble:
                    yield f"polls {_job(call)}: {trouble}", worse, _reply(call, status, **body)


def job_of(submit: Submit, number: int) -> str:
    """The name of the job that this submit, of so many before it, has begun."""
    return f"{submit.generation}.{submit.resubmits}.{number}"


def _begun(state: ProviderState, call: Call, actor: int, is_stalled: bool) -> Submit:
    """The job that this call begins. Raises Violation for a second one that nothing excuses."""
    key = call.headers["Idempotency-Key"]
    if key not in _KEYS:
        raise Violation(f"the idempotency key {key} belongs to no generation")
    generation, resubmits = _KEYS[key]
    for earlier in state.submits:
        same = (earlier.generation, earlier.resubmits) == (generation, resubmits)
        if same and earlier.answer != "lost" and not is_stalled:
            raise Violation(f"actor {actor} submits generation {generation} again, after actor {earlier.actor}")
    return Submit(generation, resubmits, key, actor, "lost" if is_stalled else "on the way")


def _submit_answers(
    state: ProviderState, worse: ProviderState, call: Call, submit: Submit, may_trouble: frozenset[Trouble]
) -> Iterator[tuple[str, ProviderState, Reply | TransportError]]:
    generation = submit.generation
    job, partial = job_of(submit, len(state.submits)), {"generation": generation}
    begun, worse_begun = (one._replace(submits=(*state.submits, submit)) for one in (state, worse))
    running = _reply(call, 202, status="running", job=job, partial=partial)
    yield f"submits {generation}: running", begun, running
    if "done at once" in may_trouble:
        yield f"submits {generation}: done", worse_begun, _reply(call, 200, status="done", data=partial)
    if "refused" in may_trouble:
        refused = worse._replace(submits=(*state.submits, submit._replace(is_refused=True)))
        yield f"submits {generation}: refused", refused, _reply(call, 422, status="failed", error="no")
    if "error" in may_trouble:
        yield f"submits {generation}: HTTP 500", worse, _reply(call, 500)
    if "cut off" in may_trouble:
        lost = worse._replace(submits=(*state.submits, submit._replace(answer="lost")))
        yield f"submits {generation}: the answer is cut off", lost, TransportError("cut off")


def _reply(call: Call, code: int, **body: Any) -> Reply:
    return Reply(code, {}, dumps(body).encode(), call.url)


def _job(call: Call) -> str:
    return call.url.rpartition("/")[2]
