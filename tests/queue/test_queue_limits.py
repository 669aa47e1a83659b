"""A provider's limits and its pause, over all workers: the same promises on fakeredis, Valkey, Redis and the double.

Spans are long against what a test takes, since a server's own time goes on; only `rewind` lets them pass.
"""

import dataclasses
from random import Random
from typing import Any, Literal

import pytest

from shared.limits import UNKNOWN, Health, Limits
from shared.queue import Becomes, Claim, Hold
from tests.support.desk import LEASE_SECONDS, SETTLING, Desk, task
from tests.support.keys import PROVIDER
from tests.support.redis_servers import SERVERS

NAMES = frozenset("abcdefgh")
WELL = Health(well=NAMES)
WELL_ALL = Health(well=NAMES | {f"{number:03}" for number in range(200)})
LOOK_AGAIN_SECONDS = 1.0


def is_soon(claimed: Claim) -> bool:
    """Whether it gave nothing and says to look again in a moment."""
    return claimed.tasks == () and 0 < (claimed.wait_seconds or 0) <= LOOK_AGAIN_SECONDS


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=60)


# --- no limits


def test_without_limits_nothing_is_kept_of_a_provider(desk: Desk) -> None:
    desk.put("abc")
    first, second, third = desk.hold()
    desk.settle("completed", first, health=WELL)
    desk.settle("waiting", second, health=WELL, delay=0, has_job=False)
    desk.settle("buried", third, health=WELL)
    assert all(not desk.parts()[part] for part in ("gate", "jobs", "groups"))


# --- rate


def test_a_burst_may_begin_at_once_and_then_one_attempt_each_so_often(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000, burst=3)
    desk.put("abcdefghij")
    assert desk.take(limits) == ["a", "b", "c"]
    shut = desk.claim(limits)
    assert (shut.tasks, shut.wait_seconds) == ((), about(1000))
    desk.rewind(1000)
    assert desk.take(limits) == ["d"]
    desk.rewind(2500)
    assert desk.take(limits) == ["e", "f"]
    assert desk.claim(limits).wait_seconds == about(500)


def test_no_more_than_a_burst_is_ever_saved_up(desk: Desk) -> None:
    limits = Limits(rate_seconds=10, burst=3)
    desk.put("abcdefghij")
    desk.claim(limits, limit=1)
    desk.rewind(1_000_000)
    assert len(desk.claim(limits).tasks) == 3


def test_the_time_that_claim_tells_to_wait_is_enough(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000 / 3, burst=2)
    desk.put("abcdefghij")
    desk.claim(limits)
    for _ in range(6):
        desk.rewind(desk.claim(limits).wait_seconds or 0)
        assert len(desk.claim(limits).tasks) == 1


@pytest.mark.parametrize("seed_number", range(4))
def test_a_provider_never_sees_more_than_a_burst_and_one_attempt_each_so_often(desk: Desk, seed_number: int) -> None:
    random, limits = Random(seed_number), Limits(rate_seconds=70, burst=4)
    desk.put([f"{number}" for number in range(200)])
    start_ms, passed_seconds, begun = desk.keys.now(), 0.0, 0
    for step in range(30):
        if random.random() < 0.2:
            begun += desk.begin([f"inline {step}"], limits).count("created")
        else:
            begun += len(desk.claim(limits, limit=random.randint(1, 5), token=f"{step}").tasks)
        assert begun <= 4 + (passed_seconds + (desk.keys.now() - start_ms) / 1000) / 70
        seconds = random.choice((0, 1, 33.3, 69.9, 70, 141, 1000))
        desk.rewind(seconds)
        passed_seconds += seconds


def test_a_claim_that_finds_less_than_it_may_take_uses_up_no_more(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000, burst=5)
    desk.put("ab")
    assert len(desk.claim(limits).tasks) == 2
    desk.put("cdefgh")
    assert len(desk.claim(limits).tasks) == 3


@pytest.mark.parametrize(("limits", "seconds"), [(Limits(rate_seconds=1000, burst=1), 1000), (Limits(parallel=1), 100)])
def test_with_nothing_due_no_limit_gives_a_reason_to_look_again(desk: Desk, limits: Limits, seconds: float) -> None:
    desk.put("a")
    assert desk.take(limits) == ["a"]
    assert desk.claim(limits).wait_seconds is None
    desk.put("b", delay=100)
    assert desk.claim(limits).wait_seconds == about(seconds)
    desk.put("c", delay=5000)
    desk.end("dropped", "b")
    assert desk.claim(limits).wait_seconds == about(5000)


def test_a_deploy_may_change_the_rate_at_any_time(desk: Desk) -> None:
    desk.put("abcdefghijklmnopqrst")
    slow = Limits(rate_seconds=10_000, burst=5)
    assert len(desk.claim(slow).tasks) == 5
    faster = Limits(rate_seconds=100, burst=2)
    assert [len(desk.claim(faster).tasks) for _ in range(2)] == [1, 0]
    assert len(desk.claim().tasks) == 10
    assert len(desk.claim(slow).tasks) == 4


