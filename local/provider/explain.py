"""Says in plain sentences what a provider file will do."""

import json
from collections.abc import Iterable, Iterator
from urllib.parse import urljoin

from shared.codec import Json
from shared.limits import UNLIMITED
from shared.provider.language.acceptor import Acceptor
from shared.provider.language.operation import Operation
from shared.provider.language.part import ABSENT
from shared.provider.language.placeholder import lone
from shared.provider.language.rules import ERROR, Rules
from shared.provider.language.security import ApiKey, Http, OAuth2, Scheme
from shared.provider.language.signature import BODY

MEANS = {
    "pending": "counts as still running",
    "success": "completes",
    "failure": "fails",
    "retry": "is tried again",
    "resubmit": "begins a new job",
}
_BODIES = {
    "application/json": "a JSON body",
    "application/x-www-form-urlencoded": "a form",
    "text/plain": "a text",
    "text/csv": "CSV",
}


def sentences(rules: Rules, first_answer_seconds: float) -> Iterator[str]:
    """What happens to a task, in the order in which it happens."""
    yield from _submit(rules, first_answer_seconds)
    if rules.security:
        origins = ", ".join(rules.servers)
        yield f"It sends {_listed(map(_credential, rules.security), 'and')} to {origins}, and to no other origin."
    yield from _callback(rules)
    yield from _again(rules)
    yield from _limits(rules)
    if any(one.argument is rules.status and one.matcher != "status" for one in rules.acceptors):
        yield f"Its status is {rules.status.text}."
    yield from (f"{_reply(one, rules)} {_meaning(one, rules)}." for one in rules.acceptors)
    yield from _unmatched(rules)
    yield from _result(rules)
    yield from _read(rules)
    yield from _ends(rules)


