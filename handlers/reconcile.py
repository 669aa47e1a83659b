"""The reconcile function: a schedule event of any shape brings back what Redis has lost."""

from collections import Counter
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.work import reconcile, wakeups  # noqa: F401 (loaded as the environment starts)


def handler(_event: Any, context: LambdaContext) -> dict[str, Counter[str]]:
    """Compare the open items with Redis. Returns, for each provider, what was seen and repaired."""
    logger = wiring.logger()  # first: it makes what shared/ logs JSON
    tally = wiring.reconciler().run(lambda: context.get_remaining_time_in_millis() / 1000)
    logger.info("reconcile", extra={"tally": tally})
    return tally
