"""Bodies decoded: JSON, JSON lines, CSV or text, as the operation declares or the answer's content type says."""

import csv
import io
import re

from shared.codec import Json, loads
from shared.operation import Decoding
from shared.transport import Reply


def decode(reply: Reply, decoding: Decoding) -> Json:
    """The body's value; None for an empty one. Raises ValueError for what is not what it is declared to be."""
    if decoding == "url":
        return reply.url
    if not reply.body:
        return None
    content_type = reply.headers.get("content-type", "").lower()
    if decoding == "auto":
        decoding = _declared(content_type, reply.body)
    match decoding:
        case "jsonl":
            return [loads(line) for line in reply.body.splitlines() if line.strip()]
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
    return "text" if is_text else "json"  # many send JSON as text/plain; a page of HTML is no JSON and so is refused


def _rows(text: str) -> list[Json]:
    """One object per line, named by the first line; values without a name stand in a list under `_rest`."""
    try:
        return list(csv.DictReader(io.StringIO(text), restkey="_rest", strict=True))
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from error


def _text(body: bytes, content_type: str) -> str:
    found = re.search(r"charset=\"?([\w.:-]+)", content_type)
    try:
        return body.decode(found[1] if found else "utf-8").removeprefix("\ufeff")
    except LookupError as error:
        raise ValueError(f"unknown charset {found and found[1]}") from error
