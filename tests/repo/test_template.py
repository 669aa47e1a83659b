"""What the template promises: routes, rhythm, limits, rights and the table, read from template.yaml itself."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from local import ROOT, sam_template
from local.aws.stream import passes
from shared.api import wait
from shared.api.enqueue import RESERVE_SECONDS
from shared.api.preference import LONGEST_WAIT_SECONDS
from shared.errors import SettingsError
from shared.settings import NOTIFY_KINDS, SCHEDULE_SECONDS, Settings
from shared.store.spill import CALL_SECONDS
from tests.support.cloudformation import Values, translated

GATEWAY_SECONDS = 29  # API Gateway gives up on an integration after this

FUNCTIONS = {
    "EnqueueFunction": "enqueue", "ProcessFunction": "process", "ReconcileFunction": "reconcile",
    "CallbackFunction": "callback", "NotifyFunction": "notify", "StatusFunction": "status",
}  # fmt: skip
ROUTES = {
    "GET /", "POST /tasks", "POST /tasks/batch", "GET /tasks", "DELETE /tasks", "GET /tasks/{provider}/{name}",
    "DELETE /tasks/{provider}/{name}", "POST /tasks/revive", "DELETE /erase", "DELETE /erase/{provider}/{name}",
}  # fmt: skip
LOOKS = {"GET /tasks", "GET /tasks/{provider}/{name}"}
CALLBACKS = {f"{method} /callbacks/{{provider}}/{{token}}" for method in ("POST", "GET")}
QUEUE_URL = "https://sqs.us-east-1.amazonaws.com/123456789012/wake"
# Known to botocore rather than to us.
FOREIGN_VARIABLES = {"AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_SQS"}


TEMPLATE = sam_template.template()
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
GLOBALS: dict[str, Any] = TEMPLATE["Globals"]["Function"]
PARAMETERS: dict[str, Any] = TEMPLATE["Parameters"]


def properties(name: str) -> dict[str, Any]:
    """A resource's properties, the functions' with the global ones under them."""
    resource = RESOURCES[name]
    own: dict[str, Any] = resource["Properties"]
    return GLOBALS | own if resource["Type"] == "AWS::Serverless::Function" else own


def events(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every event of that kind, with the function that it starts."""
    for function in FUNCTIONS:
        for event in properties(function).get("Events", {}).values():
            if event["Type"] == kind:
                yield function, event["Properties"]


def variables(**choices: str) -> dict[str, str]:
    """The functions' environment as deployed with these parameters, all others left at their defaults."""
    values = Values(choices, {"WakeQueue": QUEUE_URL}).of(GLOBALS["Environment"]["Variables"])
    return {name: str(value) for name, value in values.items()}


def deployed(**choices: str) -> Settings:
    return Settings.from_environment(variables(**choices))


# --- the API


def test_enqueue_serves_every_route_but_callbacks_and_looks() -> None:
    routes = [(function, f"{event['Method']} {event['Path']}") for function, event in events("Api")]
    served = [("EnqueueFunction", route) for route in ROUTES - LOOKS]
    assert sorted(routes) == sorted([*served, *(("CallbackFunction", route) for route in CALLBACKS)])
    assert all(event["RestApiId"] == {"Ref": "Api"} for _, event in events("Api"))


def test_looks_are_served_by_a_function_of_their_own_where_they_may_wait_and_else_by_enqueue() -> None:
    arns = [{"Fn::GetAtt": f"{name}Function.Arn"} for name in ("Status", "Enqueue")]
    paths = properties("Api")["DefinitionBody"]["paths"]
    assert {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} == LOOKS
    for methods in paths.values():
        integration = methods["get"]["x-amazon-apigateway-integration"]
        assert (integration["type"], integration["httpMethod"]) == ("aws_proxy", "POST")
        uri, names = integration["uri"]["Fn::Sub"]
        assert uri.endswith(":lambda:path/2015-03-31/functions/${Function}/invocations")
        assert names == {"Function": {"Fn::If": ["StatusWaits", *arns]}}
    assert properties("Api")["MergeDefinitions"] is True
    permission = properties("LookPermission")
    assert (permission["Action"], permission["Principal"]) == ("lambda:InvokeFunction", "apigateway.amazonaws.com")
    names = {"Fn::If": ["StatusWaits", {"Ref": "StatusFunction"}, {"Ref": "EnqueueFunction"}]}
    assert permission["FunctionName"] == names
    assert permission["SourceArn"]["Fn::Sub"].endswith(":${Api}/*/GET/tasks*")


