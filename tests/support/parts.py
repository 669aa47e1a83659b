"""The parts of a deployment, put together for a test."""

from collections.abc import Callable, Mapping
from typing import cast

from shared.provider import Provider
from shared.queue import Queue
from shared.settings import Settings
from shared.store import Store
from shared.work.parts import Parts


def parts_of(
    store: Store | None,
    queue: Queue | None,
    providers: Mapping[str, Provider],
    clock: Callable[[], int],
    **settings: object,
) -> Parts:
    """These parts, with the settings that are given and otherwise the defaults. Who gives None needs none."""
    chosen = Settings.from_environment({name.upper(): str(value) for name, value in settings.items()})
    return Parts(cast(Store, store), cast(Queue, queue), providers, chosen, clock)
