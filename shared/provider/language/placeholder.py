"""Placeholders: `${expression}` in a provider file's URLs, queries, headers and bodies.

An expression is JMESPath over {input, outputs, task: {id, name, provider}, callback: {url}, response}: `response` is
the reply before, in submit and result operations; `callback` is for submit. A string that is one placeholder keeps the
value's JSON type; elsewhere text is inserted. Inside a URL values are percent-encoded, `${+expression}` keeps the
reserved characters (RFC 6570).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote

from shared.codec import Json, dumps
from shared.errors import ProviderFileError
from shared.provider.language.expression import Expression

_RESERVED = ":/?#[]@!$&'()*+,;=%"
_CLIMBS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?=[/?#]|$)", re.IGNORECASE)
_NAMES_A_HOST = re.compile(r"//|[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`${expression}`, or `${+expression}` if `reserved`."""

    expression: Expression
    reserved: bool


Part: TypeAlias = str | Placeholder


def placeholders(value: Json) -> Iterator[Placeholder]:
    """Every placeholder in a value, nested ones too. Raises ProviderFileError for one that is not JMESPath."""
    match value:
        case str():
            yield from (part for part in _parts(value) if isinstance(part, Placeholder))
        case dict():
            for child in value.values():
                yield from placeholders(child)
        case list():
            for child in value:
                yield from placeholders(child)


def literals(text: str) -> list[str]:
    """What stands between a text's placeholders."""
    return [part for part in _parts(text) if isinstance(part, str)]


def is_placeholder(text: str) -> bool:
    """Whether a text is one placeholder and nothing else."""
    parts = _parts(text)
    return len(parts) == 1 and isinstance(parts[0], Placeholder)


def stays_on_the_server(text: str) -> bool:
    """Whether a URL begins with text of its own that names no host: no value may lead it elsewhere then."""
    return all(isinstance(part, str) and not _NAMES_A_HOST.match(part) for part in _parts(text)[:1])


def without_value(text: str, context: Json) -> list[Expression]:
    """What keeps a URL from being one: placeholders that are null, empty within the path, or the whole and no text."""
    parts = _parts(text)
    in_path = True
    lacking = []
    for part in parts:
        if isinstance(part, str):
            in_path = in_path and "?" not in part and "#" not in part
            continue
        value = part.expression.of(context)
        if value is None or (value == "" and in_path) or (len(parts) == 1 and not isinstance(value, str)):
            lacking.append(part.expression)
    return lacking


def fill(value: Json, context: Json) -> Json:
    """The value with its placeholders replaced, nested ones too; a lone placeholder keeps its value's type."""
    match value:
        case str():
            parts = _parts(value)
            if len(parts) == 1 and isinstance(parts[0], Placeholder):
                return parts[0].expression.of(context)
            return "".join(part if isinstance(part, str) else text_of(part.expression.of(context)) for part in parts)
        case dict():
            return {name: fill(child, context) for name, child in value.items()}
        case list():
            return [fill(child, context) for child in value]
    return value


def fill_url(text: str, context: Json) -> str | None:
    """The URL, its values percent-encoded; None when it is `without_value`. A lone placeholder is a whole URL.

    Raises ValueError for a value that would climb: a `.` or `..` between slashes leads to another path.
    """
    if without_value(text, context):
        return None
    parts = _parts(text)
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        value = text_of(part.expression.of(context))
        if len(parts) == 1:
            return value
        texts.append(quote(value, safe=_RESERVED if part.reserved else ""))
    url = "".join(texts)
    if len(_CLIMBS.findall(url)) > len(_CLIMBS.findall("".join(p if isinstance(p, str) else "x" for p in parts))):
        raise ValueError("a value leads to another path")
    return url


def text_of(value: Json) -> str:
    """A value as text: a string as it is, null as nothing, anything else as JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
    return dumps(value)


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[Part, ...]:
    """A text taken apart. A placeholder ends at the first `}` that leaves JMESPath, which has braces of its own."""
    parts: list[Part] = []
    rest = text
    while (start := rest.find("${")) >= 0 and (first := rest.find("}", start)) >= 0:
        reserved = rest.startswith("+", start + 2)
        begin, end = start + 2 + reserved, first
        while not _compiles(rest[begin:end]):
            end = rest.find("}", end + 1)
            if end < 0:
                end = first
                break
        parts += [rest[:start], Placeholder(Expression(rest[begin:end]), reserved)]
        rest = rest[end + 1 :]
    return tuple(part for part in [*parts, rest] if part)


def _compiles(text: str) -> bool:
    try:
        Expression(text)
    except ProviderFileError:
        return False
    return True