def test_a_caller_is_told_to_come_back_where_lambda_has_no_room() -> None:
    """API Gateway's own answer would be 500."""
    condition, answers, otherwise = properties("Api")["DefinitionBody"]["x-amazon-apigateway-gateway-responses"][
        "Fn::If"
    ]
    assert (condition, otherwise) == ("StatusWaits", {"Ref": "AWS::NoValue"})
    answer = answers["INTEGRATION_FAILURE"]
    assert answer["statusCode"] == "503"
    assert answer["responseParameters"] == {"gatewayresponse.header.Retry-After": "'1'"}  # a literal is in quotes
    assert json.loads(answer["responseTemplates"]["application/json"])["status"] == 503


def test_no_request_passes_unsigned_but_a_callback() -> None:
    assert properties("Api")["Auth"]["DefaultAuthorizer"] == "AWS_IAM"
    of_their_own = [(function, event["Auth"]) for function, event in events("Api") if "Auth" in event]
    assert of_their_own == [("CallbackFunction", {"Authorizer": "NONE"})] * 2
    looks = [methods["get"] for methods in properties("Api")["DefinitionBody"]["paths"].values()]
    assert [look["security"] for look in looks] == [[{"AWS_IAM": []}]] * 2


def test_a_route_that_comes_with_a_parameter_reaches_the_stage() -> None:
    assert RESOURCES["CallbackFunction"]["Condition"] == "CallbacksAreOn"
    assert properties("Api")["AlwaysDeploy"] is True


def test_a_caller_needs_no_right_to_invoke_the_function_itself() -> None:
    assert properties("Api")["Auth"]["InvokeRole"] == "NONE"


def test_every_method_is_throttled() -> None:
    (settings,) = properties("Api")["MethodSettings"]
    assert (settings["ResourcePath"], settings["HttpMethod"]) == ("/*", "*")
    rate, burst = settings["ThrottlingRateLimit"]["Ref"], settings["ThrottlingBurstLimit"]["Ref"]
    assert 0 < PARAMETERS[rate]["Default"] <= PARAMETERS[burst]["Default"]


@pytest.mark.parametrize("route", sorted(ROUTES | CALLBACKS))
def test_there_is_a_sample_event_of_each_shape_for_each_route(route: str) -> None:
    method, path = route.split()
    name = "callback" if route in CALLBACKS else "enqueue"
    samples = {file.name: json.loads(file.read_text()) for file in (ROOT / "events").glob(f"{name}-*.json")}
    rest = [one for one, event in samples.items() if (event.get("httpMethod"), event.get("resource")) == (method, path)]
    http = [one for one, event in samples.items() if event.get("routeKey") == route]
    assert [one.startswith(f"{name}-rest-") for one in rest] == [True]
    assert [one.startswith(f"{name}-http-") for one in http] == [True]


def test_each_sample_event_belongs_to_a_function() -> None:
    names = [file.name for file in (ROOT / "events").glob("*.json")]
    assert {name.partition("-")[0] for name in names} == set(FUNCTIONS.values())


# --- the rhythm


def test_schedules_are_texts_that_eventbridge_accepts() -> None:
    rates = {function: event["Schedule"] for function, event in events("Schedule")}
    assert rates == {"ProcessFunction": "rate(1 minute)", "ReconcileFunction": "rate(5 minutes)"}
    assert SCHEDULE_SECONDS == 60  # callers are told so
    assert all(re.fullmatch(r"rate\((1 minute|([2-9]|[1-9]\d+) minutes)\)", rate) for rate in rates.values())


def test_neither_the_rule_nor_the_invocation_retries_a_failed_tick() -> None:
    for function, event in events("Schedule"):
        assert event["RetryPolicy"]["MaximumRetryAttempts"] == 0
        assert properties(function)["EventInvokeConfig"]["MaximumRetryAttempts"] == 0


