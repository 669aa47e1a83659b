"""The table in DynamoDB: what it answers as attributes, and its errors as ours.

Every method raises StoreUnavailable when DynamoDB does not serve it.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import StoreTooLarge, StoreUnavailable
from shared.task import Task

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Attributes: TypeAlias = dict[str, Any]
"""An item, or values of an expression, in DynamoDB's wire form."""


class ConditionFailed(Exception):
    """A conditional write changed nothing; `attributes` are what stands there, if anything."""

    def __init__(self, attributes: Attributes | None) -> None:
        self.attributes = attributes


class Table:
    """One item per task. One low-level client serves all threads."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    def get(self, task: Task) -> Attributes | None:
        """A task's item, read consistently; None if there is none."""
        reply = self._guarded(self._client.get_item, Key=_key(task), ConsistentRead=True)
        item: Attributes | None = reply.get("Item")
        return item

    def update(
        self, task: Task, expression: str, condition: str, values: Attributes, *, returned: Literal["ALL_NEW", "NONE"]
    ) -> Attributes | None:
        """One conditional write; the item as it is then, if asked for. In both texts `#name` is an attribute's name.

        Raises ConditionFailed, and StoreTooLarge where the item would be larger than one may be.
        """
        reply = self._guarded(
            self._client.update_item,
            Key=_key(task),
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeNames={f"#{name}": name for name in re.findall(r"#(\w+)", expression + condition)},
            ExpressionAttributeValues=values,
            ReturnValues=returned,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        item: Attributes | None = reply.get("Attributes")
        return item

    def open_items(self, key: str, before: Attributes) -> Iterator[Attributes]:
        """Keys and generation of what stands in the index `open` under `key`, written last before that."""
        start: Attributes = {}
        while True:
            page = self._guarded(
                self._client.query,
                IndexName="open",
                KeyConditionExpression="#open = :open AND updated_at < :before",
                ExpressionAttributeNames={"#open": "open"},
                ExpressionAttributeValues={":open": {"S": key}, ":before": before},
                **start,
            )
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _guarded(self, call: Callable[..., Any], **arguments: Any) -> Any:
        try:
            return call(TableName=self._name, **arguments)
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            if code == "ConditionalCheckFailedException":
                there: Any = error.response.get("Item")
                raise ConditionFailed(there) from error
            if code == "ValidationException" and "size" in message.lower():
                raise StoreTooLarge(f"DynamoDB: {message}") from error
            raise StoreUnavailable(f"DynamoDB: {code}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"DynamoDB: {type(error).__name__}: {error}") from error


def _key(task: Task) -> Attributes:
    return {"task_id": {"S": task.id}}
