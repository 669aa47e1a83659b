"""What the tests of the provider tools share: provider files, an API for them, and calls of the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import pytest

from local import ROOT
from local.provider.__main__ import main
from tests.support.servers import Cut, Says, Seen, Site

SHIPPED = ROOT / "shared/providers"
SECRET = "s3cret/of:a+key="
"""It is spelled in several ways on its way."""
HOOKED = {"url": "/jobs", "query": {"hook": "${callback.url}"}, "outputs": {"id": "body.id"}}
"""A submit that asks to be called back."""
JOB: dict[str, Any] = {
    "servers": ["https://api.acme.example"],
    "security": [{"type": "http", "scheme": "bearer", "secret": "ssm:/acme/token"}],
    "submit": {
        "method": "POST", "url": "/jobs", "headers": {"Idempotency-Key": "${task.id}"}, "body": {"q": "${input.q}"},
        "outputs": {"id": "body.id"},
    },
    "poll": {"url": "/jobs/${outputs.id}"},
    "acceptors": [{"state": "success", "expected": "succeeded"}, {"state": "failure", "expected": "failed"}],
    "data": "body.data",
}  # fmt: skip
REPORT: dict[str, Any] = {
    "security": [
        {"type": "apiKey", "in": "header", "name": "Authorization", "prefix": "Key ", "secret": "env:REPORT_KEY"},
    ],
    "submit": JOB["submit"] | {"url": "/reports"}, "poll": {"url": "/reports/${outputs.id}"}, "status": "body.state",
    "acceptors": [{"state": "success", "expected": "ready"}, {"state": "pending", "expected": "drawing"}],
    "data": "body.rows", "error": "body.error.message",
}  # fmt: skip
"""For an `Api`, whose URL is to be its server."""
BASIC = {"type": "http", "scheme": "basic", "secret": "env:A"}
QUERY_KEY = {"type": "apiKey", "in": "query", "name": "k", "secret": "env:B"}
OAUTH = {"type": "oauth2", "tokenUrl": "https://auth.example/t", "clientId": "me", "clientSecret": "env:A"}
SIGNED = {"signature": {"header": "X-S", "secret": "env:K"}}
Write: TypeAlias = Callable[..., Path]


def submit(**changes: Any) -> dict[str, Any]:
    """A change of a file: JOB's submit, changed."""
    return {"submit": JOB["submit"] | changes}


def poll(**changes: Any) -> dict[str, Any]:
    """A change of a file: JOB's poll, changed."""
    return {"poll": JOB["poll"] | changes}


def more(state: str = "failure", **acceptor: Any) -> dict[str, Any]:
    """A change of a file: JOB's acceptors, and this one."""
    return {"acceptors": [*JOB["acceptors"], {"state": state, "expected": "x"} | acceptor]}


def only(state: str, **acceptor: Any) -> dict[str, Any]:
    """A change of a file: this acceptor alone."""
    return {"acceptors": [{"state": state, "expected": "x"} | acceptor]}


class Call:
    """`call("check", path)` returns the exit code; `text` is what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.text = ""

    def __call__(self, *arguments: object) -> int:
        status = main([str(one) for one in arguments])
        read = self._capsys.readouterr()
        self.text = read.out + read.err
        return status

    def attempt(self, *arguments: object) -> int:
        """`try` without waiting."""
        return self("try", *arguments, "--input", '{"q": "x"}', "--max-wait", "0")

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.text.splitlines() if line.strip()]

    @property
    def warnings(self) -> list[str]:
        return [line.removeprefix("warning: ") for line in self.lines if line.startswith("warning: ")]


class Api:
    """A made-up API on loopback: reports are drawn, and end as `ends`."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.ends: Says | Cut = Says(200, {"state": "READY", "rows": [1], "echo": SECRET}, {"X-Echo": quote(SECRET)})
        self.token: Says | Cut = Says(200, {"access_token": "t0ken-of-today", "expires_in": 60})
        self.retry_after = "3"
        self.asked = 0
        site.answer = self.answer

    def answer(self, seen: Seen) -> Says | Cut:
        if seen.path == "/token":
            return self.token
        if seen.headers["Authorization"] not in (f"Key {SECRET}", "Bearer t0ken-of-today"):
            return Says(403, {"error": {"message": f"bad key {seen.headers['Authorization']}"}})
        if seen.method == "POST":
            return Says(202, {"id": "r/1"}, {"Retry-After": self.retry_after})
        self.asked += 1
        return Says(200, {"state": "DRAWING", "rows": []}) if self.asked < 3 else self.ends


class Desk(Call):
    """The same for trials of that API: `report(poll=…)` writes the file report.json for it, with changes."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, api: Api, write: Write) -> None:
        super().__init__(capsys)
        self.patch = patch
        self.api = api
        self._write = write
        self.vectors = write(name="report.vectors.json")
        self.vectors.unlink()
        patch.setenv("REPORT_KEY", SECRET)

    def report(self, **changes: Any) -> Path:
        return self._write(REPORT | {"servers": [self.api.site.url]}, "report.json", **changes)

    def record(self, *arguments: object, exit_code: int = 0, steps: str = "", **changes: Any) -> Any:
        """One attempt with that file; the vector that it has left, which replays."""
        assert self.attempt(self.report(**changes), *arguments, "--record", self.vectors) == exit_code
        assert self.lines[-1].endswith(f"{steps}; replay passes")
        return self.recorded()

    def recorded(self) -> Any:
        (vector,) = json.loads(self.vectors.read_text(encoding="utf-8"))["vectors"]
        return vector
