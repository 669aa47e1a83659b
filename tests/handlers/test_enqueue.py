"""The HTTP function: every route in both event shapes, every answer text, every fault a problem."""

import json
import logging
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from handlers import enqueue
from shared import wiring
from shared.api.view import instant
from shared.queue import Add, client
from shared.queue.client import client_of
from shared.record import Record
from shared.task import Task
from tests.conftest import BUCKET
from tests.support.api_events import Context, Event, http, rest
from tests.support.deployment import Answered, Deployment
from tests.support.outage import Door
from tests.support.simulator import DONE, PARTIAL, PENDING, WHOLE, Said, completed, pending, refused


@pytest.fixture(params=[rest, http], ids=["rest", "http"])
def api(request: pytest.FixtureRequest, deployed: Deployment) -> Deployment:
    """Each test that calls this runs for both shapes of events."""
    deployed.shape = request.param
    return deployed


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


def test_the_short_form(api: Deployment) -> None:
    new = api.call("GET", "/?task-name=a")
    assert (new.status, new.body["data"], new.body["deduplicated"]) == (202, PARTIAL, False)
    assert new.headers["content-type"] == "application/json"
    assert new.headers["cache-control"] == "no-store"
    assert new.headers["retry-after"] == "62"  # without wake-ups: when the schedule's run has come
    again = api.call("GET", "/?task-name=a")
    assert (again.status, again.body["data"], again.body["deduplicated"]) == (202, PARTIAL, True)
    assert api.simulator.calls() == ["GET /example"]
    api.pass_(3)
    api.simulator.say(DONE)
    api.process()
    done = api.call("GET", "/?task-name=a")
    assert (done.status, done.body["data"]) == (200, WHOLE)
    assert "retry-after" not in done.headers


def test_a_task_is_posted_looked_at_and_cancelled(api: Deployment) -> None:
    posted = api.call("POST", "/tasks", {"provider": "job", "name": "a b", "input": {"customer": 42}})
    assert (posted.status, posted.body["task_id"]) == (202, "job/a b")
    assert api.simulator.asked[0].body == {"name": "a b", "input": {"customer": 42}}
    for target in ("/tasks/job/a%20b", "/tasks?provider=job&name=a+b"):
        status = api.call("GET", target)
        assert (status.status, status.body["status"], status.body["schedule"]) == (200, "pending", "waiting")
    for target in ("/tasks/job/a%20b", "/tasks?provider=job&name=a+b"):
        cancelled = api.call("DELETE", target)
        assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
    assert api.call("GET", "/tasks/job/a%20b").body["status"] == "cancelled"
    assert api.state("job") == {}


@pytest.mark.parametrize("target", ["/erase/job/a%2Ferase%20b", "/erase?provider=job&name=a%2Ferase+b"])
def test_a_task_is_erased_by_a_route_of_its_own(api: Deployment, target: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="meanwhile")
    api.call("POST", "/tasks", {"provider": "job", "name": "a/erase b", "input": {"customer": "S3CRET"}})
    erased, repeated = (api.call("DELETE", target) for _ in range(2))
    assert (erased.status, erased.body["task_id"], erased.body["status"]) == (200, "job/a/erase b", "cancelled")
    assert (repeated.status, repeated.body) == (200, erased.body)
    assert api.call("GET", "/tasks/job/a%2Ferase%20b").body["erased_at"] == erased.body["erased_at"]
    assert api.state("job") == {}
    assert "S3CRET" not in str(api.dynamodb_client.scan(TableName="meanwhile")["Items"])
    assert [line.message for line in caplog.records if line.levelno >= logging.INFO].count("erased") == 2
    again = api.call("POST", "/tasks", {"provider": "job", "name": "a/erase b"})
    assert (again.status, again.body["generation"]) == (202, erased.body["generation"] + 1)
    assert "erased_at" not in again.body
    assert api.simulator.asked[-1].body["input"] == {}


@pytest.mark.parametrize("query", ["erase=true", "erase=false", "erase", "Erase=1", "erase=true&erase="])
@pytest.mark.parametrize("target", ["/tasks/job/a?", "/tasks?provider=job&name=a&"])
def test_who_may_cancel_may_not_therefore_erase(api: Deployment, target: str, query: str) -> None:
    api.call("POST", "/tasks", {"provider": "job", "name": "a"})
    refused = api.call("DELETE", target + query)
    assert is_problem(refused, 400, "erase")
    assert "DELETE /erase/{provider}/{name}" in refused.body["detail"]
    assert api.call("GET", "/tasks/job/a").body["status"] == "pending"


