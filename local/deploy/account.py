"""Checks that the account has the concurrency that the functions are to reserve, which Lambda would tell late."""

from collections.abc import Iterator, Mapping
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from local.deploy.finding import Finding, fault, not_checked, ok
from shared import aws

ABOUT = "concurrency"
KEPT = 100
"""What Lambda lets nobody reserve, of an account that has so much at all."""


def reserved(values: Mapping[str, str]) -> int:
    """What functions reserve together in a deployment by these parameters; 0 by none."""
    wanted = ["ProcessConcurrency", "EnqueueConcurrency", "StatusConcurrency"]
    wanted += ["CallbackConcurrency"] if values.get("CallbackUrl") else []
    return sum(int(values.get(name, "0")) for name in wanted)


def findings(values: Mapping[str, str], there: Mapping[str, str] | None) -> Iterator[Finding]:
    """What is to be said of that, where the stack that is `there` has reserved some of it already."""
    wanted = reserved(values)
    if not wanted:
        return
    limits = _limits()
    if limits is None or there is None:
        yield not_checked(ABOUT, f"whether the account can reserve {wanted} cannot be seen from here")
        return
    whole, free = limits
    room = max(free + reserved(there) - min(KEPT, whole), 0)
    if wanted > room:
        kept = f"Lambda keeps {min(KEPT, whole)} of the account's {whole}"
        yield fault(ABOUT, f"{wanted} are to be reserved, but {room} can be ({kept}): reserve 0, or raise the quota")
    else:
        yield ok(ABOUT, f"the account can reserve {wanted}")


def _limits() -> tuple[int, int] | None:
    """How many runs at once the account has, and of these not reserved; None where that cannot be seen from here."""
    try:
        client: Any = boto3.client("lambda", config=aws.prompt())
        limit = client.get_account_settings()["AccountLimit"]
    except (BotoCoreError, ClientError):
        return None
    return int(limit["ConcurrentExecutions"]), int(limit["UnreservedConcurrentExecutions"])
