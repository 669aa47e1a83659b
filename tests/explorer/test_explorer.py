"""The protocol holds in every reachable state; and the explorer would notice if a rule were missing."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from shared.provider import Provider
from shared.queue import Hold
from shared.record import Record
from shared.store import Superseded
from shared.task import Task
from shared.work import reconcile, settle, worker
from tests.explorer.explorer import Explorer
from tests.explorer.scenario import Kind, Payload, Scenario, Start, Trouble, Violation
from tests.support.memory_queue import MemoryQueue
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.slow

EVERY_TROUBLE: tuple[Trouble, ...] = get_args(Trouble)
LETTERS: dict[str, Kind] = dict(zip("EPRCVB", get_args(Kind), strict=True))


def scenario(letters: str, start: Start = "nothing", *troubles: Trouble, **budgets: Any) -> Scenario:
    return Scenario(actors=tuple(LETTERS[letter] for letter in letters), start=start, troubles=troubles, **budgets)


def named(one: Scenario) -> str:
    return "-".join([*one.actors, one.start.replace(" ", "-"), f"first-answer-{one.first_answer_seconds:g}"])


THREE: dict[Start, str] = {
    "nothing": "EEP EER EPP EPR EPC",
    "waiting": "EPP PPR PPC PRC PCV",
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
    scenario("EECV", "dead letter", outages=0),
    scenario("PPRC", "waiting", outages=0),
    scenario("EPRC", "nothing", first_answer_seconds=0),
    scenario("EPPR", "nothing", "error", first_answer_seconds=0),
]


@pytest.mark.promise("once", "in every order of steps, crashes and losses of Redis, each task ends as its item says")
@pytest.mark.parametrize("one", GROUPS, ids=named)
def test_every_reachable_state_is_sound(one: Scenario) -> None:
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
    move = settle._move

    def unburied(queue: Any, verb: Any, group: Any, health: Any) -> list[bool]:
        return move(queue, "forget" if verb == "bury" else verb, group, health)

    monkeypatch.setattr(settle, "_move", unburied)
    assert "instead of {'t': ('dead'" in violation(scenario("EP", "nothing", "failed"))


def test_it_fails_where_process_submits_without_a_look_at_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provider, "submits", lambda *_: False)
    assert "submits" in violation(scenario("EP"))


def test_it_fails_where_a_late_attempt_without_a_job_removes_another_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    save = MemoryStore.save

    def removing(self: MemoryStore, task: Task, record: Record, now: int, **options: Any) -> Superseded | None:
        superseded = save(self, task, record, now, **options)
        if superseded is None:
            self.items[task] = replace(self.items[task], outputs=record.outputs)
        return superseded

    monkeypatch.setattr(MemoryStore, "save", removing)
    assert "submits" in violation(scenario("EPP", "waiting", "error"))


def test_it_fails_where_the_loss_of_a_job_is_not_taken_from_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = worker._resumed
    monkeypatch.setattr(worker, "_resumed", lambda record, item: resumed(record, item) if item.outputs else record)
    assert "submits" in violation(scenario("EPP", "nothing", "lost job"))


def test_it_fails_where_a_late_write_counts_whatever_has_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    def unconditional(self: MemoryStore, task: Task, generation: int, by: Any = None, **changes: Any) -> None:
        self.items[task] = replace(self.items[task], **changes)

    monkeypatch.setattr(MemoryStore, "_write", unconditional)
    assert "changes what had" in violation(scenario("PPC", "waiting"))


def test_it_fails_where_a_callback_forgets_what_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    end = MemoryQueue.end
    monkeypatch.setattr(
        MemoryQueue, "end", lambda self, ends: end(self, [one._replace(becomes="forgotten") for one in ends])
    )
    assert "instead of {'t': ('dead'" in violation(scenario("PB", "waiting", payload="failed"))


def test_it_fails_where_a_callback_brings_back_a_lost_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def heedless(self: MemoryStore, task: Task, record: Record, now: int) -> Superseded | None:
        return self._write(task, record.generation, updated_at=now, outputs=record.outputs)

    monkeypatch.setattr(MemoryStore, "learn", heedless)
    assert "submits" in violation(scenario("PPB", "waiting", "lost job", payload="running"))


def test_it_fails_where_anybody_may_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfenced(self: MemoryQueue, hold: Hold, move: Any) -> bool:
        move(self._parts(hold.task.provider), hold.task.name)
        return True

    monkeypatch.setattr(MemoryQueue, "_held", unfenced)
    assert "is given what" in violation(scenario("PPP", "waiting"))
