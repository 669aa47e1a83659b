"""The local EventBridge: fires a function's schedule event at the start and then at a fixed rate."""

import json
import uuid
from datetime import UTC, datetime

from typing_extensions import override

from local import ROOT
from local.aws.function import Function
from local.aws.message import Event
from local.running import Background


class Schedule(Background):
    """Fires until it is stopped, even while the last run still works; a context manager.

    `sample` is the name of a file in events/; each event has an id and a time of its own.
    """

    def __init__(self, function: Function, sample: str, seconds: float) -> None:
        super().__init__()
        self._function = function
        self._sample: Event = json.loads((ROOT / "events" / sample).read_text(encoding="utf-8"))
        self._seconds = seconds

    def fire(self) -> None:
        """One event now, without waiting for the function."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._function.start({**self._sample, "id": str(uuid.uuid4()), "time": now})

    @override
    def _run(self) -> None:
        while not self._stopped.is_set():
            self.fire()
            self._stopped.wait(self._seconds)
