"""JSON in and out: strict, compact, and exact for every number that a double or an integer can hold."""

import json
import math
from collections import Counter
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias

Json: TypeAlias = Any  # what `loads` returns: None, bool, int, float, str, list or dict, nested at most MAX_DEPTH deep

MAX_DEPTH = 128
OWN_DEPTH = 2 * MAX_DEPTH  # for texts of our own, which wrap what came from outside


class DuplicateKey(ValueError):
    """An object names `key` twice."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key[:64]!r} stands twice in one object")
        self.key = key


def loads(text: str | bytes, *, unique_keys: bool = False, max_depth: int = MAX_DEPTH) -> Json:
    """The value of a JSON text (RFC 8259).

    Raises ValueError for what is not JSON, NaN and Infinity, a number outside a double's range, invalid UTF-8,
    nesting over `max_depth` and, with `unique_keys`, an object that names a key twice.
    """
    text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
    with suppress(RecursionError):  # json's own limit is deeper still
        value = (_DECODER_OF_UNIQUE if unique_keys else _DECODER).decode(text)
        if is_flat(text, max_depth) or not _deeper_than(max_depth, value):
            return value
    raise ValueError(f"nested deeper than {max_depth} levels")


def is_flat(text: str, depth: int = OWN_DEPTH) -> bool:
    """Whether a JSON text is seen at once to be nested no deeper; most are."""
    return text.count("[") + text.count("{") <= depth


def dumps(value: Json) -> str:
    """The compact JSON text of a value, as UTF-8 can carry it (a lone surrogate stays an escape)."""
    text = _ENCODER.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ASCII_ENCODER.encode(value)
    return text


def canonical(value: Json) -> str:
    """One text for equal values: keys sorted, ASCII only. Digests are made of it."""
    return _SORTING_ENCODER.encode(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is outside the range of a double")
    return number


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise DuplicateKey(next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1))
    return value


# made once: json.loads and json.dumps would make one for every call
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_DECODER_OF_UNIQUE = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_SORTING_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=True)


def _deeper_than(depth: int, value: Json) -> bool:
    level = [value]
    for _ in range(depth + 1):
        parents = (one for one in level if isinstance(one, dict | list))
        level = [child for one in parents for child in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return True


def carried(text: str) -> int:
    """The bytes that a JSON text takes as the body of an answer, itself a string in the JSON that Lambda carries."""
    return len(text.encode()) + text.count('"') + text.count("\\")
