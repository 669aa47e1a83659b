"""The HTTP function: every route in both event shapes, every answer text, every fault a problem."""

import json
import logging
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import requests
from redis import Redis

from handlers import enqueue
from shared import wiring
from shared.api.view import instant
from shared.queue import Add
from shared.record import Record
from shared.task import Task
from tests.conftest import BUCKET
from tests.support.api_events import Context, Event, http, rest
from tests.support.clock import Clock
from tests.support.deployment import Answered, Deployment
from tests.support.outage import Door, DynamoDBOutage, RedisOutage
from tests.support.simulator import Said, Simulator, completed, pending, refused

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Shape = Callable[..., Event]

PARTIAL = {"city": "Ghent"}
WHOLE = {"city": "Ghent", "rating": 4.5}


@pytest.fixture(params=[rest, http], ids=["rest", "http"])
def shape(request: pytest.FixtureRequest) -> Shape:
    """Each test that makes its events with this runs for both shapes."""
    shape: Shape = request.param
    return shape


def is_problem(answered: Answered, status: int, field: str | None) -> bool:
    """Whether it is an RFC 9457 problem with that status and field."""
    assert answered.status == status
    assert answered.headers["content-type"] == "application/problem+json"
    assert answered.headers["cache-control"] == "no-store"
    assert answered.body["type"] == "about:blank"
    assert answered.body["status"] == status
    assert answered.body["title"]
    assert answered.body["detail"]
    return answered.body.get("field") == field


# --- the routes


def test_the_short_form(deployed: Deployment, shape: Shape, simulator: Simulator) -> None:
    new = deployed.enqueue(shape("GET", "/?task-name=a"))
    assert (new.status, new.body["data"], new.body["deduplicated"]) == (202, PARTIAL, False)
    assert new.headers["content-type"] == "application/json"
    assert new.headers["cache-control"] == "no-store"
    assert new.headers["retry-after"] == "2"
    again = deployed.enqueue(shape("GET", "/?task-name=a"))
    assert (again.status, again.body["data"], again.body["deduplicated"]) == (202, PARTIAL, True)
    assert simulator.calls() == ["GET /example"]
    deployed.pass_(3)
    simulator.say(completed(WHOLE))
    deployed.process()
    done = deployed.enqueue(shape("GET", "/?task-name=a"))
    assert (done.status, done.body["data"]) == (200, WHOLE)
    assert "retry-after" not in done.headers


def test_a_task_is_posted_looked_at_and_cancelled(deployed: Deployment, shape: Shape, simulator: Simulator) -> None:
    posted = deployed.enqueue(shape("POST", "/tasks", {"provider": "job", "name": "a b", "input": {"customer": 42}}))
    assert (posted.status, posted.body["task_id"]) == (202, "job/a b")
    assert simulator.asked[0].body == {"name": "a b", "input": {"customer": 42}}
    for target in ("/tasks/job/a%20b", "/tasks?provider=job&name=a+b"):
        status = deployed.enqueue(shape("GET", target))
        assert (status.status, status.body["status"], status.body["schedule"]) == (200, "pending", "waiting")
    for target in ("/tasks/job/a%20b", "/tasks?provider=job&name=a+b"):
        cancelled = deployed.enqueue(shape("DELETE", target))
        assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
    assert deployed.enqueue(shape("GET", "/tasks/job/a%20b")).body["status"] == "cancelled"
    assert deployed.bench.state("job") == {}


def test_a_failed_task_is_revived(deployed: Deployment, shape: Shape, simulator: Simulator) -> None:
    simulator.say(refused())
    assert deployed.enqueue(shape("POST", "/tasks", {"name": "a"})).status == 422
    simulator.say(completed(WHOLE))
    revived = deployed.enqueue(shape("POST", "/tasks/revive", {"name": "a"}))
    assert (revived.status, revived.body["status"]) == (202, "pending")
    assert deployed.process() == {"example": {"claimed": 1, "completed": 1}}


