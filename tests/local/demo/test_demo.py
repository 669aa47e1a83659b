"""The demo works, and would say so if something were wrong."""

import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest
import redis
import requests
from rich.console import Console

from local import ROOT
from local.demo.__main__ import main
from local.demo.checks import CHECKS, check
from local.demo.plan import Asked, Request, plan
from local.demo.view import Seen, Watch, first_answers, look, result_table
from local.output import UNREAD
from local.servers.dynamodb import TABLE_NAME
from local.servers.redis_server import RedisServer
from local.servers.third_party import ThirdParty
from local.stack import Stack
from local.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Ends = tuple[Stack, list[Asked], list[Asked]]

JOB = Request("example", "a", by_query=True)
COIN, OTHER = Request("coin", "b", by_query=False), Request("example", "c", by_query=True)


@pytest.mark.server
@pytest.mark.slow
def test_the_demo_stores_every_task_exactly_once(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "local.demo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for request in plan():
        assert request.task_id in done.stdout
    assert done.stdout.count("✓") == len(CHECKS)
    assert "36 of 36 requests answered" in done.stdout
    assert list(tmp_path.iterdir()) == []  # neither a log nor a server's directory is left


@pytest.mark.server
@pytest.mark.slow
def test_an_interrupted_demo_ends_at_once_and_says_so(tmp_path: Path) -> None:
    output, temporary = tmp_path / "output", tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with output.open("wb") as stream:
        program = subprocess.Popen([sys.executable, "-m", "local.demo"], cwd=ROOT, env=environment, stdout=stream)
        wait_until(lambda: b"requests answered" in output.read_bytes(), 60, "the first requests")
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 130
    assert "interrupted" in output.read_text()
    assert list(temporary.iterdir()) == []


def test_the_plan_has_both_providers_both_routes_and_duplicates_side_by_side() -> None:
    planned = plan()
    tasks = Counter(request.task_id for request in planned)
    assert len(planned) == 36
    assert {request.provider for request in planned} == {"example", "coin"}
    assert {request.by_query for request in planned} == {True, False}
    assert len([task_id for task_id, count in tasks.items() if count > 1]) == 8
    assert any(earlier == later for earlier, later in pairwise(planned))


@pytest.fixture
def ends(dynamodb: "DynamoDBClient", redis_server: Any) -> Iterator[Ends]:
    """A stack after a demo of two tasks in which all went well: the parts that the checks look at."""
    server: RedisServer = redis_server("valkey")
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    with ThirdParty(seed=1, answer_seconds=0) as party:
        stack = SimpleNamespace(third_party=party, redis=server, dynamodb=SimpleNamespace(client=lambda: dynamodb))
        for request, enough in ((JOB, party.attempts("a")), (COIN, 0)):
            status, asked = 0, 0
            while asked < enough or (not enough and status != 200):
                url = f"{party.url}/{request.provider}"
                status = requests.get(url, {"task-name": request.name}, timeout=5, allow_redirects=False).status_code
                asked += 1
            put(stack, request, "completed")
        first = [Asked(JOB, 202, {"status": "pending"}, 0.1), Asked(JOB, 202, {"deduplicated": True}, 0.1)]
        first.append(Asked(COIN, 200, {"status": "completed"}, 0.1))
        again = [Asked(request, 200, {"data": party.whole(request.name)}, 0.1) for request in (JOB, COIN)]
        yield cast("Stack", stack), first, again


def put(stack: Any, request: Request, status: str, data: object = None) -> None:
    data = data or stack.third_party.whole(request.name)
    item = {
        "task_id": {"S": request.task_id}, "status": {"S": status}, "created_at": {"N": "1000"},
        "completed_at": {"N": "3500"}, "data": {"S": json.dumps(data)},
    }  # fmt: skip
    stack.dynamodb.client().put_item(TableName=TABLE_NAME, Item=item)


def failing(ends: Ends) -> list[str]:
    return check(*ends, Console(file=io.StringIO()))


@pytest.mark.server
def test_when_all_went_well_every_check_holds(ends: Ends) -> None:
    assert failing(ends) == []


def answer(ends: Ends, status: int, **body: object) -> None:
    ends[1].append(Asked(JOB, status, body, 0.1))


def ask_again(ends: Ends, path: str) -> None:
    requests.get(f"{ends[0].third_party.url}/{path}", timeout=5, allow_redirects=False)


def leave_a_key(ends: Ends) -> None:
    with redis.Redis.from_url(ends[0].redis.url) as client:
        client.set("left", "over")


def answer_otherwise(ends: Ends) -> None:
    ends[2][0] = Asked(JOB, 200, {"data": {"name": "a"}}, 0.1)


ASKED = "the third party was asked exactly as often as needed"
WHOLE = "each item's data is what the third party says is the whole"
COMPLETED = "every task is completed, one item each in DynamoDB"
WRONG: dict[str, tuple[Callable[[Ends], None], str]] = {
    "an error": (lambda e: answer(e, 503, deduplicated=True), "every request was answered at once with what is known"),
    "begun twice": (
        lambda e: answer(e, 202, deduplicated=False), "of several requests for one task exactly one began it",
    ),
    "not completed": (lambda e: put(e[0], JOB, "pending"), COMPLETED),
    "never asked for": (lambda e: put(e[0], OTHER, "completed"), COMPLETED),
    "wrong data": (lambda e: put(e[0], JOB, "completed", {"name": "a"}), WHOLE),
    "a job asked after too often": (lambda e: ask_again(e, "example?task-name=a"), ASKED),
    "a coin tossed too often": (lambda e: ask_again(e, "coin?task-name=b"), ASKED),
    "a key left in Redis": (leave_a_key, "Redis holds nothing any more"),
    "another answer when asked again": (
        answer_otherwise, "asked again, every task is answered 200 from the stored data",
    ),
}  # fmt: skip


@pytest.mark.server
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_fails_the_demo(ends: Ends, wrong: str) -> None:
    spoil, check_that_fails = WRONG[wrong]
    spoil(ends)
    assert failing(ends) == [check_that_fails]


@pytest.mark.server
def test_the_table_tells_of_each_task_how_it_began_and_what_is_stored(ends: Ends) -> None:
    stack, first, _ = ends
    output = io.StringIO()
    Console(file=output, width=120).print(result_table(stack, first, 120))
    [row] = [line for line in output.getvalue().splitlines() if "example/a" in line]
    polls = stack.third_party.attempts("a") - 1
    assert row.split()[:7] == ["example/a", "202", "nothing", "yet", "2", str(polls), "2.5"]
    assert '{"name": "a"' in row


@pytest.mark.server
def test_a_look_counts_what_waits_what_is_in_process_and_what_is_done(ends: Ends) -> None:
    with redis.Redis.from_url(ends[0].redis.url) as client:
        client.zadd("{queue:example}", {"a": 0, "b": 1, "c": 2})
        client.zadd("{queue:coin}", {"d": 0})
        seen = look(ends[0], answered=3)
        client.flushall()
    assert (seen.answered, seen.completed, seen.waiting, seen.processing) == (3, 2, 2, 2)


def test_the_first_answer_of_a_task_is_the_one_that_began_it() -> None:
    early, late = Asked(JOB, 202, {"deduplicated": True}, 0.1), Asked(JOB, 202, {"deduplicated": False}, 0.1)
    assert first_answers([early, late]) == {"example/a": late}
    assert first_answers([late, early]) == {"example/a": late}


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_and_in_plain_lines_elsewhere(*, terminal: bool) -> None:
    output = io.StringIO()
    with Watch(Console(file=output, force_terminal=terminal, width=120), 36, 28) as watch:
        watch.show(Seen(answered=12, completed=7, waiting=3, processing=2, attempts=40))
    assert "3 waiting, 2 in process, 40 attempts" in output.getvalue()
    assert ("12 of 36 requests answered, 7 of 28 tasks completed" in output.getvalue()) is not terminal


def test_a_demo_that_nobody_watches_any_more_leaves_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("local.demo.__main__.demo", Mock(side_effect=SystemExit(1)))
    assert main() == UNREAD
    assert list(tmp_path.iterdir()) == []
