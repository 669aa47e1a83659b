"""Checks the provider files that are deployed: sound under its settings, and there if a parameter names one."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from local.deploy.finding import Finding, fault, ok
from local.provider.check import check
from shared.errors import ProviderFileError
from shared.provider.language.rules import Rules, provider_files
from shared.settings import Settings
from shared.wiring import SHIPPED


def sound(settings: Settings, directory: Path = SHIPPED) -> dict[str, Rules]:
    """What the sound files say, by their providers' names."""
    found = {}
    for path in provider_files(directory):
        try:
            found[path.stem] = Rules.load(path, settings.provider_servers.get(path.stem))
        except ProviderFileError:
            continue
    return found


def findings(settings: Settings, directory: Path = SHIPPED) -> Iterator[Finding]:
    """What is to be said of each file, and of providers that a parameter names but no file describes."""
    rules = sound(settings, directory)
    for path in provider_files(directory):
        faults = [*check(path, settings).faults, *_callback(rules.get(path.stem), settings)]
        yield from (fault(f"provider {path.stem}", said) for said in faults)
        if not faults:
            yield ok(f"provider {path.stem}", f"sound{_aside(rules[path.stem])}")
    named: Mapping[str, set[str]] = {
        "DefaultProvider": {settings.default_provider}, "ProviderServers": set(settings.provider_servers)
    }  # fmt: skip
    for parameter, names in named.items():
        for name in sorted(names - rules.keys()):
            yield fault(f"provider {name}", f"{parameter} names it, but there is no sound file {name}.json")


def _callback(rules: Rules | None, settings: Settings) -> Iterator[str]:
    if rules and rules.calls_back and not settings.callback_url:
        yield "${callback.url} needs the parameter CallbackUrl"


def _aside(rules: Rules) -> str:
    """What else a deployer wants to know of it."""
    host = urlsplit(rules.servers[0]).hostname or ""
    try:
        is_here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_here = False
    return f", but its server is {host}: nobody answers there in a deployment (ProviderServers)" if is_here else ""
