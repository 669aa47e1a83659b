"""The soak's checker finds each kind of fault in a history that is made up, and none in one that is as it should be."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from shared.provider.provider import idempotency_key
from shared.record import Record
from shared.task import Task
from tests.soak.chaos import LONG_FROZEN_SECONDS
from tests.soak.history import FROZEN_SECONDS
from tests.soak.journal import Event, Follower, Journal, read
from tests.soak.limits import AFTERMATH_SECONDS
from tests.soak.plan import (
    ATTEMPT_SECONDS,
    BURST,
    LEASE_SECONDS,
    OPEN_JOBS,
    PARALLEL,
    PROVIDERS,
    RATE_SECONDS,
    TIMEOUTS,
    WINDOW_SECONDS,
    files,
)
from tests.soak.verdict import judge

TASK = "jobs/a"


class Tale:
    """A history in the making: every event a second after the last, unless `at` says when."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 1000.0
        self.items: dict[str, Any] = {}

    def tell(self, what: str, *, at: float | None = None, **facts: Any) -> Event:
        self.now = self.now + 1 if at is None else at
        self.events.append({"at": self.now, "what": what} | facts)
        return self.events[-1]

    def write(
        self, task: str = TASK, *, worker: int = 1, function: str = "process", at: float | None = None, **changes: Any
    ) -> None:
        """What the table notes of a write that changes these attributes."""
        old = self.items.get(task)
        blank = {"status": "pending", "generation": 1, "resubmits": 0, "outputs": None, "data": None, "open": True}
        self.items[task] = (old or blank) | changes
        self.tell("write", task=task, worker=worker, function=function, old=old, new=self.items[task], at=at)

    def begin(self, task: str = TASK, generation: int = 1, *, outputs: str | None = None) -> None:
        fresh: dict[str, Any] = {"status": "pending", "open": True, "resubmits": 0, "outputs": outputs}
        self.write(task, generation=generation, **fresh)
        self.tell("answered", task=task, code=202, generation=generation, status="pending", data=None)

    def end(
        self, task: str = TASK, status: str = "completed", job: str = "j", *, function: str = "process", **data: Any
    ) -> None:
        text = json.dumps({"job": job, "name": task.partition("/")[2], "whole": True} | data)
        data = {"data": text} if status == "completed" else {}
        self.write(task, function=function, status=status, open=False, **data)

    def submit(
        self,
        task: str = TASK,
        generation: int = 1,
        resubmits: int = 0,
        *,
        job: str = "j",
        worker: int = 1,
        at: float | None = None,
        key: str | None = None,
        **changes: Any,
    ) -> None:
        provider, _, name = task.partition("/")
        record = Record(generation=generation, created_at=0, input=None, resubmits=resubmits)
        key = key or idempotency_key(Task.from_id(task), record)
        self.now = self.now + 1 if at is None else at
        about = {"provider": provider, "name": name, "key": key, "job": job}
        self.tell("job", at=self.now, done_at=self.now + 60, fate="done", **about)
        told: dict[str, Any] = {"verb": "submit", "worker": worker, "begun": self.now, "sent": self.now + 0.02}
        told |= {"trouble": None, "whole": True, "said": "running"}
        self.tell("asked", at=self.now + 0.03, **about | told | changes)

    def poll(self, task: str = TASK, *, job: str = "j", said: str = "running", worker: int = 1) -> None:
        self.submit(task, job=job, worker=worker, verb="poll", said=said)

    def called(
        self,
        said: str = "done",
        *,
        generation: int = 1,
        resubmits: int = 0,
        kind: str = "signed",
        code: int = 200,
        job: str = "j",
        begun: float | None = None,
        at: float | None = None,
    ) -> None:
        """A callback about TASK, half a second before it is answered."""
        record = Record(generation=generation, created_at=0, input=None, resubmits=resubmits)
        key = idempotency_key(Task.from_id(TASK), record)
        self.now = self.now + 1 if at is None else at
        about: dict[str, Any] = {"provider": "jobs", "name": "a", "key": key, "job": job}
        begun = self.now - 0.5 if begun is None else begun
        self.tell("called", at=self.now, begun=begun, kind=kind, said=said, code=code, **about)

    def rest(self, **changes: Any) -> None:
        places: dict[str, Any] = {"leaks": [], "queue": [], "leases": [], "jobs": [], "groups": [], "dead": {}}
        self.tell("rest", **places | changes)

    def faults(self, *, rest: bool = True) -> list[tuple[str, str]]:
        """The verdict: kind and reason of each fault."""
        if rest and not any(event["what"] == "rest" for event in self.events):
            self.rest()
        return [(fault.kind, fault.why) for fault in judge(self.events)]