def test_a_batch_is_posted_and_each_result_stands_by_itself(
    deployed: Deployment, shape: Shape, simulator: Simulator
) -> None:
    simulator.say(completed(WHOLE), to="done")
    tasks = [{"name": "a"}, {"name": "done"}, {"provider": "job", "name": "a"}, {"name": ""}, 7, {"name": "b", "x": 1}]
    answered = deployed.enqueue(shape("POST", "/tasks/batch", {"tasks": tasks}))
    assert answered.status == 200
    results = answered.body["results"]
    assert [result["status"] for result in results] == [202, 200, 202, 400, 400, 400]
    assert [result["body"].get("task_id") for result in results[:3]] == ["example/a", "example/done", "job/a"]
    assert [result["body"].get("field") for result in results[3:]] == ["name", "tasks", "x"]
    assert sorted(simulator.calls()) == ["GET /example"] * 2 + ["POST /jobs"]


def test_a_batch_may_be_as_large_as_a_mebibyte(deployed: Deployment, shape: Shape) -> None:
    tasks = [{"name": f"t{i}", "provider": "accepting", "input": {"x": "y" * 32_000}} for i in range(32)]
    body = json.dumps({"tasks": tasks})
    padded = body + " " * (1024 * 1024 - len(body))
    assert deployed.enqueue(shape("POST", "/tasks/batch", padded)).status == 200
    assert is_problem(deployed.enqueue(shape("POST", "/tasks/batch", padded + " ")), 413, "body")


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "field"),
    [
        ("POST", "/tasks/batch", None, 400, "body"),
        ("POST", "/tasks/batch", [], 400, "body"),
        ("POST", "/tasks/batch", {}, 400, "tasks"),
        ("POST", "/tasks/batch", {"tasks": []}, 400, "tasks"),
        ("POST", "/tasks/batch", {"tasks": {"name": "a"}}, 400, "tasks"),
        ("POST", "/tasks/batch", {"tasks": [{"name": "a"}] * 101}, 400, "tasks"),
        ("POST", "/tasks/batch", {"tasks": [{"name": "a"}], "x": 1}, 400, "x"),
        ("GET", "/tasks/example/nobody", None, 404, "name"),
        ("DELETE", "/tasks?name=nobody", None, 404, "name"),
        ("POST", "/tasks/revive", {"name": "nobody"}, 404, "name"),
        ("POST", "/tasks/revive", {"name": "open"}, 409, "name"),
        ("POST", "/tasks", {"name": "open", "input": {"other": 1}}, 409, "input"),
        ("DELETE", "/tasks/example/done", None, 409, "name"),
        ("GET", "/", None, 400, "task-name"),
        ("GET", "/?task-name=", None, 400, "name"),
        ("GET", "/?task-name=a&provider=nobody", None, 400, "provider"),
        ("GET", "/?task-name=a&x=1", None, 400, "x"),
        ("POST", "/tasks", None, 400, "body"),
        ("POST", "/tasks", "{", 400, "body"),
        ("POST", "/tasks", '{"name": "a", "name": "b"}', 400, "name"),
        ("POST", "/tasks", '{"name": "a", "input": {"x": NaN}}', 400, "body"),
        ("POST", "/tasks", {}, 400, "name"),
        ("POST", "/tasks", {"name": ""}, 400, "name"),
        ("POST", "/tasks", {"name": ".."}, 400, "name"),
        ("POST", "/tasks", {"name": "x" * 257}, 400, "name"),
        ("POST", "/tasks", {"name": "a\u0007"}, 400, "name"),
        ("POST", "/tasks", {"name": 7}, 400, "name"),
        ("POST", "/tasks", {"name": "a", "provider": "nobody"}, 400, "provider"),
        ("POST", "/tasks", {"name": "a", "input": "x"}, 400, "input"),
        ("POST", "/tasks", {"name": "a", "colour": 1}, 400, "colour"),
        ("POST", "/tasks", {"name": "a", "input": {"x": "y" * 32_768}}, 413, "input"),
        ("POST", "/tasks", {"name": "a", "input": {"x": "y" * 65_536}}, 413, "body"),
        ("PUT", "/tasks", {"name": "a"}, 404, "path"),
        ("POST", "/", {"name": "a"}, 404, "path"),
        ("DELETE", "/", None, 404, "path"),
    ],
)
def test_what_cannot_be_served_is_a_problem_that_names_its_field(
    deployed: Deployment,
    shape: Shape,
    simulator: Simulator,
    method: str,
    target: str,
    body: Any,
    status: int,
    field: str,
) -> None:
    simulator.say(completed(WHOLE), to="done")
    for name in ("open", "done"):
        deployed.enqueue(shape("GET", f"/?task-name={name}"))
    calls = len(simulator.asked)
    assert is_problem(deployed.enqueue(shape(method, target, body)), status, field)
    assert len(simulator.asked) == calls


