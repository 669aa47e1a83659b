"""A provider's limits and its pause, over all workers: the same promises on fakeredis, Valkey, Redis and the double.

Spans are long against what a test takes, since a server's own time goes on; only `rewind` lets them pass.
"""

import dataclasses
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from shared.limits import UNLIMITED, Health, Limits
from shared.queue import Add, Claim, Hold, Queue, Release
from shared.task import Task
from tests.support.keys import PROVIDER, Bench, key_of
from tests.support.redis_servers import EVERY_KIND, SERVERS

LEASE_SECONDS = 3000.0
NAMES = frozenset("abcdefgh")
WELL = Health(well=NAMES)
LOOK_AGAIN_SECONDS = 1.0

Rewind = Callable[[float], None]


@pytest.fixture(params=EVERY_KIND)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """Here the double too."""
    kind: str = request.param
    return kind


def task(name: str) -> Task:
    return Task(PROVIDER, name)


def put(queue: Queue, names: Sequence[str] | str, **options: Any) -> list[str]:
    """Add these tasks; one after the other if each name is one letter."""
    token = options.pop("token", "adder")
    adds = [Add(task(name), 1, "{}", options.get("delay", 0), has_job=options.get("has_job", False)) for name in names]
    passed = {name: value for name, value in options.items() if name in ("lease_seconds", "limits")}
    return list(queue.add(adds, token=token, **passed))


def claim(queue: Queue, limits: Limits = UNLIMITED, *, limit: int = 10, token: str = "worker", **more: Any) -> Claim:
    return queue.claim(PROVIDER, limit=limit, lease_seconds=LEASE_SECONDS, token=token, limits=limits, **more)


def holds(claimed: Claim) -> list[Hold]:
    return [one.hold for one in claimed.tasks]


def names(claimed: Claim) -> list[str]:
    return [one.hold.task.name for one in claimed.tasks]


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=60)


# --- no limits


def test_without_limits_nothing_is_kept_of_a_provider(queue: Queue, bench: Bench) -> None:
    put(queue, "abc")
    first, second, third = holds(claim(queue))
    queue.complete([first], WELL)
    queue.release([Release(second, has_job=False)], WELL)
    queue.bury([third], WELL)
    assert all(not bench.parts()[part] for part in ("gate", "jobs", "groups"))


# --- rate


def test_a_burst_may_begin_at_once_and_then_one_attempt_each_so_often(queue: Queue, rewind: Rewind) -> None:
    limits = Limits(rate_seconds=1000, burst=3)
    put(queue, "abcdefghij")
    assert names(claim(queue, limits)) == ["a", "b", "c"]
    shut = claim(queue, limits)
    assert (shut.tasks, shut.wait_seconds) == ((), about(1000))
    rewind(1000)
    assert names(claim(queue, limits)) == ["d"]
    rewind(2500)
    assert names(claim(queue, limits)) == ["e", "f"]
    assert claim(queue, limits).wait_seconds == about(500)


def test_no_more_than_a_burst_is_ever_saved_up(queue: Queue, rewind: Rewind) -> None:
    limits = Limits(rate_seconds=10, burst=3)
    put(queue, "abcdefghij")
    claim(queue, limits, limit=1)
    rewind(1_000_000)
    assert len(claim(queue, limits).tasks) == 3


def test_the_time_that_claim_tells_to_wait_is_enough(queue: Queue, rewind: Rewind) -> None:
    limits = Limits(rate_seconds=1000 / 3, burst=2)
    put(queue, "abcdefghij")
    claim(queue, limits)
    for _ in range(6):
        wait_seconds = claim(queue, limits).wait_seconds
        assert wait_seconds is not None
        rewind(wait_seconds)
        assert len(claim(queue, limits).tasks) == 1


@pytest.mark.parametrize("seed_number", range(4))
def test_a_provider_never_sees_more_than_a_burst_and_one_attempt_each_so_often(
    queue: Queue, bench: Bench, seed_number: int
) -> None:
    random, limits = Random(seed_number), Limits(rate_seconds=70, burst=4)
    put(queue, [f"{number}" for number in range(200)])
    start_ms, passed_seconds, begun = bench.keys.now(), 0.0, 0
    for step in range(30):
        if random.random() < 0.2:
            begun += put(queue, [f"inline {step}"], limits=limits, lease_seconds=LEASE_SECONDS).count("created")
        else:
            begun += len(claim(queue, limits, limit=random.randint(1, 5), token=f"{step}").tasks)
        assert begun <= 4 + (passed_seconds + (bench.keys.now() - start_ms) / 1000) / 70
        seconds = random.choice((0, 1, 33.3, 69.9, 70, 141, 1000))
        bench.rewind(seconds)
        passed_seconds += seconds


def test_a_claim_that_finds_less_than_it_may_take_uses_up_no_more(queue: Queue) -> None:
    limits = Limits(rate_seconds=1000, burst=5)
    put(queue, "ab")
    assert len(claim(queue, limits).tasks) == 2
    put(queue, "cdefgh")
    assert len(claim(queue, limits).tasks) == 3


