"""Placeholders: `${expression}` in a provider file's URLs, queries, headers and bodies.

A string that is one placeholder keeps the value's JSON type; elsewhere text is inserted. Inside a URL values are
percent-encoded, `${+expression}` keeps the reserved characters (RFC 6570).
"""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import normalize
from urllib.parse import quote, unquote_to_bytes

from shared.codec import Json, dumps
from shared.errors import ProviderFileError
from shared.provider.language.expression import Expression

_RESERVED = ":/?#[]@!$&'()*+,;=%"
_CLIMBS = re.compile(r"(?:^|/)(?: |%20)*(?:\.|%2e)(?: |%20|\.|%2e)*(?=[/?#;]|$)", re.IGNORECASE)
"""A name of nothing but dots: some servers trim spaces, or take more dots for two."""
_OTHER_DOTS = re.compile(rb"[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]|%u[0-9a-f]{4}", re.IGNORECASE)
"""UTF-8 longer than it must be (RFC 3629, 3), and escapes of no standard: some servers find dots in them."""
_EMPTY = re.compile("/(?=/)")
_ENDS = re.compile("[?#]")
_NOT_IN_PATH = re.compile(r"[\x00-\x1f\x7f\\;]")  # some servers read them as the end of a name, or as a slash
_DECODERS = 5  # no way has more proxies that decode
_AUTHORITY = re.compile(r"(?:https?:)?//([^/?#]*)", re.IGNORECASE)
_LABEL, _UNSAFE = "\0", "\1"  # in the place of values that are encoded, and of those that are not
_NAMES_A_HOST = re.compile(r"//|[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`${expression}`, or `${+expression}` if `reserved`."""

    expression: Expression
    reserved: bool


def placeholders(value: Json) -> Iterator[Placeholder]:
    """Every placeholder in a value, nested ones too. Raises ProviderFileError for one that is not JMESPath."""
    match value:
        case str():
            yield from (part for part in _parts(value) if isinstance(part, Placeholder))
        case dict():
            for child in value.values():
                yield from placeholders(child)
        case list():
            for child in value:
                yield from placeholders(child)


def literals(text: str) -> list[str]:
    """What stands between a text's placeholders."""
    return [part for part in _parts(text) if isinstance(part, str)]


def lone(text: str) -> Placeholder | None:
    """The placeholder that a text is, if it is one and nothing else."""
    match _parts(text):
        case (Placeholder() as one,):
            return one
    return None


def leading(text: str) -> Placeholder | None:
    """The placeholder that a URL is or begins with as it is (`${+…}`), if there is one: its value is a link."""
    match _parts(text):
        case (Placeholder() as one, *others) if one.reserved or not others:
            return one
    return None


def names_its_host(text: str) -> bool:
    """Whether a URL says which host it leads to: all of it, or its domain, below which a value is one label or more."""
    marked = "".join(part if isinstance(part, str) else _UNSAFE if part.reserved else _LABEL for part in _parts(text))
    found = _AUTHORITY.match(marked)
    host = found[1] if found else _UNSAFE
    return _UNSAFE not in host and (_LABEL not in host or "." in host.rpartition(_LABEL)[2])


def stays_on_the_server(text: str) -> bool:
    """Whether a URL begins with text of its own that names no host: no value may lead it elsewhere then."""
    return all(isinstance(part, str) and not _NAMES_A_HOST.match(part) for part in _parts(text)[:1])


def without_value(text: str, context: Json) -> list[Expression]:
    """What keeps a URL from being one: placeholders that are null, empty within the path, or the whole and no text."""
    in_path, lacking = True, []
    for part in _parts(text):
        if isinstance(part, str):
            in_path = in_path and "?" not in part and "#" not in part
            continue
        value = part.expression.of(context)
        if value is None or (value == "" and in_path) or (lone(text) and not isinstance(value, str)):
            lacking.append(part.expression)
    return lacking


def fill(value: Json, context: Json) -> Json:
    """The value with its placeholders replaced, nested ones too; a lone placeholder keeps its value's type.

    A field, or a value of a list, that is a placeholder without a value is left out, at every depth: most APIs refuse
    null where they take a field that is not there. What is null within a value, or in the file itself, stays null.
    """
    match value:
        case str():
            if one := lone(value):
                return one.expression.of(context)
            return "".join(p if isinstance(p, str) else text_of(p.expression.of(context)) for p in _parts(value))
        case dict():
            filled = {name: fill(child, context) for name, child in value.items()}
            return {name: one for name, one in filled.items() if one is not None or value[name] is None}
        case list():
            pairs = ((child, fill(child, context)) for child in value)
            return [one for child, one in pairs if one is not None or child is None]
    return value


def with_stand_ins(value: Json, roots: Collection[str]) -> Json:
    """The value with an `x` for each placeholder that refers to one of these roots."""
    match value:
        case str():
            return "".join(part if isinstance(part, str) else _stand_in(part, roots) for part in _parts(value))
        case dict():
            return {name: with_stand_ins(child, roots) for name, child in value.items()}
        case list():
            return [with_stand_ins(child, roots) for child in value]
    return value


def _stand_in(one: Placeholder, roots: Collection[str]) -> str:
    if any(one.expression.refers_to(root) for root in roots):
        return "x"
    return f"${{{'+' if one.reserved else ''}{one.expression.text}}}"


def fill_url(text: str, context: Json) -> str | None:
    """The URL, its values percent-encoded; None when it is `without_value`. A lone placeholder is a whole URL.

    Raises ValueError for a value that leads out of its place: a `.` or `..` between slashes, spaces aside, and of
    `${+…}` any dots in any spelling, or with an empty segment, a backslash, a `;`, a control character, UTF-8 longer
    than it must be, a `%u` escape, a `?` or `#` before what follows it.
    """
    if without_value(text, context):
        return None
    if one := lone(text):
        return text_of(one.expression.of(context))
    url, seen, harmless = "", "", ""  # the last two only of the path; `seen` as a server may, which decodes first
    in_path, last = True, len(_parts(text)) - 1
    for number, part in enumerate(_parts(text)):
        if isinstance(part, str):
            added = part
            shown = usual = _ENDS.split(part)[0]
        else:
            value = text_of(part.expression.of(context))
            added = quote(value, safe=_RESERVED if part.reserved else "")
            shown = _shown(_ENDS.split(value)[0]) if part.reserved else _dots(value) or added.replace(".", "x")
            usual = shown if part.reserved and number == 0 else "x"
            if part.reserved and number and _leaves(value, in_path=in_path, is_last=number == last):
                raise ValueError("a value leads to another path")
        url += added
        if in_path:
            seen, harmless, in_path = seen + shown, harmless + usual, not _ENDS.search(added)
    if any(len(ways.findall(seen)) > len(ways.findall(harmless)) for ways in (_CLIMBS, _EMPTY)):
        to_host = stays_on_the_server(text) and _NAMES_A_HOST.match(url)
        raise ValueError(f"a value leads to another {'host' if to_host else 'path'}")
    return url


def _dots(value: str) -> str:
    """A `.` or `..` that a value is to servers that trim spaces, or fold wide dots."""
    trimmed = normalize("NFKC", value).strip()
    return trimmed if trimmed in (".", "..") else ""


def _shown(value: str) -> str:
    """A value as a server may read it that folds wide characters."""
    return normalize("NFKC", _decoded(value).decode(errors="replace"))


def _leaves(value: str, *, in_path: bool, is_last: bool) -> bool:
    """Whether a value of `${+…}` ends what it stands in before its end, or holds what servers may take for that."""
    ends = _ENDS.search(value) if in_path else "#" in value
    if ends and not is_last:
        return True
    shown = _decoded(_ENDS.split(value)[0])
    return in_path and bool(_OTHER_DOTS.search(shown) or _NOT_IN_PATH.search(shown.decode(errors="replace")))


def _decoded(value: str) -> bytes:
    """A value as it is once those on the way have decoded it, each for itself."""
    decoded = value.encode(errors="surrogatepass")
    for _ in range(_DECODERS):
        decoded = unquote_to_bytes(decoded)
    return decoded


def text_of(value: Json) -> str:
    """A value as text: a string as it is, null as nothing, anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value)


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[str | Placeholder, ...]:
    """A text taken apart."""
    parts: list[str | Placeholder] = []
    before, mark, rest = text.partition("${")
    while mark and "}" in rest:
        reserved = rest.startswith("+")
        expression, after = _expression(rest[reserved:])
        parts += [before, Placeholder(expression, reserved)]
        before, mark, rest = after.partition("${")
    return tuple(part for part in [*parts, before + mark + rest] if part)


def _expression(text: str) -> tuple[Expression, str]:
    """The expression before the first `}` that leaves JMESPath, which has braces of its own, and what follows."""
    for end in re.finditer("}", text):
        with suppress(ProviderFileError):
            return Expression(text[: end.start()]), text[end.end() :]
    return Expression(text.partition("}")[0]), ""  # raises
