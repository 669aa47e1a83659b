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
from shared.queue import Add, Becomes, End, Hold, Queue, Run, Settle, Which
from shared.queue.queue import _PARTS, _TYPES
from tests.support.desk import SETTLING, Desk, task
from tests.support.keys import PARTS, PREFIX, PROVIDER, key_of
from tests.support.redis_servers import SERVERS

HOUR = 3600.0
VERBS = sorted(_PARTS)

pytestmark = pytest.mark.parametrize("redis_kind", SERVERS[1:], indirect=True)


@pytest.fixture(autouse=True)
def loaded(redis_client: "Redis", bare_queue: Queue) -> None:
    """The server knows the scripts, as it does after the first call."""
    for script in bare_queue._scripts.values():
        redis_client.script_load(script.script)


def every_verb(desk: Desk) -> dict[str, Callable[[], object]]:
    """A call of each script that does all that the script can do."""
    hold = {name: desk.seed(name, lease_seconds=30) for name in ("completed", "waiting", "buried", "forgotten", "end")}
    desk.seed("expired", lease_seconds=-5)
    desk.seed("once", came_back=1)
    desk.seed("often", came_back=2)
    desk.seed("due", group="A")
    desk.seed("with a job", group="A", has_job=True)
    desk.seed("dead", dead=True)
    desk.seed("later", due_seconds=60)
    newer = [Add(task(name), 2, "{}") for name in ("dead", "due")]
    becomes: tuple[Becomes, ...] = ("completed", "waiting", "buried", "forgotten")
    return {
        "add": lambda: desk.queue.add([Add(task("new"), 1, "{}"), *newer], token="t"),
        "claim": lambda: desk.claim(limit=5),
        "settle": lambda: desk.queue.settle([Settle(hold[name], name, 5, "{}") for name in becomes]),
        "end": lambda: desk.queue.end([End(task("end"), 1, "forgotten"), End(task("due"), 1, "buried")]),
        "rest": lambda: desk.queue.rest(PROVIDER, Run("run", 3), UNLIMITED),
        "hasten": lambda: desk.queue.hasten([(task("later"), 1)]),
        "look": lambda: desk.queue.look([task("due"), task("complete")], records=True),
        "mend": lambda: desk.queue._call("mend", PROVIDER, (1, "0", *_TYPES)),
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


WHICH = pytest.mark.parametrize(("which", "came_back"), [("ordinary", 0), ("once", 1), ("often", 2)])


@WHICH
def test_what_a_claim_does_does_not_grow_with_the_tasks_that_are_not_due(
    desk: Desk, which: Which, came_back: int
) -> None:
    def commands() -> int:
        for number in range(5):
            desk.seed(f"due {number}", came_back=came_back)
        with watched(desk) as seen:
            desk.claim(limit=5, which=which)
        return len(by_scripts(seen))

    few = commands()
    client_of(desk).flushall()
    desk.put([f"{number}" for number in range(3000)], delay=HOUR)
    assert commands() == few


LIMITED = Limits(rate_seconds=0.001, burst=1000, parallel=900, open_jobs=3)


@pytest.mark.parametrize("groups", [1, 30])
@pytest.mark.parametrize("limits", [UNLIMITED, LIMITED], ids=["unlimited", "limited"])
def test_what_a_claim_does_does_not_grow_with_what_is_due_beyond_what_it_takes(
    desk: Desk, limits: Limits, groups: int
) -> None:
    """Nothing is scanned: a call's work is that of what it takes, whatever waits."""

    def commands(backlog: int) -> int:
        client_of(desk).flushall()
        for number in range(3):
            desk.seed(f"{number}", has_job=True, group="0")
        for group in range(groups):
            desk.put([f"{group} waits {number}" for number in range(backlog // groups)], group=f"{group}")
        with watched(desk) as seen:
            desk.claim(limits, limit=3)
        return len(by_scripts(seen))

    assert commands(6000) == commands(600)


@pytest.mark.parametrize("which", ["once", "often"])
def test_what_came_back_is_not_searched_for_those_with_a_job_while_all_jobs_are_open(desk: Desk, which: Which) -> None:
    came_back = {"once": 1, "often": 2}[which]

    def read(backlog: int) -> list[list[str]]:
        client_of(desk).flushall()
        for number in range(backlog):
            desk.seed(f"with a job {number}", has_job=True, came_back=came_back, due_seconds=-number)
            desk.seed(f"without {number}", came_back=came_back, due_seconds=-backlog - number)
        with watched(desk) as seen:
            taken = desk.take(Limits(open_jobs=backlog), limit=3, which=which)
        assert len(taken) == {"once": 3, "often": 1}[which]
        return by_scripts(seen)

    few, many = read(300), read(600)
    assert [len(command) for command in few] == [len(command) for command in many]
    ranges = [command for command in many if "RANGE" in command[0].upper()]
    assert all("LIMIT" in map(str.upper, command) for command in ranges)
    assert not any("INTER" in command[0].upper() or command[0].upper() == "SMEMBERS" for command in many)


def test_limits_that_a_provider_does_not_have_cost_a_claim_one_look_and_no_write(desk: Desk) -> None:
    desk.seed("a")
    with watched(desk) as seen:
        desk.claim(limit=3)
    others = {key_of(PROVIDER, part) for part in ("gate", "jobs", "groups")}
    assert [command[0].upper() for command in by_scripts(seen) if others & set(command[1:2])] == ["HMGET"]


def test_without_limits_an_add_does_not_look_who_waits(desk: Desk) -> None:
    desk.seed("waits")

    def looks(limits: Limits) -> bool:
        with watched(desk) as seen:
            desk.begin("a", limits)
        desk.end("dropped", "a")
        queue = key_of(PROVIDER, "queue")
        return any(command[:2] == ["ZCOUNT", queue] for command in by_scripts(seen))

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
        completed, waiting, buried, dropped = desk.hold()
        rows = [
            *(Settle(completed, "completed"), Settle(waiting, "waiting", 60, '{"longer": "record"}')),
            Settle(buried, "buried"),
        ]
        assert desk.queue.settle(rows) == [True] * 3
        assert desk.end("dropped", dropped.task.name) + desk.end("forgotten", "dead") == [True, True]
        (again,) = desk.hold(which="once")
        assert desk.end("forgotten", "expired") == [True]
        assert desk.settle("waiting", again) == [False]
        assert desk.queue.members(PROVIDER, "dead") == [buried.task]
    assert desk.state() == {waiting.task.name: ("waiting", 1), buried.task.name: ("dead", 1)}


@pytest.mark.promise("ends", "a Redis at maxmemory refuses new tasks and still releases those it has")
def test_a_full_server_puts_into_line_what_another_release_left_and_mends(desk: Desk) -> None:
    for number in range(300):
        desk.seed(f"{number:03}", in_line=False, due_seconds=-400 + number)
    with full(desk):
        assert desk.take(limit=2) == ["000", "001"]
        assert desk.queue.mend(PROVIDER) == []
        assert desk.settle("waiting", Hold(task("000"), 1, "worker"), delay=0) == [True]
        assert desk.queue.hasten([(task("299"), 1)]) == [False]
        assert len(desk.take(limit=200)) == 200


@pytest.mark.parametrize("becomes", SETTLING)
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
    desk: Desk, becomes: Becomes, health: Health
) -> None:
    with full(desk):
        assert desk.settle(becomes, Hold(task("lost"), 1, "t"), health=health) == [False]
    assert ("until" in desk.parts()["gate"]) == (not health.well)


def test_a_full_server_still_drains_under_limits_and_in_groups_and_slowly(desk: Desk) -> None:
    for number in range(3):
        desk.seed(f"{number}", has_job=True, group="A", due_seconds=-5)
    desk.put([f"waits {number}" for number in range(1300)], group="A")
    desk.write("gate", "slow", "3")
    with full(desk):
        holds = desk.hold(LIMITED)
        assert desk.hold(LIMITED) == []
        well = Health(well=frozenset(hold.task.name for hold in holds))
        assert desk.settle("completed", *holds, health=well) == [True] * 3
        assert len(desk.hold(LIMITED)) == 3


@WHICH
def test_a_full_server_gives_out_tasks_though_no_lease_has_expired(desk: Desk, which: Which, came_back: int) -> None:
    desk.seed("a", came_back=came_back)
    with full(desk):
        (claimed,) = desk.claim(limit=1, which=which).tasks
    assert claimed.hold == Hold(task(), 1, "worker", 1)


def test_a_full_server_takes_back_what_a_claim_without_reply_took(desk: Desk) -> None:
    desk.seed("a", group="A")
    desk.claim(token="lost")
    with full(desk):
        assert desk.take(token="next", lost_token="lost") == ["a"]


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
    gone = ("gate", "served", "plans", "runs", "job_lines", "job_ring")
    assert desk.keys.dump().keys() == {key_of(PROVIDER, part) for part in PARTS if part not in gone}
    assert desk.keys.lasting()
