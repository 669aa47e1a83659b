"""wait: a status that is told as soon as the task has ended or, to who names the one it knows, anything has happened.

Redis is looked at once a second; the item is read at the start, and again when something has changed in Redis. Each
look comes before the read beside it, so no change falls between the two.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from shared.api import view
from shared.api.answer import Answer
from shared.api.preference import Preferences
from shared.queue import Place, without_redis
from shared.store import CALL_SECONDS, Item
from shared.task import Task
from shared.work.parts import Parts

LOOK_SECONDS = 1.0  # how often Redis is looked at
READ_SECONDS = 5.0  # how often the item is read where Redis may not tell of a change
RESERVE_SECONDS = 3.0  # of the function's time, to read the item and answer; CALL_SECONDS more where data may spill
MOVED_SECONDS = 0.5  # a due time that is put off or hastened by less has not moved: a look takes time, too


@dataclass(frozen=True, slots=True)
class Sight:
    """What Redis told of a task, and when; None: it was away."""

    seconds: float
    place: Place | None

    def due(self) -> float | None:
        """When it is due, by the clock that told `seconds`; None if it does not wait."""
        return None if self.place is None or self.place.due_seconds is None else self.seconds + self.place.due_seconds


@dataclass(frozen=True, slots=True)
class Waiter:
    """Answers status requests that wait. `monotonic` tells seconds."""

    parts: Parts
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def answer(
        self,
        task: Task,
        prefers: Preferences,
        is_known: Callable[[Answer], bool | None],
        remaining: Callable[[], float],
    ) -> Answer:
        """The status, after waiting as long as the request prefers, the settings allow and the function has time.

        `is_known`: whether the request names this answer as what it knows; None where it names none, and waits for the
        end. `remaining` tells the seconds that the function has left. Raises NotFound, StoreUnavailable.
        """
        seconds = min(prefers.wait_seconds or 0, self.parts.settings.status_wait_seconds)
        if seconds == 0:
            return view.status(self.parts, task)
        until = self.monotonic() + min(seconds, remaining() - self._reserve_seconds())
        sight, applied = self._look(task), None
        while True:
            item = view.existing(self.parts, task)
            answer = view.status_of(self.parts, item, sight.place)
            if item.status != "pending" or is_known(answer) is False:
                return replace(answer, preference_applied=applied)
            sight, has_changed = self._await_change(item, sight, until)
            applied = f"wait={seconds:g}"
            if not has_changed:
                return replace(view.status_of(self.parts, item, sight.place), preference_applied=applied)

    def _await_change(self, item: Item, sight: Sight, until: float) -> tuple[Sight, bool]:
        """What Redis tells when something has changed, or may have; else at the end. And which of them it is."""
        while (left := until - self.monotonic()) > 0:
            self.sleep(min(left, LOOK_SECONDS if self._tells(item, sight) else READ_SECONDS))
            before, sight = sight, self._look(item.task)
            if not self._tells(item, sight) or _has_changed(before, sight):
                return sight, True
        return sight, False

    def _tells(self, item: Item, sight: Sight) -> bool:
        """Whether nothing happens to the item of which Redis does not tell."""
        provider, place = self.parts.providers.get(item.task.provider), sight.place
        is_heard = provider and provider.rules.callback.signature  # then what a callback says may go to the item alone
        return place is not None and place.held_generation == item.generation and not is_heard

    def _look(self, task: Task) -> Sight:
        place = None
        with without_redis(then="the item is read instead"):
            (place,) = self.parts.queue.look([task], records=True, limits=self.parts.limits(task))
        return Sight(self.monotonic(), place)

    def _reserve_seconds(self) -> float:
        return RESERVE_SECONDS + (CALL_SECONDS if self.parts.settings.spill_bucket else 0)


def _has_changed(before: Sight, sight: Sight) -> bool:
    """Each attempt leaves another record; a task that is held is not due, and one that is buried or gone has none."""
    moved = abs((before.due() or 0) - (sight.due() or 0)) > MOVED_SECONDS
    return moved or _lasting(before.place) != _lasting(sight.place)


def _lasting(place: Place | None) -> tuple[bytes | None, bool, bool] | None:
    """What stays as it is while nothing happens; what others leave of the limits comes and goes."""
    if place is None:
        return None
    return place.record, place.held_up == "paused", (place.lease_seconds or 0) > 0
