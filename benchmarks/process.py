"""How long the process function takes for tasks that are due, and what it costs: `python -m benchmarks.process`.

The whole handler as it is deployed, with its logs, metrics and conditional writes: the provider, DynamoDB and Redis are
servers in processes of their own. The ideal is that of free hands: whoever has finished begins the next task at once.
"""

import argparse
import heapq
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any

import redis

from benchmarks.measure import GENERATION, versions
from benchmarks.stub import Stub
from benchmarks.table import Table, add_keep
from local.servers.dynamodb import DUMMY_CREDENTIALS, REGION
from local.servers.redis_server import RedisServer
from shared.queue import Add, Queue, new_token
from shared.record import Record
from shared.task import Task

PROVIDER = "slow"
WRITE_SECONDS = 0.003  # what DynamoDB takes for a call
FUNCTION_SECONDS = 80.0  # process' Timeout in the template
BODY = '{"status":"completed","data":{"name":"task","city":"Aarhus","employees":3697,"offices":["Aarhus","Odense"]}}'
SETTINGS = {"IDLE_SECONDS": "0", "MAX_WORKERS": "1", "WAKE_QUEUE_URL": "", "AWS_DEFAULT_REGION": REGION}
POWERTOOLS = {"POWERTOOLS_SERVICE_NAME": "meanwhile", "POWERTOOLS_METRICS_NAMESPACE": "Meanwhile"}


@dataclass(frozen=True, slots=True)
class Load:
    """So many tasks at `parallel` at once, whose answers take from `shortest` to `longest` seconds."""

    name: str
    parallel: int
    tasks: int
    shortest: float
    longest: float
    bar: float

    def seconds(self, tasks: int) -> list[float]:
        """What each answer takes, in the order in which they are due."""
        random = Random(1)
        return [round(random.uniform(self.shortest, self.longest), 3) for _ in range(tasks)]


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run of the handler took: `late` is its time over the ideal, `busy` its processor time over that."""

    late: float
    busy: float
    cpu_seconds: float
    completed: int


LOADS = (
    Load("500 of 0.5 s at 50", 50, 500, 0.5, 0.5, 1.04),
    Load("2,000 of 0.5 s at 200", 200, 2000, 0.5, 0.5, 1.05),
    Load("400 of 0.1 to 3 s at 50", 50, 400, 0.1, 3, 1.05),
)
CPU_BAR = 2.6
PROFILE = (
    "of a task's processor time, by a sampling profiler, about half is botocore's write and a quarter the request to "
    "the provider; the rest is claims, settling, logs and threads"
)


def ideal(seconds: Sequence[float], parallel: int) -> float:
    """How long so many hands take for these, one after the other in this order."""
    free = [0.0] * parallel
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def provider_file(url: str) -> dict[str, Any]:
    """A provider that says at once, after its seconds, that a job is completed."""
    return {
        "servers": [url],
        "submit": {"url": "/", "query": {"seconds": "${input.seconds}"}},
        "acceptors": [{"state": "success", "expected": "completed"}],
        "data": "body.data",
    }


def fill(queue: Queue, seconds: Sequence[float]) -> None:
    """Leave a task in the queue for each, due in this order."""
    for number, one in enumerate(seconds):
        record = Record(generation=GENERATION, created_at=GENERATION - 1, input={"seconds": str(one)})
        queue.add([Add(Task(PROVIDER, f"task-{number:06d}"), GENERATION, record.to_text())], token=new_token())


def run(load: Load, tasks: int, environment: dict[str, str]) -> Taken:
    """Fill the queue and run the handler, in a process of its own, as an environment that is warm."""
    os.environ.update(environment)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (until the process ends)
    from handlers.process import handler  # noqa: PLC0415 (with the environment set)

    queue = Queue(redis.Redis.from_url(environment["REDIS_URL"], decode_responses=True), "queue")
    fill(queue, [0.1] * 2 * load.parallel)
    handler({}, context())  # opens the connections
    seconds = load.seconds(tasks)
    fill(queue, seconds)
    began, cpu_began = time.perf_counter(), time.process_time()
    tally = handler({}, context())
    took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
    least = ideal(seconds, load.parallel)
    return Taken(took / least, cpu_took / least, cpu_took, tally[PROVIDER]["completed"])


def context() -> Any:
    """What Lambda tells a function about a run that begins now."""
    ends = time.monotonic() + FUNCTION_SECONDS
    return SimpleNamespace(
        invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:process",
        get_remaining_time_in_millis=lambda: int((ends - time.monotonic()) * 1000),
    )


@contextmanager
def surroundings(server: RedisServer, body: str = BODY) -> Iterator[dict[str, str]]:
    """The provider, which answers so, and DynamoDB; the environment variables that lead there."""
    with (
        Stub(body, 0.5) as provider,
        Stub("{}", WRITE_SECONDS) as dynamodb,
        tempfile.TemporaryDirectory(prefix="meanwhile-providers-") as folder,
    ):
        Path(folder, f"{PROVIDER}.json").write_text(json.dumps(provider_file(provider.url)))
        there = {"REDIS_URL": server.url, "AWS_ENDPOINT_URL_DYNAMODB": dynamodb.url, "PROVIDERS_DIR": folder}
        there |= {"PROVIDER_URL": provider.url}
        yield SETTINGS | POWERTOOLS | DUMMY_CREDENTIALS | there


def measured(load: Load, tasks: int, rounds: int, environment: dict[str, str]) -> list[Taken]:
    """What each of so many runs took."""
    environment = environment | {"PARALLEL_TASKS": str(load.parallel)}
    taken = []
    for _ in range(rounds):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
            taken.append(processes.submit(run, load, tasks, environment).result())
            assert taken[-1].completed == tasks
    return taken


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.process", description=__doc__)
    parser.add_argument("--server", choices=("valkey", "redis"), help="Valkey if there is one, unless said")
    parser.add_argument("--rounds", type=int, default=1, help="of which the medians are told (%(default)s)")
    parser.add_argument("--scale", type=float, default=1, help="times as many tasks (%(default)s)")
    add_keep(parser)
    chosen = parser.parse_args()
    with (
        RedisServer(chosen.server) as server,
        surroundings(server) as environment,
        Table("process", "The process function", keep=chosen.keep, versions=versions(server.url)) as table,
    ):
        for load in LOADS:
            tasks = int(load.tasks * chosen.scale)
            taken = measured(load, tasks, chosen.rounds, environment)
            late = [one.late for one in taken]
            busy = median(one.busy for one in taken)
            why = f"replies that come together wait for one processor, busy for {busy:.0%} of the ideal time; {PROFILE}"
            table.say(load.name, median(late), "x ideal", load.bar, spread=(min(late), max(late)), why=why)
            cpu = [one.cpu_seconds / tasks * 1000 for one in taken]
            bar = CPU_BAR if load is LOADS[0] else None
            table.say(f"{load.name}: 1,000", median(cpu), "CPU seconds", bar, spread=(min(cpu), max(cpu)), why=PROFILE)


if __name__ == "__main__":
    main()
