"""Killed after any step whatever, each handler leaves a task that ends, once, or nothing at all."""

import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.provider.callback_url import CallbackUrls
from shared.task import Task
from tests.faults.world import DELETE, ERASE, FILE, FURTHER, LEASE_SECONDS, NAME, REVIVE, MakeWorld, World
from tests.support.api_events import Event, rest
from tests.support.keys import key_of
from tests.support.simulator import DONE, PENDING, WHOLE, Said, completed, refused, says

pytestmark = [pytest.mark.server, pytest.mark.slow]

NO, LOST = refused("no such customer"), says(200, {"status": "lost"})


@dataclass(frozen=True, slots=True)
class Case:
    """A handler at work on one task: all its steps, what the provider says meanwhile, and how the task ends then.

    A first step that changes nothing is followed by another end, `ends_else`; `submits` is how often the provider is
    given a job, and once more after a kill at the one step that may lead to it: a submit whose answer was never stored.
    """

    name: str
    handler: str
    steps_taken: str
    event: Event | Callable[[World], Event] | None = None
    stage: Callable[[World], object] = lambda _: None
    says: Said = PENDING
    then: Said = DONE
    ends: str = "completed"
    ends_else: str = ""
    submits: int = 1
    file: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> list[str]:
        return self.steps_taken.split()

    def asks(self, world: World) -> Event | None:
        return self.event(world) if callable(self.event) else self.event

    def end(self, step: int) -> str:
        return self.ends if step else self.ends_else or self.ends


def post(world: World) -> None:
    assert world.post(NAME).status == 202


def due(world: World) -> None:
    post(world)
    world.pass_(LEASE_SECONDS)


def failed(world: World) -> None:
    due(world)
    world.simulator.say(NO)
    assert world.process() == {"job": {"claimed": 1, "buried": 1}}


def ended(world: World) -> None:
    due(world)
    world.simulator.say(completed({"city": "Bruges"}))
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}


def cancelled_half(world: World) -> None:
    """Cancelled in the item alone: the function died before it came to Redis."""
    due(world)
    assert world.run("enqueue", DELETE, dies_after=1).killed


def crashing(world: World) -> None:
    """It has ended its worker more often than a task may."""
    due(world)
    for step in (1, 3, 3, 3):  # from the second time on a second claim asks for it, and it is taken over in its item
        assert world.run("process", dies_after=step).killed
        world.pass_(LEASE_SECONDS + 1)


def unreadable(world: World) -> None:
    due(world)
    world.redis.hset(key_of("job", "tasks"), NAME, "{")


def flushed(world: World) -> None:
    post(world)
    world.redis.flushall()
    world.pass_(LEASE_SECONDS + 1)


POST = rest("POST", "/tasks", {"provider": "job", "name": NAME})
AGAIN = rest("POST", "/tasks", {"provider": "job", "name": NAME}, {"Cache-Control": "no-cache"})
CALLED = {"CALLBACK_URL": "https://api.example.com", "CALLBACK_SECRET": "env:KEY", "KEY": "ours", "HOOK": "theirs"}
SIGNED = {"callback": {"signature": {"scheme": "stripe", "header": "X-Signature", "secret": "env:HOOK"}}}
UNDATED = {"callback": {"signature": {"header": "X-Signature", "secret": "env:HOOK", "prefix": "body="}}}


def called(**payload: object) -> Callable[[World], Event]:
    """What the provider calls back with, of the job that is waited for."""

    def event(world: World) -> Event:
        item, body = world.known(NAME), json.dumps(payload)
        urls = CallbackUrls("", "env:KEY", lambda *_, **__: CALLED["KEY"])
        resubmits = int(item["attempt"]["M"]["resubmits"]["N"]) if "attempt" in item else 0
        path = urls.url(Task("job", NAME), int(item["generation"]["N"]), resubmits)
        at = int(item["updated_at"]["N"]) + 1
        dated, undated = (
            hmac.digest(CALLED["HOOK"].encode(), f"{text}{body}".encode(), "sha256").hex() for text in (f"{at}.", "")
        )
        return rest("POST", path, body, {"X-Signature": f"t={at},v1={dated},body={undated}"})

    return event


