"""Replay notices whatever differs from a conversation, and says what a file of conversations lacks."""

import copy
import json
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from local import ROOT
from local.provider.replay import Conversation, VectorError, conversations
from shared.codec import Json
from tests.support.provider_tools import JOB, Call

FOLDER = ROOT / "tests/conversations"
VECTORS = FOLDER / "language.vectors.json"
HOUSE = "https://thirdparty.example.com/v1/records/r-7"
RESPONSE = ("steps", 0, "exchanges", 0, "response")
GONE = object()
"""In place of a value: the key is not there."""
Vector: TypeAlias = dict[str, Any]
Where: TypeAlias = tuple[str | int, ...]


def vector(id_: str) -> Vector:
    found = next(one for one in conversations(FOLDER) if one.id == id_)
    return copy.deepcopy(dict(found.vector))


def changed(id_: str, where: Where, value: object) -> Vector:
    """A vector with another value in one place, or what a function makes of the value there."""
    made = vector(id_)
    *path, last = where
    part: Any = reduce(getitem, path, made)  # type: ignore[arg-type]
    if value is GONE:
        del part[last]
    else:
        part[last] = value(part[last]) if callable(value) else value
    return made


def difference(made: Vector) -> str:
    found = Conversation("changed", made).difference()
    assert found is not None
    return found


# --- what is noticed: the vector of the house API, changed in one place


def request(name: str) -> Where:
    return "steps", 0, "exchanges", 0, "request", name


def expect(step: int, *names: str) -> Where:
    return "steps", step, "expect", *names


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (request("url"), f"{HOUSE}8", f"step 0 at 0 s: expected GET {HOUSE}8, found GET https://thirdparty"),
        (request("url"), "https://another.example.com/", "step 0 at 0 s: expected GET https://another.example.com"),
        (request("url"), f"{HOUSE}?a=1", f"step 0 at 0 s: expected GET {HOUSE}?a=1, found GET"),
        (request("method"), "POST", "step 0 at 0 s: expected POST"),
        (request("headers"), {"Accept": "text/plain"}, "header Accept is '*/*', not 'text/plain'"),
        (request("body"), {}, "body is , not {}"),
        (request("auth"), False, "credentials are sent"),
        (("config", "security"), GONE, "credentials are missing"),
        (("steps", 0, "exchanges"), lambda one: one * 2, f"expected GET {HOUSE}, which never came"),
        (("steps", 0, "exchanges"), [], f"unexpected GET {HOUSE}"),
        (expect(1, "delay"), 21, 'step 1 at 30 s: expected {"state": "in_progress", "delay": 21'),
        (expect(1, "partial"), GONE, 'step 1 at 30 s: expected {"state": "in_progress", "delay": 20}, found'),
        (expect(0, "partial"), {"name": "Ada", "score": False}, "step 0 at 0 s: expected"),
        (expect(0), {"state": "completed", "data": {"name": "Ada", "score": None}}, "step 0 at 0 s: expected"),
        (expect(3, "data", "score"), 70, "step 3 at 90 s: expected"),
        (("steps",), lambda steps: [*steps, steps[3] | {"at": 99}], "step 4 at 99 s: it goes on after its end"),
        (expect(0), lambda one: one | {"reason": "http"}, "step 0 at 0 s: expected"),
    ],
)
def test_replay_notices(where: Where, value: object, said: str) -> None:
    assert said in difference(changed("01-house-partial-to-complete", where, value))


def test_replay_notices_one_credential_of_two_on_a_foreign_origin() -> None:
    assert "credentials are sent" in difference(changed("basic-and-key", request("auth"), False))


def test_replay_notices_a_token_that_was_not_renewed() -> None:
    made = changed("oauth-token", ("steps", 0, "exchanges", 0, "response", "statusCode"), 200)
    assert "step 0 at 0 s: expected" in difference(made)


def test_replay_notices_a_wrong_error_but_does_not_ask_for_the_text_to_a_reason_of_ours() -> None:
    assert "expected" in difference(changed("too-many-errors", expect(-1, "error"), "something else"))
    assert "error" not in vector("too-many-errors")["steps"][-1]["expect"]
    assert Conversation("unchanged", vector("too-many-errors")).difference() is None


def test_replay_compares_the_reasons_that_the_language_fixes_and_no_others() -> None:
    assert "step 0 at 0 s" in difference(changed("21-throttled-headers", expect(0, "reason"), "throttled"))
    made = changed("page-of-html", expect(1), lambda one: one | {"reason": "unreadable"})
    assert Conversation("changed", made).difference() is None


def test_jitter_plays_no_part_in_a_replay() -> None:
    made = changed("34-backoff-cap", ("config", "polling"), lambda one: one | {"jitter": "full"})
    assert Conversation("changed", made).difference() is None


def unanswered(error: str, expected: Json) -> Vector:
    """A submit, on a connection that is kept, and a poll without a usable answer."""
    url = "https://api.acme.example/jobs"
    submit = {"request": {"method": "POST", "url": url}, "response": {"statusCode": 202, "body": {"id": 7}}}
    poll = {"request": {"method": "GET", "url": f"{url}/7"}, "response": {"transportError": error}}
    steps = [
        {"at": 0, "exchanges": [submit], "expect": {"state": "in_progress", "delay": 2}},
        {"at": 2, "exchanges": [poll], "expect": expected},
    ]
    return {"config": JOB | {"polling": {"maxErrors": 0}}, "start_epoch": 0, "steps": steps}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("timeout", {"state": "failed", "reason": "too-many-errors", "error": "deadline"}),
        ("connection", {"state": "failed", "reason": "too-many-errors", "error": "transport"}),
        ("too-large", {"state": "failed", "reason": "too-many-errors", "error": "too-large"}),
    ],
)
def test_a_vector_may_say_that_no_usable_answer_came(error: str, expected: Json) -> None:
    assert Conversation("unanswered", unanswered(error, expected)).difference() is None


