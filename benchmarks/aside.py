"""A server over HTTP/1.1 in a process of its own: nobody pays for its work. It ends when its input does."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from local import ROOT
from local.running import Running

Answer: TypeAlias = Callable[[bytes, bytes], Awaitable[bytes]]
"""The whole reply to a request's head and body."""
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Aside(Running):
    """The server that a module is, called with these arguments, on a free port of loopback; a context manager."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Returns when it listens."""
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(self._command, cwd=ROOT, **pipes)
        assert self._process.stdout
        if not (port := self._process.stdout.readline().strip()):
            raise RuntimeError(f"{self._command[2]} did not start")
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Ends it."""
        if self._process:
            self._process.communicate()  # the end of its input
            self._process = None


async def serve(answer: Answer) -> None:
    """In that process: answer until the input ends; the port is printed."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = _LENGTH.search(head)
            writer.write(await answer(head, await reader.readexactly(int(length[1])) if length else b""))
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # whoever still waits is gone


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The next request's, empty where there is none."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""
