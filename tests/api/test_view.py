"""The status view tells a task's state whole, with or without Redis."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from shared.api import view
from shared.api.answer import Answer
from shared.api.view import instant, merge, show
from shared.errors import NotFound, StoreUnavailable
from shared.queue import Add
from shared.record import Record
from shared.store import Item, Store
from shared.store.item import Spilled
from shared.store.spill import Link
from shared.task import Task
from shared.work.keeper import record_of
from tests.support.backend import Backend
from tests.support.clock import START_MS
from tests.support.items import pending_item
from tests.support.simulator import provider_at

TASK = Task("example", "a")
ERROR = {"reason": "upstream", "error": "no such customer", "refused": False}
ITEM = pending_item(
    TASK,
    START_MS,
    generation=7,
    updated_at=START_MS + 1500,
    input={"secret": "S3CRET"},
    outputs={"id": "S3CRET"},
    partial={"b": 3, "c": None},
    data={"a": 1, "b": 2},
)


PROVIDER = provider_at("http://127.0.0.1:1")


class Window(Backend):
    """Where a user looks at the task."""

    def status(self) -> Answer:
        """What a user sees."""
        return view.status(self.parts({"example": PROVIDER}), TASK)


@pytest.fixture
def window(backend: Backend) -> Window:
    return Window(**vars(backend))


def test_an_item_is_shown_with_stored_data_overlaid_by_the_partial_answer() -> None:
    assert show(ITEM, START_MS + 3999) == {
        "task_id": "example/a",
        "provider": "example",
        "name": "a",
        "status": "pending",
        "data": {"a": 1, "b": 3, "c": None},
        "partial": True,
        "deduplicated": False,
        "generation": 7,
        "created_at": "2025-06-15T15:06:40.000Z",
        "updated_at": "2025-06-15T15:06:41.500Z",
        "age_seconds": 3,
    }


def test_a_completed_item_is_whole_and_as_old_as_its_completion() -> None:
    done = dataclasses.replace(ITEM, status="completed", partial=None, completed_at=START_MS + 60_000)
    body = show(done, START_MS + 61_000)
    assert (body["status"], body["data"], body["partial"]) == ("completed", {"a": 1, "b": 2}, False)
    assert (body["completed_at"], body["age_seconds"]) == ("2025-06-15T15:07:40.000Z", 1)


def test_a_failed_item_says_why_it_stopped_and_still_shows_what_there_is() -> None:
    body = show(dataclasses.replace(ITEM, status="failed", error=ERROR), START_MS)
    assert body["error"] == {"reason": "upstream", "detail": "no such customer"}
    assert (body["data"], body["partial"]) == ({"a": 1, "b": 3, "c": None}, True)


def test_a_cancelled_item_is_shown_with_what_there_is() -> None:
    body = show(dataclasses.replace(ITEM, status="cancelled", completed_at=START_MS), START_MS)
    assert (body["status"], body["partial"]) == ("cancelled", True)
    assert "error" not in body


@pytest.mark.parametrize("status", ["pending", "completed", "failed", "cancelled"])
def test_input_and_outputs_are_never_shown(status: Any) -> None:
    assert "S3CRET" not in str(show(dataclasses.replace(ITEM, status=status, error=ERROR), START_MS))


def test_an_item_of_the_future_has_no_negative_age() -> None:
    assert show(ITEM, START_MS - 5000)["age_seconds"] == 0


@pytest.mark.promise("large", "what Lambda cannot carry is answered with a link that expires")
def test_a_link_stands_beside_the_data_that_it_leads_to() -> None:
    done = dataclasses.replace(ITEM, status="completed", data=Link("https://s3/x", START_MS), partial=None)
    body = show(done, START_MS)
    assert (body["data"], body["data_url"]) == (None, "https://s3/x")
    assert body["data_url_expires_at"] == instant(START_MS)


def test_while_stored_data_cannot_be_given_the_partial_answer_stands_alone() -> None:
    body = show(dataclasses.replace(ITEM, data=Link()), START_MS)
    assert (body["data"], body["data_url"]) == (ITEM.partial, None)
    assert "data_url_expires_at" not in body


def test_an_item_that_was_not_opened_cannot_be_shown() -> None:
    closed = dataclasses.replace(ITEM, data=Spilled("key", "digest", 1, 1, 0), partial=None)
    with pytest.raises(TypeError, match="Spilled"):
        Answer(status=200, body=show(closed, START_MS))


def test_an_instant_is_rfc_3339_in_utc_to_the_millisecond() -> None:
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    assert instant(START_MS + 7.5) == "2025-06-15T15:06:40.007Z"


def test_an_unknown_task_is_not_found(window: Window) -> None:
    with pytest.raises(NotFound) as caught:
        window.status()
    assert caught.value.field == "name"


def test_a_waiting_task_says_when_it_is_looked_at_next_and_how_it_went_so_far(window: Window) -> None:
    item = window.begin(TASK)
    record = structs.replace(record_of(item), attempts=4, errors=2, progress=0.5, reason="http")
    window.queue.add([Add(TASK, item.generation, record.to_text(), 60)], token="mine")
    answer = window.status()
    assert answer.status == 200
    assert answer.body["schedule"] == "waiting"
    assert instant(window.clock() + 50_000) < answer.body["next_attempt_at"] <= instant(window.clock() + 60_000)
    told = {name: answer.body[name] for name in ("attempts", "errors", "progress", "reason")}
    assert told == {"attempts": 4, "errors": 2, "progress": 0.5, "reason": "http"}


def test_an_etag_changes_with_what_happens_and_not_with_time(window: Window, rewind: Callable[[float], None]) -> None:
    item = window.begin(TASK)
    window.queue.add([Add(TASK, item.generation, record_of(item).to_text(), 60)], token="mine")
    waiting = window.status()
    assert waiting.etag
    window.clock.advance(10)
    rewind(20)
    later = window.status()
    assert (later.etag, later.body == waiting.body) == (waiting.etag, False)
    rewind(60)
    window.queue.claim("example", limit=1, lease_seconds=30, token="t")
    processing = window.status()
    window.store.complete(TASK, item.generation, {"a": 2}, window.clock())
    completed = window.status()
    assert len({waiting.etag, processing.etag, completed.etag}) == 3


def test_a_task_being_processed_says_so(window: Window) -> None:
    item = window.begin(TASK)
    window.queue.add([Add(TASK, item.generation, record_of(item).to_text())], token="mine", lease_seconds=30)
    body = window.status().body
    assert (body["schedule"], body["attempts"]) == ("processing", 0)
    assert "next_attempt_at" not in body


def test_a_pending_task_that_redis_has_lost_is_said_to_be_lost(window: Window) -> None:
    window.begin(TASK)
    assert window.status().body["schedule"] == "lost"


@pytest.mark.parametrize("ahead", [-1, 1])
def test_another_generation_in_redis_tells_nothing_of_this_one(window: Window, ahead: int) -> None:
    window.seed("a", generation=window.begin(TASK).generation + ahead, due_seconds=60)
    assert window.status().body["schedule"] == "lost"


@pytest.mark.junk
def test_a_junk_record_hides_the_progress_and_nothing_else(window: Window) -> None:
    window.seed("a", generation=window.begin(TASK).generation, due_seconds=60, record="junk")
    body = window.status().body
    assert body["schedule"] == "waiting"
    assert "attempts" not in body


def test_a_failed_task_among_the_dead_letters_says_so(window: Window) -> None:
    item = window.begin(TASK)
    window.store.fail(TASK, item.generation, ERROR, window.clock())
    assert "schedule" not in window.status().body
    window.seed("a", generation=item.generation, dead=True)
    body = window.status().body
    assert (body["status"], body["schedule"], body["error"]["reason"]) == ("failed", "dead letter", "upstream")


def end(store: Store, item: Item, status: str, now: int) -> None:
    match status:
        case "completed":
            store.complete(TASK, item.generation, {}, now)
        case "cancelled":
            store.cancel(TASK, item.generation, now)
        case "failed":
            store.fail(TASK, item.generation, ERROR, now)


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_what_has_ended_for_good_costs_no_look_at_redis(window: Window, status: str) -> None:
    end(window.store, window.begin(TASK), status, window.clock())
    answer = window.status()
    assert (answer.status, answer.body["status"]) == (200, status)
    assert "schedule" not in answer.body
    assert window.redis.calls == []


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_without_redis_the_schedule_is_unknown_and_the_rest_is_told(window: Window, status: str) -> None:
    end(window.store, window.begin(TASK), status, window.clock())
    window.redis.away = True
    answer = window.status()
    assert len(window.redis.calls) == 1
    window.redis.away = False
    assert (answer.status, answer.body["status"], answer.body["schedule"]) == (200, status, "unknown")


def test_without_dynamodb_nothing_is_known(window: Window) -> None:
    window.begin(TASK)
    window.dynamodb.away = {"GetItem"}
    with pytest.raises(StoreUnavailable):
        window.status()


def test_an_expired_item_is_as_unknown_as_none(window: Window) -> None:
    window.store.complete(TASK, window.begin(TASK).generation, {}, window.clock())
    window.clock.advance(31 * 86400)
    with pytest.raises(NotFound):
        window.status()


def test_a_record_need_not_know_everything_to_be_shown(window: Window) -> None:
    item = window.begin(TASK)
    record = Record(generation=item.generation, created_at=0, input={})
    window.seed("a", generation=item.generation, due_seconds=60, record=record.to_text())
    body = window.status().body
    assert (body["attempts"], body["progress"], body["reason"]) == (0, None, None)


@pytest.mark.parametrize(
    ("stored", "partial", "shown"),
    [
        (None, None, None), (None, {"a": 1}, {"a": 1}), ({"a": 1}, None, {"a": 1}),
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}), ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": {"x": 1}}, {"a": {"x": None, "y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"x": 1}}, {"a": [1]}, {"a": [1]}), ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}), ({"a": 1}, {"a": 0}, {"a": 0}), ({"a": 1}, {"a": ""}, {"a": ""}),
        ({"a": 1}, {"a": False}, {"a": False}), ([1, 2], {"a": 1}, {"a": 1}), ({"a": 1}, [], []),
        ({"a": 1}, "text", "text"), ({}, {"a": None}, {"a": None}),
    ],
)  # fmt: skip
def test_objects_merge_key_by_key_null_never_overwrites_anything_else_replaces(
    stored: Any, partial: Any, shown: Any
) -> None:
    assert merge(stored, partial) == shown


def test_neither_side_is_changed() -> None:
    stored, partial = {"a": {"x": 1}}, {"a": {"y": 2}}
    assert merge(stored, partial) == {"a": {"x": 1, "y": 2}}
    assert (stored, partial) == ({"a": {"x": 1}}, {"a": {"y": 2}})