BEGIN, SUBMIT = "GetItem UpdateItem add", "GetItem claim GetItem POST UpdateItem"
POLL, CANCELLED = "GetItem claim GET", "GetItem claim GET UpdateItem DELETE settle claim"
UNREADABLE = "GetItem claim GetItem GET UpdateItem settle claim"
KILLING = "GetItem claim claim UpdateItem UpdateItem settle claim"
QUERIES, MENDS = "GetItem " + "Query " * 16, "mend " * 13  # GetItem: what time is it?
END, ERASES = "GetItem UpdateItem end", "GetItem PutItem DELETE end UpdateItem"
UNASKED = {"firstAnswer": 0}
SUCCESS, FAILURE = called(status="completed", data=WHOLE), called(status="refused", error="no such customer")
NEWS = called(status="async processing in progress", id="j-1", data={"street": "x"})

CASES = (
    # enqueue: a request, and what the provider may say at once; the next generation; cancel and revive
    Case("request", "enqueue", f"{BEGIN} POST UpdateItem settle", POST),
    Case("request completed at once", "enqueue", f"{BEGIN} POST UpdateItem settle", POST, says=DONE),
    Case("request refused", "enqueue", f"{BEGIN} POST UpdateItem settle", POST, says=NO, then=NO, ends="failed"),
    Case("request accepted unasked", "enqueue", BEGIN, POST, file=UNASKED),
    Case("request for the next generation", "enqueue", f"{BEGIN} POST UpdateItem settle", AGAIN, ended, submits=2),
    Case("cancel", "enqueue", "GetItem UpdateItem DELETE end", DELETE, due, ends="cancelled", ends_else="completed"),
    Case("erase", "enqueue", ERASES, ERASE, due, ends="cancelled", ends_else="completed"),
    Case("revive", "enqueue", BEGIN, REVIVE, failed, submits=2, ends_else="failed"),
    # process: a submit, a poll, and every end of either
    Case("submit", "process", f"{SUBMIT} settle claim", stage=post, file=UNASKED),
    Case("submit completed at once", "process", f"{SUBMIT} settle claim", stage=post, says=DONE, file=UNASKED),
    Case("poll with news", "process", f"{POLL} UpdateItem settle claim", stage=due, says=FURTHER),
    Case("poll without news", "process", f"{POLL} GetItem settle claim", stage=due),
    Case("poll in trouble", "process", f"{POLL} settle claim", stage=due, says=says(500, {})),
    Case("poll completed", "process", f"{POLL} UpdateItem settle claim", stage=due, says=DONE),
    Case("poll failed", "process", f"{POLL} UpdateItem settle claim", stage=due, says=NO, then=NO, ends="failed"),
    Case("job lost", "process", f"{POLL} UpdateItem settle claim", stage=due, says=LOST, submits=2),
    Case("poll of a cancelled task", "process", CANCELLED, stage=cancelled_half, says=FURTHER, ends="cancelled"),
    Case("task that kills", "process", KILLING, stage=crashing, ends="failed"),
    Case("record unreadable", "process", UNREADABLE, stage=unreadable, says=DONE),
    # reconcile
    Case("requeue", "reconcile", f"{QUERIES} look GetItem end add {MENDS}", stage=flushed),
    Case("forget", "reconcile", f"{QUERIES} {MENDS} look GetItem end", stage=cancelled_half, ends="cancelled"),
    # callback: what a provider says by itself, believed or not
    Case("signed success", "callback", END, SUCCESS, due, file=SIGNED),
    Case("signed failure", "callback", END, FAILURE, due, ends="failed", ends_else="completed", file=SIGNED),
    Case("signed news", "callback", "GetItem UpdateItem", NEWS, due, file=SIGNED),
    Case("signed news without an instant", "callback", "GetItem look hasten", NEWS, due, file=UNDATED),
    Case("unsigned", "callback", "GetItem look hasten", called(status="completed", data="forged"), post),
)
KILLS = [
    pytest.param(case, step, id=f"{case.name} - {step} {name}")
    for case in CASES
    for step, name in enumerate(case.steps)
    if case.steps[step + 1 : step + 2] != [name] or name == "claim"  # of many looks the last stands for all
]


