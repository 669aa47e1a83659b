"""A server that answers every request with the same after a while, in a process of its own: nobody pays for its work.

The seconds are those that a query names (`/?seconds=0.5`), or the server's own. It tells the date, as DynamoDB does.
"""

import asyncio
import os
import re
import subprocess
import sys
from email.utils import formatdate
from typing import Any

from local import ROOT
from local.running import Running

SECONDS = re.compile(rb"[?&]seconds=([\d.]+)")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Stub(Running):
    """The server, on a free port of loopback; a context manager. `seconds` is how long an answer takes."""

    def __init__(self, body: str, seconds: float) -> None:
        self._command = [sys.executable, "-m", "benchmarks.stub", body, str(seconds)]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Returns when it listens."""
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(self._command, cwd=ROOT, **pipes)
        assert self._process.stdout
        if not (port := self._process.stdout.readline().strip()):
            raise RuntimeError("the stub did not start")
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Ends it."""
        if self._process:
            self._process.communicate()  # the end of its input
            self._process = None


async def serve(body: str, seconds: float) -> None:
    """Answer until the input ends; the port is printed."""
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nDate: "
    loop = asyncio.get_running_loop()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            if length := LENGTH.search(head):
                await reader.readexactly(int(length[1]))
            asked = SECONDS.search(head.partition(b"\r\n")[0])
            await asyncio.sleep(float(asked[1]) if asked else seconds)
            writer.write(f"{answer}{formatdate(usegmt=True)}\r\n\r\n{body}".encode())
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)  # whoever still waits is gone


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The next request's, empty where there is none."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2])))
