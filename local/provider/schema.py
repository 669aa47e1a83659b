"""The JSON Schema of provider files, and the tables of docs/providers.md: both made from the language's types."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.next_page import NextPage
from shared.provider.language.part import ABSENT, Part, Reference, References, Url
from shared.provider.language.rules import Rules

FORMATS: dict[str, type] = {"jmespath": Expression, "next-page": NextPage, "secret-reference": Reference, "uri": Url}
"""What a text may have to be; whatever reads it refuses it."""
_HOVERS = {
    "jmespath": "JMESPath over the reply: {statusCode, headers (lower-case names), body, url, links, input, outputs}",
    "next-page": "JMESPath over the reply, or a URL with ${…} over it, values encoded: ?cursor=${body.cursor}",
    "secret-reference": "ssm:/path, secretsmanager:id, secretsmanager:id#key or env:NAME",
}
_KINDS = {
    "string": "text",
    "boolean": "true or false",
    "object": "object",
    "number": "number",
    "integer": "whole number",
}
_TEXTS = {"jmespath": "expression", "next-page": "expression or URL", "secret-reference": "reference", "uri": "URL"}


def schema() -> dict[str, Json]:
    """The schema, whole in itself: it needs no network and works beside any file."""
    parts = msgspec.json.schema(Rules, schema_hook=_text)["$defs"]
    for part in Part.__subclasses__():
        _complete(part, parts[part.__name__])
    for node in _nodes(parts):
        _simplify(node)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:meanwhile:provider-file",
        "title": "A provider file of Meanwhile",
        **parts.pop("Rules"),
        "$defs": parts,
    }


def rows(part: type[Part]) -> Iterator[tuple[str, str, str, str]]:
    """The fields of a part of the language, in Markdown: key, type, default and meaning."""
    made = schema()
    made = made if part is Rules else made["$defs"][part.__name__]
    for key, value in made["properties"].items():
        default = _code(value["default"]) if "default" in value else ""
        meaning = value["description"].removesuffix(f". {_HOVERS.get(value.get('format'), '')}")
        yield f"`{key}`", _kind(value), "required" if key in made.get("required", ()) else default, meaning


def _text(kind: type) -> dict[str, Json]:
    if kind is References:
        one = _text(Reference)
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    made: dict[str, Json] = {"type": "string", "format": next(name for name, one in FORMATS.items() if one is kind)}
    return made | ({"pattern": f"^(?:{Reference.PATTERN})$"} if kind is Reference else {})


def _complete(part: type[Part], made: dict[str, Json]) -> None:
    """Add what msgspec leaves out: the tag's description, and defaults that are expressions."""
    del made["title"]
    properties = made["properties"]
    config = part.__struct_config__
    if config.tag_field:
        properties[config.tag_field]["description"] = made["description"]
    for one in msgspec.structs.fields(part):
        default = one.default_factory() if callable(one.default_factory) else one.default
        if isinstance(default, Expression) and default is not ABSENT:
            properties[one.encode_name]["default"] = default.text
        elif isinstance(default, Part) or default in ({}, (), "", None):
            properties[one.encode_name].pop("default", None)


def _simplify(node: dict[str, Json]) -> None:
    if node.pop("multipleOf", None):
        node["type"] = "integer"
    for key in ("minimum", "exclusiveMinimum", "maximum", "default"):
        if isinstance(node.get(key), float) and node[key].is_integer():
            node[key] = int(node[key])
    node.pop("uniqueItems", None)
    if node.get("required") == []:
        del node["required"]
    if node.get("format") in _HOVERS:
        said = node.get("description")
        node["description"] = f"{said}. {_HOVERS[node['format']]}" if said else _HOVERS[node["format"]]


def _nodes(value: Json) -> Iterator[dict[str, Json]]:
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(child)


def _kind(value: dict[str, Any]) -> str:
    """What a value may be, in a word or two."""
    match value:
        case {"enum": choices}:
            return ", ".join(map(_code, choices))
        case {"$ref": ref}:
            return {"Allowance": "limits"}.get(name := str(ref).rpartition("/")[2], name.lower())
        case {"discriminator": {"mapping": choices}}:
            return f"scheme ({', '.join(choices)})"
        case {"anyOf": several}:
            return " or ".join(sorted(map(_kind, several), key=len))
        case {"type": "array", "items": {"enum": choices}}:
            return f"list of {', '.join(map(_code, choices))}"
        case {"type": "array", "items": each}:
            return "list of " + re.sub(r"\w+", r"\g<0>s", _kind(each), count=1)
        case {"type": "object", "additionalProperties": dict(each)}:
            return f"object of {_kind(each)}s"
        case {"format": name}:
            return _TEXTS[name]
        case {"type": name}:
            limits = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
            return " ".join([_KINDS[name], *(f"{word} {value[key]}" for key, word in limits.items() if key in value)])
    return "any JSON"


def _code(value: Json) -> str:
    return f"`{value if isinstance(value, str) else msgspec.json.encode(value).decode()}`"