def span(seconds: float) -> str:
    """A span for people: 90 s, 10 min, 24 h."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size or seconds == size == 3600:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:g} s"


def request(operation: Operation, server: str) -> str:
    """A request in a few words; what is filled in later stands in ${…}."""
    url = operation.url if lone(operation.url) else urljoin(server, operation.url)
    asked = "&".join(f"{name}={_plain(value)}" for name, value in operation.query.items())
    query = f"{'&' if '?' in url else '?'}{asked}" if asked else ""
    body = "" if operation.body is None else f" with {_BODIES[operation.content_type]}"
    return f"{operation.method} {url}{query}{body}"


def delays(rules: Rules) -> str:
    """When the provider is asked again, as long as it does not say when."""
    spans = rules.polling
    first = [spans.first_delay, *(min(spans.max_delay, spans.min_delay * spans.multiplier**n) for n in range(1, 5))]
    low = spans.min_delay
    high = low if spans.multiplier == 1 else spans.max_delay
    between = f"{low:g} s" if low == high else f"{low:g}–{high:g} s"  # noqa: RUF001 (a dash between numbers)
    if len(set(first)) == 1:
        return f"every {between}"
    is_drawn = spans.jitter == "full" and spans.multiplier > 1
    jitter = f", each at random down to {spans.min_delay:g} s" if is_drawn else ""
    return f"every {between} (after {', '.join(f'{round(delay, 2):g}' for delay in first)}, … s{jitter})"


def _submit(rules: Rules, first_answer_seconds: float) -> Iterator[str]:
    steps = [request(operation, rules.servers[0]) for operation in rules.submit_steps]
    kept = [name for operation in rules.submit_steps for name in operation.outputs]
    keeps = f", and keeps {_listed(kept, 'and')} of the reply" if kept else ""
    yield f"It submits {', then '.join(steps)}{keeps}."
    waits = rules.first_answer_seconds(first_answer_seconds)
    yield f"A new request waits up to {waits:g} s for that." if waits else "A new request does not wait for that."


def _callback(rules: Rules) -> Iterator[str]:
    if rules.calls_back and (signed := rules.callback.signature):
        prefix = f"{signed.prefix}…" if signed.prefix else signed.encoding
        how = f"{signed.algorithm} as {prefix} in {signed.header}, with the key {_listed(signed.secret, 'or')}"
        over = "" if signed.signed == BODY else f", over {signed.signed}"
        yield f"It may call back: what it signs ({how}{over}) is believed like a reply."
        if signed.timestamp:
            most = span(signed.timestamp.tolerance)
            yield f"A callback that was signed more than {most} before or after it comes is refused."
        else:
            yield "Callbacks do not say when they were signed, so they replace no partial data or outputs; polls do."
    elif rules.calls_back:
        yield "It may call back: unsigned, so the task is only asked about sooner."


def _again(rules: Rules) -> Iterator[str]:
    again = request(rules.poll, rules.servers[0]) if rules.poll else "the same request"
    if not rules.poll and len(rules.submit_steps) > 1:
        again = request(rules.submit_steps[-1], rules.servers[0])
    hints = [f"{hint.argument.text} ({hint.unit})" for hint in rules.polling.hints] + ["Retry-After"]
    yield f"It asks again with {again}, {delays(rules)}, or when the reply says: {_listed(hints, 'or')}."


def _limits(rules: Rules) -> Iterator[str]:
    limits = rules.limits
    if limits.rate_seconds is not None:
        most = len(rules.submit_steps) + len(rules.result_steps)
        counts = f" (one may take {most} requests{' and more pages' if _pages(rules) else ''})" if most > 1 else ""
        often = _rate(limits.rate_seconds)
        yield f"All workers together begin {often}{counts}, up to {limits.burst} at once after a quiet time."
    if limits.parallel is not None:
        attempts = "attempt" if limits.parallel == 1 else "attempts"
        yield f"All workers together make {limits.parallel} {attempts} at once, not more."
    if limits.open_jobs is not None:
        jobs = "job is" if limits.open_jobs == 1 else "jobs are"
        yield f"At most {limits.open_jobs} {jobs} open at once; further tasks wait, not started."
    if limits != UNLIMITED:
        yield "At a limit, new requests are accepted without asking."


def _rate(seconds: float) -> str:
    return f"at most {1 / seconds:.3g} attempts per second" if seconds < 1 else f"one attempt every {seconds:.3g} s"


def _pages(rules: Rules) -> bool:
    return any(one.next is not ABSENT for one in rules.result_steps[-1:])


def _reply(acceptor: Acceptor, rules: Rules) -> str:
    expected = _listed(map(_plain if acceptor.matcher == "status" else _value, acceptor.any_of), "or") or "nothing"
    argument = acceptor.argument.text
    about = f" in {argument}" if argument != rules.status.text else ""
    stages = [stage for stage in ("submit", "poll", "result") if stage in acceptor.stages]
    is_usual = stages == ["submit", "poll"] or (stages and "result" not in stages and not rules.poll)
    where = "" if is_usual else f" (in the reply to {_listed(stages, 'and') or 'nothing'})"
    match acceptor.matcher:
        case "status":
            return f"HTTP {expected}{where}"
        case "pathAny":
            return f"{expected} among {argument}{where}"
        case "pathAll":
            return f"nothing but {expected} in {argument}{where}"
        case "path" if acceptor.any_of == [True]:
            return f"{argument}{where}"
    return f"{expected}{about}{where}"


def _meaning(acceptor: Acceptor, rules: Rules) -> str:
    if acceptor.state == "success" and rules.result and acceptor.stages != {"result"}:
        return "completes, once its result is fetched"
    if acceptor.state == "failure":
        said = "what the reply says of it" if rules.error is ERROR else rules.error.text
        return f"fails with {said if acceptor.message is ABSENT else acceptor.message.text}"
    if acceptor.state == "resubmit":
        return f"begins a new job, at most {_times(rules.polling.max_resubmits)}"
    return MEANS[acceptor.state]


def _unmatched(rules: Rules) -> Iterator[str]:
    yield (
        f"An unknown 2xx counts as still running. No reply, half of one, or what edges and proxies say (429, 5xx …) is "
        f"tried again, at most {_times(rules.polling.max_errors)} in a row. Any other reply fails with "
        f"{'what it says' if rules.error is ERROR else rules.error.text}."
    )
    if any(isinstance(scheme, OAuth2) for scheme in rules.security):
        yield "A 401 renews the token, once in a row."
    if rules.polling.not_found_grace and not _names_404(rules):
        yield f"A 404 within {span(rules.polling.not_found_grace)} after the submit is tried again."


def _names_404(rules: Rules) -> bool:
    return any(one.names(404) and "poll" in one.stages for one in rules.acceptors)


def _result(rules: Rules) -> Iterator[str]:
    if rules.result:
        steps = [_fetch(operation, rules.servers[0]) for operation in rules.result_steps]
        yield f"After success it {', then '.join(steps)}."
    if _pages(rules):
        yield (
            "Amid pages it waits where a 429 or 503 says for how long and the attempt has the time; else the next one "
            "goes on at the same page, or without SPILL_BUCKET begins at the first, until there are too many errors."
        )


def _fetch(operation: Operation, server: str) -> str:
    if operation.decode == "url":
        return f"keeps the link {operation.url} itself"
    pages = f" with every page that {operation.next.text} leads to" if operation.next is not ABSENT else ""
    decoded = f" as {operation.decode}" if operation.decode != "auto" else ""
    optional = ", if there is one" if operation.optional else ""
    return f"fetches {request(operation, server)}{decoded}{pages}{optional}"


def _read(rules: Rules) -> Iterator[str]:
    if not any(one.decode == "url" for one in rules.result_steps[-1:]):
        yield f"The data is {rules.data.text}{' of the last reply' if rules.result else ''}."
    if rules.require is not ABSENT:
        yield f"A success without {rules.require.text} is tried again."
    if rules.partial.text not in ("null", "`null`"):
        yield f"While it runs, {rules.partial.text} is shown as partial data."
    if rules.progress is not ABSENT:
        yield f"Its progress is {rules.progress.text}."


def _ends(rules: Rules) -> Iterator[str]:
    cancel = f", and is cancelled with {request(rules.cancel, rules.servers[0])}" if rules.cancel else ""
    yield f"It fails with timeout {span(rules.polling.max_wait_time)} after its first submit{cancel}."
    fresh, failed = span(rules.freshness), span(rules.freshness_failed)
    yield f"Completed data answers new requests for {fresh}, a failure for {failed}."


def _credential(scheme: Scheme) -> str:
    match scheme:
        case Http(scheme="bearer", secret=secret):
            return f"a bearer token from {secret}"
        case Http(secret=secret):
            return f"user and password from {secret}"
        case ApiKey(where=where, name=name, secret=secret):
            return f"the {where} {name} from {secret}"
        case OAuth2(token_url=url, client_secret=secret):
            return f"a token of {url} (client secret from {secret})"


def _value(value: Json) -> str:
    return f"'{value}'" if isinstance(value, str) else _plain(value)


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _listed(words: Iterable[str], last: str) -> str:
    *most, end = [*words] or [""]
    return f"{', '.join(most)} {last} {end}" if most else end


def _times(number: float) -> str:
    return "never" if number == 0 else "once" if number == 1 else f"{number:g} times"
