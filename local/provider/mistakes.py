"""What production takes in a provider file and nobody can mean: `check` calls it a fault."""

import re
from collections.abc import Iterator
from contextlib import suppress

from local.provider.calls import impossible_calls
from local.provider.parts import ENVELOPE, expressions, operations
from local.provider.unsendable import unsendable
from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language import faults
from shared.provider.language.operation import DEFAULT_TIMEOUT_SECONDS, WITH_PLACEHOLDERS
from shared.provider.language.placeholder import literals
from shared.provider.language.rules import Rules
from shared.provider.language.security import ApiKey
from shared.settings import Settings

_BRACES = re.compile(r"(?<![${])#?(?:\{[A-Za-z_][\w.-]*\}|\{\{\s*[A-Za-z_][\w.-]*\s*\}\})(?!\})")


def in_file(file: Json) -> Iterator[str]:
    """In a decoded file, which may have other faults."""
    if isinstance(file, dict):
        yield from _braces(file)
        yield from _statuses(file)
        yield from _impossible_statuses(file)


def in_rules(rules: Rules, settings: Settings) -> Iterator[str]:
    """In a file that is sound otherwise."""
    yield from _unset_outputs(rules)
    yield from unsendable(rules)
    yield from _expressions(rules)
    for location, operation in operations(rules):
        late = operation.timeout > settings.attempt_seconds
        if late and operation.timeout != DEFAULT_TIMEOUT_SECONDS:
            attempt = f"a whole attempt may take (ATTEMPT_SECONDS, {settings.attempt_seconds:g} s)"
            yield f"{location}.timeout: {operation.timeout:g} s is longer than {attempt}"
    headers = [(one.name if isinstance(one, ApiKey) else "Authorization").lower() for one in rules.security]
    for header in sorted({name for name in headers if headers.count(name) > 1}):
        yield f"$.security: {header} is set twice; a request has it once"


def _braces(file: dict[str, Json]) -> Iterator[str]:
    """Placeholders as others write them: they would be sent as they are. Among other braces they are code."""
    for location, operation, _ in faults.operations(file):
        for part in WITH_PLACEHOLDERS:
            for text in _texts(operation.get(part)):
                found = _BRACES.findall(text)
                if found and not re.search(r"[{}]", _BRACES.sub("", text)):
                    name = found[0].strip("#{} ")
                    is_whole = name.partition(".")[0] in faults.ROOTS
                    such = f"${{{name}}}" if is_whole else f"${{input.{name}}} or ${{outputs.{name}}}"
                    meant = f"${{…}} is meant, such as {such}"
                    yield f"{location}.{part}: {found[0]} is sent as it is; {meant} (if not, write ${{'{found[0]}'}})"


def _texts(value: Json) -> Iterator[str]:
    """Every text in a value, without its placeholders."""
    match value:
        case str():
            with suppress(ProviderFileError):  # which is said by others
                yield "…".join(literals(value))
        case dict():
            yield from (text for child in value.values() for text in _texts(child))
        case list():
            yield from (text for child in value for text in _texts(child))


def _statuses(file: dict[str, Json]) -> Iterator[str]:
    """HTTP statuses that are looked for in the body, although nobody says that they stand there."""
    acceptors = file.get("acceptors")
    for i, one in enumerate(acceptors if isinstance(acceptors, list) else ()):
        if not isinstance(one, dict) or one.get("matcher", "path") == "status":
            continue
        expected = one.get("expected")
        digits = "XX|xx" if "argument" in one or "status" in file else "XX|xx|[0-9]{2}"
        for value in expected if isinstance(expected, list) else [expected]:
            if isinstance(value, str | int) and re.fullmatch(f"[1-5]({digits})", str(value)):
                with_status = 'an HTTP status is compared with "matcher": "status"'
                yield f"$.acceptors[{i}].expected: {value} is compared with {_compared(one, file)}; {with_status}"


def _impossible_statuses(file: dict[str, Json]) -> Iterator[str]:
    acceptors = file.get("acceptors")
    for i, one in enumerate(acceptors if isinstance(acceptors, list) else ()):
        if isinstance(one, dict) and one.get("matcher") == "status":
            expected = one.get("expected")
            values: list[Json] = expected if isinstance(expected, list) else [expected]
            for value in values:
                if type(value) in (int, float) and not (100 <= value <= 599 and value % 1 == 0):
                    yield f"$.acceptors[{i}].expected: {value} is no HTTP status; they are 100 to 599"


def _expressions(rules: Rules) -> Iterator[str]:
    """Calls that cannot be evaluated, and fields that no reply has."""
    placed = ((f"{at}.{part}", one) for at, operation in operations(rules) for part, one in operation.placed())
    for location, expression in placed:
        yield from (f"{location}: ${{{expression.text}}}: {reason}" for reason in impossible_calls(expression))
        for root, name in sorted(expression.references, key=str):
            if root == "response" and name and name not in ENVELOPE:
                reason = f"a reply has {', '.join(ENVELOPE)}; did you mean response.body.{name}?"
                yield f"{location}: ${{{expression.text}}}: {reason}"
    for location, expression in expressions(rules):
        yield from (f"{location}: {expression.text}: {reason}" for reason in impossible_calls(expression))


def _compared(acceptor: dict[str, Json], file: dict[str, Json]) -> str:
    argument = acceptor.get("argument", file.get("status"))
    return f"what {argument} finds" if argument else "body.status (if that is meant, say so in argument)"


def _unset_outputs(rules: Rules) -> Iterator[str]:
    """Outputs that somebody reads and nobody sets."""
    stored = {name for one in (*rules.submit_steps, rules.asks_again) for name in one.outputs}
    every = stored | {name for operation in rules.result_steps for name in operation.outputs}
    for location, operation in operations(rules):
        has = every if location.startswith("$.result") else stored
        for part, expression in operation.placed():
            for root, name in sorted(expression.references, key=str):
                if root == "outputs" and name is not None and name not in has:
                    there = f"there are {', '.join(sorted(has))}" if has else "no operation has outputs"
                    yield f"{location}.{part}: ${{{expression.text}}}: nothing sets the output {name!r}; {there}"
