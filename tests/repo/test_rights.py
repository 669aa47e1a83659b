"""What each role of the template may do: exactly what its function calls, with all switched on and least."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any
from unittest.mock import Mock

import pytest

from local import sam_template
from shared.store.spill import Spill
from shared.task import Task
from tests.support.cloudformation import Values

EVERYTHING = {
    "RedisUrlSecret": "arn:redis", "SubnetIds": "subnet-a", "SecurityGroupIds": "sg-a",
    "ProviderSecretArns": "arn:provider", "CallbackUrl": "https://api.example", "CallbackSecretArns": "arn:key",
    "EventBus": "default", "StateMachineArns": "arn:machine", "DurableFunctionArns": "arn:durable",
    "StatusConcurrency": "10", "KmsKeyArn": "arn:kms", "PermissionsBoundary": "arn:boundary",
    "AccessLogs": "with-account-role",
}  # fmt: skip
LEAST = {"RedisUrl": "rediss://a.example", "WakeUps": "false", "Tracing": "PassThrough"}
FUNCTIONS = ("Enqueue", "Status", "Process", "Reconcile", "Callback", "Notify")

STREAM = {
    f"dynamodb:{verb} on Table.StreamArn"
    for verb in ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
}
ITEM = {"dynamodb:GetItem on Table.Arn", "dynamodb:UpdateItem on Table.Arn"}
PUT, GET = {"s3:PutObject on SpillBucket.Arn/*"}, {"s3:GetObject on SpillBucket.Arn/*"}
FOLDER = "*/" + "?" * 64 + "/"
"""The form of a task's folder in the bucket: the provider, and the SHA-256 of the name."""
DELETE = {f"s3:DeleteObject on SpillBucket.Arn/{FOLDER}*"}
ERASE = DELETE | {"s3:ListBucket on SpillBucket.Arn", "dynamodb:PutItem on Table.Arn"}
OWN = {
    "Enqueue": ITEM | PUT | GET | ERASE | {"dynamodb:BatchGetItem on Table.Arn"},
    "Status": GET | {"dynamodb:GetItem on Table.Arn"},
    "Process": ITEM | PUT | GET | {"lambda:InvokeFunction on ProcessFunction.Arn"},
    "Reconcile": {"dynamodb:GetItem on Table.Arn", "dynamodb:Query on Table.Arn/index/open"},
    "Callback": ITEM | PUT,
    "Notify": STREAM | {"sqs:SendMessage on NotifyDeadLetters.Arn"},
}
"""What each may do, whatever is asked for."""

