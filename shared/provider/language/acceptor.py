"""Acceptors: which replies mean pending, success, failure, retry or resubmit. The vocabulary of botocore's waiters."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.part import ABSENT, Part, by_default, says

Verdict: TypeAlias = Literal["pending", "success", "failure", "retry", "resubmit"]
Stage: TypeAlias = Literal["submit", "poll", "result"]
Matcher: TypeAlias = Literal["path", "pathAny", "pathAll", "status"]

TRANSIENT = frozenset({301, 302, 303, 304, 307, 308, 407, 408, 420, 421, 425, 429, 430, 444, 449, 460, 499})
"""Below 500: what proxies, edges and balancers say for themselves (RFC 9110, 15.5; nginx, AWS, Shopify, IIS), redirects
that cannot be followed, and a 304 to a request that has asked for none."""
REQUEST_AT_FAULT = frozenset({501, 505, 506, 510})
"""From 500 on: what says that this request will never be served as it is (RFC 9110, 15.6)."""

_POLL: frozenset[Stage] = frozenset({"poll"})
_SUBMIT_AND_POLL: frozenset[Stage] = frozenset({"submit", "poll"})


class Acceptor(Part, frozen=True, kw_only=True):
    """One rule: a reply whose `argument` matches one of `expected` means `state`, in the stages `on`."""

    state: Annotated[Verdict, says("what it means: `resubmit` begins a new job, `retry` says nothing of the job")]
    matcher: Annotated[
        Matcher, says("`path`: the argument; `pathAny`, `pathAll`: any, all of its values; `status`: the HTTP status")
    ] = "path"
    argument: Annotated[Expression, says("what is compared; absent: `status` of the file")] = by_default(ABSENT)
    expected: Annotated[Json, says("a value, or a list (any of): texts in any case; with `status` 404 or `2XX`")]
    on: Annotated[
        frozenset[Stage] | UnsetType,
        says("whose replies it judges; absent: submit and poll, where it is about a status poll"),
    ] = UNSET
    message: Annotated[Expression, says("the text of a failure, instead of `error` of the file")] = by_default(ABSENT)

    @property
    def any_of(self) -> list[Json]:
        """The values, one of which is expected."""
        return self.expected if isinstance(self.expected, list) else [self.expected]

    @property
    def is_about_status(self) -> bool:
        """Whether it looks at the HTTP status alone."""
        return self.matcher == "status" or self.argument.references == {("statusCode", None)}

    @property
    def stages(self) -> frozenset[Stage]:
        """The stages whose replies it judges.

        A word means the same wherever it stands, and a job may be done at once. A status does not: 200 of a submit says
        that the job was begun, 200 of a poll that it is done; and so do numbers like it that stand in a body.
        """
        if self.on is not UNSET:
            return self.on
        return _POLL if self.is_about_status or all(map(_is_like_status, self.any_of)) else _SUBMIT_AND_POLL

    def matches(self, envelope: dict[str, Json]) -> bool:
        """Whether the reply in `envelope` is one that this acceptor means."""
        if self.matcher == "status":
            return any(_is_status(envelope["statusCode"], expected) for expected in self.any_of)
        found = self.argument.of(envelope)
        if self.matcher == "path":
            return self._expects(found)
        values = found if isinstance(found, list) else []
        if self.matcher == "pathAny":
            return any(self._expects(value) for value in values)
        return bool(values) and all(self._expects(value) for value in values)

    def names(self, status: int) -> bool:
        """Whether this acceptor is about that HTTP status; a redirect that it names is a reply, not a detour."""
        return self.is_about_status and self.matches({"statusCode": status})

    def _expects(self, found: Json) -> bool:
        return any(_is_equal(found, expected) for expected in self.any_of)


def judge(
    acceptors: Sequence[Acceptor], stages: set[Stage], envelope: dict[str, Json]
) -> tuple[Verdict, Acceptor | None]:
    """What a reply means: as the acceptor says that decides, else by its HTTP status."""
    acceptor = deciding(acceptors, stages, envelope)
    if acceptor:
        return acceptor.state, acceptor
    return usual(envelope["statusCode"], is_result="result" in stages), None


def deciding(acceptors: Sequence[Acceptor], stages: set[Stage], envelope: dict[str, Json]) -> Acceptor | None:
    """The first acceptor that matches in one of `stages`; where the reply has no status, that is None."""
    for acceptor in acceptors:
        is_asked = acceptor.stages & stages and not _passes_by(acceptor, stages, envelope["statusCode"])
        if is_asked and acceptor.matches(envelope):
            return acceptor
    return None


def _passes_by(acceptor: Acceptor, stages: set[Stage], status: int | None) -> bool:
    """Whether it is a range such as `2XX` for a success, and the status 202: there is nothing yet (RFC 9110, 15.3.3).

    To a submit that may be all that is asked for.
    """
    is_range = acceptor.matcher == "status" and acceptor.state == "success" and 202 not in acceptor.any_of
    return is_range and status == 202 and "submit" not in stages


def usual(status: int, *, is_result: bool) -> Verdict:
    """What a status means where no acceptor says: a job fails by none that somebody between us and the API may make."""
    if 200 <= status <= 299:
        return "success" if is_result and status != 202 else "pending"
    return "retry" if is_transient(status) else "failure"


def is_transient(status: int) -> bool:
    """Whether a status may pass. One above 599 is taken for a server's error (RFC 9110, 15)."""
    return status in TRANSIENT or (status >= 500 and status not in REQUEST_AT_FAULT)


def _is_equal(found: Json, expected: Json) -> bool:
    """Texts are compared trimmed and in any case; everything else strictly: true is not 1, "200" is not 200."""
    match found, expected:
        case str(), str():
            return found.strip().casefold() == expected.strip().casefold()
        case (bool(), _) | (_, bool()):
            return found is expected
        case list(), list():
            return len(found) == len(expected) and all(map(_is_equal, found, expected))
        case dict(), dict():
            return found.keys() == expected.keys() and all(_is_equal(found[key], expected[key]) for key in found)
    return bool(found == expected)


def _is_like_status(expected: Json) -> bool:
    return isinstance(expected, int | float) and 100 <= expected <= 599


def is_status(expected: Json) -> bool:
    """Whether a status matcher can expect this: a status, or a range such as `2XX`."""
    if isinstance(expected, str):
        return re.fullmatch(r"[1-5][0-9xX]{2}", expected) is not None
    return isinstance(expected, int | float) and not isinstance(expected, bool)


def _is_status(status: int, expected: Json) -> bool:
    if isinstance(expected, str):
        return re.fullmatch(expected.upper().replace("X", r"\d"), str(status)) is not None
    return bool(status == expected)