def test_broken_base64_is_a_problem(deployed: Deployment, shape: Shape) -> None:
    assert is_problem(deployed.enqueue(shape("POST", "/tasks", "%%%") | {"isBase64Encoded": True}), 400, "body")


def test_a_body_in_base64_is_the_same_task(deployed: Deployment, shape: Shape) -> None:
    body = {"name": "Łódź", "input": {"total": 30.4}}
    first = deployed.enqueue(shape("POST", "/tasks", body, as_base64=True))
    second = deployed.enqueue(shape("POST", "/tasks", body))
    assert (first.body["deduplicated"], second.body["deduplicated"]) == (False, True)


@pytest.mark.parametrize("name", ["Cache-Control", "cache-control", "CACHE-CONTROL"])
def test_no_cache_is_understood_whatever_the_headers_case(
    deployed: Deployment, shape: Shape, simulator: Simulator, name: str
) -> None:
    simulator.say(completed(WHOLE))
    deployed.enqueue(shape("GET", "/?task-name=a"))
    deployed.enqueue(shape("GET", "/?task-name=a", None, {name: "no-cache"}))
    assert len(simulator.asked) == 2


def test_headers_that_mean_nothing_here_mean_nothing_in_any_case(deployed: Deployment, shape: Shape) -> None:
    bodies = []
    for number, names in enumerate((("Content-Type", "X-Idempotency-Key"), ("content-TYPE", "X-IDEMPOTENCY-key"))):
        headers = dict(zip(names, ("application/json", "one"), strict=True))
        answered = deployed.enqueue(shape("POST", "/tasks", {"name": f"{number}"}, headers))
        assert (answered.status, answered.body["deduplicated"]) == (202, False)
        again = deployed.enqueue(shape("POST", "/tasks", {"name": f"{number}"}, headers))
        bodies.append(again.body | dict.fromkeys(("name", "task_id", "generation", "next_attempt_at")))
    assert bodies[0] == bodies[1]


ABSENT = {
    "rest": ("headers", "multiValueHeaders", "queryStringParameters", "multiValueQueryStringParameters"),
    "http": ("headers", "queryStringParameters", "cookies"),
}


@pytest.mark.parametrize("is_null", [True, False], ids=["null", "missing"])
def test_an_event_without_headers_and_query_is_answered(deployed: Deployment, shape: Shape, is_null: bool) -> None:
    def bare(event: Event) -> Event:
        absent = (*ABSENT[shape.__name__], "pathParameters", "stageVariables")
        kept = {name: value for name, value in event.items() if name not in absent}
        return kept | dict.fromkeys(absent if is_null else ())

    assert is_problem(deployed.enqueue(bare(shape("GET", "/"))), 400, "task-name")
    for body in (None, ""):
        assert is_problem(deployed.enqueue(bare(shape("POST", "/tasks", body))), 400, "body")
    assert deployed.enqueue(bare(shape("POST", "/tasks", {"name": "a"}))).status == 202
    assert deployed.enqueue(bare(shape("GET", "/tasks/example/a"))).status == 200


def test_of_a_name_given_twice_the_last_counts(deployed: Deployment, shape: Shape) -> None:
    assert deployed.enqueue(shape("GET", "/?task-name=a&task-name=b")).body["name"] == "b"


