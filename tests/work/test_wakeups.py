"""Wake-ups: a message for SQS, or none, and the providers that messages name."""

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError
from moto import mock_aws

from shared import aws, wiring
from shared.work.wakeups import WakeUps, woken
from tests.support.clock import Clock

URL = "https://sqs/queue"
KNOWN = {"example", "coin"}
TROUBLES = [
    ConnectTimeoutError(endpoint_url=URL),
    ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SendMessage"),
]


class Client:
    """What a client of SQS is told; it answers with an error if it has one."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, int]] = []
        self.trouble: Exception | None = None

    def send_message(self, *, QueueUrl: str, MessageBody: str, DelaySeconds: int) -> None:  # noqa: N803
        self.sent.append((QueueUrl, MessageBody, DelaySeconds))
        if self.trouble:
            raise self.trouble


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def wake_ups(client: Client, clock: Clock) -> WakeUps:
    return WakeUps(URL, lambda: client, clock.monotonic)


@pytest.mark.parametrize(("seconds", "delay"), [(0, 0), (0.001, 1), (2, 2), (2.2, 3), (10_000, 900)])
def test_it_is_delayed_by_whole_seconds_rounded_up(
    wake_ups: WakeUps, client: Client, seconds: float, delay: int
) -> None:
    wake_ups.send("example", seconds)
    assert client.sent == [(URL, "example", delay)]


@pytest.mark.parametrize("trouble", TROUBLES, ids=["unreachable", "refused"])
def test_after_a_failure_none_is_sent_for_a_minute(
    wake_ups: WakeUps, client: Client, clock: Clock, trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    client.trouble = trouble
    wake_ups.send("example", 1)
    client.trouble = None
    clock.advance(59)
    wake_ups.send("example", 1)
    assert len(client.sent) == 1
    assert [record.getMessage() for record in caplog.records] == ["not woken"]
    clock.advance(1)
    assert (wake_ups.is_open, wake_ups.works) == (True, False)  # it may be tried; nobody counts on it
    wake_ups.send("example", 1)
    assert (len(client.sent), wake_ups.works) == (2, True)


def test_the_client_is_made_with_the_first(clock: Clock, client: Client) -> None:
    made: list[Client] = []

    def make() -> Client:
        made.append(client)
        return client

    wake_ups = WakeUps(URL, make, clock.monotonic)
    assert made == []
    wake_ups.send("example", 1)
    wake_ups.send("example", 1)
    assert len(made) == 1


def test_to_make_the_client_may_take_long(clock: Clock, client: Client) -> None:
    def make() -> Client:
        clock.advance(0.6)
        return client

    wake_ups = WakeUps(URL, make, clock.monotonic)
    wake_ups.send("example", 1)
    assert wake_ups.is_open


def message(body: Any) -> dict[str, Any]:
    return {"messageId": "1", "eventSource": "aws:sqs", "body": body}


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([message("example"), message("coin"), message("example")], {"example", "coin"}),
        ([message("example"), message("unknown"), message(""), message('{"provider": "coin"}')], {"example"}),
        ([message(None), message(["example"]), {}, "example", None], set()),
        ([], set()),
    ],
)
def test_messages_name_providers_and_a_bad_one_none(records: list[Any], named: set[str]) -> None:
    assert woken({"Records": records}, KNOWN) == named


@pytest.mark.parametrize("event", [None, {}, [], 7, "text", {"source": "aws.events"}, {"Records": "example"}])
def test_any_other_event_names_none_and_means_all(event: Any) -> None:
    assert woken(event, KNOWN) is None


def test_a_message_arrives_at_sqs(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_aws():
        sqs = boto3.client("sqs", region_name="us-east-1")
        url = sqs.create_queue(QueueName="wake")["QueueUrl"]
        monkeypatch.setenv("WAKE_QUEUE_URL", url)
        wake_ups = wiring.wake_ups()
        assert wake_ups
        wake_ups.send("example", 0)
        assert [one["Body"] for one in sqs.receive_message(QueueUrl=url)["Messages"]] == ["example"]


def test_a_sending_is_tried_once_and_waits_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKE_QUEUE_URL", URL)
    config = aws.client("sqs", tries=1).meta.config
    assert (config.connect_timeout, config.read_timeout, config.retries["total_max_attempts"]) == (0.9, 0.9, 1)


def test_without_a_queue_for_them_none_is_sent() -> None:
    assert wiring.wake_ups() is None
    assert wiring.queue()._wake is None


def test_with_one_the_queue_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKE_QUEUE_URL", URL)
    wake_ups = wiring.wake_ups()
    assert wake_ups
    assert wiring.queue()._wake is wake_ups


def test_one_that_took_long_is_the_last_for_a_minute(wake_ups: WakeUps, client: Client, clock: Clock) -> None:
    """A run may have one to send for each of many providers."""
    send = client.send_message

    def slow(**message: Any) -> None:
        send(**message)
        clock.advance(0.6)

    client.send_message = slow  # type: ignore[method-assign]
    wake_ups.send("example", 1)
    wake_ups.send("coin", 1)
    assert len(client.sent) == 1


def test_a_client_that_cannot_be_made_is_no_trouble_of_who_sends(clock: Clock) -> None:
    def broken() -> Any:
        raise ValueError("Invalid endpoint")

    WakeUps(URL, broken, clock.monotonic).send("example", 1)
