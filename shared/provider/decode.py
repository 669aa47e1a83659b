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
_WITHOUT_CONTENT = (204, 205)  # whatever comes with one (RFC 9110, 15.3.5 and 15.3.6)
LONGEST_MESSAGE = 1000  # characters of one line that may be words and not names
_PARAMETER = re.compile(r"(?<![\w-])([\w-]+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|[^\s;,]*)")
_GENERIC = frozenset({
    "", "*/*", "text", "text/plain", "text/comma-separated-values", "text/x-comma-separated-values",
    "application/octet-stream", "application/x-octet-stream", "binary/octet-stream", "application/binary",
    "application/download", "application/x-download", "application/force-download", "application/vnd.ms-excel",
    "application/unknown", "application/x-unknown", "unknown/unknown", "application/gzip", "application/x-gzip",
})  # fmt: skip
"""Content types that a table may have beside those that name CSV: they say nothing, or are what servers make of it."""
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
    kind = kind_of(reply, decoding)
    empty: Json = [] if kind == "csv" and reply.status in (200, 201, 203) and _may_be_table(content_type) else None
    if reply.status in _WITHOUT_CONTENT or _is_blank(reply.body.removeprefix(codecs.BOM_UTF8)):
        return empty
    if kind == "json":
        return _json(reply.body, _media(content_type))
    parameters = _parameters(content_type)
    text = _text(reply.body, "utf-8" if kind == "jsonl" else parameters.get("charset") or "utf-8")
    if _is_blank(text):
        return empty
    if is_success:
        _check_kind(text, content_type, kind, is_declared=decoding != "auto")
    if kind == "jsonl":
        return _lines(reply.body)
    if kind == "csv":
        return rows(text, has_names=parameters.get("header") != "absent")
    return text


def kind_of(reply: Reply, decoding: Decoding) -> Decoding:
    """What a reply's body is read as."""
    is_declared = decoding != "auto" and 200 <= reply.status <= 299
    return decoding if is_declared else _kind(reply.headers.get("content-type", "").lower(), reply.body)


def _media(content_type: str) -> str:
    return content_type.partition(";")[0].strip()


def _parameters(content_type: str) -> dict[str, str]:
    """The parameters of a content type (RFC 9110, 5.6.6), and those that are written with blanks or single quotes."""
    return {name: value.strip("\"'") for name, value in reversed(_PARAMETER.findall(content_type))}


def _is_blank(body: bytes | str) -> bool:
    return not body or body.isspace()


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
    if reply.status in _PARTIAL and not _is_all(reply):
        raise ValueError(f"the body is a part of the whole (HTTP {reply.status})")
    if "problem+json" in content_type or "problem+xml" in content_type:
        raise ValueError("the body is an error (application/problem+json)")


def _is_all(reply: Reply) -> bool:
    """Whether a part says that it is the whole, and is as long; of a packed body it is the length on the wire."""
    found = re.fullmatch(r"bytes 0-(\d{1,18})/(\d{1,18})", reply.headers.get("content-range", "").strip().lower())
    is_packed = "content-encoding" in reply.headers
    length = reply.headers.get("content-length") if is_packed else str(len(reply.body))
    return found is not None and length is not None and int(found[1]) + 1 == int(found[2]) == int(length)


def _check_kind(text: str, content_type: str, kind: Decoding, *, is_declared: bool) -> None:
    """Raise ValueError where content type or text say that this is something else: a page, an error, no table."""
    media, start = _media(content_type), text.lstrip("\ufeff \t\r\n")
    is_page = re.search(r"html|\bxml\b|\+xml", media) is not None and start[:1] not in ("{", "[")
    if is_page or _is_markup(start):
        raise ValueError("the body is a page or XML")
    is_json = re.search(r"[/+]json$", media) is not None
    if kind == "csv":
        ends = r"[\r\n]" if media == "text/plain" else r"[,;\t\r\n]"  # a line of text alone is a message, not names
        line, has_names = start.rstrip(), _parameters(content_type).get("header") != "absent"
        is_no_table = ("csv" not in media and not re.search(ends, line)) or (has_names and _is_message(line))
        if not _may_be_table(content_type) or is_no_table or _is_json(start):
            raise ValueError("the body is no table")
    elif is_json and (kind == "text" or not re.search(r"[\r\n]", start.strip())):  # of lines, one may be the whole
        raise ValueError(f"the body is one JSON value, declared as {kind}")
    elif kind == "text" and is_declared and _is_error(start):
        raise ValueError("the body is an error in JSON, declared as text")


def _may_be_table(content_type: str) -> bool:
    media = _media(content_type)
    return media in _GENERIC or ("csv" in media and not re.search("html|xml|json", media))


def _is_message(text: str) -> bool:
    """Whether a text is one line that is no names of columns: a value of JSON, `Error: busy, come back`, a sentence."""
    if len(text) > LONGEST_MESSAGE or re.search(r"[\r\n]", text):
        return False
    last = re.split(r"[,;\t|]", text)[-1]
    is_sentence = len(last.split()) > 2 and (last == text or text.endswith((".", "!", "?")))
    tells = '"' not in text and re.search(r":(?:\s|$)", text) is not None
    return is_sentence or tells or re.fullmatch(r"null|true|false|-?[\d.]+", text) is not None


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


def _text(body: bytes, charset: str) -> str:
    with suppress(LookupError):  # none at all, or one that makes no text of bytes
        if codecs.lookup(charset).name not in _NO_CHARSETS:
            return body.decode(charset).removeprefix("\ufeff")
    raise ValueError(f"unknown charset {charset}")
