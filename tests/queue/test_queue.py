"""The queue's contract: the same promises on fakeredis, Valkey and Redis, alone and as clusters, and on the double."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shared.errors import QueueUnavailable
from shared.queue import End, Hold, Place, Release, new_token
from tests.support.desk import LEASE_SECONDS, Desk, names, task
from tests.support.keys import PROVIDER, Bench, key_of
from tests.support.memory_queue import MemoryQueue
from tests.support.redis_servers import BARE, CLUSTERS, EVERY_KIND, SERVERS

HOURS = 3600.0
WHEREVER = pytest.mark.parametrize("place", [{"due_seconds": 60}, {"lease_seconds": 30}, {"dead": True}])
NAMES = ("plain", "Ünïcødé 名前", "with space", "{queue:example}", "a:b:c", "0", "-inf", "x" * 256)


@pytest.fixture(params=[*EVERY_KIND, *CLUSTERS, BARE])
def redis_kind(request: pytest.FixtureRequest) -> str:
    """Here the double too."""
    kind: str = request.param
    return kind


def rounded(place: Place) -> tuple[int, *tuple[float | None, ...]]:
    """Generation, due, lease and buried; to ten seconds, since a server's time goes on."""
    spans = (place.due_seconds, place.lease_seconds, place.buried_seconds)
    return place.generation, *(None if span is None else round(span, -1) for span in spans)


# --- unique


def test_a_new_task_is_created_and_due_at_once(desk: Desk) -> None:
    assert desk.add() == "created"
    assert desk.state() == {"a": ("waiting", 1)}
    assert desk.take() == ["a"]


def test_a_task_can_be_added_for_later(desk: Desk) -> None:
    desk.add(delay=60)
    desk.rewind(59)
    assert desk.claim().tasks == ()
    desk.rewind(1)
    assert desk.take() == ["a"]


def test_a_task_added_with_a_lease_is_held_by_who_added_it(desk: Desk) -> None:
    desk.add(token="mine", lease_seconds=LEASE_SECONDS)
    assert desk.state() == {"a": ("processing", 1)}
    assert desk.score("a") == 0
    assert desk.claim().tasks == ()
    assert desk.queue.complete([Hold(task(), 1, "mine")]) == [True]


@pytest.mark.parametrize(("generation", "answer"), [(3, "exists"), (2, "stale")])
@WHEREVER
def test_the_same_generation_exists_and_a_lower_one_is_stale_wherever_the_task_is(
    desk: Desk, place: dict[str, Any], generation: int, answer: str
) -> None:
    desk.seed("a", generation=3, **place)
    with desk.unchanged():
        assert desk.add(generation=generation, record='{"other": 1}', delay=5) == answer


@pytest.mark.parametrize("lease_seconds", [0, LEASE_SECONDS])
@WHEREVER
def test_a_higher_generation_replaces_a_lower_one_wherever_it_is(
    desk: Desk, place: dict[str, Any], lease_seconds: float
) -> None:
    desk.seed("a", generation=3, crashes=2, record="old", **place)
    assert desk.add(generation=4, record="new", lease_seconds=lease_seconds) == "created"
    assert desk.state() == {"a": ("processing" if lease_seconds else "waiting", 4)}
    assert desk.parts()["tasks"] == {"a": "new"}
    assert desk.parts()["state"] == {"a": "4:adder:0"}


def test_replacing_a_generation_fences_its_old_worker(desk: Desk) -> None:
    old = desk.seed("a", generation=3, lease_seconds=30)
    desk.add(generation=4)
    with desk.unchanged():
        assert desk.has_lost(old)


@pytest.mark.parametrize("lease_seconds", [0, LEASE_SECONDS])
def test_a_repeated_call_is_answered_created_again_and_changes_nothing(desk: Desk, lease_seconds: float) -> None:
    assert desk.add(token="mine", lease_seconds=lease_seconds) == "created"
    with desk.unchanged():
        assert desk.add(token="mine", lease_seconds=lease_seconds, record="again") == "created"


