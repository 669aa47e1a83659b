"""What the demo shows: the progress while it runs, and the table at the end."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import redis
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from local.demo.plan import Asked
from local.servers.dynamodb import TABLE_NAME
from local.stack import Stack

PROVIDERS = ("example", "coin")
LINE_SECONDS = 2.0  # between two lines where there is no terminal


@dataclass(frozen=True, slots=True)
class Seen:
    """The progress at one moment."""

    answered: int
    completed: int
    waiting: int
    processing: int
    attempts: int

    @property
    def queued(self) -> int:
        """How many tasks Redis holds."""
        return self.waiting + self.processing

    def __str__(self) -> str:
        return f"{self.waiting} waiting, {self.processing} in process, {self.attempts} attempts"


def items(stack: Stack) -> list[dict[str, Any]]:
    """Every item in DynamoDB, as the wire has it."""
    pages = stack.dynamodb.client().get_paginator("scan").paginate(TableName=TABLE_NAME, ConsistentRead=True)
    return [dict(item) for page in pages for item in page["Items"]]


def look(stack: Stack, answered: int) -> Seen:
    """The progress now."""
    completed = sum(item["status"]["S"] == "completed" for item in items(stack))
    with redis.Redis.from_url(stack.redis.url) as client:
        queues = [f"{{queue:{provider}}}" for provider in PROVIDERS]
        processing = sum(client.zcount(queue, 0, 0) for queue in queues)
        queued = sum(client.zcard(queue) for queue in queues)
    return Seen(answered, completed, queued - processing, processing, len(stack.third_party.calls))


class Watch:
    """Two bars and a line that show the progress; without a terminal a plain line every two seconds."""

    def __init__(self, console: Console, requests: int, tasks: int) -> None:
        self._console = console
        self._began = time.monotonic()
        self._printed = -LINE_SECONDS
        self._requests, self._tasks = requests, tasks
        columns = (TextColumn("{task.description:<20}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(
            *columns, TextColumn("{task.fields[note]}"), console=console, disable=not console.is_terminal
        )
        self._answered = self._bars.add_task("requests answered", total=requests, note="")
        self._completed = self._bars.add_task("tasks completed", total=tasks, note="")

    def show(self, seen: Seen) -> None:
        """Brings the display up to date."""
        self._bars.update(self._answered, completed=seen.answered)
        self._bars.update(self._completed, completed=seen.completed, note=str(seen))
        elapsed = time.monotonic() - self._began
        if not self._console.is_terminal and elapsed - self._printed >= LINE_SECONDS:
            self._printed = elapsed
            self._console.print(
                f"{elapsed:4.0f} s  {seen.answered} of {self._requests} requests answered, "
                f"{seen.completed} of {self._tasks} tasks completed; {seen}"
            )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
        self._console.print()


def result_table(stack: Stack, answers: Sequence[Asked], width: int) -> Table:
    """One row for each task, for a terminal of this width: its first answer, and how it ended."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column("task", no_wrap=True, min_width=20)
    table.add_column("first answer", no_wrap=True, min_width=15)
    table.add_column("requests", justify="right", min_width=8)
    table.add_column("polls", justify="right", min_width=5)
    table.add_column("took", justify="right", min_width=6)
    table.add_column("stored data", no_wrap=True, overflow="ellipsis", width=max(12, width - 75))
    stored = {item["task_id"]["S"]: item for item in items(stack)}
    attempts = Counter(f"{call.path[1:]}/{call.name}" for call in stack.third_party.calls)
    sent = Counter(asked.request.task_id for asked in answers)
    for task_id, asked in first_answers(answers).items():
        item = stored.get(task_id, {})
        polls = str(max(0, attempts[task_id] - 1))
        table.add_row(task_id, _first(asked), str(sent[task_id]), polls, _duration(item), _data(item))
    return table


def first_answers(answers: Sequence[Asked]) -> dict[str, Asked]:
    """The answer that began each task: the one that is not marked as a duplicate's."""
    firsts: dict[str, Asked] = {}
    for asked in answers:
        known = firsts.get(asked.request.task_id)
        if known is None or (known.body.get("deduplicated") and not asked.body.get("deduplicated")):
            firsts[asked.request.task_id] = asked
    return firsts


def _first(asked: Asked) -> str:
    if asked.body.get("status") != "pending":
        return f"{asked.status} {asked.body.get('status', '?')}"
    return f"{asked.status} {', '.join(asked.body.get('data') or ()) or 'nothing yet'}"


def _duration(item: dict[str, Any]) -> str:
    if "completed_at" not in item:
        return "never"
    return f"{(int(item['completed_at']['N']) - int(item['created_at']['N'])) / 1000:.1f} s"


def _data(item: dict[str, Any]) -> Text:
    return Text(json.dumps(json.loads(item["data"]["S"]), ensure_ascii=False) if "data" in item else "nothing")
