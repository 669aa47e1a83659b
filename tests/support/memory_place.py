"""Where a task stands in the double, and when an attempt of it may begin: as place.lua says."""

import math

from shared.limits import Limits
from shared.queue import Place
from shared.queue.values import HeldUp
from tests.support.memory_gate import AGAIN_MS, saved_up
from tests.support.memory_lines import member_of
from tests.support.memory_parts import Parts
from tests.support.memory_wake import first_with_job

HORIZON_MS = 366 * 86_400_000


def place_of(parts: Parts, name: str, limits: Limits, now_ms: float, *, with_record: bool) -> Place:
    due, lease, state = parts.queue.get(name), None, parts.parsed(name)
    waits_since, came_back = due, state.came_back
    if due == 0:
        due, lease = None, parts.leases.get(name)
        is_over = lease is not None and lease <= now_ms
        waits_since, came_back = (lease, 1) if is_over else (None, came_back)
    buried, record = parts.dead.get(name), parts.tasks.get(name) if with_record else None
    wait_ms: float | None = None
    held_up: HeldUp = ""
    if waits_since is not None:
        wait_ms, held_up = may_begin(parts, name, waits_since, came_back, limits, now_ms)
    return Place(
        state.generation,
        None if due is None else (due - now_ms) / 1000,
        None if lease is None else (lease - now_ms) / 1000,
        None if buried is None else (now_ms - buried) / 1000,
        None if record is None else record.encode(),
        None if wait_ms is None else wait_ms / 1000,
        held_up,
    )


def may_begin(
    parts: Parts, name: str, due: float, came_back: int, limits: Limits, now_ms: float
) -> tuple[float, HeldUp]:
    """In how many ms an attempt may begin, and what puts it off beyond its due time."""
    live = sum(end > now_ms for end in parts.leases.values())
    has_job, group = name in parts.jobs, parts.groups.get(name, "")
    own = member_of(group, due, name)
    lanes = () if came_back else (parts.lines, parts.job_lines)
    fresh, with_job = [sum(f"{group}\0" <= member < own for member in lane) for lane in lanes] or (0, 0)
    ahead = with_job + (0 if has_job else fresh)
    again_ms, waits = AGAIN_MS if due <= now_ms else 0, list[tuple[float, HeldUp]]()
    until, slow = parts.pause_end(now_ms), parts.number("slow")
    if until is not None:
        waits.append((math.ceil(until - now_ms), "paused"))
        if ahead or parts.leases.get(parts.gate.get("probe", ""), 0) > now_ms:
            waits.append((again_ms, "paused"))
    elif slow is not None and math.floor(slow) - live <= ahead:
        waits.append((again_ms, "slow start"))
    if limits.rate_seconds is not None:
        saved, _ = saved_up(parts, limits, now_ms)
        waits.append((math.ceil((ahead + 1 - saved) * limits.rate_seconds * 1000), "limited"))
    if limits.parallel is not None and limits.parallel - live <= ahead:
        waits.append((again_ms, "limited"))
    if limits.open_jobs is not None and not has_job and limits.open_jobs - len(parts.jobs) <= fresh:
        job_due = now_ms if live else first_with_job(parts)
        waits.append((max(again_ms, math.ceil((now_ms if job_due is None else job_due) - now_ms)), "limited"))
    wait_ms: float = max(0, math.ceil(due - now_ms))
    why: HeldUp = ""
    for ms, reason in waits:
        if ms > wait_ms:
            wait_ms, why = ms, reason
    return min(wait_ms, HORIZON_MS), why
