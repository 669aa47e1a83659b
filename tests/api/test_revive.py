"""revive begins a failed task again: stored input, new deadline, and the old job where it may still be good."""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shared.api.revive import answer as answer_of
from shared.errors import BadRequest, Conflict, NotFound, StoreUnavailable
from shared.queue import Queue
from shared.record import Record
from shared.store import Item, Store
from shared.task import Task
from shared.work.parts import Parts
from shared.work.worker import record_of
from tests.support.clock import Clock
from tests.support.keys import Bench
from tests.support.outage import DynamoDBOutage, RedisOutage
from tests.support.parts import parts_of
from tests.support.simulator import EXAMPLE, provider_at

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from redis import Redis

TASK = Task("job", "a")
LIMITED = {"limits": {"openJobs": 5}}

FailedFor = Callable[..., Item]


@pytest.fixture
def redis_kind() -> str:
    return "fakeredis"


@pytest.fixture
def parts(store: Store, queue: Queue, clock: Clock) -> Parts:
    providers = {"job": provider_at("http://127.0.0.1:1", EXAMPLE | {"limits": {"openJobs": 1}})}
    return parts_of(store, queue, providers, clock)


@pytest.fixture
def failed_for(store: Store, clock: Clock, seed: Any) -> FailedFor:
    """A task that has failed for a reason, as a dead letter, its job known."""

    def failed_for(reason: str = "upstream", *, refused: bool = False) -> Item:
        item = store.begin(TASK, None, {"customer": 42}, clock())
        assert item
        record = dataclasses.replace(
            record_of(item), outputs={"id": "j-1"}, submitted_at=clock(), resubmits=1, partial={"old": 1}
        )
        store.save(TASK, record, clock())
        store.fail(TASK, item.generation, {"reason": reason, "error": None, "refused": refused}, clock())
        if not refused:
            seed("a", provider="job", generation=item.generation, dead=True)
        clock.advance(3600)
        return item

    return failed_for


def test_a_dead_letter_becomes_the_next_generation_due_now_with_its_input_and_a_new_deadline(
    parts: Parts, failed_for: FailedFor, store: Store, queue: Queue, state: Any, clock: Clock
) -> None:
    old = failed_for()
    answer = answer_of(parts, TASK)
    assert (answer.status, answer.retry_after_seconds, answer.location) == (202, 1, TASK)
    assert (answer.body["status"], answer.body["generation"]) == ("pending", old.generation + 1)
    item = store.get(TASK, clock())
    assert item
    assert (item.status, item.input, item.error) == ("pending", {"customer": 42}, None)
    assert (item.submitted_at, item.resubmits, item.partial, item.created_at) == (None, 0, None, clock())
    assert (item.completed_at, item.expires_at) == (None, None)
    assert state("job") == {"a": ("waiting", old.generation + 1)}
    [place] = queue.look([TASK], records=True)
    assert place.due_seconds is not None
    assert place.due_seconds <= 0
    record = Record.from_text(place.record)
    assert (record.input, record.submitted_at, record.errors) == ({"customer": 42}, None, 0)


@pytest.mark.promise("ends", "a task that an outage of its provider has ended can be revived and keeps its job")
@pytest.mark.parametrize(
    ("reason", "outputs"),
    [
        ("too-many-errors", {"id": "j-1"}),
        ("crashed", {"id": "j-1"}),
        ("upstream", None),
        ("timeout", None),
        ("too-large", None),
        ("missing-output", None),
    ],
)
def test_the_job_is_kept_only_where_the_failure_says_nothing_about_it(
    parts: Parts, failed_for: FailedFor, store: Store, queue: Queue, reason: str, outputs: Any
) -> None:
    failed_for(reason)
    answer_of(parts, TASK)
    item = store.get(TASK, 0)
    assert item
    assert item.outputs == outputs
    [place] = queue.look([TASK], records=True)
    assert Record.from_text(place.record).outputs == outputs


@pytest.mark.parametrize(("reason", "jobs"), [("crashed", {"a": ""}), ("upstream", {})])
def test_a_job_that_is_kept_counts_as_open(
    parts: Parts, failed_for: FailedFor, bench: Bench, reason: str, jobs: dict[str, str]
) -> None:
    failed_for(reason)
    answer_of(parts, TASK)
    assert bench.parts("job")["jobs"] == jobs


