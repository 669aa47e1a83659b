"""The log: one line per state change, the verb as its message, facts as fields; never a payload, secret or header."""

import logging
from typing import Protocol

from shared.task import Task

log = logging.getLogger("meanwhile")
"""Everything in shared/ writes here; `wiring.logger` makes it JSON lines."""


class About(Protocol):
    """One generation of a task, by whatever knows it: a hold, an end, an item."""

    @property
    def task(self) -> Task: ...

    @property
    def generation(self) -> int: ...


def facts(about: About) -> dict[str, object]:
    """What every log line about a task says."""
    return {"provider": about.task.provider, "task": about.task.name, "generation": about.generation}