def test_with_nothing_due_the_rate_gives_no_reason_to_look_again(queue: Queue) -> None:
    limits = Limits(rate_seconds=1000, burst=1)
    put(queue, "a")
    assert names(claim(queue, limits)) == ["a"]
    assert claim(queue, limits).wait_seconds is None
    put(queue, "b", delay=100)
    assert claim(queue, limits).wait_seconds == about(1000)
    put(queue, "c", delay=5000)
    queue.forget([(task("b"), 1)])
    assert claim(queue, limits).wait_seconds == about(5000)


def test_a_deploy_may_change_the_rate_at_any_time(queue: Queue) -> None:
    put(queue, "abcdefghijklmnopqrst")
    slow = Limits(rate_seconds=10_000, burst=5)
    assert len(claim(queue, slow).tasks) == 5
    faster = Limits(rate_seconds=100, burst=2)
    assert [len(claim(queue, faster).tasks) for _ in range(2)] == [1, 0]
    assert len(claim(queue).tasks) == 10
    assert len(claim(queue, slow).tasks) == 4


def test_a_clock_that_went_back_stops_nobody(queue: Queue, bench: Bench, rewind: Rewind) -> None:
    limits = Limits(rate_seconds=100, burst=3)
    put(queue, "abcdefghij")
    claim(queue, limits)
    bench.keys.write(key_of(PROVIDER, "gate"), "full_at", str(bench.keys.now() + 1_000_000_000))
    assert [len(claim(queue, limits, limit=2).tasks) for _ in range(2)] == [1, 0]
    rewind(100)
    assert len(claim(queue, limits).tasks) == 1


# --- parallel


def test_no_more_attempts_are_under_way_at_once_than_the_provider_allows(queue: Queue) -> None:
    limits = Limits(parallel=3)
    put(queue, "abcdefghij")
    assert names(claim(queue, limits, limit=2, token="one")) == ["a", "b"]
    assert names(claim(queue, limits, token="two")) == ["c"]
    full = claim(queue, limits, token="three")
    assert full.tasks == ()
    assert full.wait_seconds is not None
    assert 0 < full.wait_seconds <= LOOK_AGAIN_SECONDS


@pytest.mark.parametrize("verb", ["complete", "bury", "release", "forget"])
def test_an_attempt_that_is_settled_makes_room_for_the_next(queue: Queue, verb: str) -> None:
    limits = Limits(parallel=2)
    put(queue, "abcd")
    first, _ = holds(claim(queue, limits))
    {
        "complete": lambda: queue.complete([first]),
        "bury": lambda: queue.bury([first]),
        "release": lambda: queue.release([Release(first, 5000)]),
        "forget": lambda: queue.forget([(first.task, 1)]),
    }[verb]()
    assert names(claim(queue, limits)) == ["c"]
    assert claim(queue, limits).tasks == ()


@pytest.mark.promise("limits", "a crash keeps its share of a limit until its lease is over, and frees no job's share")
def test_a_crash_takes_up_its_place_until_the_lease_is_over_and_no_longer(queue: Queue, rewind: Rewind) -> None:
    limits = Limits(parallel=2)
    put(queue, "abcd")
    assert len(claim(queue, limits).tasks) == 2
    rewind(LEASE_SECONDS - 60)
    assert claim(queue, limits).tasks == ()
    rewind(60)
    assert names(claim(queue, limits)) == ["c", "d"]
    assert claim(queue, limits, suspect=True).tasks == ()


def test_requests_own_attempts_count_and_beyond_the_limit_their_tasks_wait(queue: Queue, state: Any) -> None:
    limits = Limits(parallel=2)
    put(queue, "a")
    claim(queue, limits)
    assert put(queue, "bc", limits=limits, lease_seconds=LEASE_SECONDS) == ["created", "waiting"]
    assert put(queue, "d", limits=limits, lease_seconds=LEASE_SECONDS) == ["waiting"]
    assert put(queue, "bcd", limits=limits, lease_seconds=LEASE_SECONDS) == ["created", "waiting", "waiting"]
    assert put(queue, "bcd", limits=limits, lease_seconds=LEASE_SECONDS, token="another") == ["exists"] * 3
    assert {name: where for name, (where, _) in state().items()} == {
        "a": "processing",
        "b": "processing",
        "c": "waiting",
        "d": "waiting",
    }


def test_a_task_that_waits_at_a_limit_is_due_at_once(queue: Queue) -> None:
    limits = Limits(parallel=1)
    put(queue, "ab", limits=limits, lease_seconds=LEASE_SECONDS)
    queue.complete([Hold(task("a"), 1, "adder")])
    assert names(claim(queue, limits)) == ["b"]


def test_with_nothing_due_a_full_provider_gives_no_reason_to_look_again(queue: Queue) -> None:
    limits = Limits(parallel=1)
    put(queue, "a")
    claim(queue, limits)
    assert claim(queue, limits).wait_seconds is None
    put(queue, "b", delay=500)
    assert claim(queue, limits).wait_seconds == about(500)