def test_one_add_call_takes_many_tasks_each_for_itself(desk: Desk) -> None:
    for name, generation in (("old", 1), ("same", 2), ("newer", 9)):
        desk.seed(name, generation=generation, due_seconds=60)
    answers = desk.put(("new", "old", "same", "newer", "new"), 2, token="mine")
    assert answers == ["created", "created", "exists", "stale", "created"]
    assert desk.state() == dict.fromkeys(("new", "old", "same"), ("waiting", 2)) | {"newer": ("waiting", 9)}


@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
def test_fifty_at_once_add_one_task_once(desk: Desk) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: desk.add(token=new_token(), lease_seconds=LEASE_SECONDS), range(50)))
    assert sorted(answers) == ["created"] + ["exists"] * 49
    assert desk.state() == {"a": ("processing", 1)}


# --- claimed once


def test_a_claimed_task_scores_0_under_a_lease_with_its_record(desk: Desk) -> None:
    desk.seed("a", generation=7, record='{"n": [], "x": 1e-7}')
    (claimed,) = desk.claim().tasks
    assert (claimed.hold, claimed.crashes) == (Hold(task(), 7, "worker"), 0)
    assert claimed.record == '{"n": [], "x": 1e-7}'
    assert desk.score("a") == 0
    assert desk.parts()["leases"]["a"] == pytest.approx(desk.keys.now() + LEASE_SECONDS * 1000, abs=5000)


def test_only_scores_above_0_and_not_in_the_future_are_taken(desk: Desk) -> None:
    desk.seed("held", lease_seconds=30)
    desk.seed("future", due_seconds=5)
    desk.seed("due")
    assert desk.take() == ["due"]
    assert desk.claim().tasks == ()


def test_the_oldest_come_first_and_no_more_than_the_limit(desk: Desk) -> None:
    for age in (3, 9, 1, 7, 5):
        desk.seed(f"{age} s", due_seconds=-age)
    assert desk.take(limit=3) == ["9 s", "7 s", "5 s"]
    assert desk.take(limit=3) == ["3 s", "1 s"]


def test_one_call_takes_200_at_most(desk: Desk) -> None:
    desk.put([f"{number}" for number in range(450)])
    assert [len(desk.claim(limit=1000).tasks) for _ in range(4)] == [200, 200, 50, 0]


@pytest.mark.promise("once", "a due task is given to one worker")
@pytest.mark.promise("faults", "a cluster of three nodes")
@pytest.mark.parametrize("redis_kind", SERVERS[1:], indirect=True)
def test_sixteen_at_once_claim_500_tasks_once_each(desk: Desk) -> None:
    every = {f"{number}" for number in range(500)}
    desk.put([*every])
    start = threading.Barrier(16)

    def drain(worker: int) -> list[str]:
        start.wait()
        found = []
        while taken := desk.take(limit=7, token=f"worker {worker}"):
            found += taken
        return found

    with ThreadPoolExecutor(16) as pool:
        taken = [name for found in pool.map(drain, range(16)) for name in found]
    assert len(taken) == 500
    assert set(taken) == every


def test_providers_do_not_share_tasks(desk: Desk) -> None:
    desk.seed("a", provider="coin")
    assert desk.claim().tasks == ()
    assert names(desk.queue.claim("coin", limit=1, lease_seconds=30, token="t")) == ["a"]


# --- when to look again


def test_claim_tells_when_the_next_task_falls_due(desk: Desk) -> None:
    assert desk.claim().wait_seconds is None
    desk.seed("later", due_seconds=100)
    desk.seed("soon", due_seconds=50)
    assert desk.claim().wait_seconds == pytest.approx(50, abs=5)


def test_claim_says_to_look_at_once_where_there_may_be_more(desk: Desk) -> None:
    desk.seed("one")
    desk.seed("two")
    assert desk.claim(limit=1).wait_seconds == 0
    assert desk.claim(limit=5).wait_seconds is None