def test_a_clock_that_went_back_stops_nobody(desk: Desk) -> None:
    limits = Limits(rate_seconds=100, burst=3)
    desk.put("abcdefghij")
    desk.claim(limits)
    desk.write("gate", "full_at", str(desk.keys.now() + 1_000_000_000))
    assert [len(desk.claim(limits, limit=2).tasks) for _ in range(2)] == [1, 0]
    desk.rewind(100)
    assert len(desk.claim(limits).tasks) == 1


# --- parallel


def test_no_more_attempts_are_under_way_at_once_than_the_provider_allows(desk: Desk) -> None:
    limits = Limits(parallel=3)
    desk.put("abcdefghij")
    assert desk.take(limits, limit=2, token="one") == ["a", "b"]
    assert desk.take(limits, token="two") == ["c"]
    assert is_soon(desk.claim(limits, token="three"))


@pytest.mark.parametrize("limits", [Limits(parallel=2), Limits(open_jobs=2)])
@pytest.mark.parametrize("becomes", SETTLING)
def test_an_attempt_that_is_settled_and_a_job_that_is_over_make_room_for_the_next(
    desk: Desk, becomes: Becomes, limits: Limits
) -> None:
    desk.put("abcd")
    first, _ = desk.hold(limits)
    desk.settle(becomes, first, has_job=False)
    assert desk.take(limits) == ["c"]
    assert desk.claim(limits).tasks == ()


@pytest.mark.promise("limits", "a crash keeps its share of a limit until its lease is over, and frees no job's share")
def test_a_crash_takes_up_its_place_until_the_lease_is_over_and_no_longer(desk: Desk) -> None:
    limits = Limits(parallel=2)
    desk.put("abcd")
    assert len(desk.claim(limits).tasks) == 2
    desk.rewind(LEASE_SECONDS - 60)
    assert desk.claim(limits).tasks == ()
    desk.rewind(60)
    assert desk.take(limits) == ["c", "d"]
    assert desk.claim(limits, which="once").tasks == ()


def test_requests_own_attempts_count_and_beyond_the_limit_their_tasks_wait(desk: Desk) -> None:
    limits = Limits(parallel=2)
    desk.put("a")
    desk.claim(limits)
    assert desk.begin("bc", limits) == ["created", "waiting"]
    assert desk.begin("d", limits) == ["waiting"]
    assert desk.begin("bcd", limits) == ["created", "waiting", "waiting"]
    assert desk.begin("bcd", limits, token="another") == ["exists"] * 3
    assert desk.state() == dict.fromkeys("ab", ("processing", 1)) | dict.fromkeys("cd", ("waiting", 1))


def test_a_task_that_waits_at_a_limit_is_due_at_once(desk: Desk) -> None:
    limits = Limits(parallel=1)
    desk.begin("ab", limits)
    desk.settle("completed", Hold(task("a"), 1, "adder"))
    assert desk.take(limits) == ["b"]


@pytest.mark.promise("limits", "a limit that a deploy brings or lowers counts what is already open and in progress")
def test_a_limit_that_is_lowered_waits_for_what_is_under_way(desk: Desk) -> None:
    desk.put("abcdef")
    first, second, third = desk.hold(Limits(parallel=3))
    lower = Limits(parallel=1)
    desk.settle("completed", first, second)
    assert desk.claim(lower).tasks == ()
    desk.settle("completed", third)
    assert desk.take(lower) == ["d"]


# --- open jobs


TWO_JOBS = Limits(open_jobs=2)


def test_tasks_beyond_the_open_jobs_wait_while_those_with_a_job_are_asked_after(desk: Desk) -> None:
    desk.put("abcde")
    for _ in range(4):
        started = desk.hold(TWO_JOBS)
        assert [hold.task.name for hold in started] == ["a", "b"]
        assert desk.claim(TWO_JOBS).tasks == ()
        desk.settle("waiting", *started, delay=500)
        assert desk.claim(TWO_JOBS).tasks == ()
        desk.rewind(500)


@pytest.mark.promise("limits", "a crash keeps its share of a limit until its lease is over, and frees no job's share")
def test_a_crash_neither_frees_a_jobs_place_nor_takes_a_second_one(desk: Desk) -> None:
    desk.put("abcd")
    desk.claim(TWO_JOBS)
    desk.rewind(LEASE_SECONDS)
    back = desk.claim(TWO_JOBS)
    assert (back.tasks, back.expired, back.once) == ((), 2, True)
    again = desk.hold(TWO_JOBS, which="once")
    assert sorted(hold.task.name for hold in again) == ["a", "b"]
    desk.settle("completed", again[0])
    assert desk.take(TWO_JOBS) == ["c"]


def test_the_oldest_come_first_whether_they_have_a_job_or_not(desk: Desk) -> None:
    desk.seed("old", due_seconds=-400)
    desk.seed("with a job", due_seconds=-300, has_job=True)
    desk.seed("young", due_seconds=-200)
    desk.seed("younger with a job", due_seconds=-100, has_job=True)
    limits = Limits(open_jobs=3)
    assert desk.take(limits, limit=2) == ["old", "with a job"]
    assert desk.take(limits, limit=2) == ["younger with a job"]


