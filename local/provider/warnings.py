"""What in a sound provider file is likely not meant, or not safe: the warnings of `check`."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from msgspec import UNSET

from local.provider.parts import ENVELOPE, expressions, operations
from local.provider.situations import harms
from local.provider.texts import doubtful
from shared.provider.language.expression import Expression
from shared.provider.language.operation import Operation
from shared.provider.language.part import ABSENT
from shared.provider.language.placeholder import lone
from shared.provider.language.rules import Rules
from shared.provider.language.security import OAuth2
from shared.provider.wire.origin import has_origin, origin_of
from shared.settings import Settings


def warnings(rules: Rules, settings: Settings) -> Iterator[str]:
    """One sentence for each."""
    yield from _repeated_submit(rules, settings)
    yield from _callback(rules, settings)
    yield from _acceptors(rules)
    yield from _shadows(rules)
    yield from _empty(rules)
    yield from harms(rules)
    yield from _polling(rules)
    yield from _servers(rules)
    yield from doubtful(rules)
    for location, operation in operations(rules):
        yield from _url(location, operation, rules)
        yield from _body(location, operation)
        yield from _in_vain(location, operation, rules)
    for location, expression in expressions(rules):
        yield from _expression(location, expression)


def _repeated_submit(rules: Rules, settings: Settings) -> Iterator[str]:
    """A job that may begin twice."""
    posts = [one for one in rules.submit_steps if one.method in ("POST", "PATCH") and not one.repeatable]
    if not posts or any(one.refers_to("task") for step in rules.submit_steps for _, one in step.placed()):
        return
    send = 'Send the key if the provider takes one; say `"repeatable": true` if it knows the same request again; else'
    if not rules.poll:
        yield (
            "$.submit carries no idempotency key (${task.id}), and without poll it is sent again each time it is asked "
            f"after: each may begin another job. {send} describe poll"
        )
        return
    if rules.first_answer is UNSET:
        yield (
            "$.submit carries no idempotency key (${task.id}): when its reply is lost or late it is sent again, and "
            f"begins a second job. {send} set firstAnswer above the time that the submit usually takes (it is "
            f"{settings.first_answer_seconds:g} s)"
        )


def _callback(rules: Rules, settings: Settings) -> Iterator[str]:
    if rules.callback.signature and not rules.calls_back:
        yield "$.callback: no submit gives ${callback.url} away, so nobody calls back"
    judging = (one for one in rules.acceptors if one.stages & {"poll", *(() if rules.poll else ("submit",))})
    if rules.callback.signature and rules.calls_back and all(one.matcher == "status" for one in judging):
        yield "$.callback: every acceptor is about the status, which a callback has not, so callbacks end no task"
    needed = {"CALLBACK_URL": settings.callback_url, "CALLBACK_SECRET": settings.callback_secret}
    if rules.calls_back and not all(needed.values()):
        lacking = " and ".join(name for name, value in needed.items() if not value)
        yield (
            "$.submit: ${callback.url} needs CALLBACK_URL and CALLBACK_SECRET in the deployment, which leaves the file "
            f"out without them; not set here: {lacking}"
        )


def _acceptors(rules: Rules) -> Iterator[str]:
    stages = {"submit", "poll", "result"} - (set() if rules.result else {"result"})
    if not any(one.state == "success" and one.stages & {"submit", "poll"} for one in rules.acceptors):
        yield "$.acceptors: none means success in the reply to submit or poll, so no task ever completes"
    for i, one in enumerate(rules.acceptors):
        location = f"$.acceptors[{i}]"
        if not one.stages & stages:
            yield f"{location} never applies: {'there is no result operation' if one.stages else 'on is empty'}"
        if not one.any_of:
            yield f"{location} never matches: expected is an empty list"
        if one.matcher == "path" and one.argument.text == "statusCode" and any(isinstance(e, str) for e in one.any_of):
            yield f"{location} never matches: statusCode is a number and expected a text; matcher status knows ranges"


def _shadows(rules: Rules) -> Iterator[str]:
    """A pending by status that leaves no reply to a success behind it."""
    for i, first in enumerate(rules.acceptors):
        if first.state != "pending" or not first.names(200):
            continue
        for j, later in enumerate(rules.acceptors[i + 1 :], i + 1):
            is_elsewhere = any(later.names(status) for status in range(300, 600))
            if later.state == "success" and first.stages & later.stages and not is_elsewhere:
                yield f"$.acceptors[{i}] takes every reply with status 200 before $.acceptors[{j}] (success) sees it"


def _empty(rules: Rules) -> Iterator[str]:
    """A success that says nothing of the data."""
    judges = [one for one in rules.acceptors if one.state == "success"]
    by_status = bool(judges) and all(one.is_about_status for one in judges)
    is_kept = any(one.decode == "url" for one in rules.result_steps[-1:])
    if by_status and not is_kept and rules.require is ABSENT and rules.data.text == "body":
        yield (
            "$.require is absent: the status alone tells a success and data is the whole body, so an error that comes "
            'with it is stored as data; say what data have, such as "require": "body.rows"'
        )


def _polling(rules: Rules) -> Iterator[str]:
    polling, limits = rules.polling, rules.limits
    if polling.first_delay < polling.min_delay:
        initial, least = polling.first_delay, polling.min_delay
        yield f"$.polling.initialDelay ({initial:g} s) is shorter than minDelay ({least:g} s), and is taken as it is"
    if polling.jitter == "none":
        yield "$.polling.jitter is none: tasks that are told the same delay or hint come back together"
    if polling.first_delay > polling.max_delay:
        initial, most = polling.first_delay, polling.max_delay
        yield f"$.polling.initialDelay ({initial:g} s) is longer than maxDelay ({most:g} s): the first delay alone is"
    if limits.parallel and limits.open_jobs and limits.parallel > limits.open_jobs:
        yield f"$.limits.parallel ({limits.parallel}) plays no part: there are only openJobs ({limits.open_jobs}) jobs"


def _servers(rules: Rules) -> Iterator[str]:
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


def _url(location: str, operation: Operation, rules: Rules) -> Iterator[str]:
    url, server = operation.url, rules.servers[0]
    path = urlsplit(server).path.rstrip("/")
    if path and url.startswith("/") and not url.startswith(("//", path)):
        yield (
            f"{location}.url begins with /, so the path of the server, {path}, plays no part; write {url[1:]!r}, "
            "and the server with / at its end"
        )
    elif path and not server.endswith("/") and not url.startswith(("/", "$", "http:", "https:")):
        yield f"{location}.url takes the place of the last part of {path}; write the server with / at its end"
    if url.startswith("${") and not url.startswith("${+") and not lone(url):
        yield f"{location}.url begins with a value, which is percent-encoded; write ${{+…}} if it is the start of a URL"
    host = url.partition("//")[2].partition("/")[0]
    is_fixed = has_origin(url) and "$" not in host
    if rules.security and is_fixed and origin_of(url) not in map(origin_of, rules.servers):
        yield f"{location}.url is not on an origin of servers, so it goes without credentials"


def _body(location: str, operation: Operation) -> Iterator[str]:
    kind, body = operation.content_type, operation.body
    if operation.method == "GET" and body is not None:
        yield f"{location} has a body, but its method is GET"
    plain = kind.startswith("text/") and isinstance(body, dict | list)
    if plain or (kind.endswith("urlencoded") and isinstance(body, list)):
        yield f"{location}.body is sent as JSON, although contentType says {kind}"


def _in_vain(location: str, operation: Operation, rules: Rules) -> Iterator[str]:
    is_last = bool(rules.result_steps) and operation is rules.result_steps[-1]
    if operation.next is not ABSENT and not is_last:
        yield f"{location}.next plays no part: only the last result operation has pages"
    if operation.repeatable and not location.startswith("$.submit"):
        yield f"{location}.repeatable plays no part: it is for submit operations"
    if operation.optional and not location.startswith("$.result"):
        yield f"{location}.optional plays no part: it is for result operations"
    if operation.decode == "url" and not is_last:
        yield f"{location}.decode is url, but only the last result operation's link is kept"


def _expression(location: str, expression: Expression) -> Iterator[str]:
    for name, field in sorted(expression.references, key=str):
        if name not in (*ENVELOPE, "null"):
            read = f"{location}: {expression.text} reads {name!r}, which"
            if re.search(rf'[=<>]\s*"{re.escape(name)}"|"{re.escape(name)}"\s*[!=<>]', expression.text):
                yield f"{read} no reply has; a text stands in single quotes: '{name}'"
            elif name == "response":
                meant = field if field in ENVELOPE else f"body.{field or '…'}"
                yield f"{read} is for placeholders; did you mean {meant}?"
            else:
                yield f"{read} no reply has; did you mean body.{name}?"
        elif name == "headers" and field and field != field.lower():
            yield f'{location}: header names are in lower case: headers."{field.lower()}"'
