"""The scripts on real servers: what they touch and cost, and what they do on a server that is full or has restarted."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from shared.errors import QueueUnavailable
from shared.limits import UNLIMITED, Health, Limits
from shared.queue import Add, End, Hold, Queue, Release
from shared.queue.queue import _SCRIPTS
from shared.task import Task
from tests.support.keys import PREFIX, PROVIDER, Bench, key_of
from tests.support.redis_servers import SERVERS

HOUR = 3600.0
VERBS = sorted(path.stem for path in _SCRIPTS.glob("*.lua") if path.stem != "prelude")

pytestmark = pytest.mark.parametrize("redis_kind", SERVERS[1:], indirect=True)


def task(name: str = "a") -> Task:
    return Task(PROVIDER, name)


@pytest.fixture(autouse=True)
def loaded(redis_client: "Redis", bare_queue: Queue) -> None:
    """The server knows the scripts, as it does after the first call."""
    for script in bare_queue._scripts.values():
        redis_client.script_load(script.script)


def every_verb(queue: Queue, bench: Bench) -> dict[str, Callable[[], object]]:
    """A call of each script that does all that the script can do."""
    hold = {name: bench.seed(name, lease_seconds=30) for name in ("complete", "release", "bury", "forget", "end")}
    bench.seed("expired", lease_seconds=-5)
    bench.seed("suspect", crashes=1)
    bench.seed("due")
    bench.seed("dead", dead=True)
    bench.seed("later", due_seconds=60)
    newer = [Add(task(name), 2, "{}") for name in ("dead", "due")]
    return {
        "add": lambda: queue.add([Add(task("new"), 1, "{}"), *newer], token="t"),
        "claim": lambda: queue.claim(PROVIDER, limit=5, lease_seconds=30, token="t"),
        "complete": lambda: queue.complete([hold["complete"]]),
        "release": lambda: queue.release([Release(hold["release"], 5, "{}")]),
        "bury": lambda: queue.bury([hold["bury"]]),
        "forget": lambda: queue.forget([(task("forget"), 1), (task("dead"), 9)]),
        "end": lambda: queue.end([End(task("end"), 1, "forgotten"), End(task("due"), 1, "buried")]),
        "hasten": lambda: queue.hasten([(task("later"), 1)]),
        "look": lambda: queue.look([task("due"), task("complete")], records=True),
        "strays": lambda: queue._call("strays", PROVIDER, (3, "0")),
    }


@contextmanager
def watched(client: "Redis") -> Iterator[list[dict[str, Any]]]:
    """The commands that the server runs meanwhile; those of scripts have the client type `lua`."""
    seen: list[dict[str, Any]] = []
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]

        def listen() -> None:
            for command in monitor.listen():
                if "the end of watching" in command["command"]:
                    return
                seen.append(command)

        listener = threading.Thread(target=listen)
        listener.start()
        yield seen
        client.echo("the end of watching")
        listener.join(timeout=20)
        assert not listener.is_alive()


def words(command: dict[str, Any]) -> list[str]:
    return re.findall(r"\S+", command["command"])


def by_scripts(seen: list[dict[str, Any]]) -> list[list[str]]:
    return [words(command) for command in seen if command["client_type"] == "lua"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_touches_the_keys_it_is_passed_and_all_are_in_one_slot(
    queue: Queue, bench: Bench, redis_client: "Redis", verb: str
) -> None:
    call = every_verb(queue, bench)[verb]
    with watched(redis_client) as seen:
        call()
    (sent,) = [words(command) for command in seen if words(command)[0].upper() == "EVALSHA"]
    passed = set(sent[3 : 3 + int(sent[2])])
    touched = {command[1] for command in by_scripts(seen) if command[0].upper() != "TIME"}
    assert touched <= passed
    assert all(key.startswith(f"{{{PREFIX}:{PROVIDER}}}") for key in passed)


def test_every_call_is_one_round_trip(queue: Queue, bench: Bench, redis_client: "Redis") -> None:
    calls = every_verb(queue, bench)
    with watched(redis_client) as seen:
        for call in calls.values():
            call()
    sent = [words(command)[0].upper() for command in seen if command["client_type"] != "lua"]
    assert [word for word in sent if word not in ("HELLO", "CLIENT")] == ["EVALSHA"] * len(VERBS)


@pytest.mark.parametrize("suspect", [False, True])
def test_what_a_claim_does_does_not_grow_with_the_tasks_that_are_not_due(
    queue: Queue, bench: Bench, redis_client: "Redis", suspect: bool
) -> None:
    def commands() -> int:
        for number in range(5):
            bench.seed(f"due {number}", crashes=int(suspect))
        with watched(redis_client) as seen:
            queue.claim(PROVIDER, limit=5, lease_seconds=30, token="t", suspect=suspect)
        return len(by_scripts(seen))

    few = commands()
    redis_client.flushall()
    queue.add([Add(task(f"{number}"), 1, "{}", HOUR) for number in range(3000)], token="t")
    assert commands() == few


LIMITED = Limits(rate_seconds=0.001, burst=1000, parallel=900, open_jobs=3)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("limits", [UNLIMITED, LIMITED], ids=["unlimited", "limited"])
def test_what_a_claim_does_does_not_grow_with_what_is_due_beyond_what_it_sees(
    queue: Queue, bench: Bench, redis_client: "Redis", limits: Limits, grouped: bool
) -> None:
    """500 tasks are seen where there are groups, and as many again of the rest; else no more than are taken."""
    group = "A" if grouped else ""

    def commands(backlog: int) -> int:
        redis_client.flushall()
        for number in range(3):
            bench.seed(f"{number}", has_job=True, group=group)
        queue.add([Add(task(f"waits {number}"), 1, "{}", 0, group) for number in range(backlog)], token="t")
        with watched(redis_client) as seen:
            queue.claim(PROVIDER, limit=3, lease_seconds=30, token="t", limits=limits)
        return len(by_scripts(seen))

    assert commands(6000) == commands(1300)


def test_limits_that_a_provider_does_not_have_cost_a_claim_two_looks_and_no_write(
    queue: Queue, bench: Bench, redis_client: "Redis"
) -> None:
    bench.seed("a")
    with watched(redis_client) as seen:
        queue.claim(PROVIDER, limit=3, lease_seconds=30, token="t")
    others = {key_of(PROVIDER, part) for part in ("gate", "jobs", "groups")}
    assert [command[0].upper() for command in by_scripts(seen) if others & set(command[1:2])] == ["EXISTS", "HMGET"]


def test_without_limits_an_add_does_not_look_who_waits(queue: Queue, bench: Bench, redis_client: "Redis") -> None:
    bench.seed("waits")

    def looks(limits: Limits) -> bool:
        with watched(redis_client) as seen:
            queue.add([Add(Task(PROVIDER, "a"), 1, "{}")], token="t", lease_seconds=30, limits=limits)
        queue.forget([(Task(PROVIDER, "a"), 1)])
        return any(command[0].upper() == "ZRANGEBYSCORE" for command in by_scripts(seen))

    assert looks(Limits(parallel=2))
    assert not looks(UNLIMITED)


@contextmanager
def full(client: "Redis") -> Iterator[None]:
    """The server is at its limit and evicts nothing."""
    before: Any = client.config_get("maxmemory", "maxmemory-policy")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        for setting, value in before.items():
            client.config_set(setting, value)


@pytest.mark.promise("ends", "a Redis at maxmemory refuses new tasks and still releases those it has")
def test_a_full_server_takes_no_new_task_and_keeps_no_part_of_it(
    queue: Queue, redis_client: "Redis", bench: Bench
) -> None:
    with full(redis_client), pytest.raises(QueueUnavailable, match="maxmemory"):
        queue.add([Add(task(), 1, "{}")], token="t")
    assert bench.keys.dump() == {}
    assert queue.add([Add(task(), 1, "{}")], token="t") == ["created"]


@pytest.mark.promise("ends", "a Redis at maxmemory refuses new tasks and still releases those it has")
def test_a_full_server_still_drains(queue: Queue, seed: Any, bench: Bench, redis_client: "Redis") -> None:
    for number in range(4):
        seed(f"due {number}", due_seconds=number - 10)
    seed("expired", lease_seconds=-5)
    seed("dead", dead=True)
    with full(redis_client):
        claim = queue.claim(PROVIDER, limit=10, lease_seconds=30, token="t")
        completed, released, buried, forgotten = (claimed.hold for claimed in claim.tasks)
        assert queue.complete([completed]) == [True]
        assert queue.release([Release(released, 60, '{"longer": "record"}')]) == [True]
        assert queue.bury([buried]) == [True]
        assert queue.forget([(forgotten.task, 1), (task("dead"), 1)]) == [True, True]
        (suspect,) = queue.claim(PROVIDER, limit=1, lease_seconds=30, token="t", suspect=True).tasks
        assert queue.complete([suspect.hold]) == [True]
        assert queue.dead(PROVIDER) == [buried.task]
    assert bench.state() == {"due 1": ("waiting", 1), "due 2": ("dead", 1)}


@pytest.mark.parametrize("verb", ["complete", "release", "bury", "forget"])
@pytest.mark.parametrize(
    "health",
    [
        Health(pause_seconds=60),
        Health(well=frozenset({"lost"})),
        Health(errors=9, shortest_seconds=60, longest_seconds=60),
    ],
    ids=["pause", "well", "troubles"],
)
def test_a_full_server_hears_how_the_provider_is_though_nothing_is_held(
    queue: Queue, bench: Bench, redis_client: "Redis", verb: str, health: Health
) -> None:
    lost = Hold(task("lost"), 1, "t")
    with full(redis_client):
        answers = {
            "complete": lambda: queue.complete([lost], health),
            "release": lambda: queue.release([Release(lost)], health),
            "bury": lambda: queue.bury([lost], health),
            "forget": lambda: queue.forget([(lost.task, 1)], health),
        }[verb]()
    assert answers == [False]
    assert ("until" in bench.parts()["gate"]) == (not health.well)


def test_a_full_server_still_drains_under_limits_and_in_groups(
    queue: Queue, bench: Bench, redis_client: "Redis", state: Any
) -> None:
    for number in range(3):
        bench.seed(f"{number}", has_job=True, group="A", due_seconds=-5)
    queue.add([Add(task(f"waits {number}"), 1, "{}", 0, "A") for number in range(1300)], token="t")
    bench.keys.write(key_of(PROVIDER, "jobs"), "ghost", "")
    with full(redis_client):
        claim = queue.claim(PROVIDER, limit=10, lease_seconds=30, token="t", limits=LIMITED)
        assert queue.claim(PROVIDER, limit=10, lease_seconds=30, token="t", limits=LIMITED).tasks == ()
        assert (
            queue.complete(
                [claimed.hold for claimed in claim.tasks],
                Health(well=frozenset(claimed.hold.task.name for claimed in claim.tasks)),
            )
            == [True] * 3
        )
        assert len(queue.claim(PROVIDER, limit=10, lease_seconds=30, token="t", limits=LIMITED).tasks) == 3


@pytest.mark.parametrize("suspect", [False, True])
def test_a_full_server_gives_out_tasks_though_no_lease_has_expired(
    queue: Queue, seed: Any, redis_client: "Redis", suspect: bool
) -> None:
    seed("a", crashes=int(suspect))
    with full(redis_client):
        (claimed,) = queue.claim(PROVIDER, limit=1, lease_seconds=30, token="t", suspect=suspect).tasks
    assert claimed.hold == Hold(task(), 1, "t")


@pytest.mark.promise("ends", "scripts that Redis has forgotten and connections that were cut cost nothing")
def test_scripts_that_the_server_has_forgotten_are_loaded_again(
    queue: Queue, bench: Bench, redis_client: "Redis"
) -> None:
    calls = every_verb(queue, bench)
    for call in calls.values():
        redis_client.script_flush()
        call()
    assert bench.state()["new"] == ("processing", 1)  # added, then claimed


def test_nothing_that_lives_has_a_ttl(queue: Queue, bench: Bench, redis_client: "Redis") -> None:
    for call in every_verb(queue, bench).values():
        call()
    keys = list(redis_client.scan_iter())
    assert {key_of(PROVIDER, part) for part in ("queue", "leases", "state", "tasks", "dead")} == set(keys)
    assert {redis_client.ttl(key) for key in keys} == {-1}


def test_a_claim_of_a_suspect_looks_at_the_first_ten_thousand_due_tasks_and_no_further(
    bare_queue: Queue, bench: Bench
) -> None:
    bench.seed("suspect", crashes=1)
    ahead = [Add(task(f"task {i}"), 1, "{}") for i in range(10_050)]
    bare_queue.add(ahead, token="t")
    bench.rewind(3600)
    bench.seed("suspect", crashes=1, due_seconds=-1)
    assert bare_queue.claim(PROVIDER, limit=1, lease_seconds=30, token="t", suspect=True).tasks == ()
    bare_queue.complete([one.hold for one in bare_queue.claim(PROVIDER, limit=100, lease_seconds=30, token="t").tasks])
    (found,) = bare_queue.claim(PROVIDER, limit=1, lease_seconds=30, token="t", suspect=True).tasks
    assert found.hold.task.name == "suspect"
