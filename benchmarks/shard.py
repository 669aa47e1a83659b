"""A provider whose queue outgrows one node of a cluster: `python -m benchmarks.shard`.

All keys of a provider are in one slot, so on one of three real nodes here. What that node holds and does, and what
becomes of it when the same API has three provider files, whose names fall on the three nodes.
"""

import argparse
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from redis import Redis

from benchmarks.measure import RECORD, add
from local.servers.redis_cluster import SLOTS, cluster_of
from local.servers.redis_server import find_binary
from shared.errors import QueueUnavailable, QueueUnreachable
from shared.provider.language.rules import Rules
from shared.queue import Becomes, Hold, Queue, Settle, new_token
from shared.queue.client import client_of
from shared.store import Store, Table
from shared.store.item import open_key
from shared.task import Task
from shared.work.reconcile import Reconciler

NODES = 3
BATCH = 100  # tasks a call while the queue is filled
REFUSALS = 5  # in a row, of a node that is full
ROOM = 16 * 2**20  # bytes that each node may use beyond what it uses when empty
LEASE_SECONDS = 30.0
PROVIDERS = 20  # without tasks, that reconcile looks at
POLLS: tuple[Becomes, ...] = ("waiting", "completed")
ROUNDS = 3  # of which the medians are told
YES = {True: "yes", False: "no", None: ""}
ROWS = 6000  # of the index in a page of 1 MB
RULES = {"servers": ["http://127.0.0.1"], "submit": {"url": "/"}, "acceptors": [{"state": "success", "expected": ""}]}


@dataclass(frozen=True, slots=True)
class Node:
    """One node, as it is seen over a connection of its own."""

    client: Any  # its untyped methods

    def used(self) -> int:
        """Bytes."""
        return int(self.client.info("memory")["used_memory"])

    def seconds(self) -> float:
        """Processor time of the main thread so far."""
        said, kinds = self.client.info("cpu"), ("used_cpu_user", "used_cpu_sys")
        return float(sum(said.get(f"{kind}_main_thread", said[kind]) for kind in kinds))


class Cluster:
    """Three nodes, empty, and a queue over them."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.nodes = [Node(Redis(port=port, decode_responses=True)) for port in ports]
        self.queue = Queue(client_of(f"redis-cluster://127.0.0.1:{ports[0]}"), "queue")

    def home(self, provider: str) -> int:
        """On which node a provider's keys are."""
        slot = self.nodes[0].client.execute_command("CLUSTER KEYSLOT", f"{{queue:{provider}}}")
        return int(slot) * NODES // SLOTS

    def names(self, name: str) -> list[str]:
        """Names for provider files of the same API, the first for each node."""
        found: dict[int, str] = {}
        number = 0
        while len(found) < NODES:
            number += 1
            found.setdefault(self.home(f"{name}-{number}"), f"{name}-{number}")
        return [found[node] for node in range(NODES)]

    def empty(self, room: int = 0) -> None:
        """Remove all; from now on no node takes more than so many bytes, 0: as many as it likes."""
        for node in self.nodes:
            node.client.config_set("maxmemory", 0)
            node.client.execute_command("FLUSHALL", "SYNC")
            node.client.config_set("maxmemory", node.used() + room if room else 0)

    @contextmanager
    def spending(self, spent: list[float]) -> Iterator[None]:
        """The processor seconds of each node meanwhile."""
        before = [node.seconds() for node in self.nodes]
        yield
        spent += [node.seconds() - since for node, since in zip(self.nodes, before, strict=True)]


def fill(cluster: Cluster, names: Sequence[str], most: int) -> tuple[Counter[str], str]:
    """Add tasks that wait, to each provider in its turn, until one takes no more; how many each has, and which it is.

    What a server uses goes up and down a little, so it is full where it refuses several times in a row.
    """
    held: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    while held.total() < most:
        for name in names:
            if takes(cluster, name, held[name]):
                held[name], refused[name] = held[name] + BATCH, 0
            else:
                refused[name] += 1
                if refused[name] == REFUSALS:
                    return held, name
    return held, ""


def takes(cluster: Cluster, name: str, first: int) -> bool:
    """Whether tasks, of the numbers from this on, can be added."""
    try:
        cluster.queue.add([add(name, number) for number in range(first, first + BATCH)], token=new_token())
    except QueueUnreachable:  # on a busy machine it may have been silent for too long
        return takes(cluster, name, first)
    except QueueUnavailable:
        return False
    return True


def drained(cluster: Cluster, name: str) -> bool:
    """Whether a full node hands tasks out, and takes that they are completed."""
    claim = cluster.queue.claim(name, limit=BATCH, lease_seconds=LEASE_SECONDS, token=new_token())
    done = cluster.queue.settle([Settle(task.hold, "completed") for task in claim.tasks])
    return len(claim.tasks) == BATCH and all(done)


