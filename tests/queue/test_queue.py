"""The queue's contract: the same promises on fakeredis, Valkey and Redis, alone and as clusters, and on the double."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shared.errors import QueueUnavailable
from shared.queue import Add, Claim, End, Hold, Place, Queue, Release, new_token
from shared.task import Task
from tests.support.keys import PREFIX, PROVIDER, Bench, key_of
from tests.support.memory_queue import MemoryQueue
from tests.support.redis_servers import CLUSTERS, EVERY_KIND, SERVERS

LEASE_SECONDS = 30.0
HOURS = 3600.0
NAMES = ("plain", "Ünïcødé 名前", "with space", "{queue:example}", "a:b:c", "0", "-inf", "x" * 256)


@pytest.fixture(params=[*EVERY_KIND, *CLUSTERS])
def redis_kind(request: pytest.FixtureRequest) -> str:
    """Here the double too."""
    kind: str = request.param
    return kind


def task(name: str = "a") -> Task:
    return Task(PROVIDER, name)


def add(queue: Queue, name: str = "a", generation: int = 1, **options: Any) -> str:
    token, delay = options.pop("token", "adder"), options.pop("delay", 0)
    return queue.add([Add(task(name), generation, options.pop("record", "{}"), delay)], token=token, **options)[0]


def claim(queue: Queue, limit: int = 10, token: str = "worker", **options: Any) -> Claim:
    return queue.claim(PROVIDER, limit=limit, lease_seconds=LEASE_SECONDS, token=token, **options)


def names(claimed: Claim) -> list[str]:
    return [one.hold.task.name for one in claimed.tasks]


def claim_one(queue: Queue, token: str = "worker") -> Hold:
    (claimed,) = claim(queue, token=token).tasks
    return claimed.hold


def rounded(place: Place) -> tuple[int, *tuple[float | None, ...]]:
    """Generation, due, lease and buried; to ten seconds, since a server's time goes on."""
    spans = (place.due_seconds, place.lease_seconds, place.buried_seconds)
    return place.generation, *(None if span is None else round(span, -1) for span in spans)


# --- unique


def test_a_new_task_is_created_and_due_at_once(queue: Queue, state: Any) -> None:
    assert add(queue) == "created"
    assert state() == {"a": ("waiting", 1)}
    assert names(claim(queue)) == ["a"]


def test_a_task_can_be_added_for_later(queue: Queue, rewind: Callable[[float], None]) -> None:
    add(queue, delay=60)
    rewind(59)
    assert claim(queue).tasks == ()
    rewind(1)
    assert names(claim(queue)) == ["a"]


def test_a_task_added_with_a_lease_is_held_by_who_added_it(queue: Queue, state: Any, bench: Bench) -> None:
    add(queue, token="mine", lease_seconds=LEASE_SECONDS)
    assert state() == {"a": ("processing", 1)}
    assert bench.score("a") == 0
    assert claim(queue).tasks == ()
    assert queue.complete([Hold(task(), 1, "mine")]) == [True]


@pytest.mark.parametrize("place", [{"due_seconds": 60}, {"lease_seconds": 30}, {"dead": True}])
def test_the_same_generation_is_there_once_wherever_it_is(
    queue: Queue, seed: Any, bench: Bench, place: dict[str, Any]
) -> None:
    seed("a", generation=3, **place)
    before = bench.parts()
    assert add(queue, generation=3, record='{"other": 1}', delay=5) == "exists"
    assert bench.parts() == before


@pytest.mark.parametrize("place", [{"due_seconds": 60}, {"lease_seconds": 30}, {"dead": True}])
def test_a_lower_generation_is_stale_wherever_the_higher_one_is(
    queue: Queue, seed: Any, bench: Bench, place: dict[str, Any]
) -> None:
    seed("a", generation=3, **place)
    before = bench.parts()
    assert add(queue, generation=2) == "stale"
    assert bench.parts() == before


@pytest.mark.parametrize("lease_seconds", [0, LEASE_SECONDS])
@pytest.mark.parametrize("place", [{"due_seconds": 60}, {"lease_seconds": 30}, {"dead": True}])
def test_a_higher_generation_replaces_a_lower_one_wherever_it_is(
    queue: Queue, seed: Any, bench: Bench, place: dict[str, Any], lease_seconds: float
) -> None:
    seed("a", generation=3, crashes=2, record="old", **place)
    assert add(queue, generation=4, record="new", lease_seconds=lease_seconds) == "created"
    assert bench.state() == {"a": ("processing" if lease_seconds else "waiting", 4)}
    assert bench.parts()["tasks"] == {"a": "new"}
    assert bench.parts()["state"] == {"a": "4:adder:0"}


