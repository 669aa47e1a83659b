"""`make preflight`: checks what CloudFormation would tell late or never; `make deploy` runs it after the build.

One line for each thing: ok, fault, or not checked. Only a fault ends it with 1.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from local.deploy import account, artifact, files, grants, redis, samconfig, secrets, stack, values
from local.deploy.finding import Finding, Verdict, fault, not_checked, ok
from local.deploy.samconfig import ConfigError
from shared.errors import SettingsError
from shared.logs import log

_SILENT = logging.NullHandler()


def findings(config: Path, built: Path) -> Iterator[Finding]:
    """Everything that is to be said of a deployment by that file of SAM's, of what was built there."""
    name, told = samconfig.stack_name(config), samconfig.told(config)
    there = stack.parameters(name)
    yield _kept(name, there, told)
    chosen = samconfig.parameters((there or {}) | told)
    of_values = list(values.findings(chosen, told))
    yield from of_values
    if all(one.verdict is not Verdict.FAULT for one in of_values):
        yield from account.findings(chosen, there)
    try:
        settings = values.settings(chosen)
    except SettingsError:
        yield not_checked("provider files", "the settings are faulty")
    else:
        rules = files.sound(settings)
        yield from files.findings(settings)
        wanted = grants.needs(rules)
        yield from grants.findings(wanted, chosen)
        yield from _secrets([need.reference for need in wanted])
        yield from _redis(chosen, name)
    yield from artifact.findings(chosen["Architecture"], built)


def _kept(name: str, there: Mapping[str, str] | None, told: Mapping[str, str]) -> Finding:
    """What counts besides samconfig.toml: SAM leaves a parameter that nobody gives as the stack has it."""
    about = f"stack {name}"
    if there is None:
        return not_checked(about, "cannot be seen from here; it keeps what samconfig.toml does not give")
    usual = samconfig.parameters({})
    kept = sorted(one for one in (there.keys() & usual.keys()) - told.keys() if there[one] != usual[one])
    return ok(
        about, f"keeps {', '.join(kept)}, not given in samconfig.toml" if kept else "samconfig.toml gives all there is"
    )


def _secrets(references: list[str]) -> Iterator[Finding]:
    if references and not secrets.has_credentials():
        yield not_checked("secrets", "there are no AWS credentials here")
    else:
        yield from secrets.findings(references)


def _redis(chosen: Mapping[str, str], prefix: str) -> Iterator[Finding]:
    """The secret that holds the URL, and the server that it names."""
    url: str | None = values.redis_reference(chosen)
    if not url:
        return
    if url == stack.HIDDEN:
        yield not_checked(redis.ABOUT, "the stack keeps its RedisUrl, which it does not show")
        return
    if url.startswith(("ssm:", "secretsmanager:")):
        if not secrets.has_credentials():
            yield not_checked(redis.ABOUT, "there are no AWS credentials here to read where it is")
            return
        url, found = secrets.reading(url)
        yield found
    if url is None:
        yield not_checked(redis.ABOUT, "where it is could not be read")
    else:
        plain = chosen["AllowPlainRedis"] == "true"
        yield from redis.findings(url, prefix, chosen["DefaultProvider"], plain=plain)


def main(config: Path = samconfig.FILE, built: Path = artifact.BUILT) -> int:
    """Print what was found; the exit code."""
    log.addHandler(_SILENT)  # what it says of unreadable secrets is said here
    try:
        samconfig.as_sam(config)
        found = list(findings(config, built))
    except ConfigError as error:
        found = [fault("parameters", str(error))]
    finally:
        log.removeHandler(_SILENT)  # for whoever logs after this, in the same process
    for one in found:
        print(one)
    return 1 if any(one.verdict is Verdict.FAULT for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
