"""One attempt: which operations it sends, and what their answers mean for the task."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec import structs

from shared.outcome import Completed, Failed, Pending, Retry
from shared.provider import Finding
from shared.provider.attempt import Attempt
from shared.provider.credentials.credentials import Credentials
from shared.provider.delays import Delays
from shared.provider.exchange import Exchange
from shared.provider.language.rules import Rules
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.provider.wire.transport import Transport
from shared.reasons import Reason
from shared.record import Record
from tests.support.asking import DONE, NO_JITTER, POLLED, Secrets, ask, outcome, provider, record, rules, submitted
from tests.support.clock import START_MS
from tests.support.servers import ELSEWHERE, PUBLIC, Cut, Peer, Says, Seen, Site, Wire, internet

WORKING = Says(200, {"status": "working"})
FINISHED = Says(200, {"status": "completed"})
PACE = {"minDelay": 5, "initialDelay": 5, "maxDelay": 5, **NO_JITTER}
RESULT = {"url": "${outputs.link}", "outputs": {"etag": 'headers."etag"'}}
LINKED: dict[str, Any] = POLLED | {
    "poll": {"url": "/jobs/${outputs.id}", "outputs": {"link": "body.link"}},
    "result": RESULT,
    "data": "body.data",
}


def answering(routes: dict[str, Any]) -> Callable[[Seen], Any]:
    """Answers by path: one, or a list of them, one after the other; 500 where nothing is left."""

    def answer(seen: Seen) -> Any:
        said = routes.get(seen.path)
        if isinstance(said, list):
            return said.pop(0) if said else Says(500)
        return said or Says(404)

    return answer


def later(seconds: float) -> int:
    return START_MS + round(seconds * 1000)


# --- submit, then poll


def test_a_job_is_submitted_then_asked_after_with_what_it_was_given() -> None:
    routes = {
        "/jobs": Says(202, {"id": "j/1", "part": 1}),
        "/jobs/j%2F1": [Says(200, {"status": "working", "part": 2}), Says(200, {"status": "completed", "part": 3})],
    }
    with Site(answering(routes)) as site:
        asked = provider(rules(site.url, **POLLED, polling=PACE, data="body.part"))
        first = ask(asked)
        assert first.outcome == Pending(5, 1)
        assert first.record.outputs == {"id": "j/1"}
        second = ask(asked, first.record)
        assert second.outcome == Pending(5, 2)
        assert ask(asked, second.record).outcome == Completed(3)
        assert [(call.method, call.path) for call in site.calls] == [("POST", "/jobs")] + [("GET", "/jobs/j%2F1")] * 2


def test_without_a_poll_operation_the_last_submit_operation_asks_again() -> None:
    with Site(answering({"/a": Says(200, {}), "/b": [WORKING, FINISHED]})) as site:
        asked = provider(rules(site.url, submit=[{"url": "/a"}, {"url": "/b"}]))
        first = ask(asked)
        assert outcome(first)["is"] == "pending"
        assert outcome(ask(asked, first.record))["is"] == "completed"
        assert site.paths == ["/a", "/b", "/b"]


def test_a_provider_without_outputs_is_not_submitted_to_twice() -> None:
    with Site(answering({"/jobs": Says(202), "/state": [WORKING]})) as site:
        asked = provider(rules(site.url, submit={"url": "/jobs", "method": "POST"}, poll={"url": "/state"}))
        first = ask(asked)
        assert first.record.outputs == {}
        ask(asked, Record.from_text(first.record.to_text()))
        assert site.paths == ["/jobs", "/state"]


THREE = [
    {"url": "/a", "outputs": {"a": "body.a"}},
    {"url": "/b/${response.body.a}", "outputs": {"b": "body.b"}},
    {"url": "/c", "body": {"a": "${outputs.a}", "b": "${outputs.b}"}, "method": "POST", "outputs": {"id": "body.id"}},
]


def test_each_operation_of_a_submit_sees_the_answer_before_and_the_outputs_so_far() -> None:
    routes = {"/a": Says(200, {"a": "x"}), "/b/x": Says(200, {"b": "y"}), "/c": Says(200, {"id": "z"})}
    with Site(answering(routes)) as site:
        found = ask(provider(rules(site.url, **POLLED | {"submit": THREE})))
        assert found.record.outputs == {"a": "x", "b": "y", "id": "z"}
        assert site.calls[-1].body == b'{"a":"x","b":"y"}'


@pytest.mark.parametrize("error", [Says(503), Says(200, "<html>"), Cut(b""), Says(200, {"status": "busy"})], ids=str)
def test_an_error_between_the_operations_of_a_submit_repeats_them_all(error: Any) -> None:
    routes = {"/a": Says(200, {"a": "x"}), "/b/x": [error, Says(200, {"b": "y"})], "/c": Says(200, {"id": "z"})}
    busy = {"state": "retry", "expected": "busy", "on": ["submit"]}
    with Site(answering(routes)) as site:
        asked = provider(rules(site.url, **POLLED | {"submit": THREE}, acceptors=[busy, DONE]))
        first = ask(asked)
        assert outcome(first)["is"] == "retry"
        assert first.record.outputs is None
        assert outcome(ask(asked, first.record))["is"] == "pending"
        assert site.paths == ["/a", "/b/x", "/a", "/b/x", "/c"]


def test_a_refusal_in_the_first_operation_of_a_submit_ends_it_there() -> None:
    with Site(answering({"/a": Says(400, {"error": "no"})})) as site:
        assert ask(provider(rules(site.url, **POLLED | {"submit": THREE}))).outcome == Failed(Reason.UPSTREAM, "no")
        assert site.paths == ["/a"]


# --- outputs


def test_outputs_are_taken_from_every_answer_below_400_and_null_leaves_what_there_was() -> None:
    outputs = {"id": "body.id", "cursor": "body.cursor"}
    file = POLLED | {"poll": {"url": "/jobs/${outputs.id}", "outputs": outputs}}
    busy = {"state": "retry", "expected": "busy"}
    said = [
        Says(200, {"status": "working", "cursor": 1}), Says(200, {"status": "working", "id": None}),
        Says(200, {"status": "busy", "cursor": 2}), Says(503, {"cursor": 3}), Says(302, {"cursor": 4}),
    ]  # fmt: skip
    with Site(answering({"/jobs/j": said})) as site:
        asked, known, seen = provider(rules(site.url, **file, acceptors=[busy, DONE])), submitted(), []
        for _ in range(5):
            known = ask(asked, known).record
            seen.append(known.outputs)
        assert seen == [{"id": "j", "cursor": cursor} for cursor in (1, 1, 2, 2, 4)]


def test_an_empty_text_replaces_no_output_that_has_a_value() -> None:
    outputs = {"id": "body.id", "link": "headers.location", "x": "body.x"}
    file = POLLED | {"poll": {"url": "/jobs/${outputs.id}", "outputs": outputs}}
    with Site(Says(200, {"status": "working", "id": "", "x": ""}, {"Location": ""})) as site:
        found = ask(provider(rules(site.url, **file)), submitted(outputs={"id": "j", "link": "/l"}))
        assert found.record.outputs == {"id": "j", "link": "/l", "x": ""}


def test_an_output_that_is_too_large_leaves_what_there_was_and_the_others_are_kept() -> None:
    outputs = {"id": "body.id", "small": "body.small", "large": "body.large"}
    file = POLLED | {"poll": {"url": "/jobs/${outputs.id}", "outputs": outputs}}
    large = "a" * 30_000
    with Site(Says(200, {"status": "working", "id": large, "small": 1, "large": large})) as site:
        found = ask(provider(rules(site.url, **file)), submitted())
        assert outcome(found)["is"] == "pending"
        assert found.record.outputs == {"id": "j", "small": 1}


SENT = {
    "url": "/v1/${+outputs.name}", "headers": {"X": "${outputs.x}"}, "outputs": {"name": "body.name", "x": "body.x"},
}  # fmt: skip
KNOWN: dict[str, Any] = {"name": "ops/1", "x": "a"}


@pytest.mark.parametrize(
    "bad", [{"x": "a\nb"}, {"x": "ж"}, {"name": "/ops/1"}, {"name": "../admin"}, {"name": ""}], ids=str
)
def test_an_output_that_cannot_be_sent_replaces_none_that_can_and_without_one_it_is_tried_again(bad: Any) -> None:
    with Site(Says(200, {"status": "working"} | {"name": "ops/2", "x": "b"} | bad)) as site:
        asked = provider(rules(site.url, **POLLED | {"poll": SENT}))
        found = ask(asked, submitted(outputs=KNOWN))
        assert found.record.outputs == {"name": "ops/2", "x": "b"} | {name: KNOWN[name] for name in bad}
        if "" not in bad.values():
            found = ask(asked, submitted(outputs=KNOWN | bad))
            assert (outcome(found)["is"], outcome(found)["reason"]) == ("retry", "invalid-request")
            assert len(site.calls) == 1


@pytest.mark.parametrize("poll", [
    {"url": "/v1/${+input.bad}/${+outputs.name}"}, {"url": "/v1/${+outputs.name}", "headers": {"X": "${input.line}"}},
], ids=str)  # fmt: skip
def test_a_value_of_a_caller_that_cannot_be_sent_is_the_end_beside_whatever_a_reply_has_said(poll: Any) -> None:
    given = submitted(outputs=KNOWN, input={"bad": "../x", "line": "a\nb"})
    with Site() as site:
        found = outcome(ask(provider(rules(site.url, **POLLED | {"poll": poll})), given))
        assert (found["is"], found["reason"]) == ("failed", "invalid-request")


def test_a_cursor_that_leads_to_another_path_is_that_page_s_fault() -> None:
    result = {"url": "/f", "next": "/f/${+body.cursor}"}
    routes = {"/jobs/j": Says(200, {"status": "completed"}), "/f": Says(200, {"data": [1], "cursor": "../x"})}
    with Site(answering(routes)) as site:
        found = outcome(ask(provider(rules(site.url, **LINKED | {"result": result})), submitted()))
        assert (found["is"], found["reason"]) == ("retry", "invalid-request")


def test_a_submit_that_is_answered_with_nothing_is_sent_again_with_its_key() -> None:
    keyed = POLLED["submit"] | {"headers": {"Idempotency-Key": "${task.id}"}}
    with Site(answering({"/jobs": [Says(200, {}), Says(200, b""), Says(202, {"id": "j"})]})) as site:
        asked, known = provider(rules(site.url, **POLLED | {"submit": keyed})), record()
        for kind in ("retry", "retry", "pending"):
            found = ask(asked, known)
            known = found.record
            assert outcome(found)["is"] == kind
        assert known.outputs == {"id": "j"}
        assert len({call.headers["Idempotency-Key"] for call in site.calls}) == 1


def test_an_output_may_hold_the_whole_answer() -> None:
    whole = {"url": "/jobs", "outputs": {"all": "@"}}
    with Site(Says(200, {"status": "working"})) as site:
        found = ask(provider(rules(site.url, submit=whole, data="outputs.all.body.status")))
        assert outcome(found)["partial"] == "working"
        assert Record.from_text(found.record.to_text()) == found.record


def test_a_job_that_cannot_be_asked_after_is_the_end() -> None:
    with Site(Says(202, {"error": "no id"})) as site:
        found = ask(provider(rules(site.url, **POLLED)))
        assert found.outcome == Failed(Reason.MISSING_OUTPUT, "no id")
        site.answer = answering({"/jobs": Says(202)})
        found = ask(provider(rules(site.url, **POLLED)))
        assert found.outcome == Failed(Reason.MISSING_OUTPUT, "no value for outputs.id")


@pytest.mark.parametrize(("url", "reason", "error"), [
    ("/x/${outputs.id}", Reason.MISSING_OUTPUT, "no value for outputs.id"),
    ("/x/${input.a}/${input.b}", Reason.MISSING_INPUT, "no value for input.a, input.b"),
    ("${input == `null`}", Reason.MISSING_INPUT, "no value for input == `null`"),
    ("${outputs.id == `1`}", Reason.MISSING_OUTPUT, "no value for outputs.id == `1`"),
])  # fmt: skip
def test_a_url_that_never_has_a_value_is_the_end(url: str, reason: Reason, error: str) -> None:
    with Site() as site:
        asked = provider(rules(site.url, submit={"url": url}))
        assert ask(asked).outcome == Failed(reason, error)
        assert site.connections == 0


# --- partial data and progress


def test_partial_data_is_kept_until_there_is_newer() -> None:
    said = [
        Says(200, {"status": "working", "data": {"a": 1}, "progress": 0.1}),
        Says(200, {"status": "working", "progress": None}),
        Says(503),
        Says(200, {"status": "failed", "error": "why"}),
    ]
    failed = {"state": "failure", "expected": "failed"}
    file = {"data": "body.data", "progress": "body.progress", "polling": PACE, "acceptors": [failed, DONE]}
    with Site(answering({"/jobs": said})) as site:
        asked = provider(rules(site.url, **file))
        first = ask(asked)
        second = ask(asked, first.record)
        assert (first.outcome, second.outcome) == (Pending(5, {"a": 1}, 0.1), Pending(5, {"a": 1}, None))
        fourth = ask(asked, ask(asked, second.record).record)
        assert fourth.outcome == Failed(Reason.UPSTREAM, "why")
        assert fourth.record.partial == {"a": 1}


# --- results


def test_a_result_is_fetched_in_the_same_attempt_along_its_hops() -> None:
    hops = [
        {"url": "${outputs.link}", "outputs": {"file": "body.file"}},
        {"url": "${response.body.file}", "method": "POST", "body": {"file": "${outputs.file}"}},
    ]
    routes = {
        "/jobs/j": Says(200, {"status": "completed", "link": "/meta"}),
        "/meta": Says(200, {"file": "/file"}),
        "/file": Says(200, {"data": [1]}),
    }
    with Site(answering(routes)) as site:
        found = ask(provider(rules(site.url, **LINKED | {"result": hops})), submitted())
        assert found.outcome == Completed([1])
        assert found.record.outputs == {"id": "j", "link": site.url + "/meta", "file": "/file"}
        assert site.paths == ["/jobs/j", "/meta", "/file"]
        assert site.calls[-1].body == b'{"file":"/file"}'


def test_a_result_of_a_job_done_at_once_is_fetched_after_the_submit() -> None:
    submit = POLLED["submit"] | {"outputs": {"id": "body.id", "link": "body.link"}}
    done = DONE | {"on": ["submit", "poll"]}
    routes = {"/jobs": Says(200, {"status": "completed", "id": 1, "link": "/f"}), "/f": Says(200, {"data": 5})}
    with Site(answering(routes)) as site:
        assert ask(provider(rules(site.url, **LINKED | {"submit": submit}, acceptors=[done]))).outcome == Completed(5)


@pytest.mark.parametrize("id_", [False, 0, {"a": 1}, ""])
def test_a_job_whose_link_is_no_text_is_the_end_too(id_: Any) -> None:
    with Site(Says(202, {"id": id_, "error": "no link"})) as site:
        found = ask(provider(rules(site.url, **POLLED | {"poll": {"url": "${outputs.id}"}})))
        assert found.outcome == Failed(Reason.MISSING_OUTPUT, "no link")


@pytest.mark.parametrize("link", [None, "", False, 5, {"href": "/f"}])
def test_a_result_without_a_link_is_asked_for_again_unless_it_is_optional(link: Any) -> None:
    with Site(answering({"/jobs/j": Says(200, {"status": "completed", "link": link})})) as site:
        found = ask(provider(rules(site.url, **LINKED)), submitted())
        assert (outcome(found)["is"], outcome(found)["reason"]) == ("retry", "missing-link")
        optional = LINKED | {"result": RESULT | {"optional": True}}
        assert ask(provider(rules(site.url, **optional)), submitted()).outcome == Completed(None)


def test_a_link_that_is_not_there_yet_is_asked_for_when_the_answer_says() -> None:
    said = Says(200, {"status": "completed", "link": None}, {"Retry-After": "33"})
    with Site(answering({"/jobs/j": said})) as site:
        asked = provider(rules(site.url, **LINKED, polling=NO_JITTER))
        assert ask(asked, submitted()).outcome == Retry(33, Reason.MISSING_LINK)


def test_a_result_that_is_wanted_as_a_link_is_not_fetched() -> None:
    routes = {"/jobs/j": Says(200, {"status": "completed", "link": "/f?sig=1"})}
    with Site(answering(routes)) as site:
        as_link = LINKED | {"result": RESULT | {"decode": "url"}}
        assert ask(provider(rules(site.url, **as_link)), submitted()).outcome == Completed(site.url + "/f?sig=1")


@pytest.mark.parametrize(("said", "reason"), [
    (Says(503), "http"), (Says(200, "<html>"), "undecodable"), (Cut(b""), "transport"), (Says(429), "http"),
])  # fmt: skip
def test_an_error_with_a_result_asks_after_the_job_again(said: Any, reason: str) -> None:
    poll = Says(200, {"status": "completed", "link": "/f"})
    routes = {"/jobs/j": poll, "/f": [said, Says(200, {"data": 1})]}
    with Site(answering(routes)) as site:
        asked = provider(rules(site.url, **LINKED))
        first = ask(asked, submitted())
        assert (outcome(first)["is"], outcome(first)["reason"]) == ("retry", reason)
        assert ask(asked, first.record).outcome == Completed(1)
        assert site.paths == ["/jobs/j", "/f"] * 2


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_link_that_has_expired_is_asked_for_again_wherever_it_leads(status: int) -> None:
    with Site(Says(status, {"error": "gone"})) as there, Site() as here:
        hosts = {"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}
        with internet(hosts):
            for host in ("b.example", "a.example"):
                linked = Says(200, {"status": "completed", "link": f"http://{host}/f"})
                here.answer = answering({"/jobs/j": linked, "/f": Says(status, {"error": "gone"})})
                found = outcome(ask(provider(rules("http://a.example", **LINKED)), submitted()))
                assert (found["is"], found["reason"]) == ("retry", "expired-link")
            found = outcome(ask(provider(rules("http://a.example", **LINKED | {"result": {"url": "/f"}})), submitted()))
            assert found["reason"] == ("not-yet" if status == 404 else "upstream")  # a URL of the file never expires


def test_a_link_to_a_private_address_and_a_redirect_there_are_that_answer_s_fault() -> None:
    private = "http://10.1.2.3:8080/f"
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (LINKED, {"/jobs/j": Says(200, {"status": "completed", "link": private})}),
        (POLLED, {"/jobs/j": Says(302, b"", {"Location": private})}),
    ]
    for file, routes in cases:
        with Site(answering(routes)) as site:
            found = outcome(ask(provider(rules(site.url, **file)), submitted()))
            assert (found["is"], found["reason"]) == ("retry", "expired-link")


AT_LIMIT = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(START_MS // 1000 + 61)}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 423])
@pytest.mark.parametrize(("headers", "delay", "pause"), [
    ({"Retry-After": "30"}, 30, 0), (AT_LIMIT, 60, 60), ({"RateLimit-Remaining": "0"}, 5, 0),
], ids=str)  # fmt: skip
def test_an_error_that_says_itself_that_it_passes_is_a_retry_unless_an_acceptor_says_else(
    status: int, headers: Any, delay: float, pause: float
) -> None:
    gone = {"state": "failure", "matcher": "status", "expected": status}
    with Site(answering({"/jobs/j": Says(status, {"message": "limit"}, headers)})) as site:
        file = POLLED | {"polling": PACE | {"notFoundGrace": 0}}
        found = ask(provider(rules(site.url, **file)), submitted(), now=later(1))
        assert found.outcome == Retry(delay, Reason.HTTP, pause)
        assert outcome(ask(provider(rules(site.url, **file, acceptors=[gone])), submitted()))["is"] == "failed"


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "soon"}, {"X-RateLimit-Remaining": "7"}], ids=str)
def test_an_error_that_says_nothing_of_when_is_the_end(headers: Any) -> None:
    with Site(answering({"/jobs/j": Says(403, {"message": "no"}, headers)})) as site:
        assert outcome(ask(provider(rules(site.url, **POLLED)), submitted()))["reason"] == "upstream"


@pytest.mark.parametrize(("status", "delay"), [(400, 5), (401, 5), (403, 5), (404, 5), (429, 900), (503, 900)])
def test_of_a_foreign_error_only_that_of_a_busy_host_says_when_to_ask_for_a_fresh_link(
    status: int, delay: float
) -> None:
    linked = answering({"/jobs/j": Says(200, {"status": "completed", "link": "http://b.example/f"})})
    there, here = Site(Says(status, b"", {"Retry-After": "900"})), Site(linked)
    with there, here, internet({"a.example": (PUBLIC, here), "b.example": (ELSEWHERE, there)}):
        found = ask(provider(rules("http://a.example", **LINKED, polling=PACE)), submitted())
        assert found.outcome == Retry(delay, Reason.EXPIRED_LINK)


def test_acceptors_of_the_result_stage_judge_the_result() -> None:
    acceptors = [
        DONE,
        {"state": "pending", "expected": "assembling", "on": ["result"]},
        {"state": "failure", "expected": "broken", "on": ["result"]},
        {"state": "resubmit", "expected": "lost", "on": ["result"]},
    ]
    linked = LINKED | {"data": "body"}
    for word, kind in (("assembling", "pending"), ("broken", "failed"), ("lost", "retry"), ("other", "completed")):
        routes = {"/jobs/j": Says(200, {"status": "completed", "link": "/f"}), "/f": Says(200, {"status": word})}
        with Site(answering(routes)) as site:
            assert outcome(ask(provider(rules(site.url, **linked, acceptors=acceptors)), submitted()))["is"] == kind


# --- pages of a result


PAGED = LINKED | {"result": RESULT | {"next": "body.next"}}
PAGE_ONE = Says(200, {"data": [1], "next": "/f2"})


def paged(site: Site, *pages: Any, acceptors: Any = (DONE,)) -> Finding:
    routes = {"/jobs/j": Says(200, {"status": "completed", "link": "/f1"})}
    site.answer = answering(routes | {f"/f{i + 1}": page for i, page in enumerate(pages)})
    return ask(provider(rules(site.url, **PAGED, acceptors=list(acceptors))), submitted())


def test_each_page_of_a_result_has_outputs_and_sees_those_before() -> None:
    result = RESULT | {"outputs": {"cursor": "body.cursor"}, "next": "outputs.cursor"}
    pages = [Says(200, {"data": [1], "cursor": "/f2"}), Says(200, {"data": [2], "cursor": "/f3"})]
    routes = {"/f1": pages[0], "/f2": pages[1], "/f3": Says(200, {"data": [3], "cursor": False})}
    with Site(answering(routes | {"/jobs/j": Says(200, {"status": "completed", "link": "/f1"})})) as site:
        found = ask(provider(rules(site.url, **LINKED | {"result": result})), submitted())
        assert found.outcome == Completed([1, 2, 3])
        assert found.record.outputs == {"id": "j", "link": site.url + "/f1", "cursor": False}


def test_the_pages_of_a_result_are_joined() -> None:
    with Site() as site:
        found = paged(site, PAGE_ONE, Says(200, {"data": [], "next": "/f3"}), Says(200, {"data": [2, 3]}))
        assert found.outcome == Completed([1, 2, 3])


@pytest.mark.parametrize(("page", "kind", "reason"), [
    (Says(200, {"data": {"a": 1}}), "retry", "not-a-list"), (Says(503), "retry", "http"),
    (Says(410, {"error": "gone"}), "retry", "expired-link"), (Says(404), "retry", "expired-link"),
    (Says(400, {"error": "no"}), "failed", "upstream"), (Says(409), "retry", "not-yet"),
    (Says(200, {"data": None}), "retry", "no-data"), (Says(200, {"message": "busy"}), "retry", "no-data"),
    (Says(206, {"data": [2]}), "retry", "undecodable"), (Says(200, "<html>"), "retry", "undecodable"),
    (Says(200, {"data": [2], "next": "/f1"}), "retry", "pages-without-end"),
    (Says(200, {"data": [2], "next": "http://10.0.0.1/"}), "retry", "expired-link"),
    (Says(200, {"data": [2], "next": "ftp://a.example/"}), "retry", "expired-link"),
    (Says(200, b" " * (MAX_RESPONSE_BYTES + 1)), "failed", "too-large"), (Cut(b""), "retry", "transport"),
    (Says(200, {"data": [2], "status": "busy"}), "retry", "acceptor"),
])  # fmt: skip
def test_a_page_that_is_none_makes_no_half_result(page: Any, kind: str, reason: str) -> None:
    busy = {"state": "retry", "expected": "busy", "on": ["result"]}
    with Site() as site:
        found = outcome(paged(site, PAGE_ONE, page, acceptors=[busy, DONE]))
        assert (found["is"], found["reason"]) == (kind, reason)


def test_a_page_that_is_still_being_made_is_pending() -> None:
    with Site() as site:
        assert outcome(paged(site, PAGE_ONE, Says(202, {"data": [2]})))["is"] == "pending"


# --- failure, too early, grace, resubmit


CONFLICT = {"state": "failure", "matcher": "status", "expected": 409, "on": ["submit"]}
KEYED = POLLED["submit"] | {"headers": {"Idempotency-Key": "${task.id}"}}


@pytest.mark.parametrize(("file", "reason"), [
    ({"submit": KEYED}, "not-yet"), ({"submit": KEYED, "poll": None}, "not-yet"), ({}, "upstream"),
    ({"submit": POLLED["submit"] | {"body": {"key": "${join('-', [task.id, 'a'])}"}}}, "not-yet"),
    ({"submit": [{"url": "/auth"}, KEYED]}, "not-yet"),
    ({"submit": POLLED["submit"] | {"body": "${task.name}"}}, "upstream"),
    ({"submit": KEYED, "acceptors": [CONFLICT]}, "upstream"),
], ids=str)  # fmt: skip
def test_a_key_in_use_says_that_the_submit_before_is_not_over(file: Any, reason: str) -> None:
    said = {key: value for key, value in (POLLED | file).items() if value is not None}
    with Site(answering({"/auth": Says(200, {}), "/jobs": Says(409, {"error": "in use"})})) as site:
        assert outcome(ask(provider(rules(site.url, **said))))["reason"] == reason


@pytest.mark.parametrize("status", [404, 409])
def test_a_result_that_is_not_there_yet_is_asked_for_again_and_a_poll_that_conflicts_is_the_end(status: int) -> None:
    file = POLLED | {"submit": KEYED, "result": {"url": "/f"}}
    with Site(answering({"/jobs/j": Says(409)})) as site:
        assert outcome(ask(provider(rules(site.url, **file)), submitted()))["reason"] == "upstream"
        site.answer = answering({"/jobs/j": Says(200, {"status": "completed"}), "/f": Says(status)})
        first = ask(provider(rules(site.url, **file)), submitted())
        assert (outcome(first)["is"], outcome(first)["reason"]) == ("retry", "not-yet")
        site.answer = answering({"/jobs/j": Says(200, {"status": "completed"}), "/f": Says(200, {"a": 1})})
        assert ask(provider(rules(site.url, **file)), first.record).outcome == Completed({"a": 1})


@pytest.mark.parametrize(("submit", "reason"), [
    ({"url": "http://10.0.0.1/"}, "refused-target"), ({"url": "/x", "headers": {"X": "a\r\nb"}}, "invalid-request"),
])  # fmt: skip
def test_what_another_try_would_only_meet_again_is_the_end(submit: Any, reason: str) -> None:
    with Site() as site:
        found = outcome(ask(provider(rules(site.url, submit=submit))))
        assert (found["is"], found["reason"]) == ("failed", reason)


@pytest.mark.parametrize(("status", "path", "kind"), [
    (503, "/jobs/j", "retry"), (200, "/jobs/j", "retry"), (503, "/f", "retry"), (200, "/f", "failed"),
])  # fmt: skip
def test_a_result_that_is_too_large_is_the_end_and_an_error_or_a_status_that_is_passes(
    status: int, path: str, kind: str
) -> None:
    routes = {"/jobs/j": Says(200, {"status": "completed"}), "/f": Says(200, {"data": 1})}
    routes[path] = Says(status, b" " * (MAX_RESPONSE_BYTES + 1))
    with Site(answering(routes)) as site:
        found = outcome(ask(provider(rules(site.url, **POLLED | {"result": {"url": "/f"}})), submitted()))
        assert (found["is"], found["reason"]) == (kind, "too-large")


def test_a_404_is_a_retry_while_the_job_is_young_and_the_end_later() -> None:
    file = POLLED | {"polling": PACE | {"notFoundGrace": 30}}
    with Site(answering({"/jobs": Says(202, {"id": "j"})})) as site:
        asked = provider(rules(site.url, **file))
        first = ask(asked, now=later(600))  # the first submit may have been long ago
        assert first.record.job_at == later(600)
        old = structs.replace(first.record, submitted_at=START_MS)
        for seconds, kind in ((600, "retry"), (630, "retry"), (631, "failed")):
            assert outcome(ask(asked, old, now=later(seconds)))["is"] == kind


def test_a_404_of_a_submit_is_the_end() -> None:
    with Site(Says(404, {"error": "no such thing"})) as site:
        assert ask(provider(rules(site.url, **POLLED))).outcome == Failed(Reason.UPSTREAM, "no such thing")


LOST = [{"state": "resubmit", "expected": "lost"}, DONE]


def test_a_resubmit_begins_another_job_and_no_more_of_them_than_the_file_allows() -> None:
    routes = {"/jobs": Says(202, {"id": "j"}), "/jobs/j": Says(200, {"status": "lost", "error": "restarted"})}
    with Site(answering(routes)) as site:
        asked = provider(rules(site.url, **POLLED, acceptors=LOST, polling=PACE))
        first = ask(asked, submitted(polls=7, job_at=START_MS))
        assert first.outcome == Retry(5, Reason.RESUBMIT)
        known = first.record
        assert (known.outputs, known.resubmits, known.polls, known.job_at) == (None, 1, 0, None)
        assert known.submitted_at == START_MS
        second = ask(asked, known, now=later(10))
        assert outcome(second)["is"] == "pending"
        assert second.record.job_at == later(10)
        assert ask(asked, second.record).outcome == Failed(Reason.TOO_MANY_RESUBMITS, "restarted")
        assert site.paths == ["/jobs/j", "/jobs", "/jobs/j"]


@pytest.mark.parametrize("named", [
    {"matcher": "status", "expected": 303}, {"argument": "statusCode", "expected": 303},
    {"argument": "statusCode >= `300` && statusCode < `400`", "expected": True},
])  # fmt: skip
def test_a_redirect_that_an_acceptor_names_is_the_answer(named: Any) -> None:
    acceptors = [{"state": "success"} | named]
    file = POLLED | {"poll": POLLED["poll"] | {"outputs": {"link": "headers.location"}}, "result": RESULT}
    routes = {"/jobs/j": Says(303, b"", {"Location": "/done"}), "/done": Says(200, "result")}
    with Site(answering({**routes, "/done": Says(200, {"a": 1})})) as site:
        assert ask(provider(rules(site.url, **file, acceptors=acceptors)), submitted()).outcome == Completed({"a": 1})
        assert site.paths == ["/jobs/j", "/done"]


# --- what was learned before the time was over is kept


def attempt(found: Rules, known: Record, clock: Callable[[], float]) -> Finding:
    """An attempt of 20 seconds that believes in this clock."""
    transport = Transport(2, clock=clock)
    exchange = Exchange(found.servers, transport, Credentials((), Secrets(), transport), clock=clock)
    context = {"input": known.input, "outputs": known.outputs or {}, "task": {"id": "t", "name": "a"}}
    return Attempt(found, Delays(found, Random(1)), exchange.begin(20, None), context, known, START_MS).run()


@pytest.mark.parametrize("drip", [b"H", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_attempt_that_is_cut_keeps_what_its_first_answers_said(drip: bytes) -> None:
    def result(peer: Peer) -> None:
        peer.request()
        peer.send(drip)
        peer.drip()

    linked = Says(200, {"status": "completed", "link": "http://b.example/f"})
    with Wire(result) as wire, Site(linked, seconds=19.8) as site:
        with internet({"a.example": (PUBLIC, site), "b.example": (ELSEWHERE, wire)}):
            known = submitted(partial={"a": 1})
            found = attempt(rules("http://a.example", **LINKED), known, site.clock)
        assert wire.was_cut()
    assert (outcome(found)["is"], outcome(found)["reason"]) == ("retry", "expired-link")
    assert found.record.outputs == {"id": "j", "link": "http://b.example/f"}
    assert found.record.partial == {"a": 1}


def test_a_slow_chain_of_operations_has_one_time_for_all_of_it() -> None:
    with Site(Says(200, {"a": "x", "b": "y", "id": "z"}), seconds=11) as site:
        found = attempt(rules(site.url, **POLLED | {"submit": THREE}), record(), site.clock)
        assert (outcome(found)["reason"], site.paths) == ("deadline", ["/a", "/b/x"])
        assert found.record.outputs is None


# --- what a provider asks of everybody


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("known", "reason"), [
    ({}, "http"), ({"errors": 3}, "too-many-errors"), ({"submitted_at": START_MS - 99_000}, "timeout"),
])  # fmt: skip
def test_who_says_when_to_come_back_is_left_alone_by_all_though_the_task_ends_with_it(
    status: int, known: Any, reason: str
) -> None:
    with Site(Says(status, headers={"Retry-After": "40"})) as site:
        file = rules(site.url, **POLLED, polling=NO_JITTER | {"maxErrors": 3, "maxWaitTime": 100})
        found = outcome(ask(provider(file), submitted(**known)))
    assert found["pause_seconds"] == 40
    assert found["reason"] == reason


@pytest.mark.parametrize("says", [Says(500, headers={"Retry-After": "40"}), Says(429)])
def test_another_status_or_one_that_names_no_time_pauses_nobody_by_itself(says: Says) -> None:
    with Site(says) as site:
        found = outcome(ask(provider(rules(site.url, **POLLED)), submitted()))
    assert (found["is"], found["pause_seconds"]) == ("retry", 0)