@pytest.fixture
def tale() -> Tale:
    return Tale()


def only(faults: list[tuple[str, str]]) -> tuple[str, str]:
    (fault,) = faults
    return fault


# --- nothing is wrong


def test_a_history_as_it_should_be_has_no_fault(tale: Tale) -> None:
    tale.begin()
    tale.submit()
    tale.write(outputs='{"id": "j"}')
    tale.poll(said="done")
    tale.end()
    tale.tell(
        "answered", task=TASK, code=200, generation=1, status="completed", data=json.loads(tale.items[TASK]["data"])
    )
    tale.begin(generation=2)
    tale.submit(generation=2, job="k")
    tale.end(status="failed")
    tale.rest(dead={TASK: 2})
    assert tale.faults() == []


def test_what_was_refused_or_not_answered_promises_nothing(tale: Tale) -> None:
    tale.tell("answered", task=TASK, code=503, generation=None, status=503, data=None)
    tale.tell("answered", task=TASK, code=404, generation=None, status=404, data=None)
    tale.tell("unanswered", task=TASK, why="it was killed")
    assert tale.faults() == []


def test_a_job_that_was_lost_is_begun_again_once_that_is_stored(tale: Tale) -> None:
    tale.begin()
    tale.submit()
    tale.write(outputs='{"id": "j"}')
    tale.poll(said="lost")
    tale.write(outputs=None, resubmits=1)
    tale.submit(resubmits=1, job="k")
    tale.end(job="k")
    assert tale.faults() == []


def test_a_revived_task_may_end_with_the_job_that_it_kept(tale: Tale) -> None:
    tale.begin()
    tale.submit()
    tale.write(outputs='{"id": "j"}')
    tale.end(status="failed")
    tale.begin(generation=2, outputs='{"id": "j"}')
    tale.end()
    assert tale.faults() == []


# --- lost


def test_a_generation_that_has_not_ended_is_lost(tale: Tale) -> None:
    tale.begin()
    assert only(tale.faults()) == ("lost", "generation 1 has not ended")


def test_a_generation_that_was_open_when_the_next_began_is_lost(tale: Tale) -> None:
    tale.begin()
    tale.begin(generation=2)
    tale.end(status="cancelled")
    assert ("lost", "generation 1 was open when the next one began") in tale.faults()


def test_what_was_accepted_and_never_written_is_lost(tale: Tale) -> None:
    tale.tell("answered", task=TASK, code=202, generation=1, status="pending", data=None)
    assert only(tale.faults()) == ("lost", "generation 1 was accepted but not written")


def test_what_was_accepted_before_it_was_written_is_lost(tale: Tale) -> None:
    tale.tell("answered", task=TASK, code=202, generation=1, status="pending", data=None)
    tale.begin()
    tale.end(status="cancelled")
    assert only(tale.faults()) == ("lost", "generation 1 was accepted but not written")


@pytest.mark.parametrize(("status", "is_open"), [("pending", False), ("cancelled", True)])
def test_an_item_that_the_index_lists_wrongly_is_lost(tale: Tale, status: str, is_open: bool) -> None:
    tale.begin()
    tale.write(status=status, open=is_open)
    assert [kind for kind, why in tale.faults() if "index lists" in why] == ["lost"]


def test_an_item_that_was_deleted_is_lost(tale: Tale) -> None:
    tale.begin()
    tale.end(status="cancelled")
    tale.tell("deleted", task=TASK, worker=1, old={}, new=None)
    assert only(tale.faults()) == ("lost", "the item was deleted")


# --- doubled: results


