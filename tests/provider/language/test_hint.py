"""Hints: when to ask again, as the answer says; what cannot be used is as if it were not there."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.provider.language.expression import Expression
from shared.provider.language.hint import LONGEST_HINT_SECONDS, Hint
from shared.provider.language.polling import Polling
from tests.support.asking import NO_JITTER, ask, outcome, provider, rules, submitted
from tests.support.clock import START_MS
from tests.support.servers import Says, Site

NOW = START_MS
MOMENT = datetime.fromtimestamp(NOW / 1000, UTC)


def date(seconds: float) -> str:
    return format_datetime(MOMENT + timedelta(seconds=seconds), usegmt=True)


def hinted(headers: dict[str, Any], *hints: Hint, body: Any = None) -> float | None:
    return Polling(hints=hints, min_delay=0).hinted({"headers": headers, "body": body}, NOW)


@pytest.mark.parametrize(("value", "seconds"), [
    ("120", 120), ("0", 0), (" 7 ", 7), ("1.5", 1.5), (date(120), 120), (date(0), 0), (date(-120), None),
    ("Sun, 06 Nov 1994 08:49:37 GMT", None), ("Sunday, 06-Nov-94 08:49:37 GMT", None),
    ("Sun Nov  6 08:49:37 1994", None), ("+5", 5), ("1e3", 1000), ("120, 120", 120), ("5, 10", 10), ("10, soon", 10),
    (f"{date(20)}, {date(10)}", 20), (f"{date(20)}, 30", 30), ("5, 2025-06-15T15:07:10Z", 30),
    (format_datetime((MOMENT + timedelta(seconds=60)).astimezone(timezone(timedelta(hours=2)))), 60),
    (format_datetime((MOMENT + timedelta(seconds=60)).replace(tzinfo=None)), 60), ("soon", None), ("", None),
    ("-1", None), ("nan", None), ("inf", None), ("1e999", None), ("2025-06-15T15:07:10Z", 30), ("2025-06-15", None),
    ("2025-06-15T17:07:10+02:00", 30), ("30s", 30), ("1m30s", 90), ("2 Minutes", 120), ("500ms", 0.5),
    ("PT1M30.5S", 90.5),
    ("1 hour, 2 min", 3600), ("34.5s", 34.5), ("60s, 90s", 90), ("2 months", None), ("5 10", None),
    (" " * 300 + "5", None),
    ("Sun, 99 Nov 1994 08:49:37 GMT", None), ("9" * 150, 3600),
])  # fmt: skip
def test_retry_after_is_a_number_of_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert hinted({"retry-after": value}) == seconds


def test_a_date_without_a_zone_is_in_utc_wherever_this_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert hinted({"retry-after": date(60).removesuffix(" GMT")}) == 60
        assert hinted({"retry-after": date(60).replace("GMT", "-0000")}) == 60
    finally:
        monkeypatch.undo()
        time.tzset()


def test_of_what_one_reply_says_the_longest_counts() -> None:
    """C25."""
    own = Hint(argument=Expression("body.wait"), unit="s"), Hint(argument=Expression("body.more"), unit="ms")
    headers = {"retry-after": "3", "x-ms-retry-after-ms": "5000", "retry-after-ms": "4000"}
    assert hinted(headers, *own, body={"wait": 9, "more": 10_000}) == 10
    assert hinted(headers, *own, body={"wait": 2}) == 5
    assert hinted({"retry-after": "6", "retry-after-ms": "4000"}) == 6
    assert hinted({"retry-after": date(20), "retry-after-ms": "4000"}) == 20
    assert hinted({}) is None


@pytest.mark.parametrize(("ms", "seconds", "found"), [
    ("7500", "8", 7.5), ("7500", "7.5", 7.5), ("7000", "7", 7), ("7500", "9", 9), ("9000", "8", 9), ("x", "8", 8),
])  # fmt: skip
def test_whole_seconds_that_only_round_the_milliseconds_up_say_the_same(ms: str, seconds: str, found: float) -> None:
    assert hinted({"retry-after-ms": ms, "retry-after": seconds}) == found


# --- an instant, a span and a date are told apart by what they can mean


HINTED_AT = NOW // 1000 + 30


@pytest.mark.parametrize("unit", ["s", "ms", "epoch", "http-date"])
@pytest.mark.parametrize("value", [
    HINTED_AT, str(HINTED_AT), f"{HINTED_AT}.0", HINTED_AT * 1000, str(HINTED_AT * 1000), HINTED_AT * 10**6,
    str(HINTED_AT * 10**9), date(30), "2025-06-15T15:07:10Z", f"{HINTED_AT - 5}, {HINTED_AT}",
])  # fmt: skip
def test_an_instant_is_one_whatever_its_name_and_unit(unit: Any, value: Any) -> None:
    """C25."""
    assert hinted({}, Hint(argument=Expression("body.at"), unit=unit), body={"at": value}) == 30
    for name in ("retry-after", "retry-after-ms", "x-ms-retry-after-ms"):
        assert hinted({name: str(value)}) == 30


@pytest.mark.parametrize("value", [NOW // 1000 - 1, NOW - 1000, 1_500_000_000, "1500000000000", date(-1), "1994-11-06"])
def test_a_past_instant_is_no_hint(value: Any) -> None:
    """C25."""
    for unit in ("s", "ms", "epoch", "http-date"):
        assert hinted({}, Hint(argument=Expression("body.at"), unit=unit), body={"at": value}) is None
    assert hinted({"retry-after": str(value)}) is None
    assert hinted({"retry-after": str(value), "retry-after-ms": "3000"}) == 3


@pytest.mark.parametrize(
    "value",
    ["3601", "86400", "100000000", "9999999999", 10**15 * 5, date(86_400), "Fri, 31 Dec 9999 23:59:59 GMT", "2 days"],
)
def test_nothing_that_a_reply_says_holds_for_longer_than_an_hour_or_the_longest_delay(value: Any) -> None:
    """C25."""
    told = {"headers": {"retry-after": value}, "statusCode": 429}
    assert LONGEST_HINT_SECONDS == 3600
    assert Polling().hinted(told, NOW) == 3600
    assert Polling(max_delay=3700).hinted(told, NOW) in (3700, 3601)
    assert Polling(min_delay=7200).hinted(told, NOW) == 7200


LIMITS = ["RateLimit-", "X-RateLimit-", "X-Rate-Limit-"]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("reset", ["30", str(HINTED_AT), str(HINTED_AT * 1000), date(30)])
def test_the_reset_of_a_limit_that_refused_is_a_hint(name: str, reset: str) -> None:
    """C25."""
    headers = {f"{name}Reset".lower(): reset}
    left = f"{name}Remaining".lower()
    for status, known, found in (
        (429, {}, 30), (503, {}, 30), (429, {left: "0"}, 30), (403, {left: "0"}, 30), (403, {}, None), (500, {}, None),
        (429, {left: "4990"}, None), (200, {}, None), (200, {left: "0"}, None), (429, {left: "soon"}, 30),
    ):  # fmt: skip
        assert Polling(min_delay=0).hinted({"statusCode": status, "headers": headers | known}, NOW) == found
    both = {"statusCode": 429, "headers": headers | {"retry-after": "60"}}
    assert Polling(min_delay=0).hinted(both, NOW) == 60


def test_an_unusable_hint_leaves_the_word_to_the_next() -> None:
    own = Hint(argument=Expression("body.wait"), unit="s")
    for unusable in (None, "soon", "1_0", "\u0661", ".", "1e", True, [5], {"s": 5}, -1, "Infinity", 10**400):
        assert hinted({"retry-after": "3"}, own, body={"wait": unusable}) == 3


@pytest.mark.parametrize(("unit", "value", "seconds"), [
    ("s", 2.5, 2.5), ("s", "2.5", 2.5), ("ms", 2500, 2.5), ("ms", -1, None), ("epoch", NOW / 1000 + 30, 30),
    ("epoch", str(NOW // 1000 + 30), 30), ("epoch", 0, 0), ("http-date", date(30), 30), ("http-date", 30, 30),
    ("epoch", 30, 30),
    ("http-date", None, None),
])  # fmt: skip
def test_a_hint_is_read_in_its_unit(unit: Any, value: Any, seconds: float | None) -> None:
    assert hinted({}, Hint(argument=Expression("body.at"), unit=unit), body={"at": value}) == seconds


@settings(deadline=None)
@given(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
    | st.lists(st.integers(), max_size=2), st.sampled_from(["s", "ms", "epoch", "http-date"]),
)  # fmt: skip
def test_any_hint_is_a_finite_time_to_come_or_none(value: Any, unit: Any) -> None:
    found = hinted({"retry-after": value}, Hint(argument=Expression("body.at"), unit=unit), body={"at": value})
    assert found is None or 0 <= found < float("inf")


# --- instants are read by the clock of whoever says them


SKEWED = [Hint(argument=Expression("body.at"), unit="http-date"), Hint(argument=Expression("body.epoch"), unit="epoch")]


@pytest.mark.parametrize("ahead", [-86_400, -300, 0, 300])
def test_an_instant_is_read_by_the_answers_own_date_however_our_clock_goes(ahead: float) -> None:
    """C13."""
    theirs = {"date": date(ahead)}
    assert hinted(theirs | {"retry-after": date(ahead + 120)}) == 120
    assert hinted(theirs | {"retry-after": date(ahead - 120)}) is None
    assert hinted(theirs | {"retry-after": str(NOW // 1000 + ahead + 120)}) == 120
    assert hinted(theirs, *SKEWED, body={"at": date(ahead + 120)}) == 120
    assert hinted(theirs, *SKEWED, body={"epoch": NOW / 1000 + ahead + 120}) == 120
    assert hinted(theirs | {"retry-after": "120"}) == 120


@pytest.mark.parametrize(
    "junk", ["", "now", "-1", "2026-01-01T00:00:00Z", "Sun, 99 Nov 1994 08:49:37 GMT", None, 5, []]
)
def test_where_the_answer_has_no_date_an_instant_is_read_by_our_clock(junk: Any) -> None:
    """C13."""
    assert hinted({"date": junk, "retry-after": date(120)}) == 120
    assert hinted({"date": junk}, *SKEWED, body={"epoch": NOW / 1000 + 120}) == 120


def test_a_date_in_an_answer_means_the_span_after_its_own_date() -> None:
    """C13: our clock goes 300 s ahead."""
    headers = {"Date": date(-300), "Retry-After": date(-180)}
    with Site(Says(200, {"status": "working"}, headers)) as site:
        assert outcome(ask(provider(rules(site.url, polling=PACE))))["delay_seconds"] == 120


# --- what the task does with it


PACE = {"initialDelay": 10, "minDelay": 5, "maxDelay": 60, **NO_JITTER}


@pytest.mark.parametrize(
    ("value", "delay"), [("120", 120), (date(120), 120), (date(-120), 10), ("1", 5), ("soon", 10), (None, 10)]
)
def test_a_hint_is_due_as_it_says_never_below_the_floor_and_else_the_backoff_counts(
    value: str | None, delay: float
) -> None:
    headers = {"Retry-After": value} if value else {}
    with Site(Says(200, {"status": "working"}, headers)) as site:
        found = outcome(ask(provider(rules(site.url, polling=PACE))))
        assert (found["is"], found["delay_seconds"]) == ("pending", delay)


@pytest.mark.parametrize(
    ("status", "body", "reason"), [(429, b"", "http"), (503, b"", "http"), (200, "<html>", "undecodable")]
)
def test_a_hint_counts_for_an_error_and_on_a_page_of_html_too(status: int, body: Any, reason: str) -> None:
    with Site(Says(status, body, {"Retry-After": "90"})) as site:
        found = outcome(ask(provider(rules(site.url, polling=PACE)), submitted()))
        assert (found["is"], found["reason"], found["delay_seconds"]) == ("retry", reason, 90)
