"""`make soak`: everything at once, broken at random from a printed seed; then the history is held to the promises."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from local.stack import ended_by_signals
from local.waiting import wait_until
from tests.soak.callers import Callers, invoke
from tests.soak.chaos import Chaos
from tests.soak.history import KINDS
from tests.soak.journal import read
from tests.soak.verdict import judge
from tests.soak.world import World

START_SECONDS = 90.0
LOOK_SECONDS = 5.0
MOST_TOLD = 10
DRAIN_SECONDS = 180.0
"""Enough for a task that was lost by Redis, crashed and was lost again just before the end."""


def soak(folder: Path, seed: str, seconds: float) -> World:
    """Break the world for so long, let it come to rest; what it did is in the folder then."""
    with (
        (folder / "functions.log").open("a", encoding="utf-8") as log,
        World(folder, seed, log) as world,
        Callers(world) as callers,
    ):
        wait_until(world.is_begun, START_SECONDS, "the first task")
        begun = time.monotonic()
        with Chaos(world):
            _watch(world, begun, begun + seconds, "broken")
            callers.stop_requests()
        world.table.calm()
        world.provider.calm()
        _watch(world, begun, time.monotonic() + DRAIN_SECONDS, "calm", until_drained=True)
        callers.stop()
        invoke(world, "reconcile")  # forgets the dead letters that are none any more
        world.note_rest()
    return world


def _watch(world: World, begun: float, end: float, weather: str, *, until_drained: bool = False) -> None:
    while time.monotonic() < end and not (until_drained and world.is_drained()):
        time.sleep(min(LOOK_SECONDS, max(0.0, end - time.monotonic())))
        world.follow()
        told = " ".join(f"{name} {count}" for name, count in world.counts.items())
        print(f"{time.monotonic() - begun:5.0f} s  {weather}: {told} open {len(world.pending)}", flush=True)


def main() -> int:
    """0: nothing lost, doubled, believed or leaked, no limit exceeded. 1: what was, and where the journals are."""
    seconds, seed = float(os.environ.get("SECONDS") or 600), os.environ.get("SEED") or str(time.time_ns() % 10**6)
    folder = Path(tempfile.mkdtemp(prefix=f"meanwhile-soak-{seed}-"))
    print(f"seed {seed}: {seconds:g} s; SEED={seed} makes the same choices again, whatever their timing", flush=True)
    try:
        with ended_by_signals():
            world = soak(folder, seed, seconds)
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        print("\ninterrupted; everything has ended")
        return 130
    faults = judge(read(folder))
    for fault in faults[:MOST_TOLD]:
        print(fault.told())
    if len(faults) > MOST_TOLD:
        print(f"… and {len(faults) - MOST_TOLD} more")
    if faults or "KEEP" in os.environ:
        print(f"the journals and the functions' log: {folder}")
    else:
        shutil.rmtree(folder)
    counts = " ".join(f"{name} {count}" for name, count in world.counts.items())
    sums = " ".join(f"{kind} {sum(fault.kind == kind for fault in faults)}" for kind in KINDS)
    print(f"seed {seed} {counts} {sums}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
