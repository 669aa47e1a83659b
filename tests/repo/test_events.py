"""Every sample event is fed to its handler, with moto and fakeredis and nothing else, and its answer is checked."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shared import wiring
from shared.api.event import ApiCall
from shared.api.preference import preferences
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.transport import Transport
from shared.queue import client
from shared.store import Store
from shared.task import Task
from tests.support.api_events import EVENTS, Context, sample
from tests.support.clock import Clock

if TYPE_CHECKING:
    from redis import Redis

NAMES = sorted(file.stem for file in EVENTS.iterdir())
BATCHES = ("enqueue-http-batch", "enqueue-rest-batch")
HTTP_NAMES = [name for name in NAMES if name.startswith("enqueue-") and name not in BATCHES]
SCHEDULED = [name for name in NAMES if "schedule" in name]
ROUTES = sorted({name.split("-", 2)[2] for name in HTTP_NAMES})

TASK = Task("example", "invoice-1001")
PARTIAL = {"name": "invoice-1001"}
PENDING = json.dumps({"data": PARTIAL, "status": "async processing in progress"}).encode()
LOCATION = "/tasks?provider=example&name=invoice-1001"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes out to the provider, which always answers with partial data."""
    calls: list[str] = []

    def send(self: Transport, call: Call, seconds: float, **_: Any) -> Reply:
        calls.append(f"{call.method} {call.url}")
        return Reply(200, {"content-type": "application/json"}, PENDING, call.url)

    monkeypatch.setattr(Transport, "send", send)
    return calls


@pytest.fixture
def feed(
    monkeypatch: pytest.MonkeyPatch, redis_client: "Redis", store: Store, clock: Clock, calls: list[str]
) -> Callable[[str], Any]:
    """Feeds a sample event, by its file's name, to the handler that the name begins with."""
    monkeypatch.setenv("IDLE_SECONDS", "0")
    monkeypatch.setattr(client, "client_of", lambda _: redis_client)
    monkeypatch.setattr(wiring, "clock", clock)

    def feed(name: str) -> Any:
        handler = import_module(f"handlers.{name.partition('-')[0]}").handler
        return json.loads(json.dumps(handler(sample(name), Context(60))))

    return feed


Feed = Callable[[str], Any]


def fail(store: Store, clock: Clock) -> None:
    item = store.begin(TASK, None, {"customer": 42}, clock())
    assert item
    store.fail(TASK, item.generation, {"reason": "timeout", "error": None, "refused": False}, clock())


@pytest.fixture
def answer_to(feed: Feed, store: Store, clock: Clock) -> Callable[[str], tuple[int, dict[str, str], Any]]:
    """Status, headers and body of a handler's answer to an HTTP sample, once there is what it is about."""

    def answer_to(name: str) -> tuple[int, dict[str, str], Any]:
        route = name.split("-", 2)[2]
        if route == "revive":
            fail(store, clock)
        elif route not in ("get-task-name", "post-tasks"):
            feed("enqueue-rest-post-tasks")
        answered = feed(name)
        listed = answered.get("multiValueHeaders") or {}
        headers = answered.get("headers", {}) | {header: values[-1] for header, values in listed.items()}
        return answered["statusCode"], headers, json.loads(answered["body"])

    return answer_to


Answer = Callable[[str], tuple[int, dict[str, str], Any]]

WANTED: dict[str, tuple[int, dict[str, Any]]] = {
    "get-task-name": (202, {"status": "pending", "data": PARTIAL, "deduplicated": False}),
    "post-tasks": (202, {"status": "pending", "data": PARTIAL, "deduplicated": False}),
    "status": (200, {"status": "pending", "data": PARTIAL, "schedule": "waiting", "attempts": 1}),
    "status-query": (200, {"status": "pending", "data": PARTIAL, "schedule": "waiting", "attempts": 1}),
    "cancel": (200, {"status": "cancelled", "data": PARTIAL}),
    "cancel-query": (200, {"status": "cancelled", "data": PARTIAL}),
    "erase": (200, {"status": "cancelled", "data": None}),
    "erase-query": (200, {"status": "cancelled", "data": None}),
    "revive": (202, {"status": "pending", "data": None}),
}


