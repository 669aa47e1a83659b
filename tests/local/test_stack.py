"""The stack ends as a whole, however it is ended."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from local import ROOT, dev
from local.servers.dynamodb import DynamoDB
from local.stack import Stack, ended_by_signals
from local.waiting import wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")


def processes() -> dict[int, int]:
    """Every process that is alive, and its parent."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(stat.parent.name)] = int(parent)
    return parents


def descendants(pid: int) -> set[int]:
    """Every process below this one."""
    parents = processes()
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.fixture
def dev_stack(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`make dev` on free ports, up, and its output."""
    output = tmp_path / "output"
    with output.open("wb") as stream:
        program = subprocess.Popen([sys.executable, "-m", "local.dev", "--free-ports"], cwd=ROOT, stdout=stream)
        try:
            wait_until(lambda: b"kill -9" in output.read_bytes() or program.poll() is not None, 60, "make dev")
            yield program, output
        finally:
            program.kill()
            program.wait()


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_dev_ends_with_0_and_leaves_no_process(
    dev_stack: tuple[subprocess.Popen[bytes], Path], number: signal.Signals
) -> None:
    program, output = dev_stack
    text = output.read_text()
    [ask] = [line.split()[-1].strip("'") for line in text.splitlines() if "curl -i" in line and "task-name" in line]
    assert requests.get(ask, timeout=30).status_code == 202
    started = descendants(program.pid)
    assert len(started) >= 4  # Redis, DynamoDB, enqueue, process
    program.send_signal(number)
    assert program.wait(30) == 0
    assert started & processes().keys() == set()
    assert "everything has ended" in output.read_text()


def test_dev_takes_another_port_where_the_usual_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "is_free", lambda port: port != 9003)
    chosen = dev.ports()
    assert (chosen.redis, chosen.gateway) == (0, 9002)
    assert "port 9003 is taken" in capsys.readouterr().out


@pytest.mark.server
def test_what_has_started_ends_when_a_later_part_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: DynamoDB) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(DynamoDB, "start", fail)
    before = descendants(os.getpid())
    with pytest.raises(RuntimeError, match="no such luck"), Stack():
        pytest.fail("it must not come up")
    assert descendants(os.getpid()) <= before


@pytest.mark.server
@pytest.mark.slow
def test_a_tick_with_too_much_to_do_has_others_at_its_side() -> None:
    log = io.StringIO()
    settings = {
        "PARALLEL_TASKS": "1",
        "TICK_SECONDS": "0.2",
        "WINDOW_SECONDS": "3",
        "IDLE_SECONDS": "0",
        "WAKE_QUEUE_URL": "",
    }
    with Stack(settings=settings | {"MAX_WORKERS": "3"}, log=log, seed=1, answer_seconds=0.2) as stack:
        tasks = {"tasks": [{"provider": "coin", "name": f"t{i}"} for i in range(60)]}
        requests.post(f"{stack.url}/tasks/batch", json=tasks, headers={"Prefer": "respond-async"}, timeout=60)
        stack.tick()
        wait_until(lambda: log.getvalue().count('"message":"tick"') == 3, 60, "the invited")
    assert '"message":"invited"' in log.getvalue()
    assert '"ticks":2' in log.getvalue()
    workers = set(re.findall(r"ProcessFunction\[(\d+)\].*\"message\":\"tick\"", log.getvalue()))
    assert len(workers) == 3


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread")
def test_the_first_signal_interrupts_and_a_second_does_not_disturb_the_ending() -> None:
    done = []

    def ending() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            done.append("in order")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        ending()
    assert done == ["in order"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.server
@pytest.mark.slow
def test_without_any_schedule_wake_ups_see_to_it_that_a_task_ends() -> None:
    log = io.StringIO()
    with Stack(log=log, seed=7, answer_seconds=0.2) as stack:
        task = {"provider": "example", "name": "a"}
        assert requests.post(f"{stack.url}/tasks", json=task, timeout=60).json()["status"] == "pending"
        url = f"{stack.url}/tasks/example/a"
        wait_until(lambda: requests.get(url, timeout=60).json()["status"] == "completed", 60, "the end")
    assert "ProcessFunction" in log.getvalue()