@pytest.mark.promise("limits", "jobs are polled however many tasks wait for one")
def test_a_job_is_asked_after_however_many_tasks_wait_before_it(desk: Desk) -> None:
    for number in range(300):
        desk.seed(f"waits {number}", due_seconds=-5000)
    desk.seed("a", due_seconds=-2, has_job=True)
    desk.seed("b", due_seconds=-1, has_job=True)
    assert desk.take(TWO_JOBS) == ["a", "b"]
    assert desk.claim(TWO_JOBS).tasks == ()
    assert len(desk.claim(Limits(open_jobs=3)).tasks) == 1


@pytest.mark.junk
def test_jobs_of_tasks_that_are_gone_take_up_no_place_once_that_is_seen(desk: Desk) -> None:
    for ghost in ("one", "two", "three"):
        desk.write("jobs", ghost, "")
    desk.put("abc")
    assert desk.claim(TWO_JOBS).tasks == ()
    ghosts = desk.queue.mend(PROVIDER)
    assert [ghost.name for ghost in ghosts] == ["one", "three", "two"]
    desk.end("forgotten", *(ghost.name for ghost in ghosts))
    assert desk.take(TWO_JOBS) == ["a", "b"]
    assert desk.parts()["jobs"].keys() == {"a", "b"}


def test_requests_own_attempts_open_jobs_and_beyond_the_limit_their_tasks_wait(desk: Desk) -> None:
    assert desk.begin("abc", TWO_JOBS) == ["created", "created", "waiting"]
    assert desk.claim(TWO_JOBS).tasks == ()
    desk.settle("completed", Hold(task("a"), 1, "adder"))
    desk.end("dropped", "c")
    assert desk.begin("d", TWO_JOBS) == ["created"]


@pytest.mark.promise("limits", "jobs that are open already count as soon as reconcile has brought their tasks back")
def test_jobs_that_are_open_already_count_from_the_moment_their_tasks_are_added(desk: Desk) -> None:
    desk.put("ab", limits=TWO_JOBS, has_job=True, delay=5000)
    desk.put("c")
    assert desk.claim(TWO_JOBS).tasks == ()
    assert desk.begin("d", TWO_JOBS) == ["waiting"]


def test_a_new_generation_has_no_job_until_it_is_asked_for(desk: Desk) -> None:
    desk.begin("ab", TWO_JOBS)
    desk.add("a", 2, delay=5000, limits=TWO_JOBS)
    assert desk.parts()["jobs"].keys() == {"b"}
    desk.put("c")
    assert desk.take(TWO_JOBS) == ["c"]


@pytest.mark.promise("limits", "a limit that a deploy brings or lowers counts what is already open and in progress")
def test_a_limit_that_a_deploy_brings_counts_every_job_once_it_is_asked_after(desk: Desk) -> None:
    desk.put("abcd")
    desk.settle("waiting", *desk.hold(limit=3), delay=500)
    desk.rewind(500)
    assert desk.take(TWO_JOBS) == ["d", "a"]
    assert desk.claim(TWO_JOBS).tasks == ()


def test_a_limit_that_a_deploy_takes_away_holds_nothing_back(desk: Desk) -> None:
    desk.put("abcd")
    first, second = desk.hold(TWO_JOBS)
    assert desk.take() == ["c", "d"]
    desk.settle("completed", first)
    desk.settle("buried", second)
    assert desk.parts()["jobs"] == {}


@pytest.mark.promise("limits", "a limit that a deploy brings or lowers counts what is already open and in progress")
def test_a_limit_that_a_deploy_lowers_waits_until_fewer_are_open(desk: Desk) -> None:
    desk.put("abcdef")
    first, second, third = desk.hold(Limits(open_jobs=3))
    one_job = Limits(open_jobs=1)
    desk.settle("waiting", third, delay=0)
    assert desk.take(one_job) == ["c"]
    desk.settle("completed", first, second)
    assert desk.claim(one_job).tasks == ()
    desk.settle("completed", Hold(third.task, 1, "worker"))
    assert desk.take(one_job) == ["d"]


def test_while_no_attempt_is_under_way_no_job_can_end_and_the_next_question_is_waited_for(desk: Desk) -> None:
    desk.put("abc")
    first, second = desk.hold(TWO_JOBS)
    desk.settle("waiting", first, delay=500)
    assert is_soon(desk.claim(TWO_JOBS))
    desk.settle("waiting", second, delay=900)
    assert desk.claim(TWO_JOBS).wait_seconds == about(500)


@pytest.mark.parametrize("redis_kind", SERVERS[1:], indirect=True)
def test_thousands_of_jobs_may_be_open(desk: Desk) -> None:
    limits = Limits(open_jobs=9000)
    desk.put([f"{number}" for number in range(9000)], limits=limits, has_job=True)
    desk.put("ab")
    assert len(desk.claim(limits, limit=200).tasks) == 200
    desk.end("dropped", *(f"{number}" for number in range(9000)))
    assert desk.take(limits) == ["a", "b"]


