"""Where an attempt keeps what it has so far: the provider knows no store, the store no pages."""

from typing import Annotated, Protocol

from msgspec import Meta, Struct

from shared.codec import Json
from shared.task import Task


class Kept(Struct, frozen=True):
    """What is kept, by the SHA-256 and the size in bytes of its object."""

    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Meta(ge=0)]


class Sink(Protocol):
    """Keeps values of one generation of a task for some days, each exactly or not at all."""

    def put(self, task: Task, generation: int, value: Json) -> Kept:
        """Keep a value. Raises StoreTooLarge, StoreUnavailable."""

    def get(self, task: Task, generation: int, kept: Kept) -> Json:
        """The value that was kept. Raises DataUnavailable."""
