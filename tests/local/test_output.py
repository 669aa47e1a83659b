"""Commands end quietly when nobody reads their output to its end, as with `| head`."""

import os
import subprocess
import sys

import pytest

from local import ROOT
from local.output import UNREAD


@pytest.mark.parametrize(
    "arguments",
    [
        "local.provider check shared/providers",
        "local.provider replay tests/conversations/language.vectors.json",
        "local.provider replay --help",
        pytest.param("local.dev --free-ports", marks=[pytest.mark.server, pytest.mark.slow]),
        pytest.param("local.demo", marks=[pytest.mark.server, pytest.mark.slow]),
    ],
)
def test_a_command_ends_quietly_when_nobody_reads_its_output(arguments: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    try:
        command = [sys.executable, "-m", *arguments.split()]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (UNREAD, b"")
