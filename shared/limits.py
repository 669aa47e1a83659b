"""What all workers share of a provider: its limits and its health, decided in the scripts, where one sees all."""

from dataclasses import dataclass

PATIENCE = 5
"""So many troubles in a row, without one good answer, pause a provider."""


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
    """What answers told of a provider: it is well; or to be left alone for `pause_seconds`; or in trouble, so often.

    `well` and `troubled` name the tasks whose answers were good or trouble: what the probe's own says ends a pause or
    begins another. `patience` troubles in a row, or the probe's, pause it for `trouble_seconds`, twice as long each
    time in a row, at most `longest_seconds`.
    """

    well: frozenset[str] = frozenset()
    troubled: frozenset[str] = frozenset()
    pause_seconds: float = 0
    troubles: int = 0
    patience: int = PATIENCE
    trouble_seconds: float = 0
    longest_seconds: float = 0


UNKNOWN = Health()
