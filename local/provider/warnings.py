"""What in a sound provider file is likely not meant, or not safe: the warnings of `check`."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from shared.provider.language.expression import Expression
from shared.provider.language.operation import Operation
from shared.provider.language.placeholder import is_placeholder, literals
from shared.provider.language.rules import Rules
from shared.provider.language.security import OAuth2
from shared.provider.wire.origin import has_origin, origin_of
from shared.settings import Settings

ENVELOPE = ("statusCode", "headers", "body", "url", "input", "outputs", "null")
"""What an expression over an answer may read; `null` is how some write that there is nothing."""
_SECRET_NAMES = re.compile(r"authorization|cookie|api-?key|token|secret|password", re.IGNORECASE)


def doubts(rules: Rules, settings: Settings) -> Iterator[str]:
    """One sentence for each."""
    yield from _repeated_submit(rules, settings)
    if rules.signature and not rules.calls_back:
        yield "$.callback: no submit gives ${callback.url} away, so nobody calls back"
    yield from _acceptors(rules)
    yield from _polling(rules)
    yield from _places(rules)
    for place, operation in rules.operations():
        yield from _url(place, operation, rules)
        yield from _body(place, operation)
        yield from _in_vain(place, operation, rules)
    for place, expression in _expressions(rules):
        yield from _expression(place, expression)


def _repeated_submit(rules: Rules, settings: Settings) -> Iterator[str]:
    if rules.poll is None or all(operation.method in ("GET", "PUT", "DELETE") for operation in rules.submit):
        return
    if any(one.refers_to("task") for operation in rules.submit for _, one in operation.placed()):
        return
    seconds = rules.first_answer_seconds
    seconds = settings.first_answer_seconds if seconds is None else seconds
    yield (
        "$.submit carries no idempotency key (${task.id}): when its answer is lost or late it is sent again, and "
        "begins a second job. Send the key if the provider takes one; else set firstAnswer above the time that the "
        f"submit usually takes (it is {seconds:g} s)"
    )


def _acceptors(rules: Rules) -> Iterator[str]:
    stages = {"submit", "poll", "result"} - (set() if rules.result else {"result"})
    if not any(one.state == "success" and one.on & {"submit", "poll"} for one in rules.acceptors):
        yield "$.acceptors: none means success in the answer to submit or poll, so no task ever completes"
    for i, one in enumerate(rules.acceptors):
        place = f"$.acceptors[{i}]"
        if not one.on & stages:
            yield f"{place} never applies: {'there is no result operation' if one.on else 'on is empty'}"
        if not one.expected:
            yield f"{place} never matches: expected is an empty list"
        if (
            one.matcher == "path"
            and one.argument.text == "statusCode"
            and any(isinstance(e, str) for e in one.expected)
        ):
            yield f"{place} never matches: statusCode is a number and expected a text; matcher status knows ranges"


def _polling(rules: Rules) -> Iterator[str]:
    pace = rules.backoff
    if pace.max_delay < pace.min_delay:
        yield f"$.polling: maxDelay ({pace.max_delay:g} s) is shorter than minDelay ({pace.min_delay:g} s)"
    if pace.initial_delay > rules.max_wait_seconds:
        initial, most = pace.initial_delay, rules.max_wait_seconds
        yield f"$.polling: initialDelay ({initial:g} s) is longer than maxWaitTime ({most:g} s)"


def _places(rules: Rules) -> Iterator[str]:
    """Servers and credentials."""
    for i, server in enumerate(rules.servers):
        parts = urlsplit(server)
        is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if rules.security and parts.scheme == "http" and not is_local:
            yield f"$.servers[{i}]: credentials go over http, where everybody on the way can read them"
        if parts.query or parts.fragment:
            yield f"$.servers[{i}]: a query or fragment of a server plays no part in relative URLs"
    for i, scheme in enumerate(rules.security):
        if isinstance(scheme, OAuth2) and re.match("ssm:|secretsmanager:|env:", scheme.client_id):
            yield f"$.security[{i}].clientId is sent as it is; only secrets are read by reference"


def _url(place: str, operation: Operation, rules: Rules) -> Iterator[str]:
    url, server = operation.url, rules.servers[0]
    path = urlsplit(server).path.rstrip("/")
    if path and url.startswith("/") and not url.startswith(("//", path)):
        yield (
            f"{place}.url begins with /, so the path of the server, {path}, plays no part; write {url[1:]!r}, and the "
            "server with / at its end"
        )
    elif path and not server.endswith("/") and not url.startswith(("/", "$", "http:", "https:")):
        yield f"{place}.url takes the place of the last part of {path}; write the server with / at its end"
    if url.startswith("${") and not url.startswith("${+") and not is_placeholder(url):
        yield f"{place}.url begins with a value, which is percent-encoded; write ${{+…}} if it is the start of a URL"
    if any("${" in part for part in literals(url)):
        yield f"{place}.url has a ${{ without its }}"
    host = url.partition("//")[2].partition("/")[0]
    is_fixed = has_origin(url) and "$" not in host
    if rules.security and is_fixed and origin_of(url) not in map(origin_of, rules.servers):
        yield f"{place}.url is not on an origin of servers, so it goes without credentials"


def _body(place: str, operation: Operation) -> Iterator[str]:
    kind, body = operation.content_type, operation.body
    if operation.method == "GET" and body is not None:
        yield f"{place} has a body, but its method is GET"
    plain = kind.startswith("text/") and isinstance(body, dict | list)
    if plain or (kind.endswith("urlencoded") and isinstance(body, list)):
        yield f"{place}.body is sent as JSON, although contentType says {kind}"
    for part, values in (("headers", operation.headers), ("query", operation.query)):
        for name, value in values.items():
            if _SECRET_NAMES.search(name) and isinstance(value, str) and "${" not in value:
                yield f"{place}.{part}.{name} looks like a secret in the file; security takes it by reference"


def _in_vain(place: str, operation: Operation, rules: Rules) -> Iterator[str]:
    is_last = bool(rules.result) and operation is rules.result[-1]
    if operation.next and not is_last:
        yield f"{place}.next plays no part: only the last result operation has pages"
    if operation.optional and not place.startswith("$.result"):
        yield f"{place}.optional plays no part: it is for result operations"
    if operation.decode == "url" and not is_last:
        yield f"{place}.decode is url, but only the last result operation's link is kept"


def _expressions(rules: Rules) -> Iterator[tuple[str, Expression]]:
    """Every expression over an answer, each with its place."""
    for key, one in (
        ("status", rules.status),
        ("data", rules.data),
        ("partial", rules.partial),
        ("error", rules.error),
    ):
        if not (key == "partial" and one is rules.data):
            yield f"$.{key}", one
    if rules.progress:
        yield "$.progress", rules.progress
    for i, acceptor in enumerate(rules.acceptors):
        if acceptor.argument is not rules.status:
            yield f"$.acceptors[{i}].argument", acceptor.argument
        if acceptor.message:
            yield f"$.acceptors[{i}].message", acceptor.message
    for i, hint in enumerate(rules.hints):
        yield f"$.polling.hints[{i}].argument", hint.argument
    for place, operation in rules.operations():
        yield from ((f"{place}.outputs.{name}", one) for name, one in operation.outputs.items())
        if operation.next:
            yield f"{place}.next", operation.next


def _expression(place: str, expression: Expression) -> Iterator[str]:
    for name, field in sorted(expression.references, key=str):
        if name not in ENVELOPE:
            yield f"{place}: {expression.text} reads {name!r}, which no answer has; did you mean body.{name}?"
        elif name == "headers" and field and field != field.lower():
            yield f'{place}: header names are in lower case: headers."{field.lower()}"'