def test_replacing_a_generation_fences_its_old_worker(queue: Queue, seed: Any, bench: Bench) -> None:
    old = seed("a", generation=3, lease_seconds=30)
    add(queue, generation=4)
    before = bench.parts()
    assert queue.complete([old]) == [False]
    assert queue.release([Release(old, 0, "late")]) == [False]
    assert queue.bury([old]) == [False]
    assert bench.parts() == before


@pytest.mark.parametrize("lease_seconds", [0, LEASE_SECONDS])
def test_a_repeated_call_is_answered_created_again_and_changes_nothing(
    queue: Queue, bench: Bench, lease_seconds: float
) -> None:
    assert add(queue, token="mine", lease_seconds=lease_seconds) == "created"
    before = bench.parts()
    assert add(queue, token="mine", lease_seconds=lease_seconds, record="again") == "created"
    assert bench.parts() == before


def test_one_add_call_takes_many_tasks_each_for_itself(queue: Queue, seed: Any, state: Any) -> None:
    seed("old", generation=1, due_seconds=60)
    seed("same", generation=2, due_seconds=60)
    seed("newer", generation=9, due_seconds=60)
    adds = [Add(task(name), 2, "{}") for name in ("new", "old", "same", "newer", "new")]
    assert queue.add(adds, token="mine") == ["created", "created", "exists", "stale", "created"]
    assert state() == {"new": ("waiting", 2), "old": ("waiting", 2), "same": ("waiting", 2), "newer": ("waiting", 9)}


@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
def test_fifty_at_once_add_one_task_once(queue: Queue, state: Any) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: add(queue, token=new_token(), lease_seconds=LEASE_SECONDS), range(50)))
    assert sorted(answers) == ["created"] + ["exists"] * 49
    assert state() == {"a": ("processing", 1)}


def test_adding_again_does_not_move_the_due_time(queue: Queue, bench: Bench) -> None:
    add(queue, delay=60)
    score = bench.score("a")
    add(queue, token="another", delay=5)
    assert bench.score("a") == score


# --- claimed once


def test_a_claimed_task_scores_0_under_a_lease_with_its_record(queue: Queue, seed: Any, bench: Bench) -> None:
    seed("a", generation=7, record='{"n": [], "x": 1e-7}')
    (claimed,) = claim(queue).tasks
    assert (claimed.hold, claimed.crashes) == (Hold(task(), 7, "worker"), 0)
    assert claimed.record == '{"n": [], "x": 1e-7}'
    assert bench.score("a") == 0
    assert bench.parts()["leases"]["a"] == pytest.approx(bench.keys.now() + LEASE_SECONDS * 1000, abs=5000)


def test_only_scores_above_0_and_not_in_the_future_are_taken(queue: Queue, seed: Any) -> None:
    seed("held", lease_seconds=30)
    seed("future", due_seconds=5)
    seed("due")
    assert names(claim(queue)) == ["due"]
    assert claim(queue).tasks == ()


def test_the_oldest_come_first_and_no_more_than_the_limit(queue: Queue, seed: Any) -> None:
    for age in (3, 9, 1, 7, 5):
        seed(f"{age} s", due_seconds=-age)
    assert names(claim(queue, limit=3)) == ["9 s", "7 s", "5 s"]
    assert names(claim(queue, limit=3)) == ["3 s", "1 s"]


def test_one_call_takes_200_at_most(queue: Queue) -> None:
    queue.add([Add(task(f"{number}"), 1, "{}") for number in range(450)], token="adder")
    assert [len(claim(queue, limit=1000).tasks) for _ in range(4)] == [200, 200, 50, 0]


@pytest.mark.promise("once", "a due task is given to one worker")
@pytest.mark.promise("faults", "a cluster of three nodes")
@pytest.mark.parametrize("redis_kind", SERVERS[1:], indirect=True)
def test_sixteen_at_once_claim_500_tasks_once_each(queue: Queue) -> None:
    every = {f"{number}" for number in range(500)}
    queue.add([Add(task(name), 1, "{}") for name in every], token="adder")
    start = threading.Barrier(16)

    def drain(worker: int) -> list[str]:
        start.wait()
        found = []
        while taken := names(claim(queue, limit=7, token=f"worker {worker}")):
            found += taken
        return found

    with ThreadPoolExecutor(16) as pool:
        taken = [name for found in pool.map(drain, range(16)) for name in found]
    assert len(taken) == 500
    assert set(taken) == every


def test_providers_do_not_share_tasks(queue: Queue, seed: Any) -> None:
    seed("a", provider="coin")
    assert claim(queue).tasks == ()
    assert names(queue.claim("coin", limit=1, lease_seconds=30, token="t")) == ["a"]


# --- when to look again


