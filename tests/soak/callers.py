"""Those who call the handlers: clients with their requests, the schedules, and whoever else is to."""

import json
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, Self
from urllib.parse import urlencode

from local.aws.sandbox import FunctionError
from tests.soak.plan import PROVIDERS
from tests.soak.world import PROCESSES, World
from tests.support.api_events import rest

BETWEEN_SECONDS = {"request": 0.35, "tick": 0.3, "reconcile": 3.0}
"""How long a caller waits between two calls, on average."""
NAMES = {"hooks": 6}
MOST_NAMES = 40
"""So many names of each provider are asked for again and again, beside new ones; few where callbacks are to be late."""

Call = Callable[[World, Random], None]


class Callers:
    """Threads that call; a context manager. Each of them is one entry of the list in `__init__`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._requesting, self._working = threading.Event(), threading.Event()
        callers: list[tuple[str, Call, int, threading.Event]] = [
            ("request", request, PROCESSES["enqueue"], self._requesting),
            ("tick", lambda world, _: invoke(world, "process"), PROCESSES["process"], self._working),
            ("reconcile", lambda world, _: invoke(world, "reconcile"), 1, self._working),
        ]
        self._threads = [
            threading.Thread(target=self._again, args=(name, call, number, end), name=f"{name}-{number}")
            for name, call, count, end in callers
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Nobody calls any more, and who was at it has his answer."""
        self._requesting.set()
        self._working.set()
        for thread in self._threads:
            thread.join()

    def stop_requests(self) -> None:
        self._requesting.set()

    def _again(self, name: str, call: Call, number: int, end: threading.Event) -> None:
        random = Random(f"{self._world.seed} {name} {number}")
        while not end.wait(random.uniform(0, 2 * BETWEEN_SECONDS[name])):
            call(self._world, random)


def invoke(world: World, function: str) -> None:
    """One schedule event; a function that dies of it is what a soak is for."""
    try:
        world.functions[function].invoke({})
    except FunctionError as error:
        world.journal.write("broken off", function=function, why=str(error))


def request(world: World, random: Random) -> None:
    """One HTTP request of a client, who writes down what he was answered."""
    verb = random.choices(["begin", "batch", "cancel", "revive", "look"], weights=[76, 4, 7, 7, 6])[0]
    tasks = [_chosen(world, random, verb) for _ in range(random.randint(2, 5) if verb == "batch" else 1)]
    bodies = [dict(zip(("provider", "name"), task.split("/"), strict=True)) for task in tasks]
    body = bodies[0]
    query = f"/tasks?{urlencode(body)}"
    event = {
        "begin": lambda: rest("POST", "/tasks", body | _group(random), _impatience(random)),
        "batch": lambda: rest("POST", "/tasks/batch", {"tasks": bodies}, _impatience(random)),
        "cancel": lambda: rest("DELETE", query),
        "revive": lambda: rest("POST", "/tasks/revive", body),
        "look": lambda: rest("GET", query),
    }[verb]()
    asked = {"verb": verb, "begun": time.time()}
    try:
        answer: Any = world.functions["enqueue"].invoke(event)
    except FunctionError as error:
        for task in tasks:
            world.journal.write("unanswered", task=task, why=str(error), **asked)
        return
    said = json.loads(answer["body"])
    answers = said.get("results") or [{"status": answer["statusCode"], "body": said}] * len(tasks)
    for task, one in zip(tasks, answers, strict=True):
        facts = {key: one["body"].get(key) for key in ("status", "generation", "data", "deduplicated", "detail")}
        world.journal.write("answered", task=task, code=one["status"], **asked, **facts)


def _chosen(world: World, random: Random, verb: str) -> str:
    """A task to ask for: one of a few names, or a new one; to cancel or look at an open one, to revive a failed one."""
    known = {"cancel": list(world.pending), "revive": list(world.failed), "look": list(world.pending)}.get(verb)
    if known:
        return random.choice(known)
    provider = random.choice(PROVIDERS)
    is_known = random.random() < 0.5
    number = random.randrange(NAMES.get(provider, MOST_NAMES)) if is_known else f"new-{random.randrange(10**9)}"
    return f"{provider}/{number}"


def _group(random: Random) -> dict[str, str]:
    return {"group": random.choice("abc")} if random.random() < 0.3 else {}


def _impatience(random: Random) -> dict[str, str]:
    return {"Cache-Control": "no-cache"} if random.random() < 0.2 else {}