def test_a_task_due_in_two_hours_is_not_touched_whatever_the_lease(desk: Desk) -> None:
    desk.seed("a", due_seconds=2 * HOURS)
    for passed in (90, 510):
        desk.rewind(passed)
        with desk.unchanged():
            assert desk.claim().tasks == ()
    assert desk.state() == {"a": ("waiting", 1)}


# --- never stranded


def test_a_task_whose_worker_died_comes_back_due_since_its_leases_end(desk: Desk) -> None:
    desk.seed("a")
    desk.claim()
    lease_end = desk.parts()["leases"]["a"]
    desk.rewind(LEASE_SECONDS + 5)
    back = desk.claim()
    assert (back.tasks, back.expired, back.suspects) == ((), 1, True)
    assert desk.state() == {"a": ("waiting", 1)}
    assert desk.score("a") == lease_end - (LEASE_SECONDS + 5) * 1000
    (suspect,) = desk.claim(suspect=True, limit=1).tasks
    assert suspect.crashes == 1


@pytest.mark.promise("once", "a worker whose lease is over can no longer move the task")
def test_the_dead_worker_of_a_task_that_came_back_has_lost_it(desk: Desk) -> None:
    desk.seed("a")
    (dead,) = desk.hold()
    desk.rewind(LEASE_SECONDS)
    desk.claim()
    assert desk.has_lost(dead)


def test_a_worker_whose_lease_is_over_keeps_the_task_until_somebody_looks(desk: Desk) -> None:
    desk.seed("a")
    (late,) = desk.hold()
    desk.rewind(LEASE_SECONDS + 5)
    assert desk.queue.complete([late]) == [True]


@pytest.mark.promise("ends", "the tasks of a worker that died come back when its lease is over")
def test_three_tasks_of_a_killed_worker_are_all_worked_on_again(desk: Desk) -> None:
    desk.put("abc")
    assert len(desk.claim().tasks) == 3
    desk.rewind(LEASE_SECONDS)
    assert desk.claim(limit=10).tasks == ()
    suspects = [one for _ in range(3) for one in desk.claim(limit=1, suspect=True).tasks]
    assert sorted((one.hold.task.name, one.crashes) for one in suspects) == [("a", 1), ("b", 1), ("c", 1)]
    assert desk.queue.complete([one.hold for one in suspects]) == [True, True, True]
    assert desk.state() == {}


def test_each_lost_worker_counts_as_one_crash(desk: Desk) -> None:
    desk.seed("a")
    desk.claim()
    for crashes in (1, 2, 3, 4):
        desk.rewind(LEASE_SECONDS)
        (suspect,) = desk.claim(limit=1, suspect=True).tasks
        assert suspect.crashes == crashes


def test_more_than_200_leases_that_expire_at_once_all_come_back(desk: Desk) -> None:
    desk.begin([f"{number}" for number in range(450)])
    desk.rewind(LEASE_SECONDS)
    assert [desk.claim().expired for _ in range(4)] == [200, 200, 50, 0]


# --- suspects are alone


def test_an_ordinary_claim_never_returns_a_suspect(desk: Desk) -> None:
    desk.seed("killer", crashes=1, due_seconds=-100)
    desk.seed("harmless")
    claimed = desk.claim()
    assert (names(claimed), claimed.suspects) == (["harmless"], True)


def test_a_suspect_claim_returns_exactly_one_the_oldest_and_nothing_ordinary(desk: Desk) -> None:
    desk.seed("harmless", due_seconds=-100)
    desk.seed("killer", crashes=1, due_seconds=-5)
    desk.seed("old killer", crashes=3, due_seconds=-10)
    desk.seed("future killer", crashes=3, due_seconds=10)
    assert desk.take(limit=10, suspect=True) == ["old killer"]
    assert desk.take(limit=1, suspect=True) == ["killer"]
    assert desk.take(limit=1, suspect=True) == []


