"""`replay`: a line for each conversation; and conversations in which no usable answer comes."""

import json
from pathlib import Path
from typing import Any

import pytest

from local import ROOT
from local.provider.replay import Conversation
from shared.codec import Json
from tests.support.provider_tools import JOB, Call

VECTORS = ROOT / "tests/conversations/language.vectors.json"


def test_replay_prints_a_line_for_each_conversation_and_a_summary(call: Call) -> None:
    assert call("replay", VECTORS) == 0
    assert call.lines[0] == "01-house-partial-to-complete: passed"
    assert len(call.lines) == 28
    assert call.lines[-1] == "27 passed, 0 failed"


def test_replay_prints_the_first_difference_and_goes_on(call: Call, vectors: Path) -> None:
    two = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"][:2]
    two[0]["steps"][0]["expect"]["delay"] = 31
    vectors.write_text(json.dumps({"vectors": two}), encoding="utf-8")
    assert call("replay", vectors) == 1
    assert call.lines[0].startswith(
        '01-house-partial-to-complete: step 0 at 0 s: expected {"state": "in_progress", "del'
    )
    assert call.lines[1:] == ["02-house-complete-at-once: passed", "1 passed, 1 failed"]


def test_replay_says_what_is_no_file_of_conversations(call: Call, tmp_path: Path) -> None:
    assert call("replay", tmp_path / "none.json") == 1
    assert "No such file" in call.text
    assert call.lines[-1] == "0 passed, 1 failed"


def unanswered(error: str, expect: Json) -> dict[str, Any]:
    """A submit, on a connection that is kept, and a poll without a usable answer."""
    submitted = {
        "at": 0,
        "exchanges": [
            {
                "request": {"method": "POST", "url": "https://api.acme.example/jobs"},
                "response": {"statusCode": 202, "body": {"id": 7}},
            }
        ],
        "expect": {"state": "in_progress", "delay": 2},
    }
    request = {"method": "GET", "url": "https://api.acme.example/jobs/7"}
    polled = {"at": 2, "exchanges": [{"request": request, "response": {"transportError": error}}], "expect": expect}
    return {"config": JOB | {"polling": {"maxErrors": 0}}, "start_epoch": 0, "steps": [submitted, polled]}


@pytest.mark.parametrize(
    ("error", "expect"),
    [
        ("timeout", {"state": "failed", "reason": "too-many-errors", "error": "deadline"}),
        ("connection", {"state": "failed", "reason": "too-many-errors", "error": "transport"}),
        ("too-large", {"state": "failed", "reason": "too-large"}),
    ],
)
def test_a_vector_may_say_that_no_usable_answer_came(error: str, expect: Json) -> None:
    assert Conversation("unanswered", unanswered(error, expect)).difference() is None


def test_the_request_without_an_answer_is_compared_all_the_same() -> None:
    vector = unanswered("timeout", {})
    vector["steps"][1]["exchanges"][0]["request"]["url"] += "0"
    assert "expected GET https://api.acme.example/jobs/70, found" in str(Conversation("other", vector).difference())


def test_an_unknown_transport_error_is_refused_with_those_that_there_are() -> None:
    said = Conversation("unknown", unanswered("refused", {})).difference()
    assert said == "it lacks steps[1].exchanges[0].response.transportError: one of timeout, connection, too-large"
