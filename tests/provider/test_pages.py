"""Pages that do not come all at once: waited for where a hint fits, kept where there is a sink, and never for ever."""

import dataclasses
from typing import Any

import pytest
from msgspec import structs

from shared.codec import Json, dumps
from shared.errors import DataUnavailable, StoreUnavailable
from shared.outcome import Completed, Retry
from shared.provider import Finding, Provider
from shared.provider import pages as module_of_pages
from shared.provider import shelf as module
from shared.record import Pages, Record
from shared.sink import Kept
from shared.task import Task
from tests.support.asking import DONE, NO_JITTER, TASK, Secrets, outcome, provider, rules, submitted
from tests.support.clock import START_MS
from tests.support.servers import Cut, Says, Seen, Site

LAST = 8
FILE: dict[str, Any] = {
    "poll": {"url": "/jobs/j"}, "result": {"url": "/items", "next": "body.next"}, "data": "body.rows",
    "polling": NO_JITTER | {"maxErrors": 3}, "acceptors": [DONE],
}  # fmt: skip
SLOW_DOWN = Says(429, {"error": "slow down"}, {"Retry-After": "60"})
NEXT = {"next": "body.next"}
ALL = [[n] for n in range(1, LAST + 1)]


class Memory:
    """A sink that keeps values in this process; `away` for one that does not."""

    def __init__(self) -> None:
        self.kept: dict[str, Json] = {}
        self.away = False

    def put(self, task: Task, generation: int, value: Json) -> Kept:
        assert (task, generation) == (TASK, 1)
        if self.away:
            raise StoreUnavailable("S3: away")
        kept = Kept(f"{len(self.kept):064x}", len(dumps(value)))
        self.kept[kept.digest] = list(value)
        return kept

    def get(self, task: Task, generation: int, kept: Kept) -> Json:
        assert (task, generation) == (TASK, 1)
        if kept.digest not in self.kept:
            raise DataUnavailable("S3: gone")
        return self.kept[kept.digest]


@dataclasses.dataclass
class Api:
    """An API with eight pages, which answers `allowed` of them and then says `refusal`, until it is `reset`."""

    allowed: int
    refusal: Says | Cut = SLOW_DOWN
    loops: bool = False
    asked: int = 0
    pages: list[int] = dataclasses.field(default_factory=list)

    def reset(self) -> None:
        self.asked = 0

    def __call__(self, seen: Seen) -> Says | Cut:
        if seen.path == "/jobs/j":
            return Says(200, {"status": "completed"})
        page = int(seen.query.partition("=")[2] or 1)
        self.asked += 1
        if self.asked > self.allowed:
            return self.refusal
        self.pages.append(page)
        follows = page + 1 if page < LAST else 3 if self.loops else None
        return Says(200, {"rows": [page], "next": follows and f"?page={follows}"})


class Time:
    """A clock that only sleeping moves; the API's minute is over then."""

    def __init__(self, api: Api) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.api = api

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.api.reset()


def asking(site: Site, sink: Memory | None = None, time: Time | None = None, **parts: Any) -> Provider:
    made = provider(rules(site.url, **FILE | parts), sink=sink)
    if time:
        made._exchange = dataclasses.replace(made._exchange, clock=time.clock, sleep=time.sleep)
    return made


def attempts(asked: Provider, api: Api, most: int = 20) -> list[Finding]:
    """Attempts until the task ends, the API's minute over before each; each record as Redis would have it."""
    found, known = [], submitted()
    for _ in range(most):
        api.reset()
        found.append(asked.attempt(TASK, known, now=START_MS, seconds=20))
        known = Record.from_text(found[-1].record.to_text())
        if not isinstance(found[-1].outcome, Retry):
            break
    return found


def test_a_wait_that_fits_into_the_attempt_is_waited_for_and_the_same_page_asked_again() -> None:
    for status in (429, 503, 403):
        api = Api(5, Says(status, {}, {"Retry-After": "7"}))
        time = Time(api)
        with Site(api) as site:
            [found] = attempts(asking(site, time=time), api)
        assert found.outcome == Completed([n for [n] in ALL])
        assert (time.slept, api.pages) == ([7], list(range(1, 9)))


