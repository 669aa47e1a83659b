"""Waits for a condition instead of for a time."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Returns as soon as the condition holds; TimeoutError naming `what` when it does not within these seconds."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
