"""The requests of the demo: tasks of both providers by both routes, and duplicates, some of them at the same time."""

import time
from dataclasses import dataclass
from typing import Any

import requests

COMPANIES = (
    *("acme", "bluth", "cyberdyne", "duff", "globex", "hooli", "initech", "krusty", "Łódź & Söhne", "tessier"),
    *("nakatomi", "oceanic", "pied piper", "quantum", "rekall", "soylent", "tyrell", "umbrella", "virtucon", "wonka"),
    *("xanadu", "yoyodyne", "zorin", "東京商会"),
)
COINS = ("heads", "or", "tails", "who knows")
TWICE_AT_ONCE = ("bluth", "initech", "quantum", "Łódź & Söhne")
AGAIN_LATER = ("acme", "duff", "wonka", "東京商会")


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a task: `by_query` as `GET /?task-name=NAME`, else as `POST /tasks`."""

    provider: str
    name: str
    by_query: bool

    @property
    def task_id(self) -> str:
        """The task's key in DynamoDB."""
        return f"{self.provider}/{self.name}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and its answer, which took so many seconds."""

    request: Request
    status: int
    body: dict[str, Any]
    seconds: float


def plan() -> list[Request]:
    """The requests in the order in which they are sent."""
    planned = []
    for number, name in enumerate(COMPANIES):
        request = Request("example", name, number % 2 == 0)
        planned += [request] * (2 if name in TWICE_AT_ONCE else 1)
        if number % 6 == 0:
            planned.append(Request("coin", COINS[number // 6], by_query=False))
    return planned + [Request("example", name, by_query=False) for name in AGAIN_LATER]


def send(url: str, request: Request) -> Asked:
    """Sends it; whatever the status, the answer is returned."""
    began = time.monotonic()
    if request.by_query:
        answer = requests.get(f"{url}/", {"task-name": request.name}, timeout=30)
    else:
        answer = requests.post(f"{url}/tasks", json={"provider": request.provider, "name": request.name}, timeout=30)
    return Asked(request, answer.status_code, answer.json(), time.monotonic() - began)
