"""The local Lambda service takes the one call that Meanwhile makes, as boto3 makes it."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast

import boto3
import pytest
import requests
from botocore.exceptions import ClientError

from local.aws.function import Function
from local.aws.invocations import Invocations

ARN = "arn:aws:lambda:us-east-1:123456789012:function:ProcessFunction"


class Noting:
    def __init__(self) -> None:
        self.events: list[object] = []

    def start(self, event: object) -> Future[object]:
        self.events.append(event)
        return Future()


@pytest.fixture
def function() -> Noting:
    return Noting()


@pytest.fixture
def invocations(function: Noting) -> Iterator[Invocations]:
    with Invocations({"ProcessFunction": cast("Function", function)}) as invocations:
        yield invocations


@pytest.fixture
def client(invocations: Invocations) -> Any:
    return boto3.client("lambda", endpoint_url=invocations.url, region_name="us-east-1")


@pytest.mark.parametrize("name", ["ProcessFunction", ARN])
def test_a_function_is_started_by_name_or_arn_and_not_waited_for(client: Any, function: Noting, name: str) -> None:
    reply = client.invoke(FunctionName=name, InvocationType="Event", Payload='{"a": 1}')
    assert reply["StatusCode"] == 202
    assert function.events == [{"a": 1}]


def test_what_it_does_not_know_it_refuses(client: Any, invocations: Invocations, function: Noting) -> None:
    with pytest.raises(ClientError):
        client.invoke(FunctionName="another", InvocationType="Event", Payload="{}")
    with pytest.raises(ClientError):
        client.invoke(FunctionName="ProcessFunction", InvocationType="RequestResponse", Payload="{}")
    assert requests.post(f"{invocations.url}/else", data=b"{}", timeout=10).status_code == 404
    assert function.events == []


def test_stopping_it_is_harmless_when_it_does_not_run() -> None:
    Invocations({}).stop()
