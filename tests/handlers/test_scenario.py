"""The whole loop over HTTP, on the local stack: from a request to the stored item, and through what may go wrong."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
import requests

from local.aws.sandbox import FunctionError
from local.servers.dynamodb import TABLE_NAME
from local.servers.redis_server import NoServerError
from local.stack import Stack
from local.waiting import wait_until
from tests.support.keys import Bench, RedisKeys

ATTEMPT_SECONDS = 2
LEASE_SECONDS = ATTEMPT_SECONDS + 10
LONGEST_SECONDS = LEASE_SECONDS + 60  # beyond any delay that the providers' files can cause
HOUR_MS = 3_600_000
SETTINGS = {
    "ATTEMPT_SECONDS": str(ATTEMPT_SECONDS),
    "FIRST_ANSWER_SECONDS": str(ATTEMPT_SECONDS),
    "TICK_SECONDS": "0.05",
    "IDLE_SECONDS": "0",  # a tick ends when nothing is due: the tests rewind instead of waiting
}

pytestmark = [pytest.mark.server, pytest.mark.slow]

Put = Callable[..., str]


@pytest.fixture(scope="module")
def whole_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    log = (tmp_path_factory.mktemp("stack") / "log").open("w")
    try:
        with log, Stack(settings=SETTINGS, log=log, seed=1, answer_seconds=0) as stack:
            yield stack
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def stack(whole_stack: Stack) -> Iterator[Stack]:
    """The stack, which each test leaves with an empty queue and a quick third party."""
    yield whole_stack
    with redis.Redis.from_url(whole_stack.redis.url, decode_responses=True) as client:
        assert list(client.scan_iter()) == []


@pytest.fixture
def bench(stack: Stack) -> Iterator[Bench]:
    with redis.Redis.from_url(stack.redis.url, decode_responses=True) as client:
        yield Bench(RedisKeys(client))


@pytest.fixture(params=["REST", "HTTP"])
def url(request: pytest.FixtureRequest, stack: Stack) -> str:
    """The gateway, speaking each kind of event."""
    return stack.url if request.param == "REST" else stack.http_url


def post(url: str, provider: str, name: str) -> requests.Response:
    return requests.post(f"{url}/tasks", json={"provider": provider, "name": name}, timeout=30)


def item(stack: Stack, task_id: str) -> dict[str, Any]:
    found = stack.dynamodb.client().get_item(TableName=TABLE_NAME, Key={"task_id": {"S": task_id}}, ConsistentRead=True)
    return dict(found.get("Item", {}))


def status(stack: Stack, task_id: str) -> str:
    return str(item(stack, task_id)["status"]["S"])


def age(stack: Stack, *task_ids: str) -> None:
    """Lets an hour pass for these items."""
    for task_id in task_ids:
        stack.dynamodb.client().update_item(
            TableName=TABLE_NAME,
            Key={"task_id": {"S": task_id}},
            UpdateExpression="SET updated_at = updated_at - :hour",
            ExpressionAttributeValues={":hour": {"N": str(HOUR_MS)}},
        )


def finish(stack: Stack, bench: Bench, *task_ids: str) -> None:
    """Ticks until these tasks are completed, letting the time between the attempts pass at once."""
    for _ in range(12):
        if {status(stack, task_id) for task_id in task_ids} == {"completed"}:
            return
        bench.rewind(LONGEST_SECONDS)
        stack.tick()
    pytest.fail(f"not completed: {[task_id for task_id in task_ids if status(stack, task_id) != 'completed']}")


def pending_coins(stack: Stack, prefix: str, count: int) -> list[str]:
    """Names of so many coin tasks whose first toss was no success."""
    names: list[str] = []
    for number in range(100):
        if len(names) == count:
            return names
        name = f"{prefix}-{number}"
        if post(stack.url, "coin", name).status_code == 202:
            names.append(name)
    raise AssertionError("a hundred heads")


def test_a_request_is_answered_at_once_and_its_data_arrives_by_itself(stack: Stack, bench: Bench, url: str) -> None:
    name = f"Łódź & Söhne / {url[-5:]}"
    whole = stack.third_party.whole(name)
    first = requests.get(f"{url}/", {"task-name": name}, timeout=30)
    assert first.status_code == 202
    assert first.json()["partial"] is True
    assert first.json()["data"].items() < whole.items()
    assert (bench.score(name) or 0) > bench.keys.now() - 60_000  # a timestamp

    second = requests.get(f"{url}/", {"task-name": name}, timeout=30)
    assert (second.status_code, second.json()["deduplicated"]) == (202, True)
    assert second.json()["data"] == first.json()["data"]
    assert len([call for call in stack.third_party.calls if call.name == name]) == 1

    finish(stack, bench, f"example/{name}")
    last = requests.get(f"{url}/", {"task-name": name}, timeout=30)
    assert (last.status_code, last.json()["status"], last.json()["data"]) == (200, "completed", whole)
    assert len([call for call in stack.third_party.calls if call.name == name]) == stack.third_party.attempts(name)


def test_the_location_of_a_new_task_leads_to_its_state(stack: Stack, bench: Bench, url: str) -> None:
    name = f"located at {url[-5:]}"
    accepted = post(url, "example", name)
    there = requests.get(url + accepted.headers["Location"], timeout=30)
    assert (there.status_code, there.json()["status"], there.json()["schedule"]) == (200, "pending", "waiting")
    by_path = requests.get(f"{url}/tasks/example/{quote(name)}", timeout=30)
    assert by_path.json()["task_id"] == there.json()["task_id"] == f"example/{name}"
    finish(stack, bench, f"example/{name}")


def test_a_coin_is_tossed_until_it_shows_heads(stack: Stack, bench: Bench) -> None:
    names = pending_coins(stack, "tossed", 3)
    finish(stack, bench, *(f"coin/{name}" for name in names))
    for name in names:
        tosses = [call.status for call in stack.third_party.calls if call.name == name]
        assert tosses[-1] == 200
        assert set(tosses[:-1]) == {300}


@pytest.mark.promise("ends", "the tasks of a worker that died come back when its lease is over")
def test_a_process_run_killed_in_the_middle_loses_no_task(stack: Stack, bench: Bench) -> None:
    names = pending_coins(stack, "survivor", 4)
    stack.third_party.answer_seconds = 3600
    bench.rewind(LONGEST_SECONDS)
    run = stack.functions["ProcessFunction"].start({})
    wait_until(lambda: _leased(bench, names), 30, "the claims")
    for pid in stack.functions["ProcessFunction"].pids():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(FunctionError, match="signal 9"):
        run.result()
    stack.third_party.answer_seconds = 0
    assert _leased(bench, names)
    finish(stack, bench, *(f"coin/{name}" for name in names))


@pytest.mark.promise("ends", "when Redis has lost everything, the tasks come back with their jobs")
def test_what_a_flushed_redis_lost_comes_back_with_reconcile(stack: Stack, bench: Bench) -> None:
    names = ["flushed 1", "flushed 2", "flushed 3"]
    for name in names:
        assert post(stack.url, "example", name).status_code == 202
    with redis.Redis.from_url(stack.redis.url) as client:
        client.flushall()
    assert stack.tick() == {name: {"claimed": 0, "expired": 0} for name in ("coin", "example", "hook")}
    age(stack, *(f"example/{name}" for name in names))
    before = bench.keys.now()
    tally = stack.reconcile()
    assert isinstance(tally, dict)
    assert tally["example"]["requeued"] == 3
    assert all((bench.score(name) or 0) >= before + LEASE_SECONDS * 1000 for name in names)
    finish(stack, bench, *(f"example/{name}" for name in names))


@pytest.mark.promise("ends", "while Redis is away requests are accepted; reconcile queues them afterwards")
def test_while_redis_is_away_requests_are_accepted_and_reconcile_queues_them(stack: Stack, bench: Bench) -> None:
    stack.redis.kill()
    accepted = post(stack.url, "example", "without redis")
    assert accepted.status_code == 202
    shown = requests.get(f"{stack.url}/tasks/example/without%20redis", timeout=30)
    assert (shown.status_code, shown.json()["schedule"]) == (200, "unknown")
    stack.redis.restart()
    age(stack, "example/without redis")
    stack.reconcile()
    finish(stack, bench, "example/without redis")


def test_a_cancelled_task_is_not_asked_after_any_more(stack: Stack, bench: Bench, url: str) -> None:
    name = f"cancelled {url[-5:]}"
    assert post(url, "example", name).status_code == 202
    cancelled = requests.delete(f"{url}/tasks", params={"provider": "example", "name": name}, timeout=30)
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    asked = len(stack.third_party.calls)
    bench.rewind(LONGEST_SECONDS)
    stack.tick()
    assert len(stack.third_party.calls) == asked
    assert status(stack, f"example/{name}") == "cancelled"


def test_a_wrong_request_is_a_problem_that_names_its_field(stack: Stack, url: str) -> None:
    wrong = requests.post(f"{url}/tasks", json={"name": ""}, timeout=30)
    assert (wrong.status_code, wrong.json()["field"]) == (400, "name")
    assert wrong.headers["Content-Type"] == "application/problem+json"
    assert requests.get(f"{url}/", timeout=30).json()["field"] == "task-name"
    assert requests.get(f"{url}/tasks/example/nobody", timeout=30).status_code == 404


def _leased(bench: Bench, names: list[str]) -> bool:
    return {name: place for name, (place, _) in bench.state("coin").items()} == dict.fromkeys(names, "processing")