# --- those that came back


@pytest.mark.parametrize(("which", "came_back"), [("once", 1), ("often", 2)])
def test_what_came_back_needs_what_every_attempt_needs(desk: Desk, which: Any, came_back: int) -> None:
    desk.seed("a", came_back=came_back, due_seconds=-5)
    desk.seed("held", lease_seconds=LEASE_SECONDS)
    assert desk.take(Limits(parallel=1), which=which) == []
    assert desk.take(TWO_JOBS, which=which) == ["a"]


@pytest.mark.parametrize(("which", "came_back"), [("once", 1), ("often", 2)])
@pytest.mark.parametrize("limits", [Limits(parallel=1), Limits(rate_seconds=5000, burst=1), Limits(open_jobs=1)])
def test_what_came_back_and_may_not_begin_gives_no_reason_to_look_at_once(
    desk: Desk, limits: Limits, which: Any, came_back: int
) -> None:
    desk.seed("a", due_seconds=-50)
    assert desk.take(limits) == ["a"]
    desk.seed("back", came_back=came_back)
    for asked in ("ordinary", which):
        shut = desk.claim(limits, which=asked)
        assert shut.tasks == ()
        assert shut.wait_seconds is None or shut.wait_seconds > 0


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize(("which", "came_back"), [("once", 1), ("often", 2)])
def test_what_came_back_with_a_job_is_asked_after_although_all_jobs_are_open_and_others_are_older(
    desk: Desk, which: Any, came_back: int, count: int
) -> None:
    """After a loss of Redis all tasks have come back: those without a job must not hide those with one."""
    for number in range(count):
        desk.seed(f"without {number}", came_back=came_back, due_seconds=-100)
    for name in "ab":
        desk.seed(name, came_back=came_back, has_job=True)
    taken = [desk.take(TWO_JOBS, which=which) for _ in range(3)]
    assert sorted(name for names in taken for name in names) == ["a", "b"]
    desk.settle("completed", Hold(task("a"), 1, "worker"))
    assert len(desk.take(TWO_JOBS, which=which)) == 1


# --- requests' own attempts go behind who waits


def asked_at_once(desk: Desk, name: str, limits: Limits) -> bool:
    return desk.begin([name], limits, token=name) == ["created"]


@pytest.mark.promise("limits", "a request does not overtake a due task that waits at a limit")
def test_a_requests_own_attempt_takes_no_token_that_somebody_waits_for(desk: Desk) -> None:
    limits = Limits(rate_seconds=1000, burst=4)
    desk.put("abc")
    assert [asked_at_once(desk, name, limits) for name in "xy"] == [True, False]
    assert desk.take(limits) == ["a", "b", "c"]
    desk.rewind(1000)
    assert not asked_at_once(desk, "z", limits)
    assert desk.take(limits) == ["y"]


@pytest.mark.promise("limits", "a request does not overtake a due task that waits at a limit")
def test_a_requests_own_attempt_takes_no_place_that_somebody_waits_for(desk: Desk) -> None:
    limits = Limits(parallel=2)
    desk.put("abc")
    first, second = desk.hold(limits)
    desk.settle("completed", first)
    assert not asked_at_once(desk, "x", limits)
    assert desk.take(limits) == ["c"]
    desk.settle("completed", second)
    assert not asked_at_once(desk, "y", limits)
    assert desk.take(limits) == ["x"]


@pytest.mark.promise("limits", "a request does not overtake a due task that waits at a limit")
def test_a_requests_own_attempt_opens_no_job_that_somebody_waits_for(desk: Desk) -> None:
    desk.put("a", has_job=True, limits=TWO_JOBS)
    desk.put("b")
    assert not asked_at_once(desk, "x", TWO_JOBS)
    assert sorted(desk.take(TWO_JOBS)) == ["a", "b"]


def test_who_waits_only_to_be_asked_after_leaves_the_jobs_to_others(desk: Desk) -> None:
    desk.put("abc", has_job=True, limits=Limits(open_jobs=5))
    assert asked_at_once(desk, "x", Limits(open_jobs=5))
    assert not asked_at_once(desk, "y", Limits(open_jobs=5, parallel=4))


def test_who_waits_for_later_or_came_back_is_not_waited_for(desk: Desk) -> None:
    desk.put("ab", delay=5000)
    for times in (1, 2):
        desk.seed(f"came back {times}", came_back=times)
    assert asked_at_once(desk, "x", Limits(parallel=1))


@pytest.mark.parametrize("limits", [Limits(parallel=500), Limits(open_jobs=500), Limits(rate_seconds=1000, burst=500)])
def test_a_request_may_have_what_they_leave_however_many_wait(desk: Desk, limits: Limits) -> None:
    desk.put([f"{number:03}" for number in range(450)])
    assert asked_at_once(desk, "x", limits)
    desk.put([f"more {number:03}" for number in range(49)])
    assert not asked_at_once(desk, "y", limits)


