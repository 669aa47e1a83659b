"""Credentials: read by reference, kept, renewed, and told to nobody but those who may know them."""

import base64
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from moto import mock_aws
from msgspec import structs

from shared import aws
from shared.outcome import Completed, Failed, Retry
from shared.provider import Provider
from shared.provider.credentials.attachment import Attachment
from shared.provider.credentials.credentials import Credentials
from shared.provider.credentials.tokens import EXPIRY_MARGIN_SECONDS
from shared.provider.language.part import Reference, Url
from shared.provider.language.security import ApiKey, Http, OAuth2, Scheme
from shared.provider.wire.transport import Transport
from shared.reasons import Reason
from tests.support.asking import Secrets, ask, fails, outcome, provider, rules
from tests.support.clock import Clock
from tests.support.servers import ELSEWHERE, GUARD_SECONDS, PUBLIC, Cut, Peer, Says, Seen, Site, Wire, internet

MARKER = "s3cr3t-marker"
REFERENCE = Reference("env:SECRET")
BEARER = {"type": "http", "scheme": "bearer", "secret": "env:SECRET"}
KEY = {"type": "apiKey", "in": "header", "name": "X-Key", "secret": "env:SECRET"}
OAUTH = {"type": "oauth2", "clientId": "us", "clientSecret": "env:SECRET"}


def secrets(value: str = MARKER) -> Secrets:
    return Secrets({"env:SECRET": value})


def attached(scheme: Scheme, secret: str = MARKER, **options: Any) -> Attachment:
    return Credentials([scheme], secrets(secret), Transport(1)).attach(20, **options)


def oauth(url: str, **fields: Any) -> OAuth2:
    return OAuth2(token_url=Url(url), client_id="us", client_secret=REFERENCE, **fields)


class TokenSite(Site):
    """A token endpoint at /token, and a provider everywhere else that takes the newest token only."""

    def __init__(self, expires_in: Any = 3600) -> None:
        super().__init__(self._said)
        self.expires_in = expires_in
        self.issued = 0
        self.accepted: Callable[[str], bool] = lambda token: token == f"token-{self.issued}"

    def _said(self, seen: Seen) -> Says:
        if seen.path == "/token":
            self.issued += 1
            return Says(200, {"access_token": f"token-{self.issued}", "expires_in": self.expires_in})
        is_accepted = self.accepted(seen.headers.get("Authorization", "").removeprefix("Bearer "))
        return Says(200, {"status": "completed"}) if is_accepted else Says(401, {"error": "who are you"})

    def credentials(self, clock: Callable[[], float] = time.time, **fields: Any) -> Credentials:
        scheme = oauth(self.url + "/token", **fields)
        return Credentials([scheme], secrets(), Transport(4), clock=clock)

    def token(self, credentials: Credentials, **options: Any) -> str:
        return credentials.attach(20, **options).headers["Authorization"].removeprefix("Bearer ")

    def provider(self) -> Provider:
        return provider(rules(self.url, security=[OAUTH | {"tokenUrl": self.url + "/token"}]), secrets())


# --- where each scheme puts its secret


def test_a_bearer_secret_goes_into_the_authorization_header() -> None:
    found = attached(Http(scheme="bearer", secret=REFERENCE))
    assert (found.headers, found.query) == ({"Authorization": f"Bearer {MARKER}"}, {})


def test_a_basic_secret_is_encoded_as_utf8() -> None:
    found = attached(Http(scheme="basic", secret=REFERENCE), "us:pä€s")
    assert found.headers == {"Authorization": "Basic " + base64.b64encode("us:pä€s".encode()).decode()}


@pytest.mark.parametrize("place", ["header", "query"])
def test_a_key_goes_where_the_file_says_with_its_prefix(place: Any) -> None:
    found = attached(ApiKey(where=place, name="X-Key", prefix="Token ", secret=REFERENCE))
    sent = {"X-Key": f"Token {MARKER}"}
    assert (found.headers, found.query) == ((sent, {}) if place == "header" else ({}, sent))


def test_all_schemes_of_a_file_are_applied() -> None:
    schemes: list[Scheme] = [
        Http(scheme="bearer", secret=Reference("env:A")),
        ApiKey(where="header", name="X-Key", prefix="", secret=Reference("env:B")),
        ApiKey(where="query", name="key", prefix="", secret=Reference("env:C")),
    ]
    found = Credentials(schemes, Secrets({"env:A": "a", "env:B": "b", "env:C": "c"}), Transport(1)).attach(20)
    assert (found.headers, found.query) == ({"Authorization": "Bearer a", "X-Key": "b"}, {"key": "c"})