@pytest.mark.promise("submits", "enqueue cannot outlive its lease")
def test_enqueue_ends_before_its_lease_and_before_the_gateway_gives_up() -> None:
    timeout = properties("EnqueueFunction")["Timeout"]
    assert timeout < deployed().lease_seconds
    assert timeout < GATEWAY_SECONDS


def test_enqueue_has_time_to_store_and_settle_after_the_longest_first_answer() -> None:
    longest = PARAMETERS["FirstAnswerSeconds"]["MaxValue"]
    assert properties("EnqueueFunction")["Timeout"] >= longest + RESERVE_SECONDS + CALL_SECONDS


def test_process_has_time_for_its_window_one_more_attempt_and_settling() -> None:
    settings = deployed()
    assert properties("ProcessFunction")["Timeout"] == settings.window_seconds + settings.attempt_seconds + 10


def test_status_has_time_to_read_and_answer_after_the_longest_wait_and_before_the_gateway_gives_up() -> None:
    longest = deployed(StatusConcurrency="10").status_wait_seconds
    assert longest == LONGEST_WAIT_SECONDS
    assert longest + wait.RESERVE_SECONDS + CALL_SECONDS <= properties("StatusFunction")["Timeout"] < GATEWAY_SECONDS


def test_no_look_waits_unless_asked_for_and_those_that_do_have_a_concurrency_of_their_own() -> None:
    assert PARAMETERS["StatusConcurrency"]["Default"] == deployed().status_wait_seconds == 0
    assert TEMPLATE["Conditions"]["StatusWaits"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "StatusConcurrency"}, 0]}]}
    assert RESOURCES["StatusFunction"]["Condition"] == "StatusWaits"
    assert properties("StatusFunction")["ReservedConcurrentExecutions"] == {"Ref": "StatusConcurrency"}


def test_reconcile_ends_before_its_next_run() -> None:
    assert properties("ReconcileFunction")["Timeout"] == 60


# --- what the functions are told


def test_functions_get_only_variables_that_someone_reads() -> None:
    known = {name.upper() for name in Settings.__dataclass_fields__}
    assert set(variables()) - FOREIGN_VARIABLES <= known


def test_a_deployment_with_default_parameters_has_the_default_settings() -> None:
    assert deployed() == Settings(
        redis_tls="required",
        table_name="Table",
        queue_prefix="stack",
        spill_bucket="SpillBucket",
        wake_queue_url=QUEUE_URL,
        provider_servers={},
    )


@pytest.mark.parametrize("bound", ["MinValue", "MaxValue"])
def test_settings_accept_the_least_and_the_most_that_the_template_accepts(bound: str) -> None:
    choices = {name: str(parameter[bound]) for name, parameter in PARAMETERS.items() if bound in parameter}
    assert deployed(**choices).parallel_tasks == int(choices["ParallelTasks"])


def test_settings_accept_each_way_to_say_where_redis_is() -> None:
    secret = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis-AbCdEf#url"
    assert deployed(RedisUrlSecret=secret).redis_url == f"secretsmanager:{secret}"
    assert deployed(RedisUrlParameter="/meanwhile/redis-url").redis_url == "ssm:/meanwhile/redis-url"
    assert deployed(RedisUrl="rediss://:word@redis.example:6380/0").redis_url == "rediss://:word@redis.example:6380/0"


def test_a_deployment_that_names_no_redis_is_refused() -> None:
    (assertion,) = TEMPLATE["Rules"]["RedisIsNamed"]["Assertions"]
    asked = {condition["Fn::Not"][0]["Fn::Equals"][0]["Ref"] for condition in assertion["Assert"]["Fn::Or"]}
    assert asked == {"RedisUrl", "RedisUrlSecret", "RedisUrlParameter"}


def test_the_redis_url_is_not_shown_by_the_console() -> None:
    assert PARAMETERS["RedisUrl"]["NoEcho"] is True