# --- a pause that the provider asks for


def paused(desk: Desk, health: Health, name: str = "first") -> Hold:
    """Somebody was told so; the task he asked about is due much later."""
    desk.begin([name], token=f"token of {name}")
    hold = Hold(task(name), 1, f"token of {name}")
    desk.settle("waiting", hold, delay=1_000_000, health=health)
    return hold


def test_a_pause_holds_for_everybody_and_requests_own_attempts_too(desk: Desk) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.put("abc")
    assert desk.claim().tasks == ()
    assert desk.claim().wait_seconds == about(600)
    assert desk.begin("d") == ["waiting"]
    desk.rewind(540)
    assert desk.claim().tasks == ()


def test_a_pause_concerns_its_provider_alone(desk: Desk) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.seed("a", provider="coin")
    assert len(desk.queue.claim("coin", limit=5, lease_seconds=30, token="t").tasks) == 1


def test_a_pause_is_lengthened_and_never_shortened(desk: Desk) -> None:
    desk.put("abc")
    first, second, third = desk.hold()
    desk.put("d")
    desk.settle("waiting", first, delay=5000, health=Health(pause_seconds=600))
    desk.settle("waiting", second, delay=5000, health=Health(pause_seconds=60))
    assert desk.claim().wait_seconds == about(600)
    desk.settle("waiting", third, delay=5000, health=Health(pause_seconds=2000))
    assert desk.claim().wait_seconds == about(2000)


@pytest.mark.parametrize("becomes", ["completed", "waiting"])
def test_a_good_answer_that_comes_late_does_not_end_a_pause_before_its_time(desk: Desk, becomes: Becomes) -> None:
    desk.put("abc")
    first, second, _ = desk.hold()
    desk.put("d")
    desk.settle("waiting", first, delay=5000, health=Health(pause_seconds=600))
    desk.settle(becomes, second, health=WELL)
    assert desk.claim().wait_seconds == about(600)


def test_a_good_answer_beside_it_does_not_outweigh_a_pause(desk: Desk) -> None:
    paused(desk, Health(pause_seconds=600, well=frozenset({"first"})))
    desk.put("a")
    assert desk.claim().wait_seconds == about(600)


def test_a_pause_is_heard_although_the_task_is_lost(desk: Desk) -> None:
    desk.put("ab")
    lost = Hold(task("a"), 1, "somebody else's")
    assert desk.settle("waiting", lost, health=Health(pause_seconds=600)) == [False]
    assert desk.claim().tasks == ()


@pytest.mark.parametrize("becomes", SETTLING)
def test_every_way_to_settle_tells_how_the_provider_is(desk: Desk, becomes: Becomes) -> None:
    desk.put("a")
    (hold,) = desk.hold()
    desk.put("b")
    desk.settle(becomes, hold, health=Health(pause_seconds=600))
    assert desk.claim().wait_seconds == about(600)


def test_with_nothing_due_a_pause_gives_no_reason_to_look_again(desk: Desk) -> None:
    hold = paused(desk, Health(pause_seconds=600))
    desk.end("dropped", hold.task.name)
    assert desk.claim().wait_seconds is None
    desk.put("a", delay=5000)
    assert desk.claim().wait_seconds == about(5000)


# --- the probe


def test_after_a_pause_exactly_one_attempt_is_made_over_all_workers(desk: Desk) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.put("abcdef")
    desk.rewind(600)
    assert desk.take(token="one") == ["a"]
    assert is_soon(desk.claim(token="two"))
    assert desk.claim(token="two", which="once").tasks == ()
    assert desk.begin("g") == ["waiting"]


@pytest.mark.parametrize("becomes", ["dropped", "forgotten"])
def test_nobody_finds_the_name_of_a_task_that_ended_elsewhere_as_the_probes(
    desk: Desk, becomes: Literal["dropped", "forgotten"]
) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.put("ab")
    desk.rewind(600)
    assert desk.take() == ["a"]
    desk.end("dropped", "b")
    assert desk.parts()["gate"]["probe"] == "a"
    desk.rewind(LEASE_SECONDS + 1)
    desk.end(becomes, "a", generation=0)
    assert desk.parts()["gate"]["probe"] == "a"
    desk.end(becomes, "a")
    assert "probe" not in desk.parts()["gate"]
    desk.put("c")
    assert desk.take() == ["c"]  # the next probe


def test_a_requests_own_attempt_may_be_the_probe(desk: Desk) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.rewind(600)
    assert desk.begin("abc") == ["created", "waiting", "waiting"]
    assert desk.claim().tasks == ()


@pytest.mark.parametrize("becomes", SETTLING)
def test_a_good_answer_to_the_probe_ends_the_pause_and_lets_two_in(desk: Desk, becomes: Becomes) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.put("abcdef")
    desk.rewind(600)
    (probe,) = desk.hold()
    desk.settle(becomes, probe, health=WELL)
    assert desk.parts()["gate"] == {"slow": "2"}
    assert len(desk.claim().tasks) == 2


