"""What a reviewer signs of the template: encryption, transport, a trace of who did what, room that nobody takes."""

import json
from typing import Any

import pytest

from local import sam_template
from tests.support.cloudformation import Values

TEMPLATE = sam_template.template()
KEY = "arn:aws:kms:eu-north-1:123456789012:key/ours"
PUSHED = {"CallbackUrl": "https://api.example", "EventBus": "default", "StateMachineArns": "arn:machine"}


def made(parameters: dict[str, str]) -> dict[str, Any]:
    """The resources of a deployment with these parameters, and those of the functions' globals."""
    values = Values(parameters)
    shared = values.of(TEMPLATE["Globals"]["Function"])
    resources = values.resources(TEMPLATE["Resources"])
    for one in resources.values():
        if one["Type"] == "AWS::Serverless::Function":
            one["Properties"] = shared | one["Properties"]
    return resources


def of_kind(resources: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    found = [one["Properties"] for one in resources.values() if one["Type"] == kind]
    assert found
    return found


def keys(resources: dict[str, Any]) -> dict[str, set[Any]]:
    """Which key each kind of resource is encrypted with."""
    rules = [
        one["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]["ServerSideEncryptionByDefault"]
        for one in of_kind(resources, "AWS::S3::Bucket")
    ]
    tables = of_kind(resources, "AWS::DynamoDB::Table")
    return {
        "functions": {one.get("KmsKeyArn") for one in of_kind(resources, "AWS::Serverless::Function")},
        "logs": {one.get("KmsKeyId") for one in of_kind(resources, "AWS::Logs::LogGroup")},
        "queues": {one.get("KmsMasterKeyId") for one in of_kind(resources, "AWS::SQS::Queue")},
        "secrets": {one.get("KmsKeyId") for one in of_kind(resources, "AWS::SecretsManager::Secret")},
        "tables": {one["SSESpecification"].get("KMSMasterKeyId") for one in tables},
        "buckets": {one.get("KMSMasterKeyID") for one in rules},
    }


def test_a_key_of_ones_own_encrypts_whatever_is_kept() -> None:
    found = keys(made(PUSHED | {"KmsKeyArn": KEY, "AccessLogs": "on", "StatusConcurrency": "5"}))
    assert found == {kind: {KEY} for kind in found}


def test_without_one_all_is_encrypted_with_keys_of_aws() -> None:
    resources = made(PUSHED)
    assert set().union(*keys(resources).values()) == {None}
    assert {one["SqsManagedSseEnabled"] for one in of_kind(resources, "AWS::SQS::Queue")} == {True}
    assert {one["SSESpecification"]["SSEEnabled"] for one in of_kind(resources, "AWS::DynamoDB::Table")} == {True}
    assert '"SSEAlgorithm": "AES256"' in json.dumps(resources["SpillBucket"])


def test_a_deployment_reaches_redis_over_verified_tls_unless_it_is_told_that_it_need_not() -> None:
    def setting(**parameters: str) -> Any:
        return made(parameters)["EnqueueFunction"]["Properties"]["Environment"]["Variables"]["REDIS_TLS"]

    assert (setting(), setting(AllowPlainRedis="true")) == ("required", "")


def test_the_api_and_the_bucket_take_no_tls_before_12() -> None:
    resources = made({})
    assert resources["Api"]["Properties"]["SecurityPolicy"].startswith("SecurityPolicy_TLS13_1_2_")
    statements = resources["SpillBucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert [one["Condition"] for one in statements] == [
        {"Bool": {"aws:SecureTransport": "false"}},
        {"NumericLessThan": {"s3:TlsVersion": "1.2"}},
    ]
    for one in statements:
        assert (one["Effect"], one["Principal"], one["Action"]) == ("Deny", "*", "s3:*")
        assert one["Resource"] == ["SpillBucket.Arn", "SpillBucket.Arn/*"]


def test_requests_are_logged_with_their_caller_and_without_what_they_say() -> None:
    setting = made({"AccessLogs": "on"})["Api"]["Properties"]["AccessLogSetting"]
    assert setting["DestinationArn"] == "RequestLogs.Arn"
    told = json.loads(setting["Format"])
    assert told["caller"] == "$context.identity.userArn"
    assert told["route"] == "$context.resourcePath"  # of a callback without the token in its path
    assert not {"$context.path", "$context.identity.user", "$input"} & set(told.values())
    assert all(value.startswith("$context.") for value in told.values())


@pytest.mark.parametrize(
    ("choice", "logged", "account"), [("off", False, False), ("on", True, False), ("with-account-role", True, True)]
)
def test_the_accounts_own_role_is_set_only_where_that_is_asked_for(choice: str, logged: bool, account: bool) -> None:
    resources = made({"AccessLogs": choice})
    assert ("AccessLogSetting" in resources["Api"]["Properties"], "RequestLogs" in resources) == (logged, logged)
    assert ("GatewayAccount" in resources, "GatewayLogsRole" in resources) == (account, account)
    for name in ("RequestLogs", "GatewayAccount", "GatewayLogsRole"):
        assert TEMPLATE["Resources"][name]["DeletionPolicy"] == "Retain"


@pytest.mark.parametrize(
    ("parameter", "function", "default"),
    [("EnqueueConcurrency", "EnqueueFunction", None), ("CallbackConcurrency", "CallbackFunction", 20)],
)
def test_neither_callers_nor_callbacks_take_more_of_the_account_than_is_given(
    parameter: str, function: str, default: int | None
) -> None:
    def reserved(**parameters: str) -> Any:
        return made(PUSHED | parameters)[function]["Properties"].get("ReservedConcurrentExecutions")

    assert reserved() == default
    assert reserved(**{parameter: "7"}) == "7"
    assert reserved(**{parameter: "0"}) is None


def test_a_web_acl_guards_the_whole_stage() -> None:
    assert "Guard" not in made({})
    guard = made({"WebAclArn": "arn:acl"})["Guard"]["Properties"]
    assert guard["WebACLArn"] == "arn:acl"
    assert guard["ResourceArn"] == "arn:aws:apigateway:eu-north-1::/restapis/Api/stages/Api.Stage"


@pytest.mark.parametrize(("tracing", "stage"), [("Active", True), ("PassThrough", False)])
def test_traces_are_made_by_functions_and_api_alike(tracing: str, stage: bool) -> None:
    resources = made({"Tracing": tracing})
    assert {one["Tracing"] for one in of_kind(resources, "AWS::Serverless::Function")} == {tracing}
    assert resources["Api"]["Properties"]["TracingEnabled"] is stage
