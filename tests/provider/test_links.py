"""Links that replies give: what they are relative to, what goes along, and whose errors are theirs."""

from collections.abc import Callable
from typing import Any

import pytest

from shared.outcome import Completed, Retry
from shared.provider import Finding
from shared.provider.language.rules import Rules
from shared.reasons import Reason
from tests.support.asking import DONE, TASK, Secrets, ask, outcome, provider, record, rules, submitted
from tests.support.servers import ELSEWHERE, PUBLIC, Cut, Says, Seen, Site, internet

TOKEN = {"type": "http", "scheme": "bearer", "secret": "env:TOKEN"}
FILLED = {"Authorization": "Bearer ${input.t}", "X-Api-Key": "${input.t}", "X-Own": "fixed", "Accept": "text/csv"}
SECRET = "callers-secret"
FAR = Says(200, {"data": [2]})


def answering(routes: dict[str, Says]) -> Callable[[Seen], Says]:
    return lambda seen: routes[seen.target]


def begun(site: Site, **parts: Any) -> Finding:
    """A task whose submit the site has answered."""
    return ask(provider(rules(f"{site.url}/base/", **parts)))


# --- what a link is relative to


@pytest.mark.parametrize(("link", "url"), [
    ("operations/7", "/v1/operations/7"), ("/operations/7", "/operations/7"), ("../7", "/7"),
    ("?page=2", "/v1/exports?page=2"), ("./7", "/v1/7"), ("//a.example/7", "//a.example/7"),
    ("operations/50%", "/v1/operations/50%25"),
])  # fmt: skip
@pytest.mark.parametrize("where", ["headers.location", "body.link", "body.links[0]", "body.job.href", "body"])
def test_a_link_kept_as_an_output_is_relative_to_the_url_that_gave_it(link: str, url: str, where: str) -> None:
    body = {"link": link, "links": [link], "job": {"href": link, "id": 7}}
    read = "${outputs.m.link}" if where == "body" else "${outputs.m}"
    submit = {"method": "POST", "url": "/v1/exports", "outputs": {"m": where, "id": "body.job.id"}}
    with Site(Says(202, body, {"Location": link})) as site:
        found = begun(site, submit=submit, poll={"url": read})
        assert found.record.outputs is not None
        kept = found.record.outputs["m"]["link"] if where == "body" else found.record.outputs["m"]
        assert kept == (site.url if url[1] != "/" else "http:") + url
        assert found.record.outputs["id"] == 7


def test_a_link_in_a_polls_reply_is_relative_to_that_poll_and_to_where_a_redirect_led() -> None:
    poll = {"url": "${outputs.m}", "outputs": {"m": "headers.location"}}
    submit = {"method": "POST", "url": "/v1/exports", "outputs": {"m": "headers.location"}}
    routes = {
        "/v1/exports": Says(202, b"", {"Location": "jobs/7"}), "/v1/jobs/7": Says(307, b"", {"Location": "/v2/at/7"}),
        "/v2/at/7": Says(202, b"", {"Location": "?turn=2"}), "/v2/at/7?turn=2": Says(200, {"status": "completed"}),
    }  # fmt: skip
    with Site(answering(routes)) as site:
        asked = provider(rules(site.url, submit=submit, poll=poll))
        known = ask(asked, ask(asked).record).record
        assert known.outputs == {"m": site.url + "/v2/at/7?turn=2"}
        assert isinstance(ask(asked, known).outcome, Completed)


@pytest.mark.parametrize(("said", "path"), [
    ("/grün e".encode().decode("latin-1"), "/gr%C3%BCn%20e"), ("/gr\xfcn", "/gr%C3%BCn"),
    ("/50%?a=b c", "/50%25?a=b%20c"),
])  # fmt: skip
def test_a_link_in_a_header_is_encoded_as_in_a_redirect(said: str, path: str) -> None:
    submit = {"method": "POST", "url": "/x", "outputs": {"m": "headers.location"}}
    with Site(Says(202, b"", {"Location": said})) as site:
        asked = provider(rules(site.url, submit=submit, poll={"url": "${outputs.m}"}))
        ask(asked, ask(asked).record)
        assert site.calls[-1].target == path


def test_what_the_file_makes_up_itself_is_relative_to_the_server() -> None:
    submit = {
        "method": "POST",
        "url": "/v1/exports",
        "outputs": {"m": "headers.location || join('/', ['jobs', body.id])"},
    }
    with Site(Says(202, {"id": "7"})) as site:
        found = begun(site, submit=submit, poll={"url": "${outputs.m}"})
        assert found.record.outputs == {"m": "jobs/7"}
        ask(provider(rules(f"{site.url}/base/", submit=submit, poll={"url": "${outputs.m}"})), found.record)
        assert site.paths[-1] == "/base/jobs/7"


