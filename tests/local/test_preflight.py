"""What is checked before a deployment, and where its values come from."""

from pathlib import Path

import pytest

from local import preflight

HEAD = '[default.deploy.parameters]\nstack_name = "meanwhile"\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "samconfig.toml"


@pytest.mark.parametrize(
    "told", ["", 'parameter_overrides = "MaxWorkers=\\"7\\" Spare=1"', 'parameter_overrides = ["MaxWorkers=7"]']
)
def test_the_values_are_samconfigs_else_the_defaults(config: Path, told: str) -> None:
    config.write_text(HEAD + told if told else "")
    values = preflight.parameters(config)
    assert (values["MaxWorkers"], values["ProcessConcurrency"]) == ("7" if told else "4", "0")


@pytest.mark.parametrize(
    ("reserved", "workers", "wakes", "least"),
    [
        ("0", "4", "true", None),
        ("8", "4", "true", None),
        ("7", "4", "true", 8),
        ("4", "4", "false", None),
        ("3", "4", "false", 4),
        ("3", "1", "true", None),
        ("2", "1", "true", 3),
    ],
)
def test_what_process_reserves_is_enough_for_invited_and_woken_runs(
    reserved: str, workers: str, wakes: str, least: int | None
) -> None:
    found = preflight.faults({"ProcessConcurrency": reserved, "MaxWorkers": workers, "WakeUps": wakes})
    assert [f"at least {least}" in fault for fault in found] == ([] if least is None else [True])


def test_a_fault_is_told_and_ends_the_command(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "ROOT", config.parent)
    config.write_text(HEAD)
    assert (preflight.main(), capsys.readouterr().err) == (0, "")
    config.write_text(HEAD + 'parameter_overrides = ["ProcessConcurrency=1"]')
    assert preflight.main() == 1
    assert "at least 8" in capsys.readouterr().err