def test_functions_join_a_vpc_only_when_subnets_are_given() -> None:
    condition, inside, outside = GLOBALS["VpcConfig"]["Fn::If"]
    assert TEMPLATE["Conditions"][condition] == {
        "Fn::Not": [{"Fn::Equals": [{"Fn::Join": ["", {"Ref": "SubnetIds"}]}, ""]}]
    }
    assert inside == {"SubnetIds": {"Ref": "SubnetIds"}, "SecurityGroupIds": {"Ref": "SecurityGroupIds"}}
    assert outside == {"Ref": "AWS::NoValue"}
    assert PARAMETERS["SubnetIds"]["Default"] == PARAMETERS["SecurityGroupIds"]["Default"] == ""


def test_sam_local_overrides_only_variables_that_the_template_has() -> None:
    overrides = json.loads((ROOT / "local" / "sam-env.json").read_text())
    assert set(overrides) == {"Parameters"}
    assert set(overrides["Parameters"]) <= set(variables())


def test_sam_local_overrides_every_variable_that_a_resource_tells() -> None:
    """It would tell the resource's logical id."""
    overrides = json.loads((ROOT / "local" / "sam-env.json").read_text())["Parameters"]
    raw = GLOBALS["Environment"]["Variables"]
    told = {name for name, value in raw.items() for one in RESOURCES if f"'Ref': '{one}'" in str(value)}
    assert told == {"TABLE_NAME", "SPILL_BUCKET", "WAKE_QUEUE_URL"}
    assert told <= overrides.keys()
    Settings.from_environment({name: value for name, value in overrides.items() if not name.startswith("AWS_")})


# --- what the functions are


@pytest.mark.parametrize(("function", "name"), FUNCTIONS.items())
def test_each_function_runs_its_handler_on_the_runtime_the_artifact_is_made_for(function: str, name: str) -> None:
    function_properties = properties(function)
    assert function_properties["Handler"] == f"handlers.{name}.handler"
    assert (ROOT / "handlers" / f"{name}.py").is_file()
    assert function_properties["Runtime"] == "python3.13"
    assert function_properties["Architectures"] == [{"Ref": "Architecture"}]
    assert RESOURCES[function]["Metadata"] == {"BuildMethod": "makefile"}


EVERY_PARAMETER = {
    "RedisUrl": ("rediss://a.example", "rediss://b.example", "EnqueueFunction"),
    "AllowPlainRedis": ("false", "true", "EnqueueFunction"),
    "KmsKeyArn": ("", "arn:aws:kms:eu-north-1:1:key/a", "EnqueueFunction"),
    "PermissionsBoundary": ("", "arn:aws:iam::1:policy/b", "EnqueueRole"),
    "Tracing": ("Active", "PassThrough", "EnqueueFunction"),
    "AccessLogs": ("off", "on", "Apiv1Stage"),
    "WebAclArn": ("", "arn:aws:wafv2:eu-north-1:1:regional/webacl/a/b", "Guard"),
    "EnqueueConcurrency": ("0", "50", "EnqueueFunction"),
    "CallbackConcurrency": ("20", "0", "CallbackFunction"),
    "CallbackSecretArns": ("arn:a", "arn:b", "ReadCallbackKeys"),
    "RedisUrlSecret": ("arn:aws:secretsmanager:eu-north-1:1:secret:a", "", "EnqueueFunction"),
    "RedisUrlParameter": ("/a", "/b", "EnqueueFunction"),
    "SubnetIds": ("subnet-a", "subnet-b", "EnqueueFunction"),
    "SecurityGroupIds": ("sg-a", "sg-b", "EnqueueFunction"),
    "DefaultProvider": ("example", "coin", "EnqueueFunction"),
    "ProviderServers": ("", "coin=https://a.example", "EnqueueFunction"),
    "ProviderSecretArns": ("arn:a", "arn:b", "ReadProviderSecrets"),
    "FirstAnswerSeconds": ("5", "0", "EnqueueFunction"),
    "ParallelTasks": ("20", "40", "ProcessFunction"),
    "MaxWorkers": ("4", "1", "ProcessFunction"),
    "ProcessConcurrency": ("0", "8", "ProcessFunction"),
    "WakeUps": ("true", "false", "EnqueueFunction"),
    "Architecture": ("x86_64", "arm64", "ProcessFunction"),
    "CallbackUrl": ("", "https://api.example", "EnqueueFunction"),
    "EventBus": ("a", "b", "Ends"),
    "StateMachineArns": ("", "arn:a", "EnqueueFunction"),
    "DurableFunctionArns": ("", "arn:a", "EnqueueFunction"),
    "StatusConcurrency": ("0", "10", "EnqueueFunction"),
    "RetentionSeconds": ("2592000", "3600", "ProcessFunction"),
    "SpillDays": ("90", "60", "ProcessFunction"),
    "LogRetentionDays": ("30", "60", "EnqueueLogs"),
    "ApiRateLimit": ("50", "60", "Apiv1Stage"),
    "ApiBurstLimit": ("100", "120", "Apiv1Stage"),
}
"""Two values of each parameter, and a resource that must change from one to the other."""


