"""The local queue of wake-ups: what fails comes again, and no more run at once than the template's mapping lets."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast

import boto3
import pytest
from moto import mock_aws

from local import sam_template
from local.aws.function import Function
from local.aws.wakes import Wakes
from local.servers.dynamodb import DynamoDB
from local.waiting import wait_until

MOST = 4


class Queue:
    """SQS alone, in this process; what is in hand there for long comes again at once."""

    def __init__(self) -> None:
        attributes = sam_template.wake_queue() | {"VisibilityTimeout": "0"}
        self.wake_queue_url = self.sqs().create_queue(QueueName="wakes", Attributes=attributes)["QueueUrl"]

    def sqs(self) -> Any:
        return boto3.client("sqs", region_name="eu-central-1")

    def put(self, body: str) -> None:
        self.sqs().send_message(QueueUrl=self.wake_queue_url, MessageBody=body)

    @property
    def size(self) -> int:
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs().get_queue_attributes(QueueUrl=self.wake_queue_url, AttributeNames=wanted)["Attributes"]
        return sum(map(int, found.values()))


class Process:
    """A function whose runs end as the test says."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.runs: list[Future[Any]] = []

    def start(self, event: Any) -> "Future[Any]":
        self.events.append(event)
        self.runs.append(Future())
        return self.runs[-1]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    with mock_aws():
        yield Queue()


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def wakes(queue: Queue, process: Process) -> Iterator[Wakes]:
    with Wakes(cast(DynamoDB, queue), cast(Function, process)) as running:
        yield running


@pytest.mark.usefixtures("wakes")
def test_a_message_comes_as_lambda_has_it_and_goes_with_a_run_that_succeeds(queue: Queue, process: Process) -> None:
    queue.put("example")
    wait_until(lambda: process.events, 30, "the wake-up")
    (record,) = process.events[0]["Records"]
    assert (record["body"], record["eventSource"]) == ("example", "aws:sqs")
    assert queue.size == 1
    process.runs[0].set_result({})
    wait_until(lambda: queue.size == 0, 30, "its end")


@pytest.mark.usefixtures("wakes")
def test_a_message_of_a_run_that_failed_comes_again(queue: Queue, process: Process) -> None:
    queue.put("example")
    wait_until(lambda: process.events, 30, "the wake-up")
    process.runs[0].set_exception(RuntimeError("killed"))
    wait_until(lambda: len(process.events) > 1, 30, "the wake-up, again")
    assert [event["Records"][0]["body"] for event in process.events[:2]] == ["example"] * 2


@pytest.mark.usefixtures("wakes")
def test_no_more_runs_are_there_at_once_than_the_mapping_lets(queue: Queue, process: Process) -> None:
    queue.put("example")  # which comes again and again, as long as its runs have not ended
    wait_until(lambda: len(process.events) == MOST, 30, "as many runs as there may be")
    assert sam_template.wake_mapping() == (10, MOST)
    with pytest.raises(TimeoutError):
        wait_until(lambda: len(process.events) > MOST, 1, "one more")
    process.runs[0].set_exception(RuntimeError("killed"))
    wait_until(lambda: len(process.events) > MOST, 30, "the next run")


def test_the_local_queue_is_as_the_templates() -> None:
    assert sam_template.wake_queue() == {"VisibilityTimeout": "90", "MessageRetentionPeriod": "300"}
