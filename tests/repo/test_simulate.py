"""docs/scale.md: its tables are fresh, its arithmetic is right, and what it counts is what the code does."""

import itertools
import json
import logging
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchmarks import lateness, model, prices, simulate
from benchmarks.model import COUNTED, MONTH, RUN_CALLS, Load, Step
from local import ROOT
from shared import aws, wiring
from shared.store.item import SHARDS
from tests.support.api_events import sample
from tests.support.deployment import FILES, Deployment
from tests.support.redis_servers import server_or_skip
from tests.support.simulator import DONE, PARTIAL, pending

Measure = Callable[[Callable[[], Any]], Step]
WOKEN = sample("process-wakeup")


@pytest.fixture
def measure(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """What the handlers ask for while they do something, wake-ups on; Redis knows the scripts."""
    instants = itertools.count()  # no two are the same
    monkeypatch.setenv("WAKE_QUEUE_URL", "https://sqs/wake")
    monkeypatch.setattr(aws, "client", lambda *_, **__: Sqs())
    monkeypatch.setattr(wiring, "clock", lambda: next(instants) + deployed.clock())
    client: Any = deployed.dynamodb_client
    update = client.update_item

    def image() -> dict[str, Any]:
        return next(iter(client.scan(TableName="meanwhile")["Items"]), {})

    def measured(do: Callable[[], Any]) -> Step:
        writes = []

        def updated(**how: Any) -> Any:
            before, done = image(), update(**how)
            writes.append(index_writes(before, image()))
            return done

        monkeypatch.setattr(client, "update_item", updated)
        deployed.dynamodb.calls.clear()
        deployed.redis.calls.clear()
        do()
        asked = Counter(deployed.dynamodb.calls)
        redis = Counter(deployed.redis.calls)["EVALSHA"]  # EVAL sends a script that the server does not know yet
        return Step(redis, asked["GetItem"], asked["UpdateItem"], sum(writes))

    return measured


class Sqs:
    """A client of SQS that takes every wake-up."""

    def send_message(self, **_: Any) -> None: ...


def index_writes(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """What DynamoDB writes in the index `open` where an item changes so: an entry whose sort key changes is moved."""
    if "open" not in before or "open" not in after:
        return int(("open" in before) != ("open" in after))
    if before["updated_at"] != after["updated_at"]:
        return 2
    return int(before.get("generation") != after.get("generation"))


def with_run(step: Step) -> Step:
    """A poll in a run of its own, which claims once more and leaves."""
    return Step(step.redis + RUN_CALLS, step.reads, step.writes, step.index)


# --- what is counted


def test_each_step_of_a_task_asks_for_as_much_as_the_page_counts(deployed: Deployment, measure: Measure) -> None:
    deployed.simulator.say(pending(PARTIAL), pending(PARTIAL), pending({"more": 1}), DONE)
    deployed.process()  # the environment has been told the time
    assert measure(lambda: deployed.process(WOKEN)) == Step(RUN_CALLS, 0, 0, 0)
    assert measure(lambda: deployed.call("GET", "/?task-name=a")) == COUNTED["request"]
    for step, seconds in (("unchanged", 3), ("news", 31), ("end", 31)):
        deployed.pass_(seconds)
        assert measure(lambda: deployed.process(WOKEN)) == with_run(COUNTED[step]), step
    assert deployed.state() == {}


def test_the_schedules_run_calls_redis_twice_for_each_provider(deployed: Deployment, measure: Measure) -> None:
    deployed.process()
    assert measure(deployed.process).redis == RUN_CALLS * len(FILES)


def test_reconcile_reads_each_key_of_the_index_and_calls_redis_so_often_for_a_provider(
    deployed: Deployment, measure: Measure
) -> None:
    deployed.reconcile()
    deployed.redis.calls.clear()
    deployed.dynamodb.calls.clear()
    deployed.reconcile()
    asked, calls = Counter(deployed.dynamodb.calls), len(deployed.redis.calls)
    assert asked == {"Query": SHARDS * len(FILES)}
    assert calls == model.RECONCILE_CALLS * len(FILES)
    assert model.reconcile_seconds(10**6) == 50


def test_what_is_logged_is_about_as_long_as_the_page_counts(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.simulator.say(pending(PARTIAL), DONE)
    deployed.process()
    deployed.call("GET", "/?task-name=a")
    deployed.pass_(3)
    [handler] = logging.getLogger("meanwhile").handlers
    monkeypatch.setattr(handler, "stream", sys.stdout)
    capsys.readouterr()
    deployed.process(WOKEN)
    lines = capsys.readouterr().out.splitlines()
    by_message = {json.loads(line).get("message", "metrics"): len(line) for line in lines}
    counted = {
        "tick": model.TICK_BYTES + model.NAMED_BYTES,
        "metrics": model.METRICS_BYTES,
        "completed": model.END_BYTES,
    }
    assert by_message == {name: pytest.approx(size, rel=0.15) for name, size in counted.items()}


def test_a_small_item_is_one_unit_to_write_and_to_read_and_as_large_as_the_page_counts(deployed: Deployment) -> None:
    deployed.simulator.say(pending(PARTIAL), DONE)
    deployed.call("GET", "/?task-name=a")
    deployed.pass_(3)
    deployed.process()
    [item] = deployed.dynamodb_client.scan(TableName="meanwhile")["Items"]
    size = sum(len(name) + len(json.dumps(value)) - 8 for name, value in item.items())  # {"S": } is not stored
    assert model.ITEM_KB * 512 < size < model.ITEM_KB * 1024 < 1024  # half of it is for data


@pytest.mark.parametrize(
    ("before", "after", "writes"),
    [
        ({}, {"open": "a", "updated_at": 1, "generation": 1}, 1),
        ({"open": "a", "updated_at": 1}, {"open": "a", "updated_at": 2}, 2),
        ({"open": "a", "updated_at": 1, "turn": 1}, {"open": "a", "updated_at": 1, "turn": 2}, 0),
        ({"open": "a", "updated_at": 1, "generation": 1}, {"open": "a", "updated_at": 1, "generation": 2}, 1),
        ({"open": "a", "updated_at": 1}, {"updated_at": 2}, 1),
        ({"updated_at": 1}, {"updated_at": 2}, 0),
    ],
)
def test_an_index_is_written_where_what_it_holds_changes(before: Any, after: Any, writes: int) -> None:
    assert index_writes(before, after) == writes


# --- the arithmetic, with figures checked by hand


def test_a_poll_alone_is_paid_from_the_event_to_its_reply_and_many_are_paid_by_the_second() -> None:
    assert model.run_seconds(1e-6) == pytest.approx(0.15 + 0.3, rel=1e-4)
    assert model.run_seconds(1) == pytest.approx(0.4298, rel=1e-3)  # 0.45 / e + 1 - 2 / e
    assert model.run_seconds(20) == pytest.approx(1 / 20, rel=1e-3)  # one run, always there
    assert model.run_seconds(10**4) == model.busy_seconds() == pytest.approx(0.3 / 20 * 1.10)


def test_a_run_is_bound_by_its_threads_or_by_its_processor() -> None:
    assert model.busy_seconds(parallel=200) == pytest.approx(3.8e-3 * 1769 / 512)
    assert model.busy_seconds(parallel=200, megabytes=1769) == pytest.approx(3.8e-3)


def test_a_load_uses_what_one_counts_by_hand() -> None:
    one = Load(86_400, 1)  # a task a second, two polls
    assert (one.tasks_a_second, one.polls, one.waiting) == (1, 2, 32)
    assert one.units("reads") == 1 + 1 + 16 / 2 / 300
    assert one.units("writes") == (2 + 3) + (1 + 1)
    assert one.messages == pytest.approx(2 * 0.13534, rel=1e-3)  # 2 / e²
    assert one.runs_at_once == pytest.approx(2 * 0.3579, rel=1e-3)  # 2 (0.45 / e² + (1 - 3 / e²) / 2)
    assert one.paid == pytest.approx(one.runs_at_once + (0.15 + 0.002) / 60)


def test_a_bill_is_what_one_multiplies_by_hand() -> None:
    bill = Load(86_400, 1).bill()
    assert bill["API"] == pytest.approx(2_628_000 * 3.5 / 1e6)
    assert bill["SQS"] == pytest.approx((650_000 + 2_628_000 * 0.27067 * 3) * 0.4 / 1e6, rel=1e-3)
    kept = 86_400 * 30 * 0.6e-6 * 0.45
    assert bill["DynamoDB"] == pytest.approx(2.628 * (7 * 0.625 + 2.02667 * 0.125) + kept, rel=1e-4)
    assert bill["metrics"] == pytest.approx(0.9)
    reconcile = (0.011 * 1769 / 512 + 16 * 0.005 + 0.016) / 300
    seconds = (0.71589 + 0.152 / 60 + reconcile) * 0.5 + 0.33 * 1
    invocations = 0.27067 + 1 / 60 + 1
    assert bill["Lambda"] == pytest.approx(2.628 * (seconds * 16.6667 + invocations * 0.2), rel=1e-3)


def test_other_ways_cost_what_one_multiplies_by_hand() -> None:
    one = Load(86_400, 1)
    asks = 0.125 * 0.3 * 16.6667 + 0.2  # dollars for a million polls
    polls = 2 * MONTH / 1e6
    assert one.state_machine(3) == pytest.approx(polls * (3 * 25 + 25 + asks), rel=1e-6)
    assert one.durable() == pytest.approx(polls * (2 * 8.25 + asks), rel=1e-6)
    assert one.delayed() == pytest.approx(0.26 + polls * (1.2 + asks), rel=1e-6)
    assert one.nat() == pytest.approx(32.85 + 2.628 * 3 * 8 * 0.045, rel=1e-6)


def test_a_quiet_month_costs_what_one_multiplies_by_hand() -> None:
    found = model.quiet()
    assert [round(amount, 2) for amount in found.values()][1:5] == [6.13, 36.5, 14.6, 0.8]
    assert found["template.yaml without Redis"] == pytest.approx(sum(Load(1, 1).bill().values()) - 6.133, abs=1e-3)
    assert [*found.values()][5] == pytest.approx(0.084 * 730 + 10_000 * MONTH * 0.0023e-6)
    assert f"| **all** | **{simulate.money(sum([*found.values()][:5]))}** |" in simulate.still()


def test_every_price_says_where_it_was_read_or_that_it_was_not() -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in page for name in prices.PRICES)
    assert page.count("not found: from memory") == sum(one.source is None for one in prices.PRICES.values())


# --- against virtual time


@pytest.mark.slow
@pytest.mark.parametrize(("a_minute", "minutes", "providers"), [(60, 2, 1), (120, 0.5, 10)])
def test_the_model_is_near_what_runs_cost_in_virtual_time(a_minute: int, minutes: float, providers: int) -> None:
    found = lateness.simulate(a_minute, minutes, lateness.DELIVERIES[0], 1, providers=providers)
    polls, load = len(found.late), Load(a_minute * 60 * 24, providers)
    by_requests = load.tasks_a_second * COUNTED["request"].redis
    asked = {
        "paid": (found.paid_seconds / polls, load.paid / load.polls),
        "messages": (found.messages / polls, load.messages / load.polls),
        "calls": (found.calls / polls, (load.calls - by_requests) / load.polls),
    }
    assert {name: 0.4 < is_ / said < 1.25 for name, (is_, said) in asked.items()} == dict.fromkeys(asked, True), asked


# --- the page


def test_the_page_has_the_tables_that_the_model_makes() -> None:
    page = simulate.PAGE.read_text(encoding="utf-8")
    assert simulate.renewed(page) == page, "run `python -m benchmarks.simulate --write`"
    assert re.findall(r"<!-- made by benchmarks.simulate: (\w+) -->", page) == [*simulate.PARTS]


def test_the_model_prints_its_tables() -> None:
    command = [sys.executable, "-m", "benchmarks.simulate"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(maker() in printed for maker in simulate.PARTS.values())


@pytest.mark.server
@pytest.mark.slow
def test_a_full_node_hands_out_what_it_has_and_three_files_hold_three_times_as_much() -> None:
    server_or_skip("redis")
    size = ("--tasks", "40", "--open", "400", "--room", "3000000")
    command = [sys.executable, "-m", "benchmarks.shard", *size]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = {row[:46].strip(): row[46:].split() for row in printed.splitlines()}
    one, three = (int(count.replace(",", "")) for count in rows["tasks that wait, 2.86102 MB a node"])
    assert 2.5 * one <= three <= 3.1 * one
    assert rows["then: 500 more are taken"] == ["no", "no"]
    assert rows["then: others of another node are"] == ["yes"]
    assert rows["then: tasks are claimed and completed"] == ["yes", "yes"]