def test_a_suspect_claim_takes_a_lease_that_has_just_expired_if_it_is_the_oldest(desk: Desk) -> None:
    desk.seed("killer", crashes=1, due_seconds=-10)
    desk.seed("older", lease_seconds=-20, token="dead")
    desk.seed("younger", lease_seconds=-5, token="dead")
    assert desk.take(limit=1, suspect=True) == ["older"]
    assert desk.state() == {"killer": ("waiting", 1), "older": ("processing", 1), "younger": ("waiting", 1)}


def test_suspects_do_not_hide_what_is_behind_them(desk: Desk) -> None:
    for number in range(120):
        desk.seed(f"killer {number}", crashes=1, due_seconds=-100)
    desk.seed("harmless")
    assert desk.take(limit=2) == ["harmless"]


def test_ordinary_tasks_do_not_hide_a_suspect_behind_them(desk: Desk) -> None:
    desk.put([f"{number}" for number in range(120)])
    desk.seed("killer", crashes=1)
    assert desk.take(limit=1, suspect=True) == ["killer"]


def test_no_suspect_waits_where_none_has_crashed(desk: Desk) -> None:
    desk.seed("a")
    desk.seed("held", lease_seconds=30, crashes=2)
    assert desk.claim().suspects is False


# --- settling


def test_completing_leaves_nothing_behind(desk: Desk) -> None:
    assert desk.queue.complete([desk.seed("a", lease_seconds=30)]) == [True]
    assert desk.keys.dump() == {}


def test_releasing_makes_a_task_due_after_its_delay_keeps_its_record_and_forgets_the_crashes(desk: Desk) -> None:
    hold = desk.seed("a", lease_seconds=30, record="kept", crashes=2)
    assert desk.queue.release([Release(hold, 60, None)]) == [True]
    assert desk.claim().wait_seconds == pytest.approx(60, abs=5)
    desk.rewind(60)
    (claimed,) = desk.claim().tasks
    assert (claimed.record, claimed.crashes) == ("kept", 0)


def test_releasing_can_replace_the_record(desk: Desk) -> None:
    desk.queue.release([Release(desk.seed("a", lease_seconds=30), 0, "new")])
    assert desk.parts()["tasks"] == {"a": "new"}


def test_a_released_task_is_nobodys_and_there_once_whether_the_reply_arrives_or_not(desk: Desk) -> None:
    hold = desk.seed("a", lease_seconds=30)
    assert desk.settle("release", hold, delay=0) == [True]
    assert desk.has_lost(hold)  # the worker calls again, or dies: the same
    desk.rewind(LEASE_SECONDS)
    assert desk.state() == {"a": ("waiting", 1)}
    assert desk.take() == ["a"]
    assert desk.claim().tasks == ()


def test_burying_makes_a_dead_letter_that_is_listed_never_due_and_has_no_crashes(desk: Desk) -> None:
    assert desk.queue.bury([desk.seed("a", generation=4, lease_seconds=30, crashes=2)]) == [True]
    assert desk.state() == {"a": ("dead", 4)}
    assert desk.parts()["state"] == {"a": "4::0"}
    assert desk.queue.members(PROVIDER, "dead") == [task()]
    desk.rewind(100 * HOURS)
    assert desk.claim().tasks == ()
    assert desk.claim(suspect=True, limit=1).tasks == ()


def test_every_dead_letter_is_listed(desk: Desk) -> None:
    for number in range(450):
        desk.seed(f"{number}", dead=True)
    desk.seed("alive")
    assert sorted(desk.queue.members(PROVIDER, "dead")) == sorted(task(f"{number}") for number in range(450))
    assert desk.queue.members("coin", "dead") == []


@pytest.mark.promise("once", "a worker whose lease is over can no longer move the task")
@pytest.mark.parametrize("wrong", [Hold(task(), 2, "theirs"), Hold(task(), 1, "mine"), Hold(task(), 3, "mine")])
def test_settling_needs_token_and_generation(desk: Desk, wrong: Hold) -> None:
    desk.seed("a", generation=2, lease_seconds=30, token="mine")
    with desk.unchanged():
        assert desk.has_lost(wrong)


