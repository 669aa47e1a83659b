"""What every peer is to do: the same question to the provider and the same conditional write, as many at once.

What ours is tuned by, theirs is, too: no peer's botocore checks its calls. Peers run in environments of their own,
which have nothing of ours: this imports the standard library alone.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

REGION = "us-east-1"
CREDENTIALS: dict[str, Any] = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


@dataclass(frozen=True, slots=True)
class Asked:
    """Where things are, how many tasks there are, and how many of them are worked on at once.

    Before them `warm` others, of a tenth of a second each, open the connections.
    """

    redis_url: str
    provider_url: str
    dynamodb_url: str
    tasks: int
    parallel: int
    seconds: float = 0.5

    @property
    def warm(self) -> int:
        return 2 * self.parallel

    @property
    def rounds(self) -> Iterator[tuple[int, float]]:
        """How many tasks of how many seconds: first those that are not measured."""
        yield from ((self.warm, 0.1), (self.tasks, self.seconds))

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def asked() -> Asked:
    """What the command line says."""
    return Asked(**json.loads(sys.argv[1]))


def write(number: int, data: str) -> dict[str, Any]:
    """The arguments of UpdateItem that end a task, if it is still pending."""
    return {
        "TableName": "meanwhile",
        "Key": {"task_id": {"S": f"slow/task-{number:06d}"}},
        "UpdateExpression": "SET #status = :status, #data = :data, #completed_at = :completed_at REMOVE #open, #error",
        "ConditionExpression": "#generation = :generation AND #status = :pending",
        "ExpressionAttributeNames": {
            f"#{name}": name for name in ("status", "data", "completed_at", "open", "error", "generation")
        },
        "ExpressionAttributeValues": {
            ":status": {"S": "completed"},
            ":pending": {"S": "pending"},
            ":data": {"S": data},
            ":completed_at": {"N": str(time.time_ns() // 1_000_000)},
            ":generation": {"N": "1764533000001"},
        },
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


class Measured:
    """The seconds of the last round, and its tasks that are done."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Measure what is done here."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall, self.cpu = time.perf_counter() - wall, time.process_time() - cpu

    def tell(self, *distributions: str) -> None:
        """Print it, with the versions that did it."""
        versions = {name: version(name) for name in distributions}
        print(json.dumps({"wall": self.wall, "cpu": self.cpu, "versions": versions}), flush=True)
