"""Wake-ups that are lost, doubled, early, late, refused or for nobody: each task ends, and is asked about as often."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers import process
from shared import aws
from shared.settings import SCHEDULE_SECONDS
from tests.faults.world import LEASE_SECONDS, NAME, MakeWorld, World
from tests.support.api_events import Context
from tests.support.deployment import above_0
from tests.support.simulator import DONE, PENDING

pytestmark = [pytest.mark.server, pytest.mark.slow]


class Post:
    """SQS: takes wake-ups, and delivers none by itself; refuses them while it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.refuses = False

    def send_message(self, *, QueueUrl: str, MessageBody: str, DelaySeconds: int) -> None:  # noqa: N803
        if self.refuses:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "later"}}, "SendMessage")
        assert QueueUrl == "https://sqs/wake"
        self.sent.append((MessageBody, DelaySeconds))


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Post:
    post, client = Post(), aws.client

    def made(service: Any, *arguments: Any, **options: Any) -> Any:
        return post if service == "sqs" else client(service, *arguments, **options)

    monkeypatch.setattr(aws, "client", made)
    return post


@pytest.fixture
def world(make_world: MakeWorld, post: Post) -> World:
    world = make_world(WAKE_QUEUE_URL="https://sqs/wake", TICK_SECONDS="5")
    world.simulator.say(PENDING)
    world.post(NAME)
    return world


def deliver(*bodies: str) -> dict[str, dict[str, int]]:
    """A run that these messages have started; what counted above 0."""
    event = {"Records": [{"messageId": "1", "eventSource": "aws:sqs", "body": body} for body in bodies]}
    return above_0(process.handler(event, Context(80)))  # type: ignore[arg-type]


def pass_delay(world: World, post: Post) -> None:
    """Until the last message is delivered."""
    world.pass_(post.sent[-1][1])


def test_a_request_that_leaves_its_task_waiting_sends_one_and_its_run_the_next(world: World, post: Post) -> None:
    assert [provider for provider, _ in post.sent] == ["job"]
    assert "next_attempt_by" not in world.post(NAME).body
    pass_delay(world, post)
    assert deliver("job") == {"job": {"claimed": 1, "snoozed": 1}}
    assert len(post.sent) == 2
    pass_delay(world, post)
    world.simulator.say(DONE)
    assert deliver("job") == {"job": {"claimed": 1, "completed": 1}}
    world.check_end(NAME)
    assert len(post.sent) == 2


@pytest.mark.promise("faults", "a wake-up is lost, doubled, early, late or refused")
def test_one_that_is_lost_is_made_up_for_by_the_schedule(world: World, post: Post) -> None:
    world.ends_well(NAME)


@pytest.mark.promise("faults", "a wake-up is lost, doubled, early, late or refused")
@pytest.mark.parametrize("bodies", [("job",), ("job", "job")], ids=["again", "twice in one batch"])
def test_one_that_is_delivered_twice_asks_once(world: World, post: Post, bodies: tuple[str, ...]) -> None:
    pass_delay(world, post)
    asked = len(world.simulator.calls())
    deliver(*bodies)
    deliver(*bodies)
    assert len(world.simulator.calls()) == asked + 1
    world.ends_well(NAME)


@pytest.mark.promise("faults", "a wake-up is lost, doubled, early, late or refused")
def test_one_that_comes_early_finds_nothing_and_the_schedule_makes_up_for_it(world: World, post: Post) -> None:
    assert deliver("job") == {}
    world.ends_well(NAME)


@pytest.mark.promise("faults", "a wake-up is lost, doubled, early, late or refused")
def test_one_that_comes_late_finds_its_task_done(world: World, post: Post) -> None:
    pass_delay(world, post)
    world.simulator.say(DONE)
    assert world.process() == {"job": {"claimed": 1, "completed": 1}}
    assert deliver("job") == {}
    world.check_end(NAME)


@pytest.mark.promise("faults", "a wake-up is lost, doubled, early, late or refused")
def test_one_that_is_refused_costs_its_request_nothing(world: World, post: Post) -> None:
    pass_delay(world, post)
    world.pass_(3)  # it was lost
    post.refuses = True
    refused = world.post("refused")
    assert (refused.status, refused.body["schedule"]) == (202, "waiting")
    assert refused.body["next_attempt_by"] > refused.body["next_attempt_at"]  # nobody counts on the next one either
    assert int(refused.headers["retry-after"]) > SCHEDULE_SECONDS
    post.refuses = False
    world.ends_well(NAME, "refused")


@pytest.mark.parametrize("body", ["", "unknown", "{}"])
def test_one_for_nobody_starts_a_run_that_claims_nothing(world: World, post: Post, body: str) -> None:
    pass_delay(world, post)
    assert deliver(body) == {}
    assert world.places() == ["waiting"]
    world.ends_well(NAME)


def test_forty_runs_in_a_row_each_wake_the_next(world: World, post: Post) -> None:
    """Lambda would end such a chain after sixteen: the template says that this one is meant."""
    for number in range(40):
        assert len(post.sent) == number + 1
        pass_delay(world, post)
        assert deliver("job") == {"job": {"claimed": 1, "snoozed": 1}}
    world.simulator.say(DONE)
    pass_delay(world, post)
    deliver("job")
    world.check_end(NAME)
    assert len(post.sent) == 41


@pytest.mark.parametrize("step", range(1, 8))
def test_what_a_run_had_planned_or_not_is_lost_with_it_at_whatever_step_it_dies(
    world: World, post: Post, step: int
) -> None:
    pass_delay(world, post)
    life = world.run("process", {"Records": [{"body": "job"}]}, dies_after=step)
    assert life.killed
    world.pass_(LEASE_SECONDS + 1)
    world.ends_well(NAME)


def test_what_was_planned_is_lost_with_redis_and_nothing_else(world: World, post: Post) -> None:
    pass_delay(world, post)
    world.redis.flushall()
    world.pass_(LEASE_SECONDS + 1)
    world.ends_well(NAME)
