"""The schema that editors and `check` use, and the rules that production reads: one language."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from local import ROOT
from local.provider.replay import conversations
from shared.errors import ProviderFileError
from shared.provider.language.rules import Rules

SCHEMA_FILE = ROOT / "docs/provider.schema.json"
SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SHIPPED = sorted((ROOT / "shared/providers").glob("*.json"))

Json = Any
Path_ = tuple[str | int, ...]

EVERYTHING: Json = {
    "$schema": "x",
    "description": "every field of the language",
    "servers": ["https://api.example.com", "http://127.0.0.1:9"],
    "security": [
        {"type": "http", "scheme": "basic", "secret": "env:A"},
        {"type": "apiKey", "in": "header", "name": "X-Key", "prefix": "Key ", "secret": "ssm:/a"},
        {
            "type": "oauth2",
            "flow": "clientCredentials",
            "tokenUrl": "https://auth.example.com/token",
            "scopes": ["a"],
            "clientId": "me",
            "clientSecret": "secretsmanager:a#b",
            "clientAuth": "post",
            "params": {"audience": "x"},
        },
    ],
    "submit": [
        {
            "method": "POST",
            "url": "/a/${input.a}",
            "query": {"b": 1},
            "headers": {"Idempotency-Key": "${task.id}"},
            "body": {"c": ["${input}"], "webhook": "${callback.url}"},
            "contentType": "application/json",
            "outputs": {"id": "body.id"},
            "decode": "json",
            "timeout": 5,
        }
    ],
    "poll": {"url": "/a/${outputs.id}"},
    "result": {"url": "${response.body.link}", "decode": "csv", "next": "body.next", "optional": True},
    "cancel": {"method": "DELETE", "url": "/a/${outputs.id}"},
    "status": "body.state",
    "acceptors": [
        {"state": "pending", "matcher": "status", "expected": [404, "2XX"], "on": ["submit", "poll"]},
        {"state": "failure", "matcher": "pathAny", "argument": "body.x", "expected": "x", "message": "body.m"},
    ],
    "data": "body.data",
    "partial": "body.part",
    "progress": "body.progress",
    "error": "body.error",
    "polling": {
        "initialDelay": 1,
        "minDelay": 1,
        "maxDelay": 60,
        "multiplier": 1.5,
        "jitter": "none",
        "hints": [{"argument": "body.eta", "unit": "ms"}],
        "maxWaitTime": 100,
        "maxErrors": 3,
        "maxResubmits": 0,
        "notFoundGrace": 10,
    },
    "freshness": 60,
    "freshnessFailed": 0,
    "firstAnswer": 20,
    "callback": {
        "signature": {
            "header": "X-Signature",
            "secret": "ssm:/a",
            "algorithm": "hmac-sha512",
            "encoding": "base64",
            "prefix": "v1=",
        }
    },
    "limits": {"rate": {"requests": 10, "seconds": 1.5, "burst": 20}, "parallel": 4, "openJobs": 100},
}
WRONG: tuple[Json, ...] = (
    None, True, 0, -1, 0.5, 1.0, 2.5, 21, "", "x", "GET", "${input.a}", [], ["x"], [1], [{}], {}, {"a": 1}, {"a": "b"},
)  # fmt: skip

BEYOND_A_SCHEMA = (
    "is not JMESPath",
    "must be a reference",
    "is not supported",
    "must be an absolute",
    "uses response",
    "must be a status",
    "url is for result",
    "outputs, task, callback and response",
)
"""What only the rules refuse: a schema cannot say it."""


def places(value: Json, place: Path_ = ()) -> Iterator[Path_]:
    """Every place in a file, objects and lists included."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield place
    for key, child in children:
        yield from places(child, (*place, key))


def changed(place: Path_, value: Json) -> Json:
    """The file with everything, with another value at one place."""
    file = copy.deepcopy(EVERYTHING)
    parent = file
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return file


def variants() -> Iterator[tuple[str, Json]]:
    """Files that differ from the one with everything in one place, and what was done to each."""
    for place in places(EVERYTHING):
        if not place:
            continue
        for value in WRONG:
            yield f"{place} is {value!r}", changed(place, value)
        lacking = copy.deepcopy(EVERYTHING)
        parent = lacking
        for key in place[:-1]:
            parent = parent[key]
        own = parent[place[-1]]
        if isinstance(own, dict):
            yield f"{place} has another key", changed(place, own | {"another": 1})
        del parent[place[-1]]
        yield f"{place} is missing", lacking
    yield "another key", EVERYTHING | {"another": 1}


def faults(file: Json) -> tuple[str, ...]:
    """What the rules say."""
    try:
        Rules.from_json(file)
    except ProviderFileError as error:
        return error.faults
    return ()


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_file_with_everything_is_sound() -> None:
    assert VALIDATOR.is_valid(EVERYTHING)
    assert faults(EVERYTHING) == ()


