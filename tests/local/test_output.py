"""Commands end quietly when nobody reads their output to its end, as with `| head`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from local import ROOT
from local.output import UNREAD, until_unread


@pytest.mark.parametrize("arguments", [
    "local.provider check shared/providers", "local.provider replay tests/conversations/language.vectors.json",
    "local.provider replay --help",
    pytest.param("local.dev --free-ports", marks=[pytest.mark.server, pytest.mark.slow]),
    pytest.param("local.demo", marks=[pytest.mark.server, pytest.mark.slow]),
])  # fmt: skip
def test_a_command_ends_quietly_when_nobody_reads_its_output(arguments: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONUNBUFFERED": "", "TMPDIR": str(tmp_path)}
    try:
        command = [sys.executable, "-m", *arguments.split()]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (UNREAD, b"")
    assert list(tmp_path.iterdir()) == []  # nor is the demo's log left


def test_the_exit_code_is_the_command_s_own_as_long_as_its_output_is_read() -> None:
    assert until_unread(lambda: 3) == 3


def test_output_that_cannot_be_written_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        assert until_unread(lambda: unread.write("a line")) == UNREAD
