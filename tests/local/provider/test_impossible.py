"""What in a provider file can never work: servers, URLs, headers, statuses and calls of functions."""

import pytest

from shared.codec import Json
from tests.support.provider_tools import Call, Write, more, poll


@pytest.mark.parametrize(
    "server",
    [
        "http://a b",
        "https://a .example",
        "http://a..b",
        "https://*.example",
        "https://${input.region}.example",
        "https://a:0",
        "https://[::1",
        f"https://{'a' * 64}.example",
    ],
)
def test_a_server_that_cannot_be_is_a_fault(
    write: Write, call: Call, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    assert call("check", write(servers=[server])) == 1
    assert "$.servers[0]: " in call.text
    monkeypatch.setenv("PROVIDER_SERVERS", f"acme={server}")
    assert call.attempt(write()) == 1
    assert "$.servers[0]: " in call.text


@pytest.mark.parametrize(
    "server", ["http://[::1]:80", "http://127.0.0.1", "https://bücher.example", "http://a_b:1/v2/"]
)
def test_a_server_that_can_be_is_none(write: Write, call: Call, server: str) -> None:
    assert call("check", write(servers=[server])) == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1/x",
        "//[x/",
        "ftp://api.acme.example/",
        "https://me@api.acme.example/",
        "https://api.acme.example:99999/${outputs.id}",
        "https://a..${outputs.id}/",
    ],
)
def test_a_url_that_cannot_be_sent_is_a_fault(write: Write, call: Call, url: str) -> None:
    assert call("check", write(**poll(url=url))) == 1
    assert "$.poll.url: cannot be sent: " in call.text


@pytest.mark.parametrize("url", ["https://${input.region}.example/x", "${+outputs.id}/x", "//a.example:${input.p}/"])
def test_a_url_that_values_may_complete_is_none(write: Write, call: Call, url: str) -> None:
    assert call("check", write(**poll(url=url))) == 0


def test_half_a_character_in_a_file_is_shown_as_an_escape(write: Write, call: Call) -> None:
    assert call("check", write(data='body."\ud800"')) == 0
    assert "\\ud800" in call.text


KEY = {"type": "apiKey", "in": "header", "name": "X-Key", "secret": "env:A"}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (poll(headers={"X Y": "a"}), "$.poll.headers.X Y: 'X Y' is not the name of a header"),
        (poll(headers={"": "a"}), "'' is not the name of a header"),
        (poll(headers={"X": "a\nb${outputs.id}"}), "$.poll.headers.X: a header cannot hold '\\n'"),
        (poll(headers={"X": "Ж"}), "a header cannot hold 'Ж'"),
        ({"security": [KEY | {"name": ""}]}, "$.security[0].name: '' is not"),
        ({"security": [KEY | {"name": "X Key"}]}, "$.security[0].name: 'X Key' is not"),
        ({"security": [KEY | {"name": "Ключ"}]}, "$.security[0].name: 'Ключ' is not"),
        ({"security": [KEY | {"prefix": "a\n"}]}, "$.security[0].prefix: a header cannot hold '\\n'"),
        ({"security": [KEY | {"in": "query", "name": ""}]}, "$.security[0].name: must not be empty"),
        ({"callback": {"signature": {"header": "X S", "secret": "env:K"}}}, "$.callback.signature.header: 'X S' is"),
        (
            {"callback": {"signature": {"scheme": "slack", "secret": "env:K", "timestamp": {"header": "X T"}}}},
            "$.callback.signature.timestamp.header: 'X T' is",
        ),
        ({"callback": {"signature": {"secret": "env:K"}}}, "$.callback.signature: header is missing"),
        (
            {"callback": {"signature": {"scheme": "slack", "secret": "env:K", "signed": "v0:${timestamp}"}}},
            "$.callback.signature: signed must hold ${body}",
        ),
        *(
            (more(matcher="status", expected=[one]), f"$.acceptors[2].expected: {one} is no")
            for one in (2000, 20, 200.5)
        ),
        ({"data": "lenght(body.a)"}, "$.data: lenght(body.a): there is no function lenght; did you mean length?"),
        ({"data": "body.a[?starts_with(b)]"}, "starts_with takes 2 arguments, not 1"),
        ({"data": "body.a | [length(@, @)]"}, "length takes 1 argument, not 2"),
        ({"data": "merge()"}, "merge takes 1 or more arguments, not 0"),
        (poll(url="/${join(outputs.id)}"), "$.poll.url: ${join(outputs.id)}: join takes 2 arguments, not 1"),
        ({"result": {"url": "/${response.status}"}}, "${response.status}: a reply has statusCode, headers, body, url"),
        (poll(url="/a?b=${input.b == True}"), "reads a field 'True'; the value needs backticks: `true`"),
        ({"data": "body.done == False"}, "reads a field 'False'; the value needs backticks: `false`"),
    ],
)
def test_what_can_never_work_is_a_fault(write: Write, call: Call, changes: Json, fault: str) -> None:
    assert call("check", write(**changes)) == 1
    assert fault in call.text


def test_calls_that_can_be_evaluated_are_no_fault(write: Write, call: Call) -> None:
    data = "merge(body.a, body.b, {n: not_null(body.c, body.d), s: sort_by(body.e, &f)[0]})"
    assert call("check", write(data=data)) == 0