@pytest.mark.parametrize("refusal", [
    Says(429, {}, {"Retry-After": "60"}), Says(429), Says(503, {}, {"Retry-After": "20"}), Says(500), Cut(),
    Says(200, "<html>"),
])  # fmt: skip
def test_pages_so_far_are_kept_and_the_next_attempt_goes_on_at_the_next_page(refusal: Any) -> None:
    api = Api(5, refusal)
    time = Time(api)
    with Site(api) as site:
        first, second = attempts(asking(site, Memory(), time), api)
    assert isinstance(first.outcome, Retry)
    assert first.record.pages
    assert (first.record.pages.count, first.record.errors) == (5, 1)
    assert second.outcome == Completed([n for [n] in ALL])
    assert (time.slept, api.pages) == ([], list(range(1, 9)))


def test_pages_that_come_slowly_count_no_error_and_all_of_them_come() -> None:
    api = Api(1)
    with Site(api) as site:
        found = attempts(asking(site, Memory()), api)
    assert [one.record.errors for one in found[:-1]] == [1] * 7
    assert found[-1].outcome == Completed([n for [n] in ALL])


def test_an_attempt_without_time_for_all_pages_goes_on_in_the_next() -> None:
    api = Api(99)
    with Site(api, seconds=3) as site:
        asked = asking(site, Memory())
        asked._exchange = dataclasses.replace(asked._exchange, clock=site.clock)
        first, second = attempts(asked, api)
    assert outcome(first)["reason"] == "more-pages"
    assert second.outcome == Completed([n for [n] in ALL])
    assert api.pages == list(range(1, 9))


@pytest.mark.parametrize("sink", [None, "away"])
def test_without_a_place_for_pages_there_is_an_end_after_the_usual_errors(sink: str | None) -> None:
    memory = Memory()
    memory.away = True
    api = Api(5)
    with Site(api) as site:
        found = attempts(asking(site, memory if sink else None), api)
    assert (outcome(found[-1])["is"], outcome(found[-1])["reason"]) == ("failed", "too-many-errors")
    assert len(found) == 4


def test_pages_that_are_gone_are_asked_for_anew_but_not_for_ever() -> None:
    class Forgetful(Memory):
        def get(self, task: Task, generation: int, kept: Kept) -> Json:
            raise DataUnavailable("S3: gone")

    api = Api(5)
    with Site(api) as site:
        found = attempts(asking(site, Forgetful()), api)
    assert outcome(found[1])["reason"] == "lost-pages"
    assert outcome(found[-1])["reason"] == "too-many-errors"
    assert api.pages[:9] == [*range(1, 9), 1]


@pytest.mark.parametrize("status", [400, 404, 410])
def test_a_kept_link_that_has_expired_begins_at_the_first_page_but_not_for_ever(status: int) -> None:
    api = Api(5)

    def answer(seen: Seen) -> Says | Cut:
        return Says(status) if seen.query == "page=6" and api.asked == 0 else api(seen)

    with Site(answer) as site:
        found = attempts(asking(site, Memory()), api)
    assert outcome(found[1])["reason"] == "lost-pages"
    assert found[1].record.pages == Pages(most=5)
    assert outcome(found[-1])["reason"] == "too-many-errors"


def test_earlier_pages_are_read_only_while_the_attempt_has_time() -> None:
    api = Api(5)
    time = Time(api)

    class Slow(Memory):
        def get(self, task: Task, generation: int, kept: Kept) -> Json:
            time.now += 30
            return super().get(task, generation, kept)

    with Site(api) as site:
        asked = asking(site, Slow(), time)
        first = attempts(asked, api, most=1)[-1]
        assert first.record.pages
        half = structs.replace(first.record.pages, kept=first.record.pages.kept * 2)
        api.reset()
        known = structs.replace(first.record, pages=half)
        found = asked.attempt(TASK, known, now=START_MS, seconds=20)
    assert outcome(found)["reason"] == "more-pages"
    assert (found.record.pages, found.record.errors) == (half, 2)


