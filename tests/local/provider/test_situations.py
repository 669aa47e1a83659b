"""What an API may well answer: files of ours see it through, and `check` tells a file that does not what to write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from local import ROOT
from local.provider.planted import plant
from local.provider.situations import SITUATIONS, Situation, harms, survives, unplayed
from shared.codec import Json
from shared.provider.language.acceptor import judge
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


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_each_file_of_the_library_sees_every_situation_through(path: Path) -> None:
    assert list(harms(Rules.load(path))) == []
    assert bool(list(unplayed(Rules.load(path)))) == (path.stem in UNPLAYED)


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


DONE = {"state": "success", "expected": "done"}
ANY_2XX = {"state": "success", "argument": "statusCode >= `200` && statusCode < `300`", "expected": True}
BY_RANGE = {"state": "success", "matcher": "status", "expected": "2XX"}
IF_ACCEPTED = {"state": "pending", "matcher": "status", "expected": 202}
RESULT = {"result": {"url": "/jobs/${outputs.id}/rows"}, "require": "body", "data": "body"}
UNLESS_RUNNING = {"state": "failure", "argument": "body.status != 'running'", "expected": True}
KEY_IN_USE, TOO_EARLY = "a submit is answered 409", "the first poll is answered 404"
WORDLESS = ["the submit is answered with a link or id", "a poll or the result is answered 200"]
ALL_ELSE = [KEY_IN_USE, TOO_EARLY, "a poll has a status", *WORDLESS]


def failing(**acceptor: Any) -> dict[str, Any]:
    """A file in which this is a failure."""
    return {"acceptors": [{"state": "failure"} | acceptor, DONE]}


@pytest.mark.parametrize(("changes", "happens"), [
    (failing(matcher="status", expected="4XX", on=["submit"]), [KEY_IN_USE]),
    (failing(matcher="status", expected=[400, 404]), [TOO_EARLY]),
    (RESULT | failing(matcher="status", expected="4XX", on=["result"]), ["the result is answered 404 or 409"]),
    (RESULT | {"acceptors": [ANY_2XX | {"on": ["result"]}, DONE]}, ["the result is answered 202"]),
    ({"data": "body", "acceptors": [ANY_2XX]}, ["a poll is answered 202", "the submit is answered with the data"]),
    ({"acceptors": [DONE, UNLESS_RUNNING]}, ALL_ELSE),
    ({"acceptors": [
        DONE, {"state": "failure", "argument": "!contains(['queued', 'running'], body.status)", "expected": True},
    ]}, ALL_ELSE),
    ({"result": {"url": "${outputs.link}", "optional": True}, "acceptors": [DONE],
      "poll": JOB["poll"] | {"outputs": {"link": "body.link"}}}, ["the submit is answered with the data"]),
    ({"polling": {"maxErrors": 0}}, [KEY_IN_USE, TOO_EARLY, "each request is once not answered"]),
], ids=str)  # fmt: skip
def test_all_lines_that_check_says_see_a_file_through(changes: Any, happens: list[str]) -> None:
    file = JOB | changes
    said = list(harms(Rules.from_json(file)))
    assert all(any(f": where {one}" in warning for warning in said) for one in happens)
    assert len(said) == len(happens)
    for _ in said:
        file = mended(file, next(iter(harms(Rules.from_json(file))), ""))
    assert list(harms(Rules.from_json(file))) == []


def mended(file: dict[str, Any], warning: str) -> dict[str, Any]:
    """The file with the line that the warning says."""
    if outputs := re.search(r"write (\{.*\}) into the outputs", warning):
        return file | submit(outputs=JOB["submit"]["outputs"] | json.loads(outputs[1]))
    if line := re.search(r"write (\{.*\}) (?:first into \$\.acceptors|before \$\.acceptors\[(\d+)\])$", warning):
        acceptors, at = file["acceptors"], int(line[2] or 0)
        return file | {"acceptors": [*acceptors[:at], json.loads(line[1]), *acceptors[at:]]}
    return file | ({"polling": {}} if "raise $.polling.maxErrors, which is 0" in warning else {})


@pytest.mark.parametrize("changes", [
    RESULT | {"acceptors": [BY_RANGE | {"expected": ["2XX", 202], "on": ["result"]}, DONE]},
    RESULT | {"acceptors": [BY_RANGE | {"on": ["result"]}, DONE]},
    {"acceptors": [{"state": "success", "matcher": "status", "expected": 202}, {**IF_ACCEPTED, "expected": 200}]},
], ids=str)  # fmt: skip
def test_nothing_is_said_of_202_where_the_file_names_it_or_a_range_leaves_it_out(changes: Any) -> None:
    assert not any("answered 202" in one for one in harms(Rules.from_json(JOB | changes)))


def test_an_error_is_no_pending_by_the_lines_that_check_says() -> None:
    file = JOB | {"acceptors": [DONE, UNLESS_RUNNING]}
    said = "".join(harms(Rules.from_json(file)))
    rules = Rules.from_json(JOB | {"acceptors": [json.loads(one) for one in re.findall(r"\{[^{}]*null[^{}]*\}", said)]})
    assert len(rules.acceptors) == 3
    for status, body in ((400, None), (500, {"status": 500})):
        assert judge(rules.acceptors, {"poll"}, {"statusCode": status, "headers": {}, "body": body})[1] is None


def test_what_harms_a_file_is_said_although_no_line_helps(write: Write, call: Call) -> None:
    lacks = {"state": "failure", "argument": "body.id", "expected": None, "on": ["poll"]}
    assert call("check", write(acceptors=[lacks, *JOB["acceptors"]])) == 0
    (warning,) = [one for one in call.warnings if "replies to polls have no link or id" in one]
    assert warning.endswith("does not complete; no line is known that helps")


def test_what_could_not_be_played_is_a_note(write: Write, call: Call) -> None:
    assert call("check", write()) == 0
    assert not any(line.startswith("note: ") for line in call.lines)
    odd = {"state": "success", "argument": "contains(keys(body), 'x')", "expected": True}
    assert call("check", write(acceptors=[odd])) == 0
    (note,) = [line for line in call.lines if line.startswith("note: ")]
    assert note.startswith("note: what APIs may answer could not be played")


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
    ("body.done && body.error != `null`", True), ("body.a != 'x'", True), ("!(body.a == 'x')", False),
    ("contains(['x', 'y'], body.a)", True), ("!contains(['x'], body.a)", True),
])  # fmt: skip
def test_what_an_expression_looks_for_is_planted(text: str, value: Json) -> None:
    envelope: dict[str, Json] = {"statusCode": 200, "headers": {}, "body": None}
    assert plant(Expression(text), value, envelope)
    assert Expression(text).of(envelope) == value


@pytest.mark.parametrize("text", ["length(body)", "body.*.a", "statusCode.a", "'x'", "body.a == body.b", "body[-1]"])
def test_what_is_not_known_to_work_is_not_believed(text: str) -> None:
    assert not plant(Expression(text), "y", {"statusCode": 200, "headers": {}, "body": None})
