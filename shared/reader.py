"""Reads one object of a provider file; every fault names its place, and a key that nobody read is a fault."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared.codec import Json
from shared.errors import ProviderFileError
from shared.template import Expression

T = TypeVar("T")

_MISSING: Any = object()


@dataclass(slots=True)
class Reader:
    """One object at `place`, a path such as `$.submit`. Every method raises ProviderFileError."""

    value: Mapping[str, Json]
    place: str = "$"
    read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise ProviderFileError(f"{self.place}: must be an object")

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def skip(self, *keys: str) -> None:
        self.read.update(keys)

    def get(self, key: str, kind: type[T], default: Any = _MISSING) -> Any:
        self.read.add(key)
        if key not in self.value and default is not _MISSING:
            return default
        value = self.value.get(key, _MISSING)
        if value is _MISSING:
            raise ProviderFileError(f"{self.place}.{key}: is missing")
        if not isinstance(value, kind):
            raise ProviderFileError(f"{self.place}.{key}: must be of type {kind.__name__}")
        return value

    def number(self, key: str, default: Any = _MISSING) -> float:
        value = self.get(key, (int, float), default)  # type: ignore[arg-type]
        if isinstance(value, bool) or value < 0:
            raise ProviderFileError(f"{self.place}.{key}: must be a number from 0 on")
        return float(value)

    def one_of(self, key: str, *choices: str, default: Any = _MISSING) -> Any:
        value = self.get(key, str, default)
        if value not in choices:
            raise ProviderFileError(f"{self.place}.{key}: must be one of {', '.join(choices)}")
        return value

    def list_of(self, key: str, kind: type[T], default: Any = _MISSING) -> list[T]:
        values: list[T] = self.get(key, list, default)
        if (not values and key in self.value) or not all(isinstance(value, kind) for value in values):
            raise ProviderFileError(f"{self.place}.{key}: must be a list of {kind.__name__}, not empty")
        return values

    def reader(self, key: str, default: Any = _MISSING) -> "Reader":
        return Reader(self.get(key, dict, default), f"{self.place}.{key}")

    def readers(self, key: str, default: Any = _MISSING) -> list["Reader"]:
        values: list[Json] = self.get(key, list, default)
        if not values and default is _MISSING:
            raise ProviderFileError(f"{self.place}.{key}: must not be empty")
        return [Reader(value, f"{self.place}.{key}[{i}]") for i, value in enumerate(values)]

    def one_or_many(self, key: str) -> list["Reader"]:
        """An object, or a list of them."""
        if isinstance(self.value.get(key), list):
            return self.readers(key)
        return [self.reader(key)]

    def expression(self, key: str, text: str) -> Expression:
        try:
            return Expression(text)
        except ProviderFileError as error:
            raise ProviderFileError(f"{self.place}.{key}: {error}") from error

    def done(self) -> None:
        unknown = sorted(set(self.value) - self.read)
        if unknown:
            raise ProviderFileError(f"{self.place}.{unknown[0]}: is not supported")
