"""An actor: the real code of a function, run anew over the answers it has had, up to its next call."""

import hmac
import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from shared.api import cancel, revive
from shared.api.callback import Receiver
from shared.api.enqueue import Enqueuer
from shared.api.request import Callback, TaskRequest
from shared.codec import dumps
from shared.provider import Provider
from shared.provider.callback_url import CallbackUrls
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from shared.queue import Claim, Queue
from shared.store import Item, Store
from shared.work.parts import Parts
from shared.work.reconcile import Reconciler
from shared.work.tick import Tick
from shared.work.worker import Worker
from tests.explorer.scenario import FUNCTION_SECONDS, LEASE_SECONDS, PROVIDER, SETTINGS, TASK, Kind, Scenario
from tests.support.clock import START_MS


class NextCall(BaseException):
    """Stops an actor at a call that it has no answer to yet; no `except Exception` holds it."""

    def __init__(self, target: str, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.call = (target, method, arguments, options)


@dataclass(slots=True)
class Replay:
    """One run of an actor's code over known answers."""

    name: str
    answers: tuple[Any, ...]
    used: int = 0
    tokens: int = 0
    now: float = 0.0
    holds: int | None = None

    def call(self, target: str, method: str, *arguments: Any, **options: Any) -> Any:
        if self.used == len(self.answers):
            raise NextCall(target, method, arguments, options)
        answer = self.answers[self.used]
        self.used += 1
        match method, answer:
            case "claim", Claim(tasks=(claimed,)):
                self.holds = claimed.hold.generation
            case "add", ["created"] if options.get("lease_seconds"):
                self.holds = arguments[0][0][1]
            case (("complete" | "release" | "bury" | "forget"), _):
                self.holds = None
        if isinstance(answer, Exception):
            raise type(answer)(*answer.args)
        return answer

    def token(self) -> str:
        self.tokens += 1
        return f"{self.name}.{self.tokens}"


class Proxy:
    """Stands where the code under test has a queue, a store or a transport."""

    def __init__(self, replay: Replay, target: str) -> None:
        self._replay = replay
        self._target = target

    def know_time(self) -> None:
        """No step: nobody's clock is wrong here."""

    def opened(self, item: Item, now: int) -> Item:
        """No step: data this small stands in the item itself."""
        return item

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._replay.call(self._target, method, *arguments, **options)


class Inline(Executor):
    """Runs what is submitted at once; an attempt takes the whole window, so that a tick is one attempt."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(work(*arguments, **options))
        self._replay.now += SETTINGS.window_seconds
        return future


@dataclass(slots=True)
class Node:
    """What an actor has been answered so far, and what it asks next, or how it ended.

    `holds` is the generation that Redis has given it to work on, until it settles.
    """

    actor: int
    answers: tuple[Any, ...]
    call: tuple[str, str, tuple[Any, ...], dict[str, Any]] | None
    result: Any
    holds: int | None
    label: str
    away: int | None = None
    children: dict[str, int] = field(default_factory=dict)


class Broken(logging.Handler):
    """Worker.work holds every exception; one that only a defect explains must not pass for a retry."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            raise Defect from record.exc_info[1]


class Defect(BaseException):
    pass


@contextmanager
def traced_by(tracer: Any) -> Iterator[Any]:
    """Coverage follows the code under test alone: following the explorer too would take twice the time."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield before
    finally:
        sys.settrace(before)


def run(kind: Kind, replay: Replay, rules: Rules, scenario: Scenario) -> Any:
    queue, store = cast(Queue, Proxy(replay, "queue")), cast(Store, Proxy(replay, "store"))
    transport = cast(Transport, Proxy(replay, "provider"))
    provider = Provider(rules, transport, Credentials((), _no_secret, transport), Random(0))
    providers = {PROVIDER: provider}
    parts = Parts(store, queue, providers, SETTINGS, _clock)
    worker = Worker(parts)
    match kind:
        case "enqueue":
            enqueuer = Enqueuer(parts, worker, _tells_nobody)
            return enqueuer.answer(TaskRequest(task=TASK), lambda: FUNCTION_SECONDS["enqueue"])
        case "process":
            outside = (lambda: replay.now, _never_sleeps, lambda _: Inline(replay))
            return Tick(parts, worker, lambda: FUNCTION_SECONDS["process"], None, *outside).run()
        case "reconcile":
            reconciler = Reconciler(store, queue, {PROVIDER: provider.rules}, LEASE_SECONDS, _clock, Random(0))
            return reconciler.run(lambda: FUNCTION_SECONDS["reconcile"])
        case "cancel":
            return cancel.answer(parts, TASK)
        case "revive":
            return revive.answer(parts, TASK)
        case "callback":
            urls = CallbackUrls("http://meanwhile.example", "env:KEY", _key)
            receiver = Receiver(parts, worker, urls, _key)
            return receiver.receive(_callback(urls, scenario))


def _callback(urls: CallbackUrls, scenario: Scenario) -> Callback:
    """What the provider says by itself of the first job of the scenario's generation."""
    found = {"generation": scenario.generation}
    body = dumps({"status": scenario.payload, "data": found, "partial": found, "error": "no"}).encode()
    token = urls.url(TASK, scenario.generation, 0).rpartition("/")[2]
    signature = hmac.new(_key("env:KEY", fresh=False).encode(), body, "sha256").hexdigest()
    return Callback(provider=PROVIDER, token=token, headers={"x-signature": signature}, body=body)


def _key(reference: str, *, fresh: bool) -> str:
    return f"the value of {reference}"


def _tells_nobody(target: str, item: Item) -> None:
    raise Defect(f"nobody waits for {item.task}")


def _no_secret(reference: str, *, fresh: bool) -> str:
    raise Defect(f"nobody names {reference}")


def _clock() -> int:
    return START_MS


def _never_sleeps(seconds: float) -> None:
    if seconds > 0:
        raise Defect(f"a tick wants to sleep for {seconds} s")