def test_one_call_settles_many_each_for_itself(desk: Desk) -> None:
    mine = [desk.seed(name, lease_seconds=30, token="mine") for name in "abc"]
    lost = Hold(task("b"), 1, "theirs")
    assert desk.queue.complete([mine[0], lost]) == [True, False]
    assert desk.queue.release([Release(lost, 0, None), Release(mine[1], 9, None)]) == [False, True]
    assert desk.queue.bury([lost, mine[2]]) == [False, True]
    assert desk.state() == {"b": ("waiting", 1), "c": ("dead", 1)}


def test_hundreds_settle_in_one_call(desk: Desk) -> None:
    every = [f"{number}" for number in range(450)]
    assert desk.begin(every) == ["created"] * 450
    holds = [Hold(task(name), 1, "adder") for name in every]
    assert desk.queue.release([Release(hold, 60, None) for hold in holds[:210]]) == [True] * 210
    assert desk.queue.bury(holds[210:220]) == [True] * 10
    assert desk.queue.complete(holds[220:]) == [True] * 230
    assert desk.queue.forget([(hold.task, 1) for hold in holds[:220]]) == [True] * 220
    assert desk.keys.dump() == {}


def test_a_call_about_nothing_does_nothing(desk: Desk) -> None:
    queue = desk.queue
    assert queue.complete([]) == queue.release([]) == queue.bury([]) == queue.forget([]) == []
    assert [*queue.add([], token="mine"), *queue.look([]), *queue.end([]), *queue.hasten([])] == []


# --- forget


@pytest.mark.parametrize("generation", [3, 4])
@WHEREVER
def test_forgetting_drops_this_generation_or_a_lower_one_whoever_holds_it_and_it_can_be_added_again(
    desk: Desk, place: dict[str, Any], generation: int
) -> None:
    desk.seed("a", generation=3, **place)
    assert desk.queue.forget([(task(), generation)]) == [True]
    assert desk.keys.dump() == {}
    assert desk.queue.forget([(task(), generation)]) == [False]
    assert desk.add(generation=3) == "created"


@WHEREVER
def test_forgetting_does_not_touch_a_higher_generation(desk: Desk, place: dict[str, Any]) -> None:
    desk.seed("a", generation=3, **place)
    with desk.unchanged():
        assert desk.queue.forget([(task(), 2)]) == [False]


def test_who_held_a_forgotten_task_has_lost_it_and_brings_nothing_back(desk: Desk) -> None:
    hold = desk.seed("a", lease_seconds=30)
    desk.queue.forget([(task(), 1)])
    assert desk.has_lost(hold)
    assert desk.keys.dump() == {}


# --- end

ENDED = pytest.mark.parametrize(("becomes", "left"), [("buried", {"a": ("dead", 5)}), ("forgotten", {})])


@ENDED
@pytest.mark.parametrize("seeded", [{}, {"due_seconds": 50}, {"crashes": 2}, {"lease_seconds": -1}])
def test_ending_moves_at_once_what_nobody_works_on(desk: Desk, becomes: Any, left: Any, seeded: Any) -> None:
    hold = desk.seed("a", generation=5, **seeded)
    assert desk.queue.end([End(hold.task, 5, becomes)]) == [True]
    assert (desk.state(), desk.leaks()) == (left, [])


def test_ending_moves_what_was_added_and_never_claimed(desk: Desk) -> None:
    desk.add()
    assert desk.queue.end([End(task(), 1, "buried")]) == [True]
    assert desk.state() == {"a": ("dead", 1)}


@ENDED
def test_ending_what_is_in_process_takes_effect_with_its_release(desk: Desk, becomes: Any, left: Any) -> None:
    held = desk.seed("a", generation=5, lease_seconds=30, has_job=True, group="g")
    other = desk.seed("b", lease_seconds=30)
    assert desk.queue.end([End(held.task, 5, becomes)]) == [True]
    assert desk.state()["a"] == ("processing", 5)
    assert desk.queue.release([Release(other, 9, "r"), Release(held, 9, "new")]) == [True, False]
    assert desk.state() == left | {"b": ("waiting", 1)}
    assert desk.parts()["tasks"] == {"b": "r"}


