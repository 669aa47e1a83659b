"""cancel ends a task in the item first, then in Redis, and tells the provider if it can."""

import logging
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from shared.api import cancel
from shared.api.answer import Answer
from shared.errors import Conflict, NotFound, StoreUnavailable, Unavailable
from shared.queue import Add
from shared.store import Item, Superseded
from shared.task import Task
from shared.work.keeper import record_of
from tests.support.backend import Backend
from tests.support.redis_servers import ALONE_AND_CLUSTER
from tests.support.simulator import BROKEN, EXAMPLE, JOB, Simulator, says

TASK = Task("job", "a")


class Office(Backend):
    """Where tasks are cancelled; the provider agrees to every cancellation."""

    simulator: Simulator

    def cancel(self, task: Task = TASK) -> Answer:
        """A user cancels the task."""
        providers = {"job": self.simulator.provider(JOB), "example": self.simulator.provider(EXAMPLE)}
        return cancel.answer(self.parts(providers), task)

    def begun(self, task: Task = TASK, *, outputs: dict[str, Any] | None = None) -> Item:
        """Begins a task and puts it into the queue; with outputs, it has a job."""
        item = self.begin(task)
        record = structs.replace(record_of(item), outputs=outputs, partial={"a": 1})
        self.store.save(task, record, self.clock())
        self.queue.add([Add(task, item.generation, record.to_text(), 60)], token="mine")
        return item

    def status(self, task: Task = TASK) -> str | None:
        item = self.store.get(task, 0)
        return item.status if item else None


@pytest.fixture(params=ALONE_AND_CLUSTER)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """A cluster of several nodes too."""
    kind: str = request.param
    return kind


@pytest.fixture
def office(backend: Backend, simulator: Simulator) -> Office:
    simulator.say(says(204, None))
    office = Office(**vars(backend))
    office.simulator = simulator
    return office


def test_an_open_task_is_cancelled_everywhere(office: Office) -> None:
    office.begun(outputs={"id": "j-1"})
    answer = office.cancel()
    assert (answer.status, answer.body["status"], answer.body["data"]) == (200, "cancelled", {"a": 1})
    assert answer.body["completed_at"]
    assert office.status() == "cancelled"
    assert office.state("job") == {}
    assert office.simulator.calls() == ["DELETE /jobs/j-1"]


def test_it_may_be_repeated_and_the_provider_is_told_once(office: Office) -> None:
    office.begun(outputs={"id": "j-1"})
    first, second = office.cancel(), office.cancel()
    assert (second.status, second.body) == (200, first.body)
    assert office.simulator.calls() == ["DELETE /jobs/j-1"]


def test_a_repetition_makes_up_for_a_redis_that_was_away(office: Office) -> None:
    office.begun()
    office.redis.away = True
    assert office.cancel().body["status"] == "cancelled"
    assert len(office.redis.calls) == 1
    office.redis.away = False
    assert office.state("job") != {}
    office.cancel()
    assert office.state("job") == {}


def test_an_unknown_task_is_not_found(office: Office) -> None:
    with pytest.raises(NotFound) as caught:
        office.cancel()
    assert caught.value.field == "name"


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_what_has_ended_already_is_a_conflict(office: Office, status: str) -> None:
    item = office.begun(outputs={"id": "j-1"})
    if status == "completed":
        office.store.complete(TASK, item.generation, {}, office.clock())
    else:
        office.store.fail(
            TASK, item.generation, {"reason": "upstream", "error": None, "refused": False}, office.clock()
        )
    with pytest.raises(Conflict, match=status):
        office.cancel()
    assert office.status() == status
    assert office.simulator.calls() == []


@pytest.mark.promise(
    "once", "a cancelled task stays cancelled, and a worker that was asking just then tells the provider"
)
def test_the_item_comes_first_so_that_a_worker_in_between_finds_it_cancelled(office: Office) -> None:
    office.begun()
    seen: list[str | None] = []
    office.patch.setattr(office.queue, "end", lambda *_: seen.append(office.status()))
    office.cancel()
    assert seen == ["cancelled"]


@pytest.mark.promise("limits", "a cancelled job counts as open until the provider was told")
def test_the_jobs_place_is_free_only_once_the_provider_was_told(office: Office) -> None:
    office.begun(outputs={"id": "j-1"})
    told: list[list[str]] = []
    office.patch.setattr(office.queue, "end", lambda *_: told.append(office.simulator.calls()))
    office.cancel()
    assert told == [["DELETE /jobs/j-1"]]


@pytest.mark.parametrize("task", [TASK, Task("example", "a")])
def test_a_provider_without_a_job_or_without_that_operation_is_told_nothing(office: Office, task: Task) -> None:
    office.begun(task, outputs=None if task == TASK else {"id": "j-1"})
    assert office.cancel(task).status == 200
    assert office.simulator.calls() == []


