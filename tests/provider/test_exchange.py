"""Operations sent: filled, with credentials where these may go, within the attempt's time."""

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from shared.codec import Json
from shared.provider import pages as pages_module
from shared.provider.credentials.credentials import Credentials
from shared.provider.envelope import Decoded, enveloped
from shared.provider.exchange import Exchange
from shared.provider.language.acceptor import Acceptor
from shared.provider.language.next_page import NextPage
from shared.provider.language.operation import Operation
from shared.provider.pages import MAX_PAGES, pages
from shared.provider.shelf import Cursor
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.provider.wire.transport import Transport
from tests.support.asking import DONE, Secrets, ask, fails, outcome, provider, rules
from tests.support.servers import ELSEWHERE, PUBLIC, Peer, Says, Seen, Site, Wire, internet, redirects

KEY = {"type": "apiKey", "in": "header", "name": "X-Key", "secret": "env:KEY"}
CONTEXT: dict[str, Json] = {"input": {"a": 1}, "outputs": {}, "task": {"id": "t", "name": "n", "provider": "p"}}


def operation(url: str = "/x", **parts: Any) -> Operation:
    return Operation(url=url, **parts)


def begun(
    *servers: str,
    seconds: float = 20,
    clock: Callable[[], float] = time.monotonic,
    security: Any = (),
    unauthorized_at: int | None = None,
) -> Exchange:
    transport = Transport(2, clock=clock)
    schemes = rules(servers[0], security=list(security)).security
    credentials = Credentials(schemes, Secrets({"env:KEY": "key"}), transport)
    return Exchange(servers, transport, credentials, clock=clock).begin(seconds, unauthorized_at)


def sent(site: Site, wanted: Operation, context: dict[str, Json] | None = None, **options: Any) -> Decoded:
    found = begun(site.url, **options).send(wanted, context or CONTEXT)
    assert found is not None
    return found


# --- what is sent


def test_an_operation_is_filled_and_sent_beside_the_first_server() -> None:
    with Site(Says(200, {"b": 2}, {"X-One": "1"})) as site:
        filled = operation(
            "/jobs/${task.name}",
            method="POST",
            query={"q": "${input.a}", "gone": "${input.nothing}", "list": ["x", "${task.id}"]},
            headers={"X-Id": "${task.id}", "X-Gone": "${input.nothing}", "X-Flag": "${input.a}"},
            body={"a": "${input.a}"},
        )
        found = sent(site, filled)
        [call] = site.calls
        assert (call.method, call.target, call.body) == ("POST", "/jobs/n?q=1&list=x&list=t", b'{"a":1}')
        assert (call.headers["X-Id"], call.headers["X-Flag"], call.headers["X-Gone"]) == ("t", "1", None)
        assert found.envelope == {
            "statusCode": 200, "headers": {"x-one": "1", "content-length": "8"}, "body": {"b": 2},
            "url": site.url + "/jobs/n?q=1&list=x&list=t", "links": {}, "input": {"a": 1}, "outputs": {},
        }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (1.5, "1.5"), (["a"], '["a"]'), ({"a": None}, '{"a":null}'), ("x", "x")]
)
def test_a_header_holds_a_value_as_json(value: Any, text: str) -> None:
    with Site() as site:
        sent(site, operation(headers={"X": "${input.v}"}), CONTEXT | {"input": {"v": value}})
        assert site.calls[0].headers["X"] == text


@pytest.mark.parametrize("url", ["${input.nothing}", "/x/${input.nothing}", "${input.empty}"])
def test_a_url_without_a_value_is_not_sent(url: str) -> None:
    with Site() as site:
        assert begun(site.url).send(operation(url), CONTEXT | {"input": {"empty": ""}}) is None
        assert site.connections == 0


@pytest.mark.parametrize("link", ["http://[", "ftp://a.example", "http://u:p@a.example/", "http://\ud800/"])
def test_a_link_that_is_no_http_url_is_not_sent(link: str) -> None:
    with Site() as site, fails("invalid-request"):
        begun(site.url).send(operation("${input.link}"), CONTEXT | {"input": {"link": link}})


