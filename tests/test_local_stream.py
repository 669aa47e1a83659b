"""The local stream: ends are said as the pipe would, and the notify function is told of those that are waited for."""

import io
import json
from pathlib import Path

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


def test_a_provider_can_call_back(tmp_path: Path) -> None:
    log = io.StringIO()
    with Stack(log=log, settings={"PROVIDERS_DIR": str(tmp_path)}) as stack:
        file = {
            "servers": [stack.third_party.url],
            "submit": {"url": "/example", "query": {"task-name": "${task.name}", "hook": "${callback.url}"}},
            "acceptors": [{"state": "success", "expected": "completed"}],
            "polling": {"initialDelay": 3600, "minDelay": 3600, "maxDelay": 3600},
        }
        (tmp_path / "hooked.json").write_text(json.dumps(file))
        asked = requests.post(f"{stack.url}/tasks", json={"provider": "hooked", "name": "a"}, timeout=30)
        assert asked.status_code == 202, log.getvalue()
        for url in (stack.url, stack.http_url):
            assert requests.post(f"{url}/callbacks/hooked/forged", data=b"{}", timeout=30).status_code == 404
