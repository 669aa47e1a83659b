"""The soak's DynamoDB and provider write down what the checker must see, whatever the troubles they make."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from local.servers.dynamodb import REGION, TABLE_NAME, create_table
from shared.errors import StoreUnavailable
from shared.store import Store, Superseded, Table
from shared.task import Task
from tests.conftest import RETENTION_SECONDS
from tests.soak import table
from tests.soak.conftest import Told
from tests.soak.journal import Journal
from tests.soak.plan import PROVIDERS
from tests.soak.provider import FATES, Companies, Handler, Server
from tests.soak.table import Recorded
from tests.soak.weather import AFTER, BEFORE, MOOD_SECONDS, Weather
from tests.support.clock import START_MS

TASK = Task("jobs", "a")
WORKER = 4711


@contextmanager
def serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def recorded(journal: Journal) -> Recorded:
    application = Recorded(DomainDispatcherApplication(create_backend_app), journal, Random(1))
    application.is_calm = True
    return application


@pytest.fixture
def seen(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store at work on it, as a process with a number has it."""
    server = make_server("127.0.0.1", 0, recorded, threaded=True, request_handler=MotoRequestHandler)
    url = f"http://127.0.0.1:{server.port}"
    with serving(server):
        bare = boto3.client("dynamodb", region_name=REGION, endpoint_url=url)
        create_table(bare)
        monkeypatch.setenv("AWS_SDK_UA_APP_ID", f"{WORKER}-process")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        client = boto3.client("dynamodb", region_name=REGION, endpoint_url=url)
        yield Store(Table(client, TABLE_NAME), RETENTION_SECONDS)
        bare.delete_table(TableName=TABLE_NAME)
        bare.close()
        client.close()


def test_each_write_is_noted_with_who_wrote_and_what_it_did(seen: Store, told: Told) -> None:
    item = seen.begin(TASK, None, {}, START_MS)
    assert item
    seen.complete(TASK, item.generation, {"n": 1}, START_MS)
    seen.get(TASK, START_MS)
    begin, end, read = told(3)
    assert (begin["what"], begin["old"], begin["worker"], begin["task"]) == ("write", None, WORKER, "jobs/a")
    assert begin["function"] == "process"
    assert begin["new"].items() >= {"status": "pending", "generation": item.generation, "open": True}.items()
    assert end["old"] == begin["new"]
    assert (end["new"]["status"], json.loads(end["new"]["data"])) == ("completed", {"n": 1})
    assert (read["what"], read["operation"], read["worker"]) == ("read", "GetItem", WORKER)


def test_a_write_that_changes_nothing_is_none(seen: Store, told: Told) -> None:
    item = seen.begin(TASK, None, {}, START_MS)
    assert item
    seen.cancel(TASK, item.generation, START_MS)
    assert isinstance(seen.complete(TASK, item.generation, {}, START_MS), Superseded)
    assert [event["new"]["status"] for event in told(2)] == ["pending", "cancelled"]


@pytest.mark.parametrize(("trouble", "written"), [("lost reply", True), ("throttled", False), ("error", False)])
def test_a_trouble_is_noted_and_whether_something_was_written_all_the_same(
    seen: Store, recorded: Recorded, told: Told, monkeypatch: pytest.MonkeyPatch, trouble: str, written: bool
) -> None:
    for name, value in {"SHARE": 1.0, "KILLED": 0.0, "TROUBLES": {trouble: 1}}.items():
        monkeypatch.setattr(table, name, value)
    recorded.is_calm = False
    with pytest.raises(StoreUnavailable):
        seen.begin(TASK, None, {}, START_MS)
    fault, *writes = told(1 + written)
    assert (fault["what"], fault["kind"], fault["task"], fault["worker"]) == ("fault", trouble, "jobs/a", WORKER)
    assert [event["what"] for event in writes] == ["write"] * written
    recorded.is_calm = True
    assert (seen.get(TASK, START_MS) is not None) == written


@pytest.fixture
def companies(journal: Journal) -> Companies:
    companies = Companies(journal, "seed")
    assert set(companies.weather) == set(PROVIDERS)  # each has weather of its own
    companies.calm()
    return companies


@pytest.fixture
def ask(companies: Companies) -> Iterator[Callable[..., tuple[int, Any]]]:
    server = Server(("127.0.0.1", 0), Handler)
    server.companies = companies

    def ask(method: str, path: str, key: str = "") -> tuple[int, Any]:
        with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=30)) as connection:
            body = json.dumps({"name": "a"}) if method == "POST" else None
            connection.request(method, path, body, {"Worker": str(WORKER), "Key": key})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    with serving(server):
        yield ask


