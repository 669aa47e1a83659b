"""The settings, read once from the environment. Units are in the names; every faulty variable is reported at once."""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from shared.errors import SettingsError
from shared.task import PROVIDER_NAME, is_provider_name

NOTIFY_KINDS = {
    "stepFunctionsToken": (r"[!-~]{1,2048}", "1 to 2048 characters of ASCII, as it was given"),
    "durableCallbackId": (r"(?=.{1,1024}$)[A-Za-z0-9+/]+={0,2}", "1 to 1024 characters of base64, as it was given"),
}
"""How a request may name a workflow that waits for its task, and what AWS takes of each kind, and in words."""
_TRUE = ("1", "true", "t", "yes", "y")  # what redis-py takes for that in a URL, among others
MAX_BATCH = 100  # how many requests one batch may hold
SCHEDULE_SECONDS = 60  # the schedule starts a run so often: see the template
LEASE_MARGIN_SECONDS = 10  # a lease outlasts the longest attempt by so much: time to store its outcome and to settle it


def _setting(default: Any, read: Callable[[str], Any], meaning: str) -> Any:
    return field(default=default, metadata={"read": read, "meaning": meaning})


def _number(default: float, low: float, high: float, meaning: str) -> Any:
    """A whole number where the default is one."""

    def read(text: str) -> float:
        value = type(default)(text)
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError(f"must be between {low:g} and {high:g}")
        return value

    return _setting(default, read, meaning)


def _text(default: str, right: str | Callable[[str], object], words: str, meaning: str) -> Any:
    """Text that matches a pattern, or for which a check holds; `words` say which that is."""

    def read(text: str) -> str:
        if not (re.fullmatch(right, text) if isinstance(right, str) else right(text)):
            raise ValueError(f"must be {words}")
        return text

    return _setting(default, read, meaning)


def is_redis_url(text: str) -> bool:
    """Whether a URL names a Redis, with nothing in it that redis-py would stumble over later."""
    try:
        parts = urlsplit(text)
        port, options = parts.port, parse_qs(parts.query, keep_blank_values=True)
        (parts.hostname or "").encode("idna")
    except ValueError:  # as UnicodeError is
        return False
    if not text.startswith(parts.scheme):  # in capitals, which redis-py does not know
        return False
    of_tls = {"ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname"} if parts.scheme.startswith("rediss") else set()
    if not options.keys() <= of_tls or not set(options.get("ssl_cert_reqs", ())) <= {"none", "optional", "required"}:
        return False
    if parts.scheme == "unix":
        return parts.path != ""
    found = re.fullmatch(r"rediss?(-cluster)?", parts.scheme)
    database = r"/?0?" if found and found[1] else r"/?\d*"  # a cluster has no other
    return bool(found and parts.hostname and port != 0 and re.fullmatch(database, parts.path))


def has_verified_tls(text: str) -> bool:
    """Whether a URL of a Redis leads to one whose certificate is checked, and that for its name."""
    parts = urlsplit(text)
    options = {name: values[-1].lower() for name, values in parse_qs(parts.query).items()}
    is_checked = options.get("ssl_cert_reqs", "required") == "required"
    return parts.scheme.startswith("rediss") and is_checked and options.get("ssl_check_hostname", "true") in _TRUE


def _servers(text: str) -> dict[str, str]:
    servers = dict(pair.partition("=")[::2] for pair in text.split(",") if pair.strip())
    for name, url in servers.items():
        if not is_provider_name(name) or re.match(r"https?://[^/]", url) is None:
            raise ValueError("must be name=url pairs, separated by commas, each url http(s)://…")
    return servers


