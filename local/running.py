"""A server that runs inside a `with` block; it is ended after a failed start as well."""

import threading
from abc import ABC, abstractmethod
from typing import Self

from typing_extensions import override


class Running(ABC):
    """What can be started and stopped."""

    @abstractmethod
    def start(self) -> None:
        """Returns once it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it; harmless when it is not running."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # Ctrl-C too
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Background(Running):
    """What works in a thread of its own until it is stopped: `_run` looks at `_stopped`."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Works until it is stopped."""

    @override
    def start(self) -> None:
        """Returns at once."""
        self._thread.start()

    @override
    def stop(self) -> None:
        """Returns once the work has ended; harmless before the start."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