def test_redis_that_knew_of_a_task_too_late_lets_go_of_it(api: Deployment) -> None:
    """Whoever began it puts it into the queue only now, with its input; the run that takes it finds it ended."""
    api.call("POST", "/tasks", {"provider": "job", "name": "a", "input": {"customer": "S3CRET"}})
    generation = api.item_of(Task("job", "a")).generation
    api.call("DELETE", "/erase/job/a")
    record = Record(generation=generation, created_at=1, input={"customer": "S3CRET"}, outputs={"id": "j-1"})
    api.queue.add([Add(Task("job", "a"), generation, record.to_text())], token="late")
    assert api.process() == {"job": {"claimed": 1, "forgotten": 1}}
    assert "S3CRET" not in str((api.bench.keys.dump(), api.dynamodb_client.scan(TableName="meanwhile")["Items"]))


def test_reconcile_brings_back_nothing_of_it(api: Deployment) -> None:
    api.call("POST", "/tasks", {"provider": "job", "name": "a", "input": {"customer": "S3CRET"}})
    generation = api.item_of(Task("job", "a")).generation
    api.call("DELETE", "/erase/job/a")
    api.pass_(3600)
    assert api.reconcile() == {}
    record = Record(generation=generation, created_at=1, input={"customer": "S3CRET"})
    api.queue.add([Add(Task("job", "a"), generation, record.to_text(), 3000)], token="late")
    assert api.reconcile() == {"job": {"forgotten": 1}}
    assert api.bench.keys.dump() == {}


def test_a_failed_task_is_revived(api: Deployment) -> None:
    api.simulator.say(refused())
    assert api.call("POST", "/tasks", {"name": "a"}).status == 422
    api.simulator.say(DONE)
    revived = api.call("POST", "/tasks/revive", {"name": "a"})
    assert (revived.status, revived.body["status"]) == (202, "pending")
    assert api.process() == {"example": {"claimed": 1, "completed": 1}}


def test_a_batch_is_posted_and_each_result_stands_by_itself(api: Deployment) -> None:
    api.simulator.say(DONE, to="done")
    tasks = [{"name": "a"}, {"name": "done"}, {"provider": "job", "name": "a"}, {"name": ""}, 7, {"name": "b", "x": 1}]
    answered = api.call("POST", "/tasks/batch", {"tasks": tasks})
    assert answered.status == 200
    results = answered.body["results"]
    assert [result["status"] for result in results] == [202, 200, 202, 400, 400, 400]
    assert [result["body"].get("task_id") for result in results[:3]] == ["example/a", "example/done", "job/a"]
    assert [result["body"].get("field") for result in results[3:]] == ["name", "tasks", "x"]
    assert sorted(api.simulator.calls()) == ["GET /example"] * 2 + ["POST /jobs"]