@pytest.mark.promise("limits", "a limit that a deploy brings or lowers counts what is already open and in progress")
def test_a_limit_that_is_lowered_waits_for_what_is_under_way(queue: Queue) -> None:
    put(queue, "abcdef")
    first, second, third = holds(claim(queue, Limits(parallel=3)))
    lower = Limits(parallel=1)
    queue.complete([first, second])
    assert claim(queue, lower).tasks == ()
    queue.complete([third])
    assert names(claim(queue, lower)) == ["d"]


# --- open jobs


TWO_JOBS = Limits(open_jobs=2)


def test_tasks_beyond_the_open_jobs_wait_while_those_with_a_job_are_asked_after(queue: Queue, rewind: Rewind) -> None:
    put(queue, "abcde")
    for _ in range(4):
        started = claim(queue, TWO_JOBS)
        assert names(started) == ["a", "b"]
        assert claim(queue, TWO_JOBS).tasks == ()
        queue.release([Release(hold, 500) for hold in holds(started)])
        assert claim(queue, TWO_JOBS).tasks == ()
        rewind(500)


@pytest.mark.parametrize("verb", ["complete", "bury", "forget", "release without a job"])
def test_a_job_that_is_over_makes_room_for_the_next(queue: Queue, verb: str) -> None:
    put(queue, "abcd")
    first, second = holds(claim(queue, TWO_JOBS))
    queue.release([Release(second, 5000)])
    {
        "complete": lambda: queue.complete([first]),
        "bury": lambda: queue.bury([first]),
        "forget": lambda: queue.forget([(first.task, 1)]),
        "release without a job": lambda: queue.release([Release(first, 5000, has_job=False)]),
    }[verb]()
    assert names(claim(queue, TWO_JOBS)) == ["c"]
    assert claim(queue, TWO_JOBS).tasks == ()


@pytest.mark.promise("limits", "a crash keeps its share of a limit until its lease is over, and frees no job's share")
def test_a_crash_neither_frees_a_jobs_place_nor_takes_a_second_one(queue: Queue, rewind: Rewind) -> None:
    put(queue, "abcd")
    claim(queue, TWO_JOBS)
    rewind(LEASE_SECONDS)
    back = claim(queue, TWO_JOBS)
    assert (back.tasks, back.expired, back.suspects) == ((), 2, True)
    suspects = [claimed for _ in range(3) for claimed in claim(queue, TWO_JOBS, suspect=True).tasks]
    assert sorted(one.hold.task.name for one in suspects) == ["a", "b"]
    queue.complete([suspects[0].hold])
    assert names(claim(queue, TWO_JOBS)) == ["c"]


def test_the_oldest_come_first_whether_they_have_a_job_or_not(queue: Queue, seed: Any) -> None:
    seed("old", due_seconds=-400)
    seed("with a job", due_seconds=-300, has_job=True)
    seed("young", due_seconds=-200)
    seed("younger with a job", due_seconds=-100, has_job=True)
    limits = Limits(open_jobs=3)
    assert names(claim(queue, limits, limit=2)) == ["old", "with a job"]
    assert names(claim(queue, limits, limit=2)) == ["younger with a job"]


@pytest.mark.promise("limits", "jobs are polled however many tasks wait for one")
def test_a_job_is_asked_after_however_many_tasks_wait_before_it(queue: Queue, seed: Any) -> None:
    for number in range(300):
        seed(f"waits {number}", due_seconds=-5000)
    seed("a", due_seconds=-2, has_job=True)
    seed("b", due_seconds=-1, has_job=True)
    assert names(claim(queue, TWO_JOBS)) == ["a", "b"]
    assert claim(queue, TWO_JOBS).tasks == ()
    assert len(claim(queue, Limits(open_jobs=3)).tasks) == 1


def test_jobs_of_tasks_that_are_gone_take_up_no_place(queue: Queue, bench: Bench) -> None:
    for ghost in ("one", "two", "three"):
        bench.keys.write(key_of(PROVIDER, "jobs"), ghost, "")
    put(queue, "abc")
    assert names(claim(queue, TWO_JOBS)) == ["a", "b"]
    assert bench.parts()["jobs"].keys() == {"a", "b"}


def test_requests_own_attempts_open_jobs_and_beyond_the_limit_their_tasks_wait(queue: Queue) -> None:
    assert put(queue, "abc", limits=TWO_JOBS, lease_seconds=LEASE_SECONDS) == ["created", "created", "waiting"]
    assert claim(queue, TWO_JOBS).tasks == ()
    queue.complete([Hold(task("a"), 1, "adder")])
    queue.forget([(task("c"), 1)])
    assert put(queue, "d", limits=TWO_JOBS, lease_seconds=LEASE_SECONDS) == ["created"]


@pytest.mark.promise("limits", "jobs that are open already count as soon as reconcile has brought their tasks back")
def test_jobs_that_are_open_already_count_from_the_moment_their_tasks_are_added(queue: Queue) -> None:
    put(queue, "ab", limits=TWO_JOBS, has_job=True, delay=5000)
    put(queue, "c")
    assert claim(queue, TWO_JOBS).tasks == ()
    assert put(queue, "d", limits=TWO_JOBS, lease_seconds=LEASE_SECONDS) == ["waiting"]


