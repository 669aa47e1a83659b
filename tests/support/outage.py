"""Neighbours that go away and come back when a test says so, and that list what they were asked."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from botocore.exceptions import EndpointConnectionError
from redis import Redis, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


Away = TypeVar("Away", bound=bool | set[str])


class Outage(Generic[Away]):
    """What is `away` now; `calls` lists all since it was set."""

    def __init__(self, away: Away) -> None:
        self._away = away
        self.calls: list[str] = []

    @property
    def away(self) -> Away:
        return self._away

    @away.setter
    def away(self, away: Away) -> None:
        self._away = away
        if away:
            self.calls.clear()


class DynamoDBOutage(Outage[set[str]]):
    """Operations of this client that stand in `away` fail as on a closed port."""

    def __init__(self, client: "DynamoDBClient") -> None:
        super().__init__(set())
        client.meta.events.register("before-call.dynamodb", self._call)

    def _call(self, model: Any, **_: object) -> None:
        self.calls.append(model.name)
        if model.name in self.away:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


class RedisOutage(Outage[bool]):
    """While `away`, every command of this client fails as on a closed port, or as `fails` says."""

    def __init__(self, client: "Redis") -> None:
        super().__init__(False)
        self.fails: Callable[[], RedisError] = lambda: RedisConnectionError("Connection refused")
        self._execute: Any = client.execute_command
        client.execute_command = self._run  # type: ignore[method-assign]

    def _run(self, *arguments: Any, **options: Any) -> Any:
        self.calls.append(arguments[0])
        if self.away:
            raise self.fails()
        return self._execute(*arguments, **options)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What is asked meanwhile is served, and not listed."""
        away, calls = self._away, list(self.calls)
        self._away = False
        yield
        self._away, self.calls[:] = away, calls


class Door:
    """A port that takes every connection, notes it, and then closes it at the first word or says nothing."""

    def __init__(self, *, silent: bool) -> None:
        self.knocks = 0
        self._silent = silent
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.knocks += 1
            if self._silent:
                self._open.append(connection)
            else:
                connection.recv(1)  # a client that finds it closed before would connect once more
                connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        for one in (self._listener, *self._open):
            one.close()


class BlackHole:
    """A port at which connecting never ends: its queue of connections is full."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port: int = self._listener.getsockname()[1]
        self._fillers: list[socket.socket] = []
        while True:
            filler = socket.socket()
            filler.settimeout(0.2)
            self._fillers.append(filler)
            try:
                filler.connect(("127.0.0.1", self.port))
            except TimeoutError:
                return

    def close(self) -> None:
        for one in (*self._fillers, self._listener):
            one.close()
