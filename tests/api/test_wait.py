"""A status request that waits is answered when there is news, and asks Redis and DynamoDB no more than it needs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import structs

from shared.api import view
from shared.api.answer import Answer
from shared.api.preference import Preferences
from shared.api.wait import LOOK_SECONDS, READ_SECONDS, RESERVE_SECONDS, Waiter
from shared.errors import NotFound, StoreUnavailable
from shared.provider import Provider
from shared.queue import Add, Claimed, End, Settle
from shared.store import CALL_SECONDS
from shared.task import Task
from shared.work.keeper import record_of
from tests.support.backend import Backend
from tests.support.redis_servers import SERVERS
from tests.support.simulator import EXAMPLE, JOB, provider_at

TASK = Task("example", "a")


@pytest.fixture(params=SERVERS)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """On real servers, too."""
    kind: str = request.param
    return kind


@dataclass(repr=False)
class Line(Backend):
    """A caller on the line, and what happens while it waits: at so many seconds from now, that."""

    agenda: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    providers: dict[str, Provider] = field(default_factory=lambda: {"example": provider_at("http://127.0.0.1:1")})

    def __post_init__(self) -> None:
        self.item = self.begin(TASK)
        self.queue.add([Add(TASK, self.item.generation, record_of(self.item).to_text(), 60)], token="t")
        self.dynamodb.calls.clear()
        self.redis.calls.clear()

    def wait(self, seconds: int = 20, *, tag: str | None = None, remaining: float = 28, **settings: Any) -> Answer:
        """The answer to a status request that waits, of who knows that tag."""
        prefers = Preferences(wait_seconds=seconds)
        parts = self.parts(self.providers, **{"status_wait_seconds": 20} | settings)
        waiter = Waiter(parts, self.clock.monotonic, self._sleep)
        began = self.clock.monotonic()
        answer = waiter.answer(TASK, prefers, lambda one: one.is_known(tag or ""), lambda: remaining)
        self.waited = round(self.clock.monotonic() - began, 3)
        return answer

    def tag(self) -> str:
        """What the caller knows; that it asked is not counted."""
        tag = view.status(self.parts(self.providers), TASK).etag
        self.dynamodb.calls.clear()
        self.redis.calls.clear()
        assert tag
        return tag

    def reads(self) -> int:
        """How often the item was read."""
        return self.dynamodb.calls.count("GetItem")

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        self.agenda.append((self.clock.monotonic() + seconds, do))

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.clock.monotonic() + seconds
        while self.agenda and self.agenda[0][0] <= until:
            at, do = self.agenda.pop(0)
            self.pass_(at - self.clock.monotonic())
            do()
        self.pass_(until - self.clock.monotonic())

    def claim(self) -> Claimed:
        """A worker takes the task."""
        self.bench.rewind(61)
        (claimed,) = self.queue.claim("example", limit=1, lease_seconds=30, token="w").tasks
        return claimed

    def snooze(self) -> None:
        """A worker takes the task, learns something, and gives it back."""
        claimed = self.claim()
        record = structs.replace(record_of(self.item), partial={"city": "Ghent"}, attempts=1)
        self.store.save(TASK, record, self.clock())
        self.queue.settle([Settle(claimed.hold, "waiting", 30, record.to_text())])

    def complete(self) -> None:
        """A worker takes the task and completes it."""
        claimed = self.claim()
        self.store.complete(TASK, self.item.generation, {"city": "Ghent"}, self.clock())
        self.queue.settle([Settle(claimed.hold, "completed")])

    def learn(self) -> None:
        """A callback tells more of the job, and that is kept in the item."""
        self.store.learn(TASK, structs.replace(record_of(self.item), partial={"floor": 4}), self.clock())


@pytest.fixture
def line(backend: Backend) -> Line:
    return Line(**vars(backend))


@pytest.mark.promise("told", "a status request that waits is answered within a second of the task's end")
def test_who_waits_is_answered_at_the_first_look_after_the_end(line: Line) -> None:
    line.after(7.3, line.complete)
    answer = line.wait()
    assert (answer.status, answer.body["status"], answer.body["data"]) == (200, "completed", {"city": "Ghent"})
    assert (line.waited, answer.preference_applied) == (8, "wait=20")
    assert line.slept == [LOOK_SECONDS] * 8


def test_who_names_nothing_is_not_told_of_what_happens_before_the_end(line: Line) -> None:
    line.after(2.5, line.snooze)
    line.after(9.5, line.complete)
    assert line.wait().body["status"] == "completed"
    assert line.waited == 10


@pytest.mark.promise("told", "a status request that waits and names a tag is answered within a second of any news")
def test_who_names_what_it_knows_is_told_of_anything_else(line: Line) -> None:
    tag = line.tag()
    line.after(2.5, line.claim)
    answer = line.wait(tag=tag)
    assert (answer.body["status"], answer.body["schedule"], line.waited) == ("pending", "processing", 3)
    assert (answer.etag == tag, answer.preference_applied) == (False, "wait=20")
    assert (line.wait(tag=tag).etag, line.waited) == (answer.etag, 0)


def test_who_knows_something_else_is_answered_at_once(line: Line) -> None:
    answer = line.wait(tag='"of-yesterday"')
    assert (answer.body["status"], answer.preference_applied) == ("pending", None)
    assert (line.slept, line.reads()) == ([], 1)


def test_while_nothing_happens_redis_is_looked_at_each_second_and_the_item_read_once(line: Line) -> None:
    tag = line.tag()
    answer = line.wait(tag=tag)
    assert (answer.etag, answer.body["age_seconds"], answer.preference_applied) == (tag, 20, "wait=20")
    assert (line.waited, line.reads(), len(line.redis.calls)) == (20, 1, 21)
    assert answer.body["next_attempt_at"] <= view.instant(line.clock() + 40_500)


def test_a_task_that_falls_due_has_not_changed_by_that(line: Line) -> None:
    line.bench.rewind(55)
    assert line.wait(15, tag=line.tag()).body["schedule"] == "waiting"
    assert (line.waited, line.reads()) == (15, 1)


def test_the_item_is_read_again_only_when_something_has_changed(line: Line) -> None:
    line.after(3.5, line.snooze)
    line.after(6.5, line.claim)
    line.wait()
    assert (line.waited, line.reads()) == (20, 3)


def test_what_happens_between_the_first_look_and_the_first_read_is_noticed(line: Line) -> None:
    tag = line.tag()
    line.meanwhile(line.store, "get", after=line.snooze)
    answer = line.wait(tag=tag)
    assert (answer.body["data"], line.waited) == ({"city": "Ghent"}, 1)


def test_a_task_that_is_hastened_may_have_news(line: Line) -> None:
    def tell() -> None:
        line.learn()
        line.queue.hasten([(TASK, line.item.generation)], 10)

    line.after(4.5, tell)
    assert line.wait(tag=line.tag()).body["data"] == {"floor": 4}
    assert line.waited == 5


def test_what_a_signed_callback_tells_the_item_alone_is_found_within_five_seconds(line: Line) -> None:
    signed = {"signature": {"header": "X-Signature", "secret": "env:HOOK"}}
    line.providers["example"] = provider_at("http://127.0.0.1:1", JOB | {"callback": signed})
    line.after(6, line.learn)
    assert line.wait(tag=line.tag()).body["data"] == {"floor": 4}
    assert (line.waited, line.reads(), set(line.slept)) == (10, 3, {READ_SECONDS})


def test_an_attempt_between_two_looks_has_changed_what_is_known(line: Line) -> None:
    first = line.claim()

    def snooze_and_claim() -> None:
        record = structs.replace(record_of(line.item), partial={"city": "Ghent"}, attempts=1)
        line.store.save(TASK, record, line.clock())
        line.queue.settle([Settle(first.hold, "waiting", 30, record.to_text())])
        line.claim()

    line.after(2.4, snooze_and_claim)
    answer = line.wait(tag=line.tag())
    assert (answer.body["schedule"], answer.body["attempts"], line.waited) == ("processing", 1, 3)


def test_a_lease_that_ends_has_changed_what_is_known(line: Line) -> None:
    line.claim()
    line.after(1.5, lambda: line.bench.rewind(60))
    answer = line.wait(tag=line.tag())
    assert (answer.body["schedule"], line.waited) == ("waiting", 2)


def test_a_task_that_is_buried_has_ended(line: Line) -> None:
    claimed = line.claim()

    def bury() -> None:
        error = {"reason": "timeout", "error": "", "refused": False}
        line.store.fail(TASK, line.item.generation, error, line.clock())
        line.queue.settle([Settle(claimed.hold, "buried")])

    line.after(2.4, bury)
    answer = line.wait()
    assert (answer.body["status"], answer.body["schedule"], line.waited) == ("failed", "dead letter", 3)


def test_a_task_that_its_providers_limits_hold_up_says_so(line: Line) -> None:
    line.providers["example"] = provider_at("http://127.0.0.1:1", EXAMPLE | {"limits": {"parallel": 1}})
    line.bench.rewind(61)
    line.seed("b", lease_seconds=30)
    assert line.wait(1).body["schedule"] == "limited"


def test_a_task_that_is_paused_has_changed(line: Line) -> None:
    line.bench.rewind(30)
    line.after(1.5, lambda: line.bench.keys.write("{queue:example}:gate", "until", str(line.bench.keys.now() + 90_000)))
    assert line.wait(tag=line.tag()).body["schedule"] == "paused"
    assert line.waited == 2


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("knows", [True, False])
def test_nobody_waits_for_a_task_that_has_ended(line: Line, status: str, knows: bool) -> None:
    generation, now = line.item.generation, line.clock()
    match status:
        case "completed":
            line.store.complete(TASK, generation, {}, now)
        case "failed":
            line.store.fail(TASK, generation, {"reason": "timeout", "error": "", "refused": False}, now)
        case _:
            line.store.cancel(TASK, generation, now)
    line.queue.end([End(TASK, generation, "forgotten")])
    answer = line.wait(tag=line.tag() if knows else None)
    assert (answer.body["status"], answer.preference_applied, line.slept) == (status, None, [])


def test_a_next_generation_is_waited_for_like_the_one_before(line: Line) -> None:
    def begin_again() -> None:
        line.store.cancel(TASK, line.item.generation, line.clock())
        line.item = line.begin(TASK)
        line.queue.add([Add(TASK, line.item.generation, record_of(line.item).to_text(), 60)], token="t")

    line.after(2.5, begin_again)
    line.after(9.5, line.complete)
    assert line.wait().body["generation"] == line.item.generation
    assert line.waited == 10


def test_without_redis_the_item_is_read_every_five_seconds(line: Line) -> None:
    line.redis.away = True
    line.after(11, lambda: line.store.complete(TASK, line.item.generation, {}, line.clock()))
    assert line.wait().body["status"] == "completed"
    assert (line.waited, line.reads(), len(line.redis.calls)) == (15, 4, 4)


@pytest.mark.promise("told", "without Redis, or lost by it, the end is told within five seconds")
def test_of_a_task_that_redis_has_lost_the_item_is_read_every_five_seconds(line: Line) -> None:
    line.redis_client.flushall()
    line.after(6, lambda: line.store.complete(TASK, line.item.generation, {}, line.clock()))
    assert line.wait().body["status"] == "completed"
    assert (line.waited, line.reads()) == (10, 3)


def test_a_redis_that_comes_back_is_looked_at_again(line: Line) -> None:
    def come_back() -> None:
        line.redis.away = False

    line.redis.away = True
    line.after(3, come_back)
    line.after(7.5, line.complete)
    assert line.wait().body["status"] == "completed"
    assert line.waited == 8


def test_without_dynamodb_nobody_waits(line: Line) -> None:
    line.dynamodb.away = {"GetItem"}
    with pytest.raises(StoreUnavailable):
        line.wait()
    assert line.slept == []


def test_an_unknown_task_is_not_waited_for(line: Line) -> None:
    line.dynamodb_client.delete_item(TableName="meanwhile", Key={"task_id": {"S": TASK.id}})
    with pytest.raises(NotFound):
        line.wait()
    assert line.slept == []


@pytest.mark.parametrize(("bucket", "reserve"), [("", RESERVE_SECONDS), ("spill", RESERVE_SECONDS + CALL_SECONDS)])
def test_a_wait_ends_while_there_is_time_to_read_and_answer(line: Line, bucket: str, reserve: float) -> None:
    assert line.wait(remaining=reserve + 4.5, spill_bucket=bucket).preference_applied == "wait=20"
    assert (line.waited, line.slept[-1]) == (4.5, 0.5)
    line.slept.clear()
    assert line.wait(remaining=reserve - 1, spill_bucket=bucket).body["status"] == "pending"
    assert line.slept == []


@pytest.mark.parametrize(
    ("wanted", "allowed", "waited", "applied"),
    [(7, 20, 7, "wait=7"), (20, 5, 5, "wait=5"), (60, 20, 20, "wait=20"), (0, 20, 0, None), (20, 0, 0, None)],
)
def test_a_wait_is_as_long_as_it_is_preferred_and_allowed(
    line: Line, wanted: int, allowed: int, waited: float, applied: str | None
) -> None:
    assert line.wait(wanted, status_wait_seconds=allowed).preference_applied == applied
    assert (line.waited, line.reads()) == (waited, 1)
