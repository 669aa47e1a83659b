"""Bodies decoded: JSON, JSON lines, CSV or text, as the operation declares or the reply's content type says."""

import codecs
import csv
import io
import re
from contextlib import suppress

from shared.codec import Json, loads
from shared.provider.language.operation import Decoding
from shared.provider.wire.message import Reply

MAX_CELLS = 1_000_000  # of a table, or lines of JSON: a small body could make a huge table, and many values take long
MAX_NAMES = 20_000_000  # characters of a table's names, which each of its rows repeats
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Text encodings of Python that are not charsets; decoding some takes the square of the length."""


def decode(reply: Reply, decoding: Decoding) -> Json:
    """The body's value; None for an empty one. Raises ValueError for what is not what it is declared to be."""
    if decoding == "url":
        return reply.url
    if not reply.body:
        return None
    content_type = reply.headers.get("content-type", "").lower()
    match _declared(content_type, reply.body) if decoding == "auto" else decoding:
        case "jsonl":
            return _lines(reply.body)
        case "csv":
            return _rows(_text(reply.body, content_type))
        case "text":
            return _text(reply.body, content_type)
    return loads(reply.body) if reply.body.strip() else None


def _declared(content_type: str, body: bytes) -> Decoding:
    if re.search(r"jsonl|ndjson|jsonlines", content_type):
        return "jsonl"
    if "csv" in content_type:
        return "csv"
    is_text = content_type.startswith("text/plain") and body.lstrip()[:1] not in (b"{", b"[")
    return "text" if is_text else "json"  # many send JSON as text/plain; a page of HTML is not, and is refused


def _lines(body: bytes) -> list[Json]:
    lines = body.splitlines()
    if len(lines) > MAX_CELLS:
        raise ValueError(f"more than {MAX_CELLS} lines")
    return [loads(line) for line in lines if line.strip()]


def _rows(text: str) -> list[Json]:
    """One object per line, named by the first line; values without a name stand in a list under `_rest`.

    A line that is shorter than the first one is filled up with null.
    """
    rows: list[Json] = []
    try:
        reader = csv.DictReader(io.StringIO(text), restkey="_rest", strict=True)
        names = reader.fieldnames or ()
        characters = sum(map(len, names))
        for row in reader:
            rows.append(row)
            if len(rows) * len(names) > MAX_CELLS or len(rows) * characters > MAX_NAMES:
                raise ValueError(f"more than {MAX_CELLS} cells, or {MAX_NAMES} characters of names")
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from error
    return rows


def _text(body: bytes, content_type: str) -> str:
    found = re.search(r"charset=\"?([\w.:-]+)", content_type)
    name = found[1] if found else "utf-8"
    with suppress(LookupError):  # none at all, or one that makes no text of bytes
        if codecs.lookup(name).name not in _NO_CHARSETS:
            return body.decode(name).removeprefix("\ufeff")
    raise ValueError(f"unknown charset {name}")
