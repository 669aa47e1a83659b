"""JMESPath: what a provider file reads of a reply, or puts into a request."""

from collections.abc import Iterator

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from shared.codec import Json, canonical
from shared.errors import ProviderFileError

_STEPS = frozenset(
    {"subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection", "flatten"}
)
"""Nodes of a syntax tree whose first child alone is evaluated over the root."""
_MADE = frozenset({"multi_select_dict", "multi_select_list", "key_val_pair"})
_MAKERS = frozenset({"merge", "to_array", "to_string"})
"""Functions that make a value even of nulls, as nodes of `_MADE` do."""
_FAILURES = (JMESPathError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What jmespath raises for values that an expression does not fit: mixed comparisons, steps of 0, huge numbers."""


class Expression:
    """A compiled JMESPath expression that replies null where it cannot be evaluated. Raises ProviderFileError."""

    __slots__ = ("_calculates", "_compiled", "references", "text")

    def __init__(self, text: str) -> None:
        try:
            self._compiled = jmespath.compile(text)
        except (JMESPathError, ValueError, RecursionError) as error:
            raise ProviderFileError(f"{text!r} is not JMESPath: {' '.join(str(error).split())}") from error
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

    def is_nothing(self, found: Json, value: Json) -> bool:
        """Whether it has found nothing in `value`: null, or what it made itself of nothing but nulls."""
        try:
            return found is None or (_is_void(self._compiled.parsed, value) and found == self.of(value))
        except _FAILURES:
            return False

    def refers_to(self, root: str) -> bool:
        """Whether the expression reads the name `root` of what it is evaluated over."""
        return any(name == root for name, _ in self.references)


def _is_void(node: Json, value: Json) -> bool:
    """Whether the last step of a syntax tree makes a value, and finds nothing for it: constants alone are no finding.

    Rows that were found are something, whatever an expression makes of each.
    """
    match node:
        case {"type": "subexpression" | "pipe", "children": [*steps, last]}:
            for step in steps:
                value = _visit(step, value)
            return _is_void(last, value)
        case {"type": "or_expression" | "and_expression" as kind, "children": [left, right]}:
            return _is_void(left if _is_true(_visit(left, value)) == (kind == "or_expression") else right, value)
        case {"type": kind, "children": [left, *_]} if kind in _STEPS:
            return _is_void(left, value)
        case {"children": children} if _makes(node):
            parts = [part for part in children if not _is_constant(part)]
            return bool(parts) and all(_visit(part, value) is None or _is_void(part, value) for part in parts)
    return False


def _makes(node: Json) -> bool:
    return node["type"] in _MADE or (node["type"] == "function_expression" and node["value"] in _MAKERS)


def _is_constant(node: Json) -> bool:
    return node["type"] == "literal" or (_makes(node) and all(map(_is_constant, node["children"])))


def _is_true(value: Json) -> bool:
    return value is not False and value not in (None, "", [], {})


def _visit(node: Json, value: Json) -> Json:
    return TreeInterpreter().visit(node, value)


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
