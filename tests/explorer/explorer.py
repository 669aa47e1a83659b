"""The protocol explorer: every reachable state of a few actors at work on one task, equal states merged.

The actors are the real enqueue, process, reconcile, cancel, revive and callback, against copyable doubles of the
scripts, the conditional writes and a provider. What an actor does next depends on nothing but the answers it has had
(its clock stands still, its tokens are numbered), so an actor's place is a node in a tree of answers, and the real code
runs once per node: from its start, fed with the answers on the way, up to its next call. A world is a tuple of small
numbers.

Beside the actors' calls these things happen, each within its budget: an actor crashes, or a worker stalls until after
its lease; Redis loses everything; Redis is away for a while, its last answer lost or asked for twice; the provider has
a moment of trouble. Time passes by timers: a lease, a delay, an item's age. Each is one lease long, so it runs out only
when all who were at work when it began have finished, crashed or stalled; reconcile alone may take longer. Whatever
happens between calls happens just before the first call that can tell (or, a crash, just after the actor's last one):
any other order leads to the same states.
"""

import hmac
import logging
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from unittest.mock import patch

from shared.api import cancel, revive
from shared.api.answer import Answer
from shared.api.callback import Receiver
from shared.api.enqueue import Enqueuer
from shared.api.request import Callback, TaskRequest
from shared.codec import dumps
from shared.errors import Problem, QueueUnavailable, TransportError
from shared.provider import Provider
from shared.provider.callback_url import CallbackUrls
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.transport import Transport
from shared.queue import Add, Claim, Queue
from shared.settings import Settings
from shared.store import Item, Store, Superseded
from shared.task import Task
from shared.work.parts import Parts
from shared.work.reconcile import Reconciler
from shared.work.tick import Clockwork, Tick
from shared.work.worker import Worker, record_of
from tests.support.clock import START_MS
from tests.support.doubles import MemoryQueue, MemoryStore
from tests.support.keys import Bench

Kind: TypeAlias = Literal["enqueue", "process", "reconcile", "cancel", "revive", "callback"]
Payload: TypeAlias = Literal["done", "failed", "running", "unsigned"]
Trouble: TypeAlias = Literal["done at once", "refused", "error", "cut off", "still running", "failed", "lost job"]
Start: TypeAlias = Literal["nothing", "waiting", "completed", "dead letter"]

PROVIDER = "slow"
TASK = Task(PROVIDER, "t")
SETTINGS = Settings(parallel_tasks=1, idle_seconds=0)
LEASE_SECONDS = SETTINGS.lease_seconds
OLD_MS = START_MS - int(LEASE_SECONDS * 1000) - 1000
FUNCTION_SECONDS = {"enqueue": 25.0, "process": 80.0, "reconcile": 60.0}
FILE = {
    "servers": ["http://provider.example"],
    "submit": {
        "method": "POST",
        "url": "/jobs",
        "headers": {"Idempotency-Key": "${task.id}"},
        "outputs": {"job": "body.job"},
    },
    "poll": {"url": "/jobs/${outputs.job}"},
    "cancel": {"method": "DELETE", "url": "/jobs/${outputs.job}"},
    "acceptors": [
        {"state": "pending", "expected": "running", "on": ["submit", "poll"]},
        {"state": "success", "expected": "done", "on": ["submit", "poll"]},
        {"state": "failure", "expected": "failed", "on": ["submit", "poll"]},
        {"state": "resubmit", "expected": "lost"},
    ],
    "data": "body.data",
    "partial": "body.partial",
    "polling": {"minDelay": 0, "initialDelay": 0, "maxDelay": 0, "jitter": "none"},
    "freshness": 0,
    "freshnessFailed": 0,
}
SIGNED = {"callback": {"signature": {"header": "X-Signature", "secret": "env:KEY"}}}
ENDED = -1
ROUNDS = 12
"""How many ticks a task may need to end once all faults are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Who is at work, from which state of the task, and what may go wrong; the numbers are budgets."""

    actors: tuple[Kind, ...]
    start: Start = "nothing"
    troubles: tuple[Trouble, ...] = ()
    trouble: int = 1
    crashes: int = 1
    flushes: int = 1
    outages: int = 1
    first_answer_seconds: float = 5
    payload: Payload = "done"

    @property
    def generation(self) -> int:
        """The one that a callback is about: that of the start, else the first to come."""
        return (START_MS if self.start == "nothing" else OLD_MS) + 1


