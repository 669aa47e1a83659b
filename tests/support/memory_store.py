"""The store's double: its conditional writes, without DynamoDB, and copyable. The contract's tests hold it to that."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

from shared.bounds import cut
from shared.codec import Json, dumps, loads
from shared.record import Record
from shared.store import LEAP, Ended, Holder, Item, Superseded
from shared.store.item import MAX_NOTIFY, Status, digest, open_key, open_keys, packed
from shared.task import Task
from tests.support.items import pending_item


class MemoryStore:
    """Store without DynamoDB."""

    def __init__(self, retention_seconds: int) -> None:
        self.items: dict[Task, Item] = {}
        self._retention_seconds = retention_seconds

    def copy(self) -> Self:
        twin = type(self)(self._retention_seconds)
        twin.items = dict(self.items)
        return twin

    def know_time(self) -> None: ...

    def get(self, task: Task, now: int) -> Item | None:
        item = self.items.get(task)
        return None if item is None or item.expired(now) else item

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
        input_ = _kept(input_, "input")
        item = self.items.get(task)
        if seen:
            unchanged = item is not None and (item.generation, item.updated_at) == (seen.generation, seen.updated_at)
        else:
            unchanged = item is None or item.expired(now)
        if not unchanged or (item is not None and item.status == "pending"):
            return None
        self.items[task] = pending_item(
            task, now, generation=(item.generation if item else now) + 1, input_digest=digest(input_), group=group,
            input=input_, outputs=item.outputs if item and keep_outputs else None,
            data=item.data if item and seen else None, notify=frozenset([notify] if notify else []),
        )  # fmt: skip
        return self.items[task]

    def take_over(self, task: Task, generation: int, by: Holder, came_back: int) -> Item | Superseded:
        item = self.items.get(task)
        if item is None or not item.is_pending(generation):
            return Superseded(item)
        if item.holder == by.holder and item.turn >= by.turn:
            return item
        turn = max(by.turn, item.turn + 1) if item.holder else by.turn
        is_first, crashes = came_back <= 1, 0
        if turn > 1 and item.finished != (turn - 1 if is_first else item.turn):
            first = item.crashes if turn - item.turn > LEAP else 1
            crashes = first if is_first else item.crashes + bool(item.holder)
        self.items[task] = dataclasses.replace(item, turn=turn, holder=by.holder, crashes=crashes)
        return self.items[task]

    def finished(self, task: Task, generation: int, by: Holder) -> Superseded | None:
        return self._write(task, generation, by, **_ended(by))

    def save(
        self, task: Task, record: Record, now: int, *, by: Holder | None = None, resubmit: bool = False
    ) -> Superseded | None:
        changes: dict[str, Any] = {"partial": _kept(record.partial, "partial")}
        if record.outputs is not None or resubmit:
            changes["outputs"] = None if record.outputs is None else _kept(record.outputs, "outputs")
        item = self.items.get(task)
        if item is not None and (item.resubmits >= record.resubmits + (not resubmit) or item.news > record.news):
            return Superseded(item)
        return self._write(
            task, record.generation, by, updated_at=now, submitted_at=record.submitted_at, resubmits=record.resubmits,
            replied_at=now, **changes, **_ended(by),
        )  # fmt: skip

    def learn(
        self, task: Task, record: Record, now: int, *, seen: Record | None = None, told_at: int | None = None
    ) -> Superseded | None:
        known = {"outputs": record.outputs, "partial": record.partial}
        changes = {name: _kept(value, name) for name, value in known.items() if value is not None}
        item = self.items.get(task)
        if item is None or item.resubmits != record.resubmits:
            return Superseded(item)
        if told_at is not None and not item.is_news(told_at):
            return Superseded(item)
        if seen and any(getattr(item, name) != getattr(seen, name) for name in changes):
            return Superseded(item)
        if told_at is not None:
            changes["told_at"] = told_at
        return self._write(task, record.generation, updated_at=now, news=item.news + 1, **changes)

    def notify(self, task: Task, generation: int, target: str) -> Superseded | None:
        item = self.items.get(task)
        known = item.notify if item else frozenset()
        if target not in known and len(known) >= MAX_NOTIFY:
            return Superseded(item)
        return self._write(task, generation, notify=known | {target})

    def complete(
        self, task: Task, generation: int, data: Json, now: int, *, resubmits: int | None = None, read_back: bool = True
    ) -> Ended:
        data, item = _kept(data, "data"), self.items.get(task)
        if item is not None and resubmits is not None and item.resubmits > resubmits:
            return Superseded(item)
        return self._end(
            task, generation, "completed", now, read_back=read_back, data=data, error=None, partial=None, outputs=None
        )

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
        error = _kept(error | {"error": cut(error["error"], "detail")}, "error")
        item = self.items.get(task)
        if item is not None and resubmits is not None and item.resubmits > resubmits:
            return Superseded(item)
        return self._end(task, generation, "failed", now, by, read_back=read_back, error=error)

    def cancel(self, task: Task, generation: int, now: int) -> Ended:
        return self._end(task, generation, "cancelled", now, read_back=True)

    def open_since(self, provider: str, before: int) -> Iterator[tuple[Task, int]]:
        shards = open_keys(provider)
        found = [item for item in self.items.values() if item.status == "pending" and open_key(item.task) in shards]
        for item in sorted(found, key=lambda item: (shards.index(open_key(item.task)), item.updated_at)):
            if item.updated_at < before:
                yield item.task, item.generation

    def _end(
        self,
        task: Task,
        generation: int,
        status: Status,
        now: int,
        by: Holder | None = None,
        *,
        read_back: bool,
        **changes: Any,
    ) -> Ended:
        ended = {"status": status, "completed_at": now, "updated_at": now, "notify": frozenset[str]()}
        expires_at = now // 1000 + self._retention_seconds
        superseded = self._write(task, generation, by, **ended, expires_at=expires_at, **changes)
        return superseded or (self.items[task] if read_back else None)

    def _write(self, task: Task, generation: int, by: Holder | None = None, **changes: Any) -> Superseded | None:
        item = self.items.get(task)
        if item is None or item.generation != generation or item.status != "pending":
            return Superseded(item)
        if by is not None:
            if item.holder and (item.turn > by.turn or (item.turn == by.turn and item.holder != by.holder)):
                return Superseded(item)
            changes |= {"turn": by.turn, "holder": by.holder}
        self.items[task] = dataclasses.replace(item, **changes)
        return None


def _ended(by: Holder | None) -> dict[str, Any]:
    """What a holder's write after its attempt says of crashes."""
    return {} if by is None else {"finished": by.turn, "crashes": 0}


def _kept(value: Json, name: str) -> Json:
    """The value as it comes back. Raises StoreTooLarge as the real one does."""
    packed(value, name)
    return loads(dumps(value), max_depth=1000)
