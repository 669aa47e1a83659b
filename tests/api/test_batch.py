"""A batch: one result for each request, in one call to Redis per provider and verb, whatever becomes of the others."""

import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from shared.api import cancel, view
from shared.api.answer import MAX_ANSWER_BYTES, problem
from shared.api.batch import ACCEPT_SECONDS, ACCEPTED_AT_ONCE, NAMING, _results
from shared.api.preference import NONE, Preferences
from shared.api.request import TaskRequest
from shared.codec import Json, carried, dumps
from shared.errors import BadRequest, DataUnavailable, ItemUnreadable
from shared.limits import Limits
from shared.settings import MAX_BATCH
from shared.store import Item
from shared.store.rows import inflated
from shared.store.spill import Spill
from shared.task import Task
from shared.work.turn import Turn
from tests.conftest import BUCKET
from tests.support.backend import Backend
from tests.support.damage import TABLE, damage_item
from tests.support.front import Front
from tests.support.simulator import DONE, EXAMPLE, JOB, WHOLE, Simulator, completed, pending, refused
from tests.support.waker import Waker

FILES: dict[str, Any] = {
    "example": EXAMPLE, "job": JOB, "accepting": EXAMPLE | {"firstAnswer": 0},
    "narrow": EXAMPLE | {"limits": {"parallel": 3}},
}  # fmt: skip
WAIT_SECONDS = 30
"""How long a thread of a test waits for what must come; only a failing test waits so long."""


@pytest.fixture
def front(backend: Backend, simulator: Simulator) -> Front:
    simulator.say(pending(id="j-1"))
    providers = {name: simulator.provider(file) for name, file in FILES.items()}
    backend.queue._wake = Waker(lambda *_: None)
    return Front(**vars(backend), simulator=simulator, providers=providers)


def request(
    name: str, provider: str = "example", input_: Json = None, prefers: Preferences = NONE, group: str = ""
) -> TaskRequest:
    return TaskRequest(task=Task(provider, name), input=input_, prefers=prefers, group=group)


def statuses(results: list[Any]) -> list[int]:
    return [result["status"] for result in results]


def test_each_request_has_its_result_in_the_order_of_the_requests(front: Front) -> None:
    front.simulator.say(DONE, to="done")
    front.simulator.say(refused(), to="never")
    results = front.results(*map(request, ("b", "done", "a", "never")))
    assert statuses(results) == [202, 200, 202, 422]
    assert [result["body"]["name"] for result in results] == ["b", "done", "a", "never"]
    assert [result.get("retry_after_seconds") for result in results] == [2, None, 2, None]
    assert results[1]["body"]["data"] == WHOLE


def test_a_batch_leaves_what_the_same_requests_one_by_one_would_leave(front: Front) -> None:
    front.simulator.say(DONE, to="done")
    front.results(request("a", group="tenant"), request("done"), request("later", "accepting"))
    assert {name: place for name, (place, _) in front.state().items()} == {"a": "waiting"}
    assert {name: place for name, (place, _) in front.state("accepting").items()} == {"later": "waiting"}
    items = [front.store.get(Task("example", name), front.clock()) for name in ("a", "done")]
    assert [item and item.status for item in items] == ["pending", "completed"]
    assert [item and item.group for item in items] == ["tenant", ""]
    assert sorted(front.simulator.calls()) == ["GET /example"] * 2


def test_first_attempts_run_at_the_same_time(front: Front) -> None:
    together = threading.Barrier(MAX_BATCH)
    front.simulator.say(pending().after(lambda: together.wait(WAIT_SECONDS)))
    patient = Preferences(wait_seconds=20)
    results = front.results(*(request(f"t{i}", prefers=patient) for i in range(MAX_BATCH)))
    assert statuses(results) == [202] * MAX_BATCH
    assert not together.broken
    assert front.threads == [ACCEPTED_AT_ONCE, MAX_BATCH]