class Violation(Exception):
    """A promise broken, and the shortest way there."""


class World(NamedTuple):
    """One state of everything. `queue_timer` and `item_timer`: whom the timer waits for (bits), None without one."""

    queue: int
    store: int
    provider: int
    places: tuple[int, ...]
    stalled: int
    queue_timer: int | None
    item_timer: int | None
    is_down: bool
    crashes: int
    flushes: int
    outages: int


class Submit(NamedTuple):
    """A job that the provider has begun. `answer`: whether what it said is still on the way, stored, or lost."""

    generation: int
    resubmits: int
    key: str
    actor: int
    answer: Literal["on the way", "stored", "lost"]


class ProviderState(NamedTuple):
    submits: tuple[Submit, ...]
    trouble: int


# --- an actor: the real code, and the tree of answers


class _NextCall(BaseException):
    """Stops an actor at a call that it has no answer to yet; no `except Exception` holds it."""

    def __init__(self, target: str, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.call = (target, method, arguments, options)


@dataclass(slots=True)
class _Replay:
    """One run of an actor's code over known answers."""

    name: str
    answers: tuple[Any, ...]
    used: int = 0
    tokens: int = 0
    now: float = 0.0
    holds: int | None = None

    def call(self, target: str, method: str, *arguments: Any, **options: Any) -> Any:
        if self.used == len(self.answers):
            raise _NextCall(target, method, arguments, options)
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


class _Proxy:
    """Stands where the code under test has a queue, a store or a transport."""

    def __init__(self, replay: _Replay, target: str) -> None:
        self._replay = replay
        self._target = target

    def opened(self, item: Item, now: int) -> Item:
        """No step: data this small stands in the item itself."""
        return item

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._replay.call(self._target, method, *arguments, **options)


class _Inline(Executor):
    """Runs what is submitted at once; an attempt takes the whole window, so that a tick is one attempt."""

    def __init__(self, replay: _Replay) -> None:
        self._replay = replay

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(work(*arguments, **options))
        self._replay.now += SETTINGS.window_seconds
        return future


@dataclass(slots=True)
class _Node:
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


class _Broken(logging.Handler):
    """Worker.work holds every exception; one that only a defect explains must not pass for a retry."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            raise _Defect from record.exc_info[1]


class _Defect(BaseException):
    pass


@contextmanager
def _traced_by(tracer: Any) -> Iterator[Any]:
    """Coverage follows the code under test alone: following the explorer too would take twice the time."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield before
    finally:
        sys.settrace(before)


def _run(kind: Kind, replay: _Replay, rules: Rules, scenario: Scenario) -> Any:
    queue, store = cast(Queue, _Proxy(replay, "queue")), cast(Store, _Proxy(replay, "store"))
    transport = cast(Transport, _Proxy(replay, "provider"))
    provider = Provider(rules, transport, Credentials((), _no_secret, transport), Random(0))
    providers = {PROVIDER: provider}
    parts = Parts(store, queue, providers, SETTINGS, _clock)
    worker = Worker(parts)
    match kind:
        case "enqueue":
            enqueuer = Enqueuer(parts, worker, _tells_nobody)
            return enqueuer.answer(TaskRequest(task=TASK), lambda: FUNCTION_SECONDS["enqueue"])
        case "process":
            clockwork = Clockwork(lambda: replay.now, _never_sleeps, lambda _: _Inline(replay))
            return Tick(parts, worker, clockwork, lambda: FUNCTION_SECONDS["process"]).run()
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
    raise _Defect(f"nobody waits for {item.task}")


def _no_secret(reference: str, *, fresh: bool) -> str:
    raise _Defect(f"nobody names {reference}")


def _clock() -> int:
    return START_MS


def _never_sleeps(seconds: float) -> None:
    if seconds > 0:
        raise _Defect(f"a tick wants to sleep for {seconds} s")


# --- the world


@dataclass(slots=True)
class _Interned:
    """States by number; equal ones have the same."""

    states: list[Any] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, state: Any, key: str) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.states)
            self.states.append(state)
        return self.numbers[key]


