"""The status function: looks at a task, at once or when something has happened. Only there may such requests wait."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.api import request, wait  # noqa: F401 (loaded as the environment starts)
from shared.api.answer import Answer
from shared.api.event import ApiCall
from shared.api.preference import preferences
from shared.api.serve import served
from shared.provider import callback_url  # noqa: F401 (loaded as the environment starts)
from shared.provider.wire import transport  # noqa: F401 (loaded as the environment starts)
from shared.work import wakeups  # noqa: F401 (loaded as the environment starts)


def handler(event: Any, context: LambdaContext) -> dict[str, Any]:
    """Answer one API Gateway event of either shape; the answer's body is text."""
    wiring.logger()  # makes what shared/ logs JSON
    return served(event, lambda call: _status(call, lambda: context.get_remaining_time_in_millis() / 1000))


def _status(call: ApiCall, remaining: Callable[[], float]) -> Answer:
    task, known = request.named_in_url(call, wiring.settings().default_provider), call.headers.get("if-none-match", "")
    return wiring.waiter().answer(task, preferences(call), lambda answer: answer.is_known(known), remaining)
