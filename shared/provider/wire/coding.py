"""Content codings undone (RFC 9110, 8.4), bounded, and whole or not at all: no stream without its end."""

import zlib

_NONE = frozenset({"", "identity", "none", "utf-8", "aws-chunked"})
"""What stands in Content-Encoding, by error or from an upload, of bodies that are packed in no way."""
_MAX_MEMBERS = 10_000  # of gzip: empty ones take no room, and each some time
_STEP = 65_536


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """The body that was packed as Content-Encoding says; more than `most` bytes where it would be larger.

    Nothing stays nothing. Raises ValueError for a coding that we do not ask for, and for what has no end.
    """
    names = [name for name in (one.strip().lower() for one in coding.split(",")) if name not in _NONE]
    if not names or not body:
        return body
    if len(names) > 1:  # a few bytes could take minutes to unpack
        raise ValueError("the body is packed more than once")
    try:
        if names[0] in ("gzip", "x-gzip"):
            return _members(memoryview(body), most)
        if names[0] == "deflate":
            return _deflated(memoryview(body), most)
    except zlib.error as error:
        raise ValueError(f"the body is no {names[0]}") from error
    raise ValueError(f"the body is packed as {names[0][:20]!r}, for which nobody asked")


def _members(body: memoryview, most: int) -> bytes:
    """All members of a gzip file (RFC 1952, 2.2), each with its end; only zeros may come after the last."""
    found = bytearray()
    for _ in range(_MAX_MEMBERS):
        member, body = _stream(body, 16 + zlib.MAX_WBITS, most - len(found))
        found += member
        if len(found) > most or _is_padding(body):
            return bytes(found)
    raise ValueError(f"more than {_MAX_MEMBERS} members of gzip")


def _deflated(body: memoryview, most: int) -> bytes:
    """A zlib stream (RFC 1950), or a bare one of deflate (RFC 1951), as some servers send it."""
    try:
        found, rest = _stream(body, zlib.MAX_WBITS, most)
    except zlib.error:
        found, rest = _stream(body, -zlib.MAX_WBITS, most)
    if len(found) <= most and not _is_padding(rest):
        raise ValueError("something follows the end of the deflated body")
    return found


def _stream(body: memoryview, bits: int, most: int) -> tuple[bytes, memoryview]:
    """One stream, up to a little more than `most` bytes of it, and what follows it."""
    unpacker, found = zlib.decompressobj(bits), bytearray()
    while body and not unpacker.eof and len(found) <= most:
        step = body[:_STEP]
        found += unpacker.decompress(step, most + 1 - len(found))
        body = body[len(step) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data) :]
    if len(found) <= most and not unpacker.eof:
        raise ValueError("the packed body has no end")
    return bytes(found), body


def _is_padding(rest: memoryview) -> bool:
    return not any(rest[:1]) and not any(rest)