@pytest.mark.parametrize("becomes", ["buried", "forgotten"])
def test_whoever_claims_after_a_crash_is_told_nothing_but_that_it_has_ended(desk: Desk, becomes: Any) -> None:
    held = desk.seed("a", lease_seconds=30)
    desk.queue.end([End(held.task, 1, becomes)])
    desk.rewind(31)
    (claimed,) = desk.claim(suspect=True).tasks
    assert claimed.record == becomes


@pytest.mark.parametrize(("generation", "becomes"), [(4, "buried"), (6, "buried"), (4, "forgotten")])
@pytest.mark.parametrize("seeded", [{}, {"lease_seconds": 30}])
def test_ending_another_generation_changes_nothing(desk: Desk, generation: int, becomes: Any, seeded: Any) -> None:
    hold = desk.seed("a", generation=5, **seeded)
    with desk.unchanged():
        assert desk.queue.end([End(hold.task, generation, becomes)]) == [False]


def test_a_dead_letter_is_buried_no_second_time_and_forgotten_once(desk: Desk) -> None:
    task = desk.seed("a", dead=True).task
    assert desk.queue.end([End(task, 1, "buried")]) == [False]
    assert desk.state() == {"a": ("dead", 1)}
    assert [desk.queue.end([End(task, 1, "forgotten")]) for _ in range(2)] == [[True], [False]]


# --- hasten


def test_hastening_makes_a_task_that_waits_for_later_due_now(desk: Desk) -> None:
    hold = desk.seed("a", generation=3, due_seconds=60, crashes=1)
    before = desk.parts()
    assert desk.queue.hasten([(task(), 3)]) == [True]
    score = desk.score("a")
    assert score is not None
    assert 0 < score <= desk.keys.now()
    assert desk.parts() | {"queue": {}} == before | {"queue": {}}
    assert desk.take(suspect=True) == [hold.task.name]


def test_hastening_twice_does_it_once_and_a_due_task_keeps_its_turn(desk: Desk) -> None:
    desk.seed("due", due_seconds=-5)
    desk.seed("later", due_seconds=60)
    score = desk.score("due")
    assert desk.queue.hasten([(task("due"), 1), (task("later"), 1)]) == [False, True]
    assert desk.queue.hasten([(task("due"), 1), (task("later"), 1)]) == [False, False]
    assert desk.score("due") == score


def test_hastening_for_after_a_delay_never_makes_a_task_later(desk: Desk) -> None:
    sooner, later = desk.seed("sooner", due_seconds=5).task, desk.seed("later", due_seconds=5000).task
    before = desk.score("sooner")
    assert desk.queue.hasten([(sooner, 1), (later, 1)], 1000) == [False, True]
    assert desk.score("sooner") == before
    assert desk.score("later") == pytest.approx(desk.keys.now() + 1_000_000, abs=60_000)


@pytest.mark.parametrize(
    ("generation", "place"),
    [(2, {"due_seconds": 60}), (4, {"due_seconds": 60}), (3, {"lease_seconds": 30}), (3, {"dead": True})],
)
def test_hastening_touches_neither_another_generation_nor_what_does_not_wait(
    desk: Desk, generation: int, place: dict[str, Any]
) -> None:
    desk.seed("a", generation=generation, **place)
    with desk.unchanged():
        assert desk.queue.hasten([(task(), 3), (task("unknown"), 3)]) == [False, False]


# --- look


@pytest.mark.parametrize("redis_kind", [*SERVERS, *CLUSTERS], indirect=True)
def test_the_backlog_is_what_is_due_and_in_nobodys_hands(desk: Desk) -> None:
    assert desk.queue.backlog(PROVIDER) == 0
    for name, seconds in (("a", -5), ("b", -1), ("later", 60)):
        desk.seed(name, due_seconds=seconds)
    desk.seed("held", lease_seconds=20)
    assert desk.queue.backlog(PROVIDER) == 2


