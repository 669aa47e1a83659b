"""Whatever a file says and a provider answers: one outcome, in time, that can be stored; never an exception."""

import dataclasses
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.codec import dumps
from shared.errors import ProviderFileError, TransportError
from shared.outcome import Completed, Failed, Pending, Retry
from shared.provider import Finding, Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.part import YEAR_SECONDS
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.origin import Origin
from shared.provider.wire.transport import Transport
from shared.reasons import Reason
from shared.record import Record
from tests.support.asking import DONE, TASK, Secrets, ask, consistent, provider, record, rules
from tests.support.clock import START_MS
from tests.support.servers import Peer, Wire

SERVER = "http://a.example"
SECRET = "s3cr3t-marker"
SECONDS = 20.0

# --- arbitrary JSON, and answers that hold it

NASTY = st.text(st.sampled_from('ab/\\.:?#&=%@;\r\n\t \x00\x7fäé€\u2028{}$\ud800"<'), max_size=8)
WORDS = st.sampled_from(["completed", "completed", "Working ", "FAILED", "lost", "busy", ""])
LINKS = st.sampled_from([
    "/x", "http://a.example/y", "http://b.example/z", "http://[", "ftp://a.example", "//c.example", "http://10.0.0.1/",
    "..",
])  # fmt: skip
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400)
LEAVES = st.none() | st.booleans() | NUMBERS | NASTY | WORDS | LINKS
JSON = st.recursive(
    LEAVES, lambda children: st.lists(children, max_size=3) | st.dictionaries(NASTY, children, max_size=3), max_leaves=5
)
KEYS = ("id", "status", "link", "next", "data", "error", "wait", "list")
NAMED = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4)
ANSWER = st.builds(lambda word, some: {"status": word} | some, WORDS, NAMED) | NAMED | JSON
BODIES = (
    ANSWER.map(lambda value: dumps(value).encode())
    | ANSWER.map(lambda value: dumps(value).encode()[:-1])
    | ANSWER.map(lambda value: dumps(value).encode("utf-16", "surrogatepass"))
    | st.lists(ANSWER, max_size=3).map(lambda values: "\n".join(map(dumps, values)).encode())
    | st.binary(max_size=40)
    | st.sampled_from([b"", b" ", b"<html>", b"NaN", b'{"status": 1e999}', b"[" * 5000, b'"\\ud800"', b"a,b\n1,2\n3"])
)
STATUSES = st.sampled_from(
    [200, 200, 200, 201, 202, 204, 301, 302, 303, 304, 307, 400, 401, 403, 404, 410, 429, 500, 503]
) | (st.integers(200, 999))
HEADERS = st.dictionaries(
    st.sampled_from(["content-type", "location", "retry-after", "retry-after-ms", "etag", "x-y", "set-cookie"]),
    st.text(st.characters(max_codepoint=255), max_size=10)
    | st.sampled_from(
        ["application/json", "text/plain; charset=hex", "text/csv", "application/jsonl", "120", "-1", "nan"]
    )
    | LINKS,
    max_size=4,
)
REASONS = (
    Reason.TRANSPORT, Reason.DEADLINE, Reason.TOO_LARGE,
    Reason.REFUSED_TARGET, Reason.INVALID_REQUEST, Reason.REDIRECTS,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Said:
    """What happens to one request: an answer or a trouble, after a while."""

    reply: Reply | Reason
    seconds: float


SAID = st.builds(
    Said,
    st.builds(Reply, STATUSES, HEADERS, BODIES, st.just("")) | st.sampled_from(REASONS),
    st.sampled_from([0.0, 0.1, 1.0, 7.0, 19.9, 30.0]),
)


class Scripted(Transport):
    """A transport whose requests end as told, in a time of its own. It refuses what takes longer than it may."""

    def __init__(self, script: Sequence[Said]) -> None:
        super().__init__(1, clock=lambda: self.now)
        self.now = 1000.0
        self.requests = 0
        self._script = script

    def once(self, call: Call, seconds: float, allowed: frozenset[Origin]) -> Reply:
        said = self._script[self.requests % len(self._script)]
        self.requests += 1
        if seconds <= 0 or said.seconds > seconds:
            self.now += max(seconds, 0)
            raise TransportError("late", reason=Reason.DEADLINE)
        self.now += said.seconds
        if isinstance(said.reply, Reason):
            raise TransportError("no answer", reason=said.reply)
        if said.reply.status == 200 and said.reply.body == b"" and "token" in call.url:
            return dataclasses.replace(said.reply, body=b'{"access_token": "t"}')
        return said.reply


# --- arbitrary files

EXPRESSIONS = st.sampled_from([
    "body", "body.status", "body.data", "body.id", "body.link", "body.next", "body.list[*].status", "statusCode",
    'headers."retry-after"', "headers.location", "url", "input.v", "outputs.id", "null", "body.data[0]", "@",
    "length(body.list)", "body.wait > `3`", "to_number(body.wait)", "sum(body.list)", "avg(body.list)",
    "body.list[?status == 'completed']", "keys(body)", "sort(body.list)", "{a: body.id, b: input}", "&body",
    "max_by(body.list, &id)", "join('/', body.list)", "ceil(to_number(body.wait))", "body.*.id", "body.list[::2]",
])  # fmt: skip
INPUTS = [
    "/x", "/x/${input.v}", "${input.v}", "/x/${+input.v}?a=${task.name}", "http://b.example/${task.id}",
    "?q=${input.v}",
]  # fmt: skip
OUTPUTS = ["${outputs.link}", "/x/${outputs.id}", "${+outputs.id}", "/x/${outputs.id.a[0]}"]
RESPONSES = ["${response.body.link}", "/x/${response.headers.location}"]
VALUES = st.sampled_from(["${input.v}", "a ${input.v} b", "${task.id}", "plain", "${outputs.id}", "${input}"])


def operations(urls: list[str], **more: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"url": st.sampled_from(urls)},
        optional={
            "method": st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
            "query": st.dictionaries(st.sampled_from("pq"), VALUES, max_size=2),
            "headers": st.dictionaries(st.sampled_from(["X-A", "X-B", "Authorization"]), VALUES, max_size=2),
            "body": st.recursive(
                VALUES, lambda some: st.dictionaries(st.sampled_from("ab"), some, max_size=2), max_leaves=3
            ),
            "contentType": st.sampled_from(
                ["application/json", "application/x-www-form-urlencoded", "text/plain", "text/csv"]
            ),
            "outputs": st.dictionaries(st.sampled_from(["id", "link"]), EXPRESSIONS, max_size=2),
            "timeout": st.sampled_from([0.001, 5, 20, 600]),
            "decode": st.sampled_from(["auto", "json", "jsonl", "csv", "text"]),
            **more,
        },
    )


