"""enqueue answers at once, asks once, and whatever happens next leaves either nothing or a task that ends."""

import json
import logging
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from shared.api.answer import Answer
from shared.api.enqueue import RESERVE_SECONDS
from shared.errors import BadRequest, Conflict, StoreUnavailable, Unavailable
from shared.limits import Limits
from shared.provider.language.polling import SPREAD
from shared.queue import Add, End, Hold
from shared.record import Record
from shared.store.item import MAX_NOTIFY
from shared.task import Task
from shared.work.keeper import record_of
from shared.work.reconcile import Reconciler
from shared.work.settle import Settlement, settle
from shared.work.turn import Turn
from shared.work.worker import Worker
from tests.support.backend import Backend
from tests.support.front import Front
from tests.support.simulator import (
    BROKEN,
    DONE,
    DRIPPING,
    EXAMPLE,
    JOB,
    PARTIAL,
    PENDING,
    WHOLE,
    Said,
    Simulator,
    completed,
    pending,
    refused,
    says,
)
from tests.support.waker import Waker

FILES: dict[str, Any] = {
    "example": EXAMPLE, "submitted": JOB | {"firstAnswer": 8}, "job": JOB, "accepting": EXAMPLE | {"firstAnswer": 0},
    "impatient": EXAMPLE | {"firstAnswer": 0.2}, "fleeting": EXAMPLE | {"freshness": 60, "freshnessFailed": 0},
}  # fmt: skip


@pytest.fixture
def front(backend: Backend, simulator: Simulator) -> Front:
    providers = {name: simulator.provider(file) for name, file in FILES.items()}
    backend.queue._wake = Waker(lambda *_: None)
    return Front(**vars(backend), simulator=simulator, providers=providers)


# --- a new task


def test_a_new_request_asks_once_answers_at_once_and_leaves_a_task_with_a_timestamp(front: Front) -> None:
    answer = front.ask()
    assert (answer.status, answer.location) == (202, Task("example", "a"))
    told = {name: answer.body[name] for name in ("status", "data", "partial", "deduplicated")}
    assert told == {"status": "pending", "data": PARTIAL, "partial": True, "deduplicated": False}
    assert front.simulator.calls() == ["GET /example"]
    assert front.state() == {"a": ("waiting", answer.body["generation"])}
    score = front.bench.score("a")
    assert score is not None
    assert 0 < score - front.bench.keys.now() <= 2000
    assert answer.retry_after_seconds == 2


def test_while_it_is_asked_for_the_first_time_the_task_is_held_at_0(front: Front) -> None:
    seen: list[Any] = []
    front.simulator.say(PENDING.after(lambda: seen.extend([front.state()["a"][0], front.bench.score("a")])))
    front.ask()
    assert seen == ["processing", 0]


def test_a_first_answer_says_what_was_left_out_of_it(front: Front) -> None:
    """C12."""
    front.simulator.say(pending("d" * 9_000_000))
    answer = front.ask()
    assert (answer.status, answer.body["data"]) == (202, None)
    assert answer.body["reason"] == "left out as too large: partial"
    assert front.ask("b", wait=0).body["reason"] is None


def test_what_the_provider_knows_at_once_is_stored_and_answered_whole(front: Front) -> None:
    front.simulator.say(DONE)
    answer = front.ask()
    assert (answer.status, answer.body["status"], answer.body["data"]) == (200, "completed", WHOLE)
    assert (answer.body["partial"], answer.body["age_seconds"]) == (False, 0)
    assert answer.retry_after_seconds is None
    assert (front.item().status, front.item().data) == ("completed", WHOLE)
    assert front.state() == {}


def test_a_refusal_for_good_is_answered_as_one_and_is_no_dead_letter(front: Front) -> None:
    front.simulator.say(refused("no such customer"))
    answer = front.ask()
    assert (answer.status, answer.body["status"]) == (422, "failed")
    assert answer.body["error"] == {"reason": "upstream", "detail": "no such customer"}
    assert front.item().refused
    assert front.state() == {}


@pytest.mark.parametrize(
    "error",
    [BROKEN, DRIPPING, says(500, {}), says(300, {}), Said(200, b"<html>")],
    ids=["connection error", "slow", "500", "300", "unreadable"],
)
def test_a_provider_with_errors_is_asked_again_later_and_the_user_is_told_what_is_stored(
    front: Front, error: Said
) -> None:
    front.ask(provider="impatient")
    item = front.item(provider="impatient")
    front.store.complete(item.task, item.generation, WHOLE, front.clock())
    front.queue.end([End(item.task, item.generation, "dropped")])
    front.simulator.say(error)
    answer = front.ask(provider="impatient", max_age=0)
    assert (answer.status, answer.body["status"], answer.body["data"]) == (202, "pending", WHOLE)
    assert answer.retry_after_seconds == 2
    assert front.state("impatient") == {"a": ("waiting", item.generation + 1)}


