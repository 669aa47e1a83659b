"""The soak's checker finds each kind of fault in a history that is made up, and none in one that is as it should be."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any, Self

import pytest

from shared.provider.provider import idempotency_key
from shared.record import Record
from shared.task import Task
from tests.soak import plan
from tests.soak.chaos import LONG_FROZEN_SECONDS
from tests.soak.history import FROZEN_SECONDS
from tests.soak.hooks import FORGERIES
from tests.soak.journal import Event, Follower, Journal, read
from tests.soak.limits import AFTERMATH_SECONDS
from tests.soak.plan import ATTEMPT_SECONDS, BURST, OPEN_JOBS, PARALLEL, RATE_SECONDS
from tests.soak.verdict import judge

TASK = "jobs/a"
STORED = '{"id": "j"}'


def key_of(task: str, generation: int = 1, resubmits: int = 0) -> str:
    record = Record(generation=generation, created_at=0, input=None, resubmits=resubmits)
    return idempotency_key(Task.from_id(task), record)


class Tale:
    """A history in the making: every event a second after the last, unless `at` says when."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 1000.0
        self.items: dict[str, Any] = {}

    def tell(self, what: str, *, at: float | None = None, **facts: Any) -> Self:
        self.now = self.now + 1 if at is None else at
        self.events.append({"at": self.now, "what": what} | facts)
        return self

    def write(
        self, task: str = TASK, *, worker: int = 1, function: str = "process", at: float | None = None, **changes: Any
    ) -> Self:
        """What the table notes of a write that changes these attributes."""
        old = self.items.get(task)
        blank = {"status": "pending", "generation": 1, "resubmits": 0, "outputs": None, "data": None, "open": True}
        self.items[task] = (old or blank) | changes
        return self.tell("write", task=task, worker=worker, function=function, old=old, new=self.items[task], at=at)

    def begin(self, task: str = TASK, generation: int = 1, *, outputs: str | None = None) -> Self:
        fresh: dict[str, Any] = {"status": "pending", "open": True, "resubmits": 0, "outputs": outputs}
        self.write(task, generation=generation, **fresh)
        return self.tell("answered", task=task, code=202, generation=generation, status="pending", data=None)

    def end(
        self, task: str = TASK, status: str = "completed", job: str = "j", *, function: str = "process", **data: Any
    ) -> Self:
        text = json.dumps({"job": job, "name": task.partition("/")[2], "whole": True} | data)
        data = {"data": text} if status == "completed" else {}
        return self.write(task, function=function, status=status, open=False, **data)

    def submit(
        self, task: str = TASK, generation: int = 1, resubmits: int = 0, *, at: float | None = None, **changes: Any
    ) -> Self:
        provider, _, name = task.partition("/")
        self.now = self.now + 1 if at is None else at
        about = {"provider": provider, "name": name, "key": key_of(task, generation, resubmits), "job": "j"}
        about |= {name: changes.pop(name) for name in ("key", "job") if name in changes}
        self.tell("job", at=self.now, done_at=self.now + 60, fate="done", **about)
        told: dict[str, Any] = {"verb": "submit", "worker": 1, "begun": self.now, "sent": self.now + 0.02}
        told |= {"trouble": None, "whole": True, "said": "running"}
        return self.tell("asked", at=self.now + 0.03, **about | told | changes)

    def poll(self, *, said: str = "running") -> Self:
        return self.submit(verb="poll", said=said)

    def called(
        self, said: str = "done", *, generation: int = 1, resubmits: int = 0, at: float | None = None, **changes: Any
    ) -> Self:
        """A callback about TASK, half a second before it is answered."""
        self.now = self.now + 1 if at is None else at
        about = {"provider": "jobs", "name": "a", "key": key_of(TASK, generation, resubmits), "job": "j"}
        told: dict[str, Any] = {"begun": self.now - 0.5, "kind": "signed", "said": said, "code": 200}
        return self.tell("called", at=self.now, **about | told | changes)

    def rest(self, **changes: Any) -> Self:
        places: dict[str, Any] = {"leaks": [], "queue": [], "leases": [], "jobs": [], "groups": [], "dead": {}}
        return self.tell("rest", **places | changes)

    def answered(self, code: int, status: str = "pending", data: Any = None) -> Self:
        return self.tell("answered", task=TASK, code=code, generation=1, status=status, data=data)

    def cancelled(self) -> Self:
        return self.end(status="cancelled")

    def awaited(self) -> Self:
        """A job has been submitted, and stored."""
        return self.begin().submit().write(outputs=STORED)

    def twice(self, *, worker: int = 2, **first: Any) -> Self:
        """A first submit at 2000, a second one by another process at 2020."""
        return self.begin().submit(at=2000, worker=1, **first).submit(at=2020, worker=worker).end()

    def stored(self, at: float) -> Self:
        """The outputs of the task that is submitted twice are stored."""
        return self.write(at=at, outputs=STORED, status="pending", open=True, data=None)

    def fault(self, at: float, task: str) -> Self:
        return self.tell("fault", at=at, place="dynamodb", kind="error", operation="UpdateItem", task=task, worker=1)

    def flush(self, at: float, begun: float) -> Self:
        return self.tell("fault", at=at, place="redis", kind="flush", begun=begun, task=None)

    def polls(self, count: int, every_seconds: float, *, lasting: float = 0.02, worker: int = 1) -> Self:
        """So many polls of the provider with limits, beginning at 2000."""
        self.begin("limited/a").end("limited/a", status="cancelled")
        for i in range(count):
            at = 2000 + i * every_seconds
            sent: dict[str, Any] = {"begun": at, "sent": at + lasting, "verb": "poll"}
            self.submit("limited/a", at=at, job=f"j{i}", worker=worker, **sent)
            next(event for event in self.events if event.get("job") == f"j{i}")["done_at"] = at  # not the point
        return self

    def too_many(self, *, worker: int = 1) -> Self:
        return self.polls(PARALLEL + 1, RATE_SECONDS, lasting=5.0, worker=worker)

    def jobs(self, count: int) -> Self:
        """So many open jobs of the provider with limits, each of a task that has ended before, and is written to."""
        for i in range(count):
            task = f"limited/{i}"
            self.begin(task).end(task, "cancelled").begin(task, 2)
            self.submit(task, 2, job=f"j{i}").write(task, outputs=STORED)
        return self

    def faults(self, *, rest: bool = True) -> list[tuple[str, str]]:
        """The verdict: kind and reason of each fault."""
        if rest and not any(event["what"] == "rest" for event in self.events):
            self.rest()
        return [(fault.kind, fault.why) for fault in judge(self.events)]


