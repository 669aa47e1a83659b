"""Notifying: every end in the stream is told to those who wait, in the words of who they are, and never for ever."""

import base64
import copy
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends
from msgspec import structs

from handlers.notify import handler
from shared import wiring
from shared.errors import Forbidden, NotifyUnavailable
from shared.store import Item, Store
from shared.store.erasure import emptied, said_so
from shared.store.item import Spilled
from shared.task import Task
from shared.work.keeper import record_of
from shared.work.notify import MAX_CAUSE, MAX_RESULT_BYTES, Notifier
from tests.support.api_events import Context, sample
from tests.support.clock import Clock
from tests.support.damage import SECRET

TASK = Task("example", "a")
STATES, FUNCTIONS = "stepFunctionsToken:AAAA", "durableCallbackId:BBBB"
FAILURE = {"reason": "upstream", "error": {"code": 7}, "refused": False}


class Workflows:
    """Step Functions and Lambda, stubbed, which wait for a task and must be told what is expected, in that order."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        pending = store.begin(TASK, None, {}, clock(), notify=STATES)
        assert pending
        self.pending = pending
        states, functions = boto3.client("stepfunctions"), boto3.client("lambda")
        self.states, self.functions = Stubber(states), Stubber(functions)
        self.notifier = Notifier(states, functions)
        self.states.activate()
        self.functions.activate()

    def expect(self, method: str, **arguments: Any) -> None:
        stub = self.functions if "durable" in method else self.states
        stub.add_response(method, {}, arguments)

    def ended(self, status: str, data: Any = None) -> Item:
        match status:
            case "completed":
                self.store.complete(TASK, self.pending.generation, data, self.clock())
            case "failed":
                self.store.fail(TASK, self.pending.generation, FAILURE, self.clock())
            case _:
                self.store.cancel(TASK, self.pending.generation, self.clock())
        item = self.store.get(TASK, self.clock())
        assert item
        return item

    def changes(self) -> list[Any]:
        """The table's stream, as Lambda hands it on."""
        shard = dynamodb_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].tables["meanwhile"].stream_shard
        assert shard
        records: list[Any] = json.loads(json.dumps(shard.get(shard.starting_sequence_number, 100), default=_in_base64))
        return records

    def refuse(self, method: str, code: str) -> None:
        stub = self.functions if "durable" in method else self.states
        stub.add_client_error(method, code)


@pytest.fixture
def workflows(store: Store, clock: Clock) -> Iterator[Workflows]:
    made = Workflows(store, clock)
    yield made
    made.states.assert_no_pending_responses()
    made.functions.assert_no_pending_responses()


def identity(item: Item) -> dict[str, Any]:
    named = {"task_id": "example/a", "provider": "example", "name": "a"}
    return named | {"status": item.status, "generation": item.generation}


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def test_a_success_is_told_with_its_data(workflows: Workflows) -> None:
    item = workflows.ended("completed", {"é": 30.40})
    whole = compact(identity(item) | {"data": {"é": 30.4}})
    workflows.expect("send_task_success", taskToken="AAAA", output=whole)
    workflows.expect("send_durable_execution_callback_success", CallbackId="BBBB", Result=whole.encode())
    for target in (STATES, FUNCTIONS):
        workflows.notifier.tell(target, item)


@pytest.mark.parametrize(
    ("status", "reason", "said"), [("failed", "upstream", {"code": 7}), ("cancelled",) * 2 + (None,)]
)
def test_any_other_end_is_told_as_a_failure(workflows: Workflows, status: str, reason: str, said: Any) -> None:
    item = workflows.ended(status)
    cause = compact(identity(item) | {"error": said})
    workflows.expect("send_task_failure", taskToken="AAAA", error=reason, cause=cause)
    error = {"ErrorType": reason, "ErrorMessage": cause}
    workflows.expect("send_durable_execution_callback_failure", CallbackId="BBBB", Error=error)
    for target in (STATES, FUNCTIONS):
        workflows.notifier.tell(target, item)


def test_data_that_would_not_be_taken_is_left_out(workflows: Workflows) -> None:
    item = workflows.ended("completed", "")
    room = MAX_RESULT_BYTES - len(compact(identity(item) | {"data": ""}))
    fits = replace(item, data="x" * room)
    workflows.expect("send_task_success", taskToken="AAAA", output=compact(identity(item) | {"data": fits.data}))
    for _ in range(2):
        workflows.expect("send_task_success", taskToken="AAAA", output=compact(identity(item)))
    workflows.notifier.tell(STATES, fits)
    workflows.notifier.tell(STATES, replace(item, data="x" * (room - 1) + "é"))
    workflows.notifier.tell(STATES, replace(item, data=Spilled("key", "digest", 1, 1, 1)))


