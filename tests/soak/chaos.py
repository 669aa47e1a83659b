"""What breaks the world: processes killed and frozen, and a Redis that restarts, forgets and hangs up, from a seed."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Self

from redis import RedisError

from tests.soak.plan import LEASE_SECONDS
from tests.soak.world import World

BETWEEN_SECONDS = {"processes": 1.2, "redis": 2.4}
"""Between two strokes of each hand, on average. If Redis lost everything once a lease, little would end."""
AWAY_SECONDS = (0.1, 4.0)
FROZEN_SECONDS = (0.2, 4.0)
LONG_FROZEN_SECONDS = LEASE_SECONDS + 1
PAUSED_MS = 2500
"""Longer than the product's client waits for a reply."""


class Chaos:
    """Two hands, one for processes and one for Redis; a context manager. What it does is written down."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._over = threading.Event()
        hands = {"processes": self._strike_process, "redis": self._strike_redis}
        self._threads = [threading.Thread(target=self._again, args=hand) for hand in hands.items()]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _again(self, name: str, strike: Callable[[Random], None]) -> None:
        random = Random(f"{self._world.seed} {name}")
        while not self._over.wait(random.uniform(0, 2 * BETWEEN_SECONDS[name])):
            strike(random)

    def _strike_process(self, random: Random) -> None:
        name = random.choices(["process", "enqueue", "callback", "reconcile"], weights=[5, 4, 2, 1])[0]
        pids = self._world.functions[name].pids()
        how, pick, span = random.random(), random.random(), random.uniform(*FROZEN_SECONDS)
        if not pids:
            return
        pid = pids[int(pick * len(pids))]
        with suppress(ProcessLookupError):
            if how < 0.7:
                self._world.journal.write("kill", function=name, worker=pid)
                os.kill(pid, signal.SIGKILL)
            else:
                self._freeze(name, pid, LONG_FROZEN_SECONDS if how > 0.95 else span)

    def _freeze(self, name: str, pid: int, seconds: float) -> None:
        """Stop a process for a while; one beyond its lease, too, while the other strokes go on."""

        def thaw() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        self._world.journal.write("freeze", function=name, worker=pid, seconds=seconds)
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(seconds, thaw)
        timer.daemon = True
        timer.start()
        self._threads.append(timer)  # ends before the soak does

    def _strike_redis(self, random: Random) -> None:
        weights = {"restart": 1, "flush": 1, "scripts": 3, "connections": 5, "pause": 4}
        kind = random.choices(list(weights), weights=list(weights.values()))[0]
        begun = time.time()
        try:
            if kind == "restart":
                self._world.redis.kill()
                self._over.wait(random.uniform(*AWAY_SECONDS))
                self._world.redis.restart()
            else:
                self._command(kind)
        except RedisError as error:
            self._world.journal.write("chaos failed", kind=kind, why=str(error))
        else:
            self._world.journal.write("fault", place="redis", kind=kind, begun=begun)

    def _command(self, kind: str) -> None:
        with self._world.client() as client:
            {
                "flush": client.flushall,
                "scripts": client.script_flush,
                "pause": lambda: client.client_pause(PAUSED_MS),
                "connections": lambda: client.client_kill_filter(_type="normal", skipme=True),
            }[kind]()
