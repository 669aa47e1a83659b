"""What a caller is told of the next attempt is what will be: its instant, or the soonest, or the latest, and why."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from shared.api import revive, view
from shared.api.answer import Answer
from shared.api.preference import Preferences
from shared.api.request import TaskRequest
from shared.queue import Hold
from shared.settings import SCHEDULE_SECONDS
from shared.task import Task
from shared.work.settle import Settlement, settle
from tests.support.front import Front
from tests.support.redis_servers import ALONE_AND_CLUSTER
from tests.support.simulator import EXAMPLE, PENDING, Simulator, says
from tests.support.waker import Waker

TASK = Task("example", "a")
TICK_SECONDS = 5


@pytest.fixture(params=ALONE_AND_CLUSTER)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """A cluster of several nodes too."""
    kind: str = request.param
    return kind


@pytest.fixture
def front(backend: Any, simulator: Simulator) -> Front:
    front = Front(**vars(backend), simulator=simulator, providers={"example": simulator.provider(EXAMPLE)})
    front.queue._wake = Waker(lambda *_: None)
    return front


def with_file(front: Front, **changes: Any) -> None:
    """The provider's file says this."""
    front.providers["example"] = front.simulator.provider(EXAMPLE | changes)


def look(front: Front, name: str = "a") -> Answer:
    return view.status(front.parts(front.providers), Task("example", name))


def ahead(front: Front, answer: Answer, field: str = "next_attempt_at") -> float:
    """How far off an instant is that an answer names, in seconds."""
    return datetime.fromisoformat(str(answer.body[field])).timestamp() - front.clock() / 1000


def about(seconds: float) -> Any:
    """So many seconds; a real server's own time goes on."""
    return pytest.approx(seconds, abs=1)


def told(front: Front, answer: Answer) -> tuple[Any, Any]:
    """Why, and how far off the next attempt is, which `Retry-After` says in whole seconds."""
    seconds = ahead(front, answer)
    if answer.status == 202:
        assert answer.retry_after_seconds == max(1, math.ceil(round(seconds, 3)))
    assert "next_attempt_by" not in answer.body
    return answer.body["schedule"], about(seconds)


Ask = Callable[[Front], Answer]
ASKS: dict[str, Ask] = {"a look": look, "another request": lambda front: front.ask()}
AGAIN = pytest.mark.parametrize("again", ASKS.values(), ids=ASKS)


# --- nobody is held up


def test_a_task_that_was_never_asked_about_is_due_now(front: Front) -> None:
    answer = front.ask(wait=0)
    assert told(front, answer) == ("waiting", 0)
    assert answer.body["attempts"] == 0
    assert told(front, look(front)) == ("waiting", 0)


@AGAIN
def test_after_an_attempt_the_instant_is_that_of_the_next(front: Front, again: Ask) -> None:
    answer = front.ask()
    assert told(front, answer) == ("waiting", 2)
    assert answer.body["attempts"] == 1
    assert told(front, again(front)) == ("waiting", 2)


@AGAIN
def test_a_hint_is_kept_to(front: Front, again: Ask) -> None:
    front.simulator.say(says(200, {"status": "async processing in progress"}, **{"Retry-After": "7"}))
    assert told(front, front.ask()) == ("waiting", 7)
    assert told(front, again(front)) == ("waiting", 7)


@AGAIN
def test_while_it_is_asked_about_nobody_knows_when_the_next_attempt_is(front: Front, again: Ask) -> None:
    front.ask()
    front.pass_(3)
    front.queue.claim("example", limit=1, lease_seconds=30, token="worker")
    answer = again(front)
    assert (answer.body["schedule"], "next_attempt_at" in answer.body) == ("processing", False)
    assert answer.retry_after_seconds in (None, TICK_SECONDS)


def test_a_batch_tells_each_what_it_would_be_told_alone(front: Front) -> None:
    unasked = TaskRequest(task=Task("example", "b"), prefers=Preferences(wait_seconds=0))
    first, second = front.results(TaskRequest(task=TASK), unasked)
    assert (first["body"]["schedule"], first["retry_after_seconds"]) == ("waiting", 2)
    assert (second["body"]["schedule"], second["retry_after_seconds"]) == ("waiting", 1)
    assert first["body"]["next_attempt_at"] > second["body"]["next_attempt_at"]