def test_claim_tells_when_the_next_task_falls_due(queue: Queue, seed: Any) -> None:
    assert claim(queue).wait_seconds is None
    seed("later", due_seconds=100)
    seed("soon", due_seconds=50)
    assert claim(queue).wait_seconds == pytest.approx(50, abs=5)


def test_claim_says_to_look_at_once_where_there_may_be_more(queue: Queue, seed: Any) -> None:
    seed("one")
    seed("two")
    assert claim(queue, limit=1).wait_seconds == 0
    assert claim(queue, limit=5).wait_seconds is None


def test_a_task_due_in_two_hours_is_not_touched_whatever_the_lease(
    queue: Queue, seed: Any, bench: Bench, rewind: Callable[[float], None]
) -> None:
    seed("a", due_seconds=2 * HOURS)
    for passed in (90, 510):
        rewind(passed)
        before = bench.parts()
        assert claim(queue).tasks == ()
        assert bench.parts() == before
    assert bench.state() == {"a": ("waiting", 1)}


# --- never stranded


def test_a_task_whose_worker_died_comes_back_due_since_its_leases_end(
    queue: Queue, seed: Any, bench: Bench, rewind: Callable[[float], None]
) -> None:
    seed("a")
    claim_one(queue)
    lease_end = bench.parts()["leases"]["a"]
    rewind(LEASE_SECONDS + 5)
    back = claim(queue)
    assert (back.tasks, back.expired, back.suspects) == ((), 1, True)
    assert bench.state() == {"a": ("waiting", 1)}
    assert bench.score("a") == lease_end - (LEASE_SECONDS + 5) * 1000
    (suspect,) = claim(queue, suspect=True, limit=1).tasks
    assert suspect.crashes == 1


@pytest.mark.promise("once", "a worker whose lease is over can no longer move the task")
def test_the_dead_worker_of_a_task_that_came_back_has_lost_it(
    queue: Queue, seed: Any, rewind: Callable[[float], None]
) -> None:
    seed("a")
    dead = claim_one(queue)
    rewind(LEASE_SECONDS)
    claim(queue)
    assert queue.complete([dead]) == [False]
    assert queue.release([Release(dead, 0, None)]) == [False]
    assert queue.bury([dead]) == [False]


def test_a_worker_whose_lease_is_over_keeps_the_task_until_somebody_looks(
    queue: Queue, seed: Any, rewind: Callable[[float], None]
) -> None:
    seed("a")
    late = claim_one(queue)
    rewind(LEASE_SECONDS + 5)
    assert queue.complete([late]) == [True]


@pytest.mark.promise("ends", "the tasks of a worker that died come back when its lease is over")
def test_three_tasks_of_a_killed_worker_are_all_worked_on_again(
    queue: Queue, rewind: Callable[[float], None], state: Any
) -> None:
    for name in "abc":
        add(queue, name)
    assert len(claim(queue).tasks) == 3
    rewind(LEASE_SECONDS)
    assert claim(queue, limit=10).tasks == ()
    suspects = [one for _ in range(3) for one in claim(queue, limit=1, suspect=True).tasks]
    assert sorted((one.hold.task.name, one.crashes) for one in suspects) == [("a", 1), ("b", 1), ("c", 1)]
    assert queue.complete([one.hold for one in suspects]) == [True, True, True]
    assert state() == {}


def test_each_lost_worker_counts_as_one_crash(queue: Queue, seed: Any, rewind: Callable[[float], None]) -> None:
    seed("a")
    claim(queue)
    for crashes in (1, 2, 3, 4):
        rewind(LEASE_SECONDS)
        (suspect,) = claim(queue, limit=1, suspect=True).tasks
        assert suspect.crashes == crashes


def test_more_than_200_leases_that_expire_at_once_all_come_back(queue: Queue, rewind: Callable[[float], None]) -> None:
    queue.add([Add(task(f"{number}"), 1, "{}") for number in range(450)], token="dead", lease_seconds=LEASE_SECONDS)
    rewind(LEASE_SECONDS)
    assert [claim(queue).expired for _ in range(4)] == [200, 200, 50, 0]


# --- suspects are alone


def test_an_ordinary_claim_never_returns_a_suspect(queue: Queue, seed: Any) -> None:
    seed("killer", crashes=1, due_seconds=-100)
    seed("harmless")
    claimed = claim(queue)
    assert (names(claimed), claimed.suspects) == (["harmless"], True)


def test_a_suspect_claim_returns_exactly_one_the_oldest_and_nothing_ordinary(queue: Queue, seed: Any) -> None:
    seed("harmless", due_seconds=-100)
    seed("killer", crashes=1, due_seconds=-5)
    seed("old killer", crashes=3, due_seconds=-10)
    seed("future killer", crashes=3, due_seconds=10)
    assert names(claim(queue, limit=10, suspect=True)) == ["old killer"]
    assert names(claim(queue, limit=1, suspect=True)) == ["killer"]
    assert names(claim(queue, limit=1, suspect=True)) == []


