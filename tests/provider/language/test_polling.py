"""The delays: exponential, capped, jittered, never below its floor."""

from random import Random

import pytest

from shared.provider.language.polling import Polling


@pytest.mark.parametrize("multiplier", [3, 3.0])
def test_thousands_of_errors_in_a_row_overflow_nothing(multiplier: float) -> None:
    backoff = Polling(min_delay=2.0, max_delay=100, multiplier=multiplier, jitter="none")
    assert backoff.after_error(5000, Random(0)) == 100


def test_full_jitter_spreads_a_herd_between_the_floor_and_the_delay() -> None:
    backoff, random = Polling(initial_delay=2, min_delay=2, max_delay=64, multiplier=2), Random(1)
    delays = [backoff.after_error(6, random) for _ in range(300)]
    assert 2 <= min(delays) < 8
    assert 58 < max(delays) <= 64
    assert len(set(delays)) == 300


def test_a_herd_that_fails_for_the_first_time_is_spread_as_one_that_fails_again() -> None:
    backoff, random = Polling(min_delay=2, multiplier=3), Random(1)
    delays = {backoff.after_error(1, random) for _ in range(300)}
    assert len(delays) == 300
    assert 2 <= min(delays) < max(delays) <= 6


def test_the_initial_delay_is_jittered_too() -> None:
    backoff, random = Polling(initial_delay=10, min_delay=2), Random(1)
    delays = {backoff.after_pending(1, random) for _ in range(50)}
    assert len(delays) == 50
    assert min(delays) >= 2
    assert max(delays) <= 10


@pytest.mark.parametrize("number", [1, 2, 10])
def test_a_floor_of_zero_means_to_ask_again_at_once(number: int) -> None:
    assert Polling(min_delay=0, multiplier=1).after_error(number, Random(0)) == 0


def test_an_initial_delay_below_the_floor_is_taken_as_it_is() -> None:
    assert Polling(initial_delay=0.5, min_delay=2).after_pending(1, Random(0)) == 0.5