def test_a_new_generation_has_no_job_until_it_is_asked_for(queue: Queue, bench: Bench) -> None:
    put(queue, "ab", limits=TWO_JOBS, lease_seconds=LEASE_SECONDS)
    queue.add([Add(task("a"), 2, "{}", 5000)], token="next", limits=TWO_JOBS)
    assert bench.parts()["jobs"].keys() == {"b"}
    put(queue, "c")
    assert names(claim(queue, TWO_JOBS)) == ["c"]


@pytest.mark.promise("limits", "a limit that a deploy brings or lowers counts what is already open and in progress")
def test_a_limit_that_a_deploy_brings_counts_every_job_once_it_is_asked_after(queue: Queue, rewind: Rewind) -> None:
    put(queue, "abcd")
    queue.release([Release(hold, 500) for hold in holds(claim(queue, limit=3))])
    rewind(500)
    assert names(claim(queue, TWO_JOBS)) == ["d", "a"]
    assert claim(queue, TWO_JOBS).tasks == ()


def test_a_limit_that_a_deploy_takes_away_holds_nothing_back(queue: Queue, bench: Bench) -> None:
    put(queue, "abcd")
    first, second = holds(claim(queue, TWO_JOBS))
    assert names(claim(queue)) == ["c", "d"]
    queue.complete([first])
    queue.bury([second])
    assert bench.parts()["jobs"] == {}


@pytest.mark.promise("limits", "a limit that a deploy brings or lowers counts what is already open and in progress")
def test_a_limit_that_a_deploy_lowers_waits_until_fewer_are_open(queue: Queue) -> None:
    put(queue, "abcdef")
    first, second, third = holds(claim(queue, Limits(open_jobs=3)))
    one_job = Limits(open_jobs=1)
    queue.release([Release(third)])
    assert names(claim(queue, one_job)) == ["c"]
    queue.complete([first, second])
    assert claim(queue, one_job).tasks == ()
    queue.complete([Hold(third.task, 1, "worker")])
    assert names(claim(queue, one_job)) == ["d"]


def test_while_no_attempt_is_under_way_no_job_can_end_and_the_next_question_is_waited_for(queue: Queue) -> None:
    put(queue, "abc")
    first, second = holds(claim(queue, TWO_JOBS))
    queue.release([Release(first, 500)])
    busy = claim(queue, TWO_JOBS).wait_seconds
    assert busy is not None
    assert 0 < busy <= LOOK_AGAIN_SECONDS
    queue.release([Release(second, 900)])
    assert claim(queue, TWO_JOBS).wait_seconds == about(500)


@pytest.mark.parametrize("redis_kind", SERVERS[1:], indirect=True)
def test_thousands_of_jobs_may_be_open(queue: Queue, bench: Bench) -> None:
    limits = Limits(open_jobs=9000)
    put(queue, [f"{number}" for number in range(9000)], limits=limits, has_job=True)
    put(queue, "ab")
    assert len(claim(queue, limits, limit=200).tasks) == 200
    queue.forget([(task(f"{number}"), 1) for number in range(9000)])
    assert names(claim(queue, limits)) == ["a", "b"]


# --- suspects


def test_a_suspect_needs_what_every_attempt_needs(queue: Queue, seed: Any) -> None:
    seed("killer", crashes=1, due_seconds=-5)
    seed("held", lease_seconds=LEASE_SECONDS)
    assert claim(queue, Limits(parallel=1), suspect=True).tasks == ()
    assert claim(queue, TWO_JOBS, suspect=True).tasks != ()


@pytest.mark.parametrize("limits", [Limits(parallel=1), Limits(rate_seconds=5000, burst=1), Limits(open_jobs=1)])
def test_nobody_is_sent_to_a_suspect_that_could_not_begin(queue: Queue, seed: Any, limits: Limits) -> None:
    seed("a", due_seconds=-50)
    assert names(claim(queue, limits)) == ["a"]
    seed("killer", crashes=1)
    assert claim(queue, limits, suspect=True).tasks == ()
    shut = claim(queue, limits)
    assert (shut.tasks, shut.suspects) == ((), False)
    assert shut.wait_seconds is not None
    assert shut.wait_seconds > 0


def test_a_suspect_with_a_job_is_asked_after_although_all_jobs_are_open(queue: Queue, seed: Any) -> None:
    for name in "ab":
        seed(name, crashes=1, has_job=True)
    seed("killer", crashes=1, due_seconds=-100)
    seed("waits", due_seconds=-100)
    assert claim(queue, TWO_JOBS).suspects is True
    assert sorted(name for _ in range(3) for name in names(claim(queue, TWO_JOBS, suspect=True))) == ["a", "b"]


# --- requests' own attempts go behind who waits


def asked_at_once(queue: Queue, name: str, limits: Limits) -> bool:
    return put(queue, [name], limits=limits, lease_seconds=LEASE_SECONDS, token=name) == ["created"]


