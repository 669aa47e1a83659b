"""The soak's provider, a process of its own: four misbehaving companies behind one port, which write down everything.

It knows nothing of ours. A job goes by its key: the same key, the same job; what becomes of a job hangs on seed and key
alone. `python -m tests.soak.provider JOURNAL SEED`; a line on its input ends the misbehaviour.
"""

import json
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partialmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

from tests.soak.hooks import Sender
from tests.soak.journal import Journal
from tests.soak.plan import PROVIDERS
from tests.soak.weather import AFTER, BEFORE, Weather

DRIP_SECONDS = 6.0
LATE_SECONDS = (0.2, 1.6)
JOB_SECONDS = (0.5, 4.0)
FATES = {"done": 70, "at once": 10, "refused": 5, "failed": 5, "vanishes": 10}


@dataclass(slots=True)
class Job:
    id: str
    name: str
    fate: str
    done_at: float
    is_cancelled: bool = False

    def says(self, now: float) -> dict[str, Any]:
        """What the provider answers to a question about it."""
        if self.fate == "refused":
            return {"status": "refused", "error": "no such customer"}
        if now < self.done_at:
            return {"status": "running", "id": self.id, "partial": {"name": self.name}}
        if self.fate == "failed":
            return {"status": "refused", "id": self.id, "error": "it went wrong"}
        if self.fate == "vanishes":
            return {"status": "lost", "id": self.id}
        data = {"job": self.id, "name": self.name, "share": 0.1, "whole": True}
        return {"status": "done", "id": self.id, "data": data}


class Companies:
    """All that the providers know. Safe for many threads."""

    def __init__(self, journal: Journal, seed: str) -> None:
        self.journal = journal
        self.weather = {name: Weather(Random(f"{seed} {name}")) for name in PROVIDERS}
        self._seed, self._sender = seed, Sender(journal, seed)
        self._jobs, self._by_key = dict[str, Job](), dict[str, Job]()
        self._lock = threading.Lock()

    def calm(self) -> None:
        for weather in self.weather.values():
            weather.is_over = True

    def trouble(self, provider: str) -> str | None:
        with self._lock:
            return self.weather[provider].trouble(honest=provider == "limited")

    def ask(
        self, verb: str, provider: str, name: str, key: str, job_id: str, hook: str = ""
    ) -> tuple[str, int, dict[str, Any]]:
        """Do what is asked for: the job, if there is one, the status and the body. `hook`: where it is to call back."""
        now = time.time()
        with self._lock:
            if verb in ("submit", "ask"):
                job = self._by_key.get(key) or self._begin(provider, name, key, now, hook)
            elif job_id in self._jobs:
                job = self._jobs[job_id]
            else:
                return "", 404, {"error": "no such job"}
            if verb == "cancel":
                job.is_cancelled = True
            return job.id, 200, job.says(now)

    def _begin(self, provider: str, name: str, key: str, now: float, hook: str) -> Job:
        random = Random(f"{self._seed} {key}")
        (fate,) = random.choices(list(FATES), weights=list(FATES.values()))
        if fate == "vanishes" and provider == "plain":  # it has no job that could be lost
            fate = "done"
        seconds = 0.0 if fate == "at once" else random.uniform(*JOB_SECONDS)
        job = Job(f"{provider}-{len(self._by_key)}", name, fate, now + seconds)
        self._by_key[key] = self._jobs[job.id] = job
        about = {"provider": provider, "name": name, "key": key, "job": job.id, "fate": fate}
        self.journal.write("job", done_at=job.done_at, **about)
        if hook:
            told = [(at, job.says(at)) for at in (now, job.done_at)]
            del about["fate"]
            self._sender.job(key, hook, now, told, about)
        return job


class Server(ThreadingHTTPServer):
    """Serves until the process ends."""

    companies: Companies
    daemon_threads = True
    request_queue_size = 128

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    sent = 0.0

    def _serve(self, verb: str) -> None:
        begun = time.time()
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        if len(text) < length:  # who sent it was killed between head and body: half a request is none
            self.close_connection = True
            return
        body = json.loads(text or b"{}")
        _, provider, last, *rest = url.path.split("/")
        verb = "ask" if last == "ask" else verb
        name = parse_qs(url.query).get("task-name", [body.get("name", "")])[0]
        key, worker = self.headers.get("Key", ""), int(self.headers["Worker"])
        companies = self.server.companies
        trouble = companies.trouble(provider)
        job, status, answer = "", 0, dict[str, Any]()
        self.sent = begun + DRIP_SECONDS
        if trouble in (None, *AFTER):
            job, status, answer = companies.ask(verb, provider, name, key, "".join(rest), body.get("callback", ""))
        about = {"provider": provider, "verb": verb, "name": name, "key": key, "job": job, "worker": worker}
        is_whole = False
        with suppress(OSError):
            is_whole = self._say(trouble, status, answer)
        said = answer.get("status", str(status)) if trouble in (None, "late") else ""
        told = {"trouble": trouble, "said": said, "whole": is_whole}
        companies.journal.write("asked", begun=begun, sent=self.sent, **told, **about)

    do_GET, do_POST = partialmethod(_serve, "poll"), partialmethod(_serve, "submit")  # noqa: N815
    do_DELETE = partialmethod(_serve, "cancel")  # noqa: N815

    def _say(self, trouble: str | None, status: int, answer: dict[str, Any]) -> bool:
        """Answer, or what passes for it; whether the whole answer left as it is."""
        text = json.dumps(answer).encode()
        if trouble == "late" and self._hangs_up_within(Random().uniform(*LATE_SECONDS)):
            return False
        if trouble in (None, "late"):
            self._send(status, text)
            return True
        if trouble in (*BEFORE[:4], "500 after"):
            headers = {"Retry-After": "1"} if trouble in ("429", "503") else {}
            self._send(int(trouble[:3]), b'{"error": "a soak"}', **headers)
        elif trouble == "junk":
            self._send(200, b"<html>it works!</html>")
        elif trouble == "cut":
            self._send(200, text[: len(text) // 2], **{"Content-Length": str(len(text))})
            self._reset()
        elif trouble in ("drip", "drip before"):
            self._send(200, b"", **{"Content-Length": "1000000"})
            self._drip()
        else:
            self._reset()
        return False

    def _send(self, status: int, text: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.sent = time.time()
        self.wfile.write(text)
        self.wfile.flush()

    def _reset(self) -> None:
        self.sent = time.time()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _drip(self) -> None:
        self.close_connection = True
        deadline = time.monotonic() + DRIP_SECONDS
        while time.monotonic() < deadline and not self._hangs_up_within(0.1):
            self.sent = time.time()
            self.wfile.write(b" ")
            self.wfile.flush()

    def _hangs_up_within(self, seconds: float) -> bool:
        readable, _, _ = select.select([self.connection], [], [], seconds)
        self.close_connection = self.close_connection or bool(readable)
        return bool(readable)

    @override
    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet: the journal tells."""


def main(journal: str, seed: str) -> None:
    """Says its port, then serves until its input is closed."""
    server = Server(("127.0.0.1", 0), Handler)
    server.companies = Companies(Journal(Path(journal)), seed)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print(server.server_port, flush=True)
    for _ in sys.stdin:
        server.companies.calm()


if __name__ == "__main__":
    main(*sys.argv[1:])