def test_a_suspect_claim_takes_a_lease_that_has_just_expired_if_it_is_the_oldest(
    queue: Queue, seed: Any, state: Any
) -> None:
    seed("killer", crashes=1, due_seconds=-10)
    seed("older", lease_seconds=-20, token="dead")
    seed("younger", lease_seconds=-5, token="dead")
    assert names(claim(queue, limit=1, suspect=True)) == ["older"]
    assert state() == {"killer": ("waiting", 1), "older": ("processing", 1), "younger": ("waiting", 1)}


def test_suspects_do_not_hide_what_is_behind_them(queue: Queue, seed: Any) -> None:
    for number in range(120):
        seed(f"killer {number}", crashes=1, due_seconds=-100)
    seed("harmless")
    assert names(claim(queue, limit=2)) == ["harmless"]


def test_ordinary_tasks_do_not_hide_a_suspect_behind_them(queue: Queue, seed: Any) -> None:
    queue.add([Add(task(f"{number}"), 1, "{}") for number in range(120)], token="adder")
    seed("killer", crashes=1)
    assert names(claim(queue, limit=1, suspect=True)) == ["killer"]


def test_no_suspect_waits_where_none_has_crashed(queue: Queue, seed: Any) -> None:
    seed("a")
    seed("held", lease_seconds=30, crashes=2)
    assert claim(queue).suspects is False


def test_releasing_forgets_the_crashes(queue: Queue, seed: Any) -> None:
    hold = seed("a", lease_seconds=30, crashes=2)
    queue.release([Release(hold, 0, None)])
    (claimed,) = claim(queue).tasks
    assert claimed.crashes == 0


def test_burying_forgets_the_crashes(queue: Queue, seed: Any, bench: Bench) -> None:
    queue.bury([seed("a", lease_seconds=30, crashes=2)])
    assert bench.parts()["state"] == {"a": "1::0"}


# --- settling


def test_completing_leaves_nothing_behind(queue: Queue, seed: Any, bench: Bench) -> None:
    assert queue.complete([seed("a", lease_seconds=30)]) == [True]
    assert bench.keys.dump() == {}


def test_releasing_makes_a_task_due_after_its_delay_and_keeps_its_record(
    queue: Queue, seed: Any, rewind: Callable[[float], None]
) -> None:
    hold = seed("a", lease_seconds=30, record="kept")
    assert queue.release([Release(hold, 60, None)]) == [True]
    assert claim(queue).wait_seconds == pytest.approx(60, abs=5)
    rewind(60)
    (claimed,) = claim(queue).tasks
    assert (claimed.record, claimed.crashes) == ("kept", 0)


def test_releasing_can_replace_the_record(queue: Queue, seed: Any, bench: Bench) -> None:
    queue.release([Release(seed("a", lease_seconds=30), 0, "new")])
    assert bench.parts()["tasks"] == {"a": "new"}


def test_a_released_task_is_nobodys(queue: Queue, seed: Any) -> None:
    hold = seed("a", lease_seconds=30)
    assert queue.release([Release(hold, 0, None)]) == [True]
    assert queue.release([Release(hold, 0, None)]) == [False]
    assert queue.complete([hold]) == [False]


def test_releasing_leaves_exactly_one_live_entry_whether_its_reply_arrives_or_not(
    queue: Queue, seed: Any, state: Any, rewind: Callable[[float], None]
) -> None:
    hold = seed("a", lease_seconds=30)
    queue.release([Release(hold, 0, None)])  # the worker dies here, or calls again: the same
    queue.release([Release(hold, 0, None)])
    rewind(LEASE_SECONDS)
    assert state() == {"a": ("waiting", 1)}
    assert names(claim(queue)) == ["a"]
    assert claim(queue).tasks == ()


def test_burying_makes_a_dead_letter_that_is_listed_and_never_due(
    queue: Queue, seed: Any, state: Any, rewind: Callable[[float], None]
) -> None:
    assert queue.bury([seed("a", generation=4, lease_seconds=30)]) == [True]
    assert state() == {"a": ("dead", 4)}
    assert queue.dead(PROVIDER) == [task()]
    rewind(100 * HOURS)
    assert claim(queue).tasks == ()
    assert claim(queue, suspect=True, limit=1).tasks == ()


def test_every_dead_letter_is_listed(queue: Queue, seed: Any) -> None:
    for number in range(450):
        seed(f"{number}", dead=True)
    seed("alive")
    assert sorted(queue.dead(PROVIDER)) == sorted(task(f"{number}") for number in range(450))
    assert queue.dead("coin") == []