@pytest.mark.parametrize(("url", "value"), [
    ("/${+input.a}", "/evil.example/steal"), ("/${+input.a}", "/evil.example:80"),
    ("h${+input.a}", "ttp://evil.example/"), ("/${+input.a}${+input.a}", "/evil.example"),
])  # fmt: skip
def test_a_value_leads_to_no_other_host_than_the_file_says(url: str, value: str) -> None:
    with Site() as site, fails("invalid-request") as caught:
        begun(site.url).send(operation(url), CONTEXT | {"input": {"a": value}})
    assert str(caught.value) == "a value leads to another host"


@pytest.mark.parametrize("url", ["${input.a}", "${+input.a}/x", "http://${+input.host}/x", "//${+input.host}/x"])
def test_a_url_that_begins_with_a_value_or_names_a_host_may_lead_elsewhere(url: str) -> None:
    with Site() as here, Site() as there, internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}):
        given = {"a": "http://b.example", "host": "b.example"}
        assert begun("http://a.example").send(operation(url), CONTEXT | {"input": given})
        assert (len(here.calls), len(there.calls)) == (0, 1)


@pytest.mark.parametrize(("url", "target"), [
    ("/v/${input.a}/${+input.b}", "/v/%C3%A4%20b/50%25"), ("${input.link}", "/x%20y?d=50%25&s=a%2Bb&z=%25zz"),
])  # fmt: skip
def test_a_percent_sign_of_its_own_changes_nothing_else(url: str, target: str) -> None:
    given = {"a": "ä b", "b": "50%", "link": "/x%20y?d=50%&s=a%2Bb&z=%zz"}
    with Site() as site:
        sent(site, operation(url), CONTEXT | {"input": given})
        assert site.calls[0].target == target


def test_a_value_that_would_climb_is_not_sent() -> None:
    with Site() as site, fails("invalid-request"):
        begun(site.url).send(operation("/jobs/${input.a}"), CONTEXT | {"input": {"a": ".."}})
    assert site.connections == 0


def test_a_link_that_is_wanted_itself_is_not_fetched() -> None:
    with Site() as site:
        found = sent(site, operation("/file/${input.a}", decode="url"))
        assert (found.url, found.envelope["body"], site.connections) == (site.url + "/file/1",) * 2 + (0,)


# --- credentials


def test_credentials_go_to_every_server_of_the_file_and_to_nobody_else() -> None:
    with Site() as here, Site() as there:
        with internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, here), "c.example": ("1.1.1.1", there)}):
            exchange = begun("http://a.example", "http://b.example:8080", security=[KEY])
            for url in ("/1", "http://b.example:8080/2", "http://b.example/3", "http://c.example/4"):
                exchange.send(operation(url), CONTEXT)
        keys = [(call.path, call.headers["X-Key"]) for call in here.calls]
        assert keys == [("/1", "key"), ("/2", "key"), ("/3", None)]
        assert [call.headers["X-Key"] for call in there.calls] == [None]


def test_credentials_win_over_a_header_and_a_parameter_of_the_file() -> None:
    security = [KEY, KEY | {"in": "query", "name": "k"}]
    with Site() as site:
        sent(site, operation(headers={"X-Key": "own"}, query={"k": "own"}), security=security)
        assert (site.calls[0].headers.get_all("X-Key"), site.calls[0].query) == (["key"], "k=key")


@pytest.mark.parametrize(("url", "query"), [
    ("/x?k=old", "k=key"), ("/x?a=1&k=old&b=%26", "a=1&b=%26&k=key"), ("/x?%6B=old&kk=1&k", "kk=1&k=key"),
    ("/x", "k=key"),
])  # fmt: skip
def test_a_link_that_has_the_key_already_is_sent_with_one(url: str, query: str) -> None:
    with Site() as site:
        sent(site, operation(url), security=[KEY | {"in": "query", "name": "k"}])
        assert site.calls[0].query == query


def test_a_status_that_an_acceptor_names_is_not_followed() -> None:
    def named(status: Any) -> Acceptor:
        return Acceptor(state="success", matcher="status", expected=status)

    with Site(redirects({"/x": (303, "/y")}, Says(200, "end"))) as site:
        exchange = begun(site.url)
        for acceptors, status in (([named(303)], 303), ([named("3XX")], 303), ([named(302)], 200), ([], 200)):
            found = exchange.send(operation(), CONTEXT, acceptors)
            assert found is not None
            assert found.status == status