Step: TypeAlias = tuple[str, World]


class Explorer:
    """Explores one scenario. `states` counts the states seen."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.states = 0
        self._kinds: tuple[Kind, ...] = (*scenario.actors, "process", "reconcile")  # the last two, when all is over
        signed = SIGNED if scenario.payload != "unsigned" else {}
        self._rules = Rules.from_json(FILE | signed | {"firstAnswer": scenario.first_answer_seconds})
        self._queues, self._stores, self._providers = _Interned(), _Interned(), _Interned()
        self._nodes: list[_Node] = []
        self._steps: dict[tuple[object, ...], Any] = {}
        self._seen_results: set[tuple[int, int]] = set()
        self._seen_ends: set[tuple[int, int, int, bool]] = set()
        self._timers: dict[int, tuple[float, str] | None] = {}
        self._unbounded = sum(1 << actor for actor, kind in enumerate(self._kinds) if kind == "reconcile")
        self._twins = [_last(scenario.actors[:actor], kind) for actor, kind in enumerate(scenario.actors)]
        self._listing = [actor for actor, kind in enumerate(scenario.actors) if kind == "reconcile"]

    def run(self) -> None:
        """Visit every state. Raises Violation with the shortest way to the first broken promise."""
        with self._controlled():
            start = self._start()
            parents: dict[World, World | None] = {start: None}
            waiting = deque([start])
            while waiting:
                world = waiting.popleft()
                try:
                    self._visit(world, parents, waiting)
                except Violation as violation:
                    raise Violation(f"{violation}\n{self._way(world, parents)}") from violation
            self.states = len(parents)

    def _visit(self, world: World, parents: dict[World, World | None], waiting: "deque[World]") -> None:
        for _, following in self._following(world):
            if following not in parents:
                parents[following] = world
                waiting.append(following)
        if all(place == ENDED for place in world.places):
            self._check_end(world)

    def _way(self, world: World, parents: dict[World, World | None]) -> str:
        way = [world]
        while (parent := parents[way[-1]]) is not None:
            way.append(parent)
        way.reverse()
        lines = []
        for before, after in pairwise(way):
            lines.append(next(label for label, following in self._following(before) if following == after))
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))

    @contextmanager
    def _controlled(self) -> Iterator[None]:
        log, handler = logging.getLogger("meanwhile"), _Broken(logging.ERROR)
        level, propagates = log.level, log.propagate
        log.setLevel(logging.ERROR)
        log.propagate = False
        log.addHandler(handler)
        tokens = [
            patch(f"shared.{module}.new_token", self._token)
            for module in ("api.enqueue", "work.tick", "work.reconcile", "api.revive")
        ]
        try:
            for token in tokens:
                token.start()
            with _traced_by(None) as self._tracer:
                yield
        finally:
            for token in tokens:
                token.stop()
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = propagates

    def _token(self) -> str:
        return self._replay.token()

    def _name(self, actor: int) -> str:
        return f"{self._kinds[actor]} {actor}"

    # --- nodes

    def _node(self, actor: int, answers: tuple[Any, ...]) -> int:
        """The number of the node: runs the actor's code over these answers."""
        call, result = None, None
        self._replay = _Replay(self._name(actor), answers)
        try:
            with _traced_by(self._tracer):
                result = _run(self._kinds[actor], self._replay, self._rules, self.scenario)
        except _NextCall as following:
            call = following.call
        except Problem as problem:
            result = problem
        except _Defect as defect:
            raise Violation(f"{self._replay.name} broke: {defect.__cause__ or defect!r}") from defect
        except Exception as error:
            raise Violation(f"{self._replay.name} broke: {error!r}") from error
        label = f"{self._name(actor)}: {'.'.join(call[:2]) if call else 'ends'}"
        self._nodes.append(_Node(actor, answers, call, result, self._replay.holds, label))
        return len(self._nodes) - 1

    def _child(self, number: int, answer: Any) -> int:
        node, key = self._nodes[number], repr(answer)
        if key not in node.children:
            node.children[key] = self._node(node.actor, (*node.answers, answer))
        return node.children[key]

    def _away(self, number: int) -> int:
        """The node after a call that Redis did not answer."""
        node = self._nodes[number]
        if node.away is None:
            node.away = self._child(number, QueueUnavailable("away"))
        return node.away

    # --- where it starts

    def _start(self) -> World:
        self._empty = self._queue_number(MemoryQueue())
        queue, store = MemoryQueue(), MemoryStore(SETTINGS.retention_seconds)
        self._prepare(queue, store)
        self._roots = tuple(self._node(actor, ()) for actor in range(len(self._kinds)))
        scenario = self.scenario
        return World(
            queue=self._queue_number(queue),
            store=self._store_number(store),
            provider=self._provider_number(ProviderState((), scenario.trouble if scenario.troubles else 0)),
            places=(*self._roots[:-2], ENDED, ENDED),
            stalled=0,
            queue_timer=None,
            item_timer=0 if scenario.start == "waiting" else None,
            is_down=False,
            crashes=scenario.crashes,
            flushes=scenario.flushes,
            outages=scenario.outages,
        )

    def _prepare(self, queue: MemoryQueue, store: MemoryStore) -> None:
        if self.scenario.start == "nothing":
            return
        item = store.begin(TASK, None, {}, OLD_MS)
        assert item
        if self.scenario.start == "waiting":
            queue.add([Add(TASK, item.generation, record_of(item).to_text())], token="before")
        elif self.scenario.start == "completed":
            store.complete(TASK, item.generation, {"generation": item.generation}, OLD_MS)
        else:
            store.fail(TASK, item.generation, {"reason": "upstream", "error": None, "refused": False}, OLD_MS)
            Bench(queue).seed(TASK.name, generation=item.generation, dead=True, provider=PROVIDER)

    # --- what may happen next

    def _following(self, world: World) -> Iterator[Step]:
        for actor, place in enumerate(world.places):
            if place == ENDED or (place == self._roots[actor] and not self._may_start(world, actor)):
                continue
            if self._kinds[actor] == "callback" and place == self._roots[actor]:
                yield (
                    f"callback {actor} is lost",
                    self._without(world._replace(places=_replaced(world.places, actor, ENDED)), actor),
                )
                if not self._has_job(world):
                    continue
            for label, following in self._calls(world, actor, place):
                yield label, following
                if world.crashes and following.places[actor] != ENDED:
                    yield from self._stops(label, following, actor)

    def _may_start(self, world: World, actor: int) -> bool:
        """Of two of a kind the first starts first: the other way round is the same."""
        twin = self._twins[actor]
        return twin is None or world.places[twin] != self._roots[twin]

    def _has_job(self, world: World) -> bool:
        """Whether the provider has begun what a callback would be about."""
        state: ProviderState = self._providers.states[world.provider]
        return any(submit.generation == self.scenario.generation for submit in state.submits)

    def _calls(self, world: World, actor: int, place: int) -> Iterator[Step]:
        """The actor's next call, answered in every way that is possible now."""
        node = self._nodes[place]
        target, method, *_ = node.call or ("", "")
        label = node.label
        if target == "provider":
            yield from self._provider_steps(world, actor, place)
        elif target == "queue":
            yield from self._queue_calls(world, actor, place, label)
        else:
            yield label, self._store_step(world, actor, place)
            if method == "open_since" and world.item_timer == 0:
                yield f"{label}, the item older than a lease", self._store_step(world, actor, place, old=True)

    def _queue_calls(self, world: World, actor: int, place: int, label: str) -> Iterator[Step]:
        if world.is_down or world.outages:
            away = self._away(place)
            outages = world.outages if world.is_down else world.outages - 1
            yield f"{label}, Redis is away", self._moved(world._replace(is_down=True, outages=outages), actor, away)
        if world.is_down:
            world = world._replace(is_down=False)
        yield label, self._queue_step(world, actor, place)
        if world.queue_timer == 0 and "queue.claim" in label:
            yield f"{label}, after the lease or delay has run out", self._queue_step(self._later(world), actor, place)
        if world.flushes:
            yield f"{label}, after Redis lost everything", self._queue_step(self._flushed(world), actor, place)
        if world.outages:
            struck = world._replace(outages=world.outages - 1)
            yield f"{label}, repeated since the connection broke", self._queue_step(struck, actor, place, "twice")
            lost = self._queue_step(struck, actor, place, "lost")
            yield f"{label}, its answer is lost and Redis goes away", lost._replace(is_down=True)

    def _queue_step(
        self, world: World, actor: int, place: int, how: Literal["once", "twice", "lost"] = "once"
    ) -> World:
        key = ("queue", world.queue, place, how)
        if key not in self._steps:
            queue = self._queues.states[world.queue].copy()
            _, method, arguments, options = self._nodes[place].call or ("", "", (), {})
            answer = getattr(queue, method)(*arguments, **options)
            if how == "twice":
                answer = getattr(queue, method)(*arguments, **options)
            if how == "lost":
                answer = QueueUnavailable("the answer is lost")
            self._steps[key] = self._queue_number(queue), self._child(place, answer)
        queue_number, child = self._steps[key]
        self._check_owners(world, actor, child)
        if queue_number != world.queue:
            timer = self._timer(queue_number)
            if timer is None:
                world = world._replace(queue=queue_number, queue_timer=None)
            elif timer == self._timer(world.queue):
                world = world._replace(queue=queue_number)
            else:
                world = world._replace(queue=queue_number, queue_timer=self._at_work(world, actor))
        return self._moved(world, actor, child)

    def _store_step(self, world: World, actor: int, place: int, *, old: bool = False) -> World:
        key = ("store", world.store, place, old)
        if key not in self._steps:
            store = self._stores.states[world.store].copy()
            _, method, arguments, options = self._nodes[place].call or ("", "", (), {})
            if method == "open_since":
                answer: Any = list(self._aged(store, old).open_since(*arguments))
            else:
                answer = getattr(store, method)(*arguments, **options)
            wrote = method not in ("get", "open_since") and not isinstance(answer, Superseded)
            wrote = wrote and not (method == "begin" and answer is None)
            if wrote:
                self._check_write(
                    self._name(actor), self._stores.states[world.store].items.get(TASK), store.items[TASK]
                )
            self._steps[key] = self._store_number(store), self._child(place, answer), wrote
        store_number, child, wrote = self._steps[key]
        if wrote:
            provider = self._settled(world.provider, actor, "stored")
            world = world._replace(store=store_number, item_timer=self._at_work(world, actor), provider=provider)
        return self._moved(world, actor, child)

    @staticmethod
    def _aged(store: MemoryStore, old: bool) -> MemoryStore:
        """The store with its items written just now, or longer ago than a lease."""
        twin = store.copy()
        updated_at = OLD_MS if old else START_MS
        twin.items = {task: replace(item, updated_at=updated_at) for task, item in store.items.items()}
        return twin

    def _provider_steps(self, world: World, actor: int, place: int) -> Iterator[Step]:
        is_stalled = bool(world.stalled >> actor & 1)
        key = ("provider", world.provider, place, is_stalled)
        if key not in self._steps:
            state: ProviderState = self._providers.states[world.provider]
            _, _, (call, _), _ = self._nodes[place].call or ("", "", (None, None), {})
            self._steps[key] = [
                (f"{self._name(actor)} {told}", self._provider_number(after), self._child(place, answer))
                for told, after, answer in _provider_answers(
                    state, call, actor, is_stalled, frozenset(self.scenario.troubles)
                )
            ]
        for label, provider, child in self._steps[key]:
            yield label, self._moved(world._replace(provider=provider), actor, child)

    def _stops(self, label: str, world: World, actor: int) -> Iterator[Step]:
        """The actor crashes after its call; or it stalls, and others go on without waiting for it."""
        lost = self._settled(world.provider, actor, "lost")
        struck = self._without(world._replace(crashes=world.crashes - 1, provider=lost), actor)
        yield f"{label}; it crashes", struck._replace(places=_replaced(struck.places, actor, ENDED))
        if self._kinds[actor] == "process":
            yield f"{label}; it stalls", struck._replace(stalled=struck.stalled | 1 << actor)

    # --- how a world changes

    def _at_work(self, world: World, actor: int) -> int:
        """Those who must finish within a lease from now, the actor of this very call among them."""
        started = sum(
            1 << other
            for other, place in enumerate(world.places)
            if other == actor or (place != ENDED and place not in self._roots)
        )
        return started & ~world.stalled & ~self._unbounded

    def _moved(self, world: World, actor: int, child: int) -> World:
        """The actor has its answer, and may have ended with it."""
        queue, store, provider, places, stalled, queue_timer, item_timer, is_down, crashes, flushes, outages = world
        if item_timer is not None and all(places[one] != self._roots[one] for one in self._listing):
            item_timer = None  # nobody asks for its age any more
        place, node = child, self._nodes[child]
        if node.call is None:
            self._check_result(world, child)
            place, others = ENDED, ~(1 << actor)
            stalled &= others
            queue_timer = None if queue_timer is None else queue_timer & others
            item_timer = None if item_timer is None else item_timer & others
        places = (*places[:actor], place, *places[actor + 1 :])
        faults = (is_down, crashes, flushes, outages)
        return World(queue, store, provider, places, stalled, queue_timer, item_timer, *faults)

    def _without(self, world: World, actor: int) -> World:
        """Nobody waits for this actor any more."""
        bit = ~(1 << actor)
        queue_timer = None if world.queue_timer is None else world.queue_timer & bit
        item_timer = None if world.item_timer is None else world.item_timer & bit
        return world._replace(queue_timer=queue_timer, item_timer=item_timer, stalled=world.stalled & bit)

    def _later(self, world: World) -> World:
        """A lease later in Redis."""
        key = ("later", world.queue)
        if key not in self._steps:
            queue = self._queues.states[world.queue].copy()
            Bench(queue).rewind(2 * LEASE_SECONDS)
            self._steps[key] = self._queue_number(queue)
        return world._replace(queue=self._steps[key], queue_timer=None)

    def _flushed(self, world: World) -> World:
        return world._replace(queue=self._empty, queue_timer=None, flushes=world.flushes - 1)

    def _settled(self, number: int, actor: int, answer: Literal["stored", "lost"]) -> int:
        """The provider's state, knowing what became of the answer that this actor had."""
        key = ("settled", number, actor, answer)
        if key not in self._steps:
            state: ProviderState = self._providers.states[number]
            submits = tuple(
                submit._replace(answer=answer) if (submit.actor, submit.answer) == (actor, "on the way") else submit
                for submit in state.submits
            )
            self._steps[key] = self._provider_number(state._replace(submits=submits))
        settled: int = self._steps[key]
        return settled

    def _timer(self, number: int) -> tuple[float, str] | None:
        """What tells one running lease or delay from another; None when none runs."""
        if number not in self._timers:
            parts = Bench(self._queues.states[number]).parts(PROVIDER)
            ends = (parts["queue"].get(TASK.name, 0), parts["leases"].get(TASK.name, 0))
            running = max(ends) > START_MS
            self._timers[number] = (max(ends), parts["state"].get(TASK.name, "")) if running else None
        return self._timers[number]

    # --- numbers

    def _queue_number(self, queue: MemoryQueue) -> int:
        known = len(self._queues.states)
        dump = queue.dump()
        number = self._queues.number(queue, repr([(key, sorted(dump[key].items())) for key in sorted(dump)]))
        if number == known and (leaks := Bench(queue).leaks()):
            raise Violation(f"keys leak: {leaks}")
        return number

    def _store_number(self, store: MemoryStore) -> int:
        return self._stores.number(store, repr(store.items))

    def _provider_number(self, state: ProviderState) -> int:
        return self._providers.number(state, repr(state))

    # --- what must be true

    def _check_owners(self, world: World, actor: int, child: int) -> None:
        """Nothing is owned twice: of one generation there is one worker, but for those that have stalled."""
        holds = self._nodes[child].holds
        if holds is None or holds == self._nodes[world.places[actor]].holds:
            return
        for other, place in enumerate(world.places):
            at_work = other != actor and place != ENDED and not world.stalled >> other & 1
            if at_work and self._nodes[place].holds == holds:
                raise Violation(f"{self._name(actor)} is given what {self._name(other)} holds")

    def _check_write(self, name: str, before: Item | None, after: Item) -> None:
        """An end is final; and generations never mix: what is stored for one came from its own job."""
        if before and before.status != "pending" and after.generation == before.generation:
            raise Violation(f"{name} changes what had {before.status} already: {after}")
        found = [after.outputs and _generation_of(after.outputs["job"]), after.partial and after.partial["generation"]]
        if after.status == "completed":
            found.append(after.data["generation"])
        if any(generation not in (None, after.generation) for generation in found):
            raise Violation(f"{name} mixes generations: {after}")

    def _check_result(self, world: World, number: int) -> None:
        """What an actor answered is true: accepted is durable, completed is stored, cancelled is cancelled."""
        if (number, world.store) in self._seen_results:
            return
        self._seen_results.add((number, world.store))
        node = self._nodes[number]
        name, answer = self._name(node.actor), node.result
        if not isinstance(answer, Answer) or self._kinds[node.actor] == "callback":
            return
        item = self._stores.states[world.store].items.get(TASK)
        body = answer.body
        if item is None or item.generation < body["generation"]:
            raise Violation(f"{name} answered {answer.status} {body['status']}, of which nothing is stored")
        if item.generation == body["generation"] and body["status"] not in ("pending", item.status):
            raise Violation(f"{name} answered {body['status']}, but the item is {item.status}")

    def _check_end(self, world: World) -> None:
        """All actors have ended: with no further fault the task ends, and Redis forgets or buries it."""
        flushed = world.flushes < self.scenario.flushes
        key = (world.queue, world.store, world.provider, flushed)
        if key in self._seen_ends:
            return
        self._seen_ends.add(key)
        process, reconcile = len(self._kinds) - 2, len(self._kinds) - 1
        provider = self._providers.states[world.provider]._replace(trouble=0)
        quiet = world._replace(is_down=False, outages=0, flushes=0, provider=self._provider_number(provider))
        end = self._through(quiet, reconcile)
        self._check_brought_back(end)
        for _ in range(ROUNDS):
            before, end = end, self._through(self._later(end), process)
            if end[:3] == before[:3]:
                break
        self._check_ended(self._through(end, reconcile), flushed)
        if world.flushes:
            self._check_end(self._flushed(world))

    def _through(self, world: World, actor: int) -> World:
        """The world after one whole run of a late actor, the item being old by then."""
        world = world._replace(places=_replaced(world.places, actor, self._roots[actor]), item_timer=0)
        while (place := world.places[actor]) != ENDED:
            call = self._nodes[place].call
            if call and call[1] == "open_since":
                world = self._store_step(world, actor, place, old=True)
            else:
                _, world = next(self._calls(world, actor, place))
        return world

    def _check_brought_back(self, world: World) -> None:
        """Reconcile has run: Redis holds an open item's generation, and somebody will come back to it."""
        item = self._stores.states[world.store].items.get(TASK)
        place, held = Bench(self._queues.states[world.queue]).state(PROVIDER).get(TASK.name, ("nowhere", 0))
        if item is not None and item.status == "pending" and (held < item.generation or place == "stranded"):
            raise Violation(f"reconcile leaves generation {item.generation} to nobody; Redis has {held} {place}")

    def _check_ended(self, world: World, flushed: bool) -> None:
        item = self._stores.states[world.store].items.get(TASK)
        held = Bench(self._queues.states[world.queue]).state(PROVIDER)
        if item is None:
            expected: dict[str, tuple[str, int]] = {}
        elif item.status == "pending":
            raise Violation(f"the task never ends: {item}, Redis holds {held}")
        else:
            is_dead_letter = item.status == "failed" and not item.refused
            expected = {TASK.name: ("dead", item.generation)} if is_dead_letter else {}
        if held != expected and not (flushed and not held):
            raise Violation(f"in the end Redis holds {held} instead of {expected}: {item}")


