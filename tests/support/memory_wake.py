"""When a run must come, in the double: as wake.lua says."""

import math

from shared.limits import Limits
from tests.support.keys import JOB
from tests.support.memory_gate import Pass
from tests.support.memory_parts import Parts

SOON_MS, STANDS_MS, NEAR_MS, HAND_MS, ALIVE_MS = 75_000, 2000, 500, 1000, 62_000


def is_served(parts: Parts, now_ms: float, *, but: str = "") -> bool:
    return any(now_ms < until <= now_ms + ALIVE_MS for run, until in parts.runs.items() if run != but)


def forget_plans(parts: Parts, now_ms: float) -> None:
    for come in [plan for plan, at in parts.plans.items() if at <= now_ms + NEAR_MS]:
        del parts.plans[come]


def begins_in(parts: Parts, limits: Limits, now_ms: float, floor_ms: float) -> float:
    """In how many ms an attempt may begin; infinite: nothing waits that may go."""
    if limits.open_jobs is None or len(parts.jobs) < limits.open_jobs:
        dues = [due for due in parts.queue.values() if due > 0]
    else:
        dues = [] if (first := first_with_job(parts)) is None else [first]
    if not dues:
        return math.inf
    gate = Pass(parts, limits, now_ms, sum(end > now_ms for end in parts.leases.values()), 1)
    due_ms = math.ceil(min(dues) - now_ms) if min(dues) > now_ms else floor_ms
    return max(due_ms, 0 if gate.allowed else gate.wait_ms)


def first_with_job(parts: Parts) -> float | None:
    """When the first is due of those that wait with an open job."""
    came_back = [at - JOB for part in (parts.once, parts.often) for at in part.values() if at >= JOB]
    return min([*parts.job_ring.values(), *came_back], default=None)


def plan(parts: Parts, limits: Limits, now_ms: float, floor_ms: float = 0) -> float | None:
    """The ms until a message must start a run; None for none."""
    wait_ms = begins_in(parts, limits, now_ms, floor_ms)
    if is_served(parts, now_ms) or wait_ms > SOON_MS:
        return None
    if any(now_ms - STANDS_MS <= at <= now_ms + wait_ms + NEAR_MS for at in parts.plans.values()):
        return None
    parts.plans[f"{now_ms + wait_ms:.0f}"] = now_ms + wait_ms
    return wait_ms