@pytest.mark.promise("limits", "a request does not overtake a due task that waits at a limit")
def test_a_requests_own_attempt_takes_no_token_that_somebody_waits_for(queue: Queue, rewind: Rewind) -> None:
    limits = Limits(rate_seconds=1000, burst=4)
    put(queue, "abc")
    assert [asked_at_once(queue, name, limits) for name in "xy"] == [True, False]
    assert names(claim(queue, limits)) == ["a", "b", "c"]
    rewind(1000)
    assert not asked_at_once(queue, "z", limits)
    assert names(claim(queue, limits)) == ["y"]


@pytest.mark.promise("limits", "a request does not overtake a due task that waits at a limit")
def test_a_requests_own_attempt_takes_no_place_that_somebody_waits_for(queue: Queue) -> None:
    limits = Limits(parallel=2)
    put(queue, "abc")
    first, second = holds(claim(queue, limits))
    queue.complete([first])
    assert not asked_at_once(queue, "x", limits)
    assert names(claim(queue, limits)) == ["c"]
    queue.complete([second])
    assert not asked_at_once(queue, "y", limits)
    assert names(claim(queue, limits)) == ["x"]


@pytest.mark.promise("limits", "a request does not overtake a due task that waits at a limit")
def test_a_requests_own_attempt_opens_no_job_that_somebody_waits_for(queue: Queue) -> None:
    put(queue, "a", has_job=True, limits=TWO_JOBS)
    put(queue, "b")
    assert not asked_at_once(queue, "x", TWO_JOBS)
    assert names(claim(queue, TWO_JOBS)) == ["a", "b"]


def test_who_waits_only_to_be_asked_after_leaves_the_jobs_to_others(queue: Queue, seed: Any) -> None:
    put(queue, "abc", has_job=True, limits=Limits(open_jobs=5))
    assert asked_at_once(queue, "x", Limits(open_jobs=5))
    assert not asked_at_once(queue, "y", Limits(open_jobs=5, parallel=4))


def test_who_waits_for_later_or_is_a_suspect_is_not_waited_for(queue: Queue, seed: Any) -> None:
    put(queue, "ab", delay=5000)
    seed("suspect", crashes=1)
    assert asked_at_once(queue, "x", Limits(parallel=1))


@pytest.mark.parametrize("limits", [Limits(parallel=900), Limits(open_jobs=900), Limits(rate_seconds=1000, burst=900)])
def test_behind_too_many_to_count_everybody_waits(queue: Queue, limits: Limits) -> None:
    put(queue, [f"{number:03}" for number in range(199)])
    assert asked_at_once(queue, "x", limits)
    put(queue, "z")
    assert not asked_at_once(queue, "y", limits)


# --- a pause that the provider asks for


def paused(queue: Queue, health: Health, name: str = "first") -> Hold:
    """Somebody was told so; the task he asked about is due much later."""
    put(queue, [name], lease_seconds=LEASE_SECONDS, token=f"token of {name}")
    hold = Hold(task(name), 1, f"token of {name}")
    queue.release([Release(hold, 1_000_000)], health)
    return hold


def test_a_pause_holds_for_everybody_and_requests_own_attempts_too(queue: Queue, rewind: Rewind) -> None:
    paused(queue, Health(pause_seconds=600))
    put(queue, "abc")
    assert claim(queue).tasks == ()
    assert claim(queue).wait_seconds == about(600)
    assert put(queue, "d", lease_seconds=LEASE_SECONDS) == ["waiting"]
    rewind(540)
    assert claim(queue).tasks == ()


def test_a_pause_concerns_its_provider_alone(queue: Queue, seed: Any) -> None:
    paused(queue, Health(pause_seconds=600))
    seed("a", provider="coin")
    assert len(queue.claim("coin", limit=5, lease_seconds=30, token="t").tasks) == 1


def test_a_pause_is_lengthened_and_never_shortened(queue: Queue) -> None:
    put(queue, "abc")
    first, second, third = holds(claim(queue))
    put(queue, "d")
    queue.release([Release(first, 5000)], Health(pause_seconds=600))
    queue.release([Release(second, 5000)], Health(pause_seconds=60))
    assert claim(queue).wait_seconds == about(600)
    queue.release([Release(third, 5000)], Health(pause_seconds=2000))
    assert claim(queue).wait_seconds == about(2000)


@pytest.mark.parametrize("verb", ["complete", "release"])
def test_a_good_answer_that_comes_late_does_not_end_a_pause_before_its_time(queue: Queue, verb: str) -> None:
    put(queue, "abc")
    first, second, _ = holds(claim(queue))
    put(queue, "d")
    queue.release([Release(first, 5000)], Health(pause_seconds=600))
    if verb == "complete":
        queue.complete([second], WELL)
    else:
        queue.release([Release(second, 5000)], WELL)
    assert claim(queue).wait_seconds == about(600)


def test_a_good_answer_beside_it_does_not_outweigh_a_pause(queue: Queue) -> None:
    paused(queue, Health(pause_seconds=600, well=frozenset({"first"})))
    put(queue, "a")
    assert claim(queue).wait_seconds == about(600)