def test_a_refusal_is_no_dead_letter_and_can_be_revived_all_the_same(
    parts: Parts, failed_for: FailedFor, state: Any
) -> None:
    old = failed_for(refused=True)
    assert answer_of(parts, TASK).status == 202
    assert state("job") == {"a": ("waiting", old.generation + 1)}


def test_stored_data_is_still_shown(parts: Parts, store: Store, clock: Clock) -> None:
    first = store.begin(TASK, None, {}, clock())
    assert first
    store.complete(TASK, first.generation, {"whole": 1}, clock())
    second = store.begin(TASK, store.get(TASK, clock()), {}, clock())
    assert second
    store.fail(TASK, second.generation, {"reason": "timeout", "error": None, "refused": False}, clock())
    assert answer_of(parts, TASK).body["data"] == {"whole": 1}


def test_an_unknown_task_is_not_found(parts: Parts) -> None:
    with pytest.raises(NotFound) as caught:
        answer_of(parts, TASK)
    assert caught.value.field == "name"


@pytest.mark.parametrize("status", ["pending", "completed", "cancelled"])
def test_only_a_failed_task_can_be_revived(parts: Parts, store: Store, clock: Clock, state: Any, status: str) -> None:
    item = store.begin(TASK, None, {}, clock())
    assert item
    if status == "completed":
        store.complete(TASK, item.generation, {}, clock())
    elif status == "cancelled":
        store.cancel(TASK, item.generation, clock())
    with pytest.raises(Conflict, match=status) as caught:
        answer_of(parts, TASK)
    assert caught.value.field == "name"
    assert state("job") == {}


def test_of_two_revivals_at_once_one_is_a_conflict(
    parts: Parts, failed_for: FailedFor, store: Store, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = failed_for()
    begin, first = store.begin, iter([True])

    def beaten(*arguments: Any, **options: Any) -> Item | None:
        if next(first, False):
            answer_of(parts, TASK)
        return begin(*arguments, **options)

    monkeypatch.setattr(store, "begin", beaten)
    with pytest.raises(Conflict, match="meanwhile"):
        answer_of(parts, TASK)
    assert state("job") == {"a": ("waiting", old.generation + 1)}


def test_without_redis_it_is_accepted_and_reconcile_queues_it(
    parts: Parts, failed_for: FailedFor, store: Store, redis_client: "Redis", state: Any
) -> None:
    old = failed_for()
    outage = RedisOutage(redis_client)
    outage.away = True
    assert answer_of(parts, TASK).status == 202
    assert len(outage.calls) == 1
    outage.away = False
    item = store.get(TASK, 0)
    assert item
    assert (item.status, item.generation) == ("pending", old.generation + 1)
    assert state("job") == {"a": ("dead", old.generation)}


@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_without_dynamodb_nothing_is_begun(
    parts: Parts, failed_for: FailedFor, state: Any, dynamodb: "DynamoDBClient", operation: str
) -> None:
    old = failed_for()
    DynamoDBOutage(dynamodb).away = {operation}
    with pytest.raises(StoreUnavailable):
        answer_of(parts, TASK)
    assert state("job") == {"a": ("dead", old.generation)}


def test_a_revival_is_one_line(parts: Parts, failed_for: FailedFor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    old = failed_for()
    answer_of(parts, TASK)
    [line] = caplog.records
    facts = {name: vars(line)[name] for name in ("message", "provider", "task", "generation")}
    assert facts == {"message": "revived", "provider": "job", "task": "a", "generation": old.generation + 1}


def test_a_task_of_a_provider_that_is_gone_is_not_begun(
    parts: Parts, store: Store, queue: Queue, clock: Clock, failed_for: FailedFor
) -> None:
    old = failed_for()
    with pytest.raises(BadRequest) as caught:
        answer_of(replace(parts, providers={}), TASK)
    assert caught.value.field == "provider"
    item = store.get(TASK, clock())
    assert item
    assert (item.status, item.generation) == ("failed", old.generation)
