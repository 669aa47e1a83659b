"""process: whatever starts it, it claims what is due, asks, settles, and returns a tally."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote

import pytest

from handlers.process import INVITATION, METRICS, handler
from shared import aws, wiring
from shared.errors import SettingsError
from shared.task import Task
from tests.support.api_events import Context, sample
from tests.support.deployment import Deployment
from tests.support.outage import Door
from tests.support.simulator import BROKEN, DONE, PARTIAL, WHOLE, Said, pending, refused, says

EVENTS = [
    None, {}, [], [1, {"a": None}], "", "a text", 7, {"version": "0", "detail": "{}"}, sample("process-scheduler"),
]  # fmt: skip


def ask(deployed: Deployment, *names: str, provider: str = "example") -> None:
    for name in names:
        deployed.call("GET", f"/?task-name={name}&provider={provider}")


# --- from the first call to the stored data


def test_partial_data_at_once_the_rest_by_itself(deployed: Deployment) -> None:
    deployed.simulator.say(pending(PARTIAL), pending({"city": "Ghent", "x": 1}), DONE)
    first = deployed.call("GET", "/?task-name=a")
    assert (first.status, first.body["data"]) == (202, PARTIAL)

    deployed.pass_(3)
    assert deployed.process() == {"example": {"claimed": 1, "snoozed": 1}}
    [(place, _)] = deployed.state().values()
    assert place == "waiting"
    again = deployed.call("GET", "/?task-name=a")
    assert (again.status, again.body["data"], again.body["deduplicated"]) == (202, {"city": "Ghent", "x": 1}, True)

    deployed.pass_(31)
    assert deployed.process() == {"example": {"claimed": 1, "completed": 1}}
    assert deployed.state() == {}
    item = deployed.item_of(Task("example", "a"))
    assert (item.status, item.data) == ("completed", WHOLE)
    last = deployed.call("GET", "/?task-name=a")
    assert (last.status, last.body["data"], last.body["partial"]) == (200, WHOLE, False)
    assert deployed.simulator.calls() == ["GET /example"] * 3


@pytest.mark.parametrize(
    "error",
    [BROKEN, says(500, {}), says(503, {}), Said(200, b"<html>"), says(300, {"status": "multiple choices"})],
    ids=["connection error", "500", "503", "unreadable", "300"],
)
def test_a_failure_puts_a_task_at_the_end_of_the_queue(deployed: Deployment, error: Said) -> None:
    deployed.patch.setenv("PARALLEL_TASKS", "1")
    ask(deployed, "older", "younger", provider="coin")
    deployed.pass_(60)
    deployed.simulator.asked.clear()
    deployed.simulator.say(error, DONE, to="older")
    deployed.simulator.say(DONE, to="younger")
    assert deployed.process() == {"coin": {"claimed": 3, "retried": 1, "completed": 2}}
    assert [asked.name for asked in deployed.simulator.asked] == ["older", "younger", "older"]


def test_at_most_parallel_tasks_are_asked_about_at_once_and_so_many_are(deployed: Deployment) -> None:
    deployed.patch.setenv("PARALLEL_TASKS", "3")
    ask(deployed, *(f"task {i}" for i in range(6)), provider="accepting")
    together, lock, running, most = threading.Barrier(3), threading.Lock(), 0, 0

    def meet() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(30)  # breaks unless three are here at once
        with lock:
            running -= 1

    deployed.simulator.say(DONE.after(meet))
    assert deployed.process() == {"accepting": {"claimed": 6, "completed": 6}}
    assert most == 3


def test_a_failure_for_good_is_kept_as_a_dead_letter(deployed: Deployment) -> None:
    ask(deployed, "a")
    deployed.simulator.say(refused("no such customer"))
    deployed.pass_(3)
    assert deployed.process() == {"example": {"claimed": 1, "buried": 1}}
    status = deployed.call("GET", "/tasks/example/a")
    assert (status.status, status.body["status"], status.body["schedule"]) == (200, "failed", "dead letter")


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_an_event_of_any_shape_starts_a_tick(deployed: Deployment, event: Any) -> None:
    ask(deployed, "a", provider="accepting")
    deployed.simulator.say(DONE)
    assert deployed.process(event) == {"accepting": {"claimed": 1, "completed": 1}}


def test_nothing_to_do_is_a_tally_too(deployed: Deployment) -> None:
    assert deployed.process() == {}


def test_without_redis_it_returns_normally_and_says_so(deployed: Deployment) -> None:
    deployed.redis.calls.clear()
    deployed.redis.away = True
    (counts,) = deployed.process().values()
    assert (counts, len(deployed.redis.calls)) == ({"unreachable": 1}, 1)


def test_without_dynamodb_tasks_are_given_back_and_end_when_it_is_there_again(deployed: Deployment) -> None:
    ask(deployed, "a", provider="job")
    deployed.dynamodb.calls.clear()
    deployed.dynamodb.away = {"GetItem", "UpdateItem"}
    deployed.simulator.say(DONE)
    deployed.pass_(3)
    assert deployed.process() == {"job": {"claimed": 1, "released": 1}}
    deployed.dynamodb.away = set()
    deployed.pass_(11)
    assert deployed.process() == {"job": {"claimed": 1, "completed": 1}}


def test_some_failing_is_no_failure_of_the_function(deployed: Deployment) -> None:
    ask(deployed, "broken", "refused", "sound", provider="accepting")
    for name, said in {"broken": BROKEN, "refused": refused(), "sound": DONE}.items():
        deployed.simulator.say(said, to=name)
    tally = deployed.process()
    assert tally == {"accepting": {"claimed": 3, "retried": 1, "buried": 1, "completed": 1}}


def test_without_time_left_it_leaves_everything_to_the_next(deployed: Deployment) -> None:
    ask(deployed, "a", provider="accepting")
    assert deployed.process(seconds=0) == {}
    assert [place for place, _ in deployed.state("accepting").values()] == ["waiting"]


def test_wrong_settings_stop_it_with_one_message_that_names_each(deployed: Deployment) -> None:
    for variable in ("PARALLEL_TASKS", "TICK_SECONDS", "MAX_CRASHES"):
        deployed.patch.setenv(variable, "many")
    with pytest.raises(SettingsError, match=r"PARALLEL_TASKS .*; TICK_SECONDS .*; MAX_CRASHES "):
        deployed.process()


def test_a_tick_is_one_line_of_log_and_a_line_of_metrics_for_each_provider_that_had_work(
    deployed: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(deployed, "a", "b", provider="accepting")
    deployed.simulator.say(DONE, to="a")
    deployed.simulator.say(refused(), to="b")
    capsys.readouterr()
    deployed.process()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [measured] = [line for line in lines if "_aws" in line]
    [directive] = measured["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Meanwhile"
    assert [sorted(dimensions) for dimensions in directive["Dimensions"]] == [["provider", "service"]]
    assert (measured["provider"], measured["service"]) == ("accepting", "meanwhile")
    counted = {name: measured[name] for name in METRICS if name in measured}
    assert counted == {"claimed": [2.0], "completed": [1.0], "buried": [1.0]}


def test_there_are_at_most_eight_metrics_for_a_provider() -> None:
    assert len(set(METRICS)) == len(METRICS) <= 8


def test_a_quiet_tick_measures_nothing(deployed: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.process()
    assert "_aws" not in capsys.readouterr().out


class Busy:
    """Ticks with more to do than they can."""

    def __init__(self) -> None:
        self.may_invite: list[bool] = []
        self.how: dict[str, Any] = {}

    def tick(self, remaining: Callable[[], float], invite: Callable[[int], None] | None, **how: Any) -> "Busy":
        self.how = how
        self.may_invite.append(invite is not None)
        if invite:
            invite(3)
        return self

    def run(self) -> dict[str, Counter[str]]:
        return {"example": Counter(claimed=1)}


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    busy = Busy()
    monkeypatch.setattr(wiring, "tick", busy.tick)
    return busy


def woken_by(*bodies: str) -> dict[str, Any]:
    return {"Records": [{"messageId": "1", "body": body, "eventSource": "aws:sqs"} for body in bodies]}


@pytest.mark.parametrize(
    ("event", "how"),
    [
        (woken_by("example", "unknown"), {"providers": {"example"}, "gives_way": False}),
        (woken_by("junk"), {"providers": set(), "gives_way": False}),
        ({"source": "aws.events"}, {"providers": None, "gives_way": True}),
        (INVITATION, {"providers": None, "gives_way": False}),
    ],
    ids=["wake-ups", "a bad message", "schedule", "invitation"],
)
def test_what_a_run_serves_depends_on_what_started_it(
    deployed: Deployment, busy: Busy, event: Any, how: dict[str, Any]
) -> None:
    deployed.patch.setattr(aws, "invoke", lambda *_: None)
    handler(event, cast(Any, Context()))
    assert busy.how == how


def test_a_run_invites_others_by_events_that_make_them_invite_nobody(deployed: Deployment, busy: Busy) -> None:
    deployed.patch.setenv("AWS_ENDPOINT_URL_LAMBDA", deployed.simulator.url)
    deployed.simulator.say(Said(202))
    assert deployed.process(sample("process-scheduled-event")) == {"example": {"claimed": 1}}
    function = quote(Context.invoked_function_arn, safe="")
    assert deployed.simulator.calls() == [f"POST /2015-03-31/functions/{function}/invocations"] * 3
    assert {asked.headers["x-amz-invocation-type"] for asked in deployed.simulator.asked} == {"Event"}
    for event in [asked.body for asked in deployed.simulator.asked]:
        assert event == sample("process-invited")
        deployed.process(event)
    assert busy.may_invite == [True, False, False, False]


def test_a_run_that_cannot_invite_goes_on_after_one_line_of_log(
    deployed: Deployment, busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door(silent=False)
    deployed.patch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{door.port}")
    try:
        assert deployed.process({}) == {"example": {"claimed": 1}}
    finally:
        door.close()
    assert door.knocks == 2  # one call and its repetition; the other calls are not even tried
    assert [line.message for line in caplog.records if line.levelname == "ERROR"] == ["not invoked"]


def test_a_run_that_may_not_invite_goes_on(deployed: Deployment, busy: Busy, caplog: pytest.LogCaptureFixture) -> None:
    deployed.patch.setenv("AWS_ENDPOINT_URL_LAMBDA", deployed.simulator.url)
    deployed.simulator.say(says(403, {"Message": "not authorized"}))
    assert deployed.process({}) == {"example": {"claimed": 1}}
    assert len(deployed.simulator.asked) == 1
    assert [line.message for line in caplog.records if line.levelname == "ERROR"] == ["not invoked"]
