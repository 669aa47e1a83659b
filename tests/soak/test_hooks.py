"""What the soak's provider sends by itself is what it says it is: genuine or not, and again until it is answered."""

import json
from collections import Counter
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from shared.provider.callback_url import CallbackUrls
from shared.provider.language.rules import Rules
from shared.task import Task
from tests.soak import hooks
from tests.soak.conftest import Told
from tests.soak.hooks import FORGERIES, Hook, Sender, planned
from tests.soak.journal import Journal
from tests.soak.plan import HOOK_KEY, SECRETS, files
from tests.support.servers import Says, Site

ABOUT = {"provider": "hooks", "name": "a", "key": "k", "job": "j"}
URLS = CallbackUrls("http://127.0.0.1:1", "env:SOAK_CALLBACK_KEY", lambda *_, **__: SECRETS["SOAK_CALLBACK_KEY"])
URL = URLS.url(Task("hooks", "a"), 1, 0)
TOLD: list[tuple[float, dict[str, Any]]] = [(100.0, {"status": "running"}), (103.0, {"status": "done"})]


def plans() -> list[list[Hook]]:
    return [planned(Random(seed), URL, 100.0, TOLD, ABOUT) for seed in range(300)]


@pytest.mark.parametrize(
    ("kind", "is_signed", "is_ours"),
    [("signed", True, True), ("unsigned", False, True), ("forged", False, True), ("guessed", True, False)],
)
def test_each_kind_is_what_its_name_says(kind: str, is_signed: bool, is_ours: bool) -> None:
    request = Hook(0, kind, URL, {"status": "done"}, ABOUT).request()
    signature = Rules.from_json(files("http://127.0.0.1:1")["hooks"]).callback.signature
    assert signature
    headers = {name.lower(): value for name, value in request.header_items()}
    assert isinstance(request.data, bytes)
    assert signature.fits(headers, request.data, HOOK_KEY) == is_signed
    provider, token = urlsplit(request.full_url).path.split("/")[-2:]
    assert URLS.find(provider, token) == ((Task("hooks", "a"), 1, 0) if is_ours else None)


def test_every_kind_is_planned_and_the_end_of_some_jobs_is_lost() -> None:
    found = Counter(hook.kind for plan in plans() for hook in plan)
    assert found.keys() == {"signed", *FORGERIES}
    ends = Counter(sum(hook.says == TOLD[1][1] for hook in plan) for plan in plans())
    assert ends.keys() == {0, 1, 2, 3}


def test_news_come_before_the_end_and_nothing_genuine_before_its_time() -> None:
    for hook in (hook for plan in plans() for hook in plan if hook.kind == "signed"):
        begun, over = (100.0, 103.0) if hook.says["status"] == "running" else (103.0, 103.3 + hooks.AGAIN_SECONDS[1])
        assert begun <= hook.at <= over


def test_a_forgery_tells_of_no_job_that_there_is() -> None:
    forgeries = [hook for plan in plans() for hook in plan if hook.kind in FORGERIES]
    assert {hook.says["data"]["job"] for hook in forgeries} == {"forged"}
    assert {hook.says["status"] for hook in forgeries} == {"done", "refused"}


@pytest.fixture
def sender(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Sender:
    monkeypatch.setattr(hooks, "REPEAT_SECONDS", (0.0, 0.0))
    return Sender(journal, "seed")


@pytest.mark.parametrize("last", [200, 404])
def test_it_is_sent_until_it_is_answered_and_each_time_noted(sender: Sender, told: Told, last: int) -> None:
    codes = iter([500, 503, last])
    with Site(lambda _: Says(status=next(codes))) as site:
        sender._send(Hook(0, "signed", f"{site.url}/callbacks/hooks/t", {"status": "done"}, ABOUT))
    events = told(3)
    assert [event["code"] for event in events] == [500, 503, last]
    assert {(event["kind"], event["said"], event["key"]) for event in events} == {("signed", "done", "k")}
    assert all(event["begun"] <= event["at"] for event in events)


def test_where_nobody_answers_it_is_noted_as_unanswered(
    sender: Sender, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "MOST_TRIES", 2)
    with Site() as site:
        url = site.url
    sender._send(Hook(0, "signed", url, {"status": "done"}, ABOUT))
    assert [event["code"] for event in told(2)] == [0, 0]


def test_with_the_next_job_of_a_name_the_end_of_the_one_before_is_told_again_at_its_own_url(
    sender: Sender, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "SHARES", dict.fromkeys(hooks.SHARES, 0.0) | {"earlier": 1.0})
    with Site() as site:
        for number in (1, 2):
            about = ABOUT | {"key": f"k{number}", "job": f"j{number}"}
            says: list[dict[str, Any]] = [{"status": "running"}, {"status": "done", "n": number}]
            sender.job(f"k{number}", f"{site.url}/{number}", 0.0, [(0.0, one) for one in says], about)
        (event,) = told(1)
    assert (event["key"], event["job"], event["said"]) == ("k1", "j1", "done")
    assert [(one.path, json.loads(one.body)["n"]) for one in site.calls] == [("/1", 1)]
