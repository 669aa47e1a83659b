"""HTTP API events (payload format 2.0) and answers, as the stage $default has them."""

import base64
import binascii
import json
import re
from urllib.parse import parse_qsl, unquote

from local.aws.message import Answer, Event, MalformedAnswerError, Reply, Request
from local.sam_template import Route

# Only these arrive as text. Everything else arrives as base64: forms too, and bodies without a type.
TEXT = re.compile(r"(text/.*|application/(json|xml|javascript))\s*(;.*)?", re.IGNORECASE)


class HttpApi:
    """The path and its parameters come decoded; repeated headers and parameters are joined by commas."""

    no_route = Reply.message(404, "Not Found")
    too_large = Reply.message(413, "Request Entity Too Large")
    failed = Reply.message(500, "Internal Server Error")
    timed_out = Reply.message(503, "Service Unavailable")
    no_room = failed  # no template can say another

    def is_sample_of(self, event: Event, route: Route) -> bool:
        """Whether an event from events/ shows this route in this shape."""
        return event.get("routeKey") == f"{route.method} {route.path}"

    def event(self, sample: Event, route: Route, request: Request) -> Event:
        """The event for a request."""
        headers = _joined([(name.lower(), value) for name, value in request.forwarded()])
        cookies = headers.pop("cookie", None)
        query = _joined(parse_qsl(request.query, keep_blank_values=True))
        is_text = TEXT.fullmatch(request.header("Content-Type")) is not None
        optional = {
            "cookies": re.split(r"[;,]\s*", cookies) if cookies else None,
            "queryStringParameters": query or None,
            "pathParameters": {name: unquote(value) for name, value in request.parameters.items()} or None,
            "body": (request.body.decode(errors="replace") if is_text else base64.b64encode(request.body).decode())
            or None,
        }
        kept = {name: value for name, value in sample.items() if name not in optional}
        return {
            **kept,
            "routeKey": f"{route.method} {route.path}",
            "rawPath": unquote(request.path),
            "rawQueryString": request.query,
            "headers": headers,
            "requestContext": self._context(sample, route, request),
            "isBase64Encoded": bool(request.body) and not is_text,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def reply(self, answer: object) -> Reply:
        """The reply for a function's answer; one without a statusCode is itself the body of a 200."""
        if not isinstance(answer, dict) or "statusCode" not in answer:
            text = answer if isinstance(answer, str) else json.dumps(answer)
            return Reply(200, [("Content-Type", "application/json")], text.encode())
        parsed = Answer.parsed(answer)
        headers = [*parsed.headers, *(("Set-Cookie", str(cookie)) for cookie in parsed.rest.get("cookies") or [])]
        if not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("Content-Type", "text/plain;charset=UTF-8"))
        return Reply(parsed.status, headers, _bytes(parsed.body, is_base64=bool(parsed.rest.get("isBase64Encoded"))))

    def _context(self, sample: Event, route: Route, request: Request) -> Event:
        about = {
            "method": request.method,
            "path": unquote(request.path),
            "protocol": "HTTP/1.1",
            "sourceIp": request.client,
            "userAgent": request.header("User-Agent"),
        }
        return {
            **sample["requestContext"],
            "domainName": request.header("Host"),
            "http": about,
            "requestId": request.id,
            "routeKey": f"{route.method} {route.path}",
            "time": request.time(),
            "timeEpoch": int(request.at * 1000),
        }


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _bytes(body: str, *, is_base64: bool) -> bytes:
    if not is_base64:
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise MalformedAnswerError("the body is not base64") from error
