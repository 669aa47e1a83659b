"""The protocol holds in every reachable state; and the explorer would notice if a rule were missing."""

import sys
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest
from msgspec import structs

from shared.provider import Provider
from shared.record import Record
from shared.store import Ended, Holder, Item, Superseded
from shared.task import Task
from shared.work import keeper, reconcile, settle, worker
from shared.work.keeper import Keeper, resumed
from shared.work.settle import Settlement
from shared.work.turn import Turn
from shared.work.worker import Worker
from tests.explorer.explorer import Explorer
from tests.explorer.scenario import Budgets, Kind, Payload, Scenario, Start, Trouble, Violation
from tests.support import keys, memory_lines, memory_queue
from tests.support.memory_queue import MemoryQueue
from tests.support.memory_store import MemoryStore

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]  # what it runs, others cover, and it takes minutes

EVERY_TROUBLE: tuple[Trouble, ...] = get_args(Trouble)
LETTERS: dict[str, Kind] = dict(zip("EPRCVBS", get_args(Kind), strict=True))


def scenario(letters: str, start: Start = "nothing", *troubles: Trouble, **budgets: Any) -> Scenario:
    return Scenario(actors=tuple(LETTERS[letter] for letter in letters), start=start, troubles=troubles, **budgets)


def named(one: Scenario) -> str:
    return "-".join([*one.actors, one.start.replace(" ", "-"), f"first-answer-{one.first_answer_seconds:g}"])


def spent(one: Scenario) -> str:
    return "-".join(f"{name}-{budget}" for name in Budgets._fields if (budget := getattr(one, name)))


THREE: dict[Start, str] = {
    "nothing": "EEP EER EPP EPR EPC",
    "waiting": "EPP PPC PRC PCV",
    "dead letter": "EEV EPR EPV ERC ERV ECV PPV PRV RCV",
}
FOUR: dict[tuple[Start, Trouble], str] = {
    ("nothing", "cut off"): "EEPP",
    ("nothing", "failed"): "EEPR",
    ("nothing", "lost job"): "EPPR",
    ("nothing", "still running"): "EPRC",
    ("dead letter", "failed"): "EEPV EPPV EPRV EPCV PPCV PRCV",
    ("dead letter", "done at once"): "EERV",
    ("dead letter", "cut off"): "ERCV",
    ("dead letter", "error"): "PPRV",
}
GROUPS = [
    *(scenario(letters, start, *EVERY_TROUBLE) for start, groups in THREE.items() for letters in groups.split()),
    *(scenario(letters, *at) for at, groups in FOUR.items() for letters in groups.split()),
    *(scenario(letters, outages=0) for letters in ("EEPC", "EERC", "EPPC")),
    scenario("PPR", "waiting", "error", "cut off"),
    scenario("PPR", "waiting", *EVERY_TROUBLE, outages=0),
    scenario("EECV", "dead letter", outages=0),
    scenario("PPRC", "waiting", outages=0),
    scenario("EPRC", "nothing", first_answer_seconds=0),
    scenario("EPPR", "nothing", "error", first_answer_seconds=0),
]


@pytest.mark.promise("once", "in every order of steps, crashes and losses of Redis, each task ends as its item says")
@pytest.mark.parametrize("one", GROUPS, ids=named)
def test_every_reachable_state_is_sound(one: Scenario) -> None:
    Explorer(one).run()


