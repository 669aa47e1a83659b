"""The artifact as SAM's rule makes it: whole, small, and started without compiling anything."""

import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local import ROOT, sam_template
from tests.repo.test_packaging import SHIPPED, pins

pytestmark = pytest.mark.slow

HANDLERS = [f"handlers.{name}" for name in ("callback", "enqueue", "notify", "process", "reconcile")]
# Lambda's python3.13 runtime brings these, and what boto3 needs besides.
RUNTIME = ("boto3", "botocore", "s3transfer", "dateutil", "six")
MACHINES = {"x86_64": 62, "arm64": 183}
"""The machine in an ELF header, by the template's word for it: EM_X86_64, EM_AARCH64."""


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-s", *arguments], cwd=ROOT, check=False, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="session")
def python313() -> str:
    """Python 3.13 as the build finds it."""
    found = make("python313").stdout.strip()
    if not found and os.environ.get("CI"):
        pytest.fail("the artifact needs Python 3.13, which was not found")
    if not found:
        pytest.skip("the artifact needs Python 3.13, which was not found")
    return found


@pytest.fixture(scope="session")
def artifact(python313: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that becomes /var/task, made by the rule that SAM calls."""
    return built(tmp_path_factory.mktemp("artifact"), python313, "x86_64")


def built(folder: Path, python313: str, architecture: str) -> Path:
    """The folder, filled by the rule that SAM calls."""
    made = make("build-EnqueueFunction", f"ARTIFACTS_DIR={folder}", f"PYTHON313={python313}", f"ARCH={architecture}")
    assert made.returncode == 0, made.stderr
    return folder


def machines(folder: Path) -> set[int]:
    """The machines that the compiled extensions inside are for, each as its ELF header says (e_machine)."""
    heads = [file.read_bytes()[:20] for file in folder.rglob("*.so*")]
    assert heads
    assert all(head[:6] == b"\x7fELF\x02\x01" for head in heads)  # of 64 bits, the lowest byte first
    return {int.from_bytes(head[18:20], "little") for head in heads}


def contents(folder: Path) -> dict[str, str]:
    """Path → digest of every file inside."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def byte_code_of(source: Path) -> Path:
    return source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"


def test_the_artifact_has_our_two_packages_whole(artifact: Path) -> None:
    for folder in SHIPPED:
        shipped = {name: digest for name, digest in contents(artifact / folder).items() if not name.endswith(".pyc")}
        ours = {name: digest for name, digest in contents(ROOT / folder).items() if not name.endswith(".pyc")}
        assert shipped == ours


def test_the_artifact_has_the_pinned_run_time_dependencies_and_no_other(artifact: Path) -> None:
    installed = dict(folder.name.removesuffix(".dist-info").split("-") for folder in artifact.glob("*.dist-info"))
    for_lambda = {name: version for name, version in pins("requirements.txt").items() if ";" not in version}
    assert {name.replace("_", "-"): version for name, version in installed.items()} == for_lambda


def test_the_artifact_has_nothing_else_at_its_top_level(artifact: Path) -> None:
    found = {file.name for file in artifact.iterdir() if not file.name.endswith(".dist-info")}
    packages = {
        "certifi",
        "charset_normalizer",
        "hiredis",
        "idna",
        "jmespath",
        "msgspec",
        "redis",
        "requests",
        "urllib3",
    }
    single = {"aws_lambda_powertools", "typing_extensions.py", "__pycache__"}
    compiled = {name for name in found if name.endswith(".so")}
    assert found - compiled == packages | {"urllib3"} | single | set(SHIPPED)


def test_compiled_extensions_are_for_lambda_whatever_machine_built_them(artifact: Path) -> None:
    extensions = [file.name for file in artifact.rglob("*.so")]
    assert all(".cpython-313-x86_64-linux-gnu." in name for name in extensions)
    assert machines(artifact) == {MACHINES["x86_64"]}


@pytest.mark.parametrize("architecture", sam_template.template()["Parameters"]["Architecture"]["AllowedValues"])
def test_every_compiled_extension_is_for_the_machine_that_was_asked_for(
    artifact: Path, python313: str, tmp_path: Path, architecture: str
) -> None:
    """After one for x86_64: what is kept of dependencies is not taken from there."""
    assert machines(built(tmp_path, python313, architecture)) == {MACHINES[architecture]}


def test_another_machine_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    made = make("build-EnqueueFunction", "ARCH=sparc", f"ARTIFACTS_DIR={tmp_path}")
    assert made.returncode != 0
    assert "ARCH is x86_64 or arm64, not sparc" in made.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("told", "architecture"),
    [
        ('parameter_overrides = ["MaxWorkers=\\"2\\"", "Architecture=\\"arm64\\""]', "arm64"),
        ('parameter_overrides = "MaxWorkers=2 Architecture=arm64"', "arm64"),
        ('parameter_overrides = "Architecture=x86_64"', "x86_64"),
        ('# parameter_overrides = "Architecture=arm64"', "x86_64"),
    ],
)
def test_the_machine_is_the_one_that_is_deployed_unless_another_is_asked_for(
    tmp_path: Path, told: str, architecture: str
) -> None:
    (tmp_path / "samconfig.toml").write_text(told, encoding="utf-8")
    asked = ["make", "-s", "-f", str(ROOT / "Makefile"), "architecture"]
    for further, expected in ([], architecture), (["ARCH=arm64"], "arm64"):
        made = subprocess.run([*asked, *further], cwd=tmp_path, check=True, capture_output=True, text=True)
        assert made.stdout.strip() == expected


