"""What CloudFormation makes of the template: SAM's translation of it, and its values under given parameters."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

from local import ROOT, sam_template

NOTHING = "AWS::NoValue"
EMPTY: Mapping[str, str] = MappingProxyType({})
ACCOUNT = {
    "AWS::Partition": "aws", "AWS::Region": "eu-north-1", "AWS::AccountId": "123456789012", "AWS::StackName": "stack",
    "AWS::URLSuffix": "amazonaws.com",
}  # fmt: skip


class NoPolicies:
    """SAM asks for AWS's own policies by name; the template names none."""

    def load(self) -> dict[str, str]:
        return {}


def translated(parameters: Mapping[str, str]) -> dict[str, Any]:
    """The template as SAM gives it to CloudFormation for a deployment with these parameters."""
    whole = yaml_parse((ROOT / "template.yaml").read_text(encoding="utf-8"))
    for resource in whole["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = "s3://artifacts/the-same-code"
    made: dict[str, Any] = transform(whole, dict(parameters), NoPolicies())
    return made


class Values:
    """The template's values as deployed with these parameters, all others left at their defaults.

    `known`: what resources refer to as; without that, a resource is its own logical id.
    """

    def __init__(self, parameters: Mapping[str, str], known: Mapping[str, str] = EMPTY) -> None:
        template = sam_template.template()
        defaults = {name: one["Default"] for name, one in template["Parameters"].items() if "Default" in one}
        self._conditions = template["Conditions"]
        self._names = ACCOUNT | dict(known) | defaults | dict(parameters)
        self._lists = [name for name, one in template["Parameters"].items() if one["Type"].endswith("List")]

    def holds(self, condition: str) -> bool:
        """Whether a condition does."""
        return self.of(self._conditions[condition]) is True

    def resources(self, resources: dict[str, Any]) -> dict[str, Any]:
        """Those that are made, with their values."""
        made = {name: one for name, one in resources.items() if "Condition" not in one or self.holds(one["Condition"])}
        return {name: self.of({"Type": one["Type"], "Properties": one["Properties"]}) for name, one in made.items()}

    def of(self, node: Any) -> Any:
        """A value, its functions called."""
        match node:
            case {"Ref": name} if name in self._lists:
                return [part for part in str(self._names[name]).split(",") if part]
            case {"Ref": name}:
                return self._names.get(name, name)
            case {"Condition": str(name)} if len(node) == 1:
                return self.holds(name)
            case {"Fn::If": [condition, then, otherwise]}:
                return self.of(then if self.holds(condition) else otherwise)
            case {"Fn::Equals": [one, other]}:
                return str(self.of(one)) == str(self.of(other))
            case {"Fn::Not": [one]}:
                return not self.of(one)
            case {"Fn::Or": several}:
                return any(map(self.of, several))
            case {"Fn::And": several}:
                return all(map(self.of, several))
            case {"Fn::Join": [between, parts]}:
                return between.join(str(part) for part in self.of(parts))
            case {"Fn::Split": [between, text]}:
                return self.of(text).split(between)
            case {"Fn::Select": [index, several]}:
                return self.of(several)[int(index)]
            case {"Fn::GetAtt": [*path]}:
                return ".".join(path)
            case {"Fn::GetAtt": path}:
                return path
            case {"Fn::Sub": [text, variables]}:
                return self._filled(text, variables)
            case {"Fn::Sub": text}:
                return self._filled(text, {})
            case dict():
                return {key: value for key, one in node.items() if (value := self.of(one)) != NOTHING}
            case list():
                return [value for one in node if (value := self.of(one)) != NOTHING]
        return node

    def _filled(self, text: str, variables: dict[str, Any]) -> str:
        named = {name: self.of(one) for name, one in variables.items()}
        return re.sub(r"\$\{([^}]+)}", lambda found: str(named.get(found[1], self.of({"Ref": found[1]}))), text)
