"""The schema that editors and `check` use, and the types that production reads: one language."""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from local import ROOT
from local.provider.replay import conversations
from local.provider.schema import schema
from local.provider.violations import violations
from shared.errors import ProviderFileError
from shared.provider.language import faults as crossed
from shared.provider.language.part import Part
from shared.provider.language.rules import Rules

SCHEMA_FILE = ROOT / "docs/provider.schema.json"
SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SHIPPED = sorted((ROOT / "shared/providers").glob("*.json"))

Json = Any
Path_ = tuple[str | int, ...]

EVERYTHING: Json = {
    "$schema": "x", "description": "every field of the language",
    "servers": ["https://api.example.com", "http://127.0.0.1:9"],
    "security": [
        {"type": "http", "scheme": "basic", "secret": "env:A"},
        {"type": "apiKey", "in": "header", "name": "X-Key", "prefix": "Key ", "secret": "ssm:/a"},
        {
            "type": "oauth2", "flow": "clientCredentials", "tokenUrl": "https://auth.example.com/token",
            "scopes": ["a"], "clientId": "me", "clientSecret": "secretsmanager:a#b", "clientAuth": "post",
            "params": {"audience": "x"},
        },
    ],
    "submit": [
        {
            "method": "POST", "url": "/a/${input.a}", "query": {"b": 1}, "headers": {"Idempotency-Key": "${task.id}"},
            "body": {"c": ["${input}"], "webhook": "${callback.url}"}, "contentType": "application/json",
            "repeatable": True, "outputs": {"id": "body.id"}, "decode": "json", "timeout": 5,
        },
    ],
    "poll": {"url": "/a/${outputs.id}"},
    "result": {"url": "${response.body.link}", "decode": "csv", "next": "body.next", "optional": True},
    "cancel": {"method": "DELETE", "url": "/a/${outputs.id}"}, "status": "body.state",
    "acceptors": [
        {"state": "pending", "matcher": "status", "expected": [404, "2XX"], "on": ["submit", "poll"]},
        {"state": "failure", "matcher": "pathAny", "argument": "body.x", "expected": "x", "message": "body.m"},
    ],
    "require": "body.data",
    "data": "body.data", "partial": "body.part", "progress": "body.progress", "error": "body.error",
    "polling": {
        "initialDelay": 1, "minDelay": 1, "maxDelay": 60, "multiplier": 1.5, "jitter": "none",
        "hints": [{"argument": "body.eta", "unit": "ms"}], "maxWaitTime": 100, "maxErrors": 3, "maxResubmits": 0,
        "notFoundGrace": 10,
    },
    "freshness": 60, "freshnessFailed": 0, "firstAnswer": 20,
    "callback": {
        "signature": {
            "scheme": "plain", "header": "X-Signature", "secret": ["ssm:/a", "ssm:/b"], "algorithm": "hmac-sha512",
            "encoding": "base64", "prefix": "v1=", "key": "base64", "signed": "${timestamp}.${body}",
            "timestamp": {"header": "X-Time", "prefix": "t=", "tolerance": 60},
        },
    },
    "limits": {"rate": {"requests": 10, "seconds": 1.5, "burst": 20}, "parallel": 4, "openJobs": 100},
}  # fmt: skip
WRONG: tuple[Json, ...] = (
    None, True, 0, -1, 0.5, 1.0, 2.5, 21, "", "x", "GET", "${input.a}", [], ["x"], [1], [{}], {}, {"a": 1}, {"a": "b"},
)  # fmt: skip

BEYOND_A_SCHEMA = (
    "is not JMESPath", "must be a reference", "must be an absolute", "uses response", "must be a status",
    "url is for result", "outputs, task, callback and response", "s is longer than max", "ends after maxWaitTime",
    "header is missing", "signed must hold", "need each other",
)  # fmt: skip
"""What only the types and the cross-checks refuse: a schema without formats cannot say it."""


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


def fault(file: Json) -> str | None:
    """The first that production finds."""
    try:
        Rules.from_json(file)
    except ProviderFileError as error:
        return str(error)
    return None


