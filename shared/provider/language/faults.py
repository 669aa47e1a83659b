"""What is wrong with a provider file that types cannot say: what cannot work where it stands."""

import re
from collections.abc import Iterator

from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language.acceptor import is_status
from shared.provider.language.expression import Expression
from shared.provider.language.operation import WITH_PLACEHOLDERS
from shared.provider.language.placeholder import placeholders

ROOTS = {"input": "", "outputs": "", "response": "", "task": "id, name and provider", "callback": "url"}
"""What placeholders may read, and of which fields where not all are known."""


def faults(file: Json) -> Iterator[str]:
    """Each with its location. The file may be faulty otherwise: what is not as it should be is passed over."""
    if not isinstance(file, dict):
        return
    for location, operation, follows in operations(file):
        yield from _operation(location, operation, follows=follows)
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
