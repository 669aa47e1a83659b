"""What in a sound provider file is likely not meant."""

import pytest

from shared.codec import Json
from tests.support.provider_tools import HOOKED, JOB, OAUTH, SIGNED, Call, Write, more, only, poll, submit

PENDING = {"state": "pending", "matcher": "status", "expected": "2XX"}
BY_STATUS: Json = {"acceptors": [{"state": "success", "matcher": "status", "expected": "2XX"}]}
IF_AT_ONCE = {
    "state": "success", "argument": "statusCode == `200` && !(body.id)", "expected": True, "on": ["submit"],
}  # fmt: skip
AT_ONCE_TOO: Json = {"acceptors": [IF_AT_ONCE, *BY_STATUS["acceptors"]]}
AT_V2 = "https://api.acme.example/v2"


def test_a_signature_without_a_url_to_call_back_is_a_warning(write: Write, call: Call) -> None:
    call("check", write(callback=SIGNED))
    assert "$.callback: no submit gives ${callback.url} away, so nobody calls back" in call.warnings
    call("check", write(callback=SIGNED, submit=HOOKED))
    assert not any("$.callback" in warning for warning in call.warnings)


def test_acceptors_by_status_alone_are_a_warning_where_callbacks_are_to_be_believed(write: Write, call: Call) -> None:
    by_status = {"state": "success", "matcher": "status", "expected": 200}
    call("check", write(callback=SIGNED, submit=HOOKED, acceptors=[PENDING | {"expected": 202}, by_status]))
    assert any(one.startswith("$.callback: every acceptor is about the status") for one in call.warnings)
    call("check", write(submit=HOOKED, acceptors=[by_status]))
    assert not any("$.callback" in warning for warning in call.warnings)


def test_a_submit_without_an_idempotency_key_is_a_warning_that_knows_first_answer(write: Write, call: Call) -> None:
    keyless = {"method": "POST", "url": "/jobs", "outputs": {"id": "body.id"}}
    assert call("check", write(submit=keyless, firstAnswer=12)) == 0
    assert call.warnings == []
    assert call("check", write(submit=keyless)) == 0
    assert len(call.warnings) == 1
    assert call.warnings[0].startswith("$.submit carries no idempotency key (${task.id})")
    assert "(it is 5 s)" in call.warnings[0]
    call("check", write(submit=keyless | {"method": "PUT"}))
    assert call.warnings == []
    call("check", write(submit=keyless | {"repeatable": True}))
    assert call.warnings == []


def test_a_post_that_is_sent_again_as_poll_without_an_idempotency_key_is_a_warning(write: Write, call: Call) -> None:
    keyless = {"method": "POST", "url": "/jobs"}
    assert call("check", write(submit=keyless, poll=None)) == 0
    assert call.warnings[0].startswith("$.submit carries no idempotency key (${task.id}), and without poll it is sent")
    key = {"headers": {"Idempotency-Key": "${task.id}"}}
    for safe in ({"repeatable": True}, {"method": "GET"}, {"method": "PUT"}, key):
        call("check", write(submit=keyless | safe, poll=None))
        assert call.warnings == []
    call("check", write(submit=[keyless | {"repeatable": True}, keyless], poll=None))
    assert call.warnings[0].startswith("$.submit carries no idempotency key")