def test_a_second_result_for_one_generation_is_doubled(tale: Tale) -> None:
    tale.begin()
    tale.submit()
    tale.end()
    tale.end(share=2)
    assert only(tale.faults()) == ("doubled", "a second result for generation 1")


def test_a_change_of_what_has_ended_is_doubled(tale: Tale) -> None:
    tale.begin()
    tale.end(status="cancelled")
    tale.write(resubmits=1)
    assert only(tale.faults()) == ("doubled", "a second result for generation 1")


def test_a_generation_that_comes_back_is_doubled(tale: Tale) -> None:
    tale.begin(generation=2)
    tale.end(status="cancelled")
    tale.write(generation=1)
    assert ("doubled", "generation 1 came back over 2") in tale.faults()


def test_a_count_of_resubmits_that_falls_is_doubled(tale: Tale) -> None:
    tale.begin()
    tale.write(resubmits=1)
    tale.write(resubmits=0)
    tale.end(status="cancelled")
    assert only(tale.faults()) == ("doubled", "generation 1 forgot a resubmit")


@pytest.mark.parametrize(
    ("job", "data", "why"),
    [
        ("unknown", {}, "was completed with"),
        ("j", {"whole": False}, "was completed with"),
        ("of another", {}, "has the data of of another"),
        ("of the first", {}, "has the data of generation 1"),
    ],
)
def test_data_that_is_not_the_generations_own_is_doubled(tale: Tale, job: str, data: Any, why: str) -> None:
    tale.begin("jobs/b")
    tale.submit("jobs/b", job="of another")
    tale.end("jobs/b", job="of another")
    tale.begin()
    tale.submit(job="of the first")
    tale.end(job="of the first")
    tale.begin(generation=2)
    tale.submit(generation=2)
    tale.end(job=job, **data)
    kind, reason = only(tale.faults())
    assert kind == "doubled"
    assert why in reason


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_an_answer_that_is_not_what_the_table_says_is_doubled(tale: Tale, status: str) -> None:
    tale.begin()
    tale.submit()
    tale.end()
    tale.tell("answered", task=TASK, code=200, generation=1, status=status, data={"other": True})
    kind, why = only(tale.faults())
    assert kind == "doubled"
    assert "answered" in why


# --- doubled: submits


def submitted_twice(tale: Tale, *, worker: int = 2, **first: Any) -> Tale:
    """A first submit at 2000, a second one by another process at 2020."""
    tale.begin()
    tale.submit(at=2000, worker=1, **first)
    tale.submit(at=2020, worker=worker)
    tale.end()
    return tale


def test_a_second_submit_for_no_reason_is_doubled(tale: Tale) -> None:
    kind, why = only(submitted_twice(tale).faults())
    assert kind == "doubled"
    assert why.startswith("submitted again at 2020.000 although nothing was lost")


EXCUSES: dict[str, Callable[[Tale], object]] = {
    "killed": lambda tale: tale.tell("kill", at=2001, function="process", worker=1),
    "killed when it had just sent it": lambda tale: tale.tell("kill", at=1999.98, function="process", worker=1),
    "out of time": lambda tale: tale.tell("ended", at=2001, function="enqueue", worker=1),
    "write failed": lambda tale: tale.tell(
        "fault", at=2001, place="dynamodb", kind="error", operation="UpdateItem", task=TASK, worker=1
    ),
    "first frozen": lambda tale: tale.tell("freeze", at=2001, worker=1, seconds=LONG_FROZEN_SECONDS),
    "second frozen": lambda tale: tale.tell("freeze", at=2001, worker=2, seconds=LONG_FROZEN_SECONDS),
}


@pytest.mark.parametrize("excuse", EXCUSES)
def test_a_second_submit_is_no_fault_where_the_first_answer_was_lost_for_a_reason(tale: Tale, excuse: str) -> None:
    submitted_twice(tale)
    EXCUSES[excuse](tale)
    assert tale.faults() == []


@pytest.mark.parametrize("changes", [{"trouble": "cut"}, {"whole": False}, {"begun": 1999.0}], ids=str)
def test_a_second_submit_is_no_fault_where_the_first_reply_was_lost_or_late(tale: Tale, changes: Any) -> None:
    assert submitted_twice(tale, **changes).faults() == []


