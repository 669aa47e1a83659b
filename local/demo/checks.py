"""What must be true at the end of the demo; each check is one line that says what was found."""

import json
from collections import Counter
from collections.abc import Callable, Sequence

import redis
from rich.console import Console
from rich.text import Text

from local.demo.plan import Asked
from local.demo.view import items
from local.stack import Stack

HTTP_OK = 200
HTTP_ACCEPTED = 202


def check(stack: Stack, first: Sequence[Asked], again: Sequence[Asked], console: Console) -> list[str]:
    """Prints every check; returns those that failed."""
    faults = []
    for promise, examine in CHECKS.items():
        found = examine(stack, first, again)
        mark = "[red]✗[/]" if found else "[green]✓[/]"
        console.print(f"{mark} {promise}", Text(f": {'; '.join(found)}" if found else ""), sep="")
        if found:
            faults.append(promise)
    return faults


def _answered(_stack: Stack, first: Sequence[Asked], _again: Sequence[Asked]) -> list[str]:
    return [
        f"{asked.request.task_id} got {asked.status} {asked.body}"
        for asked in first
        if asked.status not in {HTTP_OK, HTTP_ACCEPTED}
    ]


def _begun_once(_stack: Stack, first: Sequence[Asked], _again: Sequence[Asked]) -> list[str]:
    begun = Counter({asked.request.task_id: 0 for asked in first})
    begun.update(asked.request.task_id for asked in first if not asked.body.get("deduplicated"))
    return [f"{task_id} began {count} times" for task_id, count in begun.items() if count != 1]


def _stored_once(stack: Stack, first: Sequence[Asked], _again: Sequence[Asked]) -> list[str]:
    states = {item["task_id"]["S"]: item["status"]["S"] for item in items(stack)}
    wanted = {asked.request.task_id for asked in first}
    return [
        *(
            f"{task_id} is {states.get(task_id, 'not there')}"
            for task_id in wanted
            if states.get(task_id) != "completed"
        ),
        *(f"{task_id} was never asked for" for task_id in states.keys() - wanted),
    ]


def _data_is_whole(stack: Stack, _first: Sequence[Asked], _again: Sequence[Asked]) -> list[str]:
    return [
        f"{item['task_id']['S']} holds {item.get('data')}"
        for item in items(stack)
        if json.loads(item.get("data", {"S": "null"})["S"])
        != stack.third_party.whole(item["task_id"]["S"].partition("/")[2])
    ]


def _asked_no_more_than_needed(stack: Stack, first: Sequence[Asked], _again: Sequence[Asked]) -> list[str]:
    """An example job takes a known number of attempts; of the coins exactly the last shows heads."""
    calls = stack.third_party.calls
    found = []
    for provider, name in sorted({(asked.request.provider, asked.request.name) for asked in first}):
        statuses = [call.status for call in calls if (call.path, call.name) == (f"/{provider}", name)]
        if provider == "example" and len(statuses) != stack.third_party.attempts(name):
            found.append(f"{name} was asked {len(statuses)} times instead of {stack.third_party.attempts(name)}")
        if provider == "coin" and (statuses.count(HTTP_OK), statuses[-1:]) != (1, [HTTP_OK]):
            found.append(f"the coin {name} was answered {statuses}")
    return found


def _redis_is_empty(stack: Stack, _first: Sequence[Asked], _again: Sequence[Asked]) -> list[str]:
    with redis.Redis.from_url(stack.redis.url, decode_responses=True) as client:
        return [f"there is still {key}" for key in client.scan_iter()]


def _answered_from_store(stack: Stack, _first: Sequence[Asked], again: Sequence[Asked]) -> list[str]:
    return [
        f"{asked.request.task_id} got {asked.status} {asked.body}"
        for asked in again
        if (asked.status, asked.body.get("data")) != (HTTP_OK, stack.third_party.whole(asked.request.name))
    ]


Check = Callable[[Stack, Sequence[Asked], Sequence[Asked]], list[str]]

CHECKS: dict[str, Check] = {
    "every request was answered at once with what is known": _answered,
    "of several requests for one task exactly one began it": _begun_once,
    "every task is completed, one item each in DynamoDB": _stored_once,
    "each item's data is what the third party says is the whole": _data_is_whole,
    "the third party was asked exactly as often as needed": _asked_no_more_than_needed,
    "Redis holds nothing any more": _redis_is_empty,
    "asked again, every task is answered 200 from the stored data": _answered_from_store,
}
