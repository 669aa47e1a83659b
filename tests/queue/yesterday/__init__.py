"""The release before: its scripts as they were, and just enough of its client to call them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shared.limits import UNLIMITED, Limits
from tests.support.keys import PREFIX

KEYS = ("queue", "leases", "state", "tasks", "dead", "gate", "jobs", "groups", "served")
HEARD = (0, 0, 5, 0, 0)
"""Nothing is told of the provider."""


class Taken(NamedTuple):
    """A task that its claim handed out."""

    name: str
    generation: int
    token: str


class Yesterday:
    """The queue's verbs as they were, for one provider."""

    def __init__(self, client: Any, provider: str) -> None:
        self._client = client
        base = f"{{{PREFIX}:{provider}}}"
        self._keys = [base, *(f"{base}:{key}" for key in KEYS[1:])]
        text = {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.lua")}
        self._scripts = {verb: text["prelude"] + script for verb, script in text.items()}

    def add(
        self,
        names: Sequence[str],
        generation: int,
        *,
        token: str,
        delay_ms: int = 0,
        lease_ms: int = 0,
        group: str = "",
        has_job: bool = False,
        limits: Limits = UNLIMITED,
    ) -> list[str]:
        rows = [value for name in names for value in (name, generation, delay_ms, "{}", group, int(has_job))]
        answers: list[str] = self._call("add", token, lease_ms, *_limits(limits), *rows)
        return answers

    def claim(
        self, *, token: str, lease_ms: int, limit: int = 10, suspect: bool = False, limits: Limits = UNLIMITED
    ) -> list[Taken]:
        _, _, _, *rest = self._call("claim", token, lease_ms, limit, int(suspect), *_limits(limits))
        return [Taken(name, int(generation), token) for name, generation, _, _ in zip(*[iter(rest)] * 4, strict=True)]

    def settle(self, verb: str, taken: Taken, *, delay_ms: int = 0, has_job: bool = True) -> bool:
        """`verb` is complete, release or bury."""
        more = (delay_ms, "{}", int(has_job)) if verb == "release" else ()
        return bool(self._call(verb, *HEARD, taken.name, taken.token, taken.generation, *more, 0)[0])

    def forget(self, name: str, generation: int) -> bool:
        return bool(self._call("forget", *HEARD, name, generation, 0)[0])

    def end(self, name: str, generation: int, becomes: str) -> bool:
        return bool(self._call("end", name, generation, becomes)[0])

    def hasten(self, name: str, generation: int) -> bool:
        return bool(self._call("hasten", name, generation, 0)[0])

    def strays(self) -> set[str]:
        found = set()
        for number, key in enumerate(KEYS, 1):
            if key in ("leases", "state", "tasks", "jobs", "groups"):
                found |= {*self._call("strays", number, 0)[1]}
        return found

    def _call(self, verb: str, *arguments: Any) -> Any:
        return self._client.eval(self._scripts[verb], len(self._keys), *self._keys, *arguments)


def _limits(limits: Limits) -> tuple[float, ...]:
    return limits.parallel or 0, limits.open_jobs or 0, 0, limits.burst
