"""What the largest answers take of a function's memory, many at once: `python -m benchmarks.memory`.

The whole process handler, in a process of its own. JSON of nothing but small lists takes the most room once decoded.
"""

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.measure import versions
from benchmarks.process import PROVIDER, WRITE_SECONDS, context, fill, surroundings
from benchmarks.stub import Stub
from benchmarks.table import Table, add_keep
from local.servers.redis_server import RedisServer

PARALLEL = 20
LARGEST_BYTES = 10_000_000
FUNCTION_MIB = 480  # of 512, which Lambda gives; the rest is its own
KINDS: dict[str, Callable[[int], str]] = {
    "text": lambda size: f'"{"x" * size}"',
    "rows": lambda size: "[" + ",".join(['{"id":123456,"name":"Aarhus","share":0.25}'] * (size // 43)) + "]",
    "small lists": lambda size: "[" + ",".join(["[[1],[2]]"] * (size // 10)) + "]",
}
"""Data of about so many bytes of JSON."""


def run(tasks: int, environment: dict[str, str]) -> tuple[int, float]:
    """Run the handler over so many tasks; how many it completed, and the most memory it had, in MiB."""
    os.environ.update(environment)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (until the process ends)
    import redis  # noqa: PLC0415 (with the environment set)

    from handlers.process import handler  # noqa: PLC0415
    from shared.queue import Queue  # noqa: PLC0415

    fill(Queue(redis.Redis.from_url(environment["REDIS_URL"], decode_responses=True), "queue"), [0.1] * tasks)
    tally = handler({}, context())
    return tally[PROVIDER]["completed"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=LARGEST_BYTES / 1e6, help="of an answer (%(default)s)")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="attempts at once (%(default)s)")
    add_keep(parser)
    chosen = parser.parse_args()
    with (
        RedisServer(None) as server,
        tempfile.TemporaryDirectory(prefix="meanwhile-large-") as folder,
        Table("memory", "Memory for large answers", keep=chosen.keep, versions=versions(server.url)) as table,
    ):
        for kind, made in KINDS.items():
            body = Path(folder, "body.json")
            body.write_text(f'{{"status":"completed","data":{made(int(chosen.megabytes * 1e6) - 100)}}}')
            with (
                surroundings(server, f"@{body}") as environment,
                Stub("", WRITE_SECONDS) as bucket,
                ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes,
            ):
                own = {"PARALLEL_TASKS": str(chosen.parallel), "SPILL_BUCKET": "large"}
                own["AWS_ENDPOINT_URL_S3"] = bucket.url
                completed, most = processes.submit(run, chosen.parallel, environment | own).result()
            what = f"{chosen.parallel} of {chosen.megabytes:g} MB at once, {kind}"
            table.say(what, most, "MiB", FUNCTION_MIB)
            table.say(f"{what}: completed", completed, "tasks")


if __name__ == "__main__":
    main()
