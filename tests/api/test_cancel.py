"""cancel ends a task in the item first, then in Redis, and tells the provider if it can."""

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from shared.api.cancel import answer as answer_of
from shared.errors import Conflict, NotFound, StoreUnavailable, Unavailable
from shared.queue import Add, Queue
from shared.store import Item, Store, Superseded
from shared.task import Task
from shared.work.parts import Parts
from shared.work.worker import record_of
from tests.support.clock import Clock
from tests.support.outage import DynamoDBOutage, RedisOutage
from tests.support.parts import parts_of
from tests.support.simulator import BROKEN, EXAMPLE, JOB, Simulator, says

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from redis import Redis

TASK = Task("job", "a")

Begun = Callable[..., Item]


@pytest.fixture
def redis_kind() -> str:
    return "fakeredis"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as simulator:
        simulator.say(says(204, None))
        yield simulator


@pytest.fixture
def parts(store: Store, queue: Queue, clock: Clock, simulator: Simulator) -> Parts:
    providers = {"job": simulator.provider(JOB), "example": simulator.provider(EXAMPLE)}
    return parts_of(store, queue, providers, clock)


@pytest.fixture
def begun(store: Store, queue: Queue, clock: Clock) -> Begun:
    """Begins a task and puts it into the queue; with outputs, it has a job."""

    def begun(task: Task = TASK, *, outputs: dict[str, Any] | None = None) -> Item:
        item = store.begin(task, store.get(task, clock()), {}, clock())
        assert item
        record = dataclasses.replace(record_of(item), outputs=outputs, partial={"a": 1})
        store.save(task, record, clock())
        queue.add([Add(task, item.generation, record.to_text(), 60)], token="mine")
        return item

    return begun


def status_of(store: Store, task: Task = TASK) -> str | None:
    item = store.get(task, 0)
    return item.status if item else None


def test_an_open_task_is_cancelled_everywhere(
    parts: Parts, begun: Begun, store: Store, state: Any, simulator: Simulator
) -> None:
    begun(outputs={"id": "j-1"})
    answer = answer_of(parts, TASK)
    assert (answer.status, answer.body["status"], answer.body["data"]) == (200, "cancelled", {"a": 1})
    assert answer.body["completed_at"]
    assert status_of(store) == "cancelled"
    assert state("job") == {}
    assert simulator.calls() == ["DELETE /jobs/j-1"]


def test_it_may_be_repeated_and_the_provider_is_told_once(parts: Parts, begun: Begun, simulator: Simulator) -> None:
    begun(outputs={"id": "j-1"})
    first, second = answer_of(parts, TASK), answer_of(parts, TASK)
    assert (second.status, second.body) == (200, first.body)
    assert simulator.calls() == ["DELETE /jobs/j-1"]


def test_a_repetition_makes_up_for_a_redis_that_was_away(
    parts: Parts, begun: Begun, state: Any, redis_client: "Redis"
) -> None:
    begun()
    outage = RedisOutage(redis_client)
    outage.away = True
    assert answer_of(parts, TASK).body["status"] == "cancelled"
    assert len(outage.calls) == 1
    outage.away = False
    assert state("job") != {}
    answer_of(parts, TASK)
    assert state("job") == {}


def test_an_unknown_task_is_not_found(parts: Parts) -> None:
    with pytest.raises(NotFound) as caught:
        answer_of(parts, TASK)
    assert caught.value.field == "name"


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_what_has_ended_already_is_a_conflict(
    parts: Parts, begun: Begun, store: Store, clock: Clock, simulator: Simulator, status: str
) -> None:
    item = begun(outputs={"id": "j-1"})
    if status == "completed":
        store.complete(TASK, item.generation, {}, clock())
    else:
        store.fail(TASK, item.generation, {"reason": "upstream", "error": None, "refused": False}, clock())
    with pytest.raises(Conflict, match=status):
        answer_of(parts, TASK)
    assert status_of(store) == status
    assert simulator.calls() == []