RESULTS = operations(
    INPUTS + OUTPUTS + RESPONSES, decode=st.sampled_from(["auto", "json", "jsonl", "csv", "text", "url"]),
    next=EXPRESSIONS, optional=st.booleans(),
)  # fmt: skip
ACCEPTORS = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["pending", "success", "failure", "retry", "resubmit"]),
        "expected": WORDS | st.none() | st.booleans() | st.integers(0, 5) | st.lists(WORDS, min_size=1, max_size=3),
    },
    optional={
        "matcher": st.sampled_from(["path", "pathAny", "pathAll"]),
        "argument": EXPRESSIONS,
        "on": st.lists(st.sampled_from(["submit", "poll", "result"]), min_size=1, max_size=3, unique=True),
        "message": EXPRESSIONS,
    },
) | st.fixed_dictionaries(
    {
        "state": st.sampled_from(["pending", "success", "failure", "retry", "resubmit"]),
        "matcher": st.just("status"),
        "expected": st.sampled_from([200, "2XX", 303, "3XX", [404, "5XX"]]),
    },
    optional={"on": st.lists(st.sampled_from(["submit", "poll", "result"]), min_size=1, unique=True)},
)
DELAYS = st.sampled_from([0, 0.001, 1, 5, 3600, YEAR_SECONDS])
POLLING = st.fixed_dictionaries(
    {},
    optional={
        "initialDelay": DELAYS, "minDelay": DELAYS, "maxDelay": DELAYS,
        "multiplier": st.sampled_from([1, 1.5, 10, 100]), "jitter": st.sampled_from(["full", "none"]),
        "maxWaitTime": st.sampled_from([0.001, 10, 86400]), "maxErrors": st.integers(0, 3),
        "maxResubmits": st.integers(0, 3), "notFoundGrace": DELAYS,
        "hints": st.lists(
            st.fixed_dictionaries({
                "argument": EXPRESSIONS, "unit": st.sampled_from(["s", "ms", "epoch", "http-date"]),
            }),
            max_size=2,
        ),
    },
).map(consistent)  # fmt: skip
SECURITY = st.lists(
    st.sampled_from([
        {"type": "http", "scheme": "bearer", "secret": "env:SECRET"},
        {"type": "http", "scheme": "basic", "secret": "env:NOWHERE"},
        {"type": "apiKey", "in": "query", "name": "key", "secret": "env:SECRET"},
        {"type": "oauth2", "tokenUrl": f"{SERVER}/token", "clientId": "us", "clientSecret": "env:SECRET"},
    ]),
    max_size=2,
)  # fmt: skip
SUBMITS = operations(INPUTS)
FILES = st.fixed_dictionaries(
    {
        "servers": st.just([SERVER]), "submit": SUBMITS | st.tuples(SUBMITS, operations(INPUTS + OUTPUTS)).map(list),
        "acceptors": st.lists(ACCEPTORS, max_size=3).map(lambda some: [*some, DONE]), "security": SECURITY,
    },
    optional={
        "poll": operations(INPUTS + OUTPUTS), "result": RESULTS | st.lists(RESULTS, min_size=1, max_size=2),
        "cancel": operations(INPUTS + OUTPUTS), "status": EXPRESSIONS, "data": EXPRESSIONS, "partial": EXPRESSIONS,
        "progress": EXPRESSIONS, "error": EXPRESSIONS, "polling": POLLING,
    },
)  # fmt: skip


