"""Where a deployment's parameters come from, and how they are kept."""

import os
from pathlib import Path

import pytest

from local.deploy import samconfig
from local.deploy.samconfig import ConfigError

HEAD = '[default.deploy.parameters]\nstack_name = "meanwhile"\n'
TAIL = "\n# of another\n[other.deploy.parameters]\nparameter_overrides = 'A=1'\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "samconfig.toml"


@pytest.mark.parametrize(
    "told",
    [
        'parameter_overrides = "MaxWorkers=\\"7\\" Spare=1"',
        'parameter_overrides = ["MaxWorkers=7"]',
        'parameter_overrides = "ParameterKey=MaxWorkers,ParameterValue=7"',
        "parameter_overrides = {MaxWorkers = 7}",
    ],
)
def test_the_values_are_samconfigs_else_the_defaults(config: Path, told: str) -> None:
    config.write_text(HEAD + told)
    values = samconfig.parameters(samconfig.told(config))
    assert (values["MaxWorkers"], values["ProcessConcurrency"]) == ("7", "0")


@pytest.mark.parametrize("text", ["", HEAD])
def test_a_file_that_gives_none_leaves_the_defaults(config: Path, text: str) -> None:
    config.write_text(text)
    assert samconfig.parameters(samconfig.told(config))["MaxWorkers"] == "4"


@pytest.mark.parametrize("text", ["parameter", HEAD + 'parameter_overrides = "MaxWorkers"'])
def test_a_file_that_cannot_be_read_says_so(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError, match=r"samconfig\.toml"):
        samconfig.told(config)


OF_SEVERAL_LINES = 'parameter_overrides = [\n  "MaxWorkers=7", # many\n  "A=[b]",\n]\nregion = "eu-central-1"\n'


@pytest.mark.parametrize(
    ("before", "had"),
    [
        ("", {}),
        ('parameter_overrides = "MaxWorkers=7 A=[b]"\n', {"MaxWorkers": "7", "A": "[b]"}),
        (OF_SEVERAL_LINES, {"MaxWorkers": "7", "A": "[b]"}),
    ],
)
@pytest.mark.parametrize("tail", ["", TAIL])
def test_what_is_kept_stands_beside_what_was_there_and_nothing_else_changes(
    config: Path, before: str, had: dict[str, str], tail: str
) -> None:
    config.write_text(f"# mine\n{HEAD}{before}{tail}")
    new = {"RedisUrlSecret": "arn:aws:secretsmanager:x:1:secret:r-AbCdEf#url", "Words": 'two "words"', "Empty": ""}
    samconfig.keep(config, new)
    samconfig.keep(config, {"SubnetIds": "subnet-1,subnet-2"})
    assert samconfig.told(config) == had | new | {"SubnetIds": "subnet-1,subnet-2"}
    text = config.read_text()
    assert text.startswith(f"# mine\n{HEAD}")
    assert text.endswith(tail)
    assert ("region" in samconfig.options(config)) == ("region" in before)
    assert ("# many" in text) == ("# many" in before)


def test_a_value_that_is_kept_replaces_the_one_before(config: Path) -> None:
    config.write_text(HEAD + OF_SEVERAL_LINES)
    samconfig.keep(config, {"A": "c"})
    assert samconfig.told(config) == {"MaxWorkers": "7", "A": "c"}
    assert "# many" in config.read_text()


@pytest.mark.parametrize("text", ["", HEAD + "[default.deploy.parameters.parameter_overrides]\nMaxWorkers = 7\n"])
def test_a_file_that_cannot_be_written_into_is_left_as_it_is(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError):
        samconfig.keep(config, {"A": "b"})
    assert config.read_text() == text


def test_aws_is_asked_where_sam_asks_it(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_PROFILE", "")
    config.write_text(HEAD + 'region = "eu-central-1"\nprofile = "work"\n')
    samconfig.as_sam(config)
    assert (os.environ["AWS_DEFAULT_REGION"], os.environ["AWS_PROFILE"]) == ("eu-central-1", "work")


def test_a_stack_without_a_name_is_none(config: Path) -> None:
    config.write_text("")
    with pytest.raises(ConfigError, match=r"no stack_name in \[cache\.deploy\.parameters\]"):
        samconfig.stack_name(config, "cache")
