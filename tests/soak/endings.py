"""Whether every generation that began has ended, once, with what its own job brought, and left nothing behind."""

import json
from collections.abc import Iterator

from tests.soak.history import Fault, History
from tests.soak.journal import Event


def check(history: History) -> Iterator[Fault]:
    """Every fault in what was stored, answered and left behind."""
    for task, writes in history.writes.items():
        for why, kind in _of_item(history, task, writes):
            yield Fault(kind, task, why, history.about(task))  # type: ignore[arg-type]
    for event in history.of("deleted"):
        yield Fault("lost", event["task"], "the item was deleted", history.about(event["task"]))
    for event in history.of("answered"):
        for why, kind in _of_answer(history, event):
            yield Fault(kind, event["task"], why, history.about(event["task"]))  # type: ignore[arg-type]
    yield from _left_behind(history)


def _of_item(history: History, task: str, writes: list[Event]) -> Iterator[tuple[str, str]]:
    for event in writes:
        old, new = event["old"], event["new"]
        if new["open"] != (new["status"] == "pending"):
            yield f"the index lists generation {new['generation']} although it is {new['status']}, or not", "lost"
        if old and new["generation"] < old["generation"]:
            yield f"generation {new['generation']} came back over {old['generation']}", "doubled"
        elif old and new["generation"] > old["generation"] and old["status"] == "pending":
            yield f"generation {old['generation']} was open when the next one began", "lost"
        elif old and new["generation"] == old["generation"]:
            if old["status"] != "pending":
                yield f"a second result for generation {old['generation']}", "doubled"
            elif new["resubmits"] < old["resubmits"]:
                yield f"generation {old['generation']} forgot a resubmit", "doubled"
        if new["status"] == "completed" and (why := _foreign(history, task, new)):
            yield why, "doubled"
    last = writes[-1]["new"]
    if last["status"] == "pending":
        yield f"generation {last['generation']} has not ended", "lost"


def _foreign(history: History, task: str, new: Event) -> str | None:
    """Why the data is not this generation's own; None if it is."""
    data, generation = json.loads(new["data"]), new["generation"]
    job = history.jobs.get(data.get("job"))
    if job is None or data.get("whole") is not True:
        return f"generation {generation} was completed with {data}"
    submit = history.submits.get(job["key"])
    if submit is None or submit.task != task:
        return f"generation {generation} has the data of {job['job']}, which is {submit}"
    kept = history.begins[task, generation]["new"]["outputs"] is not None  # revived: the old job is asked after
    if submit.generation != generation and not (kept and submit.generation < generation):
        return f"generation {generation} has the data of generation {submit.generation}"
    return None


def _of_answer(history: History, event: Event) -> Iterator[tuple[str, str]]:
    """What was answered must stand in the table."""
    task, generation, status = event["task"], event["generation"], event["status"]
    if event["code"] not in (200, 202, 422) or generation is None:
        return
    begun, end = history.begins.get((task, generation)), history.ends.get((task, generation))
    if begun is None or begun["at"] > event["at"]:
        yield f"generation {generation} was accepted but not written", "lost"
    elif status != "pending" and (end is None or end["new"]["status"] != status or end["at"] > event["at"]):
        yield f"generation {generation} was answered as {status}, but had not ended so", "doubled"
    elif status == "completed" and end and json.loads(end["new"]["data"]) != event["data"]:
        yield f"generation {generation} was answered with {event['data']}", "doubled"


def _left_behind(history: History) -> Iterator[Fault]:
    rests = list(history.of("rest"))
    if not rests:
        yield Fault("leaked", "Redis", "nobody looked at the end")
    for rest in rests:
        for leak in rest["leaks"]:
            yield Fault("leaked", "Redis", leak)
        for place in ("queue", "leases", "jobs", "groups"):
            for task in rest[place]:
                yield Fault("leaked", task, f"is still in {place}", history.about(task))
        for task, generation in rest["dead"].items():
            end = history.ends.get((task, generation))
            newest = history.writes[task][-1]["new"]["generation"] if task in history.writes else None
            if end is None or end["new"]["status"] != "failed" or newest != generation:
                why = f"is listed as dead letter of generation {generation}"
                yield Fault("leaked", task, why, history.about(task))
