"""Credentials that a provider says back: masked before an expression sees them, taken out of links."""

from typing import Any
from urllib.parse import quote

import pytest

from shared.outcome import Completed, Failed
from shared.provider.credentials.attachment import Attachment
from shared.provider.language.part import Reference
from shared.provider.language.security import ApiKey
from shared.reasons import Reason
from tests.provider.test_attempt import answering
from tests.support.asking import POLLED, Secrets, ask, provider, record, rules
from tests.support.servers import ELSEWHERE, PUBLIC, Says, Seen, Site, internet

SECRET = "sEcr3t/=k y"
QUERY = {"type": "apiKey", "in": "query", "name": "key", "secret": "env:KEY"}
HEADER = {"type": "apiKey", "in": "header", "name": "X-Key", "prefix": "Key ", "secret": "env:KEY"}
BEARER = {"type": "http", "scheme": "bearer", "secret": "env:KEY"}
BASIC = {"type": "http", "scheme": "basic", "secret": "env:KEY"}


def asked(site: Site, security: Any, secret: str = SECRET, **parts: Any) -> Any:
    return provider(rules(site.url, security=[security], **parts), Secrets({"env:KEY": secret}))


def keyed(secret: str) -> Attachment:
    """A key in the query."""
    made = Attachment()
    made.add(ApiKey(where="query", name="key", secret=Reference("env:KEY")), secret)
    return made


@pytest.mark.parametrize(("link", "without"), [
    ("/j?key=KEY", "/j"), ("/j?key=KEY&a=1", "/j?a=1"), ("/j?a=1&key=KEY", "/j?a=1"),
    ("/j?a=1&key=KEY&b=2#c", "/j?a=1&b=2#c"), ("/j?key=KEY&key=KEY#c", "/j#c"),
    ('</j?a=1&key=KEY>; rel="next", </k?key=KEY>', '</j?a=1>; rel="next", </k>'), ("/j?key=MASKED&a=1", "/j?a=1"),
    ("/j?other=KEY", "/j?other=MASKED"), ("/j?key=KEYS", "/j?key=MASKEDS"), ("/KEY/j", "/MASKED/j"),
])  # fmt: skip
def test_a_key_leaves_the_query_of_a_link_and_is_masked_elsewhere(link: str, without: str) -> None:
    attachment = keyed("k3y-/+ of us")
    assert attachment.text(link.replace("KEY", quote("k3y-/+ of us", safe=""))) == without


def test_a_location_that_has_the_key_is_kept_without_it_and_works() -> None:
    def answer(seen: Seen) -> Says:
        if seen.method == "POST":
            return Says(202, {"status": "working"}, {"Location": f"/jobs/1?{seen.query}&v=1"})
        return Says(200, {"status": "completed", "said": seen.target})

    parts: Any = {
        "submit": {"method": "POST", "url": "/jobs", "outputs": {"u": "headers.location"}},
        "poll": {"url": "${outputs.u}"},
    }
    with Site(answer) as site:
        one = asked(site, QUERY, **parts, data="body.said")
        first = ask(one)
        assert first.record.outputs == {"u": site.url + "/jobs/1?v=1"}
        second = ask(one, first.record)
        assert second.outcome == Completed("/jobs/1?v=1")
        assert site.calls[1].query == site.calls[0].query.replace("key", "v=1&key")
        assert "sEcr3t" not in first.record.to_text() + second.record.to_text()


def test_a_redirect_that_has_the_key_is_followed_without_telling_it() -> None:
    def answer(seen: Seen) -> Says:
        if seen.path == "/jobs":
            return Says(302, b"", {"Location": f"/done?{seen.query}"})
        return Says(200, {"status": "completed"})

    with Site(answer) as site:
        assert ask(asked(site, QUERY, data="url")).outcome == Completed(site.url + "/done")
        assert site.calls[1].query == site.calls[0].query


