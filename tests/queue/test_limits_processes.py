"""Four worker processes on one server, and a provider that counts: it never sees more than its file allows.

Nothing here depends on how fast this machine is: requests may arrive late, never early, and the provider itself waits
until a limit is reached, so that a limit that did not hold would show.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest
from redis import Redis
from typing_extensions import override

from local import ROOT
from shared.queue import Add, Queue
from shared.record import Record
from shared.task import Task
from tests.support.keys import Bench

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.parametrize("redis_kind", ["valkey"], indirect=True)]

WORKERS = 4
SLOTS = 5
"""Attempts at once in one worker."""
WAIT_SECONDS = 120
"""How long a test waits for what must come; only a failing one waits so long."""

Answer = tuple[int, Mapping[str, str], Any]


@dataclass
class Seen:
    """One request: when it came and when it was answered, epoch seconds."""

    method: str
    path: str
    name: str
    worker: str
    at: float
    answered_at: float = 0


@dataclass
class Counting:
    """A provider that counts; `answer` tells what it says to a request, in the thread that serves it."""

    answer: Callable[["Counting", Seen], Answer]
    seen: list[Seen] = field(default_factory=list)
    now: int = 0
    most: int = 0
    open_jobs: set[str] = field(default_factory=set)
    most_jobs: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for(self, what: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
        """Wait until something holds that changes with a request or an answer."""
        with self.changed:
            return self.changed.wait_for(what, seconds)

    def open(self, job: str) -> None:
        with self.changed:
            self.open_jobs.add(job)
            self.most_jobs = max(self.most_jobs, len(self.open_jobs))
            self.changed.notify_all()

    def close(self, job: str) -> None:
        with self.changed:
            self.open_jobs.discard(job)

    def serve(self, seen: Seen) -> Answer:
        with self.changed:
            self.seen.append(seen)
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
        try:
            return self.answer(self, seen)
        finally:
            with self.changed:
                self.now -= 1
                seen.answered_at = time.time()
                self.changed.notify_all()


class _Server(ThreadingHTTPServer):
    provider: Counting
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._serve()

    def _serve(self) -> None:
        name = self.headers["X-Task"]
        seen = Seen(self.command, self.path, name, self.headers["X-Worker"], time.time())
        status, headers, body = self.server.provider.serve(seen)
        text = json.dumps(body).encode()
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    @override
    def log_message(self, *_: object) -> None:
        pass

    @override
    def handle(self) -> None:
        with suppress(ConnectionError):  # the worker was killed
            super().handle()


def file(url: str, worker: str, **parts: Any) -> dict[str, Any]:
    """A provider file of jobs that are submitted and asked after; the provider learns which worker asks."""
    headers = {"X-Task": "${task.name}", "X-Worker": worker}
    made = {
        "servers": [url],
        "submit": {"method": "POST", "url": "/jobs", "headers": headers, "body": {}, "outputs": {"id": "body.id"}},
        "poll": {"url": "/jobs/${outputs.id}", "headers": headers},
        "acceptors": [{"state": "success", "expected": "done", "on": ["submit", "poll"]}],
        "polling": {"initialDelay": 0.1, "minDelay": 0.1, "maxDelay": 1, "maxErrors": 1000, "maxResubmits": 1000},
    }
    return made | parts


@contextmanager
def working(redis_url: str, files: Callable[[str], Mapping[str, Any]]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Four workers at work, each by its number; what is added to the list is ended with them."""
    started = [start(redis_url, f"{number}", files(f"{number}")) for number in range(WORKERS)]
    try:
        yield started
    finally:
        for one in started:
            stop(one)


def start(redis_url: str, name: str, files: Mapping[str, Any]) -> "subprocess.Popen[str]":
    settings = {"TICK_SECONDS": "0.05", "WINDOW_SECONDS": "2", "IDLE_SECONDS": "0.2", "ATTEMPT_SECONDS": "4"}
    settings["PARALLEL_TASKS"] = str(SLOTS)
    made = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.support.ticking"], stdin=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert made.stdin
    json.dump({"redis_url": redis_url, "files": files, "settings": settings}, made.stdin)
    made.stdin.close()
    return made


