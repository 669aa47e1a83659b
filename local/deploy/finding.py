"""What one check before a deployment has found."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`fault` stops a deployment; `not checked` is what cannot be seen from here."""

    OK = "ok"
    FAULT = "fault"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict on one thing, and a sentence."""

    verdict: Verdict
    about: str
    said: str

    def __str__(self) -> str:
        return f"{self.verdict:<12} {self.about}: {self.said}"


def ok(about: str, said: str) -> Finding:
    return Finding(Verdict.OK, about, said)


def fault(about: str, said: str) -> Finding:
    return Finding(Verdict.FAULT, about, said)


def not_checked(about: str, said: str) -> Finding:
    return Finding(Verdict.NOT_CHECKED, about, said)