# --- time


def test_an_operation_gets_its_own_time_and_no_more_than_is_left() -> None:
    def dripping(peer: Peer) -> None:
        peer.request()
        peer.drip(b"H")

    for seconds, timeout in ((20.0, 0.1), (0.1, 20.0)):
        with Wire(dripping) as wire, fails("deadline"):
            begun(wire.url, seconds=seconds).send(operation(timeout=timeout), CONTEXT)
        assert wire.was_cut()


def test_the_request_after_a_token_has_only_the_time_that_the_token_left() -> None:
    oauth = {"type": "oauth2", "clientId": "us", "clientSecret": "env:KEY"}
    with Site(Says(200, {"access_token": "a"}), seconds=30) as site, fails("deadline"):
        security = [oauth | {"tokenUrl": site.url + "/token"}]
        begun(site.url, clock=site.clock, security=security).send(operation(), CONTEXT)
    assert site.paths == ["/token"]


def test_no_time_is_left_after_the_end() -> None:
    now = [0.0]
    exchange = begun("http://a.example", seconds=5, clock=lambda: now[0])
    assert exchange.seconds_left() == 5
    now[0] = 7
    assert exchange.seconds_left() == 0


# --- pages


PAGED = operation(next=NextPage("body.next"), headers={"X-Own": "1"})


def paged(pages: dict[str, Any]) -> Callable[[Seen], Says]:
    return lambda seen: Says(200, pages[seen.target])


def walked(site: Site, wanted: Operation = PAGED, **options: Any) -> list[Decoded]:
    exchange = begun(site.url, **options)
    first = exchange.send(wanted, CONTEXT)
    assert first is not None
    return list(pages(exchange, wanted, CONTEXT, first, lambda _: None, Cursor()))


def test_pages_are_followed_until_there_is_no_next() -> None:
    pages = {"/x": {"next": "?p=2"}, "/x?p=2": {"next": "/y"}, "/y": {"next": ""}}
    with Site(paged(pages)) as site:
        assert [answered.url for answered in walked(site, security=[KEY])] == [site.url + path for path in pages]
        sent = [(call.method, call.headers["X-Own"], call.headers["X-Key"]) for call in site.calls]
        assert sent == [("GET", "1", "key")] * 3


@pytest.mark.parametrize("cursor", ["a+b/c==&x=1", "ü #?%2F", 2, "../.."])
def test_a_cursor_in_the_url_of_the_next_page_is_encoded(cursor: Any) -> None:
    wanted = operation(next=NextPage("?cursor=${body.cursor}&n=2"))
    with Site(lambda seen: Says(200, {} if seen.query else {"cursor": cursor})) as site:
        assert len(walked(site, wanted)) == 2
        assert parse_qsl(site.calls[1].query) == [("cursor", str(cursor)), ("n", "2")]
        assert site.calls[1].path == "/x"


@pytest.mark.parametrize("found", [None, "", False])
def test_there_is_no_next_page_without_a_value_for_its_url(found: Any) -> None:
    for text in ("?cursor=${body.cursor}", "?a=${body.more && body.cursor}&b=${body.b}", "${body.cursor}"):
        with Site(Says(200, {"cursor": found, "more": False, "b": 1})) as site:
            assert len(walked(site, operation(next=NextPage(text)))) == 1


def test_a_cursor_leads_to_no_other_path() -> None:
    with Site(Says(200, {"cursor": "../admin"})) as site, fails("invalid-request"):
        walked(site, operation(next=NextPage("/v1/${+body.cursor}")))


def test_the_next_page_may_stand_in_a_link_header() -> None:
    pages = {"/x": {"Link": '<?p=1>; rel="prev", <?p=2>; rel="next"'}, "/x?p=2": {"Link": "</x>; rel=first"}}
    with Site(lambda seen: Says(200, {}, pages[seen.target])) as site:
        found = walked(site, operation(next=NextPage("links.next")))
        assert [one.url for one in found] == [site.url + path for path in pages]


@pytest.mark.parametrize("link", [None, "", False, True, 5, {"href": "/y"}, ["/y"]])
def test_a_next_that_is_no_text_is_no_link(link: Any) -> None:
    with Site(Says(200, {"next": link})) as site:
        assert len(walked(site)) == 1


