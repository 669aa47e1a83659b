"""Whatever a provider answers (status x headers x body x coding x framing x cut x what is declared x stage), over real
sockets: nothing is raised, nothing fails for a fault of the answer, and only what is whole, of its kind and there is
completed."""

import gzip
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.outcome import Completed, Failed
from shared.provider import Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.wire.transport import Transport
from shared.reasons import Reason
from tests.support.asking import POLLED, Secrets, ask, rules, submitted
from tests.support.servers import Peer, Wire

ROWS = [{"a": "1", "b": "x y"}, {"a": "2", "b": "ä"}]
VALUE = {"rows": ROWS}


@dataclass(frozen=True)
class Sort:
    """A body, the content type that fits it, and what each `decode` makes of it; nothing where it makes none."""

    body: bytes
    media: str
    data: dict[str, Any]


TABLE = "a,b\r\n1,x y\r\n2,ä\r\n".encode()
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
SORTS = [
    Sort(json.dumps(VALUE).encode(), "application/json", {"auto": VALUE, "json": VALUE}),
    Sort(TABLE, "text/csv", {"auto": ROWS, "csv": ROWS, "text": TABLE.decode()}),
    Sort(LINES, "application/x-ndjson", {"auto": ROWS, "jsonl": ROWS, "text": LINES.decode()}),
    Sort("words, ä\n".encode(), "text/plain", {"auto": "words, ä\n", "text": "words, ä\n"}),
    Sort(b"Error: busy, come back\n", "text/csv", {"text": "Error: busy, come back\n"}),
    Sort(b"data: 1\n\n", "text/event-stream", {"text": "data: 1\n\n"}),
    Sort(b"\xef\xbb\xbf", "text/plain", {"csv": []}),
    Sort(b"", "application/json", {}),
    Sort(b"null", "application/json", {}),
    Sort(b" \n", "text/plain", {}),
    Sort(b"<!DOCTYPE html><html><body>Sign in</body></html>", "text/html", {}),
    Sort(b"<html><body>Sign in</body></html>", "text/plain", {}),
    Sort(b'<?xml version="1.0"?><Error>no</Error>', "application/xml", {}),
    Sort(b'{"title": "Busy", "status": 503}', "application/problem+json", {}),
    Sort(b"\x00\xff\xfe\x81", "application/octet-stream", {}),
]
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda body: body,
    "gzip": lambda body: gzip.compress(body, mtime=0),
    "deflate": zlib.compress,
    "br": lambda body: body,
    "zstd": lambda body: body,
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body, mtime=0), mtime=0),
}
READ = ("", "gzip", "deflate")
ODD = [
    b"X-Odd: \xff\x01\r\n", b"Set-Cookie: a=b; expires=Thu, 99 Foo 1\r\n", b"Retry-After: 1e400\r\n", b"X: y\r\n" * 120,
    b"X: " + b"y" * 70_000 + b"\r\n", b"Date: yesterday\r\n", b"Location: http://[\r\n", b"Location: \xff\r\n",
    b"Vary: *\r\nContent-Language: \xe4\r\n",
]  # fmt: skip
BROKEN = [b"no colon\r\n", b": nameless\r\n", b"Content-Length: x\r\n", b"Content-Length: 1, 2\r\n",
          b"Transfer-Encoding: gzip\r\n", b"X: y\r\n" * 1001, b"X: " + b"y" * 270_000 + b"\r\n"]  # fmt: skip
STATUSES = [200, 200, 200, 200, 201, 202, 203, 204, 205, 206, 226, 299, 302, 304, 407, 408, 421, 425, 429, 499, 500,
            502,
            503, 504, 507, 509, 520, 522, 527, 530, 598, 599, 999]  # fmt: skip