def test_an_unknown_provider_is_the_requests_fault_and_leaves_nothing(front: Front) -> None:
    with pytest.raises(BadRequest) as caught:
        front.ask(provider="nobody")
    assert caught.value.field == "provider"
    assert front.dynamodb_client.scan(TableName="meanwhile")["Count"] == 0
    assert front.state("nobody") == {}


@pytest.mark.parametrize(
    ("provider", "settings", "remaining"),
    [
        ("accepting", {}, 25), ("example", {"first_answer_seconds": 0}, 25), ("example", {}, RESERVE_SECONDS),
        ("example", {}, 1),
    ],
)  # fmt: skip
def test_without_time_for_a_first_answer_it_is_accepted_unasked_and_due_now(
    front: Front, provider: str, settings: dict[str, Any], remaining: float
) -> None:
    answer = front.ask(provider=provider, remaining=remaining, **settings)
    assert (answer.status, answer.retry_after_seconds, answer.body["data"]) == (202, 1, None)
    assert front.simulator.calls() == []
    [place] = front.queue.look([Task(provider, "a")])
    assert place.due_seconds is not None
    assert place.due_seconds <= 0


@pytest.mark.parametrize(
    ("provider", "settings", "remaining", "seconds"),
    [
        ("example", {}, 25, 5), ("example", {"first_answer_seconds": 3}, 25, 3),
        ("impatient", {"first_answer_seconds": 3}, 25, 0.2), ("example", {"attempt_seconds": 2}, 25, 2),
        ("example", {}, RESERVE_SECONDS + 1, 1),
    ],
)  # fmt: skip
def test_the_provider_has_the_first_answers_time_and_never_more_than_the_function(
    front: Front, provider: str, settings: dict[str, Any], remaining: float, seconds: float
) -> None:
    given: list[float] = []
    ask = front.providers[provider].attempt

    def noted(*arguments: Any, **options: Any) -> Any:
        given.append(round(options["seconds"], 3))
        return ask(*arguments, **options)

    front.patch.setattr(front.providers[provider], "attempt", noted)
    front.ask(provider=provider, remaining=remaining, **settings)
    assert given == [seconds]


@pytest.mark.parametrize(("input_", "kept"), [(None, {}), ({}, {}), ({"customer": 42}, {"customer": 42})])
def test_a_new_tasks_input_is_what_was_sent_or_nothing(front: Front, input_: Any, kept: Any) -> None:
    front.ask(input_=input_)
    assert front.item().input == kept


# --- the task is open


def test_a_second_request_adds_nothing_and_is_answered_from_what_is_known(front: Front) -> None:
    front.ask()
    before = front.bench.parts()
    answer = front.ask()
    assert (answer.status, answer.body["deduplicated"], answer.body["data"]) == (202, True, PARTIAL)
    assert (answer.body["schedule"], answer.location) == ("waiting", Task("example", "a"))
    assert front.simulator.calls() == ["GET /example"]
    assert front.bench.parts() == before


def test_retry_after_is_the_next_attempt_rounded_up(front: Front) -> None:
    front.ask()
    front.bench.rewind(0.7)
    assert front.ask().retry_after_seconds == 2
    front.bench.rewind(1.5)
    assert front.ask().retry_after_seconds == 1


def test_while_somebody_works_on_it_retry_after_is_the_schedules_rhythm(front: Front) -> None:
    front.ask()
    front.bench.rewind(60)
    front.queue.claim("example", limit=1, lease_seconds=30, token="worker")
    answer = front.ask()
    assert (answer.body["schedule"], answer.retry_after_seconds) == ("processing", 5)


@pytest.mark.parametrize("max_age", [0, 60])
def test_no_cache_does_not_begin_an_open_task_again(front: Front, max_age: float) -> None:
    generation = front.ask().body["generation"]
    answer = front.ask(max_age=max_age)
    assert (answer.body["deduplicated"], answer.body["generation"]) == (True, generation)
    assert len(front.simulator.calls()) == 1


@pytest.mark.parametrize("input_", [None, {"b": [2], "a": 1}])
def test_the_same_input_in_any_order_or_none_is_the_same_request(front: Front, input_: Any) -> None:
    front.ask(input_={"a": 1, "b": [2]})
    assert front.ask(input_=input_).body["deduplicated"]


