"""Wake-ups: messages that start a run of process when something falls due.

A hint that carries no more than the provider's name: one that is lost, doubled, early, late or refused costs at most
the time until the schedule's next run, never a task.
"""

import math
import time
from collections.abc import Callable, Collection
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.logs import log

LONGEST_SECONDS = 900  # that SQS delays a message
PAUSE_SECONDS = 60.0  # for so long nothing is sent after a failure, or after one that took as long as this:
SLOW_SECONDS = 0.5


class WakeUps:
    """Sends them to an SQS queue. `make_client` is called with the first one; `monotonic` tells seconds."""

    def __init__(
        self, url: str, make_client: Callable[[], Any], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self._make_client = make_client
        self._monotonic = monotonic
        self._client: Any = None
        self._pauses_until = -math.inf
        self._has_failed = False

    @property
    def is_open(self) -> bool:
        """Whether one would be tried."""
        return self._monotonic() >= self._pauses_until

    @property
    def works(self) -> bool:
        """Whether one would go, as far as is known: after a failure not until one has."""
        return self.is_open and not self._has_failed

    def send(self, provider: str, seconds: float) -> None:
        """Start a run for a provider in so many seconds, rounded up; raises nothing, and takes 2 seconds at most."""
        if not self.is_open:
            return
        delay = min(math.ceil(seconds), LONGEST_SECONDS)
        try:
            self._client = self._client or self._make_client()
            began = self._monotonic()  # to make a client takes long on a small function, and says nothing of SQS
            self._client.send_message(QueueUrl=self._url, MessageBody=provider, DelaySeconds=delay)
        except (BotoCoreError, ClientError, ValueError) as error:  # a ValueError: an endpoint that is no URL
            reason, self._has_failed = str(error), True
        else:
            self._has_failed = False
            if (took := self._monotonic() - began) < SLOW_SECONDS:
                return
            reason = f"SQS took {took:.1f} seconds"  # a run, or a batch, may have many to send
        self._pauses_until = self._monotonic() + PAUSE_SECONDS
        log.warning("not woken", extra={"provider": provider, "reason": reason, "pause_seconds": PAUSE_SECONDS})


def woken(event: Any, known: Collection[str]) -> set[str] | None:
    """The providers that an event's messages name, as far as they are known; None for an event without messages."""
    records = event.get("Records") if isinstance(event, dict) else None
    if not isinstance(records, list):
        return None
    bodies = [record.get("body") for record in records if isinstance(record, dict)]
    return {body for body in bodies if isinstance(body, str)} & set(known)
