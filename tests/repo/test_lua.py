"""The scripts are written as .editorconfig says; what is in them is for `make lint`, and no formatter does the rest."""

from pathlib import Path

import pytest

from local import ROOT

SCRIPTS = sorted((ROOT / "shared" / "queue" / "scripts").glob("*.lua"))
MAX_LINE_LENGTH = 130


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_written_as_the_others(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text.startswith(f"-- {script.stem}: ")
    assert text.endswith("\n")
    for number, line in enumerate(text.splitlines(), 1):
        code = line.lstrip(" ")
        assert line == line.rstrip(), number
        assert "\t" not in line, number
        assert len(line) <= MAX_LINE_LENGTH, number
        assert code.startswith("--") or (len(line) - len(code)) % 2 == 0, number
