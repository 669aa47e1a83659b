"""REST API (version 1) events and answers, as a stage without binary media types has them."""

from urllib.parse import parse_qsl

from local.aws.message import Answer, Event, MalformedAnswerError, Reply, Request
from local.sam_template import Route, no_room


class RestApi:
    """The path and its parameters stay percent-encoded; repeated headers and parameters are listed."""

    no_route = Reply.message(
        403, "Missing Authentication Token", ("x-amzn-ErrorType", "MissingAuthenticationTokenException")
    )
    too_large = Reply(413, [("Content-Type", "text/plain")], b"HTTP content length exceeded 10485760 bytes.")
    failed = Reply.message(502, "Internal server error", ("x-amzn-ErrorType", "InternalServerErrorException"))
    timed_out = Reply.message(504, "Endpoint request timed out")

    @property
    def no_room(self) -> Reply:
        """As the template says."""
        told, prefix = no_room(), "gatewayresponse.header."
        ((kind, body),) = told["responseTemplates"].items()
        headers = [(name.removeprefix(prefix), value.strip("'")) for name, value in told["responseParameters"].items()]
        return Reply(int(told["statusCode"]), [("Content-Type", kind), *headers], body.encode())

    def is_sample_of(self, event: Event, route: Route) -> bool:
        """Whether an event from events/ shows this route in this shape."""
        return event.get("httpMethod") == route.method and event.get("resource") == route.path

    def event(self, sample: Event, route: Route, request: Request) -> Event:
        """The event for a request."""
        headers = _listed(request.forwarded())
        query = _listed(parse_qsl(request.query, keep_blank_values=True))
        return {
            **sample,
            "resource": route.path,
            "path": request.path,
            "httpMethod": request.method,
            "headers": {name: values[-1] for name, values in headers.items()},
            "multiValueHeaders": headers,
            "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
            "multiValueQueryStringParameters": query or None,
            "pathParameters": request.parameters or None,
            "requestContext": self._context(sample, route, request),
            "body": request.body.decode(errors="replace") if request.body else None,
            "isBase64Encoded": False,
        }

    def reply(self, answer: object) -> Reply:
        """The reply for a function's answer."""
        parsed = Answer.parsed(answer)
        several = parsed.rest.get("multiValueHeaders") or {}
        if not isinstance(several, dict) or not all(isinstance(values, list) for values in several.values()):
            raise MalformedAnswerError("multiValueHeaders is not an object of lists")
        once = [(name, value) for name, value in parsed.headers if name not in several]
        headers = [*once, *((name, str(value)) for name, values in several.items() for value in values)]
        if not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/json"))
        return Reply(parsed.status, headers, parsed.body.encode())

    def _context(self, sample: Event, route: Route, request: Request) -> Event:
        """As behind a custom domain that is mapped to the stage: the path has no stage in it."""
        identity = {"sourceIp": request.client, "userAgent": request.header("User-Agent") or None}
        return {
            **sample["requestContext"],
            "resourcePath": route.path,
            "httpMethod": request.method,
            "path": request.path,
            "requestId": request.id,
            "requestTime": request.time(),
            "requestTimeEpoch": int(request.at * 1000),
            "domainName": request.header("Host"),
            "identity": {**sample["requestContext"]["identity"], **identity},
        }


def _listed(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for name, value in pairs:
        listed.setdefault(name, []).append(value)
    return listed
