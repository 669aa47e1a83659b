"""One large answer at a time has room in memory (C33); what is small needs none."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shared.errors import TransportError
from shared.outcome import Completed, Retry
from shared.provider.wire.room import ROOM, SMALL_BYTES, Room
from tests.support.asking import ask, provider, record, rules
from tests.support.servers import Says, Site

LARGE = '{"status":"completed","text":"' + "x" * SMALL_BYTES + '"}'


@contextmanager
def taken(room: Room) -> Iterator[threading.Event]:
    """Another thread is in the room until the event is set, or the block ends."""
    is_in, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        room.take(SMALL_BYTES + 1, 0)
        is_in.set()
        may_go.wait()
        room.leave()

    thread = threading.Thread(target=hold)
    thread.start()
    is_in.wait()
    try:
        yield may_go
    finally:
        may_go.set()
        thread.join()


def reason(room: Room, size: int, seconds: float = 0) -> str:
    with pytest.raises(TransportError) as caught:
        room.take(size, seconds)
    return caught.value.reason


def test_what_is_small_needs_no_room() -> None:
    room = Room()
    with taken(room):
        room.take(SMALL_BYTES, 0)


@pytest.mark.parametrize("sizes", [[SMALL_BYTES + 1], [SMALL_BYTES, 1], [1] * 2 + [SMALL_BYTES - 1]])
def test_what_is_large_altogether_waits_for_room_and_no_longer_than_it_may(sizes: list[int]) -> None:
    room = Room()
    with taken(room):
        for size in sizes[:-1]:
            room.take(size, 0)
        assert reason(room, sizes[-1]) == "no-room"
    room.take(sizes[-1], 0)


def test_who_waits_goes_in_when_the_other_leaves() -> None:
    room = Room()
    with taken(room) as may_go:
        may_go.set()
        room.take(SMALL_BYTES + 1, 20)


def test_who_is_in_may_read_on_and_whoever_leaves_holds_nothing() -> None:
    room = Room()
    room.take(SMALL_BYTES + 1, 0)
    room.take(SMALL_BYTES, 0)
    room.leave()
    room.leave()
    with taken(room):
        room.take(SMALL_BYTES, 0)


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
        with taken(ROOM):
            found = ask(asked, record(), seconds=0.3)
        assert isinstance(found.outcome, Retry)
        assert (found.outcome.reason, found.record.errors, found.record.reason) == ("no-room", 0, "no-room")
        assert isinstance(ask(asked, record()).outcome, Completed)
