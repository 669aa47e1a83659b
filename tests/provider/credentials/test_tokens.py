"""The token endpoint is part of the provider: its hints, statuses and errors, its failures met once for all threads."""

import base64
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import pytest

from shared.errors import TransportError
from shared.outcome import Completed, Failed, Retry
from shared.provider.credentials.credentials import Credentials
from shared.provider.credentials.tokens import CODE_CHARACTERS, SHARED_SECONDS
from shared.provider.language.hint import LONGEST_HINT_SECONDS
from shared.provider.language.part import Reference, Url
from shared.provider.language.security import OAuth2, Scheme
from shared.provider.wire.transport import Transport
from tests.support.asking import NO_JITTER, Secrets, ask, fails, provider, rules
from tests.support.clock import START_MS, Clock
from tests.support.servers import GUARD_SECONDS, Cut, Says, Seen, Site

SECRET = "s3cr3t-marker"
OAUTH = {"type": "oauth2", "clientId": "us", "clientSecret": "env:SECRET"}
GOOD = Says(200, {"access_token": "t0ken-of-today", "token_type": "Bearer"})


def oauth(url: str, **fields: Any) -> OAuth2:
    known: dict[str, Any] = {"client_id": "us", "client_secret": Reference("env:SECRET")}
    return OAuth2(token_url=Url(url), **(known | fields))


def made(site: Site, clock: Clock | None = None, secrets: Secrets | None = None, **fields: Any) -> Credentials:
    schemes: list[Scheme] = [oauth(site.url + "/token", **fields)]
    known = secrets or Secrets({"env:SECRET": SECRET})
    return Credentials(schemes, known, Transport(4), clock=(clock or Clock()).monotonic)


def failure(credentials: Credentials, **options: Any) -> TransportError:
    with fails("token") as caught:
        credentials.attach(20, **options)
    return caught.value


def in_turn(*said: Says | Cut) -> Callable[[Seen], Says | Cut]:
    """These, one after the other, then a good one."""
    left = list(said)
    return lambda _: left.pop(0) if left else GOOD


# --- its hints


@pytest.mark.parametrize(("status", "headers", "seconds"), [
    (429, {"Retry-After": "600"}, 600), (503, {"Retry-After": "600"}, 600), (500, {"Retry-After": "600"}, 600),
    (403, {"Retry-After": "600"}, 600), (400, {"Retry-After": "600"}, 600), (429, {"retry-after-ms": "600000"}, 600),
    (429, {"Retry-After": f"{START_MS / 1000 + 600}"}, 600), (429, {"X-RateLimit-Reset": f"{START_MS + 600_000}"}, 600),
    (429, {"Date": "Thu, 01 Jan 2026 00:00:00 GMT", "Retry-After": "Thu, 01 Jan 2026 00:10:00 GMT"}, 600),
    (429, {"Retry-After": "86400"}, LONGEST_HINT_SECONDS), (429, {"Retry-After": "9999999999"}, LONGEST_HINT_SECONDS),
])  # fmt: skip
def test_nobody_asks_a_token_endpoint_before_it_says(status: int, headers: dict[str, str], seconds: float) -> None:
    """C24."""
    clock = Clock()
    with Site(in_turn(Says(status, b"", headers))) as site:
        credentials = made(site, clock)
        assert failure(credentials).hint_seconds == seconds
        clock.advance(seconds - 1)
        assert failure(credentials, fresh=True, since=clock.monotonic()).hint_seconds == 1
        assert len(site.calls) == 1
        clock.advance(1)
        assert credentials.attach(20).headers == {"Authorization": "Bearer t0ken-of-today"}


