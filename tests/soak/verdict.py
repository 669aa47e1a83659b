"""The verdict on a history: every promise that it breaks."""

from collections.abc import Iterable

from tests.soak import endings, limits, submits
from tests.soak.history import Fault, History
from tests.soak.journal import Event


def judge(events: Iterable[Event]) -> list[Fault]:
    """What was lost, doubled, leaked or exceeded; empty if every promise was kept."""
    history = History(events)
    return [fault for check in (endings.check, submits.check, limits.check) for fault in check(history)]