@pytest.mark.parametrize("location", ["/x?{}", "/x?other={}", "/{}"])
def test_a_redirect_to_another_origin_takes_no_key_with_it(location: str) -> None:
    def answer(seen: Seen) -> Says:
        return Says(302, b"", {"Location": "http://b.example" + location.format(seen.query.removeprefix("key="))})

    with Site(Says(200, {"status": "completed"})) as there, Site(answer) as here:
        with internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}):
            one = provider(rules("http://a.example", security=[QUERY]), Secrets({"env:KEY": SECRET}))
            assert isinstance(ask(one).outcome, Completed)
        assert "sEcr3t" in here.calls[0].target
        assert "sEcr3t" not in there.calls[0].target


def test_a_link_that_is_the_result_comes_without_the_key() -> None:
    def answer(seen: Seen) -> Says:
        return Says(200, {"status": "completed", "u": f"{site.url}/file?{seen.query}"})

    with Site(answer) as site:
        one = asked(site, QUERY, result={"url": "${response.body.u}", "decode": "url"})
        assert ask(one).outcome == Completed(site.url + "/file")


@pytest.mark.parametrize(
    ("security", "error"), [(BEARER, "bad Bearer MASKED"), (HEADER, "bad Key MASKED"), (BASIC, "bad Basic MASKED")]
)
def test_an_error_that_quotes_the_credential_is_kept_without_it(security: Any, error: str) -> None:
    def answer(seen: Seen) -> Says:
        return Says(403, {"error": f"bad {seen.headers['Authorization'] or seen.headers['X-Key']}"})

    with Site(answer) as site:
        assert ask(asked(site, security, "me:sEcr3t/=k")).outcome == Failed(Reason.UPSTREAM, error)


def test_a_password_is_masked_without_its_user() -> None:
    with Site(Says(403, {"error": "me knows no sEcr3t-word"})) as site:
        assert ask(asked(site, BASIC, "me:sEcr3t-word")).outcome == Failed(Reason.UPSTREAM, "me knows no MASKED")


def test_a_token_that_comes_back_is_masked() -> None:
    oauth = {"type": "oauth2", "clientId": "us", "clientSecret": "env:KEY"}
    routes = {"/token": Says(200, {"access_token": "t0ken-of-today"}), "/jobs": Says(403, {"error": "t0ken-of-today"})}
    with Site(answering(routes)) as site:
        one = asked(site, oauth | {"tokenUrl": site.url + "/token"})
        assert ask(one).outcome == Failed(Reason.UPSTREAM, "MASKED")


def test_what_is_kept_while_a_job_runs_holds_no_secret() -> None:
    said = {"status": "working", "id": f"j-{SECRET}", "progress": SECRET, SECRET: [SECRET]}
    with Site(Says(202, said)) as site:
        found = ask(asked(site, BEARER, **POLLED, progress="body.progress"), record())
        assert found.record.outputs == {"id": "j-MASKED"}
        assert "sEcr3t" not in found.record.to_text()


def test_a_secret_of_less_than_8_characters_is_left_in_data() -> None:
    said = {"status": "completed", "u": "/x?key=working", "list": ["working", "networking"]}
    with Site(Says(200, said)) as site:
        assert ask(asked(site, QUERY, "working")).outcome == Completed(said)


@pytest.mark.parametrize(("secret", "shown"), [("1234567", "1234567"), ("12345678", "MASKED")])
def test_the_shortest_secret_that_is_masked_has_eight_characters(secret: str, shown: str) -> None:
    attachment = keyed(secret)
    assert attachment.text(f"it is {secret}") == f"it is {shown}"
    assert attachment.text(f"/j?key={secret}&a=1") == ("/j?a=1" if shown == "MASKED" else f"/j?key={secret}&a=1")


def test_a_pair_that_has_been_masked_already_may_stand_in_a_body_and_without_one_nothing_does() -> None:
    query = keyed(SECRET)
    assert query.may_be_in(b"/j?key=MASKED")
    assert not query.may_be_in(b"/j?key=")
    assert not Attachment().may_be_in(b"/j?key=MASKED")
