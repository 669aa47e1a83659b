"""The worker stores before a task moves, and ends a generation as its item says."""

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from shared.codec import dumps
from shared.errors import StoreTooLarge
from shared.outcome import Completed, Failed, Retry, RetryAction
from shared.provider import Finding, Provider
from shared.queue import Claimed, Hold
from shared.reasons import Reason
from shared.record import VERSION, Record
from shared.store import Item, Store
from shared.store.item import LIMITS
from shared.task import Task
from shared.work.settle import Settlement
from shared.work.worker import STORE_RETRY_SECONDS, UNREADABLE_SECONDS, Worker, record_of
from tests.support.clock import Clock
from tests.support.outage import DynamoDBOutage
from tests.support.parts import parts_of
from tests.support.simulator import BROKEN, DRIPPING, EXAMPLE, JOB, Said, Simulator, completed, pending, refused, says

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MAX_CRASHES = 3
CONFIRM_SECONDS = 300
ATTEMPT_SECONDS = 5.0

Fresh = Callable[..., Item]


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def providers(simulator: Simulator) -> dict[str, Provider]:
    return {"example": simulator.provider(EXAMPLE), "job": simulator.provider(JOB)}


@pytest.fixture
def worker(store: Store, providers: dict[str, Provider], clock: Clock) -> Worker:
    return Worker(parts_of(store, None, providers, clock, max_crashes=MAX_CRASHES, confirm_seconds=CONFIRM_SECONDS))


@pytest.fixture
def outage(dynamodb: "DynamoDBClient", store: Store) -> DynamoDBOutage:
    return DynamoDBOutage(dynamodb)


@pytest.fixture
def begin(store: Store, clock: Clock) -> Fresh:
    """Begins the next generation of a task."""

    def begin(provider: str = "job", name: str = "a", input_: Any = None) -> Item:
        task = Task(provider, name)
        item = store.begin(task, store.get(task, clock()), input_ or {}, clock())
        assert item is not None
        return item

    return begin


def claimed(item: Item, record: Record | str | None = None, *, crashes: int = 0) -> Claimed:
    """The item's task as a claim would hand it out; `record` None: as its item has it."""
    text = (record or record_of(item)).to_text() if not isinstance(record, str) else record
    return Claimed(Hold(item.task, item.generation, "token"), crashes, text)


def again(item: Item, settlement: Settlement, *, crashes: int = 0) -> Claimed:
    """The task as it is handed out after that settlement."""
    assert settlement.verb == "release"
    return claimed(item, settlement.record, crashes=crashes)


def now_in(store: Store, item: Item, clock: Clock) -> Item:
    found = store.get(item.task, clock())
    assert found is not None
    return found


