"""How the parts are put together: one maker per part, each called once per environment; none connects.

A maker imports what it makes, so that each function loads no more than it needs. Its handler imports the same at its
top, so that this happens while the environment starts.
"""

import os
import random
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from shared import aws
from shared.errors import ProviderFileError, SettingsError
from shared.settings import MAX_BATCH, Settings, has_verified_tls, is_redis_url
from shared.task import is_provider_name

if TYPE_CHECKING:
    from shared.api.callback import Receiver
    from shared.api.enqueue import Enqueuer
    from shared.api.wait import Waiter
    from shared.provider import Provider
    from shared.provider.callback_url import CallbackUrls
    from shared.provider.language.rules import Rules
    from shared.queue import Queue
    from shared.store import Clock, Store
    from shared.store.spill import Spill
    from shared.work.notify import Notifier
    from shared.work.parts import Parts
    from shared.work.reconcile import Reconciler
    from shared.work.tick import Invite, Tick
    from shared.work.wakeups import WakeUps
    from shared.work.worker import Worker

SHIPPED = Path(__file__).parent / "providers"


def clock() -> int:
    """Now by the store's clock, in epoch milliseconds; by this machine's until DynamoDB has replied."""
    return store_clock()()


@cache
def store_clock() -> "Clock":
    """What corrects this machine's clock by the store's replies."""
    from shared.store import Clock

    return Clock()


@cache
def settings() -> Settings:
    """The settings in the environment. Raises SettingsError naming every faulty variable."""
    return Settings.from_environment(os.environ)


@cache
def logger() -> Logger:
    """The logger of this package: JSON lines, no payloads."""
    return Logger(service="meanwhile")


@cache
def queue() -> "Queue":
    """The queue in Redis, wherever the setting, or what it refers to, says that is."""
    from shared.queue import Queue
    from shared.queue.client import client_of

    url = setting = settings().redis_url
    if setting.startswith(("ssm:", "secretsmanager:")):
        url = aws.secret(setting)
    if not is_redis_url(url):
        raise SettingsError(f"REDIS_URL: {setting} holds no redis[s]:// or redis[s]-cluster:// URL")
    if settings().redis_tls and not has_verified_tls(url):
        raise SettingsError("REDIS_URL must lead to a Redis over TLS, its certificate checked (rediss://, REDIS_TLS)")
    return Queue(client_of(url), settings().queue_prefix, wake_ups())


@cache
def wake_ups() -> "WakeUps | None":
    """What starts a run when something falls due, where there is a queue for it."""
    if not (url := settings().wake_queue_url):
        return None
    from shared.work.wakeups import WakeUps

    return WakeUps(url, lambda: aws.client("sqs", tries=1))


@cache
def dynamodb() -> Any:
    """The DynamoDB client, made before threads start. An answer or an error comes within 3 seconds."""
    return aws.client("dynamodb", _connections())


@cache
def store() -> "Store":
    """The items in DynamoDB, and in S3 what is too large for them."""
    from shared.store import Store, Table

    chosen = settings()
    return Store(Table(dynamodb(), chosen.table_name, store_clock()), chosen.retention_seconds, spill())


@cache
def spill() -> "Spill":
    """What is too large for items, and pages that wait for the rest of them, in S3 where there is a bucket."""
    from shared.store.spill import Spill

    chosen = settings()
    return Spill(s3, chosen.spill_bucket, spill_bytes=chosen.spill_bytes, days=chosen.spill_days)


def s3() -> Any:
    """A client of S3; it is made when the first large data come, in whatever thread."""
    return aws.client("s3", settings().parallel_tasks + 2)


@cache
def callback_urls() -> "CallbackUrls | None":
    """The URLs that providers call back, where the settings say how to make them."""
    from shared.provider.callback_url import CallbackUrls

    url, secret = settings().callback_url, settings().callback_secret
    return CallbackUrls(url, secret, aws.secret) if url and secret else None


