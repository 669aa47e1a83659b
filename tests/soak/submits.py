"""Whether a provider was given a job twice only where that cannot be helped, and always under the same key.

A second submit under one key is no fault where the first one's answer was not stored when whoever sent the second
looked, for a reason that the design names: its reply was lost or late, its process ended or stood still, its write
failed.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.soak.history import Fault, History, Submit, task_of
from tests.soak.journal import Event
from tests.soak.plan import ATTEMPT_SECONDS, FIRST_ANSWER_SECONDS, LEASE_SECONDS

PROMPT_SECONDS = 0.5
"""An answer that took longer may have met nobody any more; a request is on its way for less."""

LOOK_SECONDS = LEASE_SECONDS + ATTEMPT_SECONDS
"""A look at the item longer ago was not for this submit."""


def check(history: History) -> Iterator[Fault]:
    """Every submit that should not have been."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for event in history.of("asked"):
        if event["verb"] in ("submit", "ask"):
            by_key[event["key"]].append(event)
    for key, events in by_key.items():
        events.sort(key=lambda event: event["begun"])
        why = _of_key(history, history.submits.get(key), events)
        if why:
            yield Fault("doubled", str(task_of(events[0])), why, history.about(str(task_of(events[0]))))


def _of_key(history: History, submit: Submit | None, events: list[Event]) -> str | None:
    if submit is None or any(task_of(event) != submit.task for event in events):
        return f"asked under the key {events[0]['key']}, which is {submit}"
    if why := _unfounded_resubmit(history, submit, events[0]):
        return why
    if events[0]["verb"] == "ask":  # without a poll operation a submit is how one asks after it
        return None
    for first, second in pairwise(events):
        if _was_stored(history, submit, second):
            return f"submitted again at {second['begun']:.3f}, although its outputs were stored"
        if not _excuses(history, first, second):
            return f"submitted again at {second['begun']:.3f} although nothing was lost since {first['begun']:.3f}"
    return None


def _unfounded_resubmit(history: History, submit: Submit, event: Event) -> str | None:
    """Why this resubmit should not be; None for the first submit of a generation, too."""
    if submit.resubmits == 0:
        return None
    begin = history.begins[submit.task, submit.generation]
    since = (one for one in history.about_task(submit.task) if begin["at"] < one["at"] < event["begun"])
    lost = {one["job"] for one in since if one["what"] == "asked" and one["said"] == "lost"}
    if len(lost) < submit.resubmits:
        return f"resubmit {submit.resubmits} of generation {submit.generation}, although {len(lost)} jobs were lost"
    before = (write["new"] for write in history.writes[submit.task] if write["at"] < event["begun"])
    stood = any(new["generation"] == submit.generation and new["resubmits"] >= submit.resubmits for new in before)
    return None if stood else f"resubmit {submit.resubmits} of generation {submit.generation} before it was stored"


def _was_stored(history: History, submit: Submit, second: Event) -> bool:
    """Whether the answer to this submit stood in the item when the second one's worker looked."""
    reads = [event for event in history.about_task(submit.task) if event["what"] == "read"]
    looks = [event["at"] for event in reads if event["worker"] == second["worker"]]
    looks = [at for at in looks if second["begun"] - LOOK_SECONDS < at < second["begun"]]
    seen = [one["new"] for one in history.writes[submit.task] if one["at"] < max(looks, default=second["begun"])]
    stored = [(new["generation"], new["resubmits"]) for new in seen if new["outputs"] is not None]
    return (submit.generation, submit.resubmits) in stored


def _excuses(history: History, first: Event, second: Event) -> list[str]:
    """What may have kept the first answer from being stored."""
    found = []
    if first["trouble"] or not first["whole"] or first["at"] - first["begun"] > PROMPT_SECONDS:
        found.append("its reply was lost or late")
    for event in history.by_worker(first["worker"]):
        # who is killed may have sent it already: it was on its way to the provider, whose clock `begun` is
        sent = first["begun"] - PROMPT_SECONDS
        if event["what"] in ("kill", "ended") and sent <= event["at"] <= second["begun"]:
            found.append("its process ended")
        failed = event["what"] == "fault" and event["task"] == task_of(first)
        if failed and first["begun"] <= event["at"] <= second["begun"]:
            found.append("its write failed")
    for event in history.of("freeze"):
        is_held_up = event["worker"] == first["worker"] and event["at"] <= first["at"] + PROMPT_SECONDS
        if is_held_up and event["at"] + event["seconds"] > first["begun"] + FIRST_ANSWER_SECONDS:
            found.append("its process stood still until nobody waited for the reply any more")
    for event in history.long_freezes:
        held_up = event["worker"] in (first["worker"], second["worker"])
        if held_up and event["at"] < second["begun"] and event["at"] + event["seconds"] > first["begun"]:
            found.append("a process stood still beyond its lease")
    return found
