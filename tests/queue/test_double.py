"""Crowds of tasks in many groups: the double replies and keeps what the scripts do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from fakeredis.commands_mixins import server_mixin

from shared.limits import UNKNOWN, UNLIMITED, Health, Limits
from shared.queue import Add, Becomes, Claim, End, Hold, Queue, Run, Settle, Way
from shared.queue.values import NO_RUN
from shared.task import Task
from tests.support.keys import PROVIDER, Bench
from tests.support.memory_queue import MemoryQueue
from tests.support.waker import Waker

LEASE_SECONDS = 30.0
LIMITS = (UNLIMITED, Limits(open_jobs=9), Limits(parallel=7), Limits(rate_seconds=0.01, burst=10, open_jobs=20))


def one_time(monkeypatch: pytest.MonkeyPatch, double: MemoryQueue) -> None:
    """Let the server's time be the double's."""
    monkeypatch.setattr(server_mixin, "time", SimpleNamespace(time=lambda: double.now_ms / 1000))


WAYS: tuple[Way, ...] = ("never", "never", "never", "in time", "always")


def _note(wakes: list[float], _: str, seconds: float) -> None:
    wakes.append(seconds)


@dataclass
class Crowd:
    """Calls the scripts and the double alike, as chance will have it."""

    queue: Any
    bench: Bench
    random: Random
    double: MemoryQueue
    is_woken: bool
    holds: list[Hold] = field(default_factory=list)
    tasks: int = 0

    def __post_init__(self) -> None:
        self.double_bench = Bench(self.double)
        self.wakes: dict[Any, list[float]] = {self.queue: [], self.double: []}
        for queue, wakes in self.wakes.items() if self.is_woken else ():
            queue._wake = Waker(partial(_note, wakes))
        self.limits = self.random.choice(LIMITS)
        self.groups = ["", *(f"group {number}" for number in range(self.random.choice([1, 3, 40])))]

    def both(self, call: Callable[[Any], Any]) -> Any:
        reply = call(self.queue)
        assert call(self.double) == reply
        assert self.wakes[self.queue] == self.wakes[self.double]
        return reply

    def step(self, number: int) -> None:
        wishes = [
            self.add,
            self.begin,
            self.claim,
            self.claim,
            self.claim,
            self.settle,
            self.rest,
            self.end,
            self.pass_,
        ]
        self.random.choice(wishes)(f"token {number}")
        assert self.bench.parts().keys() == self.double_bench.parts().keys()
        for part, members in self.bench.parts().items():
            double = self.double_bench.parts()[part]
            assert members == double if part != "gate" else members.keys() == double.keys()

    def add(self, token: str, lease_seconds: float = 0) -> None:
        groups, choice = self.groups[: self.random.randint(1, len(self.groups))], self.random.choice
        adds = []
        for number in range(self.tasks, self.tasks + choice([1, 5, 50, 199])):
            due = choice([0, 0, 0, 0.003, 5, 100])
            has_job, came_back = self.random.random() < 0.3, self.random.random() < 0.1
            adds.append(Add(Task(PROVIDER, f"t{number}"), 1, "{}", due, choice(groups), has_job, 0, came_back))
        self.tasks += len(adds)
        self.both(lambda queue: queue.add(adds, token=token, lease_seconds=lease_seconds, limits=self.limits))
        if lease_seconds:
            self.holds += [Hold(one.task, 1, token, 1) for one in adds]

    def begin(self, token: str) -> None:
        self.add(token, LEASE_SECONDS)

    def claim(self, token: str) -> None:
        how = {
            "limit": self.random.choice([1, 3, 7, 20, 200]),
            "which": self.random.choice(["ordinary"] * 5 + ["once", "often"]),
            "lost_token": self.random.choice(["", "", "", *(hold.token for hold in self.holds[-1:])]),
            "run": self.run() if self.is_woken else NO_RUN,
        }

        def claimed(queue: Any) -> Claim:
            claim: Claim = queue.claim(PROVIDER, lease_seconds=LEASE_SECONDS, token=token, limits=self.limits, **how)
            return claim

        self.holds += [one.hold for one in self.both(claimed).tasks]

    def settle(self, token: str) -> None:
        chance, some = self.random.random, self.random.sample(self.holds, min(len(self.holds), 70))
        self.holds = [hold for hold in self.holds if hold not in some]
        becomes: list[Becomes] = ["completed", "waiting", "waiting", "buried"]
        delays = [0, 0, 3, 60]
        rows = [
            Settle(hold, self.random.choice(becomes), self.random.choice(delays), None, chance() < 0.5, chance() < 0.7)
            for hold in some
        ]
        well = Health(well=frozenset(hold.task.name for hold in some))
        errors = Health(errors=3, errors_to_pause=2, shortest_seconds=3, longest_seconds=7)
        health = self.random.choice([UNKNOWN, UNKNOWN, well, errors, Health(pause_seconds=5)])
        self.both(lambda queue: queue.settle(rows, health, self.limits))

    def run(self) -> Run:
        return Run(f"run {self.random.randint(1, 3)}", 7, self.random.choice(WAYS))

    def rest(self, token: str) -> None:
        run, may_stay, least = self.run(), self.random.random() < 0.5, self.random.choice([0, 5])
        how = {"may_stay": may_stay, "least_seconds": least}
        self.both(lambda queue: queue.rest(PROVIDER, run, self.limits, **how))

    def end(self, token: str) -> None:
        few = [Task(PROVIDER, f"t{number}") for number in self.random.sample(range(self.tasks + 5), 5)]
        if self.random.random() < 0.5:
            ends = [End(few[0], 1, "buried"), End(few[1], 1, "forgotten"), End(few[2], 1, "dropped")]
            self.both(lambda queue: queue.end(ends))
        else:
            self.both(lambda queue: queue.hasten([(one, 1) for one in few], 0, self.limits))

    def pass_(self, token: str) -> None:
        self.double.now_ms += self.random.choice([0, 1, 4, 4000, 31_000, 100_000])


@pytest.mark.parametrize("redis_kind", ["fakeredis"], indirect=True)
@pytest.mark.parametrize("is_woken", [False, True], ids=["by schedule", "woken"])
@pytest.mark.parametrize("seed", range(8))
def test_in_a_crowd_the_double_does_as_the_scripts(
    bare_queue: Queue, bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int, is_woken: bool
) -> None:
    crowd = Crowd(bare_queue, bench, Random(seed), MemoryQueue(), is_woken)
    one_time(monkeypatch, crowd.double)
    for number in range(40):
        crowd.step(number)
