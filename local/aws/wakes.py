"""The queue of wake-ups and its mapping: starts process with what SQS delivers, each message once its delay is over.

As with Lambda's mapping, so many runs at once and no more; a message goes once its run has succeeded, and comes again
after the queue's visibility timeout if that failed.
"""

from concurrent.futures import Future
from contextlib import closing
from typing import Any

from typing_extensions import override

from local import sam_template
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
        self._runs: dict[Future[Any], list[Any]] = {}  # with the messages of each

    @override
    def _run(self) -> None:
        batch, most = sam_template.wake_mapping()
        queue = {"QueueUrl": self._dynamodb.wake_queue_url}
        with closing(self._dynamodb.sqs()) as client:
            while not self._stopped.wait(SECONDS):
                for run in [run for run in self._runs if run.done()]:
                    messages = self._runs.pop(run)
                    for one in messages if run.exception() is None else ():
                        client.delete_message(**queue, ReceiptHandle=one["ReceiptHandle"])
                if len(self._runs) == most:
                    continue
                if messages := client.receive_message(**queue, MaxNumberOfMessages=batch).get("Messages"):
                    run = self._process.start({"Records": [_as_lambda_has_it(one) for one in messages]})
                    self._runs[run] = messages


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
