"""The queue's contract: the same promises on fakeredis, Valkey and Redis, alone and as clusters, and on the double."""

import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest

from shared.errors import QueueUnavailable
from shared.limits import Limits
from shared.queue import Add, Becomes, Hold, Place, Run, Settle, Which, new_token
from tests.support.desk import LEASE_SECONDS, Desk, names, task
from tests.support.keys import PARTS, PLACES, PROVIDER, RINGS, Bench, key_of
from tests.support.memory_queue import MemoryQueue
from tests.support.redis_servers import BARE, CLUSTERS, EVERY_KIND, SERVERS

HOURS = 3600.0
WHEREVER = pytest.mark.parametrize("place", [{"due_seconds": 60}, {"lease_seconds": 30}, {"dead": True}])
EVERY_CLAIM: tuple[Which, ...] = get_args(Which)
NAMES = ("plain", "Ünïcødé 名前", "with space", "{queue:example}", "a:b:c", "0", "-inf", "[a", "(a", "x" * 256)


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
    assert desk.settle("completed", Hold(task(), 1, "mine")) == [True]


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
    desk.seed("a", generation=3, came_back=2, record="old", **place)
    assert desk.add(generation=4, record="new", lease_seconds=lease_seconds) == "created"
    assert desk.state() == {"a": ("processing" if lease_seconds else "waiting", 4)}
    assert desk.parts()["tasks"] == {"a": "new"}
    assert desk.parts()["state"] == {"a": "4:adder.1:0" if lease_seconds else "4:adder.0:0"}


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
    answers = desk.put(("new", "old", "same", "newer"), 2, token="mine")
    assert answers == ["created", "created", "exists", "stale"]
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
    assert (claimed.hold, claimed.came_back) == (Hold(task(), 7, "worker", 1), 0)
    assert claimed.record == b'{"n": [], "x": 1e-7}'
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
    assert (back.tasks, back.expired, back.once, back.often) == ((), 1, True, False)
    assert desk.state() == {"a": ("waiting", 1)}
    assert desk.score("a") == lease_end - (LEASE_SECONDS + 5) * 1000
    (again,) = desk.claim(which="once").tasks
    assert (again.came_back, again.hold.turn) == (1, 2)


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
    assert desk.settle("completed", late) == [True]


@pytest.mark.promise("ends", "the tasks of a worker that died come back when its lease is over")
def test_three_tasks_of_a_killed_worker_are_all_worked_on_again(desk: Desk) -> None:
    desk.put("abc")
    assert len(desk.claim().tasks) == 3
    desk.rewind(LEASE_SECONDS)
    assert desk.claim(limit=10).tasks == ()
    back = desk.claim(which="once").tasks
    assert sorted((one.hold.task.name, one.came_back) for one in back) == [("a", 1), ("b", 1), ("c", 1)]
    assert desk.settle("completed", *(one.hold for one in back)) == [True, True, True]
    assert desk.state() == {}


def test_each_lease_that_expires_counts_as_one_time_that_the_task_came_back(desk: Desk) -> None:
    desk.seed("a")
    desk.claim()
    for times in (1, 2, 3, 4):
        desk.rewind(LEASE_SECONDS)
        (again,) = desk.claim(which="once" if times == 1 else "often").tasks
        assert (again.came_back, again.hold.turn) == (times, times + 1)


def test_more_than_200_leases_that_expire_at_once_all_come_back(desk: Desk) -> None:
    desk.begin([f"{number}" for number in range(450)])
    desk.rewind(LEASE_SECONDS)
    assert [desk.claim().expired for _ in range(4)] == [200, 200, 50, 0]


# --- those that came back are claimed by themselves


def test_of_those_that_came_back_200_that_wait_for_a_job_hide_none_that_has_one(desk: Desk) -> None:
    for number in range(200):
        desk.seed(f"waits {number}", came_back=1, due_seconds=-50)
    for name in "abcdefgh":
        desk.seed(name, came_back=1, has_job=True)
    assert sorted(desk.take(Limits(open_jobs=8), which="once", limit=8)) == list("abcdefgh")