def stop(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def put(queue: Queue, provider: str, names: list[str]) -> None:
    record = Record(generation=1, created_at=time.time_ns() // 1_000_000, input={}).to_text()
    queue.add([Add(Task(provider, name), 1, record) for name in names], token="test")


def empty(bench: Bench, *providers: str) -> bool:
    return all(not bench.state(provider) for provider in providers)


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


DONE: Answer = (200, {}, {"status": "done"})


@pytest.mark.promise("limits", "rate, parallel attempts and open jobs hold over all workers, also when a worker dies")
def test_no_limit_is_exceeded_by_four_workers_of_which_one_is_killed(
    queue: Queue, bench: Bench, redis_client: Redis, redis_server: Any
) -> None:
    parallel, most_jobs, burst, often_seconds = 3, 4, 4, 0.1
    killed, may_end = threading.Event(), threading.Event()

    def held_until_full(provider: Counting, seen: Seen) -> Answer:
        """Answer no one before as many ask at once as may; the victim's worker dies before it is answered."""
        if seen.name == "victim" and not killed.is_set():
            victims.append(seen.worker)
            may_end.wait(WAIT_SECONDS)
        elif len(provider.seen) <= parallel:
            provider.wait_for(lambda: provider.most >= parallel)
        else:
            time.sleep(0.03)
        return DONE

    def a_job(provider: Counting, seen: Seen) -> Answer:
        """Take jobs, and let none be over before as many are open as may be."""
        if seen.method == "POST":
            provider.open(seen.name)
            return 202, {}, {"status": "running", "id": seen.name}
        polls = sum(one.name == seen.name for one in list(provider.seen)) - 1
        if polls < 2 or provider.most_jobs < most_jobs:
            return 200, {}, {"status": "running"}
        provider.close(seen.name)
        return DONE

    victims: list[str] = []
    limits: dict[str, Any] = {
        "parallel": {"parallel": parallel},
        "jobs": {"openJobs": most_jobs},
        "rate": {"rate": {"requests": 1, "seconds": often_seconds, "burst": burst}},
    }
    with Counting(held_until_full) as first, Counting(a_job) as second, Counting(lambda *_: DONE) as third:
        urls = {"parallel": first.url, "jobs": second.url, "rate": third.url}

        def files(worker: str) -> Mapping[str, Any]:
            return {name: file(urls[name], worker, limits=limits[name]) for name in limits}

        url = redis_server("valkey").url
        with working(url, files) as workers:
            put(queue, "parallel", ["victim", *(f"{number}" for number in range(25))])
            put(queue, "jobs", [f"{number}" for number in range(16)])
            begun_at = time.time()
            put(queue, "rate", [f"{number}" for number in range(30)])
            until(lambda: bool(victims))
            stop(workers[int(victims[0])])
            killed.set()
            workers.append(start(url, "new", files("new")))
            first.wait_for(lambda: len(first.seen) > parallel)  # the others go on beside the dead one's attempt
            may_end.set()
            until(lambda: empty(bench, *limits))
    assert first.most == parallel
    assert second.most_jobs == most_jobs
    arrivals = sorted(seen.at for seen in third.seen)
    assert all(number <= burst + (at - begun_at) / often_seconds for number, at in enumerate(arrivals, 1))
    asked = {seen.name for seen in first.seen}
    assert asked == {"victim", *(f"{number}" for number in range(25))}
    assert sum(seen.name == "victim" for seen in first.seen) == 2
    assert all(not bench.parts(provider)["jobs"] for provider in limits)


@pytest.mark.promise("limits", "a pause holds for all workers and ends with one probe")
def test_in_a_storm_of_429_nobody_asks_before_the_pause_ends_and_one_probe_comes_first(
    queue: Queue, bench: Bench, redis_server: Any
) -> None:
    pause_seconds, tasks = 3, 60

    def storm(provider: Counting, seen: Seen) -> Answer:
        """All are sent away; the first who comes back in time is kept waiting, while others might come too."""
        with provider.changed:
            answered = [one.answered_at for one in provider.seen if one.answered_at]
            is_early = not answered or seen.at < answered[0] + pause_seconds
            is_probe = not is_early and not probes
            if is_probe:
                probes.append(seen)
        if is_early:
            provider.wait_for(lambda: len(provider.seen) >= SLOTS)
            return 429, {"Retry-After": str(pause_seconds)}, {}
        if is_probe:
            time.sleep(1)
        return DONE

    probes: list[Seen] = []
    with Counting(storm) as provider:
        url = redis_server("valkey").url
        put(queue, "storm", [f"{number}" for number in range(tasks)])
        with working(url, lambda worker: {"storm": file(provider.url, worker)}):
            until(lambda: empty(bench, "storm"))
    (probe,) = probes
    first_answered_at = min(seen.answered_at for seen in provider.seen)
    early = [seen for seen in provider.seen if seen.at < first_answered_at + pause_seconds]
    assert SLOTS <= len(early) <= WORKERS * SLOTS  # whoever has had his answer asks no more
    beside = [seen for seen in provider.seen if probe.at < seen.at < probe.answered_at]
    assert beside == []
    assert len(provider.seen) == len(early) + tasks
    assert bench.parts("storm")["gate"] == {}
