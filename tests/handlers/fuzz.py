"""Requests and events that nobody sends, of both shapes, against the functions of the API with fakes behind them.

`python -m tests.handlers.fuzz 50000` asks so many, each held to docs/openapi.json, and prints which took the most
processor time. The suite asks a few hundred, and measures nothing.
"""

import base64
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from local import ROOT
from local.sam_template import routes
from shared.errors import BadRequest, TransportError
from shared.provider import Provider
from shared.provider.callback_url import CallbackUrls
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from shared.queue import Queue
from shared.settings import Settings
from shared.store import Item, Store
from shared.task import Task
from shared.work.parts import Parts
from tests.api.test_event import ODD
from tests.support.api_events import Context, Event, http, rest
from tests.support.described import conform
from tests.support.memory_queue import MemoryQueue
from tests.support.memory_store import MemoryStore

FUNCTIONS = ("enqueue", "status", "callback")
MOST_MS = 100.0


class Shelf(MemoryStore):
    """What a batch and an answer ask of the store besides."""

    def get_many(self, tasks: Collection[Task], now: int) -> dict[Task, Item | None]:
        return {task: self.get(task, now) for task in tasks}

    def opened(self, item: Item, now: int) -> Item:
        return item


class Unreachable(Transport):
    """A provider that is away, found out without a connection."""

    def send(self, *_: Any, **__: Any) -> Any:
        raise TransportError("away")


def behind() -> Parts:
    """What stands behind the functions: everything in this process, nothing kept for longer than an example."""
    rules = Rules.load(ROOT / "shared" / "providers" / "example.json", None)
    transport = Unreachable(1)
    provider = Provider(rules, transport, Credentials((), lambda *_, **__: "", transport), Random(0))
    queue: Any = MemoryQueue()
    queue.wakes = False
    store = cast(Store, Shelf(3600))
    known = Settings.from_environment({"STATUS_WAIT_SECONDS": "0"})
    return Parts(store, cast(Queue, queue), {"example": provider}, known, lambda: 1_750_000_000_000)


@dataclass
class Functions:
    """The handlers; `slowest` has the most processor time that one event took, in milliseconds, and the event."""

    handlers: dict[str, Callable[[Any, Any], dict[str, Any]]]
    fresh: Callable[[], None]
    asked: int = 0
    slowest: tuple[float, str] = (0.0, "")

    def ask(self, function: str, event: Any) -> None:
        """Have an event answered: always as API Gateway takes it, and as it is described."""
        self.fresh()
        began = time.process_time()
        answer = self.handlers[function](event, Context())
        took = (time.process_time() - began) * 1000
        self.asked += 1
        self.slowest = max(self.slowest, (took, f"{function}: {str(event)[:2000]}"))
        json.dumps(answer).encode()  # as Lambda does
        assert answer["statusCode"] < 500, answer
        assert len(answer["body"]) < 200_000
        if function == "enqueue":
            self._conforms(event, answer)

    def _conforms(self, event: Any, answer: dict[str, Any]) -> None:
        from shared.api.event import ApiCall

        try:
            route = ApiCall.of(event).route
        except BadRequest:
            assert answer["statusCode"] == 400
        else:
            conform(route, answer["statusCode"], answer["headers"], answer["body"])


def functions(patch: pytest.MonkeyPatch) -> Functions:
    """The handlers over fakes."""
    from handlers import callback, enqueue, status
    from shared import wiring

    parts = [behind()]
    urls = CallbackUrls("https://x.example.com", "env:KEY", lambda *_, **__: "k")
    patch.setattr(wiring, "settings", lambda: parts[0].settings)
    patch.setattr(wiring, "parts", lambda: parts[0])
    patch.setattr(wiring, "callback_urls", lambda: urls)
    makers = (wiring.worker, wiring.enqueuer, wiring.waiter, wiring.receiver)

    def fresh() -> None:
        parts[0] = replace(parts[0], store=cast(Store, Shelf(3600)), queue=parts[0].queue)
        cast(Any, parts[0].queue).__init__()
        for maker in makers:
            maker.cache_clear()

    handlers: Any = {"enqueue": enqueue.handler, "status": status.handler, "callback": callback.handler}
    return Functions(handlers, fresh)


# --- what is asked