def test_an_ordinary_claim_never_returns_what_came_back(desk: Desk) -> None:
    desk.seed("once", came_back=1, due_seconds=-100)
    desk.seed("often", came_back=2, due_seconds=-100)
    desk.seed("harmless")
    claimed = desk.claim()
    assert (names(claimed), claimed.once, claimed.often) == (["harmless"], True, True)


def test_those_that_came_back_once_are_claimed_together_the_oldest_first_and_nothing_else(desk: Desk) -> None:
    desk.seed("harmless", due_seconds=-100)
    for age in (5, 20, 10):
        desk.seed(f"{age} s", came_back=1, due_seconds=-age)
    desk.seed("future", came_back=1, due_seconds=10)
    desk.seed("often", came_back=2, due_seconds=-100)
    assert [desk.take(limit=2, which="once") for _ in range(3)] == [["20 s", "10 s"], ["5 s"], []]


def test_of_those_that_came_back_more_often_exactly_one_is_claimed_the_oldest(desk: Desk) -> None:
    desk.seed("harmless", due_seconds=-100)
    desk.seed("once", came_back=1, due_seconds=-100)
    desk.seed("killer", came_back=2, due_seconds=-5)
    desk.seed("old killer", came_back=9, due_seconds=-10)
    desk.seed("future killer", came_back=3, due_seconds=10)
    assert [desk.take(limit=10, which="often") for _ in range(3)] == [["old killer"], ["killer"], []]


@pytest.mark.parametrize(("which", "came_back"), [("once", 0), ("often", 1)])
def test_a_lease_that_has_just_expired_is_claimed_again_if_it_is_the_oldest(
    desk: Desk, which: Any, came_back: int
) -> None:
    desk.seed("waits", came_back=came_back + 1, due_seconds=-10)
    desk.seed("older", lease_seconds=-20, came_back=came_back, token="dead")
    desk.seed("younger", lease_seconds=-5, came_back=came_back, token="dead")
    assert desk.take(limit=1, which=which) == ["older"]
    assert desk.state() == {"waits": ("waiting", 1), "older": ("processing", 1), "younger": ("waiting", 1)}


def test_those_that_came_back_do_not_hide_what_is_behind_them_nor_are_they_hidden(desk: Desk) -> None:
    for number in range(120):
        desk.seed(f"back {number}", came_back=1 + number % 2, due_seconds=-100)
    desk.seed("harmless")
    assert desk.take(limit=2) == ["harmless"]
    desk.put([f"{number}" for number in range(120)])
    desk.seed("once", came_back=1, due_seconds=-200)
    desk.seed("often", came_back=2, due_seconds=-200)
    assert desk.take(limit=1, which="once") + desk.take(which="often") == ["once", "often"]


def test_what_is_held_or_waits_for_later_does_not_count_as_come_back_and_due(desk: Desk) -> None:
    desk.seed("a")
    for times in (1, 2):
        desk.seed(f"held {times}", lease_seconds=30, came_back=times)
        desk.seed(f"later {times}", due_seconds=60, came_back=times)
    claimed = desk.claim()
    assert (claimed.once, claimed.often) == (False, False)


# --- turns


def test_each_claim_raises_the_turn_and_who_adds_with_a_lease_has_the_first(desk: Desk) -> None:
    assert desk.add(token="0123456789abcdef", lease_seconds=LEASE_SECONDS) == "created"
    assert desk.parts()["state"] == {"a": "1:0123456789abcdef.1:0"}
    assert desk.add(token="0123456789abcdef", lease_seconds=LEASE_SECONDS) == "created"
    hold = Hold(task(), 1, "0123456789abcdef", 1)
    for turn in (2, 3):
        assert desk.settle("waiting", hold, delay=0) == [True]
        (hold,) = desk.hold()
        assert hold.turn == turn
    assert desk.parts()["state"] == {"a": "1:worker.3:0"}