NO_EXCUSES: dict[str, Callable[[Tale], object]] = {
    "another was killed": lambda tale: tale.tell("kill", at=2001, function="process", worker=3),
    "killed before": lambda tale: tale.tell("kill", at=1999, function="process", worker=1),
    "killed after": lambda tale: tale.tell("kill", at=2021, function="process", worker=1),
    "another's write failed": lambda tale: tale.tell(
        "fault", at=2001, place="dynamodb", kind="error", operation="UpdateItem", task="jobs/b", worker=1
    ),
    "write failed before": lambda tale: tale.tell(
        "fault", at=1999.98, place="dynamodb", kind="error", operation="UpdateItem", task=TASK, worker=1
    ),
    "frozen for a moment": lambda tale: tale.tell("freeze", at=2001, worker=1, seconds=FROZEN_SECONDS - 1),
    "frozen too early": lambda tale: tale.tell("freeze", at=1980, worker=1, seconds=LONG_FROZEN_SECONDS),
    "Redis was flushed": lambda tale: tale.tell("fault", at=2001, place="redis", kind="flush", begun=2001, task=None),
}


@pytest.mark.parametrize("excuse", NO_EXCUSES)
def test_what_does_not_concern_the_first_answer_is_no_excuse(tale: Tale, excuse: str) -> None:
    submitted_twice(tale)
    NO_EXCUSES[excuse](tale)
    assert "although nothing was lost" in only(tale.faults())[1]


def test_a_second_submit_of_what_was_stored_when_its_worker_looked_is_doubled_whatever_broke(tale: Tale) -> None:
    submitted_twice(tale, trouble="cut")
    tale.write(at=2010, outputs='{"id": "j"}', status="pending", open=True, data=None)
    tale.tell("read", at=2015, task=TASK, worker=2)
    why = [why for kind, why in tale.faults() if kind == "doubled"]
    assert "submitted again at 2020.000, although its outputs were stored" in why


def test_a_look_of_long_ago_excuses_no_submit_of_what_was_stored_since(tale: Tale) -> None:
    submitted_twice(tale, trouble="cut", worker=1)
    tale.tell("read", at=1999, task=TASK, worker=1)
    tale.write(at=2010, outputs='{"id": "j"}', status="pending", open=True, data=None)
    assert "although its outputs were stored" in str(tale.faults())


def test_a_second_submit_is_no_fault_where_the_answer_was_stored_after_its_worker_looked(tale: Tale) -> None:
    submitted_twice(tale, trouble="cut")
    tale.tell("read", at=2010, task=TASK, worker=2)
    tale.write(at=2015, outputs='{"id": "j"}', status="pending", open=True, data=None)
    assert "submitted again" not in str(tale.faults())


def test_a_submit_under_a_key_of_no_generation_is_doubled(tale: Tale) -> None:
    tale.begin()
    tale.submit(key="made up")
    tale.end(status="cancelled")
    assert only(tale.faults()) == ("doubled", "asked under the key made up, which is None")


def test_a_submit_under_the_key_of_another_task_is_doubled(tale: Tale) -> None:
    record = Record(generation=1, created_at=0, input=None)
    tale.begin("jobs/b")
    tale.end("jobs/b", status="cancelled")
    tale.begin()
    tale.submit(key=idempotency_key(Task("jobs", "b"), record))
    tale.end(status="cancelled")
    assert "asked under the key" in only(tale.faults())[1]


def test_a_resubmit_though_no_job_was_lost_is_doubled(tale: Tale) -> None:
    tale.begin()
    tale.submit()
    tale.write(resubmits=1)
    tale.submit(resubmits=1, job="k")
    tale.end(job="k")
    assert only(tale.faults()) == ("doubled", "resubmit 1 of generation 1, although 0 jobs were lost")


def test_a_resubmit_before_it_is_stored_is_doubled(tale: Tale) -> None:
    tale.begin()
    tale.submit()
    tale.poll(said="lost")
    tale.submit(resubmits=1, job="k")
    tale.write(resubmits=1)
    tale.end(job="k")
    assert only(tale.faults()) == ("doubled", "resubmit 1 of generation 1 before it was stored")


