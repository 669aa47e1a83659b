"""What an attempt found: four values, stored by `worker.py` and settled by `settle.py`."""

from typing import TypeAlias

from msgspec import Struct

from shared.codec import Json
from shared.reasons import Reason


class Pending(Struct, frozen=True):
    """The provider is still at work: ask again in `delay_seconds`. Not a failure."""

    delay_seconds: float
    partial: Json = None
    progress: Json = None


class Completed(Struct, frozen=True):
    """The provider has delivered `data`, the whole of it."""

    data: Json


class Retry(Struct, frozen=True):
    """Something went wrong that says nothing about the job: try again in `delay_seconds`.

    `pause_seconds`: the provider asked for a pause of so long, for all tasks.
    """

    delay_seconds: float
    reason: Reason
    pause_seconds: float = 0


class Failed(Struct, frozen=True):
    """The end without data; `error` is what the provider said, `pause_seconds` as in Retry."""

    reason: Reason
    error: Json = None
    pause_seconds: float = 0


Outcome: TypeAlias = Pending | Completed | Retry | Failed
