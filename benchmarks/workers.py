"""How ticks add up: one, two and four of them on one queue, and one that invites the others by itself.

Everything is the local stack's: each run is a process of its own, the queue a real server. The provider, not this
machine, is what is waited for, as in life.
"""

import io
import re
import time
from typing import Any

import requests

from local.stack import Stack, ended_by_signals

ANSWER_SECONDS = 1.0
WINDOW_SECONDS = 10
PARALLEL_TASKS = 5
TASKS = 250
"""For each measurement: more than four runs can ask about in their windows."""
BATCH = 50
QUIET_SECONDS = 2.0
"""So long without a call, all runs have ended."""
SETTINGS = {
    "WINDOW_SECONDS": str(WINDOW_SECONDS),
    "PARALLEL_TASKS": str(PARALLEL_TASKS),
    "MAX_WORKERS": "4",
    "TICK_SECONDS": "0.5",
    "IDLE_SECONDS": "0",
    "WAKE_QUEUE_URL": "",
}


def fill(stack: Stack, prefix: str) -> None:
    """Leaves TASKS tasks that are due and that nobody has been asked about."""
    left = [{"provider": "coin", "name": f"{prefix} {number}"} for number in range(TASKS)]
    while left:
        tasks, left = left[:BATCH], left[BATCH:]
        asked: dict[str, Any] = {"json": {"tasks": tasks}, "headers": {"Prefer": "respond-async"}}
        results = requests.post(f"{stack.url}/tasks/batch", timeout=60, **asked).json()["results"]
        left += [task for task, result in zip(tasks, results, strict=True) if result["status"] == 503]


def attempts(stack: Stack, runs: int, *, invited: bool) -> int:
    """How many attempts the provider sees from so many runs, and from those that they invite."""
    before = len(stack.third_party.calls)
    for _ in range(runs):
        stack.functions["ProcessFunction"].start({"invited": True} if invited else {})
    seen, since = before, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        time.sleep(0.1)
        if (now := len(stack.third_party.calls)) != seen:
            seen, since = now, time.monotonic()
    return seen - before


def main() -> None:
    """Prints the table."""
    print(f"{'ticks':<22}{'attempts':>10}{'ratio':>8}")
    log = io.StringIO()
    with ended_by_signals(), Stack(settings=SETTINGS, log=log, seed=1, answer_seconds=ANSWER_SECONDS) as stack:
        fill(stack, "warm")
        attempts(stack, 4, invited=True)  # starts the processes
        one = 0
        for runs in (1, 2, 4):
            fill(stack, str(runs))
            made = attempts(stack, runs, invited=True)
            one = one or made
            print(f"{runs:<22}{made:>10}{made / one:>8.2f}", flush=True)
        fill(stack, "inviting")
        made = attempts(stack, 1, invited=False)
        others = next(iter(re.findall(r'"message":"invited".*?"ticks":(\d+)', log.getvalue())), "0")
        print(f"{f'1, which invites {others}':<22}{made:>10}{made / one:>8.2f}")


if __name__ == "__main__":
    main()
