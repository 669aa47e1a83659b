"""What a client asks for is read alike from both event shapes, and every fault names its field."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.api.event import ApiCall
from shared.api.request import (
    MAX_BODY_BYTES,
    TaskRequest,
    callback,
    from_batch,
    from_body,
    from_query,
    named_in_body,
    named_in_url,
)
from shared.bounds import BOUNDS
from shared.errors import BadRequest, ContentTooLarge, NotFound, Problem
from shared.task import Task
from tests.support.api_events import http, http_call, rest, rest_call

Shape = Callable[..., ApiCall]

DEFAULT = "example"


@pytest.fixture(params=[rest_call, http_call], ids=["rest", "http"])
def shape(request: pytest.FixtureRequest) -> Shape:
    """Each test that makes its call with this runs for both shapes."""
    shape: Shape = request.param
    return shape


def refused(read: Callable[[ApiCall, str], object], call: ApiCall, kind: type[Problem] = BadRequest) -> str | None:
    """The field that is named as reading fails."""
    with pytest.raises(kind) as caught:
        read(call, DEFAULT)
    return caught.value.field


# --- GET /?task-name=


def test_the_short_form_asks_the_default_provider(shape: Shape) -> None:
    request = from_query(shape("GET", "/?task-name=invoice+1%2F2"), DEFAULT)
    assert request == TaskRequest(task=Task("example", "invoice 1/2"), input=None)


def test_the_short_form_may_name_a_provider(shape: Shape) -> None:
    assert from_query(shape("GET", "/?task-name=a&provider=coin"), DEFAULT).task == Task("coin", "a")


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/", "task-name"), ("/?provider=coin", "task-name"), ("/?task-name=", "name"), ("/?task-name=..", "name"),
        ("/?task-name=a&provider=No%20Name", "provider"), ("/?task-name=a&provider=", "provider"),
        ("/?task-name=a&limit=3", "limit"), ("/?task-name=%01", "name"), ("/?task-name=" + "x" * 257, "name"),
    ],
)  # fmt: skip
def test_a_query_that_is_wrong_is_refused_with_its_field(shape: Shape, target: str, field: str) -> None:
    assert refused(from_query, shape("GET", target)) == field


def test_of_a_parameter_given_twice_the_last_counts(shape: Shape) -> None:
    assert from_query(shape("GET", "/?task-name=a&task-name=b"), DEFAULT).task.name == "b"


def test_null_maps_are_empty_ones() -> None:
    event = rest() | {"headers": None, "multiValueHeaders": None, "queryStringParameters": None}
    assert refused(from_query, ApiCall.of(event)) == "task-name"
    event = http("GET", "/?task-name=a") | {"headers": None, "pathParameters": None, "body": None}
    assert from_query(ApiCall.of(event), DEFAULT).task.name == "a"


# --- POST /tasks


def test_a_body_names_task_and_input(shape: Shape) -> None:
    input_ = {"total": 30.4, "rows": list[int]()}
    request = from_body(shape("POST", "/tasks", {"provider": "coin", "name": "a", "input": input_}), DEFAULT)
    assert request == TaskRequest(task=Task("coin", "a"), input=input_)


def test_provider_and_input_may_be_left_out_and_no_input_differs_from_an_empty_one(shape: Shape) -> None:
    assert from_body(shape("POST", "/tasks", {"name": "a"}), DEFAULT).input is None
    assert from_body(shape("POST", "/tasks", {"name": "a", "input": {}}), DEFAULT).input == {}
    assert from_body(shape("POST", "/tasks", {"name": "a"}), DEFAULT).task == Task("example", "a")


@pytest.mark.parametrize("group", ["t", "Ünï 名前 7", "x" * 64, "名" * 64])
def test_a_body_may_name_a_group(shape: Shape, group: str) -> None:
    assert from_body(shape("POST", "/tasks", {"name": "a", "group": group}), DEFAULT).group == group
    assert from_body(shape("POST", "/tasks", {"name": "a"}), DEFAULT).group == ""


@pytest.mark.parametrize("group", ["", "x" * 65, "a\nb", "\x00", "\ud800", "a\u2028b", 7, None, True, [], {}])
def test_a_group_that_is_none_is_refused_with_its_field(shape: Shape, group: object) -> None:
    assert refused(from_body, shape("POST", "/tasks", {"name": "a", "group": group})) == "group"


def test_a_name_in_any_normal_form_is_one_task(shape: Shape) -> None:
    names = ["e\u0301tude", "\u00e9tude"]
    tasks = {from_body(shape("POST", "/tasks", {"name": name}), DEFAULT).task for name in names}
    tasks |= {from_query(shape("GET", f"/?task-name={name}"), DEFAULT).task for name in ("e%CC%81tude", "%C3%A9tude")}
    tasks |= {named_in_url(shape("GET", f"/tasks/example/{name}"), DEFAULT) for name in ("e%CC%81tude", "%C3%A9tude")}
    assert tasks == {Task("example", "\u00e9tude")}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (None, "body"), ("", "body"), ("{", "body"), ("name=a", "body"), ("[]", "body"), ('"a"', "body"),
        ("null", "body"), ('{"name": "a", "name": "b"}', "name"), ('{"name": "a", "input": {"x": 1, "x": 2}}', "x"),
        ('{"name": "a", "input": {"x": NaN}}', "body"), ('{"name": "a", "input": {"x": -Infinity}}', "body"),
        ('{"name": "a", "input": {"x": 1e400}}', "body"),
        ('{"name": "a", "input": ' + '{"x":' * 200 + "1" + "}" * 200 + "}", "body"), ("{}", "name"),
        ('{"name": null}', "name"), ('{"name": 1}', "name"), ('{"name": ["a"]}', "name"), ('{"name": ""}', "name"),
        ('{"name": "."}', "name"), ('{"name": "a\\u0000"}', "name"), ('{"name": "\\ud800"}', "name"),
        ('{"name": "a", "provider": null}', "provider"), ('{"name": "a", "provider": 7}', "provider"),
        ('{"name": "a", "provider": "../etc"}', "provider"), ('{"name": "a", "input": null}', "input"),
        ('{"name": "a", "input": []}', "input"), ('{"name": "a", "input": "x"}', "input"),
        ('{"name": "a", "inputs": {}}', "inputs"), ('{"name": "a", "task-name": "b"}', "task-name"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_base64", [False, True])
def test_a_body_that_is_wrong_is_refused_with_its_field(
    shape: Shape, body: str | None, field: str, as_base64: bool
) -> None:
    assert refused(from_body, shape("POST", "/tasks", body, as_base64=as_base64)) == field


def test_an_input_of_up_to_32_kilobytes_is_taken_and_no_more(shape: Shape) -> None:
    frame = len('{"x":""}')
    fits, over = {"x": "y" * (BOUNDS["input"].most - frame)}, {"x": "y" * (BOUNDS["input"].most - frame + 1)}
    assert from_body(shape("POST", "/tasks", {"name": "a", "input": fits}), DEFAULT).input == fits
    assert refused(from_body, shape("POST", "/tasks", {"name": "a", "input": over}), ContentTooLarge) == "input"


def test_an_input_is_counted_in_bytes_not_characters(shape: Shape) -> None:
    body = json.dumps({"name": "a", "input": {"x": "é" * 17_000}}, ensure_ascii=False)
    assert refused(from_body, shape("POST", "/tasks", body), ContentTooLarge) == "input"


@pytest.mark.parametrize("as_base64", [False, True])
def test_a_body_of_up_to_64_kilobytes_is_read_and_no_more(shape: Shape, as_base64: bool) -> None:
    body = '{"name": "a"}'.ljust(MAX_BODY_BYTES)
    assert from_body(shape("POST", "/tasks", body, as_base64=as_base64), DEFAULT).task.name == "a"
    assert refused(from_body, shape("POST", "/tasks", body + " ", as_base64=as_base64), ContentTooLarge) == "body"


def test_the_same_body_plain_and_in_base64_is_the_same_request(shape: Shape) -> None:
    body = {"name": "Łódź", "input": {"total": 30.4}}
    plain, encoded = (from_body(shape("POST", "/tasks", body, as_base64=flag), DEFAULT) for flag in (False, True))
    assert plain == encoded


@pytest.mark.parametrize("garbage", ["%%%", "YQ", "e30", "é", "eyJu%YW1lIjogImEifQ==", "eyJuYW1lIjogImEi\u200b"])
def test_a_body_that_is_not_the_base64_it_claims_to_be_is_refused(shape: Shape, garbage: str) -> None:
    call = replace(shape("POST", "/tasks", garbage), is_base64=True)
    assert refused(from_body, call) == "body"


def test_bytes_that_are_not_utf_8_are_refused(shape: Shape) -> None:
    call = shape("POST", "/tasks", base64.b64encode(b'{"name": "\xff"}').decode())
    assert refused(from_body, replace(call, is_base64=True)) == "body"


# --- revive


def test_a_revival_names_only_a_task(shape: Shape) -> None:
    assert named_in_body(shape("POST", "/tasks/revive", {"name": "a"}), DEFAULT) == Task("example", "a")
    assert named_in_body(shape("POST", "/tasks/revive", {"name": "a", "provider": "coin"}), DEFAULT).provider == "coin"
    assert refused(named_in_body, shape("POST", "/tasks/revive", {"name": "a", "input": {}})) == "input"
    assert refused(named_in_body, shape("POST", "/tasks/revive", {})) == "name"


# --- /tasks/{provider}/{name} and /tasks?provider=&name=


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/tasks/example/a", "a"), ("/tasks/example/a%20b", "a b"), ("/tasks/example/a+b", "a+b"),
        ("/tasks/example/a%2Fb", "a/b"), ("/tasks/example/100%25", "100%"), ("/tasks/example/%25C3%25A9", "%C3%A9"),
        ("/tasks/example/%C5%81%C3%B3d%C5%BA", "Łódź"), ("/tasks/example/tasks%2Fcoin%2Fb", "tasks/coin/b"),
        ("/tasks/example/revive", "revive"),
    ],
)  # fmt: skip
def test_a_name_in_the_path_is_decoded_once(shape: Shape, path: str, name: str) -> None:
    assert named_in_url(shape("GET", path), DEFAULT) == Task("example", name)


def test_a_query_may_name_the_task_instead(shape: Shape) -> None:
    assert named_in_url(shape("GET", "/tasks?provider=coin&name=a%2Fb+c"), DEFAULT) == Task("coin", "a/b c")
    assert named_in_url(shape("GET", "/tasks?name=..."), DEFAULT) == Task("example", "...")


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/tasks", "name"),
        ("/tasks?provider=coin", "name"), ("/tasks?name=", "name"), ("/tasks?name=a&id=7", "id"),
        ("/tasks/No%20Name/a", "provider"), ("/tasks/example/..", "name"), ("/tasks/example/%2E", "name"),
        ("/tasks/example/a%0Ab", "name"),
    ],
)  # fmt: skip
def test_a_url_that_names_no_task_is_refused_with_its_field(shape: Shape, target: str, field: str) -> None:
    assert refused(named_in_url, shape("GET", target)) == field


# --- Cache-Control


@pytest.mark.parametrize(
    ("control", "max_age_seconds"),
    [
        ("no-cache", 0), ("No-Cache", 0), ("max-age=60", 60), ("MAX-AGE=60", 60), ('max-age="60"', 60),
        ("max-age=0", 0), ("private, max-age=60 , no-transform", 60), ("max-age=60, max-age=30", 30),
        ("max-age=60, no-cache", 0), ("", None), ("no-store", None), ("max-age", None), ("max-age=-1", None),
        ("max-age=soon", None), ("max-age=1.5", None), ("s-maxage=60", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Cache-Control", "cache-control", "cAcHe-cOnTrOl"])
def test_cache_control_says_how_old_an_answer_may_be_whatever_its_case(
    shape: Shape, name: str, control: str, max_age_seconds: float | None
) -> None:
    assert (
        from_query(shape("GET", "/?task-name=a", None, {name: control}), DEFAULT).prefers.max_age_seconds
        == max_age_seconds
    )
    posted = from_body(shape("POST", "/tasks", {"name": "a"}, {name: control}), DEFAULT)
    assert posted.prefers.max_age_seconds == max_age_seconds


def test_a_content_type_in_any_case_or_none_makes_no_difference(shape: Shape) -> None:
    def read(**headers: Any) -> TaskRequest:
        return from_body(shape("POST", "/tasks", {"name": "a"}, headers), DEFAULT)

    assert read() == read(**{"content-TYPE": "text/plain"}) == read(**{"Content-Type": "application/json"})


# --- notify


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"stepFunctionsToken": "AAAA/+="}, "stepFunctionsToken:AAAA/+="),
        ({"stepFunctionsToken": "x" * 2048}, "stepFunctionsToken:" + "x" * 2048),
        ({"durableCallbackId": "x" * 1023 + "="}, "durableCallbackId:" + "x" * 1023 + "="),
        ({"durableCallbackId": "Ab9+/=="}, "durableCallbackId:Ab9+/=="),
    ],
)
def test_a_body_may_name_a_workflow_that_waits(shape: Shape, given: Any, target: str) -> None:
    assert from_body(shape("POST", "/tasks", {"name": "a", "notify": given}), DEFAULT).notify == target
    assert from_body(shape("POST", "/tasks", {"name": "a"}), DEFAULT).notify is None


@pytest.mark.parametrize(
    "given",
    [
        None, "AAAA", [], {}, {"stepFunctionsToken": ""}, {"stepFunctionsToken": None}, {"stepFunctionsToken": 5},
        {"stepFunctionsToken": "x" * 2049}, {"stepFunctionsToken": "a b"}, {"stepFunctionsToken": "é"},
        {"stepFunctionsToken": "a", "durableCallbackId": "b"}, {"webhook": "https://example.com"},
        {"durableCallbackId": ""}, {"durableCallbackId": "x" * 1025}, {"durableCallbackId": "a-b"},
        {"durableCallbackId": "a==="}, {"durableCallbackId": "=a"}, {"durableCallbackId": "a\n"},
        {"stepFunctionsToken": "a\n"},
    ],
)  # fmt: skip
def test_a_workflow_that_cannot_be_told_is_refused(shape: Shape, given: Any) -> None:
    assert refused(from_body, shape("POST", "/tasks", {"name": "a", "notify": given})) == "notify"


# --- callbacks


def test_a_callback_is_its_path_its_headers_and_the_bytes_of_its_body(shape: Shape) -> None:
    for as_base64 in (False, True):
        found = callback(shape("POST", "/callbacks/coin/a-b_c.d", "{ é }", {"X-Signature": "s"}, as_base64=as_base64))
        assert (found.provider, found.token, found.body) == ("coin", "a-b_c.d", "{ é }".encode())
        assert found.headers["x-signature"] == "s"
    assert callback(shape("POST", "/callbacks/coin/t")).body == b""


@pytest.mark.parametrize("path", ["/callbacks", "/callbacks/a", "/callbacks/a/", "/callbacks/a/b/c", "/tasks/a/b"])
def test_another_path_is_no_callback(shape: Shape, path: str) -> None:
    with pytest.raises(NotFound):
        callback(shape("POST", path))


def test_of_a_callback_no_more_is_read_than_of_any_other_request(shape: Shape) -> None:
    assert callback(shape("POST", "/callbacks/a/b", "x" * MAX_BODY_BYTES)).body == b"x" * MAX_BODY_BYTES
    assert callback(shape("POST", "/callbacks/a/b", "x" * (MAX_BODY_BYTES + 1))).body is None


def test_each_request_of_a_batch_is_read_by_itself() -> None:
    call = rest_call(
        "POST", "/tasks/batch", {"tasks": [{"name": "a"}, 7, {"name": "b", "provider": "job"}, {"name": ""}]}
    )
    first, second, third, fourth = from_batch(call, "example")
    assert [one.task for one in (first, third) if isinstance(one, TaskRequest)] == [
        Task("example", "a"),
        Task("job", "b"),
    ]
    assert [one.field for one in (second, fourth) if isinstance(one, Problem)] == ["tasks", "name"]
