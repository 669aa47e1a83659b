"""The status function: looks at a task, at once or when something has happened. Only there may such requests wait."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.api import request, wait  # noqa: F401 (loaded as the environment starts)
from shared.api.answer import problem
from shared.api.preference import preferences
from shared.provider import callback_url  # noqa: F401 (loaded as the environment starts)
from shared.provider.wire import transport  # noqa: F401 (loaded as the environment starts)
from shared.work import wakeups  # noqa: F401 (loaded as the environment starts)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one API Gateway event of either shape; the answer's body is text."""
    wiring.logger()  # makes what shared/ logs JSON
    try:
        task = request.named_in_url(event, wiring.settings().default_provider)
        prefers, left = preferences(event), lambda: context.get_remaining_time_in_millis() / 1000
        answer = wiring.waiter().answer(task, prefers, lambda known: known.is_known(event), left)
    except Exception as error:  # noqa: BLE001 (the answer reports it)
        answer = problem(error)
    answer = answer.unless_known(event)
    headers = {"Content-Type": answer.content_type} | answer.headers(event)
    return {"statusCode": answer.status, "headers": headers, "body": answer.text}