def test_asking_again_is_no_second_submit_where_there_is_no_poll(tale: Tale) -> None:
    tale.begin("plain/a")
    for _ in range(3):
        tale.submit("plain/a", verb="ask")
    tale.end("plain/a")
    assert tale.faults() == []


# --- believed: callbacks


def awaited(tale: Tale) -> Tale:
    """A job has been submitted, and stored."""
    tale.begin()
    tale.submit()
    tale.write(outputs='{"id": "j"}')
    return tale


@pytest.mark.parametrize(("said", "status"), [("done", "completed"), ("refused", "failed")])
def test_what_a_callback_told_may_be_stored_by_it_and_repeated_for_nothing(tale: Tale, said: str, status: str) -> None:
    awaited(tale)
    tale.called("running")
    tale.write(function="callback", status="pending")
    tale.end(status=status, function="callback")
    tale.called(said, begun=tale.now - 0.1)
    tale.called(said)
    tale.begin(generation=2)
    tale.called(said, code=404)
    tale.end(status="cancelled")
    assert tale.faults() == []


@pytest.mark.parametrize("kind", ["unsigned", "forged", "guessed"])
@pytest.mark.parametrize("code", [404, 500, 503, 504, 0])
def test_a_callback_that_is_not_genuine_may_have_any_answer_but_one(tale: Tale, kind: str, code: int) -> None:
    awaited(tale).called(kind=kind, code=code)
    tale.end()
    assert tale.faults() == []


@pytest.mark.parametrize("kind", ["unsigned", "forged", "guessed"])
def test_a_callback_that_is_not_genuine_and_was_taken_is_believed(tale: Tale, kind: str) -> None:
    awaited(tale).called(kind=kind)
    tale.end()
    fault, why = only(tale.faults())
    assert fault == "believed"
    assert why.endswith(f"was taken, although {kind}")


def test_a_late_callback_that_was_taken_is_believed(tale: Tale) -> None:
    awaited(tale).end()
    tale.begin(generation=2)
    tale.called(generation=1)
    tale.end(status="cancelled")
    fault, why = only(tale.faults())
    assert fault == "believed"
    assert why.endswith("was taken, although the next one had begun")


def test_a_callback_that_was_sent_before_the_next_generation_began_may_be_taken_meanwhile(tale: Tale) -> None:
    awaited(tale).end()
    tale.begin(generation=2)
    tale.called(generation=1, begun=tale.now - 3)
    tale.end(status="cancelled")
    assert tale.faults() == []


UNTOLD: dict[str, Callable[[Tale], object]] = {
    "nothing": lambda tale: None,
    "by a forger": lambda tale: tale.called(kind="forged", code=404, at=2000),
    "of another end": lambda tale: tale.called("refused", at=2000, code=503),
    "of news": lambda tale: tale.called("running", at=2000),
    "of another job": lambda tale: tale.called(job="k", at=2000, code=503),
    "of another generation": lambda tale: tale.called(generation=2, at=2000, code=503),
    "of another resubmit": lambda tale: tale.called(resubmits=1, at=2000, code=503),
    "later": lambda tale: tale.called(at=3002),
}


@pytest.mark.parametrize("told", UNTOLD)
def test_what_a_callback_wrote_though_nobody_had_told_it_is_believed(tale: Tale, told: str) -> None:
    awaited(tale)
    UNTOLD[told](tale)
    tale.now = 3000.0
    tale.end(function="callback")
    why = "a callback wrote completed of generation 1, which nobody had told"
    assert ("believed", why) in tale.faults()


def test_an_end_that_was_taken_and_not_stored_is_lost(tale: Tale) -> None:
    awaited(tale).called()
    tale.end()
    fault, why = only(tale.faults())
    assert fault == "lost"
    assert why.endswith("was taken, but the end that it told was not stored")


@pytest.mark.parametrize("code", [500, 503, 504, 0])
def test_a_callback_that_was_not_answered_promises_nothing(tale: Tale, code: int) -> None:
    awaited(tale).called(code=code)
    tale.end()
    assert tale.faults() == []