@pytest.mark.parametrize("name", ["Prefer", "prefer", "PREFER"])
def test_a_caller_may_choose_not_to_wait(deployed: Deployment, shape: Shape, simulator: Simulator, name: str) -> None:
    answered = deployed.enqueue(shape("POST", "/tasks", {"name": "a"}, {name: "respond-async"}))
    assert (answered.status, answered.headers["preference-applied"]) == (202, "respond-async")
    batch = deployed.enqueue(shape("POST", "/tasks/batch", {"tasks": [{"name": "b"}]}, {name: "wait=0"}))
    assert (batch.status, batch.headers["preference-applied"]) == (200, "wait=0")
    assert simulator.asked == []
    assert "preference-applied" not in deployed.enqueue(shape("GET", "/?task-name=c")).headers


def test_stale_data_is_answered_while_it_is_renewed(deployed: Deployment, shape: Shape, simulator: Simulator) -> None:
    simulator.say(completed(WHOLE), completed({"rating": 5}))
    deployed.enqueue(shape("GET", "/?task-name=a"))
    deployed.pass_(3605)
    stale = {"Cache-Control": "stale-while-revalidate=60"}
    answered = deployed.enqueue(shape("GET", "/?task-name=a", None, stale))
    assert (answered.status, answered.body["data"], answered.body["revalidating"]) == (200, WHOLE, True)
    assert deployed.process() == {"example": {"claimed": 1, "completed": 1}}
    assert deployed.enqueue(shape("GET", "/?task-name=a", None, stale)).body["data"] == {"rating": 5}


def test_who_looks_again_at_an_unchanged_task_gets_304(deployed: Deployment, shape: Shape) -> None:
    deployed.enqueue(shape("GET", "/?task-name=a"))
    first = deployed.enqueue(shape("GET", "/tasks/example/a"))
    assert first.headers["cache-control"] == "private, no-cache"
    known = {"if-NONE-match": first.headers["etag"]}
    raw = enqueue.handler(shape("GET", "/tasks/example/a", None, known), Context())  # type: ignore[arg-type]
    assert (raw["statusCode"], raw["body"]) == (304, "")
    deployed.pass_(3)
    deployed.process()
    assert deployed.enqueue(shape("GET", "/tasks/example/a", None, known)).status == 200


# --- stages and base paths


@pytest.mark.parametrize(
    ("make", "base"),
    [
        (lambda method, target, body=None: rest(method, target, body, stage="prod"), "/prod"),
        (lambda method, target, body=None: rest(method, "/shop/api" + target, body), "/v1/shop/api"),
        (lambda method, target, body=None: http(method, target, body), ""),
        (lambda method, target, body=None: http(method, target, body, stage="prod"), "/prod"),
        (lambda method, target, body=None: http(method, "/shop" + target, body), "/shop"),
    ],
    ids=["rest stage", "rest base path", "$default", "http stage", "http base path"],
)
def test_routes_are_found_behind_a_stage_or_a_base_path_and_location_leads_back_there(
    deployed: Deployment, make: Callable[..., Event], base: str
) -> None:
    location = f"{base}/tasks?provider=example&name=a%2Fb"
    assert deployed.enqueue(make("POST", "/tasks", {"name": "a/b"})).headers["location"] == location
    assert deployed.enqueue(make("GET", "/?task-name=a%2Fb")).headers["location"] == location
    assert deployed.enqueue(make("GET", "/tasks?provider=example&name=a%2Fb")).status == 200
    assert deployed.enqueue(make("GET", "/tasks/example/a%2Fb")).body["name"] == "a/b"
    assert deployed.enqueue(make("DELETE", "/tasks/example/a%2Fb")).status == 200
    assert deployed.enqueue(make("POST", "/tasks/revive", {"name": "a/b"})).status == 409


def test_a_root_without_its_slash_is_the_root_too(deployed: Deployment) -> None:
    event = http("GET", "/?task-name=a", stage="prod") | {"rawPath": "/prod"}
    assert deployed.enqueue(event).status == 202


def test_a_task_named_revive_can_be_looked_at(deployed: Deployment, shape: Shape) -> None:
    deployed.enqueue(shape("POST", "/tasks", {"name": "revive"}))
    assert deployed.enqueue(shape("GET", "/tasks/example/revive")).status == 200


