"""What is checked before a deployment by asking: secrets, the stack as it is, Redis."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from moto import mock_aws
from redis import Redis

from local.deploy import account, redis, secrets, stack
from local.deploy.finding import Finding, Verdict
from local.servers.redis_server import free_port
from shared import aws
from shared.errors import SecretUnavailable
from tests.support.redis_servers import server_or_skip
from tests.support.tls import certified

MARKER = "s3cr3t-marker"
OK, FAULT, NOT_CHECKED = Verdict.OK, Verdict.FAULT, Verdict.NOT_CHECKED


@pytest.fixture
def mocked(environment: None) -> Iterator[None]:
    with mock_aws():
        boto3.client("ssm").put_parameter(Name="/acme/token", Value=MARKER, Type="SecureString")
        boto3.client("secretsmanager").create_secret(Name="acme", SecretString=json.dumps({"key": MARKER}))
        yield


# --- secrets


@pytest.mark.parametrize(
    ("reference", "verdict", "said"),
    [
        ("ssm:/acme/token", OK, "can be read"),
        ("secretsmanager:acme#key", OK, "can be read"),
        ("ssm:/acme/tokens", FAULT, "ParameterNotFound"),
        ("secretsmanager:acme2", FAULT, "ResourceNotFoundException"),
        ("secretsmanager:acme#kee", FAULT, "KeyError"),
        ("env:ACME", NOT_CHECKED, "a variable of the functions"),
    ],
)
def test_a_secret_is_read_as_the_functions_read_it(mocked: None, reference: str, verdict: Verdict, said: str) -> None:
    [found] = secrets.findings([reference, reference])
    assert (found.verdict, found.about) == (verdict, reference)
    assert said in found.said
    assert MARKER not in str(found)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (NoCredentialsError(), NOT_CHECKED),
        (EndpointConnectionError(endpoint_url="https://ssm.example"), NOT_CHECKED),
        (ClientError({"Error": {"Code": "AccessDeniedException", "Message": ""}}, "GetParameter"), NOT_CHECKED),
        (ClientError({"Error": {"Code": "ExpiredTokenException", "Message": ""}}, "GetParameter"), NOT_CHECKED),
        (ClientError({"Error": {"Code": "InvalidKeyId", "Message": ""}}, "GetParameter"), FAULT),
    ],
)
def test_what_comes_of_credentials_or_the_network_here_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: Verdict
) -> None:
    class Reader:  # raises as Powertools does
        def get(self, *_: object, **__: object) -> str:
            raise LookupError from error

    monkeypatch.setattr(aws, "_parameters", lambda kind: Reader())
    [found] = secrets.findings(["ssm:/acme/token"])
    assert found.verdict is verdict


def test_without_credentials_it_is_known_that_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert secrets.has_credentials()
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    assert not secrets.has_credentials()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert not secrets.has_credentials()


# --- the stack


def test_a_stack_tells_its_parameters_and_outputs_and_an_absent_one_has_none(mocked: None) -> None:
    template = {
        "Parameters": {"MaxWorkers": {"Type": "Number", "Default": 4}},
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {"RedisUrlSecret": {"Value": "arn:x"}},
    }
    given: Any = [{"ParameterKey": "MaxWorkers", "ParameterValue": "7"}]
    boto3.client("cloudformation").create_stack(
        StackName="meanwhile", TemplateBody=json.dumps(template), Parameters=given
    )
    assert stack.parameters("meanwhile") == {"MaxWorkers": "7"}
    assert stack.outputs("meanwhile") == {"RedisUrlSecret": "arn:x"}
    assert stack.parameters("other") == {}


def test_a_stack_that_cannot_be_seen_is_not_said_to_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NoCredentialsError

    monkeypatch.setattr(boto3, "client", refuse)
    assert stack.parameters("meanwhile") is None
    assert stack.arn_of("ssm:/acme/token") is None


def test_the_arn_of_a_secret_is_looked_up(mocked: None) -> None:
    assert str(stack.arn_of("ssm:/acme/token")).endswith(":parameter/acme/token")
    assert ":secret:acme-" in str(stack.arn_of("secretsmanager:acme#key"))
    assert stack.arn_of("ssm:/none") is None


# --- the account


@pytest.mark.parametrize(
    ("limit", "free", "there", "told", "verdict"),
    [
        (1000, 1000, {}, {"ProcessConcurrency": "900"}, OK),
        (1000, 1000, {}, {"ProcessConcurrency": "901"}, FAULT),
        (1000, 400, {"ProcessConcurrency": "500"}, {"ProcessConcurrency": "800"}, OK),
        (1000, 400, {"ProcessConcurrency": "500"}, {"ProcessConcurrency": "801"}, FAULT),
        (10, 10, {}, {"CallbackConcurrency": "20", "CallbackUrl": "https://a.example"}, FAULT),
        (10, 10, {}, {"EnqueueConcurrency": "1", "StatusConcurrency": "1"}, FAULT),
        (10, 10, {}, {"CallbackConcurrency": "20", "CallbackUrl": ""}, None),
        (1000, 1000, None, {"ProcessConcurrency": "8"}, NOT_CHECKED),
        (None, 0, {}, {"ProcessConcurrency": "8"}, NOT_CHECKED),
    ],
)
def test_what_is_to_be_reserved_must_be_there_beside_what_lambda_keeps(
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
    free: int,
    there: dict[str, str] | None,
    told: dict[str, str],
    verdict: Verdict | None,
) -> None:
    class Lambda:
        def get_account_settings(self) -> object:
            if limit is None:
                raise NoCredentialsError
            return {"AccountLimit": {"ConcurrentExecutions": limit, "UnreservedConcurrentExecutions": free}}

    monkeypatch.setattr(boto3, "client", lambda service, **_: Lambda())
    assert [one.verdict for one in account.findings(told, there)] == ([verdict] if verdict else [])


# --- Redis


def told(url: str, *addresses: str, plain: bool = True) -> Finding:
    return list(redis.findings(url, "meanwhile", "acme", lambda host: list(addresses), plain=plain))[-1]


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("redis://cache.example", True),
        ("rediss://cache.example?ssl_cert_reqs=none", True),
        ("rediss://cache.example", False),
    ],
)
def test_a_redis_without_verified_tls_is_a_fault_unless_it_is_allowed(url: str, is_refused: bool) -> None:
    found = told(url, "10.0.0.1", plain=False)
    assert ("AllowPlainRedis" in found.said) is (found.verdict is FAULT) is is_refused
    assert told(url, "10.0.0.1").verdict is NOT_CHECKED


@pytest.mark.parametrize(
    ("url", "addresses", "verdict", "said"),
    [
        ("http://redis.example", [], FAULT, "holds no redis[s]"),
        ("unix:///run/redis.sock", [], FAULT, "a socket of this machine"),
        ("redis://localhost:6379", ["127.0.0.1", "::1"], FAULT, "no function reaches"),
        ("rediss://cache.example:6379", ["10.1.2.3"], NOT_CHECKED, "private address"),
        ("rediss-cluster://cache.example", ["fd00::1"], NOT_CHECKED, "private address"),
        ("rediss://cache.example:6379", [], NOT_CHECKED, "not known here"),
    ],
)
def test_what_no_function_reaches_is_a_fault_and_what_only_functions_reach_is_not_asked(
    url: str, addresses: list[str], verdict: Verdict, said: str
) -> None:
    found = told(url, *addresses)
    assert found.verdict is verdict
    assert said in found.said


def test_a_host_that_nobody_knows_has_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise OSError

    assert "127.0.0.1" in redis.addresses("127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert redis.addresses("nobody.example") == []


PUBLIC = "8.8.8.8"  # what the name is said to lead to; the server is here


def test_a_server_that_does_not_answer_is_not_checked() -> None:
    found = told("redis://:pass@127.0.0.1:1/0", PUBLIC)
    assert found.verdict is NOT_CHECKED
    assert "127.0.0.1:1" in found.said
    assert "pass" not in found.said


@pytest.mark.server
@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_a_server_is_asked_as_the_functions_ask_it(loopback_only: None, kind: Any) -> None:
    with server_or_skip(kind) as server:
        assert str(told(server.url, PUBLIC)) == "ok           Redis: answers, is recent enough, and takes scripts"
        found = told(server.url.replace("redis://", "redis-cluster://"), PUBLIC)
        assert (found.verdict, "REDIS_URL must begin with redis://" in found.said) == (FAULT, True)
        with Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            assert "set maxmemory-policy to noeviction" in told(server.url, PUBLIC).said
            client.execute_command("ACL SETUSER", "few", "on", ">s3cret", "~{meanwhile:*", "+evalsha", "+eval", "+time")
        wrong = told(f"redis://few:wrong@127.0.0.1:{server.port}/0", PUBLIC)
        assert (wrong.verdict, "wrong@" in wrong.said) == (FAULT, False)
        few = told(f"redis://few:s3cret@127.0.0.1:{server.port}/0", PUBLIC)
        assert few.verdict is FAULT  # it lacks what the scripts call


@pytest.mark.server
def test_a_server_that_is_too_old_is_a_fault(loopback_only: None) -> None:
    with server_or_skip("redis", without=["ZMSCORE"]) as server:
        found = told(server.url, PUBLIC)
        assert (found.verdict, "Redis 6.2 or newer" in found.said) == (FAULT, True)


@pytest.mark.server
def test_a_certificate_of_an_unknown_authority_is_a_fault(loopback_only: None, tmp_path: Path) -> None:
    certified(tmp_path)
    with server_or_skip("redis") as server, Redis.from_url(server.url) as client:
        port = free_port()
        names = {"tls-cert-file": "certificate.pem", "tls-key-file": "key.pem", "tls-ca-cert-file": "certificate.pem"}
        paths = [word for name, file in names.items() for word in (name, str(tmp_path / file))]
        client.execute_command("CONFIG SET", *paths, "tls-auth-clients", "no", "tls-port", port)
        client.execute_command("ACL SETUSER", "all", "on", ">s3cret", "~*", "+@all")
        assert told(f"rediss://all:s3cret@127.0.0.1:{port}/0", PUBLIC).verdict is FAULT
        url = f"rediss://all:s3cret@127.0.0.1:{port}/0?ssl_ca_certs={tmp_path / 'certificate.pem'}"
        assert told(url, PUBLIC).verdict is OK


def test_a_secret_that_cannot_be_read_gives_no_url() -> None:
    def read(reference: str) -> str:
        raise SecretUnavailable(f"{reference}: ValueError")

    url, found = secrets.reading("ssm:/redis", read)
    assert (url, found.verdict) == (None, FAULT)
