"""One task against a real API: when it is asked, how long is waited, and when nothing is sent at all."""

import pytest

from local.provider.trial import Surroundings, Trial
from local.servers.third_party import ThirdParty
from shared.codec import Json
from shared.outcome import Completed
from shared.provider.language.rules import Rules
from shared.task import Task
from tests.support.provider_tools import SECRET, SHIPPED, Api, Call, Desk, Write, submit


def test_try_says_that_nobody_can_call_it_back(desk: Desk) -> None:
    desk.attempt(desk.report(**submit(url="/reports", query={"hook": "${callback.url}"})))
    word = "${callback.url} is null here: the provider could not call back, so it is only polled"
    assert word in desk.text
    desk.attempt(desk.report())
    assert word not in desk.text


def test_try_ends_at_once_where_a_secret_cannot_be_read(desk: Desk) -> None:
    desk.patch.delenv("REPORT_KEY")
    assert desk("try", desk.report()) == 1
    assert desk.lines == ["a secret cannot be read here: env:REPORT_KEY: the variable is not set"]
    assert desk.api.site.calls == []


def test_try_asks_only_addresses_that_the_file_names_or_the_public_ones(desk: Desk) -> None:
    submit = {"url": f"{desk.api.site.url}/x"}
    assert desk.attempt(desk.report(servers=["https://api.acme.example"], submit=submit, poll=None)) == 1
    assert "= failed: refused-target" in desk.text
    assert desk.api.site.calls == []


@pytest.mark.parametrize(("changes", "said"), [
    ({"data": 5}, "$.data: must be a text"),
    (submit(url="/${input.kind}", body=None), "= failed: missing-input: no value for input.kind (A URL needs an input"),
], ids=["a faulty file", "missing input"])  # fmt: skip
def test_what_is_wrong_from_the_start_is_said_before_anything_is_sent(desk: Desk, changes: Json, said: str) -> None:
    assert desk("try", desk.report(**changes)) == 1
    assert said in desk.text
    assert desk.api.site.calls == []


def test_a_trial_waits_as_the_answers_say_but_no_longer_than_told(api: Api, report: Write) -> None:
    waited, said, now = list[float](), list[str](), [1_700_000_000_250]

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
