"""The stand-in for Lambda runs real processes: one event each, warm ones again, and survives their death."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import Mock

import pytest

from local import ROOT
from local.aws.function import Function, ThrottledError
from local.aws.sandbox import FunctionError
from local.waiting import wait_until

HANDLER = """
    import ctypes, os, sys, time

    def handler(event, context):
        match event:
            case {"echo": value}:
                return value
            case {"pid": _}:
                return os.getpid()
            case {"sleep": seconds}:
                time.sleep(seconds)
            case {"noise": text}:
                print(text)
                os.write(1, text.encode())
                ctypes.CDLL(None).puts(text.encode())
            case {"meet": folder}:
                open(f"{folder}/{os.getpid()}", "w").close()
                while len(os.listdir(folder)) < 3:
                    time.sleep(0.01)
            case {"raise": text}:
                raise ValueError(text)
            case {"exit": status}:
                sys.exit(status)
            case {"set": _}:
                return {1}
            case {"variable": name}:
                return os.environ.get(name)
            case {"context": _}:
                first = context.get_remaining_time_in_millis()
                time.sleep(0.02)
                return {
                    "name": context.function_name,
                    "version": context.function_version,
                    "memory": context.memory_limit_in_mb,
                    "arn": context.invoked_function_arn,
                    "id": context.aws_request_id,
                    "remaining": [first, context.get_remaining_time_in_millis()],
                }
