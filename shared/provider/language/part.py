"""What every object of a provider file has in common, and the types of its values."""

import re
from typing import Annotated, Any, Self, TypeAlias

from msgspec import Meta, Struct, field

from shared.codec import Json
from shared.errors import ProviderFileError
from shared.provider.language.expression import Expression
from shared.provider.wire.origin import has_origin

YEAR_SECONDS = 31_536_000.0  # the longest span in a file
_MOST = 100_000  # the largest number: so many times the longest span in ms is still exact in the scripts' numbers

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=YEAR_SECONDS)]
Positive: TypeAlias = Annotated[float, Meta(gt=0, le=YEAR_SECONDS)]
Count: TypeAlias = Annotated[float, Meta(ge=0, le=_MOST, multiple_of=1)]
AtLeastOne: TypeAlias = Annotated[float, Meta(ge=1, le=_MOST, multiple_of=1)]  # a float, for 3.0 is as whole as 3


class Part(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An object of a provider file: its keys are the fields in camelCase, any other key is a fault."""


class Url(str):
    """An absolute http(s) URL. Raises ProviderFileError."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if not has_origin(text):
            raise ProviderFileError("must be an absolute URL that begins with http:// or https://")
        return super().__new__(cls, text)


class Reference(str):
    """Where a secret is. Raises ProviderFileError, which tells nothing of the text: it may be the secret."""

    __slots__ = ()
    PATTERN = r"ssm:/\S+|secretsmanager:\S+|env:[A-Za-z_]\w*"

    def __new__(cls, text: str) -> Self:
        if not re.fullmatch(cls.PATTERN, text):
            raise ProviderFileError("must be a reference (ssm:/path, secretsmanager:id#key, env:NAME), never a secret")
        return super().__new__(cls, text)


class References(tuple[Reference, ...]):
    """Where a secret is, or where each of several is that are good at the same time. Raises ProviderFileError."""

    __slots__ = ()

    def __new__(cls, given: Json) -> Self:
        several = given if isinstance(given, list) else [given]
        if not several or not all(isinstance(one, str) for one in several):
            raise ProviderFileError("must be a reference or a list of references")
        return super().__new__(cls, map(Reference, several))


ABSENT = Expression("null")  # what a file does not have, as an expression: it finds nothing


def says(description: str) -> Meta:
    """What a field means, for completion and hover in editors and for the tables of docs/providers.md."""
    return Meta(description=description)


def by_default(expression: Expression) -> Any:
    """The expression that a field is where a file has none."""
    return field(default_factory=lambda: expression)


def made(kind: type, value: Json) -> Json:
    """A value of a type that msgspec does not know. Raises ValueError."""
    if not isinstance(value, str) and kind is not References:
        raise ValueError("must be a text")
    try:
        return kind(value)
    except ProviderFileError as error:
        raise ValueError(str(error)) from error
