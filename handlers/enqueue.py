"""The HTTP function: every route of the API, REST and HTTP API events alike."""

from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.api import batch, cancel, erase, request, revive, view
from shared.api.answer import Answer
from shared.api.event import ApiCall
from shared.api.serve import served
from shared.errors import NotFound
from shared.provider import callback_url  # noqa: F401 (loaded as the environment starts)
from shared.provider.wire import transport  # noqa: F401 (loaded as the environment starts)
from shared.work import wakeups  # noqa: F401 (loaded as the environment starts)

Remaining = Callable[[], float]


def ask(call: ApiCall, remaining: Remaining) -> Answer:
    return wiring.enqueuer().answer(request.from_query(call, _default()), remaining)


def enqueue(call: ApiCall, remaining: Remaining) -> Answer:
    return wiring.enqueuer().answer(request.from_body(call, _default()), remaining)


def enqueue_batch(call: ApiCall, remaining: Remaining) -> Answer:
    return batch.answer(wiring.enqueuer_for_threads(), request.from_batch(call, _default()), remaining)


def revive_task(call: ApiCall, _: Remaining) -> Answer:
    return revive.answer(wiring.parts(), request.named_in_body(call, _default()))


def status(call: ApiCall, _: Remaining) -> Answer:
    return view.status(wiring.parts(), request.named_in_url(call, _default()))


def cancel_task(call: ApiCall, _: Remaining) -> Answer:
    return cancel.answer(wiring.parts(), request.named_to_cancel(call, _default()))


def erase_task(call: ApiCall, _: Remaining) -> Answer:
    return erase.answer(wiring.parts(), request.named_in_url(call, _default()))


ROUTES: Mapping[str, Callable[[ApiCall, Remaining], Answer]] = {
    "GET /": ask,
    "POST /tasks": enqueue,
    "POST /tasks/batch": enqueue_batch,
    "POST /tasks/revive": revive_task,
    "GET /tasks": status,
    "GET /tasks/{provider}/{name}": status,
    "DELETE /tasks": cancel_task,
    "DELETE /tasks/{provider}/{name}": cancel_task,
    "DELETE /erase": erase_task,
    "DELETE /erase/{provider}/{name}": erase_task,
}


def handler(event: Any, context: LambdaContext) -> dict[str, Any]:
    """Answer one API Gateway event; every answer's body is text."""
    wiring.logger()  # makes what shared/ logs JSON
    return served(event, lambda call: _routed(call, lambda: context.get_remaining_time_in_millis() / 1000))


def _routed(call: ApiCall, remaining: Remaining) -> Answer:
    if call.route not in ROUTES:
        raise NotFound("there is no such route", field="path")
    with wiring.logger().append_context_keys(caller=call.caller):  # who asked, in each line about what came of it
        return ROUTES[call.route](call, remaining)


def _default() -> str:
    return wiring.settings().default_provider