Story = Callable[[Tale], object]
FROZEN = {"seconds": LONG_FROZEN_SECONDS}


def twice(what: str, **facts: Any) -> Story:
    """A job is submitted twice, and this happened, too."""
    return lambda tale: tale.twice().tell(what, **facts)


SOUND: dict[str, Story] = {
    "all is as it should be": lambda t: (
        t.awaited().poll(said="done").end().answered(200, "completed", json.loads(t.items[TASK]["data"])),
        t.begin(generation=2).submit(generation=2, job="k").end(status="failed").rest(dead={TASK: 2}),
    ),
    "refused or not answered": lambda t: (
        t.tell("answered", task=TASK, code=503, generation=None, status=503, data=None),
        t.tell("answered", task=TASK, code=404, generation=None, status=404, data=None),
        t.tell("unanswered", task=TASK, why="it was killed"),
    ),
    "a lost job is begun again once that is stored": lambda t: (
        t.awaited().poll(said="lost").write(outputs=None, resubmits=1).submit(resubmits=1, job="k").end(job="k")
    ),
    "a revived task ends with the job that it kept": lambda t: (
        t.awaited().end(status="failed").begin(generation=2, outputs=STORED).end()
    ),
    "the first submit's worker was killed": twice("kill", at=2001, function="process", worker=1),
    "killed when it had just sent it": twice("kill", at=1999.98, function="process", worker=1),
    "out of time": twice("ended", at=2001, function="enqueue", worker=1),
    "its write failed": lambda t: t.twice().fault(2001, TASK),
    "the first was frozen": twice("freeze", at=2001, worker=1, **FROZEN),
    "the first was frozen until its time was over": twice("freeze", at=1999.99, worker=1, seconds=1.5),
    "the second was frozen": twice("freeze", at=2001, worker=2, **FROZEN),
    "the first reply was cut": lambda t: t.twice(trouble="cut"),
    "the first reply was not whole": lambda t: t.twice(whole=False),
    "the first reply was late": lambda t: t.twice(begun=1999.0),
    "asked again where there is no poll": lambda t: (
        t.begin("plain/a").submit("plain/a", verb="ask").submit("plain/a", verb="ask").end("plain/a")
    ),
    "a callback that was sent before the next generation began": lambda t: (
        t.awaited().end().begin(generation=2).called(begun=t.now - 3).cancelled()
    ),
    "as many attempts as may be": lambda t: t.polls(BURST + PARALLEL, 0.0, lasting=0.0),
    "as many at once as may be": lambda t: t.polls(PARALLEL, RATE_SECONDS, lasting=5.0),
    "an attempt whose time is over": lambda t: t.polls(PARALLEL + 1, ATTEMPT_SECONDS / PARALLEL + 0.01, lasting=60),
    "after a loss of Redis counting begins anew": lambda t: t.too_many().flush(2000 + RATE_SECONDS, begun=2000.05),
    "sent by a process that stood still beyond its lease": lambda t: t.too_many(worker=7).tell(
        "freeze", at=1999 - LONG_FROZEN_SECONDS, worker=7, **FROZEN
    ),
}


