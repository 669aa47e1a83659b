"""The queue of wake-ups and its mapping: starts process with what SQS delivers, each message once its delay is over."""

from contextlib import closing
from typing import Any

from typing_extensions import override

from local.aws.function import Function
from local.running import Background
from local.servers.dynamodb import DynamoDB

SECONDS = 0.2
"""How often the queue is looked at."""


class Wakes(Background):
    """Delivers until it is stopped; a context manager. The server of DynamoDB has SQS, too."""

    def __init__(self, dynamodb: DynamoDB, process: Function) -> None:
        super().__init__()
        self._dynamodb = dynamodb
        self._process = process

    @override
    def _run(self) -> None:
        with closing(self._dynamodb.sqs()) as client:
            while not self._stopped.wait(SECONDS):
                found = client.receive_message(QueueUrl=self._dynamodb.wake_queue_url, MaxNumberOfMessages=10)
                messages = found.get("Messages", [])
                if messages:
                    self._process.start({"Records": [_as_lambda_has_it(one) for one in messages]})
                for one in messages:
                    client.delete_message(QueueUrl=self._dynamodb.wake_queue_url, ReceiptHandle=one["ReceiptHandle"])


def _as_lambda_has_it(message: Any) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": {},
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
    }
