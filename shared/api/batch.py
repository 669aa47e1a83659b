"""Many requests in one call: each is answered by itself, while they share the round trips and the waiting."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from shared.api.answer import Answer, problem
from shared.api.enqueue import Begun, Enqueuer
from shared.api.request import TaskRequest
from shared.bounds import BOUNDS
from shared.codec import Json, carried, dumps
from shared.errors import Problem, StoreUnavailable, Unavailable
from shared.store import Item, digest
from shared.task import Task
from shared.work.parts import Budget

MAX_RESULTS_BYTES = BOUNDS["results"].most  # as Lambda carries them; the rest of its 6 MB is for those with no room
ACCEPTED_AT_ONCE = 8  # each thread opens a connection to DynamoDB, which takes more processor time than the calls
ACCEPT_SECONDS = 10.0  # a request needs no more from the beginning of its generation to its answer without an attempt
_NO_TIME = Unavailable("no time was left for this one; nothing was accepted, ask again")
NAMING = ("task_id", "provider", "name", "status")


def answer(enqueuer: Enqueuer, requests: Sequence[TaskRequest | Problem], remaining: Callable[[], float]) -> Answer:
    """One answer with a result for each request, in their order; a fault in one, its Problem too, harms no other.

    Of requests that are alike one is served, and the others get its answer. `remaining` tells the seconds that
    the function has left.
    """
    enqueuer = replace(enqueuer, parts=replace(enqueuer.parts, budget=Budget(MAX_RESULTS_BYTES)))
    keys = [_key(i, request) for i, request in enumerate(requests)]
    unlike = dict(zip(keys, requests, strict=True))
    answers = {key: problem(one) for key, one in unlike.items() if isinstance(one, Problem)}
    asked = {key: one for key, one in unlike.items() if isinstance(one, TaskRequest)}
    for round_ in _rounds(asked):
        served = _serve(enqueuer, [asked[key] for key in round_], remaining)
        answers.update(zip(round_, served, strict=True))
    applied = next((one.prefers.applied for one in asked.values()), None)
    return Answer(status=200, body={"results": _results(keys, answers)}, preference_applied=applied)


def _serve(enqueuer: Enqueuer, requests: Sequence[TaskRequest], remaining: Callable[[], float]) -> list[Answer]:
    if remaining() < ACCEPT_SECONDS:
        return [problem(_NO_TIME)] * len(requests)
    parts, tasks = enqueuer.parts, {request.task for request in requests}
    try:
        read = parts.store.get_many(tasks, parts.clock())
    except StoreUnavailable as error:
        return [problem(error, tasks=len(tasks))] * len(requests)
    with ThreadPoolExecutor(ACCEPTED_AT_ONCE) as threads:
        accepted = list(threads.map(lambda request: _accept(enqueuer, request, read, remaining()), requests))
    begun = [one for one in accepted if isinstance(one, Begun)]
    with ThreadPoolExecutor(max(1, len(begun))) as threads:
        served = iter(enqueuer.serve(begun, remaining, threads.map))
    return [next(served) if isinstance(one, Begun) else one for one in accepted]


def _accept(enqueuer: Enqueuer, request: TaskRequest, read: Mapping[Task, Item | None], left: float) -> Answer | Begun:
    if left < ACCEPT_SECONDS:
        return problem(_NO_TIME)
    try:
        return enqueuer.accept(request, read)
    except Exception as error:  # noqa: BLE001 (it is reported)
        return problem(error, task=request.task.id)


def _key(i: int, request: TaskRequest | Problem) -> Hashable:
    """The same for requests that are alike."""
    if isinstance(request, Problem):
        return i
    return replace(request, input=None), None if request.input is None else digest(request.input)


def _rounds(asked: dict[Hashable, TaskRequest]) -> list[list[Hashable]]:
    """The first request for each task, in order; then those for the same task that want something else of it."""
    first = set({one.task: key for key, one in reversed(asked.items())}.values())
    rounds = [key for key in asked if key in first], [key for key in asked if key not in first]
    return [round_ for round_ in rounds if round_]


def _results(keys: Sequence[Hashable], answers: dict[Hashable, Answer]) -> list[Json]:
    """In the room that there is, after the least that each takes, the first that fit have their whole bodies."""
    least = {key: _least(answer) for key, answer in answers.items()}
    sizes = {key: carried(dumps(short.body)) for key, short in least.items()}
    results, seen, left = [], set(), MAX_RESULTS_BYTES - sum(sizes[key] for key in keys)
    for key in keys:
        more = carried(answers[key].text) - sizes[key]
        answer = answers[key] if more <= left else least[key]
        body = answer.body | ({"deduplicated": True} if key in seen and "deduplicated" in answer.body else {})
        result: dict[str, Json] = {"status": answer.status, "body": body}
        if answer.retry_after_seconds is not None:
            result["retry_after_seconds"] = answer.retry_after_seconds
        results.append(result)
        seen.add(key)
        left -= more if answer is answers[key] else 0
    return results


def _least(answer: Answer) -> Answer:
    """What is told where there is no room for more: faults as they are, names; 303: look at it by itself."""
    if answer.is_problem:
        return answer
    body = {name: answer.body[name] for name in (*NAMING, "error") if name in answer.body}
    return replace(answer, status=answer.status if answer.status >= 400 else 303, body=body)