@pytest.mark.parametrize(("told", "turn"), [(0, 4), (3, 4), (4, 4), (9, 9)])
def test_settling_raises_the_turn_to_that_of_the_item_and_never_lowers_it(desk: Desk, told: int, turn: int) -> None:
    desk.settle("waiting", desk.seed("a", lease_seconds=30, turn=4), delay=0, turn=told)
    assert desk.parts()["state"] == {"a": f"1:.{turn}:0"}
    assert desk.hold()[0].turn == turn + 1


def test_what_reconcile_adds_has_the_items_turn_and_has_come_back_once(desk: Desk) -> None:
    desk.put("a", 7, turn=5, came_back=True)
    desk.put("b", turn=2)
    assert (names(desk.claim()), names(again := desk.claim(which="once"))) == (["b"], ["a"])
    assert [(one.hold.generation, one.hold.turn, one.came_back) for one in again.tasks] == [(7, 6, 1)]


def test_a_waiting_tasks_state_names_nobody_or_eight_digits_of_who_added_it(desk: Desk) -> None:
    token = new_token()
    desk.add("added", token=token)
    desk.add("begun", token=token, lease_seconds=LEASE_SECONDS)
    desk.settle("waiting", Hold(task("begun"), 1, token))
    desk.seed("expired", lease_seconds=-9, token=token)
    desk.claim(Limits(parallel=1), limit=0)
    assert desk.parts()["state"] == {"added": f"1:{token[:8]}.0:0", "begun": "1:.1:0", "expired": "1:.1:1"}
    assert desk.add("added", token=token) == "created"


def test_every_state_can_be_read_as_the_release_before_reads_it(desk: Desk) -> None:
    """A fourth field made its claim hand out generation 0, and forget tasks that were alive."""
    token = new_token()
    desk.put(["claimed", "settled", "dead", "back", "waits"], 3, token=token)
    desk.put(["begun", "ended"], 3, token=token, lease_seconds=LEASE_SECONDS)
    desk.hold(token=token, limit=4)
    desk.end("buried", "ended", generation=3)
    desk.settle("waiting", Hold(task("settled"), 3, token))
    desk.settle("buried", Hold(task("dead"), 3, token))
    desk.seed("expired", generation=3, lease_seconds=-5, token=token)
    desk.claim(limit=1, lost_token=token)
    found = {name: re.fullmatch(r"(\d+):([^:]*):(\d+)", text) for name, text in desk.parts()["state"].items()}
    assert len(found) == 8
    assert {match and match[1] for match in found.values()} == {"3"}


# --- a claim without a reply


def test_what_a_claim_without_a_reply_took_goes_back_at_once_and_has_not_come_back(desk: Desk) -> None:
    for name, times in (("a", 0), ("b", 1), ("c", 2)):
        desk.seed(name, came_back=times)
        desk.claim(which=("ordinary", "once", "often")[times], token="lost")
    desk.seed("other", lease_seconds=30, token="another")
    again = desk.claim(token="next", lost_token="lost")
    assert [(one.hold.task.name, one.came_back, one.hold.turn) for one in again.tasks] == [("a", 0, 2)]
    assert (again.expired, again.once, again.often) == (0, True, True)
    assert desk.state()["other"] == ("processing", 1)
    assert desk.take(which="once") + desk.take(which="often") == ["b", "c"]


def test_the_last_of_many_leases_is_found_by_its_lost_token(desk: Desk) -> None:
    desk.begin([f"{number}" for number in range(2050)])
    desk.seed("a")
    desk.claim(token="lost")
    assert desk.take(token="next", lost_token="lost") == ["a"]


def test_a_claim_that_the_client_repeats_keeps_nothing_that_no_worker_has(desk: Desk) -> None:
    """The connection broke after the first had been done; it names its own token."""
    desk.seed("a")
    desk.seed("b")
    desk.claim(token="own", lost_token="own", limit=1)
    (claimed,) = desk.claim(token="own", lost_token="own", limit=1).tasks
    assert [name for name, (where, _) in desk.state().items() if where == "processing"] == [claimed.hold.task.name]
    assert claimed.came_back == 0