def test_two_spellings_of_a_letter_are_one_task(deployed: Deployment, shape: Shape, simulator: Simulator) -> None:
    deployed.enqueue(shape("POST", "/tasks", {"name": "e\u0301tude"}))
    assert deployed.enqueue(shape("GET", "/?task-name=%C3%A9tude")).body["deduplicated"]
    assert deployed.enqueue(shape("GET", "/tasks/example/e%CC%81tude")).status == 200
    assert len(simulator.asked) == 1


# --- a slow provider


def test_a_provider_that_sleeps_is_not_waited_for_and_a_retry_of_the_client_makes_no_second_job(
    deployed: Deployment, shape: Shape, simulator: Simulator
) -> None:
    over = threading.Event()
    simulator.say(pending(PARTIAL, id="j-1").after(lambda: over.wait(30)))
    body = {"provider": "impatient", "name": "a"}
    try:
        first = deployed.enqueue(shape("POST", "/tasks", body))
        second = deployed.enqueue(shape("POST", "/tasks", body))
    finally:
        over.set()
    assert (first.status, first.body["status"]) == (202, "pending")
    assert (second.status, second.body["deduplicated"]) == (202, True)
    assert [place for place, _ in deployed.bench.state("impatient").values()] == ["waiting"]
    assert simulator.calls() == ["POST /jobs"]


def test_the_second_submit_after_a_lost_answer_carries_the_same_idempotency_key(
    deployed: Deployment, simulator: Simulator
) -> None:
    over = threading.Event()
    simulator.say(pending(id="j-1").after(lambda: over.wait(30)), pending(id="j-1"))
    try:
        deployed.enqueue(rest("POST", "/tasks", {"provider": "impatient", "name": "a"}))
    finally:
        over.set()
    deployed.pass_(10)
    assert deployed.process() == {"impatient": {"claimed": 1, "snoozed": 1}}
    first, second = (asked.headers["idempotency-key"] for asked in simulator.asked)
    assert first == second


def test_a_function_with_little_time_left_accepts_without_asking(deployed: Deployment, simulator: Simulator) -> None:
    assert deployed.enqueue(rest("GET", "/?task-name=a"), seconds=4).status == 202
    assert simulator.asked == []


# --- large data

LARGE = {"x": random.Random(1).randbytes(400_000).hex()}
"""Too much for an item."""
VAST = {"rows": ["0123456789"] * 450_000}
"""Too much for an answer."""


@pytest.fixture
def bucket(deployed: Deployment, s3: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The deployment's bucket of large data."""
    monkeypatch.setenv("SPILL_BUCKET", BUCKET)
    monkeypatch.setattr(wiring, "s3", lambda: s3)
    return s3


def behind(url: str) -> Any:
    """What a client finds there."""
    answered = requests.get(url, timeout=5)
    assert answered.status_code == 200
    return answered.json()


def test_data_too_large_for_an_item_are_answered_all_the_same(
    deployed: Deployment, shape: Shape, bucket: Any, simulator: Simulator
) -> None:
    simulator.say(pending(PARTIAL), completed(LARGE))
    assert deployed.enqueue(shape("GET", "/?task-name=a")).body["data"] == PARTIAL
    deployed.pass_(3)
    assert deployed.process() == {"example": {"claimed": 1, "completed": 1}}
    for target in ("/?task-name=a", "/tasks/example/a"):
        answered = deployed.enqueue(shape("GET", target))
        assert (answered.status, answered.body["data"], "data_url" in answered.body) == (200, LARGE, False)
    simulator.say(pending(PARTIAL))
    again = deployed.enqueue(shape("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"}))
    assert (again.status, again.body["data"]) == (202, LARGE | PARTIAL)
    cancelled = deployed.enqueue(shape("DELETE", "/tasks/example/a"))
    assert (cancelled.status, cancelled.body["data"]) == (200, LARGE | PARTIAL)