@pytest.mark.parametrize("input_", [{}, {"a": 2}, {"a": 1, "b": 1}])
def test_another_input_while_it_is_open_is_a_conflict(front: Front, input_: Any) -> None:
    front.ask(input_={"a": 1})
    with pytest.raises(Conflict) as caught:
        front.ask(input_=input_)
    assert caught.value.field == "input"
    assert len(front.simulator.calls()) == 1


def test_an_open_task_that_redis_has_lost_is_answered_and_left_to_reconcile(front: Front) -> None:
    front.ask()
    front.redis_client.flushall()
    answer = front.ask()
    assert (answer.status, answer.body["schedule"]) == (202, "lost")
    assert front.state() == {}


# --- the task has ended


def test_after_completion_the_same_call_returns_the_stored_data(front: Front) -> None:
    front.ask()
    front.finish(WHOLE)
    answer = front.ask()
    assert (answer.status, answer.body["status"], answer.body["data"]) == (200, "completed", WHOLE)
    assert (answer.body["deduplicated"], answer.body["partial"]) == (True, False)
    assert len(front.simulator.calls()) == 1
    assert front.state() == {}


@pytest.mark.parametrize(("provider", "freshness"), [("example", 3600), ("fleeting", 60)])
def test_stored_data_is_answered_while_it_is_fresh_and_then_asked_for_again(
    front: Front, provider: str, freshness: float
) -> None:
    front.simulator.say(DONE, PENDING)
    generation = front.ask(provider=provider).body["generation"]
    front.clock.advance(freshness - 0.001)
    assert front.ask(provider=provider).status == 200
    front.clock.advance(0.001)
    answer = front.ask(provider=provider)
    assert (answer.status, answer.body["generation"]) == (202, generation + 1)
    assert answer.body["data"] == WHOLE | PARTIAL
    assert len(front.simulator.calls()) == 2


@pytest.mark.parametrize(("age", "max_age", "status"), [(30, 31, 200), (30, 30, 202), (0, 0, 202), (3600, 9999, 202)])
def test_a_user_may_ask_for_younger_data_and_never_gets_older_than_the_file_allows(
    front: Front, age: float, max_age: float, status: int
) -> None:
    front.ask()
    front.finish(WHOLE)
    front.clock.advance(age)
    answer = front.ask(max_age=max_age)
    assert (answer.status, answer.body["data"]["rating"]) == (status, 4.5)


# --- callers who say how long they wait, and how stale is good enough


class Timed(Worker):
    """A worker that notes how long each inline attempt may take, and finds nothing new."""

    def __init__(self, front: "Front") -> None:
        super().__init__(front.parts(front.providers))
        self.keeper.monotonic = front.clock.monotonic
        self.seconds: list[float] = []

    def attempt(self, turn: Turn, record: Record, *, taken_over: bool = False) -> Settlement:
        self.seconds.append(round(turn.seconds_left(self.keeper.monotonic()), 3))
        return super().attempt(turn, record, taken_over=taken_over)


@pytest.mark.parametrize(
    ("provider", "wait", "remaining", "seconds"),
    [
        ("example", None, 25, [5]),  # as the settings say
        ("example", 2, 25, [2]), ("example", 20, 25, [20]),
        ("example", 20, 15, [10]),  # what is left, but for storing and settling
        ("example", 0, 25, []), ("accepting", None, 25, []),  # as its file says
        ("accepting", 3, 25, [3]), ("impatient", None, 25, [0.2]), ("impatient", 9, 25, [9]),
        ("submitted", None, 25, [8]), ("submitted", 8, 25, [8]),
        ("submitted", 7, 25, []),  # a submit that is cut off might be sent twice
        ("job", 4, 25, []), ("job", 5, 25, [5]),
    ],
)  # fmt: skip
def test_a_caller_chooses_how_long_it_waits_for_the_first_answer(
    front: Front, provider: str, wait: float | None, remaining: float, seconds: list[float]
) -> None:
    front.worker = timed = Timed(front)
    answer = front.ask(provider=provider, wait=wait, remaining=remaining)
    assert answer.status == 202
    assert timed.seconds == seconds


def test_who_waits_for_nothing_is_answered_without_asking_and_the_task_is_due_at_once(front: Front) -> None:
    answer = front.ask(wait=0)
    assert (answer.status, answer.retry_after_seconds, front.simulator.asked) == (202, 1, [])
    assert len(front.queue.claim("example", limit=1, lease_seconds=1, token="t").tasks) == 1


