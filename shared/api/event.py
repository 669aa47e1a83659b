"""What API Gateway hands to a function, read once: REST (v1) and HTTP API (v2) events become one `ApiCall`.

API Gateway has decided the route before, and says so (`resource`, `routeKey`): that decides here, too. What stands in
the path decides nothing, for a stage or the base path of a custom domain stands before it, and may look like a route.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self
from urllib.parse import parse_qsl, unquote

import msgspec

from shared.errors import BadRequest, ContentTooLarge

RESOURCES = (
    "/", "/tasks", "/tasks/batch", "/tasks/revive", "/tasks/{provider}/{name}", "/erase", "/erase/{provider}/{name}",
    "/callbacks/{provider}/{token}",
)  # fmt: skip
"""The paths of the API, as the template has them."""
MAX_URL_CHARACTERS = 16_384  # of a path or a query; API Gateway takes 10,240 bytes with all headers
_PARAMETER = re.compile(r"\{(\w+)\}")


class _Identity(msgspec.Struct, rename="camel"):
    user_arn: str | None = None


class _RestContext(msgspec.Struct):
    path: str | None = None
    identity: _Identity | None = None


class _Rest(msgspec.Struct, rename="camel"):
    """What is read of a REST API event."""

    path: str
    http_method: str
    request_context: _RestContext
    resource: str = ""
    headers: dict[str, str | None] | None = None
    multi_value_headers: dict[str, list[str | None] | None] | None = None
    query_string_parameters: dict[str, str | None] | None = None
    body: str | None = None
    is_base64_encoded: bool | None = None


class _Http(msgspec.Struct):
    method: str


class _Authorizer(msgspec.Struct):
    iam: _Identity | None = None


class _HttpContext(msgspec.Struct):
    http: _Http
    stage: str = "$default"
    authorizer: _Authorizer | None = None


class _HttpApi(msgspec.Struct, rename="camel"):
    """What is read of an HTTP API event, payload format 2.0."""

    raw_path: str
    request_context: _HttpContext
    route_key: str = "$default"
    raw_query_string: str = ""
    headers: dict[str, str | None] | None = None
    path_parameters: dict[str, str] | None = None
    body: str | None = None
    is_base64_encoded: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One HTTP request. `route` is `METHOD /path/{parameter}`, one of RESOURCES where API Gateway knows it.

    `base` is what stands before that in the path: a stage, the base path of a custom domain, or nothing. `parameters`
    are those of the path, `query` has the last of each parameter, `headers` the values by lower-case name, several
    joined by commas (RFC 9110). `caller` is the ARN of who signed it, where API Gateway says so.
    """

    route: str
    base: str
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: str
    is_base64: bool
    caller: str | None = None

    @classmethod
    def of(cls, event: Any) -> Self:
        """The call that an event tells of. Raises BadRequest for what API Gateway never sends."""
        version = event.get("version") if isinstance(event, Mapping) else None
        try:
            if version == "2.0":
                return cls._of_http_api(msgspec.convert(event, _HttpApi))
            if version in (None, "1.0"):
                return cls._of_rest(msgspec.convert(event, _Rest))
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadRequest(f"this is no event of API Gateway: {error}", field="event") from error
        raise BadRequest("an event of API Gateway has the version 1.0 or 2.0", field="event")

    def content(self, most_bytes: int) -> bytes:
        """The body. Raises ContentTooLarge, before any work, and BadRequest for what is not base64 or UTF-8."""
        too_large = ContentTooLarge(f"the body is larger than {most_bytes} bytes", field="body")
        if len(self.body) > (most_bytes + 2) // 3 * 4:
            raise too_large
        try:
            body = base64.b64decode(self.body, validate=True) if self.is_base64 else self.body.encode()
        except (binascii.Error, ValueError) as error:
            claim = "base64, although the event says so" if self.is_base64 else "UTF-8"
            raise BadRequest(f"the body is not {claim}", field="body") from error
        if len(body) > most_bytes:
            raise too_large
        return body

    @classmethod
    def _of_rest(cls, event: _Rest) -> Self:
        """REST events have the path encoded, and in `requestContext` the stage before it."""
        resource, encoded, own = _found(event.resource, _short(event.path))
        several = {name: ",".join(filter(None, all_ or ())) for name, all_ in (event.multi_value_headers or {}).items()}
        return cls(
            route=f"{event.http_method} {resource}",
            base=_before(own, _short(event.request_context.path or event.path)),
            parameters={name: _decoded(name, value) for name, value in encoded.items()},
            query={name: value or "" for name, value in (event.query_string_parameters or {}).items()},
            headers=_joined(event.headers) | _joined(several),
            body=event.body or "",
            is_base64=bool(event.is_base64_encoded),
            caller=_caller(event.request_context.identity),
        )

    @classmethod
    def _of_http_api(cls, event: _HttpApi) -> Self:
        """HTTP API events have path and parameters decoded: of a name with a slash only the parameters are sure."""
        path, stage = _short(event.raw_path), event.request_context.stage
        told, given = event.route_key.partition(" ")[2], event.path_parameters or {}
        parameters: Mapping[str, str]
        if told in RESOURCES and given.keys() >= set(_PARAMETER.findall(told)):
            resource, parameters, own = told, given, told.format_map(given)
        else:
            resource, parameters, own = _found(told, path, stage)
        try:
            query = dict(parse_qsl(_short(event.raw_query_string, "query"), keep_blank_values=True, errors="strict"))
        except UnicodeDecodeError as error:
            raise BadRequest("the query is not UTF-8", field="query") from error
        return cls(
            route=f"{event.request_context.http.method} {resource}",
            base=_before(own, path),
            parameters=parameters,
            query=query,
            headers=_joined(event.headers),
            body=event.body or "",
            is_base64=bool(event.is_base64_encoded),
            caller=_caller(authorizer.iam) if (authorizer := event.request_context.authorizer) else None,
        )