# --- the provider


_KEYS = {
    str(uuid.uuid5(uuid.NAMESPACE_URL, f"{TASK.id}@{generation}.{resubmits}")): (generation, resubmits)
    for generation in (*range(OLD_MS, OLD_MS + 10), *range(START_MS, START_MS + 10))
    for resubmits in range(3)
}


def _provider_answers(
    state: ProviderState, call: Call, actor: int, is_stalled: bool, troubles: frozenset[Trouble]
) -> Iterator[tuple[str, ProviderState, Reply | TransportError]]:
    """What the provider may say: first what is usual, then each trouble while its budget lasts."""
    may_trouble = troubles if state.trouble else frozenset()
    worse = state._replace(trouble=state.trouble - 1)
    match call.method:
        case "POST":
            begun = _begun(state, call, actor, is_stalled)
            yield from _submit_answers(state, worse, call, begun, may_trouble)
        case "DELETE":
            yield f"cancels {_job(call)}", state, Reply(204, {}, b"", call.url)
        case _:
            generation = _generation_of(_job(call))
            done = _reply(call, 200, status="done", data={"generation": generation})
            yield f"polls {_job(call)}: done", state, done
            bodies: dict[Trouble, tuple[int, dict[str, Any]]] = {
                "still running": (200, {"status": "running", "partial": {"generation": generation}}),
                "failed": (200, {"status": "failed", "error": "no"}),
                "lost job": (200, {"status": "lost"}),
                "error": (500, {}),
            }
            for trouble, (status, body) in bodies.items():
                if trouble in may_trouble:
                    yield f"polls {_job(call)}: {trouble}", worse, _reply(call, status, **body)


