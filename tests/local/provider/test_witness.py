"""What a trial shows on the terminal."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from shared.codec import Json
from tests.support.provider_tools import SECRET, Api, Call, Write
from tests.support.servers import Says


def test_try_shows_requests_answers_acceptors_and_outcomes_until_the_end(report: Write, call: Call, api: Api) -> None:
    assert call.attempt(report()) == 0
    assert [line for line in call.lines if line[0] in "→←$=" or "acceptor" in line] == [
        f"→ POST {api.site.url}/reports with credentials",
        "← 202 Accepted",
        "no acceptor is on this stage, so the HTTP status decides",
        "= still running; next attempt in 3 s",
        f"→ GET {api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[1] matches: counts as still running",
        "= still running, partial data []; next attempt in 4 s",
        f"→ GET {api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[1] matches: counts as still running",
        "= still running, partial data []; next attempt in 8 s",
        f"→ GET {api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[0] matches: completes",
        "= completed: [1]",
    ]
    assert {'{"q":"x"}', "Retry-After: 3".lower(), '{"id":"r/1"}', 'outputs: {"id":"r/1"}'} <= set(call.lines)
    assert json.loads(api.site.calls[0].body) == {"q": "x"}
    assert f"Idempotency-Key: {api.site.calls[0].headers['Idempotency-Key']}" in call.lines


def test_try_masks_a_secret_wherever_it_turns_up(report: Write, call: Call, vectors: Path) -> None:
    assert call.attempt(report(data="body.echo"), "--record", vectors) == 0
    assert "= completed: MASKED" in call.lines
    assert "x-echo: MASKED" in call.lines
    for text in (call.text, vectors.read_text(encoding="utf-8")):
        assert SECRET not in text
        assert quote(SECRET, safe="") not in text
        assert "MASKED" in text


def test_try_masks_passwords_and_tokens(report: Write, call: Call, api: Api) -> None:
    oauth = {"type": "oauth2", "tokenUrl": f"{api.site.url}/token", "clientId": "me", "clientSecret": "env:REPORT_KEY"}
    api.ends = Says(200, {"state": "READY", "rows": ["t0ken-of-today"]})
    assert call.attempt(report(security=[oauth])) == 0
    assert f"→ POST {api.site.url}/token for a token" in call.lines
    assert '= completed: ["MASKED"]' in call.lines
    assert "t0ken-of-today" not in call.text
    assert SECRET not in call.text


@pytest.mark.parametrize(
    ("ends", "changes", "line"),
    [
        (Says(200, "<html>"), {}, "= error: undecodable (The body is not what it is declared to be (see `decode`))"),
        (Says(503, "busy"), {}, "= error: http (A status that may pass, such as 429 or 503); tried again in 2 s"),
        (Says(410, {"error": {"message": "gone"}}), {}, "= failed: upstream: gone"),
        (
            Says(200, {"state": "ready"}),
            {"result": {"url": "${response.body.link}"}},
            "= error: missing-link (The URL of the result has no value yet); tried again in 2 s",
        ),
        (
            Says(302, b"", {"Location": "http://10.0.0.1/"}),
            {},
            (
                "= failed: refused-target: the target's address is not allowed "
                "(The URL leads to an address neither public nor in `servers`)"
            ),
        ),
        (
            Says(404, b""),
            {},
            "= error: not-found-grace (A 404 so soon after the submit that it may pass); tried again in 2 s",
        ),
    ],
)
def test_try_says_what_an_error_or_a_failure_means(
    report: Write, call: Call, api: Api, ends: Says, changes: Json, line: str
) -> None:
    api.ends, api.asked = ends, 2
    file = report(polling={"maxErrors": 1, "maxWaitTime": 600}, **changes)
    assert call.attempt(file) == 1
    assert line in call.text


def test_try_says_what_stood_there_where_no_acceptor_matches_and_where_data_finds_nothing(
    report: Write, call: Call, api: Api
) -> None:
    api.asked = 2
    acceptors = [{"state": "success", "argument": "body.state", "expected": "READY"}]
    assert call.attempt(report(status="body.stat", acceptors=acceptors, data="body.lines")) == 0
    assert "= completed: null (body.lines finds nothing)" in call.lines
    api.ends, api.asked = Says(501, {"state": "GONE"}), 2
    assert call.attempt(report()) == 1
    assert "no acceptor matches (body.state is GONE), so the HTTP status decides" in call.lines


def test_try_shows_redirects_that_it_follows(report: Write, call: Call, api: Api) -> None:
    api.ends, api.asked = Says(302, b"", {"Location": "/token"}), 2
    file = report(acceptors=[{"state": "success", "argument": "body.expires_in", "expected": 60}])
    assert call.attempt(file) == 0
    assert "this redirect is followed: no acceptor names its status" in call.lines


def test_try_shows_a_body_and_a_status_as_they_came(report: Write, call: Call, api: Api) -> None:
    api.ends, api.asked = Says(599, "<html>"), 2
    assert call.attempt(report()) == 1
    answered = call.lines.index("← 599")
    assert "<html>" in call.lines[answered:]
