"""What a trial shows on the terminal."""

import json
import socket
import ssl
from urllib.parse import quote

import pytest

from local.provider.wiretap import cause
from shared.codec import Json
from tests.support.provider_tools import OAUTH, SECRET, Desk
from tests.support.servers import Says


def test_try_shows_requests_answers_acceptors_and_outcomes_until_the_end(desk: Desk) -> None:
    assert desk.attempt(desk.report()) == 0
    assert [line for line in desk.lines if line[0] in "→←$=" or "acceptor" in line] == [
        f"→ POST {desk.api.site.url}/reports with credentials",
        "← 202 Accepted",
        "no acceptor matches (body.state is null), so the HTTP status decides",
        "= still running; next attempt in 3 s",
        f"→ GET {desk.api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[1] matches: counts as still running",
        "= still running, partial data []; next attempt in 4 s",
        f"→ GET {desk.api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[1] matches: counts as still running",
        "= still running, partial data []; next attempt in 8 s",
        f"→ GET {desk.api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[0] matches: completes",
        "= completed: [1]",
    ]
    assert {'{"q":"x"}', "Retry-After: 3".lower(), '{"id":"r/1"}', 'outputs: {"id":"r/1"}'} <= set(desk.lines)
    assert json.loads(desk.api.site.calls[0].body) == {"q": "x"}
    assert f"Idempotency-Key: {desk.api.site.calls[0].headers['Idempotency-Key']}" in desk.lines


def test_try_says_where_no_acceptor_is_on_a_stage(desk: Desk) -> None:
    acceptors = [{"state": "success", "matcher": "status", "expected": 200}]
    assert desk.attempt(desk.report(acceptors=acceptors)) == 0
    assert "no acceptor is on this stage, so the HTTP status decides" in desk.lines


def test_try_masks_a_secret_wherever_it_turns_up(desk: Desk) -> None:
    assert desk.attempt(desk.report(data="body.echo"), "--record", desk.vectors) == 0
    assert "= completed: MASKED" in desk.lines
    assert "x-echo: MASKED" in desk.lines
    for text in (desk.text, desk.vectors.read_text(encoding="utf-8")):
        assert SECRET not in text
        assert quote(SECRET, safe="") not in text
        assert "MASKED" in text


def test_try_masks_passwords_and_tokens(desk: Desk) -> None:
    oauth = OAUTH | {"tokenUrl": f"{desk.api.site.url}/token", "clientSecret": "env:REPORT_KEY"}
    desk.api.ends = Says(200, {"state": "READY", "rows": ["t0ken-of-today"]})
    assert desk.attempt(desk.report(security=[oauth])) == 0
    assert f"→ POST {desk.api.site.url}/token for a token" in desk.lines
    assert '= completed: ["MASKED"]' in desk.lines
    assert "t0ken-of-today" not in desk.text
    assert SECRET not in desk.text


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
            "= failed: too-many-errors: expired-link (More than `maxErrors` attempts in a row met an error)",
        ),
        (
            Says(404, b""),
            {},
            "= error: not-found-grace (A 404 so soon after the submit that it may pass); tried again in 2 s",
        ),
    ],
)
def test_try_says_what_an_error_or_a_failure_means(desk: Desk, ends: Says, changes: Json, line: str) -> None:
    desk.api.ends, desk.api.asked = ends, 2
    file = desk.report(polling={"maxErrors": 1, "maxWaitTime": 600}, **changes)
    assert desk.attempt(file) == 1
    assert line in desk.text


def test_try_says_what_stood_there_where_no_acceptor_matches_and_where_data_finds_nothing(desk: Desk) -> None:
    desk.api.asked = 2
    acceptors = [{"state": "success", "argument": "body.state", "expected": "READY"}]
    nothing = {"data": "body.lines", "require": "`true`"}
    assert desk.attempt(desk.report(status="body.stat", acceptors=acceptors, **nothing)) == 0
    assert "= completed: null (body.lines finds nothing)" in desk.lines
    desk.api.ends, desk.api.asked = Says(501, {"state": "GONE"}), 2
    assert desk.attempt(desk.report()) == 1
    assert "no acceptor matches (body.state is GONE), so the HTTP status decides" in desk.lines


def test_try_shows_a_url_that_cannot_be_sent_and_says_so(desk: Desk) -> None:
    desk.api.ends, desk.api.asked = Says(302, b"", {"Location": "https://*.example/"}), 2
    assert desk.attempt(desk.report()) == 1
    assert "→ GET https://*.example/" in desk.lines
    assert "too-many-errors: expired-link" in desk.text


def test_try_says_why_there_was_no_connection(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    file = desk.report(servers=[f"http://127.0.0.1:{port}"], polling={"maxErrors": 0})
    assert desk.attempt(file) == 1
    assert "← no reply: the connection was refused" in desk.lines


@pytest.mark.parametrize(("error", "said"), [
    (socket.gaierror(), "there is no such name"), (ConnectionResetError(), "the connection was closed"),
    (ssl.SSLError(), "TLS failed"), (ValueError(), None),
])  # fmt: skip
def test_a_cause_is_found_behind_the_errors_that_follow_from_it(error: Exception, said: str | None) -> None:
    outer = OSError()
    outer.__context__ = error
    assert cause(outer) == said


def test_try_shows_redirects_that_it_follows(desk: Desk) -> None:
    desk.api.ends, desk.api.asked = Says(302, b"", {"Location": "/token"}), 2
    expires = {"state": "success", "argument": "body.expires_in", "expected": 60}
    file = desk.report(acceptors=[expires], data="body")
    assert desk.attempt(file) == 0
    assert "this redirect is followed: no acceptor names its status" in desk.lines


def test_try_shows_a_body_and_a_status_as_they_came(desk: Desk) -> None:
    desk.api.ends, desk.api.asked = Says(599, "<html>"), 2
    assert desk.attempt(desk.report()) == 1
    answered = desk.lines.index("← 599")
    assert "<html>" in desk.lines[answered:]