def test_a_batch_may_be_as_large_as_a_mebibyte(api: Deployment) -> None:
    tasks = [{"name": f"t{i}", "provider": "accepting", "input": {"x": "y" * 32_000}} for i in range(32)]
    body = json.dumps({"tasks": tasks})
    padded = body + " " * (1024 * 1024 - len(body))
    assert api.call("POST", "/tasks/batch", padded).status == 200
    assert is_problem(api.call("POST", "/tasks/batch", padded + " "), 413, "body")


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "field"),
    [
        ("POST", "/tasks/batch", None, 400, "body"), ("POST", "/tasks/batch", [], 400, "body"),
        ("POST", "/tasks/batch", {}, 400, "tasks"), ("POST", "/tasks/batch", {"tasks": []}, 400, "tasks"),
        ("POST", "/tasks/batch", {"tasks": {"name": "a"}}, 400, "tasks"),
        ("POST", "/tasks/batch", {"tasks": [{"name": "a"}] * 101}, 400, "tasks"),
        ("POST", "/tasks/batch", {"tasks": [{"name": "a"}], "x": 1}, 400, "x"),
        ("GET", "/tasks/example/nobody", None, 404, "name"), ("DELETE", "/tasks?name=nobody", None, 404, "name"),
        ("POST", "/tasks/revive", {"name": "nobody"}, 404, "name"),
        ("POST", "/tasks/revive", {"name": "open"}, 409, "name"),
        ("POST", "/tasks", {"name": "open", "input": {"other": 1}}, 409, "input"),
        ("DELETE", "/tasks/example/done", None, 409, "name"), ("GET", "/", None, 400, "task-name"),
        ("GET", "/?task-name=", None, 400, "name"), ("GET", "/?task-name=a&provider=nobody", None, 400, "provider"),
        ("GET", "/?task-name=a&x=1", None, 400, "x"), ("POST", "/tasks", None, 400, "body"),
        ("POST", "/tasks", "{", 400, "body"), ("POST", "/tasks", '{"name": "a", "name": "b"}', 400, "name"),
        ("POST", "/tasks", '{"name": "a", "input": {"x": NaN}}', 400, "body"), ("POST", "/tasks", {}, 400, "name"),
        ("POST", "/tasks", {"name": ""}, 400, "name"), ("POST", "/tasks", {"name": ".."}, 400, "name"),
        ("POST", "/tasks", {"name": "x" * 257}, 400, "name"), ("POST", "/tasks", {"name": "a\u0007"}, 400, "name"),
        ("POST", "/tasks", {"name": 7}, 400, "name"),
        ("POST", "/tasks", {"name": "a", "provider": "nobody"}, 400, "provider"),
        ("POST", "/tasks", {"name": "a", "input": "x"}, 400, "input"),
        ("POST", "/tasks", {"name": "a", "colour": 1}, 400, "colour"),
        ("POST", "/tasks", {"name": "a", "input": {"x": "y" * 32_768}}, 413, "input"),
        ("POST", "/tasks", {"name": "a", "input": {"x": "y" * 65_536}}, 413, "body"),
        ("PUT", "/tasks", {"name": "a"}, 404, "path"), ("POST", "/", {"name": "a"}, 404, "path"),
        ("DELETE", "/", None, 404, "path"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_a_problem_that_names_its_field(
    api: Deployment, method: str, target: str, body: Any, status: int, field: str
) -> None:
    api.simulator.say(DONE, to="done")
    for name in ("open", "done"):
        if name in f"{target} {body}":
            api.call("GET", f"/?task-name={name}")
    calls = len(api.simulator.asked)
    assert is_problem(api.call(method, target, body), status, field)
    assert len(api.simulator.asked) == calls


def test_headers_that_mean_nothing_here_mean_nothing_in_any_case(api: Deployment) -> None:
    bodies = []
    for number, names in enumerate((("Content-Type", "X-Idempotency-Key"), ("content-TYPE", "X-IDEMPOTENCY-key"))):
        headers = dict(zip(names, ("application/json", "one"), strict=True))
        answered = api.call("POST", "/tasks", {"name": f"{number}"}, headers)
        assert (answered.status, answered.body["deduplicated"]) == (202, False)
        again = api.call("POST", "/tasks", {"name": f"{number}"}, headers)
        bodies.append(
            again.body | dict.fromkeys(("name", "task_id", "generation", "next_attempt_at", "next_attempt_by"))
        )
    assert bodies[0] == bodies[1]


ABSENT = {
    "rest": ("headers", "multiValueHeaders", "queryStringParameters", "multiValueQueryStringParameters"),
    "http": ("headers", "queryStringParameters", "cookies"),
}


@pytest.mark.parametrize("is_null", [True, False], ids=["null", "missing"])
def test_an_event_without_headers_and_query_is_answered(api: Deployment, is_null: bool) -> None:
    def bare(event: Event) -> Event:
        absent = (*ABSENT[api.shape.__name__], "pathParameters", "stageVariables")
        kept = {name: value for name, value in event.items() if name not in absent}
        return kept | dict.fromkeys(absent if is_null else ())

    assert is_problem(api.enqueue(bare(api.shape("GET", "/"))), 400, "task-name")
    for body in (None, ""):
        assert is_problem(api.enqueue(bare(api.shape("POST", "/tasks", body))), 400, "body")
    assert api.enqueue(bare(api.shape("POST", "/tasks", {"name": "a"}))).status == 202
    assert api.enqueue(bare(api.shape("GET", "/tasks/example/a"))).status == 200


@pytest.mark.parametrize("name", ["Prefer", "prefer", "PREFER"])
def test_a_caller_may_choose_not_to_wait(api: Deployment, name: str) -> None:
    answered = api.call("POST", "/tasks", {"name": "a"}, {name: "respond-async"})
    assert (answered.status, answered.headers["preference-applied"]) == (202, "respond-async")
    batch = api.call("POST", "/tasks/batch", {"tasks": [{"name": "b"}]}, {name: "wait=0"})
    assert (batch.status, batch.headers["preference-applied"]) == (200, "wait=0")
    assert api.simulator.asked == []
    assert "preference-applied" not in api.call("GET", "/?task-name=c").headers


def test_stale_data_is_answered_while_it_is_renewed(api: Deployment) -> None:
    api.simulator.say(DONE, completed({"rating": 5}))
    api.call("GET", "/?task-name=a")
    api.pass_(3605)
    stale = {"Cache-Control": "stale-while-revalidate=60"}
    answered = api.call("GET", "/?task-name=a", None, stale)
    assert (answered.status, answered.body["data"], answered.body["revalidating"]) == (200, WHOLE, True)
    assert api.process() == {"example": {"claimed": 1, "completed": 1}}
    assert api.call("GET", "/?task-name=a", None, stale).body["data"] == {"rating": 5}


def test_who_looks_again_at_an_unchanged_task_gets_304(api: Deployment) -> None:
    api.call("GET", "/?task-name=a")
    first = api.call("GET", "/tasks/example/a")
    assert first.headers["cache-control"] == "private, no-cache"
    known = {"if-NONE-match": first.headers["etag"]}
    raw = enqueue.handler(api.shape("GET", "/tasks/example/a", None, known), Context())  # type: ignore[arg-type]
    assert (raw["statusCode"], raw["body"]) == (304, "")
    api.pass_(3)
    api.process()
    assert api.call("GET", "/tasks/example/a", None, known).status == 200


# --- stages and base paths


@pytest.mark.parametrize(
    ("make", "base"),
    [
        (lambda method, target, body=None: rest(method, target, body, stage="prod"), "/prod"),
        (lambda method, target, body=None: rest(method, target, body, base="/shop/api"), "/shop/api"),
        (lambda method, target, body=None: http(method, target, body), ""),
        (lambda method, target, body=None: http(method, target, body, stage="prod"), "/prod"),
        (lambda method, target, body=None: http(method, target, body, base="/shop"), "/shop"),
        (lambda method, target, body=None: rest(method, target, body, base="/v1/tasks"), "/v1/tasks"),
        (lambda method, target, body=None: http(method, target, body, base="/tasks"), "/tasks"),
    ],
    ids=[
        "rest stage",
        "rest base path",
        "$default",
        "http stage",
        "http base path",
        "rest base path like a route",
        "http base path like a route",
    ],
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


def test_a_task_named_revive_can_be_looked_at(api: Deployment) -> None:
    api.call("POST", "/tasks", {"name": "revive"})
    assert api.call("GET", "/tasks/example/revive").status == 200


# --- a slow provider


@pytest.mark.promise("faults", "a provider whose answers come after the deadline")
def test_a_provider_that_sleeps_is_not_waited_for_and_a_retry_of_the_client_makes_no_second_job(
    api: Deployment,
) -> None:
    over = threading.Event()
    api.simulator.say(PENDING.after(lambda: over.wait(30)))
    body = {"provider": "impatient", "name": "a"}
    try:
        first = api.call("POST", "/tasks", body)
        second = api.call("POST", "/tasks", body)
    finally:
        over.set()
    assert (first.status, first.body["status"]) == (202, "pending")
    assert (second.status, second.body["deduplicated"]) == (202, True)
    assert [place for place, _ in api.state("impatient").values()] == ["waiting"]
    assert api.simulator.calls() == ["POST /jobs"]


def test_the_second_submit_after_a_lost_answer_carries_the_same_idempotency_key(deployed: Deployment) -> None:
    over = threading.Event()
    deployed.simulator.say(pending(id="j-1").after(lambda: over.wait(30)), pending(id="j-1"))
    try:
        deployed.call("POST", "/tasks", {"provider": "impatient", "name": "a"})
    finally:
        over.set()
    deployed.pass_(10)
    assert deployed.process() == {"impatient": {"claimed": 1, "snoozed": 1}}
    first, second = (asked.headers["idempotency-key"] for asked in deployed.simulator.asked)
    assert first == second


def test_a_function_with_little_time_left_accepts_without_asking(deployed: Deployment) -> None:
    assert deployed.call("GET", "/?task-name=a", seconds=4).status == 202
    assert deployed.simulator.asked == []


# --- large data

LARGE = {"x": random.Random(1).randbytes(400_000).hex()}
"""Too much for an item."""
VAST = {"rows": ["0123456789"] * 450_000}
"""Too much for an answer."""


@pytest.fixture
def bucket(deployed: Deployment, s3: Any) -> Any:
    """The deployment's bucket of large data."""
    deployed.patch.setenv("SPILL_BUCKET", BUCKET)
    deployed.patch.setattr(wiring, "s3", lambda: s3)
    return s3


def behind(url: str) -> Any:
    """What a client finds there."""
    answered = requests.get(url, timeout=5)
    assert answered.status_code == 200
    return answered.json()


def test_data_too_large_for_an_item_are_answered_all_the_same(api: Deployment, bucket: Any) -> None:
    api.simulator.say(PENDING, completed(LARGE))
    assert api.call("GET", "/?task-name=a").body["data"] == PARTIAL
    api.pass_(3)
    assert api.process() == {"example": {"claimed": 1, "completed": 1}}
    for target in ("/?task-name=a", "/tasks/example/a"):
        answered = api.call("GET", target)
        assert (answered.status, answered.body["data"], "data_url" in answered.body) == (200, LARGE, False)
    api.simulator.say(PENDING)
    again = api.call("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"})
    assert (again.status, again.body["data"]) == (202, LARGE | PARTIAL)
    cancelled = api.call("DELETE", "/tasks/example/a")
    assert (cancelled.status, cancelled.body["data"]) == (200, LARGE | PARTIAL)


@pytest.mark.parametrize(
    "data",
    [{"x": "a" * 390_000}, {"x": "名" * 150_000}, {"x": random.Random(2).randbytes(1_000_000).hex()}],
    ids=["390 kB of ASCII", "150 000 of three bytes each", "2 MB"],
)
def test_data_of_any_size_end_their_task_at_the_first_answer(deployed: Deployment, bucket: Any, data: Any) -> None:
    deployed.simulator.say(completed(data))
    deployed.call("GET", "/?task-name=a&provider=accepting")
    assert deployed.process() == {"accepting": {"claimed": 1, "completed": 1}}
    assert deployed.call("GET", "/tasks/accepting/a").body["data"] == data
    assert len(deployed.simulator.asked) == 1


@pytest.mark.parametrize("more", [{}, LARGE], ids=["from DynamoDB", "from S3"])
def test_numbers_leave_as_they_came_merged_with_a_partial_answer(api: Deployment, bucket: Any, more: Any) -> None:
    stored = {"three": 3, "half": 1.5, "big": 1e22, "tiny": 5e-324, "": ""}
    api.simulator.say(completed(stored | more), pending({"added": 1e-7}))
    api.call("GET", "/?task-name=a")
    merged = api.call("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"}).body["data"]
    assert json.dumps(merged) == json.dumps(stored | more | {"added": 1e-7})


def test_data_too_large_for_an_answer_are_a_link_in_each(api: Deployment, bucket: Any) -> None:
    api.simulator.say(completed(VAST))
    for target in ("/?task-name=a", "/?task-name=a", "/tasks/example/a"):
        answered = api.call("GET", target)
        assert (answered.status, answered.body["status"], answered.body["data"]) == (200, "completed", None)
        assert behind(answered.body["data_url"]) == VAST
        assert answered.body["data_url_expires_at"] == instant(api.clock() + 900_000)
    assert api.simulator.calls() == ["GET /example"]


def test_of_a_task_in_progress_the_partial_answer_stands_beside_the_link_to_the_stored_data(
    api: Deployment, bucket: Any
) -> None:
    api.simulator.say(completed(VAST), PENDING)
    api.call("GET", "/?task-name=a")
    again = api.call("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"})
    assert (again.status, again.body["data"], again.body["partial"]) == (202, PARTIAL, True)
    assert behind(again.body["data_url"]) == VAST


