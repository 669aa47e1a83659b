"""What `make deploy` asks for, what it writes, and what it says where nobody can be asked."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from local import sam_template
from local.deploy import adopt, ask, files, samconfig
from tests.local.deploy.conftest import HEAD

SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis-AbCdEf"
FILE = {
    "servers": ["https://api.acme.example"],
    "security": [{"type": "http", "scheme": "bearer", "secret": "ssm:/acme/token"}],
    "submit": {"url": "/jobs/${input.id}", "repeatable": True},
    "acceptors": [{"state": "success", "expected": "done"}],
}


@pytest.fixture(autouse=True)
def shipped(environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of provider files in place of what ships, and an account without a stack."""
    folder = tmp_path / "providers"
    folder.mkdir()
    (folder / "example.json").write_text(json.dumps({name: FILE[name] for name in FILE if name != "security"}))
    monkeypatch.setattr(ask, "SHIPPED", folder)
    sound = files.sound
    monkeypatch.setattr(files, "sound", lambda settings: sound(settings, folder))
    with mock_aws():
        yield folder


def person(*answers: str) -> Callable[[str], str]:
    """Somebody who says these, one after the other."""
    left = iter(answers)
    return lambda words: next(left)


def test_a_first_deployment_asks_for_redis_the_network_and_the_provider(
    config: Path, shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shipped / "acme.json").write_text(json.dumps(FILE | {"security": []}))
    answers = person(
        "", "rediss://:s3cret@redis.example:6379", "arn:aws:s3:::b", SECRET,
        "subnet-1, subnet-2", "sg", "sg-1", "nobody", "acme",
    )  # fmt: skip
    assert ask.main([], config, answers) == 0
    given = samconfig.told(config)
    assert given == {
        "RedisUrlSecret": SECRET,
        "SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1", "DefaultProvider": "acme",
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "keep it in a secret or a SecureString" in said
    assert "s3cret" not in config.read_text() + said
    assert all(f"    {name}={value}\n" in said for name, value in given.items())


def test_what_is_usual_needs_no_answer(config: Path) -> None:
    assert ask.main([], config, person("/meanwhile/redis-url", "", "")) == 0
    assert samconfig.told(config) == {"RedisUrlParameter": "/meanwhile/redis-url", "DefaultProvider": "example"}


@pytest.mark.parametrize("answers", [("ssm", "arn:aws:ssm:eu:1:parameter/acme/token"), ("",)])
def test_the_arn_of_a_secret_that_a_provider_file_names_is_asked_for_and_looked_up(
    config: Path, shipped: Path, answers: tuple[str, ...]
) -> None:
    boto3.client("ssm").put_parameter(Name="/acme/token", Value="t", Type="SecureString")
    (shipped / "acme.json").write_text(json.dumps(FILE))
    other = "arn:aws:ssm:eu:1:parameter/other"
    samconfig.keep(config, {"RedisUrlParameter": "/redis", "ProviderSecretArns": other})
    assert ask.main([], config, person(*answers)) == 0
    kept, new = samconfig.told(config)["ProviderSecretArns"].split(",")
    assert (kept, new.endswith(":parameter/acme/token")) == (other, True)


def test_subnets_without_groups_are_asked_about(config: Path) -> None:
    samconfig.keep(config, {"RedisUrlParameter": "/redis", "SubnetIds": "subnet-1"})
    assert ask.main([], config, person("sg-1,sg-2")) == 0
    assert samconfig.told(config)["SecurityGroupIds"] == "sg-1,sg-2"


def test_where_nothing_is_missing_nothing_is_asked_nor_written(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samconfig.keep(config, {"RedisUrlParameter": "/redis"})
    before = config.read_text()
    assert ask.main(["--architecture", "x86_64"], config, person()) == 0
    assert (config.read_text(), capsys.readouterr().out) == (before, "")


def test_what_the_stack_has_already_is_not_asked_for(config: Path) -> None:
    """SAM leaves it so; the URL itself is never shown."""
    parameters = {"RedisUrl": {"Type": "String", "NoEcho": True}}
    template = {"Parameters": parameters, "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}
    boto3.client("cloudformation").create_stack(
        StackName="meanwhile",
        TemplateBody=json.dumps(template),
        Parameters=[{"ParameterKey": "RedisUrl", "ParameterValue": "redis://r.example"}],
    )
    assert ask.main([], config, person()) == 0
    assert samconfig.told(config) == {}


def test_the_machine_that_is_asked_for_is_kept(config: Path) -> None:
    samconfig.keep(config, {"RedisUrlParameter": "/redis"})
    assert ask.main(["--architecture", "arm64"], config, person()) == 0
    assert samconfig.told(config)["Architecture"] == "arm64"
    assert ask.main(["--architecture", "x86_64"], config, person()) == 0
    assert samconfig.told(config)["Architecture"] == "x86_64"


def test_where_nobody_can_be_asked_it_says_what_to_write(
    config: Path, shipped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (shipped / "acme.json").write_text(json.dumps(FILE))
    samconfig.keep(config, {"SubnetIds": "subnet-1"})
    before = config.read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO())  # no terminal
    assert ask.main([], config) == 1
    said = capsys.readouterr().out
    for line in ("RedisUrlParameter=/NAME", "SecurityGroupIds=sg-", "ProviderSecretArns=ARN of ssm:/acme/token"):
        assert f'    "{line}' in said
    assert len(said.splitlines()) < 24  # one screen
    assert config.read_text() == before


@pytest.mark.parametrize("error", [EOFError, KeyboardInterrupt])
def test_who_goes_away_leaves_nothing_written(config: Path, error: type[BaseException]) -> None:
    def leave(words: str) -> str:
        raise error

    assert ask.main([], config, leave) == 1
    assert config.read_text() == HEAD


def test_a_file_that_cannot_be_read_says_so(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("nonsense")
    assert ask.main([], config, person()) == 1
    assert "samconfig.toml" in capsys.readouterr().err


# --- make deploy-cache

OUTPUTS = {"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1", "RedisUrlSecret": SECRET}


def cache(user: str = "meanwhile", **outputs: str) -> None:
    template = {
        "Parameters": {"QueueStack": {"Type": "String", "Default": user}},
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    boto3.client("cloudformation").create_stack(StackName="a-cache", TemplateBody=json.dumps(template))


@pytest.fixture
def with_cache(config: Path) -> Path:
    config.write_text(HEAD + '\n[cache.deploy.parameters]\nstack_name = "a-cache"\n')
    return config


def test_the_outputs_of_the_cache_become_parameters(with_cache: Path) -> None:
    cache(**OUTPUTS, Other="x")
    assert adopt.main(with_cache) == 0
    assert samconfig.told(with_cache) == OUTPUTS
    assert ask.main([], with_cache, person()) == 0


@pytest.mark.parametrize(
    ("user", "outputs", "said"), [("other", OUTPUTS, "QueueStack=meanwhile"), ("meanwhile", {}, "cannot be seen")]
)
def test_a_cache_that_is_for_another_stack_or_not_there_is_not_taken(
    with_cache: Path, user: str, outputs: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cache(user, **outputs)
    assert adopt.main(with_cache) == 1
    assert said in capsys.readouterr().err
    assert samconfig.told(with_cache) == {}


def test_what_is_asked_for_are_parameters_of_the_template() -> None:
    asked = {"RedisUrlSecret", "RedisUrlParameter", "SubnetIds", "SecurityGroupIds", "DefaultProvider", "Architecture"}
    assert asked | {"ProviderSecretArns"} <= sam_template.template()["Parameters"].keys()
