"""Measures on a server of its own: time by the wall and by the processors, each against raw calls right beside it.

Raw is one ZADD NX, a round trip of redis-py with hiredis. Machines are noisy: only ratios of one run compare. A raw
call mostly waits: on a machine at rest, whose processors sleep meanwhile, it takes about 115 µs, on a busy one 50, and
all ratios to it are half as high. The bars are those of a machine at rest.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

import redis

from local.servers.redis_server import RedisServer
from local.waiting import wait_until
from shared.limits import UNLIMITED, Limits
from shared.queue import Add, Claim, Queue, Which, new_token
from shared.task import Task

RAW_CALLS = 300
CLAIMED = 100  # tasks a call, wherever there are many
GENERATION = 1_764_533_000_001
RECORD = (
    f'{{"version":1,"generation":{GENERATION},"created_at":{GENERATION - 1},"input":{{"id":"rep-00000001"}}'
    ',"submitted_at":1764533000120,"saved":"0123456789abcdef"}'
)  # without defaults: 153 bytes


@dataclass(slots=True)
class Spent:
    """Seconds of a piece of work: by the wall, and of processors: the server's main thread, this process."""

    wall: float = 0
    server: float = 0
    client: float = 0

    @property
    def cpu(self) -> float:
        return self.server + self.client

    def each(self, count: int) -> Self:
        """What one of so many took."""
        return type(self)(self.wall / count, self.server / count, self.client / count)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as something else, by the wall and by processor time; medians of rounds."""

    wall: float
    cpu: float


class Bench:
    """The queue on a running server, and what its work takes."""

    def __init__(self, server: RedisServer) -> None:
        self.client: Any = redis.Redis.from_url(server.url)  # its untyped methods
        self.queue = Queue(redis.Redis.from_url(server.url, decode_responses=True), "queue")
        self.port = server.port

    @contextmanager
    def spending(self) -> Iterator[Spent]:
        spent = Spent()
        server, client, wall = self._server_seconds(), time.process_time(), time.perf_counter()
        yield spent
        spent.wall = time.perf_counter() - wall
        spent.client = time.process_time() - client
        spent.server = self._server_seconds() - server

    def raw(self) -> Spent:
        """One raw call."""
        with self.spending() as spent:
            for number in range(RAW_CALLS):
                self.client.zadd("raw", {f"task-{number:08d}": GENERATION}, nx=True)
        self.client.delete("raw")
        return spent.each(RAW_CALLS)

    def against_raw(
        self, works: Sequence[Callable[[], Spent]], rounds: int
    ) -> tuple[list[Ratio], list[list[Spent]], float]:
        """How each work compares to a raw call before and after it, what each took in each round, and a raw call."""
        taken: list[list[Spent]] = [[] for _ in works]
        ratios: list[list[Ratio]] = [[] for _ in works]
        raw = [self.raw()]
        for _ in range(rounds):
            for work, spent, ratio in zip(works, taken, ratios, strict=True):
                spent.append(took := work())
                raw.append(self.raw())
                wall, cpu = (sum(beside) / 2 for beside in zip(*((one.wall, one.cpu) for one in raw[-2:]), strict=True))
                ratio.append(Ratio(wall / took.wall, cpu / took.cpu))
        return [middle(ratio) for ratio in ratios], taken, median(one.wall for one in raw)

    def fill(self, provider: str, count: int, *, groups: int = 0, limits: Limits = UNLIMITED, **how: Any) -> None:
        """Put in so many tasks that wait, due now unless `how` says otherwise, of so many groups."""
        for first in range(0, count, CLAIMED):
            numbers = range(first, min(first + CLAIMED, count))
            adds = [add(provider, n, group=f"g{n % groups}" if groups else "", **how) for n in numbers]
            self.queue.add(adds, token=new_token(), limits=limits)

    def claim(self, provider: str, limits: Limits = UNLIMITED, which: Which = "ordinary") -> Claim:
        token = new_token()
        return self.queue.claim(provider, limit=CLAIMED, lease_seconds=30, token=token, which=which, limits=limits)

    def flush(self) -> int:
        """Empty the server; the bytes that it uses then."""
        self.client.execute_command("FLUSHALL", "SYNC")
        wait_until(lambda: self.client.info("memory")["lazyfree_pending_objects"] == 0, 60, "freed memory")
        return self.used()

    def used(self) -> int:
        """The bytes that the server uses now."""
        return int(self.client.info("memory")["used_memory"])

    def _server_seconds(self) -> float:
        """Processor time so far: the main thread's where the system tells it."""
        said = self.client.info("cpu")
        kinds = ("used_cpu_user", "used_cpu_sys")
        return float(sum(said.get(f"{kind}_main_thread", said[kind]) for kind in kinds))


def add(provider: str, number: int, name: str = "task", **how: Any) -> Add:
    """What puts a task of this number in."""
    return Add(Task(provider, f"{name}-{number:08d}"), GENERATION, RECORD, **how)


def versions(url: str) -> dict[str, str]:
    """The running server's kind and version."""
    with redis.Redis.from_url(url) as client:
        said: Any = client.info("server")
    is_valkey = "valkey_version" in said
    return {"Valkey": said["valkey_version"]} if is_valkey else {"Redis": said["redis_version"]}


def middle(ratios: Sequence[Ratio]) -> Ratio:
    """The medians."""
    return Ratio(median(one.wall for one in ratios), median(one.cpu for one in ratios))
