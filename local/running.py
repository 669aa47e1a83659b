"""A server that runs inside a `with` block; it is ended after a failed start as well."""

from abc import ABC, abstractmethod
from typing import Self


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
