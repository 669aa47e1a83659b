"""What is wrong with a provider file that types cannot say: what cannot work where it stands, or contradicts itself."""

import math
import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language.acceptor import is_status
from shared.provider.language.expression import Expression
from shared.provider.language.operation import WITH_PLACEHOLDERS
from shared.provider.language.part import YEAR_SECONDS, made
from shared.provider.language.placeholder import placeholders
from shared.provider.language.polling import DEFAULT_MAX_WAIT_SECONDS
from shared.provider.language.signature import Signature

ROOTS = {"input": "", "outputs": "", "response": "", "task": "id, name and provider", "callback": "url"}
"""What placeholders may read, and of which fields where not all are known."""
LONGEST = (
    ("minDelay", "maxDelay"), ("minDelay", "maxWaitTime"), ("initialDelay", "maxWaitTime"),
    ("notFoundGrace", "maxWaitTime"),
)  # fmt: skip
"""Spans of a file's polling, each with one that it may not be longer than."""


def faults(file: Json) -> Iterator[str]:
    """Each with its location. The file may be faulty otherwise: what is not as it should be is passed over."""
    if not isinstance(file, dict):
        return
    for location, operation, follows in operations(file):
        yield from _operation(location, operation, follows=follows)
    yield from _delays(file)
    yield from _signature(file)
    acceptors = file.get("acceptors")
    for i, one in enumerate(acceptors if isinstance(acceptors, list) else []):
        if isinstance(one, dict) and one.get("matcher") == "status" and "expected" in one:
            expected = one["expected"] if isinstance(one["expected"], list) else [one["expected"]]
            if not all(map(is_status, expected)):
                yield f"$.acceptors[{i}].expected: must be a status such as 404, a range such as 2XX, or a list"


def operations(file: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json], bool]]:
    """Every operation, with its location, and whether the reply to another goes before it."""
    for key in ("submit", "poll", "result", "cancel"):
        given = file.get(key)
        several = given if isinstance(given, list) else [given]
        for i, one in enumerate(several):
            if isinstance(one, dict):
                asks_again = key == "submit" and one is several[-1] and "poll" not in file
                follows = key == "result" or (key == "submit" and i > 0 and not asks_again)
                yield f"$.{key}[{i}]" if len(several) > 1 else f"$.{key}", one, follows


def _delays(file: dict[str, Json]) -> Iterator[str]:
    """Spans that are longer than what bounds them. What the file leaves out yields to what it gives (`polling.py`)."""
    given = _numbers(file.get("polling"))
    most = given.get("maxWaitTime", DEFAULT_MAX_WAIT_SECONDS)
    bounds = {"maxDelay": given.get("maxDelay", math.inf), "maxWaitTime": most}
    for key, bound in LONGEST:
        if given.get(key, 0) > bounds[bound]:
            is_default = "" if bound in given else ", as it is left out"
            yield f"$.polling.{key}: {given[key]:.15g} s is longer than {bound} ({bounds[bound]:.15g} s{is_default})"
    limits = file.get("limits")
    rate = _numbers(limits.get("rate") if isinstance(limits, dict) else None)
    each = rate.get("seconds", 0) / max(rate.get("requests", math.inf), 1)
    if each > most:
        yield f"$.limits.rate: one attempt in {each:.15g} s, but a task ends after maxWaitTime ({most:.15g} s)"


def _signature(file: dict[str, Json]) -> Iterator[str]:
    """A form by which no callback can be judged."""
    match file:
        case {"callback": {"signature": dict() as given}}:
            with suppress(msgspec.ValidationError):
                if fault := msgspec.convert(given, Signature, dec_hook=made).fault():
                    yield f"$.callback.signature: {fault}"


def _numbers(part: Json) -> dict[str, float]:
    """The numbers of an object, as far as types take them."""
    items = part.items() if isinstance(part, dict) else ()
    return {key: one for key, one in items if type(one) in (int, float) and 0 <= one <= YEAR_SECONDS}


def _operation(location: str, operation: dict[str, Json], *, follows: bool) -> Iterator[str]:
    if operation.get("decode") == "url" and not location.startswith("$.result"):
        yield f"{location}.decode: url is for result operations: it sends no request"
    for part in WITH_PLACEHOLDERS:
        try:
            for one in placeholders(operation.get(part)):
                for reason in _placeholder(one.expression, is_submit=location.startswith("$.submit"), follows=follows):
                    yield f"{location}.{part}: ${{{one.expression.text}}} {reason}"
        except ProviderFileError as error:
            yield f"{location}.{part}: in ${{…}} {error}"


def _placeholder(expression: Expression, *, is_submit: bool, follows: bool) -> Iterator[str]:
    for name, field in sorted(expression.references, key=str):
        if name.lower() in ("true", "false", "null"):
            yield f"reads a field {name!r}; the value needs backticks: `{name.lower()}`"
        elif name not in ROOTS:
            yield f"reads {name!r}; there are input (input.{name}?), outputs, task, callback and response"
        elif ROOTS[name] and field and field not in re.findall(r"\w+", ROOTS[name]):
            yield f"reads {field!r} of the {name}; it has {ROOTS[name]}"
    if expression.refers_to("response") and not follows:
        yield "uses response, but no reply goes before it; keep what it needs in outputs"
    if expression.refers_to("callback") and not is_submit:
        yield "uses callback, which is for submit"
