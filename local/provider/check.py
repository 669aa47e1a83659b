"""Checks a provider file: what the schema says, what production refuses, and what is likely not meant."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jsonschema

from local import ROOT
from local.provider.explain import sentences
from local.provider.warnings import doubts
from shared.codec import Json, loads
from shared.errors import ProviderFileError
from shared.provider.files import CONVERSATIONS
from shared.provider.language.operation import DEFAULT_TIMEOUT_SECONDS
from shared.provider.language.rules import Rules
from shared.provider.language.security import ApiKey
from shared.settings import Settings
from shared.task import is_provider_name

SCHEMA = ROOT / "docs" / "provider.schema.json"


@dataclass(frozen=True, slots=True)
class Report:
    """What is to be said of a file: faults make it unusable, warnings do not. Without faults, what it will do."""

    path: Path
    faults: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The report for people."""
        if self.faults:
            yield from (f"{self.path}: {fault}" for fault in self.faults)
            yield f"{self.path}: {len(self.faults)} fault{'s' if len(self.faults) > 1 else ''}"
            return
        yield f"{self.path}: sound"
        yield from (f"  {sentence}" for sentence in self.sentences)
        yield from (f"  warning: {warning}" for warning in self.warnings)


def check(path: Path, settings: Settings) -> Report:
    """The report on a file, as a deployment with these settings would run it."""
    if path.name.endswith(CONVERSATIONS):
        return Report(path, ("holds conversations, by its name; `replay` is for them",))
    try:
        value = loads(path.read_bytes(), unique_keys=True)
    except (OSError, ValueError) as error:
        return Report(path, (f"cannot be read: {error}",))
    faults = [] if is_provider_name(path.stem) else [_BAD_NAME]
    try:
        rules = Rules.from_json(value, settings.provider_servers.get(path.stem))
    except ProviderFileError as error:
        faults += error.faults
        return Report(path, tuple(faults + list(_schema_faults(value, faults))))
    faults += [*_schema_faults(value, faults), *_contradictions(rules, settings)]
    if faults:
        return Report(path, tuple(faults))
    told = tuple(sentences(rules, settings.first_answer_seconds))
    return Report(path, (), tuple(doubts(rules, settings)), told)


_BAD_NAME = "the file's name becomes the provider's: 1 to 64 of a-z, 0-9, '_' and '-', then .json"


def _schema_faults(value: Json, known: list[str]) -> Iterator[str]:
    """What the schema refuses at places where the rules have found nothing."""
    places = [fault.partition(": ")[0] for fault in known]
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for error in jsonschema.Draft202012Validator(schema).iter_errors(value):
        best = jsonschema.exceptions.best_match([error])
        if best and not any(place.startswith(error.json_path) for place in places):
            yield f"{best.json_path}: {best.message}"


def _contradictions(rules: Rules, settings: Settings) -> Iterator[str]:
    """What cannot work although each part is sound."""
    yield from _unset_outputs(rules)
    for place, operation in rules.operations():
        late = operation.timeout_seconds > settings.attempt_seconds
        if late and operation.timeout_seconds != DEFAULT_TIMEOUT_SECONDS:
            attempt = f"a whole attempt may take (ATTEMPT_SECONDS, {settings.attempt_seconds:g} s)"
            yield f"{place}.timeout: {operation.timeout_seconds:g} s is longer than {attempt}"
    headers = [(one.name if isinstance(one, ApiKey) else "Authorization").lower() for one in rules.security]
    for header in sorted({name for name in headers if headers.count(name) > 1}):
        yield f"$.security: {header} is set twice; a request has it once"


def _unset_outputs(rules: Rules) -> Iterator[str]:
    """Outputs that somebody reads and nobody sets."""
    stored = {name for operation in (*rules.submit, *filter(None, [rules.poll])) for name in operation.outputs}
    every = stored | {name for operation in rules.result for name in operation.outputs}
    for place, operation in rules.operations():
        has = every if place.startswith("$.result") else stored
        for part, expression in operation.placed():
            for root, name in sorted(expression.references, key=str):
                if root == "outputs" and name is not None and name not in has:
                    there = f"there are {', '.join(sorted(has))}" if has else "no operation has outputs"
                    yield f"{place}.{part}: ${{{expression.text}}}: nothing sets the output {name!r}; {there}"
