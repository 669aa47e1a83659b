"""The table takes turns: few calls at once, and none waits for long."""

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from shared.errors import StoreUnreachable
from shared.store import Table
from shared.store.table import CALLS_AT_ONCE, TURN_SECONDS
from shared.task import Task


class Turns:
    """Turns that are given, or not in time; how many are taken."""

    def __init__(self, *, given: bool) -> None:
        self.given, self.taken = given, 0
        self.waited: list[float] = []

    def acquire(self, timeout: float) -> bool:
        self.waited.append(timeout)
        self.taken += self.given
        return self.given

    def release(self) -> None:
        self.taken -= 1


class Client:
    """A client that notes how many turns are taken while it is called."""

    def __init__(self, turns: Turns, error: Exception | None = None) -> None:
        self._turns, self._error = turns, error
        self.taken: list[int] = []

    def get_item(self, **_: Any) -> dict[str, Any]:
        self.taken.append(self._turns.taken)
        if self._error:
            raise self._error
        return {}


def table(turns: Turns, client: Client) -> Table:
    made: Any = Table
    table: Table = made(client, "table", turns=turns)
    return table


def test_a_call_has_a_turn_of_a_few_and_gives_it_back() -> None:
    turns = Turns(given=True)
    client = Client(turns)
    assert table(turns, client).get(Task("example", "a")) is None
    assert (client.taken, turns.taken, turns.waited) == ([1], 0, [TURN_SECONDS])


def test_a_call_that_fails_gives_its_turn_back() -> None:
    turns = Turns(given=True)
    client = Client(turns, EndpointConnectionError(endpoint_url="https://dynamodb"))
    with pytest.raises(StoreUnreachable):
        table(turns, client).get(Task("example", "a"))
    assert (client.taken, turns.taken) == ([1], 0)


def test_a_call_without_a_turn_in_time_is_made_all_the_same() -> None:
    turns = Turns(given=False)
    client = Client(turns)
    assert table(turns, client).get(Task("example", "a")) is None
    assert (client.taken, turns.taken) == ([0], 0)


def test_there_are_as_many_turns_as_a_processor_can_use() -> None:
    made: Any = Table
    turns = made(None, "table").turns
    assert [turns.acquire(blocking=False) for _ in range(CALLS_AT_ONCE + 1)] == [True] * CALLS_AT_ONCE + [False]
