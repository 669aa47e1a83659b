"""The process function: a schedule's event of any shape, or wake-ups, start one tick; the tally is its answer."""

from collections import Counter
from functools import partial
from typing import Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import aws, wiring
from shared.provider import callback_url  # noqa: F401 (loaded as the environment starts)
from shared.provider.wire import transport  # noqa: F401 (loaded as the environment starts)
from shared.work import tick as _tick  # noqa: F401 (loaded as the environment starts)
from shared.work.wakeups import woken

metrics = Metrics(namespace="Meanwhile", service="meanwhile")
METRICS = ("claimed", "expired", "completed", "snoozed", "retried", "buried", "lost", "unreachable")
INVITATION = {"invited": True}  # the event of a tick that another tick has invited: it invites none itself


def handler(event: Any, context: LambdaContext) -> dict[str, Counter[str]]:
    """Claim what is due, ask, settle. Returns, for each provider, how many tasks ended how."""
    logger = wiring.logger()  # first: it makes what shared/ logs JSON
    invite = None if event == INVITATION else partial(aws.invoke, context.invoked_function_arn, INVITATION)
    named = woken(event, wiring.providers().keys())
    gives_way = named is None and invite is not None
    tick = wiring.tick(partial(_seconds_left, context), invite, providers=named, gives_way=gives_way)
    tally = tick.run()
    logger.info("tick", extra={"tally": tally})
    for provider, counted in tally.items():
        nonzero = [name for name in METRICS if counted[name]]
        for name in nonzero:
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=counted[name])
        if nonzero:
            metrics.add_dimension(name="provider", value=provider)
            metrics.flush_metrics()
    return tally


def _seconds_left(context: LambdaContext) -> float:
    return context.get_remaining_time_in_millis() / 1000
