"""What the queue costs on a real server, each figure beside its bar: `python -m benchmarks.queue`.

Ratios are to raw calls or to BullMQ in the same run, by the wall; beside them, for noisy machines, by processor time.
"""

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, TypeAlias

from benchmarks.measure import CLAIMED, RECORD, Bench, Ratio, Spent, add, middle, versions
from benchmarks.table import Table, add_keep
from local.servers.redis_server import RedisServer
from shared.limits import UNLIMITED, Limits
from shared.outcome import Completed
from shared.provider import Finding, Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from shared.queue import Claimed, Settle, Which, new_token
from shared.record import Record
from shared.settings import Settings
from shared.store import Store
from shared.task import Task
from shared.work.parts import Parts
from shared.work.settle import settle
from shared.work.worker import Worker

GROUPS = 1000
CLAIMS = 5  # between two readings of the server's clock
LARGE = 10  # times as many tasks
BULLMQ = Path(__file__).with_name("bullmq.mjs")
NO_BULLMQ = 3  # its exit code
RULES = {"servers": ["http://127.0.0.1"], "submit": {"url": "/"}, "acceptors": [{"state": "success", "expected": ""}]}
BUSY = "met by processor time; a raw call mostly waits, and on a busy machine for less"
AT_ITS_BAR = "at its bar where a raw call takes 140 µs; slower, as that is, on a slower machine"
ONE_ADD = (
    "beside a raw call the script takes 45 µs, its 38 arguments 10, the queue's own Python 5; it is above its bar in"
    " one run and below in the next, as the release before it is"
)
Work: TypeAlias = Callable[[], Spent]
Handle: TypeAlias = Callable[[Sequence[Claimed]], object]


class Answers(Provider):
    """A provider that answers from memory: everything is complete."""

    def attempt(self, task: Task, record: Record, *, now: int, seconds: float) -> Finding:  # noqa: ARG002
        return Finding(Completed(None), record)


class Takes(Store):
    """A store in memory that takes every end."""

    def __init__(self) -> None:
        """It has nothing to keep."""

    def complete(self, *_: Any, **__: Any) -> None:
        """Take it."""


def adding(bench: Bench, count: int, each: int, lease_seconds: float = 0) -> Work:
    """Adding tasks, so many a call; what one takes."""

    def work() -> Spent:
        calls = [[add("added", n) for n in range(first, first + each)] for first in range(0, count, each)]
        with bench.spending() as spent:
            for adds in calls:
                bench.queue.add(adds, token=new_token(), lease_seconds=lease_seconds)
        bench.flush()
        return spent.each(count)

    return work


def draining(bench: Bench, count: int, handle: Handle) -> Work:
    """Claiming tasks by the hundred until none is left, and what is done with them; what one takes."""

    def work() -> Spent:
        bench.fill("drained", count)
        with bench.spending() as spent:
            while tasks := bench.claim("drained").tasks:
                handle(tasks)
        return spent.each(count)

    return work


def parse_and_settle(bench: Bench) -> Handle:
    """Reading the records of tasks and ending them."""

    def handle(tasks: Sequence[Claimed]) -> None:
        for claimed in tasks:
            Record.from_text(claimed.record)
        bench.queue.settle([Settle(claimed.hold, "completed") for claimed in tasks])

    return handle


def work_inline(bench: Bench) -> Handle:
    """The real worker, one task after the other, and settling."""
    rules, transport = Rules.from_json(RULES), Transport(1)
    provider = Answers(rules, transport, Credentials(rules.security, lambda *_, **__: "", transport), Random(1))
    parts = Parts(Takes(), bench.queue, {"drained": provider}, Settings.from_environment({}), _now_ms)
    worker = Worker(parts)
    return lambda tasks: settle(bench.queue, provider, [worker.work(claimed, worker.instant()) for claimed in tasks])


