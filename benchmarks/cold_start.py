"""What a start of enqueue costs in processor time, beside its libraries alone: `python -m benchmarks.cold_start`.

From the artifact as it is deployed, with byte code, by its Python 3.13: the import of the handler and the making of all
its parts, against the import of the libraries as their pages say, a client of each and the resolvers. No network.

boto3 is in the libraries' share, but not in ours: its clients are botocore's, and what it loads besides are transfers
to S3. `redis.asyncio` is in both: redis-py's plain client needs it (redis/commands/core.py imports from it), and no
option leaves it out; it is loaded lazily only by a stand-in for a part of redis-py, which would save 10 ms.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.table import Table, add_keep
from local import ROOT
from local.servers.dynamodb import DUMMY_CREDENTIALS, REGION

BAR = 1.15
RUNTIME = ("boto3", "botocore", "s3transfer", "dateutil", "six")  # Lambda's runtime brings these
BEGIN = "import sys, time\nsys.path[:0] = {path!r}\nbegan = time.process_time()\n"
END = "\nprint((time.process_time() - began) * 1000)"
OURS = "import handlers.enqueue\nfrom shared import wiring\nwiring.logger()\nwiring.enqueuer()"
CLIENTS = """
import hiredis, jmespath, msgspec, redis, requests
from aws_lambda_powertools import Logger
Logger(service="bare"), requests.Session(), redis.Redis()
"""
BARE = "import boto3" + CLIENTS + "boto3.client('dynamodb')"
BARE_BOTOCORE = "import botocore.session" + CLIENTS + "botocore.session.get_session().create_client('dynamodb')"


def made(*arguments: str) -> str:
    """What make prints."""
    command = ["make", "-s", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def runtime(folder: Path, python: str) -> None:
    """Put there what Lambda's runtime brings, as it is installed here, with byte code."""
    for name in RUNTIME:
        spec = find_spec(name)
        assert spec
        assert spec.origin
        origin = Path(spec.origin)
        if spec.submodule_search_locations:
            shutil.copytree(origin.parent, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, folder)
    subprocess.run([python, "-m", "compileall", "-q", str(folder)], check=True)


def start(python: str, path: list[str], program: str) -> float:
    """Processor milliseconds of a program in a fresh process that has these folders and the standard library."""
    environment = {"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": REGION} | DUMMY_CREDENTIALS
    command = [python, "-I", "-S", "-c", BEGIN.format(path=path) + program + END]
    ran = subprocess.run(command, cwd="/", env=environment, check=True, capture_output=True, text=True)
    return float(ran.stdout.splitlines()[-1])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="of which the medians are told (%(default)s)")
    add_keep(parser)
    chosen = parser.parse_args()
    if not (python := made("python313")):
        parser.exit(message="skipped: the artifact needs Python 3.13, which was not found\n")
    versions = {name: version(name) for name in ("boto3", "redis", "aws-lambda-powertools")}
    with (
        tempfile.TemporaryDirectory(prefix="meanwhile-start-") as folder,
        Table("cold_start", "A cold start", keep=chosen.keep, versions=versions) as table,
    ):
        task, brought = Path(folder, "task"), Path(folder, "runtime")
        for one in (task, brought):
            one.mkdir()
        made("build-EnqueueFunction", f"ARTIFACTS_DIR={task}", f"PYTHON313={python}")
        runtime(brought, python)
        programs = {"ours": OURS, "bare": BARE, "botocore": BARE_BOTOCORE}
        taken: dict[str, list[float]] = {name: [] for name in programs}
        for number in range(chosen.rounds + 1):  # the first reads the files
            for name, program in programs.items():
                took = start(python, [str(task), str(brought)], program)
                if number:
                    taken[name].append(took)
        for name, whose in (("enqueue, its parts made", "ours"), ("its libraries alone", "bare")):
            table.say(name, median(taken[whose]), "CPU ms", spread=(min(taken[whose]), max(taken[whose])))
        for name, whose, bar in (
            ("enqueue against its libraries", "bare", BAR),
            ("the same, with botocore for boto3", "botocore", None),
        ):
            ratios = [ours / theirs for ours, theirs in zip(taken["ours"], taken[whose], strict=True)]
            table.say(name, median(ratios), "x", bar, spread=(min(ratios), max(ratios)))


if __name__ == "__main__":
    main()