def told(file: Json) -> list[str]:
    """All that `check` finds where production finds one."""
    return [*violations(file), *crossed.faults(file)]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_file_with_everything_is_sound() -> None:
    assert VALIDATOR.is_valid(EVERYTHING)
    assert (fault(EVERYTHING), told(EVERYTHING)) == (None, [])


PARTS = [("Rules", SCHEMA), *SCHEMA["$defs"].items()]


def test_the_file_with_everything_leaves_nothing_out() -> None:
    said = {str(key) for place in places(EVERYTHING) for key in place}
    assert {key for _, part in PARTS for key in part["properties"]} - said == set()


def test_every_part_and_every_property_says_what_it_means() -> None:
    assert {name for name, _ in PARTS} == {part.__name__ for part in Part.__subclasses__()}
    assert [name for name, part in PARTS if not part["description"]] == []
    silent = [f"{name}.{key}" for name, part in PARTS for key, one in part["properties"].items()
              if not one.get("description")]  # fmt: skip
    assert silent == []


def test_the_schema_needs_no_network_and_works_wherever_the_file_is() -> None:
    assert SCHEMA["$id"].startswith("urn:")
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(SCHEMA))
    assert references
    assert all(reference.startswith("#/$defs/") for reference in references)


def test_a_default_is_offered_where_there_is_one() -> None:
    operation, acceptor = SCHEMA["$defs"]["Operation"]["properties"], SCHEMA["$defs"]["Acceptor"]["properties"]
    assert (SCHEMA["properties"]["status"]["default"], operation["timeout"]["default"]) == ("body.status", 20)
    assert [key for key in ("argument", "message", "on") if "default" in acceptor[key]] == []
    assert SCHEMA["$defs"]["Polling"]["properties"]["maxErrors"]["type"] == "integer"


@pytest.mark.parametrize("word", ["sigv4", "cookie"])
def test_what_is_refused_is_not_offered(word: str) -> None:
    assert f'"{word}"' not in json.dumps(SCHEMA)


@cache
def verdicts() -> list[tuple[str, bool, str | None]]:
    """What both say of every variant."""
    return [(what, VALIDATOR.is_valid(file), fault(file)) for what, file in variants()]


def test_what_the_schema_refuses_production_refuses() -> None:
    assert [what for what, valid, fault in verdicts() if not valid and not fault] == []


def test_what_the_schema_accepts_production_accepts_but_for_what_a_schema_cannot_say() -> None:
    strict = [(what, fault) for what, valid, fault in verdicts() if valid and fault]
    assert [one for one in strict if not any(word in one[1] for word in BEYOND_A_SCHEMA)] == []


def test_check_finds_faults_where_production_does_and_nowhere_else() -> None:
    samples = list(variants())[::7]
    assert [what for what, file in samples if bool(told(file)) != bool(fault(file))] == []


@pytest.mark.parametrize("value", [3.0, 1e5, 10**5, 0, -0.0])
def test_a_whole_number_is_whole_however_it_is_written(value: float) -> None:
    assert told(changed(("polling", "maxErrors"), value)) == []
    assert fault(changed(("polling", "maxErrors"), value)) is None


@pytest.mark.parametrize("value", [1e301, 10**400, True, "1", None, -1])
def test_a_number_that_is_none_is_a_fault(value: Any) -> None:
    assert str(fault(changed(("polling", "minDelay"), value))).startswith("$.polling.minDelay: ")


def numbers() -> Iterator[tuple[str, str, Json]]:
    """Every number of the language: the part that it is in, its key, and what may be said of it."""
    for name, part in PARTS:
        for key, one in part["properties"].items():
            yield from (
                (name, key, kind) for kind in one.get("anyOf", [one]) if kind.get("type") in ("number", "integer")
            )


PLACES: dict[str, Path_] = {
    "Rules": (), "Polling": ("polling",), "Operation": ("submit", 0), "Rate": ("limits", "rate"),
    "Allowance": ("limits",), "Timestamp": ("callback", "signature", "timestamp"),
}  # fmt: skip


