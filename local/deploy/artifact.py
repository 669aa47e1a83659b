"""Checks that what `sam build` has built is for the machine and the Python that the functions run on."""

from collections.abc import Iterator
from pathlib import Path

from local import ROOT, sam_template
from local.deploy.finding import Finding, fault, not_checked, ok

BUILT = ROOT / ".aws-sam" / "build"
MACHINES = {62: "x86_64", 183: "arm64"}
"""The template's words for the machine in an ELF header (e_machine: EM_X86_64, EM_AARCH64)."""


def findings(architecture: str, built: Path) -> Iterator[Finding]:
    """What is to be said of each function's artifact, for functions of that architecture."""
    folders = sorted(one for one in built.glob("*") if (one / "handlers").is_dir())
    if not folders:
        yield not_checked("artifact", "there is none: make build")
        return
    faults = [fault(f"artifact of {one.name}", said) for one in folders for said in _faults(one, architecture)]
    yield from faults
    if not faults:
        yield ok("artifact", f"for {architecture}, with byte code of {_runtime()}")


def machine_of(extension: Path) -> str:
    """What a compiled extension runs on, in the template's words."""
    with extension.open("rb") as file:
        head = file.read(20)
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return "another system"
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return MACHINES.get(number, f"machine {number}")


def _runtime() -> str:
    return str(sam_template.template()["Globals"]["Function"]["Runtime"])


def _faults(folder: Path, architecture: str) -> Iterator[str]:
    found = {machine_of(file) for file in folder.rglob("*.so*")} - {architecture}
    for machine in sorted(found):
        yield f"is for {machine}, but Architecture is {architecture}: make build ARCH={architecture}"
    tag = "cpython-" + _runtime().removeprefix("python").replace(".", "")
    sources = list(folder.rglob("*.py"))
    bare = [one for one in sources if not (one.parent / "__pycache__" / f"{one.stem}.{tag}.pyc").is_file()]
    if bare:
        count = f"{len(bare)} of {len(sources)} modules"
        yield f"{count} have no byte code of {_runtime()}, so each cold start compiles them: make build"
