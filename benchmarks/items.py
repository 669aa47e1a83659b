"""A server that stands for DynamoDB and SQS, whose calls each wait a while.

It keeps items and counts calls. Of conditions it knows no more than which generation is pending, of updates no more
than what requests make of them; all the rest is moto's.
"""

import asyncio
import hashlib
import json
import re
import sys
import zlib
from collections import Counter
from email.utils import formatdate
from typing import Any

import requests

from benchmarks.aside import Aside, serve

Json = dict[str, Any]
TARGET = re.compile(rb"\r\nx-amz-target: *\w+\.(\w+)", re.IGNORECASE)
REFUSED = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"


class Items(Aside):
    """The server. `seconds` is how long an answer takes."""

    def __init__(self, seconds: float) -> None:
        super().__init__("benchmarks.items", str(seconds))


def calls(url: str) -> Counter[str]:
    """How often each operation was called."""
    return Counter(requests.get(url, timeout=5).json())


class Kept:
    """What was written, and what was called."""

    def __init__(self) -> None:
        self.items: dict[str, Json] = {}
        self.calls: Counter[str] = Counter()

    def answer(self, operation: str, asked: Json) -> tuple[int, Json]:
        """Status and body for a call of DynamoDB or SQS, or for a look at the counts."""
        if not operation:
            return 200, dict(self.calls)
        self.calls[operation] += 1
        match operation:
            case "GetItem":
                item = self.items.get(asked["Key"]["task_id"]["S"])
                return 200, {"Item": item} if item else {}
            case "BatchGetItem":
                [(table, wanted)] = asked["RequestItems"].items()
                ids = [key["task_id"]["S"] for key in wanted["Keys"]]
                there = [self.items[task_id] for task_id in ids if task_id in self.items]
                return 200, {"Responses": {table: there}, "UnprocessedKeys": {}}
            case "UpdateItem":
                return self._update(asked)
            case "SendMessage":
                return 200, {
                    "MessageId": "1",
                    "MD5OfMessageBody": hashlib.md5(asked["MessageBody"].encode()).hexdigest(),
                }
        raise ValueError(operation)

    def _update(self, asked: Json) -> tuple[int, Json]:
        task_id, values = asked["Key"]["task_id"]["S"], asked["ExpressionAttributeValues"]
        item = self.items.get(task_id, {})
        expected = {name: values[f":{name}"] for name in ("generation", "status") if f":{name}" in values}
        expected |= {"status": values[":pending"]} if ":pending" in values else {}
        is_begun = "if_not_exists(#generation" in asked["UpdateExpression"]
        if item if is_begun else any(item.get(name) != value for name, value in expected.items()):
            return 400, {"__type": REFUSED, "message": "The conditional request failed", "Item": item}
        sets, _, removes = asked["UpdateExpression"].removeprefix("SET ").partition(" REMOVE ")
        item = {"task_id": {"S": task_id}} | item
        for name, value in re.findall(r"#(\w+) = (:\w+)", sets):
            item[name] = values[value]
        if is_begun:
            item["generation"] = {"N": str(int(values[":created_at"]["N"]) + 1)}
        for name in re.findall(r"#(\w+)", removes):
            item.pop(name, None)
        self.items[task_id] = item
        return 200, {"Attributes": item} if asked["ReturnValues"] == "ALL_NEW" else {}


async def main(seconds: float) -> None:
    """Serve."""
    kept = Kept()

    async def answer(head: bytes, body: bytes) -> bytes:
        target, asked = TARGET.search(head), json.loads(body or "{}")
        await asyncio.sleep(seconds)
        status, told = kept.answer(target[1].decode() if target else "", asked)
        text = json.dumps(told).encode()
        lines = [f"HTTP/1.1 {status} .", f"Date: {formatdate(usegmt=True)}", f"Content-Length: {len(text)}"]
        lines += ["Content-Type: application/x-amz-json-1.0", f"x-amz-crc32: {zlib.crc32(text)}", "", ""]
        return "\r\n".join(lines).encode() + text

    await serve(answer)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
