"""Settling moves tasks in the queue, counts what became of them and says so in one line each."""

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import pytest
from msgspec.structs import replace

from shared.errors import QueueUnavailable
from shared.limits import Health
from shared.logs import facts
from shared.outcome import Completed, Failed, Pending, Retry
from shared.queue import Becomes, Hold, Queue, Settle
from shared.reasons import Reason
from shared.record import Record
from shared.task import Task
from shared.work.settle import Settlement, settle
from tests.support.asking import provider, rules
from tests.support.keys import Bench
from tests.support.outage import RedisOutage

if TYPE_CHECKING:
    from redis import Redis

RECORD = Record(generation=1, created_at=0, input={"marker": "SECRET"}, partial={"marker": "SECRET"}, polls=3)
PROVIDER = provider(rules("http://127.0.0.1:1"))
STRANGER = Hold(Task("example", "a"), 1, "another token")


def settlement(hold: Hold, becomes: Any, counts_as: str, **more: Any) -> Settlement:
    return Settlement(hold=hold, becomes=becomes, counts_as=counts_as, **more)


def test_completed_leaves_nothing(queue: Queue, seed: Any, state: Any) -> None:
    held = seed("a", lease_seconds=30)
    assert settle(queue, PROVIDER, [settlement(held, "completed", "completed")]) == Counter(completed=1)
    assert state() == {}


def test_waiting_gives_the_task_back_for_later_with_its_new_record(queue: Queue, seed: Any, bench: Bench) -> None:
    held = seed("a", lease_seconds=30)
    tally = settle(queue, PROVIDER, [settlement(held, "waiting", "snoozed", record=RECORD, delay_seconds=7)])
    assert tally == Counter(snoozed=1)
    assert bench.state() == {"a": ("waiting", 1)}
    due, now = bench.score("a"), bench.keys.now()
    assert due is not None
    assert 5_000 < due - now <= 7_000
    assert Record.from_text(bench.parts()["tasks"]["a"]) == RECORD


def test_waiting_without_a_record_keeps_the_one_that_is_there(queue: Queue, seed: Any, bench: Bench) -> None:
    held = seed("a", lease_seconds=30, record="as it was")
    settle(queue, PROVIDER, [settlement(held, "waiting", "released")])
    assert bench.parts()["tasks"] == {"a": "as it was"}


def test_buried_makes_a_dead_letter(queue: Queue, seed: Any, state: Any) -> None:
    held = seed("a", lease_seconds=30)
    assert settle(queue, PROVIDER, [settlement(held, "buried", "buried")]) == Counter(buried=1)
    assert state() == {"a": ("dead", 1)}


def test_forgotten_leaves_nothing(queue: Queue, seed: Any, state: Any) -> None:
    held = seed("a", lease_seconds=30)
    assert settle(queue, PROVIDER, [settlement(held, "forgotten", "forgotten")]) == Counter(forgotten=1)
    assert state() == {}


def test_forgotten_counts_as_done_where_nothing_was_left(queue: Queue) -> None:
    assert settle(queue, PROVIDER, [settlement(STRANGER, "forgotten", "refused")]) == Counter(refused=1)


@pytest.mark.parametrize(
    ("becomes", "counts_as"),
    [("completed", "completed"), ("waiting", "snoozed"), ("waiting", "retried"), ("buried", "buried")],
)
def test_what_somebody_else_holds_by_now_is_not_touched_and_counts_as_lost(
    queue: Queue, seed: Any, bench: Bench, becomes: str, counts_as: str
) -> None:
    seed("a", lease_seconds=30)
    before = bench.parts()
    assert settle(queue, PROVIDER, [settlement(STRANGER, becomes, counts_as, record=RECORD)]) == Counter(lost=1)
    assert bench.parts() == before


def test_many_of_every_kind_are_one_call(queue: Queue, seed: Any, state: Any, redis_client: "Redis") -> None:
    counts = {"completed": "completed", "waiting": "snoozed", "buried": "buried", "forgotten": "forgotten"}
    outage = RedisOutage(redis_client)
    for part in range(2):  # the first time loads the script
        holds = {(how, i): seed(f"{how} {i} {part}", lease_seconds=30) for i in range(5) for how in counts}
        outage.calls.clear()
        tally = settle(queue, PROVIDER, [settlement(hold, how, counts[how]) for (how, _), hold in holds.items()])
        assert tally == Counter(completed=5, snoozed=5, buried=5, forgotten=5)
    assert outage.calls == ["EVALSHA"]
    assert Counter(where for where, _ in state().values()) == Counter(waiting=10, dead=10)