@pytest.mark.parametrize("title", SOUND)
def test_a_sound_history_has_no_fault(title: str) -> None:
    SOUND[title](tale := Tale())
    assert tale.faults() == []


NO_REASON, UNTOLD = "although nothing was lost", "a callback wrote completed of generation 1, which nobody had told"
OPEN, SECOND = "generation 1 was open when the next one began", "a second result for generation 1"
UNWRITTEN, BACK = "generation 1 was accepted but not written", "generation 1 came back over 2"
UNSTORED, LATE = "was taken, but the end that it told was not stored", "was taken, although the next one had begun"
KNOWN, FORGOT = "although its outputs were stored", "generation 1 forgot a resubmit"


def untold(tell: Story) -> Story:
    """A callback stores an end at 3000, of which only this was told."""

    def story(tale: Tale) -> None:
        tell(tale.awaited())
        tale.now = 3000.0
        tale.end(function="callback")

    return story


def taken(kind: str) -> Story:
    """A callback that is not genuine is answered 200."""
    return lambda tale: tale.awaited().called(kind=kind).end()


def left(place: str) -> Story:
    """Redis still has the task there."""
    return lambda tale: tale.rest(**{place: [TASK]})


def others(job: str, **data: Any) -> Story:
    """The second generation is completed with the data of that job."""

    def story(tale: Tale) -> None:
        tale.begin("jobs/b").submit("jobs/b", job="of another").end("jobs/b", job="of another")
        tale.begin().submit(job="of the first").end(job="of the first")
        tale.begin(generation=2).submit(generation=2).end(job=job, **data)

    return story


