"""Reads one object of a provider file; every fault is noted with its place, and a key that nobody read is a fault."""

import math
import re
from dataclasses import dataclass, field
from typing import Any

from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language.expression import Expression

_MISSING: Any = object()
_REFERENCE = re.compile(r"ssm:/\S+|secretsmanager:\S+|env:[A-Za-z_]\w*")
_KINDS: dict[type, tuple[str, Json]] = {
    str: ("a text", "null"),
    dict: ("an object", {}),
    list: ("a list", []),
    bool: ("true or false", False),
    object: ("a value", None),
}
"""What a kind of value is called, and what is read on with in a faulty one's stead."""


@dataclass(slots=True)
class Reader:
    """One object at `place`, a path such as `$.submit`; its faults and those of what is in it gather in `faults`."""

    value: Json
    place: str = "$"
    faults: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            self.faults.append(f"{self.place}: must be an object")
            self.value, self.faults = {}, []  # no more is to be said of it

    def __contains__(self, key: str) -> bool:
        self.read.add(key)
        return key in self.value

    def fault(self, key: str, reason: str) -> None:
        self.faults.append(f"{self.place}.{key}: {reason}")

    def get(self, key: str, kind: type, default: Any = _MISSING) -> Any:
        self.read.add(key)
        name, stand_in = _KINDS[kind]
        value = self.value.get(key, default)
        if value is _MISSING:
            self.fault(key, "is missing")
            return stand_in
        if not isinstance(value, kind) and value is not default:
            self.fault(key, f"must be {name}")
            return stand_in
        return value

    def number(
        self, key: str, default: Any = _MISSING, *, least: float = 0, most: float = math.inf, beyond: bool = False
    ) -> float:
        """A number from `least` (or, `beyond`, above it) to `most`."""
        value = self.get(key, object, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and least <= value <= min(most, 1e300) and not (beyond and value == least):
            return float(value)
        if key in self.value:
            limits = f" up to {most:g}" if most < math.inf else ""
            self.fault(key, f"must be a number {'above' if beyond else 'from'} {least:g}{limits}")
        return 1.0

    def whole(self, key: str, default: Any = _MISSING, *, least: int = 0) -> int:
        """A whole number from `least` on."""
        value = self.number(key, default, least=least)
        if not value.is_integer():
            self.fault(key, "must be a whole number")
        return int(value)

    def one_of(self, key: str, *choices: str, default: Any = _MISSING) -> Any:
        value = self.get(key, object, default)
        if key in self.value and value not in choices:
            self.fault(key, f"must be one of {', '.join(choices)}")
            return choices[0]
        return value

    def texts(self, key: str, default: Any = _MISSING, *, least: int = 0) -> list[str]:
        """A list of at least so many texts."""
        values: list[Json] = self.get(key, list, default)
        self._require(key, values, least)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                self.fault(f"{key}[{i}]", "must be a text")
        return [value for value in values if isinstance(value, str)]

    def named_texts(self, key: str) -> dict[str, str]:
        """An object of texts."""
        values: dict[str, Json] = self.get(key, dict, {})
        for name, value in values.items():
            if not isinstance(value, str):
                self.fault(f"{key}.{name}", "must be a text")
        return {name: value for name, value in values.items() if isinstance(value, str)}

    def reference(self, key: str) -> str:
        """Where a secret is; never the secret."""
        text: str = self.get(key, str)
        if isinstance(self.value.get(key), str) and _REFERENCE.fullmatch(text) is None:
            self.fault(
                key, "must be a reference (ssm:/path, secretsmanager:id#key or env:NAME), never the secret itself"
            )
        return text

    def expression(self, key: str, default: Any = _MISSING) -> Expression:
        """JMESPath."""
        return self.compiled(key, self.get(key, str, default))

    def compiled(self, key: str, text: str) -> Expression:
        """The JMESPath `text`, which stands in `key`."""
        try:
            return Expression(text)
        except ProviderFileError as error:
            self.fault(key, str(error))
            return Expression("null")

    def reader(self, key: str, default: Any = _MISSING) -> "Reader":
        """An object."""
        if key not in self.value and default is _MISSING:
            self.fault(key, "is missing")
            return Reader({}, f"{self.place}.{key}")
        self.read.add(key)
        return Reader(self.value.get(key, default), f"{self.place}.{key}", self.faults)

    def readers(self, key: str, default: Any = _MISSING, *, least: int = 0) -> list["Reader"]:
        """A list of at least so many objects."""
        values: list[Json] = self.get(key, list, default)
        self._require(key, values, least)
        return [Reader(value, f"{self.place}.{key}[{i}]", self.faults) for i, value in enumerate(values)]

    def one_or_many(self, key: str) -> list["Reader"]:
        """An object, or a list of at least one."""
        return self.readers(key, least=1) if isinstance(self.value.get(key), list) else [self.reader(key)]

    def done(self) -> None:
        """Everything was asked for; what else stands here is a fault."""
        for key in sorted(self.value.keys() - self.read):
            self.fault(key, f"is not known; there are {', '.join(sorted(self.read))}")

    def _require(self, key: str, values: list[Json], least: int) -> None:
        if isinstance(self.value.get(key), list) and len(values) < least:
            self.fault(key, "must not be empty")
