"""Whom the double's gate lets pass, and what it hears of the provider: as gate.lua does."""

import math
from collections.abc import Sequence

from shared.limits import Health, Limits
from shared.queue import Settle
from tests.support.memory_parts import Parts, whole_ms

AGAIN_MS = 1000
FULL_SPEED = 200


def saved_up(parts: Parts, limits: Limits, now_ms: float) -> tuple[float, float]:
    """What the rate has saved up, in attempts, and how many ms it lacks to a whole burst."""
    attempt_ms = (limits.rate_seconds or 0) * 1000
    whole = limits.burst * attempt_ms
    lacking = max(0.0, (parts.number("full_at") or now_ms) - now_ms)
    if lacking > whole + 1:
        lacking = whole - attempt_ms
    return max(0.0, whole - lacking) / attempt_ms, lacking


class Pass:
    """What the gate lets through at `now_ms` while `live` are under way: so many attempts, else `wait_ms`.

    `slow`: how many it lets through after a pause; None at full speed.
    """

    def __init__(self, parts: Parts, limits: Limits, now_ms: float, live: int, wanted: int) -> None:
        self._parts, self._limits, self._now_ms = parts, limits, now_ms
        self.allowed, self.wait_ms = wanted, float(AGAIN_MS)
        self.slow: float | None = None
        self._is_probe, self._full_at = False, None if limits.rate_seconds is None else now_ms
        until, slow = parts.pause_end(now_ms), parts.number("slow")
        is_paused = until is not None and now_ms < until
        if until is not None and (is_paused or parts.leases.get(parts.gate.get("probe", ""), 0) > now_ms):
            self.allowed, self._full_at = 0, None
            self.wait_ms = math.ceil(until - now_ms) if is_paused else AGAIN_MS
            return
        if until is not None:
            self._is_probe, self.allowed = True, min(wanted, 1)
        elif slow is not None:
            self.slow = slow - live
            self.allowed = int(min(wanted, self.slow))
        if limits.parallel is not None:
            self.allowed = min(self.allowed, limits.parallel - live)
        if limits.rate_seconds is not None:
            self._count(limits.rate_seconds * 1000)
        self.allowed = max(self.allowed, 0)

    def _count(self, attempt_ms: float) -> None:
        saved, lacking = saved_up(self._parts, self._limits, self._now_ms)
        if math.floor(saved) < self.allowed:
            self.allowed, self.wait_ms = math.floor(saved), math.ceil((1 - saved % 1) * attempt_ms)
        self._full_at = self._now_ms + lacking

    def admit(self, names: Sequence[str]) -> None:
        if names and self._is_probe:
            self._parts.gate["probe"] = names[0]
        if names and self._full_at is not None:
            self._parts.set_number("full_at", self._full_at + len(names) * (self._limits.rate_seconds or 0) * 1000)


def hear(parts: Parts, rows: Sequence[Settle], done: Sequence[bool], health: Health, now_ms: float) -> None:
    """Write into the gate what settling these told, of those that were still held."""
    names = [row.hold.task.name for row in rows]
    replies = [
        (name in health.well) - (name in health.unwell) if is_held else 0
        for name, is_held in zip(names, done, strict=True)
    ]
    good, probe = replies.count(1), parts.gate.get("probe")
    probed = next((reply for name, reply in zip(reversed(names), reversed(replies), strict=True) if name == probe), 0)
    pause_ms = float(whole_ms(health.pause_seconds))
    until, pauses, slow = parts.pause_end(now_ms), parts.number("pauses") or 0, parts.number("slow")
    is_paused = until is not None and now_ms < until
    errors = -1 if health.well else health.errors
    in_a_row = (parts.number("troubles") or 0) + errors
    if errors or pause_ms > 0:
        parts.gate.pop("troubles", None)
    if errors > 0:
        parts.set_number("troubles", in_a_row)
    is_enough = errors > 0 and in_a_row >= health.errors_to_pause
    if not is_paused and ((until is not None and probed < 0) or is_enough):
        grown = whole_ms(health.shortest_seconds) * 2**pauses
        pause_ms = max(pause_ms, min(whole_ms(health.longest_seconds), grown))
    if pause_ms > 0:
        parts.set_number("until", max(until or 0, now_ms + math.ceil(pause_ms)))
        parts.set_number("pauses", pauses + (not is_paused))
        parts.gate.pop("slow", None)
    elif probed > 0 and not is_paused:
        for field in ("troubles", "until", "probe", "pauses"):
            parts.gate.pop(field, None)
        parts.set_number("slow", 1 + good)
    elif slow is not None and good and until is None:
        if slow + good < FULL_SPEED:
            parts.set_number("slow", slow + good)
        else:
            parts.gate.pop("slow")
    if not parts.queue:
        parts.gate.pop("slow", None)
