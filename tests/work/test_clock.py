"""C13: the machines at work on one task judge by one clock, the store's."""

import pytest

from shared.api.enqueue import Enqueuer
from shared.api.request import TaskRequest
from shared.queue import new_token
from shared.store import Clock as StoreClock
from shared.store import Store, Table
from shared.store.clock import TOLERANCE_MS
from shared.task import Task
from shared.work.parts import Parts
from shared.work.settle import settle
from shared.work.worker import Worker
from tests.conftest import RETENTION_SECONDS, TABLE
from tests.support.backend import Backend
from tests.support.parts import parts_of
from tests.support.simulator import JOB, Simulator, pending

TASK = Task("job", "a")
MAX_WAIT_SECONDS = 600


@pytest.mark.promise("ends", "a deadline is judged by one clock, the store's, however far the machines' are apart")
@pytest.mark.parametrize(("enqueue_ahead", "process_ahead"), [(-300, 300), (300, -300), (7_200, 0), (0, 7_200), (0, 0)])
def test_a_deadline_falls_when_it_should_on_machines_whose_clocks_are_apart(
    backend: Backend, simulator: Simulator, enqueue_ahead: float, process_ahead: float
) -> None:
    """C13: enqueue's host 300 s behind, process's host 300 s ahead, `maxWaitTime` 600."""
    true = backend.clock
    true.told_by(backend.dynamodb_client)
    polling = JOB["polling"] | {"maxWaitTime": MAX_WAIT_SECONDS}
    providers = {"job": simulator.provider(JOB | {"polling": polling})}

    def parts(ahead_seconds: float) -> Parts:
        clock = StoreClock(lambda: true() + round(ahead_seconds * 1000))
        store = Store(Table(backend.dynamodb_client, TABLE, clock), RETENTION_SECONDS)
        return parts_of(store, backend.queue, providers, clock)

    enqueue, process = parts(enqueue_ahead), parts(process_ahead)
    simulator.say(*[pending(id="j")] * 9)
    enqueuer = Enqueuer(enqueue, Worker(enqueue), lambda *_: None)
    assert enqueuer.answer(TaskRequest(task=TASK), lambda: 25).status == 202
    assert abs(backend.item_of(TASK).created_at - true()) <= TOLERANCE_MS

    def tick(after_seconds: float) -> str:
        backend.pass_(after_seconds)
        (claimed,) = backend.queue.claim("job", limit=1, lease_seconds=30, token=new_token()).tasks
        process.store.know_time()  # as a tick does
        worker = Worker(process)
        settlement = worker.work(claimed, worker.instant())
        (counted,) = settle(backend.queue, providers["job"], [settlement])
        return counted

    assert tick(30) == "snoozed"
    assert tick(MAX_WAIT_SECONDS - 60) == "snoozed"
    assert tick(40) == "buried"
    item = backend.item_of(TASK)
    assert item.error["reason"] == "timeout"
    assert abs((item.completed_at or 0) - true()) <= TOLERANCE_MS