def test_what_a_repeated_claim_took_goes_back_although_another_came_between(desk: Desk) -> None:
    desk.put("abcdef")
    desk.claim(token="own", lost_token="own", limit=3)
    between = desk.take(token="another", limit=3)
    again = desk.take(token="own", lost_token="own", limit=3)
    assert sorted(between + again) == list("abcdef")
    assert set(desk.state().values()) == {("processing", 1)}


def test_who_was_given_a_task_that_went_back_has_lost_it(desk: Desk) -> None:
    desk.seed("a")
    (hold,) = desk.hold(token="lost")
    desk.claim(token="next", lost_token="lost", limit=1)
    assert desk.has_lost(hold)


# --- settling


@pytest.mark.parametrize("becomes", ["completed", "forgotten"])
def test_what_is_completed_or_forgotten_leaves_nothing_behind(desk: Desk, becomes: Any) -> None:
    assert desk.settle(becomes, desk.seed("a", lease_seconds=30, group="g", has_job=True)) == [True]
    assert desk.keys.dump() == {}


def test_what_waits_is_due_after_its_delay_and_keeps_its_record(desk: Desk) -> None:
    hold = desk.seed("a", lease_seconds=30, record="kept")
    assert desk.settle("waiting", hold, delay=60) == [True]
    assert desk.claim().wait_seconds == pytest.approx(60, abs=5)
    desk.rewind(60)
    (claimed,) = desk.claim().tasks
    assert claimed.record == b"kept"


@pytest.mark.parametrize("came_back", [1, 2])
def test_after_an_attempt_a_task_has_not_come_back_and_without_one_it_is_as_before(desk: Desk, came_back: int) -> None:
    for name in ("attempted", "spared"):
        hold = desk.seed(name, lease_seconds=30, came_back=came_back)
        assert desk.settle("waiting", hold, delay=0, attempted=name == "attempted") == [True]
    assert desk.take() == ["attempted"]
    (spared,) = desk.claim(which="once" if came_back == 1 else "often").tasks
    assert (spared.hold.task.name, spared.came_back) == ("spared", came_back)


def test_what_waits_can_have_a_new_record(desk: Desk) -> None:
    desk.settle("waiting", desk.seed("a", lease_seconds=30), record="new")
    assert desk.parts()["tasks"] == {"a": "new"}


def test_a_settled_task_is_nobodys_and_there_once_whether_the_reply_arrives_or_not(desk: Desk) -> None:
    hold = desk.seed("a", lease_seconds=30)
    assert desk.settle("waiting", hold, delay=0) == [True]
    assert desk.has_lost(hold)  # the worker calls again, or dies: the same
    desk.rewind(LEASE_SECONDS)
    assert desk.state() == {"a": ("waiting", 1)}
    assert desk.take() == ["a"]
    assert desk.claim().tasks == ()


def test_burying_makes_a_dead_letter_that_is_listed_never_due_and_has_not_come_back(desk: Desk) -> None:
    assert desk.settle("buried", desk.seed("a", generation=4, lease_seconds=30, came_back=2)) == [True]
    assert desk.state() == {"a": ("dead", 4)}
    assert desk.parts()["state"] == {"a": "4:.1:0"}
    assert desk.queue.members(PROVIDER, "dead") == [task()]
    desk.rewind(100 * HOURS)
    assert [desk.take(which=which) for which in EVERY_CLAIM] == [[]] * 3


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


def test_who_added_a_task_that_waits_does_not_hold_it(desk: Desk) -> None:
    desk.add(token="12345678abcdef")
    with desk.unchanged():
        assert desk.has_lost(Hold(task(), 1, "12345678abcdef"))
        assert desk.has_lost(Hold(task(), 1, ""))


