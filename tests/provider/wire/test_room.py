"""Large answers share a room in memory, and one is in it beyond that (C33); what is small needs none."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.errors import TransportError
from shared.outcome import Completed, Retry
from shared.provider.wire.room import ROOM, SHARED_BYTES, SMALL_BYTES, Room
from tests.support.asking import POLLED, TASK, ask, provider, record, rules
from tests.support.servers import Says, Site

LARGE = '{"status":"completed","text":"' + "x" * SMALL_BYTES + '"}'
TWO, SIX = 2, 6


@contextmanager
def taken(room: Room, size: int) -> Iterator[threading.Event]:
    """Another thread holds so much until the event is set, or the block ends."""
    is_in, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            room.take(size, 0)
            has_room.append(True)
        finally:
            is_in.set()
        may_go.wait()
        room.leave()

    has_room: list[bool] = []
    thread = threading.Thread(target=hold)
    thread.start()
    is_in.wait()
    try:
        assert has_room
        yield may_go
    finally:
        may_go.set()
        thread.join()


@contextmanager
def full(room: Room, shared: int) -> Iterator[threading.Event]:
    """All that is shared is taken, and one is in; when the event is set that one leaves."""
    with taken(room, shared), taken(room, shared + 1) as may_go:
        yield may_go


def reason(room: Room, size: int, seconds: float = 0) -> str:
    with pytest.raises(TransportError) as caught:
        room.take(size, seconds)
    return caught.value.reason


def test_what_is_small_needs_no_room() -> None:
    room = Room(TWO, SIX)
    with full(room, SIX):
        room.take(TWO, 0)
        assert reason(room, 1) == "no-room"


def test_what_is_larger_shares_what_there_is() -> None:
    room = Room(TWO, SIX)
    with taken(room, 3), taken(room, SIX + 1):
        room.take(3, 0)
        assert reason(room, 1) == "no-room"


def test_who_has_begun_a_large_answer_keeps_nobody_from_his() -> None:
    """A peer that sent 600 KB and then dripped made all other large answers wait."""
    room = Room(TWO, SIX)
    with taken(room, 3):
        room.take(SIX + 1, 0)


@pytest.mark.parametrize("sizes", [[SIX + 1], [TWO, SIX - 1], [1] * 2 + [SIX - 1]])
def test_one_goes_on_where_all_is_taken_and_its_own_is_free_for_others(sizes: list[int]) -> None:
    room = Room(TWO, SIX)
    for size in sizes:
        room.take(size, 0)
    room.take(100, 0)
    with taken(room, SIX):
        pass


def test_who_waits_goes_in_when_the_other_leaves() -> None:
    room = Room(TWO, SIX)
    with full(room, SIX) as may_go:
        may_go.set()
        room.take(SIX + 1, 20)


@pytest.mark.parametrize("size", [TWO, SIX, SIX + 1])
def test_whoever_leaves_holds_nothing(size: int) -> None:
    room = Room(TWO, SIX)
    room.take(size, 0)
    room.leave()
    room.leave()
    with full(room, SIX):
        room.take(TWO, 0)


@pytest.mark.parametrize(
    "said",
    [
        Says(200, LARGE),
        Says(200, gzip.compress(LARGE.encode()), {"Content-Encoding": "gzip", "Content-Type": "application/json"}),
    ],
    ids=["as it is", "packed"],
)
def test_a_large_answer_without_room_is_another_try_that_counts_no_error(said: Says) -> None:
    """C33."""
    with Site(said) as site:
        asked = provider(rules(site.url))
        with full(ROOM, SHARED_BYTES):
            found = ask(asked, record(), seconds=0.3)
        assert isinstance(found.outcome, Retry)
        assert (found.outcome.reason, found.record.errors, found.record.reason) == ("no-room", 0, "no-room")
        assert isinstance(ask(asked, record()).outcome, Completed)


@pytest.mark.parametrize(("file", "errors"), [
    (POLLED, 1), ({"submit": {"method": "POST", "url": "/jobs"}}, 1),
    ({"submit": {"method": "POST", "url": "/jobs", "headers": {"Idempotency-Key": "${task.id}"}}}, 0),
    ({"submit": {"method": "POST", "url": "/jobs", "repeatable": True}}, 0),
])  # fmt: skip
def test_a_submit_whose_answer_had_no_room_is_not_repeated_for_ever(file: dict[str, Any], errors: int) -> None:
    with Site(Says(200, LARGE)) as site, full(ROOM, SHARED_BYTES):
        found = ask(provider(rules(site.url, **file)), record(), seconds=0.3)
    assert isinstance(found.outcome, Retry)
    assert (found.outcome.reason, found.record.errors) == ("no-room", errors)


@pytest.mark.parametrize("said", [
    Says(200, b"a\n" + b"\n" * 100_000, {"Content-Type": "text/csv"}),
    Says(200, {"status": "completed", "data": [[]] * 100_000}),
    Says(200, {"status": "completed"}, {f"X-{n}": "a" * 10_000 for n in range(8)}),
], ids=["table", "lists", "headers"])  # fmt: skip
def test_what_grows_large_is_counted_before_it_is_decoded(said: Says) -> None:
    with Site(said) as site, full(ROOM, SHARED_BYTES):
        found = ask(provider(rules(site.url)), record(), seconds=0.3)
    assert found.record.reason == "no-room"


def test_what_a_cancellation_was_answered_is_held_by_nobody() -> None:
    with Site(Says(200, LARGE)) as site:
        asked = provider(rules(site.url, **POLLED, cancel={"url": "/cancel"}))
        asked.cancel(TASK, record(outputs={"id": 1}), seconds=20)
    with full(ROOM, SHARED_BYTES):
        ROOM.take(SMALL_BYTES, 0)
