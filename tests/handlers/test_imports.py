"""What each function loads: no more than it needs, and all of it before its first request."""

import json
import subprocess
import sys

import pytest

from local import ROOT

HEAVY = ("redis", "requests", "boto3", "botocore", "jmespath", "aws_lambda_powertools", "shared")
PROBE = """
import importlib, json, os, sys
os.environ |= {"CALLBACK_URL": "https://x.example.com", "CALLBACK_SECRET": "env:KEY", "AWS_DEFAULT_REGION": "us-east-1"}
importlib.import_module(f"handlers.{sys.argv[1]}")
loaded = set(sys.modules)
from shared import wiring
for part in sys.argv[2:]:
    getattr(wiring, part)()
print(json.dumps([sorted(loaded), sorted(set(sys.modules) - loaded)]))
"""


def loaded(handler: str, *parts: str) -> tuple[set[str], list[str]]:
    """The modules that the handler's import loads, and those that making these parts loads besides."""
    command = [sys.executable, "-c", PROBE, handler, *parts]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    at_once, later = json.loads(ran.stdout)
    return set(at_once), [name for name in later if name.partition(".")[0] in HEAVY]


@pytest.mark.parametrize(
    ("handler", "parts", "never"),
    [
        ("enqueue", ["enqueuer_for_threads", "parts"], set()),
        ("process", ["worker", "parts"], set()),
        ("callback", ["receiver"], set()), ("reconcile", ["reconciler"], {"requests"}),
        ("notify", ["notifier"], {"redis", "requests"}), ("status", ["waiter"], set()),
    ],
)  # fmt: skip
def test_a_handler_loads_what_its_parts_need_and_no_more(handler: str, parts: list[str], never: set[str]) -> None:
    at_once, later = loaded(handler, *parts)
    assert later == []
    assert at_once & (never | {"boto3", "s3transfer"}) == set()
    assert ({"redis", "requests"} - never) <= at_once