def _notify_kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in text.split(",") if kind.strip())
    if not set(kinds) <= NOTIFY_KINDS.keys():
        raise ValueError(f"must be some of {', '.join(NOTIFY_KINDS)}, separated by commas")
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a deployment may choose. The environment variable is the field's name in capitals."""

    redis_url: str = _text(
        "redis://127.0.0.1:6379/0",
        lambda text: is_redis_url(text) or re.match(r"(ssm:/|secretsmanager:)\S", text),
        "redis[s][-cluster]://[user:password@]host[:port][/database] or a reference to one",
        "where Redis is (`redis-cluster://` for a cluster of nodes, `rediss` for TLS); or `ssm:/path` or "
        "`secretsmanager:id[#key]` for it",
    )
    redis_tls: str = _text(
        "", "required", "empty or `required`", "`required`: Redis must be reached over TLS with its certificate checked"
    )
    table_name: str = _text("meanwhile", r"[\w.-]{3,255}", "a DynamoDB table name", "the DynamoDB table")
    queue_prefix: str = _text(
        "queue", r"[^{}\s:]{1,128}", "1 to 128 characters without braces, colons or spaces", "begins every Redis key"
    )
    default_provider: str = _text("example", PROVIDER_NAME, "a provider name", "asked when a request names none")
    wake_queue_url: str = _text(
        "",
        r"https?://\S+",
        "the URL of an SQS queue",
        "the SQS queue of wake-ups, which start a run when a task is due; empty: the schedule's runs alone",
    )
    providers_dir: str = _text(
        "", os.path.isdir, "a directory", "a further directory of provider files, which win over shipped ones"
    )
    provider_servers: dict[str, str] = _setting(None, _servers, "`name=url,…`: replaces that provider's first server")
    callback_url: str = _text(
        "",
        r"https?://[^/\s]+(/\S*)?",
        "the http:// or https:// URL that leads to the API",
        "the base of the URLs that providers call back, as they reach it; empty: none are given away",
    )
    callback_secret: str = _text(
        "",
        r"(ssm:/|secretsmanager:|env:).+",
        "a reference: ssm:/path, secretsmanager:id#key or env:NAME",
        "the secret that makes those URLs unguessable, by reference; empty: none are given away",
    )
    notify: tuple[str, ...] = _setting((), _notify_kinds, "allowed in `notify`: stepFunctionsToken, durableCallbackId")
    parallel_tasks: int = _number(20, 1, 200, "attempts at once in one tick")
    max_workers: int = _number(
        4, 1, 100, "a tick that cannot attempt all that is due invites others, until so many share the work; 1: none"
    )
    tick_seconds: float = _number(5.0, 0.01, 60, "how often a tick looks for due tasks")
    window_seconds: float = _number(50.0, 1, 800, "how long a tick starts attempts")
    idle_seconds: float = _number(15.0, 0, 800, "a tick ends when nothing falls due within this")
    attempt_seconds: float = _number(20.0, 0.1, 600, "the longest that one attempt may take, all requests in it")
    first_answer_seconds: float = _number(5.0, 0, 20, "how long a new request waits for the provider; 0: not at all")
    status_wait_seconds: float = _number(
        0.0, 0, 20, "how long a status request may wait (`Prefer: wait`) until something happens; 0: not at all"
    )
    max_crashes: int = _number(3, 2, 100, "how often a task may crash its worker; two may be a neighbour's")
    confirm_seconds: float = _number(
        0.0, 0, 86400, "how long no item is read for polls that change nothing: so late is a lost cancellation found"
    )
    retention_seconds: int = _number(2_592_000, 60, 315_360_000, "how long a finished task is kept in DynamoDB")
    spill_bucket: str = _text(
        "", r"[A-Za-z0-9.-]{3,63}", "an S3 bucket name", "for data too large for DynamoDB; empty: such a task fails"
    )
    spill_bytes: int = _number(65_536, 4096, 256_000, "data that compressed takes more than this goes to that bucket")
    spill_days: int = _number(90, 2, 3660, "when its lifecycle removes an object; a day or more beyond the retention")

    @property
    def lease_seconds(self) -> float:
        """How long a claimed task is ours, before it goes back to the queue: its lease."""
        return self.attempt_seconds + LEASE_MARGIN_SECONDS

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The settings in `environment`; empty means default. Raises SettingsError naming every faulty variable."""
        values: dict[str, Any] = {"provider_servers": {}}
        faults = []
        for setting in fields(cls):
            variable = setting.name.upper()
            text = environment.get(variable, "").strip()
            try:
                if text:
                    values[setting.name] = setting.metadata["read"](text)
            except ValueError as error:
                reason = str(error) if str(error).startswith("must") else "must be a number"
                faults.append(f"{variable} {reason}")  # never the value: a URL may hold a password
        if faults:
            raise SettingsError("wrong settings: " + "; ".join(faults))
        settings = cls(**values)
        if settings.spill_bucket and (settings.spill_days - 1) * 86_400 < settings.retention_seconds:
            raise SettingsError("wrong settings: SPILL_DAYS must be a day or more beyond RETENTION_SECONDS")
        return settings