def test_looking_tells_where_a_task_is(desk: Desk) -> None:
    desk.seed("waiting", generation=2, due_seconds=60, record="w")
    desk.seed("overdue", generation=3, due_seconds=-60)
    desk.seed("held", generation=4, lease_seconds=30)
    desk.seed("dead", generation=5, dead=True)
    places = desk.queue.look([task(name) for name in ("waiting", "overdue", "held", "dead", "unknown")])
    told = [(2, 60, None, None), (3, -60, None, None), (4, None, 30, None), (5, None, None, 0), (0, None, None, None)]
    assert [rounded(place) for place in places] == told
    assert [place.held_generation for place in places] == [2, 3, 4, 5, 0]
    assert places[-1] == Place(0, None, None, None, None)


def test_looking_brings_the_record_if_asked(desk: Desk) -> None:
    desk.seed("a", record="its record")
    desk.seed("dead", dead=True)
    places = desk.queue.look([task("a"), task("dead"), task("unknown")], records=True)
    assert [place.record for place in places] == ["its record", None, None]


def test_looking_changes_nothing_not_even_expired_leases(desk: Desk) -> None:
    desk.seed("a", lease_seconds=-30)
    with desk.unchanged():
        (place,) = desk.queue.look([task()])
        assert place.lease_seconds is not None
        assert place.lease_seconds <= -30
        assert place.held_generation == 1


# --- names


@pytest.mark.parametrize("name", NAMES)
def test_any_name_goes_all_the_way(desk: Desk, name: str) -> None:
    assert desk.add(name, delay=60) == "created"
    assert desk.queue.hasten([(task(name), 1)]) == [True]
    (hold,) = desk.hold()
    assert hold.task.name == name
    assert desk.queue.look([task(name)])[0].generation == 1
    assert desk.queue.release([Release(hold, 0, None)]) == [True]
    assert desk.queue.bury([desk.hold()[0]]) == [True]
    assert desk.queue.members(PROVIDER, "dead") == [task(name)]
    assert desk.queue.forget([(task(name), 1)]) == [True]
    assert desk.keys.dump() == {}


# --- junk


@pytest.mark.junk
@pytest.mark.parametrize("text", ["", "junk", "1:t", "1:t:x", "-1:t:0", "::", "1:t:0\n", "{}"])
def test_a_state_that_cannot_be_read_counts_as_generation_0_and_stops_nothing(desk: Desk, text: str) -> None:
    desk.seed("junk")
    desk.write("state", "junk", text)
    desk.seed("sound")
    claimed = {one.hold.task.name: one for one in desk.claim().tasks}
    assert claimed.keys() == {"junk", "sound"}
    assert claimed["junk"].hold.generation == 0
    assert desk.queue.complete([claimed["junk"].hold, claimed["sound"].hold]) == [True, True]
    assert desk.keys.dump() == {}


@pytest.mark.junk
def test_a_state_that_cannot_be_read_is_replaced_by_any_generation_and_can_be_forgotten(desk: Desk) -> None:
    for name in ("added", "forgotten"):
        desk.seed(name, lease_seconds=30)
        desk.write("state", name, "junk")
    assert [place.generation for place in desk.queue.look([task("added"), task("forgotten")])] == [0, 0]
    assert desk.add("added", generation=1) == "created"
    assert desk.queue.forget([(task("forgotten"), 1)]) == [True]
    assert desk.state() == {"added": ("waiting", 1)}


@pytest.mark.junk
def test_a_task_whose_record_or_state_is_missing_is_handed_out_all_the_same(desk: Desk) -> None:
    desk.write("queue", "orphan", 1)
    desk.write("queue", "recordless", 2)
    desk.write("state", "recordless", "3::0")
    orphan, recordless = desk.claim().tasks
    assert (orphan.hold.task.name, orphan.hold.generation, orphan.record) == ("orphan", 0, None)
    assert (recordless.hold.task.name, recordless.hold.generation, recordless.record) == ("recordless", 3, None)
    assert desk.queue.forget([(orphan.hold.task, 0), (recordless.hold.task, 3)]) == [True, True]
    assert desk.keys.dump() == {}


