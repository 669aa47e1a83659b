"""A port that leads to another: the way can be turned, cut, held up, or lose a reply after its request has arrived."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tests.faults.mortal import WAIT_SECONDS


class Proxy:
    """A context manager. `target` is where new connections lead; those that exist stay as they are."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.lost = 0
        self._lose_next = False
        self._flowing = threading.Event()
        self._flowing.set()
        self.hold, self.release = self._flowing.clear, self._flowing.set
        """No reply arrives until `release`: what was held up arrives then, if anybody still waits for it."""
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def lose_next_reply(self) -> None:
        """The next reply does not arrive: its connection ends instead."""
        with self._lock:
            self._lose_next = True

    def cut(self) -> None:
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.release()
        self.cut()
        self._thread.join(WAIT_SECONDS)
        with self._lock:
            for one in self._open:
                one.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._open += [near, far]
                for source, sink, passes in ((near, far, lambda: True), (far, near, self._passes)):
                    threading.Thread(target=self._pump, args=(source, sink, passes), daemon=True).start()

    def _passes(self) -> bool:
        """Whether a reply may go on, once it may."""
        self._flowing.wait(WAIT_SECONDS)
        with self._lock:
            lost, self._lose_next = self._lose_next, False
            self.lost += lost
        return not lost

    def _pump(self, source: socket.socket, sink: socket.socket, passes: Callable[[], bool]) -> None:
        with suppress(OSError):
            while (data := source.recv(65536)) and passes():
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
