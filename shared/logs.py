"""The log: one line per state change, the verb as its message, facts as fields; never a payload, secret or header."""

import logging
from typing import Any

log = logging.getLogger("meanwhile")
"""Everything in shared/ writes here; `wiring.logger` makes it JSON lines."""


def facts(about: Any) -> dict[str, object]:
    """What every log line about a task says, by whatever has its `task` and `generation`: a hold, an end, an item."""
    return {"provider": about.task.provider, "task": about.task.name, "generation": about.generation}
