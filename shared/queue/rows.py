"""How tasks are told to the scripts, field by field, and spans of time in milliseconds."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

from shared.limits import Health
from shared.queue.values import Add, Place, Settle

Row: TypeAlias = tuple[Any, ...]  # what a script is told of a task: the task first


def told(rows: Sequence[Row]) -> Row:
    """Rows as `rows` in the scripts reads them: field by field, and once what is the same in all."""
    if len(rows) == 1:
        task, *fields = rows[0]
        return 1, "", task.name, *fields
    tasks, *fields = zip(*rows, strict=True)
    columns = [[task.name for task in tasks], *(field[:1] if len(set(field)) == 1 else field for field in fields)]
    letters = "".join("e" if len(column) > 1 else "s" for column in columns)
    return len(rows), letters, *chain.from_iterable(columns)


def added(adds: Sequence[Add]) -> list[Row]:
    """What `add` is told of tasks. Raises ValueError for one named twice."""
    if len(adds) > 1 and len({row.task.name for row in adds}) < len(adds):
        raise ValueError("one call adds a task once")
    return [
        (task, generation, ms(delay_seconds), record, group, int(has_job), turn, int(came_back))
        for task, generation, record, delay_seconds, group, has_job, turn, came_back in adds
    ]


def heard(health: Health) -> Row:
    """What `settle` is told of the provider."""
    spans = (ms(health.shortest_seconds), ms(health.longest_seconds))
    return ms(health.pause_seconds), -1 if health.well else health.errors, health.errors_to_pause, *spans


def settled(rows: Sequence[Settle], health: Health) -> list[Row]:
    """What `settle` is told of tasks."""
    return [_settled(row, health) for row in rows]


def _settled(row: Settle, health: Health) -> Row:
    hold, becomes, delay_seconds, record, has_job, attempted, turn = row
    name = hold.task.name
    reply = int(name in health.well) - int(name in health.unwell)
    waits = (ms(delay_seconds), record or "", int(has_job), int(attempted), turn)
    return hold.task, hold.token, hold.generation, becomes, *waits, reply


def ms(seconds: float) -> int:
    """Whole milliseconds, rounded up; a span below 0 is none."""
    return math.ceil(max(seconds, 0) * 1000) if seconds else 0


def place(told_of: Sequence[Any]) -> Place:
    """Where a task stands, as `look` tells it, in milliseconds."""
    generation, *spans, record, wait, why = told_of
    due, lease, buried, seconds = (None if span is None else span / 1000 for span in (*spans, wait))
    return Place(int(generation), due, lease, buried, record, seconds, why.decode())