@dataclass(frozen=True)
class Said:
    """One answer as it goes over the wire."""

    status: int
    sort: Sort
    coding: str
    framing: str
    odd: bytes
    broken: bytes
    cut: int
    """How many bytes are missing at the end of what is sent; of a packed body that its length fits, of the stream."""

    @property
    def is_whole(self) -> bool:
        return not self.cut and not self.broken and self.coding in READ

    def raw(self) -> bytes:
        packed = CODINGS[self.coding](self.sort.body)
        if self.framing == "fits":
            packed = packed[: max(len(packed) - self.cut, 0)]
        lines = self.broken + self.odd + b"Content-Type: " + self.sort.media.encode() + b"\r\n"
        if self.coding:
            lines += b"Content-Encoding: " + self.coding.encode() + b"\r\n"
        end = packed
        if self.framing == "chunked":
            lines += b"Transfer-Encoding: chunked\r\n"
            end = (b"%x\r\n%b\r\n" % (len(packed), packed) if packed else b"") + b"0\r\n\r\n"
            end = end[: len(end) - (self.cut + 4 if self.cut else 0)]  # without its last chunk
        elif self.framing != "closed":
            lines += b"Content-Length: %d\r\n" % len(packed)
            end = end[: max(len(end) - self.cut, 0)] if self.framing == "length" else end
        elif self.cut:
            end = end[: max(len(end) - self.cut, 0)]
        return b"HTTP/1.1 %d Some\r\n%b\r\n%b" % (self.status, lines, end)


@st.composite
def answers(draw: st.DrawFn) -> Said:
    """An answer; where it is cut, the cut can be known: by the length, the last chunk, the packing or its own form."""
    sort, coding = draw(st.sampled_from(SORTS)), draw(st.sampled_from([*READ, *READ, *CODINGS]))
    framing = draw(st.sampled_from(["length", "chunked", "closed", "fits"]))
    is_packed = coding in ("gzip", "deflate") and len(sort.body) > 0
    is_known = framing in ("length", "chunked") or is_packed or sort.media == "application/json"
    longest = len(CODINGS[coding](sort.body)) - 1
    may_be_cut = is_known and longest > 0
    cut = draw(st.sampled_from([0, 0, 1, 3, longest]) | st.integers(1, longest)) if may_be_cut else 0
    odd, broken = draw(st.sampled_from([b"", b"", *ODD])), draw(st.sampled_from([b"", b"", b"", *BROKEN]))
    return Said(draw(st.sampled_from(STATUSES)), sort, coding, framing, odd, broken, min(cut, max(longest, 0)))


def allowed(said: Said, decode: str) -> list[Any]:
    """What a task may be completed with, if anything."""
    if not said.is_whole or said.status in (202, 204, 205, 206, 226) or not 200 <= said.status <= 299:
        return []
    return [said.sort.data[decode]] if decode in said.sort.data else []


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    answers(), st.sampled_from(["auto", "json", "jsonl", "csv", "text"]), st.sampled_from(["submit", "poll", "result"])
)
def test_no_answer_that_is_cut_mistyped_or_empty_is_ever_completed(said: Said, decode: str, stage: str) -> None:
    def script(peer: Peer) -> None:
        while seen := peer.request():
            if stage == "result" and seen.path.startswith("/jobs"):
                peer.send(b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"status":"completed"}')
                continue
            peer.send(said.raw())
            peer.socket.shutdown(2)
            return

    by_status = {"state": "success", "matcher": "status", "expected": "2XX", "on": ["submit", "poll"]}
    parts: dict[str, Any] = {"acceptors": [by_status]}
    if stage == "result":
        parts |= POLLED | {"result": {"url": "/result", "decode": decode}}
    else:
        parts |= {"submit": {"url": "/jobs", "decode": decode}}
    with Wire(script) as wire:
        read = rules(wire.url, **parts)
        transport = Transport(1)
        asked = Provider(read, transport, Credentials((), Secrets(), transport), random.Random(1))
        finding = ask(asked, None if stage == "submit" else submitted())
    may_be = allowed(said, decode)
    match finding.outcome:
        case Completed(data):
            assert data in may_be or said.status == 202  # 202: an acceptor of this file says that it is a success
            assert data is not None
            assert said.is_whole
        case Failed() as failed:
            raise AssertionError(f"an answer's fault ended the task: {failed}")
        case _:
            assert not may_be
            assert finding.record.reason not in {Reason.INVALID_REQUEST, Reason.BROKEN}


def test_the_answers_reach_what_is_completed() -> None:
    """Else the strategies have gone stale."""
    seen: set[bool] = set()

    @settings(deadline=None, max_examples=100, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(answers(), st.sampled_from(["auto", "csv", "text"]))
    def look(said: Said, decode: str) -> None:
        seen.add(bool(allowed(said, decode)))

    look()
    assert seen == {True, False}
