"""Clients of AWS whose calls are short: somebody waits for each, a user or a task whose lease runs."""

from typing import Any, Literal

import boto3
from botocore.config import Config


def client(service: Literal["dynamodb", "s3"], connections: int) -> Any:
    """A client of a session of its own, so that any thread may make it, for as many calls at once."""
    made = boto3.session.Session().client(
        service, config=prompt(max_pool_connections=connections, signature_version=_SIGNATURES[service])
    )
    made.meta.events.register_first(f"needs-retry.{service}", _forget_pause)
    return made


def prompt(**options: Any) -> Config:
    """What keeps a call to AWS short: two tries of 0.9 seconds, at most a second between them."""
    return Config(
        connect_timeout=0.9, read_timeout=0.9, retries={"total_max_attempts": 2, "mode": "standard"}, **options
    )


_SIGNATURES = {"dynamodb": "v4", "s3": "s3v4"}
"""Of S3 for its links' sake, which are of an older kind otherwise."""


def _forget_pause(response: Any, **_: Any) -> None:
    """A service may ask for a pause of several seconds before the second try; by then nobody waits any more."""
    if response:
        response[0].headers.pop("x-amz-retry-after", None)
