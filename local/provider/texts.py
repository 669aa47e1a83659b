"""Texts of a request that look like the placeholders of other tools, or like secrets: they are sent as they are."""

import re
from collections.abc import Iterator

from local.provider.parts import operations
from shared.codec import Json
from shared.provider.language.operation import WITH_PLACEHOLDERS, Operation
from shared.provider.language.placeholder import literals
from shared.provider.language.rules import Rules
from shared.provider.language.security import OAuth2

_SECRET = r"authorization|cookie|api[-_]?key|token|secret|passw(?:or)?d"
_SECRET_NAMES = re.compile(rf"(?:{_SECRET})(?!.*type$)", re.IGNORECASE)  # a token's type is none
_IN_URL = re.compile(rf"[?&]([^=&#]*(?:{_SECRET})[^=&#]*)=[^&#$]", re.IGNORECASE)
_IN_BODY = re.compile(r"(?:api[-_]?key|(?:access|auth|bearer|refresh)[-_]?token|secret|passw(?:or)?d)$", re.IGNORECASE)
_NAME = r"[A-Za-z_]\w*"
_WHOLE = re.compile(
    rf"<{_NAME}>|:{_NAME}|%(?:\({_NAME}\))?[sd]"
    rf"|\$(?:(?i:id|job|name|\w+_id)|\w+I[dD])|\{{\d+\}}|\{{ +{_NAME}(?:\.\w+)* +\}}"
)
_IN_PATH = re.compile(rf"(?<=[/=])(?:{_WHOLE.pattern})(?=[/?&#]|$)|<{_NAME}>|%s|%\({_NAME}\)[sd]|\{{\d*\}}")
"""Not `10:30`, and not what some APIs begin with a dollar: `/$metadata`, `/Patient/$export`, `?$select=id`."""
_SECRET_SAID = "looks like a secret in the file; security takes it by reference"


def doubtful(rules: Rules) -> Iterator[str]:
    """Each with its location."""
    for location, operation in operations(rules):
        yield from _styles(location, operation)
        for name in _IN_URL.findall("$".join(literals(operation.url))):
            yield f"{location}.url: {name} {_SECRET_SAID}"
        for part, names in (("headers", _SECRET_NAMES), ("query", _SECRET_NAMES), ("body", _IN_BODY)):
            yield from _secrets(f"{location}.{part}", getattr(operation, part), names)
    for i, scheme in enumerate(rules.security):
        if isinstance(scheme, OAuth2):
            yield from _secrets(f"$.security[{i}].params", scheme.params, _IN_BODY)


def _styles(location: str, operation: Operation) -> Iterator[str]:
    """Placeholders as other tools write them."""
    for part in WITH_PLACEHOLDERS:
        for there, text in _texts(f"{location}.{part}", getattr(operation, part)):
            own = literals(text)
            if any("${" in one for one in own):
                yield f"{there} has a ${{ without its }}"
            found = map(_IN_PATH.search, own) if part == "url" else [_WHOLE.fullmatch(text)]
            if part == "body" and text is operation.body:
                continue  # a text of its own may be in any language
            said = "is sent as it is; a value stands in ${…}, such as ${outputs.id}"
            yield from (f"{there}: {one[0]} {said}" for one in found if one)


def _texts(location: str, value: Json) -> Iterator[tuple[str, str]]:
    """Every text in a value, with its location."""
    if isinstance(value, str):
        yield location, value
    for key, child in _children(value):
        yield from _texts(location + key, child)


def _children(value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        yield from ((f".{name}", child) for name, child in value.items())
    if isinstance(value, list):
        yield from ((f"[{i}]", child) for i, child in enumerate(value))


def _secrets(location: str, value: Json, names: re.Pattern[str]) -> Iterator[str]:
    for there, text in _texts(location, value):
        name = re.sub(r"\[\d+\]$", "", there).rpartition(".")[2]
        if text and there != location and names.search(name) and "${" not in text:
            yield f"{there} {_SECRET_SAID}"
