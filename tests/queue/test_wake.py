"""Wake-ups: whoever leaves tasks waiting that no run is there for says when one must come, and nobody else does."""

import math

import pytest

from shared.limits import Health, Limits
from shared.queue import End, Run, Settle
from tests.support.desk import Desk, names, task
from tests.support.keys import PROVIDER
from tests.support.waker import Waker

RUN, OTHER = Run("run", 3.0), Run("other", 3.0)
SCHEDULED = Run("scheduled", 3.0, gives_way="in time")


class Woken(Desk):
    """The desk, and the wake-ups that its queue asks for, as messages have them: in whole seconds."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk.queue, desk.keys)
        self.wakes: list[float] = []
        self.waker = self.queue._wake = Waker(self.wake)

    def wake(self, provider: str, seconds: float) -> None:
        assert provider == PROVIDER
        self.wakes.append(math.ceil(seconds))

    def taken(self) -> list[float]:
        """What was asked for since."""
        wakes, self.wakes = self.wakes, []
        return wakes

    def serve(self, run: Run = RUN, limits: Limits | None = None) -> list[str]:
        """What a run claims."""
        return names(self.claim(limits or Limits(), run=run, token=f"token of {run.name}"))

    def rest(self, run: Run = RUN, limits: Limits | None = None, **how: object) -> float | None:
        return self.queue.rest(PROVIDER, run, limits or Limits(), **how)  # type: ignore[arg-type]


@pytest.fixture
def woken(desk: Desk) -> Woken:
    return Woken(desk)


# --- who plans


def test_a_task_that_waits_is_planned_for_when_it_is_due(woken: Woken) -> None:
    woken.add(delay=2)
    assert woken.taken() == [2]


def test_without_somebody_to_send_it_nothing_is_planned_nor_written(desk: Desk) -> None:
    desk.add(delay=2)
    assert not desk.parts()["plans"]


def test_while_none_can_be_sent_from_here_nothing_is_planned_and_others_plan(woken: Woken) -> None:
    """Else a plan of nobody's would silence whoever can send."""
    woken.waker.is_open = False
    woken.add("a", delay=2)
    woken.waker.is_open = True
    woken.add("b", delay=2)
    assert woken.taken() == [2]


def test_a_task_that_is_held_by_its_request_is_planned_for_when_it_is_settled(woken: Woken) -> None:
    woken.begin("a")
    assert woken.taken() == []
    (hold,) = [woken.seed("b", lease_seconds=30)]
    woken.settle("waiting", hold, delay=5)
    assert woken.taken() == [5]


def test_hastening_plans_anew(woken: Woken) -> None:
    woken.add(delay=60)
    assert woken.taken() == [60]
    woken.queue.hasten([(task(), 1)], 3)
    assert woken.taken() == [3]


def test_a_burst_sends_one_message(woken: Woken) -> None:
    for number in range(50):
        woken.add(f"{number}", delay=2)
    assert woken.taken() == [2]


def test_each_batch_of_a_large_call_is_answered(woken: Woken) -> None:
    assert woken.put([f"{number}" for number in range(450)], delay=2) == ["created"] * 450
    assert woken.taken() == [2]


# --- whether


def test_a_sooner_task_is_planned_for_though_a_later_one_is(woken: Woken) -> None:
    woken.add("later", delay=30)
    woken.add("sooner", delay=29)
    woken.add("about as soon", delay=28.8)
    assert woken.taken() == [30, 29]


@pytest.mark.parametrize(("late", "again"), [(1, []), (3, [0])], ids=["stands", "has lapsed"])
def test_a_plan_stands_for_two_seconds_beyond_its_time(woken: Woken, late: float, again: list[float]) -> None:
    woken.add("a", delay=2)
    woken.rewind(2 + late)
    woken.taken()
    woken.add("b", delay=0)
    assert woken.taken() == again


