"""What is wrong with a provider file: every fault, with its place and its reason."""

from pathlib import Path

import pytest

from shared.codec import Json
from tests.support.provider_tools import JOB, OAUTH, SHIPPED, Call, Write, more, only, poll

BEARER: dict[str, Json] = JOB["security"][0]
ABSOLUTE = "must be an absolute URL that begins with http:// or https://"


def test_the_shipped_files_are_sound_and_leave_no_doubt(call: Call) -> None:
    assert call("check", SHIPPED) == 0
    assert sum(line.endswith(": sound") for line in call.lines) == len(list(SHIPPED.glob("*.json")))
    assert call.warnings == []


def test_a_faulty_file_names_file_place_and_reason_of_every_fault(write: Write, call: Call) -> None:
    path = write(
        submit={"url": "/jobs", "method": "FETCH", "heders": {}},
        poll={"url": "/jobs/${response.body.id}"},
        acceptors=[{"state": "success", "expected": "x", "argument": "body..x"}],
        data=5,
    )
    assert call("check", path) == 1
    lines = call.lines
    assert lines.pop(3).startswith(f"{path}: $.acceptors[0].argument: 'body..x' is not JMESPath: ")
    keys = "body, contentType, decode, headers, method, next, optional, outputs, query, repeatable, timeout, url"
    reply = "${response.body.id} uses response, but no reply goes before it; keep what it needs in outputs"
    assert lines == [
        f"{path}: $.submit.heders: is not known; did you mean headers? There are {keys}",
        f"{path}: $.submit.method: must be one of DELETE, GET, PATCH, POST, PUT",
        f"{path}: $.poll.url: {reply}",
        f"{path}: $.data: must be a text",
        f"{path}: 5 faults",
    ]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (poll(url="/${outputs.jobId}"), "$.poll.url: ${outputs.jobId}: nothing sets the output 'jobId'; there are id"),
        (
            {"cancel": {"url": "/x", "body": {"a": ["${outputs.b}"]}}},
            "$.cancel.body: ${outputs.b}: nothing sets the output 'b'",
        ),
        (poll(timeout=21), "$.poll.timeout: 21 s is longer than a whole attempt may take"),
        (
            {"submit": {"url": "/jobs/${body.id}"}},
            "$.submit.url: ${body.id} reads 'body'; there are input (input.body?), outputs, task, callback and",
        ),
        ({"submit": {"url": "/jobs/${input..id}"}}, "$.submit.url: in ${…} 'input..id' is not JMESPath"),
        (
            {"submit": {"url": "/${task.uuid}"}},
            "$.submit.url: ${task.uuid} reads 'uuid' of the task; it has id, name and provider",
        ),
        (poll(body="${callback.url}"), "$.poll.body: ${callback.url} uses callback, which is for submit"),
        ({"submit": {"url": "/jobs/${response.body.id}"}}, "$.submit.url: ${response.body.id} uses response"),
        ({"limits": {"parallel": 0}}, "$.limits.parallel: must be a whole number from 1"),
        ({"limits": {"rate": {"requests": 5}}}, "$.limits.rate.seconds: is missing"),
        ({"limits": {"opneJobs": 5}}, "$.limits.opneJobs: is not known"),
        ({"callback": {"signature": {}}}, "$.callback.signature"),
        ({"servers": ["https://"]}, f"$.servers[0]: {ABSOLUTE}"),
        ({"servers": ["https://me:secret@api.example"]}, "$.servers[0]: must be an absolute URL"),
        ({"security": [BEARER | {"secret": "abc"}]}, "$.security[0].secret: must be a reference"),
        ({"security": [BEARER] * 2}, "$.security: authorization is set twice"),
        ({"security": [OAUTH | {"tokenUrl": "/token"}]}, f"$.security[0].tokenUrl: {ABSOLUTE}"),
        (only("success", matcher="status", expected="ok"), "$.acceptors[0].expected: must be a status such"),
    ],
)
def test_check_knows_what_a_schema_cannot_say(write: Write, call: Call, changes: Json, fault: str) -> None:
    assert call("check", write(**changes)) == 1
    assert fault in call.text


@pytest.mark.parametrize("part", ["url", "headers", "query", "body"])
@pytest.mark.parametrize("braces", ["{id}", "{{id}}", "{{ input.id }}", "{job-id}"])
def test_a_placeholder_as_others_write_it_is_a_fault(write: Write, call: Call, part: str, braces: str) -> None:
    value = {"url": f"/jobs/{braces}", "headers": {"X-Id": braces}, "query": {"id": f"a{braces}"}, "body": [braces]}
    assert call("check", write(**poll(**{part: value[part]}))) == 1
    assert f"$.poll.{part}: {braces} is sent as it is; ${{…}} is meant" in call.text


@pytest.mark.parametrize(
    "body", ["query { user { id } }", "{user{id}}", '{"a": 1}', "${'{id}'}", "${input.{id: a}}", "${ {id: input.a} }"]
)
def test_other_braces_are_no_fault(write: Write, call: Call, body: str) -> None:
    assert call("check", write(**poll(body=body, method="POST"))) == 0


MEANT = "404 is compared with body.status (if that is meant, say so in argument); an HTTP status is"


