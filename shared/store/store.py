"""The store: one DynamoDB item per task, the durable truth of what is known and how a generation ended.

Every write is conditional on the generation, so the first writer wins and a late one changes nothing. Within one, what
a holder (`by`) saves or fails is conditional on its turn, too (`turns.py`); who completes it has the data, and needs no
turn. Instants are epoch milliseconds, but `expires_at`, DynamoDB's TTL, which is epoch seconds. JSON values are text
(`item.py`). Every method raises StoreUnavailable when DynamoDB does not serve it, and ItemUnreadable where it
meets an item that is damaged; `mend` is for those.
"""

import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from shared.bounds import cut
from shared.codec import Json
from shared.errors import ItemUnreadable
from shared.logs import log
from shared.record import Record
from shared.store.item import MAX_NOTIFY, Item, Spilled, digest, open_key, open_keys, packed
from shared.store.rows import parse_row
from shared.store.spill import Spill
from shared.store.table import Superseded, Table
from shared.store.turns import Holder, held, of_job, of_news, take_over
from shared.task import Task

Ended: TypeAlias = Item | Superseded | None  # what became of an end; None where the item was not to be read back


@dataclass
class Store:
    """The items, in the table and, where they are large, in `spill`."""

    table: Table
    retention_seconds: int
    spill: Spill = field(default_factory=Spill)

    def know_time(self) -> None:
        """Make sure that the clock is the store's before a deadline is judged: a read, if no reply has told the time.

        Once in an environment's life. Raises StoreUnavailable.
        """
        self.table.know_time()

    def get(self, task: Task, now: int) -> Item | None:
        """The task's item as it stands, read consistently; None if there is none, or none since its expiry."""
        item = self.table.get(task)
        return None if item is None or item.expired(now) else item

    def get_many(self, tasks: Collection[Task], now: int) -> dict[Task, Item | None]:
        """The same of up to 100 tasks by one call, but of those that it left out, or whose items are damaged."""
        found = self.table.get_many(tasks)
        return {task: None if item is None or item.expired(now) else item for task, item in found.items()}

    def opened(self, item: Item, now: int) -> Item:
        """The item as an answer shows it: data that is in S3 is fetched, or linked to; what is compressed is read.

        Raises DataUnavailable, and ItemUnreadable of a completed item.
        """
        return self.spill.opened(item, now)

    def begin(
        self,
        task: Task,
        seen: Item | None,
        input_: Json,
        now: int,
        *,
        group: str = "",
        notify: str | None = None,
        keep_outputs: bool = False,
    ) -> Item | None:
        """Begin the next generation, pending, if the item is still the one just `seen` and not open.

        Keeps the stored data, unless it had expired. None: somebody else was first, or it was erased; look again.
        """
        sets: dict[str, Any] = {"status": "pending", "group": group, "open": open_key(task), "created_at": now}
        sets |= {"input": packed(input_, "input"), "input_digest": digest(input_), "updated_at": now}
        sets |= {"begun_by": secrets.token_hex(8)} | ({"notify": {notify}} if notify else {})
        removed = "#expires_at, #completed_at, #error, #partial, #attempt, #turn, #holder, #finished, #crashes, #news"
        removed += ", #told_at, #erased_at" + ("" if keep_outputs else ", #outputs")
        removed += "" if seen else ", #data"
        first = "#generation = if_not_exists(#generation, :created_at) + :one"
        if seen:
            unchanged = "#generation = :seen AND #updated_at = :seen_at"  # what has ended is only written to be erased
            values = {"one": 1, "seen": seen.generation, "seen_at": seen.updated_at}
        else:
            unchanged = "(attribute_not_exists(#generation) OR #expires_at <= :seconds)"
            values = {"one": 1, "seconds": now // 1000}
        expression = f"SET {first}, {assigned(sets)} REMOVE {removed}"
        condition = f"{unchanged} AND attribute_not_exists(#open)"
        written = self.table.update(task, expression, condition, sets | values, read_back=True)
        there = written.item if isinstance(written, Superseded) else written
        # botocore repeats a call whose reply was lost: then it finds its own write
        return there if there and there.begun_by == sets["begun_by"] else None

    def take_over(self, task: Task, generation: int, by: Holder, came_back: int) -> Item | Superseded:
        """Begin the turn of a task that came back, before anybody is asked: earlier holders write no more.

        The item as it is now; its `turn` is what this holder has from here on, above `by.turn` where that or a later
        one stands there already (Redis lost its last claims). `updated_at` stays, so no index is written. Superseded:
        it is no longer this generation that is open.

        The same write counts whether the turn before ended its worker: `crashes` goes up, or to none if that attempt is
        known to have ended. `came_back` is how often the task came back since the last settle after an attempt. The
        first time `crashes` is 1 whatever stands there, but stays if Redis had lost the task. Later the turn before is
        the last that was taken over: before that nobody is asked, so a claim whose reply was lost killed nobody.
        """
        return take_over(self.table, task, generation, by, came_back)

    def finished(self, task: Task, generation: int, by: Holder) -> Superseded | None:
        """Keep that the attempt of this turn ended, though Redis was not told: nobody takes it for a crash."""
        mine, in_turn = held(by, ended=True)
        return self._write(task, generation, f"SET {assigned(mine)} REMOVE #crashes", mine, in_turn)

    def save(
        self, task: Task, record: Record, now: int, *, by: Holder | None = None, resubmit: bool = False
    ) -> Superseded | None:
        """Keep what an attempt has learned of a pending generation: outputs, partial data and attempt; it has ended.

        A record without outputs leaves those that the item has, but for a `resubmit`, which removes them. Superseded,
        too, where the item counts more resubmits than the record, or as many as a `resubmit`: that job is lost, and
        the one after it must not be; and where it has `news` that the record does not know. Raises StoreTooLarge.
        """
        known = {"submitted_at": record.submitted_at, "resubmits": record.resubmits, "replied_at": now}
        attempt = {name: value for name, value in known.items() if value is not None}
        mine, in_turn = held(by, ended=True)
        sets = mine | {"updated_at": now, "attempt": attempt, "partial": packed(record.partial, "partial")}
        if record.outputs is not None:
            sets["outputs"] = packed(record.outputs, "outputs")
        removes = ["#outputs"] if resubmit and record.outputs is None else []
        removes += ["#crashes"] if by else []
        expression = f"SET {assigned(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else "")
        job, same_job = of_job(record.resubmits, is_next=resubmit)
        no_news = " AND (attribute_not_exists(#news) OR #news <= :news)"
        values = sets | job | {"news": record.news}
        return self._write(task, record.generation, expression, values, in_turn + same_job + no_news)

    def learn(
        self, task: Task, record: Record, now: int, *, seen: Record | None = None, told_at: int | None = None
    ) -> Superseded | None:
        """Keep outputs and partial data that came by themselves, unless the job is lost by now. Raises StoreTooLarge.

        A worker may be at the same task: its attempt is not touched, and what it saves without knowing of this is
        refused, as `news` counts up. `seen`: what they replace; Superseded where that is not there any more. `told_at`:
        when they were signed; Superseded where something later is known.
        """
        known = {"outputs": record.outputs, "partial": record.partial}
        told = {name: packed(value, name) for name, value in known.items() if value is not None}
        none_yet = "attribute_not_exists(#attempt) OR " if record.resubmits == 0 else ""
        same_job = f" AND ({none_yet}#attempt.#resubmits = :resubmits)"
        replaced = {name: packed(getattr(seen, name), name) for name in told} if seen else {}
        values, later = of_news(told_at, replaced)
        sets = {"updated_at": now} | told | ({} if told_at is None else {"told_at": told_at})
        values |= sets | {"resubmits": record.resubmits, "one": 1}
        return self._write(task, record.generation, f"SET {assigned(sets)} ADD #news :one", values, same_job + later)

    def notify(self, task: Task, generation: int, target: str) -> Superseded | None:
        """Add one more to be told of a pending generation's end. Superseded, too, where MAX_NOTIFY wait already."""
        values = {"target": {target}, "one": target, "most": MAX_NOTIFY}
        room = "(attribute_not_exists(#notify) OR contains(#notify, :one) OR size(#notify) < :most)"
        return self._write(task, generation, "ADD #notify :target", values, f" AND {room}")

    def complete(
        self, task: Task, generation: int, data: Json, now: int, *, resubmits: int | None = None, read_back: bool = True
    ) -> Ended:
        """Store the data, in S3 first if it is large, and end the generation. Raises StoreTooLarge: nothing changed.

        The item that is returned has the data themselves, unless an answer can only hold a link to them. `resubmits`,
        if given, is whose job gave them: Superseded where the item counts more, whose job is to be cancelled.
        """
        sets = {"status": "completed", "data": self.spill.keep(task, generation, data, now)}
        (values, further), removes = of_job(resubmits), ", #error, #partial, #outputs"
        written = self._end(task, generation, now, sets, removes, values=values, further=further, read_back=read_back)
        if isinstance(written, Item) and not (isinstance(written.data, Spilled) and written.data.needs_link):
            return replace(written, data=data)
        return written

    def fail(
        self,
        task: Task,
        generation: int,
        error: dict[str, Json],
        now: int,
        *,
        by: Holder | None = None,
        resubmits: int | None = None,
        read_back: bool = True,
    ) -> Ended:
        """End the generation without data: `error` is {reason, error, refused}; its `error` cut to its bound.

        `resubmits`, if given, is whose job has failed: where the item counts more, that says nothing of the job there.
        """
        detail = cut(error["error"], "detail")
        if detail is not error["error"]:
            log.warning("cut", extra={"provider": task.provider, "task": task.name, "generation": generation})
        (mine, in_turn), (values, same_job) = held(by), of_job(resubmits)
        sets = mine | {"status": "failed", "error": packed(error | {"error": detail}, "error")}
        return self._end(task, generation, now, sets, values=values, further=in_turn + same_job, read_back=read_back)

    def cancel(self, task: Task, generation: int, now: int) -> Ended:
        """End the generation because nobody wants it any more."""
        return self._end(task, generation, now, {"status": "cancelled"})

    def open_since(self, provider: str, before: int) -> Iterator[tuple[Task, int] | ItemUnreadable]:
        """(task, generation) of every open item of a provider that was last written before the instant `before`."""
        keys = open_keys(provider)
        turn = before // 60_000 % len(keys)  # after a run that does not reach the end, the next begins elsewhere
        for key in keys[turn:] + keys[:turn]:
            for row in self.table.open_items(key, before):
                try:
                    yield parse_row(row, provider)
                except ItemUnreadable as error:
                    yield error

    def ended(self, now: int) -> dict[str, Any]:
        """What every end writes."""
        return {"completed_at": now, "updated_at": now, "expires_at": now // 1000 + self.retention_seconds}

    def _end(
        self,
        task: Task,
        generation: int,
        now: int,
        sets: dict[str, Any],
        removes: str = "",
        *,
        values: dict[str, Any] | None = None,
        further: str = "",
        read_back: bool = True,
    ) -> Ended:
        """End a pending generation."""
        sets = self.ended(now) | sets
        expression = f"SET {assigned(sets)} REMOVE #open, #notify{removes}"
        return self.table.change(task, generation, expression, sets | (values or {}), further, read_back=read_back)

    def _write(
        self, task: Task, generation: int, expression: str, values: dict[str, Any], further: str
    ) -> Superseded | None:
        """Change a pending generation, if a further condition holds."""
        written = self.table.change(task, generation, expression, values, further, read_back=False)
        return written if isinstance(written, Superseded) else None


def assigned(sets: dict[str, Any]) -> str:
    """The assignments of an update: each attribute gets the value of its name."""
    return ", ".join(f"#{name} = :{name}" for name in sets)