def test_a_callback_that_the_settings_do_not_allow_is_a_warning_that_names_them(
    write: Write, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBACK_URL", "https://api.example.com")
    monkeypatch.delenv("CALLBACK_SECRET", raising=False)
    call("check", write(submit=HOOKED))
    (warning,) = call.warnings
    assert "${callback.url} needs CALLBACK_URL and CALLBACK_SECRET in the deployment" in warning
    assert "not set here: CALLBACK_SECRET" in warning
    monkeypatch.setenv("CALLBACK_SECRET", "ssm:/callback")
    call("check", write(submit=HOOKED))
    assert call.warnings == []


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"acceptors": [{"state": "pending", "expected": "x"}]}, "$.acceptors: none means success"),
        (poll(repeatable=True), "$.poll.repeatable plays no part: it is for submit"),
        (more(on=["result"]), "$.acceptors[2] never applies: there is no result"),
        (more(on=[]), "$.acceptors[2] never applies: on is empty"),
        (more(expected=[]), "$.acceptors[2] never matches: expected is an empty list"),
        (more(argument="statusCode", expected="404"), "$.acceptors[2] never matches: statusCode is"),
        ({"polling": {"initialDelay": 1}}, "$.polling.initialDelay (1 s) is shorter than minDelay (2 s)"),
        ({"polling": {"initialDelay": 500}}, "$.polling.initialDelay (500 s) is longer than maxDelay (120 s)"),
        ({"polling": {"jitter": "none"}}, "$.polling.jitter is none: tasks that are told the same delay"),
        (
            {"limits": {"parallel": 4, "openJobs": 2}},
            "$.limits.parallel (4) plays no part: there are only openJobs (2)",
        ),
        ({"servers": ["http://api.acme.example"]}, "$.servers[0]: credentials go over http"),
        ({"servers": ["https://api.acme.example?v=1"]}, "$.servers[0]: a query or fragment of a server plays no part"),
        ({"servers": [f"{AT_V2}/"]}, "$.submit.url begins with /, so the path of the server, /v2, plays no part"),
        ({"servers": [AT_V2], **poll(url="jobs/${outputs.id}")}, "$.poll.url takes the place of the last part of /v2"),
        (poll(url="${outputs.id}/status"), "$.poll.url begins with a value, which is percent-encoded; write ${+…}"),
        (poll(url="/jobs/${outputs.id}?a=${b"), "$.poll.url has a ${ without its }"),
        (poll(url="https://other.example/${outputs.id}"), "$.poll.url is not on an origin of servers"),
        (poll(body={}), "$.poll has a body, but its method is GET"),
        (poll(optional=True), "$.poll.optional plays no part"),
        (poll(next="body.next"), "$.poll.next plays no part"),
        ({"result": [{"url": "/a", "decode": "url"}, {"url": "/b"}]}, "$.result[0].decode is url, but only the last"),
        (submit(contentType="text/csv"), "$.submit.body is sent as JSON, although contentType says text/csv"),
        (poll(headers={"X-Api-Key": "abc"}), "$.poll.headers.X-Api-Key looks like a secret in the file"),
        (poll(query={"access_token": "abc"}), "$.poll.query.access_token looks like a secret"),
        (poll(query={"api_key": "abc"}), "$.poll.query.api_key looks like a secret"),
        (poll(url="/jobs/${outputs.id}?a=1&apikey=abc"), "$.poll.url: apikey looks like a secret"),
        (submit(body={"user": {"password": "abc"}}), "$.submit.body.user.password looks like a secret"),
        ({"security": [OAUTH | {"params": {"password": "a"}}]}, "$.security[0].params.password looks like a secret"),
        (submit(body="a ${input.q"), "$.submit.body has a ${ without its }"),
        (submit(body=["a ${input.q"]), "$.submit.body[0] has a ${ without its }"),
        (poll(url="/jobs/:id/state"), "$.poll.url: :id is sent as it is; a value stands in ${…}"),
        (poll(url="/jobs/$id"), "$.poll.url: $id is sent as it is"),
        (poll(url="/jobs?id=$id&a=1"), "$.poll.url: $id is sent as it is"),
        (poll(url="/jobs/a<id>"), "$.poll.url: <id> is sent as it is"),
        (poll(url="/jobs/a-%s"), "$.poll.url: %s is sent as it is"),
        (poll(url="/jobs/{0}"), "$.poll.url: {0} is sent as it is"),
        (poll(url="/jobs/{ id }"), "$.poll.url: { id } is sent as it is"),
        (poll(headers={"X": "$JOB_ID"}), "$.poll.headers.X: $JOB_ID is sent as it is"),
        (poll(query={"id": "$id"}), "$.poll.query.id: $id is sent as it is"),
        (submit(body={"ids": ["<id>"]}), "$.submit.body.ids[0]: <id> is sent as it is"),
        (
            {"acceptors": [PENDING, *JOB["acceptors"]]},
            "$.acceptors[0] takes every reply with status 200 before $.acceptors[1] (success) sees it",
        ),
        ({"data": "body", **BY_STATUS}, "$.require is absent: the status alone tells a success"),
        (
            {"data": "body", "result": {"url": "/r"}, **BY_STATUS},
            "$.require is absent: the status alone tells a success",
        ),
        ({"require": "rows"}, "$.require: rows reads 'rows', which no reply has; did you mean body.rows?"),
        ({"data": "data.rows"}, "$.data: data.rows reads 'data', which no reply has; did you mean body.data?"),
        ({"data": "response.status"}, "$.data: response.status reads 'response', which is for placeholders; did you"),
        ({"data": "response.body.a"}, "$.data: response.body.a reads 'response', which is for placeholders; did you"),
        (
            more(argument='body.status == "failed"', expected=True),
            "$.acceptors[2].argument: body.status == \"failed\" reads 'failed', which no reply has; a text",
        ),
        ({"status": "state"}, "$.status: state reads 'state', which no reply has; did you mean body.state?"),
        ({"progress": 'headers."X-Progress"'}, '$.progress: header names are in lower case: headers."x-progress"'),
        (only("success", argument="done", expected=True, message="error"), "$.acceptors[0].message: error reads"),
        ({"polling": {"hints": [{"argument": "eta"}]}}, "$.polling.hints[0].argument: eta reads"),
        (submit(outputs={"id": "id"}), "$.submit.outputs.id: id reads 'id'"),
        ({"security": [OAUTH | {"clientId": "ssm:/id"}]}, "$.security[0].clientId is sent as it is"),
    ],
)
def test_check_warns_of_what_is_likely_not_meant(write: Write, call: Call, changes: Json, warning: str) -> None:
    assert call("check", write(**changes)) == 0
    assert any(one.startswith(warning) for one in call.warnings), call.warnings