@pytest.mark.promise("once", "a worker whose lease is over can no longer move the task")
@pytest.mark.parametrize("wrong", [Hold(task(), 2, "theirs"), Hold(task(), 1, "mine"), Hold(task(), 3, "mine")])
def test_settling_needs_token_and_generation(queue: Queue, seed: Any, bench: Bench, wrong: Hold) -> None:
    seed("a", generation=2, lease_seconds=30, token="mine")
    before = bench.parts()
    assert queue.complete([wrong]) == [False]
    assert queue.release([Release(wrong, 0, "late")]) == [False]
    assert queue.bury([wrong]) == [False]
    assert bench.parts() == before


def test_one_call_settles_many_each_for_itself(queue: Queue, seed: Any, state: Any) -> None:
    mine = [seed(name, lease_seconds=30, token="mine") for name in "abc"]
    lost = Hold(task("b"), 1, "theirs")
    assert queue.complete([mine[0], lost]) == [True, False]
    assert queue.release([Release(lost, 0, None), Release(mine[1], 9, None)]) == [False, True]
    assert queue.bury([lost, mine[2]]) == [False, True]
    assert state() == {"b": ("waiting", 1), "c": ("dead", 1)}


def test_hundreds_settle_in_one_call(queue: Queue, bench: Bench) -> None:
    adds = [Add(task(f"{number}"), 1, "{}") for number in range(450)]
    assert queue.add(adds, token="mine", lease_seconds=30) == ["created"] * 450
    holds = [Hold(one.task, 1, "mine") for one in adds]
    assert queue.release([Release(hold, 60, None) for hold in holds[:210]]) == [True] * 210
    assert queue.bury(holds[210:220]) == [True] * 10
    assert queue.complete(holds[220:]) == [True] * 230
    assert queue.forget([(hold.task, 1) for hold in holds[:220]]) == [True] * 220
    assert bench.keys.dump() == {}


def test_settling_nothing_is_nothing(queue: Queue) -> None:
    assert queue.add([], token="mine") == []
    assert queue.complete([]) == queue.release([]) == queue.bury([]) == queue.forget([]) == []
    assert queue.look([]) == []


# --- forget


@pytest.mark.parametrize("generation", [3, 4])
@pytest.mark.parametrize("place", [{"due_seconds": 60}, {"lease_seconds": 30}, {"dead": True}])
def test_forgetting_drops_this_generation_or_a_lower_one_whoever_holds_it(
    queue: Queue, seed: Any, bench: Bench, place: dict[str, Any], generation: int
) -> None:
    seed("a", generation=3, **place)
    assert queue.forget([(task(), generation)]) == [True]
    assert bench.keys.dump() == {}
    assert queue.forget([(task(), generation)]) == [False]


@pytest.mark.parametrize("place", [{"due_seconds": 60}, {"lease_seconds": 30}, {"dead": True}])
def test_forgetting_does_not_touch_a_higher_generation(
    queue: Queue, seed: Any, bench: Bench, place: dict[str, Any]
) -> None:
    seed("a", generation=3, **place)
    before = bench.parts()
    assert queue.forget([(task(), 2)]) == [False]
    assert bench.parts() == before


def test_a_forgotten_task_can_be_added_again(queue: Queue, seed: Any) -> None:
    seed("a", generation=3, lease_seconds=30)
    queue.forget([(task(), 3)])
    assert add(queue, generation=3) == "created"


def test_who_held_a_forgotten_task_has_lost_it_and_brings_nothing_back(queue: Queue, seed: Any, bench: Bench) -> None:
    hold = seed("a", lease_seconds=30)
    queue.forget([(task(), 1)])
    assert queue.release([Release(hold, 0, "{}")]) == [False]
    assert queue.bury([hold]) == [False]
    assert bench.keys.dump() == {}


# --- hasten


@pytest.mark.parametrize(
    ("becomes", "left"), [("buried", {"a": ("dead", 5)}), ("forgotten", {})], ids=["bury", "forget"]
)
@pytest.mark.parametrize("seeded", [{}, {"due_seconds": 50}, {"crashes": 2}, {"lease_seconds": -1}])
def test_ending_moves_at_once_what_nobody_works_on(
    queue: Queue, seed: Any, state: Any, bench: Bench, becomes: Any, left: Any, seeded: Any
) -> None:
    hold = seed("a", generation=5, **seeded)
    assert queue.end([End(hold.task, 5, becomes)]) == [True]
    assert (state(), bench.leaks()) == (left, [])


def test_ending_moves_what_was_added_and_never_claimed(queue: Queue, state: Any) -> None:
    queue.add([Add(Task(PROVIDER, "a"), 1, "{}")], token="adder")
    assert queue.end([End(Task(PROVIDER, "a"), 1, "buried")]) == [True]
    assert state() == {"a": ("dead", 1)}


