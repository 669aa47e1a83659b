"""What a client asks for, read from an API Gateway event: REST (v1) and HTTP API (v2) shapes. Faults are Problems."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from shared.api.preference import NONE, Preferences, preferences
from shared.bounds import BOUNDS, fits
from shared.codec import DuplicateKey, Json, loads
from shared.errors import BadRequest, ContentTooLarge, NotFound, Problem
from shared.settings import MAX_BATCH, NOTIFY_KINDS
from shared.task import Task

MAX_BODY_BYTES = 64 * 1024
MAX_GROUP = BOUNDS["group"].most // 4  # characters, each of up to four bytes
MAX_BATCH_BYTES = 1024 * 1024
FIELDS = {"provider", "name", "input", "group", "notify"}
BASE_PATH = re.compile(r"^(?!/tasks(?:/|$))(?:/[^/]+)+?(?=/tasks(?:/|$)|/?$)")
"""What may stand before the routes in a path when an API is mapped into a custom domain."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """What a provider sent to a callback URL, to be verified: the last two parts of its path, headers in lower case.

    `body` None: it is larger than MAX_BODY_BYTES, or cannot be read.
    """

    provider: str
    token: str
    headers: dict[str, str]
    body: bytes | None


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


def from_query(event: Event, default_provider: str) -> TaskRequest:
    """The short form of a request: `GET /?task-name=NAME`, optionally `&provider=P`."""
    return TaskRequest(task=_named_in_query(event, "task-name", default_provider), prefers=preferences(event))


def from_body(event: Event, default_provider: str) -> TaskRequest:
    """`POST /tasks` with `{"provider"?, "name", "input"?, "group"?, "notify"?}`."""
    return _task_request(_body(event, FIELDS), default_provider, preferences(event))


def from_batch(event: Event, default_provider: str) -> list[TaskRequest | Problem]:
    """`POST /tasks/batch` with `{"tasks": [{"name", …}, …]}`, 1 to 100 of them: each a request, or its own fault."""
    tasks = _body(event, {"tasks"}, MAX_BATCH_BYTES).get("tasks")
    if not isinstance(tasks, list) or not 1 <= len(tasks) <= MAX_BATCH:
        raise BadRequest(f"tasks must be a list of 1 to {MAX_BATCH} requests", field="tasks")
    return [_one_of_batch(body, default_provider, preferences(event)) for body in tasks]


def named_in_body(event: Event, default_provider: str) -> Task:
    """`POST /tasks/revive` with `{"provider"?, "name"}`."""
    return _named(_body(event, {"provider", "name"}), default_provider)


def named_in_url(event: Event, default_provider: str) -> Task:
    """`/tasks/{provider}/{name}` or `/tasks?provider=P&name=NAME`.

    REST events carry the path encoded, HTTP API events decoded: it is decoded once, here or there.
    """
    path = event.get("rawPath") or event.get("path") or ""
    found = re.search(r"/tasks/([^/]+)/(.+)$", path, re.DOTALL)
    if found is None and re.search(r"/tasks/[^/]", path):
        raise BadRequest("a task's path is /tasks/{provider}/{name}", field="name")
    if found is None:
        return _named_in_query(event, "name", default_provider)
    provider, name = found.groups()
    if "rawPath" not in event:
        try:
            provider, name = unquote(provider, errors="strict"), unquote(name, errors="strict")
        except UnicodeDecodeError as error:
            raise BadRequest("the name in the path is not UTF-8", field="name") from error
    return Task.named(provider, name)


def callback(event: Event) -> Callback:
    """`POST /callbacks/{provider}/{token}`. Raises NotFound for another path."""
    found = re.search(r"/callbacks/([^/]+)/([^/]+)$", event.get("rawPath") or event.get("path") or "")
    if found is None:
        raise NotFound("there is no such callback", field="path")
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items() if value is not None}
    try:
        body = _bytes(event)
    except Problem:
        body = None
    return Callback(provider=found[1], token=found[2], headers=headers, body=body)


def _task_request(body: dict[str, Json], default_provider: str, prefers: Preferences) -> TaskRequest:
    input_, group = body.get("input"), body.get("group", "")
    if "input" in body:
        if not isinstance(input_, dict):
            raise BadRequest("the input must be an object", field="input")
        if not fits(input_, "input"):
            raise ContentTooLarge(f"the input is larger than {BOUNDS['input'].most} bytes", field="input")
    if "group" in body and not (isinstance(group, str) and 1 <= len(group) <= MAX_GROUP and group.isprintable()):
        raise BadRequest(f"the group must be 1 to {MAX_GROUP} printable characters", field="group")
    task = _named(body, default_provider)
    return TaskRequest(task=task, input=input_, group=group, notify=_notify(body), prefers=prefers)


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


def _body(event: Event, known: set[str], most_bytes: int = MAX_BODY_BYTES) -> dict[str, Json]:
    try:
        body = loads(_bytes(event, most_bytes), unique_keys=True)
    except DuplicateKey as error:
        raise BadRequest(str(error), field=error.key) from error
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}", field="body") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object", field="body")
    _refuse_unknown(body, known)
    return body


def _bytes(event: Event, most_bytes: int = MAX_BODY_BYTES) -> bytes:
    raw = event.get("body") or ""
    try:
        body = base64.b64decode(raw, validate=True) if event.get("isBase64Encoded") else raw.encode()
    except binascii.Error as error:
        raise BadRequest("the body is not base64, although the event says so", field="body") from error
    except UnicodeEncodeError as error:
        raise BadRequest("the body is not UTF-8", field="body") from error
    if len(body) > most_bytes:
        raise ContentTooLarge(f"the body is larger than {most_bytes} bytes", field="body")
    return body


def _named_in_query(event: Event, parameter: str, default_provider: str) -> Task:
    """The task that a query names; of a parameter given twice the last counts, in both event shapes."""
    if "rawQueryString" in event:
        try:
            query = dict(parse_qsl(event["rawQueryString"], keep_blank_values=True, errors="strict"))
        except UnicodeDecodeError as error:
            raise BadRequest("the query is not UTF-8", field="query") from error
    else:
        query = dict(event.get("queryStringParameters") or {})
    _refuse_unknown(query, {parameter, "provider"})
    if parameter not in query:
        raise BadRequest(f"the query parameter {parameter} is missing", field=parameter)
    return Task.named(query.get("provider", default_provider), query[parameter])


def _refuse_unknown(given: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(given.keys() - known):
        raise BadRequest(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}", field=unknown[0])
