"""The table in DynamoDB: what it answers as attributes, and its errors as ours, StoreUnavailable above all."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import StoreTooLarge, StoreUnavailable
from shared.task import Task

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class ConditionFailed(Exception):
    """A conditional write changed nothing; `attributes` are what stands there, if anything."""

    def __init__(self, attributes: dict[str, Any] | None) -> None:
        self.attributes = attributes


class Table:
    """One item per task, in DynamoDB's wire form. One low-level client serves all threads."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    def get(self, task: Task) -> Any:
        """A task's item, read consistently; None if there is none."""
        key = {"task_id": {"S": task.id}}
        return self._guarded(self._client.get_item, Key=key, ConsistentRead=True).get("Item")

    def update(self, task: Task, expression: str, condition: str, values: dict[str, Any], *, read_back: bool) -> Any:
        """One conditional write; `read_back`: the item as it is then.

        In both texts `#name` is an attribute's name, and `:name` one of the values. Raises ConditionFailed, and
        StoreTooLarge where the item would be larger than one may be.
        """
        reply = self._guarded(
            self._client.update_item,
            Key={"task_id": {"S": task.id}},
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeNames={f"#{name}": name for name in re.findall(r"#(\w+)", expression + condition)},
            ExpressionAttributeValues=_wired(values),
            ReturnValues="ALL_NEW" if read_back else "NONE",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return reply.get("Attributes")

    def open_items(self, key: str, before: int) -> Iterator[dict[str, Any]]:
        """Keys and generation of what stands in the index `open` under `key`, written last before that."""
        start: dict[str, Any] = {}
        while True:
            page = self._guarded(
                self._client.query,
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

    def _guarded(self, call: Callable[..., Any], **arguments: Any) -> Any:
        try:
            return call(TableName=self._name, **arguments)
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            if code == "ConditionalCheckFailedException":
                raise ConditionFailed(cast(Any, error.response).get("Item")) from error
            if code == "ValidationException" and "size" in message.lower():
                raise StoreTooLarge(f"DynamoDB: {message}") from error
            raise StoreUnavailable(f"DynamoDB: {code}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"DynamoDB: {type(error).__name__}: {error}") from error


def _wired(values: dict[str, Any]) -> dict[str, Any]:
    """An expression's values in DynamoDB's wire form."""
    return {f":{name}": TypeSerializer().serialize(value) for name, value in values.items()}