@pytest.mark.parametrize(
    "changes",
    [
        submit(body={"at": "10:30", "mail": "a <b> c", "query": "query { user }", "page_token": "x", "max": "a{2}"}),
        submit(body={"password": "${input.password}", "grant_type": "password", "filter": "{}", "tokens": 5}),
        poll(url="/v1/a:b/$metadata?$select=id&$filter=at lt 10:30&token=${outputs.id}&p=a%20b"),
        poll(url="/jobs/${input.list[?token=='x'] | [0]}"),
        poll(url="/Patient/$export"),
        poll(headers={"X-Acme-Authorization-Token-Type": "PERSONAL"}),
        submit(body="<a>", contentType="text/plain"),
        poll(query={"$top": "5", "$filter": "a eq 'b'", "at": "10:30", "token": "${outputs.id}"}),
        {"acceptors": [{"state": "pending", "matcher": "status", "expected": 202}, *JOB["acceptors"]]},
        {"acceptors": [PENDING, {"state": "success", "matcher": "status", "expected": 303}]},
        {"acceptors": [*JOB["acceptors"], PENDING]},
        {"data": "body"},
        {"data": "body.rows", **AT_ONCE_TOO},
        {"data": "body", "require": "body.rows", **AT_ONCE_TOO},
        {"data": "body", "result": {"url": "/r"}},
        {"data": "body", "result": {"url": "/r", "decode": "url"}, **AT_ONCE_TOO},
    ],
)
def test_what_others_may_well_mean_is_no_warning(write: Write, call: Call, changes: Json) -> None:
    assert call("check", write(**changes)) == 0
    assert call.warnings == []


def test_there_is_nothing_to_warn_of_in_a_careful_file(write: Write, call: Call) -> None:
    assert call("check", write(partial="null", error="body.error.message || body.message")) == 0
    assert call.warnings == []
