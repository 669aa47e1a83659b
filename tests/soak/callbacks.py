"""Whether callbacks were believed only where they were genuine and about the generation of the day.

A genuine one that was answered 200 has done its work: an end that it told is stored. Whatever the callback function
wrote is what a genuine callback had told about that very job: that resubmit of that generation.
"""

import json
from collections import defaultdict
from collections.abc import Iterator

from tests.soak.history import Fault, History, Kind
from tests.soak.journal import Event

TOLD_BY = {"completed": "done", "failed": "refused", "pending": "running"}
"""What a callback must have said before the callback function may write such a status."""


def check(history: History) -> Iterator[Fault]:
    """Every callback that was believed and should not have been, or was not and should have been."""
    genuine: dict[tuple[str, int, int], list[Event]] = defaultdict(list)
    for event in history.of("called"):
        submit = history.submits.get(event["key"])
        if submit is None:  # the submit itself is a fault, and told as one
            continue
        for kind, why in _of_call(history, event, submit.task, submit.generation):
            yield Fault(kind, submit.task, why, history.about(submit.task))
        if event["kind"] == "signed":
            genuine[submit.task, submit.generation, submit.resubmits].append(event)
    for event in history.of("write"):
        new = event["new"]
        told = genuine[event["task"], new["generation"], new["resubmits"]]
        if event.get("function") == "callback" and not _is_told(event, told):
            why = f"a callback wrote {new['status']} of generation {new['generation']}, which nobody had told"
            yield Fault("believed", event["task"], why, history.about(event["task"]))


def _of_call(history: History, event: Event, task: str, generation: int) -> Iterator[tuple[Kind, str]]:
    """What is wrong with an answer. Only 200 and 404 are some: after any other the callback is sent again."""
    what = f"a callback at {event['begun']:.3f} about generation {generation}"
    following = history.following(task, generation)
    if event["code"] == 200:
        end = history.ends.get((task, generation))
        if event["kind"] != "signed":
            yield "believed", f"{what} was taken, although {event['kind']}"
        elif following and following["at"] < event["begun"]:
            yield "believed", f"{what} was taken, although the next one had begun"
        elif event["said"] in ("done", "refused") and (end is None or end["at"] > event["at"]):
            yield "lost", f"{what} was taken, but the end that it told was not stored"
    elif event["code"] == 404 and event["kind"] == "signed" and (following is None or following["at"] > event["at"]):
        yield "lost", f"{what} was not taken"


def _is_told(write: Event, genuine: list[Event]) -> bool:
    new = write["new"]
    job = json.loads(new["data"]).get("job") if new["status"] == "completed" else None
    return any(
        event["begun"] <= write["at"] and event["said"] == TOLD_BY.get(new["status"]) and job in (None, event["job"])
        for event in genuine
    )