def test_the_request_without_an_answer_is_compared_all_the_same() -> None:
    made = unanswered("timeout", {})
    made["steps"][1]["exchanges"][0]["request"]["url"] += "0"
    assert "expected GET https://api.acme.example/jobs/70, found" in difference(made)


def test_half_a_character_in_a_body_is_a_body_that_cannot_be_decoded() -> None:
    said = difference(changed("02-house-complete-at-once", (*RESPONSE, "body"), "\ud800"))
    assert '"reason": "undecodable"' in said


def test_an_unknown_transport_error_is_refused_with_those_that_there_are() -> None:
    said = difference(unanswered("refused", {}))
    assert "at $.steps[1].exchanges[0].response.transportError: Expected" in said
    assert "timeout|connection|too-large" in said


@pytest.fixture
def write(vectors: Path) -> Callable[[Any], Path]:
    def written(value: Any) -> Path:
        vectors.write_text(json.dumps(value), encoding="utf-8")
        return vectors

    return written


def test_a_file_may_be_a_bare_list_and_a_vector_may_have_no_name(write: Callable[[Any], Path]) -> None:
    (only,) = conversations(write([changed("02-house-complete-at-once", ("id",), GONE)]))
    assert only.id == "report.vectors-1"
    assert only.difference() is None


def test_a_config_may_be_the_name_of_the_provider_file_beside_it(write: Callable[[Any], Path]) -> None:
    named = vector("02-house-complete-at-once")
    path = write([named | {"config": "house.json"}])
    (path.parent / "house.json").write_text(json.dumps(named["config"]), encoding="utf-8")
    assert conversations(path)[0].difference() is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"vectors": {}}', "must be"),
        ("[1]", "must be"),
        ('[{"id": "a", "config": "none.json"}]', "the config none.json"),
        ("{", r"report\.vectors\.json"),
    ],
)
def test_a_file_that_holds_no_conversations_says_so(vectors: Path, text: str, reason: str) -> None:
    vectors.write_text(text, encoding="utf-8")
    with pytest.raises(VectorError, match=reason):
        conversations(vectors)


def test_a_directory_without_conversations_is_no_place_for_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "acme.json").write_text("{}", encoding="utf-8")
    with pytest.raises(VectorError, match=r"files of them are named NAME\.vectors\.json"):
        conversations(tmp_path)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (("start_epoch",), "it is faulty at $: Object missing required field `start_epoch`"),
        (("steps", 0, "expect"), "at $.steps[0]: Object missing required field `expect`"),
        (request("url"), "at $.steps[0].exchanges[0].request: Object missing required field `url`"),
        ((*RESPONSE, "statusCode"), "exchanges[0].response: statusCode is missing"),
        (("config", "acceptors"), "its config is faulty: $.acceptors: is missing"),
    ],
)
def test_a_vector_that_lacks_something_says_what(where: Where, reason: str) -> None:
    assert reason in difference(changed("02-house-complete-at-once", where, GONE))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("steps",), 5),
        (("steps", 0), 5),
        (("start_epoch",), "x"),
        (("start_epoch",), 1e308),
        (("steps", 0, "at"), "x"),
        (("steps", 0, "exchanges", 0), 3),
        ((*RESPONSE, "statusCode"), "200"),
        ((*RESPONSE, "headers"), []),
        (RESPONSE, {"statusCode": 200, "headers": {"X": "Ж"}}),
        (RESPONSE, {"statusCode": 200, "headers": {"X": "a\nb"}}),
    ],
)
def test_a_vector_of_a_wrong_shape_says_where(where: Where, value: Json) -> None:
    location = "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in where)
    said = difference(changed("02-house-complete-at-once", where, value))
    assert said.startswith(f"it is faulty at {location}: ")


def test_replay_prints_a_line_for_each_conversation_and_a_summary(call: Call) -> None:
    assert call("replay", VECTORS) == 0
    assert call.lines[0] == "01-house-partial-to-complete: passed"
    assert len(call.lines) == 28
    assert call.lines[-1] == "27 passed, 0 failed"


def test_replay_prints_the_first_difference_and_goes_on(call: Call, write: Callable[[Any], Path]) -> None:
    first = changed("01-house-partial-to-complete", expect(0, "delay"), 31)
    assert call("replay", write({"vectors": [first, vector("02-house-complete-at-once")]})) == 1
    assert call.lines[0].startswith(f'{first["id"]}: step 0 at 0 s: expected {{"state": "in_progress", "del')
    assert call.lines[1:] == ["02-house-complete-at-once: passed", "1 passed, 1 failed"]


def test_replay_says_what_is_no_file_of_conversations(call: Call, tmp_path: Path) -> None:
    assert call("replay", tmp_path / "none.json") == 1
    assert "No such file" in call.text
    assert call.lines[-1] == "0 passed, 1 failed"
