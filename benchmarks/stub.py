"""A server that answers every request with the same after a while.

The seconds are those that a query names (`/?seconds=0.5`), or the server's own. It tells the date, as DynamoDB does.
"""

import asyncio
import re
import sys
from email.utils import formatdate
from pathlib import Path

from benchmarks.aside import Aside, serve

SECONDS = re.compile(rb"[?&]seconds=([\d.]+)")


class Stub(Aside):
    """The server. `seconds` is how long an answer takes; `@path` as the body is that file's text."""

    def __init__(self, body: str, seconds: float) -> None:
        super().__init__("benchmarks.stub", body, str(seconds))


async def main(body: str, seconds: float) -> None:
    """Serve."""
    body = Path(body[1:]).read_text() if body.startswith("@") else body
    start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nDate: "

    async def answer(head: bytes, _: bytes) -> bytes:
        asked = SECONDS.search(head.partition(b"\r\n")[0])
        await asyncio.sleep(float(asked[1]) if asked else seconds)
        return f"{start}{formatdate(usegmt=True)}\r\n\r\n{body}".encode()

    await serve(answer)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
