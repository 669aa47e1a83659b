"""The whole of Meanwhile on this machine: servers, functions, gateways and schedules, joined as in template.yaml."""

import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Self, TextIO

from local import ROOT, sam_template
from local.aws.function import Function
from local.aws.gateway import HTTP, REST, Gateway
from local.aws.invocations import Invocations
from local.aws.schedule import Schedule
from local.aws.stream import Stream
from local.aws.wakes import Wakes
from local.servers.dynamodb import BUCKET_NAME, DUMMY_CREDENTIALS, REGION, TABLE_NAME, DynamoDB
from local.servers.redis_server import Kind, RedisServer
from local.servers.third_party import ThirdParty

CONCURRENCY = 4  # processes of a function at most; each is a Python of its own
PROVIDERS = ROOT / "local" / "providers"
"""Files of providers that only this stack has, unless PROVIDERS_DIR is set: `hook`, which calls back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the servers listen on loopback; 0 takes a free port."""

    third_party: int = 0
    gateway: int = 0
    redis: int = 0
    dynamodb: int = 0
    http_gateway: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedules:
    """How often each schedule fires, in seconds; None: never, the caller starts the runs."""

    process_seconds: float | None = None
    reconcile_seconds: float | None = None


class Stack:
    """A context manager: everything runs inside it and ends with it.

    `settings` are environment variables of the functions, on top of the template's. `seed` and `answer_seconds`
    are the third party's.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        ports: Ports | None = None,
        schedules: Schedules | None = None,
        log: TextIO = sys.stderr,
        redis_kind: Kind | None = None,
        seed: int | None = None,
        answer_seconds: float = 3.0,
    ) -> None:
        ports = ports or Ports()
        self.redis = RedisServer(redis_kind, ports.redis)
        self.dynamodb = DynamoDB(ports.dynamodb)
        hook_key = secrets.token_hex(16)
        self._keys = {"CALLBACK_KEY": secrets.token_hex(16), "HOOK_KEY": hook_key}  # the same for all functions
        self.third_party = ThirdParty(ports.third_party, seed, answer_seconds, hook_key)
        self.functions: dict[str, Function] = {}
        self.invocations = Invocations(self.functions)
        self._settings = dict(settings or {})
        self._ports = ports
        self._every = schedules or Schedules()
        self._log = log
        self._exit = ExitStack()

    @property
    def url(self) -> str:
        """The gateway's base URL; it speaks REST API events."""
        return self._gateways[0].url

    @property
    def http_url(self) -> str:
        """The base URL of a second gateway, which speaks HTTP API events."""
        return self._gateways[1].url

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            for server in (self.redis, self.dynamodb, self.third_party, self.invocations):
                entered.enter_context(server)
            self._gateways = [
                Gateway(self.functions, REST, self._ports.gateway),
                Gateway(self.functions, HTTP, self._ports.http_gateway),
            ]
            for name, definition in sam_template.functions().items():
                environment = {**definition.environment, **self._wires(), **self._settings}
                self.functions[name] = entered.enter_context(
                    Function(
                        name,
                        definition.handler,
                        definition.timeout_seconds,
                        environment,
                        log=self._log,
                        concurrency=CONCURRENCY,
                        throttles=definition.is_reserved,
                    )
                )
            entered.enter_context(Stream(self.dynamodb, self.functions["NotifyFunction"], self._log))
            entered.enter_context(Wakes(self.dynamodb, self.functions["ProcessFunction"]))
            for gateway in self._gateways:
                entered.enter_context(gateway)
            for schedule in self._schedules():
                entered.enter_context(schedule)
            self._exit = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def tick(self) -> object:
        """One tick now; its tally."""
        return self.functions["ProcessFunction"].invoke({})

    def reconcile(self) -> object:
        """One reconcile run now; its tally."""
        return self.functions["ReconcileFunction"].invoke({})

    def _wires(self) -> dict[str, str]:
        """The environment variables that lead the functions to these servers."""
        names = ("example", "coin") if "PROVIDERS_DIR" in self._settings else ("example", "coin", "hook")
        return {
            **DUMMY_CREDENTIALS,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb.url,
            "AWS_ENDPOINT_URL_SFN": self.dynamodb.url,  # moto takes any task token and ignores it
            "NOTIFY": "stepFunctionsToken",
            "STATUS_WAIT_SECONDS": "20",
            "CALLBACK_URL": self.url,
            "CALLBACK_SECRET": "env:CALLBACK_KEY",
            **self._keys,
            "AWS_ENDPOINT_URL_LAMBDA": self.invocations.url,
            "AWS_ENDPOINT_URL_S3": self.dynamodb.url,
            "AWS_ENDPOINT_URL_SQS": self.dynamodb.url,
            "WAKE_QUEUE_URL": self.dynamodb.wake_queue_url,
            "SPILL_BUCKET": BUCKET_NAME,
            "TABLE_NAME": TABLE_NAME,
            "REDIS_URL": self.redis.url,
            "PROVIDER_SERVERS": ",".join(f"{name}={self.third_party.url}" for name in names),
            "PROVIDERS_DIR": str(PROVIDERS),
        }

    def _schedules(self) -> list[Schedule]:
        planned = [
            ("ProcessFunction", "process-scheduled-event.json", self._every.process_seconds),
            ("ReconcileFunction", "reconcile-scheduled-event.json", self._every.reconcile_seconds),
        ]
        return [Schedule(self.functions[name], sample, seconds) for name, sample, seconds in planned if seconds]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, the first Ctrl-C, SIGTERM or closed terminal raises KeyboardInterrupt; later ones are ignored."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
