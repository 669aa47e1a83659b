"""Deadlines: each at its time, by one thread."""

import threading

import pytest

from shared.provider.wire.deadlines import Deadlines
from tests.support.servers import GUARD_SECONDS

HOUR = 3600.0


class Late:
    """Deadlines on a clock that stands still until `pass_`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.deadlines = Deadlines(lambda: self.now)
        self.came: list[str] = []

    def after(self, seconds: float, name: str) -> object:
        return self.deadlines.after(seconds, lambda: self.came.append(name))

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        over = threading.Event()
        self.deadlines.after(0, over.set)
        assert over.wait(GUARD_SECONDS)


@pytest.fixture
def late() -> Late:
    return Late()


def test_each_comes_once_at_its_time_whatever_came_first(late: Late) -> None:
    for seconds, name in ((30, "c"), (10, "a"), (20, "b"), (HOUR, "never")):
        late.after(seconds, name)
    late.pass_(9)
    assert late.came == []
    late.pass_(1)
    assert late.came == ["a"]
    late.pass_(20)
    late.pass_(1)
    assert late.came == ["a", "b", "c"]


def test_one_that_is_cancelled_does_not_come(late: Late) -> None:
    cancelled = late.deadlines.after(10, lambda: late.came.append("cancelled"))
    late.after(10, "other")
    cancelled.cancel()
    late.pass_(10)
    assert late.came == ["other"]


def test_a_sooner_one_does_not_wait_for_a_later_one() -> None:
    deadlines, over = Deadlines(), threading.Event()
    deadlines.after(HOUR, lambda: None)
    deadlines.after(0.01, over.set)
    assert over.wait(GUARD_SECONDS)


def test_all_have_one_thread(late: Late) -> None:
    before = threading.active_count()
    for number in range(50):
        late.after(HOUR - number, "never")
    assert threading.active_count() == before + 1


def test_where_the_thread_is_gone_as_in_a_fork_there_is_another(late: Late) -> None:
    late.after(HOUR, "never")
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    late.deadlines._thread = gone
    late.pass_(0)


def test_a_call_that_breaks_keeps_no_other_from_its_time(late: Late, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("no such luck")

    late.deadlines.after(1, broken)
    late.after(2, "b")
    late.pass_(2)
    late.pass_(0)
    assert late.came == ["b"]
    assert [record.message for record in caplog.records] == ["deadline broke"]


def test_a_fork_makes_none_of_its_parents_calls(late: Late) -> None:
    late.deadlines._thread = threading.current_thread()  # the parent's own is not there, and makes no call either
    late.after(1, "the parent's")
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    late.deadlines._thread = gone
    late.pass_(2)
    late.pass_(0)
    assert late.came == []
