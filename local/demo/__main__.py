"""`make demo`: starts the whole stack, sends requests, and proves that each task's data arrives once, by itself."""

import os
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from rich.console import Console

from local.demo.checks import check
from local.demo.plan import Asked, plan, send
from local.demo.view import Watch, look, result_table
from local.output import UNREAD, until_unread
from local.servers.redis_server import NoServerError
from local.stack import Schedules, Stack, ended_by_signals

SEED = 37  # of the third party: the same answers in every demo
SECONDS = 120.0  # all tasks are completed long before, even on a busy machine
CLIENTS = 6  # requests under way at once
SCHEDULES = Schedules(process_seconds=60, reconcile_seconds=30)
# A tick lasts until the next one starts, and looks for due tasks every second: people are watching.
SETTINGS = {"WINDOW_SECONDS": "9", "IDLE_SECONDS": "9", "TICK_SECONDS": "1"}


def demo(console: Console, log: TextIO) -> list[str]:
    """Runs the demo; returns what went wrong."""
    console.print("[bold]Meanwhile[/]: starting Redis, DynamoDB, the third party and the gateway …")
    started = time.monotonic()
    with Stack(settings=SETTINGS, schedules=SCHEDULES, log=log, seed=SEED) as stack:
        console.print(f"up after {time.monotonic() - started:.1f} s; the schedule fires now and every 10 s\n")
        requests = plan()
        pool = ThreadPoolExecutor(CLIENTS)
        try:
            calls = [pool.submit(send, stack.url, request) for request in requests]
            _watch(console, stack, calls, len({request.task_id for request in requests}))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        first = [call.result() for call in calls]
        again = [send(stack.url, request) for request in {request.task_id: request for request in requests}.values()]
        console.print(result_table(stack, first, console.width))
        faults = check(stack, first, again, console)
    console.print(f"\n{time.monotonic() - started:.0f} s in all")
    return faults


def _watch(console: Console, stack: Stack, calls: "list[Future[Asked]]", tasks: int) -> None:
    """Shows what happens until every task is completed and settled, or the time is over."""
    deadline = time.monotonic() + SECONDS
    with Watch(console, len(calls), tasks) as watch:
        while True:
            seen = look(stack, sum(call.done() for call in calls))
            watch.show(seen)
            if (seen.answered, seen.completed, seen.queued) == (len(calls), tasks, 0) or time.monotonic() > deadline:
                return
            time.sleep(0.5)


def main() -> int:
    """0: every check held. 1: it says which did not, and where the functions' log is. 130: interrupted. 141: unread."""
    terminal = sys.stdout.isatty() or "FORCE_COLOR" in os.environ
    console = Console(width=None if terminal else 120)
    descriptor, name = tempfile.mkstemp(prefix="meanwhile-demo-", suffix=".log")
    path = Path(name)
    with open(descriptor, "w", encoding="utf-8") as log:  # noqa: PTH123 - a descriptor has no path
        try:
            with ended_by_signals():
                faults = demo(console, log)
        except KeyboardInterrupt:
            path.unlink()
            console.print("\ninterrupted; everything has ended")
            return 130
        except SystemExit:  # how rich ends where nobody reads the output
            path.unlink()
            return UNREAD
        except NoServerError as error:
            console.print(f"[bold red]{error}[/]")
            return 1
        except Exception:
            console.print(f"\n[bold red]the demo broke off[/]; the functions' log: {path}")
            raise
    if faults:
        console.print(f"[bold red]{len(faults)} of the checks failed[/]; the functions' log: {path}")
        return 1
    path.unlink()
    console.print("[bold green]every task is stored exactly once[/]")
    return 0


if __name__ == "__main__":
    sys.exit(until_unread(main))