SCHEMES: list[Scheme] = [
    Http(scheme="bearer", secret=REFERENCE), Http(scheme="basic", secret=REFERENCE),
    ApiKey(where="header", name="X-Key", prefix="", secret=REFERENCE),
    ApiKey(where="query", name="key", prefix="", secret=REFERENCE), oauth("http://127.0.0.1:1/token"),
]  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("secret", ["", " ", f"{MARKER}\n", f" {MARKER}", f"{MARKER}\r\nX: y", "\x00", "\udcff"])
def test_a_secret_that_is_no_line_of_text_is_an_error_and_not_sent(scheme: Scheme, secret: str) -> None:
    with fails("secret") as caught:
        attached(scheme, secret)
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize("scheme", [SCHEMES[0], SCHEMES[2]])
def test_a_secret_that_a_header_cannot_carry_is_an_error_and_not_sent(scheme: Scheme) -> None:
    with fails("secret"):
        attached(scheme, "€")


# --- tokens


@pytest.mark.parametrize("auth", ["basic", "post"])
def test_a_token_is_asked_for_as_rfc_6749_says(auth: Any) -> None:
    with TokenSite() as site:
        scopes, params = ("read", "write"), {"audience": "https://api.example", "none": None}
        token = site.token(site.credentials(client_auth=auth, scopes=scopes, params=params))
        assert token == "token-1"
        call = site.calls[0]
    form = "grant_type=client_credentials&audience=https%3A%2F%2Fapi.example&scope=read+write"
    basic = "Basic " + base64.b64encode(f"us:{MARKER}".encode()).decode()
    assert (call.method, call.headers["Accept"]) == ("POST", "application/json")
    assert call.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert call.headers.get("Authorization") == (basic if auth == "basic" else None)
    assert call.body.decode() == (form if auth == "basic" else f"{form}&client_id=us&client_secret={MARKER}")


def test_a_token_is_fetched_once_for_all_threads() -> None:
    threads = 32
    together = threading.Barrier(threads)
    with TokenSite() as site:
        credentials = site.credentials()

        def fetch(_: int) -> str:
            together.wait(GUARD_SECONDS)
            return site.token(credentials)

        with ThreadPoolExecutor(threads) as pool:
            assert set(pool.map(fetch, range(threads))) == {"token-1"}
        assert site.issued == 1


def test_the_clients_secret_is_read_anew_only_after_a_refusal() -> None:
    known = secrets()
    with TokenSite() as site:
        credentials = Credentials([oauth(site.url + "/token")], known, Transport(1))
        first = credentials.attach(20)
        credentials.refused(first)
        credentials.attach(20, fresh=True, since=1)
    assert [fresh for _, fresh in known.reads] == [False, True]


def test_a_token_is_renewed_shortly_before_it_expires() -> None:
    clock = Clock()
    with TokenSite(expires_in=3600) as site:
        credentials = site.credentials(clock.monotonic)
        assert site.token(credentials) == "token-1"
        clock.advance(3600 - EXPIRY_MARGIN_SECONDS - 1)
        assert site.token(credentials) == "token-1"
        clock.advance(1)
        assert site.token(credentials) == "token-2"


@pytest.mark.parametrize(
    ("expires_in", "seconds"),
    [
        (None, 3570), (0, 3570), ("100", 70), (" 100 ", 70), (20, 10), ("40", 20), (61, 31), (0.5, 1), (-5, 3570),
        (1.5e3, 1470), ("soon", 3570), ([1], 3570), (True, 3570), ("NaN", 3570), (10**9, 86_370), (10**400, 86_370),
        ("1e999", 86_370),
    ],
)  # fmt: skip
def test_a_lifetime_is_read_kindly_and_is_never_none(expires_in: Any, seconds: float) -> None:
    clock = Clock()
    with TokenSite(expires_in) as site:
        credentials = site.credentials(clock.monotonic)
        site.token(credentials)
        clock.advance(seconds - 0.1)
        assert site.token(credentials) == "token-1"
        clock.advance(0.2)
        assert site.token(credentials) == "token-2"


def test_a_token_younger_than_the_refusal_is_not_renewed() -> None:
    clock = Clock()
    with TokenSite() as site:
        credentials = site.credentials(clock.monotonic)
        site.token(credentials)
        assert site.token(credentials, since=clock.monotonic() - 1) == "token-1"
        assert site.token(credentials, since=clock.monotonic() + 1) == "token-2"


