"""Who holds a task comes after all who held it before: two workers meet at one task, one of them late."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from shared.bounds import RESULT_BYTES
from shared.codec import dumps
from shared.errors import StoreUnavailable
from shared.queue import Claimed, new_token
from shared.record import Record
from shared.store import Holder, Item
from shared.task import Task
from shared.work.keeper import add_of, record_of
from shared.work.settle import Settlement, settle
from shared.work.tick import Tick
from shared.work.worker import Worker
from tests.support.backend import Backend
from tests.support.simulator import DONE, EXAMPLE, JOB, WHOLE, Said, Simulator, completed, pending, refused, says

LEASE_SECONDS = 30
PROVIDER = "job"
TASK = Task(PROVIDER, "a")
LOST = says(200, {"status": "lost"})


class Desk:
    """A task in the store and in the queue, and workers that take it in turn."""

    def __init__(self, backend: Backend, simulator: Simulator, file: dict[str, Any] = JOB) -> None:
        self.backend, self.simulator = backend, simulator
        self.parts = backend.parts({PROVIDER: simulator.provider(file)}, default_provider=PROVIDER)
        self.item = backend.begin(TASK)
        self.add(record_of(self.item))

    def add(self, record: Record) -> None:
        assert self.parts.queue.add([add_of(TASK, record)], token=new_token()) == ["created"]

    def worker(self) -> Worker:
        worker = Worker(self.parts)
        worker.keeper.monotonic, worker.keeper.sleep = self.backend.clock.monotonic, self.backend.clock.sleep
        return worker

    def claim(self, which: Any = "ordinary") -> Claimed:
        """The task's next holder."""
        claim = self.parts.queue.claim(PROVIDER, limit=1, lease_seconds=LEASE_SECONDS, token=new_token(), which=which)
        (claimed,) = claim.tasks
        return claimed

    def work(self, claimed: Claimed, *answers: Said, since_seconds: float = 0) -> Settlement:
        if answers:
            self.simulator.say(*answers)
        worker = self.worker()
        since = worker.keeper.instant()
        return worker.work(claimed, since._replace(monotonic=since.monotonic - since_seconds))

    def stall(self) -> None:
        """The clock of this host goes on, that of Redis does not."""
        self.backend.clock.advance(LEASE_SECONDS + 1)

    def settle(self, *settlements: Settlement) -> dict[str, int]:
        return dict(settle(self.parts.queue, self.parts.providers[PROVIDER], settlements))

    def turn(self, *answers: Said, which: Any = "ordinary") -> Settlement:
        """A whole turn: claimed, worked on, settled."""
        settlement = self.work(self.claim(which), *answers)
        self.settle(settlement)
        return settlement

    def submitted(self) -> None:
        """The job is open at the provider, and due."""
        self.turn(pending({"n": 0}, id="j-0"))
        self.backend.pass_(5)

    @property
    def now(self) -> Item:
        return self.backend.item_of(TASK)


@pytest.fixture
def desk(backend: Backend, simulator: Simulator) -> Desk:
    return Desk(backend, simulator)


# --- C1: a worker whose lease is over changes nothing


def late(desk: Desk, verb: str, answer: Said, *, errors: int = 0) -> tuple[Settlement, Settlement]:
    """A worker stalls just before its write; another takes the task over; then the first goes on."""
    desk.submitted()
    first = desk.claim()
    record = replace(Record.from_text(first.record), errors=errors)
    others: list[Settlement] = []

    def other() -> None:
        desk.backend.pass_(LEASE_SECONDS + 1)
        desk.simulator.say(pending({"n": 2}, id="j-2"))
        others.append(desk.turn(which="once"))

    desk.backend.meanwhile(desk.parts.store, verb, before=other)
    settlement = desk.work(replace(first, record=record.to_text().encode()), answer)
    return settlement, others[0]


