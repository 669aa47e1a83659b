"""The callback function: `POST` and `GET /callbacks/{provider}/{token}`, the routes that need no signed request."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.api import callback, request  # noqa: F401 (loaded as the environment starts)
from shared.api.serve import served
from shared.provider.wire import transport  # noqa: F401 (loaded as the environment starts)
from shared.work import wakeups  # noqa: F401 (loaded as the environment starts)


def handler(event: Any, _context: LambdaContext) -> dict[str, Any]:
    """Take what a provider tells by itself. Answers one API Gateway event of either shape."""
    wiring.logger()
    return served(event, lambda call: wiring.receiver().receive(request.callback(call)))
