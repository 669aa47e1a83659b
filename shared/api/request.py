"""What a client asks for, read from an API Gateway event: REST (v1) and HTTP API (v2) shapes. Faults are Problems."""

import base64
import binascii
import re
import zlib
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
GZIP = b"\x1f\x8b"  # what such a body begins with (RFC 1952, 2.3.1), and no JSON
FIELDS = {"provider", "name", "input", "group", "notify"}
BASE_PATH = re.compile(r"^(?!/tasks(?:/|$))(?:/[^/]+)+?(?=/tasks(?:/|$)|/?$)")
"""What may stand before the routes in a path when an API is mapped into a custom domain."""

Event = Mapping[str, Any]


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
    """`POST` or `GET /callbacks/{provider}/{token}`. Raises NotFound for another path."""
    found = re.search(r"/callbacks/([^/]+)/([^/]+)$", event.get("rawPath") or event.get("path") or "")
    if found is None:
        raise NotFound("there is no such callback", field="path")
    context = event.get("requestContext") or {}
    is_post = (event.get("httpMethod") or context.get("http", {}).get("method")) == "POST"
    try:
        body = _bytes(event) if is_post else None
        handshake = _query(event).get("validationToken") if body == b"" else None
    except Problem:
        body = handshake = None
    return Callback(provider=found[1], token=found[2], headers=_headers(event), body=body, handshake=handshake)


def _headers(event: Event) -> dict[str, str]:
    """By names in lower case; what was sent more than once is joined by commas (RFC 9110, 5.3)."""
    once = {name: [value] for name, value in (event.get("headers") or {}).items() if value is not None}
    joined: dict[str, str] = {}
    for name, values in (once | (event.get("multiValueHeaders") or {})).items():
        joined[name.lower()] = ", ".join([*filter(None, [joined.get(name.lower())]), *values])
    return joined


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
    """The task that a query names."""
    query = _query(event)
    _refuse_unknown(query, {parameter, "provider"})
    if parameter not in query:
        raise BadRequest(f"the query parameter {parameter} is missing", field=parameter)
    return Task.named(query.get("provider", default_provider), query[parameter])


def _query(event: Event) -> dict[str, str]:
    """The query; of a parameter given twice the last counts, in both event shapes."""
    if "rawQueryString" not in event:
        return dict(event.get("queryStringParameters") or {})
    try:
        return dict(parse_qsl(event["rawQueryString"], keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError as error:
        raise BadRequest("the query is not UTF-8", field="query") from error


def _refuse_unknown(given: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(given.keys() - known):
        raise BadRequest(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}", field=unknown[0])