@pytest.mark.parametrize(
    ("age", "max_age", "stale", "status"),
    [
        (3599, None, 60, 200),  # fresh
        (3600, None, 60, 200), (3659, None, 60, 200), (3660, None, 60, 202), (3600, None, 0, 202), (40, 30, 60, 200),
        (90, 30, 60, 202),
    ],
)  # fmt: skip
def test_stale_data_is_answered_for_as_long_as_the_caller_takes_it(
    front: Front, age: float, max_age: float | None, stale: float, status: int
) -> None:
    front.ask()
    front.finish(WHOLE)
    front.clock.advance(age)
    assert front.ask(max_age=max_age, stale=stale).status == status


def test_stale_data_is_answered_at_once_and_the_next_generation_begins(front: Front) -> None:
    generation = front.ask().body["generation"]
    front.finish(WHOLE)
    front.clock.advance(3605)
    answer = front.ask(stale=60)
    told = {name: answer.body[name] for name in ("status", "data", "partial", "generation", "age_seconds")}
    known = {"status": "completed", "data": WHOLE, "generation": generation}
    assert told == known | {"partial": False, "age_seconds": 3605}
    assert answer.body["revalidating"] is True
    assert len(front.simulator.asked) == 1
    assert front.state() == {"a": ("waiting", generation + 1)}
    again = front.ask(stale=60)
    assert (again.status, again.body["deduplicated"], again.body["data"]) == (202, True, WHOLE)


def test_stale_data_of_another_input_or_of_a_failure_is_no_answer(front: Front) -> None:
    front.ask(input_={"a": 1})
    front.finish(WHOLE)
    front.clock.advance(3605)
    assert front.ask(input_={"a": 2}, stale=60).status == 202
    front.fail()
    front.clock.advance(70)
    assert front.ask(stale=60).status == 202


def test_another_input_begins_the_next_generation_with_it_and_no_input_keeps_the_stored_one(front: Front) -> None:
    generation = front.ask(input_={"a": 1}).body["generation"]
    front.finish(WHOLE)
    assert front.ask(input_={"a": 1}).status == 200
    assert front.ask(input_={"a": 2}).body["generation"] == generation + 1
    assert front.item().input == {"a": 2}
    front.finish(WHOLE)
    assert front.ask(max_age=0).body["generation"] == generation + 2
    assert front.item().input == {"a": 2}


def test_a_failure_is_told_for_a_while_and_then_it_is_begun_again(front: Front) -> None:
    front.ask()
    front.fail()
    front.clock.advance(59.9)
    answer = front.ask()
    assert (answer.status, answer.body["status"]) == (200, "failed")
    assert answer.body["error"] == {"reason": "timeout", "detail": "too slow"}
    front.clock.advance(0.1)
    assert front.ask().status == 202
    assert len(front.simulator.calls()) == 2


def test_how_long_a_failure_is_told_stands_in_the_file(front: Front) -> None:
    front.ask(provider="fleeting")
    front.fail(provider="fleeting")
    assert front.ask(provider="fleeting").status == 202


def test_a_failure_is_not_told_to_who_asks_for_something_new(front: Front) -> None:
    front.ask()
    front.fail()
    assert front.ask(max_age=0).status == 202


def test_a_cancelled_task_is_begun_again(front: Front) -> None:
    generation = front.ask(input_={"a": 1}).body["generation"]
    front.cancel()
    answer = front.ask()
    assert (answer.status, answer.body["generation"], answer.body["deduplicated"]) == (202, generation + 1, False)
    assert front.item().input == {"a": 1}
    assert front.state() == {"a": ("waiting", generation + 1)}


def test_a_dead_letter_does_not_stand_in_the_way_of_the_next_generation(front: Front) -> None:
    generation = front.ask().body["generation"]
    front.fail()
    front.seed("a", generation=generation, dead=True)
    front.clock.advance(60)
    front.ask()
    assert front.state() == {"a": ("waiting", generation + 1)}


def test_what_expired_is_as_good_as_new_and_its_data_is_not_shown(front: Front) -> None:
    generation = front.ask(input_={"a": 1}).body["generation"]
    front.finish(WHOLE)
    front.clock.advance(31 * 86400)
    answer = front.ask()
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    assert answer.body["generation"] > generation
    assert front.item().input == {}


def test_numbers_come_out_as_they_went_in(front: Front) -> None:
    data = {"three": 3, "half": 1.5, "big": 1e22, "odd": 0.1 + 0.2, "long": 10**38 + 7, "empty": []}
    front.simulator.say(completed(data))
    for answer in (front.ask(), front.ask()):
        back = json.loads(answer.text)["data"]
        assert back == data
        assert [type(value) for value in back.values()] == [type(value) for value in data.values()]