@pytest.mark.parametrize(("part", "key", "kind"), [*numbers()])
def test_every_number_has_an_upper_bound_which_both_hold(part: str, key: str, kind: Json) -> None:
    """C6."""
    place = (*PLACES[part], key)
    for value in (kind["maximum"] + 1, 1e13, 10**400, float("inf"), float("nan")):
        assert f".{key}: " in str(fault(changed(place, value)))
        assert str(value) == "nan" or any(f".{key}: must be a" in one for one in told(changed(place, value)))
    assert "Expected" not in str(fault(changed(place, kind["maximum"])))


CONTRADICTIONS = [
    ({"minDelay": 5, "maxDelay": 3}, "minDelay: 5 s is longer than maxDelay (3 s)"),
    ({"minDelay": 5, "maxDelay": 0}, "minDelay: 5 s is longer than maxDelay (0 s)"),
    ({"minDelay": 5, "maxWaitTime": 4.5}, "minDelay: 5 s is longer than maxWaitTime (4.5 s)"),
    ({"minDelay": 90_000}, "minDelay: 90000 s is longer than maxWaitTime (86400 s, as it is left out)"),
    ({"initialDelay": 9, "maxWaitTime": 3}, "initialDelay: 9 s is longer than maxWaitTime (3 s)"),
    ({"initialDelay": 86_401}, "initialDelay: 86401 s is longer than maxWaitTime (86400 s, as it is left out)"),
    ({"notFoundGrace": 60, "maxWaitTime": 50}, "notFoundGrace: 60 s is longer than maxWaitTime (50 s)"),
]


@pytest.mark.parametrize(("polling", "said"), CONTRADICTIONS, ids=str)
def test_a_file_whose_delays_contradict_each_other_is_refused(polling: Json, said: str) -> None:
    """C7."""
    file = EVERYTHING | {"polling": polling}
    assert fault(file) == f"$.polling.{said}"
    assert told(file) == [f"$.polling.{said}"]


def test_a_rate_that_lets_no_task_be_asked_about_twice_is_refused() -> None:
    """C7."""
    file = EVERYTHING | {"limits": {"rate": {"requests": 2, "seconds": 202}}}
    assert told(file) == [fault(file)]
    assert fault(file) == "$.limits.rate: one attempt in 101 s, but a task ends after maxWaitTime (100 s)"
    assert fault(EVERYTHING | {"limits": {"rate": {"requests": 2, "seconds": 200}}}) is None


@pytest.mark.parametrize("polling", [
    {"minDelay": 300}, {"minDelay": 300, "initialDelay": 500}, {"maxDelay": 1}, {"maxWaitTime": 1},
    {"initialDelay": 500}, {"minDelay": 5, "maxDelay": 5, "initialDelay": 5, "maxWaitTime": 5, "notFoundGrace": 5},
    {"maxWaitTime": 10, "maxDelay": 600},
], ids=str)  # fmt: skip
def test_a_floor_beside_a_longest_delay_that_is_left_out_is_no_contradiction(polling: Json) -> None:
    """C7."""
    file = EVERYTHING | {"polling": polling}
    assert (fault(file), told(file)) == (None, [])


@pytest.mark.parametrize("place", [("submit", 0, "method"), ("security", 0, "type"), ("acceptors", 0, "state")])
def test_half_a_character_is_a_fault_and_breaks_nothing(place: Path_) -> None:
    assert fault(changed(place, "\ud800"))


def test_check_says_every_fault_at_once_each_with_its_place_and_production_the_first() -> None:
    file = EVERYTHING | {
        "servers": ["ftp://x"],
        "submit": {"url": 5, "method": "FETCH", "retries": 3, "body": "${inptu.x}"},
        "poll": {"url": "/a/${response.body.id}", "outputs": {"id": "body..id"}},
        "acceptors": [{"state": "finished"}],
        "polling": {"minDelay": -1, "maxErrors": 1.5, "every": 5},
        "firstAnswer": 25,
    }
    said = told(file)
    assert str(fault(file)).startswith("$.servers[0]: must be an absolute URL")
    assert sorted(fault.partition(": ")[0] for fault in said) == [
        "$.acceptors[0].expected", "$.acceptors[0].state", "$.firstAnswer", "$.poll.outputs.id", "$.poll.url",
        "$.polling.every", "$.polling.maxErrors", "$.polling.minDelay", "$.servers[0]",
        "$.submit.body", "$.submit.method", "$.submit.retries", "$.submit.url",
    ]  # fmt: skip
    assert {
        "$.submit.url: must be a text",
        f"$.polling.every: is not known; there are {', '.join(sorted(SCHEMA['$defs']['Polling']['properties']))}",
        "$.submit.body: ${inptu.x} reads 'inptu'; there are input (input.inptu?), outputs, task, callback and response",
        "$.acceptors[0].expected: is missing",
        "$.acceptors[0].state: must be one of failure, pending, resubmit, retry, success",
        "$.polling.minDelay: must be a number from 0 up to 31536000",
        "$.polling.maxErrors: must be a whole number",
        "$.firstAnswer: must be a number from 0 up to 20",
        "$.poll.url: ${response.body.id} uses response, but no reply goes before it; keep what it needs in outputs",
    } <= set(said)