def test_a_refused_token_is_not_used_again_and_another_is_left_alone() -> None:
    with TokenSite() as site:
        credentials = site.credentials()
        first = credentials.attach(20)
        credentials.refused(Attachment())
        assert site.token(credentials) == "token-1"
        credentials.refused(first)
        assert site.token(credentials) == "token-2"
        credentials.refused(first)
        assert site.token(credentials) == "token-2"


@pytest.mark.parametrize("said", [
    Says(400, {"error": "invalid_client"}), Says(401), Says(500), Says(201, {"access_token": "a"}), Says(200),
    Says(200, b"<html>"), Says(200, []), Says(200, "null"), Says(200, '"token"'), Says(200, {}),
    Says(200, {"access_token": None}), Says(200, {"access_token": ""}), Says(200, {"access_token": 5}),
    Says(200, {"access_token": "a\r\nX: y"}), Says(200, {"access_token": "a b\n"}), Says(200, {"access_token": "€"}),
    Says(200, {"access_token": "a", "token_type": "mac"}), Says(200, {"access_token": "a", "token_type": ["bearer"]}),
    Says(200, {"access_token": "a", "token_type": ""}), Says(200, "x" * 10_000_001), Says(200, '{"access_token": "a'),
    Says(200, '{"access_token": "a", "expires_in": NaN}'), Says(302, b"", {"Location": "/elsewhere"}),
])  # fmt: skip
def test_an_answer_without_a_usable_token_is_an_error(said: Says) -> None:
    with Site(said) as site:
        with fails("token"):
            attached(oauth(site.url))
        assert len(site.calls) == 1