# --- at the same time


@pytest.mark.promise("once", "of simultaneous requests for one task, one begins it and asks the provider")
def test_of_two_at_once_one_asks_and_the_other_is_told_that_it_is_being_processed(front: Front) -> None:
    asked, answered = threading.Event(), threading.Event()

    def wait_for_the_other() -> None:
        asked.set()
        answered.wait(30)

    front.simulator.say(PENDING.after(wait_for_the_other))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(front.ask)
        assert asked.wait(30)
        second = front.ask()
        answered.set()
    assert (second.status, second.body["deduplicated"], second.body["schedule"]) == (202, True, "processing")
    assert first.result().body["deduplicated"] is False
    assert front.simulator.calls() == ["GET /example"]


def test_who_loses_the_race_to_begin_is_answered_from_the_winners_task(front: Front) -> None:
    front.meanwhile(front.store, "begin", before=front.ask)
    answer = front.ask()
    assert (answer.status, answer.body["deduplicated"]) == (202, True)
    assert front.simulator.calls() == ["GET /example"]


def test_who_loses_that_race_again_and_again_is_told_to_come_back(front: Front) -> None:
    front.patch.setattr(front.store, "begin", lambda *_, **__: None)
    with pytest.raises(Unavailable):
        front.ask()
    assert front.simulator.calls() == []


@pytest.mark.parametrize("ahead", [0, 1])
def test_who_finds_the_generation_in_redis_already_does_not_ask(front: Front, ahead: int) -> None:
    def beat() -> None:
        item = front.item()
        front.queue.add([Add(item.task, item.generation + ahead, record_of(item).to_text())], token="somebody else")

    front.meanwhile(front.queue, "add_and_look", before=beat)
    answer = front.ask()
    assert (answer.status, answer.body["deduplicated"]) == (202, True)
    assert front.simulator.calls() == []
    assert front.state() == {"a": ("waiting", answer.body["generation"] + ahead)}


def test_a_task_cancelled_while_it_is_asked_for_is_answered_as_cancelled(front: Front) -> None:
    front.simulator.say(DONE.after(front.cancel))
    answer = front.ask()
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert front.item().status == "cancelled"
    assert front.state() == {}


def test_a_task_begun_again_while_it_is_asked_for_stays_accepted(front: Front) -> None:
    def begun_again() -> None:
        front.cancel()
        front.store.begin(Task("example", "a"), front.item(), {}, front.clock())

    front.simulator.say(DONE.after(begun_again))
    answer = front.ask()
    assert (answer.status, answer.body["status"]) == (202, "pending")
    assert front.item().data is None


# --- limits, pause and groups


def limited(front: Front, limits: Any) -> Limits:
    """The default provider gets these limits."""
    front.providers["example"] = front.simulator.provider(EXAMPLE | {"limits": limits})
    return front.providers["example"].rules.limits


@pytest.mark.parametrize("limits", [{"parallel": 1}, {"openJobs": 1}, {"rate": {"requests": 1, "seconds": 1000}}])
def test_at_a_limit_a_request_is_accepted_without_asking(front: Front, limits: Any) -> None:
    known = limited(front, limits)
    front.queue.add([Add(Task("example", "first"), 1, "{}")], token="t", lease_seconds=30, limits=known)
    answer = front.ask()
    assert (answer.status, answer.body["deduplicated"], answer.body["schedule"]) == (202, False, "limited")
    assert answer.retry_after_seconds == pytest.approx(known.rate_seconds or 1, abs=60)
    assert answer.body["next_attempt_at"] > answer.body["created_at"]
    assert front.simulator.calls() == []
    assert front.state()["a"] == ("waiting", answer.body["generation"])


def test_while_a_provider_is_paused_a_request_is_accepted_without_asking(front: Front) -> None:
    front.simulator.say(says(429, {}, **{"Retry-After": "60"}))
    first = front.ask()
    assert (first.status, first.body["schedule"]) == (202, "paused")
    assert first.retry_after_seconds is not None
    assert 60 <= first.retry_after_seconds <= math.ceil(60 * SPREAD)
    second = front.ask("b")
    assert (second.status, second.body["deduplicated"], second.body["schedule"]) == (202, False, "paused")
    assert second.retry_after_seconds is not None
    assert 55 < second.retry_after_seconds <= math.ceil(60 * SPREAD)
    assert len(front.simulator.calls()) == 1
    assert {name: where for name, (where, _) in front.state().items()} == {"a": "waiting", "b": "waiting"}


