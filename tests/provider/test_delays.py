"""Patience: how long to wait after each answer, and when it was enough."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider import Finding
from shared.provider.delays import TIMEOUT, Delays
from shared.provider.language.part import YEAR_SECONDS
from shared.provider.language.polling import SPREAD
from shared.reasons import Reason
from shared.record import Record
from tests.support.asking import NO_JITTER, consistent, record, rules, submitted
from tests.support.clock import START_MS

STEADY = {"initialDelay": 1, "minDelay": 2, "maxDelay": 20, "multiplier": 2, "maxWaitTime": 100, "maxErrors": 3}


def made_by(**polling: Any) -> Delays:
    return Delays(rules("http://a.example", polling=STEADY | NO_JITTER | polling), Random(1))


def at(seconds: float) -> int:
    return START_MS + round(seconds * 1000)


def waits(step: Callable[[Record], Finding], known: Record, count: int) -> list[float]:
    """How long is waited after each of so many answers."""
    delays = []
    for _ in range(count):
        finding = step(known)
        known = finding.record
        delays.append(outcome_delay(finding.outcome))
    return delays


def test_the_first_wait_is_the_initial_one_and_the_others_grow_up_to_the_longest() -> None:
    made, known = made_by(), record(submitted_at=START_MS)
    assert waits(lambda known: made.pending(known, START_MS), known, 6) == [1, 4, 8, 16, 20, 20]


def test_the_wait_after_errors_grows_from_the_shortest_wait_up_to_the_longest() -> None:
    made = made_by(maxErrors=10)
    assert waits(lambda known: made.retry(known, START_MS, Reason.HTTP), submitted(), 5) == [2, 4, 8, 16, 20]


def test_a_good_answer_forgets_the_errors_before() -> None:
    made = made_by()
    known = made.retry(submitted(polls=0), START_MS, Reason.HTTP).record
    assert (known.errors, known.reason) == (1, "http")
    finding = made.pending(known, START_MS)
    assert (finding.record.errors, finding.record.reason, finding.record.polls) == (0, None, 1)


def test_one_error_too_many_in_a_row_is_the_end_with_the_last_word() -> None:
    made, known = made_by(), submitted()
    for _ in range(3):
        finding = made.retry(known, START_MS, Reason.HTTP)
        assert isinstance(finding.outcome, Retry)
        known = finding.record
    assert made.retry(known, START_MS, Reason.HTTP).outcome == Failed(Reason.TOO_MANY_ERRORS, "http")
    told = made.retry(known, START_MS, Reason.HTTP, said="over quota")
    assert told.outcome == Failed(Reason.TOO_MANY_ERRORS, "over quota")


def test_with_no_errors_allowed_the_first_error_is_the_end() -> None:
    found = made_by(maxErrors=0).retry(submitted(), START_MS, Reason.HTTP)
    assert found.outcome == Failed(Reason.TOO_MANY_ERRORS, "http")


def test_a_hint_replaces_the_backoff_and_is_not_shortened_by_the_longest_wait() -> None:
    made = made_by(maxWaitTime=10_000)
    assert made.pending(submitted(), START_MS, 500).outcome == Pending(500)
    assert made.retry(submitted(), START_MS, Reason.HTTP, 500).outcome == Retry(500, Reason.HTTP)


@pytest.mark.parametrize(("now", "hint", "delay"), [
    (90, 10, 10), (90, 11, 10), (97, 50, 3), (98, 50, 2), (98.1, 50, None), (100, 50, None), (100, 0, 0),
    (100.1, 0, None), (5000, 50, None),
])  # fmt: skip
def test_a_wait_beyond_the_deadline_ends_there_or_is_the_end(now: float, hint: float, delay: float | None) -> None:
    made = made_by()
    for finding, kind in (
        (made.pending(submitted(), at(now), hint), Pending),
        (made.retry(submitted(), at(now), Reason.HTTP, hint), Retry),
    ):
        if delay is None:
            assert finding.outcome == TIMEOUT
        else:
            assert isinstance(finding.outcome, kind)
            assert finding.outcome.delay_seconds == pytest.approx(delay)


def test_the_deadline_counts_from_the_first_submit_and_before_it_from_the_request() -> None:
    made = made_by()
    late = record(created_at=at(-99), submitted_at=START_MS)
    assert made.pending(late, START_MS, 50).outcome == Pending(50)
    assert made.pending(record(created_at=at(-99)), START_MS, 50).outcome == TIMEOUT


def test_a_pending_answer_carries_what_is_known() -> None:
    known = submitted(partial={"a": 1}, progress=0.5)
    assert made_by().pending(known, START_MS, 5).outcome == Pending(5, {"a": 1}, 0.5)


def test_jitter_spreads_computed_waits_between_the_shortest_and_themselves() -> None:
    made = Delays(rules("http://a.example", polling=STEADY | {"minDelay": 2, "maxDelay": 1000}), Random(1))
    known = submitted(polls=5)
    delays = {outcome_delay(made.pending(known, START_MS).outcome) for _ in range(200)}
    assert len(delays) > 190
    assert min(delays) >= 2
    assert max(delays) <= 2 * 2**5


@pytest.mark.promise("ends", "tasks that are told the same `Retry-After` come back over the 20 % after it, none before")
@pytest.mark.parametrize("polling", [{}, {"minDelay": 60, "maxDelay": 60}, {"multiplier": 1}], ids=str)
def test_a_hint_is_a_floor_and_all_who_are_told_the_same_are_spread_above_it(polling: dict[str, Any]) -> None:
    """C5."""
    made = Delays(rules("http://a.example", polling=polling), Random(1))
    pending = [made.pending(submitted(), START_MS, 600) for _ in range(200)]
    retried = [made.retry(submitted(), START_MS, Reason.HTTP, 600) for _ in range(200)]
    for findings in (pending, retried):
        delays = [outcome_delay(finding.outcome) for finding in findings]
        assert min(delays) >= 600
        assert max(delays) <= 720
        tenths = Counter(int((delay - 600) / 12) for delay in delays)
        assert len(tenths) == 10
        assert max(tenths.values()) < 50


@pytest.mark.parametrize("hint", [9_999_999_999, 1e300, 86_400])
def test_a_hint_beyond_the_deadline_becomes_one_last_poll_shortly_before_it(hint: float) -> None:
    """C6."""
    made = Delays(rules("http://a.example", polling={"minDelay": 60}), Random(1))
    delays = {outcome_delay(made.pending(submitted(), at(100), hint).outcome) for _ in range(200)}
    assert 86_300 - 60 <= min(delays) < max(delays) <= 86_300
    assert len(delays) == 200
    assert made.pending(submitted(), at(100 + 86_241), hint).outcome == TIMEOUT


def test_without_a_shortest_delay_the_last_polls_are_spread_too() -> None:
    """C5."""
    made = Delays(rules("http://a.example", polling={"minDelay": 0, "maxWaitTime": 1000}), Random(1))
    delays = {outcome_delay(made.pending(submitted(), START_MS, 10**9).outcome) for _ in range(200)}
    assert 998 <= min(delays) < max(delays) <= 1000
    assert len(delays) == 200


@pytest.mark.parametrize("skew", [-(10**6), -300, 300])
def test_no_delay_is_longer_than_a_task_may_take_though_two_hosts_clocks_differ(skew: float) -> None:
    """C6."""
    made = made_by(maxWaitTime=1000)
    finding = made.pending(submitted(), at(skew), 10**9)
    assert outcome_delay(finding.outcome) == 1000 - max(skew, 0)


def test_our_own_waits_are_spread_too() -> None:
    """C5."""
    made = Delays(rules("http://a.example"), Random(1))
    waits = {made.spread(10) for _ in range(200)}
    assert 10 <= min(waits) < 10.2
    assert 11.8 < max(waits) <= 12
    assert len(waits) == 200
    assert made_by().spread(10) == 10  # without jitter


def outcome_delay(found: Pending | Retry | Completed | Failed) -> float:
    assert isinstance(found, Pending | Retry)
    return found.delay_seconds


SPANS = st.floats(0, YEAR_SECONDS)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "initialDelay": SPANS, "minDelay": SPANS, "maxDelay": SPANS, "multiplier": st.floats(1, 100),
            "maxWaitTime": st.floats(1e-9, YEAR_SECONDS), "maxErrors": st.integers(0, 100_000),
            "jitter": st.sampled_from(["full", "none"]),
        },
    ).map(consistent),
    st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-(2**50), 2**50), st.none() | st.floats(0, 1e308),
)  # fmt: skip
def test_any_pace_waits_a_finite_time_or_ends(
    polling: dict[str, Any], polls: int, errors: int, later: int, hint: float | None
) -> None:
    made = Delays(rules("http://a.example", polling=polling), Random(1))
    known: Record = submitted(polls=polls, errors=errors)
    now = START_MS + later
    for finding in (made.pending(known, now, hint), made.retry(known, now, Reason.HTTP, hint)):
        if isinstance(finding.outcome, Pending | Retry):
            assert 0 <= finding.outcome.delay_seconds <= made.rules.polling.max_wait_time
        else:
            assert isinstance(finding.outcome, Failed)


def found(outcome: Outcome, **fields: Any) -> Finding:
    return Finding(outcome, record(**fields))


def named(*findings: Finding) -> dict[str, Finding]:
    """One per task; their names are 0, 1 and so on."""
    return {str(number): finding for number, finding in enumerate(findings)}


GOOD = (
    found(Pending(2)), found(Completed(1)), found(Failed(Reason.UPSTREAM), errors=2, reason="HTTP 422"), found(TIMEOUT),
)  # fmt: skip
BAD = (
    *(
        found(Retry(2, reason), errors=1, reason=reason)
        for reason in (Reason.TRANSPORT, Reason.DEADLINE, Reason.HTTP, Reason.TOKEN)
    ),
    found(Failed(Reason.TOO_MANY_ERRORS), errors=4, reason="http"),
    found(TIMEOUT, errors=1, reason="deadline"),
)
SILENT = (
    found(Retry(2, Reason.ACCEPTOR), errors=1, reason="acceptor"),
    found(Failed(Reason.TOO_MANY_ERRORS), errors=4, reason="acceptor"),
    found(Failed(Reason.MISSING_INPUT), errors=1, reason="http"),
    found(Failed(Reason.CRASHED), errors=1, reason="http"),
)


@pytest.mark.parametrize("finding", GOOD)
def test_an_answer_that_the_file_knows_says_that_the_provider_is_well(finding: Finding) -> None:
    health = made_by().health(named(finding, *BAD, *SILENT))
    assert (health.well, health.errors, health.pause_seconds) == (frozenset({"0"}), 0, 0)
    assert health.unwell == {str(number) for number in range(1, len(BAD) + 1)}


@pytest.mark.parametrize("finding", BAD)
def test_no_answer_or_one_that_passes_is_an_error_though_the_task_ends_with_it(finding: Finding) -> None:
    health = made_by().health(named(finding, finding, *SILENT))
    assert (health.well, health.errors, health.pause_seconds) == (frozenset(), 2, 0)
    assert health.unwell == {"0", "1"}


@pytest.mark.parametrize("finding", SILENT)
def test_what_concerns_one_job_or_ourselves_says_nothing_of_the_provider(finding: Finding) -> None:
    health = made_by().health(named(finding))
    assert (health.well, health.unwell, health.errors, health.pause_seconds) == (frozenset(), frozenset(), 0, 0)


def test_a_pause_is_the_longest_one_asked_for_and_jitter_never_shortens_it() -> None:
    made = made_by()
    asked_for = found(Retry(30, Reason.HTTP, pause_seconds=30)), found(Failed(Reason.TIMEOUT, pause_seconds=60))
    pauses = [made.health(named(*asked_for, GOOD[0])).pause_seconds for _ in range(200)]
    assert 60 <= min(pauses) < 61
    assert 71 < max(pauses) <= 60 * SPREAD


@pytest.mark.parametrize("asked", [100, 9_999_999_999, 1e308])
def test_no_pause_is_longer_than_a_task_may_take_whatever_jitter_does(asked: float) -> None:
    """C6."""
    made = made_by(maxWaitTime=100)
    found_ = named(found(Retry(2, Reason.HTTP, pause_seconds=asked)))
    assert {made.health(found_).pause_seconds for _ in range(50)} == {100}


@pytest.mark.parametrize("asked", [3601, 86_400, 9_999_999_999, 1e308])
def test_no_pause_that_a_reply_asks_for_is_longer_than_an_hour(asked: float) -> None:
    """C25."""
    made = made_by(maxDelay=50_000, maxWaitTime=86_400)
    found_ = named(found(Retry(2, Reason.HTTP, pause_seconds=asked)))
    assert {made.health(found_).pause_seconds for _ in range(50)} == {3600}


@pytest.mark.parametrize(("polling", "cap"), [
    ({"maxDelay": 600, "maxWaitTime": 100}, 100), ({"minDelay": 0, "maxDelay": 600, "maxWaitTime": 0.5}, 0.5),
    ({"minDelay": 20, "maxDelay": 20}, 20),
], ids=str)  # fmt: skip
def test_no_pause_for_errors_is_longer_than_the_longest_delay_and_a_task(polling: dict[str, Any], cap: float) -> None:
    """C6."""
    made = Delays(rules("http://a.example", polling=polling), Random(1))
    for health in (made.health(named(*BAD)) for _ in range(50)):
        assert health.shortest_seconds <= health.longest_seconds == cap


def test_a_pause_for_errors_begins_at_the_shortest_wait_but_never_at_nothing() -> None:
    health = made_by().health(named(*BAD))
    assert 2 <= health.shortest_seconds <= 2 * SPREAD
    assert health.longest_seconds == 20
    restless = made_by(minDelay=0, maxDelay=0).health(named(*BAD))
    assert 1 <= restless.shortest_seconds <= SPREAD
    assert restless.longest_seconds == 1