@pytest.mark.parametrize("becomes", SETTLING)
def test_an_answer_to_an_attempt_from_before_the_pause_does_not_end_it(desk: Desk, becomes: Becomes) -> None:
    desk.put("abcdef")
    before, late, again, *_ = desk.hold(limit=3)
    desk.settle("waiting", before, delay=0, health=Health(pause_seconds=600))
    desk.rewind(600)
    desk.settle(becomes, late, health=WELL)
    (probe,) = desk.hold()
    desk.settle(becomes, again, health=WELL)
    assert desk.claim().tasks == ()
    desk.settle(becomes, probe, health=WELL)
    assert len(desk.claim().tasks) == 2


@pytest.mark.parametrize("becomes", SETTLING)
@pytest.mark.parametrize("probe_is_well", [True, False])
def test_among_answers_of_one_call_the_probes_own_ends_the_pause_or_begins_another(
    desk: Desk, becomes: Becomes, probe_is_well: bool
) -> None:
    before, probe = before_and_probe(desk)
    good, bad = (probe, before) if probe_is_well else (before, probe)
    desk.settle(becomes, before, probe, health=mixed(good, bad))
    if probe_is_well:
        assert desk.parts()["gate"] == {"slow": "2"}
    else:
        assert desk.parts()["gate"]["pauses"] == "2"
        assert desk.claim().wait_seconds == about(200)


@pytest.mark.parametrize("becomes", SETTLING)
@pytest.mark.parametrize("probe_is_well", [True, False])
def test_the_probes_answer_is_heard_from_its_own_call_alone(desk: Desk, becomes: Becomes, probe_is_well: bool) -> None:
    before, probe = before_and_probe(desk)
    health = mixed(probe, before) if probe_is_well else mixed(before, probe)
    desk.settle(becomes, before, health=health)
    assert desk.parts()["gate"]["pauses"] == "1"
    assert desk.claim().tasks == ()
    desk.settle(becomes, probe, health=health)
    assert desk.parts()["gate"].get("pauses") == (None if probe_is_well else "2")


@pytest.mark.parametrize("becomes", SETTLING)
@pytest.mark.parametrize("probe_is_well", [True, False])
def test_an_answer_about_the_probes_task_that_is_lost_or_of_an_older_generation_is_not_the_probes(
    desk: Desk, becomes: Becomes, probe_is_well: bool
) -> None:
    before, probe = before_and_probe(desk)
    lost = Hold(probe.task, 1, "somebody else's")
    desk.settle(becomes, lost, health=mixed(lost, before) if probe_is_well else mixed(before, lost))
    assert desk.parts()["gate"]["pauses"] == "1"
    assert desk.claim().tasks == ()


@pytest.mark.parametrize("becomes", SETTLING)
def test_an_error_of_an_attempt_from_before_a_pause_begins_no_other(desk: Desk, becomes: Becomes) -> None:
    before, _ = before_and_probe(desk)
    desk.settle(becomes, before, health=errors())
    assert desk.parts()["gate"]["pauses"] == "1"
    assert desk.parts()["gate"]["troubles"] == "1"


def before_and_probe(desk: Desk) -> tuple[Hold, Hold]:
    """An attempt from before a pause that is over, and the probe after it; others wait."""
    desk.put("abcdef")
    before, asked = desk.hold(limit=2)
    desk.settle("waiting", asked, delay=0, health=Health(pause_seconds=600))
    desk.rewind(600)
    (probe,) = desk.hold(token="prober")
    return before, probe


def mixed(good: Hold, bad: Hold) -> Health:
    """What a good and a bad answer tell together."""
    well, troubled = frozenset({good.task.name}), frozenset({bad.task.name})
    return dataclasses.replace(errors(0), well=well, unwell=troubled)


@pytest.mark.promise("limits", "if the probe's worker dies, another probe is made after its lease")
def test_if_the_probes_worker_dies_another_probe_is_made_after_its_lease(desk: Desk) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.put("abcdef")
    desk.rewind(600)
    desk.claim()
    desk.rewind(LEASE_SECONDS - 60)
    assert desk.claim().tasks == ()
    desk.rewind(60)
    assert desk.take() == ["b"]
    assert desk.claim().tasks == ()


@pytest.mark.parametrize("becomes", ["waiting", "buried", "forgotten", "dropped", "begin again"])
def test_a_probe_that_ends_without_an_answer_makes_room_for_another_one(desk: Desk, becomes: Any) -> None:
    paused(desk, Health(pause_seconds=600))
    desk.put("abcdef")
    desk.rewind(600)
    (probe,) = desk.hold()
    if becomes == "begin again":
        desk.add("a", 2, delay=5000)
    elif becomes == "dropped":
        desk.end(becomes, "a")
    else:
        desk.settle(becomes, probe)
    assert desk.take() == ["b"]
    assert desk.claim().tasks == ()