@pytest.mark.parametrize(
    "data",
    [{"x": "a" * 390_000}, {"x": "名" * 150_000}, {"x": random.Random(2).randbytes(1_000_000).hex()}],
    ids=["390 kB of ASCII", "150 000 of three bytes each", "2 MB"],
)
def test_data_of_any_size_end_their_task_at_the_first_answer(
    deployed: Deployment, bucket: Any, simulator: Simulator, data: Any
) -> None:
    simulator.say(completed(data))
    deployed.enqueue(rest("GET", "/?task-name=a&provider=accepting"))
    assert deployed.process() == {"accepting": {"claimed": 1, "completed": 1}}
    assert deployed.enqueue(rest("GET", "/tasks/accepting/a")).body["data"] == data
    assert len(simulator.asked) == 1


@pytest.mark.parametrize("more", [{}, LARGE], ids=["from DynamoDB", "from S3"])
def test_numbers_leave_as_they_came_merged_with_a_partial_answer(
    deployed: Deployment, shape: Shape, bucket: Any, simulator: Simulator, more: Any
) -> None:
    stored = {"three": 3, "half": 1.5, "big": 1e22, "tiny": 5e-324, "": ""}
    simulator.say(completed(stored | more), pending({"added": 1e-7}))
    deployed.enqueue(shape("GET", "/?task-name=a"))
    merged = deployed.enqueue(shape("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"})).body["data"]
    assert json.dumps(merged) == json.dumps(stored | more | {"added": 1e-7})


def test_data_too_large_for_an_answer_are_a_link_in_each(
    deployed: Deployment, shape: Shape, bucket: Any, clock: Clock, simulator: Simulator
) -> None:
    simulator.say(completed(VAST))
    for target in ("/?task-name=a", "/?task-name=a", "/tasks/example/a"):
        answered = deployed.enqueue(shape("GET", target))
        assert (answered.status, answered.body["status"], answered.body["data"]) == (200, "completed", None)
        assert behind(answered.body["data_url"]) == VAST
        assert answered.body["data_url_expires_at"] == instant(clock() + 900_000)
    assert simulator.calls() == ["GET /example"]


def test_of_a_task_in_progress_the_partial_answer_stands_beside_the_link_to_the_stored_data(
    deployed: Deployment, shape: Shape, bucket: Any, simulator: Simulator
) -> None:
    simulator.say(completed(VAST), pending(PARTIAL))
    deployed.enqueue(shape("GET", "/?task-name=a"))
    again = deployed.enqueue(shape("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"}))
    assert (again.status, again.body["data"], again.body["partial"]) == (202, PARTIAL, True)
    assert behind(again.body["data_url"]) == VAST


def test_stored_data_that_are_gone_are_503_until_they_are_fetched_anew(
    deployed: Deployment, shape: Shape, bucket: Any, simulator: Simulator
) -> None:
    simulator.say(completed(LARGE), pending(), completed(LARGE))
    deployed.enqueue(shape("GET", "/?task-name=a"))
    [lost] = bucket.list_objects_v2(Bucket=BUCKET)["Contents"]
    bucket.delete_object(Bucket=BUCKET, Key=lost["Key"])
    for target in ("/?task-name=a", "/tasks/example/a"):
        answered = deployed.enqueue(shape("GET", target))
        assert is_problem(answered, 503, None)
        assert "no-cache" in answered.body["detail"]
        assert answered.headers["retry-after"] == "5"
    anew = deployed.enqueue(shape("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"}))
    assert (anew.status, anew.body["data"], anew.body["data_url"]) == (202, None, None)
    deployed.pass_(3)
    deployed.process()
    assert deployed.enqueue(shape("GET", "/?task-name=a")).body["data"] == LARGE


def test_without_a_bucket_an_answer_that_cannot_hold_its_data_says_so(
    deployed: Deployment, shape: Shape, simulator: Simulator
) -> None:
    simulator.say(completed(VAST))
    for target in ("/?task-name=a", "/tasks/example/a"):
        answered = deployed.enqueue(shape("GET", target))
        assert (answered.status, answered.body["data"], answered.body["data_url"]) == (200, None, None)


@pytest.mark.parametrize(("bucket_name", "asked"), [("", 1), (BUCKET, 0)])
def test_where_data_may_spill_time_is_kept_for_it(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, simulator: Simulator, bucket_name: str, asked: int
) -> None:
    monkeypatch.setenv("SPILL_BUCKET", bucket_name)
    assert deployed.enqueue(rest("GET", "/?task-name=a"), seconds=9).status == 202
    assert len(simulator.asked) == asked


