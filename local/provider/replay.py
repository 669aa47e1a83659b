"""Replays conversations with a provider against the real client: every request, every outcome.

A conversation (a vector) is a provider file, an input and steps; a step is the requests to expect at that second, the
answers to give, and the outcome. docs/providers.md describes the form.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, structs

from local.provider.script import TRANSPORT_ERRORS, Script, same
from shared.codec import Json, loads
from shared.errors import MeanwhileError, ProviderFileError
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider.language.rules import CONVERSATIONS, Rules
from shared.reasons import Reason, Trait, having
from shared.record import Record
from shared.task import Task

ATTEMPT_SECONDS = 20.0
ACTIONS = {Reason.RESUBMIT: "resubmit", Reason.UNAUTHORIZED: "reauthenticate"}
"""What conversations call the next attempt's way of its own, after these reasons."""


class VectorError(MeanwhileError):
    """A file of conversations that cannot be read; the message says why."""


_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e11)]


class _Request(Struct):
    method: str
    url: str
    auth: bool | None = None
    headers: dict[str, str | None] = {}


class _Response(Struct, rename="camel"):
    status_code: Annotated[int, Meta(ge=200, le=999)] | UnsetType = UNSET
    transport_error: Annotated[str, Meta(pattern=f"^({'|'.join(TRANSPORT_ERRORS.values())})$")] | UnsetType = UNSET
    headers: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.status_code is UNSET and self.transport_error is UNSET:
            raise ValueError("statusCode is missing")
        if re.search("[^\t -~\x80-\xff]", "".join(self.headers.values())):
            raise ValueError("a header takes one line of Latin-1")


class _Exchange(Struct):
    request: _Request
    response: _Response


class _Step(Struct):
    at: _Seconds
    exchanges: list[_Exchange]
    expect: dict[str, Any]


class _Vector(Struct):
    """What a vector must be."""

    config: Any
    start_epoch: _Seconds
    steps: list[_Step]
    config_name: str = ""
    task_name: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One vector."""

    id: str
    vector: Mapping[str, Any]

    def difference(self) -> str | None:
        """Replay it: None if all went as it says, else the first difference."""
        try:
            convert(self.vector, _Vector)
            rules = without_jitter(Rules.from_json(self.vector["config"]))
        except ValidationError as error:
            reason, _, location = str(error).partition(" - at `")
            return f"it is faulty at {location.removesuffix('`') or '$'}: {reason}"
        except ProviderFileError as error:
            return f"its config is faulty: {error}"
        script, start = Script(rules), round(self.vector["start_epoch"] * 1000)
        task = Task(self.vector.get("config_name", "vector"), self.vector.get("task_name", "task-1"))
        record = Record(generation=1, created_at=start, input=self.vector.get("input", {}))
        ended = False
        with script.provider() as provider:
            for i, step in enumerate(self.vector["steps"]):
                if ended:
                    return f"step {i} at {step['at']} s: it goes on after its end"
                now = start + round(step["at"] * 1000)
                script.now_seconds, script.exchanges = now / 1000, list(step["exchanges"])
                finding = provider.attempt(task, record, now=now, seconds=ATTEMPT_SECONDS)
                record = Record.from_text(finding.record.to_text())  # as Redis would have it
                if difference := script.difference() or compared(step["expect"], finding.outcome, record):
                    return f"step {i} at {step['at']} s: {difference}"
                ended = isinstance(finding.outcome, Completed | Failed)
        return None


def conversation_files(directory: Path) -> list[Path]:
    """The files NAME.vectors.json of a directory."""
    return sorted(directory.glob(f"*{CONVERSATIONS}"))


def conversations(path: Path) -> list[Conversation]:
    """The conversations in a file, or in the files NAME.vectors.json of a directory. Raises VectorError."""
    if path.is_dir():
        found = [one for file in conversation_files(path) for one in conversations(file)]
        if not found:
            raise VectorError(f"{path}: has no conversations; files of them are named NAME{CONVERSATIONS}")
        return found
    try:
        value = loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise VectorError(f"{path}: {error}") from error
    vectors = value.get("vectors") if isinstance(value, dict) else value
    if not isinstance(vectors, list) or not all(isinstance(one, dict) for one in vectors):
        raise VectorError(f'{path}: must be {{"vectors": […]}} or a list of vectors')
    return [_conversation(path, i, vector) for i, vector in enumerate(vectors)]


def fixture(*paths: Path) -> Callable[..., Any]:
    """A pytest fixture that is each conversation in these files and directories in turn."""
    import pytest  # noqa: PLC0415 (replay itself does not need it)

    found = [one for path in paths for one in conversations(path)]

    @pytest.fixture(params=found, ids=[one.id for one in found])
    def conversation(request: pytest.FixtureRequest) -> Conversation:
        chosen: Conversation = request.param
        return chosen

    return conversation


def described(outcome: Outcome, record: Record) -> dict[str, Json]:
    """An outcome in the words of the vectors."""
    match outcome:
        case Pending(delay, partial, progress):
            return {"state": "in_progress", "delay": delay, "partial": partial, "progress": progress}
        case Completed(data):
            return {"state": "completed", "data": data}
        case Retry(delay, reason):
            return {"state": "retry", "delay": delay, "reason": reason, "action": ACTIONS.get(reason)}
        case Failed(reason, error):
            return {"state": "failed", "reason": reason, "error": error, "partial": record.partial}


def compared(expected: Mapping[str, Json], outcome: Outcome, record: Record) -> str | None:
    """The difference between the outcome that is expected, whole, and the one found.

    What is not said is null. Two things need not be the same: the reason of a retry, unless the language fixes it, and
    the text of a failure that is not the provider's own, if it is not said.
    """
    found = described(outcome, record)
    wanted = dict.fromkeys(found) | dict(expected)
    reason = found.get("reason")
    if found["state"] == "retry" and ("reason" not in expected or reason not in having(Trait.NAMED)):
        wanted["reason"] = reason
    if found["state"] == "failed" and "error" not in expected and reason != Reason.UPSTREAM:
        wanted["error"] = found["error"]
    if same(wanted, found):
        return None
    return f"expected {json.dumps(expected, ensure_ascii=False)}, found {json.dumps(found, ensure_ascii=False)}"


def without_jitter(rules: Rules) -> Rules:
    """The same rules, whose delays are not spread: what replies and file say."""
    made: Rules = structs.replace(rules, polling=structs.replace(rules.polling, jitter="none"))
    return made


def _conversation(path: Path, number: int, vector: Mapping[str, Any]) -> Conversation:
    """A vector whose config may be the name of a provider file beside it."""
    config = vector.get("config")
    if isinstance(config, str):
        try:
            vector = {**vector, "config": loads((path.parent / config).read_bytes(), unique_keys=True)}
        except (OSError, ValueError) as error:
            raise VectorError(f"{path}: the config {config}: {error}") from error
    return Conversation(str(vector.get("id", f"{path.stem}-{number + 1}")), vector)