def test_an_error_that_would_not_be_taken_is_left_out(workflows: Workflows) -> None:
    item = workflows.ended("failed")
    item = replace(item, error=FAILURE | {"error": "x" * MAX_CAUSE})
    workflows.expect("send_task_failure", taskToken="AAAA", error="upstream", cause=compact(identity(item)))
    workflows.notifier.tell(STATES, item)


@pytest.mark.promise("told", "a waiter that is gone or may not be told delays nobody")
@pytest.mark.parametrize("code", ["TaskTimedOut", "InvalidToken", "TaskDoesNotExist"])
def test_who_waits_no_longer_is_logged_and_dropped(
    workflows: Workflows, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    workflows.refuse("send_task_failure", code)
    workflows.refuse("send_durable_execution_callback_failure", "CallbackTimeoutException")
    item = workflows.ended("cancelled")
    workflows.notifier.tell(STATES, item)
    workflows.notifier.tell(FUNCTIONS, item)
    assert [record.message for record in caplog.records] == ["notify dropped"] * 2
    assert "AAAA" not in repr([vars(record) for record in caplog.records])


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalFailure"])
def test_any_other_error_is_to_be_tried_again(workflows: Workflows, code: str) -> None:
    workflows.refuse("send_task_failure", code)
    with pytest.raises(NotifyUnavailable, match=code):
        workflows.notifier.tell(STATES, workflows.ended("cancelled"))


def test_a_workflow_that_this_deployment_may_not_tell_is_a_problem_of_the_request(workflows: Workflows) -> None:
    workflows.refuse("send_task_failure", "AccessDeniedException")
    with pytest.raises(Forbidden) as caught:
        workflows.notifier.tell(STATES, workflows.ended("cancelled"))
    assert (caught.value.status, caught.value.field) == (403, "notify")


def _in_base64(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


@pytest.mark.promise("told", "of all changes of an item only ends are told, to all who waited")
def test_of_all_changes_an_end_alone_is_told_to_all_who_waited(workflows: Workflows) -> None:
    workflows.store.notify(TASK, workflows.pending.generation, FUNCTIONS)
    data = ["long enough to be packed"] * 500
    item = workflows.ended("completed", data)
    assert workflows.store.begin(TASK, item, {}, workflows.clock())
    whole = compact(identity(item) | {"data": data})
    workflows.expect("send_durable_execution_callback_success", CallbackId="BBBB", Result=whole.encode())
    workflows.expect("send_task_success", taskToken="AAAA", output=whole)
    assert workflows.notifier.tell_ends(workflows.changes()) == []


def test_an_open_item_that_was_deleted_is_told_as_cancelled(workflows: Workflows, dynamodb: Any) -> None:
    dynamodb.delete_item(TableName="meanwhile", Key={"task_id": {"S": TASK.id}})
    cause = compact(identity(replace(workflows.pending, status="cancelled")) | {"error": None})
    workflows.expect("send_task_failure", taskToken="AAAA", error="cancelled", cause=cause)
    assert workflows.notifier.tell_ends(workflows.changes()) == []


def test_an_erasure_ends_what_was_open_as_a_cancellation_does_and_tells_nothing_of_it(workflows: Workflows) -> None:
    record = structs.replace(record_of(workflows.pending), partial={"a": SECRET})
    workflows.store.save(TASK, record, workflows.clock())
    found = emptied(workflows.store, TASK, workflows.clock())
    assert found
    cause = compact(identity(found[1]) | {"error": None})
    workflows.expect("send_task_failure", taskToken="AAAA", error="cancelled", cause=cause)
    told = workflows.changes()
    assert workflows.notifier.tell_ends(told) == []
    said_so(workflows.store, found[1], workflows.clock())
    assert workflows.notifier.tell_ends(workflows.changes()[len(told) :]) == []


@pytest.mark.promise("told", "what could not be told is tried again by the stream, and delays nobody else")
def test_what_could_not_be_told_is_handed_in_again_and_keeps_nobody_else_waiting(workflows: Workflows) -> None:
    workflows.store.notify(TASK, workflows.pending.generation, FUNCTIONS)
    item = workflows.ended("completed", 1)
    record = workflows.changes()[-1]
    whole = compact(identity(item) | {"data": 1})
    workflows.refuse("send_durable_execution_callback_success", "TooManyRequestsException")
    workflows.expect("send_task_success", taskToken="AAAA", output=whole)
    broken = {"dynamodb": {"SequenceNumber": "1", "OldImage": 7}}
    assert workflows.notifier.tell_ends([broken, record]) == ["1", record["dynamodb"]["SequenceNumber"]]


@pytest.mark.promise("told", "an item that is damaged is reported, and delays nobody else")
@pytest.mark.parametrize(
    ("image", "changes"),
    [("NewImage", {"status": {"N": "1"}}), ("NewImage", {"generation": None}), ("NewImage", {"data": {"S": SECRET}}),
     ("NewImage", {"data": None}), ("NewImage", {"task_id": {"S": "?"}}), ("NewImage", {"status": {"S": "pending"}}),
     ("NewImage", {"status": {"S": "failed"}, "error": {"S": '{"reason":1}'}}), ("OldImage", {"notify": {"L": []}}),
     ("OldImage", {"notify": SECRET})],
)  # fmt: skip
def test_an_end_whose_item_is_damaged_is_reported_once_and_keeps_nobody_waiting(
    workflows: Workflows, image: str, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """C4."""
    item = workflows.ended("completed", 1)
    record = workflows.changes()[-1]
    broken = copy.deepcopy(record)
    changed = broken["dynamodb"][image] | changes
    broken["dynamodb"][image] = {name: value for name, value in changed.items() if value is not None}
    workflows.expect("send_task_success", taskToken="AAAA", output=compact(identity(item) | {"data": 1}))
    assert workflows.notifier.tell_ends([broken, record]) == []
    assert [line.message for line in caplog.records if line.levelno > logging.INFO] == ["item unreadable"]
    assert SECRET not in repr([vars(line) for line in caplog.records])


def test_a_body_that_is_no_base64_is_damaged(workflows: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    workflows.ended("completed", 1)
    record = workflows.changes()[-1]
    record["dynamodb"]["NewImage"]["data"] = {"B": "x"}
    assert workflows.notifier.tell_ends([record]) == []
    assert [line.message for line in caplog.records] == ["item unreadable"]


@pytest.mark.parametrize("target", ["stepFunctionsToken:", "durableCallbackId:", ""])
def test_a_token_that_cannot_even_be_sent_is_dropped(
    workflows: Workflows, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    Notifier(boto3.client("stepfunctions"), boto3.client("lambda")).tell(target, workflows.ended("cancelled"))
    assert [line.message for line in caplog.records] == ["notify dropped"]


@pytest.mark.promise("told", "a waiter that is gone or may not be told delays nobody")
def test_one_that_may_not_be_told_holds_up_nobody(workflows: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    workflows.ended("cancelled")
    workflows.refuse("send_task_failure", "AccessDeniedException")
    assert workflows.notifier.tell_ends([workflows.changes()[-1]]) == []
    assert [record.message for record in caplog.records] == ["notify dropped"]


def test_the_sample_event_is_told(workflows: Workflows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "notifier", lambda: workflows.notifier)
    said = {"task_id": "example/invoice-1001", "provider": "example", "name": "invoice-1001", "status": "completed"}
    output = compact(said | {"generation": 1760600618124, "data": {"customer": 42, "paid": True}})
    workflows.expect("send_task_success", taskToken="AAAAKgAAAAIAAAAAAAAAAexample", output=output)
    assert handler(sample("notify-stream"), Context()) == {"batchItemFailures": []}  # type: ignore[arg-type]


@pytest.mark.promise("told", "what could not be told is tried again by the stream, and delays nobody else")
def test_the_function_says_which_records_to_hand_in_again(
    workflows: Workflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "notifier", lambda: workflows.notifier)
    workflows.refuse("send_task_success", "ThrottlingException")
    again = handler(sample("notify-stream"), Context())  # type: ignore[arg-type]
    assert again == {"batchItemFailures": [{"itemIdentifier": "40902200000000048651365105"}]}


def test_wiring_makes_a_notifier_that_connects_to_nobody() -> None:
    assert isinstance(wiring.notifier(), Notifier)


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        {},
        {"Records": None},
        {"Records": [None, 7, {}, {"dynamodb": None}, {"dynamodb": {"SequenceNumber": 7}}]},
    ],
)
def test_an_event_that_no_stream_sends_breaks_nothing_and_is_not_handed_in_again(
    event: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert handler(event, Context()) == {"batchItemFailures": []}  # type: ignore[arg-type]
    assert {line.message for line in caplog.records} == {"stream record unreadable"}


def test_a_record_that_cannot_be_read_is_handed_in_again_by_its_number() -> None:
    records = [{"dynamodb": {"SequenceNumber": "7", "OldImage": 1}}, {"dynamodb": {"SequenceNumber": "8"}}]
    assert handler({"Records": records}, Context()) == {"batchItemFailures": [{"itemIdentifier": "7"}]}  # type: ignore[arg-type]
