"""HTTP that cannot be abused: late, endless, hostile and misleading answers over real sockets."""

import dataclasses
import gzip
import logging
import ssl
import threading
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import example, given
from hypothesis import strategies as st
from urllib3.util import parse_url

from local.provider.network import Request, network
from shared.errors import TransportError
from shared.provider.wire import connection
from shared.provider.wire.connection import MAX_HEAD_BYTES
from shared.provider.wire.deadlines import Deadline, Deadlines
from shared.provider.wire.message import MAX_RESPONSE_BYTES, Call, Reply
from shared.provider.wire.origin import Origin, origin_of
from shared.provider.wire.transport import MAX_REDIRECTS, Transport, url_of
from tests.support.servers import ELSEWHERE, GUARD_SECONDS, PUBLIC, Peer, Says, Seen, Site, Wire, internet, redirects
from tests.support.tls import certified

SHORT = 0.2
"""Seconds given to what never ends by itself: the servers below go on until they are cut."""
OK = b"HTTP/1.1 200 OK\r\n"
LONG = b"Content-Length: 100000000\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SECRET = "s3cr3t-marker"


def send(
    url: str,
    seconds: float = 20,
    *,
    transport: Transport | None = None,
    allowed: tuple[str, ...] | None = None,
    attach: Callable[[Call], Call] | None = None,
    stay: Callable[[int], bool] = lambda _: False,
    **call: Any,
) -> Reply:
    """One call; the URL's own origin is an allowed one unless `allowed` says otherwise."""
    origins: frozenset[Origin] = frozenset(origin_of(one) for one in (allowed if allowed is not None else (url,)))
    wanted = Call(**({"method": "GET", "url": url, "query": {}, "headers": {}} | call))
    return (transport or Transport(2)).send(wanted, seconds, allowed=origins, attach=attach, stay=stay)


def reason(url: str, seconds: float = 20, **options: Any) -> str:
    """Why a call came to nothing."""
    with pytest.raises(TransportError) as caught:
        send(url, seconds, **options)
    return caught.value.reason


def keyed(call: Call) -> Call:
    """What credentials do: a header, and a key in the query."""
    headers = call.headers | {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET}
    return dataclasses.replace(call, query=call.query | {"key": SECRET}, headers=headers)


def is_keyed(seen: Seen) -> bool:
    return SECRET in f"{seen.target}{seen.headers}{seen.body!r}"


def saying(*texts: bytes, then: Callable[[Peer], None] | None = None) -> Callable[[Peer], None]:
    """A script: read a request, say this, then go on as told (or close)."""

    def script(peer: Peer) -> None:
        peer.request()
        for text in texts:
            peer.send(text)
        if then:
            then(peer)
        else:
            peer.socket.shutdown(2)

    return script


def dripping(text: bytes) -> Callable[[Peer], None]:
    return lambda peer: peer.drip(text)


# --- never later than its time


@pytest.mark.parametrize("script", [
    pytest.param(saying(then=Peer.wait), id="nothing"), pytest.param(saying(then=dripping(b"H")), id="status line"),
    pytest.param(saying(b"HTTP/1.1 100 Continue\r\nX: ", then=dripping(b"x")), id="interim answer"),
    pytest.param(saying(OK + b"X: ", then=dripping(b"x")), id="one header"),
    pytest.param(saying(OK, then=dripping(b"X: y\r\n")), id="headers"),
    pytest.param(saying(OK + LONG, then=dripping(b"x")), id="body"),
    pytest.param(saying(OK + b"Connection: close\r\n" + LONG, then=dripping(b"x")), id="body, then close"),
    pytest.param(saying(OK + b"\r\n", then=dripping(b"x")), id="body without length"),
    pytest.param(saying(OK + b"\r\n{}", then=Peer.wait), id="end of a body without length"),
    pytest.param(saying(CHUNKED, then=dripping(b"1\r\nx\r\n")), id="chunks"),
    pytest.param(saying(CHUNKED, then=dripping(b"0")), id="length of a chunk"),
    pytest.param(saying(CHUNKED + b"0\r\n", then=dripping(b"X: y\r\n")), id="trailers"),
    pytest.param(
        saying(b"HTTP/1.1 302 Found\r\nLocation: /b\r\n" + LONG, then=dripping(b"x")), id="body of a redirect",
    ),
])  # fmt: skip
def test_whatever_drips_is_cut_when_the_time_is_over(script: Callable[[Peer], None]) -> None:
    with Wire(script) as wire:
        assert reason(wire.url, SHORT) == "deadline"
        assert wire.was_cut()


