"""Secrets by reference: read, kept for a while, and never quoted."""

import json
import traceback
from collections.abc import Iterator

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from shared import aws
from shared.errors import SecretUnavailable

MARKER = "s3cr3t-marker"


@pytest.fixture
def mocked(environment: None) -> Iterator[None]:
    with mock_aws():
        yield


def test_what_is_wrong_with_a_call_is_left_to_the_service(mocked: None) -> None:
    with pytest.raises(ClientError):  # else it would be ParamValidationError
        aws.client("dynamodb").get_item(TableName="", Key={"task_id": {"S": "a"}})


def test_secrets_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THIRD_PARTY", MARKER)
    assert aws.secret("env:THIRD_PARTY") == MARKER


def test_secrets_are_read_from_parameters_and_kept_until_a_fresh_one_is_asked_for(mocked: None) -> None:
    ssm = boto3.client("ssm")
    ssm.put_parameter(Name="/third/party", Value="old", Type="SecureString")
    assert aws.secret("ssm:/third/party") == "old"
    ssm.put_parameter(Name="/third/party", Value="new", Type="SecureString", Overwrite=True)
    assert aws.secret("ssm:/third/party") == "old"
    assert aws.secret("ssm:/third/party", fresh=True) == "new"
    assert aws.secret("ssm:/third/party") == "new"


def test_secrets_are_read_from_the_secrets_manager_whole_or_by_key(mocked: None) -> None:
    manager = boto3.client("secretsmanager")
    arn = manager.create_secret(Name="plain", SecretString="old")["ARN"]
    manager.create_secret(Name="several", SecretString=json.dumps({"key": MARKER, "object": {"a": 1}}))
    manager.create_secret(Name="binary", SecretBinary=b"bytes")
    assert aws.secret("secretsmanager:plain") == "old"
    assert aws.secret(f"secretsmanager:{arn}") == "old"
    assert aws.secret("secretsmanager:several#key") == MARKER
    assert aws.secret("secretsmanager:several") == json.dumps({"key": MARKER, "object": {"a": 1}})
    assert aws.secret("secretsmanager:binary") == "bytes"
    manager.put_secret_value(SecretId="plain", SecretString="new")
    assert aws.secret("secretsmanager:plain") == "old"
    assert aws.secret("secretsmanager:plain", fresh=True) == "new"


NOWHERE = ("nowhere", "several#nowhere", "several#object", "plain#key", "number#key")


@pytest.mark.parametrize("reference", ["env:NOWHERE", "ssm:/nowhere", *(f"secretsmanager:{name}" for name in NOWHERE)])
def test_a_secret_that_is_not_there_is_named_but_never_quoted(
    mocked: None, reference: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager = boto3.client("secretsmanager")
    manager.create_secret(Name="plain", SecretString=MARKER)
    manager.create_secret(Name="number", SecretString="5")
    manager.create_secret(Name="several", SecretString=json.dumps({"key": MARKER, "object": {"a": MARKER}}))
    with pytest.raises(SecretUnavailable, match=reference) as caught:
        aws.secret(reference)
    assert MARKER not in "".join(traceback.format_exception(caught.value))
    [line] = [vars(one) for one in caplog.records if one.name == "meanwhile"]
    assert (line["message"], line["reference"]) == ("secret unavailable", reference)
    assert MARKER not in caplog.text + str(line)


def test_an_error_that_quotes_the_secret_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Reader:
        def get(self, *_: object, **__: object) -> str:
            raise ValueError(f"{MARKER} is no JSON")

    monkeypatch.setattr(aws, "_parameters", lambda kind: Reader())
    with pytest.raises(SecretUnavailable) as caught:
        aws.secret("secretsmanager:a#b")
    assert MARKER not in "".join(traceback.format_exception(caught.value)) + caplog.text


def test_reading_a_secret_takes_seconds_at_most() -> None:
    for kind in ("ssm", "secretsmanager"):
        config = aws._parameters(kind).client.meta.config
        assert config.connect_timeout + config.read_timeout < 2
        assert config.retries["total_max_attempts"] == 2
