"""What a warm request costs in processor time, and whom it asks: `python -m benchmarks.enqueue`.

The whole handler as it is deployed. DynamoDB (3 ms a call), SQS, Redis and the provider are servers in processes of
their own. Beside it the calls that a new task needs, made by the libraries alone: machines compare by that ratio.
"""

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, TypeAlias

import redis

from benchmarks.items import Items, calls
from benchmarks.measure import versions
from benchmarks.stub import Stub
from benchmarks.table import Table, add_keep
from local import ROOT
from local.servers.dynamodb import DUMMY_CREDENTIALS, REGION
from local.servers.redis_server import RedisServer

PROVIDER = "slow"
CALL_SECONDS = 0.003  # what DynamoDB takes for a call
BATCH = 50
FUNCTION_SECONDS = 25.0  # enqueue's Timeout in the template
REQUESTS = 100  # of a kind in a round
PENDING = '{"status":"async processing in progress","data":{"name":"task","city":"Aarhus"}}'
RULES = {
    "submit": {"url": "/", "query": {"task-name": "${input.id}"}},
    "acceptors": [
        {"state": "pending", "expected": "async processing in progress"},
        {"state": "success", "expected": "completed"},
    ],
    "data": "body.data",
    "polling": {"minDelay": 60, "maxDelay": 600},
}
POWERTOOLS = {"POWERTOOLS_SERVICE_NAME": "meanwhile", "POWERTOOLS_METRICS_NAMESPACE": "Meanwhile"}
Milliseconds: TypeAlias = dict[str, list[float]]
Counts: TypeAlias = dict[str, float]
BARS = {
    "POST of a new task": 4.8,
    "POST of a task that is pending": 1.5,
    "GET of a task": 1.0,
    f"batch of {BATCH} new tasks, respond-async": 100.0,
    f"batch of {BATCH} new tasks, each asked": None,
    "a wake-up's SendMessage": None,
    "a new task's calls, by the libraries alone": None,
}
NEW, AGAIN, LOOK, MANY, MANY_ASKED, WAKE, BARE = BARS
ONE_CALL = "by a profile, four fifths are botocore's one call, with urllib3 and http.client below it"
WHY = {
    NEW: "by a profile, two thirds are botocore's three calls, a fifth other libraries, a seventh ours",
    AGAIN: ONE_CALL,
    LOOK: ONE_CALL,
}
COUNTS = {"reads": 1, "writes": 2, "round trips to Redis": 2}


class Requests:
    """The handler of a warm environment, and events for it: those in `events/`, for other tasks."""

    def __init__(self) -> None:
        from handlers.enqueue import handler  # noqa: PLC0415 (with the environment set)

        self._handler = handler
        self._events = {
            kind: json.loads((ROOT / "events" / f"enqueue-rest-{name}.json").read_text())
            for kind, name in ((NEW, "post-tasks"), (LOOK, "status"), (MANY, "batch"))
        }

    def post(self, number: int) -> None:
        """Ask for a task."""
        self._ask(self._events[NEW] | {"body": json.dumps(_task(number))}, 202)

    def look(self, number: int) -> None:
        """See how a task is."""
        path = f"/tasks/{PROVIDER}/{_task(number)['name']}"
        self._ask(self._events[LOOK] | {"path": path}, 200)

    def post_many(self, first: int, **headers: list[str]) -> None:
        """Ask for many at once."""
        tasks = [_task(number) for number in range(first, first + BATCH)]
        event = self._events[MANY] | {"body": json.dumps({"tasks": tasks})}
        told = self._ask(event | {"multiValueHeaders": event["multiValueHeaders"] | headers}, 200)
        assert {one["status"] for one in json.loads(told["body"])["results"]} == {202}

    def _ask(self, event: Any, expected: int) -> Any:
        ends = time.monotonic() + FUNCTION_SECONDS
        context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: int((ends - time.monotonic()) * 1000))
        answer = self._handler(event, context)
        assert answer["statusCode"] == expected, answer
        return answer


class Libraries:
    """The calls that a new task needs, as whoever had only the libraries would make them."""

    def __init__(self) -> None:
        import boto3  # noqa: PLC0415 (nobody else loads it)
        import requests  # noqa: PLC0415

        self._dynamodb = boto3.client("dynamodb")
        self._redis: Any = redis.Redis.from_url(os.environ["REDIS_URL"])
        self._session = requests.Session()
        self._url = os.environ["BENCHMARK_PROVIDER"]

    def ask(self, number: int) -> None:
        """A read, two conditional writes, two calls of Redis, a question to the provider."""
        key = {"task_id": {"S": f"bare-{number}"}}
        self._dynamodb.get_item(TableName="meanwhile", Key=key, ConsistentRead=True)
        self._redis.set("bare", number)
        self._session.get(self._url, params={"task-name": "bare"}, timeout=5).json()
        for _ in range(2):
            self._dynamodb.update_item(
                TableName="meanwhile",
                Key=key,
                UpdateExpression="SET #input = :input",
                ConditionExpression="attribute_not_exists(#input)",
                ExpressionAttributeNames={"#input": "input"},
                ExpressionAttributeValues={":input": {"S": "{}"}},
                ReturnValues="NONE",
            )
        self._redis.set("bare", number)