def test_the_file_with_everything_leaves_nothing_out() -> None:
    definitions = SCHEMA["$defs"]
    said = {str(key) for place in places(EVERYTHING) for key in place}
    language = set(SCHEMA["properties"]) | set(definitions["Callback"]["properties"]["signature"]["properties"])
    for name in ("Operation", "Acceptor", "Polling", "Limits"):
        language |= set(definitions[name]["properties"])
    for scheme in definitions["SecurityScheme"]["oneOf"][:3]:
        language |= set(scheme["properties"])
    assert language - said == set()


@cache
def verdicts() -> list[tuple[str, bool, tuple[str, ...]]]:
    """What both say of every variant."""
    return [(what, VALIDATOR.is_valid(file), faults(file)) for what, file in variants()]


def test_what_the_schema_refuses_the_rules_refuse() -> None:
    assert [what for what, valid, faults in verdicts() if not valid and not faults] == []


def test_what_the_schema_accepts_the_rules_accept_but_for_what_it_cannot_say() -> None:
    strict = [(what, fault) for what, valid, faults in verdicts() if valid for fault in faults]
    assert [one for one in strict if not any(word in one[1] for word in BEYOND_A_SCHEMA)] == []


def test_the_rules_say_every_fault_at_once_each_with_its_place() -> None:
    file = EVERYTHING | {
        "servers": ["ftp://x"],
        "submit": {"url": 5, "method": "FETCH", "retries": 3, "body": "${inptu.x}"},
        "poll": {"url": "/a/${response.body.id}", "outputs": {"id": "body..id"}},
        "acceptors": [{"state": "finished"}],
        "polling": {"minDelay": -1, "maxErrors": 1.5, "every": 5},
        "firstAnswer": 25,
    }
    assert [fault.partition(": ")[0] for fault in faults(file)] == [
        "$.servers[0]", "$.submit.method", "$.submit.url", "$.submit.retries", "$.submit.body",
        "$.poll.outputs.id", "$.acceptors[0].expected", "$.acceptors[0].state",
        "$.polling.minDelay", "$.polling.maxErrors", "$.polling.every", "$.firstAnswer", "$.poll.url",
    ]  # fmt: skip
    assert {
        "$.submit.url: must be a text",
        (
            "$.polling.every: is not known; there are hints, initialDelay, jitter, maxDelay, maxErrors, maxResubmits, "
            "maxWaitTime, minDelay, multiplier, notFoundGrace"
        ),
        "$.submit.body: ${inptu.x} reads 'inptu'; there are input (input.inptu?), outputs, task, callback and response",
        "$.acceptors[0].expected: is missing",
        "$.acceptors[0].state: must be one of pending, success, failure, retry, resubmit",
        "$.polling.minDelay: must be a number from 0",
        "$.polling.maxErrors: must be a whole number",
        "$.firstAnswer: must be a number from 0 up to 20",
        "$.poll.url: ${response.body.id} uses response, but no answer goes before it; keep what it needs in outputs",
    } <= set(faults(file))


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        (
            {"poll": {"url": "/a/${outputs.id}", "query": {"c": "${callback.url}"}}},
            "uses callback, which is for submit",
        ),
        ({"result": {"url": "${callback.url}"}}, "uses callback, which is for submit"),
        ({"submit": {"url": "/a", "body": "${callback.uri}"}}, "reads 'uri' of the callback; it has url"),
        ({"callback": {"signature": {"header": "X", "secret": "a value"}}}, "must be a reference"),
    ],
)
def test_what_cannot_be_said_of_callbacks_is_refused_clearly(part: Json, fault: str) -> None:
    (said,) = faults(EVERYTHING | part)
    assert fault in said


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ({"type": "sigv4", "service": "s3", "region": "eu-west-1"}, "$.security[0].type: sigv4 is not supported"),
        (
            {"type": "apiKey", "in": "cookie", "name": "a", "secret": "env:A"},
            "$.security[0].in: cookie is not supported",
        ),
    ],
)
def test_schemes_without_support_are_refused_clearly(scheme: Json, reason: str) -> None:
    file = EVERYTHING | {"security": [scheme]}
    assert VALIDATOR.is_valid(file)
    assert faults(file)[0].startswith(reason)


def test_every_config_of_a_conversation_is_sound_in_both_eyes() -> None:
    for one in conversations(ROOT / "tests/conversations"):
        assert VALIDATOR.is_valid(one.vector["config"]), one.id
        assert faults(one.vector["config"]) == (), one.id


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_files_are_sound_and_lead_editors_to_the_schema(file: Path) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    VALIDATOR.validate(content)
    Rules.load(file)
    assert (file.parent / content["$schema"]).resolve() == SCHEMA_FILE
