"""What wakes, in tests: calls a function with the provider and the seconds."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Waker:
    """A Wake; `is_open` and `works` as set."""

    send: Callable[[str, float], None]
    is_open: bool = True
    works: bool = True
