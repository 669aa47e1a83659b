"""The simulated third party: another company's slow API, on port 9001. It knows nothing of ours.

GET /example?task-name=NAME  starts a job and answers at once with what is known; whole only when asked again
                             (&callback=URL: and calls back with the whole after a while, signed where it has a key)
GET /coin?task-name=NAME     thinks for a while (3 seconds), then tosses a coin: 200 with the data, or 300
GET /log                     the calls it has had, oldest first

With a seed, each name meets the same fate in every run, whatever the order in which requests arrive.
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
STUMBLE = 0.25  # how often an example job has one bad moment, answered 500

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
    """What fate holds for one name, and how often it was asked after."""

    def __init__(self, random: Random) -> None:
        self.asked = 0
        self.asks = random.randint(2, 4)
        self.stumbles_at = random.randint(2, self.asks) if random.random() < STUMBLE else None


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
        """The data that a completed answer about this name holds (of a seeded third party, or a name it has met)."""
        random = Random(f"{self.seed}/{name}/data")
        return {
            "name": name,
            "city": random.choice(CITIES),
            "employees": random.randint(3, 9000),
            "rating": round(random.uniform(1, 5), 2),
            "offices": [{"floor": random.randint(0, 9), "open": random.choice((True, False))} for _ in range(2)],
        }

    def asks(self, name: str) -> int:
        """How often an /example job about this name is to be asked until it is completed (of a seeded third party)."""
        job = Job(self._random(f"{name}/job"))
        return job.asks + (job.stumbles_at is not None)

    def example(self, name: str) -> Answer:
        """One ask about a job: partial data, fuller each time, perhaps one 500, then the whole."""
        with self.lock:
            job = self._jobs.setdefault(name, Job(self._random(f"{name}/job")))
            job.asked += 1
            if job.asked == job.stumbles_at:
                job.stumbles_at, job.asked = None, job.asked - 1
                return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "a bad moment, ask again"}
            asked, done = job.asked, job.asked >= job.asks
        whole = self.whole(name)
        if done:
            return HTTPStatus.OK, {"data": whole, "status": "completed"}
        partial = dict(list(whole.items())[: asked + 1])
        return HTTPStatus.OK, {"data": partial, "status": "async processing in progress"}

    def call_back(self, url: str, name: str) -> None:
        """Post the whole to a URL, after answer_seconds; once, and nobody hears of a failure: one may ask, too."""
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
        """A client that hangs up is no news."""

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
        """Quiet: /log tells."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until Ctrl-C."""
    parser = argparse.ArgumentParser(description="The simulated third party.")
    parser.add_argument("--port", type=int, default=9001)
    parser.add_argument("--seed", type=int, help="the same fates in every run")
    chosen = parser.parse_args(arguments)
    with suppress(KeyboardInterrupt), ThirdParty(chosen.port, chosen.seed) as party:
        print(f"third party at {party.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