LATE = {
    "pending with other data": ("save", pending({"n": 1}, id="j-1"), 0),
    "the last error": ("fail", says(503, {}), 5),
    "refused": ("fail", refused(), 0),
    "lost": ("save", LOST, 0),
}


@pytest.mark.parametrize(("verb", "answer", "errors"), LATE.values(), ids=LATE.keys())
def test_a_worker_whose_task_was_taken_over_changes_nothing(desk: Desk, verb: str, answer: Said, errors: int) -> None:
    settlement, _ = late(desk, verb, answer, errors=errors)  # C1
    before = desk.now
    assert (before.partial, before.turn) == ({"n": 2}, 3)
    assert desk.settle(settlement) == {"lost": 1}
    assert desk.now == before
    desk.backend.pass_(60)
    assert Record.from_text(desk.claim().record).partial == {"n": 2}


def test_a_result_that_comes_late_is_stored_all_the_same(desk: Desk) -> None:
    late(desk, "complete", DONE)
    assert (desk.now.status, desk.now.data) == ("completed", WHOLE)


def test_a_result_that_is_found_after_the_lease_is_stored_all_the_same(desk: Desk) -> None:
    """C1: who has the data needs no clock; else they would go back with a release that is lost."""
    desk.submitted()
    settlement = desk.work(desk.claim(), DONE.after(desk.stall))
    assert (settlement.becomes, desk.now.status, desk.now.data) == ("completed", "completed", WHOLE)
    desk.settle(settlement)


def test_a_result_of_a_job_that_was_given_up_cancels_the_job_after_it(desk: Desk) -> None:
    desk.submitted()
    first = desk.claim()

    def others() -> None:
        desk.backend.pass_(LEASE_SECONDS + 1)
        desk.turn(LOST, which="once")
        desk.backend.pass_(LEASE_SECONDS + 1)
        desk.turn(pending(id="j-1"))

    desk.backend.meanwhile(desk.parts.store, "complete", before=others)
    assert desk.settle(desk.work(first, DONE)) == {"lost": 1}
    assert (desk.now.status, desk.now.data) == ("completed", WHOLE)
    assert desk.simulator.calls()[-1] == "DELETE /jobs/j-1"


def test_a_worker_that_finds_its_lease_over_writes_nothing(desk: Desk) -> None:
    desk.submitted()
    before = desk.now
    settlement = desk.work(desk.claim(), pending({"n": 1}).after(desk.stall))
    assert desk.now == before
    assert settlement.record
    assert (settlement.becomes, settlement.record.partial) == ("waiting", {"n": 1})
    assert settlement.record.saved != settlement.record.digest


def test_a_worker_that_was_stalled_before_it_began_asks_nobody_and_deposes_nobody(desk: Desk) -> None:
    desk.submitted()
    claimed, asked = replace(desk.claim(), came_back=1), len(desk.simulator.calls())
    settlement = desk.work(claimed, since_seconds=LEASE_SECONDS + 1)
    assert (settlement.becomes, settlement.attempted) == ("waiting", False)
    assert (desk.now.turn, len(desk.simulator.calls())) == (1, asked)


def test_a_clock_that_jumps_makes_no_crash_and_loses_nothing(desk: Desk) -> None:
    desk.submitted()
    claimed = desk.claim()
    desk.settle(desk.work(claimed, pending({"n": 1}).after(desk.stall)))
    desk.backend.pass_(60)
    again = desk.claim()
    assert again.came_back == 0
    desk.settle(desk.work(again, pending({"n": 1})))
    assert desk.now.partial == {"n": 1}


def test_a_refused_save_goes_back_with_what_the_item_knows(desk: Desk) -> None:
    desk.submitted()
    claimed = desk.claim()
    desk.parts.store.take_over(TASK, desk.item.generation, replace(by_of(claimed), turn=9), 1)
    settlement = desk.work(claimed, pending({"n": 1}))
    assert (settlement.becomes, settlement.turn) == ("waiting", 9)
    assert settlement.record
    assert settlement.record.partial == {"n": 0}
    assert settlement.record.saved == settlement.record.digest
    assert desk.settle(settlement)["snoozed"] == 1
    desk.backend.pass_(60)
    assert desk.claim().hold.turn == 10


