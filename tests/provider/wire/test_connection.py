"""Connections under a watchdog: one socket, one check, one time."""

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from shared.provider.wire import connection
from shared.provider.wire.connection import MAX_WIRE_BYTES, Watchdog, WatchedConnectionHTTP
from tests.support.servers import ELSEWHERE, GUARD_SECONDS, PUBLIC, Internet, Peer, Says, Site, Wire, internet

HOUR = 3600.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(GUARD_SECONDS)
        there.settimeout(GUARD_SECONDS)
        yield here, there


def is_shut(there: socket.socket) -> bool:
    there.setblocking(False)
    try:
        return there.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_held_socket_is_shut_when_the_time_is_over(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    with Watchdog(0.05, ()) as watchdog:
        watchdog.hold(here)
        assert there.recv(1) == b""  # returns when it is shut, and not before
        assert watchdog.fired


def test_a_socket_held_too_late_is_shut_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    with Watchdog(HOUR, ()) as watchdog:
        watchdog._fire()
        watchdog.hold(here)
        assert is_shut(there)


def test_a_socket_is_shut_though_its_owner_has_passed_it_on(pair: tuple[socket.socket, socket.socket]) -> None:
    """http.client closes a connection at once when its answer ends with it: the answer has the socket then."""
    here, there = pair
    with Watchdog(HOUR, ()) as watchdog:
        watchdog.hold(here)
        reader = here.makefile("rb")
        here.close()
        watchdog._fire()
        assert reader.read() == b""
        assert is_shut(there)
        reader.close()


def test_no_socket_is_shut_after_the_exchange(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    with Watchdog(HOUR, ()) as watchdog:
        watchdog.hold(here)
    watchdog._fire()
    assert not is_shut(there)
    there.setblocking(True)
    here.sendall(b"x")
    assert there.recv(1) == b"x"


def test_a_socket_that_has_gone_already_does_not_trouble_the_watchdog(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    with Watchdog(HOUR, ()) as watchdog:
        watchdog.hold(here)
        here.shutdown(socket.SHUT_RDWR)
        there.close()
        watchdog._fire()
        assert watchdog.fired


def test_each_thread_has_its_own_watchdog() -> None:
    with Watchdog(HOUR, ()) as watchdog:
        found: list[Any] = []

        def elsewhere() -> None:
            with Watchdog(HOUR, ()) as another:
                found.append((another, Watchdog.current()))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert Watchdog.current() is watchdog
        assert found[0][0] is found[0][1] is not watchdog


@pytest.mark.parametrize(("host", "addresses", "is_allowed"), [
    ("public.example", [PUBLIC], True), ("public.example", ["10.0.0.1"], False),
    ("public.example", [PUBLIC, "10.0.0.1"], False), ("inside.example", ["10.0.0.1"], True),
    ("INSIDE.example.", ["10.0.0.1"], True), ("[::1]", ["::1"], True), ("::1", ["::1"], True),
])  # fmt: skip
def test_a_private_address_is_reached_only_by_an_allowed_name(
    host: str, addresses: list[str], is_allowed: bool
) -> None:
    with Watchdog(HOUR, {("inside.example", 80), ("::1", 80)}) as watchdog:
        if is_allowed:
            watchdog.check(host, 80, addresses)
        else:
            with pytest.raises(OSError, match="neither public"):
                watchdog.check(host, 80, addresses)
        assert watchdog.refused != is_allowed


def test_bytes_are_counted_over_the_whole_exchange() -> None:
    with Watchdog(HOUR, ()) as watchdog:
        watchdog.count(MAX_WIRE_BYTES)
        assert not watchdog.oversized
        with pytest.raises(OSError, match="more bytes"):
            watchdog.count(1)
        assert watchdog.oversized


def dialled(net: Internet, host: str = "api.example", seconds: float = 20) -> socket.socket:
    with Watchdog(HOUR, ()):
        return WatchedConnectionHTTP(host, 80).dial(host, 80, seconds)


def test_the_addresses_of_a_name_are_tried_one_after_the_other() -> None:
    with Wire() as wire, internet({"api.example": (f"{ELSEWHERE},{PUBLIC}", wire)}) as net:
        refuse = net.connect

        def connect(where: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
            if where[0] == ELSEWHERE:
                net.reached.append(where[0])
                raise ConnectionRefusedError
            return refuse(where, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection, "create_connection", connect)
            dialled(net).close()
        assert net.reached == [ELSEWHERE, PUBLIC]
        assert net.asked == ["api.example"]


def test_a_name_whose_addresses_all_fail_fails_as_the_last_one() -> None:
    with internet({"api.example": (PUBLIC, Wire())}) as net, pytest.MonkeyPatch.context() as patch:

        def connect(*_: Any, **__: Any) -> socket.socket:
            raise ConnectionRefusedError("nobody there")

        patch.setattr(connection, "create_connection", connect)
        with pytest.raises(ConnectionRefusedError, match="nobody there"):
            dialled(net)


def test_a_name_without_addresses_cannot_be_dialled() -> None:
    with internet({}) as net, pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "getaddrinfo", lambda *_: [])
        with pytest.raises(OSError, match="no address"):
            dialled(net)


def test_resolving_and_connecting_share_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [100.0], []

    def lookup(*_: object) -> list[Any]:
        now[0] += 4
        return [(socket.AF_INET, 1, 6, "", (address, 80)) for address in (PUBLIC, ELSEWHERE)]

    def connect(_: Any, seconds: float, **__: Any) -> socket.socket:
        given.append(round(seconds, 3))
        now[0] += seconds
        raise TimeoutError

    monkeypatch.setattr(connection, "getaddrinfo", lookup)
    monkeypatch.setattr(connection, "create_connection", connect)
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with pytest.raises(TimeoutError), Watchdog(HOUR, ()):
        WatchedConnectionHTTP("api.example", 80).dial("api.example", 80, 5)
    assert given == [0.5, 0.5]


def test_connecting_with_no_time_left_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def connect(_: Any, seconds: float, **__: Any) -> socket.socket:
        given.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(connection, "create_connection", connect)
    with pytest.raises(TimeoutError):
        connection._connect([PUBLIC], 80, 0, None)
    assert given == [0.001]


def test_a_connection_knows_where_it_leads_while_it_is_open() -> None:
    with Site(Says(200, "x")) as site, Watchdog(HOUR, {("127.0.0.1", site.port)}):
        made = WatchedConnectionHTTP("127.0.0.1", site.port, timeout=20)
        made.request("GET", "/")
        assert made.getresponse().data == b"x"
        assert made.address == "127.0.0.1"
        made.close()


def test_a_connection_made_again_is_checked_again() -> None:
    """The name may lead elsewhere by now."""
    with Site() as site, internet({"api.example": (PUBLIC, site)}) as net, Watchdog(HOUR, ()):
        made = WatchedConnectionHTTP("api.example", 80, timeout=20)
        made.request("GET", "/")
        assert made.getresponse().status == 200
        made.close()
        net.hosts = {"api.example": ("10.0.0.1", site)}
        with pytest.raises(OSError, match="neither public"):
            made.request("GET", "/")
        assert net.reached == [PUBLIC]
        made.close()


def test_a_peer_that_waits_is_told_when_the_time_is_over() -> None:
    with Wire(Peer.wait) as wire, Watchdog(0.05, {("127.0.0.1", wire.port)}):
        made = WatchedConnectionHTTP("127.0.0.1", wire.port, timeout=20)
        made.connect()
        assert wire.was_cut()
        made.close()
