"""The queue of wake-ups and its mapping: starts process with what SQS delivers, each message once its delay is over."""

import threading
from contextlib import closing
from typing import Any, Self

from local.aws.function import Function
from local.servers.dynamodb import DynamoDB

SECONDS = 0.2
"""How often the queue is looked at."""


class Wakes:
    """Delivers until it is stopped; a context manager. The server of DynamoDB has SQS, too."""

    def __init__(self, dynamodb: DynamoDB, process: Function) -> None:
        self._dynamodb = dynamodb
        self._process = process
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with closing(self._dynamodb.sqs()) as client:
            while not self._stopped.wait(SECONDS):
                found = client.receive_message(QueueUrl=self._dynamodb.wake_queue_url, MaxNumberOfMessages=10)
                messages = found.get("Messages", [])
                if messages:
                    self._process.start({"Records": [_as_lambda_has_it(one) for one in messages]})
                for one in messages:
                    client.delete_message(QueueUrl=self._dynamodb.wake_queue_url, ReceiptHandle=one["ReceiptHandle"])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


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
