"""How long to wait after a reply, and when it was enough."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from shared.codec import Json
from shared.limits import Health
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider.language.hint import LONGEST_HINT_SECONDS
from shared.provider.language.polling import SPREAD
from shared.provider.language.rules import Rules
from shared.reasons import Reason, Trait, having
from shared.record import Record

TIMEOUT = Failed(Reason.TIMEOUT)
LEAST_PAUSE_SECONDS = 1.0


class Finding(Struct, frozen=True):
    """What an attempt found, and the record that goes with it."""

    outcome: Outcome
    record: Record


@dataclass(frozen=True, slots=True)
class Delays:
    """Turns replies that end no task into "again in so many seconds", or into the end when it would be too late."""

    rules: Rules
    random: Random

    def pending(self, record: Record, now: int, hint: float | None = None) -> Finding:
        """After a pending reply at `now` (epoch ms), whose own `hint` in seconds comes before the backoff."""
        record = replace(record, polls=record.polls + 1, errors=0, reason=None)
        polling, left = self.rules.polling, self._left(record, now)
        if hint is None:
            delay = polling.after_pending(record.polls, self.random, left)
        else:
            delay = polling.drawn(hint, hint, self.random, left)
        return Finding(TIMEOUT if delay is None else Pending(delay, record.partial, record.progress), record)

    def retry(
        self, record: Record, now: int, reason: Reason, hint: float | None = None, said: Json = None, pause: float = 0
    ) -> Finding:
        """After an error that says nothing about the job: another try, or the end after too many in a row.

        `said` is the provider's own word on it, kept with the end; `pause`, in seconds, what it asked of everybody.
        """
        record = replace(record, errors=record.errors + 1, reason=reason)
        if record.errors > self.rules.polling.max_errors:
            return Finding(Failed(Reason.TOO_MANY_ERRORS, reason if said is None else said, pause), record)
        polling, left = self.rules.polling, self._left(record, now)
        if hint is None:
            delay = polling.after_error(record.errors, self.random, left)
        else:
            delay = polling.drawn(hint, hint, self.random, left)
        outcome = Failed(Reason.TIMEOUT, None, pause) if delay is None else Retry(delay, reason, pause)
        return Finding(outcome, record)

    def postponed(self, record: Record, now: int, reason: Reason) -> Finding:
        """After an attempt that came to nothing for a reason of our own: another try, and no error counts."""
        delay = self.rules.polling.after_error(1, self.random, self._left(record, now))
        return Finding(TIMEOUT if delay is None else Retry(delay, reason), replace(record, reason=reason))

    def health(self, findings: Mapping[str, Finding]) -> Health:
        """What the attempts about the tasks of these names found of the provider itself, for all workers.

        It is well if one reply was as it should be; then no error counts but the probe's. Jitter only lengthens a
        pause, so that nobody comes back early; none is longer than a task may take, so that all get their last poll,
        and none that was asked for is longer than LONGEST_HINT_SECONDS: then the probe hears what is said by now.
        """
        pauses = [one.outcome.pause_seconds for one in findings.values() if isinstance(one.outcome, Retry | Failed)]
        longer, polling = self.random.uniform(1, SPREAD), self.rules.polling
        longest = min(max(polling.max_delay, LEAST_PAUSE_SECONDS), polling.max_wait_time)
        well = frozenset(name for name, one in findings.items() if _is_good(one))
        unwell = frozenset(name for name, one in findings.items() if _is_error(one))
        return Health(
            well=well,
            unwell=unwell,
            pause_seconds=min(longer * max(pauses, default=0), LONGEST_HINT_SECONDS, polling.max_wait_time),
            errors=0 if well else len(unwell),
            shortest_seconds=min(longer * max(polling.min_delay, LEAST_PAUSE_SECONDS), longest),
            longest_seconds=longest,
        )

    def spread(self, seconds: float) -> float:
        """A wait of our own making: so long or up to a fifth longer, so that not all come back together."""
        return seconds if self.rules.polling.jitter == "none" else self.random.uniform(seconds, seconds * SPREAD)

    def _left(self, record: Record, now: int) -> float:
        """Seconds until the deadline; whatever the clocks of two hosts say, no more than `max_wait_time`."""
        begun = record.created_at if record.submitted_at is None else record.submitted_at
        return min(0.0, (begun - now) / 1000) + self.rules.polling.max_wait_time


def _is_good(finding: Finding) -> bool:
    """Whether the provider said what its file knows: on the job, or that it refuses it."""
    match finding.outcome:
        case Pending() | Completed() | Failed(Reason.UPSTREAM):
            return True
        case Failed(Reason.TIMEOUT):
            return finding.record.errors == 0
    return False


def _is_error(finding: Finding) -> bool:
    """Whether it speaks against the provider as a whole, not one job; the task may have ended with it."""
    match finding.outcome:
        case Retry(reason=reason):
            return reason in having(Trait.WHOLE_PROVIDER)
        case Failed(Reason.TIMEOUT | Reason.TOO_MANY_ERRORS):
            return finding.record.reason in having(Trait.WHOLE_PROVIDER)
    return False
