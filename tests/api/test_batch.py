"""A batch: one result for each request, in one call to Redis per provider and verb, whatever becomes of the others."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import batch
from shared.api.answer import Answer
from shared.api.batch import ACCEPT_SECONDS, ACCEPTED_AT_ONCE, MAX_RESULTS_BYTES
from shared.api.enqueue import Enqueuer
from shared.api.preference import NONE, Preferences
from shared.api.request import MAX_BATCH, TaskRequest
from shared.codec import Json
from shared.errors import BadRequest, DataUnavailable, Problem
from shared.limits import Limits
from shared.provider import Provider
from shared.queue import Queue
from shared.store import Item, Store
from shared.task import Task
from shared.work.worker import Worker
from tests.support.clock import Clock
from tests.support.keys import Bench
from tests.support.outage import DynamoDBOutage, RedisOutage
from tests.support.parts import parts_of
from tests.support.simulator import EXAMPLE, JOB, Simulator, completed, pending, refused

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from redis import Redis

FILES: dict[str, Any] = {
    "example": EXAMPLE,
    "job": JOB,
    "accepting": EXAMPLE | {"firstAnswer": 0},
    "narrow": EXAMPLE | {"limits": {"parallel": 3}},
}
WHOLE = {"rating": 4.5}
PATIENCE_SECONDS = 30
"""How long a thread of a test waits for what must come; only a failing test waits so long."""


@pytest.fixture
def redis_kind() -> str:
    return "fakeredis"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as simulator:
        simulator.say(pending(id="j-1"))
        yield simulator


class Front:
    """Batches, as they come from one user after the other."""

    def __init__(self, store: Store, queue: Queue, clock: Clock, simulator: Simulator) -> None:
        self.store, self.queue, self.clock = store, queue, clock
        self.providers: dict[str, Provider] = {name: simulator.provider(file) for name, file in FILES.items()}
        self.parts = parts_of(store, queue, self.providers, clock)
        self.worker = Worker(self.parts)
        self.threads: list[int] = []

    def answer(self, *requests: TaskRequest | Problem, remaining: Callable[[], float] = lambda: 25) -> Answer:
        """One batch."""
        enqueuer = Enqueuer(self.parts, self.worker, lambda target, item: None)
        return batch.answer(enqueuer, requests, remaining, self.pool)

    def pool(self, threads: int) -> ThreadPoolExecutor:
        self.threads.append(threads)
        return ThreadPoolExecutor(threads)

    def ask(self, *requests: TaskRequest | Problem, remaining: Callable[[], float] = lambda: 25) -> list[Any]:
        """The results of one batch."""
        results: list[Any] = self.answer(*requests, remaining=remaining).body["results"]
        return results


@pytest.fixture
def front(store: Store, queue: Queue, clock: Clock, simulator: Simulator) -> Front:
    return Front(store, queue, clock, simulator)


def request(
    name: str, provider: str = "example", input_: Json = None, prefers: Preferences = NONE, group: str = ""
) -> TaskRequest:
    return TaskRequest(task=Task(provider, name), input=input_, prefers=prefers, group=group)


def statuses(results: list[Any]) -> list[int]:
    return [result["status"] for result in results]


# --- one result each, in order


def test_each_request_has_its_result_in_the_order_of_the_requests(front: Front, simulator: Simulator) -> None:
    simulator.say(completed(WHOLE), to="done")
    simulator.say(refused(), to="never")
    results = front.ask(*map(request, ("b", "done", "a", "never")))
    assert statuses(results) == [202, 200, 202, 422]
    assert [result["body"]["name"] for result in results] == ["b", "done", "a", "never"]
    assert [result.get("retry_after_seconds") for result in results] == [2, None, 2, None]
    assert results[1]["body"]["data"] == WHOLE


def test_a_batch_leaves_what_the_same_requests_one_by_one_would_leave(
    front: Front, simulator: Simulator, bench: Bench, store: Store, clock: Clock
) -> None:
    simulator.say(completed(WHOLE), to="done")
    front.ask(request("a", group="tenant"), request("done"), request("later", "accepting"))
    assert {name: place for name, (place, _) in bench.state().items()} == {"a": "waiting"}
    assert {name: place for name, (place, _) in bench.state("accepting").items()} == {"later": "waiting"}
    items = [store.get(Task("example", name), clock()) for name in ("a", "done")]
    assert [item and item.status for item in items] == ["pending", "completed"]
    assert [item and item.group for item in items] == ["tenant", ""]
    assert sorted(simulator.calls()) == ["GET /example"] * 2


def test_first_attempts_run_at_the_same_time(front: Front, simulator: Simulator) -> None:
    together = threading.Barrier(MAX_BATCH)
    simulator.say(pending().after(lambda: together.wait(PATIENCE_SECONDS)))
    patient = Preferences(wait_seconds=20)
    results = front.ask(*(request(f"t{i}", prefers=patient) for i in range(MAX_BATCH)))
    assert statuses(results) == [202] * MAX_BATCH
    assert not together.broken
    assert front.threads == [ACCEPTED_AT_ONCE, MAX_BATCH]


def test_dynamodb_is_asked_about_several_requests_at_the_same_time(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, get = threading.Barrier(ACCEPTED_AT_ONCE), front.store.get

    def meeting(task: Task, now: int) -> Any:
        together.wait(PATIENCE_SECONDS)
        return get(task, now)

    monkeypatch.setattr(front.store, "get", meeting)
    results = front.ask(*(request(f"t{i}", "accepting") for i in range(ACCEPTED_AT_ONCE)))
    assert statuses(results) == [202] * ACCEPTED_AT_ONCE


def test_redis_is_called_once_for_each_provider_and_verb(front: Front, redis_client: "Redis") -> None:
    outage = RedisOutage(redis_client)
    front.ask(request("warm"), request("warm", "job"), request("warm", "accepting"))  # loads the scripts
    outage.calls.clear()
    front.ask(*(request(f"t{i}", provider) for i in range(20) for provider in ("example", "job", "accepting")))
    assert outage.calls == ["EVALSHA"] * 5  # add for three, release for the two that were asked


# --- limits and time


@pytest.mark.promise("limits", "a batch keeps to the limits, too")
def test_a_batch_is_held_to_its_providers_limits(front: Front, simulator: Simulator, bench: Bench) -> None:
    results = front.ask(*(request(f"t{i}", "narrow") for i in range(10)))
    assert front.providers["narrow"].rules.limits == Limits(parallel=3)
    assert statuses(results) == [202] * 10
    assert len(simulator.asked) == 3
    assert [place for place, _ in bench.state("narrow").values()] == ["waiting"] * 10
    assert not any(result["body"]["deduplicated"] for result in results)


def test_with_little_time_left_it_accepts_without_asking_and_then_nothing_more(
    front: Front, simulator: Simulator, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "pool", lambda _: ThreadPoolExecutor(1))
    left = iter((25, ACCEPT_SECONDS, ACCEPT_SECONDS - 0.1))
    results = front.ask(request("a"), request("b"), request("c"), remaining=lambda: next(left, 5))
    assert statuses(results) == [202, 202, 503]
    assert simulator.asked == []
    assert bench.state().keys() == {"a", "b"}


def test_a_preference_of_the_call_is_that_of_each_request(front: Front, simulator: Simulator) -> None:
    prefers = Preferences(wait_seconds=0, applied="respond-async")
    answer = front.answer(request("a", prefers=prefers), request("b", prefers=prefers))
    assert (answer.status, answer.preference_applied) == (200, "respond-async")
    assert simulator.asked == []


# --- a fault in one harms no other


def test_a_fault_of_one_request_is_its_own(front: Front, simulator: Simulator) -> None:
    front.ask(request("open", input_={"a": 1}))
    results = front.ask(
        request("a"),
        BadRequest("the name is missing", field="name"),
        request("open", input_={"a": 2}),
        request("b", "nobody"),
        request("c"),
    )
    assert statuses(results) == [202, 400, 409, 400, 202]
    assert [result["body"].get("field") for result in results] == [None, "name", "input", "provider", None]
    assert len(simulator.asked) == 3


def test_an_outage_of_the_store_in_one_request_harms_no_other(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, dynamodb: "DynamoDBClient"
) -> None:
    outage, get = DynamoDBOutage(dynamodb), front.store.get

    def failing(task: Task, now: int) -> Any:
        if task.name == "b":
            outage.away = {"GetItem"}
        try:
            return get(task, now)
        finally:
            outage.away = set()

    monkeypatch.setattr(front.store, "get", failing)
    monkeypatch.setattr(front, "pool", lambda _: ThreadPoolExecutor(1))  # one outage, not everybody's
    with caplog.at_level(logging.ERROR):
        results = front.ask(request("a"), request("b"), request("c"))
    assert statuses(results) == [202, 503, 202]
    assert results[1]["retry_after_seconds"] == 5
    assert [(line.message, vars(line)["task"]) for line in caplog.records] == [("store unavailable", "example/b")]


def test_a_fault_of_our_own_before_an_attempt_harms_no_other(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    get = front.store.get

    def broken(task: Task, now: int) -> Any:
        return 1 / 0 if task.name == "b" else get(task, now)

    monkeypatch.setattr(front.store, "get", broken)
    results = front.ask(request("a"), request("b"), request("c"))
    assert statuses(results) == [202, 500, 202]
    assert "ZeroDivisionError" in caplog.text


def test_an_attempt_that_breaks_harms_no_other_and_its_task_comes_back(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bench: Bench
) -> None:
    attempt = front.worker.attempt

    def broken(hold: Any, *arguments: Any, **options: Any) -> Any:
        return 1 / 0 if hold.task.name == "b" else attempt(hold, *arguments, **options)

    monkeypatch.setattr(front.worker, "attempt", broken)
    results = front.ask(request("a"), request("b"), request("c"))
    assert statuses(results) == [202, 500, 202]
    assert {name: place for name, (place, _) in bench.state().items()} == {
        "a": "waiting",
        "b": "processing",  # until its lease ends
        "c": "waiting",
    }
    assert "ZeroDivisionError" in caplog.text


def test_without_redis_every_request_is_accepted_after_one_call(
    front: Front, redis_client: "Redis", simulator: Simulator
) -> None:
    outage = RedisOutage(redis_client)
    outage.away = True
    results = front.ask(request("a"), request("b", "job"), request("c", "narrow"))
    outage.away = False
    assert statuses(results) == [202] * 3
    assert len(outage.calls) == 1
    assert sorted(simulator.calls()) == ["GET /example", "POST /jobs"]  # nobody knows what narrow's limits allow


def test_without_redis_after_the_attempts_each_end_is_reported_once(
    front: Front, redis_client: "Redis", simulator: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    outage = RedisOutage(redis_client)

    def leave() -> None:
        outage.away = True

    front.ask(request("warm"))  # loads the script
    outage.calls.clear()
    simulator.say(completed(WHOLE).after(leave))
    with caplog.at_level(logging.INFO):
        results = front.ask(request("a"), request("b", "narrow"))
    outage.away = False
    assert statuses(results) == [200, 200]
    ends = [(line.message, vars(line)["task"]) for line in caplog.records if line.message == "completed"]
    assert sorted(ends) == [("completed", "a"), ("completed", "b")]
    assert len(outage.calls) == 3  # two adds, and one settling that failed


# --- one task, named more than once


def test_requests_that_are_alike_are_one_and_the_first_began_it(front: Front, simulator: Simulator) -> None:
    inputs: tuple[Json, ...] = ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2})
    results = front.ask(*(request("a", input_=input_) for input_ in inputs), request("b"))
    assert [result["body"]["deduplicated"] for result in results] == [False, True, True, False]
    assert len({result["body"]["generation"] for result in results[:3]}) == 1
    assert simulator.calls("a") == ["GET /example"]


def test_fresh_data_is_asked_for_once_however_often_a_batch_names_it(front: Front, simulator: Simulator) -> None:
    simulator.say(completed(WHOLE))
    no_cache = Preferences(max_age_seconds=0)
    results = front.ask(request("a", prefers=no_cache), request("a", prefers=no_cache))
    assert statuses(results) == [200, 200]
    assert simulator.calls("a") == ["GET /example"]


def test_another_input_for_a_task_of_the_batch_comes_after_the_first(front: Front, simulator: Simulator) -> None:
    results = front.ask(request("a", input_={"a": True}), request("a", input_={"a": 1}), request("a"))
    assert statuses(results) == [202, 409, 202]
    assert [result["body"].get("deduplicated") for result in results] == [False, None, True]
    assert simulator.calls("a") == ["GET /example"]


def test_two_faulty_requests_keep_their_own_faults(front: Front) -> None:
    results = front.ask(BadRequest("x", field="a"), BadRequest("y", field="b"))
    assert [result["body"]["field"] for result in results] == ["a", "b"]


# --- what Lambda can pass on


def test_what_does_not_fit_into_the_answer_is_to_be_looked_at_by_itself(
    front: Front, monkeypatch: pytest.MonkeyPatch, simulator: Simulator
) -> None:
    simulator.say(completed({"small": 1}))
    simulator.say(completed("x" * 900), to="large")
    monkeypatch.setattr("shared.api.batch.MAX_RESULTS_BYTES", 1000)
    results = front.ask(request("a"), request("large"), request("b"))
    assert statuses(results) == [200, 303, 200]
    assert results[1]["body"] == {
        "task_id": "example/large",
        "provider": "example",
        "name": "large",
        "status": "completed",
    }
    assert MAX_RESULTS_BYTES * 2 <= 6 * 1024 * 1024


def test_stale_data_that_cannot_be_read_harms_no_other_and_is_renewed(
    front: Front, simulator: Simulator, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(item: Item, now: int) -> Item:
        if item.status == "completed":
            raise DataUnavailable("S3: away")
        return item

    simulator.say(completed({"large": 1}))
    front.ask(request("large"))
    clock.advance(5000)
    simulator.say(pending())
    monkeypatch.setattr(front.store, "opened", unreadable)
    stale = request("large", prefers=Preferences(stale_seconds=10_000))
    assert statuses(front.ask(request("small"), stale)) == [202, 202]