@pytest.mark.parametrize("junk", [b"", b"\x16\x03\x03\x40\x00"])
def test_a_tls_handshake_that_drips_is_cut_when_the_time_is_over(junk: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.send(junk)
        peer.drip(b"\x00") if junk else peer.wait()

    with Wire(script) as wire:
        assert reason(f"https://127.0.0.1:{wire.port}", SHORT) == "deadline"
        assert wire.was_cut()


def test_a_body_that_is_taken_too_slowly_is_cut_when_the_time_is_over() -> None:
    over = threading.Event()
    with Wire(lambda _: over.wait(GUARD_SECONDS)) as wire:
        assert reason(wire.url, SHORT, method="POST", body="x" * 50_000_000, content_type="text/plain") == "deadline"
        over.set()


def test_a_name_service_that_never_answers_costs_no_more_than_the_time() -> None:
    over, ended = threading.Event(), threading.Event()
    was_told: list[bool] = []

    def lookup(*_: object) -> list[Any]:
        was_told.append(over.wait(GUARD_SECONDS))
        ended.set()
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "getaddrinfo", lookup)
        assert reason("http://api.example/", SHORT, allowed=()) == "deadline"
    over.set()
    assert ended.wait(GUARD_SECONDS)
    assert was_told == [True]  # the lookup was still under way


def test_a_chain_of_redirects_has_one_time_for_all_of_it() -> None:
    with Site(lambda seen: Says(302, b"", {"Location": seen.path + "x"}), seconds=8) as site:
        assert reason(site.url + "/", 20, transport=Transport(2, clock=site.clock)) == "deadline"
        assert site.paths == ["/", "/x", "/xx"]


def test_without_time_nothing_is_sent() -> None:
    with Site() as site:
        assert reason(site.url, 0) == "deadline"
        assert site.connections == 0


def test_a_connection_back_in_the_pool_is_not_shut_by_an_earlier_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[Callable[[], object]] = []

    class Deaf(Deadlines):
        """The deadline had come just before it was cancelled."""

        def after(self, seconds: float, call: Callable[[], object]) -> Deadline:
            came.append(call)
            return super().after(seconds, call)

    def answer(seen: Seen) -> Says:
        if seen.path == "/second":
            came[0]()  # the first call's time is over while the second is under way
        return Says(200, b"whole")

    monkeypatch.setattr(connection, "DEADLINES", Deaf())
    with Site(answer) as site:
        transport = Transport(2)
        assert send(site.url + "/first", transport=transport).body == b"whole"
        assert send(site.url + "/second", transport=transport).body == b"whole"
        assert site.connections == 1
        assert len(came) == 2


# --- never larger than the cap


def endless(head: bytes, text: bytes) -> Callable[[Peer], None]:
    return saying(head, then=lambda peer: peer.flood(text))


ZEROS = b"\x00" * 1_000_000


@pytest.mark.parametrize("script", [
    pytest.param(endless(OK + b"\r\n", ZEROS), id="without length"),
    pytest.param(endless(OK + LONG, ZEROS), id="with length"),
    pytest.param(endless(CHUNKED, (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 100), id="chunks"),
    pytest.param(endless(CHUNKED + b"-1\r\n", ZEROS), id="chunk without end"),
    pytest.param(endless(b"HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n", ZEROS), id="body of a redirect"),
    pytest.param(endless(CHUNKED + b"0\r\n", (b"X: " + b"y" * 9000 + b"\r\n") * 100), id="endless trailers"),
])  # fmt: skip
def test_an_answer_without_end_is_cut_at_the_cap(script: Callable[[Peer], None]) -> None:
    with Wire(script) as wire:
        assert reason(wire.url, GUARD_SECONDS) == "too-large"
        assert wire.was_cut()


def deflated(text: bytes, *, raw: bool) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15 if raw else 15)
    return compressor.compress(text) + compressor.flush()


@pytest.mark.parametrize(("encoding", "body"), [
    ("gzip", gzip.compress(ZEROS * 50)), ("deflate", deflated(ZEROS * 50, raw=False)),
    ("deflate", deflated(ZEROS * 50, raw=True)),
])  # fmt: skip
def test_what_inflates_beyond_the_cap_is_refused(encoding: str, body: bytes) -> None:
    assert len(body) < MAX_RESPONSE_BYTES / 100
    with Site(Says(200, body, {"Content-Encoding": encoding})) as site:
        assert reason(site.url) == "too-large"


def test_what_is_packed_more_than_once_is_not_unpacked() -> None:
    """Empty members of gzip, packed again and again, take no room on the wire and minutes to unpack."""
    body = gzip.compress(gzip.compress(gzip.compress(b"") * 1000))
    with Site(Says(200, body, {"Content-Encoding": "gzip, gzip, gzip"})) as site:
        reply = send(site.url)
        assert (reply.body, reply.unreadable) == (b"", "the body is packed more than once")
        assert site.calls[0].headers["Accept-Encoding"] == "gzip, deflate"


