"""What a trial writes down replays as it was."""

import json
from pathlib import Path
from typing import Any

import pytest

from local.provider.trial import Trial
from local.provider.wiretap import Wiretap
from shared.codec import Json
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.provider.wire.transport import Transport
from tests.support.provider_tools import JOB, Api, Call, Write
from tests.support.servers import Cut, Says


def recorded(vectors: Path) -> Any:
    (vector,) = json.loads(vectors.read_text(encoding="utf-8"))["vectors"]
    return vector


def test_a_recorded_conversation_is_a_vector_that_replays(report: Write, call: Call, vectors: Path) -> None:
    assert call.attempt(report(), "--record", vectors) == 0
    assert call.lines[-1] == f"{vectors}: 4 steps; replay passes"
    vector = recorded(vectors)
    assert vector["config_name"] == "report"
    request = vector["steps"][0]["exchanges"][0]["request"]
    assert request["auth"] is True
    assert request["headers"] == {"Idempotency-Key": "task-1"}
    assert request["body"] == {"q": "x"}
    assert call("replay", vectors) == 0
    vector["steps"][1]["expect"]["delay"] = 5
    vectors.write_text(json.dumps([vector]), encoding="utf-8")
    assert call("replay", vectors) == 1
    assert "step 1 at " in call.text


@pytest.mark.parametrize(
    "changes",
    [
        {"submit": JOB["submit"] | {"url": "/reports", "contentType": "application/x-www-form-urlencoded"}},
        {"submit": JOB["submit"] | {"url": "/reports", "body": "${task.name}", "contentType": "text/plain"}},
        {"submit": JOB["submit"] | {"url": "/reports", "query": {"a": ["b c", 1], "n": None}}},
        {"polling": {"jitter": "full", "minDelay": 0.5, "multiplier": 3}},
        {"result": {"url": "/reports/${outputs.id}?final", "next": "body.next"}},
        {"result": {"url": "/reports/${outputs.id}", "decode": "text"}, "data": "body"},
    ],
)
def test_whatever_is_recorded_replays(report: Write, call: Call, vectors: Path, changes: Json) -> None:
    assert call.attempt(report(**changes), "--input", '{"q": ["x", 1]}', "--record", vectors) == 0
    assert call.lines[-1].endswith("steps; replay passes")


def test_a_trial_of_another_server_replays_as_it_was(
    report: Write, call: Call, api: Api, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_SERVERS", f"report={api.site.url}")
    servers = ["https://api.acme.example", "https://files.acme.example"]
    assert call.attempt(report(servers=servers), "--record", vectors) == 0
    assert call.lines[-1].endswith("replay passes")
    assert recorded(vectors)["config"]["servers"] == [api.site.url, servers[1]]


def test_an_answer_that_never_came_is_recorded_and_replays(report: Write, call: Call, api: Api, vectors: Path) -> None:
    api.ends = Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
    assert call.attempt(report(polling={"maxErrors": 1}), "--record", vectors) == 1
    assert "= failed: too-many-errors: transport" in call.text
    assert call.lines[-1].endswith("5 steps; replay passes")
    answers = [exchange["response"] for step in recorded(vectors)["steps"] for exchange in step["exchanges"]]
    assert answers[-2:] == [{"transportError": "connection"}] * 2
    assert call("replay", vectors) == 0


def test_a_late_answer_is_recorded_and_replays(
    report: Write, call: Call, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(self: Transport, one: Any, seconds: float, allowed: Any) -> Any:
        is_poll = isinstance(self, Wiretap) and "/reports/" in one.url
        return once(self, one, 0 if is_poll else seconds, allowed)

    once = Transport.once
    monkeypatch.setattr(Transport, "once", late)
    assert call.attempt(report(polling={"maxErrors": 0}), "--record", vectors) == 1
    assert "= failed: too-many-errors: deadline" in call.text
    assert call.lines[-1].endswith("2 steps; replay passes")
    assert recorded(vectors)["steps"][1]["exchanges"][0]["response"] == {"transportError": "timeout"}


def test_an_answer_beyond_measure_is_recorded_by_its_name_alone(
    report: Write, call: Call, api: Api, vectors: Path
) -> None:
    api.ends, api.asked = Says(200, b"x" * (MAX_RESPONSE_BYTES + 1)), 2
    assert call.attempt(report(), "--record", vectors) == 1
    assert call.lines[-1].endswith("2 steps; replay passes")
    assert recorded(vectors)["steps"][1]["exchanges"][0]["response"] == {"transportError": "too-large"}


@pytest.mark.parametrize("token", [Says(503, "busy"), Cut()])
def test_a_token_that_was_not_to_be_had_is_recorded_and_replays(
    report: Write, call: Call, api: Api, vectors: Path, token: Says | Cut
) -> None:
    oauth = {"type": "oauth2", "tokenUrl": f"{api.site.url}/token", "clientId": "me", "clientSecret": "env:REPORT_KEY"}
    api.token = token
    assert call.attempt(report(security=[oauth], polling={"maxErrors": 0}), "--record", vectors) == 1
    assert call.lines[-1].endswith("1 step; replay passes")
    (exchange,) = recorded(vectors)["steps"][0]["exchanges"]
    assert exchange["request"] == {"method": "POST", "url": f"{api.site.url}/token"}


def test_a_trial_can_be_ended_and_what_happened_so_far_is_recorded(
    report: Write, call: Call, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(trial: Trial, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "_wait", interrupted)
    assert call("try", report(), "--input", '{"q": 1}', "--record", vectors) == 1
    assert call.lines[-2:] == [
        "ended; a job that was begun goes on at the provider",
        f"{vectors}: 1 step; replay passes",
    ]


def test_a_trial_whose_output_nobody_reads_any_more_is_recorded(
    report: Write, call: Call, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(trial: Trial, *_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(Trial, "_wait", unread)
    with pytest.raises(BrokenPipeError):
        call.attempt(report(), "--record", vectors)
    assert len(recorded(vectors)["steps"]) == 1
