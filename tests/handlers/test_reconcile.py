"""reconcile: whatever starts it, it brings back what Redis has lost and returns a tally."""

from typing import Any

import pytest

from shared.task import Task
from tests.support.api_events import sample
from tests.support.deployment import Deployment
from tests.support.outage import DynamoDBOutage, RedisOutage
from tests.support.simulator import DONE, WHOLE

EVENTS: list[Any] = [None, {}, [], "a text", 7, {"detail": None}, sample("reconcile-scheduler")]


def ask(deployed: Deployment, *names: str) -> None:
    for name in names:
        deployed.call("GET", f"/?task-name={name}&provider=job")


def test_tasks_come_back_after_redis_lost_everything_and_end_without_a_second_job(deployed: Deployment) -> None:
    ask(deployed, "a", "b")
    deployed.redis_client.flushall()
    deployed.pass_(31)
    assert deployed.reconcile() == {"job": {"seen": 2, "requeued": 2}}
    assert deployed.process() == {}  # not before a lease has passed
    deployed.pass_(31 + 30)
    deployed.simulator.say(DONE)
    assert deployed.process() == {"job": {"claimed": 2, "completed": 2}}
    assert sorted(deployed.simulator.calls()) == ["GET /jobs/j-1"] * 2 + ["POST /jobs"] * 2
    item = deployed.item_of(Task("job", "a"))
    assert item.data == WHOLE


def test_a_task_that_redis_was_away_for_comes_back_too(deployed: Deployment) -> None:
    deployed.redis.calls.clear()
    deployed.redis.away = True
    ask(deployed, "a")
    deployed.redis.away = False
    deployed.pass_(31)
    assert deployed.reconcile() == {"job": {"seen": 1, "requeued": 1}}


@pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
def test_an_event_of_any_shape_starts_a_run(deployed: Deployment, event: Any) -> None:
    ask(deployed, "a")
    deployed.pass_(31)
    assert deployed.reconcile(event) == {"job": {"seen": 1}}


def test_redis_and_dynamodb_away_are_told_in_the_tally(deployed: Deployment) -> None:
    redis, store = RedisOutage(deployed.redis_client), DynamoDBOutage(deployed.dynamodb_client)
    redis.away = True
    assert list(deployed.reconcile().values()) == [{"unreachable": 1}]  # once, not for each provider
    redis.away = False
    store.away = {"Query"}
    assert list(deployed.reconcile().values()) == [{"unreachable": 1}]


def test_without_time_left_it_leaves_everything_to_the_next(deployed: Deployment) -> None:
    ask(deployed, "a")
    deployed.redis_client.flushall()
    deployed.pass_(31)
    assert deployed.reconcile(seconds=9) == {"job": {"unfinished": 1}}
    assert deployed.state("job") == {}