def test_the_retry_has_the_hint_and_pauses_the_provider_for_all() -> None:
    """C24."""
    token = Says(429, {"error": "slow_down"}, {"Retry-After": "600"})
    with Site(lambda seen: token if seen.path == "/token" else Says(200, {"status": "completed"})) as site:
        polling: Any = {"maxErrors": 1, **NO_JITTER}
        asked = provider(rules(site.url, security=[OAUTH | {"tokenUrl": site.url + "/token"}], polling=polling), KNOWN)
        first = ask(asked)
        assert isinstance(first.outcome, Retry)
        assert first.outcome.reason == "token"
        assert 599 < first.outcome.delay_seconds <= 600
        assert 599 < first.outcome.pause_seconds <= 600
        assert 599 < asked.delays.health({"a": first}).pause_seconds <= 720
        assert asked.delays.health({"a": first}).unwell == {"a"}
        last = ask(asked, first.record)
        host = site.url.removeprefix("http://")
        assert isinstance(last.outcome, Failed)
        assert last.outcome.error == f"the token endpoint {host} replied 429 (slow_down)"
        assert 599 < last.outcome.pause_seconds <= 600
        assert [call.path for call in site.calls] == ["/token"]


KNOWN = Secrets({"env:SECRET": SECRET})


@pytest.mark.parametrize(("polling", "delay"), [({"minDelay": 5}, 5), ({"minDelay": 2}, 2)])
def test_a_hint_of_nothing_is_raised_to_the_shortest_delay(polling: Any, delay: float) -> None:
    with Site(Says(503, b"", {"Retry-After": "0"})) as site:
        security = [OAUTH | {"tokenUrl": site.url}]
        found = ask(provider(rules(site.url, security=security, polling=polling | NO_JITTER), KNOWN)).outcome
        assert isinstance(found, Retry)
        assert found.delay_seconds == delay


# --- a failure is everybody's


FAILURES = [
    Says(500), Says(503), Says(400, {"error": "invalid_client"}), Says(401), Says(200, b"<html>"), Says(302), Says(404),
    Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"), Cut(), Cut(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
    Says(200, "x" * 10_000_001),
]  # fmt: skip


@pytest.mark.parametrize("said", FAILURES, ids=repr)
def test_a_failure_counts_for_every_thread_for_a_moment_then_it_is_asked_again(said: Says | Cut) -> None:
    """C24."""
    clock = Clock()
    with Site(in_turn(said)) as site:
        credentials = made(site, clock)
        first = failure(credentials)
        assert first.hint_seconds is None
        assert site.url.removeprefix("http://") in str(first)
        asked = site.connections
        assert str(failure(credentials)) == str(first)
        assert site.connections == asked
        clock.advance(SHARED_SECONDS)
        assert credentials.attach(20).headers == {"Authorization": "Bearer t0ken-of-today"}


def test_threads_that_wait_for_a_fetch_that_fails_do_not_repeat_it_however_long_it_took() -> None:
    """C24."""
    threads, clock = 16, Clock()
    together = threading.Barrier(threads)

    def answer(_: Seen) -> Says:
        clock.advance(15)
        return Says(503)

    with Site(answer) as site, ThreadPoolExecutor(threads) as pool:
        credentials = made(site, clock)

        def fetch(_: int) -> str:
            together.wait(GUARD_SECONDS)
            return str(failure(credentials))

        assert len(set(pool.map(fetch, range(threads)))) == 1
        assert len(site.calls) == 1


def test_who_has_no_time_left_spoils_nothing_for_others() -> None:
    with Site(GOOD) as site:
        credentials = made(site)
        with fails("token"):
            credentials.attach(0)
        assert credentials.attach(20).headers == {"Authorization": "Bearer t0ken-of-today"}


def test_each_scheme_has_a_token_of_its_own() -> None:
    def answer(seen: Seen) -> Says:
        return Says(200, {"access_token": "token-of" + seen.path.replace("/", "-")})

    with Site(answer) as site:
        schemes: list[Scheme] = [oauth(f"{site.url}/a"), oauth(f"{site.url}/b")]
        credentials = Credentials(schemes, KNOWN, Transport(1))
        for _ in range(2):
            assert credentials.attach(20).headers == {"Authorization": "Bearer token-of-b"}
        assert [call.path for call in site.calls] == ["/a", "/b"]