def test_one_call_settles_many_each_for_itself(desk: Desk) -> None:
    a, b, c, d = (desk.seed(name, lease_seconds=30, token="mine") for name in "abcd")
    lost = Hold(task("b"), 1, "theirs")
    rows = [
        *(Settle(a, "completed"), Settle(lost, "completed"), Settle(b, "waiting", 9), Settle(lost, "buried")),
        *(Settle(c, "buried"), Settle(d, "forgotten")),
    ]
    assert desk.queue.settle(rows) == [True, False, True, False, True, True]
    assert desk.state() == {"b": ("waiting", 1), "c": ("dead", 1)}


def test_hundreds_settle_in_one_call(desk: Desk) -> None:
    every = [f"{number}" for number in range(450)]
    assert desk.begin(every) == ["created"] * 450
    holds = [Hold(task(name), 1, "adder") for name in every]
    counts: dict[Becomes, int] = {"waiting": 210, "buried": 10, "completed": 230}
    rows = map(Settle, holds, Counter(counts).elements())
    assert desk.queue.settle([*rows]) == [True] * 450
    assert sorted(desk.state().values()) == [("dead", 1)] * 10 + [("waiting", 1)] * 210
    assert desk.end("forgotten", *every[:220]) == [True] * 220
    assert desk.keys.dump() == {}


def test_a_call_about_nothing_does_nothing(desk: Desk) -> None:
    queue = desk.queue
    assert [*queue.settle([]), *queue.add([], token="mine"), *queue.look([])] == []
    assert [*queue.end([]), *queue.hasten([])] == []


# --- end


@pytest.mark.parametrize("becomes", ["forgotten", "dropped"])
@pytest.mark.parametrize("generation", [3, 4])
@WHEREVER
def test_what_ended_elsewhere_leaves_nothing_of_this_generation_or_a_lower_one_and_can_be_added_again(
    desk: Desk, place: dict[str, Any], generation: int, becomes: str
) -> None:
    hold = desk.seed("a", generation=3, **place)
    assert desk.end(becomes, "a", generation=generation) == [True]
    if becomes == "forgotten" and "lease_seconds" in place:
        assert desk.settle("waiting", hold) == [False]
    assert desk.keys.dump() == {}
    assert desk.end(becomes, "a", generation=generation) == [False]
    assert desk.add(generation=3) == "created"


@pytest.mark.parametrize("becomes", ["forgotten", "dropped", "buried"])
@WHEREVER
def test_ending_does_not_touch_a_higher_generation(desk: Desk, place: dict[str, Any], becomes: str) -> None:
    desk.seed("a", generation=3, **place)
    with desk.unchanged():
        assert desk.end(becomes, "a", generation=2) == [False]


def test_burying_does_not_touch_a_lower_generation(desk: Desk) -> None:
    desk.seed("a", generation=3)
    with desk.unchanged():
        assert desk.end("buried", "a", generation=4) == [False]


def test_who_held_a_dropped_task_has_lost_it_and_brings_nothing_back(desk: Desk) -> None:
    hold = desk.seed("a", lease_seconds=30)
    desk.end("dropped", "a")
    assert desk.has_lost(hold)
    assert desk.keys.dump() == {}


ENDED = pytest.mark.parametrize(("becomes", "left"), [("buried", {"a": ("dead", 5)}), ("forgotten", {})])


@ENDED
@pytest.mark.parametrize(
    "seeded", [{}, {"due_seconds": 50}, {"came_back": 1}, {"came_back": 2}, {"lease_seconds": -1}, {"has_job": True}]
)
def test_ending_moves_at_once_what_nobody_works_on(desk: Desk, becomes: Any, left: Any, seeded: Any) -> None:
    desk.seed("a", generation=5, group="g", **seeded)
    assert desk.end(becomes, "a", generation=5) == [True]
    assert (desk.state(), desk.leaks()) == (left, [])


def test_ending_moves_what_was_added_and_never_claimed(desk: Desk) -> None:
    desk.add()
    assert desk.end("buried", "a") == [True]
    assert desk.state() == {"a": ("dead", 1)}