def test_the_artifact_is_small(artifact: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in contents(artifact):
            archive.write(artifact / name, name)
    assert len(packed.getbuffer()) < 6 * 1024 * 1024


def test_every_module_in_the_artifact_has_byte_code_that_is_trusted_as_it_is(artifact: Path) -> None:
    sources = list(artifact.rglob("*.py"))
    assert len(sources) > 100
    for source in sources:
        header = byte_code_of(source).read_bytes()[:8]
        flags = int.from_bytes(header[4:], "little")
        assert flags == 0b01, f"{source}: hash-based would be 1, checked against its source 3, by time 0"


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A folder with what Lambda's runtime brings, and nothing else of this environment."""
    folder = tmp_path / "runtime"
    folder.mkdir()
    for name in RUNTIME:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        origin = origin.parent if spec.submodule_search_locations else origin
        (folder / origin.name).symlink_to(origin)
    return folder


def start(python: str, task: Path, runtime: Path, program: str) -> Any:
    """What the program prints, as JSON, run by that Python with the artifact, the runtime's packages and nothing else.

    Writing byte code is not forbidden to it: it just is to have no cause.
    """
    path = f"import sys; sys.path[:0] = [{str(task)!r}, {str(runtime)!r}]\n"
    environment = {"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": "us-east-1"}
    command = [python, "-I", "-S", "-c", path + program]
    ran = subprocess.run(command, cwd="/", env=environment, check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


IMPORT_ALL = f"""
import importlib, json
handlers = [importlib.import_module(name) for name in {HANDLERS!r}]
assert all(callable(handler.handler) for handler in handlers)
print(json.dumps({{name: [getattr(module, "__file__", None), getattr(module, "__cached__", None)]
                   for name, module in sys.modules.items()}}))
"""


@pytest.fixture
def unreadable(artifact: Path, tmp_path: Path) -> Iterator[Path]:
    """The artifact with every source made invalid and everything read-only: who compiles anything fails."""
    task = tmp_path / "task"
    shutil.copytree(artifact, task)
    for source in task.rglob("*.py"):
        source.write_text("this is no Python\n", encoding="utf-8")
    everything = [task, *task.rglob("*")]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield task
    for folder in [task, *task.rglob("*/")]:
        folder.chmod(0o755)


def test_all_handlers_start_from_the_read_only_artifact_and_nothing_is_compiled(
    unreadable: Path, runtime: Path, python313: str
) -> None:
    before = contents(unreadable)
    loaded = start(python313, unreadable, runtime, IMPORT_ALL)
    ours = {name for name, (file, _) in loaded.items() if file and file.startswith(f"{unreadable}/")}
    assert {*HANDLERS, "shared.queue.queue", "redis", "requests", "aws_lambda_powertools"} <= ours
    assert contents(unreadable) == before


def test_a_source_without_byte_code_would_have_been_noticed(unreadable: Path, runtime: Path, python313: str) -> None:
    folder = unreadable / "shared" / "__pycache__"
    folder.chmod(0o755)
    byte_code_of(unreadable / "shared" / "errors.py").unlink()
    with pytest.raises(AssertionError, match="SyntaxError"):
        start(python313, unreadable, runtime, IMPORT_ALL)


def test_no_module_of_ours_stands_before_one_of_the_standard_library(
    artifact: Path, runtime: Path, python313: str
) -> None:
    program = "import json, queue\nimport shared.queue as ours\nprint(json.dumps([queue.__file__, ours.__file__]))"
    standard, ours = start(python313, artifact, runtime, program)
    assert not standard.startswith(str(artifact))
    assert ours == str(artifact / "shared" / "queue" / "__init__.py")
    tops = {file.stem for file in artifact.iterdir()}
    assert tops & sys.stdlib_module_names == set()


def test_tracebacks_name_files_where_lambda_has_them(artifact: Path) -> None:
    for name in ("shared/provider/language/polling.py", "redis/client.py"):
        assert f"/var/task/{name}".encode() in byte_code_of(artifact / name).read_bytes()


def test_without_python_313_the_build_says_what_is_missing(tmp_path: Path) -> None:
    made = make("build-EnqueueFunction", "PYTHON313=", f"DEPENDENCIES={tmp_path}/none", f"ARTIFACTS_DIR={tmp_path}")
    assert made.returncode != 0
    assert "Python 3.13, which was not found" in made.stderr
    assert list(tmp_path.iterdir()) == []