def test_stored_data_that_are_gone_are_503_until_they_are_fetched_anew(api: Deployment, bucket: Any) -> None:
    api.simulator.say(completed(LARGE), pending(), completed(LARGE))
    api.call("GET", "/?task-name=a")
    [lost] = bucket.list_objects_v2(Bucket=BUCKET)["Contents"]
    bucket.delete_object(Bucket=BUCKET, Key=lost["Key"])
    for target in ("/?task-name=a", "/tasks/example/a"):
        answered = api.call("GET", target)
        assert is_problem(answered, 503, None)
        assert "no-cache" in answered.body["detail"]
        assert answered.headers["retry-after"] == "5"
    anew = api.call("GET", "/?task-name=a", None, {"Cache-Control": "no-cache"})
    assert (anew.status, anew.body["data"], anew.body["data_url"]) == (202, None, None)
    api.pass_(3)
    api.process()
    assert api.call("GET", "/?task-name=a").body["data"] == LARGE


def test_without_a_bucket_data_that_no_answer_could_hold_end_the_task_as_too_large(api: Deployment) -> None:
    api.simulator.say(completed(VAST))
    for target, status in (("/?task-name=a", 422), ("/tasks/example/a", 200)):
        answered = api.call("GET", target)
        assert (answered.status, answered.body["status"], answered.body["data"]) == (status, "failed", None)
        assert answered.body["error"]["reason"] == "too-large"


