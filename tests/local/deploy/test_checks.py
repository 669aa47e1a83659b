"""What is checked before a deployment without asking anybody: parameters, provider files, grants, the artifact."""

import json
from pathlib import Path
from typing import Any

import pytest

from local.deploy import artifact, files, grants, samconfig, values
from local.deploy.finding import Finding, Verdict
from local.deploy.grants import Need
from shared.settings import Settings

REDIS = {"RedisUrlParameter": "/redis"}
FILE = {
    "servers": ["https://api.acme.example"],
    "submit": {"url": "/jobs/${input.id}", "repeatable": True},
    "acceptors": [{"state": "success", "expected": "done"}],
}
CALLED = FILE | {"submit": {"url": "/jobs?to=${callback.url}", "repeatable": True}}


def said(found: Any, verdict: Verdict = Verdict.FAULT) -> list[str]:
    return [f"{one.about}: {one.said}" for one in found if one.verdict is verdict]


def of_parameters(**told: str) -> list[Finding]:
    return list(values.findings(samconfig.parameters(REDIS | told), REDIS | told))


# --- parameters


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
    found = said(of_parameters(ProcessConcurrency=reserved, MaxWorkers=workers, WakeUps=wakes))
    assert [f"at least {least}" in fault for fault in found] == ([] if least is None else [True])


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({"MaxWorker": "7"}, "samconfig.toml gives MaxWorker, which the template does not have"),
        ({"RedisUrlParameter": ""}, "nothing says where Redis is"),
        ({"RedisUrlSecret": "arn:aws:secretsmanager:x:1:secret:r-AbCdEf"}, "RedisUrlSecret and RedisUrlParameter both"),
        ({"SubnetIds": "subnet-1"}, "SubnetIds is given without SecurityGroupIds"),
        ({"SecurityGroupIds": "sg-1"}, "SecurityGroupIds is given without SubnetIds"),
        ({"EnqueueConcurrency": "many"}, "EnqueueConcurrency must be a number"),
        ({"ParallelTasks": "many"}, "PARALLEL_TASKS must be a number"),
        ({"ProviderServers": "acme=ftp://x"}, "PROVIDER_SERVERS must be name=url pairs"),
        ({"SpillDays": "30"}, "SPILL_DAYS must be a day or more beyond RETENTION_SECONDS"),
    ],
)
def test_parameters_that_the_code_would_refuse_or_sam_pass_over_are_faults(told: dict[str, str], fault: str) -> None:
    assert any(fault in one for one in said(of_parameters(**told)))


def test_parameters_that_go_together_are_ok() -> None:
    assert [one.verdict for one in of_parameters(SubnetIds="subnet-1", SecurityGroupIds="sg-1")] == [Verdict.OK]


# --- provider files


def write(folder: Path, name: str, file: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(file))


@pytest.mark.parametrize(
    ("file", "settings", "fault"),
    [
        (FILE, {}, None),
        (FILE | {"acceptors": []}, {}, "acceptors"),
        (FILE | {"poll": {"url": "/x", "timeout": "soon"}}, {}, "timeout"),
        (CALLED, {}, "needs the parameter CallbackUrl"),
        (CALLED, {"callback_url": "https://a.example/v1", "callback_secret": "ssm:/c"}, None),
        (FILE, {"default_provider": "other"}, "DefaultProvider names it, but there is no sound file other.json"),
        (
            FILE,
            {"provider_servers": {"acme": "https://x.example", "gone": "https://y.example"}},
            "ProviderServers names",
        ),
        (FILE | {"servers": ["nonsense"]}, {"provider_servers": {"acme": "https://x.example"}}, None),
    ],
)
def test_provider_files_are_sound_for_this_deployment(
    tmp_path: Path, file: object, settings: dict[str, Any], fault: str | None
) -> None:
    write(tmp_path, "acme", file)
    chosen = Settings(**({"default_provider": "acme", "provider_servers": {}} | settings))
    found = said(files.findings(chosen, tmp_path))
    assert bool(found) == bool(fault)
    assert any((fault or "") in one for one in found or [""])


def test_a_provider_that_is_only_on_this_machine_is_told_of(tmp_path: Path) -> None:
    write(tmp_path, "acme", FILE | {"servers": ["http://127.0.0.1:9001"]})
    settings = Settings(default_provider="acme", provider_servers={})
    assert "nobody answers there in a deployment" in said(files.findings(settings, tmp_path), Verdict.OK)[0]


# --- grants

SECURITY = [
    {"type": "http", "scheme": "bearer", "secret": "ssm:/acme/token"},
    {"type": "oauth2", "tokenUrl": "https://a.example/t", "clientId": "me", "clientSecret": "secretsmanager:acme#key"},
    {"type": "apiKey", "in": "header", "name": "X-Key", "secret": "env:ACME_KEY"},
]
SIGNED = {"signature": {"header": "X-Signature", "secret": ["ssm:/acme/signature", "ssm:/acme/next"]}}
PARAMETER = "arn:aws:ssm:eu-central-1:123456789012:parameter/acme/token"
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:acme-AbCdEf"