def _task(number: int) -> dict[str, Any]:
    return {"provider": PROVIDER, "name": f"task-{number:08d}", "input": {"id": f"rep-{number:08d}", "since": 2026}}


def measure(environment: dict[str, str], rounds: int, requests: int) -> tuple[Milliseconds, Counts]:
    """Processor milliseconds of one of each kind in each round; the calls of one new task. In a process of its own."""
    os.environ.update(environment)
    from shared import aws  # noqa: PLC0415 (with the environment set)
    from shared.work.wakeups import WakeUps  # noqa: PLC0415

    with redirect_stdout(io.StringIO()):
        asks, bare = Requests(), Libraries()
        wake = WakeUps(environment["WAKE_QUEUE_URL"], lambda: aws.client("sqs", tries=1), lambda: 0)  # never slow
        batches = max(1, requests // 25)
        kinds: dict[str, tuple[Callable[[int], object], int, int]] = {
            NEW: (asks.post, requests, 1),
            AGAIN: (asks.post, requests, 1),
            LOOK: (asks.look, requests, 1),
            MANY: (lambda first: asks.post_many(first, Prefer=["respond-async"]), batches, BATCH),
            MANY_ASKED: (asks.post_many, batches, BATCH),
            WAKE: (lambda _: wake.send(PROVIDER, 2), requests, 1),
            BARE: (bare.ask, requests, 1),
        }
        taken: Milliseconds = {kind: [] for kind in kinds}
        for number in range(rounds + 1):  # the first opens the connections
            for kind, (ask, times, step) in kinds.items():
                whose = NEW if kind in (AGAIN, LOOK) else kind
                first = number * requests * step + 10_000_000 * list(kinds).index(whose)
                began = time.process_time()
                for one in range(times):
                    ask(first + one * step)
                if number:
                    taken[kind].append((time.process_time() - began) / times * 1000)
        return taken, _counted(asks, environment, requests)


def _counted(asks: Requests, environment: dict[str, str], requests: int) -> Counts:
    """What one new task calls."""
    client: Any = redis.Redis.from_url(environment["REDIS_URL"])

    def now() -> list[int]:
        said, served = calls(environment["AWS_ENDPOINT_URL_DYNAMODB"]), client.info("commandstats")
        scripts = sum(served[f"cmdstat_{name}"]["calls"] for name in ("evalsha", "eval") if f"cmdstat_{name}" in served)
        return [said["GetItem"], said["UpdateItem"], scripts]

    before = now()
    for number in range(requests):
        asks.post(90_000_000 + number)
    return {name: (b - a) / requests for name, a, b in zip(COUNTS, before, now(), strict=True)}


@contextmanager
def surroundings(server: RedisServer) -> Iterator[dict[str, str]]:
    """The provider, DynamoDB and SQS; the environment variables that lead there."""
    with (
        Stub(PENDING, 0) as provider,
        Items(CALL_SECONDS) as items,
        tempfile.TemporaryDirectory(prefix="meanwhile-providers-") as folder,
    ):
        Path(folder, f"{PROVIDER}.json").write_text(json.dumps({"servers": [provider.url]} | RULES))
        there = {"REDIS_URL": server.url, "PROVIDERS_DIR": folder, "BENCHMARK_PROVIDER": provider.url}
        there |= {"AWS_ENDPOINT_URL_DYNAMODB": items.url, "AWS_ENDPOINT_URL_SQS": items.url}
        there |= {"WAKE_QUEUE_URL": f"{items.url}/123456789012/wake", "AWS_DEFAULT_REGION": REGION}
        yield POWERTOOLS | DUMMY_CREDENTIALS | there


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.enqueue", description=__doc__)
    parser.add_argument("--server", choices=("valkey", "redis"), help="Valkey if there is one, unless said")
    parser.add_argument("--rounds", type=int, default=9, help="of which the medians are told (%(default)s)")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of a kind in a round (%(default)s)")
    add_keep(parser)
    chosen = parser.parse_args()
    with (
        RedisServer(chosen.server) as server,
        surroundings(server) as environment,
        Table("enqueue", "A warm request", keep=chosen.keep, versions=versions(server.url)) as table,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes,
    ):
        taken, counts = processes.submit(measure, environment, chosen.rounds, chosen.requests).result()
        for kind, bar in BARS.items():
            spread = (min(taken[kind]), max(taken[kind]))
            table.say(kind, median(taken[kind]), "CPU ms", bar, spread=spread, why=WHY.get(kind, ""))
        ratios = [ours / theirs for ours, theirs in zip(taken[NEW], taken[BARE], strict=True)]
        table.say("POST of a new task, against those", median(ratios), "x", spread=(min(ratios), max(ratios)))
        for name, count in counts.items():
            table.say(f"POST of a new task: {name}", count, "", COUNTS[name])


if __name__ == "__main__":
    main()