def test_a_requests_own_attempt_after_a_pause_is_its_probe_and_a_good_answer_ends_it(front: Front) -> None:
    front.simulator.say(says(429, {}, **{"Retry-After": "60"}), DONE)
    front.ask()
    front.bench.rewind(60 * SPREAD)
    assert front.ask("b").status == 200
    assert front.bench.parts()["gate"] == {"slow": "2"}  # "a" waits


def test_a_refusal_is_an_answer_too_and_ends_a_pause(front: Front) -> None:
    front.simulator.say(says(503, {}, **{"Retry-After": "60"}), refused("no"))
    front.ask()
    front.bench.rewind(60 * SPREAD)
    assert front.ask("b").status == 422
    assert front.bench.parts()["gate"] == {"slow": "2"}


def test_a_submit_whose_answer_is_lost_may_have_opened_a_job(front: Front) -> None:
    limited(front, {"openJobs": 5})
    front.simulator.say(
        says(500, {}), BROKEN, Said(200, b"<html>it works!</html>", (("Content-Type", "application/json"),))
    )
    front.ask("answered")
    front.ask("lost")
    front.ask("unreadable")
    assert front.bench.parts()["jobs"].keys() == {"lost", "unreadable"}


def test_a_request_names_its_group_which_its_task_keeps(front: Front) -> None:
    front.ask(group="tenant 7")
    assert (front.item().group, front.bench.parts()["groups"]) == ("tenant 7", {"a": "tenant 7"})
    front.redis_client.flushall()
    reconcile(front)
    assert front.bench.parts()["groups"] == {"a": "tenant 7"}
    [record] = front.bench.parts()["tasks"].values()
    assert Record.from_text(record).group == "tenant 7"


def test_the_next_generation_keeps_the_group_unless_the_request_names_another(front: Front) -> None:
    front.ask(group="tenant 7")
    front.finish(WHOLE)
    front.ask(max_age=0)
    assert (front.item().group, front.bench.parts()["groups"]) == ("tenant 7", {"a": "tenant 7"})
    front.finish(WHOLE)
    front.ask(max_age=0, group="tenant 8")
    assert (front.item().group, front.bench.parts()["groups"]) == ("tenant 8", {"a": "tenant 8"})


# --- Redis or DynamoDB is away


def reconcile(front: Front) -> None:
    """An hour passes, then reconcile runs."""
    front.clock.advance(3600)
    rules = {name: one.rules for name, one in front.providers.items()}
    Reconciler(front.store, front.queue, rules, 30, front.clock, Random(1)).run(lambda: 60)


def test_without_redis_it_is_asked_stored_and_accepted_with_one_failure_and_reconcile_queues_it(front: Front) -> None:
    front.redis.away = True
    answer = front.ask(provider="job")
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    assert len(front.redis.calls) == 1
    item = front.item(provider="job")
    assert (item.turn, item.finished) == (1, 1)  # as if Redis had been there: it may be only its reply that is lost
    front.redis.away = False
    assert front.state("job") == {}
    reconcile(front)
    assert front.state("job") == {"a": ("waiting", answer.body["generation"])}
    [place] = front.queue.look([Task("job", "a")], records=True)
    assert Record.from_text(place.record).outputs == {"id": "j-1"}
    assert front.simulator.calls() == ["POST /jobs"]


@pytest.mark.promise("limits", "while Redis is away, requests do not ask a provider that has limits")
def test_without_redis_nobody_knows_what_the_limits_allow_and_a_provider_that_has_some_is_not_asked(
    front: Front,
) -> None:
    limited(front, {"parallel": 5})
    front.redis.away = True
    answer = front.ask()
    assert (answer.status, answer.body["data"], front.simulator.calls()) == (202, None, [])
    assert len(front.redis.calls) == 1
    front.redis.away = False
    reconcile(front)
    assert front.state() == {"a": ("waiting", answer.body["generation"])}


def test_an_end_of_which_redis_was_not_told_is_found_in_the_item_and_nobody_is_asked(front: Front) -> None:
    """C2: of a request's own attempt."""
    front.simulator.say(DONE)
    front.meanwhile(front.store, "complete", after=lambda: setattr(front.redis, "away", True))
    assert front.ask().status == 200
    front.redis.away = False
    asked = front.simulator.calls()
    front.pass_(31)
    assert front.queue.claim("example", limit=1, lease_seconds=30, token="t").once
    (claimed,) = front.queue.claim("example", limit=1, lease_seconds=30, token="u", which="once").tasks
    settlement = front.worker.work(claimed, front.worker.instant())
    assert (settlement.becomes, front.simulator.calls()) == ("forgotten", asked)
    settle(front.queue, front.providers["example"], [settlement])
    assert front.state() == {}