@pytest.mark.parametrize(("delay", "planned"), [(74, [74]), (76, [])])
def test_what_is_far_off_is_left_to_the_schedule(woken: Woken, delay: float, planned: list[float]) -> None:
    woken.add(delay=delay)
    assert woken.taken() == planned


def test_while_a_run_is_alive_nobody_plans(woken: Woken) -> None:
    woken.add("a", delay=50)
    woken.serve()
    woken.taken()
    woken.add("b", delay=1)
    assert woken.taken() == []
    woken.rewind(4)  # it has died
    woken.add("c", delay=1)
    assert woken.taken() == [0]


def test_a_run_that_finds_nothing_at_all_is_not_entered(woken: Woken) -> None:
    woken.serve()
    woken.add(delay=1)
    assert woken.taken() == [1]


# --- when: not when a task is due, but when an attempt may begin


def test_a_paused_provider_is_planned_for_when_its_pause_ends(woken: Woken) -> None:
    hold = woken.seed("a", lease_seconds=30)
    woken.settle("waiting", hold, delay=2, health=Health(pause_seconds=40))
    assert woken.taken() == [40]


def test_at_a_rate_it_is_planned_for_when_an_attempt_is_saved_up(woken: Woken) -> None:
    limits = Limits(rate_seconds=20)
    woken.begin("a", limits)
    woken.taken()
    woken.put("b", delay=1, limits=limits)
    assert woken.taken() == [20]


def test_where_all_jobs_are_open_it_is_planned_for_one_that_has_one(woken: Woken) -> None:
    limits = Limits(open_jobs=1)
    woken.seed("open", has_job=True, due_seconds=30)
    woken.put("fresh", delay=1, limits=limits)
    assert woken.taken() == [30]


def test_where_all_jobs_are_open_and_asked_about_nothing_is_planned_until_one_is_settled(woken: Woken) -> None:
    limits = Limits(open_jobs=1)
    hold = woken.seed("open", has_job=True, lease_seconds=30)
    woken.put("fresh", delay=1, limits=limits)
    assert woken.taken() == []
    woken.queue.settle([Settle(hold, "completed")], limits=limits)
    assert woken.taken() == [1]


# --- rest: a run leaves


def test_a_run_that_leaves_plans_the_next(woken: Woken) -> None:
    woken.seed("a", due_seconds=50)
    woken.serve()
    assert woken.rest() is None
    assert woken.taken() == [50]
    assert "runs" not in woken.parts() or not woken.parts()["runs"]


def test_a_run_stays_for_what_is_at_hand_if_it_may(woken: Woken) -> None:
    woken.seed("a", due_seconds=0.7)
    woken.serve()
    assert woken.rest() == pytest.approx(0.7, abs=0.3)
    woken.add("b", delay=5)
    assert woken.taken() == []  # it is still there
    assert woken.rest(may_stay=False) is None
    assert woken.taken() == [1]


def test_a_run_leaves_without_a_plan_where_another_one_is(woken: Woken) -> None:
    woken.seed("a", due_seconds=30)
    woken.serve(RUN)
    woken.serve(OTHER)
    assert (woken.rest(RUN), woken.taken()) == (None, [])
    assert (woken.rest(OTHER), woken.taken()) == (None, [30])


@pytest.mark.parametrize(("due", "planned"), [(-1, 5), (2, 2)])
def test_one_that_was_given_nothing_of_what_is_due_plans_no_sooner_than_that(
    woken: Woken, due: float, planned: float
) -> None:
    """Else run after run would find nothing; what falls due later is what it could not be given."""
    woken.seed("a", due_seconds=due)
    assert (woken.rest(least_seconds=5), woken.taken()) == (None, [planned])


def test_where_one_is_to_work_alone_it_leaves_even_what_another_serves_late(woken: Woken) -> None:
    woken.seed("a", due_seconds=-60)
    woken.seed("b", due_seconds=-60)
    woken.claim(limit=1, run=RUN, token="worker")
    assert woken.serve(Run("alone", 3.0, gives_way="always")) == []
    woken.rewind(4)
    assert woken.serve(Run("alone", 3.0, gives_way="always")) == ["b"]