def test_every_parameter_is_tried() -> None:
    assert EVERY_PARAMETER.keys() == PARAMETERS.keys()


@pytest.mark.parametrize(("parameter", "one", "other", "changes"), [(k, *v) for k, v in EVERY_PARAMETER.items()])
def test_a_changed_parameter_goes_live_although_the_code_is_the_same(
    parameter: str, one: str, other: str, changes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAM makes versions by code, so settings that stand in a version would stay as they were."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    around = {"SecurityGroupIds": {"SubnetIds": "subnet-z"}}
    around |= {name: {"CallbackUrl": "https://api.example"} for name in ("CallbackConcurrency", "CallbackSecretArns")}
    before, after = (
        Values(around.get(parameter, {}) | {parameter: value}).resources(translated({parameter: value})["Resources"])
        for value in (one, other)
    )
    changed = {name for name in before.keys() | after if before.get(name) != after.get(name)}
    assert changes in changed
    kinds = {resource["Type"] for resource in [*before.values(), *after.values()]}
    assert not kinds & {"AWS::Lambda::Version", "AWS::Lambda::Alias"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_is_traced_and_its_logs_end(function: str) -> None:
    assert properties(function)["Tracing"] == {"Ref": "Tracing"}
    name = properties(function)["LoggingConfig"]["LogGroup"]["Ref"]
    assert RESOURCES[name]["DeletionPolicy"] == RESOURCES[name]["UpdateReplacePolicy"] == "Retain"
    group = properties(name)
    assert "LogGroupName" not in group  # a stack that comes again under its name would meet the one that was kept
    assert group["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    assert PARAMETERS["LogRetentionDays"]["Default"] in PARAMETERS["LogRetentionDays"]["AllowedValues"]


def test_functions_share_no_log_group() -> None:
    assert len({properties(function)["LoggingConfig"]["LogGroup"]["Ref"] for function in FUNCTIONS}) == len(FUNCTIONS)


# --- wake-ups


def test_wake_ups_are_on_unless_switched_off() -> None:
    assert deployed().wake_queue_url == QUEUE_URL
    assert deployed(WakeUps="false").wake_queue_url == ""
    for name in ("WakeQueue", "WakeMapping", "SendWakeUps"):
        assert RESOURCES[name]["Condition"] == "WakeUpsAreOn"


def test_a_wake_up_is_given_to_one_run_and_forgotten_soon() -> None:
    queue = properties("WakeQueue")
    assert queue["VisibilityTimeout"] > properties("ProcessFunction")["Timeout"]
    assert queue["MessageRetentionPeriod"] == 300
    assert "RedrivePolicy" not in queue  # the schedule makes up for it
    assert "FifoQueue" not in queue  # such a one cannot delay single messages


def test_the_mapping_waits_for_no_more_messages_and_starts_as_many_runs_as_there_may_be_workers() -> None:
    mapping = properties("WakeMapping")
    assert mapping["FunctionName"] == {"Ref": "ProcessFunction"}
    assert (mapping["BatchSize"], mapping.get("MaximumBatchingWindowInSeconds", 0)) == (10, 0)
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": {"Fn::If": ["OneWorker", 2, {"Ref": "MaxWorkers"}]}}
    assert TEMPLATE["Conditions"]["OneWorker"] == {"Fn::Equals": [{"Ref": "MaxWorkers"}, 1]}


def test_a_run_may_wake_the_next_for_ever() -> None:
    """Lambda ends a chain of a function and its queue after 16 rounds unless it is told that this is meant."""
    assert properties("ProcessFunction")["RecursiveLoop"] == "Allow"


def test_process_may_invite_further_runs_of_itself_and_the_template_is_no_circle() -> None:
    assert properties("InviteFurtherRuns")["Roles"] == [{"Ref": "ProcessRole"}]
    assert "ProcessFunction" not in json.dumps(properties("ProcessRole"))
    assert "InviteFurtherRuns" not in json.dumps(properties("ProcessFunction"))


def test_concurrency_is_reserved_only_where_the_parameter_says_so() -> None:
    assert PARAMETERS["ProcessConcurrency"]["Default"] == 0
    assert TEMPLATE["Conditions"]["ProcessIsReserved"] == {
        "Fn::Not": [{"Fn::Equals": [{"Ref": "ProcessConcurrency"}, 0]}]
    }
    assert properties("ProcessFunction")["ReservedConcurrentExecutions"] == {
        "Fn::If": ["ProcessIsReserved", {"Ref": "ProcessConcurrency"}, {"Ref": "AWS::NoValue"}]
    }


# --- the table


def test_the_table_has_the_key_and_the_index_that_the_store_uses() -> None:
    table = properties("Table")
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    assert types == {"task_id": "S", "open": "S", "updated_at": "N"}
    assert table["KeySchema"] == [{"AttributeName": "task_id", "KeyType": "HASH"}]
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "open"
    keys = [(key["AttributeName"], key["KeyType"]) for key in index["KeySchema"]]
    assert keys == [("open", "HASH"), ("updated_at", "RANGE")]
    assert index["Projection"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["generation"]}


def test_finished_tasks_expire_and_nothing_else_is_lost() -> None:
    table = properties("Table")
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["DeletionProtectionEnabled"] is True
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert RESOURCES["Table"]["DeletionPolicy"] == RESOURCES["Table"]["UpdateReplacePolicy"] == "Retain"


# --- pushing


def test_requests_may_name_the_workflows_whose_arns_are_given_and_no_others() -> None:
    assert deployed().notify == ()
    assert deployed(StateMachineArns="arn").notify == ("stepFunctionsToken",)
    assert deployed(DurableFunctionArns="arn").notify == ("durableCallbackId",)
    assert deployed(StateMachineArns="a", DurableFunctionArns="b").notify == tuple(NOTIFY_KINDS)


def test_providers_are_given_urls_once_it_is_known_where_they_lead() -> None:
    settings = deployed(CallbackUrl="https://api.example.com")
    assert settings.callback_url == "https://api.example.com"
    assert settings.callback_secret == "secretsmanager:CallbackSecret"


def test_the_stream_tells_what_was_there_and_what_is() -> None:
    assert properties("Table")["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}


OPEN, WAITED = {"open": {"S": "example#1"}}, {"open": {"S": "example#1"}, "notify": {"SS": ["k:t"]}}
DONE = {"status": {"S": "completed"}}


@pytest.mark.promise("told", "of all changes of an item only ends are told, to all who waited")
@pytest.mark.parametrize(
    ("name", "old", "new", "through"),
    [
        ("INSERT", None, OPEN, (False, False)), ("MODIFY", DONE, OPEN, (False, False)),
        ("MODIFY", OPEN, OPEN, (False, False)), ("MODIFY", OPEN, WAITED, (False, False)),
        ("MODIFY", OPEN, DONE, (True, False)), ("MODIFY", WAITED, DONE, (True, True)),
        ("REMOVE", WAITED, None, (False, True)), ("REMOVE", DONE, None, (False, False)),
    ],
)  # fmt: skip
def test_of_all_changes_only_ends_get_through(name: str, old: Any, new: Any, through: tuple[bool, bool]) -> None:
    change = {"OldImage": old, "NewImage": new}
    event = {"eventName": name, "dynamodb": {key: image for key, image in change.items() if image}}
    assert len(properties("Ends")["SourceParameters"]["FilterCriteria"]["Filters"]) == 1
    assert len(properties("NotifyMapping")["FilterCriteria"]["Filters"]) == 1
    assert tuple(passes(pattern, event) for pattern in sam_template.stream_patterns()) == through


def test_an_event_tells_who_and_when_but_no_data() -> None:
    template_text = properties("Ends")["TargetParameters"]["InputTemplate"]
    fields = dict(re.findall(r'"(\w+)": <\$\.dynamodb\.NewImage\.(\w+\.[SN])>', template_text))
    texts, numbers = ("task_id", "status"), ("generation", "created_at", "completed_at")
    assert fields == {name: f"{name}.S" for name in texts} | {name: f"{name}.N" for name in numbers}
    assert json.loads(re.sub(r"<[^>]*>", "1", template_text)) == dict.fromkeys(fields, 1)


@pytest.mark.promise("told", "what could not be told for long is kept in a queue of its own")
def test_neither_tries_for_ever_and_both_keep_what_they_could_not_tell() -> None:
    pipe, mapping = properties("Ends")["SourceParameters"]["DynamoDBStreamParameters"], properties("NotifyMapping")
    for reader in (pipe, mapping):
        assert 0 < reader["MaximumRetryAttempts"] <= 10
        assert 0 < reader["MaximumRecordAgeInSeconds"] < 86400
        assert reader["StartingPosition"] == "TRIM_HORIZON"
    assert pipe["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": "EndsDeadLetters.Arn"}}
    assert mapping["DestinationConfig"] == {"OnFailure": {"Destination": {"Fn::GetAtt": "NotifyDeadLetters.Arn"}}}
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["FunctionName"] == {"Ref": "NotifyFunction"}


@pytest.mark.parametrize("parameter", ["CallbackUrl", "EventBus", "StateMachineArns", "DurableFunctionArns"])
def test_nothing_is_pushed_unless_asked_for(parameter: str) -> None:
    assert PARAMETERS[parameter]["Default"] == ""


# --- the bucket


def test_the_bucket_is_private_and_kept_with_the_table() -> None:
    bucket = properties("SpillBucket")
    kinds = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    assert bucket["PublicAccessBlockConfiguration"] == dict.fromkeys(kinds, True)
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert RESOURCES["SpillBucket"]["DeletionPolicy"] == RESOURCES["SpillBucket"]["UpdateReplacePolicy"] == "Retain"


def test_the_lifecycle_removes_objects_when_the_functions_think_and_no_item_needs_them() -> None:
    (rule,) = properties("SpillBucket")["LifecycleConfiguration"]["Rules"]
    assert rule["Status"] == "Enabled"
    assert "Prefix" not in rule  # every object
    assert rule["ExpirationInDays"] == GLOBALS["Environment"]["Variables"]["SPILL_DAYS"] == {"Ref": "SpillDays"}
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    days, retention = PARAMETERS["SpillDays"], PARAMETERS["RetentionSeconds"]
    assert (days["Default"] - 1) * 86_400 >= retention["Default"]
    assert (days["MinValue"] - 1) * 86_400 >= retention["MinValue"]


@pytest.mark.promise("large", "an object outlives every completed item that points to it")
def test_functions_refuse_a_lifecycle_that_removes_what_an_item_still_points_to() -> None:
    with pytest.raises(SettingsError, match="SPILL_DAYS"):
        deployed(SpillDays="30", RetentionSeconds=str(30 * 86_400))
    assert deployed(SpillDays="31", RetentionSeconds=str(30 * 86_400)).spill_days == 31


def test_the_outputs_say_where_to_ask_and_what_was_made() -> None:
    outputs = {name: output["Value"] for name, output in TEMPLATE["Outputs"].items()}
    assert f"/{properties('Api')['StageName']}/" in outputs["ApiUrl"]["Fn::Sub"]
    made = {output["Ref"] for name, output in outputs.items() if name != "ApiUrl"}
    always = {function for function in FUNCTIONS if "Condition" not in RESOURCES[function]}
    assert made == {"Table", "SpillBucket", "EndsDeadLetters", "NotifyDeadLetters", *always}