def test_a_token_that_expires_amid_pages_loses_none() -> None:
    api = Api(5, Says(401))
    oauth = {"type": "oauth2", "clientId": "us", "clientSecret": "env:S"}

    def answer(seen: Seen) -> Says | Cut:
        return Says(200, {"access_token": f"t{api.asked}"}) if seen.path == "/token" else api(seen)

    with Site(answer) as site:
        file = rules(site.url, **FILE, security=[oauth | {"tokenUrl": site.url + "/token"}])
        first, second = attempts(provider(file, Secrets({"env:S": "secret"}), sink=Memory()), api)
    assert outcome(first)["reason"] == "unauthorized"
    assert second.outcome == Completed([n for [n] in ALL])
    assert api.pages == list(range(1, 9))


def test_a_deployment_that_has_lost_its_bucket_makes_no_half_result() -> None:
    api = Api(5)
    with Site(api) as site:
        [first] = attempts(asking(site, Memory()), api, most=1)
        api.reset()
        found = asking(site).attempt(TASK, first.record, now=START_MS, seconds=20)
    assert outcome(found)["reason"] == "lost-pages"


def test_pages_that_go_round_end_the_task_though_no_attempt_sees_the_whole_circle() -> None:
    api = Api(3, loops=True)
    with Site(api) as site:
        found = attempts(asking(site, Memory()), api)
    assert "pages-without-end" in [one.record.reason for one in found]
    assert (outcome(found[-1])["is"], outcome(found[-1])["reason"]) == ("failed", "too-many-errors")
    assert len(api.pages) < 3 * LAST


@pytest.mark.parametrize("odd", [
    {"rows": [3], "next": "?page=2"}, {"rows": [3], "next": "http://["}, {"rows": {"error": "x"}, "next": "?page=4"},
], ids=str)  # fmt: skip
def test_an_odd_page_ends_no_task_and_no_page_comes_twice(odd: Json) -> None:
    api, once = Api(20), [Says(200, odd)]

    def answer(seen: Seen) -> Says | Cut:
        return once.pop() if once and seen.query == "page=3" else api(seen)

    with Site(answer) as site:
        found = attempts(asking(site, Memory()), api)
    assert [outcome(one)["is"] for one in found] == ["retry", "completed"]
    assert found[-1].outcome == Completed([n for [n] in ALL])


def test_an_api_that_says_0_is_waited_for_a_second_and_not_for_ever() -> None:
    class Busy(Api):
        def reset(self) -> None:
            """Busy it stays."""

    api = Busy(2, Says(429, {}, {"Retry-After": "0"}))
    time = Time(api)
    polling = FILE["polling"] | {"minDelay": 0}
    with Site(api) as site:
        found = asking(site, Memory(), time, polling=polling).attempt(TASK, submitted(), now=START_MS, seconds=20)
    assert (outcome(found)["is"], outcome(found)["reason"]) == ("retry", "http")
    assert time.slept == [1.0] * module_of_pages.MAX_WAITS
    assert found.record.pages
    assert found.record.pages.count == 2


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fits", lambda value, name: name != "pages" or value["count"] < 3)
    api = Api(1)
    with Site(api) as site:
        found = attempts(asking(site, Memory()), api)
    assert outcome(found[-1])["reason"] == "too-many-errors"
    assert found[-1].record.pages
    assert found[-1].record.pages.count == 2


def test_what_a_resubmitted_or_resumed_job_had_is_forgotten() -> None:
    for word in ("lost", "working"):
        lost = {"state": "resubmit", "expected": "lost"}
        with Site(Says(200, {"status": word})) as site:
            asked = asking(site, Memory(), acceptors=[lost, DONE])
            known = submitted(pages=Pages(next=site.url + "/items?page=3", count=2))
            assert asked.attempt(TASK, known, now=START_MS, seconds=20).record.pages is None


def test_a_result_in_hops_goes_through_the_first_ones_again() -> None:
    api = Api(5)

    def answer(seen: Seen) -> Says | Cut:
        return Says(200, {"link": "/items", "key": "k"}) if seen.path == "/files" else api(seen)

    result = [{"url": "/files"}, {"url": "${response.body.link}", "headers": {"X-K": "${response.body.key}"}} | NEXT]
    with Site(answer) as site:
        found = attempts(asking(site, Memory(), result=result), api)
        assert found[-1].outcome == Completed([n for [n] in ALL])
        assert {call.headers["X-K"] for call in site.calls if call.path == "/items"} == {"k"}