def test_a_revived_task_is_due_now(front: Front) -> None:
    front.ask()
    front.fail()
    assert told(front, revive.answer(front.parts(front.providers), TASK)) == ("waiting", 0)


def test_telling_costs_no_call_of_its_own(front: Front) -> None:
    front.ask("warm")
    front.redis.calls.clear()
    front.ask()
    assert len(front.redis.calls) == 2
    front.redis.calls.clear()
    front.ask("b", wait=0)
    assert len(front.redis.calls) == 1


# --- limits


def test_at_a_rate_each_is_told_its_own_turn(front: Front) -> None:
    with_file(front, limits={"rate": {"requests": 1, "seconds": 100}})
    assert told(front, front.ask()) == ("limited", 100)
    assert told(front, front.ask("b")) == ("limited", 100)
    assert told(front, front.ask("c")) == ("limited", 200)
    assert told(front, look(front, "c")) == ("limited", 200)


@pytest.mark.parametrize("limits", [{"parallel": 1}, {"openJobs": 1}])
def test_at_another_limit_it_is_looked_at_again_soon(front: Front, limits: Any) -> None:
    with_file(front, limits=limits)
    front.seed("held", lease_seconds=30, has_job=True)
    assert told(front, front.ask()) == ("limited", 1)
    assert told(front, look(front)) == ("limited", 1)


def test_a_new_job_waits_for_one_that_is_asked_about_later(front: Front) -> None:
    with_file(front, limits={"openJobs": 1})
    front.seed("held", due_seconds=50, has_job=True)
    assert told(front, front.ask()) == ("limited", 50)


def test_who_waits_for_nobody_s_reply_is_told_of_a_limit_too(front: Front) -> None:
    with_file(front, limits={"rate": {"requests": 1, "seconds": 100}})
    front.ask()
    assert told(front, front.ask("b", wait=0)) == ("limited", 100)


# --- a pause, and the slow start after it


@AGAIN
def test_the_pause_that_its_own_reply_began_counts(front: Front, again: Ask) -> None:
    front.simulator.say(says(429, {}, **{"Retry-After": "60"}))
    why, seconds = told(front, front.ask())
    assert (why, 60 <= seconds.expected <= 72) == ("paused", True)
    assert told(front, again(front)) == ("paused", seconds)


def test_a_pause_is_told_to_who_comes_during_it(front: Front) -> None:
    front.simulator.say(says(429, {}, **{"Retry-After": "60"}))
    _, seconds = told(front, front.ask())
    assert told(front, front.ask("b")) == ("paused", seconds)
    assert told(front, front.ask("c", wait=0)) == ("paused", seconds)


def test_after_a_pause_the_slow_start_is_told(front: Front) -> None:
    front.bench.keys.write("{queue:example}:gate", "slow", "1")
    front.seed("held", lease_seconds=30)
    answer = front.ask()
    assert told(front, answer) == ("slow start", 1)
    assert told(front, look(front)) == ("slow start", 1)


# --- nobody is woken: by when


def by_the_schedule(front: Front, answer: Answer, seconds: float) -> bool:
    """Whether it says: not before, and by the schedule's next run."""
    by = ahead(front, answer, "next_attempt_by")
    assert ahead(front, answer) == about(seconds)
    assert by - ahead(front, answer) == pytest.approx(SCHEDULE_SECONDS, abs=0.002)
    return answer.status == 200 or answer.retry_after_seconds == math.ceil(round(by, 3))


@pytest.mark.promise("faults", "a caller is told by when, where no wake-up is to be counted on")
@AGAIN
@pytest.mark.parametrize("wake", [None, Waker(lambda *_: None, works=False)], ids=["switched off", "not sent"])
def test_without_wake_ups_it_is_told_by_when(front: Front, again: Ask, wake: Waker | None) -> None:
    front.queue._wake = wake
    assert by_the_schedule(front, front.ask(), 2)
    assert by_the_schedule(front, again(front), 2)