def lives(cluster: Cluster, names: Sequence[str], tasks: int, each: int) -> list[float]:
    """The nodes' processor seconds for as many tasks, from request to end with two polls, so many to a claim."""
    spent: list[float] = []
    with cluster.spending(spent):
        for first in range(0, tasks, each):
            name, held = names[first // each % len(names)], []
            for number in range(first, first + each):
                token = new_token()
                cluster.queue.add([add(name, number)], token=token, lease_seconds=LEASE_SECONDS)
                held.append(Hold(Task(name, f"task-{number:08d}"), add(name, number).generation, token, 1))
            for hold in held:
                cluster.queue.settle([Settle(hold, "waiting", 0, "{}")])
            for becomes in POLLS:
                claim = cluster.queue.claim(name, limit=each, lease_seconds=LEASE_SECONDS, token=new_token())
                cluster.queue.settle([Settle(one.hold, becomes, 0, RECORD) for one in claim.tasks])
    return spent


def vain(cluster: Cluster, name: str, calls: int) -> float:
    """A node's processor seconds for one claim that finds nothing."""
    spent: list[float] = []
    with cluster.spending(spent):
        for _ in range(calls):
            cluster.queue.claim(name, limit=1, lease_seconds=LEASE_SECONDS, token=new_token())
    return max(spent) / calls


class Page:
    """One reply of DynamoDB, as bytes that were on the wire."""

    def __init__(self, reply: Any) -> None:
        self._text = json.dumps(reply).encode()

    def stream(self) -> Iterator[bytes]:
        yield self._text


def table_of(tasks: int, provider: str) -> Table:
    """A table whose index lists so many open tasks, in pages of a megabyte; other items are not there."""
    pages: dict[str, list[Any]] = defaultdict(list)
    for number in range(tasks):
        one = add(provider, number)
        row = {
            "task_id": {"S": one.task.id},
            "generation": {"N": f"{one.generation}"},
            "updated_at": {"N": f"{number}"},
        }
        pages[open_key(one.task)].append(row | {"open": {"S": open_key(one.task)}})

    def reply(request: Any, **_: Any) -> Any:
        asked = json.loads(request.body)
        rows = pages[asked.get("ExpressionAttributeValues", {}).get(":open", {}).get("S", "")]
        first = int(asked.get("ExclusiveStartKey", {"first": {"N": "0"}})["first"]["N"])
        said = {"Items": rows[first : first + ROWS], "Count": min(ROWS, len(rows) - first)}
        more = {"LastEvaluatedKey": {"first": {"N": f"{first + ROWS}"}}} if first + ROWS < len(rows) else {}
        headers: Any = {"content-type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, 200, headers, Page(said | more))

    client = boto3.client("dynamodb", "us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
    client.meta.events.register("before-send.dynamodb", reply)
    return Table(client, "meanwhile")


def reconciled(cluster: Cluster, names: Sequence[str], tasks: int) -> tuple[float, int]:
    """Seconds of CPU and bytes that a run of reconcile takes for so many open tasks of the first provider.

    All are as they should be, and the others have none.
    """
    rules, store = Rules.from_json(RULES), Store(table_of(tasks, names[0]), 3600)
    run = Reconciler(store, cluster.queue, dict.fromkeys(names, rules), LEASE_SECONDS, lambda: 2**42, Random(1)).run
    began, before = time.process_time(), _resident()
    tally = run(lambda: math.inf)
    found = tally[names[0]]
    if (found["seen"], found["requeued"]) != (tasks, 0):
        raise RuntimeError(f"reconcile saw {found}")
    return time.process_time() - began, _resident() - before


def _resident() -> int:
    """This process' memory, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def row(name: str, *cells: str | None) -> None:
    """One line."""
    print(f"{name:<46}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shard", description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000, help="whose lives are measured (%(default)s)")
    parser.add_argument("--open", type=int, default=100_000, help="that reconcile looks at (%(default)s)")
    parser.add_argument("--room", type=int, default=ROOM, help="bytes that each node may use (%(default)s)")
    chosen = parser.parse_args()
    with cluster_of(find_binary("redis"), NODES) as ports:
        cluster = Cluster(ports)
        three = cluster.names("acme")
        one = three[:1]
        row("", "one file", "three files")
        lives(cluster, three, 300, 20)  # loads the scripts
        held, taken, elsewhere, done = [], [], [], []
        for names in (one, three):
            cluster.empty(chosen.room)
            waiting, full = fill(cluster, names, 10**7)
            held.append(waiting.total())
            taken.append(all(takes(cluster, full, waiting[full] + BATCH * more) for more in range(REFUSALS)))
            elsewhere.append(takes(cluster, three[-1], 0) if names is one else None)
            done.append(drained(cluster, full))
        row(f"tasks that wait, {chosen.room / 2**20:g} MB a node", *(f"{count:,}" for count in held))
        row(f"then: {BATCH * REFUSALS} more are taken", *map(YES.get, taken))
        row("then: others of another node are", *map(YES.get, elsewhere))
        row("then: tasks are claimed and completed", *map(YES.get, done))
        for each in (1, 20):
            rounds: list[list[float]] = [[], []]
            for _ in range(ROUNDS):
                for names, found in zip((one, three), rounds, strict=True):
                    cluster.empty()
                    found.append(max(lives(cluster, names, chosen.tasks, each)) / chosen.tasks * 1e6)
            row(f"busiest node, \u00b5s of CPU a task, {each} a claim", *(f"{median(found):.0f}" for found in rounds))
        row("a claim in vain, \u00b5s of CPU", f"{vain(cluster, one[0], chosen.tasks) * 1e6:.0f}")
        cluster.empty()
        filled, _ = fill(cluster, one, chosen.open)
        none = [f"none-{number}" for number in range(PROVIDERS)]
        tasks = filled[one[0]]
        seconds, size = reconciled(cluster, one, tasks)
        row("reconcile, an open task", f"{seconds / tasks * 1e6:.0f} \u00b5s of CPU", f"{size / tasks:.0f} bytes")
        row("reconcile, a provider", f"{reconciled(cluster, none, 0)[0] / PROVIDERS * 1e3:.0f} ms of CPU")


if __name__ == "__main__":
    main()
