"""The world of a soak: servers, the real handlers as processes, and those who call them."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, Self, TextIO

import boto3
from redis import Redis
from typing_extensions import override

from local import ROOT
from local.dynamodb import DUMMY_CREDENTIALS, REGION, TABLE_NAME, create_table
from local.function import Function
from local.redis_server import RedisServer
from local.running import Running
from local.sandbox import FunctionError, Sandbox
from tests.api_events import rest
from tests.keys import Bench, RedisKeys
from tests.soak.journal import Follower, Journal
from tests.soak.plan import PROVIDERS, SETTINGS, TIMEOUTS, files

PROCESSES = {"enqueue": 3, "process": 3, "reconcile": 1}
"""How many of each may be at work at once."""
BETWEEN_SECONDS = {"request": 0.35, "tick": 0.3, "reconcile": 3.0}
"""How long those who call wait between two calls, on average."""
NAMES = 40
"""So many names of each provider are asked for again and again, beside new ones."""


class Child(Running):
    """A server in a process of its own: it says its port, and is calm from the moment it is told."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, process_group=0)
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def calm(self) -> None:
        """No more troubles from it."""
        assert self._process
        assert self._process.stdin
        self._process.stdin.write("calm\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError), self._process:
                pass


class Hosted(Function):
    """A function whose processes' ends are written down."""

    def __init__(self, *arguments: Any, journal: Journal, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._journal = journal

    @override
    def _give_back(self, sandbox: Sandbox) -> None:
        if not sandbox.alive() and not self._closed:
            self._journal.write("ended", function=self.name, worker=sandbox.process.pid)
        super()._give_back(sandbox)


class World:
    """Everything at work; a context manager. `folder` gets the journals, the provider files and the functions' log."""

    def __init__(self, folder: Path, seed: str, log: TextIO) -> None:
        self.folder = folder
        self.seed = seed
        self.journal = Journal(folder / "world.jsonl")
        self.table = Child("tests.soak.table", str(folder / "table.jsonl"), seed)
        self.provider = Child("tests.soak.provider", str(folder / "provider.jsonl"), seed)
        self.redis = RedisServer()
        self.functions: dict[str, Function] = {}
        self.pending: dict[str, int] = {}
        self.counts = {"tasks": 0, "faults": 0, "kills": 0}
        self._log = log
        self._followers = [Follower(folder / f"{name}.jsonl") for name in ("table", "provider", "world")]
        self._exit = ExitStack()
        self._requesting, self._working = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            for server in (self.redis, self.table, self.provider):
                entered.enter_context(server)
            credentials = {name.lower(): value for name, value in DUMMY_CREDENTIALS.items()}
            create_table(
                boto3.client("dynamodb", endpoint_url=self.table.url, region_name=REGION, **credentials)  # type: ignore[call-overload]
            )
            (self.folder / "providers").mkdir()
            for name, file in files(self.provider.url).items():
                (self.folder / "providers" / f"{name}.json").write_text(json.dumps(file), encoding="utf-8")
            for name, seconds in TIMEOUTS.items():
                self.functions[name] = entered.enter_context(self._function(name, seconds))
            entered.callback(self._stop_threads, self._start_threads())
            self._exit = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def stop_requests(self) -> None:
        """Nobody asks for anything new."""
        self._requesting.set()

    def follow(self) -> None:
        """Count what was written down since the last look."""
        for follower in self._followers:
            for event in follower.news():
                if event["what"] == "write":
                    self._note(event)
                elif event["what"] == "kill":
                    self.counts["kills"] += 1
                elif event["what"] in ("fault", "freeze") or event.get("trouble"):
                    self.counts["faults"] += 1

    def is_begun(self) -> bool:
        """Whether anything has been accepted."""
        self.follow()
        return self.counts["tasks"] > 0

    def is_drained(self) -> bool:
        """Whether nothing is open in DynamoDB and nothing is queued in Redis."""
        self.follow()
        return not self.pending and not any(self.parts(name)["queue"] for name in PROVIDERS)

    def parts(self, provider: str) -> dict[str, dict[str, Any]]:
        with self.client() as client:
            return Bench(RedisKeys(client)).parts(provider)

    def note_rest(self) -> None:
        """Write down what Redis holds at the end."""
        with self.client() as client:
            bench = Bench(RedisKeys(client))
            parts = {name: bench.parts(name) for name in PROVIDERS}
            places = {
                place: [f"{provider}/{name}" for provider in PROVIDERS for name in parts[provider][place]]
                for place in ("queue", "leases", "jobs", "groups")
            }
            dead = {
                f"{provider}/{name}": generation
                for provider in PROVIDERS
                for name, (where, generation) in bench.state(provider).items()
                if where == "dead"
            }
            self.journal.write("rest", leaks=bench.leaks(), dead=dead, **places)

    def client(self) -> "Redis":
        """A client of this soak's Redis."""
        return Redis.from_url(self.redis.url, decode_responses=True)

    def _note(self, event: dict[str, Any]) -> None:
        new = event["new"]
        if new["status"] == "pending":
            if self.pending.get(event["task"]) != new["generation"]:
                self.counts["tasks"] += 1
            self.pending[event["task"]] = new["generation"]
        else:
            self.pending.pop(event["task"], None)

    def _function(self, name: str, seconds: float) -> Function:
        environment = {
            **DUMMY_CREDENTIALS,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_DYNAMODB": self.table.url,
            "TABLE_NAME": TABLE_NAME,
            "REDIS_URL": self.redis.url,
            "PROVIDERS_DIR": str(self.folder / "providers"),
            "POWERTOOLS_LOG_LEVEL": "DEBUG",
            **SETTINGS,
        }
        handler, processes = f"tests.soak.hosting.{name}", PROCESSES[name]
        options: dict[str, Any] = {"log": self._log, "concurrency": processes, "journal": self.journal}
        return Hosted(name, handler, seconds, environment, **options)

    def _start_threads(self) -> list[threading.Thread]:
        """Those who call. Whoever else is to call the handlers (webhooks, say) is one more entry of this list."""
        callers: list[tuple[Callable[[Random], None], str, int, threading.Event]] = [
            (self._request, "request", PROCESSES["enqueue"], self._requesting),
            (self._tick, "tick", PROCESSES["process"], self._working),
            (self._reconcile, "reconcile", 1, self._working),
        ]
        threads = [
            threading.Thread(target=self._again, args=(call, name, number, end), name=f"{name}-{number}")
            for call, name, count, end in callers
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _stop_threads(self, threads: Iterable[threading.Thread]) -> None:
        self._requesting.set()
        self._working.set()
        for thread in threads:
            thread.join()

    def _again(self, call: Callable[[Random], None], name: str, number: int, end: threading.Event) -> None:
        random = Random(f"{self.seed} {name} {number}")
        while not end.wait(random.uniform(0, 2 * BETWEEN_SECONDS[name])):
            call(random)

    def _tick(self, _: Random) -> None:
        with suppress(FunctionError):
            self.functions["process"].invoke({})

    def _reconcile(self, _: Random) -> None:
        with suppress(FunctionError):
            self.functions["reconcile"].invoke({})

    def _request(self, random: Random) -> None:
        """One HTTP request by a client, who writes down what he was answered."""
        provider = random.choice(PROVIDERS)
        name = f"{provider}-{random.randrange(NAMES)}" if random.random() < 0.5 else f"new-{random.randrange(10**9)}"
        verb = random.choices(["begin", "cancel", "revive", "look"], weights=[80, 8, 6, 6])[0]
        query = f"/tasks?provider={provider}&name={name}"
        body = {"provider": provider, "name": name}
        event = {
            "begin": lambda: rest("POST", "/tasks", body | _group(random), _impatience(random)),
            "cancel": lambda: rest("DELETE", query),
            "revive": lambda: rest("POST", "/tasks/revive", body),
            "look": lambda: rest("GET", query),
        }[verb]()
        asked = {"verb": verb, "task": f"{provider}/{name}", "begun": time.time()}
        try:
            answer: Any = self.functions["enqueue"].invoke(event)
        except FunctionError as error:
            self.journal.write("unanswered", why=str(error), **asked)
            return
        said = json.loads(answer["body"])
        facts = {key: said.get(key) for key in ("status", "generation", "data", "deduplicated", "detail")}
        self.journal.write("answered", code=answer["statusCode"], **asked, **facts)


def _group(random: Random) -> dict[str, str]:
    return {"group": random.choice("abc")} if random.random() < 0.3 else {}


def _impatience(random: Random) -> dict[str, str]:
    return {"Cache-Control": "no-cache"} if random.random() < 0.2 else {}
