"""What a provider says back of what it was given: callbacks and their keys, and all of it in a callback's payload."""

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from shared.codec import Json
from shared.outcome import Completed, Failed, Pending
from shared.provider import Finding, Provider
from shared.provider.callback_url import CallbackUrls
from shared.provider.wire.message import Reply
from shared.record import Record
from tests.support.asking import TASK, Secrets, ask, provider, record, rules, submitted
from tests.support.clock import START_MS
from tests.support.servers import Says, Site

KEY, API = "whsec_bXktc2lnbmluZy1rZXk+", "api-s3cr3t-marker"
CLIENT = "client-s3cr3t"
SIGNED = {"callback": {"signature": {"header": "X-Signature", "secret": "env:KEY"}}}
PARTS: dict[str, Any] = {
    "security": [
        {"type": "http", "scheme": "bearer", "secret": "env:API"},
        {"type": "oauth2", "tokenUrl": "http://auth.example/token", "clientId": "us", "clientSecret": "env:CLIENT"},
    ],
    "submit": {"method": "POST", "url": "/jobs", "body": {"hook": "${callback.url}"}, "outputs": {"id": "body.id"}},
    "poll": {"url": "/jobs/${outputs.id}"},
    **SIGNED,
}


def known(**values: str) -> Secrets:
    return Secrets({"env:KEY": KEY, "env:API": API, "env:CLIENT": CLIENT, "env:URLS": "signs-urls"} | values)


def made(server: str, secrets: Secrets, **parts: Json) -> tuple[Provider, CallbackUrls]:
    urls = CallbackUrls("https://us.example/x", "env:URLS", secrets)
    return provider(rules(server, **(PARTS | parts)), secrets, callback_url=urls.url), urls


def echo(url: str) -> dict[str, Json]:
    token = url.rpartition("/")[2]
    packed = base64.b64encode(json.dumps({"secret": KEY}).encode()).decode()
    return {"url": url, "quoted": quote(url, safe=""), "token": token, "key": KEY, "bare": KEY[6:], "packed": packed}


def is_masked(found: Json) -> bool:
    assert found["url"] == "https://us.example/x/callbacks/example/MASKED"
    assert found["quoted"] == quote("https://us.example/x/callbacks/example/", safe="") + "MASKED"
    assert (found["token"], found["key"], found["bare"]) == ("MASKED", "MASKED", "MASKED")
    assert "MASKED" in found["packed"]
    return "c2lnbmluZ" not in found["packed"]


def said_of(url: str, status: str) -> dict[str, Json]:
    return {"status": status, "id": "j", "said": echo(url), "error": echo(url)}


@pytest.mark.parametrize("stage", ["submit", "poll"])
@pytest.mark.parametrize("status", ["working", "completed", "failed"])
def test_a_callbacks_url_and_its_key_are_hidden_in_what_the_api_says(stage: str, status: str) -> None:
    """C32."""
    on = ["submit", "poll"]
    states = {"pending": "working", "success": "completed", "failure": "failed"}
    acceptors = [{"state": state, "expected": word, "on": on} for state, word in states.items()]
    secrets = known()
    with Site() as site:
        asked, urls = made(site.url, secrets, security=[], acceptors=acceptors, data="body.said")
        was: Record = record() if stage == "submit" else submitted()
        url = urls.url(TASK, was.generation, was.resubmits)
        site.answer = lambda _: Says(202, said_of(url, status))
        found = ask(asked, was)
    match found.outcome:
        case Completed(data):
            assert is_masked(data)
        case Failed(_, error):
            assert is_masked(error)
        case Pending(_, partial):
            assert is_masked(partial)
    if stage == "submit":
        assert json.loads(site.calls[0].body)["hook"] == url
    assert KEY[6:] not in found.record.to_text()


def heard(asked: Provider, body: Json) -> Finding | None:
    return asked.hear(TASK, submitted(), Reply(200, {"x": API}, json.dumps(body).encode(), ""), now=START_MS)


@pytest.mark.parametrize("status", ["working", "completed", "failed"])
def test_what_the_callback_function_may_read_is_hidden_in_what_a_callback_says(status: str) -> None:
    """C32: the key that signs and the token in the URL; of what else was used in this environment, that too."""
    states = {"pending": "working", "success": "completed", "failure": "failed"}
    acceptors = [{"state": state, "expected": word} for state, word in states.items()]
    secrets = known()
    said_there = dict.fromkeys(("data", "partial", "error"), "body.said")
    asked, urls = made("http://api.example", secrets, acceptors=acceptors, **said_there)
    secrets.values = {name: value for name, value in secrets.values.items() if name in ("env:KEY", "env:URLS")}
    found = heard(asked, {"status": status, "said": echo(urls.url(TASK, 1, 0))})
    assert found is not None
    outcome = found.outcome
    said = outcome.error if isinstance(outcome, Failed) else found.record.partial
    assert is_masked(outcome.data if isinstance(outcome, Completed) else said)


def test_a_poll_needs_nothing_that_only_callbacks_need() -> None:
    secrets = known()
    with Site(Says(200, {"status": "completed"})) as site:
        asked, _ = made(site.url, secrets, security=[])
        del secrets.values["env:KEY"], secrets.values["env:URLS"]
        assert isinstance(ask(asked, submitted()).outcome, Completed)
