"""The table's stream behind the template's filters: logs the events of the pipe, and invokes notify."""

import base64
from collections.abc import Iterator
from contextlib import closing
from typing import Any, TextIO

from typing_extensions import override

from local import sam_template
from local.aws.function import Function
from local.aws.sandbox import note
from local.running import Background
from local.servers.dynamodb import TABLE_NAME, DynamoDB

SECONDS = 0.5
"""How often the stream is read."""


class Stream(Background):
    """Reads until it is stopped; a context manager. `notify` is invoked with what its filter would let through."""

    def __init__(self, dynamodb: DynamoDB, notify: Function, log: TextIO) -> None:
        super().__init__()
        self._dynamodb = dynamodb
        self._notify = notify
        self._log = log

    @override
    def _run(self) -> None:
        published, notified = sam_template.stream_patterns()
        for record in self._records():
            if passes(published, record):
                new = record["dynamodb"]["NewImage"]
                event = " ".join(_text(new[name]) for name in ("task_id", "status", "generation"))
                note(self._log, f"EventBridge: Task ended: {event}")
            if passes(notified, record):
                self._notify.start({"Records": [_as_lambda_has_it(record)]})

    def _records(self) -> Iterator[Any]:
        """What has changed in the table since it was created, and what changes later."""
        with closing(self._dynamodb.streams()) as client:
            yield from self._read(client)

    def _read(self, client: Any) -> Iterator[Any]:
        arn = self._dynamodb.client().describe_table(TableName=TABLE_NAME)["Table"]["LatestStreamArn"]
        shard = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
        position = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**position)["ShardIterator"]
        while not self._stopped.wait(SECONDS):
            page = client.get_records(ShardIterator=iterator)
            iterator = page["NextShardIterator"]
            yield from page["Records"]


def passes(pattern: Any, event: Any) -> bool:
    """Whether an EventBridge pattern lets an event through. It knows only what the template's filters use."""
    for key, wanted in pattern.items():
        found = event.get(key) if isinstance(event, dict) else None
        if isinstance(wanted, dict):
            if not passes(wanted, found or {}):
                return False
        elif not any((found is not None) == one["exists"] if isinstance(one, dict) else found == one for one in wanted):
            return False
    return True


def _text(attribute: dict[str, str]) -> str:
    return next(iter(attribute.values()))


def _as_lambda_has_it(value: Any) -> Any:
    """A record as JSON: bytes are base64, instants seconds."""
    match value:
        case dict():
            return {name: _as_lambda_has_it(one) for name, one in value.items()}
        case list():
            return [_as_lambda_has_it(one) for one in value]
        case bytes():
            return base64.b64encode(value).decode()
        case str() | int() | float() | bool() | None:
            return value
    return value.timestamp()
