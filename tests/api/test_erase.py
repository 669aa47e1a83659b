"""erase leaves of a task that there was one: nothing in its item, in S3, in Redis, and nothing comes back."""

import hashlib
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from msgspec import structs

from shared.api import erase, revive, view
from shared.api.answer import Answer
from shared.errors import Conflict, NotFound, StoreUnavailable, Unavailable
from shared.queue import Add, End
from shared.store import Holder, Item, Store, Superseded, Table
from shared.store.spill import Spill
from shared.task import Task
from shared.work.keeper import record_of
from tests.conftest import BUCKET, RETENTION_SECONDS, TABLE
from tests.support.backend import Backend
from tests.support.damage import damage_item, some_damage
from tests.support.keys import key_of
from tests.support.simulator import BROKEN, JOB, Simulator, says

TASK = Task("job", "a")
SECRET = "S3CRET"
"""Stands in all that these tasks hold."""
LARGE = {"rows": SECRET, "noise": random.Random(1).randbytes(9000).hex()}
TOMBSTONE = {
    "task_id", "status", "generation", "created_at", "updated_at", "completed_at", "expires_at", "erased_at",
    "input", "input_digest",
}  # fmt: skip


class Registry(Backend):
    """Where tasks are erased, large data in S3; the provider agrees to every cancellation."""

    simulator: Simulator
    s3: Any

    def erase(self, task: Task = TASK) -> Answer:
        return erase.answer(self.all(), task)

    def all(self) -> Any:
        return self.parts({"job": self.simulator.provider(JOB)})

    def begun(self, task: Task = TASK) -> Item:
        """A task in the queue, which has a job, partial data, a group and a workflow that waits."""
        seen = self.store.get(task, self.clock())
        item = self.store.begin(task, seen, {"q": SECRET}, self.clock(), group=SECRET, notify=f"kind:{SECRET}")
        assert item
        record = structs.replace(record_of(item), outputs={"id": SECRET}, partial={"a": SECRET}, progress=SECRET)
        self.store.save(task, record, self.clock(), by=Holder(1, "12345678"))
        self.queue.add([Add(task, item.generation, record.to_text(), 60, SECRET, has_job=True)], token="mine")
        return item

    def completed(self, data: Any = LARGE, task: Task = TASK) -> Item:
        item = self.begun(task)
        self.store.complete(task, item.generation, data, self.clock())
        return self.item_of(task)

    def failed(self, reason: str = "upstream") -> Item:
        item = self.begun()
        error = {"reason": reason, "error": SECRET, "refused": False}
        self.store.fail(TASK, item.generation, error, self.clock())
        return self.item_of(TASK)

    def raw(self, task: Task = TASK) -> dict[str, Any]:
        found = self.dynamodb_client.get_item(TableName=TABLE, Key={"task_id": {"S": task.id}})
        return dict(found.get("Item", {}))

    def objects(self) -> list[str]:
        return [one["Key"] for one in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]

    def put(self, key: str) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=SECRET.encode())

    def assert_nothing_is_left(self, task: Task = TASK) -> None:
        assert set(self.raw(task)) <= TOMBSTONE
        with self.redis.unseen():
            there = f"{self.raw(task)} {self.objects()} {self.bench.keys.dump()}"
        assert SECRET not in there
        assert f"'{task.name}'" not in there  # a member of any key
        assert f"\\x00{task.name}'" not in there
        assert self.objects() == []


@pytest.fixture
def registry(backend: Backend, simulator: Simulator, s3: Any) -> Registry:
    simulator.say(says(204, None))
    spill = Spill(lambda: s3, BUCKET, spill_bytes=4096, days=90)
    store = Store(Table(backend.dynamodb_client, TABLE), RETENTION_SECONDS, spill)
    registry = Registry(**vars(backend) | {"store": store})
    registry.simulator, registry.s3 = simulator, s3
    return registry


def open_(registry: Registry) -> None:
    registry.begun()


def completed(registry: Registry) -> None:
    registry.completed()