def by_of(claimed: Claimed) -> Holder:
    return Holder(claimed.hold.turn, "somebody")


# --- C2: who comes back is looked up before anybody is asked

ENDS: dict[str, tuple[Said, dict[str, tuple[str, int]]]] = {
    "completed": (DONE, {}),
    "failed": (refused(), {"a": ("dead", 1)}),
}


@pytest.mark.parametrize("file", [JOB, EXAMPLE], ids=["with a poll operation", "without one"])
@pytest.mark.parametrize(("answer", "state"), ENDS.values(), ids=ENDS.keys())
def test_an_end_that_redis_was_not_told_of_is_found_in_the_item(
    backend: Backend, simulator: Simulator, file: dict[str, Any], answer: Said, state: dict[str, tuple[str, int]]
) -> None:
    desk = Desk(backend, simulator, file)
    desk.submitted()
    desk.work(desk.claim(), answer)  # C2: stored, never settled
    asked = len(desk.simulator.calls())
    desk.backend.pass_(LEASE_SECONDS + 1)
    assert desk.parts.queue.claim(PROVIDER, limit=9, lease_seconds=30, token=new_token()).once
    desk.turn(which="once")
    assert len(desk.simulator.calls()) == asked
    assert {name: where for name, (where, _) in desk.backend.state(PROVIDER).items()} == {
        name: where for name, (where, _) in state.items()
    }


def test_a_cancelled_task_in_process_is_not_asked_about_again(desk: Desk) -> None:
    desk.submitted()
    desk.claim()
    desk.parts.store.cancel(TASK, desk.item.generation, desk.backend.clock())  # C2: Redis could not be told
    asked = len(desk.simulator.calls())
    desk.backend.pass_(LEASE_SECONDS + 1)
    desk.parts.queue.claim(PROVIDER, limit=9, lease_seconds=30, token=new_token())
    assert desk.turn(which="once").counts_as == "forgotten"
    assert len(desk.simulator.calls()) == asked


def test_a_waiting_task_of_whose_cancellation_redis_was_not_told_is_asked_about_once_more(desk: Desk) -> None:
    desk.submitted()
    desk.parts.store.cancel(TASK, desk.item.generation, desk.backend.clock())  # C2
    asked = len(desk.simulator.calls())
    assert desk.turn(pending({"n": 0}, id="j-0")).counts_as == "forgotten"
    assert desk.simulator.calls()[asked:] == ["GET /jobs/j-0", "DELETE /jobs/j-0"]
    assert desk.backend.state() == {}


# --- C3: only a death is a crash


def come_back(desk: Desk) -> Claimed:
    desk.backend.pass_(LEASE_SECONDS + 1)
    claim = desk.parts.queue.claim(PROVIDER, limit=9, lease_seconds=30, token=new_token())
    return desk.claim("once" if claim.once else "often")


def test_attempts_whose_settling_failed_are_no_crashes(desk: Desk) -> None:
    desk.submitted()
    claimed = desk.claim()
    for _ in range(5):  # C3
        settlement = desk.work(claimed, pending({"n": 0}, id="j-0"))
        assert settlement.counts_as == "snoozed"
        desk.worker().say_finished(settlement)
        claimed = come_back(desk)
    assert desk.now.crashes == 0


def test_the_word_of_an_attempt_that_could_not_be_settled_stands_in_the_item(desk: Desk) -> None:
    """C3: its outcome changed nothing, so nothing else there tells that no worker died."""
    desk.submitted()
    claimed = desk.claim()
    desk.worker().say_finished(desk.work(claimed, pending({"n": 0}, id="j-0")))
    assert desk.now.finished == claimed.hold.turn
    again = come_back(desk)
    taken = desk.parts.store.take_over(
        TASK, desk.item.generation, replace(by_of(again), turn=again.hold.turn), again.came_back
    )
    assert isinstance(taken, Item)
    assert taken.crashes == 0