def bullmq_drains(bench: Bench, count: int, folder: Path) -> Work | None:
    """BullMQ's drain of as many jobs that do nothing, 50 at once; None where there is no node, or no BullMQ."""
    if not (node := shutil.which("node")):
        return None

    def drain(jobs: int) -> subprocess.CompletedProcess[str]:
        command = [node or "", str(BULLMQ), str(bench.port), str(jobs)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    def work() -> Spent:
        done = drain(count)
        done.check_returncode()
        return Spent(**json.loads(done.stdout)).each(count)

    return None if drain(1).returncode == NO_BULLMQ else work


def compare(table: Table, bench: Bench, rounds: int, count: int) -> None:
    """The client's and the server's costs together, in calls of redis-py."""
    works = {
        "one add": (adding(bench, count, 1), 0.65),
        "one add, leased": (adding(bench, count, 1, lease_seconds=30), 0.65),
        "add of 100, each": (adding(bench, count, CLAIMED), 11.0),
        "claim, parse, settle of 100, each": (draining(bench, count, parse_and_settle(bench)), 6.0),
        "claim, worker, settle of 100, each": (draining(bench, count, work_inline(bench)), 4.5),
    }
    for work, _ in works.values():  # loads the scripts
        work()
    ratios, _, raw_seconds = bench.against_raw([work for work, _ in works.values()], rounds)
    table.say("raw, one ZADD NX (bars: 115)", raw_seconds * 1e6, "µs")
    for (name, (_, bar)), ratio in zip(works.items(), ratios, strict=True):
        why = BUSY if ratio.cpu >= bar else ONE_ADD if name.startswith("one add") else ""
        table.say(name, ratio.wall, "x raw", bar, least=True, cpu=ratio.cpu, why=why)


def against_bullmq(table: Table, bench: Bench, rounds: int, count: int, folder: Path) -> None:
    """Through the worker, against BullMQ's drain. To be measured last: its scripts make Lua's memory large."""
    inline, theirs = draining(bench, count, work_inline(bench)), bullmq_drains(bench, count, folder)
    if theirs is None:
        print("the worker against BullMQ's drain: skipped: needs node and bullmq (see --bullmq)")
        return
    for work in (inline, theirs):
        work()
    _, taken, _ = bench.against_raw([inline, theirs], rounds)
    pairs = zip(*reversed(taken), strict=True)
    ours = middle([Ratio(their.wall / our.wall, their.cpu / our.cpu) for their, our in pairs])
    table.say("the worker against BullMQ's drain", ours.wall, "x BullMQ", 2.4, least=True, cpu=ours.cpu)


def claims(bench: Bench, provider: str, limits: Limits = UNLIMITED, which: Which = "ordinary") -> float:
    """Milliseconds of the server for one claim of 100; what it takes goes back, as it came."""
    with bench.spending() as spent:
        taken = [bench.claim(provider, limits, which).tasks for _ in range(CLAIMS)]
    for tasks in filter(None, taken):
        bench.queue.settle([Settle(claimed.hold, "waiting", 0, attempted=False) for claimed in tasks])
    return spent.each(CLAIMS).server * 1000


def claim_many(table: Table, bench: Bench, rounds: int, tasks: int, bar_ms: float) -> None:
    """Claims while so many tasks wait, of one group and of many."""
    bench.flush()
    bench.fill("one", tasks)
    bench.fill("many", tasks, groups=GROUPS)
    both = [(claims(bench, "one"), claims(bench, "many")) for _ in range(rounds)]
    table.say(f"claim of 100, {tasks:,} wait", median(one for one, _ in both), "ms server", bar_ms)
    table.say(
        f"the same of {GROUPS:,} groups", median(many / one for one, many in both), "x one group", 2, why=AT_ITS_BAR
    )


def claim_at_limit(table: Table, bench: Bench, rounds: int, jobs: int) -> None:
    """Claims while as many jobs are open as may be, and other tasks wait for one to end."""
    limits = Limits(open_jobs=jobs)
    for when, delay_seconds in (("none due", 600.0), ("all due", 0.0)):
        bench.flush()
        bench.fill("full", jobs, limits=limits, has_job=True, delay_seconds=delay_seconds)
        bench.fill("full", 10 * CLAIMED, limits=limits, name="fresh")
        middle_ms = median(claims(bench, "full", limits) for _ in range(rounds))
        table.say(f"claim of 100, {jobs:,} jobs open, {when}", middle_ms, "ms server", 1, why=AT_ITS_BAR)
    bench.flush()
    bench.fill("full", jobs, limits=limits, has_job=True, came_back=True)
    bench.fill("full", jobs, limits=limits, name="fresh", came_back=True)
    middle_ms = median(claims(bench, "full", limits, "once") for _ in range(rounds))
    table.say(f"claim of 100, {jobs:,} jobs open, all came back", middle_ms, "ms server", 1, why=AT_ITS_BAR)


def weigh(table: Table, bench: Bench, tasks: int) -> None:
    """Bytes of a waiting task."""
    limits = Limits(open_jobs=tasks)
    kinds: dict[str, tuple[dict[str, Any], float]] = {
        "a waiting task": ({}, 480),
        "the same in a group": ({"groups": GROUPS}, 520),
        "the same with an open job": ({"limits": limits, "has_job": True}, 600),
    }
    for name, (how, bar) in kinds.items():
        before = bench.flush()
        bench.fill("weighed", tasks, **how)
        table.say(name, (bench.used() - before) / tasks, "bytes", bar)
    bench.flush()


def decode(table: Table, rounds: int) -> None:
    """Reading a record, against reading no more than its JSON."""
    micros = {name: [] for name in ("record", "json")}  # type: dict[str, list[float]]
    calls = 500
    for _ in range(rounds):
        for name, read in (("record", Record.from_text), ("json", json.loads)):
            began = time.process_time()
            for _ in range(calls):
                read(RECORD)
            micros[name].append((time.process_time() - began) / calls * 1e6)
    ratio = median(record / text for record, text in zip(*micros.values(), strict=True))
    table.say("decode a record", median(micros["record"]), "µs", 7)
    table.say("decode a record", ratio, "x json.loads", 2)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description=__doc__)
    parser.add_argument("--server", choices=("valkey", "redis"), help="Valkey if there is one, unless said")
    parser.add_argument("--tasks", type=int, default=100_000, help="how many wait (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="of which the medians are told (%(default)s)")
    parser.add_argument("--large", action="store_true", help=f"also with {LARGE} times as many, which takes minutes")
    parser.add_argument("--bullmq", type=Path, default=Path(), help="where `npm install bullmq ioredis` was run (.)")
    add_keep(parser)
    chosen = parser.parse_args()
    with (
        RedisServer(chosen.server) as server,
        Table("queue", "The queue", keep=chosen.keep, versions=versions(server.url)) as table,
    ):
        bench = Bench(server)
        count = max(CLAIMED, chosen.tasks // 50)
        compare(table, bench, chosen.rounds, count)
        for jobs in (chosen.tasks // 20, chosen.tasks // 2):
            claim_at_limit(table, bench, chosen.rounds, jobs)
        weigh(table, bench, chosen.tasks)
        decode(table, chosen.rounds)
        claim_many(table, bench, chosen.rounds, chosen.tasks, 1.5)
        if chosen.large:
            claim_many(table, bench, chosen.rounds, LARGE * chosen.tasks, 3)
        bench.flush()
        against_bullmq(table, bench, chosen.rounds, count, chosen.bullmq)


if __name__ == "__main__":
    main()
