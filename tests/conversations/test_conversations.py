"""Whole conversations with providers, replayed through the real client; and replay held to noticing what differs."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local.provider.replay import Conversation, VectorError, conversations, fixture

HERE = Path(__file__).parent

Vector = dict[str, Any]

conversation = fixture(HERE)


def test_the_client_converses_as_written(conversation: Conversation) -> None:
    assert conversation.difference() is None


def test_every_conversation_has_a_name_of_its_own() -> None:
    names = [one.id for one in conversations(HERE)]
    assert len(names) == len(set(names)) > 27


# --- what replay notices: the vector of the house API, changed in one place


def vector(id_: str) -> Vector:
    found = next(one for one in conversations(HERE) if one.id == id_)
    return copy.deepcopy(dict(found.vector))


def difference(changed: Vector) -> str:
    found = Conversation("changed", changed).difference()
    assert found is not None
    return found


def request(changed: Vector, step: int = 0, number: int = 0) -> Any:
    return changed["steps"][step]["exchanges"][number]["request"]


def another_url(changed: Vector) -> None:
    request(changed)["url"] = "https://thirdparty.example.com/v1/records/r-8"


def another_host(changed: Vector) -> None:
    request(changed)["url"] = "https://another.example.com/v1/records/r-7"


def another_query(changed: Vector) -> None:
    request(changed)["url"] += "?a=1"


def another_method(changed: Vector) -> None:
    request(changed)["method"] = "POST"


def a_header(changed: Vector) -> None:
    request(changed)["headers"] = {"Accept": "text/plain"}


def a_body(changed: Vector) -> None:
    request(changed)["body"] = {}


def no_credentials(changed: Vector) -> None:
    request(changed)["auth"] = False


def missing_credentials(changed: Vector) -> None:
    del changed["config"]["security"]


def a_request_too_many(changed: Vector) -> None:
    exchanges = changed["steps"][0]["exchanges"]
    exchanges.append(exchanges[0])


def a_request_too_few(changed: Vector) -> None:
    changed["steps"][0]["exchanges"] = []


def another_delay(changed: Vector) -> None:
    changed["steps"][1]["expect"]["delay"] = 21


def another_partial(changed: Vector) -> None:
    del changed["steps"][1]["expect"]["partial"]


def a_one_for_a_true(changed: Vector) -> None:
    changed["steps"][0]["expect"]["partial"] = {"name": "Ada", "score": False}


def an_early_end(changed: Vector) -> None:
    changed["steps"][0]["expect"] = {"state": "completed", "data": {"name": "Ada", "score": None}}


def another_data(changed: Vector) -> None:
    changed["steps"][3]["expect"]["data"]["score"] = 70


def a_step_after_the_end(changed: Vector) -> None:
    changed["steps"].append(changed["steps"][3] | {"at": 99})


def a_word_too_many(changed: Vector) -> None:
    changed["steps"][0]["expect"]["reason"] = "http"


NOTICED: dict[Callable[[Vector], None], str] = {
    another_url: "step 0 at 0 s: expected GET https://thirdparty.example.com/v1/records/r-8, found GET https://thirdparty",
    another_host: "step 0 at 0 s: expected GET https://another.example.com",
    another_query: "step 0 at 0 s: expected GET https://thirdparty.example.com/v1/records/r-7?a=1, found GET",
    another_method: "step 0 at 0 s: expected POST",
    a_header: "header Accept is '*/*', not 'text/plain'",
    a_body: "body is , not {}",
    no_credentials: "credentials are sent",
    missing_credentials: "credentials are missing",
    a_request_too_many: "expected GET https://thirdparty.example.com/v1/records/r-7, which never came",
    a_request_too_few: "unexpected GET https://thirdparty.example.com/v1/records/r-7",
    another_delay: 'step 1 at 30 s: expected {"state": "in_progress", "delay": 21',
    another_partial: 'step 1 at 30 s: expected {"state": "in_progress", "delay": 20}, found',
    a_one_for_a_true: "step 0 at 0 s: expected",
    an_early_end: 'step 0 at 0 s: expected {"state": "completed"',
    another_data: "step 3 at 90 s: expected",
    a_step_after_the_end: "step 4 at 99 s: it goes on after its end",
    a_word_too_many: "step 0 at 0 s: expected",
}


@pytest.mark.parametrize("change", NOTICED, ids=lambda change: change.__name__.replace("_", "-"))
def test_replay_notices(change: Callable[[Vector], None]) -> None:
    changed = vector("01-house-partial-to-complete")
    change(changed)
    assert NOTICED[change] in difference(changed)


def test_replay_notices_one_credential_of_two_on_a_foreign_origin() -> None:
    changed = vector("basic-and-key")
    request(changed)["auth"] = False
    assert "credentials are sent" in difference(changed)


def test_replay_notices_a_token_that_was_not_renewed() -> None:
    changed = vector("oauth-token")
    changed["steps"][0]["exchanges"][0]["response"]["statusCode"] = 200
    assert "step 0 at 0 s: expected" in difference(changed)


def test_replay_notices_a_wrong_error_but_does_not_ask_for_the_text_to_a_reason_of_ours() -> None:
    changed = vector("too-many-errors")
    changed["steps"][-1]["expect"]["error"] = "something else"
    assert "expected" in difference(changed)
    del changed["steps"][-1]["expect"]["error"]
    assert Conversation("changed", changed).difference() is None


def test_replay_compares_the_words_for_a_trouble_that_the_language_fixes_and_no_others() -> None:
    changed = vector("21-throttled-headers")
    changed["steps"][0]["expect"]["reason"] = "throttled"
    assert "step 0 at 0 s" in difference(changed)
    changed = vector("page-of-html")
    changed["steps"][1]["expect"]["reason"] = "unreadable"
    assert Conversation("changed", changed).difference() is None


def test_jitter_plays_no_part_in_a_replay() -> None:
    changed = vector("34-backoff-cap")
    changed["config"]["polling"]["jitter"] = "full"
    assert Conversation("changed", changed).difference() is None


# --- files of conversations


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def written(value: Any) -> Path:
        path = tmp_path / "vectors.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    return written


def test_a_file_may_be_a_bare_list_and_a_vector_may_have_no_name(write: Callable[[Any], Path]) -> None:
    nameless = vector("02-house-complete-at-once")
    del nameless["id"]
    (only,) = conversations(write([nameless]))
    assert only.id == "vectors-1"
    assert only.difference() is None


def test_a_config_may_be_the_name_of_the_provider_file_beside_it(write: Callable[[Any], Path]) -> None:
    named = vector("02-house-complete-at-once")
    path = write([named | {"config": "house.json"}])
    (path.parent / "house.json").write_text(json.dumps(named["config"]), encoding="utf-8")
    assert conversations(path)[0].difference() is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"vectors": {}}, "must be"),
        ([1], "must be"),
        ([{"id": "a", "config": "none.json"}], "the config none.json"),
    ],
)
def test_a_file_that_is_none_says_so(write: Callable[[Any], Path], value: Any, reason: str) -> None:
    with pytest.raises(VectorError, match=reason):
        conversations(write(value))


def test_a_file_that_is_no_json_says_so(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(VectorError, match=r"broken\.json"):
        conversations(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda one: one.pop("start_epoch"), "it lacks start_epoch"),
        (lambda one: one["steps"][0].pop("expect"), "it lacks steps[0].expect"),
        (lambda one: request(one).pop("url"), "it lacks steps[0].exchanges[0].request.url"),
        (lambda one: one["steps"][0]["exchanges"][0].pop("response"), "exchanges[0].response.statusCode"),
        (lambda one: one["config"].pop("acceptors"), "its config is faulty: $.acceptors: is missing"),
    ],
)
def test_a_vector_that_lacks_something_says_what(change: Callable[[Vector], object], reason: str) -> None:
    changed = vector("02-house-complete-at-once")
    change(changed)
    assert reason in difference(changed)
