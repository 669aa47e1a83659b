"""Checks that parameters are known, right for the code, and go together."""

import re
from collections.abc import Iterator, Mapping

from local import sam_template
from local.deploy.finding import Finding, fault, ok
from shared.errors import SettingsError
from shared.settings import Settings

LEAST_WOKEN = 2
"""The least concurrency that Lambda lets a mapping of SQS have."""
REDIS = ("RedisUrlSecret", "RedisUrlParameter", "RedisUrl")
"""The parameters that say where Redis is; the first that is given counts."""
COUNTS = ("Concurrency", "MaxWorkers")
"""How the names of parameters end that count runs."""
_MADE = {"SPILL_BUCKET": "bucket", "TABLE_NAME": "table"}
"""Settings that name what a deployment makes."""


def findings(values: Mapping[str, str], told: Mapping[str, str]) -> Iterator[Finding]:
    """What is to be said of the parameters `values`, of which `told` stand in samconfig.toml."""
    faults = [*_names(told), *_network(values), *_concurrency(values), *_redis(values), *_settings(values)]
    yield from (fault("parameters", said) for said in faults)
    if not faults:
        yield ok("parameters", "known, and they go together")


def redis_reference(values: Mapping[str, str]) -> str:
    """Where Redis is, as the functions are told: a reference, a URL, or nothing."""
    kinds = {"RedisUrlSecret": "secretsmanager:", "RedisUrlParameter": "ssm:", "RedisUrl": ""}
    return next((kinds[name] + values[name] for name in REDIS if values.get(name)), "")


def settings(values: Mapping[str, str]) -> Settings:
    """The settings of a function that is deployed with these parameters. Raises SettingsError."""
    variables = sam_template.template()["Globals"]["Function"]["Environment"]["Variables"]
    known = {name: values[of["Ref"]] for name, of in variables.items() if isinstance(of, dict) and _is_told(of, values)}
    known |= {name: value for name, value in _MADE.items() if name in variables}
    known["CALLBACK_SECRET"] = "secretsmanager:callback" if values.get("CallbackUrl") else ""  # made by the template
    return Settings.from_environment(known)


def _is_told(of: Mapping[str, str], values: Mapping[str, str]) -> bool:
    return of.get("Ref") in values


def _settings(values: Mapping[str, str]) -> Iterator[str]:
    try:
        settings(values)
    except SettingsError as error:
        yield str(error)


def _names(told: Mapping[str, str]) -> Iterator[str]:
    """SAM passes over a name that the template does not have."""
    for name in sorted(told.keys() - sam_template.template()["Parameters"].keys()):
        yield f"samconfig.toml gives {name}, which the template does not have"


def _redis(values: Mapping[str, str]) -> Iterator[str]:
    given = [name for name in REDIS if values.get(name)]
    if not given:
        yield f"nothing says where Redis is: give {', '.join(REDIS[:-1])} or {REDIS[-1]}"
    if len(given) > 1:
        yield f"{' and '.join(given)} both say where Redis is: give one"


def _network(values: Mapping[str, str]) -> Iterator[str]:
    for given, missing in (("SubnetIds", "SecurityGroupIds"), ("SecurityGroupIds", "SubnetIds")):
        if values.get(given) and not values.get(missing):
            yield f"{given} is given without {missing}: both or none"


def _concurrency(values: Mapping[str, str]) -> Iterator[str]:
    wrong = [name for name in values if name.endswith(COUNTS) and not re.fullmatch(r"\d{1,9}", values[name])]
    if wrong:
        yield f"{', '.join(wrong)} must be a number"
        return
    reserved, workers = int(values["ProcessConcurrency"]), int(values["MaxWorkers"])
    needed = workers + (max(LEAST_WOKEN, workers) if values["WakeUps"] == "true" else 0)
    if 0 < reserved < needed:
        for_whom = "MaxWorkers for invited runs and, with WakeUps, as many again, 2 at least, for woken ones"
        yield f"ProcessConcurrency is {reserved}: it must be 0 (none), or at least {needed}: {for_whom}"