ONCE_LOST: tuple[Trouble, ...] = ("lost job", "failed", "still running")
NEITHER = {"flushes": 0, "outages": 0}
IN_COMPANY = scenario("PPPPP", "waiting", crashes=4, in_company=True, **NEITHER)
FAULTY = [  # a stall inside one write together with a failover is left over: no group has both of late writes and those
    *(scenario(letters, "waiting", *EVERY_TROUBLE, failovers=1, **NEITHER) for letters in ("PPP", "PPC", "PPR", "PPB")),
    *(scenario(letters, "nothing", *EVERY_TROUBLE, failovers=1, **NEITHER) for letters in ("EEP", "EPP", "EPR", "EPC")),
    scenario("EPV", "dead letter", *EVERY_TROUBLE, failovers=1, **NEITHER),
    scenario("PP", "waiting", *EVERY_TROUBLE, failovers=1, flushes=0),
    scenario("PPP", "waiting", *ONCE_LOST, trouble=2, failovers=1, **NEITHER),
    scenario("EPPP", "nothing", "lost job", trouble=2, failovers=1, **NEITHER),
    *(scenario(letters, "waiting", *EVERY_TROUBLE, timeouts=1, **NEITHER) for letters in ("PPP", "PPC", "PPB")),
    *(scenario(letters, "nothing", *EVERY_TROUBLE, timeouts=1, outages=0) for letters in ("EEP", "EPP", "EPR", "EPC")),
    scenario("EPV", "dead letter", *EVERY_TROUBLE, timeouts=1, **NEITHER),
    scenario("PPR", "waiting", *EVERY_TROUBLE, timeouts=1, outages=0),
    scenario("PP", "waiting", *EVERY_TROUBLE, timeouts=1),
    scenario("PPP", "waiting", *ONCE_LOST, trouble=2, crashes=2, timeouts=1, **NEITHER),
    scenario("EPPP", "nothing", "lost job", trouble=2, timeouts=1, **NEITHER),
    *(scenario(letters, "waiting", *EVERY_TROUBLE, jumps=1) for letters in ("PP", "PC", "PR")),
    scenario("PPP", "waiting", *ONCE_LOST, trouble=2, jumps=1, timeouts=1, **NEITHER),
    scenario("EPP", "nothing", *EVERY_TROUBLE, jumps=1, outages=0),
    scenario("EPR", "nothing", "error", "failed", jumps=1),
    *(scenario(letters, "nothing", "failed", stalling=("enqueue",)) for letters in ("EP", "EPP", "EEP")),
    scenario("EPR", "nothing", "error", "cut off", stalling=("enqueue",), outages=0),
    scenario("EPPR", "nothing", "error", stalling=("enqueue", "process"), outages=0),
    scenario("EPPR", "nothing", "error", stalling=("enqueue",), outages=0, first_answer_seconds=0),
    scenario("PPPP", "waiting", "still running", trouble=2, flushes=0),
    scenario("PPPP", "waiting", *ONCE_LOST, trouble=2, crashes=2, **NEITHER),
    IN_COMPANY,
]


@pytest.mark.promise(
    "once", "and so it does when Redis goes back to before its last calls, writes come late, or clocks jump"
)
@pytest.mark.parametrize("one", FAULTY, ids=lambda one: f"{named(one)}-{spent(one)}")
def test_every_state_after_a_failover_a_late_write_or_a_jump_is_sound(one: Scenario) -> None:
    Explorer(one).run()


CALLED_BACK_AT: dict[str, Start] = {"PPB": "waiting", "PCB": "waiting", "PRB": "waiting", "EPB": "nothing"}
CALLED_BACK = [  # without a stay in Redis a failed task is listed nowhere: its item alone tells
    scenario(letters, start, *EVERY_TROUBLE, payload=payload, outages=int((letters, payload) != ("EPB", "failed")))
    for letters, start in CALLED_BACK_AT.items()
    for payload in get_args(Payload)
]


@pytest.mark.promise("callbacks", "in every order of its steps and everybody else's, a callback ends a task once")
@pytest.mark.parametrize("one", CALLED_BACK, ids=lambda one: f"{named(one)}-{one.payload}")
def test_a_callback_ends_a_task_once_whoever_is_at_work_on_it(one: Scenario) -> None:
    Explorer(one).run()


WOKEN = [
    scenario("PPS", "waiting", "error", woken=True, outages=0),
    scenario("EPS", "nothing", *EVERY_TROUBLE, woken=True),
    scenario("EPPS", "nothing", "error", woken=True, **NEITHER),
    scenario("PSR", "waiting", woken=True, outages=0),
    scenario("PSC", "waiting", "error", woken=True, outages=0),
    scenario("PSV", "dead letter", "error", woken=True),
    scenario("PSB", "waiting", "error", woken=True, outages=0),
]