def test_a_pause_beyond_that_counts(woken: Woken) -> None:
    hold = woken.seed("a", lease_seconds=30)
    woken.serve()
    woken.settle("waiting", hold, delay=2, health=Health(pause_seconds=40))
    assert (woken.rest(least_seconds=5), woken.taken()) == (None, [40])


def test_the_last_that_leaves_an_empty_provider_leaves_nothing(woken: Woken) -> None:
    woken.add()
    (claimed,) = woken.claim(run=RUN).tasks
    woken.queue.settle([Settle(claimed.hold, "completed")])
    woken.rest()
    assert woken.keys.dump() == {}


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_run_that_comes_takes_its_plan_with_it(woken: Woken, is_empty: bool) -> None:
    """Else what falls due just after its leave would count as planned for."""
    woken.add("a", delay=0.2)
    if is_empty:
        woken.end("dropped", "a")
    woken.serve()
    assert not woken.parts()["plans"]


def test_a_plan_that_lies_ahead_stands_though_a_run_comes_and_leaves(woken: Woken) -> None:
    """Its message is on its way."""
    woken.add("a", delay=50)
    woken.serve()
    assert (woken.taken(), woken.rest(), woken.taken()) == ([50], None, [])


def test_of_two_plans_the_later_stands_once_the_sooner_has_come(woken: Woken) -> None:
    """Its message is on its way, whatever was planned for sooner after it."""
    woken.add("later", delay=30)
    woken.add("sooner", delay=1)
    woken.rewind(1)
    assert woken.serve() == ["sooner"]
    assert (woken.taken(), woken.rest(), woken.taken()) == ([30, 1], None, [])
    woken.add("as late", delay=30)
    assert woken.taken() == []


def test_what_is_left_of_runs_and_plans_goes_with_mending(woken: Woken) -> None:
    """No messages are sent any more, say."""
    woken.write("runs", "dead", woken.keys.now() - 1)
    woken.write("plans", "past", woken.keys.now() - 1)
    woken.seed("a")
    woken.queue.mend(PROVIDER)
    assert (woken.parts()["runs"], woken.parts()["plans"]) == ({}, {})


def test_an_end_that_lets_another_task_begin_its_job_plans_for_that(woken: Woken) -> None:
    limits = Limits(open_jobs=1)
    woken.seed("open", has_job=True, lease_seconds=-1)
    woken.seed("fresh")
    assert woken.queue.end([End(task("open"), 1, "dropped")], limits) == [True]
    assert woken.taken() == [0]


def test_a_run_that_is_said_to_be_alive_for_longer_than_any_is_hides_nobody(woken: Woken) -> None:
    """The server's clock has gone back."""
    woken.seed("a", due_seconds=-1)
    woken.write("runs", "of the future", woken.keys.now() + 3_600_000)
    woken.add("b", delay=1)
    assert woken.taken() == [0]
    assert woken.serve(SCHEDULED) == ["a"]


# --- the schedule's run gives way


def test_the_schedules_run_leaves_alone_what_another_serves_in_time(woken: Woken) -> None:
    woken.seed("a", due_seconds=-1)
    woken.seed("held", lease_seconds=30)
    woken.claim(limit=1, run=RUN, token="worker")
    woken.seed("b", due_seconds=-1)
    assert woken.serve(SCHEDULED) == []
    woken.seed("late", due_seconds=-2.5)
    assert woken.serve(SCHEDULED) == ["late", "b"]


def test_the_schedules_run_serves_what_nobody_else_does(woken: Woken) -> None:
    woken.seed("a")
    assert woken.serve(SCHEDULED) == ["a"]
    woken.seed("b")
    assert woken.serve(SCHEDULED) == ["b"]  # its own first claim is no other run's