def test_an_output_that_no_url_begins_with_is_kept_as_it_is() -> None:
    submit = {"method": "POST", "url": "/v1/exports", "outputs": {"m": "headers.location"}}
    with Site(Says(202, b"", {"Location": "operations/7"})) as site:
        assert begun(site, submit=submit, poll={"url": "/v1/${+outputs.m}"}).record.outputs == {"m": "operations/7"}
        began = begun(site, submit=submit, poll={"url": "${+outputs.m}/wait"}).record.outputs
        assert began == {"m": site.url + "/v1/operations/7"}


def test_a_link_of_a_result_is_relative_to_the_reply_before_it() -> None:
    parts = {
        "poll": {"url": "/v1/jobs/j"},
        "result": [{"url": "${response.body.files}"}, {"url": "${response.body.file}"}],
    }
    routes = {
        "/v1/jobs/j": Says(200, {"status": "completed", "files": "j/files/"}),
        "/v1/jobs/j/files/": Says(200, {"file": "1"}), "/v1/jobs/j/files/1": Says(200, [1]),
    }  # fmt: skip
    with Site(answering(routes)) as site:
        assert ask(provider(rules(site.url, **parts)), submitted()).outcome == Completed([1])


# --- what goes along


def asked_abroad(way: str, far: Says | Cut = FAR, **more: Any) -> tuple[list[Seen], Finding]:
    """What another origin is asked, when this way leads there."""
    link = "http://b.example/far"
    done = Says(200, {"status": "completed", "link": link, "data": [1], "next": link}, {"Location": link})
    operation = {"url": "/x", "headers": FILLED} | more
    linked = operation | {"url": "${response.body.link}"}
    ways: dict[str, dict[str, Any]] = {
        "redirect": {"poll": operation},
        "output": {"poll": operation | {"url": "${outputs.link}"}},
        "begins": {"poll": operation | {"url": "${+outputs.link}"}},
        "result": {"poll": {"url": "/x"}, "result": linked},
        "next": {"poll": {"url": "/x"}, "result": operation | {"next": "body.next"}, "data": "body.data"},
        "links": {"poll": {"url": "/x"}, "result": operation | {"next": "links.next"}, "data": "body.data"},
        "input": {"poll": operation | {"url": "${input.link}"}},
        "host": {"poll": operation | {"url": "http://${input.host}/far"}},
        "submit": {"submit": [{"url": "/x"}, linked], "poll": {"url": "/x"}},
        "cancel": {"poll": {"url": "/x"}, "cancel": operation | {"url": "${outputs.link}"}},
    }
    parts = ways[way]
    if way == "redirect":
        done = Says(307, b"", {"Location": link})
    if way == "links":
        done = Says(200, {"status": "completed", "data": [1]}, {"Link": f"<{link}>; rel=next"})
    known = submitted(outputs={"link": link}, input={"t": SECRET, "link": link, "host": "b.example"})
    if way == "submit":
        known = record(input={"t": SECRET})
    with Site(lambda _: far) as there, Site(done) as here:
        with internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}):
            asked = provider(
                rules("http://a.example", security=[TOKEN], **parts), Secrets({"env:TOKEN": "the-api-token"})
            )
            found = ask(asked, known)
            if way == "cancel":
                asked.cancel(TASK, known, seconds=5)
        return there.calls, found


WAYS = ["redirect", "output", "begins", "result", "next", "links", "input", "host", "submit", "cancel"]


@pytest.mark.parametrize("way", WAYS)
def test_no_way_off_the_origin_takes_a_header_along(way: str) -> None:
    [call], _ = asked_abroad(way)
    assert SECRET not in str(call.headers)
    assert "the-api-token" not in f"{call.target}{call.headers}"
    assert (call.headers["X-Own"], call.headers["Accept"]) == (None, "text/csv")


@pytest.mark.parametrize("way", ["output", "result", "submit"])
def test_a_link_elsewhere_takes_no_parameter_along_that_a_value_fills(way: str) -> None:
    query = {"key": "${input.t}", "v": "2024", "all": ["${input.t}"], "id": "${task.name}", "at": "${outputs.link}"}
    [call], _ = asked_abroad(way, query=query)
    assert call.query == "v=2024"


