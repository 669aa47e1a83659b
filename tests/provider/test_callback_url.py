"""The URLs that providers call back lead to one job each, and only those that were made here."""

import pytest

from shared.errors import SecretUnavailable
from shared.provider.callback_url import CallbackUrls
from shared.provider.language.rules import Rules
from shared.task import Task
from tests.support.asking import Secrets, ask, outcome, provider, submitted
from tests.support.simulator import JOB, Simulator, pending, says

TASK = Task("example", "Ünï/cødé 名")
BASE = "https://api.example.com/v1/"


@pytest.fixture
def secrets() -> Secrets:
    return Secrets({"env:KEY": "ours", "env:HOOK": "theirs"})


@pytest.fixture
def urls(secrets: Secrets) -> CallbackUrls:
    return CallbackUrls(BASE, "env:KEY", secrets)


def test_a_url_leads_to_its_job_and_is_the_same_each_time(urls: CallbackUrls) -> None:
    url = urls.url(TASK, 7, 2)
    assert url == urls.url(TASK, 7, 2)
    base, provider, token = url.rsplit("/", 2)
    assert (base, provider) == ("https://api.example.com/v1/callbacks", "example")
    assert token.replace("-", "").replace("_", "").replace(".", "").isalnum()
    assert urls.find("example", token) == (TASK, 7, 2)


@pytest.mark.promise("callbacks", "no forged, altered or guessed URL leads to a task")
def test_no_other_token_leads_anywhere(urls: CallbackUrls, secrets: Secrets) -> None:
    token = urls.url(TASK, 7, 2).rpartition("/")[2]
    head, _, digest = token.partition(".")
    others = [urls.url(TASK, *job).rpartition("/")[2].partition(".") for job in ((8, 2), (7, 3))]
    forged = [
        "", ".", "x", "é", "\ud800", "e30.x", "WzEsMl0.x", "WyJhIiwiYiJd.x", "bnVsbA.x", head, f"{head}.",
        *(f"{other}.{digest}" for other, _, _ in others), *(f"{head}.{other}" for _, _, other in others), f"{token}A",
        f"{token}=", token[:-1], token.upper(), f"{head}=.{digest}", f" {token}", "WyJhIiw3XQ.x", "WyJhIiwiYiIsMF0.x",
        "WyJhIiwxZTk5OTksMF0.x", "WyJhIiw3LE5hTl0.x", "WyJhIiw3LEluZmluaXR5XQ.x", "WyJhIiw3LDFlOTk5OV0.x",
        "WyJhIiw3LDFlMzA4XQ.x", "WyJhIiw3LG51bGxd.x", "WyJhIiw3LFtdXQ.x",
    ]  # fmt: skip
    assert [one for one in forged if urls.find("example", one)] == []
    assert urls.find("coin", token) is None
    assert CallbackUrls(BASE, "env:HOOK", secrets).find("example", token) is None


def test_no_url_is_made_with_an_empty_secret() -> None:
    with pytest.raises(SecretUnavailable):
        CallbackUrls(BASE, "env:KEY", Secrets({"env:KEY": ""})).url(TASK, 1, 0)


def test_a_provider_is_told_the_url_when_it_is_asked_for_a_job_and_never_again(
    simulator: Simulator, urls: CallbackUrls
) -> None:
    file = JOB | {"submit": JOB["submit"] | {"body": {"name": "${task.name}", "hook": "${callback.url}"}}}
    asked = provider(Rules.from_json(file, simulator.url), callback_url=urls.url)
    simulator.say(says(200, {"id": "j", "status": "async processing in progress"}), pending())
    record = asked.attempt(TASK, submitted(outputs=None, generation=7, resubmits=2), now=1, seconds=5).record
    asked.attempt(TASK, record, now=1, seconds=5)
    assert [one.body and one.body["hook"] for one in simulator.asked] == [urls.url(TASK, 7, 2), None]


def test_a_url_that_cannot_be_made_now_is_tried_again(simulator: Simulator) -> None:
    file = JOB | {"submit": {"url": "/jobs", "query": {"hook": "${callback.url}"}}}
    asked = provider(Rules.from_json(file, simulator.url), callback_url=CallbackUrls(BASE, "env:KEY", Secrets()).url)
    found = outcome(ask(asked, submitted(outputs=None)))
    assert (found["is"], found["reason"]) == ("retry", "secret")
    assert simulator.asked == []
    assert outcome(ask(asked, submitted()))["is"] == "pending"  # a poll needs none
