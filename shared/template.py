"""Placeholders: `${expression}` in a provider file's URLs, queries, headers and bodies.

An expression is JMESPath over {input, outputs, task: {id, name, provider}, response}: `response` is the answer before,
in submit and result operations. A string that is one placeholder keeps
the value's JSON type; elsewhere text is inserted. Inside a URL values are percent-encoded, `${+expression}` keeps the
reserved characters (RFC 6570).
"""

import re
from collections.abc import Callable
from urllib.parse import quote

import jmespath
from jmespath.exceptions import JMESPathError

from shared.codec import Json, dumps
from shared.errors import ProviderFileError

_PLACEHOLDER = re.compile(r"\$\{(\+?)([^{}]+)\}")
_RESERVED = ":/?#[]@!$&'()*+,;=%"


class Expression:
    """A compiled JMESPath expression that answers null where it cannot be evaluated. Raises ProviderFileError."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        try:
            self._compiled = jmespath.compile(text)
        except JMESPathError as error:
            raise ProviderFileError(f"{text!r} is not JMESPath: {' '.join(str(error).split())}") from error
        self.text = text

    def of(self, value: Json) -> Json:
        """What the expression finds in `value`; None where it fails (jmespath raises for mixed comparisons)."""
        try:
            return self._compiled.search(value)
        except (JMESPathError, TypeError, ValueError, AttributeError, RecursionError):
            return None


def expressions(template: Json) -> list[str]:
    """Every placeholder's expression in a template, nested ones too."""
    match template:
        case str():
            return [text for _, text in _PLACEHOLDER.findall(template)]
        case dict():
            return [text for value in template.values() for text in expressions(value)]
        case list():
            return [text for value in template for text in expressions(value)]
    return []


def fill(template: Json, context: Json) -> Json:
    """The template with its placeholders replaced, nested ones too; a lone placeholder keeps its value's type."""
    match template:
        case str():
            alone = _PLACEHOLDER.fullmatch(template)
            if alone and not alone[1]:
                return Expression(alone[2]).of(context)
            return _insert(template, context, lambda text, _reserved: text)
        case dict():
            return {name: fill(value, context) for name, value in template.items()}
        case list():
            return [fill(value, context) for value in template]
    return template


def fill_url(template: str, context: Json) -> str | None:
    """The URL, its values percent-encoded; None when a placeholder has no value. A lone placeholder is a whole URL."""
    if any(Expression(text).of(context) is None for text in expressions(template)):
        return None
    alone = _PLACEHOLDER.fullmatch(template)
    if alone:
        return _text(Expression(alone[2]).of(context))
    return _insert(template, context, lambda text, reserved: quote(text, safe=_RESERVED if reserved else ""))


def _insert(template: str, context: Json, encode: Callable[[str, bool], str]) -> str:
    def replace(found: re.Match[str]) -> str:
        return encode(_text(Expression(found[2]).of(context)), bool(found[1]))

    return _PLACEHOLDER.sub(replace, template)


def _text(value: Json) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
    return dumps(value)
