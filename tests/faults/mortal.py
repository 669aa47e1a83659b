"""A handler in a process of its own, which may die at any step: SIGKILL, as a function's environment ends.

A step is one call over a wire: a script of the queue (by its verb), an operation of AWS (by its name), a request to
the provider (by its method). They are told apart at the clients, so that a new handler or a new write is a new step
without a word here.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from botocore.client import BaseClient
from botocore.config import Config

from shared import aws, wiring
from shared.provider.wire.transport import Transport
from shared.queue import Queue
from tests.support.api_events import Context

FORKS = multiprocessing.get_context("forkserver")
HANDLERS = ("enqueue", "process", "reconcile", "callback")
FORKS.set_forkserver_preload(["tests.faults.mortal", *(f"handlers.{name}" for name in HANDLERS)])
WAIT_SECONDS = 60
"""How long a call to AWS, or a test, waits for what must come; only a failing test waits so long."""

Step: TypeAlias = tuple[str, str]
"""Its name; and for a write that ended a generation the task's id, the generation and the status, else nothing."""


@dataclass(frozen=True, slots=True)
class Errand:
    """One invocation: `dies_after` is the number of the step that is its last, from 0; None: it lives."""

    handler: str
    event: Any
    environment: dict[str, str]
    now_ms: int
    seconds: float
    dies_after: int | None = None


@dataclass(slots=True)
class Life:
    """What came of an errand: its steps, and what the handler returned, if it came to that."""

    process: Any
    heard: Connection
    steps: list[Step] = field(default_factory=list)
    result: Any = None

    def wait(self) -> "Life":
        while self.heard.poll(WAIT_SECONDS):
            try:
                kind, said = self.heard.recv()
            except EOFError:
                break
            if kind == "step":
                self.steps.append(said)
            else:
                self.result = said
        self.process.join(WAIT_SECONDS)
        self.heard.close()
        return self

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.steps]

    @property
    def killed(self) -> bool:
        return bool(self.process.exitcode == -signal.SIGKILL)


def begin(errand: Errand) -> Life:
    heard, told = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_live, args=(told, errand), daemon=True)
    process.start()
    told.close()
    return Life(process, heard)


def watch(setattr_: Callable[[Any, str, Any], object], taken: Callable[[Step], object]) -> None:
    """Tells of every step of this process, once it has been taken, well or not."""

    def telling(owner: Any, method: str) -> None:
        call = getattr(owner, method)

        def told(self: Any, what: Any, *arguments: Any, **options: Any) -> Any:
            ended = ""
            try:
                reply = call(self, what, *arguments, **options)
                ended = _ended(arguments[0]) if owner is BaseClient else ""
                return reply
            finally:
                taken((getattr(what, "method", what), ended))

        setattr_(owner, method, told)

    telling(Queue, "_call")
    telling(BaseClient, "_make_api_call")
    telling(Transport, "send")


def patient(tries: int = 2, **options: Any) -> Config:
    """Calls to AWS that are not cut because this machine is busy; how short they are kept is tested elsewhere."""
    return Config(connect_timeout=WAIT_SECONDS, read_timeout=WAIT_SECONDS, **options)


def _live(told: Connection, errand: Errand) -> None:
    lock, number = threading.Lock(), -1

    def taken(step: Step) -> None:
        nonlocal number
        with lock:
            number += 1
            told.send(("step", step))
            if number == errand.dies_after:
                os.kill(os.getpid(), signal.SIGKILL)

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.environ.clear()
    os.environ.update(errand.environment)
    wiring.clock = lambda: errand.now_ms
    wiring.SHIPPED = Path(errand.environment["PROVIDERS_DIR"])
    aws.prompt = patient
    watch(setattr, taken)
    told.send(("result", import_module(f"handlers.{errand.handler}").handler(errand.event, Context(errand.seconds))))


def _ended(arguments: dict[str, Any]) -> str:
    values = arguments.get("ExpressionAttributeValues", {})
    if (item := arguments.get("Item")) and values[":seen_status"]["S"] == "pending":  # the end of what is to be erased
        return f"{item['task_id']['S']} {item['generation']['N']} {item['status']['S']}"
    status = values.get(":status", {"S": "pending"})["S"]
    return "" if status == "pending" else f"{arguments['Key']['task_id']['S']} {values[':generation']['N']} {status}"