def test_a_genuine_callback_that_was_turned_away_is_lost(tale: Tale) -> None:
    awaited(tale).called(code=404)
    tale.end()
    fault, why = only(tale.faults())
    assert fault == "lost"
    assert why.endswith("was not taken")


# --- leaked


@pytest.mark.parametrize("place", ["queue", "leases", "jobs", "groups"])
def test_what_is_left_in_redis_is_leaked(tale: Tale, place: str) -> None:
    tale.rest(**{place: [TASK]})
    assert only(tale.faults()) == ("leaked", f"is still in {place}")


def test_unsound_keys_are_leaked(tale: Tale) -> None:
    tale.rest(leaks=["unknown key x"])
    assert only(tale.faults()) == ("leaked", "unknown key x")


@pytest.mark.parametrize(("status", "generation"), [("completed", 2), ("failed", 1), ("failed", 3)])
def test_a_dead_letter_whose_item_tells_otherwise_is_leaked(tale: Tale, status: str, generation: int) -> None:
    tale.begin()
    tale.end(status="failed")
    tale.begin(generation=2)
    tale.submit(generation=2)
    tale.end(status=status)
    tale.rest(dead={TASK: generation})
    assert only(tale.faults()) == ("leaked", f"is listed as dead letter of generation {generation}")


def test_a_history_without_an_end_is_no_proof(tale: Tale) -> None:
    assert only(tale.faults(rest=False)) == ("leaked", "nobody looked at the end")


# --- exceeded


def asked(tale: Tale, count: int, every_seconds: float, *, lasting: float = 0.02, worker: int = 1) -> None:
    """So many polls of the provider with limits, beginning at 2000."""
    for i in range(count):
        at = 2000 + i * every_seconds
        sent: dict[str, Any] = {"begun": at, "sent": at + lasting, "verb": "poll"}
        tale.submit("limited/a", at=at, job=f"j{i}", worker=worker, **sent)
        next(event for event in tale.events if event.get("job") == f"j{i}")["done_at"] = at  # jobs are not the point


def limited(tale: Tale) -> Tale:
    tale.begin("limited/a")
    tale.end("limited/a", status="cancelled")
    return tale


def test_as_many_as_may_be_are_no_fault(tale: Tale) -> None:
    asked(limited(tale), BURST + PARALLEL, 0.0, lasting=0.0)
    assert tale.faults() == []


def test_as_many_at_once_as_may_be_are_no_fault(tale: Tale) -> None:
    asked(limited(tale), PARALLEL, RATE_SECONDS, lasting=5)
    assert tale.faults() == []


def test_more_attempts_at_once_than_may_be_are_exceeded(tale: Tale) -> None:
    asked(limited(tale), PARALLEL + 1, RATE_SECONDS, lasting=5)
    kind, why = only(tale.faults())
    assert (kind, why.partition(" at ")[0]) == ("exceeded", f"{PARALLEL + 1} attempts")


def test_an_attempt_is_over_when_its_time_is(tale: Tale) -> None:
    asked(limited(tale), PARALLEL + 1, ATTEMPT_SECONDS / PARALLEL + 0.01, lasting=60)
    assert tale.faults() == []


def test_more_attempts_in_a_time_than_the_rate_allows_are_exceeded(tale: Tale) -> None:
    asked(limited(tale), 60, RATE_SECONDS / 2)
    kind, why = only(tale.faults())
    assert kind == "exceeded"
    assert "attempts within" in why


def open_jobs(tale: Tale, count: int) -> None:
    for i in range(count):
        tale.begin(f"limited/{i}")
        tale.submit(f"limited/{i}", job=f"j{i}")


def test_more_open_jobs_than_may_be_are_exceeded(tale: Tale) -> None:
    open_jobs(tale, OPEN_JOBS + 1)
    why = next(why for kind, why in tale.faults() if kind == "exceeded")
    assert why.startswith(f"{OPEN_JOBS + 1} jobs open at once")


def test_a_job_is_open_until_it_is_done_or_nobody_asks_after_it(tale: Tale) -> None:
    open_jobs(tale, OPEN_JOBS)
    tale.end("limited/0", status="cancelled")
    tale.begin("limited/next")
    tale.submit("limited/next", job="next")
    next(event for event in tale.events if event["what"] == "job")["done_at"] = tale.now
    assert "exceeded" not in [kind for kind, _ in tale.faults()]