def test_a_probe_keeps_to_the_limits(desk: Desk) -> None:
    limits = Limits(rate_seconds=5000, burst=1)
    desk.put("abcdef")
    (hold,) = desk.hold(limits)
    desk.settle("waiting", hold, delay=50_000, health=Health(pause_seconds=600))
    desk.rewind(600)
    shut = desk.claim(limits)
    assert (shut.tasks, shut.wait_seconds) == ((), about(4400))
    desk.rewind(4400)
    assert desk.take(limits) == ["b"]


# --- the slow start after a pause


def waiting_behind_a_pause(desk: Desk, count: int) -> Hold:
    """So many wait while a pause is over; the probe that is under way."""
    paused(desk, Health(pause_seconds=600))
    desk.put([f"{number:03}" for number in range(count)])
    desk.rewind(600)
    (probe,) = desk.hold(limit=200)
    return probe


def good(*holds: Hold) -> Health:
    return Health(well=frozenset(hold.task.name for hold in holds))


@pytest.mark.promise("limits", "after a pause attempts begin slowly: one, two, four, with each good answer")
@pytest.mark.parametrize("settled", ["together", "one by one"])
def test_after_a_pause_those_that_wait_begin_slowly_and_never_all_at_once(desk: Desk, settled: str) -> None:
    """C5: 200 wait while a provider is paused."""
    under_way, begun = [waiting_behind_a_pause(desk, 200)], [1]
    while sum(begun) < 200:
        if settled == "together":
            desk.settle("completed", *under_way, health=good(*under_way))
        for hold in under_way if settled == "one by one" else ():
            desk.settle("completed", hold, health=good(hold))
        under_way = desk.hold(limit=200)
        begun.append(len(under_way))
    assert begun == [1, 2, 4, 8, 16, 32, 64, 73]


def test_each_good_answer_lets_two_more_begin_over_all_workers(desk: Desk) -> None:
    desk.settle("completed", probe := waiting_behind_a_pause(desk, 50), health=good(probe))
    first, second = desk.hold(token="one")
    shut = desk.claim(token="two")
    assert is_soon(shut)
    desk.settle("completed", first, health=good(first))
    assert len(desk.claim(token="two").tasks) == 2
    assert desk.begin("x", Limits(parallel=90)) == ["waiting"]
    desk.settle("waiting", second, health=good(second))
    assert len(desk.claim(token="three").tasks) == 2


@pytest.mark.parametrize("told", ["an error", "nothing", "a good answer that is lost"])
def test_what_is_no_good_answer_does_not_speed_it_up(desk: Desk, told: str) -> None:
    desk.settle("completed", probe := waiting_behind_a_pause(desk, 50), health=good(probe))
    first, _ = desk.hold()
    settled = Hold(first.task, 1, "another's") if told.endswith("lost") else first
    desk.settle(
        "waiting", settled, health=errors(1) if told == "an error" else UNKNOWN if told == "nothing" else WELL_ALL
    )
    assert desk.parts()["gate"]["slow"] == "2"
    assert len(desk.claim().tasks) == (0 if told.endswith("lost") else 1)


def test_another_pause_begins_it_anew(desk: Desk) -> None:
    desk.settle("completed", probe := waiting_behind_a_pause(desk, 50), health=good(probe))
    first, second = desk.hold()
    desk.settle("completed", first, health=good(first))
    desk.settle("waiting", second, health=Health(pause_seconds=600))
    assert "slow" not in desk.parts()["gate"]
    desk.rewind(600)
    (probe,) = desk.hold(limit=50)
    desk.settle("completed", probe, health=good(probe))
    assert len(desk.claim(limit=50).tasks) == 2


def test_a_worker_that_asks_for_few_does_not_end_it_nor_does_one_that_asks_for_what_came_back(desk: Desk) -> None:
    desk.settle("completed", probe := waiting_behind_a_pause(desk, 50), health=good(probe))
    under_way = desk.hold()
    desk.settle("completed", *under_way, health=good(*under_way))
    assert len(desk.claim(limit=1).tasks) == 1
    assert desk.claim(which="once").tasks == ()
    assert len(desk.claim(limit=50).tasks) == 3


def test_it_is_over_once_nobody_is_held_back(desk: Desk) -> None:
    desk.settle("completed", probe := waiting_behind_a_pause(desk, 2), health=good(probe))
    (last,) = desk.hold()
    assert desk.parts()["gate"] == {}
    desk.put([f"more {number}" for number in range(9)])
    assert len(desk.claim().tasks) == 9
    desk.settle("completed", last, health=good(last))
    assert desk.parts()["gate"] == {}


def test_it_is_over_with_two_hundred_at_once(desk: Desk) -> None:
    desk.write("gate", "slow", "198")
    desk.put("ab")
    holds = desk.hold(limit=2)
    for hold, left in zip(holds, ({"slow": "199"}, {}), strict=True):
        desk.settle("waiting", hold, health=good(hold))
        assert desk.parts()["gate"] == left


@pytest.mark.parametrize("becomes", ["completed", "buried", "forgotten"])
def test_nothing_of_it_is_left_in_the_gate_of_an_empty_queue(desk: Desk, becomes: Becomes) -> None:
    hold = paused(desk, Health(pause_seconds=600))
    desk.end("dropped", hold.task.name)
    desk.put("a")
    desk.rewind(600)
    (probe,) = desk.hold()
    desk.settle(becomes, probe, health=WELL)
    assert desk.parts()["gate"] == {}


