"""The simulated third party keeps the word that its first page gives."""

import hmac
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import requests

from local.servers.third_party import ThirdParty
from local.waiting import wait_until
from tests.support.servers import Site


@pytest.fixture
def party() -> Iterator[ThirdParty]:
    with ThirdParty(seed=1, answer_seconds=0) as party:
        yield party


def ask(party: ThirdParty, path: str, name: str) -> requests.Response:
    return requests.get(f"{party.url}/{path}", {"task-name": name}, timeout=5, allow_redirects=False)


def conversation(party: ThirdParty, name: str) -> list[requests.Response]:
    answers = [ask(party, "example", name)]
    while answers[-1].status_code != 200 or answers[-1].json()["status"] != "completed":
        assert len(answers) < 6
        answers.append(ask(party, "example", name))
    return answers


def test_the_first_answer_is_partial_and_in_progress(party: ThirdParty) -> None:
    answer = ask(party, "example", "a")
    assert answer.status_code == 200
    assert answer.json()["status"] == "async processing in progress"
    assert answer.json()["data"].items() < party.whole("a").items()
    assert answer.json()["data"]["name"] == "a"


def test_partial_data_grows_until_the_whole_is_there_and_stays(party: ThirdParty) -> None:
    for name in ("a", "b", "c", "Łódź & co"):
        data = [answer.json()["data"] for answer in conversation(party, name) if answer.status_code == 200]
        assert all(len(earlier) < len(later) for earlier, later in pairwise(data))
        assert data[-1] == party.whole(name)
        assert ask(party, "example", name).json() == {"data": party.whole(name), "status": "completed"}


def test_it_calls_back_with_the_whole_signed_where_it_was_given_a_url() -> None:
    with ThirdParty(seed=1, answer_seconds=0, hook_key="k") as party, Site() as site:
        requests.get(f"{party.url}/example", {"task-name": "a", "callback": f"{site.url}/x"}, timeout=5)
        wait_until(lambda: site.calls, 30, "the callback")
        whole = party.whole("a")
    (call,) = site.calls
    assert (call.method, call.path, json.loads(call.body)) == ("POST", "/x", {"data": whole, "status": "completed"})
    assert call.headers["X-Signature"] == "sha256=" + hmac.new(b"k", call.body, "sha256").hexdigest()


def test_some_jobs_fail_once_and_never_at_the_first_request(party: ThirdParty) -> None:
    statuses = [[answer.status_code for answer in conversation(party, f"n{n}")] for n in range(40)]
    assert {row[0] for row in statuses} == {200}
    assert {row.count(500) for row in statuses} == {0, 1}
    assert {len(row) - row.count(500) for row in statuses} == {2, 3, 4}
    assert [len(row) for row in statuses] == [party.attempts(f"n{n}") for n in range(40)]


def test_a_coin_comes_down_as_data_or_as_300(party: ThirdParty) -> None:
    answers = [ask(party, "coin", "a") for _ in range(30)]
    assert {answer.status_code for answer in answers} == {200, 300}
    for answer in answers:
        expected: object = party.whole("a") if answer.status_code == 200 else None
        assert answer.json().get("data") == expected


def test_a_seeded_run_does_not_depend_on_the_order_of_arrival() -> None:
    names = [f"n{n}" for n in range(12)]

    def run(order: list[str], threads: int) -> dict[str, list[tuple[int, str]]]:
        with ThirdParty(seed=7, answer_seconds=0) as seeded, ThreadPoolExecutor(threads) as pool:

            def told(name: str) -> list[tuple[int, str]]:
                answers = [*(ask(seeded, "coin", name) for _ in range(4)), *conversation(seeded, name)]
                return [(answer.status_code, answer.text) for answer in answers]

            return dict(zip(order, pool.map(told, order), strict=True))

    assert run(names, 1) == run(names[::-1], 6)


def test_the_log_tells_every_call(party: ThirdParty) -> None:
    ask(party, "example", "a")
    ask(party, "coin", "b")
    log = requests.get(f"{party.url}/log", timeout=5).json()
    assert [(call["path"], call["name"]) for call in log] == [("/example", "a"), ("/coin", "b")]
    assert [(call.path, call.name, call.at, call.status) for call in party.calls] == [
        (call["path"], call["name"], call["at"], call["status"]) for call in log
    ]


def test_a_wrong_question_is_refused_and_starts_nothing(party: ThirdParty) -> None:
    assert requests.get(f"{party.url}/example", timeout=5).status_code == 400
    assert requests.get(f"{party.url}/elsewhere", {"task-name": "a"}, timeout=5).status_code == 404
    assert party.calls == []


def test_when_it_closes_nothing_is_answered_any_more_even_on_a_kept_connection() -> None:
    with requests.Session() as session:
        with ThirdParty() as party:
            session.get(f"{party.url}/log", timeout=5)
        with pytest.raises(requests.ConnectionError):
            session.get(f"{party.url}/log", timeout=5)


def test_closing_does_not_wait_for_a_coin_in_the_air() -> None:
    with ThreadPoolExecutor(1) as pool, ThirdParty(answer_seconds=3600) as party:
        toss = pool.submit(ask, party, "coin", "a")
        wait_until(lambda: party._server.connections, 10, "the request")
    toss.exception(timeout=30)


def test_it_runs_as_a_program_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "local.servers.third_party", "--port", "0", "--seed", "1"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdout
        url = program.stdout.readline().split()[-1]
        assert requests.get(f"{url}/example", {"task-name": "a"}, timeout=5).status_code == 200
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 0
