"""What a client must see of a task, worked out anew from the raw item and the raw keys of Redis."""

import gzip
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest

from shared.api.view import LATE_SECONDS
from shared.settings import SCHEDULE_SECONDS

Parts: TypeAlias = Mapping[str, Mapping[str, Any]]


def compare(
    seen: Mapping[str, Any],
    item: Mapping[str, Any],
    parts: Parts,
    now_ms: int,
    server_ms: tuple[int, int],
    *,
    wakes: bool,
) -> None:
    """Fails unless the status answer has exactly the fields that are to be seen at `now_ms`.

    `server_ms`, Redis's time before and after it was looked at, bounds `next_attempt_at`: the server's clock goes on.
    `wakes`: whether somebody is woken when a task is due.
    """
    provider, _, name = item["task_id"]["S"].partition("/")
    status, created_at = item["status"]["S"], int(item["created_at"]["N"])
    ended_at = int(item["completed_at"]["N"]) if "completed_at" in item else None
    data, partial = _json(item.get("data")), _json(item.get("partial"))
    if isinstance(partial, dict):
        data = data or {}
        data |= {key: value for key, value in partial.items() if value is not None or key not in data}
    fields: dict[str, Any] = {
        "task_id": f"{provider}/{name}", "provider": provider, "name": name, "status": status, "data": data,
        "partial": status != "completed", "deduplicated": False, "generation": int(item["generation"]["N"]),
        "created_at": _instant(created_at), "updated_at": _instant(int(item["updated_at"]["N"])),
        "age_seconds": max(0, now_ms - (ended_at or created_at)) // 1000,
    }  # fmt: skip
    if ended_at is not None:
        fields["completed_at"] = _instant(ended_at)
    if "erased_at" in item:
        fields["erased_at"] = _instant(int(item["erased_at"]["N"]))
    if status == "failed":
        error = _json(item["error"])
        fields["error"] = {"reason": error["reason"], "detail": error["error"]}
    next_ms = _schedule(fields, parts, now_ms, server_ms) if status in ("pending", "failed") else None
    body = dict(seen)
    next_at, next_by = body.pop("next_attempt_at", None), body.pop("next_attempt_by", None)
    assert body == fields
    assert (next_at is None) == (next_ms is None)
    if next_ms:
        at = datetime.fromisoformat(next_at).timestamp() * 1000
        assert next_ms[0] - 1 <= at <= next_ms[1] + 1  # rounded to the millisecond
        is_late = parts["queue"][name] < server_ms[0] - LATE_SECONDS * 1000 and fields["schedule"] != "paused"
        assert (next_by is None) == (wakes and not is_late)
        if next_by:
            assert datetime.fromisoformat(next_by).timestamp() * 1000 == pytest.approx(
                at + SCHEDULE_SECONDS * 1000, abs=1
            )


def _schedule(
    fields: dict[str, Any], parts: Parts, now_ms: int, server_ms: tuple[int, int]
) -> tuple[float, float] | None:
    """Add what Redis tells of the item's generation: where it is, and how it went so far."""
    name = fields["name"]
    is_there = parts["state"].get(name, "0").partition(":")[0] == f"{fields['generation']}"
    score = parts["queue"].get(name) if is_there else None
    if score is not None:
        with suppress(ValueError, TypeError, KeyError):  # of junk, and of what later code wrote, nothing is told
            record = json.loads(parts["tasks"][name])
            unless_told = {"attempts": 0, "errors": 0, "progress": None, "reason": None}
            known = {key: record.get(key, value) for key, value in unless_told.items()}
            fields |= known if record["version"] == 1 else {}
        lease = parts["leases"].get(name, math.inf)
        score = score or (lease if lease <= server_ms[0] else 0)  # whose lease is over waits again
        fields["schedule"] = "waiting" if score > 0 else "processing"
    elif is_there and name in parts["dead"]:
        fields["schedule"] = "dead letter"
    elif fields["status"] == "pending":
        fields["schedule"] = "lost"
    if not score:
        return None
    opens = float(parts["gate"].get("until", 0))
    if opens > max(score, *server_ms):
        fields["schedule"] = "paused"
    least, most = (max(score, opens) - at for at in reversed(server_ms))
    return now_ms + max(0, least), now_ms + max(0, most)


def _json(attribute: Mapping[str, Any] | None) -> Any:
    if attribute is None:
        return None
    return json.loads(gzip.decompress(attribute["B"]) if "B" in attribute else attribute["S"])


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"