@cache
def rules() -> "dict[str, Rules]":
    """What every sound provider file says, by name; a faulty one is reported and stops only its own provider."""
    from shared.provider.language.rules import provider_files

    chosen, found = settings(), {}
    directories = [SHIPPED, Path(chosen.providers_dir)] if chosen.providers_dir else [SHIPPED]
    files = {path.stem: path for directory in directories for path in provider_files(directory)}
    for name, path in sorted(files.items()):
        try:
            found[name] = _rules(path)
        except ProviderFileError as error:
            logger().error("provider file faulty", extra={"reason": str(error)})
    named = {"DEFAULT_PROVIDER": {chosen.default_provider}, "PROVIDER_SERVERS": chosen.provider_servers.keys()}
    for variable, names in named.items():
        for name in sorted(names - found.keys()):
            reason = f"{variable} names {name}, of which there is no sound file"
            logger().error("setting faulty", extra={"reason": reason})
    return found


@cache
def providers() -> "dict[str, Provider]":
    """Every provider whose file is sound, by name."""
    from shared.provider import Provider
    from shared.provider.credentials.credentials import Credentials
    from shared.provider.wire.transport import Transport

    transport, known, chance = Transport(_connections()), callback_urls(), random.SystemRandom()
    url, sink = known.url if known else None, spill() if settings().spill_bucket else None

    def made(one: "Rules") -> "Provider":
        credentials = Credentials(one.security, aws.secret, transport)
        return Provider(one, transport, credentials, chance, callback_url=url, sink=sink)

    return {name: made(one) for name, one in rules().items()}


@cache
def parts() -> "Parts":
    """What most of the makers below need."""
    from shared.work.parts import Parts

    return Parts(store(), queue(), providers(), settings(), clock)


@cache
def worker() -> "Worker":
    from shared.work.worker import Worker

    return Worker(parts())


@cache
def enqueuer() -> "Enqueuer":
    from shared.api.enqueue import Enqueuer

    # few requests need the notifier's clients
    return Enqueuer(parts(), worker(), lambda target, item: notifier().tell(target, item))


def enqueuer_for_threads() -> "Enqueuer":
    """enqueue, for many at once: its notifier is made before there are threads, or each would make one."""
    if settings().notify:
        notifier()
    return enqueuer()


@cache
def waiter() -> "Waiter":
    from shared.api.wait import Waiter

    return Waiter(parts())


@cache
def notifier() -> "Notifier":
    """Who tells workflows of ends. An answer or an error comes within 4 seconds."""
    from shared.work.notify import Notifier

    return Notifier(aws.client("stepfunctions"), aws.client("lambda"))


@cache
def receiver() -> "Receiver":
    from shared.api.callback import Receiver

    return Receiver(parts(), worker(), callback_urls(), aws.secret)


def tick(
    remaining: Callable[[], float],
    invite: "Invite | None" = None,
    *,
    providers: Collection[str] | None = None,
    gives_way: bool = False,
) -> "Tick":
    from shared.work.tick import Tick

    return Tick(parts(), worker(), remaining, invite, providers=providers, gives_way=gives_way)


@cache
def reconciler() -> "Reconciler":
    from shared.work.reconcile import Reconciler

    return Reconciler(store(), queue(), rules(), settings().lease_seconds, clock, random.SystemRandom())


def _connections() -> int:
    """How many to one host are kept: a tick's attempts or those of a batch at once, and two to spare."""
    return max(settings().parallel_tasks, MAX_BATCH) + 2


def _rules(path: Path) -> "Rules":
    """What one file says. Raises ProviderFileError."""
    from shared.provider.language.rules import Rules

    if not is_provider_name(path.stem):
        raise ProviderFileError(f"{path.name} is not a provider name")
    rules = Rules.load(path, settings().provider_servers.get(path.stem))
    if rules.calls_back and callback_urls() is None:
        raise ProviderFileError(f"{path.name}: $.submit: ${{callback.url}} needs CALLBACK_URL and CALLBACK_SECRET")
    return rules