def test_nothing_to_settle_costs_nothing(queue: Queue, redis_client: "Redis") -> None:
    outage = RedisOutage(redis_client)
    assert settle(queue, PROVIDER, []) == Counter()
    assert outage.calls == []


def test_each_gets_its_own_reply_in_a_mixed_batch(queue: Queue, seed: Any, state: Any) -> None:
    mine, theirs = seed("mine", lease_seconds=30), seed("theirs", lease_seconds=30)
    lost = Hold(theirs.task, theirs.generation, "another token")
    both = [settlement(hold, "completed", "completed") for hold in (lost, mine)]
    assert settle(queue, PROVIDER, both) == Counter(completed=1, lost=1)
    assert state() == {"theirs": ("processing", 1)}


def test_redis_away_is_said_so(queue: Queue, seed: Any, redis_client: "Redis", state: Any) -> None:
    held = seed("a", lease_seconds=30)
    outage = RedisOutage(redis_client)
    outage.away = True
    with pytest.raises(QueueUnavailable):
        settle(queue, PROVIDER, [settlement(held, "completed", "completed")])
    outage.away = False
    assert state() == {"a": ("processing", 1)}


@pytest.mark.parametrize(
    ("becomes", "counts", "outcome", "at", "more"),
    [
        ("completed", "completed", Completed({"marker": "SECRET"}), "INFO", {}),
        ("buried", "buried", Failed(Reason.UPSTREAM, "SECRET"), "INFO", {"reason": "upstream"}),
        ("forgotten", "refused", Failed(Reason.UPSTREAM, "SECRET"), "INFO", {"reason": "upstream"}),
        ("forgotten", "forgotten", None, "INFO", {}),
        ("waiting", "snoozed", Pending(2, {"marker": "SECRET"}), "DEBUG", {"delay_seconds": 2}),
        ("waiting", "retried", Retry(3, Reason.HTTP), "DEBUG", {"reason": "http", "delay_seconds": 3}),
        ("waiting", "released", None, "DEBUG", {}),
    ],
)
def test_each_change_is_one_line_with_its_word_and_facts_and_no_payload(
    queue: Queue,
    seed: Any,
    caplog: pytest.LogCaptureFixture,
    becomes: str,
    counts: str,
    outcome: Any,
    at: str,
    more: Any,
) -> None:
    held = seed("a", lease_seconds=30)
    caplog.set_level(logging.DEBUG, logger="meanwhile")
    settle(queue, PROVIDER, [settlement(held, becomes, counts, outcome=outcome, record=RECORD)])
    [line] = caplog.records
    assert (line.levelname, line.message) == (at, counts)
    told = facts(held) | more
    assert {name: value for name, value in vars(line).items() if name in told} == told
    assert told["task"] == "a"
    assert "SECRET" not in str(vars(line))