FAULTY: dict[str, dict[str, tuple[Story, str]]] = {
    "lost": {
        "it has not ended": (lambda t: t.begin(), "generation 1 has not ended"),
        "open when the next began": (lambda t: t.begin().begin(generation=2).cancelled(), OPEN),
        "accepted and never written": (lambda t: t.answered(202), UNWRITTEN),
        "accepted before it was written": (lambda t: t.answered(202).begin().cancelled(), UNWRITTEN),
        "open and not in the index": (lambda t: t.begin().write(open=False), "index lists"),
        "ended and in the index": (lambda t: t.begin().write(status="cancelled", open=True), "index lists"),
        "the item was deleted": (lambda t: t.begin().cancelled().tell("deleted", task=TASK, new=None), "was deleted"),
        "an end was taken and not stored": (lambda t: t.awaited().called().end(), UNSTORED),
        "a genuine callback was turned away": (lambda t: t.awaited().called(code=404).end(), "was not taken"),
    },
    "doubled": {
        "a second result": (lambda t: t.begin().submit().end().end(share=2), SECOND),
        "what has ended is changed": (lambda t: t.begin().cancelled().write(resubmits=1), SECOND),
        "a generation comes back": (lambda t: t.begin(generation=2).cancelled().write(generation=1), BACK),
        "the count of resubmits falls": (lambda t: t.begin().write(resubmits=1).write(resubmits=0).cancelled(), FORGOT),
        "data of an unknown job": (others("unknown"), "was completed with"),
        "data that are not whole": (others("j", whole=False), "was completed with"),
        "data of another task": (others("of another"), "has the data of of another"),
        "data of the generation before": (others("of the first"), "has the data of generation 1"),
        "other data were answered": (lambda t: t.begin().submit().end().answered(200, "completed", {}), "answered"),
        "another status was answered": (lambda t: t.begin().submit().end().answered(200, "failed", {}), "answered"),
        "submitted again": (lambda t: t.twice(), f"submitted again at 2020.000 {NO_REASON}"),
        "another worker was killed": (twice("kill", at=2001, function="process", worker=3), NO_REASON),
        "killed before": (twice("kill", at=1999, function="process", worker=1), NO_REASON),
        "killed after": (twice("kill", at=2021, function="process", worker=1), NO_REASON),
        "another task's write failed": (lambda t: t.twice().fault(2001, "jobs/b"), NO_REASON),
        "a write failed before": (lambda t: t.twice().fault(1999.98, TASK), NO_REASON),
        "frozen for a moment": (twice("freeze", at=1999.99, worker=1, seconds=0.9), NO_REASON),
        "frozen after it": (twice("freeze", at=2001, worker=1, seconds=FROZEN_SECONDS - 1), NO_REASON),
        "another was frozen until its time was over": (twice("freeze", at=1999.99, worker=3, seconds=1.5), NO_REASON),
        "frozen too early": (twice("freeze", at=1980, worker=1, **FROZEN), NO_REASON),
        "Redis was flushed": (lambda t: t.twice().flush(2001, begun=2001), NO_REASON),
        "submitted again though the worker saw it stored": (
            lambda t: t.twice(trouble="cut").stored(2010).tell("read", at=2015, task=TASK, worker=2),
            f"submitted again at 2020.000, {KNOWN}",
        ),
        "submitted again though stored since it looked long ago": (
            lambda t: t.twice(trouble="cut", worker=1).tell("read", at=1999, task=TASK, worker=1).stored(2010),
            KNOWN,
        ),
        "a key of no generation": (lambda t: t.begin().submit(key="made up").cancelled(), "made up, which is None"),
        "the key of another task": (
            lambda t: t.begin("jobs/b").end("jobs/b", "cancelled").begin().submit(key=key_of("jobs/b")).cancelled(),
            "asked under the key",
        ),
        "a resubmit though no job was lost": (
            lambda t: t.begin().submit().write(resubmits=1).submit(resubmits=1, job="k").end(job="k"),
            "resubmit 1 of generation 1, although 0 jobs were lost",
        ),
        "a resubmit before it is stored": (
            lambda t: t.begin().submit().poll(said="lost").submit(resubmits=1, job="k").write(resubmits=1).end(job="k"),
            "resubmit 1 of generation 1 before it was stored",
        ),
    },
    "believed": {
        **{f"taken though {kind}": (taken(kind), f"was taken, although {kind}") for kind in FORGERIES},
        "a late callback was taken": (lambda t: t.awaited().end().begin(generation=2).called().cancelled(), LATE),
        "told nothing": (untold(lambda t: None), UNTOLD),
        "told by a forger": (untold(lambda t: t.called(kind="forged", code=404, at=2000)), UNTOLD),
        "told of another end": (untold(lambda t: t.called("refused", at=2000, code=503)), UNTOLD),
        "told of news": (untold(lambda t: t.called("running", at=2000)), UNTOLD),
        "told of another job": (untold(lambda t: t.called(job="k", at=2000, code=503)), UNTOLD),
        "told of another generation": (untold(lambda t: t.called(generation=2, at=2000, code=503)), UNTOLD),
        "told of another resubmit": (untold(lambda t: t.called(resubmits=1, at=2000, code=503)), UNTOLD),
        "told later": (untold(lambda t: t.called(at=3002)), UNTOLD),
    },
    "leaked": {
        "unsound keys": (lambda t: t.rest(leaks=["unknown key x"]), "unknown key x"),
        **{f"left in {one}": (left(one), f"is still in {one}") for one in ("queue", "leases", "jobs", "groups")},
    },
    "exceeded": {
        "too many attempts at once": (lambda t: t.too_many(), f"{PARALLEL + 1} attempts at "),
        "too many attempts in a time": (lambda t: t.polls(60, RATE_SECONDS / 2), "attempts within"),
        "too many open jobs": (lambda t: t.jobs(OPEN_JOBS + 1), f"{OPEN_JOBS + 1} jobs open at once"),
        "long after a loss of Redis": (
            lambda t: t.too_many().flush(1999.9 - AFTERMATH_SECONDS, begun=1990.0),
            "attempts at ",
        ),
    },
}
BESIDES = ("open ", "ended and in", "a generation comes back", "submitted again", "told", "too many open jobs")
"""Stories in which something else is wrong, too."""