def test_without_wake_ups_a_limit_counts_as_well(front: Front) -> None:
    front.queue._wake = None
    with_file(front, limits={"rate": {"requests": 1, "seconds": 100}})
    assert by_the_schedule(front, front.ask(), 100)


@AGAIN
def test_one_whose_lease_is_over_waits_for_the_schedule(front: Front, again: Ask) -> None:
    front.ask()
    front.pass_(3)
    front.queue.claim("example", limit=1, lease_seconds=30, token="worker")
    front.pass_(31)
    answer = again(front)
    assert answer.body["schedule"] == "waiting"
    assert by_the_schedule(front, answer, 0)


@pytest.mark.parametrize("late", [1, 4])
@AGAIN
def test_one_for_whom_nobody_came_waits_for_the_schedule(front: Front, again: Ask, late: float) -> None:
    front.ask()
    front.pass_(2 + late)
    answer = again(front)
    if late < 2:
        assert told(front, answer) == ("waiting", 0)
    else:
        assert by_the_schedule(front, answer, 0)


def test_one_that_is_late_for_a_limit_is_not_given_up(front: Front) -> None:
    with_file(front, limits={"rate": {"requests": 1, "seconds": 100}})
    front.ask()
    front.pass_(50)
    assert told(front, look(front)) == ("limited", 50)


# --- nobody knows


def is_unknown(answer: Answer) -> bool:
    assert not {"next_attempt_at", "next_attempt_by"} & answer.body.keys()
    return (answer.body["schedule"], answer.retry_after_seconds or TICK_SECONDS) == ("unknown", TICK_SECONDS)


def test_without_redis_no_instant_is_told(front: Front) -> None:
    front.redis.away = True
    answer = front.ask()
    assert is_unknown(answer)
    assert answer.body["attempts"] == 1
    assert is_unknown(front.ask("b", wait=0))
    assert is_unknown(look(front))


def test_a_redis_that_goes_away_during_the_attempt_leaves_no_instant(front: Front) -> None:
    front.simulator.say(PENDING.after(lambda: setattr(front.redis, "away", True)))
    assert is_unknown(front.ask())


def test_a_revival_without_redis_has_no_instant(front: Front) -> None:
    front.ask()
    front.fail()
    front.redis.away = True
    assert is_unknown(revive.answer(front.parts(front.providers), TASK))


def test_a_task_whose_provider_has_no_file_any_more_has_no_instant(front: Front) -> None:
    front.ask()
    del front.providers["example"]
    assert is_unknown(look(front))


def test_of_one_that_was_taken_away_meanwhile_another_s_state_is_told(front: Front) -> None:
    def taken() -> None:
        front.pass_(31)
        front.queue.claim("example", limit=1, lease_seconds=30, token="worker", which="once")

    front.simulator.say(PENDING.after(taken))
    assert front.ask().body["schedule"] == "processing"


# --- an ETag


def test_what_others_leave_of_a_limit_is_nothing_that_has_happened_to_a_task(front: Front) -> None:
    with_file(front, limits={"rate": {"requests": 1, "seconds": 100}})
    front.ask()
    limited = look(front)
    front.pass_(150)
    waiting = look(front)
    assert (limited.body["schedule"], waiting.body["schedule"]) == ("limited", "waiting")
    assert limited.etag == waiting.etag


# --- what is told comes true


def test_at_the_instant_that_was_told_and_not_before_it_is_claimed(front: Front) -> None:
    with_file(front, limits={"rate": {"requests": 1, "seconds": 100}})
    limits = front.providers["example"].rules.limits
    for name in "abc":
        front.ask(name)

    def claimed() -> list[Hold]:
        claim = front.queue.claim("example", limit=5, lease_seconds=30, token="t", limits=limits)
        return [one.hold for one in claim.tasks]

    for name in ("b", "c", "a"):  # "a" was asked about, and is due after 2 seconds
        front.pass_(ahead(front, look(front, name)) - 3)
        assert claimed() == []
        front.pass_(3)
        [hold] = claimed()
        assert hold.task.name == name
        settle(front.queue, front.providers["example"], [Settlement(hold, "completed", "completed")])
