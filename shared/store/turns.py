"""Turns: the order of a generation's holders, kept in its item, and what tells a turn that ended its worker.

A claim raises the turn in Redis, but an outcome that changes nothing is not written here, and Redis may lose its last
claims: so who has a task that came back takes it over in the item, before anybody is asked. From then on no earlier
holder's save or failure is taken, though its worker is still at it.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shared.errors import StoreUnavailable
from shared.store.item import Item
from shared.store.table import Superseded, Table
from shared.task import Task

ROUNDS = 5  # how often a take-over that meets another one tries again
LOWER = "(attribute_not_exists(#turn) OR #turn < :turn)"
HELD = f" AND ({LOWER} OR (#turn = :turn AND #holder = :holder))"
"""No later holder has written, nor another one of this turn. A holder's write that is repeated finds its own."""
UNFINISHED = " AND (attribute_not_exists(#finished) OR #finished <> :before)"
LAST_UNFINISHED = " AND attribute_exists(#turn) AND (attribute_not_exists(#finished) OR #finished <> #turn)"
REQUEUED = " AND (attribute_not_exists(#turn) OR #turn < :lost)"
INSTANTS_OF_NEWS = ("#told_at", "#attempt.#replied_at")
LEAP = 2**20
"""By so much reconcile raises the turn of what Redis has lost: nobody claimed it as often since it was written here."""
Before: TypeAlias = Literal["none", "death", "unknown"]  # whether the turn before ended its worker


class Holder(Struct, frozen=True):
    """Who writes: the `turn` of the claim by which it holds the task, and the first 8 hex digits of its token.

    Where Redis went back to an older state, two may have one turn.
    """

    turn: int
    holder: str


def held(by: Holder | None, *, ended: bool = False) -> tuple[dict[str, Any], str]:
    """What a holder's write sets beside its own, and on what condition; for who holds nothing, nothing.

    `ended`: it is written after the attempt, so that this turn can be no crash.
    """
    if by is None:
        return {}, ""
    return {"turn": by.turn, "holder": by.holder} | ({"finished": by.turn} if ended else {}), HELD


def of_job(resubmits: int | None, *, is_next: bool = False) -> tuple[dict[str, Any], str]:
    """The value and the condition that no job later than this one stands there; nothing for None.

    `is_next`: nor this one itself, which is just being counted.
    """
    if resubmits is None:
        return {}, ""
    earlier = "<" if is_next else "<="
    condition = f" AND (attribute_not_exists(#attempt) OR #attempt.#resubmits {earlier} :resubmits)"
    return {"resubmits": resubmits}, condition


def of_news(told_at: int | None, seen: Mapping[str, str | bytes]) -> tuple[dict[str, Any], str]:
    """The values and the condition that nothing later than `told_at` is known, and that the values `seen` still stand.

    Without `told_at` that does not matter. A null that was seen may not stand there at all.
    """
    values: dict[str, Any] = {}
    conditions: list[str] = []
    if told_at is not None:
        conditions = [f"(attribute_not_exists({one}) OR {one} < :told_at)" for one in INSTANTS_OF_NEWS]
    for name, value in seen.items():
        values[f"seen_{name}"] = value
        absent = f"attribute_not_exists(#{name}) OR " if value == "null" else ""
        conditions.append(f"({absent}#{name} = :seen_{name})")
    return values, "".join(f" AND {one}" for one in conditions)


def take_over(table: Table, task: Task, generation: int, by: Holder, came_back: int) -> Item | Superseded:
    """As Store.take_over says: one write, and one more for each thing there that it could not know."""
    turn, is_first = by.turn, came_back <= 1
    before: Before = "none" if turn <= 1 else "unknown" if is_first and turn > LEAP else "death"
    for _ in range(ROUNDS):
        values: dict[str, Any] = {"turn": turn, "holder": by.holder}
        further, counted = f" AND {LOWER}", ""
        match before:
            case "none":
                counted = " REMOVE #crashes"
            case "death":
                values |= {"one": 1} | ({"before": turn - 1} if is_first else {})
                further += UNFINISHED if is_first else LAST_UNFINISHED
                counted = ", #crashes = :one" if is_first else " ADD #crashes :one"
            case "unknown" if is_first:
                values |= {"lost": turn - LEAP}
                further += REQUEUED
        expression = f"SET #turn = :turn, #holder = :holder{counted}"
        written = table.change(task, generation, expression, values, further, read_back=True)
        if not isinstance(written, Superseded):
            assert written
            return written
        there = written.item
        if there is None or not there.is_pending(generation):
            return written
        if there.holder == by.holder and there.turn >= by.turn:
            return there  # botocore repeats a call whose reply was lost: then it finds its own write
        turn = max(turn, there.turn + 1)
        before = _before(turn, there, is_first)
    raise StoreUnavailable(f"{task.id} is taken over again and again")


def _before(turn: int, there: Item, is_first: bool) -> Before:
    """What the turn before is known to have been: the one before this, or later the last that was taken over."""
    if there.finished == (turn - 1 if is_first else there.turn):
        return "none"
    is_known = turn - there.turn <= LEAP if is_first else there.holder
    return "death" if is_known else "unknown"
