"""`make preflight` as a whole: one line for each thing, and 1 for a fault alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from local.deploy import files, preflight, redis, samconfig, secrets, stack


@pytest.fixture(autouse=True)
def account(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the URL of a Redis whose address is private."""
    monkeypatch.setattr(redis.findings, "__defaults__", (lambda host: ["10.0.0.1"],))
    with mock_aws():
        url = "rediss://:s3cret@cache.example:6379"
        boto3.client("ssm").put_parameter(Name="/redis", Value=url, Type="SecureString")
        yield


def lines(config: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = preflight.main(config, config.parent / "none")
    return code, capsys.readouterr().out.splitlines()


def test_what_cannot_be_checked_from_here_stops_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samconfig.keep(config, {"RedisUrlParameter": "/redis"})
    code, said = lines(config, capsys)
    assert code == 0
    assert [line for line in said if line.startswith("ok")][-1] == "ok           ssm:/redis: can be read"
    assert "not checked  Redis: cache.example has a private address, which is not asked from here" in said
    assert "not checked  artifact: there is none: make build" in said
    assert "s3cret" not in "".join(said)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "fault        parameters: nothing says where Redis is"),
        ({"RedisUrlParameter": "/redis", "ProcessConcurrency": "1"}, "at least 8"),
        ({"RedisUrlParameter": "/redis", "EnqueueConcurrency": "x"}, "EnqueueConcurrency must be a number"),
        ({"RedisUrlParameter": "/none"}, "fault        ssm:/none: cannot be read: ParameterNotFound"),
        ({"RedisUrlParameter": "/redis", "DefaultProvider": "gone"}, "fault        provider gone: DefaultProvider"),
        ({"RedisUrlParameter": "/redis", "ParallelTasks": "x"}, "not checked  provider files: the settings are faulty"),
    ],
)
def test_a_fault_ends_the_command_with_1(
    config: Path, told: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    samconfig.keep(config, told)
    code, found = lines(config, capsys)
    assert code == 1
    assert any(said in line for line in found)


def test_a_file_that_cannot_be_read_is_a_fault(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("nonsense")
    assert lines(config, capsys)[0] == 1


def test_the_secrets_that_provider_files_name_are_read(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = {
        "servers": ["https://api.acme.example"],
        "security": [{"type": "http", "scheme": "bearer", "secret": "ssm:/acme/token"}],
        "submit": {"url": "/jobs", "repeatable": True},
        "acceptors": [{"state": "success", "expected": "done"}],
    }
    (tmp_path / "example.json").write_text(json.dumps(file))
    monkeypatch.setattr(files.sound, "__defaults__", (tmp_path,))
    monkeypatch.setattr(files.findings, "__defaults__", (tmp_path,))
    arns = {"ProviderSecretArns": "arn:aws:ssm:*:*:parameter/acme/*"}
    samconfig.keep(config, {"RedisUrlParameter": "/redis"} | arns)
    code, found = lines(config, capsys)
    assert (code, "fault        ssm:/acme/token: cannot be read: ParameterNotFound" in found) == (1, True)
    monkeypatch.setattr(secrets, "has_credentials", lambda: False)
    code, found = lines(config, capsys)
    assert code == 0
    assert "not checked  secrets: there are no AWS credentials here" in found
    assert "not checked  Redis: there are no AWS credentials here to read where it is" in found


def test_what_the_stack_keeps_is_told_and_counts(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"RedisUrl": stack.HIDDEN, "ProcessConcurrency": "1", "MaxWorkers": "4"}
    monkeypatch.setattr(stack, "parameters", {"meanwhile": kept}.get)
    code, found = lines(config, capsys)
    assert code == 1
    assert "ok           stack meanwhile: keeps ProcessConcurrency, RedisUrl, not given in samconfig.toml" in found
    assert "not checked  Redis: the stack keeps its RedisUrl, which it does not show" in found
    assert any("at least 8" in line for line in found)