# --- neighbours away


def test_without_dynamodb_it_is_503_with_retry_after(
    deployed: Deployment, shape: Shape, dynamodb: "DynamoDBClient", simulator: Simulator
) -> None:
    DynamoDBOutage(dynamodb).away = {"GetItem", "UpdateItem"}
    for event in (
        shape("GET", "/?task-name=a"),
        shape("POST", "/tasks", {"name": "a"}),
        shape("GET", "/tasks/example/a"),
        shape("DELETE", "/tasks/example/a"),
        shape("POST", "/tasks/revive", {"name": "a"}),
    ):
        answered = deployed.enqueue(event)
        assert is_problem(answered, 503, None)
        assert answered.headers["retry-after"] == "5"
    assert simulator.asked == []


def test_without_redis_it_is_202_and_reconcile_makes_up_for_it(
    deployed: Deployment, shape: Shape, redis_client: "Redis", simulator: Simulator
) -> None:
    outage = RedisOutage(redis_client)
    outage.away = True
    assert deployed.enqueue(shape("POST", "/tasks", {"provider": "job", "name": "a"})).status == 202
    assert len(outage.calls) == 1
    outage.away = False
    deployed.pass_(31)
    assert deployed.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    [place] = wiring.queue().look([Task("job", "a")], records=True)
    assert Record.from_text(place.record).outputs == {"id": "j-1"}
    assert simulator.calls() == ["POST /jobs"]


def test_one_request_knocks_at_a_redis_that_closes_its_door_no_more_often_than_one_call_does(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, simulator: Simulator
) -> None:
    door = Door(silent=False)
    monkeypatch.setattr("redis.Redis", Redis)
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{door.port}")
    try:
        assert deployed.enqueue(rest("POST", "/tasks", {"name": "a"})).status == 202
        assert door.knocks == 2  # the call, and its one repetition
        assert deployed.enqueue(rest("POST", "/tasks", {"name": "a"})).body["schedule"] == "unknown"
        assert door.knocks == 4
    finally:
        door.close()
    assert simulator.calls() == ["GET /example"]


# --- faults of our own