def test_a_lost_task_is_said_to_be_lost(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    settle(queue, PROVIDER, [settlement(STRANGER, "completed", "completed", outcome=Completed(1))])
    assert [line.message for line in caplog.records] == ["lost"]


GOOD: dict[str, Any] = {
    "completed": Completed(1), "waiting": Pending(5), "buried": Failed(Reason.UPSTREAM),
    "forgotten": Failed(Reason.UPSTREAM),
}  # fmt: skip
BAD: dict[str, Any] = {
    "completed": None, "waiting": Retry(5, Reason.HTTP), "buried": Failed(Reason.TOO_MANY_ERRORS),
    "forgotten": Failed(Reason.TOO_MANY_ERRORS),
}  # fmt: skip
ENDINGS: tuple[Becomes, ...] = get_args(Becomes)


def answered(hold: Hold, becomes: str, outcome: Any) -> Settlement:
    bad = outcome is BAD[becomes]
    record = Record(generation=1, created_at=0, input={}, errors=int(bad), reason="http" if bad else None)
    return settlement(hold, becomes, "settled", outcome=outcome, record=record)


@pytest.fixture
def before_and_probe(queue: Queue, seed: Any, rewind: Any) -> tuple[Hold, Hold]:
    """An attempt from before a pause that is over, and the probe after it."""
    before, asked = seed("before", lease_seconds=3000), seed("probe", lease_seconds=3000)
    queue.settle([Settle(asked, "waiting")], Health(pause_seconds=50))
    rewind(60)
    (probe,) = queue.claim("example", limit=5, lease_seconds=3000, token="prober").tasks
    return before, probe.hold


@pytest.mark.parametrize("probe_becomes", ENDINGS)
@pytest.mark.parametrize("becomes", ENDINGS)
def test_a_good_probe_ends_the_pause_whatever_is_settled_beside_it(
    queue: Queue, bench: Bench, before_and_probe: tuple[Hold, Hold], becomes: str, probe_becomes: str
) -> None:
    before, probe = before_and_probe
    settle(
        queue, PROVIDER, [answered(before, becomes, BAD[becomes]), answered(probe, probe_becomes, GOOD[probe_becomes])]
    )
    assert bench.parts()["gate"].keys() <= {"slow"}


@pytest.mark.parametrize("probe_becomes", ["waiting", "buried", "forgotten"])
@pytest.mark.parametrize("becomes", ENDINGS)
def test_a_failed_probe_begins_a_longer_pause_although_an_older_attempt_ended_well(
    queue: Queue, bench: Bench, before_and_probe: tuple[Hold, Hold], becomes: str, probe_becomes: str
) -> None:
    before, probe = before_and_probe
    settle(
        queue, PROVIDER, [answered(before, becomes, GOOD[becomes]), answered(probe, probe_becomes, BAD[probe_becomes])]
    )
    gate = bench.parts()["gate"]
    assert gate["pauses"] == "2"
    assert float(gate["until"]) > bench.keys.now()


def test_errors_count_once_whatever_becomes_of_their_tasks(queue: Queue, seed: Any, bench: Bench) -> None:
    settlements = [answered(seed(how, lease_seconds=30), how, BAD[how]) for how in ("waiting", "buried", "forgotten")]
    settle(queue, PROVIDER, settlements)
    assert bench.parts()["gate"] == {"troubles": "3"}


def test_a_good_answer_outweighs_the_errors_of_every_other_task(queue: Queue, seed: Any, bench: Bench) -> None:
    troubled = [answered(seed(f"{number}", lease_seconds=30), "waiting", BAD["waiting"]) for number in range(9)]
    well = answered(seed("well", lease_seconds=30), "forgotten", GOOD["forgotten"])
    settle(queue, PROVIDER, [*troubled, well])
    assert bench.parts()["gate"] == {}


@pytest.mark.parametrize(
    ("outputs", "outcome", "jobs"),
    [
        ({"id": "j"}, Pending(5), {"a": ""}), ({"id": "j"}, Retry(5, Reason.HTTP), {"a": ""}),
        (None, Retry(5, Reason.HTTP), {}), (None, Retry(5, Reason.TRANSPORT), {"a": ""}),
    ],
    ids=["known", "known and in trouble", "refused", "its answer is lost"],
)  # fmt: skip
def test_a_task_keeps_its_jobs_place_while_there_is_one_or_may_be_one(
    queue: Queue, seed: Any, bench: Bench, outputs: Any, outcome: Any, jobs: Any
) -> None:
    held, record = seed("a", lease_seconds=30, has_job=True), replace(RECORD, outputs=outputs)
    settle(queue, PROVIDER, [settlement(held, "waiting", "released", outcome=outcome, record=record)])
    assert bench.parts()["jobs"] == jobs


def test_an_outcome_without_a_record_says_nothing_of_the_provider(queue: Queue, seed: Any, bench: Bench) -> None:
    one = settlement(seed("a", lease_seconds=30), "waiting", "released", outcome=Retry(5, Reason.HTTP))
    assert settle(queue, PROVIDER, [one]) == Counter(released=1)
    assert bench.parts()["gate"] == {}


def test_a_result_in_hand_of_a_task_that_is_lost_is_said_to_be_dropped(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    kept = replace(RECORD, result='{"SECRET":1}')
    settle(queue, PROVIDER, [settlement(STRANGER, "waiting", "released", record=kept)])  # C39
    settle(queue, PROVIDER, [settlement(STRANGER, "waiting", "released", record=RECORD)])
    assert [line.message for line in caplog.records if line.levelno == logging.ERROR] == ["result dropped"]
    assert "SECRET" not in repr([vars(line) for line in caplog.records])


@pytest.mark.parametrize(("item_turn", "hold_turn", "turn"), [(0, 9, 10), (12, 9, 13)])
def test_the_next_claim_comes_after_what_the_item_has_and_after_a_take_over(
    queue: Queue, seed: Any, item_turn: int, hold_turn: int, turn: int
) -> None:
    held = replace(seed("a", lease_seconds=30), turn=hold_turn)
    settle(queue, PROVIDER, [settlement(held, "waiting", "released", turn=item_turn)])
    (claimed,) = queue.claim("example", limit=1, lease_seconds=30, token="next").tasks
    assert claimed.hold.turn == turn