def test_a_pause_is_heard_although_the_task_is_lost(queue: Queue) -> None:
    put(queue, "ab")
    lost = Hold(task("a"), 1, "somebody else's")
    assert queue.release([Release(lost, 5)], Health(pause_seconds=600)) == [False]
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("verb", ["complete", "release", "bury", "forget"])
def test_every_way_to_settle_tells_how_the_provider_is(queue: Queue, verb: str) -> None:
    put(queue, "a")
    (hold,) = holds(claim(queue))
    put(queue, "b")
    health = Health(pause_seconds=600)
    {
        "complete": lambda: queue.complete([hold], health),
        "bury": lambda: queue.bury([hold], health),
        "release": lambda: queue.release([Release(hold)], health),
        "forget": lambda: queue.forget([(hold.task, 1)], health),
    }[verb]()
    assert claim(queue).wait_seconds == about(600)


def test_with_nothing_due_a_pause_gives_no_reason_to_look_again(queue: Queue) -> None:
    hold = paused(queue, Health(pause_seconds=600))
    queue.forget([(hold.task, 1)])
    assert claim(queue).wait_seconds is None
    put(queue, "a", delay=5000)
    assert claim(queue).wait_seconds == about(5000)


# --- the probe


def test_after_a_pause_exactly_one_attempt_is_made_over_all_workers(queue: Queue, rewind: Rewind) -> None:
    paused(queue, Health(pause_seconds=600))
    put(queue, "abcdef")
    rewind(600)
    assert names(claim(queue, token="one")) == ["a"]
    others = claim(queue, token="two")
    assert others.tasks == ()
    assert others.wait_seconds is not None
    assert 0 < others.wait_seconds <= LOOK_AGAIN_SECONDS
    assert claim(queue, token="two", suspect=True).tasks == ()
    assert put(queue, "g", lease_seconds=LEASE_SECONDS) == ["waiting"]


def test_a_requests_own_attempt_may_be_the_probe(queue: Queue, rewind: Rewind) -> None:
    paused(queue, Health(pause_seconds=600))
    rewind(600)
    assert put(queue, "abc", lease_seconds=LEASE_SECONDS) == ["created", "waiting", "waiting"]
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("verb", ["complete", "release", "bury", "forget"])
def test_a_good_answer_to_the_probe_lets_everybody_in(queue: Queue, rewind: Rewind, bench: Bench, verb: str) -> None:
    paused(queue, Health(pause_seconds=600))
    put(queue, "abcdef")
    rewind(600)
    (probe,) = holds(claim(queue))
    settle_as(queue, verb, probe)
    assert bench.parts()["gate"] == {}
    assert len(claim(queue).tasks) == 5


@pytest.mark.parametrize("verb", ["complete", "release", "bury", "forget"])
def test_an_answer_to_an_attempt_from_before_the_pause_does_not_end_it(queue: Queue, rewind: Rewind, verb: str) -> None:
    put(queue, "abcdef")
    before, late, again, *_ = holds(claim(queue, limit=3))
    queue.release([Release(before)], Health(pause_seconds=600))
    rewind(600)
    settle_as(queue, verb, late)
    (probe,) = holds(claim(queue))
    settle_as(queue, verb, again)
    assert claim(queue).tasks == ()
    settle_as(queue, verb, probe)
    assert len(claim(queue).tasks) >= 3


def settle_as(queue: Queue, verb: str, *some: Hold, health: Health = WELL) -> None:
    """Settle them in one call, with good answers if nothing else is said."""
    {
        "complete": lambda: queue.complete(some, health),
        "release": lambda: queue.release([Release(hold, 5000) for hold in some], health),
        "bury": lambda: queue.bury(some, health),
        "forget": lambda: queue.forget([(hold.task, 1) for hold in some], health),
    }[verb]()


@pytest.mark.parametrize("verb", ["complete", "release", "bury", "forget"])
@pytest.mark.parametrize("probe_is_well", [True, False])
def test_among_answers_of_one_call_the_probes_own_ends_the_pause_or_begins_another(
    queue: Queue, rewind: Rewind, bench: Bench, verb: str, probe_is_well: bool
) -> None:
    before, probe = before_and_probe(queue, rewind)
    good, bad = (probe, before) if probe_is_well else (before, probe)
    settle_as(queue, verb, before, probe, health=mixed(good, bad))
    if probe_is_well:
        assert bench.parts()["gate"] == {}
    else:
        assert bench.parts()["gate"]["pauses"] == "2"
        assert claim(queue).wait_seconds == about(200)


@pytest.mark.parametrize("verb", ["complete", "release", "bury", "forget"])
@pytest.mark.parametrize("probe_is_well", [True, False])
def test_the_probes_answer_is_heard_from_its_own_call_alone(
    queue: Queue, rewind: Rewind, bench: Bench, verb: str, probe_is_well: bool
) -> None:
    before, probe = before_and_probe(queue, rewind)
    health = mixed(probe, before) if probe_is_well else mixed(before, probe)
    settle_as(queue, verb, before, health=health)
    assert bench.parts()["gate"]["pauses"] == "1"
    assert claim(queue).tasks == ()
    settle_as(queue, verb, probe, health=health)
    assert bench.parts()["gate"].get("pauses") == (None if probe_is_well else "2")


