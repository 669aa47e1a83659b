"""The stack as it is in AWS: its parameters, which a deployment keeps unless told others, and its outputs."""

from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from shared import aws

HIDDEN = "****"
"""What CloudFormation shows of a parameter that nobody is to see."""


def parameters(name: str) -> dict[str, str] | None:
    """The parameters of a stack, none where there is no such stack; None where that cannot be seen from here."""
    return _pairs(name, "Parameters", "ParameterKey", "ParameterValue")


def outputs(name: str) -> dict[str, str] | None:
    """The outputs of a stack, and the same."""
    return _pairs(name, "Outputs", "OutputKey", "OutputValue")


def _pairs(name: str, of: str, key: str, value: str) -> dict[str, str] | None:
    try:
        client: Any = boto3.client("cloudformation", config=aws.prompt())
        [stack] = client.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        is_missing = "does not exist" in str(error)
        return {} if is_missing else None
    except BotoCoreError:
        return None
    return {one[key]: one[value] for one in stack.get(of, [])}


def arn_of(reference: str) -> str | None:
    """The ARN of the secret that a reference names, where it can be seen from here."""
    kind, _, name = reference.partition(":")
    try:
        if kind == "ssm":
            found: Any = boto3.client("ssm", config=aws.prompt())
            return str(found.get_parameter(Name=name)["Parameter"]["ARN"])
        found = boto3.client("secretsmanager", config=aws.prompt())
        return str(found.describe_secret(SecretId=name.partition("#")[0])["ARN"])
    except (BotoCoreError, ClientError):
        return None
