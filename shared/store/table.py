"""The table in DynamoDB: what it answers as attributes, and its errors as ours, StoreUnavailable above all."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Semaphore
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import ItemUnreadable, StoreTooLarge, StoreUnavailable, StoreUnreachable
from shared.store.clock import Clock
from shared.store.item import Item
from shared.store.rows import Attributes, parse, wired
from shared.task import Task

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


CALLS_AT_ONCE = 6  # more threads would only take the processor from each other
TURN_SECONDS = 0.1  # the longest that a call waits for its turn, should those before it take long


@dataclass(frozen=True, slots=True)
class Superseded:
    """A write that changed nothing: `item`, what is there, is of another generation or status, or knows more.

    More is a later holder, a later job, or what a callback told.
    """

    item: Item | None


@dataclass
class Table:
    """One item per task. One low-level client serves all threads. `clock`, if given, hears every reply."""

    client: "DynamoDBClient"
    name: str
    clock: Clock | None = None
    turns: Semaphore = field(default_factory=lambda: Semaphore(CALLS_AT_ONCE))

    def know_time(self) -> None:
        """See Store.know_time."""
        if self.clock and not self.clock.is_set:
            self.get(Task("", ""))

    def get(self, task: Task) -> Item | None:
        """A task's item, read consistently; None if there is none. Raises ItemUnreadable, as all that read one do."""
        return parse(self.attributes(task))

    def get_many(self, tasks: Collection[Task]) -> dict[Task, Item | None]:
        """The same of up to 100 tasks by one call, but of those that it had no room for, and of damaged items."""
        keys = [{"task_id": {"S": task.id}} for task in tasks]
        reply = self._guarded(self._batch_get_item, Keys=keys, ConsistentRead=True)
        left_out = [key["task_id"]["S"] for key in reply["UnprocessedKeys"].get(self.name, {}).get("Keys", ())]
        there = {one["task_id"]["S"]: one for one in reply["Responses"].get(self.name, ())}
        found: dict[Task, Item | None] = {}
        for task in tasks:
            if task.id not in left_out:
                with suppress(ItemUnreadable):
                    found[task] = parse(there.get(task.id))
        return found

    def attributes(self, task: Task) -> dict[str, Any]:
        """The same as it stands there, in DynamoDB's wire form; empty if there is none."""
        key = {"task_id": {"S": task.id}}
        item: dict[str, Any] = self._guarded(self.client.get_item, Key=key, ConsistentRead=True).get("Item", {})
        return item

    def update(
        self,
        task: Task,
        expression: str,
        condition: str,
        values: dict[str, Any],
        *,
        read_back: bool,
        seen: Attributes | None = None,
    ) -> Item | Superseded | None:
        """One write; Superseded if the condition does not hold, else, if it is to be `read_back`, the item as it is.

        In both texts `#name` is an attribute's name, and `:name` one of the values, or of those `seen` in an item.
        Raises StoreTooLarge where the item would be larger than one may be.
        """
        try:
            reply = self._guarded(
                self.client.update_item,
                Key={"task_id": {"S": task.id}},
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeNames={f"#{one}": one for one in re.findall(r"#(\w+)", f"{expression} {condition}")},
                ExpressionAttributeValues=_wired(values) | dict(seen or {}),
                ReturnValues="ALL_NEW" if read_back else "NONE",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except StoreUnavailable as error:
            if "ValidationException" in str(error):  # an attribute is of another type: reading the item names it
                self.get(task)
            raise
        return Superseded(parse(reply.get("Item"))) if "Error" in reply else parse(reply.get("Attributes"))

    def put(self, item: dict[str, Any], condition: str, seen: Attributes) -> dict[str, Any] | None:
        """Put an item in the place of the whole one of its task: what stood there, in DynamoDB's wire form.

        None: the condition, written as in `update`, does not hold.
        """
        reply = self._guarded(
            self.client.put_item,
            Item={name: wired(value) for name, value in item.items()},
            ConditionExpression=condition,
            ExpressionAttributeNames={f"#{one}": one for one in re.findall(r"#(\w+)", condition)},
            **({"ExpressionAttributeValues": dict(seen)} if seen else {}),
            ReturnValues="ALL_OLD",
        )
        before: dict[str, Any] = reply.get("Attributes", {})
        return None if "Error" in reply else before

    def change(
        self, task: Task, generation: int, expression: str, values: dict[str, Any], further: str, *, read_back: bool
    ) -> Item | Superseded | None:
        """`update` of a generation that is pending, if a `further` condition holds, too."""
        values = {"generation": generation, "pending": "pending", **values}
        condition = f"#generation = :generation AND #status = :pending{further}"
        return self.update(task, expression, condition, values, read_back=read_back)

    def open_items(self, key: str, before: int) -> Iterator[dict[str, Any]]:
        """Keys and generation of what stands in the index `open` under `key`, written last before that."""
        start: dict[str, Any] = {}
        while True:
            page = self._guarded(
                self.client.query,
                IndexName="open",
                KeyConditionExpression="#open = :open AND updated_at < :before",
                ExpressionAttributeNames={"#open": "open"},
                ExpressionAttributeValues=_wired({"open": key, "before": before}),
                **start,
            )
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _batch_get_item(self, TableName: str, **of_table: Any) -> Any:  # noqa: N803
        tables: Any = {TableName: of_table}
        return self.client.batch_get_item(RequestItems=tables)

    def _guarded(self, call: Callable[..., Any], **arguments: Any) -> Any:
        """The reply; of a condition that does not hold the error itself, which tells what is there."""
        is_in_turn = self.turns.acquire(timeout=TURN_SECONDS)
        sent_at = self.clock.host() if self.clock else 0
        try:
            reply = call(TableName=self.name, **arguments)
        except ClientError as error:
            self._hear(error.response, sent_at)
            code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            if code == "ConditionalCheckFailedException":
                return error.response
            if code == "ValidationException" and "size" in message.lower():
                raise StoreTooLarge(f"DynamoDB: {message}") from error
            raise StoreUnavailable(f"DynamoDB: {code}") from error
        except BotoCoreError as error:
            raise StoreUnreachable(f"DynamoDB: {type(error).__name__}: {error}") from error
        finally:
            if is_in_turn:
                self.turns.release()
        self._hear(reply, sent_at)
        return reply

    def _hear(self, reply: Any, sent_at: int) -> None:
        if self.clock:
            self.clock.hear(reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}), sent_at)


def unchanged(attributes: Attributes, names: Sequence[str]) -> tuple[str, Attributes]:
    """The condition that these attributes of an item are still as they stand there, and what must be `seen` there."""
    same = (f"#{name} = :seen_{name}" if name in attributes else f"attribute_not_exists(#{name})" for name in names)
    return " AND ".join(same), {f":seen_{name}": attributes[name] for name in names if name in attributes}


def _wired(values: dict[str, Any]) -> dict[str, Any]:
    """An expression's values in DynamoDB's wire form."""
    return {f":{name}": wired(value) for name, value in values.items()}
