"""The tools of whoever writes a provider file: check, try and replay, from their command line."""

import io
import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from local import ROOT
from local.provider.__main__ import main
from local.provider.trial import Surroundings, Trial
from local.servers.redis_server import NoServerError
from local.servers.third_party import ThirdParty
from local.stack import Stack
from shared.codec import Json
from shared.outcome import Completed
from shared.provider.language.rules import Rules
from shared.task import Task
from tests.support.servers import Cut, Says, Seen, Site

VECTORS = ROOT / "tests/conversations/vectors.json"
SHIPPED = ROOT / "shared/providers"
SECRET = "s3cret/of:a+key="
"""It is spelled in several ways on its way."""

JOB: dict[str, Any] = {
    "servers": ["https://api.acme.example"],
    "security": [{"type": "http", "scheme": "bearer", "secret": "ssm:/acme/token"}],
    "submit": {
        "method": "POST",
        "url": "/jobs",
        "headers": {"Idempotency-Key": "${task.id}"},
        "body": {"q": "${input.q}"},
        "outputs": {"id": "body.id"},
    },
    "poll": {"url": "/jobs/${outputs.id}"},
    "acceptors": [{"state": "success", "expected": "succeeded"}, {"state": "failure", "expected": "failed"}],
    "data": "body.data",
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(poll=None)`: the file acme.json, JOB with changes; None takes a part away."""

    def written(file: Json = JOB, name: str = "acme.json", **changes: Json) -> Path:
        path = tmp_path / name
        content = {key: value for key, value in (file | changes).items() if value is not None}
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return written


class Told:
    """What a call printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.text = ""

    def __call__(self, *arguments: object) -> int:
        status = main([str(one) for one in arguments])
        read = self._capsys.readouterr()
        self.text = read.out + read.err
        return status

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.text.splitlines() if line.strip()]

    @property
    def warnings(self) -> list[str]:
        return [line.removeprefix("warning: ") for line in self.lines if line.startswith("warning: ")]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Told:
    """`call("check", path)` returns the exit status; `call.text` is what it printed."""
    return Told(capsys)


# --- check: what a file will do

HOOKED = {"url": "/jobs", "query": {"hook": "${callback.url}"}, "outputs": {"id": "body.id"}}


def test_check_says_what_a_file_will_do(write: Write, call: Told) -> None:
    cancel = {"method": "DELETE", "url": "/jobs/${outputs.id}"}
    result = [{"url": "${response.body.files}"}, {"url": "${response.body.link}", "decode": "csv", "next": "body.next"}]
    path = write(cancel=cancel, result=result, progress="body.percent", partial="body.rows", freshness=7200)
    assert call("check", path) == 0
    assert call.lines == [
        f"{path}: sound",
        "It submits POST https://api.acme.example/jobs with a JSON body, and keeps id of the answer.",
        "A new request waits up to 5 s for that.",
        "It sends a bearer token from ssm:/acme/token to https://api.acme.example, and to no other origin.",
        (
            "It asks again with GET https://api.acme.example/jobs/${outputs.id}, every 2–120 s "  # noqa: RUF001
            "(after 2, 4, 8, 16, 32, … s, each at random down to 2 s), or when the answer says: Retry-After."
        ),
        "Its status is body.status.",
        "'succeeded' completes, once its result is fetched.",
        "'failed' fails with body.error.",
        (
            "An unknown 2xx counts as still running. No answer, half of one, or 408, 425, 429, 500, 502, 503, 504, 529 "
            "is tried again, at most 10 times in a row. Any other answer fails with body.error."
        ),
        "A 404 within 30 s after the submit is tried again.",
        (
            "After success it fetches GET ${response.body.files}, then fetches GET ${response.body.link} as csv with "
            "every page that body.next leads to."
        ),
        "The data is body.data of the last answer.",
        "While it runs, body.rows is shown as partial data.",
        "Its progress is body.percent.",
        (
            "It is given up 24 h after its first submit, and cancelled with "
            "DELETE https://api.acme.example/jobs/${outputs.id}."
        ),
        "Completed data answers new requests for 2 h, a failure for 60 s.",
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"poll": None}, "It asks again with the same request, every"),
        (
            {"poll": None, "submit": [{"url": "/a"}, {"url": "/b"}]},
            "It submits GET https://api.acme.example/a, then GET https://api.acme.example/b.",
        ),
        (
            {"poll": None, "submit": [{"url": "/a"}, {"url": "/b"}]},
            "It asks again with GET https://api.acme.example/b,",
        ),
        ({"polling": {"minDelay": 5, "multiplier": 1}}, ", every 5 s, or"),
        ({"polling": {"initialDelay": 30, "multiplier": 1}}, ", every 2 s (after 30, 2, 2, 2, 2, … s), or"),
        ({"polling": {"hints": [{"argument": "body.eta", "unit": "ms"}]}}, "says: body.eta (ms) or Retry-After."),
        ({"polling": {"maxErrors": 1}}, "tried again, at most once in a row."),
        (
            {"submit": HOOKED, "callback": {"signature": {"header": "X-S", "secret": "env:K", "prefix": "sha256="}}},
            "It may call back: what it signs (hmac-sha256 as sha256=… in X-S, with the key env:K) is believed",
        ),
        ({"submit": HOOKED}, "It may call back: unsigned, so the task is only asked about sooner."),
        ({"polling": {"maxWaitTime": 600}}, "It is given up 10 min after its first submit."),
        (
            {"limits": {"rate": {"requests": 20, "seconds": 3}}},
            "All workers together begin at most 6.67 attempts per second, up to 1 at once after a quiet time.",
        ),
        (
            {"limits": {"rate": {"requests": 2, "seconds": 60, "burst": 1}}, "result": {"url": "/r", "next": "body.n"}},
            "begin one attempt every 30 s (one may take 2 requests and more pages), up to 1 at once after",
        ),
        ({"limits": {"parallel": 1}}, "All workers together make 1 attempt at once, not more."),
        ({"limits": {"parallel": 4}}, "At a limit, new requests are accepted without asking."),
        ({"limits": {"openJobs": 100}}, "At most 100 jobs are open at once; further tasks wait, not started."),
        ({"limits": {"openJobs": 1}}, "At most 1 job is open at once; further tasks wait, not started."),
        ({"firstAnswer": 0}, "A new request does not wait for that."),
        (
            {"acceptors": [{"state": "pending", "matcher": "status", "expected": [404, "3XX"]}]},
            "HTTP 404 or 3XX counts",
        ),
        (
            {"acceptors": [{"state": "retry", "matcher": "pathAny", "argument": "body.e[].c", "expected": "BUSY"}]},
            "'BUSY' among body.e[].c is tried again.",
        ),
        (
            {"acceptors": [{"state": "success", "matcher": "pathAll", "argument": "body.e[].c", "expected": 1}]},
            "nothing but 1 in body.e[].c completes.",
        ),
        (
            {"acceptors": [{"state": "failure", "argument": "body.a > `1`", "expected": True, "message": "body.m"}]},
            "body.a > `1` fails with body.m.",
        ),
        (
            {"acceptors": [{"state": "resubmit", "argument": "body.x", "expected": "gone", "on": ["submit", "poll"]}]},
            "'gone' in body.x (in the answer to submit and poll) begins a new job, at most once.",
        ),
        (
            {"result": {"url": "${response.body.link}", "decode": "url"}},
            "it keeps the link ${response.body.link} itself.",
        ),
        ({"result": {"url": "${response.body.link}", "optional": True}}, "link}, if there is one."),
        (
            {"submit": JOB["submit"] | {"query": {"a": "${input.a}", "n": 1}, "contentType": "text/csv", "body": "x"}},
            "It submits POST https://api.acme.example/jobs?a=${input.a}&n=1 with CSV, and",
        ),
        (
            {
                "security": [
                    {"type": "http", "scheme": "basic", "secret": "env:A"},
                    {"type": "apiKey", "in": "query", "name": "k", "secret": "env:B"},
                ]
            },
            "It sends user and password from env:A and the query k from env:B to",
        ),
        (
            {
                "security": [
                    {"type": "oauth2", "tokenUrl": "https://auth.example/t", "clientId": "me", "clientSecret": "env:A"}
                ]
            },
            "A 401 renews the token, once in a row.",
        ),
    ],
)
def test_check_finds_words_for_every_part(write: Write, call: Told, changes: Json, sentence: str) -> None:
    assert call("check", write(**changes)) == 0
    assert sentence in call.text


def test_the_shipped_files_are_sound_and_leave_no_doubt(call: Told) -> None:
    assert call("check", SHIPPED) == 0
    assert sum(line.endswith(": sound") for line in call.lines) == len(list(SHIPPED.glob("*.json")))
    assert call.warnings == []


# --- check: faults


def test_a_faulty_file_names_file_place_and_reason_of_every_fault(write: Write, call: Told) -> None:
    path = write(
        submit={"url": "/jobs", "method": "FETCH", "heders": {}},
        poll={"url": "/jobs/${response.body.id}"},
        acceptors=[{"state": "success", "expected": "x", "argument": "body..x"}],
        data=5,
    )
    assert call("check", path) == 1
    assert call.lines == [
        f"{path}: $.data: must be a text",
        f"{path}: $.submit.method: must be one of GET, POST, PUT, PATCH, DELETE",
        (
            f"{path}: $.submit.heders: is not known; there are body, contentType, decode, headers, method, next, "
            "optional, outputs, query, timeout, url"
        ),
        call.lines[3],
        (
            f"{path}: $.poll.url: ${{response.body.id}} uses response, but no answer goes before it; "
            "keep what it needs in outputs"
        ),
        f"{path}: 5 faults",
    ]
    assert call.lines[3].startswith(f"{path}: $.acceptors[0].argument: 'body..x' is not JMESPath: ")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"poll": {"url": "/jobs/${outputs.jobId}"}},
            "$.poll.url: ${outputs.jobId}: nothing sets the output 'jobId'; there are id",
        ),
        (
            {"cancel": {"url": "/x", "body": {"a": ["${outputs.b}"]}}},
            "$.cancel.body: ${outputs.b}: nothing sets the output 'b'",
        ),
        (
            {"poll": {"url": "/jobs/${outputs.id}", "timeout": 21}},
            "$.poll.timeout: 21 s is longer than a whole attempt may take",
        ),
        (
            {"submit": {"url": "/jobs/${body.id}"}},
            "$.submit.url: ${body.id} reads 'body'; there are input (input.body?), outputs, task, callback and",
        ),
        ({"submit": {"url": "/jobs/${input..id}"}}, "$.submit.url: in ${…} 'input..id' is not JMESPath"),
        (
            {"submit": {"url": "/jobs/${task.uuid}"}},
            "$.submit.url: ${task.uuid} reads 'uuid' of the task; it has id, name and provider",
        ),
        (
            {"poll": {"url": "/jobs/7", "body": "${callback.url}"}},
            "$.poll.body: ${callback.url} uses callback, which is for submit",
        ),
        ({"submit": {"url": "/jobs/${response.body.id}"}}, "$.submit.url: ${response.body.id} uses response"),
        ({"limits": {"parallel": 0}}, "$.limits.parallel: must be a number from 1"),
        ({"limits": {"rate": {"requests": 5}}}, "$.limits.rate.seconds: is missing"),
        ({"limits": {"opneJobs": 5}}, "$.limits.opneJobs: is not known"),
        ({"callback": {"signature": {}}}, "$.callback.signature"),
        ({"servers": ["https://"]}, "$.servers[0]: must be an absolute URL that begins with http:// or https://"),
        ({"servers": ["https://me:secret@api.example"]}, "$.servers[0]: must be an absolute URL"),
        (
            {"security": [{"type": "http", "scheme": "bearer", "secret": "abc"}]},
            "$.security[0].secret: must be a reference",
        ),
        ({"security": JOB["security"] * 2}, "$.security: authorization is set twice"),
        (
            {"security": [{"type": "oauth2", "tokenUrl": "/token", "clientId": "me", "clientSecret": "env:A"}]},
            "$.security[0].tokenUrl: must be an absolute http or https URL",
        ),
        (
            {"acceptors": [{"state": "success", "matcher": "status", "expected": "ok"}]},
            "$.acceptors[0].expected: must be a status such",
        ),
    ],
)
def test_check_knows_what_a_schema_cannot_say(write: Write, call: Told, changes: Json, fault: str) -> None:
    assert call("check", write(**changes)) == 1
    assert fault in call.text


def test_a_result_may_read_what_an_earlier_result_operation_set(write: Write, call: Told) -> None:
    steps = [{"url": "/a", "outputs": {"b": "body.b"}}, {"url": "/c/${outputs.b}/${outputs.id}"}]
    assert call("check", write(result=steps)) == 0


def test_time_outs_are_measured_against_the_attempt_of_this_deployment(
    write: Write, call: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(poll={"url": "/jobs/${outputs.id}", "timeout": 30})
    assert call("check", path) == 1
    monkeypatch.setenv("ATTEMPT_SECONDS", "30")
    assert call("check", path) == 0


def test_a_time_out_that_nobody_wrote_is_no_fault(write: Write, call: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTEMPT_SECONDS", "5")
    assert call("check", write()) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"servers": [', "Expecting value: line 1 column 14"),
        ('{"servers": [NaN]}', "NaN is not JSON"),
        ('{"data": "a", "data": "b"}', "the key 'data' stands twice"),
        ("[]", "$: must be an object"),
    ],
)
def test_what_is_no_provider_file_at_all_says_so(tmp_path: Path, call: Told, text: str, reason: str) -> None:
    path = tmp_path / "acme.json"
    path.write_text(text, encoding="utf-8")
    assert call("check", path) == 1
    assert f"{path}: " in call.text
    assert reason in call.text


def test_a_missing_file_and_a_file_that_can_be_no_provider_say_so(write: Write, call: Told, tmp_path: Path) -> None:
    assert call("check", tmp_path / "none.json") == 1
    assert "No such file" in call.text
    assert call("check", write(name="Acme API.json")) == 1
    assert "the file's name becomes the provider's" in call.text


def test_one_faulty_file_hides_no_other(write: Write, call: Told) -> None:
    write(name="b.json", data=1)
    directory = write(name="a.json").parent
    assert call("check", directory) == 1
    assert f"{directory / 'a.json'}: sound" in call.lines
    assert f"{directory / 'b.json'}: $.data: must be a text" in call.lines


def test_wrong_settings_are_said_before_anything_else(
    write: Write, call: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTEMPT_SECONDS", "soon")
    assert call("check", write()) == 2
    assert "ATTEMPT_SECONDS must be a number" in call.text


# --- check: warnings


def test_a_signature_without_a_url_to_call_back_is_a_warning(write: Write, call: Told) -> None:
    signed = {"signature": {"header": "X-S", "secret": "env:K"}}
    call("check", write(callback=signed))
    assert "$.callback: no submit gives ${callback.url} away, so nobody calls back" in call.warnings
    call("check", write(callback=signed, submit=HOOKED))
    assert not any("$.callback" in warning for warning in call.warnings)


def test_a_submit_without_an_idempotency_key_is_a_warning_that_knows_first_answer(write: Write, call: Told) -> None:
    keyless = {"method": "POST", "url": "/jobs", "outputs": {"id": "body.id"}}
    assert call("check", write(submit=keyless, firstAnswer=12)) == 0
    assert len(call.warnings) == 1
    assert call.warnings[0].startswith("$.submit carries no idempotency key (${task.id})")
    assert "(it is 12 s)" in call.warnings[0]
    call("check", write(submit=keyless | {"method": "PUT"}))
    assert call.warnings == []
    call("check", write(submit=keyless, poll=None))
    assert call.warnings == []


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"acceptors": [{"state": "pending", "expected": "x"}]}, "$.acceptors: none means success"),
        (
            {"acceptors": [*JOB["acceptors"], {"state": "failure", "expected": "x", "on": ["result"]}]},
            "$.acceptors[2] never applies: there is no result",
        ),
        (
            {"acceptors": [*JOB["acceptors"], {"state": "failure", "expected": "x", "on": []}]},
            "$.acceptors[2] never applies: on is empty",
        ),
        (
            {"acceptors": [*JOB["acceptors"], {"state": "failure", "expected": []}]},
            "$.acceptors[2] never matches: expected is an empty list",
        ),
        (
            {"acceptors": [*JOB["acceptors"], {"state": "failure", "argument": "statusCode", "expected": "404"}]},
            "$.acceptors[2] never matches: statusCode is",
        ),
        ({"polling": {"minDelay": 5, "maxDelay": 3}}, "$.polling: maxDelay (3 s) is shorter than minDelay (5 s)"),
        (
            {"polling": {"initialDelay": 50, "maxWaitTime": 30}},
            "$.polling: initialDelay (50 s) is longer than maxWaitTime (30 s)",
        ),
        ({"servers": ["http://api.acme.example"]}, "$.servers[0]: credentials go over http"),
        ({"servers": ["https://api.acme.example?v=1"]}, "$.servers[0]: a query or fragment of a server plays no part"),
        (
            {"servers": ["https://api.acme.example/v2/"]},
            "$.submit.url begins with /, so the path of the server, /v2, plays no part",
        ),
        (
            {"servers": ["https://api.acme.example/v2"], "poll": {"url": "jobs/${outputs.id}"}},
            "$.poll.url takes the place of the last part of /v2",
        ),
        (
            {"poll": {"url": "${outputs.id}/status"}},
            "$.poll.url begins with a value, which is percent-encoded; write ${+…}",
        ),
        ({"poll": {"url": "/jobs/${outputs.id}?a=${b"}}, "$.poll.url has a ${ without its }"),
        ({"poll": {"url": "https://other.example/${outputs.id}"}}, "$.poll.url is not on an origin of servers"),
        ({"poll": {"url": "/jobs/${outputs.id}", "body": {}}}, "$.poll has a body, but its method is GET"),
        ({"poll": {"url": "/jobs/${outputs.id}", "optional": True}}, "$.poll.optional plays no part"),
        ({"poll": {"url": "/jobs/${outputs.id}", "next": "body.next"}}, "$.poll.next plays no part"),
        ({"result": [{"url": "/a", "decode": "url"}, {"url": "/b"}]}, "$.result[0].decode is url, but only the last"),
        (
            {"submit": JOB["submit"] | {"contentType": "text/csv"}},
            "$.submit.body is sent as JSON, although contentType says text/csv",
        ),
        (
            {"poll": {"url": "/jobs/${outputs.id}", "headers": {"X-Api-Key": "abc"}}},
            "$.poll.headers.X-Api-Key looks like a secret in the file",
        ),
        (
            {"poll": {"url": "/jobs/${outputs.id}", "query": {"access_token": "abc"}}},
            "$.poll.query.access_token looks like a secret",
        ),
        ({"data": "data.rows"}, "$.data: data.rows reads 'data', which no answer has; did you mean body.data?"),
        ({"status": "state"}, "$.status: state reads 'state', which no answer has; did you mean body.state?"),
        ({"progress": 'headers."X-Progress"'}, '$.progress: header names are in lower case: headers."x-progress"'),
        (
            {"acceptors": [{"state": "success", "argument": "done", "expected": True, "message": "error"}]},
            "$.acceptors[0].message: error reads",
        ),
        ({"polling": {"hints": [{"argument": "eta"}]}}, "$.polling.hints[0].argument: eta reads"),
        ({"submit": JOB["submit"] | {"outputs": {"id": "id"}}}, "$.submit.outputs.id: id reads 'id'"),
        (
            {
                "security": [
                    {
                        "type": "oauth2",
                        "tokenUrl": "https://a.example/t",
                        "clientId": "ssm:/id",
                        "clientSecret": "env:A",
                    }
                ]
            },
            "$.security[0].clientId is sent as it is",
        ),
    ],
)
def test_check_warns_of_what_is_likely_not_meant(write: Write, call: Told, changes: Json, warning: str) -> None:
    assert call("check", write(**changes)) == 0
    assert any(one.startswith(warning) for one in call.warnings), call.warnings


def test_there_is_nothing_to_warn_of_in_a_careful_file(write: Write, call: Told) -> None:
    assert call("check", write(partial="null", error="body.error.message || body.message")) == 0
    assert call.warnings == []


# --- try


class Api:
    """A made-up API on loopback: reports are drawn, and end as `ends`."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.ends: Says | Cut = Says(200, {"state": "READY", "rows": [1], "echo": SECRET}, {"X-Echo": quote(SECRET)})
        self.retry_after = "3"
        self.asked = 0
        site.answer = self.answer

    def answer(self, seen: Seen) -> Says | Cut:
        if seen.path == "/token":
            return Says(200, {"access_token": "t0ken-of-today", "expires_in": 60})
        if seen.headers["Authorization"] not in (f"Key {SECRET}", "Bearer t0ken-of-today"):
            return Says(403, {"error": {"message": f"bad key {seen.headers['Authorization']}"}})
        if seen.method == "POST":
            return Says(202, {"id": "r/1"}, {"Retry-After": self.retry_after})
        self.asked += 1
        return Says(200, {"state": "DRAWING", "rows": []}) if self.asked < 3 else self.ends


@pytest.fixture
def api() -> Iterator[Api]:
    with Site() as site:
        yield Api(site)


@pytest.fixture
def report(api: Api, write: Write, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`report(poll=…)`: the file report.json for that API, with changes."""
    monkeypatch.setenv("REPORT_KEY", SECRET)
    file = {
        "servers": [api.site.url],
        "security": [
            {"type": "apiKey", "in": "header", "name": "Authorization", "prefix": "Key ", "secret": "env:REPORT_KEY"}
        ],
        "submit": JOB["submit"] | {"url": "/reports"},
        "poll": {"url": "/reports/${outputs.id}"},
        "status": "body.state",
        "acceptors": [{"state": "success", "expected": "ready"}, {"state": "pending", "expected": "drawing"}],
        "data": "body.rows",
        "error": "body.error.message",
    }
    return lambda **changes: write(file, "report.json", **changes)


def test_try_says_that_nobody_can_call_it_back(report: Write, call: Told) -> None:
    submit = JOB["submit"] | {"url": "/reports", "query": {"hook": "${callback.url}"}}
    call("try", report(submit=submit), "--input", '{"q": "x"}', "--max-wait", "0")
    word = "${callback.url} is null here: nobody could call back, so it is only asked"
    assert word in call.text
    call("try", report(), "--input", '{"q": "x"}', "--max-wait", "0")
    assert word not in call.text


def test_try_shows_requests_answers_acceptors_and_outcomes_until_the_end(report: Write, call: Told, api: Api) -> None:
    assert call("try", report(), "--input", '{"q": "x"}', "--max-wait", "0") == 0
    assert [line for line in call.lines if line[0] in "→←$=" or "acceptor" in line] == [
        f"→ POST {api.site.url}/reports with credentials",
        "← 202 Accepted",
        "no acceptor is on this stage, so its HTTP status decides",
        "= still running; asked again in 3 s",
        f"→ GET {api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[1] matches: counts as still running",
        "= still running, partial data []; asked again in 4 s",
        f"→ GET {api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[1] matches: counts as still running",
        "= still running, partial data []; asked again in 8 s",
        f"→ GET {api.site.url}/reports/r%2F1 with credentials",
        "← 200 OK",
        "$.acceptors[0] matches: completes",
        "= completed: [1]",
    ]
    assert {'{"q":"x"}', "Retry-After: 3".lower(), '{"id":"r/1"}', 'outputs: {"id":"r/1"}'} <= set(call.lines)
    assert json.loads(api.site.calls[0].body) == {"q": "x"}
    assert f"Idempotency-Key: {api.site.calls[0].headers['Idempotency-Key']}" in call.lines


def test_try_masks_a_secret_wherever_it_turns_up(report: Write, call: Told, api: Api, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.json"
    assert call("try", report(data="body.echo"), "--max-wait", "0", "--record", vectors) == 0
    assert "= completed: MASKED" in call.lines
    assert "x-echo: MASKED" in call.lines
    for text in (call.text, vectors.read_text(encoding="utf-8")):
        assert SECRET not in text
        assert quote(SECRET, safe="") not in text
        assert "MASKED" in text


def test_try_masks_passwords_and_tokens(report: Write, call: Told, api: Api) -> None:
    oauth = {"type": "oauth2", "tokenUrl": f"{api.site.url}/token", "clientId": "me", "clientSecret": "env:REPORT_KEY"}
    api.ends = Says(200, {"state": "READY", "rows": ["t0ken-of-today"]})
    assert call("try", report(security=[oauth]), "--max-wait", "0") == 0
    assert f"→ POST {api.site.url}/token for a token" in call.lines
    assert '= completed: ["MASKED"]' in call.lines
    assert "t0ken-of-today" not in call.text
    assert SECRET not in call.text


def test_a_recorded_conversation_is_a_vector_that_replays(report: Write, call: Told, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.json"
    assert call("try", report(), "--input", '{"q": "x"}', "--max-wait", "0", "--record", vectors) == 0
    assert call.lines[-1] == f"{vectors}: 4 steps; replay passes"
    (vector,) = json.loads(vectors.read_text(encoding="utf-8"))["vectors"]
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
def test_whatever_is_recorded_replays(report: Write, call: Told, tmp_path: Path, changes: Json) -> None:
    vectors = tmp_path / "vectors.json"
    assert call("try", report(**changes), "--input", '{"q": ["x", 1]}', "--max-wait", "0", "--record", vectors) == 0
    assert call.lines[-1].endswith("steps; replay passes")


def test_what_a_vector_cannot_hold_is_said(report: Write, call: Told, api: Api, tmp_path: Path) -> None:
    api.ends = Cut()
    vectors = tmp_path / "vectors.json"
    file = report(polling={"maxErrors": 1})
    assert call("try", file, "--max-wait", "0", "--record", vectors) == 1
    assert "= failed: too-many-errors: transport" in call.text
    assert "replay differs: a request without an answer (transport) has no place in a vector" in call.lines[-1]


@pytest.mark.parametrize(
    ("ends", "changes", "line"),
    [
        (Says(200, "<html>"), {}, "= trouble: undecodable (The body is not what it is declared to be (see `decode`))"),
        (Says(503, "busy"), {}, "= trouble: http (A status that may pass, such as 429 or 503); tried again in 2 s"),
        (Says(410, {"error": {"message": "gone"}}), {}, "= failed: upstream: gone"),
        (
            Says(200, {"state": "ready"}),
            {"result": {"url": "${response.body.link}"}},
            "= trouble: missing-link (The URL of the result has no value yet); tried again in 2 s",
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
            "= trouble: not-found-grace (A 404 so soon after the submit that it may pass)",
        ),
    ],
)
def test_try_says_what_to_know_of_a_trouble(
    report: Write, call: Told, api: Api, ends: Says, changes: Json, line: str
) -> None:
    api.ends, api.asked = ends, 2
    file = report(polling={"maxErrors": 1, "maxWaitTime": 600}, **changes)
    assert call("try", file, "--max-wait", "0") == 1
    assert line in call.text


def test_try_says_what_stood_there_where_no_acceptor_matches_and_where_data_finds_nothing(
    report: Write, call: Told, api: Api
) -> None:
    api.asked = 2
    acceptors = [{"state": "success", "argument": "body.state", "expected": "READY"}]
    assert call("try", report(status="body.stat", acceptors=acceptors, data="body.lines"), "--max-wait", "0") == 0
    assert "= completed: null (body.lines finds nothing)" in call.lines
    api.ends, api.asked = Says(501, {"state": "GONE"}), 2
    assert call("try", report(), "--max-wait", "0") == 1
    assert "no acceptor matches (body.state is GONE), so its HTTP status decides" in call.lines


def test_try_shows_redirects_that_it_follows(report: Write, call: Told, api: Api) -> None:
    api.ends, api.asked = Says(302, b"", {"Location": "/token"}), 2
    file = report(acceptors=[{"state": "success", "argument": "body.expires_in", "expected": 60}])
    assert call("try", file, "--max-wait", "0") == 0
    assert "a redirect that no acceptor names is followed" in call.lines


def test_try_ends_at_once_where_a_secret_cannot_be_read(
    report: Write, call: Told, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = report()
    monkeypatch.delenv("REPORT_KEY")
    assert call("try", file) == 1
    assert call.lines == ["a secret cannot be read here: env:REPORT_KEY: the variable is not set"]
    assert api.site.calls == []


def test_try_asks_only_addresses_that_the_file_names_or_the_public_ones(report: Write, call: Told, api: Api) -> None:
    elsewhere = report(servers=["https://api.acme.example"], submit={"url": f"{api.site.url}/x"}, poll=None)
    assert call("try", elsewhere, "--max-wait", "0") == 1
    assert "= failed: refused-target" in call.text
    assert api.site.calls == []


def test_try_does_not_ask_with_a_faulty_file(report: Write, call: Told, api: Api) -> None:
    assert call("try", report(data=5)) == 1
    assert "$.data: must be a text" in call.text
    assert api.site.calls == []


def test_missing_input_is_said_before_anything_is_sent(report: Write, call: Told, api: Api) -> None:
    file = report(submit={"method": "POST", "url": "/reports/${input.kind}", "outputs": {"id": "body.id"}})
    assert call("try", file) == 1
    assert "= failed: missing-input: no value for input.kind (A URL needs an input" in call.text
    assert api.site.calls == []


def test_a_trial_can_be_ended_and_what_happened_so_far_is_recorded(
    report: Write, call: Told, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(trial: Trial, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "_wait", interrupted)
    vectors = tmp_path / "vectors.json"
    assert call("try", report(), "--input", '{"q": 1}', "--record", vectors) == 1
    assert call.lines[-2:] == [
        "ended; a job that was begun goes on at the provider",
        f"{vectors}: 1 step; replay passes",
    ]


def test_a_trial_waits_as_the_answers_say_but_no_longer_than_told(api: Api, report: Write) -> None:
    waited: list[float] = []
    said: list[str] = []
    now = [1_700_000_000_250]

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += round(seconds * 1000)

    around = Surroundings(read_secret=lambda *_, **__: SECRET, say=said.append, clock=lambda: now[0], sleep=sleep)
    rules = Rules.load(report())
    assert Trial(rules, Task("report", "a"), {}, around).run(20) == Completed([1])
    assert waited == [3, 4, 8]
    assert [line.strip() for line in said if line.endswith(".0 s")] == ["0.0 s", "3.0 s", "7.0 s", "15.0 s"]
    api.asked, waited[:] = 1, []
    assert Trial(rules, Task("report", "b"), {}, around).run(20, 3.5) == Completed([1])
    assert waited == [3, 3.5]
    assert "  (waiting 3.5 s instead)" in said


def test_the_example_files_can_be_tried_on_the_third_party(
    third_party: ThirdParty, call: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_SERVERS", f"example={third_party.url},coin={third_party.url}")
    for name in ("example", "coin"):
        assert call("try", SHIPPED / f"{name}.json", "--name", "Kraków", "--max-wait", "0") == 0
        assert "= completed: " in call.text
    assert {one.name for one in third_party.calls} == {"Kraków"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--input", "{q: 1}"), "not JSON"),
        (("--seconds", "long"), "invalid float"),
        (("--name", ".."), "a name cannot be"),
    ],
)
def test_a_wrong_call_is_explained(
    report: Write, capsys: pytest.CaptureFixture[str], arguments: Any, reason: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(main(["try", str(report()), *arguments]))
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err


# --- replay


def test_replay_prints_a_line_for_each_conversation_and_a_summary(call: Told) -> None:
    assert call("replay", VECTORS) == 0
    assert call.lines[0] == "01-house-partial-to-complete: passed"
    assert len(call.lines) == 28
    assert call.lines[-1] == "27 passed, 0 failed"


def test_replay_prints_the_first_difference_and_goes_on(call: Told, tmp_path: Path) -> None:
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"][:2]
    vectors[0]["steps"][0]["expect"]["delay"] = 31
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps({"vectors": vectors}), encoding="utf-8")
    assert call("replay", path) == 1
    assert call.lines[0].startswith(
        '01-house-partial-to-complete: step 0 at 0 s: expected {"state": "in_progress", "del'
    )
    assert call.lines[1:] == ["02-house-complete-at-once: passed", "1 passed, 1 failed"]


def test_replay_says_what_is_no_file_of_conversations(call: Told, tmp_path: Path) -> None:
    assert call("replay", tmp_path / "none.json") == 1
    assert "No such file" in call.text
    assert call.lines[-1] == "0 passed, 1 failed"


# --- the local stack


@pytest.mark.server
@pytest.mark.slow
def test_the_local_stack_serves_files_of_a_directory_beside_the_shipped_ones(report: Write, api: Api) -> None:
    directory = report(polling={"minDelay": 0, "maxDelay": 0}).parent
    (directory / "broken.json").write_text('{"servers": 5}', encoding="utf-8")
    api.retry_after = "0"
    settings = {"PROVIDERS_DIR": str(directory), "REPORT_KEY": SECRET, "IDLE_SECONDS": "1"}
    log = io.StringIO()
    try:
        stack = Stack(settings=settings, log=log)
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with stack:
        body = json.dumps({"provider": "report", "name": "a", "input": {"q": 1}}).encode()
        request = urllib.request.Request(f"{stack.url}/tasks", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 202
        stack.tick()
        with urllib.request.urlopen(f"{stack.url}/tasks/report/a") as answer:
            assert json.load(answer)["data"] == [1]
    assert "broken.json: $.servers: must be a list" in log.getvalue()
