"""The world of a soak: servers, and the real handlers as processes, which write down what happens."""

import json
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TextIO

import boto3
from redis import Redis
from typing_extensions import override

from local import ROOT
from local.aws.function import Function
from local.aws.gateway import REST, Gateway
from local.aws.sandbox import Sandbox
from local.aws.wakes import Wakes
from local.running import Running
from local.servers.dynamodb import DUMMY_CREDENTIALS, REGION, TABLE_NAME, DynamoDB, create_table
from local.servers.redis_server import RedisServer
from tests.soak.hosting import ForkedSandbox
from tests.soak.journal import Follower, Journal
from tests.soak.plan import PROVIDERS, SECRETS, SETTINGS, TIMEOUTS, files
from tests.support.keys import Bench, RedisKeys

PROCESSES = {"enqueue": 3, "callback": 2, "process": 3, "reconcile": 1}
"""How many of each may be at work at once."""
COUNTED = {"called": "callbacks", "kill": "kills", "fault": "faults", "freeze": "faults"}
"""Which of the counts an event adds to, beside writes and requests in trouble."""


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
    """A function whose processes are forks, and whose processes' ends are written down."""

    sandbox = ForkedSandbox

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
        self.folder, self.seed = folder, seed
        self.journal = Journal(folder / "world.jsonl")
        self.table = Child("tests.soak.table", str(folder / "table.jsonl"), seed)
        self.provider = Child("tests.soak.provider", str(folder / "provider.jsonl"), seed)
        self.redis, self.sqs = RedisServer(), DynamoDB()  # of which only its SQS is used
        self.functions, self._routes = dict[str, Function](), dict[str, Function]()
        self._gateway = Gateway(self._routes, REST)
        self.pending: dict[str, int] = {}
        self.failed: set[str] = set()
        self.counts = {"tasks": 0, "ended": 0, "callbacks": 0, "kills": 0, "faults": 0}
        """What was seen so far; a task that begins again counts again."""
        self._log = log
        self._followers = [Follower(folder / f"{name}.jsonl") for name in ("table", "provider", "world")]
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            for server in (self.redis, self.table, self.provider, self.sqs):
                entered.enter_context(server)
            access: Any = {name.lower(): value for name, value in DUMMY_CREDENTIALS.items()}
            create_table(boto3.client("dynamodb", endpoint_url=self.table.url, region_name=REGION, **access))
            (self.folder / "providers").mkdir()
            for name, file in files(self.provider.url).items():
                (self.folder / "providers" / f"{name}.json").write_text(json.dumps(file), encoding="utf-8")
            for name, seconds in TIMEOUTS.items():
                self.functions[name] = entered.enter_context(self._function(name, seconds))
            entered.enter_context(Wakes(self.sqs, self.functions["process"]))
            self._routes["CallbackFunction"] = self.functions["callback"]
            entered.enter_context(self._gateway)
            self._exit = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def follow(self) -> None:
        """Count what was written down since the last look."""
        for follower in self._followers:
            for event in follower.news():
                if event["what"] == "write":
                    self._note(event)
                elif counted := COUNTED.get(event["what"], event.get("trouble") and "faults"):
                    self.counts[counted] += 1

    def is_begun(self) -> bool:
        """Whether anything has been accepted."""
        self.follow()
        return self.counts["tasks"] > 0

    def is_drained(self) -> bool:
        """Whether nothing is open in DynamoDB and nothing is queued in Redis."""
        self.follow()
        with self.client() as client:
            bench = Bench(RedisKeys(client))
            return not self.pending and not any(bench.parts(name)["queue"] for name in PROVIDERS)

    def note_rest(self) -> None:
        with self.client() as client:
            bench = Bench(RedisKeys(client))
            parts = {name: bench.parts(name) for name in PROVIDERS}
            dead, places = dict[str, int](), dict[str, list[str]]()
            for place in ("queue", "leases", "jobs", "groups"):
                places[place] = [f"{one}/{name}" for one in PROVIDERS for name in parts[one][place]]
            for one in PROVIDERS:
                states = bench.state(one).items()
                dead |= {f"{one}/{name}": generation for name, (where, generation) in states if where == "dead"}
            self.journal.write("rest", leaks=bench.leaks(), dead=dead, **places)

    def client(self) -> "Redis":
        return Redis.from_url(self.redis.url, decode_responses=True)

    def _note(self, event: dict[str, Any]) -> None:
        new = event["new"]
        if new["status"] == "pending":
            if self.pending.get(event["task"]) != new["generation"]:
                self.counts["tasks"] += 1
            self.pending[event["task"]] = new["generation"]
        elif self.pending.pop(event["task"], None):
            self.counts["ended"] += 1
        (self.failed.add if new["status"] == "failed" else self.failed.discard)(event["task"])

    def _function(self, name: str, seconds: float) -> Function:
        environment = {
            **DUMMY_CREDENTIALS, **SECRETS, **SETTINGS,
            "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_DYNAMODB": self.table.url, "TABLE_NAME": TABLE_NAME, "REDIS_URL": self.redis.url,
            "PROVIDERS_DIR": str(self.folder / "providers"), "POWERTOOLS_LOG_LEVEL": "DEBUG",
            "CALLBACK_URL": self._gateway.url, "CALLBACK_SECRET": "env:SOAK_CALLBACK_KEY",
            "AWS_ENDPOINT_URL_SQS": self.sqs.url, "WAKE_QUEUE_URL": self.sqs.wake_queue_url,
        }  # fmt: skip
        handler, processes = f"handlers.{name}.handler", PROCESSES[name]
        options: dict[str, Any] = {"log": self._log, "concurrency": processes, "journal": self.journal}
        return Hosted(name, handler, seconds, environment, **options)