def test_dynamodb_is_read_once_for_all_and_written_to_for_several_at_the_same_time(front: Front) -> None:
    together, begin = threading.Barrier(ACCEPTED_AT_ONCE), front.store.begin

    def meeting(*arguments: Any, **options: Any) -> Any:
        together.wait(WAIT_SECONDS)
        return begin(*arguments, **options)

    front.patch.setattr(front.store, "begin", meeting)
    front.dynamodb.calls.clear()
    results = front.results(*(request(f"t{i}", "accepting") for i in range(ACCEPTED_AT_ONCE)))
    assert statuses(results) == [202] * ACCEPTED_AT_ONCE
    assert front.dynamodb.calls == ["BatchGetItem"] + ["UpdateItem"] * ACCEPTED_AT_ONCE


def test_what_one_read_leaves_out_is_read_by_itself(front: Front) -> None:
    front.simulator.say(DONE)
    front.results(request("done"))
    front.patch.setattr(front.store, "get_many", lambda tasks, now: {Task("example", "new"): None})
    front.dynamodb.calls.clear()
    results = front.results(request("done"), request("new"))
    assert statuses(results) == [200, 200]
    assert [result["body"]["deduplicated"] for result in results] == [True, False]
    assert front.dynamodb.calls.count("GetItem") == 1


def test_whoever_was_faster_than_a_batch_since_it_read_has_begun_the_task(front: Front) -> None:
    front.meanwhile(front.store, "get_many", after=lambda: front.ask("a"))
    results = front.results(request("a"), request("b"))
    assert statuses(results) == [202, 202]
    assert [result["body"]["deduplicated"] for result in results] == [True, False]
    assert front.simulator.calls("a") == ["GET /example"]


def test_an_item_that_is_damaged_is_cancelled_and_begun_anew_as_without_a_batch(front: Front) -> None:
    [begun, _] = front.results(request("a"), request("b"))
    damage_item(front.dynamodb_client, Task("example", "a"), "group a map")
    results = front.results(request("a"), request("b"))
    assert [result["body"]["deduplicated"] for result in results] == [False, True]
    assert results[0]["body"]["generation"] > begun["body"]["generation"]