def test_a_calls_own_headers_win_over_ours_however_they_are_spelled() -> None:
    with Site(Says(200, b"{}")) as site:
        send(site.url, headers={"user-agent": "acme/1", "ACCEPT": "text/csv"})
        sent = site.calls[0].headers
        assert (sent["User-Agent"], sent["Accept"], sent["Accept-Encoding"]) == ("acme/1", "text/csv", "gzip, deflate")


def test_the_cap_itself_is_still_an_answer() -> None:
    with Site(lambda seen: Says(200, b"x" * int(seen.query))) as site:
        assert len(send(f"{site.url}/?{MAX_RESPONSE_BYTES}").body) == MAX_RESPONSE_BYTES
        assert reason(f"{site.url}/?{MAX_RESPONSE_BYTES + 1}") == "too-large"


def test_a_compressed_answer_comes_out_whole() -> None:
    with Site(Says(200, gzip.compress(b"whole"), {"Content-Encoding": "gzip"})) as site:
        assert send(site.url).body == b"whole"


# --- only whole answers


@pytest.mark.parametrize("text", [
    b"", b"HTTP/1.1", b"HTTP/1.1 2", OK, OK + b"Content-Len", OK + b"Content-Length: 2\r\n",
    OK + b"Content-Length: 2\r\n\r\n{", CHUNKED + b"2\r\n{", CHUNKED + b"2\r\n{}\r\n", CHUNKED + b"zz\r\n",
    OK + b"X: y\r\n" * 2000 + b"\r\n", OK + b"X: " + b"y" * 300_000 + b"\r\n\r\n",
    b"HTTP/1.1 -5 OK\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n", b"\x00\xff" * 100, b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + Says(200).raw(),
])  # fmt: skip
def test_what_is_cut_off_or_is_no_http_is_no_answer(text: bytes) -> None:
    with Wire(saying(text)) as wire:
        assert reason(wire.url) == "transport"


def zipped(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


ZIPPED = zipped(b'{"a": 1}')


@pytest.mark.parametrize(("coding", "body"), [
    *[("gzip", ZIPPED[:size]) for size in range(1, len(ZIPPED))], ("gzip", ZIPPED + ZIPPED[:-1]),
    ("gzip", ZIPPED + b"x"),
    ("gzip", ZIPPED + ZIPPED[:1]), ("x-gzip", ZIPPED[:-4]), ("GZIP", ZIPPED[:-8]), ("gzip", b'{"a": 1}'),
    ("gzip", zipped(b"") * 10_001), ("deflate", deflated(b"whole", raw=False)[:-1]),
    ("deflate", deflated(b"whole", raw=False)[:-4]), ("deflate", deflated(b"whole", raw=True)[:-1]),
    ("deflate", deflated(b"whole", raw=False) + b"x"), ("br", b"\x0b\x02\x80{}\x03"), ("zstd", b"plain"),
    ("compress", b"plain"), ("gzip, br", ZIPPED), ("junk", b"plain"),
])  # fmt: skip
@pytest.mark.parametrize("framed", [True, False])
def test_what_cannot_be_unpacked_to_its_end_has_no_body(coding: str, body: bytes, framed: bool) -> None:
    """C15: the length fits, the stream has no end; urllib3 takes what there is of it."""
    said = Says(200, body, {"Content-Encoding": coding}).raw()
    with Wire(saying(said if framed else said.replace(b"Content-Length", b"X-Length"))) as wire:
        reply = send(wire.url)
        assert reply.body == b""
        assert reply.unreadable


@pytest.mark.parametrize(("coding", "body"), [
    ("gzip", ZIPPED), ("gzip", zipped(b'{"a"') + zipped(b": 1}")), ("X-GZip", ZIPPED + b"\x00" * 512),
    ("gzip", zipped(b"") + ZIPPED), ("deflate", deflated(b'{"a": 1}', raw=False)),
    ("deflate", deflated(b'{"a": 1}', raw=True)), ("identity", b'{"a": 1}'), ("UTF-8", b'{"a": 1}'),
    ("aws-chunked,gzip", ZIPPED), ("", b'{"a": 1}'),
])  # fmt: skip
def test_what_was_packed_comes_out_whole(coding: str, body: bytes) -> None:
    with Site(Says(200, body, {"Content-Encoding": coding})) as site:
        reply = send(site.url)
        assert (reply.body, reply.unreadable) == (b'{"a": 1}', "")


def test_nothing_that_is_said_to_be_packed_is_nothing() -> None:
    with Site(Says(202, b"", {"Content-Encoding": "gzip"})) as site:
        assert (send(site.url).body, send(site.url).unreadable) == (b"", "")


def test_a_large_body_comes_out_whole_step_by_step() -> None:
    body = bytes(range(256)) * 20_000
    with Site(lambda seen: Says(200, deflated(body, raw=seen.path == "/raw"), {"Content-Encoding": "deflate"})) as site:
        assert send(site.url + "/raw").body == send(site.url + "/zlib").body == body


# --- faults of the reply are not the request's


@pytest.mark.parametrize("head", [
    b"no colon\r\nContent-Encoding: gzip\r\n", b" folded\r\n", b"A: b\r\n: no name\r\nContent-Length: 4\r\n",
    b"Content-Length: 1, 2\r\n", b"Content-Length: 4\r\nContent-Length: 3\r\n", b"Content-Length: -1\r\n",
    b"Content-Length: x\r\n", b"Content-Length: +4\r\n", b"Content-Length: 1_0\r\n", b"Content-Length: 4.0\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Content-Length: 5,5\r\n",
])  # fmt: skip
def test_headers_that_do_not_tell_where_the_body_ends_make_no_reply(head: bytes) -> None:
    """C20: each once; the next reply may be a good one."""
    with Wire(saying(OK + head + b"\r\ntrue")) as wire:
        assert reason(wire.url) == "transport"


@pytest.mark.parametrize("head", [
    b"Content-Length: 4, 4\r\n", b"Content-Length: 4\r\nContent-Length: 4\r\n", b"Content-Length: 4,\r\n",
    b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n", b"X-Odd: \xff\x80\x01\r\nContent-Length: 4\r\n",
    b"Set-Cookie: a=b; expires=Thu, 99 Foo 1\r\nContent-Length: 4\r\n", b"Retry-After: 1e400\r\nContent-Length: 4\r\n",
])  # fmt: skip
def test_headers_that_are_only_odd_hurt_no_reply(head: bytes) -> None:
    with Site(lambda _: OK + head + b"\r\ntrue") as site:
        transport = Transport(2)
        assert [send(site.url, transport=transport).body for _ in range(2)] == [b"true", b"true"]
        assert site.connections == 1


def test_what_urllib3_itself_finds_wrong_with_a_reply_is_not_the_requests_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection._Response, "frame", lambda _: None)  # it raises InvalidHeader, as for a bad request
    with Wire(saying(OK + b"Content-Length: 1, 2\r\n\r\ntrue")) as wire:
        assert reason(wire.url) == "transport"