@pytest.mark.parametrize(
    ("becomes", "left"), [("buried", {"a": ("dead", 5)}), ("forgotten", {})], ids=["bury", "forget"]
)
def test_ending_what_is_in_process_takes_effect_with_its_release(
    queue: Queue, seed: Any, state: Any, bench: Bench, becomes: Any, left: Any
) -> None:
    held, other = seed("a", generation=5, lease_seconds=30, has_job=True, group="g"), seed("b", lease_seconds=30)
    assert queue.end([End(held.task, 5, becomes)]) == [True]
    assert state()["a"] == ("processing", 5)
    assert queue.release([Release(other, 9, "r"), Release(held, 9, "new")]) == [True, False]
    assert state() == left | {"b": ("waiting", 1)}
    assert bench.parts()["tasks"] == {"b": "r"}


@pytest.mark.parametrize("becomes", ["buried", "forgotten"])
def test_whoever_claims_after_a_crash_is_told_nothing_but_that_it_has_ended(
    queue: Queue, seed: Any, rewind: Any, becomes: Any
) -> None:
    held = seed("a", lease_seconds=30)
    queue.end([End(held.task, 1, becomes)])
    rewind(31)
    (claimed,) = queue.claim(PROVIDER, limit=1, lease_seconds=30, token="w", suspect=True).tasks
    assert claimed.record == becomes


@pytest.mark.parametrize(("generation", "becomes"), [(4, "buried"), (6, "buried"), (4, "forgotten")])
@pytest.mark.parametrize("seeded", [{}, {"lease_seconds": 30}])
def test_ending_another_generation_changes_nothing(
    queue: Queue, seed: Any, bench: Bench, generation: int, becomes: Any, seeded: Any
) -> None:
    hold = seed("a", generation=5, **seeded)
    before = bench.parts()
    assert queue.end([End(hold.task, generation, becomes)]) == [False]
    assert bench.parts() == before


def test_a_dead_letter_is_buried_no_second_time_and_forgotten_once(queue: Queue, seed: Any, state: Any) -> None:
    task = seed("a", dead=True).task
    assert queue.end([End(task, 1, "buried")]) == [False]
    assert state() == {"a": ("dead", 1)}
    assert [queue.end([End(task, 1, "forgotten")]) for _ in range(2)] == [[True], [False]]


def test_ending_nothing_is_nothing(queue: Queue) -> None:
    assert queue.end([]) == []


def test_hastening_makes_a_task_that_waits_for_later_due_now(queue: Queue, seed: Any, bench: Bench) -> None:
    hold = seed("a", generation=3, due_seconds=60, crashes=1)
    before = bench.parts()
    assert queue.hasten([(task(), 3)]) == [True]
    score = bench.score("a")
    assert score is not None
    assert 0 < score <= bench.keys.now()
    assert bench.parts() | {"queue": {}} == before | {"queue": {}}
    assert names(claim(queue, suspect=True)) == [hold.task.name]


def test_hastening_twice_does_it_once_and_a_due_task_keeps_its_turn(queue: Queue, seed: Any, bench: Bench) -> None:
    seed("due", due_seconds=-5)
    seed("later", due_seconds=60)
    score = bench.score("due")
    assert queue.hasten([(task("due"), 1), (task("later"), 1)]) == [False, True]
    assert queue.hasten([(task("due"), 1), (task("later"), 1)]) == [False, False]
    assert bench.score("due") == score


def test_hastening_for_after_a_delay_never_makes_a_task_later(queue: Queue, seed: Any, bench: Bench) -> None:
    sooner, later = seed("sooner", due_seconds=5).task, seed("later", due_seconds=5000).task
    before = bench.score("sooner")
    assert queue.hasten([(sooner, 1), (later, 1)], 1000) == [False, True]
    assert bench.score("sooner") == before
    assert bench.score("later") == pytest.approx(bench.keys.now() + 1_000_000, abs=60_000)


@pytest.mark.parametrize("generation", [2, 4])
def test_hastening_another_generation_changes_nothing(queue: Queue, seed: Any, bench: Bench, generation: int) -> None:
    seed("a", generation=3, due_seconds=60)
    before = bench.parts()
    assert queue.hasten([(task(), generation)]) == [False]
    assert bench.parts() == before


@pytest.mark.parametrize("place", [{"lease_seconds": 30}, {"dead": True}])
def test_hastening_does_not_touch_what_does_not_wait(
    queue: Queue, seed: Any, bench: Bench, place: dict[str, Any]
) -> None:
    seed("a", **place)
    before = bench.parts()
    assert queue.hasten([(task(), 1), (task("unknown"), 1)]) == [False, False]
    assert bench.parts() == before