def test_without_dynamodb_nothing_is_accepted_after_one_call(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    front.dynamodb.away = {"BatchGetItem", "GetItem", "UpdateItem"}
    results = front.results(*(request(f"t{number}") for number in range(50)))
    assert statuses(results) == [503] * 50
    assert front.dynamodb.calls == ["BatchGetItem"]
    assert [line.message for line in caplog.records] == ["store unavailable"]


def test_redis_is_called_once_for_each_provider_and_verb(front: Front) -> None:
    front.results(request("warm"), request("warm", "job"), request("warm", "accepting"))  # loads the scripts
    front.redis.calls.clear()
    front.results(*(request(f"t{i}", provider) for i in range(20) for provider in ("example", "job", "accepting")))
    assert front.redis.calls == ["EVALSHA"] * 5  # add for three, release for the two that were asked


@pytest.mark.promise("limits", "a batch keeps to the limits, too")
def test_a_batch_is_held_to_its_providers_limits(front: Front) -> None:
    results = front.results(*(request(f"t{i}", "narrow") for i in range(10)))
    assert front.providers["narrow"].rules.limits == Limits(parallel=3)
    assert statuses(results) == [202] * 10
    assert len(front.simulator.asked) == 3
    assert [place for place, _ in front.state("narrow").values()] == ["waiting"] * 10
    assert not any(result["body"]["deduplicated"] for result in results)


def test_with_little_time_left_it_accepts_without_asking_and_then_nothing_more(front: Front) -> None:
    front.patch.setattr(front, "pool", lambda _: ThreadPoolExecutor(1))
    left = iter((25, 25, ACCEPT_SECONDS, ACCEPT_SECONDS - 0.1))
    results = front.results(request("a"), request("b"), request("c"), remaining=lambda: next(left, 5))
    assert statuses(results) == [202, 202, 503]
    assert front.simulator.asked == []
    assert front.state().keys() == {"a", "b"}


def test_with_no_time_left_for_any_it_does_not_even_read(front: Front) -> None:
    front.dynamodb.calls.clear()
    results = front.results(request("a"), request("b"), remaining=lambda: ACCEPT_SECONDS - 0.1)
    assert statuses(results) == [503, 503]
    assert front.dynamodb.calls == []


def test_a_preference_of_the_call_is_that_of_each_request(front: Front) -> None:
    prefers = Preferences(wait_seconds=0, applied="respond-async")
    answer = front.batch(request("a", prefers=prefers), request("b", prefers=prefers))
    assert (answer.status, answer.preference_applied) == (200, "respond-async")
    assert front.simulator.asked == []


def test_a_fault_of_one_request_is_its_own(front: Front) -> None:
    front.results(request("open", input_={"a": 1}))
    results = front.results(
        request("a"),
        BadRequest("the name is missing", field="name"),
        request("open", input_={"a": 2}),
        request("b", "nobody"),
        request("c"),
    )
    assert statuses(results) == [202, 400, 409, 400, 202]
    assert [result["body"].get("field") for result in results] == [None, "name", "input", "provider", None]
    assert len(front.simulator.asked) == 3


def test_an_outage_of_the_store_in_one_request_harms_no_other(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    begin = front.store.begin

    def failing(task: Task, *arguments: Any, **options: Any) -> Any:
        if task.name == "b":
            front.dynamodb.away = {"UpdateItem"}
        try:
            return begin(task, *arguments, **options)
        finally:
            front.dynamodb.away = set()

    front.patch.setattr(front.store, "begin", failing)
    front.patch.setattr(front, "pool", lambda _: ThreadPoolExecutor(1))  # one outage, not everybody's
    with caplog.at_level(logging.ERROR):
        results = front.results(request("a"), request("b"), request("c"))
    assert statuses(results) == [202, 503, 202]
    assert results[1]["retry_after_seconds"] == 5
    assert [(line.message, vars(line)["task"]) for line in caplog.records] == [("store unavailable", "example/b")]


def test_a_fault_of_our_own_before_an_attempt_harms_no_other(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    begin = front.store.begin

    def broken(task: Task, *arguments: Any, **options: Any) -> Any:
        return 1 / 0 if task.name == "b" else begin(task, *arguments, **options)

    front.patch.setattr(front.store, "begin", broken)
    results = front.results(request("a"), request("b"), request("c"))
    assert statuses(results) == [202, 500, 202]
    assert "ZeroDivisionError" in caplog.text


def test_an_attempt_that_breaks_harms_no_other_and_its_task_comes_back(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = front.worker.attempt

    def broken(turn: Turn, *arguments: Any, **options: Any) -> Any:
        return 1 / 0 if turn.hold.task.name == "b" else attempt(turn, *arguments, **options)

    front.patch.setattr(front.worker, "attempt", broken)
    results = front.results(request("a"), request("b"), request("c"))
    assert statuses(results) == [202, 500, 202]
    places = {name: place for name, (place, _) in front.state().items()}
    assert places == {"a": "waiting", "b": "processing", "c": "waiting"}  # b until its lease ends
    assert "ZeroDivisionError" in caplog.text


def test_without_redis_every_request_is_accepted_after_one_call(front: Front) -> None:
    front.redis.away = True
    results = front.results(request("a"), request("b", "job"), request("c", "narrow"))
    front.redis.away = False
    assert statuses(results) == [202] * 3
    assert len(front.redis.calls) == 1
    assert sorted(front.simulator.calls()) == ["GET /example", "POST /jobs"]  # nobody knows what narrow's limits allow


def test_without_redis_after_the_attempts_each_end_is_reported_once(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    front.results(request("warm"))  # loads the script
    front.simulator.say(DONE.after(lambda: setattr(front.redis, "away", True)))
    with caplog.at_level(logging.INFO):
        results = front.results(request("a"), request("b", "narrow"))
    front.redis.away = False
    assert statuses(results) == [200, 200]
    ends = [(line.message, vars(line)["task"]) for line in caplog.records if line.message == "completed"]
    assert sorted(ends) == [("completed", "a"), ("completed", "b")]
    assert len(front.redis.calls) == 1  # one settling that failed


def test_requests_that_are_alike_are_one_and_the_first_began_it(front: Front) -> None:
    inputs: tuple[Json, ...] = ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2})
    results = front.results(*(request("a", input_=input_) for input_ in inputs), request("b"))
    assert [result["body"]["deduplicated"] for result in results] == [False, True, True, False]
    assert len({result["body"]["generation"] for result in results[:3]}) == 1
    assert front.simulator.calls("a") == ["GET /example"]


def test_fresh_data_is_asked_for_once_however_often_a_batch_names_it(front: Front) -> None:
    front.simulator.say(DONE)
    no_cache = Preferences(max_age_seconds=0)
    results = front.results(request("a", prefers=no_cache), request("a", prefers=no_cache))
    assert statuses(results) == [200, 200]
    assert front.simulator.calls("a") == ["GET /example"]


def test_another_input_for_a_task_of_the_batch_comes_after_the_first(front: Front) -> None:
    results = front.results(request("a", input_={"a": True}), request("a", input_={"a": 1}), request("a"))
    assert statuses(results) == [202, 409, 202]
    assert [result["body"].get("deduplicated") for result in results] == [False, None, True]
    assert front.simulator.calls("a") == ["GET /example"]


def test_two_faulty_requests_keep_their_own_faults(front: Front) -> None:
    results = front.results(BadRequest("x", field="a"), BadRequest("y", field="b"))
    assert [result["body"]["field"] for result in results] == ["a", "b"]


def test_what_does_not_fit_into_the_answer_is_to_be_looked_at_by_itself(front: Front) -> None:
    front.simulator.say(completed({"small": 1}))
    front.simulator.say(completed("x" * 900), to="large")
    front.patch.setattr("shared.api.batch.MAX_RESULTS_BYTES", 1300)
    results = front.results(request("a"), request("large"), request("b"))
    assert statuses(results) == [200, 303, 200]
    named = {"task_id": "example/large", "provider": "example", "name": "large"}
    assert results[1]["body"] == named | {"status": "completed"}


ROWS = random.Random(3).randbytes(50_000).hex()
"""Data of 100 KB."""


def finished(front: Front, kept: str, s3: Any, count: int = 20) -> list[TaskRequest]:
    """Requests for so many tasks that are completed, their data in the item or in S3."""
    if kept == "S3":
        front.store.spill = Spill(lambda: s3, BUCKET, spill_bytes=1000, days=90)
    front.simulator.say(completed(ROWS))
    requests = [request(f"t{i}") for i in range(count)]
    assert statuses(front.results(*requests[:10])) == [200] * 10
    assert statuses(front.results(*requests[10:])) == [200] * 10
    return requests


@pytest.mark.parametrize("kept", ["item", "S3"])
def test_no_more_data_are_read_than_the_answer_has_room_for(front: Front, kept: str, s3: Any) -> None:
    requests, decoder = finished(front, kept, s3), Mock(side_effect=inflated)
    front.patch.setattr("shared.store.rows.inflated", decoder)
    front.patch.setattr("shared.store.spill.inflated", decoder)
    front.patch.setattr("shared.api.batch.MAX_RESULTS_BYTES", 250_000)
    none_is_fresh = Preferences(max_age_seconds=0, wait_seconds=0)
    for wanted in (requests, [replace(one, prefers=none_is_fresh) for one in requests]):
        decoder.reset_mock()
        results = front.results(*wanted)
        whole = [result for result in results if result["status"] != 303]
        assert decoder.call_count == len(whole) == 2
        assert {result["body"]["data"] for result in whole} == {ROWS}
        assert all(result["body"].keys() == {*NAMING} for result in results if result["status"] == 303)


def test_a_task_by_itself_has_all_the_room(front: Front, s3: Any) -> None:
    finished(front, "item", s3)
    front.patch.setattr("shared.api.batch.MAX_RESULTS_BYTES", 250_000)
    assert {front.ask(f"t{i}").body["data"] for i in range(5)} == {ROWS}


def test_a_fault_keeps_its_own_status_whatever_room_there_is(front: Front) -> None:
    front.simulator.say(completed("x" * 900), to="large")
    faults: list[Any] = [BadRequest("z" * 900, field="name"), request("b", "nobody")]
    for most in (0, 4000):
        front.patch.setattr("shared.api.batch.MAX_RESULTS_BYTES", most)
        front.simulator.say(refused("y" * 900), to=f"refused {most}")
        results = front.results(request("large"), request(f"refused {most}"), *faults)
        assert statuses(results) == [303 if most == 0 else 200, 422, 400, 400]
        assert len(results[2]["body"]["detail"]) == 900
        assert results[1]["body"]["error"]["reason"] == "upstream"


def test_the_least_of_every_result_fits_into_the_answer_however_much_it_repeats() -> None:
    worst = BadRequest('"' * 100_000, field="\\" * 100_000)
    keys = list(range(MAX_BATCH))
    results = _results(keys, dict.fromkeys(keys, problem(worst)))
    assert statuses(results) == [400] * MAX_BATCH
    assert carried(dumps(results)) < MAX_ANSWER_BYTES


def test_data_that_are_damaged_though_their_item_is_not_are_found_and_the_task_is_begun_anew(
    front: Front, s3: Any
) -> None:
    finished(front, "item", s3)
    for name in ("t0", "t1"):
        key, item = {"task_id": {"S": f"example/{name}"}}, Task("example", name)
        stored: Any = front.dynamodb_client.get_item(TableName=TABLE, Key=key)["Item"]
        stored["data"]["B"] = stored["data"]["B"][:50] + b"?" + stored["data"]["B"][51:]
        front.dynamodb_client.put_item(TableName=TABLE, Item=stored)
        with pytest.raises(ItemUnreadable, match="data"):
            view.status(front.parts(front.providers), item)
    front.simulator.say(pending())
    assert statuses(front.results(request("t0"))) == [202]
    cancelled = cancel.answer(front.parts(front.providers), Task("example", "t1"))
    assert (cancelled.status, cancelled.body["status"], cancelled.body["data"]) == (200, "cancelled", None)


def test_stale_data_that_cannot_be_read_harms_no_other_and_is_renewed(front: Front) -> None:
    def unreadable(item: Item, now: int) -> Item:
        if item.status == "completed":
            raise DataUnavailable("S3: away")
        return item

    front.simulator.say(completed({"large": 1}))
    front.results(request("large"))
    front.clock.advance(5000)
    front.simulator.say(pending())
    front.patch.setattr(front.store, "opened", unreadable)
    stale = request("large", prefers=Preferences(stale_seconds=10_000))
    assert statuses(front.results(request("small"), stale)) == [202, 202]


def test_of_what_is_in_progress_redis_is_asked_once_for_each_provider(front: Front) -> None:
    requests = [request(f"t{number}", provider) for number in range(10) for provider in ("job", "accepting")]
    for _ in range(2):  # loads the scripts
        front.results(*requests)
    front.redis.calls.clear()
    results = front.results(*requests)
    assert front.redis.calls == ["EVALSHA"] * 2
    assert statuses(results) == [202] * 20
    assert {result["body"]["schedule"] for result in results} == {"waiting"}
    assert all(result["body"]["deduplicated"] for result in results)


@pytest.mark.parametrize("more", [[], ["new"]], ids=["all in progress", "one new"])
def test_redis_away_is_met_once_by_a_batch_of_tasks_in_progress(
    front: Front, more: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """C10."""
    requests = [request(f"t{number}", "accepting") for number in range(50)]
    front.results(*requests)
    front.redis.away = True
    results = front.results(*requests, *(request(name, "accepting") for name in more))
    assert len(front.redis.calls) == 1
    assert statuses(results) == [202] * (50 + len(more))
    assert {result["body"].get("schedule") for result in results[:50]} == {"unknown"}
    assert [line.message for line in caplog.records if line.levelno >= logging.WARNING] == ["queue unavailable"]