def noise(size: int) -> str:
    """Text that does not compress to much less than `size` bytes."""
    return random.Random(1).randbytes(size // 2 * 3).hex()


# --- store, then complete


def test_what_is_completed_stands_in_the_item_before_the_task_leaves(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("example")
    simulator.say(completed({"total": 30.4}))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.counts_as) == ("complete", "completed")
    assert settlement.outcome == Completed({"total": 30.4})
    stored = now_in(store, item, clock)
    assert (stored.status, stored.data, stored.partial) == ("completed", {"total": 30.4}, None)


def test_pending_comes_back_after_its_delay_with_what_was_learned_stored(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin()
    simulator.say(pending({"city": "Ghent"}, id="j-1"))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.counts_as, settlement.delay_seconds) == ("release", "snoozed", 2)
    assert settlement.record
    assert (settlement.record.outputs, settlement.record.attempts) == ({"id": "j-1"}, 1)
    stored = now_in(store, item, clock)
    assert (stored.status, stored.outputs, stored.partial) == ("pending", {"id": "j-1"}, {"city": "Ghent"})
    assert (stored.submitted_at, stored.resubmits) == (clock(), 0)


@pytest.mark.parametrize(
    "trouble",
    [BROKEN, DRIPPING, says(500, {}), says(503, None), Said(200, b"<html>"), Said(200, b'{"a": NaN}'), says(300, {})],
    ids=["connection error", "timeout", "500", "503", "unreadable", "not JSON", "300"],
)
def test_trouble_puts_the_task_back_for_later_and_counts_an_error(
    worker: Worker, begin: Fresh, simulator: Simulator, trouble: Said
) -> None:
    simulator.say(trouble)
    settlement = worker.work(claimed(begin("example")), 0.2)
    assert (settlement.verb, settlement.counts_as, settlement.delay_seconds) == ("release", "retried", 2)
    assert isinstance(settlement.outcome, Retry)
    assert settlement.record
    assert (settlement.record.errors, settlement.record.attempts) == (1, 1)


def test_a_floor_of_zero_puts_it_at_the_end_of_the_queue_at_once(
    store: Store, clock: Clock, begin: Fresh, simulator: Simulator
) -> None:
    coin = simulator.provider(EXAMPLE, polling={"minDelay": 0, "multiplier": 1, "maxErrors": 1000})
    worker = Worker(parts_of(store, None, {"example": coin}, clock))
    simulator.say(says(300, {"status": "multiple choices"}))
    settlement = worker.work(claimed(begin("example")), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.delay_seconds) == ("release", 0)


def test_a_failure_is_stored_and_then_buried(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("example")
    simulator.say(refused("no such customer"))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.counts_as) == ("bury", "buried")
    stored = now_in(store, item, clock)
    assert stored.status == "failed"
    assert stored.error == {"reason": "upstream", "error": "no such customer", "refused": False}


def test_a_refusal_in_the_request_itself_is_no_dead_letter(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("example")
    simulator.say(refused())
    hold = Hold(item.task, item.generation, "token")
    settlement = worker.attempt(hold, record_of(item), ATTEMPT_SECONDS, inline=True)
    assert (settlement.verb, settlement.counts_as) == ("forget", "refused")
    assert now_in(store, item, clock).refused


def test_too_many_errors_end_it(worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock) -> None:
    item = begin("example")
    simulator.say(says(500, {}))
    settlement = worker.work(claimed(item, dataclasses.replace(record_of(item), errors=5)), ATTEMPT_SECONDS)
    assert settlement.verb == "bury"
    assert now_in(store, item, clock).error["reason"] == "too-many-errors"


# --- the generation is no longer pending


def end(store: Store, item: Item, how: str, clock: Clock) -> None:
    """What another worker or a user did meanwhile."""
    match how:
        case "completed":
            store.complete(item.task, item.generation, {"other": 1}, clock())
        case "failed" | "refused":
            error = {"reason": "upstream", "error": None, "refused": how == "refused"}
            store.fail(item.task, item.generation, error, clock())
        case "cancelled":
            store.cancel(item.task, item.generation, clock())
        case "newer" | "newer failed" | "newer cancelled":
            store.cancel(item.task, item.generation, clock())
            newer = store.begin(item.task, store.get(item.task, clock()), {}, clock())
            assert newer
            if how != "newer":
                end(store, newer, how.removeprefix("newer "), clock)


ENDS = [
    ("failed", "bury"),
    ("refused", "forget"),
    ("completed", "forget"),
    ("cancelled", "forget"),
    ("newer", "forget"),
    ("newer failed", "forget"),
]
ANSWERS = [completed({"mine": 1}), pending({"mine": 1}, id="j"), refused(), says(500, {})]


@pytest.mark.promise("once", "the first end that is stored stays; a late write changes nothing")
@pytest.mark.parametrize(("how", "verb"), ENDS)
@pytest.mark.parametrize("answer", ANSWERS, ids=["completed", "pending", "failed", "trouble"])
def test_whatever_it_found_a_superseded_generation_ends_as_the_item_says(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, how: str, verb: str, answer: Said
) -> None:
    item = begin("example")
    simulator.say(answer.after(lambda: end(store, item, how, clock)))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert settlement.verb == verb
    assert settlement.counts_as == {"bury": "buried", "forget": "forgotten"}[verb]
    assert settlement.item == now_in(store, item, clock)
    assert "mine" not in json.dumps(now_in(store, item, clock).data)


@pytest.mark.parametrize("answer", ANSWERS, ids=["completed", "pending", "failed", "trouble"])
def test_a_generation_whose_item_is_gone_is_forgotten(
    worker: Worker, begin: Fresh, simulator: Simulator, dynamodb: "DynamoDBClient", answer: Said
) -> None:
    item = begin("example")
    key: Any = {"task_id": {"S": item.task.id}}
    simulator.say(answer.after(lambda: dynamodb.delete_item(TableName="meanwhile", Key=key)))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.item) == ("forget", None)
    assert "Item" not in dynamodb.get_item(TableName="meanwhile", Key=key)


@pytest.mark.promise(
    "once", "a cancelled task stays cancelled, and a worker that was asking just then tells the provider"
)
def test_a_worker_that_finds_its_task_cancelled_tells_the_provider_with_the_outputs_it_just_got(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("job")
    simulator.say(pending(id="j-9").after(lambda: end(store, item, "cancelled", clock)), says(200, {}))
    assert worker.work(claimed(item), ATTEMPT_SECONDS).verb == "forget"
    assert simulator.calls() == ["POST /jobs", "DELETE /jobs/j-9"]


@pytest.mark.parametrize("how", ["completed", "failed", "newer", "newer cancelled"])
def test_no_provider_is_told_to_cancel_what_ended_otherwise(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, how: str
) -> None:
    item = begin("job")
    simulator.say(pending(id="j-9").after(lambda: end(store, item, how, clock)))
    worker.work(claimed(item), ATTEMPT_SECONDS)
    assert simulator.calls() == ["POST /jobs"]


# --- writing only what changed


def test_an_unchanged_pending_answer_writes_nothing_and_reads_nothing(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage
) -> None:
    item = begin()
    simulator.say(pending({"a": 1}, id="j"))
    first = worker.work(claimed(item), ATTEMPT_SECONDS)
    outage.calls.clear()
    second = worker.work(again(item, first), ATTEMPT_SECONDS)
    assert outage.calls == []
    assert second.record
    assert second.record.polls == 2


@pytest.mark.parametrize("answer", [pending({"a": 2}, id="j"), pending({"a": 1, "b": 1})])
def test_a_changed_partial_answer_is_written(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage, answer: Said
) -> None:
    item = begin()
    simulator.say(pending({"a": 1}, id="j"), answer)
    first = worker.work(claimed(item), ATTEMPT_SECONDS)
    outage.calls.clear()
    worker.work(again(item, first), ATTEMPT_SECONDS)
    assert outage.calls == ["UpdateItem"]


def test_the_first_trouble_writes_when_it_was_submitted_and_the_next_writes_nothing(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage, store: Store, clock: Clock
) -> None:
    item = begin("example")
    simulator.say(says(500, {}))
    submitted_at = clock()
    first = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert now_in(store, item, clock).submitted_at == submitted_at
    clock.advance(CONFIRM_SECONDS * 2)
    outage.calls.clear()
    worker.work(again(item, first), ATTEMPT_SECONDS)
    assert outage.calls == []


def test_a_long_unchanged_task_is_read_again_after_confirm_seconds_and_then_left_alone_for_as_long(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage, clock: Clock
) -> None:
    item = begin()
    simulator.say(pending({"a": 1}, id="j"))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    outage.calls.clear()
    for seconds, calls in ((CONFIRM_SECONDS, []), (0.001, ["GetItem"]), (1, ["GetItem"])):
        clock.advance(seconds)
        settlement = worker.work(again(item, settlement), ATTEMPT_SECONDS)
        assert outage.calls == calls


@pytest.mark.parametrize(("how", "verb"), ENDS)
def test_that_second_look_finds_a_generation_that_has_ended(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, how: str, verb: str
) -> None:
    item = begin()
    simulator.say(pending({"a": 1}, id="j"))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    end(store, item, how, clock)
    clock.advance(CONFIRM_SECONDS + 1)
    assert worker.work(again(item, settlement), ATTEMPT_SECONDS).verb == verb


# --- the store is away or refuses


def test_outputs_that_could_not_be_stored_are_carried_to_redis_and_written_next_time(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage, store: Store, clock: Clock
) -> None:
    item = begin()
    simulator.say(pending({"a": 1}, id="j"))
    outage.away = {"UpdateItem"}
    first = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert (first.verb, first.delay_seconds) == ("release", 2)
    assert first.record
    assert first.record.outputs == {"id": "j"}
    assert now_in(store, item, clock).outputs is None

    outage.away = set()
    second = worker.work(again(item, first), ATTEMPT_SECONDS)
    assert now_in(store, item, clock).outputs == {"id": "j"}
    assert simulator.calls() == ["POST /jobs", "GET /jobs/j"]
    assert second.counts_as == "snoozed"


@pytest.mark.promise("ends", "a result that could not be stored is asked for again and counts no error of the provider")
@pytest.mark.parametrize("answer", [completed({"x": 1}), refused(), pending({"a": 1}, id="j"), says(500, {})])
def test_a_store_that_is_away_counts_no_error_of_the_provider(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage, answer: Said
) -> None:
    item = begin("example")
    simulator.say(answer)
    outage.away = {"UpdateItem"}
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.counts_as) == ("release", "released")
    assert settlement.record
    assert settlement.record.errors == (1 if isinstance(settlement.outcome, Retry) else 0)


@pytest.mark.promise("ends", "a result that could not be stored is asked for again and counts no error of the provider")
@pytest.mark.parametrize("answer", [completed({"x": 1}), refused()])
def test_an_end_that_could_not_be_stored_is_asked_for_again_soon(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage, store: Store, clock: Clock, answer: Said
) -> None:
    item = begin("example")
    simulator.say(answer)
    outage.away = {"UpdateItem"}
    first = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert first.delay_seconds == STORE_RETRY_SECONDS
    outage.away = set()
    assert worker.work(again(item, first), ATTEMPT_SECONDS).verb in ("complete", "bury")
    assert now_in(store, item, clock).status != "pending"


def test_the_last_error_allowed_does_not_become_one_too_many_because_the_store_was_away(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage
) -> None:
    item = begin("example")
    simulator.say(says(500, {}))
    outage.away = {"UpdateItem"}
    settlement = worker.work(claimed(item, dataclasses.replace(record_of(item), errors=5)), ATTEMPT_SECONDS)
    assert isinstance(settlement.outcome, Failed)
    outage.away = set()
    simulator.say(completed({"x": 1}))
    assert worker.work(again(item, settlement), ATTEMPT_SECONDS).verb == "complete"


def test_a_store_that_cannot_be_read_leaves_the_record_as_it_was_and_nobody_is_asked(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage
) -> None:
    outage_item = begin("job")
    outage.away = {"GetItem"}
    settlement = worker.work(claimed(outage_item), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.record, settlement.delay_seconds) == ("release", None, STORE_RETRY_SECONDS)
    assert simulator.calls() == []


@pytest.mark.promise("large", "data that even DynamoDB cannot hold end the task as `too-large`")
def test_data_that_dynamodb_cannot_hold_ends_the_task_as_too_large(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("example")
    simulator.say(completed({"all": noise(LIMITS["data"])}))
    assert worker.work(claimed(item), ATTEMPT_SECONDS).verb == "bury"
    stored = now_in(store, item, clock)
    assert (stored.status, stored.error["reason"], stored.data) == ("failed", "too-large", None)


def test_an_error_that_dynamodb_cannot_hold_is_cut(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("example")
    simulator.say(refused(noise(LIMITS["error"])))
    assert worker.work(claimed(item), ATTEMPT_SECONDS).verb == "bury"
    error = now_in(store, item, clock).error
    assert error["reason"] == "upstream"
    assert "too large" in error["error"]


def test_partial_data_that_dynamodb_cannot_hold_is_dropped_and_the_task_goes_on(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, outage: DynamoDBOutage
) -> None:
    item = begin("job")
    simulator.say(pending({"all": noise(LIMITS["partial"])}, id="j"))
    first = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert (first.verb, first.counts_as) == ("release", "snoozed")
    stored = now_in(store, item, clock)
    assert (stored.status, stored.outputs, stored.partial) == ("pending", {"id": "j"}, None)
    outage.calls.clear()
    worker.work(again(item, first), ATTEMPT_SECONDS)
    assert outage.calls == []


def test_outputs_that_dynamodb_cannot_hold_end_the_task(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("job")
    simulator.say(pending(id=noise(LIMITS["outputs"])))
    assert worker.work(claimed(item), ATTEMPT_SECONDS).verb == "bury"
    assert now_in(store, item, clock).error["reason"] == "too-large"


# --- no second job


@pytest.mark.promise("submits", "a job whose answer was stored is never submitted again: the item is read first")
def test_before_a_submit_by_process_outputs_in_the_item_are_used(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("job")
    submitted_at = clock()
    learned = dataclasses.replace(record_of(item), outputs={"id": "j-1"}, submitted_at=submitted_at, partial={"a": 1})
    store.save(item.task, learned, clock())
    clock.advance(100)
    simulator.say(pending({"b": 1}))
    settlement = worker.work(claimed(item), ATTEMPT_SECONDS)
    assert simulator.calls() == ["GET /jobs/j-1"]
    assert settlement.record
    assert (settlement.record.submitted_at, settlement.record.outputs) == (submitted_at, {"id": "j-1"})


@pytest.mark.parametrize(("how", "verb"), ENDS)
def test_before_a_submit_by_process_a_generation_that_has_ended_is_noticed(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, how: str, verb: str
) -> None:
    item = begin("job")
    end(store, item, how, clock)
    assert worker.work(claimed(item), ATTEMPT_SECONDS).verb == verb
    assert simulator.calls() == []


def test_the_requests_own_submit_does_not_read_the_item_it_has_just_written(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage
) -> None:
    item = begin("job")
    simulator.say(pending(id="j"))
    outage.calls.clear()
    worker.attempt(Hold(item.task, item.generation, "token"), record_of(item), ATTEMPT_SECONDS, inline=True)
    assert outage.calls == ["UpdateItem"]


def test_a_provider_without_a_poll_operation_is_simply_asked_again(
    worker: Worker, begin: Fresh, simulator: Simulator, outage: DynamoDBOutage
) -> None:
    item = begin("example")
    simulator.say(says(500, {}))
    outage.calls.clear()
    worker.work(claimed(item), ATTEMPT_SECONDS)
    assert outage.calls == ["UpdateItem"]


@pytest.mark.promise("submits", "a lost job is submitted anew only once its loss is in the item")
def test_a_resubmit_stands_in_the_item_before_it_happens(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("job")
    record = dataclasses.replace(record_of(item), outputs={"id": "j-1"}, submitted_at=clock()).confirmed(clock())
    store.save(item.task, record, clock())
    simulator.say(says(200, {"status": "lost"}))
    settlement = worker.work(claimed(item, record), ATTEMPT_SECONDS)
    assert isinstance(settlement.outcome, Retry)
    assert settlement.outcome.action == "resubmit"
    stored = now_in(store, item, clock)
    assert (stored.outputs, stored.resubmits) == (None, 1)
    simulator.say(pending(id="j-2"))
    worker.work(again(item, settlement), ATTEMPT_SECONDS)
    assert simulator.calls() == ["GET /jobs/j-1", "POST /jobs"]
    assert now_in(store, item, clock).outputs == {"id": "j-2"}


@pytest.mark.promise("submits", "a lost job is submitted anew only once its loss is in the item")
def test_a_resubmit_that_could_not_be_stored_does_not_happen(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, outage: DynamoDBOutage
) -> None:
    item = begin("job")
    record = dataclasses.replace(record_of(item), outputs={"id": "j-1"}, submitted_at=clock()).confirmed(clock())
    simulator.say(says(200, {"status": "lost"}))
    outage.away = {"UpdateItem"}
    settlement = worker.work(claimed(item, record), ATTEMPT_SECONDS)
    outage.away = set()
    worker.work(again(item, settlement), ATTEMPT_SECONDS)
    assert simulator.calls() == ["GET /jobs/j-1", "GET /jobs/j-1"]


@pytest.mark.promise("once", "a late worker does not write a lost job over the one that followed")
@pytest.mark.parametrize(
    "answer", [pending({"old": 1}), says(500, {}), says(200, {"status": "lost"})], ids=["pending", "trouble", "lost"]
)
def test_a_worker_that_comes_late_with_a_lost_job_goes_on_with_the_one_that_followed(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, answer: Said
) -> None:
    item = begin("job")
    stale = dataclasses.replace(record_of(item), outputs={"id": "j-1"}, submitted_at=clock())
    store.save(item.task, stale, clock())

    def meanwhile() -> None:
        lost = dataclasses.replace(stale, outputs=None, resubmits=1)
        store.save(item.task, lost, clock(), resubmit=True)
        store.save(item.task, dataclasses.replace(lost, outputs={"id": "j-2"}), clock())

    simulator.say(answer.after(meanwhile), pending(id="j-2"))
    settlement = worker.work(claimed(item, stale), ATTEMPT_SECONDS)
    stored = now_in(store, item, clock)
    assert (stored.outputs, stored.resubmits, stored.partial) == ({"id": "j-2"}, 1, None)
    worker.work(again(item, settlement), ATTEMPT_SECONDS)
    assert simulator.calls() == ["GET /jobs/j-1", "GET /jobs/j-2"]


# --- crashes, junk, and faults of our own


def test_up_to_max_crashes_a_suspect_is_asked_about(worker: Worker, begin: Fresh, simulator: Simulator) -> None:
    simulator.say(completed({}))
    assert worker.work(claimed(begin("example"), crashes=MAX_CRASHES), ATTEMPT_SECONDS).verb == "complete"


def test_above_max_crashes_it_fails_unasked(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("example")
    settlement = worker.work(claimed(item, crashes=MAX_CRASHES + 1), ATTEMPT_SECONDS)
    assert settlement.verb == "bury"
    assert simulator.calls() == []
    error = now_in(store, item, clock).error
    assert error == {"reason": "crashed", "error": "ended its worker 4 times", "refused": False}


OTHER_GENERATION = Record(generation=1, created_at=0, input={"old": 1}).to_text()


@pytest.mark.parametrize("text", ["", "junk", "{}", '{"version": 1, "colour": 2}', OTHER_GENERATION])
def test_a_record_that_is_junk_or_missing_is_made_anew_from_the_item(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, text: str
) -> None:
    item = begin("job", input_={"customer": 42})
    learned = dataclasses.replace(record_of(item), outputs={"id": "j-1"}, submitted_at=clock())
    store.save(item.task, learned, clock())
    simulator.say(pending({"a": 1}))
    settlement = worker.work(claimed(item, text), ATTEMPT_SECONDS)
    assert simulator.calls() == ["GET /jobs/j-1"]
    assert settlement.record
    assert (settlement.record.input, settlement.record.generation) == ({"customer": 42}, item.generation)


@pytest.mark.parametrize(("how", "verb"), ENDS)
def test_a_task_without_record_whose_generation_has_ended_ends_as_its_item_says(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock, how: str, verb: str
) -> None:
    item = begin("example")
    end(store, item, how, clock)
    assert worker.work(claimed(item, ""), ATTEMPT_SECONDS).verb == verb
    assert simulator.calls() == []


def test_a_record_that_a_later_version_wrote_is_left_alone_and_costs_no_attempt(
    worker: Worker, begin: Fresh, simulator: Simulator
) -> None:
    item = begin("example")
    later = dumps({"version": VERSION + 1, "generation": item.generation, "shape": "new"})
    settlement = worker.work(claimed(item, later), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.record, settlement.delay_seconds) == ("release", None, UNREADABLE_SECONDS)
    assert settlement.counts_as == "released"
    assert simulator.calls() == []


@pytest.mark.parametrize("junk", [False, True])
def test_a_fault_of_our_own_is_a_trouble_like_any_other_and_ends_after_as_many(
    worker: Worker,
    begin: Fresh,
    providers: dict[str, Provider],
    store: Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    junk: bool,
) -> None:
    monkeypatch.setattr(providers["example"], "attempt", lambda *_, **__: 1 / 0)
    item = begin("example")
    task, verbs = claimed(item, "junk" if junk else None), []
    while True:
        settlement = worker.work(task, ATTEMPT_SECONDS)
        verbs.append(settlement.verb)
        if settlement.verb != "release" or len(verbs) > 20:
            break
        task = again(item, settlement)
    assert verbs == ["release"] * 5 + ["bury"]
    assert now_in(store, item, clock).error["reason"] == "too-many-errors"


@pytest.mark.parametrize(
    ("verb", "answer"), [("save", pending({"a": 1})), ("complete", completed({})), ("fail", refused())]
)
def test_a_fault_in_storing_counts_as_a_trouble_too(
    worker: Worker,
    begin: Fresh,
    simulator: Simulator,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    answer: Said,
) -> None:
    simulator.say(answer)
    monkeypatch.setattr(store, verb, lambda *_: 1 / 0)
    settlement = worker.work(claimed(begin("example")), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.counts_as) == ("release", "retried")
    assert settlement.record
    assert settlement.record.errors == 1


def test_an_attempt_that_broke_while_its_task_ended_ends_it_as_the_item_says(
    worker: Worker,
    begin: Fresh,
    providers: dict[str, Provider],
    store: Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = begin("example")

    def ends_and_breaks(*_: Any, **__: Any) -> None:
        end(store, item, "failed", clock)
        raise KeyError("a fault of ours")

    monkeypatch.setattr(providers["example"], "attempt", ends_and_breaks)
    assert worker.work(claimed(item, ""), ATTEMPT_SECONDS).verb == "bury"


def test_a_failure_that_dynamodb_has_no_room_for_is_tried_again_soon(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StoreTooLarge("DynamoDB: Item size to update has exceeded the maximum allowed size")

    simulator.say(refused())
    monkeypatch.setattr(store, "fail", full)
    settlement = worker.work(claimed(begin("example")), ATTEMPT_SECONDS)
    assert (settlement.verb, settlement.delay_seconds) == ("release", STORE_RETRY_SECONDS)


def test_a_task_of_a_provider_whose_file_is_gone_is_given_back(store: Store, clock: Clock, begin: Fresh) -> None:
    worker = Worker(parts_of(store, None, {}, clock))
    assert worker.work(claimed(begin("example")), ATTEMPT_SECONDS).verb == "release"


def test_a_record_made_from_an_item_knows_all_that_the_item_knows(begin: Fresh, store: Store, clock: Clock) -> None:
    item = begin("job", input_={"customer": 42})
    learned = dataclasses.replace(
        record_of(item), outputs={"id": "j"}, partial={"a": 1}, submitted_at=clock(), resubmits=1
    )
    store.save(item.task, learned, clock())
    record = record_of(now_in(store, item, clock))
    assert (record.input, record.outputs, record.partial) == ({"customer": 42}, {"id": "j"}, {"a": 1})
    assert (record.submitted_at, record.resubmits, record.created_at) == (clock(), 1, item.created_at)
    assert record.saved == record.digest


@pytest.mark.parametrize("action", [None, "reauthenticate"])
def test_trouble_is_counted_although_nothing_can_be_stored(
    worker: Worker,
    providers: dict[str, Provider],
    begin: Fresh,
    outage: DynamoDBOutage,
    monkeypatch: pytest.MonkeyPatch,
    action: RetryAction | None,
) -> None:
    item = begin("job")
    troubled = dataclasses.replace(record_of(item), submitted_at=5, errors=1, unauthorized_at=1)
    finding = Finding(Retry(0, Reason.UNAUTHORIZED, action=action), troubled)
    monkeypatch.setattr(Provider, "attempt", lambda *_, **__: finding)
    outage.away = {"UpdateItem"}
    settlement = worker.work(claimed(item, record_of(item)), ATTEMPT_SECONDS)
    assert settlement.record is not None
    assert (settlement.record.errors, settlement.record.unauthorized_at) == (1, 1)


def test_a_look_at_the_item_takes_over_the_job_that_it_knows(
    worker: Worker, begin: Fresh, simulator: Simulator, store: Store, clock: Clock
) -> None:
    item = begin("job")
    first = dataclasses.replace(record_of(item), outputs={"id": "j-1"}, submitted_at=clock()).confirmed(clock())
    store.save(item.task, dataclasses.replace(first, outputs={"id": "j-2"}, resubmits=1), clock())
    clock.advance(CONFIRM_SECONDS + 1)
    simulator.say(pending())
    settlement = worker.work(claimed(item, first), ATTEMPT_SECONDS)
    assert settlement.record is not None
    assert (settlement.record.outputs, settlement.record.resubmits) == ({"id": "j-2"}, 1)
