"""The OpenAPI description of the API: routes from template.yaml, bodies and their limits from types and code."""

from typing import Any

import msgspec

from local import bodies
from local.sam_template import routes
from shared.api.preference import LONGEST_WAIT_SECONDS
from shared.task import MAX_NAME_BYTES, PROVIDER_NAME

Node = dict[str, Any]

PROBLEM, MESSAGE = ("application/problem+json", "Problem"), ("application/json", "Message")
_MEANINGS = {
    "200": "The task as it stands.",
    "202": "The task will be finished: what is known of it, and when to ask again.",
    "304": "Nothing has happened since the answer with this ETag.",
    "400": "The request is malformed; `field` names the part at fault.",
    "403": "`notify` names a workflow that this deployment may not tell; or the caller may not call the API.",
    "404": "There is no such task, callback or route.",
    "409": "The task's state does not allow it, or its stored item is damaged.",
    "413": "The body or the input is too large.",
    "422": "The provider refused the task.",
    "429": "API Gateway's own: too many requests.",
    "500": "A fault of Meanwhile's own.",
    "502": "API Gateway's own: the function failed.",
    "503": "Nothing was accepted, or not everything is erased yet; try again after `Retry-After` seconds.",
    "504": "API Gateway's own: there was no answer in 29 seconds.",
}
_GATEWAY = ("403", "413", "429", "502", "503", "504")  # what API Gateway may answer by itself
_ASK = ("200 Task", "202 Task", "400", "409", "422 Task", "500", "503")
_LOOK = ("200 Task", "304", "400", "404", "409", "500", "503")
_END = ("200 Task", "400", "404", "409", "500", "503")
_HEAR = ("200 Received", "400", "404", "409", "500", "503")
_BY_NAME = ("name!", "provider")
_ROUTES: dict[str, tuple[str, str, tuple[str, ...], str, tuple[str, ...]]] = {
    "GET /": ("ask", "Ask for a task by its name", ("task-name!", "provider", "Prefer", "Cache-Control"), "", _ASK),
    "POST /tasks": (
        "enqueue", "Ask for a task", ("Prefer", "Cache-Control"), "TaskRequest", (*_ASK, "403", "413"),
    ),
    "POST /tasks/batch": (
        "enqueueBatch", "Ask for many tasks", ("Prefer", "Cache-Control"), "Batch",
        ("200 Results", "400", "413", "500", "503"),
    ),
    "POST /tasks/revive": (
        "revive", "Begin a failed task again", (), "TaskName", ("202 Task", "400", "404", "409", "413", "500", "503"),
    ),
    "GET /tasks": ("lookByQuery", "Look at a task", (*_BY_NAME, "If-None-Match", "Prefer"), "", _LOOK),
    "GET /tasks/{provider}/{name}": ("look", "Look at a task", ("If-None-Match", "Prefer"), "", _LOOK),
    "DELETE /tasks": ("cancelByQuery", "Cancel a task", _BY_NAME, "", _END),
    "DELETE /tasks/{provider}/{name}": ("cancel", "Cancel a task", (), "", _END),
    "DELETE /erase": ("eraseByQuery", "Erase what a task holds", _BY_NAME, "", _END),
    "DELETE /erase/{provider}/{name}": ("erase", "Erase what a task holds", (), "", _END),
    "POST /callbacks/{provider}/{token}": (
        "callBack", "For providers: tell that there is news of a task", ("validationToken",), "*", _HEAR,
    ),
    "GET /callbacks/{provider}/{token}": ("callBackByGet", "The same without a body", (), "", _HEAR),
}  # fmt: skip
"""For each route: its name, what it does, its parameters (`!` those it needs), its body and its answers."""

_TEXT = {"type": "string"}
_NAME = {"type": "string", "minLength": 1, "maxLength": 3 * MAX_NAME_BYTES}
_PROVIDER = {"type": "string", "pattern": f"^{PROVIDER_NAME}$"}
_PARAMETERS: dict[str, tuple[str, Node, str]] = {
    "task-name": ("query", _NAME, "The task's name."),
    "name": ("query", _NAME, "The task's name."),
    "provider": ("query", _PROVIDER, "Whose task it is; without it, the default provider's."),
    "validationToken": ("query", _TEXT, "A handshake: answered as it is, as plain text."),
    "Prefer": ("header", _TEXT, f"`wait=N`, up to {LONGEST_WAIT_SECONDS} seconds, or `respond-async` (RFC 7240)."),
    "Cache-Control": ("header", _TEXT, "`no-cache`, `max-age=N`, `stale-while-revalidate=N` (RFC 9111, RFC 5861)."),
    "If-None-Match": ("header", _TEXT, "The ETag of the answer that is known (RFC 9110)."),
}
_HEADERS = {
    "Cache-Control": "Whether the answer may be kept.",
    "ETag": "Changes when anything has happened.",
    "Location": "Where to look at the task.",
    "Preference-Applied": "Which preference was followed.",
    "Retry-After": "When to ask again, in seconds.",
}
_ALWAYS = {"200": {"look", "lookByQuery"}, "304": {"look", "lookByQuery"}}  # where the ETag is always there