def staged(case: Case, make_world: MakeWorld) -> World:
    world = make_world(files={"job": {**FILE, **case.file}}, **CALLED)
    case.stage(world)
    world.simulator.say(case.says)
    return world


@pytest.mark.promise("faults", "SIGKILL after any step of enqueue, process, reconcile or callback")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_these_are_all_the_steps(make_world: MakeWorld, case: Case) -> None:
    world = staged(case, make_world)
    life = world.run(case.handler, case.asks(world))
    assert life.names == case.steps
    assert life.result is not None


@pytest.mark.promise("ends", "the tasks of a worker that died come back when its lease is over")
@pytest.mark.promise("callbacks", "a callback that is lost or cannot be taken loses nothing: the task is still polled")
@pytest.mark.promise("faults", "SIGKILL after any step of enqueue, process, reconcile or callback")
@pytest.mark.parametrize(("case", "step"), KILLS)
def test_killed_after_any_step_it_ends_once_and_is_submitted_no_more_than_it_must_be(
    make_world: MakeWorld, case: Case, step: int
) -> None:
    world = staged(case, make_world)
    assert world.run(case.handler, case.asks(world), dies_after=step).killed
    world.check(NAME)
    if world.item(NAME) is None:  # nothing was accepted, nothing is there
        assert step == 0
        assert world.redis.dbsize() == 0
        return
    world.simulator.say(case.then)
    world.finish(NAME)
    world.check_end(NAME)
    assert world.status(NAME) == case.end(step)
    keys = world.submits(NAME)
    assert len(set(keys)) <= case.submits
    assert len(keys) <= case.submits + (case.steps[step] == "POST")


@pytest.mark.promise("faults", "SIGKILL, and the client asks again at once or revives what was being buried")
@pytest.mark.parametrize("step", range(3), ids=BEGIN.split())
def test_a_request_that_was_killed_may_be_repeated_at_once(make_world: MakeWorld, step: int) -> None:
    world = make_world()
    assert world.run("enqueue", POST, dies_after=step).killed
    again = world.post(NAME)
    assert (again.status, again.body["deduplicated"]) == (202, step > 0)
    world.ends_well(NAME)


@pytest.mark.promise("faults", "each step of an erasure failing: it is told, and a repetition does the rest")
@pytest.mark.parametrize("step", range(5), ids=ERASES.split())
def test_an_erasure_that_was_killed_says_so_only_when_it_was_repeated(make_world: MakeWorld, step: int) -> None:
    world = make_world()
    world.ask(rest("POST", "/tasks", {"provider": "job", "name": NAME, "input": {"q": "S3CRET"}}))
    world.pass_(LEASE_SECONDS)
    assert world.run("enqueue", ERASE, dies_after=step).killed
    assert ("erased_at" in world.known(NAME)) == (step == 4)
    world.check(NAME)
    assert world.ask(ERASE).body["erased_at"]
    world.check(NAME)
    assert "S3CRET" not in f"{world.known(NAME)} {world.bench.keys.dump()}"


@pytest.mark.promise("faults", "SIGKILL, and the client asks again at once or revives what was being buried")
@pytest.mark.parametrize("step", range(6), ids=["GetItem", "claim", "GET", "UpdateItem", "settle", "claim again"])
def test_a_dead_letter_can_be_revived_wherever_its_burial_was_cut_off(make_world: MakeWorld, step: int) -> None:
    world = make_world()
    due(world)
    world.simulator.say(NO)
    assert world.run("process", dies_after=step).killed
    world.finish(NAME)
    assert world.bench.state("job").keys() == {NAME}
    world.check(NAME)
    world.simulator.say(DONE)
    assert world.ask(REVIVE).status == 202
    world.check(NAME)
    world.finish(NAME)
    world.check_end(NAME)
    assert (world.status(NAME), world.bench.state("job")) == ("completed", {})