def check(finding: Finding) -> None:
    """An outcome that the worker can store and settle."""
    match finding.outcome:
        case Pending(delay, partial, progress):
            assert 0 <= delay < float("inf")
            dumps([partial, progress])
        case Retry(delay, reason):
            assert 0 <= delay < float("inf")
            assert reason
        case Completed(data):
            dumps(data)
        case Failed(reason, error):
            assert reason
            dumps(error)
    assert Record.from_text(finding.record.to_text()) == finding.record
    assert SECRET not in repr(finding)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(FILES, st.lists(SAID, min_size=1, max_size=6), JSON)
def test_any_file_and_any_answers_give_one_outcome_each_time_and_in_time(
    file: dict[str, Any], script: list[Said], value: Any
) -> None:
    try:
        read = Rules.from_json(file)
    except ProviderFileError as error:
        pytest.fail(f"the file should be well-formed: {error}")
    transport = Scripted(script)
    credentials = Credentials(read.security, Secrets({"env:SECRET": SECRET}), transport, clock=lambda: transport.now)
    asked = Provider(read, transport, credentials, random.Random(1))
    asked._exchange.clock = lambda: transport.now
    known, now = record(input={"v": value}), START_MS
    for _ in range(4):
        begun = transport.now
        finding = asked.attempt(TASK, known, now=now, seconds=SECONDS)
        assert transport.now <= begun + SECONDS + 1e-6
        check(finding)
        if not isinstance(finding.outcome, Pending | Retry):
            break
        known, now = finding.record, now + round(min(finding.outcome.delay_seconds, 1e6) * 1000)
    begun = transport.now
    asked.cancel(TASK, known, seconds=5)
    assert transport.now <= begun + 5 + 1e-6