_SIZES = st.sampled_from([1, 2, 40, 300, 4000, 16_000])
_WILD = st.sampled_from(
    [
        "a",
        "名",
        "\u0301\u0323",
        "\ud800",
        "\u202e",
        "\u3000",
        "\u200d",
        "\x00",
        '"',
        "\\",
        "%FF",
        "/",
        "😀",
        "{",
        'W/"',
        ",",
    ]
)
long_texts = st.builds(lambda one, size: one * size, _WILD, _SIZES)
texts = st.one_of(st.sampled_from(["a", "example", "coin", ""]), st.text(max_size=20), long_texts)
deep = st.builds(lambda size: "[" * size + "]" * size, st.sampled_from([10, 127, 200, 900, 20_000, 32_000]))
numbers = st.sampled_from(["1e400", "NaN", "-Infinity", "9" * 4000, "9" * 5000, "1." + "1" * 60_000, "-0", "1E-400"])
twice = st.builds(
    lambda size, place: "{" + ",".join(f'"{i if i != place else 0}":1' for i in range(size)) + ',"0":1}',
    st.sampled_from([1, 100, 6_000, 100_000]), st.sampled_from([0, 5_999]),
)  # fmt: skip
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=6,
)
tasks = st.fixed_dictionaries(
    {"name": texts | values},
    optional={"provider": st.just("example") | texts, "input": st.dictionaries(texts, values, max_size=3) | values,
              "group": texts, "notify": values | st.fixed_dictionaries({"stepFunctionsToken": texts})},
)  # fmt: skip
batches = st.fixed_dictionaries(
    {"tasks": st.lists(tasks | values, max_size=8) | st.builds(lambda one, n: [one] * n, tasks, _SIZES)}
)
bodies: st.SearchStrategy[Any] = st.one_of(tasks, batches, values).map(json.dumps) | st.one_of(
    deep,
    numbers,
    twice,
    texts,
    st.builds(lambda one: f'{{"name": "a", "input": {{"x": {one}}}}}', deep | numbers | twice),
)
headers = st.dictionaries(
    st.sampled_from(["Prefer", "prefer", "Cache-Control", "If-None-Match", "X", "Content-Type"]),
    st.sampled_from(["wait=5", "respond-async", "no-cache", "max-age=1, stale-while-revalidate=5", "*", 'W/"a"'])
    | long_texts,
    max_size=3,
)
_TARGETS = [
    "/", "/?task-name=a", "/?task-name=a&provider=example", "/tasks?name=a", "/tasks", "/tasks/batch", "/tasks/revive",
    "/tasks/example/a", "/tasks/example/%FF", "/tasks/tasks/tasks%2Ftasks", "/callbacks/example/abc", "/elsewhere",
    "/?task-name=%FF", "/tasks?name=" + "%CC%81" * 1500, "/tasks/example/" + "%CC%81%CC%A3" * 1300,
    "/?" + "&a=b" * 3000,
]  # fmt: skip
# the fakes cannot erase: tests/api/test_erase.py has that over the real clients
_KNOWN = [
    (one.method, one.path.replace("{provider}", "example").replace("{name}", "a").replace("{token}", "t"))
    for one in routes()
    if not one.path.startswith("/erase")
]
calls = st.one_of(
    st.sampled_from(_KNOWN), st.tuples(st.sampled_from(["GET", "POST", "DELETE", "PUT"]), st.sampled_from(_TARGETS))
)


@st.composite
def events(draw: st.DrawFn) -> Any:
    """An event of one shape or the other, mostly sound, and now and then with a part of another kind."""
    if draw(st.integers(0, 30)) == 0:
        return draw(st.sampled_from(ODD) | values)
    (method, target), body = draw(calls), draw(st.none() | bodies)
    shape: Callable[..., Event] = draw(st.sampled_from([rest, http]))
    event: Any = shape(method, target, body, draw(headers), base=draw(st.sampled_from(["", "", "/tasks", "/v1/tasks"])))
    if draw(st.booleans()) and body is not None:
        event |= {"isBase64Encoded": True}
        if draw(st.booleans()):
            event["body"] = base64.b64encode(body.encode(errors="replace")).decode()
    for name in draw(st.lists(st.sampled_from(sorted(event)), max_size=2)) if draw(st.integers(0, 3)) == 0 else ():
        event[name] = draw(values)
    return event


def ask(functions: Functions, count: int, seed: int | None = None) -> None:
    """Ask so many of the functions. Raises whatever one raises, or an answer is not."""

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=seed is None, suppress_health_check=[*HealthCheck]
    )
    @given(function=st.sampled_from(FUNCTIONS) | st.just("enqueue"), event=events())
    def all_are_answered(function: str, event: Any) -> None:
        functions.ask(function, event)

    all_are_answered()


def main() -> int:
    """0 where every event was answered, none with 5xx, and none took more than MOST_MS of the processor."""
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    logging.getLogger("meanwhile").setLevel(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        made = functions(patch)
        ask(made, int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
    took, event = made.slowest
    print(f"{made.asked} events, no exception, no 5xx; the most processor time {took:.1f} ms: {event[:300]}")
    return int(took > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
