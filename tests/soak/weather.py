"""What a misbehaving provider does to a request: by the mood it is in, from a seed."""

import time
from collections.abc import Callable
from random import Random

MOODS = {"calm": 6, "flaky": 4, "storm": 1, "outage": 1}
"""How often each comes; each lasts MOOD_SECONDS."""
MOOD_SECONDS = (2.0, 6.0)
SHARE = {"calm": 0.04, "flaky": 0.35, "storm": 1.0, "outage": 1.0}
"""Of the requests, those that something happens to."""

BEFORE = ("429", "503", "500", "502", "reset")
"""Troubles in which nothing was done."""
AFTER = ("reset after", "cut", "junk", "drip", "late", "500 after")
"""Troubles in which what was asked for was done, and the answer does not arrive as it should."""
BY_MOOD = {
    "calm": BEFORE + AFTER,
    "flaky": BEFORE + AFTER,
    "storm": ("429",),
    "outage": ("503", "reset", "drip before"),
}


class Weather:
    """The moods of one provider, one after another. `is_over`: nothing happens any more."""

    def __init__(self, random: Random, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_over = False
        self._random = random
        self._clock = clock
        self._mood = "calm"
        self._until = clock() + MOOD_SECONDS[1]

    def trouble(self, *, honest: bool) -> str | None:
        """What happens to a request now. `honest`: no job begins behind an answer that says there is none."""
        if self.is_over:
            return None
        while self._clock() > self._until:
            self._mood = self._random.choices(list(MOODS), weights=list(MOODS.values()))[0]
            self._until += self._random.uniform(*MOOD_SECONDS)
        if self._random.random() > SHARE[self._mood]:
            return None
        kinds = [kind for kind in BY_MOOD[self._mood] if not (honest and kind == "500 after")]
        return self._random.choice(kinds)