def broken(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("a fault of ours")


def test_a_fault_of_our_own_is_a_500_and_stands_in_the_log(
    deployed: Deployment, shape: Shape, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wiring.store(), "get", broken)
    assert is_problem(deployed.enqueue(shape("GET", "/?task-name=a")), 500, None)
    assert "a fault of ours" in caplog.text


def test_wrong_settings_are_a_500_and_one_message_in_the_log_names_each(
    deployed: Deployment, shape: Shape, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for variable in ("PARALLEL_TASKS", "TICK_SECONDS", "MAX_CRASHES"):
        monkeypatch.setenv(variable, "many")
    answered = deployed.enqueue(shape("GET", "/?task-name=a"))
    assert is_problem(answered, 500, None)
    assert "PARALLEL_TASKS" not in json.dumps(answered.body)
    [line] = [line for line in caplog.records if line.levelno >= logging.ERROR]
    for variable in ("PARALLEL_TASKS", "TICK_SECONDS", "MAX_CRASHES"):
        assert variable in caplog.handler.format(line)


def test_an_outage_of_the_store_is_one_line_with_its_reason(
    deployed: Deployment, dynamodb: "DynamoDBClient", caplog: pytest.LogCaptureFixture
) -> None:
    DynamoDBOutage(dynamodb).away = {"GetItem"}
    deployed.enqueue(rest("GET", "/?task-name=a"))
    [line] = [line for line in caplog.records if line.levelno >= logging.ERROR]
    assert line.message == "store unavailable"
    assert "EndpointConnectionError" in vars(line)["reason"]


# --- logs


@pytest.fixture
def cold_log() -> Iterator[None]:
    """The logger as a cold start finds it, and as the next test is to find it."""
    log = logging.getLogger("meanwhile")

    def chill() -> None:
        log.handlers.clear()
        log.setLevel(logging.NOTSET)
        for name in set(vars(log)) - set(vars(logging.getLogger("fresh"))):
            delattr(log, name)

    chill()
    yield
    chill()


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_each_change_is_one_json_line_and_no_payload_or_secret_stands_in_any(
    cold_log: None,
    deployed: Deployment,
    simulator: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    level: str,
) -> None:
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", level)
    marker = "S3CRET"
    headers = {"Authorization": f"Bearer {marker}", "X-Token": marker}

    def post(name: str, *answers: Said) -> None:
        simulator.say(*answers, to=name)
        body = {"provider": "job", "name": name, "input": {"marker": marker}}
        deployed.enqueue(rest("POST", "/tasks", body, headers))

    post("done", pending({"marker": marker}, id=marker), completed({"marker": marker}))
    post("dead", pending({"marker": marker}, id=marker), refused(marker))
    post("slow", pending({"marker": marker}, id=marker), Said(500, marker.encode()))
    post("refused", refused(marker))
    post("unwanted", pending({"marker": marker}, id=marker))
    deployed.enqueue(rest("DELETE", "/tasks/job/unwanted", None, headers))
    deployed.enqueue(rest("POST", "/tasks", f'{{"name": "{marker}', headers))
    deployed.pass_(3)
    deployed.process({"marker": marker})
    deployed.enqueue(rest("POST", "/tasks/revive", {"provider": "job", "name": "dead"}, headers))
    deployed.reconcile({"marker": marker})

    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert marker not in printed.out + printed.err
    said = [(line["message"], line.get("task")) for line in lines if "message" in line]
    ends: list[tuple[str, str | None]] = [
        ("refused", "refused"),
        ("cancelled", "unwanted"),
        ("completed", "done"),
        ("buried", "dead"),
    ]
    ends += [("tick", None), ("revived", "dead"), ("reconcile", None)]
    waits: list[tuple[str, str | None]] = [("begun", name) for name in ("done", "dead", "slow", "refused", "unwanted")]
    waits += [("snoozed", name) for name in ("done", "dead", "slow", "unwanted")] + [("retried", "slow")]
    assert sorted(said, key=str) == sorted(ends + (waits if level == "DEBUG" else []), key=str)
    assert all(line["service"] == "meanwhile" for line in lines)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_warm_call_says_nothing_of_the_one_before_and_no_result_is_printed(
    cold_log: None,
    deployed: Deployment,
    simulator: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    level: str,
) -> None:
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", level)
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-00000000-111111111111111111111111;Parent=2222222222222222;Sampled=1")
    large = {"marker": "S3CRET" * 33_334}
    simulator.say(completed(large))
    ids = {"X-Correlation-Id": "id-of-the-first", "X-Request-Id": "id-of-the-first", "Authorization": "S3CRET"}
    body = {"name": "first", "input": {"token": "S3CRET"}}
    assert deployed.enqueue(rest("POST", "/tasks", body, ids)).body["data"] == large
    first = "".join(capsys.readouterr())
    simulator.say(refused("S3CRET"))
    assert deployed.enqueue(rest("POST", "/tasks", {"name": "second"})).status == 422
    second = "".join(capsys.readouterr())
    assert "second" in second
    assert "id-of-the-first" not in second
    assert "S3CRET" not in first + second


def test_a_tick_is_a_line_of_its_own_on_a_cold_start_too(
    cold_log: None, deployed: Deployment, simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    wiring.queue().add([Add(Task("coin", "a"), 1, "junk")], token="mine")
    deployed.process()
    said = [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines() if "message" in line]
    assert said == ["record unreadable", "forgotten", "tick"]


# --- starting


PROBE = """
import socket
import sys

def connect(self, address):
    raise SystemExit(f"connected to {address}")

socket.socket.connect = socket.socket.connect_ex = connect

from handlers import enqueue, process, reconcile
from shared import wiring

made = [wiring.enqueuer(), wiring.receiver(), wiring.parts(), wiring.reconciler()]
print(len(made), "aws_xray_sdk" in sys.modules)
"""


def test_neither_importing_the_handlers_nor_putting_the_parts_together_opens_a_connection() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], check=False, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout.strip(), ran.stderr) == ("4 False", "")  # what has no tracer puts no data into a trace
