"""Replies made up so that an expression of a provider file finds what it looks for."""

from typing import Any

import jmespath

from shared.codec import Json
from shared.provider.language.expression import Expression


def plant(expression: Expression, value: Json, envelope: dict[str, Json]) -> bool:
    """Put into the envelope what makes the expression find `value` there; False where that is not known to work."""
    _put(jmespath.compile(expression.text).parsed, value, envelope)
    found = expression.of(envelope)
    return type(found) is type(value) and bool(found == value)


def _put(node: Json, value: Json, root: dict[str, Json]) -> bool:
    """Whether there is a way to make this part of an expression find the value; it has been gone then."""
    if (steps := _steps(node)) is not None:
        return _assign(root, steps, value)
    match node:
        case {"type": "or_expression", "children": [left, right]}:
            return _put(left, value, root) or _put(right, value, root)
        case {"type": "and_expression", "children": [left, right]} if value:
            return _put(left, True, root) and _put(right, value, root)
        case {"type": "comparator", "value": sign, "children": [left, right]} if isinstance(value, bool):
            return _compare(sign if value else _OPPOSITE[sign], left, right, root)
        case {"type": "not_expression", "children": [one]} if isinstance(value, bool):
            return _put(one, not value, root)
        case {
            "type": "function_expression",
            "value": "contains",
            "children": [{"type": "multi_select_list", "children": [{"type": "literal", "value": known}, *_]}, one],
        } if isinstance(value, bool):
            return _put(one, known if value else "some", root)
        case {"type": "function_expression", "value": "to_string" | "to_number", "children": [one]}:
            return _put(one, value, root)
    return False


def _steps(node: Json) -> list[str | int] | None:
    """The keys and numbers that lead to what a plain path reads: the first of a list where it reads them all."""
    match node:
        case {"type": "field", "value": str(name)}:
            return [name]
        case {"type": "index", "value": int(number)}:
            return [number]
        case {"type": "identity" | "current"}:
            return []
        case {"type": "flatten", "children": [child]}:
            return _joined(child, {"type": "index", "value": 0})
        case {"type": "projection", "children": [{"type": "flatten"} as left, right]}:
            return _joined(left, right)
        case {"type": "projection", "children": [left, right]}:
            return _joined(left, {"type": "index", "value": 0}, right)
        case {"type": "pipe", "children": [{"type": "projection"} as left, right]} if _steps(right) == [0]:
            return _steps(left)
        case {"type": "subexpression" | "index_expression" | "pipe", "children": several}:
            return _joined(*several)
    return None


def _joined(*nodes: Json) -> list[str | int] | None:
    parts = [_steps(node) for node in nodes]
    return None if None in parts else [step for steps in parts if steps is not None for step in steps]


_OF_TYPE: dict[str, Json] = {"object": {"played": "whole"}, "array": ["whole"], "string": "whole"}
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "gte", "gte": "lt", "gt": "lte", "lte": "gt"}


def _compare(sign: str, left: Json, right: Json, root: dict[str, Json]) -> bool:
    if left["type"] == "literal" or right["type"] != "literal":
        return False
    known = right["value"]
    if (left["type"], left.get("value"), sign) == ("function_expression", "type", "eq") and known in _OF_TYPE:
        return _put(left["children"][0], _OF_TYPE[known], root)
    if sign in ("eq", "gte", "lte"):
        return known is None or _put(left, known, root)
    if sign == "ne":
        return known is not None or _put(left, "some", root)
    return isinstance(known, int | float) and _put(left, known + (1 if sign == "gt" else -1), root)


def _assign(root: dict[str, Json], steps: list[str | int], value: Json) -> bool:
    """Set what stands there, with the objects and lists on the way; False where something else is in the way."""
    at: Any = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(step, int):
            if not isinstance(at, list) or step < 0:
                return False
            at.extend([None] * (step + 1 - len(at)))
        elif not isinstance(at, dict):
            return False
        here = at[step] if isinstance(step, int) else at.get(step)
        if following is None:
            if isinstance(here, dict | list) and here and here != value:
                return True  # something is there already, which is all that `body` as data asks for
            at[step] = value
        elif here is not None and not isinstance(here, dict | list):
            return False
        elif here is None:
            at[step] = [] if isinstance(following, int) else {}
        at = at[step]
    return True
