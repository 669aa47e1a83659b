"""Reads template.yaml, so that the local stack and the tests use what is deployed: functions, routes, table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from local import ROOT

Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path of the API, and the logical id of the function behind it."""

    method: str
    path: str
    function: str


@dataclass(frozen=True, slots=True)
class Definition:
    """What the template says about one function; `environment` has only the variables whose values it knows.

    `is_reserved`: wherever it is deployed, it has its own concurrency and no more.
    """

    handler: str
    timeout_seconds: float
    environment: Mapping[str, str]
    is_reserved: bool


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags: `!Ref x` becomes {"Ref": "x"}, `!Sub x` {"Fn::Sub": "x"}."""


def _tag(loader: _Loader, suffix: str, node: yaml.Node) -> Node:
    value: object
    match node:
        case yaml.ScalarNode():
            value = loader.construct_scalar(node)
        case yaml.SequenceNode():
            value = loader.construct_sequence(node, deep=True)
        case _:
            assert isinstance(node, yaml.MappingNode)
            value = loader.construct_mapping(node, deep=True)
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _tag)


@cache
def template(file: str = "template.yaml") -> Node:
    """The whole of a template."""
    loaded: Node = yaml.load((ROOT / file).read_text(encoding="utf-8"), _Loader)
    return loaded


def functions() -> dict[str, Definition]:
    """Every function by its logical id."""
    shared = template().get("Globals", {}).get("Function", {})
    return {name: _definition(own, shared) for name, own in _resources("AWS::Serverless::Function").items()}


def routes() -> list[Route]:
    """Every route of the API, as deployed with everything that can be switched on."""
    of_functions = [
        Route(event["Properties"]["Method"].upper(), event["Properties"]["Path"], name)
        for name, properties in _resources("AWS::Serverless::Function").items()
        for event in properties.get("Events", {}).values()
        if event["Type"] == "Api"
    ]
    of_api = [
        Route(method.upper(), path, _switched_on(operation["x-amazon-apigateway-integration"]["uri"]))
        for path, operations in _definition_body()["paths"].items()
        for method, operation in operations.items()
    ]
    return of_functions + of_api


def no_room() -> Node:
    """The API's answer where Lambda has no room for a request: its `statusCode`, `responseParameters`, and so on."""
    _, answers, _ = _definition_body()["x-amazon-apigateway-gateway-responses"]["Fn::If"]
    failure: Node = answers["INTEGRATION_FAILURE"]
    return failure


def table() -> Node:
    """The table's properties."""
    properties: Node = template()["Resources"]["Table"]["Properties"]
    return properties


def wake_queue() -> dict[str, str]:
    """The attributes of the queue of wake-ups, as SQS takes them."""
    properties = template()["Resources"]["WakeQueue"]["Properties"]
    return {name: str(properties[name]) for name in ("VisibilityTimeout", "MessageRetentionPeriod")}


def wake_mapping() -> tuple[int, int]:
    """How many wake-ups one event of process has at most, and how many such runs there are at once."""
    properties = template()["Resources"]["WakeMapping"]["Properties"]
    one_worker, least, most = properties["ScalingConfig"]["MaximumConcurrency"]["Fn::If"]
    assert one_worker == "OneWorker"
    return properties["BatchSize"], max(least, int(_known(most) or 0))


def stream_patterns() -> tuple[Node, Node]:
    """The filters of the table's stream: for what is published as an event, and for the notify function."""
    ends, notify = (template()["Resources"][name]["Properties"] for name in ("Ends", "NotifyMapping"))
    filters = (ends["SourceParameters"]["FilterCriteria"], notify["FilterCriteria"])
    published, notified = (json.loads(one["Filters"][0]["Pattern"]) for one in filters)
    return published, notified


def _resources(kind: str) -> dict[str, Node]:
    return {name: body["Properties"] for name, body in template()["Resources"].items() if body["Type"] == kind}


def _definition_body() -> Node:
    body: Node = template()["Resources"]["Api"]["Properties"]["DefinitionBody"]
    return body


def _switched_on(uri: Node) -> str:
    """The function that an integration leads to where its condition holds."""
    _, variables = uri["Fn::Sub"]
    _, switched_on, _ = variables["Function"]["Fn::If"]
    return str(switched_on["Fn::GetAtt"]).removesuffix(".Arn")


def _definition(properties: Node, shared: Node) -> Definition:
    variables = {
        **shared.get("Environment", {}).get("Variables", {}),
        **properties.get("Environment", {}).get("Variables", {}),
    }
    known = {name: _known(value) for name, value in variables.items()}
    return Definition(
        properties["Handler"],
        float(properties["Timeout"]),
        {name: value for name, value in known.items() if value is not None},
        "Ref" in properties.get("ReservedConcurrentExecutions", {}),
    )


def _known(value: object) -> str | None:
    """The text of a value that is known without a deployment: a literal, or a parameter's default."""
    match value:
        case str() | int() | float():
            return str(value)
        case {"Ref": parameter}:
            default = template().get("Parameters", {}).get(parameter, {}).get("Default")
            return None if default is None else str(default)
        case _:
            return None
