"""What cache.yaml promises: a Redis that only the functions reach, as its queue's user, and a bill with an end."""

import json
import re
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from local import ROOT, sam_template
from local.deploy import samconfig
from shared.queue import Queue
from shared.queue.client import client_of
from shared.settings import is_redis_url
from shared.task import Task
from tests.support.redis_servers import server_or_skip

TEMPLATE = sam_template.template("cache.yaml")
MAIN = sam_template.template()
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
PARAMETERS: dict[str, Any] = TEMPLATE["Parameters"]
PRIVATE = [{"Ref": "PrivateSubnetOne"}, {"Ref": "PrivateSubnetTwo"}]
ANYWHERE = "0.0.0.0/0"


def of(name: str) -> dict[str, Any]:
    """A resource's properties."""
    properties: dict[str, Any] = RESOURCES[name]["Properties"]
    return properties


def group(name: str) -> dict[str, str]:
    return {"Fn::GetAtt": f"{name}.GroupId"}


def all_of(kind: str) -> dict[str, dict[str, Any]]:
    return {name: one["Properties"] for name, one in RESOURCES.items() if one["Type"] == kind}


def filled(text: str, **values: str) -> str:
    """A text of Fn::Sub with these values."""
    return re.sub(r"\$\{([\w.]+)}", lambda found: values[found[1]], text)


# --- what it gives


def test_its_outputs_are_parameters_of_the_main_template_and_lead_into_the_network() -> None:
    outputs = {name: one["Value"] for name, one in TEMPLATE["Outputs"].items()}
    assert outputs == {
        "SubnetIds": {"Fn::Join": [",", PRIVATE]},
        "SecurityGroupIds": group("FunctionsGroup"),
        "RedisUrlSecret": {"Ref": "Url"},
    }
    assert outputs.keys() <= MAIN["Parameters"].keys()


def test_the_url_is_one_that_the_functions_take_with_tls_and_for_a_cluster() -> None:
    secret = "{{resolve:secretsmanager:${Password}:SecretString:::}}"
    text = of("Url")["SecretString"]["Fn::Sub"]
    assert secret in text
    endpoint = {"Cache.Endpoint.Address": "x.serverless.euc1.cache.amazonaws.com", "Cache.Endpoint.Port": "6379"}
    url = filled(text.replace(secret, "Abc123" * 10), **endpoint)
    assert is_redis_url(url)
    assert url.startswith(f"rediss-cluster://{of('QueueUser')['UserName']}:Abc123")


def test_no_password_is_written_down_and_it_can_stand_in_a_url() -> None:
    assert of("Password")["GenerateSecretString"] == {"PasswordLength": 64, "ExcludePunctuation": True}
    assert "SecretString" not in of("Password")


def test_sams_configuration_deploys_it_for_the_stack_that_it_deploys_too() -> None:
    options = samconfig.options(samconfig.FILE, "cache")
    assert options["template_file"] == "cache.yaml"
    assert options["parameter_overrides"] == [f"QueueStack={samconfig.stack_name(samconfig.FILE)}"]
    assert samconfig.stack_name(samconfig.FILE, "cache") != samconfig.stack_name(samconfig.FILE)


# --- who may use it


def rights() -> str:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("ACL SETUSER meanwhile on >PASSWORD ~{STACK-NAME:*\n")
    return " ".join(rest.partition("```")[0].split())


def test_the_queues_user_may_do_what_the_page_lists_on_the_keys_of_one_stack() -> None:
    access = of("QueueUser")["AccessString"]["Fn::Sub"]
    assert access == f"on ~{{${{QueueStack}}:* resetchannels -@all {rights()} +cluster|slots"


