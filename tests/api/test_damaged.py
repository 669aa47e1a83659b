"""A task whose stored item is damaged: the answer says what is wrong; its owner cancels it or begins it anew (C4)."""

import logging
from typing import Any

import pytest
from msgspec import structs

from shared.api import cancel, revive, view
from shared.api.answer import Answer, problem
from shared.api.request import TaskRequest
from shared.errors import ItemUnreadable
from shared.store import Item, Store
from shared.task import Task
from shared.work import parts
from shared.work.keeper import record_of
from tests.api.test_callback import Hook
from tests.support.api_events import rest
from tests.support.backend import Backend
from tests.support.damage import DAMAGES, SECRET, damage_item, some_damage
from tests.support.deployment import Deployment
from tests.support.front import Front
from tests.support.simulator import EXAMPLE, JOB, Simulator, pending

TASK = Task("job", "a")


@pytest.fixture
def front(backend: Backend, simulator: Simulator) -> Front:
    simulator.say(pending(id="j-2"))
    providers = {name: simulator.provider(file) for name, file in {"example": EXAMPLE, "job": JOB}.items()}
    return Front(**vars(backend), simulator=simulator, providers=providers)


def damaged(front: Front, damage: str, *, dead: bool = False) -> Item:
    """A task that waits with a job, or is a dead letter, its item damaged since."""
    item = front.begin(TASK, {"customer": 42})
    front.store.save(TASK, structs.replace(record_of(item), outputs={"id": "j-1"}), front.clock())
    front.seed("a", provider="job", generation=item.generation, due_seconds=60, dead=dead)
    front.clock.advance(60)
    damage_item(front.dynamodb_client, TASK, damage)
    return item


def problem_of(call: Any, *arguments: Any) -> Answer:
    with pytest.raises(ItemUnreadable) as caught:
        call(*arguments)
    return problem(caught.value)


@pytest.mark.promise("faults", "an item that is damaged: reported by its key, and nobody else's trouble")
@some_damage
def test_the_status_says_which_attribute_is_damaged(
    front: Front, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    damaged(front, damage)
    parts, attribute = front.parts(front.providers), DAMAGES[damage][0]
    for call in (view.status, revive.answer):
        answer = problem_of(call, parts, TASK)
        assert (answer.status, answer.content_type) == (409, "application/problem+json")
        assert answer.body["type"] == "urn:meanwhile:item-unreadable"
        assert answer.body["attribute"] == attribute
        assert "job/a" in answer.body["detail"]
        assert repr(attribute) in answer.body["detail"]
        assert SECRET not in answer.text
    assert [line.message for line in caplog.records] == ["item unreadable"] * 2
    assert {(vars(line)["task_id"], vars(line)["attribute"]) for line in caplog.records} == {("job/a", attribute)}


@pytest.mark.promise("faults", "an item that is damaged: its owner cancels it, or begins it anew")
@pytest.mark.parametrize("dead", [False, True])
@some_damage
def test_its_owner_cancels_it(front: Front, damage: str, dead: bool, caplog: pytest.LogCaptureFixture) -> None:
    item, attribute = damaged(front, damage, dead=dead), DAMAGES[damage][0]
    parts = front.parts(front.providers)
    with caplog.at_level(logging.INFO):
        answer = cancel.answer(parts, TASK)
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert front.state("job") == {}
    assert view.status(parts, TASK).body["status"] == "cancelled"
    assert cancel.answer(parts, TASK).body == answer.body
    assert answer.body["generation"] >= item.generation
    assert front.simulator.calls() == ([] if attribute == "outputs" else ["DELETE /jobs/j-1"])
    assert [line.message for line in caplog.records if line.name == "meanwhile"] == ["item unreadable", "cancelled"]


@pytest.mark.promise("faults", "an item that is damaged: its owner cancels it, or begins it anew")
@some_damage
def test_its_owner_begins_it_anew(front: Front, damage: str) -> None:
    item, attribute = damaged(front, damage), DAMAGES[damage][0]
    answer = front.ask(provider="job")
    assert (answer.status, answer.body["status"], answer.body["deduplicated"]) == (202, "pending", False)
    assert answer.body["generation"] > item.generation
    again = front.item_of(TASK)
    assert (again.status, again.outputs) == ("pending", {"id": "j-2"})
    assert again.input == ({} if attribute == "input" else {"customer": 42})
    assert front.state("job") == {"a": ("waiting", again.generation)}
    assert front.ask(provider="job").body["deduplicated"] is True


def test_the_input_that_the_request_gives_is_the_one_that_counts(front: Front) -> None:
    damaged(front, "input no JSON")
    front.ask(provider="job", input_={"customer": 43})
    assert front.item_of(TASK).input == {"customer": 43}


def test_completed_data_that_can_be_read_are_shown_until_there_are_new_ones(front: Front) -> None:
    item = front.begin(TASK)
    front.store.complete(TASK, item.generation, {"old": 1}, front.clock())
    damage_item(front.dynamodb_client, TASK, "group a map")
    assert front.ask(provider="job").body["data"]["old"] == 1


def test_in_a_batch_it_harms_no_neighbour(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged(front, "status a list")
    requests = [TaskRequest(task=Task("job", name)) for name in ("b", "a", "c")]
    assert [one["status"] for one in front.results(*requests)] == [202, 202, 202]
    damage_item(front.dynamodb_client, TASK, "status a list")
    monkeypatch.setattr(parts, "mend", Store.get)  # as if it were damaged again and again
    found = front.results(*requests)
    assert [one["status"] for one in found] == [202, 409, 202]
    assert found[1]["body"]["attribute"] == "status"


@some_damage
def test_a_callback_is_told_the_same(backend: Backend, damage: str) -> None:
    hook = Hook(**vars(backend))
    item = hook.wait()
    damage_item(hook.dynamodb_client, item.task, damage)
    answer = problem_of(hook.call, {"status": "completed", "data": 1})
    assert (answer.status, answer.body["attribute"]) == (409, DAMAGES[damage][0])
    assert hook.state().keys() == {item.task.name}


def test_the_functions_answer_so(deployed: Deployment, backend: Backend) -> None:
    task = Task("example", "a")
    deployed.enqueue(rest("POST", "/tasks", {"provider": "example", "name": "a"}))
    damage_item(backend.dynamodb_client, task, "partial cut")
    answered = deployed.enqueue(rest("GET", "/tasks/example/a"))
    assert (answered.status, answered.body["attribute"]) == (409, "partial")
    assert deployed.enqueue(rest("DELETE", "/tasks/example/a")).status == 200
    assert deployed.enqueue(rest("GET", "/tasks/example/a")).body["status"] == "cancelled"