@pytest.mark.promise("once", "whatever runs are there, die or plan another, the schedule's run comes to what is left")
@pytest.mark.parametrize("one", WOKEN, ids=named)
def test_every_state_is_sound_where_runs_are_woken(one: Scenario) -> None:
    Explorer(one).run()


def violation(one: Scenario) -> str:
    with pytest.raises(Violation) as found:
        Explorer(one).run()
    return str(found.value)


def test_it_fails_where_reconcile_takes_any_held_generation_for_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_is_sound", lambda place, _: place.held_generation > 0)
    assert "to nobody" in violation(scenario("EPR", "dead letter"))


def test_it_fails_where_reconcile_does_not_wait_for_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    add_of = reconcile._Check._add_of
    monkeypatch.setattr(reconcile._Check, "_add_of", lambda check, item: add_of(check, item)._replace(delay_seconds=0))
    assert "is given what" in violation(scenario("PPR", "waiting"))


def test_it_fails_where_a_failed_task_is_forgotten_instead_of_buried(monkeypatch: pytest.MonkeyPatch) -> None:
    row = settle._row
    monkeypatch.setattr(
        settle, "_row", lambda one: row(structs.replace(one, becomes="forgotten") if one.becomes == "buried" else one)
    )
    assert "instead of {'t': ('dead'" in violation(scenario("EP", "nothing", "failed"))


def test_it_fails_where_process_submits_without_a_look_at_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provider, "submits", lambda *_: False)
    assert "submits" in violation(scenario("PP", "waiting", failovers=1))


def test_it_fails_where_a_late_attempt_without_a_job_removes_another_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    save = MemoryStore.save

    def removing(self: MemoryStore, task: Task, record: Record, now: int, **options: Any) -> Superseded | None:
        superseded = save(self, task, record, now, **options)
        if superseded is None:
            self.items[task] = replace(self.items[task], outputs=record.outputs)
        return superseded

    monkeypatch.setattr(MemoryStore, "save", removing)
    assert "submits" in violation(scenario("PP", "waiting", "error", failovers=1, flushes=0))


def test_it_fails_where_the_loss_of_a_job_is_not_taken_from_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (worker, keeper):
        monkeypatch.setattr(module, "resumed", lambda record, item: resumed(record, item) if item.outputs else record)
    assert "submits" in violation(scenario("EPP", "nothing", "lost job"))


def test_it_fails_where_a_late_write_counts_whatever_has_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    def unconditional(self: MemoryStore, task: Task, generation: int, by: Any = None, **changes: Any) -> None:
        self.items[task] = replace(self.items[task], **changes)

    monkeypatch.setattr(MemoryStore, "_write", unconditional)
    assert "changes what" in violation(scenario("PPC", "waiting"))


def test_it_fails_where_a_callback_forgets_what_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    end = MemoryQueue.end
    monkeypatch.setattr(
        MemoryQueue, "end", lambda self, ends, *_: end(self, [one._replace(becomes="forgotten") for one in ends])
    )
    assert "instead of {'t': ('dead'" in violation(scenario("PB", "waiting", payload="failed"))


def test_it_fails_where_a_callback_brings_back_a_lost_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def heedless(self: MemoryStore, task: Task, record: Record, now: int, **_: Any) -> Superseded | None:
        return self._write(task, record.generation, updated_at=now, outputs=record.outputs)

    monkeypatch.setattr(MemoryStore, "learn", heedless)
    assert "submits" in violation(scenario("PPB", "waiting", "lost job", payload="running"))


def test_it_fails_where_the_failure_of_a_lost_job_ends_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = MemoryStore.fail

    def heedless(self: MemoryStore, *arguments: Any, resubmits: int, **options: Any) -> Ended:
        return fail(self, *arguments, **options)

    monkeypatch.setattr(MemoryStore, "fail", heedless)
    assert "of an earlier one" in violation(scenario("PPB", "waiting", "lost job", payload="failed"))


def test_it_fails_where_anybody_may_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryQueue, "_holds", lambda _, parts, hold: hold.task.name in parts.leases)
    assert "is given what" in violation(scenario("PPP", "waiting"))