@pytest.mark.parametrize("verb", ["complete", "release", "bury"])
@pytest.mark.parametrize("probe_is_well", [True, False])
def test_an_answer_about_the_probes_task_that_is_lost_is_not_the_probes(
    queue: Queue, rewind: Rewind, bench: Bench, verb: str, probe_is_well: bool
) -> None:
    before, probe = before_and_probe(queue, rewind)
    lost = Hold(probe.task, 1, "somebody else's")
    settle_as(queue, verb, lost, health=mixed(lost, before) if probe_is_well else mixed(before, lost))
    assert bench.parts()["gate"]["pauses"] == "1"
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("probe_is_well", [True, False])
def test_to_forget_an_older_generation_of_the_probes_task_is_not_the_probes_answer(
    queue: Queue, rewind: Rewind, bench: Bench, probe_is_well: bool
) -> None:
    before, probe = before_and_probe(queue, rewind)
    health = mixed(probe, before) if probe_is_well else mixed(before, probe)
    queue.forget([(probe.task, 0)], health)
    assert bench.parts()["gate"]["pauses"] == "1"
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("verb", ["complete", "release", "bury", "forget"])
def test_trouble_of_an_attempt_from_before_a_pause_begins_no_other(
    queue: Queue, rewind: Rewind, bench: Bench, verb: str
) -> None:
    before, _ = before_and_probe(queue, rewind)
    settle_as(queue, verb, before, health=trouble())
    assert bench.parts()["gate"]["pauses"] == "1"
    assert bench.parts()["gate"]["troubles"] == "1"


def before_and_probe(queue: Queue, rewind: Rewind) -> tuple[Hold, Hold]:
    """An attempt from before a pause that is over, and the probe after it; others wait."""
    put(queue, "abcdef")
    before, asked = holds(claim(queue, limit=2))
    queue.release([Release(asked)], Health(pause_seconds=600))
    rewind(600)
    (probe,) = holds(claim(queue, token="prober"))
    return before, probe


def mixed(good: Hold, bad: Hold) -> Health:
    """What a good and a bad answer tell together."""
    well, troubled = frozenset({good.task.name}), frozenset({bad.task.name})
    return dataclasses.replace(trouble(0), well=well, unwell=troubled)


@pytest.mark.promise("limits", "if the probe's worker dies, another probe is made after its lease")
def test_if_the_probes_worker_dies_another_probe_is_made_after_its_lease(queue: Queue, rewind: Rewind) -> None:
    paused(queue, Health(pause_seconds=600))
    put(queue, "abcdef")
    rewind(600)
    claim(queue)
    rewind(LEASE_SECONDS - 60)
    assert claim(queue).tasks == ()
    rewind(60)
    assert names(claim(queue)) == ["b"]
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("verb", ["release", "bury", "forget", "begin again"])
def test_a_probe_that_ends_without_an_answer_makes_room_for_another_one(
    queue: Queue, rewind: Rewind, verb: str
) -> None:
    paused(queue, Health(pause_seconds=600))
    put(queue, "abcdef")
    rewind(600)
    (probe,) = holds(claim(queue))
    calls: dict[str, Callable[[], object]] = {
        "release": lambda: queue.release([Release(probe, 5000)]),
        "bury": lambda: queue.bury([probe]),
        "forget": lambda: queue.forget([(probe.task, 1)]),
        "begin again": lambda: queue.add([Add(probe.task, 2, "{}", 5000)], token="next"),
    }
    calls[verb]()
    assert names(claim(queue)) == ["b"]
    assert claim(queue).tasks == ()


def test_a_probe_keeps_to_the_limits(queue: Queue, rewind: Rewind) -> None:
    limits = Limits(rate_seconds=5000, burst=1)
    put(queue, "abcdef")
    (hold,) = holds(claim(queue, limits))
    queue.release([Release(hold, 50_000)], Health(pause_seconds=600))
    rewind(600)
    shut = claim(queue, limits)
    assert (shut.tasks, shut.wait_seconds) == ((), about(4400))
    rewind(4400)
    assert names(claim(queue, limits)) == ["b"]


# --- a pause for troubles


def trouble(count: int = 1, patience: int = 3) -> Health:
    return Health(errors=count, unwell=NAMES, errors_to_pause=patience, shortest_seconds=100, longest_seconds=700)


def settle_one(queue: Queue, health: Health) -> None:
    (hold,) = holds(claim(queue, limit=1))
    queue.release([Release(hold)], health)


def test_so_many_troubles_in_a_row_pause_a_provider(queue: Queue) -> None:
    put(queue, "ab")
    settle_one(queue, trouble())
    settle_one(queue, trouble())
    assert len(claim(queue, limit=1).tasks) == 1
    settle_one(queue, trouble())
    assert claim(queue).wait_seconds == about(100)