@pytest.mark.parametrize(("file", "said"), [
    ({"server": ["https://a.example"]}, "$.server: is not known; did you mean servers? There are $schema, "),
    (EVERYTHING | {"polling": {"min_delay": 1}}, "$.polling.min_delay: is not known; did you mean minDelay?"),
    (changed(("acceptors", 0, "state"), "sucess"), "; did you mean success?"),
    (changed(("security", 0, "scheme"), "Bearer"), "must be one of basic, bearer; did you mean bearer?"),
    (changed(("security",), {}), "$.security: must be a list"),
    (changed(("submit",), 5), "$.submit: must be an object or a list of objects"),
    (changed(("submit",), []), "$.submit: must not be empty"),
    (changed(("submit", 0), 5), "$.submit[0]: must be an object"),
    (changed(("result", "body"), "${input.a == true}"), "reads a field 'true'; the value needs backticks: `true`"),
], ids=str)  # fmt: skip
def test_check_says_what_was_perhaps_meant(file: Json, said: str) -> None:
    assert any(said in fault for fault in told(file)), told(file)


@pytest.mark.parametrize("secret", ["env:MY-TOKEN", "ssm:/a b", "secretsmanager:", "xenv:A", "env:A b"])
def test_an_editor_refuses_a_reference_that_is_none(secret: str) -> None:
    assert not VALIDATOR.is_valid(changed(("security", 0, "secret"), secret))


@pytest.mark.parametrize(("file", "said"), [
    ({}, "$.servers: is missing"), (EVERYTHING | {"server": 1}, "$.server: is not known"),
    (changed(("polling", "minDelay"), -1), "$.polling.minDelay: Expected `float` >= 0.0"),
    (EVERYTHING | {"poll": {"url": "/", "outputs": {"a": "b", "c": 5}}}, "$.poll.outputs.c: must be a text"),
    (changed(("submit", 0, "outputs", "id"), "a..b"), "$.submit.outputs.id: 'a..b' is not JMESPath"),
], ids=str)  # fmt: skip
def test_production_says_where_the_fault_is(file: Json, said: str) -> None:
    assert str(fault(file)).startswith(said)


@pytest.mark.parametrize(("part", "reason"), [
    ({"poll": {"url": "/a/${outputs.id}", "query": {"c": "${callback.url}"}}}, "uses callback, which is for submit"),
    ({"result": {"url": "${callback.url}"}}, "uses callback, which is for submit"),
    ({"submit": {"url": "/a", "body": "${callback.uri}"}}, "reads 'uri' of the callback; it has url"),
    ({"callback": {"signature": {"header": "X", "secret": "a value"}}}, "must be a reference"),
])  # fmt: skip
def test_what_cannot_be_said_of_callbacks_is_refused_clearly(part: Json, reason: str) -> None:
    (said,) = told(EVERYTHING | part)
    assert reason in said


def test_every_config_of_a_conversation_is_sound_in_both_eyes() -> None:
    for one in conversations(ROOT / "tests/conversations"):
        assert VALIDATOR.is_valid(one.vector["config"]), one.id
        assert (fault(one.vector["config"]), told(one.vector["config"])) == (None, []), one.id


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_files_are_sound_and_lead_editors_to_the_schema(file: Path) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    VALIDATOR.validate(content)
    Rules.load(file)
    assert (file.parent / content["$schema"]).resolve() == SCHEMA_FILE
