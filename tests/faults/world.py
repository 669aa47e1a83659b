"""The whole of Meanwhile on real servers, whose time stands still until a test lets it pass."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from handlers import enqueue, process, reconcile
from local.servers.dynamodb import DynamoDB, create_table
from local.servers.redis_server import RedisServer
from shared import aws, wiring
from shared.queue.client import client_of
from shared.queue.cluster import Cluster
from tests.faults import mortal
from tests.faults.client_view import compare
from tests.faults.mortal import Errand, Life, Step
from tests.support.api_events import Context, Event, rest
from tests.support.clock import Clock
from tests.support.deployment import Answered, above_0
from tests.support.keys import Bench, RedisKeys
from tests.support.simulator import DONE, JOB, Simulator, pending

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

FILE: Any = JOB | {
    "acceptors": [{"state": "success", "expected": "completed", "on": ["submit", "poll"]}, *JOB["acceptors"]]
}
"""A provider with jobs, which may be completed as soon as they are submitted."""
NAME = "a"
"""The task, where there is only one."""
DELETE = rest("DELETE", f"/tasks?provider=job&name={NAME}")
ERASE = rest("DELETE", f"/erase/job/{NAME}")
REVIVE = rest("POST", "/tasks/revive", {"provider": "job", "name": NAME})
FURTHER = pending({"city": "Ghent", "street": None, "x": 1}, id="j-1")
"""News of its job."""
LEASE_SECONDS = 30
LONGEST_SECONDS = FILE["polling"]["maxDelay"]
"""The longest delay in that file."""
ROUNDS = 12
NUMBERS = count()
REWIND = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TYPE', key).ok == 'zset' then
    local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #members, 2 do
      local score, group, due, name = tonumber(members[i + 1]), string.match(members[i], '^(%Z*)%z(%d+)%z(.*)$')
      if group then
        local earlier = string.format('%013.0f', math.max(1, due - ARGV[1]))
        redis.call('ZREM', key, members[i])
        redis.call('ZADD', key, 0, group .. '\\0' .. earlier .. '\\0' .. name)
      elseif score > 0 then
        redis.call('ZADD', key, math.max(1, score - ARGV[1]), members[i])
      end
    end
  elseif string.match(key, ':gate$') then
    for _, field in ipairs({ 'until', 'full_at' }) do
      local at = tonumber(redis.call('HGET', key, field) or '')
      if at then redis.call('HSET', key, field, string.format('%.17g', math.max(1, at - ARGV[1]))) end
    end
  end
end"""
"""What `Bench.rewind` does, in one go: here time passes often, over many tasks."""


