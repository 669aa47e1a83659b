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
from tests.support.desk import SETTLING, Desk, task
from tests.support.keys import PREFIX, PROVIDER, key_of
from tests.support.redis_servers import SERVERS

HOUR = 3600.0
VERBS = sorted(path.stem for path in _SCRIPTS.glob("*.lua") if path.stem != "prelude")

pytestmark = pytest.mark.parametrize("redis_kind", SERVERS[1:], indirect=True)


@pytest.fixture(autouse=True)
def loaded(redis_client: "Redis", bare_queue: Queue) -> None:
    """The server knows the scripts, as it does after the first call."""
    for script in bare_queue._scripts.values():
        redis_client.script_load(script.script)


def every_verb(desk: Desk) -> dict[str, Callable[[], object]]:
    """A call of each script that does all that the script can do."""
    hold = {name: desk.seed(name, lease_seconds=30) for name in ("complete", "release", "bury", "forget", "end")}
    desk.seed("expired", lease_seconds=-5)
    desk.seed("suspect", crashes=1)
    desk.seed("due")
    desk.seed("dead", dead=True)
    desk.seed("later", due_seconds=60)
    newer = [Add(task(name), 2, "{}") for name in ("dead", "due")]
    return {
        "add": lambda: desk.queue.add([Add(task("new"), 1, "{}"), *newer], token="t"),
        "claim": lambda: desk.claim(limit=5),
        "complete": lambda: desk.queue.complete([hold["complete"]]),
        "release": lambda: desk.queue.release([Release(hold["release"], 5, "{}")]),
        "bury": lambda: desk.queue.bury([hold["bury"]]),
        "forget": lambda: desk.queue.forget([(task("forget"), 1), (task("dead"), 9)]),
        "end": lambda: desk.queue.end([End(task("end"), 1, "forgotten"), End(task("due"), 1, "buried")]),
        "hasten": lambda: desk.queue.hasten([(task("later"), 1)]),
        "look": lambda: desk.queue.look([task("due"), task("complete")], records=True),
        "strays": lambda: desk.queue._call("strays", PROVIDER, (3, "0")),
    }


def client_of(desk: Desk) -> Any:
    return desk.queue._client


@contextmanager
def watched(desk: Desk) -> Iterator[list[dict[str, Any]]]:
    """The commands that the server runs meanwhile; those of scripts have the client type `lua`."""
    client, seen = client_of(desk), list[dict[str, Any]]()
    with client.monitor() as monitor:

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
def test_a_script_touches_the_keys_it_is_passed_and_all_are_in_one_slot(desk: Desk, verb: str) -> None:
    call = every_verb(desk)[verb]
    with watched(desk) as seen:
        call()
    (sent,) = [words(command) for command in seen if words(command)[0].upper() == "EVALSHA"]
    passed = set(sent[3 : 3 + int(sent[2])])
    touched = {command[1] for command in by_scripts(seen) if command[0].upper() != "TIME"}
    assert touched <= passed
    assert all(key.startswith(f"{{{PREFIX}:{PROVIDER}}}") for key in passed)


def test_every_call_is_one_round_trip(desk: Desk) -> None:
    calls = every_verb(desk)
    with watched(desk) as seen:
        for call in calls.values():
            call()
    sent = [words(command)[0].upper() for command in seen if command["client_type"] != "lua"]
    assert [word for word in sent if word not in ("HELLO", "CLIENT")] == ["EVALSHA"] * len(VERBS)


@pytest.mark.parametrize("suspect", [False, True])
def test_what_a_claim_does_does_not_grow_with_the_tasks_that_are_not_due(desk: Desk, suspect: bool) -> None:
    def commands() -> int:
        for number in range(5):
            desk.seed(f"due {number}", crashes=int(suspect))
        with watched(desk) as seen:
            desk.claim(limit=5, suspect=suspect)
        return len(by_scripts(seen))

    few = commands()
    client_of(desk).flushall()
    desk.put([f"{number}" for number in range(3000)], delay=HOUR)
    assert commands() == few


LIMITED = Limits(rate_seconds=0.001, burst=1000, parallel=900, open_jobs=3)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("limits", [UNLIMITED, LIMITED], ids=["unlimited", "limited"])
def test_what_a_claim_does_does_not_grow_with_what_is_due_beyond_what_it_sees(
    desk: Desk, limits: Limits, grouped: bool
) -> None:
    """500 tasks are seen where there are groups, and as many again of the rest; else no more than are taken."""
    group = "A" if grouped else ""

    def commands(backlog: int) -> int:
        client_of(desk).flushall()
        for number in range(3):
            desk.seed(f"{number}", has_job=True, group=group)
        desk.put([f"waits {number}" for number in range(backlog)], group=group)
        with watched(desk) as seen:
            desk.claim(limits, limit=3)
        return len(by_scripts(seen))

    assert commands(6000) == commands(1300)


def test_limits_that_a_provider_does_not_have_cost_a_claim_two_looks_and_no_write(desk: Desk) -> None:
    desk.seed("a")
    with watched(desk) as seen:
        desk.claim(limit=3)
    others = {key_of(PROVIDER, part) for part in ("gate", "jobs", "groups")}
    assert [command[0].upper() for command in by_scripts(seen) if others & set(command[1:2])] == ["EXISTS", "HMGET"]


