"""One task against a real API: when it is asked, how long is waited, and when nothing is sent at all."""

import pytest

from local.provider.trial import Surroundings, Trial
from local.servers.third_party import ThirdParty
from shared.outcome import Completed
from shared.provider.language.rules import Rules
from shared.task import Task
from tests.support.provider_tools import JOB, SECRET, SHIPPED, Api, Call, Write


def test_try_says_that_nobody_can_call_it_back(report: Write, call: Call) -> None:
    submit = JOB["submit"] | {"url": "/reports", "query": {"hook": "${callback.url}"}}
    call.attempt(report(submit=submit))
    word = "${callback.url} is null here: the provider could not call back, so it is only polled"
    assert word in call.text
    call.attempt(report())
    assert word not in call.text


def test_try_ends_at_once_where_a_secret_cannot_be_read(
    report: Write, call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = report()
    monkeypatch.delenv("REPORT_KEY")
    assert call("try", file) == 1
    assert call.lines == ["a secret cannot be read here: env:REPORT_KEY: the variable is not set"]
    assert api.site.calls == []


def test_try_asks_only_addresses_that_the_file_names_or_the_public_ones(report: Write, call: Call, api: Api) -> None:
    elsewhere = report(servers=["https://api.acme.example"], submit={"url": f"{api.site.url}/x"}, poll=None)
    assert call.attempt(elsewhere) == 1
    assert "= failed: refused-target" in call.text
    assert api.site.calls == []


def test_try_does_not_ask_with_a_faulty_file(report: Write, call: Call, api: Api) -> None:
    assert call("try", report(data=5)) == 1
    assert "$.data: must be a text" in call.text
    assert api.site.calls == []


def test_missing_input_is_said_before_anything_is_sent(report: Write, call: Call, api: Api) -> None:
    file = report(submit={"method": "POST", "url": "/reports/${input.kind}", "outputs": {"id": "body.id"}})
    assert call("try", file) == 1
    assert "= failed: missing-input: no value for input.kind (A URL needs an input" in call.text
    assert api.site.calls == []


def test_a_trial_waits_as_the_answers_say_but_no_longer_than_told(api: Api, report: Write) -> None:
    waited: list[float] = []
    said: list[str] = []
    now = [1_700_000_000_250]

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += round(seconds * 1000)

    around = Surroundings(read_secret=lambda *_, **__: SECRET, say=said.append, clock=lambda: now[0], sleep=sleep)
    rules = Rules.load(report())
    assert Trial(rules, Task("report", "a"), {}, around).run(20) == Completed([1])
    assert waited == [3, 4, 8]
    assert [line.strip() for line in said if line.endswith(".0 s")] == ["0.0 s", "3.0 s", "7.0 s", "15.0 s"]
    api.asked, waited[:] = 1, []
    assert Trial(rules, Task("report", "b"), {}, around).run(20, 3.5) == Completed([1])
    assert waited == [3, 3.5]
    assert "  (waiting 3.5 s instead)" in said


def test_the_example_files_can_be_tried_on_the_third_party(
    third_party: ThirdParty, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_SERVERS", f"example={third_party.url},coin={third_party.url}")
    for name in ("example", "coin"):
        assert call("try", SHIPPED / f"{name}.json", "--name", "Kraków", "--max-wait", "0") == 0
        assert "= completed: " in call.text
    assert {one.name for one in third_party.calls} == {"Kraków"}
