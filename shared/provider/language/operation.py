"""Operations: one HTTP request of a provider file, its placeholders not yet filled."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.next_page import NextPage
from shared.provider.language.part import ABSENT, Part, by_default, says
from shared.provider.language.placeholder import placeholders

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Decoding: TypeAlias = Literal["auto", "json", "jsonl", "csv", "text", "url"]
Timeout: TypeAlias = Annotated[float, Meta(gt=0, le=600)]
ContentType: TypeAlias = Literal["application/json", "application/x-www-form-urlencoded", "text/plain", "text/csv"]

DEFAULT_TIMEOUT_SECONDS = 20.0
WITH_PLACEHOLDERS = ("url", "query", "headers", "body")  # the parts of an operation that may hold placeholders


class Operation(Part, frozen=True, kw_only=True):
    """One HTTP request, and how to read its reply."""

    method: Annotated[Method, says("the method")] = "GET"
    url: Annotated[str, says("absolute, or relative to servers[0]; values are encoded, but for ${+…} and a lone ${…}")]
    query: Annotated[
        dict[str, Any], says("added to the URL: a list is repeated, null left out, other non-text values sent as JSON")
    ] = field(default_factory=dict)
    headers: Annotated[
        dict[str, str], says("a ${…} that is null is left out; give ${task.id} as idempotency key where there is one")
    ] = field(default_factory=dict)
    body: Annotated[
        Json, says("any JSON; a text that is one placeholder keeps its value's type, and is left out without a value")
    ] = None
    content_type: Annotated[
        ContentType, says("the Content-Type, unless headers has one; a form takes an object, text and CSV a text")
    ] = "application/json"
    repeatable: Annotated[bool, says("submit: sent again it begins no second job; `check` asks for no key")] = False
    outputs: Annotated[
        dict[str, Expression],
        says("from every reply below 400, kept with the task; null and empty texts never overwrite"),
    ] = field(default_factory=dict)
    decode: Annotated[
        Decoding, says("`auto`: by content type; `csv`: objects, named by the first line; `url`: keep the link itself")
    ] = "auto"
    next: Annotated[
        NextPage, says("last result operation: the URL of the next page, until there is none; the lists are joined")
    ] = by_default(ABSENT)
    optional: Annotated[bool, says("result: when the URL has no value the data is null, not tried again")] = False
    timeout: Annotated[
        Timeout, says("seconds for this request, never more than what is left of the attempt (`ATTEMPT_SECONDS`)")
    ] = DEFAULT_TIMEOUT_SECONDS

    def placed(self) -> list[tuple[str, Expression]]:
        """The expressions of its placeholders, each with the part that it stands in."""
        return [(part, one.expression) for part in WITH_PLACEHOLDERS for one in placeholders(getattr(self, part))]