@pytest.mark.parametrize("auth", ["basic", "post"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_client_secret_follows_no_redirect(auth: Any, status: int) -> None:
    with Site() as there, Site(Says(status, b"", {"Location": "http://elsewhere.example/token"})) as here:
        hosts = {"login.example": (PUBLIC, here), "elsewhere.example": (ELSEWHERE, there)}
        with internet(hosts), fails("token"):
            attached(oauth("http://login.example/token", client_auth=auth))
        assert there.connections == 0


def test_a_token_comes_from_a_private_address_as_the_file_names_it_and_nothing_else_does() -> None:
    with TokenSite() as site, Site(Says(200, {"status": "completed"})) as api:
        security = [OAUTH | {"tokenUrl": site.url + "/token"}]
        assert outcome(ask(provider(rules(api.url, security=security), secrets())))["is"] == "completed"
        assert api.calls[0].headers["Authorization"] == "Bearer token-1"
        strayed = provider(rules(api.url, security=security, submit={"url": site.url + "/jobs"}), secrets())
        assert outcome(ask(strayed))["reason"] == "refused-target"


def test_a_token_endpoint_that_never_answers_costs_no_more_than_the_attempt() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.drip(b"HTTP/1.1 200 OK\r\n")

    with Wire(script) as wire:
        asked = provider(rules(wire.url, security=[OAUTH | {"tokenUrl": wire.url}]), secrets())
        assert outcome(ask(asked, seconds=0.2))["reason"] == "token"
        assert wire.was_cut()
        assert wire.connections == 1


def test_waiting_for_another_threads_token_costs_no_more_than_the_attempt() -> None:
    asked, told = threading.Event(), threading.Event()

    def answer(_: Seen) -> Says:
        asked.set()
        told.wait(GUARD_SECONDS)
        return Says(200, {"access_token": "a"})

    with Site(answer) as site, ThreadPoolExecutor(1) as pool:
        credentials = Credentials([oauth(site.url)], secrets(), Transport(2))
        first = pool.submit(credentials.attach, GUARD_SECONDS)
        assert asked.wait(GUARD_SECONDS)
        with fails("token"):
            credentials.attach(0.05)
        told.set()
        assert first.result().headers == {"Authorization": "Bearer a"}


# --- after a 401


def test_a_401_renews_the_token_once_in_a_row() -> None:
    with TokenSite() as site:
        asked = site.provider()
        site.accepted = lambda token: token != "token-1"
        first = ask(asked)
        assert isinstance(first.outcome, Retry)
        assert (first.outcome.delay_seconds, first.outcome.reason) == (0, "unauthorized")
        assert isinstance(ask(asked, first.record).outcome, Completed)
        assert site.issued == 2


def test_a_second_401_in_a_row_is_the_end() -> None:
    with TokenSite() as site:
        asked = site.provider()
        site.accepted = lambda token: False
        first = ask(asked)
        second = ask(asked, first.record)
        assert second.outcome == Failed(Reason.UPSTREAM, "who are you")


def test_a_token_that_another_process_got_before_the_401_is_renewed() -> None:
    with TokenSite() as site:
        here, there = site.provider(), site.provider()
        site.accepted = lambda token: True
        ask(there)
        site.accepted = lambda token: token == "token-3"
        refused = ask(here)
        later = structs.replace(refused.record, unauthorized_at=2**53)  # the 401 was after that token
        assert isinstance(ask(there, later).outcome, Completed)


def accepting(wanted: str) -> Callable[[Seen], Says]:
    def answer(seen: Seen) -> Says:
        is_known = wanted in str(seen.headers) + seen.query
        return Says(200, {"status": "completed"}) if is_known else Says(401, {"error": "who are you"})

    return answer


@pytest.mark.parametrize("scheme", [BEARER, KEY, KEY | {"in": "query"}])
def test_a_secret_that_was_rotated_is_read_again_within_the_attempt(scheme: dict[str, str]) -> None:
    with Site(accepting("new")) as site:
        known = secrets("old")
        asked = provider(rules(site.url, security=[scheme]), known)
        assert outcome(ask(asked))["is"] == "failed"
        known.values["env:SECRET"] = "new"
        assert outcome(ask(asked))["is"] == "completed"
        assert outcome(ask(asked))["is"] == "completed"
        assert [fresh for _, fresh in known.reads] == [False, True, False, True, False]


def test_a_401_with_an_unchanged_secret_is_not_asked_again_and_is_the_end() -> None:
    with Site(accepting("new")) as site:
        asked = provider(rules(site.url, security=[BEARER]), secrets("old"))
        assert ask(asked).outcome == Failed(Reason.UPSTREAM, "who are you")
        assert len(site.calls) == 1


# --- secrets that cannot be had


def test_a_secret_that_cannot_be_read_is_a_retry_and_nothing_is_sent() -> None:
    with Site() as site:
        found = outcome(ask(provider(rules(site.url, security=[BEARER]), Secrets())))
        assert (found["is"], found["reason"]) == ("retry", "secret")
        assert site.connections == 0


@mock_aws
def test_a_rotated_parameter_reaches_the_provider_within_the_attempt(environment: None) -> None:
    ssm = boto3.client("ssm")
    ssm.put_parameter(Name="/key", Value="old", Type="SecureString")
    with Site(accepting("new")) as site:
        asked = provider(rules(site.url, security=[BEARER | {"secret": "ssm:/key"}]), aws.secret)
        assert outcome(ask(asked))["is"] == "failed"
        ssm.put_parameter(Name="/key", Value="new", Type="SecureString", Overwrite=True)
        assert outcome(ask(asked))["is"] == "completed"


# --- and nobody hears of it


@pytest.mark.parametrize("scheme", [
    BEARER, BEARER | {"scheme": "basic"}, KEY, KEY | {"in": "query"}, OAUTH | {"tokenUrl": "TOKEN"},
    OAUTH | {"tokenUrl": "TOKEN", "clientAuth": "post"},
])  # fmt: skip
@pytest.mark.parametrize("way", ["answered", "refused", "redirected", "cut off", "no word", "junk"])
def test_no_outcome_record_or_log_line_holds_a_secret(
    scheme: dict[str, str], way: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    first: dict[str, Says | Cut] = {
        "answered": Says(200, {"status": "working"}),
        "refused": Says(401, {"error": "no"}),
        "redirected": Says(302, b"", {"Location": "/b"}),
        "cut off": Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"),
        "no word": Cut(),
        "junk": Cut(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
    }

    def answer(seen: Seen) -> Says | Cut:
        if seen.path == "/token":
            return Says(200, {"access_token": MARKER + "-token"})
        return first[way] if seen.path == "/jobs" else Says(200, {"status": "working"})

    with Site(answer) as site:
        made = {key: value.replace("TOKEN", site.url + "/token") for key, value in scheme.items()}
        every = {"url": "url", "headers": "headers", "body": "body"}
        parts: Any = {"submit": {"url": "/jobs", "outputs": every}, "partial": "[url, headers, body]"}
        file = rules(site.url, security=[made], error=parts["partial"], **parts)
        found = ask(provider(file, secrets()))
        text = found.record.to_text() + repr(found) + caplog.text + "".join(capfd.readouterr())
    assert MARKER not in text
    assert base64.b64encode(MARKER.encode()).decode() not in text


def test_a_token_is_not_in_the_text_of_what_holds_it() -> None:
    with TokenSite() as site:
        credentials = site.credentials()
        site.token(credentials)
        assert "token-1" not in repr(credentials)
        assert MARKER not in repr(credentials)