@pytest.mark.parametrize(("bucket_name", "asked"), [("", 1), (BUCKET, 0)])
def test_where_data_may_spill_time_is_kept_for_it(deployed: Deployment, bucket_name: str, asked: int) -> None:
    deployed.patch.setenv("SPILL_BUCKET", bucket_name)
    assert deployed.call("GET", "/?task-name=a", seconds=9).status == 202
    assert len(deployed.simulator.asked) == asked


# --- neighbours away


def test_without_dynamodb_it_is_503_with_retry_after(api: Deployment) -> None:
    api.dynamodb.away = {"GetItem", "UpdateItem"}
    requests: list[Any] = [("GET", "/?task-name=a"), ("POST", "/tasks", {"name": "a"}), ("GET", "/tasks/example/a")]
    for request in [*requests, ("DELETE", "/tasks/example/a"), ("POST", "/tasks/revive", {"name": "a"})]:
        answered = api.call(*request)
        assert is_problem(answered, 503, None)
        assert answered.headers["retry-after"] == "5"
    assert api.simulator.asked == []


def test_without_redis_it_is_202_and_reconcile_makes_up_for_it(api: Deployment) -> None:
    api.redis.calls.clear()
    api.redis.away = True
    assert api.call("POST", "/tasks", {"provider": "job", "name": "a"}).status == 202
    assert len(api.redis.calls) == 1
    api.redis.away = False
    api.pass_(31)
    assert api.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    [place] = wiring.queue().look([Task("job", "a")], records=True)
    assert Record.from_text(place.record).outputs == {"id": "j-1"}
    assert api.simulator.calls() == ["POST /jobs"]