def test_deaths_are_crashes_and_end_a_task(desk: Desk) -> None:
    desk.submitted()
    asked = len(desk.simulator.calls())
    desk.claim()
    for crashes in range(1, 4):
        claimed = come_back(desk)
        settled = desk.parts.store.take_over(
            TASK, desk.item.generation, replace(by_of(claimed), turn=claimed.hold.turn), claimed.came_back
        )
        assert isinstance(settled, Item)
        assert settled.crashes == crashes
    settlement = desk.work(come_back(desk))
    assert (settlement.becomes, len(desk.simulator.calls())) == ("buried", asked)
    assert desk.now.error["reason"] == "crashed"


# --- C39: a result in hand


def fails(desk: Desk, times: int) -> None:
    """The store does not take the next results."""
    complete: Callable[..., Any] = desk.parts.store.complete
    left = [times]

    def called(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise StoreUnavailable("S3: SlowDown")
        return complete(*arguments, **options)

    desk.backend.patch.setattr(desk.parts.store, "complete", called)


def test_a_result_is_stored_again_while_the_attempt_has_time(desk: Desk) -> None:
    desk.submitted()
    fails(desk, 3)  # C39
    assert desk.turn(DONE).becomes == "completed"
    assert desk.now.data == WHOLE


def test_a_result_that_could_not_be_stored_is_stored_by_the_next_claim_which_asks_nobody(desk: Desk) -> None:
    desk.submitted()
    fails(desk, 100)
    desk.turn(DONE)
    assert desk.now.status == "pending"
    asked = len(desk.simulator.calls())
    desk.backend.patch.undo()
    desk.backend.pass_(60)
    assert desk.turn(says(404, {})).becomes == "completed"
    assert (desk.now.data, len(desk.simulator.calls())) == (WHOLE, asked)


@pytest.mark.parametrize(("extra", "is_kept"), [(0, True), (1, False)])
def test_only_so_large_a_result_is_kept(
    desk: Desk, extra: int, is_kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = "x" * (RESULT_BYTES - 2 + extra)
    assert len(dumps(data)) == RESULT_BYTES + extra
    desk.submitted()
    fails(desk, 100)
    settlement = desk.turn(completed(data))
    assert settlement.record
    assert (settlement.record.result is not None) == is_kept
    assert ("result dropped" in caplog.text) != is_kept


@pytest.mark.parametrize("result", ["{nope", "[" * 5000])
def test_a_result_that_cannot_be_read_is_asked_for_again(desk: Desk, result: str) -> None:
    desk.submitted()
    claimed = desk.claim()
    record = replace(Record.from_text(claimed.record), result=result)
    settlement = desk.work(replace(claimed, record=record.to_text().encode()), DONE)
    assert (settlement.becomes, desk.now.data) == ("completed", WHOLE)
    desk.settle(settlement)


# --- all of it in a tick


def test_after_a_crash_an_outcome_that_changes_nothing_is_written_too(desk: Desk) -> None:
    """Else the crash would stand in the item, and be one of the next row."""
    desk.submitted()
    desk.claim()
    desk.backend.pass_(LEASE_SECONDS + 1)
    desk.turn(pending({"n": 0}, id="j-0"), which="once")
    assert (desk.now.turn, desk.now.finished, desk.now.crashes) == (3, 3, 0)


def test_a_tick_takes_over_what_came_back(desk: Desk) -> None:
    desk.submitted()
    desk.claim()
    desk.backend.pass_(LEASE_SECONDS + 1)
    desk.simulator.say(DONE)
    tick = Tick(desk.parts, desk.worker(), lambda: 60, monotonic=desk.backend.clock.monotonic)
    tick.sleep = desk.backend.pass_
    assert tick.run()[PROVIDER]["completed"] == 1
    assert desk.now.turn == 3
