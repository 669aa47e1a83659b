"""The parameters of a deployment in samconfig.toml, where `sam deploy` reads them: what is given there, and kept."""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local import ROOT, sam_template
from shared.errors import MeanwhileError

FILE = ROOT / "samconfig.toml"
_HEAD = re.compile(r"^\[default\.deploy\.parameters\][^\n]*\n", re.MULTILINE)
_KEY = re.compile(r"^parameter_overrides\s*=", re.MULTILINE)


class ConfigError(MeanwhileError):
    """samconfig.toml is not as it must be; the message says what to do."""


def options(config: Path, environment: str = "default") -> dict[str, Any]:
    """What that file says to `sam deploy` when called without options, but for that. Raises ConfigError."""
    try:
        known = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{config.name}: {error}") from error
    found: dict[str, Any] = known.get(environment, {}).get("deploy", {}).get("parameters", {})
    return found


def told(config: Path) -> dict[str, str]:
    """The template's parameters that the file gives, in any of SAM's ways to write them. Raises ConfigError."""
    return _read(options(config).get("parameter_overrides", []))


def _read(written: Any) -> dict[str, str]:
    if isinstance(written, dict):
        return {name: str(value) for name, value in written.items()}
    texts = [written] if isinstance(written, str) else written
    pairs = [pair for text in texts for pair in shlex.split(str(text))]
    try:
        named = (pair.removeprefix("ParameterKey=").replace(",ParameterValue=", "=", 1) for pair in pairs)
        return dict(pair.split("=", 1) for pair in named)
    except ValueError as error:
        raise ConfigError("samconfig.toml: parameter_overrides must be Name=value pairs") from error


def stack_name(config: Path, environment: str = "default") -> str:
    """The name of the stack that is deployed by that file. Raises ConfigError."""
    if not (name := options(config, environment).get("stack_name")):
        raise ConfigError(f"{config.name} has no stack_name in [{environment}.deploy.parameters]")
    return str(name)


def as_sam(config: Path, environment: str = "default") -> None:
    """Have AWS asked in the region and with the profile that this file gives to SAM."""
    for option, variable in (("region", "AWS_DEFAULT_REGION"), ("profile", "AWS_PROFILE")):
        if chosen := options(config, environment).get(option):
            os.environ[variable] = str(chosen)


def parameters(own: Mapping[str, str]) -> dict[str, str]:
    """All parameters of a deployment that is told these: the others have the template's defaults."""
    declared = sam_template.template()["Parameters"]
    return {name: str(one["Default"]) for name, one in declared.items() if "Default" in one} | dict(own)


def keep(config: Path, values: Mapping[str, str]) -> None:
    """Write parameters into the file beside those that it has; nothing else in it changes. Raises ConfigError."""
    wanted = told(config) | dict(values)
    text = "\n".join(config.read_text(encoding="utf-8").splitlines()) + "\n"
    if not (head := _HEAD.search(text)):
        raise ConfigError(f"{config.name} has no section [default.deploy.parameters] to write parameters into")
    start, end = _place(text, head.end())
    for block in (_with(text[start:end], values), _whole(wanted)):  # the former keeps comments in a list
        renewed = text[:start] + block + text[end:]
        if _read(_overrides(renewed)) == wanted:
            config.write_text(renewed, encoding="utf-8")
            return
    raise ConfigError(f"{config.name}: write parameter_overrides as a list, for it cannot be changed as it is")


def _whole(values: Mapping[str, str]) -> str:
    return f"parameter_overrides = [\n{''.join(map(_line, values, values.values()))}]\n"


def _with(block: str, values: Mapping[str, str]) -> str:
    """The list with these values, where it has a line for each parameter and one for its end."""
    names = "|".join(map(re.escape, values))
    lines = [line for line in block.splitlines(keepends=True) if not re.match(rf"\s*[\"'](?:{names})=", line)]
    return "".join([*lines[:-1], *map(_line, values, values.values()), *lines[-1:]])


def _line(name: str, value: str) -> str:
    return f"    {json.dumps(_pair(name, value), ensure_ascii=False)},\n"


def _place(text: str, start: int) -> tuple[int, int]:
    """Where the list of parameters stands in this section, or is to be put: behind the section's last line."""
    following = re.search(r"^\[", text[start:], re.MULTILINE)
    end = start + following.start() if following else len(text)
    if not (key := _KEY.search(text, start, end)):
        lines = [found.end() for found in re.finditer(r"^[^#\s].*\n", text[start:end], re.MULTILINE)]
        return (place := start + (lines[-1] if lines else 0)), place
    ends = [key.start() + found.end() for found in re.finditer("\n", text[key.start() :])]
    return key.start(), next(place for place in ends if _is_whole(text[key.start() : place]))


def _is_whole(text: str) -> bool:
    try:
        tomllib.loads(text)
    except ValueError:
        return False
    return True


def _overrides(text: str) -> Any:
    try:
        return tomllib.loads(text)["default"]["deploy"]["parameters"]["parameter_overrides"]
    except (ValueError, KeyError):
        return []


def _pair(name: str, value: str) -> str:
    """One parameter as SAM reads it."""
    plain = re.fullmatch(r"[^\s\"'\\]+", value)
    return f"{name}={value}" if plain else f'{name}="{value.replace(chr(34), chr(92) + chr(34))}"'
