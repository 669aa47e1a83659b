"""What all workers share of a provider: its limits and its health, decided in the scripts, where one sees all."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a provider allows at once; None: no limit.

    `rate_seconds`: an attempt may begin once in so long, up to `burst` of them saved up. `parallel`: attempts at once.
    `open_jobs`: jobs open at the provider at once; tasks beyond it wait, not started.
    """

    rate_seconds: float | None = None
    burst: int = 1
    parallel: int | None = None
    open_jobs: int | None = None


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What replies told of a provider: it is well; or wants a pause of `pause_seconds`; or gave so many `errors`.

    `well` and `unwell` name the tasks whose replies were good or errors: what the probe's own says ends a pause or
    begins another. `errors_to_pause` in a row without a good reply, or the probe's, pause it for `shortest_seconds`,
    twice as long each time in a row, at most `longest_seconds`.
    """

    well: frozenset[str] = frozenset()
    unwell: frozenset[str] = frozenset()
    pause_seconds: float = 0
    errors: int = 0
    errors_to_pause: int = 5
    shortest_seconds: float = 0
    longest_seconds: float = 0


UNKNOWN = Health()
