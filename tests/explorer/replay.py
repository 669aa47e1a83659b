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

from msgspec.structs import replace

from shared.api import cancel, revive
from shared.api.callback import Receiver
from shared.api.enqueue import Enqueuer
from shared.api.request import Callback, TaskRequest
from shared.api.view import NOWHERE
from shared.codec import dumps
from shared.errors import QueueUnavailable, StoreUnavailable
from shared.provider import Provider
from shared.provider.callback_url import CallbackUrls
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from shared.queue import Claim, Hold, Place, Queue, Which
from shared.store import Item, Store, Superseded
from shared.work.keeper import Keeper
from shared.work.parts import Parts
from shared.work.reconcile import Reconciler
from shared.work.tick import SETTLE_SECONDS, Tick
from shared.work.worker import Worker
from tests.explorer.scenario import FUNCTION_SECONDS, LEASE_SECONDS, PROVIDER, SETTINGS, TASK, WOKEN, Kind, Scenario
from tests.support.clock import START_MS


class NextCall(BaseException):
    """Stops an actor at a call that it has no answer to yet; no `except Exception` holds it."""

    def __init__(self, target: str, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.call = (target, method, arguments, options)


@dataclass(frozen=True, slots=True)
class Late:
    """An answer after which the worker's clock says that its lease is over."""

    answer: Any


@dataclass(slots=True)
class Replay:
    """One run of an actor's code over known answers.

    `hold`: by which it writes, until Redis has settled it; `owns`: the generation that it works on; `which`: how it was
    claimed; `asked`: whether it has asked the provider since; `is_settled`: whether Redis has taken what it settled.
    """

    name: str
    actor: int
    answers: tuple[Any, ...]
    used: int = 0
    tokens: int = 0
    tick_seconds: float = 0
    worker_seconds: float = 0
    sleeps: int = 0
    hold: Hold | None = None
    owns: int | None = None
    which: Which = "ordinary"
    asked: bool = False
    is_settled: bool = False

    def call(self, target: str, method: str, *arguments: Any, **options: Any) -> Any:
        if self.used == len(self.answers):
            raise NextCall(target, method, arguments, options)
        answer = self.answers[self.used]
        self.used += 1
        if isinstance(answer, Late):
            self.worker_seconds += LEASE_SECONDS
            answer = answer.answer
        self._note(target, method, arguments, options, answer)
        if isinstance(answer, Exception):
            raise type(answer)(*answer.args)
        return answer

    def _note(self, target: str, method: str, arguments: Any, options: Any, answer: Any) -> None:
        """What the answer makes of its hold."""
        match method, answer:
            case "claim", Claim(tasks=(claimed,)):
                self.hold, self.which, self.asked = claimed.hold, options["which"], False
                self.owns = claimed.hold.generation
            case "add", ["created"] | QueueUnavailable() if options.get("lease_seconds"):
                generation = arguments[0][0].generation
                self.hold = Hold(TASK, generation, options["token"], turn=1)
                self.owns = None if isinstance(answer, Exception) else generation
            case "take_over", Item(turn=turn) if self.hold:
                self.hold = replace(self.hold, turn=turn)
            case "settle", _:
                self.owns = None
                if not isinstance(answer, Exception):
                    self.hold, self.is_settled = None, answer == [True]
        self.asked = self.asked or target == "provider"

    def token(self) -> str:
        """Eight characters, as many as the item keeps of one."""
        self.tokens += 1
        return f"{self.actor}{self.tokens:07}"

    def sleep(self, seconds: float) -> None:
        """A tick's: the first goes by as it is, so that what failed is tried once more; the second ends the run."""
        self.sleeps += 1
        self.tick_seconds += seconds if self.sleeps == 1 else SETTINGS.window_seconds

    def remaining(self) -> float:
        return SETTLE_SECONDS if self.sleeps else FUNCTION_SECONDS["process"]

    def pause(self, seconds: float) -> None:
        """A worker's between two tries to store a result: after it there is one more."""
        self.worker_seconds += SETTINGS.attempt_seconds


class Proxy:
    """Stands where the code under test has a queue, a store or a transport."""

    wakes = True

    def __init__(self, replay: Replay, target: str) -> None:
        self._replay = replay
        self._target = target

    def know_time(self) -> None:
        """No step: nobody's clock is wrong here."""

    def opened(self, item: Item, now: int) -> Item:
        """No step: data this small stands in the item itself."""
        return item

    def add_and_look(self, *arguments: Any, **options: Any) -> list[tuple[Any, Place]]:
        """Only the adding is a step: what was seen is only told."""
        return [(answer, NOWHERE) for answer in self.add(*arguments, **options)]

    def settle_and_look(self, *arguments: Any, **options: Any) -> list[tuple[Any, Place]]:
        return [(answer, NOWHERE) for answer in self.settle(*arguments, **options)]

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._replay.call(self._target, method, *arguments, **options)


class Inline(Executor):
    """Runs what is submitted at once; an attempt takes the whole window, so that a tick is one attempt."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(work(*arguments, **options))
        self._replay.tick_seconds += SETTINGS.window_seconds
        return future


@dataclass(slots=True)
class Node:
    """What an actor has been answered so far, and what it asks next, or how it ended; `replay` tells what it holds.

    `answer` is the last one; `is_unstored`: a write was refused or has timed out, or the actor's clock has jumped, so
    that perhaps Redis alone knows what it was told.
    """

    actor: int
    answers: tuple[Any, ...]
    call: tuple[str, str, tuple[Any, ...], dict[str, Any]] | None
    result: Any
    replay: Replay
    label: str
    away: int | None = None
    children: dict[str, int] = field(default_factory=dict)
    method: str = field(init=False)
    answer: Any = field(init=False)
    is_unstored: bool = field(init=False)

    def __post_init__(self) -> None:
        self.method = self.call[1] if self.call else ""
        last = self.answers[-1] if self.answers else None
        self.answer = last.answer if isinstance(last, Late) else last
        self.is_unstored = any(isinstance(answer, Late | StoreUnavailable | Superseded) for answer in self.answers)


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
    provider = Provider(rules, transport, Credentials((), _key, transport), Random(0))
    providers = {PROVIDER: provider}
    parts = Parts(store, queue, providers, WOKEN if scenario.woken else SETTINGS, _clock)
    worker = Worker(parts)
    worker.keeper = Keeper(parts, lambda: replay.worker_seconds, replay.pause)
    match kind:
        case "enqueue":
            enqueuer = Enqueuer(parts, worker, _tells_nobody)
            return enqueuer.answer(TaskRequest(task=TASK), lambda: FUNCTION_SECONDS["enqueue"])
        case "process" | "scheduled":
            outside = (lambda: replay.tick_seconds, replay.sleep, lambda _: Inline(replay))
            return Tick(parts, worker, replay.remaining, None, *outside, gives_way=kind == "scheduled").run()
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


def _clock() -> int:
    return START_MS