@pytest.mark.parametrize(("kind", "title"), [(kind, title) for kind, titles in FAULTY.items() for title in titles])
def test_a_history_has_the_fault_that_is_put_into_it(kind: str, title: str) -> None:
    story, why = FAULTY[kind][title]
    story(tale := Tale())
    faults = tale.faults()
    assert [one for one, reason in faults if why in reason] == [kind]
    assert len(faults) == 1 or title.startswith(BESIDES)


@pytest.mark.parametrize(("said", "status"), [("done", "completed"), ("refused", "failed")])
def test_what_a_callback_told_may_be_stored_by_it_and_repeated_for_nothing(said: str, status: str) -> None:
    tale = Tale().awaited().called("running").write(function="callback", status="pending")
    tale.end(status=status, function="callback").called(said, begun=tale.now - 0.1).called(said)
    tale.begin(generation=2).called(said, code=404).end(status="cancelled")
    assert tale.faults() == []


@pytest.mark.parametrize("kind", ["signed", *FORGERIES])
@pytest.mark.parametrize("code", [404, 500, 503, 504, 0])
def test_a_callback_that_is_not_answered_promises_nothing_and_one_that_is_not_genuine_may_be_turned_away(
    kind: str, code: int
) -> None:
    assert Tale().awaited().called(kind=kind, code=code).end().faults() == [] or (kind, code) == ("signed", 404)


def test_a_second_submit_is_no_fault_where_the_answer_was_stored_after_its_worker_looked() -> None:
    tale = Tale().twice(trouble="cut").tell("read", at=2010, task=TASK, worker=2).stored(2015)
    tale.tell("read", at=2018, task=TASK, worker=3)
    assert "submitted again" not in str(tale.faults())


@pytest.mark.parametrize(("status", "generation"), [("completed", 2), ("failed", 1), ("failed", 3)])
def test_a_dead_letter_whose_item_tells_otherwise_is_leaked(status: str, generation: int) -> None:
    tale = Tale().begin().end(status="failed").begin(generation=2).submit(generation=2).end(status=status)
    tale.rest(dead={TASK: generation})
    assert tale.faults() == [("leaked", f"is listed as dead letter of generation {generation}")]


def test_a_history_without_an_end_is_no_proof() -> None:
    assert Tale().faults(rest=False) == [("leaked", "nobody looked at the end")]


def test_a_job_is_open_until_it_is_done_or_nobody_asks_after_it() -> None:
    tale = Tale().jobs(OPEN_JOBS).end("limited/0", status="cancelled")
    tale.begin("limited/next").submit("limited/next", job="next")
    next(event for event in tale.events if event["what"] == "job")["done_at"] = tale.now
    assert "exceeded" not in [kind for kind, _ in tale.faults()]


def test_a_fault_is_told_with_all_that_happened_to_its_task() -> None:
    tale = Tale().begin().submit(worker=4).tell("kill", function="process", worker=4)
    tale.tell("kill", function="process", worker=5).begin("jobs/other").rest()
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
            about: dict[str, Any] = {"job": f"j{number}", "worker": number}
            tale.begin(task).submit(task, trouble="cut", **about).submit(task, **about).end(task, job=f"j{number}")
        tale.events = [Counted(event) for event in tale.events]
        Counted.looks = 0
        assert tale.faults() == []
        looks.append(Counted.looks)
    assert 0 < looks[1] < 2.2 * looks[0]


def test_journals_are_read_together_by_time(tmp_path: Any) -> None:
    with closing(Journal(tmp_path / "a.jsonl")) as first, closing(Journal(tmp_path / "b.jsonl")) as second:
        first.write("one", name="ü")
        second.write("two")
        first.write("three")
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
    assert plan.TIMEOUTS["enqueue"] < plan.LEASE_SECONDS
    assert plan.TIMEOUTS["process"] == plan.WINDOW_SECONDS + ATTEMPT_SECONDS + 10
    assert FROZEN_SECONDS < plan.LEASE_SECONDS - ATTEMPT_SECONDS
    assert LONG_FROZEN_SECONDS > plan.LEASE_SECONDS
    assert set(plan.files("http://127.0.0.1:1")) == set(plan.PROVIDERS)
