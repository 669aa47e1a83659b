"""The worker stores before a task moves, and ends a generation as its item says."""

import dataclasses
import json
import random
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from msgspec import structs

from shared.codec import dumps
from shared.errors import StoreTooLarge, StoreUnavailable
from shared.outcome import Completed, Failed, Retry
from shared.provider import Finding, Provider
from shared.provider.language.polling import SPREAD
from shared.provider.wire.room import ROOM, SHARED_BYTES
from shared.queue import Claimed, Hold
from shared.reasons import Reason
from shared.record import VERSION, Record
from shared.store import Holder, Item
from shared.store.item import MAX_VALUE_BYTES
from shared.task import Task
from shared.work.keeper import STORE_RETRY_SECONDS, record_of, resumed
from shared.work.settle import Settlement
from shared.work.turn import Turn
from shared.work.worker import UNREADABLE_SECONDS, Worker
from tests.support.backend import Backend
from tests.support.damage import SECRET, damage_item, some_damage
from tests.support.parts import parts_of
from tests.support.simulator import BROKEN, DRIPPING, EXAMPLE, JOB, Said, Simulator, completed, pending, refused, says

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MAX_CRASHES = 3
CONFIRM_SECONDS = 300


class Desk:
    """A worker, and the task that a test gives it: one of `example`, unless it begins another."""

    def __init__(self, backend: Backend, simulator: Simulator) -> None:
        self.store, self.clock, self.outage, self.patch = backend.store, backend.clock, backend.dynamodb, backend.patch
        self.simulator = simulator
        self.providers = {"example": simulator.provider(EXAMPLE), "job": simulator.provider(JOB)}
        self.worker = self.worker_of(attempt_seconds=5)
        self.begun = self.begin()

    def worker_of(self, **settings: float) -> Worker:
        """A worker of these settings, in the test's time."""
        known = {"max_crashes": MAX_CRASHES, "confirm_seconds": CONFIRM_SECONDS}
        worker = Worker(parts_of(self.store, None, self.providers, self.clock, **known, **settings))
        worker.keeper.monotonic, worker.keeper.sleep = self.clock.monotonic, self.clock.sleep
        return worker

    def begin(self, provider: str = "example", input_: Any = None) -> Item:
        """The next generation of the task begins, unless one is under way."""
        task = Task(provider, "a")
        seen = self.store.get(task, self.clock())
        item = self.store.begin(task, seen, input_ or {}, self.clock()) or seen
        assert item
        self.begun = item
        self.outage.calls.clear()
        return item

    def record(self, **changes: Any) -> Record:
        """What the item knew when the task began, but for the changes; with outputs it is submitted."""
        submitted = {"submitted_at": self.clock()} if changes.get("outputs") else {}
        return structs.replace(record_of(self.begun), **submitted | changes)

    def save(self, record: Record) -> Record:
        """What somebody else stored."""
        self.store.save(self.begun.task, record, self.clock(), resubmit=record.outputs is None)
        return record

    @property
    def item(self) -> Item:
        """The item as it stands."""
        found = self.store.get(self.begun.task, self.clock())
        assert found
        return found

    def hold(self) -> Hold:
        return Hold(self.begun.task, self.begun.generation, "token")

    def inline(self) -> Settlement:
        """The user's request asks about the task it has begun."""
        now = self.worker.instant()
        return self.worker.attempt(Turn(self.hold(), now, now.monotonic + 5, inline=True), self.record())

    def work(self, *answers: Said, record: Record | str | None = None, came_back: int = 0) -> Settlement:
        """The task is worked on, its record as the item began unless told otherwise; the provider says the answers."""
        if answers:
            self.simulator.say(*answers)
        text = record if isinstance(record, str) else (record or self.record()).to_text()
        return self.worker.work(Claimed(self.hold(), came_back, text.encode()), self.worker.instant())

    def again(self, settlement: Settlement, *answers: Said) -> Settlement:
        """The task is handed out as that settlement left it; `outage.calls` begins anew."""
        assert settlement.becomes == "waiting"
        self.outage.calls.clear()
        return self.work(*answers, record=settlement.record)

    def end(self, how: str) -> None:
        """What another worker or a user did meanwhile."""
        begun = self.begun
        match how:
            case "completed":
                self.store.complete(begun.task, begun.generation, {"other": 1}, self.clock())
            case "failed" | "refused":
                error = {"reason": "upstream", "error": None, "refused": how == "refused"}
                self.store.fail(begun.task, begun.generation, error, self.clock())
            case "cancelled":
                self.store.cancel(begun.task, begun.generation, self.clock())
            case _:
                self.store.cancel(begun.task, begun.generation, self.clock())
                self.begin(begun.task.provider)
                if how != "newer":
                    self.end(how.removeprefix("newer "))
                self.begun = begun