@pytest.fixture
def wanted(tmp_path: Path) -> list[Need]:
    write(tmp_path, "acme", CALLED | {"security": SECURITY, "callback": SIGNED})
    return grants.needs(files.sound(Settings(provider_servers={}), tmp_path))


def test_every_secret_that_a_file_names_must_be_granted(wanted: list[Need]) -> None:
    found = said(grants.findings(wanted, {"ProviderSecretArns": f"{PARAMETER}, {SECRET}"}))
    kept = wanted[-1].parameter
    assert kept == "CallbackSecretArns"
    assert found == [
        f"provider acme: ssm:/acme/signature is not among {kept}",
        f"provider acme: ssm:/acme/next is not among {kept}",
        "provider acme: env:ACME_KEY: template.yaml gives the functions no such variable",
    ]
    assert len(said(grants.findings(wanted, {}))) == 5


def test_grants_that_suffice_are_ok() -> None:
    need = Need("acme", "ssm:/acme/token", "ProviderSecretArns")
    found = list(grants.findings([need], {"ProviderSecretArns": PARAMETER}))
    assert [one.verdict for one in found] == [Verdict.OK]


@pytest.mark.parametrize(
    ("arn", "reference", "covered"),
    [
        (PARAMETER, "ssm:/acme/token", True),
        (PARAMETER, "ssm:/acme/token2", False),
        (PARAMETER, "secretsmanager:acme/token", False),
        ("arn:aws:ssm:*:*:parameter/acme/*", "ssm:/acme/token", True),
        ("arn:aws:ssm:*:*:parameter/acme/*", "ssm:/other/token", False),
        (SECRET, "secretsmanager:acme", True),
        (SECRET, "secretsmanager:acme#key", True),
        (SECRET, f"secretsmanager:{SECRET}#key", True),
        (SECRET, "secretsmanager:acm", False),
        (SECRET, "secretsmanager:acme-AbCdEf", False),
        (SECRET.replace("AbCdEf", "??????"), "secretsmanager:acme", True),
        (SECRET.replace("acme-AbCdEf", "*"), "secretsmanager:acme", True),
        (SECRET.replace("secretsmanager", "ssm"), "secretsmanager:acme", False),
        ("", "ssm:/acme/token", False),
        ("nonsense", "secretsmanager:acme", False),
    ],
)
def test_an_arn_covers_the_secret_that_iam_would_let_it(arn: str, reference: str, covered: bool) -> None:
    assert grants.covers(arn, reference) is covered


# --- the artifact


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01" + bytes(10) + b"\x03\x00" + machine.to_bytes(2, "little")


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What `sam build` leaves of one function for arm64."""
    (tmp_path / "Enqueue" / "handlers" / "__pycache__").mkdir(parents=True)
    (tmp_path / "Enqueue" / "handlers" / "enqueue.py").write_text("")
    (tmp_path / "Enqueue" / "handlers" / "__pycache__" / "enqueue.cpython-313.pyc").write_text("")
    (tmp_path / "Enqueue" / "fast.cpython-313-aarch64-linux-gnu.so").write_bytes(elf(183))
    (tmp_path / "template.yaml").write_text("")
    return tmp_path


def test_an_artifact_of_the_right_machine_and_python_is_ok(built: Path) -> None:
    assert said(artifact.findings("arm64", built), Verdict.OK) == ["artifact: for arm64, with byte code of python3.13"]


@pytest.mark.parametrize(
    ("head", "machine"), [(elf(62), "x86_64"), (elf(8), "machine 8"), (b"\xcf\xfa\xed\xfe", "another")]
)
def test_an_extension_of_another_machine_is_a_fault_whatever_its_name(built: Path, head: bytes, machine: str) -> None:
    (built / "Enqueue" / "slow.cpython-313-aarch64-linux-gnu.so").write_bytes(head)
    [found] = said(artifact.findings("arm64", built))
    assert f"is for {machine}" in found
    assert "make build ARCH=arm64" in found


def test_a_module_without_byte_code_of_the_functions_python_is_a_fault(built: Path) -> None:
    kept = built / "Enqueue" / "handlers" / "__pycache__" / "enqueue.cpython-313.pyc"
    kept.rename(kept.with_name("enqueue.cpython-311.pyc"))
    assert "1 of 1 modules have no byte code of python3.13" in said(artifact.findings("arm64", built))[0]


def test_without_an_artifact_nothing_is_checked(tmp_path: Path) -> None:
    assert said(artifact.findings("arm64", tmp_path), Verdict.NOT_CHECKED) == ["artifact: there is none: make build"]
