"""The delays: exponential, capped, spread above a floor that holds."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from shared.provider.language.polling import SPREAD, Polling


def drawn(draw: Callable[[Random], float | None], count: int = 200) -> list[float]:
    """So many delays, in order; none may be missing."""
    random = Random(1)
    delays = [draw(random) for _ in range(count)]
    return sorted(delay for delay in delays if delay is not None)


def are_spread(delays: list[float], low: float, high: float) -> bool:
    """Whether they are between these, in every tenth of it, and no two the same."""
    tenths = {int((delay - low) * 10 / (high - low)) for delay in delays}
    return low <= delays[0] and delays[-1] <= high and len(tenths) == 10 and len(set(delays)) == len(delays) == 200


@pytest.mark.parametrize("multiplier", [3, 3.0])
def test_thousands_of_errors_in_a_row_overflow_nothing(multiplier: float) -> None:
    backoff = Polling(min_delay=2.0, max_delay=100, multiplier=multiplier, jitter="none")
    assert backoff.after_error(5000, Random(0)) == 100


def test_full_jitter_spreads_all_between_the_floor_and_the_delay() -> None:
    backoff = Polling(initial_delay=2, min_delay=2, max_delay=64, multiplier=2)
    assert are_spread(drawn(lambda random: backoff.after_error(6, random)), 2, 64)


def test_tasks_that_fail_for_the_first_time_are_spread_as_those_that_fail_again() -> None:
    backoff = Polling(min_delay=2, multiplier=3)
    assert are_spread(drawn(lambda random: backoff.after_error(1, random)), 2, 6)


def test_the_initial_delay_is_jittered_too() -> None:
    backoff = Polling(initial_delay=10, min_delay=2)
    assert are_spread(drawn(lambda random: backoff.after_pending(1, random)), 2, 10)


@pytest.mark.parametrize("fixed", [
    {"min_delay": 60, "max_delay": 60}, {"min_delay": 60, "multiplier": 1}, {"min_delay": 60, "initial_delay": 60},
    {"min_delay": 60}, {"min_delay": 60, "max_delay": 61, "initial_delay": 61},
], ids=str)  # fmt: skip
def test_no_delay_is_one_instant_for_all_even_where_the_file_leaves_no_room(fixed: dict[str, Any]) -> None:
    """C5."""
    backoff = Polling(**fixed)
    assert are_spread(drawn(lambda random: backoff.after_pending(1, random)), 60, 60 * SPREAD)
    if fixed.get("max_delay") or fixed.get("multiplier"):
        for after in (backoff.after_pending, backoff.after_error):
            assert are_spread(drawn(lambda random, after=after: after(7, random)), 60, 60 * SPREAD)  # type: ignore[misc]


@pytest.mark.parametrize("number", [1, 2, 10])
def test_a_floor_of_zero_means_to_ask_again_at_once(number: int) -> None:
    assert Polling(min_delay=0, multiplier=1).after_error(number, Random(0)) == 0


def test_an_initial_delay_below_the_floor_is_taken_as_it_is() -> None:
    backoff = Polling(initial_delay=0.5, min_delay=2)
    assert are_spread(drawn(lambda random: backoff.after_pending(1, random)), 0.5, 0.5 * SPREAD)


def test_without_jitter_every_delay_is_as_the_file_says() -> None:
    backoff, random = Polling(initial_delay=30, min_delay=10, max_delay=25, jitter="none"), Random(1)
    assert [backoff.after_pending(number, random) for number in (1, 2, 3)] == [30, 20, 25]
    assert backoff.drawn(600, 600, random) == 600


@pytest.mark.parametrize(("given", "least", "most"), [
    ({"min_delay": 300}, 300, 300), ({"min_delay": 300, "initial_delay": 500}, 300, 300), ({"max_delay": 1}, 1, 1),
    ({"max_wait_time": 1}, 1, 1), ({"max_wait_time": 60}, 2, 60), ({"max_delay": 10}, 2, 10), ({}, 2, 120),
    ({"min_delay": 2, "max_delay": 2}, 2, 2),
], ids=str)  # fmt: skip
def test_a_default_yields_to_what_the_file_gives(given: dict[str, Any], least: float, most: float) -> None:
    """C7."""
    backoff = Polling(**given)
    assert (backoff.min_delay, backoff.max_delay) == (least, most)
    for number in (1, 2, 9):
        for after in (backoff.after_pending, backoff.after_error):
            delays = drawn(lambda random, after=after, number=number: after(number, random))  # type: ignore[misc]
            assert least <= delays[0] <= delays[-1] <= max(most, least * SPREAD, given.get("initial_delay", 0))


def test_no_delay_is_beyond_what_is_left_whatever_jitter_does() -> None:
    """C6."""
    backoff = Polling(min_delay=50, max_delay=50)
    assert are_spread(drawn(lambda random: backoff.after_pending(3, random, 55)), 50, 55)
    assert are_spread(drawn(lambda random: backoff.drawn(600, 600, random, 630)), 600, 630)
    assert are_spread(drawn(lambda random: backoff.drawn(1e308, 1e308, random, 600)), 550, 600)  # one last poll
    assert drawn(lambda random: backoff.drawn(600, 600, random, 50))[::199] == [50, 50]
    assert backoff.drawn(600, 600, Random(1), 49.9) is None