def test_without_limits_an_add_does_not_look_who_waits(desk: Desk) -> None:
    desk.seed("waits")

    def looks(limits: Limits) -> bool:
        with watched(desk) as seen:
            desk.begin("a", limits)
        desk.queue.forget([(task("a"), 1)])
        return any(command[0].upper() == "ZRANGEBYSCORE" for command in by_scripts(seen))

    assert looks(Limits(parallel=2))
    assert not looks(UNLIMITED)


@contextmanager
def full(desk: Desk) -> Iterator[None]:
    """The server is at its limit and evicts nothing."""
    client = client_of(desk)
    before = client.config_get("maxmemory", "maxmemory-policy")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        for setting, value in before.items():
            client.config_set(setting, value)


@pytest.mark.promise("ends", "a Redis at maxmemory refuses new tasks and still releases those it has")
def test_a_full_server_takes_no_new_task_and_keeps_no_part_of_it(desk: Desk) -> None:
    with full(desk), pytest.raises(QueueUnavailable, match="maxmemory"):
        desk.add()
    assert desk.keys.dump() == {}
    assert desk.add() == "created"


@pytest.mark.promise("ends", "a Redis at maxmemory refuses new tasks and still releases those it has")
def test_a_full_server_still_drains(desk: Desk) -> None:
    for number in range(4):
        desk.seed(f"due {number}", due_seconds=number - 10)
    desk.seed("expired", lease_seconds=-5)
    desk.seed("dead", dead=True)
    with full(desk):
        completed, released, buried, forgotten = desk.hold()
        assert desk.queue.complete([completed]) == [True]
        assert desk.queue.release([Release(released, 60, '{"longer": "record"}')]) == [True]
        assert desk.queue.bury([buried]) == [True]
        assert desk.queue.forget([(forgotten.task, 1), (task("dead"), 1)]) == [True, True]
        (suspect,) = desk.claim(limit=1, suspect=True).tasks
        assert desk.queue.complete([suspect.hold]) == [True]
        assert desk.queue.members(PROVIDER, "dead") == [buried.task]
    assert desk.state() == {"due 1": ("waiting", 1), "due 2": ("dead", 1)}


@pytest.mark.parametrize("verb", SETTLING)
@pytest.mark.parametrize(
    "health",
    [
        Health(pause_seconds=60),
        Health(well=frozenset({"lost"})),
        Health(errors=9, shortest_seconds=60, longest_seconds=60),
    ],
    ids=["pause", "well", "troubles"],
)
def test_a_full_server_hears_how_the_provider_is_though_nothing_is_held(desk: Desk, verb: str, health: Health) -> None:
    with full(desk):
        assert desk.settle(verb, Hold(task("lost"), 1, "t"), health=health) == [False]
    assert ("until" in desk.parts()["gate"]) == (not health.well)


def test_a_full_server_still_drains_under_limits_and_in_groups(desk: Desk) -> None:
    for number in range(3):
        desk.seed(f"{number}", has_job=True, group="A", due_seconds=-5)
    desk.put([f"waits {number}" for number in range(1300)], group="A")
    desk.write("jobs", "ghost", "")
    with full(desk):
        holds = desk.hold(LIMITED)
        assert desk.hold(LIMITED) == []
        well = Health(well=frozenset(hold.task.name for hold in holds))
        assert desk.queue.complete(holds, well) == [True] * 3
        assert len(desk.hold(LIMITED)) == 3


@pytest.mark.parametrize("suspect", [False, True])
def test_a_full_server_gives_out_tasks_though_no_lease_has_expired(desk: Desk, suspect: bool) -> None:
    desk.seed("a", crashes=int(suspect))
    with full(desk):
        (claimed,) = desk.claim(limit=1, suspect=suspect).tasks
    assert claimed.hold == Hold(task(), 1, "worker")


@pytest.mark.promise("ends", "scripts that Redis has forgotten and connections that were cut cost nothing")
def test_scripts_that_the_server_has_forgotten_are_loaded_again(desk: Desk) -> None:
    calls = every_verb(desk)
    for call in calls.values():
        client_of(desk).script_flush()
        call()
    assert desk.state()["new"] == ("processing", 1)  # added, then claimed


def test_nothing_that_lives_has_a_ttl(desk: Desk) -> None:
    for call in every_verb(desk).values():
        call()
    assert {key_of(PROVIDER, part) for part in ("queue", "leases", "state", "tasks", "dead")} == desk.keys.dump().keys()
    assert desk.keys.lasting()


def test_a_claim_of_a_suspect_looks_at_the_first_ten_thousand_due_tasks_and_no_further(desk: Desk) -> None:
    desk.seed("suspect", crashes=1)
    desk.put([f"task {i}" for i in range(10_050)])
    desk.rewind(3600)
    desk.seed("suspect", crashes=1, due_seconds=-1)
    assert desk.claim(limit=1, suspect=True).tasks == ()
    desk.queue.complete([one.hold for one in desk.claim(limit=100).tasks])
    (found,) = desk.claim(limit=1, suspect=True).tasks
    assert found.hold.task.name == "suspect"
