"""The whole loop over HTTP, on the local stack: from a request to the stored item."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest
import redis
import requests

from local.servers.dynamodb import BUCKET_NAME, TABLE_NAME
from local.stack import Stack
from tests.support.keys import Bench, RedisKeys
from tests.support.redis_servers import server_or_skip

ATTEMPT_SECONDS = 2
LEASE_SECONDS = ATTEMPT_SECONDS + 10
LONGEST_SECONDS = LEASE_SECONDS + 60  # beyond any delay that the providers' files can cause
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
    server_or_skip("valkey")
    with log, Stack(settings=SETTINGS, log=log, seed=1, answer_seconds=0) as stack:
        yield stack


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


def finish(stack: Stack, bench: Bench, *task_ids: str) -> None:
    """Ticks until these tasks are completed, letting the time between the attempts pass at once."""
    for _ in range(12):
        if {status(stack, task_id) for task_id in task_ids} == {"completed"}:
            return
        bench.rewind(LONGEST_SECONDS)
        stack.tick()
    pytest.fail(f"not completed: {[task_id for task_id in task_ids if status(stack, task_id) != 'completed']}")


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


def test_an_erased_task_is_nowhere_and_begins_anew(stack: Stack, bench: Bench, url: str) -> None:
    """Completed and begun again with an input; an object of it is in S3, as a worker that came late leaves one."""
    name = f"to be erased {url[-5:]}"
    post(url, "example", name)
    finish(stack, bench, f"example/{name}")
    body = {"provider": "example", "name": name, "input": {"customer": "S3CRET"}}
    again = requests.post(f"{url}/tasks", json=body, headers={"Cache-Control": "no-cache"}, timeout=30).json()
    folder = f"example/{hashlib.sha256(name.encode()).hexdigest()}/"
    with closing(stack.dynamodb.s3()) as s3:
        s3.put_object(Bucket=BUCKET_NAME, Key=f"{folder}{again['generation']}/data-x", Body=b"S3CRET")
        targets = f"{url}/erase/example/{quote(name)}", f"{url}/erase?provider=example&name={quote(name)}"
        erased, repeated = (requests.delete(target, timeout=30) for target in targets)
        assert (erased.status_code, erased.json()["generation"]) == (200, again["generation"])
        assert (repeated.status_code, repeated.json()["erased_at"]) == (200, erased.json()["erased_at"])
        assert s3.list_objects_v2(Bucket=BUCKET_NAME, Prefix=folder)["KeyCount"] == 0
    there = requests.get(f"{url}/tasks/example/{quote(name)}", timeout=30).json()
    assert (there["status"], there["data"], there["erased_at"]) == ("cancelled", None, erased.json()["erased_at"])
    assert "S3CRET" not in str(item(stack, f"example/{name}"))
    assert name not in str(bench.keys.dump())
    anew = post(url, "example", name).json()
    assert anew["generation"] == again["generation"] + 1
    finish(stack, bench, f"example/{name}")
    assert requests.get(f"{url}/tasks/example/{quote(name)}", timeout=30).json()["status"] == "completed"


def test_who_cancels_does_not_erase(stack: Stack, bench: Bench, url: str) -> None:
    name = f"only cancelled {url[-5:]}"
    post(url, "example", name)
    refused = requests.delete(f"{url}/tasks/example/{quote(name)}", params={"erase": "true"}, timeout=30)
    assert (refused.status_code, refused.json()["field"]) == (400, "erase")
    finish(stack, bench, f"example/{name}")