def _caller(identity: _Identity | None) -> str | None:
    return identity.user_arn if identity else None


def _found(told: str, path: str, stage: str = "") -> tuple[str, Mapping[str, str], str]:
    """The resource, its parameters, and its part of the path, which the last two have as they stand there.

    Where API Gateway has decided nothing (`$default`, `{proxy+}`), the path does, from its beginning after the stage.
    Raises BadRequest where the path is not of the resource that is told.
    """
    path = path.rstrip("/")
    if told in RESOURCES:
        segments = path.split("/")
        own = "".join(f"/{one}" for one in segments[-told.count("/") :]) if told != "/" else ""
        if (match := _pattern(told).fullmatch(own or "/")) is None:
            raise BadRequest("the event's path is not of its resource", field="event")
        return told, match.groupdict(), own
    rest = (path.removeprefix(f"/{stage}") if f"{path}/".startswith(f"/{stage}/") else path) or "/"
    matches = ((resource, _pattern(resource).fullmatch(rest)) for resource in RESOURCES)
    return next(((resource, match.groupdict(), rest) for resource, match in matches if match), (rest, {}, rest))


@cache
def _pattern(resource: str) -> re.Pattern[str]:
    """What matches a resource in a path; of a decoded one a name may have slashes."""
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", resource).replace("<name>[^/]+", "<name>.+"), re.DOTALL)


def _before(own: str, path: str) -> str:
    """What stands before that part in a path."""
    path, own = path.rstrip("/"), own.rstrip("/")
    return path.removesuffix(own).rstrip("/") if path.endswith(own) else ""


def _short(text: str, field: str = "path") -> str:
    if len(text) > MAX_URL_CHARACTERS:
        raise BadRequest(f"the {field} is longer than {MAX_URL_CHARACTERS} characters", field=field)
    return text


def _decoded(name: str, segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(f"the {name} in the path is not UTF-8", field=name) from error


def _joined(headers: Mapping[str, str | None] | None) -> dict[str, str]:
    """The values by lower-case name; those of a name that is there twice joined by commas."""
    named: dict[str, list[str]] = {}
    for name, value in (headers or {}).items():
        if value:
            named.setdefault(name.lower(), []).append(value)
    return {name: ",".join(values) for name, values in named.items()}