"""

Make = Callable[..., Function]


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def make(tmp_path: Path, log: io.StringIO) -> Iterator[Make]:
    """Makes a function whose handler does what its event says."""
    (tmp_path / "sample_handler.py").write_text(dedent(HANDLER))
    with ExitStack() as stack:

        def make(handler: str = "sample_handler.handler", seconds: float = 30, **how: Any) -> Function:
            environment = {"PYTHONPATH": str(tmp_path), "MINE": "yes"}
            function = Function("Sample", handler, seconds, environment, log=log, **{"concurrency": 4} | how)
            return stack.enter_context(function)

        yield make


def test_a_function_whose_log_nobody_reads_answers_all_the_same(make: Make, log: io.StringIO) -> None:
    log.write = broken = Mock(side_effect=BrokenPipeError)  # type: ignore[method-assign]
    function = make()
    function.invoke({"noise": "hello"})
    assert function.invoke({"echo": 1}) == 1
    function.close()
    assert broken.called


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_event_comes_to_the_handler_and_its_answer_comes_back(make: Make) -> None:
    value = {"text": "Łódź\n", "number": 12345678901234567890, "list": [None, 1.5, {}]}
    assert make().invoke({"echo": value}) == value


def test_a_warm_process_is_used_again(make: Make) -> None:
    function = make()
    assert function.pids() == []
    first = function.invoke({"pid": 1})
    assert function.invoke({"pid": 1}) == first
    assert function.pids() == [first]


def test_events_at_the_same_time_have_a_process_each(make: Make, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    function = make()
    for answer in [function.start({"meet": str(meeting)}) for _ in range(3)]:
        answer.result()
    assert sorted(int(path.name) for path in meeting.iterdir()) == function.pids()


def test_beyond_the_cap_events_wait_and_all_are_answered(make: Make) -> None:
    function = make(concurrency=2)
    answers = [function.start({"echo": number}) for number in range(20)]
    assert [answer.result() for answer in answers] == list(range(20))
    assert len(function.pids()) <= 2


def test_what_a_handler_prints_goes_to_the_log_and_not_into_its_answer(make: Make, log: io.StringIO) -> None:
    function = make()
    assert function.invoke({"noise": '{"result": "forged"}'}) is None
    pid = function.pids()[0]
    function.close()
    assert log.getvalue().count('{"result": "forged"}') == 3
    assert all(line.startswith(f"Sample[{pid}] ") for line in log.getvalue().splitlines())


def test_an_exception_is_reported_with_its_type_and_the_process_stays_warm(make: Make, log: io.StringIO) -> None:
    function = make()
    with pytest.raises(FunctionError) as caught:
        function.invoke({"raise": "no such luck"})
    assert (caught.value.kind, caught.value.message) == ("ValueError", "no such luck")
    [pid] = function.pids()
    assert function.invoke({"pid": 1}) == pid
    function.close()
    assert "Traceback" in log.getvalue()


@pytest.mark.parametrize(("event", "reason"), [({"set": 1}, "not JSON serializable"), ({"exit": 3}, "exit status 3")])
def test_an_answer_that_is_no_json_and_an_exit_fail_their_own_call_only(make: Make, event: object, reason: str) -> None:
    function = make()
    with pytest.raises(FunctionError, match=reason):
        function.invoke(event)
    assert function.invoke({"echo": 1}) == 1


def test_a_handler_that_cannot_be_imported_is_reported_at_every_call(make: Make) -> None:
    function = make("no_such_module.handler")
    for _ in range(2):
        with pytest.raises(FunctionError, match="No module named 'no_such_module'") as caught:
            function.invoke({})
        assert caught.value.kind == "ModuleNotFoundError"


def test_a_handler_that_outstays_its_timeout_is_killed_and_replaced(make: Make) -> None:
    function = make(seconds=1)
    with pytest.raises(FunctionError, match=r"Task timed out after 1\.00 seconds") as caught:
        function.invoke({"sleep": 60})
    assert caught.value.kind == "Sandbox.Timedout"
    assert function.pids() == []
    assert function.invoke({"echo": 1}) == 1


def test_a_process_killed_at_work_fails_its_own_call_only(make: Make, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    function = make()
    answer = function.start({"meet": str(meeting)})
    wait_until(lambda: list(meeting.iterdir()), 30, "the handler at work")
    os.kill(function.pids()[0], signal.SIGKILL)
    with pytest.raises(FunctionError, match="signal 9") as caught:
        answer.result()
    assert caught.value.kind == "Runtime.ExitError"
    assert function.invoke({"echo": 1}) == 1


def test_a_process_killed_while_idle_fails_no_call(make: Make) -> None:
    function = make()
    pid = function.invoke({"pid": 1})
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: function.pids() == [], 10, "its end")
    assert function.invoke({"echo": 1}) == 1


def test_the_context_is_lambdas_and_its_deadline_real(make: Make) -> None:
    context = make(seconds=30).invoke({"context": 1})
    assert isinstance(context, dict)
    first, later = context.pop("remaining")
    assert 0 < later < first <= 30_000
    assert len(context.pop("id")) == 36
    assert context == {
        "name": "Sample",
        "version": "$LATEST",
        "memory": 512,
        "arn": "arn:aws:lambda:us-east-1:123456789012:function:Sample",
    }


def test_the_environment_is_the_functions_and_no_aws_setting_of_the_user_leaks_in(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    function = make()
    assert function.invoke({"variable": "AWS_PROFILE"}) is None
    assert function.invoke({"variable": "MINE"}) == "yes"
    assert function.invoke({"variable": "AWS_LAMBDA_FUNCTION_NAME"}) == "Sample"


def test_closing_ends_every_process_even_one_at_work(make: Make, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    function = make()
    answer = function.start({"meet": str(meeting)})
    wait_until(lambda: list(meeting.iterdir()), 30, "the handler at work")
    [pid] = function.pids()
    function.close()
    with pytest.raises(FunctionError):
        answer.result()
    assert not alive(pid)
    with pytest.raises(RuntimeError):
        function.invoke({"echo": 1})


def test_processes_end_when_their_parent_is_killed() -> None:
    script = """
        import os
        from local.aws.function import Function
        function = Function("Sample", "json.dumps", 30, {})
        try: function.invoke({})
        except Exception: pass
        print(*function.pids(), flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(script)], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    pids = [int(word) for word in done.stdout.split()]
    assert pids
    wait_until(lambda: not any(alive(pid) for pid in pids), 10, "their end")


def test_a_function_that_throttles_refuses_what_it_has_no_room_for_until_it_has(make: Make, tmp_path: Path) -> None:
    function, folder = make(concurrency=1, throttles=True), tmp_path / "meeting"
    folder.mkdir()
    (folder / "first").touch()
    busy = function.start({"meet": str(folder)})
    with pytest.raises(ThrottledError, match="Rate Exceeded"):
        function.invoke({"echo": 1})
    (folder / "last").touch()
    assert busy.result() is None
    assert function.invoke({"echo": 1}) == 1
