"""Fixtures of the soak's own tests: a journal, and what was written into it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from local.waiting import wait_until
from tests.soak.journal import Event, Follower, Journal

Told: TypeAlias = Callable[[int], list[Event]]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.jsonl")
    yield journal
    journal.close()


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """So many events, as soon as they are there: the last may be noted after its answer has gone. No more are."""
    follower = Follower(tmp_path / "journal.jsonl")

    def told(count: int) -> list[Event]:
        events: list[Event] = []

        def are_there() -> bool:
            events.extend(follower.news())
            return len(events) >= count

        wait_until(are_there, 30, f"{count} events")
        assert len(events) == count
        return events

    return told