class World:
    """The handlers in this process, warm, or in others that may die; over one Redis, one table and one provider.

    `way` is the URL by which the handlers reach that Redis, if not the same as the test does.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        folder: Path,
        simulator: Simulator,
        redis_url: str,
        dynamodb: DynamoDB,
        *,
        files: Mapping[str, Any] = {"job": FILE},
        way: str | None = None,
        **settings: str,
    ) -> None:
        self.patch, self.simulator, self.clock = patch, simulator, Clock()
        client: Any = client_of(redis_url)
        self.redis = client
        self.redis.flushall()
        self.bench = Bench(RedisKeys(client))
        self.dynamodb: DynamoDBClient = dynamodb.client()
        self.table = f"faults-{next(NUMBERS)}"
        self.ends: Counter[str] = Counter()
        create_table(self.dynamodb, self.table)
        for name, file in files.items():
            (folder / f"{name}.json").write_text(simulator.file(file), encoding="utf-8")
        chosen = {
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb.url, "TABLE_NAME": self.table, "REDIS_URL": way or redis_url,
            "PROVIDERS_DIR": str(folder), "DEFAULT_PROVIDER": next(iter(files)),
            "IDLE_SECONDS": "0", "TICK_SECONDS": "60",  # a tick ends as soon as nothing is due, and looks no sooner
            **settings,
        }  # fmt: skip
        for variable, value in chosen.items():
            patch.setenv(variable, value)
        patch.setattr(wiring, "SHIPPED", folder)
        patch.setattr(wiring, "clock", self.clock)
        patch.setattr(aws, "prompt", mortal.patient)
        mortal.watch(patch.setattr, self.note)
        self.forget_wiring()

    @staticmethod
    def forget_wiring() -> None:
        """The next call of a handler here is a cold start."""
        for made in vars(wiring).values():
            if hasattr(made, "cache_clear"):
                made.cache_clear()

    def close(self) -> None:
        if wiring.queue.cache_info().currsize:
            wiring.queue()._client.close()
        self.redis.close()

    # --- the handlers, here

    def post(self, name: str, provider: str = "job", **headers: str) -> Answered:
        return self.ask(rest("POST", "/tasks", {"provider": provider, "name": name}, headers))

    def ask(self, event: Event, seconds: float = 25) -> Answered:
        return Answered(enqueue.handler(event, Context(seconds)))  # type: ignore[arg-type]

    def process(self, seconds: float = 80) -> dict[str, dict[str, int]]:
        """One tick; what counted above 0."""
        return above_0(process.handler({}, Context(seconds)))  # type: ignore[arg-type]

    def reconcile(self, seconds: float = 60) -> dict[str, dict[str, int]]:
        """One run; what counted above 0."""
        return above_0(reconcile.handler({}, Context(seconds)))  # type: ignore[arg-type]

    # --- and elsewhere

    def send(self, handler: str, event: Any = None, *, dies_after: int | None = None, seconds: float = 80) -> Life:
        """A process that is on its way with one event."""
        return mortal.begin(Errand(handler, event, dict(os.environ), self.clock(), seconds, dies_after))

    def run(self, handler: str, event: Any = None, *, dies_after: int | None = None) -> Life:
        """What such a process did, once it is over."""
        life = self.send(handler, event, dies_after=dies_after).wait()
        for step in life.steps:
            self.note(step)
        return life

    # --- time

    def due(self, *names: str) -> None:
        """Tasks that the next tick will find due."""
        for name in names:
            self.post(name)
        self.pass_(LEASE_SECONDS)

    def polls(self) -> Counter[str]:
        """How often each name's job was asked after."""
        return Counter(asked.name for asked in self.simulator.asked if asked.method == "GET")

    def pass_(self, seconds: float) -> None:
        """Let time pass, for the handlers and in Redis."""
        self.clock.advance(seconds)
        is_cluster = isinstance(self.redis, Cluster)
        for node in self.redis.get_primaries() if is_cluster else ():
            node.redis_connection.eval(REWIND, 0, round(seconds * 1000))
        if not is_cluster:
            self.redis.eval(REWIND, 0, round(seconds * 1000))

    def finish(self, name: str, provider: str = "job") -> None:
        """Tick and reconcile, as the schedules do, until the task has ended and Redis has nothing to do for it."""
        for number in range(ROUNDS):
            self.pass_(LEASE_SECONDS + LONGEST_SECONDS + 1)
            self.process()
            item = self.item(name, provider)
            if (item is None or "open" not in item) and name not in self.bench.parts(provider)["queue"]:
                return
            if number > 0:
                self.reconcile()
        pytest.fail(f"{name} has not ended: {self.item(name, provider)}, {self.bench.parts(provider)}")

    # --- what is there

    def known(self, name: str, provider: str = "job") -> dict[str, Any]:
        item = self.item(name, provider)
        assert item is not None
        return item

    def item(self, name: str, provider: str = "job") -> dict[str, Any] | None:
        key = {"task_id": {"S": f"{provider}/{name}"}}
        return self.dynamodb.get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")

    def status(self, name: str, provider: str = "job") -> str:
        """The item's status; "none" without an item."""
        return str((self.item(name, provider) or {"status": {"S": "none"}})["status"]["S"])

    def submits(self, name: str) -> list[str]:
        """The idempotency keys under which the provider was given a job, in turn."""
        return [
            one.headers["idempotency-key"] for one in self.simulator.asked if (one.method, one.name) == ("POST", name)
        ]

    def check(self, name: str, provider: str = "job") -> None:
        """Nothing is out of joint in Redis, and a client sees of the task what is there, field by field."""
        assert self.bench.leaks() == []
        before = self.bench.keys.now()
        seen = self.ask(rest("GET", f"/tasks?provider={provider}&name={name}"))
        after = self.bench.keys.now()
        item = self.item(name, provider)
        if item is None:
            assert seen.status == 404
        else:
            wakes, parts = wiring.queue().wakes, self.bench.parts(provider)
            compare(seen.body, item, parts, self.clock(), (before, after), wakes=wakes)

    def check_end(self, name: str, provider: str = "job") -> None:
        """It has ended, once, and has left nothing; a failure that nobody was told at once, a dead letter."""
        self.check(name, provider)
        item = self.known(name, provider)
        assert "open" not in item
        assert self.ends[f"{provider}/{name} {item['generation']['N']} {item['status']['S']}"] == 1
        generations = Counter(end.rpartition(" ")[0] for end in self.ends.elements())
        assert set(generations.values()) == {1}  # one result for each
        parts = self.bench.parts(provider)
        is_dead_letter = item["status"]["S"] == "failed" and not json.loads(item["error"]["S"])["refused"]
        kept = {"dead", "state"} if is_dead_letter else set()
        assert {part for part, members in parts.items() if name in members} == kept

    def ends_well(self, *names: str) -> None:
        """Each is completed in the end, by the one job that was begun."""
        self.simulator.say(DONE)
        for name in names:
            self.check(name)
            self.finish(name)
            self.check_end(name)
            assert self.status(name) == "completed"
            assert len(self.submits(name)) == 1

    def places(self) -> list[str]:
        """Where the tasks are in Redis: waiting, processing, dead."""
        return [place for place, _ in self.bench.state("job").values()]

    def note(self, step: Step) -> None:
        """Keeps in mind what a step ended."""
        if step[1]:
            self.ends[step[1]] += 1


MakeWorld: TypeAlias = Callable[..., World]
"""Makes a world; `redis_url`, `way`, `files` and settings may be other than usual."""
StartServer: TypeAlias = Callable[..., RedisServer]
