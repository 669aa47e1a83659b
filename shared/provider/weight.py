"""What a body takes in memory once it is decoded: an estimate, before anything is."""

import csv
import io
from contextlib import suppress

from shared.provider.decode import kind_of
from shared.provider.language.operation import Decoding
from shared.provider.table import MAX_CELLS
from shared.provider.wire.message import Reply

_LIST, _OBJECT, _ITEM, _TEXT = 96, 192, 40, 56
"""Bytes that Python takes for a list, an object with one name, any item of either, a short text."""
_ROW, _CELL = 250, 80
_WIDE = 4  # bytes of each character in a text, all of it, one of whose characters is beyond the first 65,536


def weight(reply: Reply, decoding: Decoding) -> int:
    """Bytes for the text and its value, rather too many than too few; read as declared or as it says."""
    body, kinds = reply.body, {kind_of(reply, decoding), kind_of(reply, "auto")}
    wide = 1 if body.isascii() and b"\\u" not in body else _WIDE
    texts = 2 * wide * len(body)
    return texts + max(_rows(body) if kind == "csv" else 0 if kind == "text" else _values(body) for kind in kinds)


def _values(body: bytes) -> int:
    """JSON, or lines of it: by the characters that begin a value, or stand between two."""
    items = _ITEM * (body.count(b",") + body.count(b"\n"))
    return items + _LIST * body.count(b"[") + _OBJECT * body.count(b"{") + _TEXT * body.count(b'"') // 2


def _rows(body: bytes) -> int:
    """CSV: each line, even a blank one, may become a row with all names of the first."""
    lines, commas = body.count(b"\n") + body.count(b"\r") + 1, body.count(b",")
    names = 1 + commas
    with suppress(csv.Error, StopIteration):
        names = len(next(filter(None, csv.reader(io.TextIOWrapper(io.BytesIO(body), "latin-1", newline="")))))
    cells = min(lines * names, MAX_CELLS)
    return 4 * len(body) + _ROW * min(lines, MAX_CELLS) + _CELL * cells + _TEXT * min(commas + lines, len(body) // 3)
