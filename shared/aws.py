"""AWS as we use it: clients whose calls end soon, and values by reference."""

import os
from functools import cache
from typing import Any, Literal

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from shared.codec import Json, dumps
from shared.errors import SecretUnavailable
from shared.logs import log

_OF_SERVICE: dict[str, dict[str, Any]] = {
    "s3": {"signature_version": "s3v4"},  # or its links are of an older kind
    "dynamodb": {"parameter_validation": False},  # a tenth of what a call costs here; Table makes them all in wire form
}
SECRET_SECONDS = 300  # how long a secret is kept before it is read again


def client(
    service: Literal["dynamodb", "s3", "stepfunctions", "lambda", "sqs"], connections: int = 2, *, tries: int = 2
) -> Any:
    """A client of a session of its own, so that any thread may make it, for as many calls at once.

    Somebody waits for each call, a user or a task whose lease runs: an answer or an error comes within 4 seconds. It
    is botocore's own: boto3 adds nothing to it, and would have every start load its transfers to S3.
    """
    options = _OF_SERVICE.get(service, {})
    config = prompt(tries, max_pool_connections=connections, **options)
    made = get_session().create_client(service, config=config)
    made.meta.events.register_first(f"needs-retry.{service}", _forget_pause)
    return made


def prompt(tries: int = 2, **options: Any) -> Config:
    """What keeps a call to AWS short: tries of 0.9 seconds to connect and to read, at most a second between two."""
    retries: Any = {"total_max_attempts": tries, "mode": "standard"}
    return Config(connect_timeout=0.9, read_timeout=0.9, retries=retries, **options)


def _forget_pause(response: Any, **_: Any) -> None:
    """A service may ask for a pause of several seconds before the second try; that is too long for who waits here."""
    if response:
        response[0].headers.pop("x-amz-retry-after", None)


def invoke(function: str, event: dict[str, Json], times: int) -> None:
    """Start a function so many times, without waiting for it; a failure is logged and ends it, within 3 seconds."""
    made = client("lambda")
    try:
        for _ in range(times):
            made.invoke(FunctionName=function, InvocationType="Event", Payload=dumps(event))
    except (BotoCoreError, ClientError) as error:
        log.error("not invoked", extra={"function": function, "reason": str(error)})


def secret(reference: str, *, fresh: bool = False) -> str:
    """The value that `ssm:/path`, `secretsmanager:id`, `secretsmanager:id#key` or `env:NAME` names.

    Kept for SECRET_SECONDS unless `fresh`. Raises SecretUnavailable, which names the reference and never the value.
    """
    kind, _, name = reference.partition(":")
    try:
        if kind == "env":
            return os.environ[name]
        name, _, key = name.partition("#") if kind == "secretsmanager" else (name, "", "")
        options: dict[str, Any] = {"decrypt": True} if kind == "ssm" else {"transform": "json"} if key else {}
        value = _parameters(kind).get(name, max_age=SECRET_SECONDS, force_fetch=fresh, **options)
        value = value[key] if key else value
        return value if isinstance(value, str) else str(value, "utf-8")  # raises unless it is bytes
    except Exception as error:  # noqa: BLE001 (it becomes ours)
        cause = type(error.__context__ or error).__name__
        log.warning("secret unavailable", extra={"reference": reference, "reason": cause})
        raise SecretUnavailable(f"{reference}: {cause}") from None  # theirs may quote the value


@cache
def _parameters(kind: str) -> Any:
    """Powertools' reader of SSM or Secrets Manager. An answer or an error comes within 4 seconds.

    A read is not cut by the attempt's deadline: begun just before it, two still fit into LEASE_MARGIN_SECONDS, and the
    first that fails ends the attempt.
    """
    from aws_lambda_powertools.utilities import parameters  # noqa: PLC0415 (not every start needs it)

    reader = {"ssm": parameters.SSMProvider, "secretsmanager": parameters.SecretsProvider}[kind]
    return reader(boto_config=prompt())