# --- its statuses and errors


@pytest.mark.parametrize(("said", "told"), [
    (Says(400, {"error": "invalid_client"}), "replied 400 (invalid_client)"), (Says(401), "replied 401"),
    (Says(400, {"error": "invalid_scope", "error_description": "none"}), "replied 400 (invalid_scope)"),
    (Says(503, b"<html>"), "replied 503"), (Says(400, {"error": {"code": 1}}), "replied 400"),
    (Says(400, {"error": 'a"b\\c\r\nd\u20ace'}), "replied 400 (abcde)"), (Says(400, []), "replied 400"),
    (Says(400, {"error": "x" * 5000}), f"replied 400 ({'x' * CODE_CHARACTERS})"),
    (Says(400, {"error": f"bad {SECRET}"}), "replied 400 (bad MASKED)"),
    (Says(400, {"error": "x" * (CODE_CHARACTERS - 4) + SECRET}), f"replied 400 ({'x' * (CODE_CHARACTERS - 4)}MASK)"),
    (Says(401, {"error": "bad " + base64.b64encode(f"us:{SECRET}".encode()).decode()}), "replied 401 (bad MASKED)"),
    (Says(302, b"", {"Location": "/elsewhere"}), "replied 302"),
    (Says(200, {"access_token": "a", "token_type": "mac"}), "replied 200, without a token that can be used"),
    (Says(200, {"error": "invalid_client"}), "replied 200 (invalid_client)"),
], ids=repr)  # fmt: skip
def test_its_errors_name_it_and_tell_no_secret(said: Says, told: str, caplog: pytest.LogCaptureFixture) -> None:
    """C24."""
    with Site(said) as site, caplog.at_level(logging.WARNING):
        schemes: list[Scheme] = [oauth(f"{site.url}/hidden-path?k=hidden")]
        error = failure(Credentials(schemes, KNOWN, Transport(1)))
        host = site.url.removeprefix("http://")
        assert str(error) == f"the token endpoint {host} {told}"
    (line,) = (one for one in caplog.records if one.getMessage() == "no token")
    assert vars(line)["reason"] == str(error)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("said", [
    Says(401), Says(401, {"error": "invalid_client"}), Says(400, {"error": "invalid_client"}),
    Says(400, {"error": "invalid_grant"}), Says(403, {"error": "invalid_client"}),
], ids=repr)  # fmt: skip
def test_a_secret_that_was_rotated_is_read_anew_when_it_is_refused(said: Says) -> None:
    """C24."""
    known = Secrets({"env:SECRET": "the-old-one"})
    known("env:SECRET", fresh=False)
    known.values["env:SECRET"] = "the-new-one"
    with Site(lambda seen: GOOD if b"the-new-one" in seen.body else said) as site:
        assert made(site, secrets=known, client_auth="post").attach(20).headers["Authorization"].endswith("of-today")
        assert len(site.calls) == 2


@pytest.mark.parametrize("said", [Says(401), Says(400, {"error": "invalid_client"})], ids=repr)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_secret_that_is_refused_and_no_other_by_now_is_not_sent_twice(said: Says, is_gone: bool) -> None:
    known = Secrets({"env:SECRET": SECRET})
    known("env:SECRET", fresh=False)
    if is_gone:
        del known.values["env:SECRET"]
    with Site(said) as site:
        failure(made(site, secrets=known))
        assert len(site.calls) == 1
        assert [fresh for _, fresh in known.reads] == [False, False, True]


@pytest.mark.parametrize("said", [
    Says(400, {"error": "invalid_scope"}), Says(503), Says(429), Says(401, b"", {"Retry-After": "600"}),
], ids=repr)  # fmt: skip
def test_a_secret_is_not_read_anew_for_what_it_is_not_to_blame_for(said: Says) -> None:
    known = Secrets({"env:SECRET": SECRET})
    with Site(said) as site:
        failure(made(site, secrets=known))
    assert [fresh for _, fresh in known.reads] == [False]


