"""The simulated third party: another company's slow API, on port 9001. It knows nothing of Meanwhile.

GET /example?task-name=NAME  starts a job and answers at once with partial data; the whole comes only on later requests
                             (&callback=URL: also posts the whole data there after a while, signed if it has a key)
GET /coin?task-name=NAME     waits for 3 seconds, then tosses a coin: 200 with the data, or 300
GET /log                     the calls it has had, oldest first

With a seed, each name gets the same answers in every run, whatever the order in which requests arrive.
"""

import argparse
import hmac
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Self
from urllib.parse import parse_qs, urlsplit
from weakref import WeakSet

from typing_extensions import override

CITIES = ("Aarhus", "Bergen", "Cádiz", "Delft", "Évora", "Ghent", "Kraków", "Łódź", "Malmö", "Zürich")
FAILING = 0.25  # the share of example jobs of which one request is answered 500

Data = dict[str, object]
Answer = tuple[int, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Call:
    """One request answered: at is when it arrived (epoch seconds)."""

    path: str
    name: str
    at: float
    status: int


class Job:
    """How many requests the job of one name takes, which of them fails, and how many there were."""

    def __init__(self, random: Random) -> None:
        self.asked = 0
        self.attempts = random.randint(2, 4)
        self.fails_at = random.randint(2, self.attempts) if random.random() < FAILING else None


class ThirdParty:
    """A server in threads of this process; `port=0` takes a free one. Use as a context manager."""

    def __init__(self, port: int = 0, seed: int | None = None, answer_seconds: float = 3.0, hook_key: str = "") -> None:
        self.seed = seed
        self.answer_seconds = answer_seconds
        self.hook_key = hook_key
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.log: list[Call] = []
        self._jobs: dict[str, Job] = {}
        self._coins: dict[str, Random] = {}
        self._port = port
        self._server: _Server
        self._thread: threading.Thread

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end; known inside the context."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def calls(self) -> list[Call]:
        """Every call of /example and /coin answered so far."""
        with self.lock:
            return list(self.log)

    def whole(self, name: str) -> Data:
        """The data that a completed answer about this name holds."""
        random = Random(f"{self.seed}/{name}/data")
        return {
            "name": name,
            "city": random.choice(CITIES),
            "employees": random.randint(3, 9000),
            "rating": round(random.uniform(1, 5), 2),
            "offices": [{"floor": random.randint(0, 9), "open": random.choice((True, False))} for _ in range(2)],
        }

    def attempts(self, name: str) -> int:
        """How many requests an /example job of this name takes until it is completed. Only with a seed."""
        job = Job(self._random(f"{name}/job"))
        return job.attempts + (job.fails_at is not None)

    def example(self, name: str) -> Answer:
        """One request about a job: partial data, more each time, perhaps one 500, then the whole."""
        with self.lock:
            job = self._jobs.setdefault(name, Job(self._random(f"{name}/job")))
            job.asked += 1
            if job.asked == job.fails_at:
                job.fails_at, job.asked = None, job.asked - 1
                return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "a temporary error, try again"}
            asked, done = job.asked, job.asked >= job.attempts
        whole = self.whole(name)
        if done:
            return HTTPStatus.OK, {"data": whole, "status": "completed"}
        partial = dict(list(whole.items())[: asked + 1])
        return HTTPStatus.OK, {"data": partial, "status": "async processing in progress"}

    def call_back(self, url: str, name: str) -> None:
        """Post the whole data to a URL after answer_seconds, once. A failure is ignored: the client can poll."""
        if self.closing.wait(self.answer_seconds):
            return
        body = json.dumps({"data": self.whole(name), "status": "completed"}, ensure_ascii=False).encode()
        signature = hmac.digest(self.hook_key.encode(), body, "sha256").hex()
        headers = {"Content-Type": "application/json", "X-Signature": f"sha256={signature}"}
        with suppress(OSError), urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30):
            pass

    def coin(self, name: str) -> Answer:
        """One toss: heads is the data, tails is 300. Takes answer_seconds."""
        with self.lock:
            heads = self._coins.setdefault(name, self._random(f"{name}/coin")).choice((True, False))
        self.closing.wait(self.answer_seconds)
        if heads:
            return HTTPStatus.OK, {"data": self.whole(name), "status": "completed"}
        return HTTPStatus.MULTIPLE_CHOICES, {"status": "multiple choices"}

    def _random(self, what: str) -> Random:
        return Random(None if self.seed is None else f"{self.seed}/{what}")

    def __enter__(self) -> Self:
        self._server = _Server(self._port, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Loopback only; closing it also cuts the connections that clients keep open."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, party: ThirdParty) -> None:
        self.party = party
        self.connections: WeakSet[socket.socket] = WeakSet()
        super().__init__(("127.0.0.1", port), _Handler)

    @override
    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closes its connection is not an error."""

    @override
    def server_close(self) -> None:
        super().server_close()
        for connection in list(self.connections):
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet
    server: _Server

    def do_GET(self) -> None:
        at, party = time.time(), self.server.party
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        name, hook = (query.get(field, [""])[0] for field in ("task-name", "callback"))
        routes = {"/example": party.example, "/coin": party.coin}
        if url.path == "/log":
            self._answer(HTTPStatus.OK, [asdict(call) for call in party.calls])
        elif url.path not in routes:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such page"})
        elif not name:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": "task-name is missing"})
        else:
            status, body = routes[url.path](name)
            with party.lock:
                party.log.append(Call(url.path, name, at, int(status)))
            self._answer(status, body)
            if hook.startswith("http"):
                threading.Thread(target=party.call_back, args=(hook, name), daemon=True).start()

    def _answer(self, status: int, body: object) -> None:
        raw = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    @override
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: /log has it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until Ctrl-C."""
    parser = argparse.ArgumentParser(description="The simulated third party.")
    parser.add_argument("--port", type=int, default=9001)
    parser.add_argument("--seed", type=int, help="the same answers in every run")
    chosen = parser.parse_args(arguments)
    with suppress(KeyboardInterrupt), ThirdParty(chosen.port, chosen.seed) as party:
        print(f"third party at {party.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