def test_troubles_that_come_together_count_each(queue: Queue) -> None:
    put(queue, "ab")
    settle_one(queue, trouble(3))
    assert claim(queue).tasks == ()


@pytest.mark.parametrize("verb", ["complete", "release"])
def test_a_good_answer_in_between_begins_the_count_anew(queue: Queue, verb: str) -> None:
    put(queue, "abc")
    settle_one(queue, trouble(2))
    (hold,) = holds(claim(queue, limit=1))
    if verb == "complete":
        queue.complete([hold], WELL)
    else:
        queue.release([Release(hold)], WELL)
    settle_one(queue, trouble(2))
    assert len(claim(queue).tasks) > 0


def test_the_pause_is_twice_as_long_after_each_probe_that_fails_up_to_the_longest(queue: Queue, rewind: Rewind) -> None:
    put(queue, "ab")
    settle_one(queue, trouble(3))
    for seconds in (100, 200, 400, 700, 700):
        assert claim(queue).wait_seconds == about(seconds)
        rewind(seconds)
        settle_one(queue, trouble())
    rewind(700)
    settle_one(queue, WELL)
    settle_one(queue, trouble(3))
    assert claim(queue).wait_seconds == about(100)


def test_failures_that_are_told_late_neither_lengthen_a_pause_nor_the_next_one(queue: Queue, rewind: Rewind) -> None:
    put(queue, "abcdefgh")
    late = holds(claim(queue))
    put(queue, "z")
    queue.release([Release(late[0], 50_000)], trouble(3))
    rewind(50)
    for hold in late[1:]:
        queue.release([Release(hold, 50_000)], trouble(1))
    assert claim(queue, limit=1).wait_seconds == about(50)
    rewind(50)
    settle_one(queue, trouble())
    assert claim(queue).wait_seconds == about(200)


def test_the_provider_asks_for_longer_than_its_troubles_would(queue: Queue) -> None:
    put(queue, "ab")
    settle_one(queue, Health(pause_seconds=900, errors=3, errors_to_pause=3, shortest_seconds=100, longest_seconds=700))
    assert claim(queue).wait_seconds == about(900)


# --- what a look tells of it


def seen(queue: Queue, name: str, limits: Limits = UNLIMITED) -> tuple[float | None, str]:
    [place] = queue.look([task(name)], limits=limits)
    return place.wait_seconds, place.held_up


def test_a_look_tells_when_a_pause_lets_a_task_through(queue: Queue, rewind: Rewind) -> None:
    paused(queue, Health(pause_seconds=600))
    put(queue, "a")
    put(queue, "b", delay=400)
    put(queue, "c", delay=5000)
    assert seen(queue, "a") == (about(600), "paused")
    assert seen(queue, "b") == (about(600), "paused")
    assert seen(queue, "c") == (about(5000), "")
    rewind(600)
    assert seen(queue, "a") == (0, "")
    claim(queue, limit=1)
    assert seen(queue, "b") == (LOOK_AGAIN_SECONDS, "paused")


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        (Limits(parallel=1), LOOK_AGAIN_SECONDS),
        (Limits(open_jobs=1), LOOK_AGAIN_SECONDS),
        (Limits(rate_seconds=1000, burst=1), about(1000)),
    ],
)
def test_a_look_tells_when_a_limit_may_let_a_task_through(queue: Queue, limits: Limits, seconds: Any) -> None:
    put(queue, "ab")
    put(queue, "c", delay=500)
    assert seen(queue, "b", limits) == (0, "")
    claim(queue, limits, limit=1)
    assert seen(queue, "b", limits) == (seconds, "limited")
    assert seen(queue, "b") == (0, "")
    assert seen(queue, "c", limits) == (about(500), "")
    assert seen(queue, "a", limits) == (None, "")


def test_while_nobody_asks_after_a_job_a_look_tells_when_somebody_will(queue: Queue) -> None:
    put(queue, "a", has_job=True, delay=500, limits=Limits(open_jobs=1))
    put(queue, "b")
    assert seen(queue, "b", Limits(open_jobs=1)) == (about(500), "limited")
    assert seen(queue, "a", Limits(open_jobs=1)) == (about(500), "")


# --- junk


@pytest.mark.parametrize("value", ["junk", "nan", "-1", "1e300", "7.5"])
@pytest.mark.parametrize("field", ["until", "probe", "troubles", "pauses", "full_at", "cursor"])
def test_junk_in_the_gate_stops_nobody_and_breaks_nothing(queue: Queue, bench: Bench, field: str, value: str) -> None:
    bench.keys.write(key_of(PROVIDER, "gate"), field, value)
    limits = Limits(rate_seconds=1000, burst=2, parallel=5, open_jobs=5)
    put(queue, "abcdef")
    (first, *more) = holds(claim(queue, limits))
    queue.release([Release(hold, 0) for hold in more], WELL)
    queue.release([Release(first, 0)], trouble(3))
    assert claim(queue, limits).wait_seconds == pytest.approx(1000, abs=901)
