"""The verdict on a history: every promise that it breaks."""

from collections.abc import Iterable

from tests.soak import callbacks, endings, limits, submits
from tests.soak.history import Fault, History
from tests.soak.journal import Event


def judge(events: Iterable[Event]) -> list[Fault]:
    """What was lost, doubled, believed, leaked or exceeded; empty if every promise was kept."""
    history = History(events)
    checks = (endings.check, submits.check, callbacks.check, limits.check)
    return [fault for check in checks for fault in check(history)]
