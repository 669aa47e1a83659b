"""Acceptors: which answers mean pending, success, failure, retry or resubmit. The vocabulary of botocore's waiters."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.codec import Json
from shared.template import Expression

Verdict: TypeAlias = Literal["pending", "success", "failure", "retry", "resubmit"]
Stage: TypeAlias = Literal["submit", "poll", "result"]
Matcher: TypeAlias = Literal["path", "pathAny", "pathAll", "status"]

TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptor:
    """One rule: an answer whose `argument` matches one of `expected` means `state`, in the stages `on`."""

    state: Verdict
    matcher: Matcher
    argument: Expression
    expected: tuple[Json, ...]
    on: frozenset[str]
    message: Expression | None

    def matches(self, envelope: dict[str, Json]) -> bool:
        """Whether the answer in `envelope` is one that this acceptor means."""
        if self.matcher == "status":
            return any(_is_status(envelope["statusCode"], expected) for expected in self.expected)
        found = self.argument.of(envelope)
        if self.matcher == "path":
            return self._expects(found)
        values = found if isinstance(found, list) else []
        if self.matcher == "pathAny":
            return any(self._expects(value) for value in values)
        return bool(values) and all(self._expects(value) for value in values)

    def _expects(self, found: Json) -> bool:
        return any(_is_equal(found, expected) for expected in self.expected)


def judge(
    acceptors: Sequence[Acceptor], stages: set[Stage], envelope: dict[str, Json]
) -> tuple[Verdict, Acceptor | None]:
    """What an answer means: the first acceptor that matches in one of `stages`, else by its HTTP status."""
    for acceptor in acceptors:
        if acceptor.on & stages and acceptor.matches(envelope):
            return acceptor.state, acceptor
    status = envelope["statusCode"]
    if 200 <= status <= 299:
        return ("success" if "result" in stages else "pending"), None
    return ("retry" if status in TRANSIENT_STATUSES else "failure"), None


def _is_equal(found: Json, expected: Json) -> bool:
    if isinstance(found, str) and isinstance(expected, str):
        return found.strip().casefold() == expected.strip().casefold()
    if isinstance(found, bool) or isinstance(expected, bool):
        return found is expected
    return bool(found == expected)


def _is_status(status: int, expected: Json) -> bool:
    if isinstance(expected, str):
        pattern = expected.upper().replace("X", r"\d")
        return re.fullmatch(pattern, str(status)) is not None
    return bool(status == expected)
