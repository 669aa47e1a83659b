"""Items as they must not be: one attribute of each is damaged, in a way of its own."""

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from shared.store.item import MAX_TEXT_BYTES
from shared.task import Task

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "meanwhile"
SECRET = "S3CRET"
"""Stands in many of them, and must never be told."""
POINTER = {
    "key": {"S": "example/x/1/data-x"}, "digest": {"S": "0" * 64}, "size": {"N": "1"}, "in_answer": {"N": "1"},
    "stored_at": {"N": "1"},
}  # fmt: skip
"""Data in S3, sound."""


def _deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def _spilled(**changes: Any) -> dict[str, Any]:
    return {"data": {"M": {name: value for name, value in (POINTER | changes).items() if value}}}


DAMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "status of another type": ("status", {"status": {"N": "1"}}),
    "status a list": ("status", {"status": {"L": [{"S": "pending"}]}}),
    "status unknown": ("status", {"status": {"S": SECRET}}),
    "status missing": ("status", {"status": None}),
    "generation a text": ("generation", {"generation": {"S": "7"}}),
    "generation a fraction": ("generation", {"generation": {"N": "1750000000000.5"}}),
    "generation negative": ("generation", {"generation": {"N": "-1"}}),
    "generation immense": ("generation", {"generation": {"N": "9" * 38}}),
    "generation in powers": ("generation", {"generation": {"N": "1E+125"}}),
    "generation a list": ("generation", {"generation": {"L": [{"N": "7"}]}}),
    "turn immense": ("turn", {"turn": {"N": "1" + "0" * 14}}),
    "generation missing": ("generation", {"generation": None}),
    "created_at a text": ("created_at", {"created_at": {"S": SECRET}}),
    "created_at after all calendars": ("created_at", {"created_at": {"N": "9" * 20}}),
    "created_at missing": ("created_at", {"created_at": None}),
    "updated_at missing": ("updated_at", {"updated_at": None}),
    "completed_at null": ("completed_at", {"completed_at": {"NULL": True}}),
    "expires_at a map": ("expires_at", {"expires_at": {"M": {}}}),
    "input_digest missing": ("input_digest", {"input_digest": None}),
    "input_digest a number": ("input_digest", {"input_digest": {"N": "1"}}),
    "input missing": ("input", {"input": None}),
    "input a native map": ("input", {"input": {"M": {"a": {"S": SECRET}}}}),
    "input null": ("input", {"input": {"NULL": True}}),
    "input no object": ("input", {"input": {"S": f'["{SECRET}"]'}}),
    "input no JSON": ("input", {"input": {"S": f"{{{SECRET}"}}),
    "outputs no object": ("outputs", {"outputs": {"S": f'"{SECRET}"'}}),
    "outputs no UTF-8": ("outputs", {"outputs": {"B": gzip.compress(b'{"\xff": 1}')}}),
    "partial too deep": ("partial", {"partial": {"S": _deep(1000)}}),
    "partial far too deep": ("partial", {"partial": {"B": gzip.compress(_deep(1_000_000).encode())}}),
    "partial not JSON": ("partial", {"partial": {"S": "NaN"}}),
    "partial a number": ("partial", {"partial": {"N": "1"}}),
    "partial no gzip": ("partial", {"partial": {"B": SECRET.encode()}}),
    "partial cut": ("partial", {"partial": {"B": gzip.compress(b"{}" * 999)[:-9]}}),
    "partial changed": ("partial", {"partial": {"B": gzip.compress(b"{}")[:-5] + b"?????"}}),
    "partial junk in gzip": ("partial", {"partial": {"B": gzip.compress(SECRET.encode())}}),
    "partial and more": ("partial", {"partial": {"B": gzip.compress(b"{}") + b"x"}}),
    "partial enormous": ("partial", {"partial": {"B": gzip.compress(b" " * MAX_TEXT_BYTES + b"{}")}}),
    "data a list": ("data", {"data": {"L": []}}),
    "data in S3, unknown key": ("data", _spilled(more={"S": SECRET})),
    "data in S3, key missing": ("data", _spilled(key=None)),
    "data in S3, no digest": ("data", _spilled(digest={"S": SECRET})),
    "data in S3, size a text": ("data", _spilled(size={"S": "1"})),
    "data in S3, nothing": ("data", {"data": {"M": {}}}),
    "group a map": ("group", {"group": {"M": {}}}),
    "begun_by a truth": ("begun_by", {"begun_by": {"BOOL": True}}),
    "notify a list": ("notify", {"notify": {"L": [{"S": f"x:{SECRET}"}]}}),
    "notify numbers": ("notify", {"notify": {"NS": ["1"]}}),
    "attempt a list": ("attempt", {"attempt": {"L": []}}),
    "attempt a text": ("attempt", {"attempt": {"S": "{}"}}),
    "attempt at no instant": ("attempt", {"attempt": {"M": {"submitted_at": {"S": SECRET}}}}),
    "attempt of no count": ("attempt", {"attempt": {"M": {"resubmits": {"N": "-1"}}}}),
    "open missing": ("open", {"open": None}),
    "open of another provider": ("open", {"open": {"S": "coin#1"}}),
    "open of no provider": ("open", {"open": {"S": SECRET}}),
    "open though ended": ("open", {"status": {"S": "cancelled"}}),
    "completed without data": ("data", {"status": {"S": "completed"}, "open": None}),
    "failed without error": ("error", {"status": {"S": "failed"}, "open": None}),
    "failed for no reason": ("error", {"status": {"S": "failed"}, "open": None, "error": {"S": f'"{SECRET}"'}}),
}
"""What is damaged -> the attribute that is named, and what stands there instead (None: nothing)."""

every_damage = pytest.mark.parametrize("damage", DAMAGES)
some_damage = pytest.mark.parametrize(
    "damage",
    ["status a list", "generation a text", "input_digest missing", "input no JSON", "outputs no object", "partial cut",
     "data in S3, unknown key", "attempt a list", "open of another provider"],
)  # fmt: skip
"""One of each kind, where that will do."""


def damaged(attributes: dict[str, Any], damage: str) -> dict[str, Any]:
    """An item's attributes, damaged."""
    changed = attributes | DAMAGES[damage][1]
    return {name: value for name, value in changed.items() if value is not None}


def damage_item(client: "DynamoDBClient", task: Task, damage: str) -> None:
    """Damage what stands in the table."""
    item: Any = client.get_item(TableName=TABLE, Key={"task_id": {"S": task.id}})["Item"]
    client.put_item(TableName=TABLE, Item=damaged(item, damage))