@pytest.mark.promise(
    "once", "a cancelled task stays cancelled, and a worker that was asking just then tells the provider"
)
def test_the_item_comes_first_so_that_a_worker_in_between_finds_it_cancelled(
    parts: Parts, begun: Begun, queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun()
    seen: list[str | None] = []
    monkeypatch.setattr(queue, "forget", lambda _: seen.append(status_of(store)))
    answer_of(parts, TASK)
    assert seen == ["cancelled"]


@pytest.mark.promise("limits", "a cancelled job counts as open until the provider was told")
def test_the_jobs_place_is_free_only_once_the_provider_was_told(
    parts: Parts, begun: Begun, simulator: Simulator, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(outputs={"id": "j-1"})
    told: list[list[str]] = []
    monkeypatch.setattr(queue, "forget", lambda _: told.append(simulator.calls()))
    answer_of(parts, TASK)
    assert told == [["DELETE /jobs/j-1"]]


@pytest.mark.parametrize("task", [TASK, Task("example", "a")])
def test_a_provider_without_a_job_or_without_that_operation_is_told_nothing(
    parts: Parts, begun: Begun, simulator: Simulator, task: Task
) -> None:
    begun(task, outputs=None if task == TASK else {"id": "j-1"})
    assert answer_of(parts, task).status == 200
    assert simulator.calls() == []


def test_a_provider_that_does_not_answer_changes_nothing(parts: Parts, begun: Begun, simulator: Simulator) -> None:
    begun(outputs={"id": "j-1"})
    simulator.say(BROKEN)
    assert answer_of(parts, TASK).body["status"] == "cancelled"


def test_a_task_of_a_provider_whose_file_is_gone_can_be_cancelled(parts: Parts, begun: Begun, store: Store) -> None:
    gone = Task("gone", "a")
    begun(gone, outputs={"id": "j-1"})
    assert answer_of(parts, gone).status == 200
    assert status_of(store, gone) == "cancelled"


def test_a_job_that_a_worker_has_just_stored_is_cancelled_too(
    parts: Parts,
    begun: Begun,
    store: Store,
    clock: Clock,
    simulator: Simulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = begun()
    cancel = store.cancel

    def cancel_after_a_save(*arguments: Any) -> Item | Superseded:
        store.save(TASK, dataclasses.replace(record_of(item), outputs={"id": "j-2"}), clock())
        return cancel(*arguments)

    monkeypatch.setattr(store, "cancel", cancel_after_a_save)
    answer_of(parts, TASK)
    assert simulator.calls() == ["DELETE /jobs/j-2"]


def test_a_task_that_completes_in_between_is_a_conflict(
    parts: Parts, begun: Begun, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = begun()
    cancel = store.cancel

    def too_late(*arguments: Any) -> Item | Superseded:
        store.complete(TASK, item.generation, {"whole": 1}, clock())
        return cancel(*arguments)

    monkeypatch.setattr(store, "cancel", too_late)
    with pytest.raises(Conflict):
        answer_of(parts, TASK)
    assert status_of(store) == "completed"


def test_a_generation_begun_in_between_is_cancelled_in_its_place(
    parts: Parts, begun: Begun, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    item = begun()
    cancel, rounds = store.cancel, iter([True])

    def once_too_late(*arguments: Any) -> Item | Superseded:
        if next(rounds, False):
            cancel(TASK, item.generation, clock())
            begun()
        return cancel(*arguments)

    monkeypatch.setattr(store, "cancel", once_too_late)
    answer = answer_of(parts, TASK)
    assert (answer.body["status"], answer.body["generation"]) == ("cancelled", item.generation + 1)
    assert state("job") == {}


def test_a_generation_begun_just_after_is_left_alone_and_not_shown(
    parts: Parts, begun: Begun, queue: Queue, simulator: Simulator, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    item = begun(outputs={"id": "j-1"})
    forget = queue.forget

    def then_begun_again(ends: Any) -> list[bool]:
        done = forget(ends)
        begun(outputs={"id": "j-2"})
        return done

    monkeypatch.setattr(queue, "forget", then_begun_again)
    answer = answer_of(parts, TASK)
    assert (answer.body["status"], answer.body["generation"]) == ("cancelled", item.generation)
    assert state("job") == {"a": ("waiting", item.generation + 1)}
    assert simulator.calls() == ["DELETE /jobs/j-1"]


def test_a_task_that_changes_at_every_look_is_for_later(
    parts: Parts, begun: Begun, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun()
    monkeypatch.setattr(store, "cancel", lambda *_: Superseded(None))
    with pytest.raises(Unavailable):
        answer_of(parts, TASK)


@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_without_dynamodb_nothing_is_cancelled(
    parts: Parts, begun: Begun, state: Any, dynamodb: "DynamoDBClient", simulator: Simulator, operation: str
) -> None:
    item = begun(outputs={"id": "j-1"})
    DynamoDBOutage(dynamodb).away = {operation}
    with pytest.raises(StoreUnavailable):
        answer_of(parts, TASK)
    assert state("job") == {"a": ("waiting", item.generation)}
    assert simulator.calls() == []


def test_once_it_is_cancelled_the_answer_says_so_even_if_dynamodb_then_goes_away(
    parts: Parts,
    begun: Begun,
    store: Store,
    dynamodb: "DynamoDBClient",
    simulator: Simulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun(outputs={"id": "j-1"})
    outage, cancel = DynamoDBOutage(dynamodb), store.cancel

    def then_away(*arguments: Any) -> Item | Superseded:
        done = cancel(*arguments)
        outage.away = {"GetItem"}
        return done

    monkeypatch.setattr(store, "cancel", then_away)
    answer = answer_of(parts, TASK)
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert simulator.calls() == ["DELETE /jobs/j-1"]


def test_a_cancellation_is_one_line(parts: Parts, begun: Begun, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    item = begun(outputs={"id": "S3CRET"})
    answer_of(parts, TASK)
    answer_of(parts, TASK)
    [line] = caplog.records
    facts = {name: vars(line)[name] for name in ("message", "provider", "task", "generation")}
    assert facts == {"message": "cancelled", "provider": "job", "task": "a", "generation": item.generation}
    assert "S3CRET" not in str(vars(line))


def test_a_cancellation_whose_reply_was_lost_tells_the_provider_all_the_same(
    parts: Parts,
    begun: Begun,
    simulator: Simulator,
    dynamodb: "DynamoDBClient",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twice(**arguments: Any) -> Any:
        update(**arguments)  # whose reply was lost: botocore repeats the call
        return update(**arguments)

    begun(outputs={"id": "j-1"})
    update = dynamodb.update_item
    monkeypatch.setattr(dynamodb, "update_item", twice)
    assert answer_of(parts, TASK).status == 200
    assert simulator.calls() == ["DELETE /jobs/j-1"]
