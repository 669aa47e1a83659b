"""Answers for the provider in a replay, as its script says, and notes which requests differ from the script."""

import base64
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from local.provider.network import Reply, Request, network
from shared.codec import Json
from shared.provider import Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.rules import Rules
from shared.provider.language.security import ApiKey, Http, OAuth2, Scheme
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.provider.wire.transport import Transport
from shared.reasons import Reason

TRANSPORT_ERRORS = {Reason.DEADLINE: "timeout", Reason.TRANSPORT: "connection", Reason.TOO_LARGE: "too-large"}
"""How a script calls it that no usable answer came, by the reason that the client gives."""


@dataclass
class Script:
    """One conversation. `exchanges` are those yet to come, `now_seconds` is the time for the client."""

    rules: Rules
    exchanges: list[Mapping[str, Any]] = field(default_factory=list)
    now_seconds: float = 0
    differences: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    refused: set[str | None] = field(default_factory=set)

    @contextmanager
    def provider(self) -> Iterator[Provider]:
        """The real client, its requests answered here."""
        with network(self.answer) as adapter:
            transport = Transport(4, adapter=adapter)
            credentials = Credentials(self.rules.security, secret, transport, clock=lambda: self.now_seconds)
            yield Provider(self.rules, transport, credentials, random.Random(1), key=lambda *_: "task-1")

    def difference(self) -> str | None:
        """The first difference so far; a request of the script that has not come is one."""
        if not self.differences and self.exchanges:
            request = self.exchanges[0]["request"]
            return f"expected {request['method']} {request['url']}, which never came"
        return self.differences[0] if self.differences else None

    def answer(self, request: Request) -> Reply | OSError:
        """What the script answers. A token endpoint answers by itself where the script does not mention it."""
        expected = self.exchanges[0]["request"].get("url") if self.exchanges else None
        if request.url != expected and request.url in token_urls(self.rules):
            self.tokens.append(f"token-{len(self.tokens) + 1}")
            return 200, {}, json.dumps({"access_token": self.tokens[-1], "expires_in": 3600}).encode()
        if not self.exchanges:
            self.differences.append(f"unexpected {request.method} {request.url}")
            return 500, {}, b""
        exchange = self.exchanges.pop(0)
        self.differences += self._faults(exchange["request"], request)
        response = exchange["response"]
        if error := response.get("transportError"):
            return _unusable(error)
        if response["statusCode"] == 401:
            self.refused.add(request.headers["Authorization"])
        content = response.get("body", "")
        text = content if isinstance(content, str) else json.dumps(content)
        return response["statusCode"], response.get("headers", {}), text.encode(errors="surrogatepass")

    def _faults(self, wanted: Mapping[str, Any], request: Request) -> Iterator[str]:
        said = f"{request.method} {self._without_keys(request.url)}"
        method, url = wanted["method"], self._without_keys(wanted["url"])
        if request.method != method or _taken_apart(self._without_keys(request.url)) != _taken_apart(url):
            yield f"expected {method} {url}, found {said}"
            return
        carried = [_carried(scheme, request, self.tokens, self.refused) for scheme in self.rules.security]
        if wanted.get("auth") is True and not (carried and all(carried)):
            yield f"{said}: credentials are missing"
        if any(times > 1 for times in carried):
            yield f"{said}: credentials are sent twice"
        if wanted.get("auth") is False and any(carried):
            yield f"{said}: credentials are sent"
        for name, value in wanted.get("headers", {}).items():
            if request.headers.get(name) != value:
                yield f"{said}: header {name} is {request.headers.get(name)!r}, not {value!r}"
        if "body" in wanted and not any(same(wanted["body"], reading) for reading in _readings(request)):
            yield f"{said}: body is {request.body.decode(errors='replace')}, not {json.dumps(wanted['body'])}"

    def _without_keys(self, url: str) -> str:
        """A URL as vectors write it: without the API keys of its query."""
        names = {one.name for one in self.rules.security if isinstance(one, ApiKey) and one.where == "query"}
        base, _, query = url.partition("?")
        kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in names]
        return f"{base}?{'&'.join(kept)}" if kept else base


def token_urls(rules: Rules) -> frozenset[str]:
    """Where the file's tokens are fetched."""
    return frozenset(scheme.token_url for scheme in rules.security if isinstance(scheme, OAuth2))


def _unusable(error: str) -> Reply | OSError:
    """What leads the client to one of the TRANSPORT_ERRORS."""
    match error:
        case "timeout":
            return TimeoutError()
        case "too-large":
            return 200, {}, bytes(MAX_RESPONSE_BYTES + 1)
    return ConnectionResetError()


def secret(reference: str, *, fresh: bool = False) -> str:  # noqa: ARG001 (a fresh one is the same)
    """The secret that a reference names here: any will do, as long as it differs from others'."""
    return "secret-of-" + reference.replace("/", "-").replace(":", "-").replace("#", "-")


def same(wanted: Json, found: Json) -> bool:
    """Whether two JSON values are equal: 2 is 2.0, but 1 is not true."""
    match wanted, found:
        case (bool(), _) | (_, bool()):
            return wanted is found
        case dict(), dict():
            return wanted.keys() == found.keys() and all(same(wanted[name], found[name]) for name in wanted)
        case list(), list():
            return len(wanted) == len(found) and all(map(same, wanted, found))
    return bool(wanted == found)


def _carried(scheme: Scheme, request: Request, tokens: list[str], refused: set[str | None]) -> int:
    """How often a request has the scheme's credentials; a token that was answered 401 counts no more."""
    sent = request.headers["Authorization"]
    match scheme:
        case Http(scheme="bearer", secret=reference):
            return sent == f"Bearer {secret(reference)}"
        case Http(secret=reference):
            return sent == "Basic " + base64.b64encode(secret(reference).encode()).decode()
        case ApiKey(where="header", name=name, prefix=prefix, secret=reference):
            return request.headers[name] == prefix + secret(reference)
        case ApiKey(name=name, prefix=prefix, secret=reference):
            return parse_qsl(urlsplit(request.url).query).count((name, prefix + secret(reference)))
        case OAuth2():
            return sent in [f"Bearer {token}" for token in tokens] and sent not in refused


def _taken_apart(url: str) -> tuple[str, list[tuple[str, str]]]:
    """A URL up to its query as it is written, and the query's pairs: `+` and `%20` are the same."""
    base, _, query = url.partition("?")
    return base, parse_qsl(query, keep_blank_values=True)


def _readings(request: Request) -> list[Json]:
    """What a vector may say of a body: its text, its JSON, or the fields of its form."""
    text = request.body.decode(errors="replace")
    content_type = request.headers.get("Content-Type", "")
    if not text:
        return ["", None]
    if "json" in content_type:
        return [text, json.loads(text)]
    if "form" in content_type:
        fields = parse_qs(text, keep_blank_values=True)
        return [text, {name: values[0] if len(values) == 1 else values for name, values in fields.items()}]
    return [text]