def test_without_a_link_there_is_one_page() -> None:
    with Site(Says(200, {"next": "/y"})) as site:
        assert len(walked(site, operation())) == 1


@pytest.mark.parametrize(("link", "reason"), [
    ("/x", "pages-without-end"), ("http://[", "expired-link"), ("ftp://a.example/", "expired-link"),
    ("http://10.0.0.1/", "expired-link"),
])  # fmt: skip
def test_a_next_link_that_leads_nowhere_new_ends_it(link: Any, reason: str) -> None:
    with Site(Says(200, {"next": link})) as site, fails(reason):
        walked(site)
    assert len(site.calls) == 1


def test_pages_that_go_round_or_on_for_ever_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with Site(paged({"/x": {"next": "/y"}, "/y": {"next": "/x"}})) as site, fails("pages-without-end"):
        walked(site)
    monkeypatch.setattr(pages_module, "MAX_PAGES", 3)
    with Site(lambda seen: Says(200, {"next": seen.path + "x"})) as site, fails("pages-without-end"):
        walked(site)
    assert len(site.calls) == 3
    assert MAX_PAGES == 1000


def test_pages_together_are_no_larger_than_one_answer_may_be() -> None:
    page = b'{"next": "NEXT"}' + b" " * (MAX_RESPONSE_BYTES // 3)
    with Site(lambda seen: Says(200, page.replace(b"NEXT", seen.path.encode() + b"x"))) as site, fails("too-large"):
        walked(site)
    assert len(site.calls) == 3


def test_an_error_page_is_an_answer_like_any_other() -> None:
    with Site(lambda seen: Says(200, {"next": "/y"}) if seen.path == "/x" else Says(503, "<html>")) as site:
        assert [answered.status for answered in walked(site)] == [200, 503]


def test_slow_pages_have_the_attempts_time_together() -> None:
    with Site(lambda seen: Says(200, {"next": seen.path + "x"}), seconds=8) as site, fails("deadline"):
        walked(site, clock=site.clock)
    assert site.paths == ["/x", "/xx", "/xxx"]


def test_nothing_more_is_sent_where_decoding_took_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slowly(*arguments: Any) -> Decoded:
        now[0] += 30
        return enveloped(*arguments)

    monkeypatch.setattr("shared.provider.exchange.enveloped", slowly)
    with Site(lambda seen: Says(200, {"next": seen.path + "x"})) as site, fails("deadline"):
        walked(site, clock=lambda: now[0])
    assert site.paths == ["/x"]


def test_pages_on_another_origin_get_no_credentials() -> None:
    with Site(Says(200, {"next": None})) as there, Site(Says(200, {"next": "http://b.example/"})) as here:
        with internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}):
            exchange = begun("http://a.example", security=[KEY])
            first = exchange.send(PAGED, CONTEXT)
            assert first is not None
            assert len(list(pages(exchange, PAGED, CONTEXT, first, lambda _: None, Cursor()))) == 2
        assert [call.headers["X-Key"] for call in here.calls + there.calls] == ["key", None]


# --- bodies that cannot be decoded


@pytest.mark.parametrize("body", [b"<html>", b'{"status": "comp', b"NaN", b'{"a": 1e999}', b"\xff\xfe{\x00}\x00"])
def test_an_undecodable_body_of_a_success_is_a_retry_and_of_an_error_null(body: bytes) -> None:
    def found(status: int) -> dict[str, Any]:
        return outcome(ask(provider(rules(site.url, submit={"url": f"/{status}"}, error="[body, statusCode]"))))

    with Site(lambda seen: Says(int(seen.path[1:]), body)) as site:
        assert (found(200)["is"], found(200)["reason"]) == ("retry", "undecodable")
        assert (found(503)["is"], found(503)["reason"]) == ("retry", "http")
        for status in (300, 404):
            assert (found(status)["is"], found(status)["reason"]) == ("failed", "upstream")
            assert found(status)["error"] == [None, status]


def test_the_last_of_a_repeated_key_counts() -> None:
    with Site(Says(200, b'{"status": "working", "status": "completed"}')) as site:
        assert outcome(ask(provider(rules(site.url, acceptors=[DONE]))))["is"] == "completed"
