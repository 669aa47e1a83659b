"""What is deployed for a soak: small settings and four providers, with the relations of the real ones.

enqueue's timeout stays below the lease, and above what a batch wants to have left; process's is window + attempt + 10,
as template.yaml has them.
"""

from typing import Any

from shared.settings import Settings

ATTEMPT_SECONDS = 2.0
FIRST_ANSWER_SECONDS = 1.0
WINDOW_SECONDS = 4.0
LEASE_SECONDS = Settings(attempt_seconds=ATTEMPT_SECONDS).lease_seconds
TIMEOUTS = {"enqueue": 11.0, "callback": 9.0, "process": WINDOW_SECONDS + ATTEMPT_SECONDS + 10, "reconcile": 30.0}
"""Seconds that each function may run; enqueue's below LEASE_SECONDS."""

SETTINGS = {
    "WINDOW_SECONDS": f"{WINDOW_SECONDS}", "ATTEMPT_SECONDS": f"{ATTEMPT_SECONDS}", "TICK_SECONDS": "0.5",
    "PARALLEL_TASKS": "6", "IDLE_SECONDS": "1", "FIRST_ANSWER_SECONDS": f"{FIRST_ANSWER_SECONDS}",
    "CONFIRM_SECONDS": "3", "DEFAULT_PROVIDER": "jobs",
}  # fmt: skip

WORKER = "SOAK_WORKER"
"""The environment variable with the process's id: every request tells the provider who sends it."""

HOOK_KEY = "of the provider's"
SECRETS = {"SOAK_HOOK_KEY": HOOK_KEY, "SOAK_CALLBACK_KEY": "of our own"}
"""What callbacks are signed with, and what makes their URLs unguessable."""

PARALLEL = 3
OPEN_JOBS = 8
RATE_SECONDS = 0.1
BURST = 4
PROVIDERS = ("jobs", "limited", "plain", "hooks")


def files(url: str) -> dict[str, dict[str, Any]]:
    """The provider files, by name: jobs that are submitted and asked after; the same within limits; the
    short form's; and jobs that call back, too."""
    rate = {"requests": 1, "seconds": RATE_SECONDS, "burst": BURST}
    limits = {"rate": rate, "parallel": PARALLEL, "openJobs": OPEN_JOBS}
    plain = _common(url, "plain") | {
        "submit": {"url": "/plain/ask", "query": {"task-name": "${task.name}"}, "headers": {"Key": "${task.id}"}}
    }
    hooks = _jobs(url, "hooks")
    hooks["submit"]["body"]["callback"] = "${callback.url}"
    hooks["callback"] = {"signature": {"header": "X-Signature", "secret": "env:SOAK_HOOK_KEY", "prefix": "sha256="}}
    limited = _jobs(url, "limited") | {"limits": limits}
    return {"jobs": _jobs(url, "jobs"), "limited": limited, "plain": plain, "hooks": hooks}


def _jobs(url: str, name: str) -> dict[str, Any]:
    poll = {"url": f"/{name}/jobs/${{outputs.id}}", "query": {"task-name": "${task.name}"}}
    key, body = {"Key": "${task.id}"}, {"name": "${task.name}"}
    submit = {"method": "POST", "url": f"/{name}/jobs", "headers": key, "body": body, "outputs": {"id": "body.id"}}
    return _common(url, name) | {"submit": submit, "poll": poll, "cancel": poll | {"method": "DELETE"}}


def _common(url: str, name: str) -> dict[str, Any]:
    both, most = ["submit", "poll"], {"maxErrors": 4, "maxResubmits": 3}
    return {
        "servers": [url],
        "description": f"{name}, as the soak misuses it",
        "security": [{"type": "apiKey", "in": "header", "name": "Worker", "secret": f"env:{WORKER}"}],
        "acceptors": [
            {"state": "pending", "expected": "running", "on": both},
            {"state": "success", "expected": "done", "on": both},
            {"state": "failure", "expected": "refused", "on": both},
            {"state": "resubmit", "expected": "lost"},
        ],
        "data": "body.data",
        "partial": "body.partial",
        "polling": {"initialDelay": 0.3, "minDelay": 0.3, "maxDelay": 2} | most | {"notFoundGrace": 0},
        "freshness": 3,
        "freshnessFailed": 1,
    }