@pytest.fixture
def desk(backend: Backend, simulator: Simulator) -> Desk:
    return Desk(backend, simulator)


def kept(settlement: Settlement) -> Record:
    """The record that goes back to Redis."""
    assert settlement.record
    return settlement.record


def noise(size: int) -> str:
    """Text that does not compress to much less than `size` bytes."""
    return random.Random(1).randbytes(size // 2 * 3).hex()


ENDS = {
    "failed": "buried", "refused": "forgotten", "completed": "forgotten", "cancelled": "forgotten",
    "newer": "forgotten", "newer failed": "forgotten",
}  # fmt: skip
ANSWERS = [completed({"mine": 1}), pending({"mine": 1}, id="j"), refused(), says(500, {})]
every_end = pytest.mark.parametrize(("how", "becomes"), ENDS.items())
every_answer = pytest.mark.parametrize("answer", ANSWERS, ids=["completed", "pending", "failed", "error"])


# --- store, then complete


def test_what_is_completed_stands_in_the_item_before_the_task_leaves(desk: Desk) -> None:
    settlement = desk.work(completed({"total": 30.4}))
    assert (settlement.becomes, settlement.counts_as) == ("completed", "completed")
    assert settlement.outcome == Completed(None)  # many wait together to be settled, and their data may be large (C33)
    assert (desk.item.status, desk.item.data, desk.item.partial) == ("completed", {"total": 30.4}, None)


def test_pending_comes_back_after_its_delay_with_what_was_learned_stored(desk: Desk) -> None:
    desk.begin("job")
    settlement = desk.work(pending({"city": "Ghent"}, id="j-1"))
    assert (settlement.becomes, settlement.counts_as, settlement.delay_seconds) == ("waiting", "snoozed", 2)
    assert (kept(settlement).outputs, kept(settlement).attempts) == ({"id": "j-1"}, 1)
    assert (desk.item.status, desk.item.outputs, desk.item.partial) == ("pending", {"id": "j-1"}, {"city": "Ghent"})
    assert (desk.item.submitted_at, desk.item.resubmits) == (desk.clock(), 0)


@pytest.mark.parametrize(
    "error",
    [BROKEN, DRIPPING, says(500, {}), says(503, None), Said(200, b"<html>"), Said(200, b'{"a": NaN}'), says(300, {})],
    ids=["connection error", "timeout", "500", "503", "unreadable", "not JSON", "300"],
)
def test_an_error_puts_the_task_back_for_later_and_counts_an_error(desk: Desk, error: Said) -> None:
    desk.worker = desk.worker_of(attempt_seconds=0.2)
    settlement = desk.work(error)
    assert (settlement.becomes, settlement.counts_as, settlement.delay_seconds) == ("waiting", "retried", 2)
    assert isinstance(settlement.outcome, Retry)
    assert (kept(settlement).errors, kept(settlement).attempts) == (1, 1)


def test_an_attempts_time_counts_from_when_the_task_was_claimed(desk: Desk) -> None:
    seconds: list[float] = []
    attempt = desk.providers["example"].attempt

    def noted(*arguments: Any, **options: Any) -> Any:
        seconds.append(options["seconds"])
        return attempt(*arguments, **options)

    desk.patch.setattr(desk.providers["example"], "attempt", noted)
    desk.simulator.say(pending())
    since = desk.worker.instant()
    claimed = Claimed(desk.hold(), 0, desk.record().to_text().encode())
    desk.worker.work(claimed, since._replace(monotonic=since.monotonic - 2))  # it has waited for a thread
    assert seconds == [pytest.approx(3, abs=0.1)]


def test_a_floor_of_zero_puts_it_at_the_end_of_the_queue_at_once(desk: Desk) -> None:
    coin = EXAMPLE | {"polling": {"minDelay": 0, "multiplier": 1, "maxErrors": 1000}}
    desk.providers["example"] = desk.simulator.provider(coin)
    settlement = desk.work(says(300, {"status": "multiple choices"}))
    assert (settlement.becomes, settlement.delay_seconds) == ("waiting", 0)


def test_a_failure_is_stored_and_then_buried(desk: Desk) -> None:
    settlement = desk.work(refused("no such customer"))
    assert (settlement.becomes, settlement.counts_as, desk.item.status) == ("buried", "buried", "failed")
    assert desk.item.error == {"reason": "upstream", "error": "no such customer", "refused": False}


def test_a_refusal_in_the_request_itself_is_no_dead_letter(desk: Desk) -> None:
    desk.simulator.say(refused())
    settlement = desk.inline()
    assert (settlement.becomes, settlement.counts_as) == ("forgotten", "refused")
    assert desk.item.refused


def test_too_many_errors_end_it(desk: Desk) -> None:
    assert desk.work(says(500, {}), record=desk.record(errors=5)).becomes == "buried"
    assert desk.item.error["reason"] == "too-many-errors"


@pytest.mark.parametrize("answer", [completed({"mine": "large"}), refused()], ids=["completed", "failed"])
def test_how_a_task_ended_is_read_back_only_where_a_user_waits_for_it(
    desk: Desk, dynamodb: "DynamoDBClient", answer: Said
) -> None:
    asked: list[str] = []
    note = "before-parameter-build.dynamodb.UpdateItem"
    dynamodb.meta.events.register(note, lambda params, **_: asked.append(params["ReturnValues"]))
    assert desk.work(answer).item is None
    desk.begin()
    desk.simulator.say(answer)
    assert desk.inline().item == desk.item
    assert asked == ["NONE", "ALL_NEW", "ALL_NEW"]  # the second begins the next generation


# --- the generation is no longer pending


@pytest.mark.promise("once", "the first end that is stored stays; a late write changes nothing")
@every_end
@every_answer
def test_whatever_it_found_a_superseded_generation_ends_as_the_item_says(
    desk: Desk, how: str, becomes: str, answer: Said
) -> None:
    settlement = desk.work(answer.after(lambda: desk.end(how)))
    assert settlement.becomes == becomes
    assert settlement.counts_as == becomes
    assert settlement.item == desk.item
    assert "mine" not in json.dumps(desk.item.data)


@every_answer
def test_a_generation_whose_item_is_gone_is_forgotten(desk: Desk, dynamodb: "DynamoDBClient", answer: Said) -> None:
    key: Any = {"task_id": {"S": desk.begun.task.id}}
    settlement = desk.work(answer.after(lambda: dynamodb.delete_item(TableName="meanwhile", Key=key)))
    assert (settlement.becomes, settlement.item) == ("forgotten", None)
    assert "Item" not in dynamodb.get_item(TableName="meanwhile", Key=key)


@pytest.mark.promise(
    "once", "a cancelled task stays cancelled, and a worker that was asking just then tells the provider"
)
def test_a_worker_that_finds_its_task_cancelled_tells_the_provider_with_the_outputs_it_just_got(desk: Desk) -> None:
    desk.begin("job")
    assert desk.work(pending(id="j-9").after(lambda: desk.end("cancelled")), says(200, {})).becomes == "forgotten"
    assert desk.simulator.calls() == ["POST /jobs", "DELETE /jobs/j-9"]


@pytest.mark.parametrize("how", ["completed", "failed", "newer", "newer cancelled"])
def test_no_provider_is_told_to_cancel_what_ended_otherwise(desk: Desk, how: str) -> None:
    desk.begin("job")
    desk.work(pending(id="j-9").after(lambda: desk.end(how)))
    assert desk.simulator.calls() == ["POST /jobs"]


# --- an item that is damaged (C4)


@some_damage
def test_a_task_whose_item_is_damaged_waits_for_a_person_and_nobody_is_asked(
    desk: Desk, dynamodb: "DynamoDBClient", damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk.begin("job")
    damage_item(dynamodb, desk.begun.task, damage)
    settlement = desk.work()
    assert (settlement.becomes, settlement.counts_as) == ("buried", "buried")
    assert desk.simulator.calls() == []
    assert [line.message for line in caplog.records] == ["item unreadable"]
    assert SECRET not in repr(vars(caplog.records[0]))


def test_a_damaged_item_does_not_end_a_job_whose_record_is_sound(desk: Desk, dynamodb: "DynamoDBClient") -> None:
    desk.begin("job")
    settlement = desk.work(pending(id="j"))
    damage_item(dynamodb, desk.begun.task, "partial cut")
    assert desk.again(settlement, pending({"a": 1}, id="j")).becomes == "waiting"
    assert desk.item.partial == {"a": 1}


def test_where_a_result_cannot_be_written_to_a_damaged_item_nobody_is_asked_again(
    desk: Desk, dynamodb: "DynamoDBClient"
) -> None:
    desk.begin("job")
    settlement = desk.work(pending(id="j"))
    damage_item(dynamodb, desk.begun.task, "generation a text")
    assert desk.again(settlement, pending({"a": 1}, id="j")).becomes == "buried"


def test_so_it_is_where_the_attempt_breaks_and_what_it_knew_cannot_be_written(
    desk: Desk, dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_item(dynamodb, desk.begun.task, "generation a text")
    monkeypatch.setattr(Provider, "attempt", Mock(side_effect=ZeroDivisionError))
    assert desk.work(record=desk.record(outputs={"id": "j"})).becomes == "buried"


# --- writing only what changed


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        (pending({"a": 1}, id="j"), []),
        (pending({"a": 2}, id="j"), ["UpdateItem"]),
        (pending({"a": 1, "b": 1}), ["UpdateItem"]),
    ],
)
def test_a_changed_partial_answer_is_written_and_for_an_unchanged_one_nothing_is_read_or_written(
    desk: Desk, answer: Said, calls: list[str]
) -> None:
    desk.begin("job")
    settlement = desk.again(desk.work(pending({"a": 1}, id="j")), answer)
    assert desk.outage.calls == calls
    assert kept(settlement).polls == 2


def test_the_first_error_writes_when_it_was_submitted_and_the_next_writes_nothing(desk: Desk) -> None:
    first = desk.work(says(500, {}))
    assert desk.item.submitted_at == desk.clock()
    desk.clock.advance(CONFIRM_SECONDS * 2)
    desk.again(first)
    assert desk.outage.calls == []


def test_a_long_unchanged_task_is_read_again_after_confirm_seconds_and_not_again_for_as_long(desk: Desk) -> None:
    desk.begin("job")
    settlement = desk.work(pending({"a": 1}, id="j"))
    for seconds, calls in ((CONFIRM_SECONDS, []), (0.001, ["GetItem"]), (1, [])):
        desk.clock.advance(seconds)
        settlement = desk.again(settlement)
        assert desk.outage.calls == calls


@every_end
def test_that_second_look_finds_a_generation_that_has_ended(desk: Desk, how: str, becomes: str) -> None:
    desk.begin("job")
    settlement = desk.work(pending({"a": 1}, id="j"))
    desk.end(how)
    desk.clock.advance(CONFIRM_SECONDS + 1)
    assert desk.again(settlement).becomes == becomes


def test_a_look_at_the_item_takes_over_the_job_that_it_knows(desk: Desk) -> None:
    desk.begin("job")
    first = desk.record(outputs={"id": "j-1"}).confirmed(desk.clock())
    desk.save(structs.replace(first, outputs={"id": "j-2"}, resubmits=1))
    desk.clock.advance(CONFIRM_SECONDS + 1)
    known = kept(desk.work(pending(), record=first))
    assert (known.outputs, known.resubmits) == ({"id": "j-2"}, 1)


# --- the store is away or refuses


def test_outputs_that_could_not_be_stored_are_carried_to_redis_and_written_next_time(desk: Desk) -> None:
    desk.begin("job")
    desk.outage.away = {"UpdateItem"}
    first = desk.work(pending({"a": 1}, id="j"))
    assert (first.becomes, first.delay_seconds, kept(first).outputs) == ("waiting", 2, {"id": "j"})
    assert not desk.item.outputs
    desk.outage.away = set()
    assert desk.again(first).counts_as == "snoozed"
    assert desk.item.outputs == {"id": "j"}
    assert desk.simulator.calls() == ["POST /jobs", "GET /jobs/j"]


@pytest.mark.promise(
    "ends", "a result that could not be stored is kept or asked for again, and is no error of the provider"
)
@pytest.mark.parametrize("answer", [completed({"x": 1}), refused(), pending({"a": 1}, id="j"), says(500, {})])
def test_a_store_that_is_away_counts_no_error_of_the_provider(desk: Desk, answer: Said) -> None:
    desk.outage.away = {"UpdateItem"}
    settlement = desk.work(answer)
    assert (settlement.becomes, settlement.counts_as) == ("waiting", "released")
    assert kept(settlement).errors == (1 if isinstance(settlement.outcome, Retry) else 0)


@pytest.mark.promise(
    "ends", "a result that could not be stored is kept or asked for again, and is no error of the provider"
)
@pytest.mark.parametrize("answer", [completed({"x": 1}), refused()])
def test_an_end_that_could_not_be_stored_is_asked_for_again_soon(desk: Desk, answer: Said) -> None:
    desk.outage.away = {"UpdateItem"}
    first = desk.work(answer)
    assert first.delay_seconds == STORE_RETRY_SECONDS
    desk.outage.away = set()
    assert desk.again(first).becomes in ("completed", "buried")
    assert desk.item.status != "pending"


def test_tasks_that_could_not_be_stored_do_not_come_back_all_at_once(desk: Desk) -> None:
    """C5."""
    desk.providers["example"] = desk.simulator.provider(EXAMPLE, polling={"jitter": "full"})
    newer = desk.record().to_text().replace('"version":1', '"version":9')
    for away, wait, record in (
        ({"UpdateItem"}, STORE_RETRY_SECONDS, None), (set(), UNREADABLE_SECONDS, newer),
    ):  # fmt: skip
        desk.outage.away = away
        delays = {desk.work(completed({"x": 1}), record=record).delay_seconds for _ in range(20)}
        assert len(delays) == 20
        assert wait <= min(delays) < max(delays) <= wait * SPREAD


def test_the_last_error_allowed_does_not_become_one_too_many_because_the_store_was_away(desk: Desk) -> None:
    desk.outage.away = {"UpdateItem"}
    settlement = desk.work(says(500, {}), record=desk.record(errors=5))
    assert isinstance(settlement.outcome, Failed)
    desk.outage.away = set()
    assert desk.again(settlement, completed({"x": 1})).becomes == "completed"


def test_a_store_that_cannot_be_read_leaves_the_record_as_it_was_and_nobody_is_asked(desk: Desk) -> None:
    desk.begin("job")
    desk.outage.away = {"GetItem"}
    settlement = desk.work()
    assert (settlement.becomes, settlement.record, settlement.delay_seconds) == ("waiting", None, STORE_RETRY_SECONDS)
    assert desk.simulator.calls() == []


@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_it_says_that_the_store_did_not_answer(desk: Desk, operation: str) -> None:
    desk.begin("job")
    desk.outage.away = {operation}
    assert desk.work(pending(id="j")).store_away
    desk.outage.away = set()
    assert not desk.work(pending(id="j")).store_away


@pytest.mark.parametrize("verb", ["get", "save"])
def test_an_error_that_the_store_answers_with_is_that_tasks_alone(desk: Desk, verb: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("DynamoDB: InternalServerError")

    desk.begin("job")
    desk.patch.setattr(desk.store, verb, refuse)
    settlement = desk.work(pending(id="j"))
    assert (settlement.counts_as, settlement.store_away) == ("released", False)


@pytest.mark.promise("large", "data that even DynamoDB cannot hold end the task as `too-large`")
@pytest.mark.parametrize(
    ("provider", "answer"),
    [
        ("example", completed({"all": noise(MAX_VALUE_BYTES["data"])})),
        ("job", pending(id=noise(MAX_VALUE_BYTES["outputs"]))),
    ],
    ids=["data", "outputs"],
)
def test_what_dynamodb_cannot_hold_ends_the_task_as_too_large(desk: Desk, provider: str, answer: Said) -> None:
    desk.begin(provider)
    assert desk.work(answer).becomes == "buried"
    assert (desk.item.status, desk.item.error["reason"], desk.item.data) == ("failed", "too-large", None)


def test_an_error_that_dynamodb_cannot_hold_is_cut(desk: Desk) -> None:
    assert desk.work(refused(noise(MAX_VALUE_BYTES["error"]))).becomes == "buried"
    assert desk.item.error["reason"] == "upstream"
    assert "… (cut, " in desk.item.error["error"]


def test_partial_data_that_dynamodb_cannot_hold_is_dropped_and_the_task_goes_on(desk: Desk) -> None:
    desk.begin("job")
    first = desk.work(pending({"all": noise(MAX_VALUE_BYTES["partial"])}, id="j"))
    assert (first.becomes, first.counts_as) == ("waiting", "snoozed")
    assert (desk.item.status, desk.item.outputs, desk.item.partial) == ("pending", {"id": "j"}, None)
    desk.again(first)
    assert desk.outage.calls == []


@pytest.mark.parametrize("name", ["data", "progress"])
def test_what_a_provider_says_beyond_all_bounds_reaches_neither_redis_nor_the_item(desk: Desk, name: str) -> None:
    """C12: 9 MB of one letter, which compress to 9 KB."""
    desk.providers["job"] = desk.simulator.provider(JOB | {"partial": "body.data", "progress": "body.progress"})
    desk.begin("job")
    first = desk.work(pending(**{name: "d" * 9_000_000}, id="j"))
    assert (first.becomes, desk.item.outputs, desk.item.partial) == ("waiting", {"id": "j"}, None)
    assert len(kept(first).to_text()) < 1000
    second = desk.again(first, pending({"small": 1}, id="j"))
    assert (desk.item.partial, kept(second).reason) == ({"small": 1}, None)


def test_an_error_text_of_a_megabyte_is_cut_in_the_item(desk: Desk) -> None:
    """C12."""
    desk.work(refused("d" * 1_000_000))
    assert desk.item.error["error"].startswith("ddd")
    assert desk.item.error["error"].endswith("… (cut, 1000000 characters)")


def test_a_failure_that_dynamodb_has_no_room_for_is_tried_again_soon(desk: Desk) -> None:
    full = Mock(side_effect=StoreTooLarge("DynamoDB: Item size to update has exceeded the maximum allowed size"))
    desk.patch.setattr(desk.store, "fail", full)
    settlement = desk.work(refused())
    assert (settlement.becomes, settlement.delay_seconds) == ("waiting", STORE_RETRY_SECONDS)


# --- no second job


@pytest.mark.promise("submits", "a job whose answer was stored is never submitted again: the item is read first")
def test_before_a_submit_by_process_outputs_in_the_item_are_used(desk: Desk) -> None:
    desk.begin("job")
    learned = desk.save(desk.record(outputs={"id": "j-1"}, partial={"a": 1}))
    desk.clock.advance(100)
    known = kept(desk.work(pending({"b": 1})))
    assert desk.simulator.calls() == ["GET /jobs/j-1"]
    assert (known.submitted_at, known.outputs) == (learned.submitted_at, {"id": "j-1"})


@pytest.mark.parametrize(("provider", "record"), [("job", None), ("example", "")], ids=["submit", "no record"])
@every_end
def test_before_a_submit_or_without_a_record_a_generation_that_has_ended_is_noticed(
    desk: Desk, how: str, becomes: str, provider: str, record: str | None
) -> None:
    desk.begin(provider)
    desk.end(how)
    assert desk.work(record=record).becomes == becomes
    assert desk.simulator.calls() == []


def test_the_requests_own_submit_does_not_read_the_item_it_has_just_written(desk: Desk) -> None:
    desk.begin("job")
    desk.simulator.say(pending(id="j"))
    desk.inline()
    assert desk.outage.calls == ["UpdateItem"]


def test_a_provider_without_a_poll_operation_is_simply_asked_again(desk: Desk) -> None:
    desk.work(says(500, {}))
    assert desk.outage.calls == ["UpdateItem"]


@pytest.mark.promise("submits", "a lost job is submitted anew only once its loss is in the item")
def test_a_resubmit_stands_in_the_item_before_it_happens(desk: Desk) -> None:
    desk.begin("job")
    record = desk.save(desk.record(outputs={"id": "j-1"}).confirmed(desk.clock()))
    settlement = desk.work(says(200, {"status": "lost"}), record=record)
    assert isinstance(settlement.outcome, Retry)
    assert settlement.outcome.reason == "resubmit"
    assert (desk.item.outputs, desk.item.resubmits) == (None, 1)
    desk.again(settlement, pending(id="j-2"))
    assert desk.simulator.calls() == ["GET /jobs/j-1", "POST /jobs"]
    assert desk.item.outputs == {"id": "j-2"}


@pytest.mark.promise("submits", "a lost job is submitted anew only once its loss is in the item")
def test_a_resubmit_that_could_not_be_stored_does_not_happen(desk: Desk) -> None:
    desk.begin("job")
    desk.outage.away = {"UpdateItem"}
    settlement = desk.work(
        says(200, {"status": "lost"}), record=desk.record(outputs={"id": "j-1"}).confirmed(desk.clock())
    )
    desk.outage.away = set()
    desk.again(settlement)
    assert desk.simulator.calls() == ["GET /jobs/j-1", "GET /jobs/j-1"]


@pytest.mark.promise("once", "a late worker does not write a lost job over the one that followed")
@pytest.mark.parametrize(
    "answer",
    [pending({"old": 1}), says(500, {}), says(200, {"status": "lost"}), refused("no")],
    ids=["pending", "error", "lost", "refused"],
)
def test_a_worker_that_comes_late_with_a_lost_job_goes_on_with_the_one_that_followed(desk: Desk, answer: Said) -> None:
    desk.begin("job")
    stale = desk.save(desk.record(outputs={"id": "j-1"}))

    def meanwhile() -> None:
        lost = desk.save(structs.replace(stale, outputs=None, resubmits=1))
        desk.save(structs.replace(lost, outputs={"id": "j-2"}))

    settlement = desk.work(answer.after(meanwhile), pending(id="j-2"), record=stale)
    assert (desk.item.outputs, desk.item.resubmits, desk.item.partial) == ({"id": "j-2"}, 1, None)
    desk.again(settlement)
    assert desk.simulator.calls() == ["GET /jobs/j-1", "GET /jobs/j-2"]


# --- what a callback told meanwhile


def told(desk: Desk, **news: Any) -> None:
    """A callback comes, whose provider has another link or partial data for the job."""
    known = structs.replace(record_of(desk.item), outputs=None, partial=None)
    desk.store.learn(desk.begun.task, structs.replace(known, **news), desk.clock())


@pytest.mark.promise("once", "what a callback told stays, whatever a worker saves that does not know of it")
def test_what_a_callback_told_during_a_poll_is_kept_and_the_next_poll_uses_it(desk: Desk) -> None:
    """C1's sibling: two that learn of one job at once."""
    desk.begin("job")
    known = desk.save(desk.record(outputs={"id": "j-1"})).confirmed(desk.clock())
    answer = pending({"polled": 1}, id="j-1").after(lambda: told(desk, outputs={"id": "j-2"}))
    settlement = desk.work(answer, pending({"polled": 2}), record=known)
    assert (desk.item.outputs, desk.item.partial) == ({"id": "j-2"}, {"polled": 1})
    kept(desk.again(settlement))
    assert desk.simulator.calls() == ["GET /jobs/j-1", "GET /jobs/j-2"]
    assert (desk.item.outputs, desk.item.partial) == ({"id": "j-2"}, {"polled": 2})


def test_a_job_is_kept_though_a_callback_told_of_it_before_its_submit_was_stored(desk: Desk) -> None:
    """Else a loss of Redis now would submit it twice."""
    desk.begin("job")
    known = kept(desk.work(pending(id="j-9").after(lambda: told(desk, partial={"told": 1}))))
    assert (desk.item.outputs, desk.item.partial) == ({"id": "j-9"}, {"told": 1})
    assert desk.item.submitted_at == desk.clock()
    assert known.saved == known.digest == record_of(desk.item).digest


@pytest.mark.parametrize("in_item", [True, False], ids=["in the item", "in the record alone"])
def test_a_job_of_which_a_callback_told_meanwhile_is_not_given_up_but_asked_about_again(
    desk: Desk, in_item: bool
) -> None:
    """A refused write is no resubmit."""
    desk.begin("job")
    known = desk.record(outputs={"id": "j-1"})
    known = desk.save(known).confirmed(desk.clock()) if in_item else known
    lost = says(200, {"status": "lost"}).after(lambda: told(desk, partial={"told": 1}))
    settlement = desk.work(lost, pending(), record=known)
    assert (desk.item.outputs, desk.item.partial) == ({"id": "j-1"} if in_item else None, {"told": 1})
    assert desk.item.resubmits == 0
    desk.again(settlement)
    assert desk.simulator.calls() == ["GET /jobs/j-1", "GET /jobs/j-1"]


def test_a_refused_record_knows_what_the_item_has_and_keeps_its_own_job(desk: Desk) -> None:
    """What the item lacks is saved with the next attempt: the digest is of what it holds."""
    desk.begin("job")
    there = dataclasses.replace(desk.item, partial={"there": 1}, news=1)
    own = desk.record(outputs={"id": "j"}, partial={"own": 1}, submitted_at=5)
    known = resumed(own, there)
    assert (known.outputs, known.partial, known.submitted_at, known.news) == ({"id": "j"}, {"there": 1}, 5, 1)
    assert known.saved == record_of(there).digest != known.digest


def test_a_look_at_an_item_that_lacks_the_job_has_it_written_again(desk: Desk) -> None:
    """As after a restored table: the record believed that it was saved."""
    desk.begin("job")
    known = desk.record(outputs={"id": "j-1"}).confirmed(desk.clock())
    desk.clock.advance(CONFIRM_SECONDS + 1)
    settlement = desk.work(pending(), pending(), record=known)
    assert desk.item.outputs is None
    desk.again(settlement)
    assert desk.item.outputs == {"id": "j-1"}


# --- crashes, junk, and faults of our own


def crashed(desk: Desk, times: int) -> None:
    """So many workers took the task over and died."""
    for number in range(times):
        by = Holder(number + 2, f"worker {number}")
        assert isinstance(desk.store.take_over(desk.begun.task, desk.begun.generation, by, number + 1), Item)


def test_up_to_max_crashes_a_task_that_came_back_is_asked_about(desk: Desk) -> None:
    crashed(desk, MAX_CRASHES - 1)
    assert desk.work(completed({}), came_back=MAX_CRASHES).becomes == "completed"


def test_above_max_crashes_it_fails_unasked(desk: Desk) -> None:
    crashed(desk, MAX_CRASHES)
    assert desk.work(came_back=MAX_CRASHES + 1).becomes == "buried"
    assert desk.simulator.calls() == []
    assert desk.item.error == {"reason": "crashed", "error": "ended its worker 4 times", "refused": False}


OTHER_GENERATION = Record(generation=1, created_at=0, input={"old": 1}).to_text()


@pytest.mark.parametrize("text", ["", "junk", "{}", '{"version": 1, "colour": 2}', OTHER_GENERATION])
def test_a_record_that_is_junk_or_missing_is_made_anew_from_the_item(desk: Desk, text: str) -> None:
    item = desk.begin("job", {"customer": 42})
    desk.save(desk.record(outputs={"id": "j-1"}))
    known = kept(desk.work(pending({"a": 1}), record=text))
    assert desk.simulator.calls() == ["GET /jobs/j-1"]
    assert (known.input, known.generation) == ({"customer": 42}, item.generation)


def test_a_record_made_from_an_item_knows_all_that_the_item_knows(desk: Desk) -> None:
    item = desk.begin("job", {"customer": 42})
    desk.save(desk.record(outputs={"id": "j"}, partial={"a": 1}, resubmits=1))
    record = record_of(desk.item)
    assert (record.input, record.outputs, record.partial) == ({"customer": 42}, {"id": "j"}, {"a": 1})
    assert (record.submitted_at, record.resubmits, record.created_at) == (desk.clock(), 1, item.created_at)
    assert record.saved == record.digest


def test_a_record_that_a_later_version_wrote_stays_as_it_is_and_costs_no_attempt(desk: Desk) -> None:
    later = dumps({"version": VERSION + 1, "generation": desk.begun.generation, "shape": "new"})
    settlement = desk.work(record=later)
    assert (settlement.becomes, settlement.record, settlement.delay_seconds) == ("waiting", None, UNREADABLE_SECONDS)
    assert settlement.counts_as == "released"
    assert desk.simulator.calls() == []


@pytest.mark.parametrize("first", [None, "junk"])
def test_a_fault_of_our_own_is_an_error_like_any_other_and_ends_after_as_many(desk: Desk, first: str | None) -> None:
    desk.patch.setattr(Provider, "attempt", lambda *_, **__: 1 / 0)
    ends, record = ["waiting"], desk.work(record=first).record
    while ends[-1] == "waiting" and len(ends) < 20:
        settlement = desk.work(record=record)
        ends.append(settlement.becomes)
        record = settlement.record
    assert ends == ["waiting"] * 5 + ["buried"]
    assert desk.item.error["reason"] == "too-many-errors"


@pytest.mark.parametrize(
    ("verb", "answer"), [("save", pending({"a": 1})), ("complete", completed({})), ("fail", refused())]
)
def test_a_fault_in_storing_counts_as_an_error_too(desk: Desk, verb: str, answer: Said) -> None:
    desk.patch.setattr(desk.store, verb, lambda *_: 1 / 0)
    settlement = desk.work(answer)
    assert (settlement.becomes, settlement.counts_as, kept(settlement).errors) == ("waiting", "retried", 1)


def test_an_attempt_that_broke_while_its_task_ended_ends_it_as_the_item_says(desk: Desk) -> None:
    def ends_and_breaks(*_: Any, **__: Any) -> None:
        desk.end("failed")
        raise KeyError("a fault of ours")

    desk.patch.setattr(Provider, "attempt", ends_and_breaks)
    assert desk.work(record="").becomes == "buried"


def test_a_task_of_a_provider_whose_file_is_gone_is_given_back(desk: Desk) -> None:
    desk.providers.clear()
    assert desk.work().becomes == "waiting"


@pytest.mark.parametrize("reason", [Reason.HTTP, Reason.UNAUTHORIZED])
def test_an_error_is_counted_although_nothing_can_be_stored(desk: Desk, reason: Reason) -> None:
    desk.begin("job")
    erring = desk.record(submitted_at=5, errors=1, unauthorized_at=1)
    finding = Finding(Retry(0, reason), erring)
    desk.patch.setattr(Provider, "attempt", lambda *_, **__: finding)
    desk.outage.away = {"UpdateItem"}
    known = kept(desk.work())
    assert (known.errors, known.unauthorized_at) == (1, 1)


# --- room for large answers (C33)


@pytest.mark.parametrize("breaks", [False, True])
def test_the_room_for_a_large_answer_is_left_when_its_data_are_stored(desk: Desk, breaks: bool) -> None:
    free: list[bool] = []

    def attempt(*_: Any, **__: Any) -> Finding:
        ROOM.take(SHARED_BYTES + 1, 0)
        if breaks:
            raise RuntimeError("our own fault")
        return Finding(Completed({"a": 1}), desk.record())

    def complete(*_: Any, **__: Any) -> None:
        free.append(not ROOM._is_taken)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.providers["example"], "attempt", attempt)
        patch.setattr(desk.store, "complete", complete)
        assert desk.work().becomes == ("waiting" if breaks else "completed")
    assert free == ([] if breaks else [False])
    assert not ROOM._is_taken