@pytest.mark.parametrize(
    ("acceptor", "said"),
    [
        ({"expected": "2XX"}, "2XX is compared with body.status"),
        ({"expected": ["done", "4xx"], "matcher": "pathAny"}, "4xx is compared with body.status"),
        ({"expected": 404}, MEANT),
        ({"expected": "200"}, 'compared with "matcher": "status"'),
        ({"expected": "2XX", "argument": "statusCode"}, "2XX is compared with what statusCode finds"),
    ],
)
def test_an_http_status_without_its_matcher_is_a_fault(write: Write, call: Call, acceptor: Json, said: str) -> None:
    assert call("check", write(**more(**acceptor))) == 1
    assert "$.acceptors[2].expected: " in call.text
    assert said in call.text


BY_PATH, BY_CODE = {"expected": 200, "argument": "body.status"}, {"expected": 404, "argument": "statusCode"}
BY_MATCHER = {"expected": "2XX", "matcher": "status"}


@pytest.mark.parametrize("acceptor", [BY_PATH, BY_CODE, BY_MATCHER, *({"expected": one} for one in (1, 1000, True))])
def test_a_number_that_is_said_to_stand_in_the_body_is_none(write: Write, call: Call, acceptor: Json) -> None:
    assert call("check", write(**more(**acceptor))) == 0


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        (poll(url="/{outputs.id}"), "{outputs.id} is sent as it is; ${…} is meant, such as ${outputs.id} (if not"),
        (poll(url="/#{id}"), "#{id} is sent as it is; ${…} is meant, such as ${input.id} or ${outputs.id}"),
        (poll(url="/${{outputs.id}}"), "'{outputs.id' is not JMESPath (one pair of braces: ${outputs.id}): "),
        ({"data": "headers.operation-location"}, "is not JMESPath (a name with a dash stands in double quotes): "),
        ({"data": "body.left < 5"}, "is not JMESPath (a number stands in backticks): "),
        ({"data": "$.a"}, "'$.a' is not JMESPath (an expression has no $: body.a, not $.body.a): "),
        ({"data": "not body.a"}, "is not JMESPath (not is written !): "),
        ({"data": "body.a == 'x' or body.b"}, "is not JMESPath (and is written &&, or is written ||): "),
        ({"data": "'not a' 'or b'"}, "is not JMESPath: "),
        (
            {"security": [{"type": "bearer"}]},
            '$.security[0].type: is written {"type": "http", "scheme": "bearer"}; the',
        ),
        ({"polling": {"minDelay": 1e308}}, "$.polling.minDelay: must be a number from 0 up to 31536000"),
        ({"polling": {"maxErrors": 10**399}}, "$.polling.maxErrors: must be a whole number from 0 up to 100000"),
    ],
)
def test_a_fault_leads_to_what_was_perhaps_meant(write: Write, call: Call, changes: Json, advice: str) -> None:
    assert call("check", write(**changes)) == 1
    assert advice in call.text


def test_a_value_without_backticks_is_a_fault_that_says_so(write: Write, call: Call) -> None:
    rule = {"state": "success", "argument": "body.done == true", "expected": True}
    said = "$.acceptors[0].argument: body.done == true reads a field 'true'; the value needs backticks: `true`"
    assert call("check", write(acceptors=[rule])) == 1
    assert said in call.text
    assert call("check", write(acceptors=[rule], freshness=-1)) == 1  # beside other faults, too
    assert said in call.text


def test_a_secret_in_the_file_is_a_fault_that_does_not_show_it(write: Write, call: Call) -> None:
    assert call("check", write(security=[BEARER | {"secret": "s3cr3t"}])) == 1
    assert "$.security[0].secret: must be a reference" in call.text
    assert "s3cr3t" not in call.text


def test_a_result_may_read_what_an_earlier_result_operation_set(write: Write, call: Call) -> None:
    steps = [{"url": "/a", "outputs": {"b": "body.b"}}, {"url": "/c/${outputs.b}/${outputs.id}"}]
    assert call("check", write(result=steps)) == 0


def test_time_outs_are_measured_against_the_attempt_of_this_deployment(
    write: Write, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(**poll(timeout=30))
    assert call("check", path) == 1
    monkeypatch.setenv("ATTEMPT_SECONDS", "30")
    assert call("check", path) == 0


def test_a_time_out_that_nobody_wrote_is_no_fault(write: Write, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_is_no_provider_file_at_all_says_so(tmp_path: Path, call: Call, text: str, reason: str) -> None:
    path = tmp_path / "acme.json"
    path.write_text(text, encoding="utf-8")
    assert call("check", path) == 1
    assert f"{path}: " in call.text
    assert reason in call.text


def test_a_missing_file_and_a_file_that_can_be_no_provider_say_so(write: Write, call: Call, tmp_path: Path) -> None:
    assert call("check", tmp_path / "none.json") == 1
    assert "No such file" in call.text
    assert call("check", write(name="Acme API.json")) == 1
    assert "the file's name becomes the provider's" in call.text


def test_one_faulty_file_hides_no_other(write: Write, call: Call) -> None:
    write(name="b.json", data=1)
    directory = write(name="a.json").parent
    assert call("check", directory) == 1
    assert f"{directory / 'a.json'}: sound" in call.lines
    assert f"{directory / 'b.json'}: $.data: must be a text" in call.lines
