"""A provider made from a file in a few lines, and asked about one task."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from shared.codec import Json
from shared.errors import SecretUnavailable, TransportError
from shared.outcome import Outcome
from shared.provider import Finding, Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.faults import faults
from shared.provider.language.rules import Rules
from shared.provider.wire.transport import Transport
from shared.record import Record
from shared.sink import Sink
from shared.task import Task
from tests.support.clock import START_MS

TASK = Task("example", "a")
DONE = {"state": "success", "expected": "completed"}
POLLED: dict[str, Any] = {
    "submit": {"method": "POST", "url": "/jobs", "outputs": {"id": "body.id"}},
    "poll": {"url": "/jobs/${outputs.id}"},
}
"""A job that is submitted and asked after; `DONE` ends it."""
NO_JITTER = {"jitter": "none"}


def consistent(polling: dict[str, Json]) -> dict[str, Json]:
    """The same delays, without those that are longer than others allow."""
    too_long = {fault.partition(": ")[0] for fault in faults({"polling": polling})}
    return {key: value for key, value in polling.items() if f"$.polling.{key}" not in too_long}


class Secrets:
    """Secrets by reference, as wiring reads them: kept, unless a fresh one is asked for."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = dict(values or {})
        self.kept: dict[str, str] = {}
        self.reads: list[tuple[str, bool]] = []

    def __call__(self, reference: str, *, fresh: bool) -> str:
        self.reads.append((reference, fresh))
        if fresh or reference not in self.kept:
            if reference not in self.values:
                raise SecretUnavailable(f"{reference}: ParameterNotFound")
            self.kept[reference] = self.values[reference]
        return self.kept[reference]


def rules(server: str, **parts: Json) -> Rules:
    """The rules of a file with this server, and these parts instead of the simplest ones."""
    return Rules.from_json(file_at(server, **parts))


def file_at(server: str, **parts: Json) -> Json:
    """A file with this server, and these parts instead of the simplest ones."""
    return {"servers": [server], "submit": {"url": "/jobs"}, "acceptors": [DONE]} | parts


def provider(
    rules: Rules,
    secrets: Callable[..., str] | None = None,
    transport: Transport | None = None,
    callback_url: Callable[[Task, int, int], str] | None = None,
    sink: Sink | None = None,
) -> Provider:
    """A provider at work, its jitter seeded."""
    transport = transport or Transport(4)
    credentials = Credentials(rules.security, secrets or Secrets(), transport)
    return Provider(rules, transport, credentials, random.Random(1), callback_url=callback_url, sink=sink)


def record(**fields: Any) -> Record:
    """A task that nobody has asked about yet, unless `fields` say otherwise."""
    known: dict[str, Any] = {"generation": 1, "created_at": START_MS, "input": {}}
    return Record(**(known | fields))


def submitted(**fields: Any) -> Record:
    """A task whose job `j` has been submitted just now."""
    return record(**({"outputs": {"id": "j"}, "submitted_at": START_MS, "polls": 1} | fields))


@contextmanager
def fails(reason: str) -> Iterator[pytest.ExceptionInfo[TransportError]]:
    """What is done in it comes to nothing, for that reason."""
    with pytest.raises(TransportError) as caught:
        yield caught
    assert caught.value.reason == reason


def ask(asked: Provider, known: Record | None = None, *, now: int = START_MS, seconds: float = 20) -> Finding:
    return asked.attempt(TASK, known or record(), now=now, seconds=seconds)


def outcome(finding: Finding) -> dict[str, Any]:
    """An outcome as a dictionary, its kind under `is`."""
    found: Outcome = finding.outcome
    fields = structs.asdict(found)
    return {"is": type(found).__name__.lower(), **fields}