def test_it_fails_where_what_came_back_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_at(self: MemoryStore, task: Task, generation: int, *_: Any) -> Item | Superseded:
        item = self.items[task]
        return item if item.is_pending(generation) else Superseded(item)

    monkeypatch.setattr(MemoryStore, "take_over", looked_at)
    assert "changes what a later holder wrote" in violation(scenario("PP", "waiting"))


def unordered(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Let this write be taken whatever the turn of its holder."""
    write = getattr(MemoryStore, verb)

    def taken(self: MemoryStore, task: Task, *arguments: Any, by: Holder | None = None, **options: Any) -> Any:
        return write(self, task, *arguments, by=by and structs.replace(by, turn=sys.maxsize), **options)

    monkeypatch.setattr(MemoryStore, verb, taken)


@pytest.mark.parametrize("verb", ["save", "fail"])
def test_it_fails_where_an_earlier_turn_may_still(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    unordered(monkeypatch, verb)
    assert f"({verb} in turn 1) changes what a later holder wrote" in violation(scenario("PP", "waiting", "failed"))


def test_it_fails_where_two_holders_of_one_turn_may_both_write(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MemoryStore._write

    def by_turn(self: MemoryStore, task: Task, generation: int, by: Holder | None = None, **changes: Any) -> Any:
        item = self.items[task]
        if by and item.turn == by.turn:
            self.items[task] = replace(item, holder=by.holder)
        return write(self, task, generation, by, **changes)

    monkeypatch.setattr(MemoryStore, "_write", by_turn)
    assert "changes what a later holder wrote" in violation(scenario("PP", "waiting", failovers=1))


def test_it_fails_where_reconcile_does_not_say_that_a_task_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    add_of = reconcile._Check._add_of
    monkeypatch.setattr(reconcile._Check, "_add_of", lambda check, item: add_of(check, item)._replace(came_back=False))
    assert "came back" in violation(scenario("EPRC", crashes=0))


def test_it_fails_where_reconcile_raises_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    add_of = reconcile._Check._add_of
    monkeypatch.setattr(reconcile._Check, "_add_of", lambda check, item: add_of(check, item)._replace(turn=item.turn))
    assert "changes what a later holder wrote" in violation(scenario("PPR", "waiting", failovers=0))


def test_it_fails_where_the_marks_go_without_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    row = settle._row
    monkeypatch.setattr(settle, "_row", lambda one: row(structs.replace(one, attempted=True)))
    assert "came back" in violation(scenario("EPPP", timeouts=1, outages=0, flushes=0))


def test_it_fails_where_a_refused_write_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Keeper.keep

    def ending(self: Keeper, turn: Turn, *arguments: Any, **options: Any) -> Settlement:
        settlement = keep(self, turn, *arguments, **options)
        is_refused = settlement.item and settlement.item.is_pending(turn.hold.generation)
        return structs.replace(settlement, becomes="buried") if is_refused else settlement

    monkeypatch.setattr(Keeper, "keep", ending)
    assert "settles as buried what is open" in violation(scenario("PP", "waiting", failovers=1))


def test_it_fails_where_a_settling_that_failed_counts_as_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "say_finished", lambda *_: None)
    assert "are counted after" in violation(scenario("PPP", "waiting", "still running", trouble=2))


def test_it_fails_where_a_repeated_claim_leaves_what_the_first_one_took(monkeypatch: pytest.MonkeyPatch) -> None:
    bring_back = MemoryQueue._bring_back
    monkeypatch.setattr(MemoryQueue, "_bring_back", lambda self, parts, _: bring_back(self, parts, ""))
    assert "1 crashes are counted after 0" in violation(scenario("PP", "waiting"))


def test_it_fails_where_what_came_back_twice_is_not_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, place_of in ((memory_lines, memory_lines.place_of), (keys, keys.place_of)):
        once = partial(_once, place_of)
        monkeypatch.setattr(module, "place_of", once)
    assert "an innocent is condemned" in violation(IN_COMPANY)


def _once(place_of: Any, *arguments: Any) -> Any:
    return place_of(*arguments[:-1], min(1, arguments[-1]))


def test_it_fails_where_the_schedules_run_gives_way_though_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_queue, "is_served", lambda *_, **__: True)
    assert "never ends" in violation(scenario("PS", "waiting", woken=True))