def _begun(state: ProviderState, call: Call, actor: int, is_stalled: bool) -> Submit:
    """The job that this call begins. Raises Violation for a second one that nothing excuses."""
    key = call.headers["Idempotency-Key"]
    if key not in _KEYS:
        raise Violation(f"the idempotency key {key} belongs to no generation")
    generation, resubmits = _KEYS[key]
    for earlier in state.submits:
        same = (earlier.generation, earlier.resubmits) == (generation, resubmits)
        if same and earlier.answer != "lost" and not is_stalled:
            raise Violation(f"actor {actor} submits generation {generation} again, after actor {earlier.actor}")
    return Submit(generation, resubmits, key, actor, "lost" if is_stalled else "on the way")


def _submit_answers(
    state: ProviderState, worse: ProviderState, call: Call, submit: Submit, may_trouble: frozenset[Trouble]
) -> Iterator[tuple[str, ProviderState, Reply | TransportError]]:
    generation = submit.generation
    job, partial = f"{generation}.{submit.resubmits}.{len(state.submits)}", {"generation": generation}
    begun, worse_begun = (one._replace(submits=(*state.submits, submit)) for one in (state, worse))
    running = _reply(call, 202, status="running", job=job, partial=partial)
    yield f"submits {generation}: running", begun, running
    if "done at once" in may_trouble:
        yield f"submits {generation}: done", worse_begun, _reply(call, 200, status="done", data=partial)
    if "refused" in may_trouble:
        yield f"submits {generation}: refused", worse_begun, _reply(call, 422, status="failed", error="no")
    if "error" in may_trouble:
        yield f"submits {generation}: HTTP 500", worse, _reply(call, 500)
    if "cut off" in may_trouble:
        lost = worse._replace(submits=(*state.submits, submit._replace(answer="lost")))
        yield f"submits {generation}: the answer is cut off", lost, TransportError("cut off")


def _reply(call: Call, code: int, **body: Any) -> Reply:
    return Reply(code, {}, dumps(body).encode(), call.url)


def _job(call: Call) -> str:
    return call.url.rpartition("/")[2]


def _generation_of(job: str) -> int:
    return int(job.partition(".")[0])


def _last(kinds: tuple[Kind, ...], kind: Kind) -> int | None:
    return max((actor for actor, one in enumerate(kinds) if one == kind), default=None)


def _replaced(places: tuple[int, ...], actor: int, place: int) -> tuple[int, ...]:
    return (*places[:actor], place, *places[actor + 1 :])