# --- real sockets

HEADS = st.sampled_from([
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 302 Found\r\nLocation: /x\r\n", b"HTTP/1.1 204 No\r\n",
    b"HTTP/1.1 101 Switching\r\n", b"HTTP/1.1 303 See\r\nLocation: http://[\r\n", b"HTTP/1.1 200\r\n",
    b"HTTP/9.9 999 \xff\r\n", b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\n", b"ICY 200 OK\r\n", b"",
    b"HTTP/1.1 503 Busy\r\nRetry-After: soon\r\n",
])  # fmt: skip
FIELDS = st.lists(
    st.sampled_from([
        b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 1, 2\r\n", b"Content-Length: x\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Content-Encoding: gzip\r\n",
        b"Content-Encoding: deflate, br, zstd\r\n", b"Connection: close\r\n",
        b"Content-Type: text/plain; charset=zlib\r\n", b"Set-Cookie: a=b; expires=Thu, 99 Foo 1\r\n", b"no colon\r\n",
        b": empty\r\n", b" folded\r\n", b"X: \xff\x00\r\n", b"Location: \xff\r\n", b"Retry-After: 1e400\r\n",
    ]),
    max_size=4,
).map(b"".join)  # fmt: skip
TAILS = st.sampled_from([
    b"\r\n", b"\r\n{}", b'\r\n{"status": "completed"}', b"\r\n2\r\n{}\r\n0\r\n\r\n", b"\r\n-1\r\n{}",
    b"\r\nffffffff\r\n{}", b"\r\n0\r\nX: y", b"", b"\n", b"\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x05\x00",
    b"\r\nzz\r\n",
])  # fmt: skip


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(HEADS, FIELDS, TAILS | st.binary(max_size=30), st.sampled_from(["close", "close", "close", "wait"]))
def test_any_bytes_from_a_socket_give_an_outcome_in_time(head: bytes, fields: bytes, tail: bytes, end: str) -> None:
    def script(peer: Peer) -> None:
        while peer.request():
            peer.send(head + fields + tail)
            if end == "close":
                peer.socket.shutdown(2)
                return

    with Wire(script) as wire:
        check(ask(provider(rules(wire.url)), seconds=0.2))


# --- faulty files


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A well-formed file with something else in one place."""
    file = json.loads(json.dumps(draw(FILES)))
    holder, key = {"": file}, ""
    for _ in range(draw(st.integers(0, 5))):
        inner: Any = holder[key]
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
        if not keys:
            break
        holder, key = inner, draw(st.sampled_from(keys))
    holder[key] = draw(JSON)
    return file


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(spoilt() | JSON)
def test_any_file_is_well_formed_or_refused_with_its_place(file: Any) -> None:
    try:
        read = Rules.from_json(file)
    except ProviderFileError as error:
        refused = str(error)
    else:
        refused = "$"
        transport = Scripted([Said(Reply(200, {}, b'{"status": "completed", "id": 1, "link": "/x"}', ""), 0.1)])
        check(ask(provider(read, transport=transport), record(input={"v": "x"}), seconds=SECONDS))
    assert "$" in refused


def test_the_fuzz_reaches_every_kind_of_outcome() -> None:
    """Else its strategies have gone stale."""
    seen: set[str] = set()

    @settings(deadline=None, max_examples=60, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(FILES, st.lists(SAID, min_size=1, max_size=4))
    def look(file: dict[str, Any], script: list[Said]) -> None:
        asked = provider(Rules.from_json(file), Secrets({"env:SECRET": SECRET}), Scripted(script))
        seen.add(type(ask(asked, record(input={"v": "x"})).outcome).__name__)

    look()
    assert seen == {"Pending", "Completed", "Retry", "Failed"}
