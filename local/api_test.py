"""`make api-test`: schemathesis asks the local stack what docs/openapi.json allows, and more, and judges the answers.

It stands in an environment of its own, which is named by `--schemathesis`. Both event shapes are asked, one after the
other. What it may not find: a 5xx, a status, header, type or body that is not described.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from local import ROOT
from local.servers.redis_server import NoServerError
from local.stack import Stack, ended_by_signals

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip


def asked(schemathesis: Path, url: str, examples: int, seed: int) -> int:
    """The exit code of one run against that address: 0 where it found nothing."""
    command = [
        str(schemathesis), "run", str(ROOT / "docs" / "openapi.json"), "--url", url, "--checks", ",".join(CHECKS),
        "--max-examples", str(examples), "--seed", str(seed), "--workers", "2", "--request-timeout", "40",
        "--warnings", "off", "--continue-on-failure", "--suppress-health-check", "all", "--no-color",
    ]  # fmt: skip
    with TemporaryDirectory() as folder:  # it keeps what it found where it runs
        return subprocess.run(command, check=False, cwd=folder).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where nothing was found; 1 where something was, or where there is no Redis server to start."""
    parser = argparse.ArgumentParser(prog="python -m local.api_test", description="Asks the API what nobody asks.")
    parser.add_argument("--schemathesis", type=lambda path: Path(path).absolute(), required=True, help="the program")
    parser.add_argument("--examples", type=int, default=50, help="requests for each route and kind of test, about")
    parser.add_argument("--seed", type=int, default=1, help="another one asks something else")
    chosen = parser.parse_args(arguments)
    try:
        with ended_by_signals(), Stack() as stack:
            urls = (stack.url, stack.http_url)
            return max(asked(chosen.schemathesis, url, chosen.examples, chosen.seed) for url in urls)
    except NoServerError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