def test_one_request_knocks_at_a_redis_that_closes_its_door_no_more_often_than_one_call_does(
    deployed: Deployment,
) -> None:
    door = Door(silent=False)
    deployed.patch.setattr(client, "client_of", client_of)
    deployed.patch.setenv("REDIS_URL", f"redis://127.0.0.1:{door.port}")
    try:
        assert deployed.call("POST", "/tasks", {"name": "a"}).status == 202
        assert door.knocks == 2  # the call, and its one repetition
        assert deployed.call("POST", "/tasks", {"name": "a"}).body["schedule"] == "unknown"
        assert door.knocks == 4
    finally:
        door.close()
    assert deployed.simulator.calls() == ["GET /example"]


# --- faults of our own


def broken(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("a fault of ours")


def test_a_fault_of_our_own_is_a_500_and_stands_in_the_log(api: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    api.patch.setattr(wiring.store(), "get", broken)
    assert is_problem(api.call("GET", "/?task-name=a"), 500, None)
    assert "a fault of ours" in caplog.text


def test_wrong_settings_are_a_500_and_one_message_in_the_log_names_each(
    api: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    for variable in ("PARALLEL_TASKS", "TICK_SECONDS", "MAX_CRASHES"):
        api.patch.setenv(variable, "many")
    answered = api.call("GET", "/?task-name=a")
    assert is_problem(answered, 500, None)
    assert "PARALLEL_TASKS" not in json.dumps(answered.body)
    [line] = [line for line in caplog.records if line.levelno >= logging.ERROR]
    for variable in ("PARALLEL_TASKS", "TICK_SECONDS", "MAX_CRASHES"):
        assert variable in caplog.handler.format(line)


def test_an_outage_of_the_store_is_one_line_with_its_reason(
    deployed: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    deployed.dynamodb.away = {"GetItem"}
    deployed.call("GET", "/?task-name=a")
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
    cold_log: None, deployed: Deployment, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    deployed.patch.setenv("POWERTOOLS_LOG_LEVEL", level)
    marker = "S3CRET"
    headers = {"Authorization": f"Bearer {marker}", "X-Token": marker}

    def post(name: str, *answers: Said) -> None:
        deployed.simulator.say(*answers, to=name)
        body = {"provider": "job", "name": name, "input": {"marker": marker}}
        deployed.call("POST", "/tasks", body, headers)

    post("done", pending({"marker": marker}, id=marker), completed({"marker": marker}))
    post("dead", pending({"marker": marker}, id=marker), refused(marker))
    post("slow", pending({"marker": marker}, id=marker), Said(500, marker.encode()))
    post("refused", refused(marker))
    post("unwanted", pending({"marker": marker}, id=marker))
    deployed.call("DELETE", "/tasks/job/unwanted", None, headers)
    deployed.call("POST", "/tasks", f'{{"name": "{marker}', headers)
    deployed.pass_(3)
    deployed.process({"marker": marker})
    deployed.call("POST", "/tasks/revive", {"provider": "job", "name": "dead"}, headers)
    deployed.reconcile({"marker": marker})

    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert marker not in printed.out + printed.err
    said = [(line["message"], line.get("task")) for line in lines if "message" in line]
    ends: list[Any] = [("refused", "refused"), ("cancelled", "unwanted"), ("completed", "done"), ("buried", "dead")]
    ends += [("tick", None), ("revived", "dead"), ("reconcile", None)]
    ends += [("begun", name) for name in ("done", "dead", "slow", "refused", "unwanted")]
    waits: list[Any] = [("snoozed", name) for name in ("done", "dead", "slow", "unwanted")] + [("retried", "slow")]
    assert sorted(said, key=str) == sorted(ends + (waits if level == "DEBUG" else []), key=str)
    assert all(line["service"] == "meanwhile" for line in lines)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_warm_call_says_nothing_of_the_one_before_and_no_result_is_printed(
    cold_log: None, deployed: Deployment, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    deployed.patch.setenv("POWERTOOLS_LOG_LEVEL", level)
    deployed.patch.setenv(
        "_X_AMZN_TRACE_ID", "Root=1-00000000-111111111111111111111111;Parent=2222222222222222;Sampled=1"
    )
    large = {"marker": "S3CRET" * 33_334}
    deployed.simulator.say(completed(large))
    ids = {"X-Correlation-Id": "id-of-the-first", "X-Request-Id": "id-of-the-first", "Authorization": "S3CRET"}
    body = {"name": "first", "input": {"token": "S3CRET"}}
    assert deployed.call("POST", "/tasks", body, ids).body["data"] == large
    first = "".join(capsys.readouterr())
    deployed.simulator.say(refused("S3CRET"))
    assert deployed.call("POST", "/tasks", {"name": "second"}).status == 422
    second = "".join(capsys.readouterr())
    assert "second" in second
    assert "id-of-the-first" not in second
    assert "S3CRET" not in first + second


def test_a_tick_is_a_line_of_its_own_on_a_cold_start_too(
    cold_log: None, deployed: Deployment, capsys: pytest.CaptureFixture[str]
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


def test_who_asked_stands_in_the_lines_about_what_came_of_it(
    cold_log: None, deployed: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.call("POST", "/tasks", {"provider": "job", "name": "a"})
    deployed.call("DELETE", "/tasks/job/a")
    deployed.call("DELETE", "/erase/job/a")
    unsigned = rest("POST", "/tasks", {"provider": "job", "name": "b"})
    unsigned["requestContext"].pop("identity", None)
    deployed.enqueue(unsigned)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "message" in line]
    said = {(line["message"], line["task"]): line.get("caller") for line in lines}
    somebody = "arn:aws:iam::123456789012:user/caller"
    assert said[("begun", "a")] == said[("cancelled", "a")] == said[("erased", "a")] == somebody
    assert said[("begun", "b")] is None
