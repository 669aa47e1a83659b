"""The journal of a soak: each process appends JSON lines to a file of its own; read together, they are its history."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]
"""`at` (epoch seconds), `what` (one word), and what belongs to it."""


class Journal:
    """Appends events to a file; each is in it when `write` returns, so that a kill loses none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def write(self, what: str, **facts: Any) -> None:
        with self._lock:
            self._file.write(json.dumps({"at": time.time(), "what": what} | facts, ensure_ascii=False) + "\n")
            self._file.flush()


class Follower:
    """Reads a journal while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def news(self) -> Iterator[Event]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        self._offset += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            yield json.loads(line)


def read(folder: Path) -> list[Event]:
    """Every event of every journal in a folder, by time."""
    events = [event for path in sorted(folder.glob("*.jsonl")) for event in Follower(path).news()]
    return sorted(events, key=lambda event: event["at"])
