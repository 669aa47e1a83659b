"""What a client asks for, read from its call. Faults are Problems.

Every limit is kept before the work that it bounds, and what a fault repeats of a request is cut.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from shared.api.event import ApiCall
from shared.api.preference import NONE, Preferences, preferences
from shared.bounds import BOUNDS, beginning, fits
from shared.codec import DuplicateKey, Json, loads
from shared.errors import BadRequest, ContentTooLarge, NotFound, Problem
from shared.settings import MAX_BATCH, NOTIFY_KINDS
from shared.task import Task, is_blank, is_plain

MAX_BODY_BYTES = 64 * 1024
MAX_GROUP = BOUNDS["group"].most // 4  # characters, each of up to four bytes
MAX_BATCH_BYTES = 1024 * 1024
GZIP = b"\x1f\x8b"  # what such a body begins with (RFC 1952, 2.3.1), and no JSON
FIELDS = {"provider", "name", "input", "group", "notify"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """What a provider sent to a callback URL, to be verified: the last two parts of its path, headers in lower case.

    `body`: just the bytes that were sent; None: it is larger than MAX_BODY_BYTES, or cannot be read, or it was a GET,
    which has none. `unpacked`: the same bytes, or those that were sent compressed. `handshake`: a text that the
    provider wants back before it calls.
    """

    provider: str
    token: str
    headers: dict[str, str]
    body: bytes | None
    handshake: str | None = None

    @property
    def unpacked(self) -> bytes | None:
        """The body without gzip, of which its own first bytes tell; None where it is damaged or larger than allowed."""
        if self.body is None or not self.body.startswith(GZIP):
            return self.body
        stream = zlib.decompressobj(wbits=31)
        try:
            text = stream.decompress(self.body, MAX_BODY_BYTES + 1)
        except zlib.error:
            return None
        return text if stream.eof and not stream.unused_data and len(text) <= MAX_BODY_BYTES else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """A request for a task's data. `input` None: not given. `notify`: a workflow to tell of the end, `<kind>:<token>`.

    `group` says whose request it is: one group's many tasks do not hold up another's.
    """

    task: Task
    input: dict[str, Json] | None = None
    group: str = ""
    notify: str | None = None
    prefers: Preferences = NONE


def from_query(call: ApiCall, default_provider: str) -> TaskRequest:
    """The short form of a request: `GET /?task-name=NAME`, optionally `&provider=P`."""
    return TaskRequest(task=_named_in_query(call, "task-name", default_provider), prefers=preferences(call))


def from_body(call: ApiCall, default_provider: str) -> TaskRequest:
    """`POST /tasks` with `{"provider"?, "name", "input"?, "group"?, "notify"?}`."""
    return _task_request(_body(call, FIELDS), default_provider, preferences(call))


def from_batch(call: ApiCall, default_provider: str) -> list[TaskRequest | Problem]:
    """`POST /tasks/batch` with `{"tasks": [{"name", …}, …]}`, 1 to 100 of them: each a request, or its own fault."""
    tasks = _body(call, {"tasks"}, MAX_BATCH_BYTES).get("tasks")
    if not isinstance(tasks, list) or not 1 <= len(tasks) <= MAX_BATCH:
        raise BadRequest(f"tasks must be a list of 1 to {MAX_BATCH} requests", field="tasks")
    prefers = preferences(call)
    return [_one_of_batch(body, default_provider, prefers) for body in tasks]


def named_in_body(call: ApiCall, default_provider: str) -> Task:
    """`POST /tasks/revive` with `{"provider"?, "name"}`."""
    return _named(_body(call, {"provider", "name"}), default_provider)


def named_to_cancel(call: ApiCall, default_provider: str) -> Task:
    """`named_in_url`, of a request that may not erase: that has a route of its own, so it is a right of its own."""
    if any(name.lower() == "erase" for name in call.query):
        raise BadRequest("this route only cancels: DELETE /erase/{provider}/{name} erases", field="erase")
    return named_in_url(call, default_provider)


def named_in_url(call: ApiCall, default_provider: str) -> Task:
    """`/tasks/{provider}/{name}` or `/tasks?provider=P&name=NAME`; the same with `/erase`."""
    if call.route.endswith((" /tasks/{provider}/{name}", " /erase/{provider}/{name}")):
        return Task.named(call.parameters["provider"], call.parameters["name"])
    if call.route.endswith((" /tasks", " /erase")):
        return _named_in_query(call, "name", default_provider)
    raise NotFound("there is no such route", field="path")


def callback(call: ApiCall) -> Callback:
    """`POST` or `GET /callbacks/{provider}/{token}`. Raises NotFound for another path."""
    method, _, path = call.route.partition(" ")
    if method not in ("GET", "POST") or path != "/callbacks/{provider}/{token}":
        raise NotFound("there is no such callback", field="path")
    try:
        body = call.content(MAX_BODY_BYTES) if method == "POST" else None
    except Problem:
        body = None
    handshake = call.query.get("validationToken") if body == b"" else None
    return Callback(**call.parameters, headers=dict(call.headers), body=body, handshake=handshake)


def _task_request(body: dict[str, Json], default_provider: str, prefers: Preferences) -> TaskRequest:
    input_, group = body.get("input"), body.get("group", "")
    if "input" in body:
        if not isinstance(input_, dict):
            raise BadRequest("the input must be an object", field="input")
        if not fits(input_, "input"):
            raise ContentTooLarge(f"the input is larger than {BOUNDS['input'].most} bytes", field="input")
    if "group" in body and not (isinstance(group, str) and _is_group(group)):
        raise BadRequest(f"the group must be 1 to {MAX_GROUP} printable characters", field="group")
    task = _named(body, default_provider)
    return TaskRequest(task=task, input=input_, group=group, notify=_notify(body), prefers=prefers)


def _is_group(text: str) -> bool:
    return 1 <= len(text) <= MAX_GROUP and is_plain(text) and not is_blank(text)


def _notify(body: dict[str, Json]) -> str | None:
    """Whom to tell of the end: `{"stepFunctionsToken": …}` or `{"durableCallbackId": …}`."""
    if "notify" not in body:
        return None
    given = body["notify"]
    if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= NOTIFY_KINDS.keys():
        raise BadRequest(f"notify must be an object with one of {' and '.join(NOTIFY_KINDS)}", field="notify")
    ((kind, token),) = given.items()
    pattern, words = NOTIFY_KINDS[kind]
    if not isinstance(token, str) or re.fullmatch(pattern, token) is None:
        raise BadRequest(f"{kind} must be {words}", field="notify")
    return f"{kind}:{token}"


def _named(body: dict[str, Json], default_provider: str) -> Task:
    if "name" not in body:
        raise BadRequest("the name is missing", field="name")
    provider, name = body.get("provider", default_provider), body["name"]
    for field, value in (("provider", provider), ("name", name)):
        if not isinstance(value, str):
            raise BadRequest(f"the {field} must be a string", field=field)
    return Task.named(provider, name)


def _one_of_batch(body: Json, default_provider: str, prefers: Preferences) -> TaskRequest | Problem:
    try:
        if not isinstance(body, dict):
            raise BadRequest("a task must be an object", field="tasks")
        _refuse_unknown(body, FIELDS)
        return _task_request(body, default_provider, prefers)
    except Problem as problem:
        return problem


def _body(call: ApiCall, known: set[str], most_bytes: int = MAX_BODY_BYTES) -> dict[str, Json]:
    try:
        body = loads(call.content(most_bytes), unique_keys=True)
    except DuplicateKey as error:
        raise BadRequest(str(error), field=beginning(error.key)) from error
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}", field="body") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object", field="body")
    _refuse_unknown(body, known)
    return body


def _named_in_query(call: ApiCall, parameter: str, default_provider: str) -> Task:
    _refuse_unknown(call.query, {parameter, "provider"})
    if parameter not in call.query:
        raise BadRequest(f"the query parameter {parameter} is missing", field=parameter)
    return Task.named(call.query.get("provider", default_provider), call.query[parameter])


def _refuse_unknown(given: Mapping[str, object], known: set[str]) -> None:
    if unknown := given.keys() - known:
        first = beginning(min(unknown))
        raise BadRequest(f"unknown field {first!r}; known are {', '.join(sorted(known))}", field=first)
