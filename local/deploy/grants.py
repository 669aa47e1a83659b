"""Which secrets provider files name, and whether the functions that need them are granted them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from local import sam_template
from local.deploy.finding import Finding, fault, ok
from shared.provider.language.rules import Rules
from shared.provider.language.security import OAuth2

PROVIDERS, CALLBACKS = "ProviderSecretArns", "CallbackSecretArns"
"""The parameters that grant credentials, and the keys of signatures."""


@dataclass(frozen=True, slots=True)
class Need:
    """A secret that a provider's file names, by reference, and the parameter that must grant it."""

    provider: str
    reference: str
    parameter: str


def needs(rules: Mapping[str, Rules]) -> list[Need]:
    """Every secret that these files name, each once for a provider and a parameter."""
    found = []
    for provider, rule in rules.items():
        credentials = [one.client_secret if isinstance(one, OAuth2) else one.secret for one in rule.security]
        found += [Need(provider, reference, PROVIDERS) for reference in credentials]
        if rule.callback.signature:
            found += [Need(provider, reference, CALLBACKS) for reference in rule.callback.signature.secret]
    return list(dict.fromkeys(found))


def findings(wanted: list[Need], values: Mapping[str, str]) -> Iterator[Finding]:
    """Whether each is granted by its parameter; of variables, whether the functions have them."""
    missing = ungranted(wanted, values)
    for need in missing:
        yield fault(f"provider {need.provider}", f"{need.reference} is not among {need.parameter}")
    variables = sam_template.template()["Globals"]["Function"]["Environment"]["Variables"]
    for need in wanted:
        kind, _, name = need.reference.partition(":")
        if kind == "env" and name not in variables:
            yield fault(
                f"provider {need.provider}", f"{need.reference}: template.yaml gives the functions no such variable"
            )
    if wanted and not missing:
        yield ok("grants", f"the functions may read every secret that a provider file names ({len(wanted)})")


def ungranted(wanted: list[Need], values: Mapping[str, str]) -> list[Need]:
    """Those in SSM or Secrets Manager that no ARN of their parameter covers."""
    return [
        need
        for need in wanted
        if not need.reference.startswith("env:")
        and not any(covers(arn.strip(), need.reference) for arn in values.get(need.parameter, "").split(","))
    ]


def covers(arn: str, reference: str) -> bool:
    """Whether that ARN, which may have IAM's wildcards, is the secret's that a reference names."""
    kind, _, name = reference.partition(":")
    if kind == "ssm":
        return _matches(arn, ("ssm", f"parameter{name}"))
    name = name.partition("#")[0]
    if name.startswith("arn:"):
        name = name.split(":", 6)[6]
        if _matches(arn, ("secretsmanager", f"secret:{name}")):
            return True
    resource = arn.partition(":secret:")[2]  # Secrets Manager adds six characters to a name
    if re.fullmatch(rf"{re.escape(name)}-[A-Za-z0-9]{{6}}", resource):
        return arn.split(":")[2] == "secretsmanager"
    return _matches(arn, ("secretsmanager", f"secret:{name}-AbCdEf"))


def _matches(arn: str, wanted: tuple[str, str]) -> bool:
    """Whether an ARN with wildcards is of that service and resource, in whatever region and account."""
    parts = arn.split(":", 5)
    return len(parts) == 6 and parts[0] == "arn" and all(map(_like, (parts[2], parts[5]), wanted))


def _like(pattern: str, text: str) -> bool:
    signs = {"*": ".*", "?": "."}
    return re.fullmatch("".join(signs.get(sign) or re.escape(sign) for sign in pattern), text) is not None
