"""The notify function: the table's stream tells which tasks ended, and this tells those who wait for them."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.work import notify  # noqa: F401 (loaded as the environment starts)


def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Tell of the ends in one batch of stream records. Returns those that are to be handed in again."""
    wiring.logger()
    again = wiring.notifier().tell_ends(event["Records"])
    return {"batchItemFailures": [{"itemIdentifier": number} for number in again]}
