"""What all workers together may ask of the provider."""

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from shared.limits import Limits
from shared.provider.language.part import YEAR_SECONDS, AtLeastOne, Part, says

Interval: TypeAlias = Annotated[float, Meta(ge=0.001, le=YEAR_SECONDS)]


class Rate(Part, frozen=True):
    """Attempts that may begin in a span of time, evenly."""

    requests: Annotated[AtLeastOne, says("so many attempts …")]
    seconds: Annotated[Interval, says("… in so many seconds, evenly")]
    burst: Annotated[AtLeastOne, says("so many at once after a quiet time: first up to `requests` + `burst` - 1")] = 1


class Allowance(Part, frozen=True):
    """What is left out is not limited."""

    rate: Annotated[Rate | UnsetType, says("attempts that may begin in a time; one may take several requests")] = UNSET
    parallel: Annotated[AtLeastOne | UnsetType, says("attempts at once")] = UNSET
    open_jobs: Annotated[AtLeastOne | UnsetType, says("jobs open at once; further tasks wait, not started")] = UNSET

    def limits(self) -> Limits:
        """The same, as the queue counts."""
        rate = self.rate
        return Limits(
            rate_seconds=rate.seconds / rate.requests if rate else None,
            burst=int(rate.burst) if rate else 1,
            parallel=int(self.parallel) if self.parallel else None,
            open_jobs=int(self.open_jobs) if self.open_jobs else None,
        )