def test_hastening_nothing_is_nothing(queue: Queue) -> None:
    assert queue.hasten([]) == []


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_hastened(queue: Queue, seed: Any, bench: Bench, name: str) -> None:
    seed(name, due_seconds=60)
    assert queue.hasten([(task(name), 1)]) == [True]


# --- look


@pytest.mark.parametrize("redis_kind", [*SERVERS, *CLUSTERS], indirect=True)
def test_the_backlog_is_what_is_due_and_in_nobodys_hands(queue: Queue, seed: Any) -> None:
    assert queue.backlog(PROVIDER) == 0
    for name, seconds in (("a", -5), ("b", -1), ("later", 60)):
        seed(name, due_seconds=seconds)
    seed("held", lease_seconds=20)
    assert queue.backlog(PROVIDER) == 2


def test_looking_tells_where_a_task_is(queue: Queue, seed: Any) -> None:
    seed("waiting", generation=2, due_seconds=60, record="w")
    seed("overdue", generation=3, due_seconds=-60)
    seed("held", generation=4, lease_seconds=30)
    seed("dead", generation=5, dead=True)
    tasks = [task(name) for name in ("waiting", "overdue", "held", "dead", "unknown")]
    waiting, overdue, held, dead, unknown = queue.look(tasks)
    assert rounded(waiting) == (2, 60, None, None)
    assert rounded(overdue) == (3, -60, None, None)
    assert rounded(held) == (4, None, 30, None)
    assert rounded(dead) == (5, None, None, 0)
    assert unknown == Place(0, None, None, None, None)
    assert [place.held_generation for place in (waiting, overdue, held, dead, unknown)] == [2, 3, 4, 5, 0]


def test_looking_brings_the_record_if_asked(queue: Queue, seed: Any) -> None:
    seed("a", record="its record")
    seed("dead", dead=True)
    places = queue.look([task("a"), task("dead"), task("unknown")], records=True)
    assert [place.record for place in places] == ["its record", None, None]


def test_looking_changes_nothing_not_even_expired_leases(queue: Queue, seed: Any, bench: Bench) -> None:
    seed("a", lease_seconds=-30)
    before = bench.parts()
    (place,) = queue.look([task()])
    assert place.lease_seconds is not None
    assert place.lease_seconds <= -30
    assert place.held_generation == 1
    assert bench.parts() == before


# --- names


@pytest.mark.parametrize("name", NAMES)
def test_any_name_goes_all_the_way(queue: Queue, bench: Bench, name: str) -> None:
    assert add(queue, name) == "created"
    hold = claim_one(queue)
    assert hold.task.name == name
    assert queue.look([task(name)])[0].generation == 1
    assert queue.release([Release(hold, 0, None)]) == [True]
    assert queue.bury([claim_one(queue)]) == [True]
    assert queue.dead(PROVIDER) == [task(name)]
    assert queue.forget([(task(name), 1)]) == [True]
    assert bench.keys.dump() == {}


# --- junk


@pytest.mark.junk
@pytest.mark.parametrize("text", ["", "junk", "1:t", "1:t:x", "-1:t:0", "::", "1:t:0\n", "{}"])
def test_a_state_that_cannot_be_read_counts_as_generation_0_and_stops_nothing(
    queue: Queue, seed: Any, bench: Bench, text: str
) -> None:
    seed("junk")
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}:state", "junk", text)
    seed("sound")
    claimed = {one.hold.task.name: one for one in claim(queue).tasks}
    assert claimed.keys() == {"junk", "sound"}
    assert claimed["junk"].hold.generation == 0
    assert queue.complete([claimed["junk"].hold, claimed["sound"].hold]) == [True, True]
    assert bench.keys.dump() == {}


@pytest.mark.junk
def test_a_state_that_cannot_be_read_is_replaced_by_any_generation_and_can_be_forgotten(
    queue: Queue, seed: Any, bench: Bench
) -> None:
    for name in ("added", "forgotten"):
        seed(name, lease_seconds=30)
        bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}:state", name, "junk")
    assert [place.generation for place in queue.look([task("added"), task("forgotten")])] == [0, 0]
    assert add(queue, "added", generation=1) == "created"
    assert queue.forget([(task("forgotten"), 1)]) == [True]
    assert bench.state() == {"added": ("waiting", 1)}