@pytest.mark.server
def test_a_server_takes_these_rights_and_the_queue_gets_along_with_them(loopback_only: None) -> None:
    access = filled(of("QueueUser")["AccessString"]["Fn::Sub"], QueueStack="meanwhile")
    off = of("DefaultUser")["AccessString"]
    with server_or_skip("redis") as server, Redis.from_url(server.url) as client:
        client.execute_command("ACL SETUSER", "queue", ">s3cret", *access.split())
        client.execute_command("ACL SETUSER", "nobody", ">s3cret", *off.split())
        queue = Queue(client_of(server.url.replace("//", "//queue:s3cret@")), "meanwhile")
        assert len(queue.look([Task("acme", "a")])) == 1
        call: Any = queue._client.execute_command
        for words in ("ZCARD {other:acme}", "GET {meanwhile:acme}", "FLUSHALL"):
            with pytest.raises(NoPermissionError):
                call(*words.split())


def test_a_client_without_a_name_may_do_nothing() -> None:
    assert of("DefaultUser")["UserName"] == "default"
    assert of("DefaultUser")["AccessString"] == "off -@all"
    assert of("Users")["UserIds"] == [{"Ref": "QueueUser"}, {"Ref": "DefaultUser"}]
    assert of("Cache")["UserGroupId"] == {"Ref": "Users"}
    assert {user["AuthenticationMode"]["Type"] for user in all_of("AWS::ElastiCache::User").values()} == {"password"}


@pytest.mark.parametrize("name", [*all_of("AWS::ElastiCache::User"), "Users", "Cache"])
def test_all_is_valkeys(name: str) -> None:
    assert of(name)["Engine"] == "valkey"


def test_names_are_as_elasticache_takes_them() -> None:
    longest = "a" * int(PARAMETERS["CacheName"]["MaxLength"])
    ids = [filled(user["UserId"]["Fn::Sub"], CacheName=longest) for user in all_of("AWS::ElastiCache::User").values()]
    assert len(set(ids)) == 2
    assert all(len(one) <= 40 for one in ids)
    pattern = PARAMETERS["CacheName"]["AllowedPattern"]
    assert [bool(re.fullmatch(pattern, one)) for one in ("meanwhile", "a-b", "A", "a--b", "a-", "1a")] == [
        True, True, False, False, False, False
    ]  # fmt: skip


# --- who reaches it


def test_only_the_functions_reach_the_cache_and_the_endpoint() -> None:
    rules = [
        (name, rule) for name, one in all_of("AWS::EC2::SecurityGroup").items()
        for rule in one.get("SecurityGroupIngress", [])
    ]  # fmt: skip
    assert {name for name, _ in rules} == {"CacheGroup", "SqsGroup"}
    assert all(rule["SourceSecurityGroupId"] == group("FunctionsGroup") for _, rule in rules)
    assert not any("CidrIp" in rule for _, rule in rules)
    assert of("Cache")["SecurityGroupIds"] == [group("CacheGroup")]


def test_the_functions_reach_the_cache_and_https_and_nothing_else() -> None:
    [https] = of("FunctionsGroup")["SecurityGroupEgress"]
    assert (https["FromPort"], https["ToPort"], https["CidrIp"]) == (443, 443, ANYWHERE)
    cache, way = of("FunctionsToCache"), of("CacheGroup")["SecurityGroupIngress"][0]
    assert (cache["GroupId"], cache["DestinationSecurityGroupId"]) == (group("FunctionsGroup"), group("CacheGroup"))
    assert (cache["FromPort"], cache["ToPort"]) == (way["FromPort"], way["ToPort"]) == (6379, 6380)


@pytest.mark.parametrize("name", ["CacheGroup", "SqsGroup"])
def test_what_is_reached_goes_nowhere_itself(name: str) -> None:
    assert [rule["CidrIp"] for rule in of(name)["SecurityGroupEgress"]] == ["127.0.0.1/32"]