@pytest.mark.parametrize("way", ["redirect", "output", "next", "input", "submit"])
def test_no_way_off_the_origin_takes_a_harmless_header_along_that_a_value_fills(way: str) -> None:
    headers = {
        "user-agent": "${input.t}",
        "Accept": "x/${input.t}",
        "Range": "bytes=${input.t}",
        "Accept-Language": "de",
    }
    [call], _ = asked_abroad(way, headers=headers)
    assert SECRET not in str(call.headers)
    assert (call.headers["User-Agent"], call.headers["Accept-Language"]) == ("meanwhile", "de")


def test_a_host_that_the_file_names_gets_the_headers_of_the_file_but_no_credentials() -> None:
    with (
        Site(Says(200, {"status": "completed"})) as there,
        internet(dict.fromkeys(["b.example", "eu.b.example"], (PUBLIC, there))),
    ):
        for url in ("http://b.example/x", "http://${input.r}.b.example/x"):
            file = rules("http://a.example", security=[TOKEN], poll={"url": url, "headers": FILLED})
            ask(provider(file, Secrets({"env:TOKEN": "the-api-token"})), submitted(input={"t": SECRET, "r": "eu"}))
    assert [(call.headers["Authorization"], call.headers["X-Api-Key"]) for call in there.calls] == [
        (f"Bearer {SECRET}", SECRET)
    ] * 2


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_takes_a_body_to_no_origin_that_the_file_does_not_name(status: int) -> None:
    leads = Says(status, b"", {"Location": "http://b.example/far"})
    with Site(Says(200, {"id": 1})) as there, Site(leads) as here:
        with internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}):
            submit = {"method": "POST", "url": "/x", "body": "${input}"}
            lost = ask(provider(rules("http://a.example", submit=submit, poll={"url": "/x"})))
            assert (outcome(lost)["is"], outcome(lost)["reason"], there.calls) == ("retry", "redirects", [])
            servers = ["http://a.example", "http://b.example"]
            named = Rules.from_json({"servers": servers, "submit": submit, "acceptors": [DONE]})
            ask(provider(named), record(input={"a": 1}))
        assert [call.body for call in there.calls] == [b'{"a":1}']


# --- whose error it is


FAILS = [Says(status, {"error": "gone"}, {"Retry-After": "600"}) for status in (400, 401, 403, 404, 410, 429, 500, 503)]


@pytest.mark.parametrize("way", ["redirect", "output", "result", "next", "links", "submit"])
@pytest.mark.parametrize("far", [*FAILS, Cut(b"")])
def test_a_far_host_that_fails_is_the_links_own_trouble(way: str, far: Says | Cut) -> None:
    _, found = asked_abroad(way, far)
    assert isinstance(found.outcome, Retry)
    assert (found.outcome.reason, found.outcome.pause_seconds) == (Reason.EXPIRED_LINK, 0)
    assert found.record.unauthorized_at is None


def test_a_401_of_a_far_host_leaves_the_token_of_the_api_alone() -> None:
    oauth = {"type": "oauth2", "clientId": "us", "clientSecret": "env:TOKEN", "tokenUrl": "http://a.example/token"}
    near = {
        "/token": Says(200, {"access_token": "t"}),
        "/x": Says(200, {"status": "completed", "link": "http://b.example/"}),
    }
    with Site(Says(401)) as there, Site(answering(near)) as here:
        with internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}):
            parts = {"security": [oauth], "poll": {"url": "/x"}, "result": {"url": "${response.body.link}"}}
            asked = provider(rules("http://a.example", **parts), Secrets({"env:TOKEN": "secret"}))
            ask(asked, ask(asked, submitted()).record)
        assert here.paths == ["/token", "/x", "/x"]


@pytest.mark.parametrize(
    "link", ["http://[", "ftp://b.example/", "https://", "http://u:p@b.example/", "http://b.example:x/"]
)
def test_a_link_that_is_none_is_the_fault_of_the_reply(link: str) -> None:
    done = Says(200, {"status": "completed", "link": link})
    with Site(done) as site:
        for parts in ({"result": {"url": "${response.body.link}"}}, {"result": {"url": "${outputs.link}"}}):
            poll = {"poll": {"url": "/x", "outputs": {"link": "body.link"}}}
            found = outcome(ask(provider(rules(site.url, **parts | poll)), submitted()))
            assert (found["is"], found["reason"]) == ("retry", "expired-link")


def test_a_host_that_a_caller_names_is_judged_as_the_api_is() -> None:
    with Site(Says(404)) as there, internet({"b.example": (PUBLIC, there)}):
        file = rules("http://a.example", submit={"url": "${input.link}"})
        found = outcome(ask(provider(file), record(input={"link": "http://b.example/"})))
        assert (found["is"], found["reason"]) == ("failed", "upstream")
