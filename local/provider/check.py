"""Checks a provider file: what production refuses, what cannot work, and what is likely not meant."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from local.provider import mistakes
from local.provider.advice import advised
from local.provider.explain import sentences
from local.provider.situations import unplayed
from local.provider.violations import violations
from local.provider.warnings import warnings
from shared.codec import Json, loads
from shared.errors import ProviderFileError
from shared.provider.language.faults import faults
from shared.provider.language.rules import CONVERSATIONS, Rules, served
from shared.settings import Settings
from shared.task import is_provider_name


@dataclass(frozen=True, slots=True)
class Report:
    """What is to be said of a file: faults make it unusable, warnings do not. Without faults, what it will do.

    Notes say what was not checked.
    """

    path: Path
    faults: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The report for people."""
        if self.faults:
            yield from (f"{self.path}: {fault}" for fault in self.faults)
            yield f"{self.path}: {len(self.faults)} fault{'s' if len(self.faults) > 1 else ''}"
            return
        yield f"{self.path}: sound"
        yield from (f"  {sentence}" for sentence in self.sentences)
        yield from (f"  warning: {warning}" for warning in self.warnings)
        yield from (f"  note: {note}" for note in self.notes)


def check(path: Path, settings: Settings) -> Report:
    """The report on a file, as a deployment with these settings would run it."""
    if path.name.endswith(CONVERSATIONS):
        return Report(path, ("holds conversations, by its name; `replay` is for them",))
    try:
        value = served(loads(path.read_bytes(), unique_keys=True), settings.provider_servers.get(path.stem))
    except (OSError, ValueError) as error:
        return Report(path, (f"cannot be read: {error}",))
    found = [] if is_provider_name(path.stem) else [_BAD_NAME]
    found += [*violations(value), *faults(value), *mistakes.in_file(value)]
    try:
        rules = Rules.from_json(value)
    except ProviderFileError as error:
        return Report(path, _sorted(found or [str(error)], value))
    found += mistakes.in_rules(rules, settings)
    if found:
        return Report(path, _sorted(found, value))
    told = tuple(sentences(rules, settings.first_answer_seconds))
    return Report(path, (), tuple(warnings(rules, settings)), told, tuple(unplayed(rules)))


def _sorted(found: list[str], file: Json) -> tuple[str, ...]:
    return tuple(map(advised, sorted(found, key=_position(file))))


def _position(file: Json) -> Callable[[str], tuple[int, str]]:
    """Where in the file a fault is, by the key of the file that it is about."""
    keys = list(file) if isinstance(file, dict) else []
    return lambda fault: (
        next((i for i, key in enumerate(keys) if re.match(rf"\$\.{re.escape(key)}\b", fault)), -1),
        fault,
    )


_BAD_NAME = "the file's name becomes the provider's: 1 to 64 of a-z, 0-9, '_' and '-', then .json"
