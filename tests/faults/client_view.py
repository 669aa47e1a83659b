"""What a client must see of a task, worked out anew from the raw item and the raw keys of Redis."""

import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class View:
    """The status answer's fields; `next_ms` bounds `next_attempt_at`, since the server's clock goes on."""

    fields: dict[str, Any]
    next_ms: tuple[float, float] | None

    def compare(self, seen: Mapping[str, Any]) -> None:
        """Fails unless the answer has exactly these fields."""
        body = dict(seen)
        next_at = body.pop("next_attempt_at", None)
        assert body == self.fields
        assert (next_at is None) == (self.next_ms is None)
        if self.next_ms:
            least, most = self.next_ms
            assert least - 1 <= _ms(next_at) <= most + 1  # rounded to the millisecond


def expected_view(
    item: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]], now_ms: int, server_ms: tuple[int, int]
) -> View:
    """What is to be seen at `now_ms`; `server_ms` is Redis's time before and after it was looked at."""
    provider, _, name = item["task_id"]["S"].partition("/")
    status, created_at = item["status"]["S"], int(item["created_at"]["N"])
    ended_at = int(item["completed_at"]["N"]) if "completed_at" in item else None
    data, partial = _json(item.get("data")), _json(item.get("partial"))
    if isinstance(partial, dict):
        data = data or {}
        data |= {key: value for key, value in partial.items() if value is not None or key not in data}
    fields: dict[str, Any] = {
        "task_id": f"{provider}/{name}",
        "provider": provider,
        "name": name,
        "status": status,
        "data": data,
        "partial": status != "completed",
        "deduplicated": False,
        "generation": int(item["generation"]["N"]),
        "created_at": _instant(created_at),
        "updated_at": _instant(int(item["updated_at"]["N"])),
        "age_seconds": max(0, now_ms - (ended_at or created_at)) // 1000,
    }
    if ended_at is not None:
        fields["completed_at"] = _instant(ended_at)
    if status == "failed":
        error = _json(item["error"])
        fields["error"] = {"reason": error["reason"], "detail": error["error"]}
    next_ms = None
    if status in ("pending", "failed"):
        next_ms = _schedule(fields, parts, name, now_ms, server_ms)
    return View(fields, next_ms)


def _schedule(
    fields: dict[str, Any], parts: Mapping[str, Mapping[str, Any]], name: str, now_ms: int, server_ms: tuple[int, int]
) -> tuple[float, float] | None:
    """Add what Redis tells of the item's generation: where it is, and how it went so far."""
    is_there = parts["state"].get(name, "0").partition(":")[0] == f"{fields['generation']}"
    score = parts["queue"].get(name) if is_there else None
    if score is not None:
        with suppress(ValueError, TypeError, KeyError):  # of junk, and of what later code wrote, nothing is told
            record = json.loads(parts["tasks"][name])
            known = {key: record[key] for key in ("attempts", "errors", "progress", "reason")}
            fields |= known if record["version"] == 1 else {}
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


def _ms(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp() * 1000