def test_many_headers_and_long_ones_are_taken() -> None:
    many = "".join(f"X-{i}: y\r\n" for i in range(900)).encode() + b"X-Long: " + b"y" * 200_000 + b"\r\n"
    with Site(lambda _: OK + many + b"Content-Length: 4\r\n\r\ntrue") as site:
        reply = send(site.url)
        assert (reply.body, reply.headers["x-899"], len(reply.headers["x-long"])) == (b"true", "y", 200_000)


def test_headers_that_are_too_many_together_make_no_reply() -> None:
    """20 replies with 18 MB of them took 1.6 GB."""
    head = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 100_000) for n in range(MAX_HEAD_BYTES // 100_000 + 1))
    with Site(lambda _: OK + head + b"Content-Length: 4\r\n\r\ntrue") as site:
        assert reason(site.url) == "transport"
    with Site(lambda _: OK + b"Content-Length: 600000\r\n\r\n" + b"x" * 600_000) as site:
        assert len(send(site.url).body) == 600_000


@pytest.mark.parametrize(("before", "after"), [
    (b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n", b""), (b"", Says(200, "smuggled").raw()),
])  # fmt: skip
def test_an_interim_answer_or_what_comes_after_one_is_taken_for_no_answer(before: bytes, after: bytes) -> None:
    with Site(lambda seen: before + Says(200, seen.path).raw() + after) as site:
        transport = Transport(2)
        assert [send(site.url + path, transport=transport).body for path in ("/a", "/b")] == [b"/a", b"/b"]


def test_a_port_where_nobody_listens_gives_no_answer() -> None:
    with Wire() as wire:
        pass
    assert reason(wire.url) == "transport"


def test_header_names_come_in_lower_case_and_a_repeated_header_in_one() -> None:
    with Site(lambda _: b"HTTP/1.1 204 No\r\nX-One: a\r\nx-one: b\r\n\r\n") as site:
        assert send(site.url).headers == {"x-one": "a, b"}


def test_equal_lines_of_one_header_are_one_and_others_are_joined() -> None:
    """A proxy adds what is there already: `/a, /a` would be another URL, and gzip twice packed twice."""
    packed = gzip.compress(b"rows")
    lines = b"Location: /a\r\nlocation: /a\r\nRetry-After: 9\r\nRetry-After: 9\r\nContent-Encoding: gzip\r\n"
    lines += b"Content-Encoding: gzip\r\nLink: <a>\r\nLink: <b>\r\nLink: <a>\r\nContent-Length: %d\r\n" % len(packed)
    with Site(lambda _: b"HTTP/1.1 202 Taken\r\n" + lines + b"\r\n" + packed) as site:
        reply = send(site.url)
        known = {"location": "/a", "retry-after": "9", "content-encoding": "gzip", "link": "<a>, <b>"}
        assert (reply.headers, reply.body) == (known | {"content-length": str(len(packed))}, b"rows")


# --- redirects


def test_a_redirect_that_says_twice_where_it_leads_leads_there() -> None:
    def answer(seen: Seen) -> bytes | Says:
        twice = b"HTTP/1.1 303 See\r\nLocation: /a\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n"
        return Says(200, "done") if seen.path == "/a" else twice

    with Site(answer) as site:
        assert send(site.url + "/s").body == b"done"


def test_five_redirects_are_followed_and_no_sixth() -> None:
    with Site(lambda seen: Says(302, b"", {"Location": f"{seen.path}x"})) as site:
        assert reason(site.url + "/") == "redirects"
        assert len(site.calls) == MAX_REDIRECTS + 1
    with Site(redirects({"/" + "x" * i: "/" + "x" * (i + 1) for i in range(5)}, Says(200, "end"))) as site:
        assert send(site.url + "/").body == b"end"


@pytest.mark.parametrize(("location", "path"), [
    ("/there", "/there"), ("there", "/a/there"), ("../there?x=1#part", "/there"), ("?x=1", "/a/b"),
    ("//HOST/there", "/there"), ("http://HOST/there", "/there"), ("HTTP://HOST/there", "/there"),
    ("/th ere", "/th%20ere"), ("/thère".encode().decode("latin-1"), "/th%C3%A8re"), ("/th\xe8re", "/th%C3%A8re"),
])  # fmt: skip
def test_a_location_is_read_beside_the_url_that_sent_it(location: str, path: str) -> None:
    with Site() as site:
        leads = Says(302, b"", {"Location": location.replace("HOST", f"127.0.0.1:{site.port}")})
        site.answer = lambda _: Says() if len(site.calls) > 1 else leads
        reply = send(site.url + "/a/b")
        assert (reply.status, site.paths) == (200, ["/a/b", path])
        assert reply.url.startswith(site.url + path)


@pytest.mark.parametrize(("status", "method", "becomes"), [
    (301, "GET", "GET"), (302, "GET", "GET"), (303, "GET", "GET"), (307, "GET", "GET"), (308, "GET", "GET"),
    (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (307, "POST", "POST"), (308, "POST", "POST"),
    (301, "PUT", "PUT"), (302, "DELETE", "DELETE"), (303, "PUT", "GET"), (303, "DELETE", "GET"),
    (307, "PATCH", "PATCH"),
])  # fmt: skip
def test_a_redirect_keeps_the_method_and_body_or_becomes_a_get_without(status: int, method: str, becomes: str) -> None:
    body = None if method == "GET" else {"a": 1}
    with Site(redirects({"/a": (status, "/b")})) as site:
        send(site.url + "/a", method=method, body=body)
        last = site.calls[-1]
        assert (last.path, last.method) == ("/b", becomes)
        assert last.body == (b'{"a":1}' if body and becomes == method else b"")


@pytest.mark.parametrize("status", [300, 304, 305, 306])
def test_other_statuses_of_the_300s_are_answers(status: int) -> None:
    with Site(redirects({"/a": (status, "/b")})) as site:
        assert send(site.url + "/a").status == status


def test_a_redirect_that_goes_nowhere_is_an_answer() -> None:
    with Site(Says(303, "done")) as site:
        assert send(site.url).body == b"done"


@pytest.mark.parametrize("location", ["/b", "http://[x", "mailto:a@b", ""])
def test_a_redirect_that_is_to_be_an_answer_is_not_followed_wherever_it_leads(location: str) -> None:
    with Site(Says(303, "done", {"Location": location})) as site:
        reply = send(site.url + "/a", stay=lambda status: status == 303)
        assert (reply.status, reply.body, reply.headers["location"], site.paths) == (303, b"done", location, ["/a"])


@pytest.mark.parametrize("location", [
    "ftp://HOST/b", "file:///etc/passwd", "gopher://HOST/b", "javascript:alert(1)", "mailto:a@b", "http://[x",
    "https:///b", "http://user:password@HOST/b", "http://user@HOST/b", "http://@HOST/b",
    "http://HOST\\@elsewhere.example/b", "http://127.0.0.1:99999/b", "http://127.0.0.1:x/b", "http://\xe4\xff[/b",
])  # fmt: skip
def test_a_location_that_is_no_plain_http_url_is_not_followed(location: str) -> None:
    with Site() as site:
        text = location.replace("HOST", f"127.0.0.1:{site.port}")
        site.answer = redirects({"/a": text})
        assert reason(site.url + "/a") == "redirects"
        assert site.paths == ["/a"]


# --- credentials stay where they belong


def test_credentials_go_to_an_allowed_origin_and_along_redirects_within_it() -> None:
    with Site(redirects({"/a": "/b", "/b": (307, "/c?x=1")})) as site:
        reply = send(site.url + "/a", attach=keyed)
        assert [is_keyed(seen) for seen in site.calls] == [True] * 3
        assert site.calls[-1].query == f"x=1&key={SECRET}"
        assert reply.url == site.url + "/c?x=1"


def test_credentials_do_not_go_to_an_origin_that_is_not_allowed() -> None:
    with Site() as site, internet({"api.example": (PUBLIC, site)}):
        send("http://api.example/a", allowed=("http://other.example",), attach=keyed)
        send("http://api.example:81/a", allowed=("http://api.example",), attach=keyed)
        assert [is_keyed(seen) for seen in site.calls] == [False, False]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("target", ["http://elsewhere.example/b", "http://api.example:8080/b"])
def test_credentials_do_not_follow_a_redirect_to_another_origin_though_it_is_allowed_too(
    status: int, target: str
) -> None:
    with Site() as there, Site(redirects({"/a": (status, target)})) as here:
        with internet({"api.example": (PUBLIC, here), "elsewhere.example": (ELSEWHERE, there)}):
            own = dict.fromkeys(
                ("authorization", "Cookie", "Proxy-Authorization", "X-Tenant", "Idempotency-Key"), SECRET
            )
            headers = own | {"ACCEPT": "text/csv", "User-Agent": "us"}
            allowed = ("http://api.example", target)
            send("http://api.example/a", allowed=allowed, attach=keyed, method="POST", headers=headers)
        last = (there.calls or here.calls)[-1]
        assert last.path == "/b"
        assert not is_keyed(last)
        assert (last.headers["Accept"], last.headers["User-Agent"]) == ("text/csv", "us")


@pytest.mark.parametrize(("first", "then"), [
    ("https://api.example/a", "http://api.example/b"), ("http://api.example/a", "https://api.example/b"),
    ("https://api.example/a", "http://api.example:443/b"),
])  # fmt: skip
def test_credentials_do_not_change_to_another_scheme(first: str, then: str) -> None:
    seen: list[tuple[str, str | None]] = []

    def answer(request: Request) -> tuple[int, dict[str, str], bytes]:
        seen.append((request.url.partition("?")[0], request.headers["Authorization"]))
        return (302, {"Location": then}, b"") if len(seen) == 1 else (200, {}, b"")

    with network(answer) as adapter:
        allowed = ("http://api.example", "https://api.example", "http://api.example:443")
        send(first, transport=Transport(2, adapter=adapter), allowed=allowed, attach=keyed)
    assert seen == [(first, f"Bearer {SECRET}"), (then, None)]


def test_credentials_do_not_come_back_with_a_chain_that_has_left_the_origin() -> None:
    away, back = redirects({"/a": "http://elsewhere.example/b"}), redirects({"/b": "http://api.example/c"})
    with Site(away) as here, Site(back) as there:
        hosts = {"api.example": (PUBLIC, here), "elsewhere.example": (ELSEWHERE, there)}
        with internet(hosts):
            send("http://api.example/a", attach=keyed, headers={"Authorization": f"Own {SECRET}"})
        assert [(seen.path, is_keyed(seen)) for seen in here.calls] == [("/a", True), ("/c", False)]
        assert [is_keyed(seen) for seen in there.calls] == [False]


# --- only where a request may go


HOSTS = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]",
    "0.0.0.0", "0", "[::]",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_way_to_write_loopback_leads_there(scheme: str, host: str) -> None:
    with Site() as site:
        assert reason(f"{scheme}://{host}:{site.port}/a", allowed=("http://api.example",)) in (
            "refused-target",
            "invalid-request",
        )
        assert site.connections == 0


@pytest.mark.parametrize("address", [
    "10.1.2.3", "172.16.0.1", "192.168.0.1", "127.0.0.2", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "::1", "::", "::ffff:10.0.0.1", "64:ff9b::a00:1",
])  # fmt: skip
@pytest.mark.parametrize("path", ["/direct", "/led"])
def test_a_name_that_resolves_to_a_special_address_is_refused(address: str, path: str) -> None:
    """Directly, and as the target of a redirect."""
    with Site(redirects({"/led": "http://inside.example/x"})) as site:
        with internet({"api.example": (PUBLIC, site), "inside.example": (address, site)}) as net:
            host = "inside" if path == "/direct" else "api"
            assert reason(f"http://{host}.example{path}", allowed=("http://api.example",)) == "refused-target"
        assert address not in net.reached


def test_one_special_address_among_public_ones_is_enough() -> None:
    with Site() as site, internet({"api.example": (f"{PUBLIC},10.0.0.1", site)}) as net:
        assert reason("http://api.example/", allowed=()) == "refused-target"
        assert net.reached == []


def test_a_server_of_the_file_may_be_anywhere_but_only_at_its_port() -> None:
    with Site() as site, internet({"inside.example": ("10.0.0.1", site)}):
        assert send("http://inside.example/", allowed=("http://inside.example",)).status == 200
        assert send("http://INSIDE.example./", allowed=("http://inside.example",)).status == 200
        assert reason("http://inside.example:8080/", allowed=("http://inside.example",)) == "refused-target"
        assert reason("http://10.0.0.1/", allowed=("http://inside.example",)) in ("refused-target", "transport")


def test_a_name_is_resolved_once_for_the_check_and_the_connection() -> None:
    with Site() as site, internet({"api.example": (PUBLIC, site)}) as net:
        send("http://api.example/", allowed=())
        assert (net.asked, net.reached) == (["api.example"], [PUBLIC])


def test_a_pooled_connection_to_a_private_server_serves_no_provider_that_does_not_name_it() -> None:
    with Site() as site:
        transport = Transport(2)
        assert send(site.url, transport=transport).status == 200
        assert reason(site.url, transport=transport, allowed=("http://api.example",)) == "refused-target"
        assert len(site.calls) == 1
        assert send(site.url, transport=transport).status == 200


JUNK = st.text(st.sampled_from("ahx:/@\\?#[]%.:0189~ \t\r\n\u3002\uff0e\xe4=&;"), max_size=8)


@given(st.sampled_from(["", "http:", "http://", "HTTPS://"]), JUNK, JUNK)
@example("http://", "x\\@", "/")
def test_what_is_taken_for_an_allowed_origin_is_the_origin_that_is_reached(head: str, before: str, after: str) -> None:
    url = f"{head}{before}allowed.example{after}"
    try:
        checked = origin_of(url)
        reached = parse_url(url_of(Call(method="GET", url=url, query={}, headers={})))
    except (TransportError, requests.RequestException, UnicodeError):
        return
    if checked[1] == "allowed.example":
        assert ((reached.host or "").rstrip("."), reached.scheme) == ("allowed.example", checked[0])
        assert (reached.port or {"http": 80, "https": 443}[checked[0]]) == checked[2]


# --- TLS


@dataclasses.dataclass(frozen=True)
class Secure:
    """What it takes to serve TLS, and to trust it."""

    context: ssl.SSLContext
    trusted: str

    def site(self, answer: Callable[[Seen], Says] | None = None) -> Site:
        site = Site(answer)
        site.tls = self.context
        return site

    def trusting(self) -> Transport:
        transport = Transport(2)
        transport._session.verify = self.trusted
        return transport


@pytest.fixture
def secure(tmp_path: Path) -> Secure:
    return Secure(*certified(tmp_path))


def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Secure) -> None:
    with secure.site() as site:
        assert reason(f"https://127.0.0.1:{site.port}/") == "transport"
        assert reason(f"https://localhost:{site.port}/", transport=secure.trusting()) == "transport"
        assert site.calls == []


def test_a_connection_with_tls_is_used_again(secure: Secure) -> None:
    with secure.site(lambda seen: Says(200, seen.path)) as site:
        url, transport = f"https://127.0.0.1:{site.port}", secure.trusting()
        assert [send(url + path, transport=transport).body for path in ("/a", "/b")] == [b"/a", b"/b"]
        assert reason(url, transport=transport, allowed=("https://api.example",)) == "refused-target"
        assert site.connections == 1


@pytest.mark.parametrize("head", [b"", OK, OK + LONG, OK + b"\r\n"])
def test_what_drips_within_tls_is_cut_too_though_the_connection_is_an_old_one(secure: Secure, head: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(Says(200).raw())
        peer.request()
        peer.send(head)
        peer.drip(b"x")

    wire = Wire(script)
    wire.tls = secure.context
    with wire:
        url, transport = f"https://127.0.0.1:{wire.port}", secure.trusting()
        assert send(url, transport=transport).status == 200
        assert reason(url, SHORT, transport=transport) == "deadline"
        assert wire.was_cut()
        assert wire.connections == 1


# --- nothing from the environment, nothing kept


def test_proxies_and_netrc_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login user password {SECRET}\n")
    netrc.chmod(0o600)
    with Site(Says(500)) as proxy, Site() as site:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NETRC", str(netrc))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert send(site.url).status == 200
        assert proxy.connections == 0
        assert "Authorization" not in site.calls[0].headers


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_no_certificate_is_trusted_because_the_environment_names_it(
    variable: str, secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, secure.trusted)
    with secure.site() as site:
        assert reason(f"https://127.0.0.1:{site.port}/") == "transport"
        assert site.calls == []


def test_a_cookie_set_by_a_redirect_is_not_sent_to_its_target() -> None:
    leads = Says(302, b"", {"Location": "/b", "Set-Cookie": "a=b"})
    with Site(lambda seen: leads if seen.path == "/a" else Says()) as site:
        send(site.url + "/a")
        assert [seen.headers.get("Cookie") for seen in site.calls] == [None, None]


# --- what is sent


@pytest.mark.parametrize("headers", [
    {"X": "a\r\nInjected: b"}, {"X": "a\nInjected: b"}, {"X": "a\rInjected: b"}, {"X": "a\x00b"}, {"X": "a\x7fb"},
    {"X": " a"}, {"X": "\u20ac"}, {"X": "\ud800"}, {"X\r\nInjected": "b"}, {"X Y": "b"}, {"": "b"},
])  # fmt: skip
def test_a_header_that_http_cannot_carry_is_not_sent(headers: dict[str, str]) -> None:
    with Site() as site:
        assert reason(site.url, headers=headers) == "invalid-request"
        assert site.calls == []


@pytest.mark.parametrize("value", ["", "a\tb", "\xe4", "a b"])
def test_a_header_that_http_can_carry_is_sent_as_it_is(value: str) -> None:
    with Site() as site:
        send(site.url, headers={"X": value})
        assert site.calls[0].headers["X"] == value


@pytest.mark.parametrize(("body", "content_type", "sent", "declared"), [
    (None, "application/json", b"", None),
    ({"a": [1, None, "ä"]}, "application/json", '{"a":[1,null,"ä"]}'.encode(), "application/json"),
    ("text", "application/json", b'"text"', "application/json"), ("text", "text/plain", b"text", "text/plain"),
    ({"a": 1}, "text/csv", b'{"a":1}', "text/csv"),
    (
        {"a": "x y", "b": [1, None, 2], "c": None, "d": {"e": True}}, "application/x-www-form-urlencoded",
        b"a=x+y&b=1&b=2&d=%7B%22e%22%3Atrue%7D", "application/x-www-form-urlencoded",
    ),
    ("a=b", "application/x-www-form-urlencoded", b"a=b", "application/x-www-form-urlencoded"),
    (["a"], "application/x-www-form-urlencoded", b'["a"]', "application/x-www-form-urlencoded"),
])  # fmt: skip
def test_a_body_goes_out_as_its_content_type_says(body: Any, content_type: str, sent: bytes, declared: str) -> None:
    with Site() as site:
        send(site.url, method="POST", body=body, content_type=content_type)
        assert (site.calls[0].body, site.calls[0].headers["Content-Type"]) == (sent, declared)


def test_the_files_own_content_type_wins() -> None:
    with Site() as site:
        send(site.url, method="POST", body={}, headers={"Content-Type": "application/vnd.api+json"})
        assert site.calls[0].headers.get_all("Content-Type") == ["application/vnd.api+json"]


def test_a_query_is_added_to_that_of_the_url_and_a_list_gives_many() -> None:
    with Site() as site:
        send(site.url + "/?a=1", query={"b": [1, None, "x&y"], "c": True, "d": {"e": None}, "f": None, "g": []})
        assert site.calls[0].query == "a=1&b=1&b=x%26y&c=true&d=%7B%22e%22%3Anull%7D"


@pytest.mark.parametrize("part", [{"query": {"a": "\ud800"}}, {"body": "\ud800", "content_type": "text/plain"}])
def test_text_that_utf8_cannot_carry_is_not_sent(part: dict[str, Any]) -> None:
    with Site() as site:
        assert reason(site.url, method="POST", **part) == "invalid-request"
        assert site.calls == []


@pytest.mark.parametrize("url", ["ftp://api.example/", "/relative", "", "http://user:x@api.example/", "http://"])
def test_only_absolute_http_urls_are_asked(url: str) -> None:
    assert reason(url, allowed=()) == "invalid-request"


# --- no secret in what is told of it


def credentialed(call: Call) -> Call:
    """A secret that cannot stand in a header."""
    return dataclasses.replace(call, headers={"Authorization": f"{SECRET}\n"})


@pytest.mark.parametrize(("script", "attach"), [
    pytest.param(saying(OK + b"Content-Length: 9\r\n\r\n"), keyed, id="cut off"),
    pytest.param(saying(OK + b"A: b\r\nno colon\r\n\r\n"), keyed, id="malformed headers"),
    pytest.param(saying(b"junk\r\n"), keyed, id="junk"), pytest.param(saying(then=Peer.wait), keyed, id="late"),
    pytest.param(saying(), credentialed, id="unsendable"),
])  # fmt: skip
def test_neither_an_error_nor_a_log_line_tells_the_credentials(
    script: Callable[[Peer], None], attach: Callable[[Call], Call], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Wire(script) as wire:
        try:
            send(wire.url, SHORT, attach=attach)
        except TransportError as error:
            told = [*traceback.format_exception(error), repr(error.__context__), repr(error.__cause__)]
            assert SECRET not in "".join(told)
    assert SECRET not in caplog.text