@pytest.mark.junk
def test_a_task_whose_record_or_state_is_missing_is_handed_out_all_the_same(queue: Queue, bench: Bench) -> None:
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}", "orphan", 1)
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}", "recordless", 2)
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}:state", "recordless", "3::0")
    orphan, recordless = claim(queue).tasks
    assert (orphan.hold.task.name, orphan.hold.generation, orphan.record) == ("orphan", 0, None)
    assert (recordless.hold.task.name, recordless.hold.generation, recordless.record) == ("recordless", 3, None)
    assert queue.forget([(orphan.hold.task, 0), (recordless.hold.task, 3)]) == [True, True]
    assert bench.keys.dump() == {}


@pytest.mark.junk
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
def test_a_name_that_is_not_utf_8_stops_nobody(queue: Queue, seed: Any, redis_client: Any) -> None:
    redis_client.zadd(f"{{{PREFIX}:{PROVIDER}}}", {b"\xff\xfe": 1})
    seed("sound")
    garbled, sound = claim(queue).tasks
    assert (garbled.hold.task.name, garbled.record) == ("\ufffd\ufffd", None)
    assert queue.forget([(garbled.hold.task, 0)]) == [False]
    assert queue.complete([garbled.hold, sound.hold]) == [False, True]


def test_a_lease_without_a_task_goes_when_it_expires(
    queue: Queue, bench: Bench, rewind: Callable[[float], None]
) -> None:
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}:leases", "ghost", bench.keys.now() + 1000)
    rewind(2)
    assert claim(queue).expired == 0
    assert bench.keys.dump() == {}


def test_an_expired_lease_of_a_waiting_task_goes_and_the_task_stays_as_it_was(
    queue: Queue, seed: Any, bench: Bench
) -> None:
    seed("a", due_seconds=60)
    before = bench.parts()
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}:leases", "a", 1)
    assert claim(queue).expired == 0
    assert bench.parts() == before


def test_a_task_at_0_without_a_lease_is_held_by_nobody_and_adding_takes_it_again(
    queue: Queue, bench: Bench, rewind: Callable[[float], None]
) -> None:
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}", "a", 0)
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}:state", "a", "1:gone:0")
    bench.keys.write(f"{{{PREFIX}:{PROVIDER}}}:tasks", "a", "{}")
    assert bench.state() == {"a": ("stranded", 1)}
    assert queue.look([task()])[0].held_generation == 0
    assert add(queue, generation=1) == "created"
    assert names(claim(queue)) == ["a"]


@pytest.mark.junk
@pytest.mark.parametrize("part", ["leases", "state", "tasks", "jobs", "groups"])
def test_what_is_left_of_a_task_that_is_nowhere_is_listed_and_nothing_else_is(
    queue: Queue, seed: Any, bench: Bench, part: str
) -> None:
    seed("waiting", group="A", has_job=True)
    seed("leased", lease_seconds=9)
    seed("dead", dead=True)
    assert queue.strays(PROVIDER) == []
    left: dict[str, float | str] = {"leases": 5.0, "state": "1::0", "tasks": "{}", "jobs": "", "groups": "A"}
    for number in range(3):
        bench.keys.write(key_of(PROVIDER, part), f"stray {number}", left[part])
    assert queue.strays(PROVIDER) == [task(f"stray {number}") for number in range(3)]
    assert sorted(one.name for one in queue.queued(PROVIDER)) == ["leased", "waiting"]
    for one in queue.strays(PROVIDER):
        queue.forget([(one, 1)])
    assert queue.strays(PROVIDER) == []


# --- trouble


def test_what_redis_does_not_serve_is_unavailable(
    queue: Any, redis_kind: str, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    if redis_kind == "memory":
        queue.unavailable = True
    else:
        for part in ("", ":dead"):
            bench.keys._client.set(f"{{{PREFIX}:{PROVIDER}}}{part}", "a string")  # type: ignore[attr-defined]
    calls: list[Callable[[], object]] = [
        lambda: add(queue),
        lambda: claim(queue),
        lambda: queue.look([task()]),
        lambda: queue.forget([(task(), 1)]),
        lambda: queue.hasten([(task(), 1)]),
        lambda: queue.dead(PROVIDER),
    ]
    for call in calls:
        with pytest.raises(QueueUnavailable):
            call()
    if redis_kind == "memory":
        queue.unavailable = False
    else:
        bench.keys._client.flushall()  # type: ignore[attr-defined]


def test_tokens_are_128_bits_and_new_each_time() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(bytes.fromhex(token)) == 16 for token in tokens)


# --- the double alone


def test_a_copy_of_the_double_goes_its_own_way() -> None:
    queue = MemoryQueue()
    bench = Bench(queue)
    bench.seed("a")
    twin = queue.copy()
    claim(queue)  # type: ignore[arg-type]
    assert bench.state() == {"a": ("processing", 1)}
    assert Bench(twin).state() == {"a": ("waiting", 1)}
    twin.flush()
    assert twin.dump() == {}
    assert bench.state() == {"a": ("processing", 1)}
