"""revive begins a failed task again: stored input, new deadline, and the old job where it may still be good."""

import logging
from typing import Any

import pytest
from msgspec import structs

from shared.api import revive
from shared.api.answer import Answer
from shared.errors import BadRequest, Conflict, NotFound, StoreUnavailable
from shared.provider import Provider
from shared.record import Record
from shared.store import Item
from shared.task import Task
from shared.work.keeper import record_of
from tests.support.backend import Backend
from tests.support.redis_servers import ALONE_AND_CLUSTER
from tests.support.simulator import EXAMPLE, provider_at
from tests.support.waker import Waker

TASK = Task("job", "a")
PROVIDERS = {"job": provider_at("http://127.0.0.1:1", EXAMPLE | {"limits": {"openJobs": 1}})}


class Surgery(Backend):
    """Where failed tasks are revived."""

    def revive(self, providers: dict[str, Provider] = PROVIDERS) -> Answer:
        """A user revives the task."""
        return revive.answer(self.parts(providers), TASK)

    def failed_for(self, reason: str = "upstream", *, refused: bool = False) -> Item:
        """A task that has failed for a reason, as a dead letter, its job known."""
        item = self.begin(TASK, {"customer": 42})
        known: dict[str, Any] = {"outputs": {"id": "j-1"}, "submitted_at": self.clock(), "partial": {"old": 1}}
        self.store.save(TASK, structs.replace(record_of(item), resubmits=1, **known), self.clock())
        self.store.fail(TASK, item.generation, {"reason": reason, "error": None, "refused": refused}, self.clock())
        if not refused:
            self.seed("a", provider="job", generation=item.generation, dead=True)
        self.clock.advance(3600)
        return item


@pytest.fixture(params=ALONE_AND_CLUSTER)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """A cluster of several nodes too."""
    kind: str = request.param
    return kind


@pytest.fixture
def surgery(backend: Backend) -> Surgery:
    backend.queue._wake = Waker(lambda *_: None)
    return Surgery(**vars(backend))


def test_a_dead_letter_becomes_the_next_generation_due_now_with_its_input_and_a_new_deadline(surgery: Surgery) -> None:
    old = surgery.failed_for()
    answer = surgery.revive()
    assert (answer.status, answer.retry_after_seconds, answer.location) == (202, 1, TASK)
    assert (answer.body["status"], answer.body["generation"]) == ("pending", old.generation + 1)
    item = surgery.item_of(TASK)
    assert (item.status, item.input, item.error) == ("pending", {"customer": 42}, None)
    assert (item.submitted_at, item.resubmits, item.partial, item.created_at) == (None, 0, None, surgery.clock())
    assert (item.completed_at, item.expires_at) == (None, None)
    assert surgery.state("job") == {"a": ("waiting", old.generation + 1)}
    [place] = surgery.queue.look([TASK], records=True)
    assert place.due_seconds is not None
    assert place.due_seconds <= 0
    record = Record.from_text(place.record)
    assert (record.input, record.submitted_at, record.errors) == ({"customer": 42}, None, 0)


@pytest.mark.promise("ends", "a task that an outage of its provider has ended can be revived and keeps its job")
@pytest.mark.parametrize(
    ("reason", "outputs"),
    [
        ("too-many-errors", {"id": "j-1"}), ("crashed", {"id": "j-1"}), ("upstream", None), ("timeout", None),
        ("too-large", None), ("missing-output", None),
    ],
)  # fmt: skip
def test_the_job_is_kept_only_where_the_failure_says_nothing_about_it(
    surgery: Surgery, reason: str, outputs: Any
) -> None:
    surgery.failed_for(reason)
    surgery.revive()
    item = surgery.item_of(TASK)
    assert item.outputs == outputs
    [place] = surgery.queue.look([TASK], records=True)
    assert Record.from_text(place.record).outputs == outputs


@pytest.mark.parametrize(("reason", "jobs"), [("crashed", {"a": ""}), ("upstream", {})])
def test_a_job_that_is_kept_counts_as_open(surgery: Surgery, reason: str, jobs: dict[str, str]) -> None:
    surgery.failed_for(reason)
    surgery.revive()
    assert surgery.bench.parts("job")["jobs"] == jobs


def test_a_refusal_is_no_dead_letter_and_can_be_revived_all_the_same(surgery: Surgery) -> None:
    old = surgery.failed_for(refused=True)
    assert surgery.revive().status == 202
    assert surgery.state("job") == {"a": ("waiting", old.generation + 1)}


def test_stored_data_is_still_shown(surgery: Surgery) -> None:
    first = surgery.begin(TASK)
    surgery.store.complete(TASK, first.generation, {"whole": 1}, surgery.clock())
    second = surgery.begin(TASK)
    surgery.store.fail(TASK, second.generation, {"reason": "timeout", "error": None, "refused": False}, surgery.clock())
    assert surgery.revive().body["data"] == {"whole": 1}


def test_an_unknown_task_is_not_found(surgery: Surgery) -> None:
    with pytest.raises(NotFound) as caught:
        surgery.revive()
    assert caught.value.field == "name"


@pytest.mark.parametrize("status", ["pending", "completed", "cancelled"])
def test_only_a_failed_task_can_be_revived(surgery: Surgery, status: str) -> None:
    item = surgery.begin(TASK)
    if status == "completed":
        surgery.store.complete(TASK, item.generation, {}, surgery.clock())
    elif status == "cancelled":
        surgery.store.cancel(TASK, item.generation, surgery.clock())
    with pytest.raises(Conflict, match=status) as caught:
        surgery.revive()
    assert caught.value.field == "name"
    assert surgery.state("job") == {}


def test_of_two_revivals_at_once_one_is_a_conflict(surgery: Surgery) -> None:
    old = surgery.failed_for()
    surgery.meanwhile(surgery.store, "begin", before=surgery.revive)
    with pytest.raises(Conflict, match="meanwhile"):
        surgery.revive()
    assert surgery.state("job") == {"a": ("waiting", old.generation + 1)}


def test_without_redis_it_is_accepted_and_reconcile_queues_it(surgery: Surgery) -> None:
    old = surgery.failed_for()
    surgery.redis.away = True
    assert surgery.revive().status == 202
    assert len(surgery.redis.calls) == 1
    surgery.redis.away = False
    item = surgery.item_of(TASK)
    assert (item.status, item.generation) == ("pending", old.generation + 1)
    assert surgery.state("job") == {"a": ("dead", old.generation)}


@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_without_dynamodb_nothing_is_begun(surgery: Surgery, operation: str) -> None:
    old = surgery.failed_for()
    surgery.dynamodb.away = {operation}
    with pytest.raises(StoreUnavailable):
        surgery.revive()
    assert surgery.state("job") == {"a": ("dead", old.generation)}


def test_a_revival_is_one_line(surgery: Surgery, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    old = surgery.failed_for()
    surgery.revive()
    [line] = caplog.records
    facts = {name: vars(line)[name] for name in ("message", "provider", "task", "generation")}
    assert facts == {"message": "revived", "provider": "job", "task": "a", "generation": old.generation + 1}


def test_a_task_of_a_provider_that_is_gone_is_not_begun(surgery: Surgery) -> None:
    old = surgery.failed_for()
    with pytest.raises(BadRequest) as caught:
        surgery.revive(providers={})
    assert caught.value.field == "provider"
    item = surgery.item_of(TASK)
    assert (item.status, item.generation) == ("failed", old.generation)