def in_process(registry: Registry) -> None:
    item = registry.begun()
    registry.pass_(61)
    (claimed,) = registry.queue.claim("job", limit=1, lease_seconds=30, token="worker").tasks
    assert claimed.hold.generation == item.generation


def begun_again(registry: Registry) -> None:
    registry.completed()
    registry.begun()


def failed(registry: Registry) -> None:
    registry.queue.end([End(TASK, registry.failed().generation, "buried")])


def cancelled(registry: Registry) -> None:
    registry.store.cancel(TASK, registry.begun().generation, registry.clock())


def expired(registry: Registry) -> None:
    registry.completed()
    registry.clock.advance(RETENTION_SECONDS + 1)
    assert registry.store.get(TASK, registry.clock()) is None


def by_a_later_release(registry: Registry) -> None:
    """With an attribute of which this one knows nothing."""
    registry.completed({"small": SECRET})
    registry.dynamodb_client.put_item(TableName=TABLE, Item=registry.raw() | {"more of it": {"S": SECRET}})


STATES = [open_, in_process, completed, begun_again, failed, cancelled, expired, by_a_later_release]
in_every_state = pytest.mark.parametrize("state", STATES)


@in_every_state
def test_nothing_is_left_but_that_there_was_a_task(registry: Registry, state: Callable[[Registry], None]) -> None:
    state(registry)
    registry.bench.keys.write(key_of("job", "gate"), "probe", "a")
    generation = registry.raw()["generation"]["N"]
    answer = registry.erase()
    assert (answer.status, answer.body["status"], answer.body["data"]) == (200, "cancelled", None)
    assert str(answer.body["generation"]) == generation
    assert answer.body["erased_at"] == view.instant(registry.clock())
    assert set(registry.raw()) == TOMBSTONE
    registry.assert_nothing_is_left()
    assert view.status(registry.all(), TASK).body == answer.body


@some_damage
def test_a_damaged_item_is_erased_whatever_stands_there(registry: Registry, damage: str) -> None:
    registry.begun()
    damage_item(registry.dynamodb_client, TASK, damage)
    assert registry.erase().body["erased_at"]
    registry.assert_nothing_is_left()
    assert registry.item_of(TASK).status == "cancelled"


@in_every_state
def test_it_may_be_repeated(registry: Registry, state: Callable[[Registry], None]) -> None:
    state(registry)
    first = registry.erase()
    told = registry.simulator.calls()
    registry.clock.advance(5)
    second = registry.erase()
    ages = {"age_seconds": 0}
    assert (second.status, second.body | ages) == (200, first.body | ages)
    assert registry.simulator.calls() == told


@pytest.mark.parametrize("state", [open_, in_process, begun_again])
def test_the_provider_of_an_open_task_is_told_once(registry: Registry, state: Callable[[Registry], None]) -> None:
    state(registry)
    registry.erase()
    registry.erase()
    assert registry.simulator.calls() == [f"DELETE /jobs/{SECRET}"]


@pytest.mark.parametrize(
    ("reason", "calls"), [("too-many-errors", [f"DELETE /jobs/{SECRET}"]), ("crashed", [f"DELETE /jobs/{SECRET}"]),
                          ("upstream", []), ("timeout", [])],
)  # fmt: skip
def test_so_is_that_of_a_failed_one_whose_job_may_go_on(registry: Registry, reason: str, calls: list[str]) -> None:
    """Nobody could stop that later: its outputs are gone."""
    registry.failed(reason)
    registry.erase()
    assert registry.simulator.calls() == calls


def test_a_provider_that_does_not_answer_stops_nothing(registry: Registry) -> None:
    registry.begun()
    registry.simulator.say(BROKEN)
    assert registry.erase().body["erased_at"]
    registry.assert_nothing_is_left()


def test_a_task_of_a_provider_whose_file_is_gone_is_erased(registry: Registry) -> None:
    gone = Task("gone", "a")
    registry.begun(gone)
    assert registry.erase(gone).body["erased_at"]
    registry.assert_nothing_is_left(gone)