def test_without_redis_a_complete_answer_is_complete(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "meanwhile")
    front.redis.away = True
    front.simulator.say(DONE)
    assert front.ask().status == 200
    assert len(front.redis.calls) == 1
    assert front.item().data == WHOLE
    assert [line.message for line in caplog.records] == ["begun", "queue unavailable", "completed"]


def test_without_redis_an_open_task_is_answered_with_one_failure_and_an_unknown_schedule(front: Front) -> None:
    front.ask()
    front.redis.away = True
    answer = front.ask()
    assert (answer.status, answer.body["schedule"], answer.retry_after_seconds) == (202, "unknown", 5)
    assert len(front.redis.calls) == 1


def test_without_redis_a_stored_answer_needs_none(front: Front) -> None:
    front.ask()
    front.finish(WHOLE)
    front.redis.calls.clear()
    assert front.ask().status == 200
    assert front.redis.calls == []


def test_a_redis_that_goes_away_while_the_provider_is_asked_leaves_the_task_to_its_lease(front: Front) -> None:
    front.simulator.say(PENDING.after(lambda: setattr(front.redis, "away", True)))
    answer = front.ask()
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    front.redis.away = False
    front.bench.rewind(31)
    claim = front.queue.claim("example", limit=1, lease_seconds=30, token="worker", which="once")
    assert [one.hold for one in claim.tasks] == [Hold(Task("example", "a"), answer.body["generation"], "worker", 2)]


@pytest.mark.promise("ends", "202 is answered only once the task is in DynamoDB; without DynamoDB nothing is accepted")
@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_without_dynamodb_nothing_is_accepted_and_nobody_is_asked(front: Front, operation: str) -> None:
    front.dynamodb.away, front.redis.calls = {operation}, []
    with pytest.raises(StoreUnavailable):
        front.ask()
    assert front.simulator.calls() == []
    assert front.redis.calls == []


def away_once_asked(front: Front, said: Said) -> None:
    """DynamoDB goes away while the provider gives that answer."""
    front.simulator.say(said.after(lambda: setattr(front.dynamodb, "away", {"UpdateItem"})))


def test_a_partial_answer_that_could_not_be_stored_is_shown_and_carried_in_redis(front: Front) -> None:
    away_once_asked(front, PENDING)
    answer = front.ask(provider="job")
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    [place] = front.queue.look([Task("job", "a")], records=True)
    assert Record.from_text(place.record).outputs == {"id": "j-1"}


def test_whole_data_that_could_not_be_stored_is_shown_and_asked_for_again(front: Front) -> None:
    away_once_asked(front, DONE)
    answer = front.ask()
    assert (answer.status, answer.body["status"], answer.body["data"]) == (202, "pending", WHOLE)
    assert answer.retry_after_seconds == 10
    assert front.item().status == "pending"
    assert front.state() == {"a": ("waiting", answer.body["generation"])}


def test_a_refusal_that_could_not_be_stored_is_not_told_yet(front: Front) -> None:
    away_once_asked(front, refused())
    answer = front.ask()
    assert (answer.status, answer.body["status"], answer.retry_after_seconds) == (202, "pending", 10)
    assert front.state() == {"a": ("waiting", answer.body["generation"])}


class Died(BaseException):
    """The function ends here: nothing after it happens."""


@pytest.mark.promise("ends", "wherever enqueue dies, either nothing was accepted or the task comes back")
@pytest.mark.parametrize(
    ("what", "step"),
    [("queue", "add_and_look"), ("provider", "attempt"), ("store", "save"), ("queue", "settle_and_look")],
)
def test_wherever_it_dies_the_task_is_accepted_or_not_there_and_comes_back(front: Front, what: str, step: str) -> None:
    where = {"queue": front.queue, "store": front.store, "provider": front.providers["job"]}[what]
    with front.patch.context() as patch:
        patch.setattr(where, step, Mock(side_effect=Died))
        with pytest.raises(Died):
            front.ask(provider="job")
    assert front.ask(provider="job").body["deduplicated"]
    front.bench.rewind(31)
    reconcile(front)
    front.bench.rewind(200)
    claim = partial(front.queue.claim, "job", limit=1, lease_seconds=30, token="worker")
    [claimed] = (*claim(which="once").tasks, *claim().tasks)
    assert claimed.hold.generation == front.item(provider="job").generation
    assert front.worker.work(claimed, front.worker.instant()).becomes == "waiting"


