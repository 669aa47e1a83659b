"""Placeholders: `${expression}` in a provider file's URLs, queries, headers and bodies.

An expression is JMESPath over {input, outputs, task: {id, name, provider}, callback: {url}, response}: `response` is
the answer before, in submit and result operations; `callback` is for submit. A string that is one placeholder keeps the
value's JSON type; elsewhere text is inserted. Inside a URL values are percent-encoded, `${+expression}` keeps the
reserved characters (RFC 6570).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote

import jmespath
from jmespath.exceptions import JMESPathError

from shared.codec import Json, canonical, dumps
from shared.errors import ProviderFileError

_RESERVED = ":/?#[]@!$&'()*+,;=%"
_CLIMBS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?=[/?#]|$)", re.IGNORECASE)
_NAMES_A_HOST = re.compile(r"//|[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_STEPS = frozenset(
    {"subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection", "flatten"}
)
"""Nodes of a syntax tree whose first child alone is evaluated over the root."""
_FAILURES = (JMESPathError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What jmespath raises for values that an expression does not fit: mixed comparisons, steps of 0, huge numbers."""


class Expression:
    """A compiled JMESPath expression that answers null where it cannot be evaluated. Raises ProviderFileError."""

    __slots__ = ("_calculates", "_compiled", "references", "text")

    def __init__(self, text: str) -> None:
        try:
            self._compiled = jmespath.compile(text)
        except (JMESPathError, ValueError, RecursionError) as error:
            hint = " (a name with a dash stands in double quotes)" if re.search(r"\w-[A-Za-z]", text) else ""
            raise ProviderFileError(f"{text!r} is not JMESPath{hint}: {' '.join(str(error).split())}") from error
        self.text = text
        self.references = frozenset(_references(self._compiled.parsed))
        self._calculates = "(" in text or "&" in text

    def of(self, value: Json) -> Json:
        """What the expression finds in `value`; None where it fails, or finds what JSON has not (an infinity)."""
        try:
            found = self._compiled.search(value)
            if self._calculates:
                canonical(found)
        except _FAILURES:
            return None
        return found

    def refers_to(self, root: str) -> bool:
        """Whether the expression reads the name `root` of what it is evaluated over."""
        return any(name == root for name, _ in self.references)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`${expression}`, or `${+expression}` if `reserved`."""

    expression: Expression
    reserved: bool


Part: TypeAlias = str | Placeholder


def placeholders(template: Json) -> Iterator[Placeholder]:
    """Every placeholder in a template, nested ones too. Raises ProviderFileError for one that is not JMESPath."""
    match template:
        case str():
            yield from (part for part in _parts(template) if isinstance(part, Placeholder))
        case dict():
            for value in template.values():
                yield from placeholders(value)
        case list():
            for value in template:
                yield from placeholders(value)


def literals(template: str) -> list[str]:
    """The texts between a template's placeholders."""
    return [part for part in _parts(template) if isinstance(part, str)]


def is_placeholder(template: str) -> bool:
    """Whether a text is one placeholder and nothing else."""
    parts = _parts(template)
    return len(parts) == 1 and isinstance(parts[0], Placeholder)


def stays_on_the_server(template: str) -> bool:
    """Whether a URL begins with text of its own that names no host: no value may lead it elsewhere then."""
    return all(isinstance(part, str) and not _NAMES_A_HOST.match(part) for part in _parts(template)[:1])


def without_value(template: str, context: Json) -> list[Expression]:
    """What keeps a URL from being one: placeholders that are null, empty within the path, or the whole and no text."""
    parts = _parts(template)
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


def fill(template: Json, context: Json) -> Json:
    """The template with its placeholders replaced, nested ones too; a lone placeholder keeps its value's type."""
    match template:
        case str():
            parts = _parts(template)
            if len(parts) == 1 and isinstance(parts[0], Placeholder):
                return parts[0].expression.of(context)
            return "".join(part if isinstance(part, str) else text_of(part.expression.of(context)) for part in parts)
        case dict():
            return {name: fill(value, context) for name, value in template.items()}
        case list():
            return [fill(value, context) for value in template]
    return template


def fill_url(template: str, context: Json) -> str | None:
    """The URL, its values percent-encoded; None when it is `without_value`. A lone placeholder is a whole URL.

    Raises ValueError for a value that would climb: a `.` or `..` between slashes leads to another path.
    """
    if without_value(template, context):
        return None
    parts = _parts(template)
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
def _parts(template: str) -> tuple[Part, ...]:
    """A template taken apart. A placeholder ends at the first `}` that leaves JMESPath, which has braces of its own."""
    parts: list[Part] = []
    rest = template
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


def _references(node: Json) -> Iterator[tuple[str, str | None]]:
    """The names at the root that a syntax tree reads, each with the field taken of it if it is a plain one."""
    match node:
        case {"type": "field", "value": name}:
            yield name, None
        case {"type": "subexpression", "children": [{"type": "field", "value": name}, step, *_]}:
            yield name, _first_field(step)
        case {"type": kind, "children": [left, *_]} if kind in _STEPS:
            yield from _references(left)
        case {"type": kind, "children": children} if kind != "expref":
            for child in children:
                yield from _references(child)


def _first_field(step: Json) -> str | None:
    """The field that a step begins with: `a` in `a[0].b`."""
    while step["type"] in _STEPS and step["children"]:
        step = step["children"][0]
    return step["value"] if step["type"] == "field" else None