def test_the_functions_and_the_cache_are_in_two_zones_without_a_way_in() -> None:
    assert of("Cache")["SubnetIds"] == PRIVATE
    zones = [json.dumps(of(subnet["Ref"])["AvailabilityZone"]) for subnet in PRIVATE]
    assert len(set(zones)) == 2
    assert not any(one.get("MapPublicIpOnLaunch") for one in all_of("AWS::EC2::Subnet").values())
    blocks = [json.dumps(one["CidrBlock"]) for one in all_of("AWS::EC2::Subnet").values()]
    assert len(set(blocks)) == len(blocks) == 3
    associations = all_of("AWS::EC2::SubnetRouteTableAssociation").values()
    tables = {one["SubnetId"]["Ref"]: one["RouteTableId"] for one in associations}
    assert tables == {
        "PrivateSubnetOne": {"Ref": "PrivateRoutes"},
        "PrivateSubnetTwo": {"Ref": "PrivateRoutes"},
        "PublicSubnet": {"Ref": "PublicRoutes"},
    }


def test_providers_and_aws_are_reached_through_one_nat_and_the_table_and_bucket_beside_it() -> None:
    routes = {one["RouteTableId"]["Ref"]: one for one in all_of("AWS::EC2::Route").values()}
    assert routes["PrivateRoutes"]["NatGatewayId"] == {"Ref": "Nat"}
    assert routes["PublicRoutes"]["GatewayId"] == {"Ref": "InternetGateway"}
    assert len(all_of("AWS::EC2::NatGateway")) == 1
    assert of("Nat")["SubnetId"] == {"Ref": "PublicSubnet"}
    for name, service in (("DynamoDbEndpoint", "dynamodb"), ("S3Endpoint", "s3")):
        assert of(name)["VpcEndpointType"] == "Gateway"
        assert of(name)["ServiceName"]["Fn::Sub"].endswith(f".{service}")
        assert of(name)["RouteTableIds"] == [{"Ref": "PrivateRoutes"}]


def test_wake_ups_go_by_an_endpoint_of_their_own_unless_switched_off() -> None:
    assert RESOURCES["SqsInterface"]["Condition"] == RESOURCES["SqsGroup"]["Condition"] == "SqsHasEndpoint"
    assert PARAMETERS["SqsEndpoint"]["Default"] == "true"
    endpoint = of("SqsInterface")
    assert (endpoint["PrivateDnsEnabled"], endpoint["SubnetIds"]) == (True, PRIVATE)
    assert of("Vpc")["EnableDnsHostnames"] is of("Vpc")["EnableDnsSupport"] is True


def test_a_link_of_a_providers_to_its_own_bucket_is_not_refused_on_the_way() -> None:
    assert "PolicyDocument" not in of("S3Endpoint")
    for name in ("DynamoDbEndpoint", "SqsInterface"):
        [statement] = of(name)["PolicyDocument"]["Statement"]
        assert statement["Condition"] == {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}}


# --- what it costs


def test_the_bill_has_an_end() -> None:
    limits = of("Cache")["CacheUsageLimits"]
    assert limits["DataStorage"] == {"Unit": "GB", "Maximum": {"Ref": "MaxGigabytes"}}
    assert limits["ECPUPerSecond"] == {"Maximum": {"Ref": "MaxEcpuPerSecond"}}
    assert (PARAMETERS["MaxGigabytes"]["MinValue"], PARAMETERS["MaxEcpuPerSecond"]["MinValue"]) == (1, 1000)
    assert all(PARAMETERS[name]["Default"] for name in ("MaxGigabytes", "MaxEcpuPerSecond"))


def test_one_key_encrypts_all_that_is_kept_where_it_is_given() -> None:
    key = {"Fn::If": ["KeyIsGiven", {"Ref": "KmsKeyArn"}, {"Ref": "AWS::NoValue"}]}
    assert [name for name, one in RESOURCES.items() if one.get("Properties", {}).get("KmsKeyId") == key] == [
        "Cache",
        "Password",
        "Url",
    ]


# --- how it is deployed


def test_nothing_is_deployed_in_guided_mode_and_both_templates_are_linted() -> None:
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--guided" not in made
    assert made.index("local.deploy.ask") < made.index("local.deploy.preflight\n\t$(SAM_DEPLOY)")
    assert "validate --lint --template cache.yaml" in made
    assert "cfn-lint template.yaml cache.yaml" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_page_on_operations_tells_of_every_parameter_of_the_cache() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [name for name in PARAMETERS if f"`{name}`" not in page] == []
