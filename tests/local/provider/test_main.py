"""The command line of the provider tools: which files are meant, how it is called, and what it returns."""

from pathlib import Path

import pytest

from local.provider.__main__ import main
from tests.support.provider_tools import Call, Desk, Write


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--input", "{q: 1}"), "--input: invalid JSON"),
        (("--input", "[1]"), "--input: must be a JSON object"),
        (("--name", ".."), "a name cannot be"),
        (("--record", "acme.json"), "--record: acme.json is not a file NAME.vectors.json in a directory that exists"),
        (("--record", "no/acme.vectors.json"), "is not a file NAME.vectors.json in a directory that exists"),
    ],
)
def test_a_wrong_call_is_explained_in_one_line(desk: Desk, arguments: tuple[str, str], reason: str) -> None:
    assert desk("try", desk.report(), *arguments) == 2
    (line,) = desk.lines
    assert reason in line
    assert desk.api.site.calls == []


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "long"])
@pytest.mark.parametrize("option", ["--seconds", "--max-wait"])
def test_a_span_is_a_number_of_seconds(
    report: Write, capsys: pytest.CaptureFixture[str], option: str, seconds: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["try", str(report()), option, seconds])
    assert caught.value.code == 2
    assert f"argument {option}: {seconds} is not a number of seconds" in capsys.readouterr().err


def test_wrong_settings_are_said_before_anything_else(desk: Desk) -> None:
    desk.patch.setenv("ATTEMPT_SECONDS", "soon")
    assert desk("check", desk.report()) == 2
    assert "ATTEMPT_SECONDS must be a number" in desk.text


@pytest.mark.parametrize("command", ["check", "try", "replay"])
def test_help_shows_an_example_and_what_the_exit_codes_mean(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    told = capsys.readouterr().out
    assert f"example:\n  python -m local.provider {command} acme" in told
    assert "exit code:\n  0 all is well\n  1 " in told
    assert "\n  2 the call or a setting is wrong" in told


def test_an_attempt_of_no_seconds_is_refused(report: Write, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["try", str(report()), "--seconds", "0"])
    assert "argument --seconds: an attempt of 0 seconds asks nothing" in capsys.readouterr().err


def test_a_record_never_begins_where_a_directory_has_its_name(desk: Desk) -> None:
    desk.vectors.mkdir()
    assert desk("try", desk.report(), "--record", desk.vectors) == 2
    assert f"--record: {desk.vectors} is not a file" in desk.text
    assert desk.api.site.calls == []


def test_conversations_may_lie_beside_provider_files(report: Write, call: Call, vectors: Path) -> None:
    file = report()
    assert call.attempt(file, "--record", vectors) == 0
    file.with_name("report.schema.json").write_text("{}", encoding="utf-8")
    assert call("check", file.parent) == 0
    assert call.lines[:2] == [
        f"{file.parent}: skipped, not provider files: report.schema.json, report.vectors.json",
        f"{file}: sound",
    ]
    assert call("replay", file.parent) == 0
    assert call.lines[0] == f"{file.parent}: skipped, not named NAME.vectors.json: report.json, report.schema.json"
    assert call.lines[-1] == "1 passed, 0 failed"


@pytest.mark.parametrize(
    ("command", "reason"), [("check", "has no provider file"), ("replay", "has no NAME.vectors.json")]
)
def test_a_directory_without_a_file_to_look_at_says_so(call: Call, tmp_path: Path, command: str, reason: str) -> None:
    assert call(command, tmp_path) == 2
    assert call.lines == [f"{tmp_path}: {reason}"]


def test_a_file_of_conversations_that_is_named_as_a_provider_file_is_none(call: Call, vectors: Path) -> None:
    vectors.write_text("[]", encoding="utf-8")
    for command in ("check", "try"):
        assert call(command, vectors) == 1
        assert f"{vectors}: holds conversations" in call.text