def test_nothing_of_it_is_left_when_the_last_one_is_cancelled_and_somebody_looks(desk: Desk) -> None:
    desk.settle("completed", probe := waiting_behind_a_pause(desk, 3), health=good(probe))
    desk.end("dropped", "first", "001", "002")
    assert desk.claim().tasks == ()
    assert desk.keys.dump() == {}


def test_a_limit_still_holds_while_it_lasts(desk: Desk) -> None:
    desk.settle("completed", probe := waiting_behind_a_pause(desk, 50), health=good(probe))
    under_way = desk.hold()
    desk.settle("completed", *under_way, health=good(*under_way))
    assert len(desk.claim(Limits(parallel=3)).tasks) == 3
    assert len(desk.claim().tasks) == 1


# --- a pause for errors


def errors(count: int = 1, at_most: int = 3) -> Health:
    return Health(errors=count, unwell=NAMES, errors_to_pause=at_most, shortest_seconds=100, longest_seconds=700)


def settle_one(desk: Desk, health: Health) -> None:
    desk.settle("waiting", *desk.hold(limit=1), health=health, delay=0)


def test_so_many_errors_in_a_row_pause_a_provider(desk: Desk) -> None:
    desk.put("ab")
    settle_one(desk, errors())
    settle_one(desk, errors())
    assert len(desk.claim(limit=1).tasks) == 1
    settle_one(desk, errors())
    assert desk.claim().wait_seconds == about(100)


def test_errors_that_come_together_count_each(desk: Desk) -> None:
    desk.put("ab")
    settle_one(desk, errors(3))
    assert desk.claim().tasks == ()


@pytest.mark.parametrize("becomes", ["completed", "waiting"])
def test_a_good_answer_in_between_begins_the_count_anew(desk: Desk, becomes: Becomes) -> None:
    desk.put("abc")
    settle_one(desk, errors(2))
    desk.settle(becomes, *desk.hold(limit=1), health=WELL, delay=0)
    settle_one(desk, errors(2))
    assert len(desk.claim().tasks) > 0


def test_the_pause_is_twice_as_long_after_each_probe_that_fails_up_to_the_longest(desk: Desk) -> None:
    desk.put("ab")
    settle_one(desk, errors(3))
    for seconds in (100, 200, 400, 700, 700):
        assert desk.claim().wait_seconds == about(seconds)
        desk.rewind(seconds)
        settle_one(desk, errors())
    desk.rewind(700)
    settle_one(desk, WELL)
    settle_one(desk, errors(3))
    assert desk.claim().wait_seconds == about(100)


def test_failures_that_are_told_late_neither_lengthen_a_pause_nor_the_next_one(desk: Desk) -> None:
    desk.put("abcdefgh")
    late = desk.hold()
    desk.put("z")
    desk.settle("waiting", late[0], delay=50_000, health=errors(3))
    desk.rewind(50)
    for hold in late[1:]:
        desk.settle("waiting", hold, delay=50_000, health=errors(1))
    assert desk.claim(limit=1).wait_seconds == about(50)
    desk.rewind(50)
    settle_one(desk, errors())
    assert desk.claim().wait_seconds == about(200)


def test_the_provider_asks_for_longer_than_its_errors_would(desk: Desk) -> None:
    desk.put("ab")
    settle_one(desk, Health(pause_seconds=900, errors=3, errors_to_pause=3, shortest_seconds=100, longest_seconds=700))
    assert desk.claim().wait_seconds == about(900)


# --- junk


@pytest.mark.parametrize("value", ["junk", "nan", "-1", "1e300", "7.5"])
@pytest.mark.parametrize("field", ["until", "probe", "troubles", "pauses", "full_at", "slow"])
def test_junk_in_the_gate_stops_nobody_and_breaks_nothing(desk: Desk, field: str, value: str) -> None:
    desk.write("gate", field, value)
    limits = Limits(rate_seconds=1000, burst=2, parallel=5, open_jobs=5)
    desk.put("abcdef")
    (first, *more) = desk.hold(limits)
    desk.settle("waiting", *more, delay=0, health=WELL)
    desk.settle("waiting", first, delay=0, health=errors(3))
    assert desk.claim(limits).wait_seconds == pytest.approx(1000, abs=901)


def test_a_pause_that_is_longer_than_any_file_may_say_is_junk(desk: Desk) -> None:
    desk.put("a")
    desk.write("gate", "until", f"{2**53}")
    (place,) = desk.queue.look([task("a")])
    assert (place.wait_seconds, place.held_up) == (0, "")
    assert len(desk.claim().tasks) == 1


def test_a_fraction_in_the_gate_is_rounded_down(desk: Desk) -> None:
    desk.write("gate", "slow", "2.5")
    desk.put("abcd")
    assert len(desk.claim().tasks) == 2
