"""Waits until a condition holds, not for a fixed time."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Returns as soon as the condition holds; TimeoutError naming `what` when it does not within these seconds."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}, which did not happen")
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