@ENDED
def test_ending_what_is_in_process_takes_effect_when_it_would_wait(desk: Desk, becomes: Any, left: Any) -> None:
    held = desk.seed("a", generation=5, lease_seconds=30, has_job=True, group="g")
    other = desk.seed("b", lease_seconds=30)
    assert desk.end(becomes, "a", generation=5) == [True]
    assert desk.state()["a"] == ("processing", 5)
    assert desk.parts()["state"]["a"] == f"5:seeded.1{becomes[0]}:0"
    assert desk.settle("waiting", other, held, record="r") == [True, False]
    assert desk.state() == left | {"b": ("waiting", 1)}
    assert desk.parts()["tasks"] == {"b": "r"}


@ENDED
@pytest.mark.parametrize("how", ["lease", "token"])
def test_what_was_ended_in_process_ends_when_it_comes_back_and_is_handed_to_nobody(
    desk: Desk, becomes: Any, left: Any, how: str
) -> None:
    """C2: nobody asks again about a task that was cancelled while it was in process."""
    desk.seed("a", generation=5, lease_seconds=30, has_job=True, group="g")
    desk.end(becomes, "a", generation=5)
    if how == "lease":
        desk.rewind(31)
    back = desk.claim(lost_token="" if how == "lease" else "seeded")
    assert (back.tasks, back.once) == ((), False)
    assert (desk.state(), desk.leaks()) == (left, [])


def test_the_last_word_on_how_a_task_in_process_ends_counts(desk: Desk) -> None:
    held = desk.seed("a", lease_seconds=30)
    assert desk.end("buried", "a") + desk.end("forgotten", "a") == [True, True]
    assert desk.settle("waiting", held) == [False]
    assert desk.state() == {}


@pytest.mark.parametrize(("becomes", "left"), [("completed", {}), ("buried", {"a": ("dead", 1)})])
def test_an_end_that_its_worker_knows_is_done_as_it_says(desk: Desk, becomes: Any, left: Any) -> None:
    held = desk.seed("a", lease_seconds=30)
    desk.end("forgotten", "a")
    assert desk.settle(becomes, held) == [True]
    assert desk.state() == left


def test_a_dead_letter_is_buried_no_second_time_and_forgotten_once(desk: Desk) -> None:
    desk.seed("a", dead=True)
    assert desk.end("buried", "a") == [False]
    assert desk.state() == {"a": ("dead", 1)}
    assert [desk.end("forgotten", "a") for _ in range(2)] == [[True], [False]]


# --- hasten


@pytest.mark.parametrize(
    ("seeded", "which"), [({}, "ordinary"), ({"has_job": True, "group": "g"}, "ordinary"), ({"came_back": 1}, "once")]
)
def test_hastening_makes_a_task_that_waits_for_later_due_now(desk: Desk, seeded: Any, which: Any) -> None:
    hold = desk.seed("a", generation=3, due_seconds=60, **seeded)
    before = desk.parts()
    moved: dict[str, dict[str, Any]] = {key: {} for key in ("queue", *PLACES, *RINGS.values())}
    assert desk.queue.hasten([(task(), 3)]) == [True]
    score = desk.score("a")
    assert score is not None
    assert 0 < score <= desk.keys.now()
    assert desk.parts() | moved == before | moved
    assert desk.leaks() == []
    assert desk.take(which=which) == [hold.task.name]


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
    assert desk.queue.backlog(PROVIDER) == (0, 0)
    for name, seconds in (("a", -5), ("b", -1), ("later", 60)):
        desk.seed(name, due_seconds=seconds)
    desk.seed("held", lease_seconds=20)
    assert desk.queue.backlog(PROVIDER) == (2, 0)


