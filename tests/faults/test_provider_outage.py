"""A provider that is down, flaps or is too slow: no task is lost, no storm follows, and no other provider suffers."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shared import wiring
from shared.queue import Add
from shared.task import Task
from shared.work.keeper import record_of
from tests.faults.virtual_time import BETWEEN_TICKS_SECONDS, VirtualTime
from tests.faults.world import FILE, REVIVE, MakeWorld, World
from tests.support.simulator import BROKEN, DRIPPING, EXAMPLE, Said, completed, pending, says

pytestmark = [pytest.mark.server, pytest.mark.slow]

DONE = completed({"city": "Ghent"})
WORKING = pending({"city": "Ghent"})
DOWN = (BROKEN, says(500, {}), says(503, {}))
USUAL = {"IDLE_SECONDS": "15", "TICK_SECONDS": "5"}
HOUR_TICKS = 3600 // BETWEEN_TICKS_SECONDS


def begin(world: World, provider: str, names: list[str]) -> None:
    """Accepted and not yet asked about."""
    begun = [wiring.store().begin(Task(provider, name), None, {}, world.clock()) for name in names]
    adds = [Add(item.task, item.generation, record_of(item).to_text()) for item in begun if item]
    assert len(adds) == len(names)
    wiring.queue().add(adds, token="t")


def ended(world: World, provider: str, status: str = "completed") -> int:
    return sum(count for end, count in world.ends.items() if end.startswith(f"{provider}/") and end.endswith(status))


class Provider:
    """What the provider is asked, by the minute of the world's time, and whether it is up."""

    def __init__(self, world: World, is_up: Callable[[], bool] = lambda: True, up: Said = WORKING) -> None:
        self.minutes: Counter[int] = Counter()
        self.is_up = is_up
        self.up = up
        self._world = world
        self._take = world.simulator.take
        world.simulator.take = self.take  # type: ignore[method-assign]

    def take(self, asked: Any) -> Said:
        self._take(asked)
        self.minutes[self.minute()] += 1
        return self.up if self.is_up() else random.choice(DOWN)

    def minute(self) -> int:
        return self._world.clock() // 60_000


def plain(**polling: Any) -> Any:
    return EXAMPLE | {"polling": EXAMPLE["polling"] | {"jitter": "full", "maxErrors": 10} | polling}


@pytest.mark.promise("faults", "a provider that was down for an hour is not flooded afterwards")
@pytest.mark.parametrize(
    ("tasks", "file", "most"),
    [
        (30, plain(), None),
        (1, plain(maxErrors=1000), None),
        (30, plain() | {"limits": {"rate": {"requests": 15, "seconds": 60, "burst": 5}}}, 20),
        (30, plain() | {"limits": {"parallel": 3}}, None),
    ],
    ids=["many tasks", "a single task", "a rate", "a few at once"],
)
def test_a_provider_that_was_down_for_an_hour_is_not_stormed_and_every_task_ends(
    make_world: MakeWorld, tasks: int, file: Any, most: int | None
) -> None:
    world = make_world(files={"job": file}, **USUAL)
    provider, time = Provider(world), VirtualTime(world)
    names = [f"{number}" for number in range(tasks)]
    begin(world, "job", names)
    time.tick(4)
    steady = max(provider.minutes.values()) if most is None else most
    provider.is_up = lambda: False
    begun = provider.minutes.total()
    time.tick(HOUR_TICKS)
    assert provider.minutes.total() - begun <= 20 + 3 * HOUR_TICKS  # those under way, and then a few probes a minute
    provider.is_up = lambda: True
    back = provider.minute()
    time.tick(3)
    assert 0 < provider.minutes[back] <= (most or 2 * steady)
    assert 0 < provider.minutes[back + 1] <= (most or 2 * steady)
    provider.up = DONE
    time.tick(6)
    assert (ended(world, "job"), world.bench.state("job")) == (tasks, {})
    for name in names[:3]:
        world.check_end(name)


@pytest.mark.promise("ends", "a task that an outage of its provider has ended can be revived and keeps its job")
def test_a_single_task_that_an_hour_has_ended_is_a_dead_letter_that_can_be_revived(make_world: MakeWorld) -> None:
    world = make_world(files={"job": plain()}, **USUAL)
    provider, time = Provider(world), VirtualTime(world)
    begin(world, "job", ["a"])
    time.tick()
    provider.is_up = lambda: False
    time.tick(HOUR_TICKS)
    world.check("a")
    error = json.loads(world.known("a")["error"]["S"])
    assert (world.status("a"), error["reason"]) == ("failed", "too-many-errors")
    assert world.places() == ["dead"]
    provider.is_up, provider.up = lambda: True, DONE
    assert world.ask(REVIVE).status == 202
    time.tick(3)
    assert (world.status("a"), world.bench.state("job")) == ("completed", {})


@pytest.mark.promise("faults", "a provider that goes up and down")
def test_a_provider_that_flaps_is_asked_no_more_than_a_sound_one_and_every_task_ends(make_world: MakeWorld) -> None:
    world = make_world(files={"job": plain()}, **USUAL)
    provider, time = Provider(world), VirtualTime(world)
    begin(world, "job", [f"{number}" for number in range(40)])
    time.tick(5)
    steady = max(provider.minutes.values())
    begun = provider.minute()
    provider.is_up = lambda: world.clock() // 20_000 % 2 == 0  # up for 20 seconds, down for 20
    time.tick(20)
    assert max(count for minute, count in provider.minutes.items() if minute >= begun) <= 2 * steady
    provider.up = DONE
    time.tick(10)
    assert (ended(world, "job"), world.bench.state("job")) == (40, {})


@pytest.mark.promise("faults", "a provider whose answers come after the deadline")
def test_submits_whose_answers_come_too_late_are_repeated_under_one_key_and_end(make_world: MakeWorld) -> None:
    world = make_world(files={"job": FILE | {"firstAnswer": 0.2}}, ATTEMPT_SECONDS="0.2")
    world.simulator.say(DRIPPING)
    assert world.post("a").status == 202
    world.pass_(60)
    assert world.process() == {"job": {"claimed": 1, "retried": 1}}
    world.check("a")
    world.simulator.say(pending(id="j-1"))
    world.pass_(60)
    assert world.process() == {"job": {"claimed": 1, "snoozed": 1}}
    world.simulator.say(DONE)
    world.finish("a")
    world.check_end("a")
    keys = world.submits("a")
    assert (len(keys), len(set(keys))) == (3, 1)


@pytest.mark.promise("faults", "one provider's outage: another's tasks end at 0.9 times the usual rate or better")
def test_one_providers_outage_leaves_another_nine_tenths_of_what_ends_without_it(make_world: MakeWorld) -> None:
    def sound_ends(neighbours: int) -> int:
        """How many tasks of a sound provider end in four ticks, whose slots are never idle."""
        world = make_world(files={"sound": EXAMPLE, "down": plain()}, **USUAL)
        world.simulator.say(DONE)
        for number in range(neighbours):
            world.simulator.say(BROKEN, to=f"down {number}")
        time = VirtualTime(world, lambda _: 20)  # the sound one is slow, the other never answers
        begin(world, "sound", [f"{number}" for number in range(250)])
        begin(world, "down", [f"down {number}" for number in range(neighbours)])
        time.tick(4)
        return ended(world, "sound")

    alone = sound_ends(neighbours=0)
    assert 0 < alone < 250
    assert sound_ends(neighbours=100) >= 0.9 * alone