def test_a_provider_that_does_not_answer_changes_nothing(office: Office) -> None:
    office.begun(outputs={"id": "j-1"})
    office.simulator.say(BROKEN)
    assert office.cancel().body["status"] == "cancelled"


def test_a_task_of_a_provider_whose_file_is_gone_can_be_cancelled(office: Office) -> None:
    gone = Task("gone", "a")
    office.begun(gone, outputs={"id": "j-1"})
    assert office.cancel(gone).status == 200
    assert office.status(gone) == "cancelled"


def test_a_job_that_a_worker_has_just_stored_is_cancelled_too(office: Office) -> None:
    item = office.begun()
    stored = structs.replace(record_of(item), outputs={"id": "j-2"})
    office.meanwhile(office.store, "cancel", before=lambda: office.store.save(TASK, stored, office.clock()))
    office.cancel()
    assert office.simulator.calls() == ["DELETE /jobs/j-2"]


def test_a_task_that_completes_in_between_is_a_conflict(office: Office) -> None:
    item = office.begun()
    completes = partial(office.store.complete, TASK, item.generation, {"whole": 1}, office.clock())
    office.meanwhile(office.store, "cancel", before=completes)
    with pytest.raises(Conflict):
        office.cancel()
    assert office.status() == "completed"


def test_a_generation_begun_in_between_is_cancelled_in_its_place(office: Office) -> None:
    item = office.begun()

    def cancelled_and_begun_again() -> None:
        office.store.cancel(TASK, item.generation, office.clock())
        office.begun()

    office.meanwhile(office.store, "cancel", before=cancelled_and_begun_again)
    answer = office.cancel()
    assert (answer.body["status"], answer.body["generation"]) == ("cancelled", item.generation + 1)
    assert office.state("job") == {}


def test_a_generation_that_begins_before_the_cancelled_one_is_forgotten_stays(office: Office) -> None:
    first = office.begun()
    office.meanwhile(office.queue, "end", before=office.begun)
    assert office.cancel().body["status"] == "cancelled"
    assert office.state("job") == {"a": ("waiting", first.generation + 1)}


def test_a_generation_begun_just_after_is_left_alone_and_not_shown(office: Office) -> None:
    item = office.begun(outputs={"id": "j-1"})
    office.meanwhile(office.queue, "end", after=lambda: office.begun(outputs={"id": "j-2"}))
    answer = office.cancel()
    assert (answer.body["status"], answer.body["generation"]) == ("cancelled", item.generation)
    assert office.state("job") == {"a": ("waiting", item.generation + 1)}
    assert office.simulator.calls() == ["DELETE /jobs/j-1"]


def test_a_task_that_changes_at_every_look_is_for_later(office: Office) -> None:
    office.begun()
    office.patch.setattr(office.store, "cancel", lambda *_: Superseded(None))
    with pytest.raises(Unavailable):
        office.cancel()


@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_without_dynamodb_nothing_is_cancelled(office: Office, operation: str) -> None:
    item = office.begun(outputs={"id": "j-1"})
    office.dynamodb.away = {operation}
    with pytest.raises(StoreUnavailable):
        office.cancel()
    assert office.state("job") == {"a": ("waiting", item.generation)}
    assert office.simulator.calls() == []


def test_once_it_is_cancelled_the_answer_says_so_even_if_dynamodb_then_goes_away(office: Office) -> None:
    office.begun(outputs={"id": "j-1"})
    office.meanwhile(office.store, "cancel", after=lambda: setattr(office.dynamodb, "away", {"GetItem"}))
    answer = office.cancel()
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert office.simulator.calls() == ["DELETE /jobs/j-1"]


def test_a_cancellation_is_one_line(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    item = office.begun(outputs={"id": "S3CRET"})
    office.cancel()
    office.cancel()
    [line] = caplog.records
    facts = {name: vars(line)[name] for name in ("message", "provider", "task", "generation")}
    assert facts == {"message": "cancelled", "provider": "job", "task": "a", "generation": item.generation}
    assert "S3CRET" not in str(vars(line))


def test_a_cancellation_whose_reply_was_lost_tells_the_provider_all_the_same(office: Office) -> None:
    def twice(**arguments: Any) -> Any:
        update(**arguments)  # whose reply was lost: botocore repeats the call
        return update(**arguments)

    office.begun(outputs={"id": "j-1"})
    update = office.dynamodb_client.update_item
    office.patch.setattr(office.dynamodb_client, "update_item", twice)
    assert office.cancel().status == 200
    assert office.simulator.calls() == ["DELETE /jobs/j-1"]
