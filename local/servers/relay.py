"""Lets containers reach the local stack while a command runs: passes connections from Docker's bridge to loopback.

    python -m local.servers.relay 9001 9003 9004 -- sam local invoke …

Docker Desktop, which runs Docker in a virtual machine, has no such bridge and needs no relay.
"""

import asyncio
import signal
import socket
import struct
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import suppress

LOOPBACK = "127.0.0.1"
SIOCGIFADDR = 0x8915


async def run(address: str | None, ports: Sequence[int], command: Sequence[str]) -> int:
    """Runs the command, with these ports of loopback served at that address too. Returns its exit code."""
    servers = [await relay(address, port) for port in ports if address]
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is for the command
    try:
        process = await asyncio.create_subprocess_exec(*command)
        return await process.wait()
    finally:
        for server in servers:
            server.close()


async def relay(address: str, port: int) -> asyncio.Server:
    """Passes connections at that address to loopback; closes them at once while nothing listens there."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))

    return await asyncio.start_server(serve, address, port)


def bridge() -> str | None:
    """This machine's address on Docker's bridge, if it has one."""
    if sys.platform != "linux":
        return None
    import fcntl  # noqa: PLC0415 (only on some systems)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", b"docker0"))
        except OSError:
            return None
        return socket.inet_ntoa(answer[20:24])


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def main(arguments: Sequence[str]) -> int:
    """PORT… -- COMMAND…"""
    split = arguments.index("--")
    return asyncio.run(run(bridge(), [int(port) for port in arguments[:split]], arguments[split + 1 :]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
