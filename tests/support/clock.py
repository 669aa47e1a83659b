"""A clock that stands still until it is told to move."""

START_MS = 1_750_000_000_000


class Clock:
    """Called, it tells epoch milliseconds; `monotonic` tells seconds; `sleep` moves it on."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    sleep = advance
