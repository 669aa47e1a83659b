"""Bodies decoded: JSON, JSON lines, CSV or text, as the operation declares or the reply's content type says.

Only a body that is whole, and is what it is declared to be, has a value.
"""

import codecs
import re
from contextlib import suppress

from shared.codec import Json, loads
from shared.provider.language.operation import Decoding
from shared.provider.table import MAX_CELLS, rows
from shared.provider.wire.message import Reply

_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Text encodings of Python that are not charsets; decoding some takes the square of the length."""
_PARTIAL = (206, 226)
_PAGE = re.compile(r"<(?:!doctype|!--|\?xml|(?:html|head|body|title|script|style|meta|center|h1)[\s/>])", re.IGNORECASE)
_ELEMENT = re.compile(r"<([a-z][\w:.-]*)(?:\s[^<>]*)?>.*</\1\s*>", re.IGNORECASE | re.DOTALL)
_TOLD = frozenset({"error", "errors", "fault", "exception", "message", "msg", "detail", "error_description"})
_ABOUT = frozenset({
    "code", "status", "statuscode", "status_code", "title", "type", "instance", "details", "reason", "description",
    "success", "ok", "request_id", "requestid", "trace_id", "traceid", "timestamp", "path", "documentation_url", "help",
})  # fmt: skip
"""The names of an error that is told as one JSON object: one of the first, and else these (RFC 9457 and its like)."""


def decode(reply: Reply, decoding: Decoding) -> Json:
    """The body's value; None for an empty or blank one, but `[]` for CSV. Raises ValueError where there is none.

    A success must be what `decoding` declares; any other reply, such as an error, is read as its content type says.
    """
    if decoding == "url":
        return reply.url
    is_success = 200 <= reply.status <= 299
    content_type = reply.headers.get("content-type", "").lower()
    if reply.unreadable:
        raise ValueError(reply.unreadable)
    if is_success:
        _check_whole(reply, content_type)
    kind = _kind(content_type, reply.body) if decoding == "auto" or not is_success else decoding
    if not reply.body or reply.body.isspace():
        is_table = kind == "csv" and reply.status in (200, 201, 203) and not re.search("html|xml|json", content_type)
        return [] if is_table else None
    if kind == "json":
        return _json(reply.body, _media(content_type))
    text = _text(reply.body, "" if kind == "jsonl" else content_type)
    if is_success:
        _check_kind(text, content_type, kind, is_declared=decoding != "auto")
    if kind == "jsonl":
        return _lines(reply.body)
    if kind == "csv":
        return rows(text, has_names=not re.search(r";\s*header\s*=\s*\"?absent\b", content_type))
    return text


def _media(content_type: str) -> str:
    return content_type.partition(";")[0].strip()


def _kind(content_type: str, body: bytes) -> Decoding:
    """What a reply says that its body is. Many send JSON as text/plain, or with no type at all."""
    media = _media(content_type)
    if re.search(r"jsonl|ndjson|jsonlines|json-lines", media):
        return "jsonl"
    if "csv" in media and "json" not in media:
        return "csv"
    return "text" if media == "text/plain" and body.lstrip()[:1] not in (b"{", b"[") else "json"


def _check_whole(reply: Reply, content_type: str) -> None:
    """Raise ValueError for a part (RFC 9110, 15.3.7; RFC 3229), and for an error that calls itself one (RFC 9457)."""
    if reply.status in _PARTIAL and not _is_all(reply.headers.get("content-range", "")):
        raise ValueError(f"the body is a part of the whole (HTTP {reply.status})")
    if "problem+json" in content_type or "problem+xml" in content_type:
        raise ValueError("the body is an error (application/problem+json)")


def _is_all(content_range: str) -> bool:
    found = re.fullmatch(r"bytes 0-(\d{1,18})/(\d{1,18})", content_range.strip().lower())
    return found is not None and int(found[1]) + 1 == int(found[2])


def _check_kind(text: str, content_type: str, kind: Decoding, *, is_declared: bool) -> None:
    """Raise ValueError where content type or text say that this is something else: a page, an error, no table."""
    media, start = _media(content_type), text.lstrip("\ufeff \t\r\n")
    is_page = re.search(r"html|\bxml\b|\+xml", media) is not None and start[:1] not in ("{", "[")
    if is_page or _is_markup(start):
        raise ValueError("the body is a page or XML")
    is_json = re.search(r"[/+]json$", media) is not None
    if kind == "csv":
        ends = r"[\r\n]" if media == "text/plain" else r"[,;\t\r\n]"  # a line of text alone is a message, not names
        is_no_table = "csv" not in media and not re.search(ends, start.rstrip())
        if is_json or is_no_table or _is_json(start):
            raise ValueError("the body is no table")
    elif is_json and (kind == "text" or not re.search(r"[\r\n]", start.strip())):  # of lines, one may be the whole
        raise ValueError(f"the body is one JSON value, declared as {kind}")
    elif kind == "text" and is_declared and _is_error(start):
        raise ValueError("the body is an error in JSON, declared as text")


def _is_markup(start: str) -> bool:
    return start[:1] == "<" and bool(_PAGE.match(start) or _ELEMENT.fullmatch(start.rstrip()))


def _is_json(start: str) -> bool:
    """Whether a text is an object or a list of JSON, or the beginning of one; `[id],[name]` are names of columns."""
    return re.match(r"\{\s*[\"}]|\[\s*(?:[\[{\"\]\d-]|true\b|false\b|null\b)", start) is not None


def _is_error(start: str) -> bool:
    """Whether a text is one JSON object, all of whose names are those of an error."""
    try:
        value = loads(start)
    except ValueError:
        return False
    names = {name.lower() for name in value} if isinstance(value, dict) else set()
    return (bool(names & _TOLD) or names >= {"title", "status"}) and names <= _TOLD | _ABOUT


def _json(body: bytes, media: str) -> Json:
    """A JSON value; a page may be a number or a word and nothing else, such as `404`, and is none."""
    value = loads(body)
    if re.search(r"html|xml", media) and not isinstance(value, dict | list):
        raise ValueError("the body is a page")
    return value


def _lines(body: bytes) -> list[Json]:
    lines = body.splitlines()
    if len(lines) > MAX_CELLS:
        raise ValueError(f"more than {MAX_CELLS} lines")
    return [loads(line) for line in lines if line.strip()]


def _text(body: bytes, content_type: str) -> str:
    found = re.search(r"charset=\"?([\w.:-]+)", content_type)
    name = found[1] if found else "utf-8"
    with suppress(LookupError):  # none at all, or one that makes no text of bytes
        if codecs.lookup(name).name not in _NO_CHARSETS:
            return body.decode(name).removeprefix("\ufeff")
    raise ValueError(f"unknown charset {name}")
