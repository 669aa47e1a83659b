"""The local stream: ends are said as the pipe would, and the notify function is told of those that are waited for."""

import io
import json

import pytest
import requests

from local.stack import Stack
from local.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_ends_and_notifications_are_shown_as_they_happen() -> None:
    log = io.StringIO()
    with Stack(log=log, answer_seconds=0) as stack:
        body = {"name": "é", "notify": {"stepFunctionsToken": "AAAA"}}
        assert requests.post(f"{stack.url}/tasks", json=body, timeout=30).status_code == 202
        assert requests.delete(f"{stack.url}/tasks/example/%C3%A9", timeout=30).status_code == 200
        wait_until(lambda: '"notified"' in log.getvalue(), 30, "the notification")
    assert "EventBridge: Task ended: example/é cancelled 1" in log.getvalue()
    said = [json.loads(line.partition("] ")[2]) for line in log.getvalue().splitlines() if '"notified"' in line]
    assert [(one["task"], one["status"], one["kind"]) for one in said] == [
        ("example/é", "cancelled", "stepFunctionsToken")
    ]


def test_a_provider_that_calls_back_ends_its_task_through_the_gateway_and_a_forger_does_not() -> None:
    log = io.StringIO()
    with Stack(log=log, answer_seconds=0.1) as stack:
        body = {"provider": "hook", "name": "Łódź & co"}
        asked = requests.post(f"{stack.url}/tasks", json=body, timeout=30)
        assert asked.status_code == 202, log.getvalue()
        task = f"{stack.url}/tasks/hook/%C5%81%C3%B3d%C5%BA%20%26%20co"
        wait_until(lambda: requests.get(task, timeout=30).json()["status"] == "completed", 30, "the callback")
        assert requests.get(task, timeout=30).json()["data"] == stack.third_party.whole("Łódź & co")
        assert len(stack.third_party.calls) == 1  # the submit; nobody asked again
        for url in (stack.url, stack.http_url):
            assert requests.post(f"{url}/callbacks/hook/forged", data=b"{}", timeout=30).status_code == 404
    assert '"called back"' in log.getvalue()
