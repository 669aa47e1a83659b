"""How the parts are put together: one maker per part, each called once per environment; none connects."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from botocore.config import Config
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.retry import Retry

from shared.cancel import Canceller
from shared.credentials import Credentials
from shared.enqueue import Enqueuer
from shared.errors import ProviderFileError, SecretUnavailable, SettingsError
from shared.provider import Provider
from shared.queue import Queue
from shared.reconcile import Reconciler
from shared.revive import Reviver
from shared.rules import Rules
from shared.settings import Settings, is_redis_url
from shared.store import Store
from shared.task import is_provider_name
from shared.tick import Clockwork, Ticker
from shared.transport import Transport
from shared.view import Viewer
from shared.worker import Worker

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

SHIPPED = Path(__file__).parent / "providers"
SECRET_SECONDS = 300
"""How long a secret is kept before it is read again."""


def clock() -> int:
    """Now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@cache
def settings() -> Settings:
    """The settings in the environment. Raises SettingsError naming every faulty variable."""
    return Settings.from_environment(os.environ)


@cache
def logger() -> Logger:
    """The logger of this package: JSON lines, no payloads."""
    return Logger(service="meanwhile")


@cache
def metrics() -> Metrics:
    """The metrics of this package, one namespace."""
    return Metrics(namespace="Meanwhile", service="meanwhile")


@cache
def queue() -> Queue:
    """The queue in Redis: at most one retry, so that no reply is waited for twice, over a connection made anew.

    It is for one that is broken, or leads to what has become a replica: that refused the first write, so none happened.
    """
    client = Redis.from_url(
        _redis_url(settings().redis_url),
        decode_responses=True,
        encoding_errors="replace",
        socket_connect_timeout=1,
        socket_timeout=2,
        retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError, ReadOnlyError)),
    )
    return Queue(client, settings().queue_prefix)


@cache
def dynamodb() -> "DynamoDBClient":
    """The DynamoDB client, made before threads start. An answer or an error comes within 3 seconds."""
    return boto3.client("dynamodb", config=_prompt(max_pool_connections=settings().parallel_tasks + 2))


@cache
def store() -> Store:
    """The items in DynamoDB."""
    return Store(dynamodb(), settings().table_name, settings().retention_seconds)


@cache
def providers() -> dict[str, Provider]:
    """Every provider whose file is sound, by name; a faulty file is reported and stops only its own provider."""
    transport = Transport(settings().parallel_tasks)
    found = {}
    for name, path in sorted(_provider_files().items()):
        try:
            rules = Rules.load(path, settings().provider_servers.get(name))
            found[name] = Provider(
                rules, transport, Credentials(rules.security, secret, transport), random.SystemRandom()
            )
        except ProviderFileError as error:
            logger().error("provider file faulty", extra={"reason": str(error)})
    for variable, names in (
        ("DEFAULT_PROVIDER", {settings().default_provider}),
        ("PROVIDER_SERVERS", settings().provider_servers.keys()),
    ):
        for name in sorted(names - found.keys()):
            logger().error(
                "setting faulty", extra={"reason": f"{variable} names {name}, of which there is no sound file"}
            )
    return found


@cache
def worker() -> Worker:
    """The worker."""
    return Worker(
        store(), providers(), clock, max_crashes=settings().max_crashes, confirm_seconds=settings().confirm_seconds
    )


@cache
def viewer() -> Viewer:
    """The status view."""
    return Viewer(store(), queue(), clock)


@cache
def enqueuer() -> Enqueuer:
    """enqueue."""
    return Enqueuer(
        store=store(),
        queue=queue(),
        worker=worker(),
        viewer=viewer(),
        providers=providers(),
        settings=settings(),
        clock=clock,
    )


@cache
def canceller() -> Canceller:
    """cancel."""
    return Canceller(store=store(), queue=queue(), providers=providers(), clock=clock)


@cache
def reviver() -> Reviver:
    """revive."""
    return Reviver(store=store(), queue=queue(), providers=providers(), clock=clock)


@cache
def ticker() -> Ticker:
    """process."""
    clockwork = Clockwork(time.monotonic, time.sleep, ThreadPoolExecutor)
    return Ticker(queue(), worker(), providers(), settings(), clockwork)


@cache
def reconciler() -> Reconciler:
    """reconcile."""
    return Reconciler(store(), queue(), providers(), settings().lease_seconds, clock, random.SystemRandom())


def secret(reference: str, *, fresh: bool = False) -> str:
    """The value that `ssm:/path`, `secretsmanager:id`, `secretsmanager:id#key` or `env:NAME` names.

    Kept for SECRET_SECONDS unless `fresh`. Raises SecretUnavailable, which names the reference and never the value.
    """
    kind, _, name = reference.partition(":")
    try:
        if kind == "env":
            return os.environ[name]
        name, _, key = name.partition("#") if kind == "secretsmanager" else (name, "", "")
        options: dict[str, Any] = {"decrypt": True} if kind == "ssm" else {"transform": "json"} if key else {}
        value = _parameters(kind).get(name, max_age=SECRET_SECONDS, force_fetch=fresh, **options)
        return _text(value[key] if key else value)
    except Exception as error:  # noqa: BLE001 (it becomes ours)
        cause = type(error.__context__ or error).__name__
        logger().warning("secret unavailable", extra={"reference": reference, "reason": cause})
        raise SecretUnavailable(f"{reference}: {cause}") from None  # theirs may quote the value


@cache
def _parameters(kind: str) -> Any:
    """Powertools' reader of SSM or Secrets Manager. An answer or an error comes within 4 seconds.

    A read is not cut by the attempt's deadline: begun just before it, two still fit into the 10 seconds that a lease
    outlasts an attempt, and the first that fails ends the attempt.
    """
    from aws_lambda_powertools.utilities import parameters  # noqa: PLC0415 (not every start needs it)

    reader = {"ssm": parameters.SSMProvider, "secretsmanager": parameters.SecretsProvider}[kind]
    return reader(boto_config=_prompt())


def _prompt(**options: Any) -> Config:
    """What keeps a call to AWS short: two tries of 0.9 seconds, at most a second between them."""
    return Config(
        connect_timeout=0.9, read_timeout=0.9, retries={"total_max_attempts": 2, "mode": "standard"}, **options
    )


def _text(value: Any) -> str:
    """A secret as text; a text of JSON is one, an object within it is none."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    raise TypeError("no text")


def _redis_url(setting: str) -> str:
    """The URL that the setting is, or that the parameter or secret it names holds."""
    url = secret(setting) if setting.startswith(("ssm:", "secretsmanager:")) else setting
    if not is_redis_url(url):
        raise SettingsError(f"REDIS_URL: {setting} holds no redis:// or rediss:// URL")
    return url


def _provider_files() -> dict[str, Path]:
    directories = [SHIPPED, *([Path(settings().providers_dir)] if settings().providers_dir else [])]
    files = [path for directory in directories for path in directory.glob("*.json")]
    for path in files:
        if not is_provider_name(path.stem):
            logger().error("provider file faulty", extra={"reason": f"{path.name} is no provider name"})
    return {path.stem: path for path in files if is_provider_name(path.stem)}