def test_dying_before_anything_was_written_leaves_nothing(front: Front) -> None:
    with front.patch.context() as patch:
        patch.setattr(front.store, "begin", Mock(side_effect=Died))
        with pytest.raises(Died):
            front.ask()
    assert front.store.get(Task("example", "a"), 0) is None
    assert front.state() == {}
    assert front.ask().body["deduplicated"] is False


def test_a_begun_generation_is_one_line_without_its_input(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="meanwhile")
    generation = front.ask(input_={"marker": "S3CRET"}).body["generation"]
    begun, snoozed = (line for line in caplog.records if line.name == "meanwhile")
    facts = {name: vars(begun)[name] for name in ("message", "provider", "task", "generation")}
    assert facts == {"message": "begun", "provider": "example", "task": "a", "generation": generation}
    assert snoozed.message == "snoozed"
    assert "S3CRET" not in str(vars(begun))


# --- a workflow that waits

TOKEN = "stepFunctionsToken:AAAA"


def waiting(front: Front, number: int = 0) -> Answer:
    return front.ask(notify=f"{TOKEN}{number}", allowed="stepFunctionsToken")


def test_a_new_request_leaves_its_workflow_with_the_task_and_tells_nobody_yet(front: Front) -> None:
    assert waiting(front).status == 202
    assert (front.item().notify, front.told) == (frozenset({f"{TOKEN}0"}), [])


def test_a_second_request_adds_its_own_once(front: Front) -> None:
    for number in (0, 1, 1):
        assert waiting(front, number).status == 202
    assert (front.item().notify, front.told) == (frozenset({f"{TOKEN}0", f"{TOKEN}1"}), [])
    assert len(front.simulator.calls()) == 1


def test_an_ended_task_has_nobody_left_to_tell_and_a_request_answered_from_it_is_told_at_once(front: Front) -> None:
    waiting(front)
    front.finish(WHOLE)
    assert front.item().notify == frozenset()
    assert waiting(front, 1).status == 200
    assert front.told == [(f"{TOKEN}1", "completed", front.item().generation)]


def test_the_next_generation_begins_with_its_own_workflow_alone(front: Front) -> None:
    waiting(front)
    front.finish(WHOLE)
    front.ask(max_age=0, notify=f"{TOKEN}1", allowed="stepFunctionsToken")
    assert (front.item().notify, front.told) == (frozenset({f"{TOKEN}1"}), [])


def test_a_task_that_ends_while_a_workflow_is_added_tells_it_at_once(front: Front) -> None:
    front.ask()
    front.meanwhile(front.store, "notify", before=lambda: front.finish(WHOLE))
    answer = waiting(front)
    assert (answer.status, answer.body["data"]) == (200, WHOLE)
    assert front.told == [(f"{TOKEN}0", "completed", front.item().generation)]


def test_more_workflows_than_fit_are_refused(front: Front) -> None:
    for number in range(MAX_NOTIFY):
        waiting(front, number)
    with pytest.raises(Conflict) as caught:
        waiting(front, MAX_NOTIFY)
    assert caught.value.field == "notify"
    assert len(front.item().notify) == MAX_NOTIFY


def test_a_workflow_that_cannot_be_told_now_is_to_be_named_again(front: Front) -> None:
    waiting(front)
    front.finish(WHOLE)
    front.deaf = True
    with pytest.raises(Unavailable) as caught:
        waiting(front, 1)
    assert caught.value.field == "notify"


def test_a_workflow_that_nobody_would_tell_is_refused_and_nothing_is_begun(front: Front) -> None:
    with pytest.raises(BadRequest) as caught:
        front.ask(notify="durableCallbackId:x", allowed="stepFunctionsToken")
    assert caught.value.field == "notify"
    assert front.simulator.calls() == []


def test_a_refusal_whose_write_was_repeated_is_a_refusal(front: Front) -> None:
    def twice(*arguments: Any, **options: Any) -> Any:
        fail(*arguments, **options)  # whose reply was lost: botocore repeats the call
        return fail(*arguments, **options)

    front.simulator.say(refused())
    fail = front.store.fail
    front.patch.setattr(front.store, "fail", twice)
    assert front.ask().status == 422


def test_a_result_that_neither_store_nor_redis_took_is_said_to_be_dropped(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    front.simulator.say(DONE)
    front.redis.away = True
    front.dynamodb.away = set()

    def refuse(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("S3: SlowDown")

    front.patch.setattr(front.store, "complete", refuse)
    assert front.ask("a").status == 202
    assert [line.message for line in caplog.records].count("result dropped") == 1  # C39
