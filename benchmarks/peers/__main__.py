"""What peers take for the same work, interleaved with ours: `make bench-peers`.

Each task is a question to a provider that answers after half a second, and one conditional write to DynamoDB, 50 at
once; provider, DynamoDB and Redis are the same servers for all. The processor time is the worker's own. What ours does
besides, and theirs do not (deadlines, limits, leases, answers that must be complete, one line of log an end), is in it.
"""

import argparse
import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

from benchmarks.measure import versions
from benchmarks.peers.asked import Asked
from benchmarks.process import LOADS, ideal, measured, surroundings
from benchmarks.table import Table, add_keep
from local import ROOT
from local.servers.redis_server import RedisServer

OURS = "Meanwhile"
HELD_TO = ("taskiq", "BullMQ")  # ours is to be below these
WHY = "by a profile, half of ours is botocore's write and a third requests, in threads; theirs are an event loop's"
LONGEST_SECONDS = 120.0  # for one run of a peer


@dataclass(frozen=True, slots=True)
class Peer:
    """How a peer is run, from the folder of its environment; `program` stands there when it is installed."""

    name: str
    folder: Path
    program: Path
    arguments: tuple[str, ...]
    runs_in: Path = ROOT

    def run(self, what: Asked) -> "Taken":
        """Do it once."""
        command = [str(self.program), *self.arguments, what.text()]
        done = subprocess.run(
            command, cwd=self.runs_in, check=False, capture_output=True, text=True, timeout=LONGEST_SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{self.name} failed:\n{done.stderr[-2000:]}")
        said = json.loads(done.stdout.splitlines()[-1])
        return Taken(said["wall"], said["cpu"], said["versions"])


@dataclass(frozen=True, slots=True)
class Taken:
    """The seconds of one run, by the wall and of the worker's processor; what did it."""

    wall: float
    cpu: float
    versions: dict[str, str]


Runs: TypeAlias = dict[str, list[Taken]]


def peers(environments: Path) -> list[Peer]:
    """Those that could be installed there."""
    scripts, node = Path(__file__).parent, shutil.which("node")
    pythons = [
        Peer(name, environments / name, environments / name / "bin" / "python", ("-m", f"benchmarks.peers.with_{name}"))
        for name in ("taskiq", "arq", "dramatiq")
    ]
    bullmq = environments / "bullmq"
    nodes = [Peer("BullMQ", bullmq, Path(node), (str(scripts / "with_bullmq.mjs"),), bullmq)] if node else []
    if not node:
        print("BullMQ: skipped, there is no node")
    known = pythons + nodes
    for one in known:
        if not (one.folder / "ready").exists():
            print(f"{one.name}: skipped, it is not installed in {one.folder}")
    return [one for one in known if (one.folder / "ready").exists()]


def measure(found: list[Peer], server: RedisServer, tasks: int, rounds: int) -> Runs:
    """Ours and each peer in turn, so many times."""
    load, runs = LOADS[0], dict[str, list[Taken]]({OURS: []} | {one.name: [] for one in found})
    with surroundings(server) as environment:
        asked = Asked(
            server.url, environment["PROVIDER_URL"], environment["AWS_ENDPOINT_URL_DYNAMODB"], tasks, load.parallel
        )
        for number in range(rounds):
            began = time.perf_counter()
            [ours] = measured(load, tasks, 1, environment)
            runs[OURS].append(Taken(ours.late * ideal(load.seconds(tasks), load.parallel), ours.cpu_seconds, {}))
            for one in found:
                runs[one.name].append(one.run(asked))
            print(f"round {number + 1} of {rounds}: {time.perf_counter() - began:.0f} s", flush=True)
    return runs


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--server", choices=("valkey", "redis"), help="Valkey if there is one, unless said")
    parser.add_argument("--environments", type=Path, default=Path(".venv-peers"), help="where they are (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are told (%(default)s)")
    parser.add_argument("--tasks", type=int, default=LOADS[0].tasks, help="in each run (%(default)s)")
    add_keep(parser)
    chosen = parser.parse_args()
    found = peers(chosen.environments.absolute())
    with RedisServer(chosen.server) as server:
        runs = measure(found, server, chosen.tasks, chosen.rounds)
        used = {name: one for taken in runs.values() for name, one in taken[0].versions.items()}
        with Table("peers", "Peers", keep=chosen.keep, versions=versions(server.url) | used) as table:
            best = ideal(LOADS[0].seconds(chosen.tasks), LOADS[0].parallel)
            for name, taken in runs.items():
                cpu = [one.cpu / chosen.tasks * 1000 for one in taken]
                table.say(f"{name}: 1,000 tasks", median(cpu), "CPU seconds", spread=(min(cpu), max(cpu)))
                late = [one.wall / best for one in taken]
                table.say(f"{name}: {chosen.tasks} tasks", median(late), "x ideal", spread=(min(late), max(late)))
            for one in found:
                ratios = [our.cpu / their.cpu for our, their in zip(runs[OURS], runs[one.name], strict=True)]
                bar = 1.0 if one.name in HELD_TO else None
                spread = (min(ratios), max(ratios))
                table.say(
                    f"ours against {one.name}, by CPU", median(ratios), f"x {one.name}", bar, spread=spread, why=WHY
                )


if __name__ == "__main__":
    main()
