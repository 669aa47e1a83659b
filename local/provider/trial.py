"""Runs one task against the real provider; everything that happens is shown and recorded."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from local.provider.explain import span
from local.provider.recorder import Recorder
from local.provider.replay import without_jitter
from local.provider.wiretap import Wiretap, tapped
from local.provider.witness import Witness
from shared.codec import Json
from shared.errors import SecretUnavailable
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider import Provider
from shared.provider.credentials.credentials import Credentials, ReadSecret
from shared.provider.credentials.mask import Mask
from shared.provider.language.rules import Rules
from shared.provider.language.security import OAuth2
from shared.provider.provider import idempotency_key
from shared.record import Record
from shared.task import Task


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a trial needs from outside. `clock` returns epoch milliseconds."""

    read_secret: ReadSecret
    say: Callable[[str], None] = print
    clock: Callable[[], int] = _now
    sleep: Callable[[float], None] = time.sleep


class Trial:
    """One task, from its submit to its end. Delays are without jitter, so that a replay finds the same."""

    def __init__(self, rules: Rules, task: Task, input_: Json, around: Surroundings) -> None:
        self._task = task
        self._input = input_
        self._around = around
        self._mask = Mask()
        self._names = Mask()
        self._references = [one.client_secret if isinstance(one, OAuth2) else one.secret for one in rules.security]
        self._recorder = Recorder(self._names, rules)
        self._witness = Witness(around.say, self._mask, rules)
        listeners = (self._witness, self._recorder)
        transport = Wiretap(listeners)
        rules = tapped(without_jitter(rules), listeners)
        credentials = Credentials(rules.security, self._secret, transport)
        self._provider = Provider(rules, transport, credentials, random.Random(), self._key)
        now = around.clock()
        self._start = now // 1000 * 1000
        self._late = now - self._start  # so that the first step happens at 0

    def run(self, attempt_seconds: float, max_wait_seconds: float | None = None) -> Outcome:
        """Make attempts until the task ends; wait as answers and file say, but never longer than `max_wait_seconds`."""
        record = Record(generation=self._start, created_at=self._start, input=self._input)
        while True:
            now = self._around.clock() - self._late
            at = (now - self._start) / 1000
            self._around.say(f"\n{at:.1f} s")
            finding = self._provider.attempt(self._task, record, now=now, seconds=attempt_seconds)
            record = Record.from_text(finding.record.to_text())  # as Redis would have it
            self._recorder.step(at, finding.outcome, record)
            self._witness.concluded(finding.outcome, record)
            match finding.outcome:
                case Pending(delay_seconds=delay) | Retry(delay_seconds=delay):
                    self._wait(delay, max_wait_seconds)
                case Completed() | Failed():
                    return finding.outcome
                case _:
                    assert_never(finding.outcome)

    def unreadable(self) -> list[str]:
        """The secrets of the file that cannot be read here, each with the reason."""
        faults = []
        for reference in self._references:
            try:
                self._secret(reference, fresh=False)
            except SecretUnavailable as error:
                is_variable = reference.startswith("env:")
                faults.append(f"{reference}: the variable is not set" if is_variable else str(error))
        return faults

    def vector(self, config: Json) -> dict[str, Any]:
        """What has happened so far, as a conversation for replay."""
        return self._recorder.vector(self._task, config, self._input, self._start // 1000)

    def _secret(self, reference: str, *, fresh: bool) -> str:
        value = self._around.read_secret(reference, fresh=fresh)
        for mask in (self._mask, self._names):
            mask.learn(value)
            mask.learn(value.partition(":")[2])  # a password behind a user
        return value

    def _key(self, task: Task, record: Record) -> str:
        key = idempotency_key(task, record)
        self._names.learn(key, "task-1")  # as every vector has it
        return key

    def _wait(self, delay: float, most: float | None) -> None:
        waits = delay if most is None else min(delay, most)
        if waits < delay:
            self._around.say(f"  (waiting {span(waits)} instead)")
        self._around.sleep(waits)