def test_after_a_loss_of_redis_counting_begins_anew(tale: Tale) -> None:
    asked(limited(tale), PARALLEL + 1, RATE_SECONDS, lasting=5)
    tale.tell("fault", at=2000 + RATE_SECONDS, place="redis", kind="flush", begun=2000.05)
    assert tale.faults() == []


def test_what_comes_long_after_a_loss_of_redis_counts(tale: Tale) -> None:
    asked(limited(tale), PARALLEL + 1, RATE_SECONDS, lasting=5)
    tale.tell("fault", at=1999.9 - AFTERMATH_SECONDS, place="redis", kind="flush", begun=1990.0)
    assert only(tale.faults())[0] == "exceeded"


def test_what_a_process_sends_that_stood_still_beyond_its_lease_does_not_count(tale: Tale) -> None:
    asked(limited(tale), PARALLEL + 1, RATE_SECONDS, lasting=5, worker=7)
    tale.tell("freeze", at=1999 - LONG_FROZEN_SECONDS, worker=7, seconds=LONG_FROZEN_SECONDS)
    assert tale.faults() == []


# --- what the checker stands on


def test_a_fault_is_told_with_all_that_happened_to_its_task(tale: Tale) -> None:
    tale.begin()
    tale.submit(worker=4)
    tale.tell("kill", function="process", worker=4)
    tale.tell("kill", function="process", worker=5)
    tale.begin("jobs/other")
    tale.rest()
    told = next(fault for fault in judge(tale.events) if fault.task == TASK).told()
    head, *lines = told.split("\n")
    assert head == "lost: jobs/a: generation 1 has not ended"
    assert [line.split()[1] for line in lines] == ["write:", "answered:", "job:", "asked:", "kill:"]


class Counted(dict[str, Any]):
    """An event that counts how often anyone looks at it."""

    looks = 0

    def __getitem__(self, name: str) -> Any:
        Counted.looks += 1
        return super().__getitem__(name)


def test_twice_as_long_a_history_is_no_more_than_twice_the_work() -> None:
    looks = []
    for count in (200, 400):
        tale = Tale()
        for number in range(count):
            task = f"limited/{number}"
            tale.begin(task)
            tale.submit(task, job=f"j{number}", worker=number, trouble="cut")
            tale.submit(task, job=f"j{number}", worker=number)
            tale.end(task, job=f"j{number}")
        tale.events = [Counted(event) for event in tale.events]
        Counted.looks = 0
        assert tale.faults() == []
        looks.append(Counted.looks)
    assert 0 < looks[1] < 2.2 * looks[0]


def test_journals_are_read_together_by_time(tmp_path: Any) -> None:
    first, second = Journal(tmp_path / "a.jsonl"), Journal(tmp_path / "b.jsonl")
    first.write("one", name="ü")
    second.write("two")
    first.write("three")
    first.close()
    second.close()
    assert [event["what"] for event in read(tmp_path)] == ["one", "two", "three"]
    assert read(tmp_path)[0]["name"] == "ü"


def test_a_journal_is_followed_line_by_line(tmp_path: Any) -> None:
    path = tmp_path / "a.jsonl"
    follower = Follower(path)
    assert list(follower.news()) == []
    path.write_text('{"what": "one"}\n{"what":', encoding="utf-8")
    assert [event["what"] for event in follower.news()] == ["one"]
    with path.open("a", encoding="utf-8") as file:
        file.write(' "two"}\n')
    assert [event["what"] for event in follower.news()] == ["two"]


def test_the_small_settings_keep_the_relations_of_the_real_ones() -> None:
    assert TIMEOUTS["enqueue"] < LEASE_SECONDS
    assert TIMEOUTS["process"] == WINDOW_SECONDS + ATTEMPT_SECONDS + 10
    assert FROZEN_SECONDS < LEASE_SECONDS - ATTEMPT_SECONDS
    assert LONG_FROZEN_SECONDS > LEASE_SECONDS
    assert set(files("http://127.0.0.1:1")) == set(PROVIDERS)