# --- what it gives


@pytest.mark.parametrize("kind", ["bearer", "Bearer", "BEARER", " bearer ", "BearerToken", None])
def test_a_bearer_token_is_one_in_any_case(kind: str | None) -> None:
    """C24."""
    with Site(Says(200, {"access_token": "t0ken", "token_type": kind})) as site:
        assert made(site).attach(20).headers == {"Authorization": "Bearer t0ken"}


SPECIAL = ["a+b%c/d:e=f&g", "%41%2B", "p\u00e4\u20ac \U0001f511 s", "a b", "~._-*!'()", ":", "100%"]


@pytest.mark.parametrize("secret", SPECIAL)
@pytest.mark.parametrize("client", ["us", "a:b+c%/\u00e4"])
def test_id_and_secret_are_form_encoded_in_the_header_and_in_the_form(secret: str, client: str) -> None:
    """C24: RFC 6749, 2.3.1."""
    with Site(GOOD) as site:
        for way in ("basic", "post"):
            made(site, secrets=Secrets({"env:SECRET": secret}), client_id=client, client_auth=way).attach(20)
        header, form = site.calls[0].headers["Authorization"], parse_qs(site.calls[1].body.decode())
        name, _, password = base64.b64decode(header.removeprefix("Basic ")).decode("ascii").partition(":")
        assert (unquote_plus(name), unquote_plus(password)) == (client, secret)
        assert (form["client_id"], form["client_secret"]) == ([client], [secret])
        assert site.calls[1].headers["Authorization"] is None


# --- and what it was given or gave is hidden in what the API says


def test_the_clients_secret_the_header_with_it_and_tokens_of_before_are_hidden() -> None:
    """C32."""
    clock, secret = Clock(), "s3cr3t+/: marker"
    told: list[str] = [secret]

    def answer(seen: Seen) -> Says:
        if seen.path == "/token":
            told.append(seen.headers["Authorization"].removeprefix("Basic "))
            told.append(f"t0ken-number-{len(told)}")
            return Says(200, {"access_token": told[-1], "expires_in": 60})
        return Says(200, {"status": "completed", "told": told})

    with Site(answer) as site:
        credentials = made(site, clock, Secrets({"env:SECRET": secret}))
        for _ in range(2):
            credentials.attach(20)
            clock.advance(100)
        attachment = credentials.attach(20)
        text = f"<{'><'.join(told)}>"
        assert attachment.text(text) == "<MASKED>" * 7
        assert credentials.hiding().text(text) == "<MASKED>" * 7
        for _ in range(20):
            clock.advance(100)
            attachment = credentials.attach(20)
        assert attachment.text(f"{secret} {told[-2]} {told[-1]} {told[-3]}") == "MASKED MASKED MASKED MASKED"


def test_an_api_that_tells_the_clients_secret_leaves_none_in_the_data() -> None:
    """C32."""
    pair = base64.b64encode(f"us:{SECRET}".encode()).decode()
    said = {"status": "completed", "a": SECRET, "b": f"Basic {pair}", "c": pair.rstrip("="), "d": "t0ken-of-today"}
    with Site(lambda seen: GOOD if seen.path == "/token" else Says(200, said)) as site:
        found = ask(provider(rules(site.url, security=[OAUTH | {"tokenUrl": site.url + "/token"}]), KNOWN)).outcome
    masked = {"status": "completed", "a": "MASKED", "b": "Basic MASKED", "c": "MASKED", "d": "MASKED"}
    assert found == Completed(masked)


def test_a_url_that_cannot_be_asked_stays_a_fault_of_the_file() -> None:
    schemes: list[Scheme] = [oauth("http://*.example/token")]
    with fails("invalid-request"):
        Credentials(schemes, KNOWN, Transport(1)).attach(20)