@pytest.mark.parametrize("redis_kind", [*SERVERS, *CLUSTERS], indirect=True)
def test_the_backlog_counts_the_runs_that_are_alive(desk: Desk) -> None:
    desk.seed("later", due_seconds=60)
    for name, seconds in (("one", 10), ("another", 10), ("gone", 0)):
        run = Run(name, alive_seconds=seconds)
        desk.queue.claim(PROVIDER, limit=1, lease_seconds=30, token="t", run=run)
    assert desk.queue.backlog(PROVIDER) == (0, 2)


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
    assert [place.record for place in places] == [b"its record", None, None]


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
    assert desk.settle("waiting", hold, delay=0) == [True]
    assert desk.settle("buried", *desk.hold()) == [True]
    assert desk.queue.members(PROVIDER, "dead") == [task(name)]
    assert desk.end("forgotten", name) == [True]
    assert desk.keys.dump() == {}


# --- junk


@pytest.mark.junk
@pytest.mark.parametrize("text", ["", "junk", "1:t", "1:t:x", "-1:t:0", "::", "1:t:0\n", "{}", "0:.0:0"])
def test_a_task_whose_state_cannot_be_read_leaves_nothing_and_stops_nobody(desk: Desk, text: str) -> None:
    """Reconcile asks its item, and adds it again; until then any generation may be added."""
    desk.seed("junk")
    desk.write("state", "junk", text)
    desk.seed("sound")
    assert desk.take() == ["sound"]
    assert desk.state() == {"sound": ("processing", 1)}
    assert desk.settle("completed", Hold(task("sound"), 1, "worker")) == [True]
    assert desk.keys.dump() == {}


@pytest.mark.junk
def test_a_state_that_cannot_be_read_is_replaced_by_any_generation_and_can_be_ended(desk: Desk) -> None:
    for name in ("added", "forgotten", "dropped"):
        desk.seed(name, lease_seconds=-30)
        desk.write("state", name, "junk")
    assert [place.generation for place in desk.queue.look([task("added"), task("forgotten")])] == [0, 0]
    assert desk.add("added", generation=1) == "created"
    assert desk.end("forgotten", "forgotten") + desk.end("dropped", "dropped") == [True, True]
    assert desk.state() == {"added": ("waiting", 1)}


@pytest.mark.junk
def test_a_task_whose_record_is_missing_is_handed_out_and_one_without_a_state_is_not(desk: Desk) -> None:
    desk.write("queue", "orphan", 1)
    desk.write("queue", "recordless", 2)
    desk.write("state", "recordless", "3::0")
    (recordless,) = desk.claim().tasks
    assert (recordless.hold, recordless.record) == (Hold(task("recordless"), 3, "worker", 1), None)
    assert desk.settle("completed", recordless.hold) == [True]
    assert desk.keys.dump() == {}


def test_a_lease_without_a_task_goes_when_it_expires(desk: Desk) -> None:
    desk.write("leases", "ghost", desk.keys.now() + 1000)
    desk.rewind(2)
    assert desk.claim().expired == 0
    assert desk.keys.dump() == {}


def test_a_call_that_names_a_task_twice_is_refused_and_changes_nothing(desk: Desk) -> None:
    with desk.unchanged(), pytest.raises(ValueError, match="once"):
        desk.queue.add([Add(task(), generation, "{}") for generation in (1, 2)], token="adder")


@pytest.mark.parametrize("part", ["leases", "dead"])
def test_of_a_half_without_a_state_nothing_is_left_once_its_task_is_added(desk: Desk, part: str) -> None:
    desk.write(part, "a", desk.keys.now() + 1000)
    assert desk.add() == "created"
    assert desk.leaks() == []
    assert desk.state() == {"a": ("waiting", 1)}


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


# --- errors


def test_what_redis_does_not_serve_is_unavailable(desk: Desk, redis_kind: str) -> None:
    queue: Any = desk.queue
    if redis_kind == "memory":
        queue.unavailable = True
    else:
        for part in PARTS:
            queue._client.set(key_of(PROVIDER, part), "a string")
    calls: list[Callable[[], object]] = [
        desk.add,
        desk.claim,
        lambda: queue.look([task()]),
        lambda: desk.settle("completed", Hold(task(), 1, "t")),
        lambda: desk.end("dropped", "a"),
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