def key_with(fate: str) -> str:
    """A key whose job will have that fate."""
    keys, words = map(str, range(1000)), list(FATES)
    return next(key for key in keys if Random(f"seed {key}").choices(words, weights=list(FATES.values())) == [fate])


def test_one_key_is_one_job_however_often_it_is_submitted(ask: Callable[..., Any], told: Told) -> None:
    key = key_with("done")
    assert ask("POST", "/jobs/jobs", key) == ask("POST", "/jobs/jobs", key)
    assert [event["what"] for event in told(3)] == ["job", "asked", "asked"]


def test_a_job_that_was_given_a_url_calls_back_and_no_other(
    companies: Companies, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(companies._sender, "job", lambda *call: calls.append(call))
    companies.ask("submit", "jobs", "a", "without", "")
    job, _, _ = companies.ask("submit", "hooks", "a", "with", "", "http://127.0.0.1/hook")
    companies.ask("submit", "hooks", "a", "with", "", "http://127.0.0.1/hook")
    ((key, url, _, told, about),) = calls
    assert (key, url) == ("with", "http://127.0.0.1/hook")
    assert about == {"provider": "hooks", "name": "a", "key": "with", "job": job}
    assert told == [(at, companies._jobs[job].says(at)) for at, _ in told]


def test_what_it_was_asked_and_said_is_noted(ask: Callable[..., Any], told: Told) -> None:
    key = key_with("at once")
    status, body = ask("POST", "/jobs/jobs", key)
    assert (status, body["status"], body["data"]["whole"]) == (200, "done", True)
    assert ask("GET", f"/jobs/jobs/{body['id']}?task-name=a") == (200, body)
    assert ask("GET", "/jobs/jobs/unknown?task-name=a")[0] == 404
    job, submit, poll, unknown = sorted(told(4), key=lambda event: float(event.get("begun", 0)))
    assert (job["key"], job["job"], job["name"], job["fate"]) == (key, body["id"], "a", "at once")
    assert (submit["verb"], submit["key"], submit["worker"], submit["said"]) == ("submit", key, WORKER, "done")
    assert (poll["verb"], poll["job"], poll["name"], poll["whole"]) == ("poll", body["id"], "a", True)
    assert submit["begun"] <= submit["sent"] <= submit["at"]
    assert unknown["said"] == "404"


@pytest.mark.parametrize(("fate", "status"), [("refused", "refused"), ("failed", "refused"), ("vanishes", "lost")])
def test_a_job_has_the_fate_of_its_key(companies: Companies, fate: str, status: str) -> None:
    job, _, _ = companies.ask("submit", "jobs", "a", key_with(fate), "")
    companies._jobs[job].done_at = 0
    assert companies.ask("poll", "jobs", "a", "", job)[2]["status"] == status


@pytest.mark.parametrize("trouble", [*BEFORE, *AFTER])
def test_in_trouble_a_job_begins_or_not_and_no_answer_is_as_it_should_be(
    ask: Callable[..., Any], companies: Companies, told: Told, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(companies, "trouble", lambda provider: trouble)
    monkeypatch.setattr("tests.soak.provider.DRIP_SECONDS", 0.2)
    monkeypatch.setattr("tests.soak.provider.LATE_SECONDS", (0.0, 0.01))
    try:
        answered = ask("POST", "/jobs/jobs", key_with("done"))
    except (OSError, HTTPException, ValueError):
        answered = (0, None)
    *begun, asked = told(1 + (trouble in AFTER))
    assert [event["what"] for event in begun] == ["job"] * (trouble in AFTER)
    assert (asked["trouble"], asked["whole"]) == (trouble, trouble == "late")
    assert (answered[0] == 200) == (trouble == "late")


def test_an_honest_provider_begins_no_job_behind_an_error() -> None:
    now = [0.0]
    weather = Weather(Random(1), lambda: now[0])
    found = set()
    for _ in range(3000):
        now[0] += MOOD_SECONDS[0] / 10
        found.add(weather.trouble(honest=True))
    assert found == {None, "drip before", *BEFORE, *AFTER} - {"500 after"}
    weather.is_over = True
    assert {weather.trouble(honest=False) for _ in range(100)} == {None}