INTERFACES = (
    "AssignPrivateIpAddresses", "CreateNetworkInterface", "DeleteNetworkInterface", "DescribeNetworkInterfaces",
    "DescribeSubnets", "UnassignPrivateIpAddresses",
)  # fmt: skip
BASICS = {f"ec2:{verb} on *" for verb in INTERFACES}
BASICS |= {f"kms:{verb} on arn:kms" for verb in ("Decrypt", "DescribeKey", "GenerateDataKey")}
BASICS |= {f"xray:{verb} on *" for verb in ("PutTraceSegments", "PutTelemetryRecords")}
REDIS = {"secretsmanager:GetSecretValue on arn:redis"}
WAKE = {"sqs:SendMessage on WakeQueue.Arn"}
API_KEYS = {"secretsmanager:GetSecretValue on arn:provider", "ssm:GetParameter on arn:provider"}
SIGNING_KEYS = {"secretsmanager:GetSecretValue on arn:key", "ssm:GetParameter on arn:key"}
URLS = {"secretsmanager:GetSecretValue on CallbackSecret"}
WORKFLOWS = {f"states:SendTask{end} on arn:machine" for end in ("Success", "Failure")}
WORKFLOWS |= {f"lambda:SendDurableExecutionCallback{end} on arn:durable" for end in ("Success", "Failure")}
ASKED_FOR = {
    "Enqueue": BASICS | REDIS | WAKE | API_KEYS | URLS | SIGNING_KEYS | WORKFLOWS,
    "Status": BASICS | REDIS,
    "Process": BASICS | REDIS | WAKE | API_KEYS | URLS | SIGNING_KEYS
    | {f"sqs:{verb} on WakeQueue.Arn" for verb in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")},
    "Reconcile": BASICS | REDIS | WAKE,
    "Callback": BASICS | REDIS | WAKE | URLS | SIGNING_KEYS,
    "Notify": BASICS | WORKFLOWS,
}  # fmt: skip
"""What each may do besides, with everything that can be switched on."""


def made(parameters: dict[str, str]) -> dict[str, Any]:
    return Values(parameters).resources(sam_template.template()["Resources"])


def statements(node: Any) -> Iterator[dict[str, Any]]:
    match node:
        case {"Effect": _}:
            yield node
        case dict() | list():
            for one in node.values() if isinstance(node, dict) else node:
                yield from statements(one)


def several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def rights(resources: dict[str, Any], role: str) -> dict[str, set[str]]:
    """What a role is allowed and denied, by effect, each as `action on resource`."""
    properties = resources[role]["Properties"]
    apart = [
        one["Properties"]["PolicyDocument"]
        for one in resources.values()
        if one["Type"] == "AWS::IAM::Policy" and role in one["Properties"]["Roles"]
    ]
    managed = [
        resources[name]["Properties"]["PolicyDocument"]
        for name in properties.get("ManagedPolicyArns", [])
        if name in resources
    ]
    found: dict[str, set[str]] = {"Allow": set(), "Deny": set()}
    for one in statements([properties.get("Policies", []), managed, apart]):
        pairs = {
            f"{action} on {resource}" for action in several(one["Action"]) for resource in several(one["Resource"])
        }
        found[one["Effect"]] |= pairs
    return found


def logs(name: str) -> set[str]:
    return {f"logs:{verb} on {name}Logs.Arn" for verb in ("CreateLogStream", "PutLogEvents")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_do_what_it_calls_and_no_more_with_everything_switched_on(name: str) -> None:
    found = rights(made(EVERYTHING), f"{name}Role")
    assert found["Allow"] == OWN[name] | ASKED_FOR[name] | logs(name)
    assert found["Deny"] == {"ec2:* on *"}


def test_the_bucket_is_listed_one_tasks_folder_at_a_time() -> None:
    (listing,) = [one for one in statements(made(EVERYTHING)) if "s3:ListBucket" in several(one["Action"])]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": FOLDER}}
    keys: list[str] = []
    spill = Spill(lambda: Mock(put_object=lambda **put: keys.append(put["Key"])), "bucket", spill_bytes=1)
    spill.keep(Task("example", "a/b"), 7, {"a": 1}, 0)
    assert fnmatchcase(keys[0], f"{FOLDER}*")


@pytest.mark.parametrize("name", ["Enqueue", "Process", "Reconcile"])
def test_what_is_not_asked_for_gives_no_right(name: str) -> None:
    found = rights(made(LEAST), f"{name}Role")
    assert found == {"Allow": OWN[name] | logs(name), "Deny": set()}


def test_the_code_of_a_function_in_a_vpc_cannot_use_what_lambda_may_do_there() -> None:
    policy = made(EVERYTHING)["RunFunctions"]["Properties"]["PolicyDocument"]
    (deny,) = (one for one in statements(policy) if one["Effect"] == "Deny")
    assert deny["Condition"] == {"Null": {"lambda:SourceFunctionArn": "false"}}


@pytest.mark.parametrize("parameters", [EVERYTHING, LEAST])
def test_every_function_has_the_role_of_its_name_and_lambda_alone_may_take_it(parameters: dict[str, str]) -> None:
    resources = made(parameters)
    functions = {name: one for name, one in resources.items() if one["Type"] == "AWS::Serverless::Function"}
    assert functions
    for name, function in functions.items():
        role = name.replace("Function", "Role")
        assert function["Properties"]["Role"] == f"{role}.Arn"
        assert "Policies" not in function["Properties"]
        (trust,) = statements(resources[role]["Properties"]["AssumeRolePolicyDocument"])
        assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}
        assert [name for name in resources[role]["Properties"]["ManagedPolicyArns"] if name not in resources] == []


def test_the_boundary_bounds_every_role() -> None:
    roles = [one["Properties"] for one in made(EVERYTHING).values() if one["Type"] == "AWS::IAM::Role"]
    assert len(roles) == len(FUNCTIONS) + 2
    assert {role.get("PermissionsBoundary") for role in roles} == {"arn:boundary"}
    assert not [role for role in made(LEAST).values() if "PermissionsBoundary" in role["Properties"]]


def test_nothing_is_allowed_on_everything_but_what_knows_no_resource() -> None:
    for role in ("EndsRole", *(f"{name}Role" for name in FUNCTIONS)):
        wide = {right for right in rights(made(EVERYTHING), role)["Allow"] if "*" in right} - PUT - GET - DELETE
        assert {right.partition(":")[0] for right in wide} <= {"ec2", "xray"}


def test_the_pipe_reads_the_stream_puts_events_and_keeps_what_it_could_not() -> None:
    assert rights(made(EVERYTHING), "EndsRole")["Allow"] == STREAM | {
        "events:PutEvents on arn:aws:events:eu-north-1:123456789012:event-bus/default",
        "sqs:SendMessage on EndsDeadLetters.Arn",
        "kms:Decrypt on arn:kms",
        "kms:GenerateDataKey on arn:kms",
    }


@pytest.mark.parametrize(
    ("parameters", "right"),
    [
        ({"RedisUrlSecret": "arn:redis#url"}, "secretsmanager:GetSecretValue on arn:redis"),
        ({"RedisUrlParameter": "/a/b"}, "ssm:GetParameter on arn:aws:ssm:eu-north-1:123456789012:parameter/a/b"),
    ],
)
def test_reading_the_redis_url_means_that_one_secret_or_parameter(parameters: dict[str, str], right: str) -> None:
    found = rights(made(LEAST | {"RedisUrl": ""} | parameters), "ReconcileRole")["Allow"]
    assert found == OWN["Reconcile"] | logs("Reconcile") | {right}
