"""What an API may well answer: files of ours see it through, and `check` tells a file that does not what to write."""

import json
import re
from typing import Any

import pytest

from local import ROOT
from local.provider.planted import plant
from local.provider.situations import SITUATIONS, Situation, harms, survives
from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.rules import Rules, provider_files
from tests.support.provider_tools import JOB, Call, Write, poll, submit

PAGE = (ROOT / "docs/providers.md").read_text(encoding="utf-8")
STYLES = PAGE.partition("## A file for each style")[2].partition("\n## ")[0]
TITLES = re.findall(r"^\*\*([^*]+)\*\*", STYLES, re.MULTILINE)
OURS: dict[str, Json] = dict(
    zip(TITLES, map(json.loads, re.findall(r"```json\n(.*?)```", STYLES, re.DOTALL)), strict=True)
)
OURS |= {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for place in ("shared/providers", "local/providers")
    for path in provider_files(ROOT / place)
}
LIBRARY = provider_files(ROOT / "tests/library")
UNPLAYED = ["azure-speech-batch", "cloudconvert", "odata", "twilio-bulkexport"]
"""Files whose expressions are such that no reply can be made up for them."""
LOCATION = {
    "submit": {"method": "PUT", "url": "/exports", "outputs": {"monitor": "headers.location"}},
    "poll": {"url": "${outputs.monitor}"},
    "data": "body",
}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.happens)
@pytest.mark.parametrize("name", OURS)
def test_documented_and_shipped_files_see_every_situation_through(name: str, situation: Situation) -> None:
    assert survives(Rules.from_json(OURS[name]), situation) in (True, None)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.happens)
def test_each_situation_is_one_that_files_of_ours_can_be_in(situation: Situation) -> None:
    assert [name for name, file in OURS.items() if survives(Rules.from_json(file), situation)] != []


def test_nearly_every_file_of_the_library_can_be_played() -> None:
    as_usual = Situation("as usual", "completed", lambda *_: {})
    played = {path.stem: survives(Rules.load(path), as_usual) for path in LIBRARY}
    assert sorted(name for name, completed in played.items() if not completed) == UNPLAYED


def test_what_a_success_must_have_is_played_too() -> None:
    file = JOB | {"require": "body.rows", "data": "body"}
    assert all(survives(Rules.from_json(file), one) in (True, None) for one in SITUATIONS)
    assert survives(Rules.from_json(file), SITUATIONS[0])


@pytest.mark.parametrize(("changes", "happens"), [
    (LOCATION | {"acceptors": [
        {"state": "pending", "matcher": "status", "expected": 202},
        {"state": "success", "matcher": "status", "expected": "2XX"},
    ]}, "the submit is answered with the data, and no link or id"),
    ({"acceptors": [{"state": "success", "matcher": "status", "expected": 200}]}, "the submit is answered"),
    ({"acceptors": [
        {"state": "pending", "expected": "running"}, {"state": "success", "expected": "succeeded"},
        {"state": "failure", "argument": "body.status != `null`", "expected": True},
    ]}, "a poll has a status that the file does not know"),
    ({"data": "body", "acceptors": [
        {"state": "success", "expected": "done"}, {"state": "pending", "expected": "running"},
        {"state": "success", "matcher": "status", "expected": 200},
    ]}, "a poll has a status that the file does not know"),
], ids=str)  # fmt: skip
def test_check_says_what_to_write_and_that_helps(changes: Any, happens: str, write: Write, call: Call) -> None:
    assert call("check", write(**changes)) == 0
    (warning,) = [one for one in call.warnings if one.startswith(f"$.acceptors: where {happens}")]
    line, where = re.findall(r"the task does not complete; write (\{.*\}) (first into|before) \$", warning)[0]
    at = 0 if where == "first into" else int(warning.rpartition("[")[2].strip("]"))
    acceptors = [*changes["acceptors"]]
    acceptors.insert(at, json.loads(line))
    call("check", write(**changes | {"acceptors": acceptors}))
    assert not any("does not complete" in one for one in call.warnings)


@pytest.mark.parametrize("changes", [
    {}, poll(method="POST"), submit(url="/jobs/${input.id}"),
    {"acceptors": [{"state": "success", "argument": "contains(keys(body), 'x')", "expected": True}]},
    {"acceptors": [{"state": "success", "matcher": "status", "expected": 303}], "result": {"url": "/f"}},
    {"acceptors": [{"state": "retry", "expected": "x"}]},
], ids=str)  # fmt: skip
def test_nothing_is_said_of_files_that_are_well_or_that_nobody_can_judge(changes: Any) -> None:
    assert list(harms(Rules.from_json(JOB | changes))) == []


@pytest.mark.parametrize(("text", "value"), [
    ("body.a.b", "x"), ("body.a[1].b", "x"), ("body.a || headers.b", "x"), ("headers.location", "/l"), ("body", "x"),
    ('body."a-b"', 5), ("body.a && body.b", True), ("body.a == 'x'", True), ("body.a != `null`", True),
    ("body.a > `3`", True), ("body.a < `3`", True), ("body.a >= `3` && body.a", 3), ("body.a[].b | [0]", "x"),
    ("to_string(body.a)", "x"), ("type(body.a) == 'object'", True),
    ("body.done && body.error != `null`", True), ("body.a != 'x'", True),
])  # fmt: skip
def test_what_an_expression_looks_for_is_planted(text: str, value: Json) -> None:
    envelope: dict[str, Json] = {"statusCode": 200, "headers": {}, "body": None}
    assert plant(Expression(text), value, envelope)
    assert Expression(text).of(envelope) == value


@pytest.mark.parametrize("text", ["length(body)", "body.*.a", "statusCode.a", "'x'", "body.a == body.b", "body[-1]"])
def test_what_is_not_known_to_work_is_not_believed(text: str) -> None:
    assert not plant(Expression(text), "y", {"statusCode": 200, "headers": {}, "body": None})
