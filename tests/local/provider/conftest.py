"""Fixtures of the provider tools' tests."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.codec import Json
from tests.support.provider_tools import JOB, Api, Call, Desk, Write
from tests.support.servers import Site


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(poll=None)`: the file acme.json, JOB with changes; None takes a part away."""

    def written(file: Json = JOB, name: str = "acme.json", **changes: Json) -> Path:
        path = tmp_path / name
        content = {key: value for key, value in (file | changes).items() if value is not None}
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return written


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(capsys)


@pytest.fixture
def api() -> Iterator[Api]:
    with Site() as site:
        yield Api(site)


@pytest.fixture
def desk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, api: Api, write: Write) -> Desk:
    return Desk(capsys, monkeypatch, api, write)


@pytest.fixture
def report(desk: Desk) -> Write:
    """`report(poll=…)`: the file report.json for that API, with changes."""
    return desk.report


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    return tmp_path / "report.vectors.json"
