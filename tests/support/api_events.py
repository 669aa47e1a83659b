"""API Gateway's events of both shapes, made from the samples in events/, and the context that comes with them."""

import base64
import json
import time
from copy import deepcopy
from typing import Any
from urllib.parse import parse_qsl, unquote

from local import ROOT
from local.aws.gateway import find_route
from local.sam_template import routes
from shared.api.event import ApiCall

EVENTS = ROOT / "events"

Event = dict[str, Any]


def sample(name: str) -> Event:
    event: Event = json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))
    return event


_ROUTES = routes()
_REST, _HTTP = sample("enqueue-rest-get-task-name"), sample("enqueue-http-get-task-name")


def rest(
    method: str = "GET",
    target: str = "/",
    body: Any = None,
    headers: dict[str, str] | None = None,
    *,
    stage: str = "v1",
    base: str = "",
    as_base64: bool = False,
) -> Event:
    """A REST API event: the path stays percent-encoded. `body` is text, or a value that becomes JSON.

    Behind a custom domain its base path, `/shop`, stands where the stage would.
    """
    path, _, query = target.partition("?")
    resource, parameters = _route(method, path)
    event = deepcopy(_REST)
    pairs = parse_qsl(query, keep_blank_values=True)
    listed: dict[str, list[str]] = {}
    for name, value in pairs:
        listed.setdefault(name, []).append(value)
    event["headers"] |= headers or {}
    event["multiValueHeaders"] |= {name: [value] for name, value in (headers or {}).items()}
    whole = base + path if base else f"/{stage}{path}"
    event["requestContext"] |= {"path": whole, "stage": stage, "httpMethod": method, "resourcePath": resource}
    return event | {
        "resource": resource,
        "pathParameters": parameters or None,
        "path": base + path,
        "httpMethod": method,
        "queryStringParameters": dict(pairs) or None,
        "multiValueQueryStringParameters": listed or None,
        **_body(body, as_base64),
    }


def http(
    method: str = "GET",
    target: str = "/",
    body: Any = None,
    headers: dict[str, str] | None = None,
    *,
    stage: str = "$default",
    base: str = "",
    as_base64: bool = False,
) -> Event:
    """An HTTP API event: the path arrives decoded, header names in lower case, a named stage inside the path."""
    path, _, query = target.partition("?")
    resource, parameters = _route(method, path)
    raw_path = base + unquote(path) if stage == "$default" or base else f"/{stage}{unquote(path)}"
    event = deepcopy(_HTTP)
    joined: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    event["headers"] |= {name.lower(): value for name, value in (headers or {}).items()}
    event["requestContext"]["stage"] = stage
    event["requestContext"]["http"] |= {"method": method, "path": raw_path}
    event["requestContext"]["routeKey"] = event["routeKey"] = f"{method} {resource}"
    event |= {"rawPath": raw_path, "rawQueryString": query, **_body(body, as_base64)}
    event |= {"pathParameters": {name: unquote(value) for name, value in parameters.items()}} if parameters else {}
    event["queryStringParameters"] = joined
    if not joined:
        del event["queryStringParameters"]
    return event


def rest_call(*arguments: Any, **options: Any) -> ApiCall:
    """What is read of a REST API event."""
    return ApiCall.of(rest(*arguments, **options))


def http_call(*arguments: Any, **options: Any) -> ApiCall:
    """What is read of an HTTP API event."""
    return ApiCall.of(http(*arguments, **options))


def _route(method: str, path: str) -> tuple[str, dict[str, str]]:
    """The resource that API Gateway finds, and the parameters as the path has them; the path if it finds none."""
    found = find_route(_ROUTES, method, path)
    return (found[0].path, found[1]) if found else (path, {})


def _body(body: Any, as_base64: bool) -> dict[str, Any]:
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    if as_base64 and text is not None:
        text = base64.b64encode(text.encode()).decode()
    return {"body": text, "isBase64Encoded": as_base64}


class Context:
    """What Lambda tells a handler of its invocation."""

    function_name = "meanwhile-Function"
    function_version = "1"
    memory_limit_in_mb = 256
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:meanwhile-Function"
    aws_request_id = "5f0c1c1e-0000-4000-8000-000000000000"
    identity = None
    client_context = None

    def __init__(self, seconds: float = 25) -> None:
        self._deadline = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._deadline - time.monotonic()) * 1000))