@pytest.mark.junk
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
def test_a_name_that_is_not_utf_8_stops_nobody(desk: Desk, redis_client: Any) -> None:
    redis_client.zadd(key_of(PROVIDER, "queue"), {b"\xff\xfe": 1})
    desk.seed("sound")
    garbled, sound = desk.claim().tasks
    assert (garbled.hold.task.name, garbled.record) == ("\ufffd\ufffd", None)
    assert desk.queue.forget([(garbled.hold.task, 0)]) == [False]
    assert desk.queue.complete([garbled.hold, sound.hold]) == [False, True]


def test_a_lease_without_a_task_goes_when_it_expires(desk: Desk) -> None:
    desk.write("leases", "ghost", desk.keys.now() + 1000)
    desk.rewind(2)
    assert desk.claim().expired == 0
    assert desk.keys.dump() == {}


def test_an_expired_lease_of_a_waiting_task_goes_and_the_task_stays_as_it_was(desk: Desk) -> None:
    desk.seed("a", due_seconds=60)
    with desk.unchanged():
        desk.write("leases", "a", 1)
        assert desk.claim().expired == 0


def test_a_task_at_0_without_a_lease_is_held_by_nobody_and_adding_takes_it_again(desk: Desk) -> None:
    desk.write("queue", "a", 0)
    desk.write("state", "a", "1:gone:0")
    desk.write("tasks", "a", "{}")
    assert desk.state() == {"a": ("stranded", 1)}
    assert desk.queue.look([task()])[0].held_generation == 0
    assert desk.add(generation=1) == "created"
    assert desk.take() == ["a"]


@pytest.mark.junk
@pytest.mark.parametrize("part", ["leases", "state", "tasks", "jobs", "groups"])
def test_what_is_left_of_a_task_that_is_nowhere_is_listed_and_nothing_else_is(desk: Desk, part: str) -> None:
    desk.seed("waiting", group="A", has_job=True)
    desk.seed("leased", lease_seconds=9)
    desk.seed("dead", dead=True)
    assert desk.queue.strays(PROVIDER) == []
    left: dict[str, float | str] = {"leases": 5.0, "state": "1::0", "tasks": "{}", "jobs": "", "groups": "A"}
    for number in range(3):
        desk.write(part, f"stray {number}", left[part])
    assert desk.queue.strays(PROVIDER) == [task(f"stray {number}") for number in range(3)]
    assert sorted(one.name for one in desk.queue.members(PROVIDER, "queue")) == ["leased", "waiting"]
    for one in desk.queue.strays(PROVIDER):
        desk.queue.forget([(one, 1)])
    assert desk.queue.strays(PROVIDER) == []


# --- errors


def test_what_redis_does_not_serve_is_unavailable(desk: Desk, redis_kind: str) -> None:
    queue: Any = desk.queue
    if redis_kind == "memory":
        queue.unavailable = True
    else:
        for part in ("queue", "dead"):
            queue._client.set(key_of(PROVIDER, part), "a string")
    calls: list[Callable[[], object]] = [
        desk.add,
        desk.claim,
        lambda: queue.look([task()]),
        lambda: queue.forget([(task(), 1)]),
        lambda: queue.hasten([(task(), 1)]),
        lambda: queue.members(PROVIDER, "dead"),
    ]
    for call in calls:
        with pytest.raises(QueueUnavailable):
            call()
    queue.unavailable = False
    if redis_kind != "memory":
        queue._client.flushall()


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
    queue.claim(PROVIDER, limit=1, lease_seconds=30, token="worker")
    assert (bench.state(), Bench(twin).state()) == ({"a": ("processing", 1)}, {"a": ("waiting", 1)})
