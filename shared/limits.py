"""A provider's limits, shared by all workers: decided inside the scripts, where one sees what all the others do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a provider allows at once; None: no limit. Spans are seconds.

    `rate`: attempts may begin once per `rate_seconds`, up to `burst` of them saved up. `parallel`: attempts at once.
    `open_jobs`: jobs open at the provider at once; tasks beyond it wait, not started.
    """

    rate_seconds: float | None = None
    burst: int = 1
    parallel: int | None = None
    open_jobs: int | None = None


UNLIMITED = Limits()
