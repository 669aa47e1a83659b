"""The start of `make deploy`: asks on a terminal for what samconfig.toml does not give yet, and writes it there.

Elsewhere it says what is missing, and nothing is deployed.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from local import sam_template
from local.deploy import files, grants, samconfig, stack, values
from local.deploy.grants import Need
from local.deploy.samconfig import ConfigError
from shared.errors import SettingsError
from shared.provider.language.rules import provider_files
from shared.wiring import SHIPPED

Ask = Callable[[str], str]
STORE_IT = (
    "a URL with a password does not belong into a parameter: keep it in a secret or a SecureString, such as\n"
    "    aws ssm put-parameter --type SecureString --name /meanwhile/redis-url --value file://FILE\n"
    "and give its name here"
)


class Missing:
    """What a deployment by these parameters still needs."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self.chosen = dict(chosen)
        self.redis = not values.redis_reference(self.chosen)
        self.groups = bool(chosen.get("SubnetIds")) and not chosen.get("SecurityGroupIds")
        self.grants = self._ungranted()

    def __bool__(self) -> bool:
        return self.redis or self.groups or bool(self.grants)

    def _ungranted(self) -> list[Need]:
        try:
            rules = files.sound(values.settings(self.chosen))
        except SettingsError:
            return []  # which preflight says
        return grants.ungranted(grants.needs(rules), self.chosen)

    def lines(self) -> list[str]:
        """The lines of samconfig.toml that would give it."""
        found = []
        if self.redis:
            found.append('"RedisUrlParameter=/NAME",  # an SSM parameter that holds the URL; or RedisUrlSecret=ARN')
        if self.groups:
            found.append('"SecurityGroupIds=sg-…",  # needed with SubnetIds')
        for parameter, references in self.wanted().items():
            arns = ",".join(filter(None, [self.chosen.get(parameter, ""), *(f"ARN of {one}" for one in references)]))
            found.append(f'"{parameter}={arns}",')
        return found

    def wanted(self) -> dict[str, list[str]]:
        """Secrets that are not granted yet, each once, by the parameter that must name them."""
        found: dict[str, list[str]] = {}
        for need in self.grants:
            references = found.setdefault(need.parameter, [])
            if need.reference not in references:
                references.append(need.reference)
        return found


def answers(missing: Missing, ask: Ask, say: Callable[[str], None] = print) -> dict[str, str]:
    """The parameters that somebody at a terminal gives for what is missing."""
    given: dict[str, str] = {}
    if missing.redis:
        given |= _redis(ask, say)
        given |= _network(missing.chosen, ask, say)
        names = sorted(path.stem for path in provider_files(SHIPPED))
        usual = missing.chosen["DefaultProvider"]
        words = f"Who is asked where a request names no provider? ({', '.join(names)}) [{usual}] "
        given["DefaultProvider"] = _until(ask, say, words, lambda text: text in names, "there is no such file", usual)
    elif missing.groups:
        given["SecurityGroupIds"] = _matching("SecurityGroupIds", "Security groups of the functions: ", ask, say)
    for parameter, references in missing.wanted().items():
        arns = [arn for arn in missing.chosen.get(parameter, "").split(",") if arn]
        arns += [_arn(reference, ask, say) for reference in references]
        given[parameter] = ",".join(dict.fromkeys(arns))
    return given


def _redis(ask: Ask, say: Callable[[str], None]) -> dict[str, str]:
    words = "Where is Redis? The ARN of a secret, or the /name of an SSM parameter, that holds its URL: "
    while True:
        text = ask(words).strip()
        if "://" in text:
            say(STORE_IT)
            continue
        for name in ("RedisUrlSecret", "RedisUrlParameter"):
            if text and _fits(name, text):
                return {name: text}
        say("it begins with arn: and is a secret's, or with /")


def _network(chosen: Mapping[str, str], ask: Ask, say: Callable[[str], None]) -> dict[str, str]:
    usual = chosen.get("SubnetIds", "")
    words = f"Private subnets with a way to it, subnet-…,subnet-… (none: no VPC) [{usual or 'none'}] "
    given = _matching("SubnetIds", words, ask, say, usual)
    if not given:
        return {}
    usual = chosen.get("SecurityGroupIds", "")
    words = f"Security groups of the functions, sg-…,sg-…{f' [{usual}]' if usual else ''}: "
    return {"SubnetIds": given, "SecurityGroupIds": _matching("SecurityGroupIds", words, ask, say, usual or None)}


def _matching(name: str, words: str, ask: Ask, say: Callable[[str], None], usual: str | None = None) -> str:
    begin = {"SubnetIds": "subnet", "SecurityGroupIds": "sg"}[name]
    pattern = rf"{begin}-\w+(,{begin}-\w+)*"
    said = f"they begin with {begin}- and have commas between them"
    text = _until(ask, say, words, lambda text: bool(re.fullmatch(pattern, _dense(text))), said, usual)
    return _dense(text)


def _arn(reference: str, ask: Ask, say: Callable[[str], None]) -> str:
    usual = stack.arn_of(reference) or ""
    words = f"The ARN of {reference}, which a provider file names{f' [{usual}]' if usual else ''}: "
    said = f"that is not the ARN of {reference}"
    return _until(ask, say, words, lambda text: grants.covers(text, reference), said, usual or None)


def _until(
    ask: Ask, say: Callable[[str], None], words: str, right: Callable[[str], bool], said: str, usual: str | None
) -> str:
    """The first answer that is right; an empty one means what is usual, if anything is."""
    while True:
        text = ask(words).strip()
        if not text and usual is not None:
            return usual
        if text and right(text):
            return text
        say(said)


def _dense(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _fits(parameter: str, text: str) -> bool:
    pattern = sam_template.template()["Parameters"][parameter]["AllowedPattern"]
    return re.fullmatch(pattern, text) is not None


def main(arguments: Sequence[str] | None = None, config: Path = samconfig.FILE, ask: Ask | None = None) -> int:
    """0 where samconfig.toml gives all that is needed, by now."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architecture", choices=["x86_64", "arm64"], help="what the functions are to run on")
    architecture = parser.parse_args(arguments).architecture
    try:
        samconfig.as_sam(config)
        if architecture and architecture != samconfig.parameters(samconfig.told(config))["Architecture"]:
            samconfig.keep(config, {"Architecture": architecture})
        return _fill(config, ask or (input if sys.stdin.isatty() else None))
    except ConfigError as error:
        print(error, file=sys.stderr)
    except (EOFError, KeyboardInterrupt):
        print("\nnothing is written", file=sys.stderr)
    return 1


def _fill(config: Path, ask: Ask | None) -> int:
    there = stack.parameters(samconfig.stack_name(config)) or {}
    missing = Missing(samconfig.parameters(there | samconfig.told(config)))
    if not missing:
        return 0
    if ask is None:
        print(f"{config.name} does not give all that a deployment needs. Add to its [default.deploy.parameters]:\n")
        print("parameter_overrides = [", *(f"    {line}" for line in missing.lines()), "]", sep="\n")
        print("\nor run `make deploy` on a terminal, which asks; `make deploy-cache` makes a Redis, if there is none.")
        return 1
    samconfig.keep(config, answers(missing, ask))
    print(f"\nwritten into {config.name}, where the other parameters can be given too (docs/operations.md):")
    print(*(f"    {name}={value}" for name, value in samconfig.told(config).items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
