"""What the schema of provider files refuses in a file: every fault, with its location and what was perhaps meant."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import cast

import jsonschema
from jsonschema.exceptions import ValidationError

from local.provider.schema import FORMATS, schema
from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language.expression import Expression

_KINDS = {
    "string": "a text",
    "object": "an object",
    "array": "a list",
    "boolean": "true or false",
    "number": "a number",
    "integer": "a whole number",
}
_SCHEME = 'is written {{"type": "http", "scheme": "{0}"}}; the type '
_UNSUPPORTED = {
    "bearer": _SCHEME.format("bearer"),
    "basic": _SCHEME.format("basic"),
    "sigv4": "sigv4 is not supported: nothing here signs requests; ",
    "cookie": "cookie is not supported: no cookie is kept between tasks; ",
}


def violations(file: Json) -> Iterator[str]:
    """Each once; a location has one fault, the rest would follow from it."""
    seen = set()
    errors = [one for error in _validator().iter_errors(file) for one in _leaves(error)]
    for error in sorted(errors, key=lambda one: one.validator not in ("type", "format")):
        for location, reason in _said(error):
            if location not in seen:
                seen.add(location)
                yield f"{location}: {reason}"


@cache
def _validator() -> jsonschema.Draft202012Validator:
    formats = jsonschema.FormatChecker(())

    def is_one(kind: type, value: Json) -> bool:
        made = kind(value) if isinstance(value, str) else None
        for name, _ in made.references if isinstance(made, Expression) else ():
            if name.lower() in ("true", "false"):
                raise ProviderFileError(f"{value} reads a field {name!r}; the value needs backticks: `{name.lower()}`")
        return True

    for name, kind in FORMATS.items():
        formats.checks(name, ProviderFileError)(lambda value, kind=kind: is_one(kind, value))
    return jsonschema.Draft202012Validator(schema(), format_checker=formats)


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """The errors that tell: of a choice between parts, those of the part that is meant."""
    if error.validator != "anyOf":
        yield error
        return
    tag = _part(error).get("discriminator", {}).get("propertyName")
    branches: dict[Json, list[ValidationError]] = defaultdict(list)
    for one in error.context or ():
        branches[one.schema_path[0]].append(one)
    meant = [few for few in branches.values() if not any(_is_another(one, tag) for one in few)]
    if len(meant) == 1:
        for one in meant[0]:
            yield from _leaves(one)
    else:
        yield error


def _is_another(error: ValidationError, tag: str | None) -> bool:
    """Whether this error says that another part is meant: it is of another kind, or has another tag."""
    path = list(error.relative_path)
    return (error.validator == "type" and not path) or (tag is not None and path == [tag])


def _said(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Locations and reasons."""
    location, value, part = error.json_path, cast(Json, error.instance), _part(error)
    match error.validator:
        case "required":
            yield from ((f"{location}.{key}", "is missing") for key in part["required"] if key not in value)
        case "additionalProperties":
            known = part["properties"]
            for key in value.keys() - known.keys():
                yield f"{location}.{key}", _unknown(key, known)
        case "anyOf" if "discriminator" in part and isinstance(value, dict):
            tag, choices = part["discriminator"]["propertyName"], part["discriminator"]["mapping"]
            yield f"{location}.{tag}", _chosen(value[tag], choices) if tag in value else "is missing"
        case "anyOf":
            yield location, "must be an object" + ("" if "discriminator" in part else " or a list of objects")
        case "enum":
            yield location, _chosen(value, part["enum"])
        case "minItems" | "format":
            yield location, str(error.cause or "must not be empty")
        case "type" | "minimum" | "exclusiveMinimum" | "maximum":
            is_broken = part["type"] == "integer" and isinstance(value, float)
            yield location, "must be a whole number" if is_broken else f"must be {_kind(part)}"


def _part(error: ValidationError) -> dict[str, Json]:
    """The part of the schema that refuses it."""
    return cast(dict[str, Json], error.schema)


def _unknown(key: str, known: Iterable[str]) -> str:
    near = _near(key, known)
    return f"is not known; {near + ' There' if near else 'there'} are {', '.join(sorted(known))}"


def _chosen(value: Json, choices: Iterable[str]) -> str:
    near = _near(value, choices)
    known = _UNSUPPORTED.get(value, "") if isinstance(value, str) else ""
    return f"{known}must be one of {', '.join(choices)}{near and '; '}{near}"


def _near(word: Json, known: Iterable[str]) -> str:
    names = {name.casefold(): name for name in known}
    close = get_close_matches(word.replace("_", "").casefold(), names, 1, 0.65) if isinstance(word, str) else []
    return f"did you mean {names[close[0]]}?" if close else ""


def _kind(part: Json) -> str:
    """What a value must be, with its limits."""
    low = next((f" {word} {part[key]}" for key, word in _LIMITS.items() if key in part), "")
    high = f" up to {part['maximum']}" if "maximum" in part else ""
    return f"{_KINDS[part['type']]}{low}{high}"


_LIMITS = {"minimum": "from", "exclusiveMinimum": "above"}