# --- unknown tasks


def test_an_unknown_task_is_not_found(registry: Registry) -> None:
    with pytest.raises(NotFound) as caught:
        registry.erase()
    assert caught.value.field == "name"
    assert registry.raw() == {}


def test_what_outlived_its_item_goes_too(registry: Registry) -> None:
    """DynamoDB has deleted the item, and the bucket's lifecycle comes later."""
    registry.completed()
    registry.dynamodb_client.delete_item(TableName=TABLE, Key={"task_id": {"S": TASK.id}})
    registry.clock.advance(1)
    with pytest.raises(NotFound):
        registry.erase()
    registry.assert_nothing_is_left()


# --- steps that fail


def s3_is_away(registry: Registry, operation: str) -> Callable[[], None]:
    def away(**_: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")

    registry.s3.meta.events.register(f"before-call.s3.{operation}", away, unique_id=operation)
    return lambda: registry.s3.meta.events.unregister(f"before-call.s3.{operation}", unique_id=operation)


def dynamodb_is_away(registry: Registry, operation: str) -> Callable[[], None]:
    registry.dynamodb.away = {operation}
    return lambda: setattr(registry.dynamodb, "away", set())


def redis_is_away(registry: Registry, _: str) -> Callable[[], None]:
    registry.redis.away = True
    return lambda: setattr(registry.redis, "away", False)


STEPS = [
    (dynamodb_is_away, "GetItem"), (dynamodb_is_away, "PutItem"), (s3_is_away, "ListObjectsV2"),
    (s3_is_away, "DeleteObjects"), (redis_is_away, "end"), (dynamodb_is_away, "UpdateItem"),
]  # fmt: skip


@pytest.mark.promise("faults", "each step of an erasure failing: it is told, and a repetition does the rest")
@pytest.mark.parametrize("state", [begun_again, failed])
@pytest.mark.parametrize(("goes_away", "step"), STEPS, ids=[step for _, step in STEPS])
def test_a_step_that_fails_is_told_and_a_repetition_does_the_rest(
    registry: Registry, state: Callable[[Registry], None], goes_away: Any, step: str
) -> None:
    state(registry)
    registry.put(f"job/{hashlib.sha256(b'a').hexdigest()}/7/data-7")
    comes_back = goes_away(registry, step)
    with pytest.raises(Unavailable) as caught:
        registry.erase()
    assert (caught.value.status, caught.value.retry_after_seconds) == (503, 5)
    comes_back()
    assert "erased_at" not in registry.raw()  # it is not said while it is not so
    assert registry.erase().body["erased_at"]
    registry.assert_nothing_is_left()


def test_an_object_that_s3_does_not_delete_is_no_success(registry: Registry) -> None:
    registry.completed()
    refused = {"Errors": [{"Key": "k", "Code": "AccessDenied", "Message": ""}]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry.s3, "delete_objects", lambda **_: refused)
        with pytest.raises(Unavailable):
            registry.erase()
    assert "erased_at" not in registry.raw()


def test_a_write_whose_reply_was_lost_tells_the_provider_all_the_same(registry: Registry) -> None:
    def twice(**arguments: Any) -> Any:
        put(**arguments)  # whose reply was lost: botocore repeats the call
        return put(**arguments)

    registry.begun()
    put = registry.dynamodb_client.put_item
    registry.patch.setattr(registry.dynamodb_client, "put_item", twice)
    assert registry.erase().status == 200
    assert registry.simulator.calls() == [f"DELETE /jobs/{SECRET}"]


def test_a_task_that_changes_at_every_look_is_for_later(registry: Registry) -> None:
    registry.begun()
    registry.patch.setattr(registry.store.table, "put", lambda *_: None)
    with pytest.raises(Unavailable):
        registry.erase()


def test_a_job_that_a_worker_has_just_stored_is_cancelled_too(registry: Registry) -> None:
    item = registry.begin(TASK)
    stored = structs.replace(record_of(item), outputs={"id": SECRET})
    registry.meanwhile(registry.store.table, "put", before=lambda: registry.store.save(TASK, stored, registry.clock()))
    registry.erase()
    assert registry.simulator.calls() == [f"DELETE /jobs/{SECRET}"]
    registry.assert_nothing_is_left()


def test_a_task_that_completes_in_between_is_erased_as_it_is_then(registry: Registry) -> None:
    item = registry.begun()
    completes = lambda: registry.store.complete(TASK, item.generation, LARGE, registry.clock())  # noqa: E731
    registry.meanwhile(registry.store.table, "put", before=completes)
    assert registry.erase().body["erased_at"]
    assert registry.simulator.calls() == []
    registry.assert_nothing_is_left()


# --- nothing comes back


@pytest.mark.promise("once", "what was erased does not come back: whoever still works on the task stores nothing")
def test_whoever_still_works_on_it_stores_nothing(registry: Registry) -> None:
    item = registry.begun()
    record = structs.replace(record_of(item), partial={"b": SECRET}, outputs={"id": SECRET})
    registry.erase()
    store, now, generation = registry.store, registry.clock(), item.generation
    error = {"reason": "upstream", "error": SECRET, "refused": False}
    by = Holder(9, "87654321")
    late: dict[str, Any] = {
        "save": store.save(TASK, record, now), "learn": store.learn(TASK, record, now),
        "take_over": store.take_over(TASK, generation, by, 1), "finished": store.finished(TASK, generation, by),
        "complete": store.complete(TASK, generation, {"small": SECRET}, now),
        "fail": store.fail(TASK, generation, error, now), "notify": store.notify(TASK, generation, f"kind:{SECRET}"),
    }  # fmt: skip
    assert {verb: type(done) for verb, done in late.items()} == dict.fromkeys(late, Superseded)
    registry.assert_nothing_is_left()


def test_an_object_that_came_late_is_nobodys_and_goes_with_a_repetition(registry: Registry) -> None:
    item = registry.begun()
    registry.erase()
    assert isinstance(registry.store.complete(TASK, item.generation, LARGE, registry.clock()), Superseded)
    assert len(registry.objects()) == 1
    assert view.status(registry.all(), TASK).body["data"] is None
    registry.erase()
    registry.assert_nothing_is_left()


@pytest.mark.parametrize("state", [completed, failed, cancelled])
@pytest.mark.parametrize("later_ms", [0, 1])
def test_who_has_seen_what_it_was_begins_nothing_with_it(
    registry: Registry, state: Callable[[Registry], None], later_ms: int
) -> None:
    """A request without input begins a task again with the stored one, which was read before."""
    state(registry)
    seen = registry.item_of(TASK)
    registry.clock.advance(later_ms / 1000)
    registry.erase()
    assert registry.store.begin(TASK, seen, seen.input, registry.clock(), group=seen.group, keep_outputs=True) is None
    registry.assert_nothing_is_left()


def test_a_revival_that_comes_in_between_revives_nothing(registry: Registry) -> None:
    registry.failed("crashed")
    registry.meanwhile(registry.store, "begin", before=registry.erase)
    with pytest.raises(Conflict):
        revive.answer(registry.all(), TASK)
    registry.assert_nothing_is_left()
    with pytest.raises(Conflict, match="cancelled"):
        revive.answer(registry.all(), TASK)


def test_the_next_request_begins_anew_with_nothing(registry: Registry) -> None:
    before = registry.completed()
    registry.erase()
    there = registry.item_of(TASK)
    assert (there.input, there.group, there.data) == ({}, "", None)
    begun = registry.begin(TASK)
    assert begun.generation == before.generation + 1
    assert (begun.erased_at, begun.data, begun.outputs) == (None, None, None)
    assert "erased_at" not in registry.raw()


# --- what is not its own stays


def test_a_generation_begun_before_s3_is_asked_keeps_its_object(registry: Registry) -> None:
    first = registry.completed()
    registry.meanwhile(registry.store.table, "put", after=lambda: registry.completed({"new": LARGE}))
    answer = registry.erase()
    assert (answer.body["generation"], answer.body["status"]) == (first.generation, "cancelled")
    there = registry.item_of(TASK)
    assert (there.generation, there.status, there.erased_at) == (first.generation + 1, "completed", None)
    assert registry.store.opened(there, registry.clock()).data == {"new": LARGE}
    assert len(registry.objects()) == 1


def test_a_generation_begun_before_redis_is_asked_keeps_its_place_and_its_probe(registry: Registry) -> None:
    first = registry.begun()
    registry.bench.keys.write(key_of("job", "gate"), "probe", "a")
    registry.meanwhile(registry.queue, "end", before=registry.begun)
    assert registry.erase().body["generation"] == first.generation
    assert registry.state("job") == {"a": ("waiting", first.generation + 1)}
    assert registry.bench.parts("job")["gate"]["probe"] == "a"


@pytest.mark.parametrize("other", [Task("job", "a2"), Task("job", "b"), Task("other", "a"), Task("job", "a/b")])
def test_another_task_keeps_everything(registry: Registry, other: Task) -> None:
    registry.completed(task=other)
    registry.bench.keys.write(key_of(other.provider, "gate"), "probe", other.name)
    before = registry.raw(other), registry.bench.parts(other.provider), registry.objects()
    registry.completed()
    registry.erase()
    assert (registry.raw(other), registry.bench.parts(other.provider), registry.objects()) == before


def test_an_item_that_points_to_anothers_object_does_not_lead_to_it(registry: Registry) -> None:
    registry.completed(task=Task("job", "other"))
    (other,) = registry.objects()
    registry.completed()
    pointing = registry.raw()
    pointing["data"]["M"]["key"] = {"S": other}
    registry.dynamodb_client.put_item(TableName=TABLE, Item=pointing)
    registry.erase()
    assert registry.objects() == [other]


def test_many_objects_go_and_whatever_else_is_in_its_folder(registry: Registry) -> None:
    item = registry.completed()
    folder = registry.objects()[0].rpartition(f"{item.generation}/")[0]
    for number in range(1, 8):
        registry.put(f"{folder}{number}/data-{number}")
    registry.put(f"{folder}data-of-another-form")
    registry.put(f"{folder}{item.generation + 1}/data-x")  # of a generation that is none of ours
    pages = registry.s3.list_objects_v2
    registry.patch.setattr(registry.s3, "list_objects_v2", lambda **how: pages(MaxKeys=3, **how))
    registry.erase()
    registry.patch.undo()
    assert registry.objects() == [f"{folder}{item.generation + 1}/data-x"]


def test_without_a_bucket_there_is_nothing_to_delete(registry: Registry) -> None:
    registry.store = replace(registry.store, spill=Spill())
    registry.begun()
    assert registry.erase().body["erased_at"]
    registry.assert_nothing_is_left()


# --- what is told


def test_an_erasure_is_one_line_without_content(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="meanwhile")
    item = registry.completed()
    registry.erase()
    (line,) = [one for one in caplog.records if one.levelno >= logging.INFO]
    facts = {name: vars(line)[name] for name in ("message", "provider", "task", "generation")}
    said = {"provider": "job", "task": "a", "generation": item.generation}
    assert facts == {"message": "erased"} | said
    assert SECRET not in caplog.text


def test_one_that_stopped_says_why(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    registry.completed()
    registry.redis.away = True
    with pytest.raises(Unavailable):
        registry.erase()
    (line,) = caplog.records
    assert (line.message, vars(line)["task"], "Redis" in vars(line)["reason"]) == ("erasing stopped", "a", True)


def test_store_trouble_is_told_as_unavailable_and_not_as_nothing_accepted(registry: Registry) -> None:
    registry.completed()
    registry.patch.setattr(registry.store.table, "attributes", _raise)
    with pytest.raises(Unavailable, match="repeat this request"):
        registry.erase()


def _raise(*_: object) -> None:
    raise StoreUnavailable("DynamoDB: away")