@pytest.mark.parametrize("name", HTTP_NAMES)
def test_an_http_sample_is_answered_rightly(answer_to: Answer, name: str) -> None:
    wanted_status, wanted = WANTED[name.split("-", 2)[2]]
    status, headers, body = answer_to(name)
    assert status == wanted_status
    assert {field: body[field] for field in wanted} == wanted
    assert (body["task_id"], headers["Content-Type"]) == (TASK.id, "application/json")
    if status == 202:
        stage = "/v1" if "-rest-" in name else ""
        assert headers["Location"] == stage + LOCATION
        assert int(headers["Retry-After"]) >= 1


@pytest.mark.parametrize("route", ROUTES)
def test_both_shapes_of_a_route_are_answered_alike(
    answer_to: Answer, redis_client: "Redis", dynamodb: Any, route: str, calls: list[str]
) -> None:
    answers = []
    for shape in ("rest", "http"):
        status, headers, body = answer_to(f"enqueue-{shape}-{route}")
        headers["Location"] = headers.get("Location", "").removeprefix("/v1")
        for told in ("next_attempt_at", "next_attempt_by"):  # by the server's clock, which goes on
            body.pop(told, None)
        answers.append((status, headers, body, calls[:]))
        redis_client.flushall()
        dynamodb.delete_item(TableName="meanwhile", Key={"task_id": {"S": TASK.id}})
        calls.clear()
    assert answers[0] == answers[1]


def test_a_sample_of_a_batch_has_a_result_for_each_request(feed: Feed, calls: list[str]) -> None:
    for name in BATCHES:
        answered = feed(name)
        results = json.loads(answered["body"])["results"]
        assert [result["status"] for result in results] == [202, 202, 400]
        assert [result["body"].get("task_id") for result in results] == [TASK.id, "coin/heads", None]
        assert [result["body"].get("deduplicated") for result in results] == [name == BATCHES[1]] * 2 + [None]
    assert len(calls) == 2


def test_every_route_has_a_sample_in_both_shapes_and_an_answer_here() -> None:
    assert set(ROUTES) == set(WANTED)
    assert len(HTTP_NAMES) == 2 * len(ROUTES)
    known = {"enqueue", "process", "reconcile", "status", "callback", "notify"}  # the last two have tests of their own
    assert {name.partition("-")[0] for name in NAMES} == known


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("status-")])
def test_a_sample_of_a_wait_is_answered_once_the_task_has_ended(
    feed: Feed, name: str, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS_WAIT_SECONDS", "20")
    feed("enqueue-rest-post-tasks")
    item = store.get(TASK, clock())
    assert item
    assert preferences(ApiCall.of(sample(name))).wait_seconds == 20
    store.complete(TASK, item.generation, {"rating": 4.5}, clock())
    answered = feed(name)
    assert (answered["statusCode"], json.loads(answered["body"])["data"]) == (200, {"rating": 4.5})


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("process-")])
def test_a_sample_starts_a_tick(feed: Feed, name: str, rewind: Callable[[float], None], calls: list[str]) -> None:
    feed("enqueue-rest-get-task-name")
    rewind(3)
    tally = feed(name)
    assert {word: count for word, count in tally.pop("example").items() if count} == {"claimed": 1, "snoozed": 1}
    assert not any(count for counts in tally.values() for count in counts.values())
    assert calls == ["GET http://127.0.0.1:9001/example"] * 2


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("reconcile-")])
def test_a_schedules_sample_starts_a_reconciliation(
    feed: Feed, name: str, clock: Clock, redis_client: "Redis", state: Any
) -> None:
    feed("enqueue-rest-get-task-name")
    redis_client.flushall()
    clock.advance(31)
    assert feed(name)["example"] == {"seen": 1, "requeued": 1}
    assert [place for place, _ in state().values()] == ["waiting"]


def test_a_schedules_sample_is_what_eventbridge_sends() -> None:
    assert {sample(name)["source"] for name in SCHEDULED} == {"aws.events", "aws.scheduler"}
    assert {sample(name)["detail-type"] for name in SCHEDULED} == {"Scheduled Event"}


def test_samples_are_json_files_and_nothing_else() -> None:
    assert {Path(file).suffix for file in EVENTS.iterdir()} == {".json"}
