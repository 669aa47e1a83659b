"""What is shipped: dependencies where they belong, pinned, and short modules."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from local import ROOT

SHIPPED = ("handlers", "shared")
# The distributions that code of ours imports, by the name under which it does.
DISTRIBUTIONS = {"aws_lambda_powertools": "aws-lambda-powertools", "yaml": "PyYAML"}


def modules(*folders: str) -> list[Path]:
    """Every module of ours in these folders."""
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def imports(*files: Path) -> set[str]:
    """The names of the packages that these modules import."""
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    found |= {name.name for name in names}
                case ast.ImportFrom(module=str(name), level=0):
                    found.add(name)
                case _:
                    pass
    return {name.partition(".")[0] for name in found}


@functools.cache
def foreign(*folders: str) -> set[str]:
    """The packages that code in these folders imports and that are neither ours nor the standard library's."""
    return imports(*modules(*folders)) - {"handlers", "shared", "local", "tests"} - sys.stdlib_module_names


def required(requirements: list[str]) -> set[str]:
    """The distributions' names alone, without extras, versions and markers."""
    return {re.split(r"[\[<>=;~! ]", requirement)[0] for requirement in requirements}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pins(file: str) -> dict[str, str]:
    """Name → version with marker, as pinned in that file."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*])?==([^\\\n]+?) *\\$", text, re.MULTILINE))


RUN_TIME = required(project()["project"]["dependencies"])
DEVELOPMENT = required(project()["dependency-groups"]["dev"])


@pytest.mark.parametrize(
    "name", ["template.yaml", "pyproject.toml", "README.md", "handlers", "shared", "tests", "events"]
)
def test_the_top_level_has_what_a_reader_looks_for(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_project_needs_redis_requests_and_powertools_at_run_time() -> None:
    assert {"redis", "requests", "aws-lambda-powertools"} <= RUN_TIME


def test_the_project_needs_moto_pytest_and_fakeredis_for_development_only() -> None:
    assert {"moto", "pytest", "fakeredis"} <= DEVELOPMENT - RUN_TIME


@pytest.mark.parametrize("name", sorted(RUN_TIME))
def test_each_run_time_dependency_is_imported_by_shipped_code(name: str) -> None:
    assert name in {DISTRIBUTIONS.get(package, package) for package in foreign(*SHIPPED)}


@pytest.mark.parametrize("name", ["moto", "pytest", "fakeredis", "boto3", "hypothesis", "PyYAML"])
def test_each_development_dependency_is_imported_by_tests_or_the_local_stack(name: str) -> None:
    assert name in {DISTRIBUTIONS.get(package, package) for package in foreign("tests", "local")}


def test_shipped_code_imports_nothing_that_lambda_will_not_have() -> None:
    there = {"redis", "requests", "aws_lambda_powertools", "jmespath", "msgspec", "urllib3", "botocore"}
    types_only = {"mypy_boto3_dynamodb"}
    assert foreign(*SHIPPED) - there - types_only == set()


@pytest.mark.parametrize(
    ("file", "wanted"), [("requirements.txt", RUN_TIME), ("requirements-dev.txt", RUN_TIME | DEVELOPMENT)]
)
def test_everything_needed_is_pinned_with_hashes(file: str, wanted: set[str]) -> None:
    assert {name.lower() for name in wanted} <= set(pins(file))
    text = (ROOT / file).read_text(encoding="utf-8")
    assert text.count("==") <= text.count("--hash=sha256:")


@pytest.mark.parametrize(
    "file", ["requirements.txt", "requirements-dev.txt", "requirements-sam.txt", "requirements-api-test.txt"]
)
def test_pinned_lists_name_no_index(file: str) -> None:
    assert "://" not in (ROOT / file).read_text(encoding="utf-8")


def test_tests_run_on_the_versions_that_are_deployed() -> None:
    development = pins("requirements-dev.txt")
    assert {name: development[name] for name in pins("requirements.txt")} == pins("requirements.txt")


@pytest.mark.parametrize(("folders", "lines"), [(("shared", "local"), 260), (("handlers",), 80)])
def test_a_module_is_short_enough_to_read_in_one_go(folders: tuple[str, ...], lines: int) -> None:
    assert [file for file in modules(*folders) if len(file.read_text(encoding="utf-8").splitlines()) > lines] == []


def test_make_alone_lists_what_there_is_to_type() -> None:
    made = subprocess.run(["make", "-s"], cwd=ROOT, check=True, capture_output=True, text=True)
    listed = set(re.findall(r"^make ([a-z-]+)", made.stdout, re.MULTILINE))
    wanted = {
        "demo",
        "dev",
        "test",
        "test-all",
        "api-test",
        "lint",
        "build",
        "invoke-enqueue",
        "invoke-process",
        "deploy",
        "clean",
    }
    assert listed >= wanted
