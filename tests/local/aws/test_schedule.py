"""The schedule fires at the start and at its rate, whatever becomes of the runs."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from local import ROOT
from local.aws.function import Function
from local.aws.schedule import Schedule
from local.waiting import wait_until

HANDLER = """
    import json, os, time

    def handler(event, context):
        with open(os.environ["SEEN"], "a") as seen:
            seen.write(json.dumps(event) + "\\n")
        if os.environ.get("TROUBLE") == "slow":
            time.sleep(3600)
        if os.environ.get("TROUBLE") == "raise":
            raise ValueError("no such luck")
"""


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    (tmp_path / "schedule_handler.py").write_text(dedent(HANDLER))
    path = tmp_path / "seen"
    path.touch()
    return path


@pytest.fixture(params=["", "slow", "raise"])
def function(request: pytest.FixtureRequest, seen: Path) -> Iterator[Function]:
    environment = {"PYTHONPATH": str(seen.parent), "SEEN": str(seen), "TROUBLE": request.param}
    with Function("Tick", "schedule_handler.handler", 3600, environment, log=io.StringIO()) as function:
        yield function


def events(seen: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in seen.read_text().splitlines()]


def test_it_fires_again_and_again_even_while_a_run_is_slow_or_failing(function: Function, seen: Path) -> None:
    with Schedule(function, "process-scheduled-event.json", 0.01):
        wait_until(lambda: len(events(seen)) >= 3, 30, "three events")


@pytest.mark.parametrize("function", [""], indirect=True)
def test_it_fires_at_the_start_with_the_sample_event_as_of_now(function: Function, seen: Path) -> None:
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with Schedule(function, "process-scheduled-event.json", 3600) as schedule:
        wait_until(lambda: len(events(seen)) == 1, 30, "the first event")
        schedule.fire()
        wait_until(lambda: len(events(seen)) == 2, 30, "the second event")
    sample = json.loads((ROOT / "events" / "process-scheduled-event.json").read_text())
    first, second = events(seen)
    assert str(first["time"]) >= before
    assert first["id"] != second["id"]
    assert {**first, "id": "", "time": ""} == {**second, "id": "", "time": ""} == {**sample, "id": "", "time": ""}
