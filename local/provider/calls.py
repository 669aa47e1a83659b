"""Calls of functions in JMESPath that can never be evaluated: no such function, or another number of arguments."""

from collections.abc import Iterator
from difflib import get_close_matches

import jmespath
from jmespath.functions import Functions

from shared.codec import Json
from shared.provider.language.expression import Expression


def impossible_calls(expression: Expression) -> Iterator[str]:
    """What is wrong with each; production finds null there, whatever the reply is."""
    yield from _in(jmespath.compile(expression.text).parsed)


def _in(node: Json) -> Iterator[str]:
    if node["type"] == "function_expression":
        yield from _call(node["value"], len(node["children"]))
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _in(child)


def _call(name: str, given: int) -> Iterator[str]:
    known = Functions.FUNCTION_TABLE
    if name not in known:
        near = get_close_matches(name, known, 1)
        yield f"there is no function {name}" + (f"; did you mean {near[0]}?" if near else "")
        return
    signature = known[name]["signature"]
    is_open = bool(signature) and signature[-1].get("variadic", False)
    if given < len(signature) or (given > len(signature) and not is_open):
        most = " or more" if is_open else ""
        yield f"{name} takes {len(signature)}{most} argument{'s' if len(signature) != 1 or most else ''}, not {given}"
