"""Acceptors: the first that matches decides; words are read kindly, everything else strictly."""

from typing import Any

import pytest

from shared.errors import ProviderFileError
from shared.outcome import Failed
from shared.provider.language.acceptor import REQUEST_AT_FAULT, TRANSIENT, Acceptor, judge
from shared.provider.language.expression import Expression
from shared.reasons import Reason
from tests.support.asking import DONE, NO_JITTER, ask, outcome, provider, rules, submitted
from tests.support.servers import Says, Site

ENVELOPE: dict[str, Any] = {"statusCode": 200, "headers": {}, "body": {}, "url": "", "input": {}, "outputs": {}}


def acceptor(expected: Any, **parts: Any) -> Acceptor:
    simplest: dict[str, Any] = {"state": "success", "argument": Expression("body.status")}
    return Acceptor(expected=expected, **(simplest | parts))


def matches(found: Any, expected: Any, **parts: Any) -> bool:
    return acceptor(expected, **parts).matches(ENVELOPE | {"body": {"status": found}})


@pytest.mark.parametrize(("found", "expected"), [
    ("completed", "completed"), ("Completed", "COMPLETED"), (" done\t\n", "done"), ("done", " Done "),
    ("STRASSE", "straße"), (1, 1), (1.0, 1), (True, True), (None, None), ([], [[]]), ({"a": [1]}, {"a": [1]}),
    ("b", ["a", "b"]), (404, ["a", 404]),
])  # fmt: skip
def test_a_word_matches_trimmed_and_in_any_case_and_a_list_means_any_of(found: Any, expected: Any) -> None:
    assert matches(found, expected)


@pytest.mark.parametrize(("found", "expected"), [
    (True, 1), (1, True), (False, 0), (None, False), (None, ""), (None, 0), ("200", 200), (200, "200"), ("true", True),
    ("do ne", "done"), ("", "done"), ([], None), (["done"], "done"), ([True], [[1]]), ([1, 2], [[1]]),
    ({"a": True}, {"a": 1}), ({"a": 1, "b": 2}, {"a": 1}), ("done", []),
])  # fmt: skip
def test_everything_else_matches_strictly(found: Any, expected: Any) -> None:
    assert not matches(found, expected)


@pytest.mark.parametrize(("found", "any_of", "all_of"), [
    ([], False, False), (["a"], True, True), (["A ", "b"], True, False), (["b"], False, False), ("a", False, False),
    (None, False, False), ({"x": "a"}, False, False),
])  # fmt: skip
def test_lists_match_by_any_or_all_of_their_values(found: Any, any_of: bool, all_of: bool) -> None:
    assert matches(found, "a", matcher="pathAny") == any_of
    assert matches(found, "a", matcher="pathAll") == all_of


@pytest.mark.parametrize(("status", "expected", "is_match"), [
    (200, 200, True), (200, 201, False), (200, "200", True), (204, "2XX", True), (204, "2xx", True), (204, "20X", True),
    (214, "20X", False), (404, ["2XX", 404], True), (200, 200.0, True),
])  # fmt: skip
def test_a_status_matches_as_a_number_or_a_range(status: int, expected: Any, is_match: bool) -> None:
    found = acceptor(expected, matcher="status").matches(ENVELOPE | {"statusCode": status})
    assert found == is_match


@pytest.mark.parametrize("expected", ["2(", "2.X", "", "XXX", "2XXX", "7XX", True, None, [], {}, ["200", "*"], "٢XX"])
def test_what_can_be_no_status_is_a_fault_of_the_file(expected: Any) -> None:
    acceptors = [{"state": "success", "matcher": "status", "expected": expected}]
    if expected == []:
        assert not acceptor([], matcher="status").matches(ENVELOPE)
        return
    with pytest.raises(ProviderFileError, match=r"acceptors\[0\]\.expected"):
        rules("http://a.example", acceptors=acceptors)


@pytest.mark.parametrize(("status", "stage", "verdict"), [
    (200, "submit", "pending"), (204, "poll", "pending"), (299, "poll", "pending"), (200, "result", "success"),
    (202, "poll", "pending"), (202, "result", "pending"), (203, "result", "success"),
    *[(status, stage, "retry") for status in sorted(TRANSIENT) for stage in ("submit", "poll", "result")],
    *[(status, "poll", "retry") for status in range(500, 1000) if status not in REQUEST_AT_FAULT],
    *[(status, "submit", "failure") for status in (199, 300, 305, 400, 401, 403, 404, 409, 410, 418, 422, 501, 505)],
])  # fmt: skip
def test_without_a_match_the_status_decides(status: int, stage: Any, verdict: str) -> None:
    assert judge([], {stage}, ENVELOPE | {"statusCode": status}) == (verdict, None)


