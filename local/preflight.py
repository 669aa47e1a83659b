"""What is checked before a deployment: `make deploy` runs it, over the parameters in samconfig.toml and the defaults.

Only what CloudFormation cannot check itself, and would tell late or never.
"""

import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from local import ROOT, sam_template

LEAST_WOKEN = 2
"""The least concurrency that Lambda lets a mapping of SQS have."""


def parameters(config: Path) -> dict[str, str]:
    """The template's parameters as that file of SAM's has them, else their defaults; those without are left out."""
    known = tomllib.loads(config.read_text(encoding="utf-8"))
    told = known.get("default", {}).get("deploy", {}).get("parameters", {}).get("parameter_overrides", [])
    pairs = shlex.split(told) if isinstance(told, str) else told
    own = dict(pair.split("=", 1) for pair in pairs)
    declared = sam_template.template()["Parameters"]
    defaults = {name: str(one["Default"]) for name, one in declared.items() if "Default" in one}
    return defaults | own


def faults(values: Mapping[str, str]) -> list[str]:
    """What does not go together, a sentence each."""
    reserved, workers = int(values["ProcessConcurrency"]), int(values["MaxWorkers"])
    needed = workers + (max(LEAST_WOKEN, workers) if values["WakeUps"] == "true" else 0)
    if 0 < reserved < needed:
        for_whom = "MaxWorkers for invited runs and, with WakeUps, as many again, 2 at least, for woken ones"
        return [f"ProcessConcurrency is {reserved}: it must be 0 (none), or at least {needed}: {for_whom}"]
    return []


def main() -> int:
    """Print what is wrong; the exit code."""
    found = faults(parameters(ROOT / "samconfig.toml"))
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
