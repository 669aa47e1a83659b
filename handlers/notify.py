"""The notify function: the table's stream tells which tasks ended, and this tells those who wait for them."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.work import notify  # noqa: F401 (loaded as the environment starts)


def handler(event: Any, _context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Tell of the ends in one batch of stream records. Returns those that are to be handed in again."""
    logger, records = wiring.logger(), event.get("Records") if isinstance(event, dict) else None
    if not isinstance(records, list):
        logger.error("stream record unreadable", extra={"reason": "the event has no list of records"})
        records = []
    again = wiring.notifier().tell_ends(records)
    return {"batchItemFailures": [{"itemIdentifier": number} for number in again]}
