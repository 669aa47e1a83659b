"""A status that no acceptor knows is no end, but whoever looks at the task sees it."""

from typing import Any

import pytest

from shared.record import Record
from tests.support.asking import ask, provider, rules, submitted
from tests.support.servers import Says, Site


def asked(status: Any, known: Record | None = None, **parts: Any) -> Record:
    """The record after one answer with this status."""
    with Site(Says(200, {"status": status})) as site:
        return ask(provider(rules(site.url, **parts)), known or submitted()).record


@pytest.mark.parametrize(
    ("status", "reason"), [("THROTTLED", "THROTTLED"), ({"code": 7}, '{"code":7}'), ("x" * 1000, "x" * 64), (0, "0")]
)
def test_an_unknown_status_is_kept_as_the_reason_that_the_task_goes_on(status: Any, reason: str) -> None:
    record = asked(status)
    assert record.reason == f"no acceptor matches {reason}"
    assert record.errors == 0


def test_no_status_and_a_known_one_leave_no_reason() -> None:
    assert asked(None).reason is None
    assert asked("queued", acceptors=[{"state": "pending", "expected": "queued"}]).reason is None


def test_the_answer_to_a_submit_is_judged_by_no_acceptor_of_poll_and_so_leaves_no_reason() -> None:
    poll = {"url": "/jobs"}
    assert asked("queued", submitted(outputs=None), poll=poll).reason is None
    assert asked("queued", submitted(outputs=None)).reason == "no acceptor matches queued"
