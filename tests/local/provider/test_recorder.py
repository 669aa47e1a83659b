"""What a trial writes down replays as it was."""

import json
from typing import Any
from unittest.mock import Mock

import pytest

from local.provider.trial import Trial
from local.provider.wiretap import Wiretap
from shared.codec import Json
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.provider.wire.transport import Transport
from tests.support.provider_tools import OAUTH, Desk, submit
from tests.support.servers import Cut, Says, Seen


def test_a_recorded_conversation_is_a_vector_that_replays(desk: Desk) -> None:
    vector = desk.record(steps="4 steps")
    assert vector["config_name"] == "report"
    request = vector["steps"][0]["exchanges"][0]["request"]
    assert request["auth"] is True
    assert request["headers"] == {"Idempotency-Key": "task-1"}
    assert request["body"] == {"q": "x"}
    assert desk("replay", desk.vectors) == 0
    vector["steps"][1]["expect"]["delay"] = 5
    desk.vectors.write_text(json.dumps([vector]), encoding="utf-8")
    assert desk("replay", desk.vectors) == 1
    assert "step 1 at " in desk.text


@pytest.mark.parametrize("changes", [
    submit(url="/reports", contentType="application/x-www-form-urlencoded"),
    submit(url="/reports", body="${task.name}", contentType="text/plain"),
    submit(url="/reports", query={"a": ["b c", 1], "n": None}),
    {"polling": {"jitter": "full", "minDelay": 0.5, "multiplier": 3}},
    {"result": {"url": "/reports/${outputs.id}?final", "next": "body.next"}},
    {"result": {"url": "/reports/${outputs.id}", "decode": "text"}, "data": "body"},
])  # fmt: skip
def test_whatever_is_recorded_replays(desk: Desk, changes: dict[str, Json]) -> None:
    desk.record("--input", '{"q": ["x", 1]}', steps="steps", **changes)


def test_a_date_is_recorded_with_the_answers_own_so_that_it_means_the_same_span_in_a_replay(desk: Desk) -> None:
    """C13."""

    def answer(seen: Seen) -> Says | Cut:
        headers = {"Date": "Mon, 01 Jan 2029 00:00:00 GMT", "Retry-After": "Mon, 01 Jan 2029 00:01:00 GMT"}
        return Says(202, {"id": "r/1"}, headers) if seen.method == "POST" else desk.api.answer(seen)

    desk.api.site.answer = answer
    assert desk.record()["steps"][0]["expect"]["delay"] == 60


def test_a_trial_of_another_server_replays_as_it_was(desk: Desk) -> None:
    desk.patch.setenv("PROVIDER_SERVERS", f"report={desk.api.site.url}")
    vector = desk.record(servers=["https://api.acme.example", "https://files.acme.example"])
    assert vector["config"]["servers"] == [desk.api.site.url, "https://files.acme.example"]


def test_an_answer_that_never_came_is_recorded_and_replays(desk: Desk) -> None:
    desk.api.ends = Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
    vector = desk.record(exit_code=1, steps="5 steps", polling={"maxErrors": 1})
    assert "= failed: too-many-errors: transport" in desk.text
    answers = [exchange["response"] for step in vector["steps"] for exchange in step["exchanges"]]
    assert answers[-2:] == [{"transportError": "connection"}] * 2
    assert desk("replay", desk.vectors) == 0


def test_a_late_answer_is_recorded_and_replays(desk: Desk) -> None:
    def late(self: Transport, one: Any, seconds: float, allowed: Any) -> Any:
        is_poll = isinstance(self, Wiretap) and "/reports/" in one.url
        return once(self, one, 0 if is_poll else seconds, allowed)

    once = Transport.once
    desk.patch.setattr(Transport, "once", late)
    vector = desk.record(exit_code=1, steps="2 steps", polling={"maxErrors": 0})
    assert "= failed: too-many-errors: deadline" in desk.text
    assert vector["steps"][1]["exchanges"][0]["response"] == {"transportError": "timeout"}


def test_an_answer_beyond_measure_is_recorded_by_its_name_alone(desk: Desk) -> None:
    desk.api.ends, desk.api.asked = Says(200, b"x" * (MAX_RESPONSE_BYTES + 1)), 2
    vector = desk.record(exit_code=1, steps="2 steps", polling={"maxErrors": 0})
    assert vector["steps"][1]["exchanges"][0]["response"] == {"transportError": "too-large"}


@pytest.mark.parametrize("token", [Says(503, "busy"), Cut()])
def test_a_token_that_was_not_to_be_had_is_recorded_and_replays(desk: Desk, token: Says | Cut) -> None:
    desk.api.token, url = token, f"{desk.api.site.url}/token"
    oauth = OAUTH | {"tokenUrl": url, "clientSecret": "env:REPORT_KEY"}
    vector = desk.record(exit_code=1, steps="1 step", security=[oauth], polling={"maxErrors": 0})
    (exchange,) = vector["steps"][0]["exchanges"]
    assert exchange["request"] == {"method": "POST", "url": url}


def test_a_trial_can_be_ended_and_what_happened_so_far_is_recorded(desk: Desk) -> None:
    desk.patch.setattr(Trial, "_wait", Mock(side_effect=KeyboardInterrupt))
    desk.record(exit_code=1)
    goes_on = "ended; a job that was begun goes on at the provider"
    assert desk.lines[-2:] == [goes_on, f"{desk.vectors}: 1 step; replay passes"]


def test_a_trial_whose_output_nobody_reads_any_more_is_recorded(desk: Desk) -> None:
    desk.patch.setattr(Trial, "_wait", Mock(side_effect=BrokenPipeError))
    with pytest.raises(BrokenPipeError):
        desk.record()
    assert len(desk.recorded()["steps"]) == 1
