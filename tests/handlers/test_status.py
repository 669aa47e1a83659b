"""The status function: answers like enqueue where nobody waits, and is the only one where somebody may."""

import json
from typing import Any

import pytest

from handlers import status
from shared import wiring
from shared.api.wait import Waiter
from tests.support.api_events import Context, http, rest
from tests.support.deployment import Answered, Deployment
from tests.support.simulator import DONE, WHOLE

TARGETS = ("/tasks/example/a%20b", "/tasks?provider=example&name=a+b")


@pytest.fixture(params=[rest, http], ids=["rest", "http"])
def api(request: pytest.FixtureRequest, deployed: Deployment) -> Deployment:
    """Status requests may wait here, by the clock of the test; a task waits for its next attempt."""
    deployed.shape = request.param
    deployed.patch.setenv("STATUS_WAIT_SECONDS", "20")
    waiter = Waiter(wiring.parts(), deployed.clock.monotonic, deployed.pass_)
    deployed.patch.setattr(wiring, "waiter", lambda: waiter)
    deployed.call("POST", "/tasks", {"name": "a b"})
    return deployed


def look(api: Deployment, target: str = TARGETS[0], seconds: float = 28, **headers: str) -> Answered:
    """What the status function answers to a GET."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = status.handler(api.shape("GET", target, None, named), Context(seconds))  # type: ignore[arg-type]
    return Answered({"isBase64Encoded": False} | raw | {"body": raw["body"] or "{}"})


def lasting(body: dict[str, Any]) -> dict[str, Any]:
    """A body but for what goes on with the server's clock."""
    return {name: value for name, value in body.items() if not name.startswith("next_attempt_")}


@pytest.mark.parametrize("target", [*TARGETS, "/tasks/example/nobody", "/tasks/example", "/tasks?x=1"])
def test_who_does_not_wait_is_answered_as_enqueue_answers(api: Deployment, target: str) -> None:
    looked, asked = look(api, target), api.call("GET", target)
    assert (looked.status, looked.headers, lasting(looked.body)) == (asked.status, asked.headers, lasting(asked.body))
    assert looked.status == (200 if target in TARGETS else looked.body["status"])


@pytest.mark.parametrize("target", TARGETS)
def test_who_waits_is_told_so(api: Deployment, target: str) -> None:
    began = api.clock()
    answered = look(api, target, Prefer="wait=7")
    assert (answered.status, answered.body["status"], api.clock() - began) == (200, "pending", 7_000)
    assert (answered.headers["preference-applied"], answered.headers["cache-control"]) == (
        "wait=7",
        "private, no-cache",
    )


def test_who_has_waited_in_vain_for_news_of_what_it_knows_is_told_that(api: Deployment) -> None:
    tag = look(api).headers["etag"]
    answered = look(api, Prefer="wait=1", If_None_Match=tag)
    assert (answered.status, answered.body, answered.headers["etag"]) == (304, {}, tag)
    assert answered.headers["preference-applied"] == "wait=1"


def test_who_waits_is_answered_by_a_tick_that_completes_the_task(api: Deployment) -> None:
    def tick(seconds: float) -> None:
        api.pass_(seconds)
        api.process()

    api.simulator.say(DONE)
    waiter = Waiter(wiring.parts(), api.clock.monotonic, tick)
    api.patch.setattr(wiring, "waiter", lambda: waiter)
    answered = look(api, Prefer="wait=20")
    assert (answered.body["status"], answered.body["data"]) == ("completed", WHOLE)


def test_a_wait_ends_before_the_function_does(api: Deployment) -> None:
    began = api.clock()
    assert look(api, seconds=12, Prefer="wait=20").status == 200
    assert 8_000 < api.clock() - began < 12_000


def test_enqueue_does_not_wait_for_a_status(api: Deployment) -> None:
    began = api.clock()
    answered = api.call("GET", TARGETS[0], None, {"Prefer": "wait=20"})
    assert (answered.status, api.clock() - began, "preference-applied" in answered.headers) == (200, 0, False)


def test_without_dynamodb_it_is_503_with_retry_after(api: Deployment) -> None:
    api.dynamodb.away = {"GetItem"}
    answered = look(api, Prefer="wait=20")
    assert (answered.status, answered.headers["retry-after"]) == (503, "5")
    assert answered.headers["content-type"] == "application/problem+json"


def test_a_fault_of_our_own_is_a_500_and_stands_in_the_log(api: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    api.patch.setattr(wiring.store(), "get", broken)
    answered = look(api)
    assert (answered.status, "fault of ours" in json.dumps(answered.body)) == (500, False)
    assert "a fault of ours" in caplog.text