def description() -> Node:
    """The whole description, OpenAPI 3.1.1. Raises KeyError for a route of the template that is not described here."""
    paths: Node = {}
    for route in sorted(routes(), key=lambda route: (route.path, route.method)):
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(f"{route.method} {route.path}", route.path)
    _, schemas = msgspec.json.schema_components(bodies.ALL, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Meanwhile",
            "version": "1",
            "summary": "Asks a slow third-party API, answers now, and lets the queue fetch the rest.",
            "description": "What every answer means: docs/http.md.",
        },
        "servers": [{"url": "/"}],
        "security": [{"sigv4": []}],
        "paths": paths,
        "components": {
            "schemas": schemas | {"Result": _result()},
            "securitySchemes": {
                "sigv4": {
                    "type": "apiKey", "name": "Authorization", "in": "header",
                    "description": "AWS Signature Version 4", "x-amazon-apigateway-authtype": "awsSigv4",
                }
            },
        },
    }  # fmt: skip


def _operation(route: str, path: str) -> Node:
    name, summary, parameters, body, answers = _ROUTES[route]
    made: Node = {"operationId": name, "summary": summary}
    told = [_in_path(one.strip("{}")) for one in path.split("/") if one.startswith("{")]
    if told or parameters:
        made["parameters"] = told + [_parameter(one) for one in parameters]
    if body:
        content = {"*/*": {}} if body == "*" else {"application/json": {"schema": _ref(body)}}
        made["requestBody"] = {"required": body != "*", "content": content}
    of_ours = {one.partition(" ")[0]: one.partition(" ")[2] for one in answers}
    made["responses"] = {
        status: _answer(status, of_ours.get(status), name, is_ours=status in of_ours)
        for status in sorted(of_ours.keys() | set(_GATEWAY))
    }
    if "/callbacks/" in path:
        made["security"] = []
    return made


def _in_path(name: str) -> Node:
    schema = {"provider": _PROVIDER, "name": _NAME, "token": _TEXT}[name]
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(named: str) -> Node:
    name = named.rstrip("!")
    where, schema, meaning = _PARAMETERS[name]
    return {"name": name, "in": where, "required": named != name, "description": meaning, "schema": schema}


def _answer(status: str, body: str | None, operation: str, *, is_ours: bool) -> Node:
    made: Node = {"description": _MEANINGS[status]}
    if not is_ours:
        return made | {"content": {kind: {"schema": {}} for kind in ("application/json", "text/plain")}}
    always = {"202": {"Location", "Retry-After"}, "503": {"Retry-After"}}.get(status, set())
    always |= {"ETag"} if operation in _ALWAYS.get(status, ()) else set()
    names = {"Cache-Control", "Preference-Applied", *always} | ({"Location"} if status in ("200", "422") else set())
    made["headers"] = {
        name: {"description": _HEADERS[name], "required": name in always, "schema": _TEXT} for name in sorted(names)
    }
    if status == "304":
        return made
    if body == "Received":
        made["headers"]["X-Content-Type-Options"] = {"description": "With plain text.", "schema": _TEXT}
    kinds = [("application/json", body)] if body else [PROBLEM, *([MESSAGE] if status in _GATEWAY else [])]
    content: Node = {kind: {"schema": _ref(name)} for kind, name in kinds}
    return made | {"content": content | ({"text/plain": {"schema": _TEXT}} if body == "Received" else {})}


def _ref(name: str) -> Node:
    return {"$ref": f"#/components/schemas/{name}"}


def _result() -> Node:
    """One of a batch: its body is as its status says, as if it had been asked by itself; 303 has the names alone."""
    return {
        "type": "object",
        "required": ["status", "body"],
        "additionalProperties": False,
        "properties": {
            "status": {"type": "integer", "enum": [200, 202, 303, 400, 403, 409, 413, 422, 500, 503]},
            "body": {"anyOf": [_ref(name) for name in ("Task", "Names", "Problem")]},
            "retry_after_seconds": {"type": "integer", "minimum": 0},
        },
    }