@pytest.mark.parametrize("status", [
    408, 425, 429, 500, 502, 503, 504, 507, 508, 509, 511, *range(520, 531), 540, 561, 598, 599, 421, 499, 407, 999,
])  # fmt: skip
def test_no_status_that_somebody_between_us_and_the_api_makes_fails_a_job_unless_the_file_says_so(status: int) -> None:
    assert judge([], {"poll"}, ENVELOPE | {"statusCode": status}) == ("retry", None)
    says = acceptor(status, matcher="status", state="failure")
    assert judge([says], {"poll"}, ENVELOPE | {"statusCode": status}) == ("failure", says)


def test_the_first_acceptor_of_the_stage_that_matches_decides() -> None:
    elsewhere = acceptor("a", state="failure", on=frozenset({"submit", "result"}))
    misses = acceptor("b", state="failure")
    first, second = acceptor("a", state="retry"), acceptor("a", state="success")
    envelope = ENVELOPE | {"body": {"status": "a"}}
    assert judge([elsewhere, misses, first, second], {"poll"}, envelope) == ("retry", first)
    assert judge([elsewhere, second], {"submit", "poll"}, envelope) == ("failure", elsewhere)


@pytest.mark.parametrize(("parts", "stages"), [
    ({}, "poll submit"), ({"matcher": "status", "expected": "2XX"}, "poll"),
    ({"argument": "statusCode", "expected": [200, 201]}, "poll"), ({"expected": 200}, "poll"),
    ({"expected": 20000}, "poll submit"), ({"expected": [200, "ok"]}, "poll submit"),
    ({"argument": "body.done", "expected": True}, "poll submit"),
    ({"argument": "statusCode == `403` && body.busy", "expected": True}, "poll submit"),
    ({"matcher": "pathAll", "argument": "body[].status"}, "poll submit"), ({"on": ["poll"]}, "poll"),
    ({"matcher": "status", "expected": 202, "on": ["submit", "result"]}, "result submit"), ({"on": []}, ""),
], ids=str)  # fmt: skip
def test_words_are_judged_in_submit_and_poll_alike_and_statuses_in_poll_alone(parts: Any, stages: str) -> None:
    [found] = rules("http://a.example", acceptors=[DONE | parts]).acceptors
    assert " ".join(sorted(found.stages)) == stages


def test_an_acceptor_names_a_status_only_where_it_is_about_statuses() -> None:
    assert acceptor("3XX", matcher="status").names(303)
    assert acceptor(303, argument=Expression(" statusCode ")).names(303)
    assert not acceptor(303, argument=Expression("statusCode")).names(302)
    assert not acceptor(None, argument=Expression("body.status")).names(303)


# --- terminal words (a word that is not known must not be polled without end)


WORDS = [
    {"state": "failure", "expected": ["failed", "cancelled", "canceled", "timeout", "expired"]},
    {"state": "success", "expected": ["done", "completed"]},
]


@pytest.mark.parametrize(("word", "kind"), [
    ("TIMEOUT", "failed"), ("CANCELLED", "failed"), ("Canceled", "failed"), ("Failed", "failed"),
    (" failed ", "failed"), ("done ", "completed"), ("DONE", "completed"), ("exploded", "pending"), (None, "pending"),
    (7, "pending"), ("", "pending"),
])  # fmt: skip
def test_known_words_end_a_task_and_unknown_ones_leave_it_pending(word: Any, kind: str) -> None:
    with Site(Says(200, {"status": word, "error": "why"})) as site:
        found = ask(provider(rules(site.url, acceptors=WORDS)), submitted())
        assert outcome(found)["is"] == kind


@pytest.mark.promise("faults", "a job that never ends, and unexpected words")
def test_an_unknown_word_is_polled_no_longer_than_the_file_allows() -> None:
    with Site(Says(200, {"status": "exploded"})) as site:
        asked = provider(rules(site.url, polling={"minDelay": 60, "maxDelay": 60, "maxWaitTime": 600} | NO_JITTER))
        known, now, asks = submitted(), submitted().created_at, 0
        while True:
            found = ask(asked, known, now=now)
            asks += 1
            if outcome(found)["is"] != "pending":
                break
            known, now = found.record, now + round(outcome(found)["delay_seconds"] * 1000)
        assert found.outcome == Failed(Reason.TIMEOUT)
        assert asks == 11  # after 0, 60 … 600 seconds


def test_a_failure_carries_the_acceptors_message_or_what_the_provider_said() -> None:
    body = {"status": "failed", "error": {"code": 5}, "detail": "too hot"}
    failure = {"state": "failure", "expected": "failed"}
    with Site(Says(200, body)) as site:
        for message, error in ((None, {"code": 5}), ("body.detail", "too hot"), ("body.nothing", {"code": 5})):
            acceptors = [failure | ({"message": message} if message else {}), DONE]
            assert ask(provider(rules(site.url, acceptors=acceptors))).outcome == Failed(Reason.UPSTREAM, error)
