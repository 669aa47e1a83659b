"""C13: what several machines compare is told by one clock, the store's, however far their own are apart."""

from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.errors import StoreUnavailable
from shared.store import Clock, Store, Superseded, Table
from shared.store.clock import LONGEST_MS, TOLERANCE_MS
from shared.task import Task
from tests.conftest import RETENTION_SECONDS, TABLE
from tests.support import clock as stopped
from tests.support.clock import START_MS
from tests.support.outage import DynamoDBOutage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TASK = Task("example", "a")


def says(instant_ms: int) -> dict[str, str]:
    """The headers of a reply made at that instant."""
    return {"date": formatdate(instant_ms // 1000, usegmt=True)}


def host(ahead_ms: int, true_ms: int = START_MS) -> Clock:
    """The clock of a host that is ahead, in a world that stands still."""
    return Clock(lambda: true_ms + ahead_ms)


def heard(clock: Clock, headers: dict[str, str], took_ms: int = 0) -> Clock:
    clock.hear(headers, clock.host() - took_ms)
    return clock


# --- the clock


@given(
    phase_ms=st.integers(0, 999),
    took_ms=st.integers(0, LONGEST_MS),
    made=st.floats(0, 1),
    ahead_ms=st.integers(-400, 400),
)
@example(phase_ms=999, took_ms=LONGEST_MS, made=0, ahead_ms=400)
@example(phase_ms=0, took_ms=LONGEST_MS, made=1, ahead_ms=-400)
@example(phase_ms=998, took_ms=LONGEST_MS, made=1, ahead_ms=400)
def test_a_host_that_is_about_right_is_taken_at_its_word(
    phase_ms: int, took_ms: int, made: float, ahead_ms: int
) -> None:
    """Whenever within the second and within the call the reply was made."""
    now = START_MS + phase_ms
    clock = heard(host(ahead_ms, now), says(now - round(took_ms * made)), took_ms)
    assert clock() == now + ahead_ms
    assert clock.is_set


@pytest.mark.parametrize("ahead_ms", [-86_400_000, -300_000, -3_600, 3_600, 300_000, 86_400_000])
@pytest.mark.parametrize("phase_ms", [0, 500, 999])
def test_a_host_that_is_off_is_corrected(ahead_ms: int, phase_ms: int) -> None:
    now = START_MS + phase_ms
    clock = host(ahead_ms, now)
    assert clock() == now + ahead_ms
    assert abs(heard(clock, says(now))() - now) <= 500
    assert abs(heard(clock, says(now - 400), 800)() - now) <= 1500


def test_a_corrected_clock_does_not_waver_with_each_reply() -> None:
    clock = heard(host(300_000), says(START_MS))
    for earlier_ms in (0, 300, 900, 1_300):
        assert heard(clock, says(START_MS - earlier_ms), 1_000)() == START_MS + 500


def test_a_host_that_was_set_right_meanwhile_is_taken_at_its_word_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = heard(host(300_000), says(START_MS))
    clock.host = lambda: START_MS + 40
    assert heard(clock, says(START_MS))() == START_MS + 40
    assert [vars(record)["ahead_seconds"] for record in caplog.records] == [300, 0]
    assert {record.message for record in caplog.records} == {"host clock corrected"}


@pytest.mark.parametrize("took_ms", [-1, -300_000, LONGEST_MS + 1, 3_600_000])
def test_a_call_during_which_the_environment_was_frozen_or_its_clock_was_set_says_nothing(took_ms: int) -> None:
    clock = heard(host(0), says(START_MS - 3_600_000), took_ms)
    assert clock() == START_MS
    assert not clock.is_set


@pytest.mark.parametrize(
    "headers", [{}, {"date": ""}, {"date": "today"}, {"date": "Tue, 01 Dec 999999999 01:29:05 GMT"}], ids=str
)
def test_a_reply_without_a_sound_date_says_nothing(headers: dict[str, str]) -> None:
    clock = heard(host(300_000), headers)
    assert clock() == START_MS + 300_000
    assert not clock.is_set


# --- the table hears every reply


@pytest.fixture
def true(dynamodb: "DynamoDBClient") -> stopped.Clock:
    """The time at DynamoDB, which its replies tell."""
    true = stopped.Clock()
    true.told_by(dynamodb)
    return true


def machine(dynamodb: "DynamoDBClient", true: stopped.Clock, ahead_seconds: float) -> tuple[Store, Clock]:
    """The store as a machine has it whose clock is ahead."""
    clock = Clock(lambda: true() + round(ahead_seconds * 1000))
    return Store(Table(dynamodb, TABLE, clock), RETENTION_SECONDS), clock


def test_each_kind_of_reply_tells_the_time_a_refusal_too(dynamodb: "DynamoDBClient", true: stopped.Clock) -> None:
    def refused(store: Store) -> None:
        assert store.cancel(TASK, 1, 0) == Superseded(None)

    calls: list[Any] = [
        lambda store: store.get(TASK, 0),
        lambda store: store.begin(TASK, None, {}, true()),
        lambda store: list(store.open_since("example", 0)),
        refused,
    ]
    for call in reversed(calls):
        store, clock = machine(dynamodb, true, 300)
        assert not clock.is_set
        call(store)
        assert abs(clock() - true()) <= TOLERANCE_MS


def test_the_time_is_asked_for_once_and_only_where_no_reply_has_told_it(
    dynamodb: "DynamoDBClient", true: stopped.Clock, clock: stopped.Clock
) -> None:
    outage = DynamoDBOutage(dynamodb)
    store, told = machine(dynamodb, true, -300)
    outage.away = {"GetItem"}
    with pytest.raises(StoreUnavailable):
        store.know_time()
    outage.away = set()
    store.know_time()
    store.know_time()
    assert outage.calls == ["GetItem", "GetItem"]
    assert abs(told() - true()) <= TOLERANCE_MS
    Store(Table(dynamodb, TABLE), RETENTION_SECONDS).know_time()  # nobody asks this one for the time
    assert outage.calls == ["GetItem", "GetItem"]
