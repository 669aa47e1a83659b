"""The settings, read once from the environment. Units are in the names; every faulty variable is reported at once."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from shared.errors import SettingsError
from shared.task import is_provider_name

NOTIFY_KINDS = ("stepFunctionsToken", "durableCallbackId")
"""How a request may name a workflow that waits for its task."""
MAX_BATCH = 100
"""How many requests one batch may hold."""
LEASE_MARGIN_SECONDS = 10
"""A lease outlasts the longest attempt by so much: time to store what was found and to settle it in Redis."""


def _setting(default: Any, read: Callable[[str], Any], meaning: str) -> Any:
    return field(default=default, metadata={"read": read, "meaning": meaning})


def _number(low: float, high: float, kind: type[int] | type[float] = float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = kind(text)
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError(f"must be between {low:g} and {high:g}")
        return value

    return read


def _matching(pattern: str, meaning: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"must be {meaning}")
        return text

    return read


def is_redis_url(text: str) -> bool:
    """Whether a URL names a Redis, with nothing in it that redis-py would stumble over later."""
    try:
        parts = urlsplit(text)
        port, keys = parts.port, set(parse_qs(parts.query))
    except ValueError:
        return False
    if not keys <= {"ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname"}:
        return False
    if parts.scheme == "unix":
        return parts.path != ""
    is_named = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and port != 0
    return is_named and re.fullmatch(r"/?\d*", parts.path) is not None


def _redis_url(text: str) -> str:
    if not is_redis_url(text) and re.match(r"(ssm:/|secretsmanager:)\S", text) is None:
        raise ValueError("must be redis[s]://[user:password@]host[:port][/database] or a reference to one")
    return text


def _directory(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError("must be a directory")
    return text


def _servers(text: str) -> dict[str, str]:
    servers = dict(pair.partition("=")[::2] for pair in text.split(",") if pair.strip())
    for name, url in servers.items():
        if not is_provider_name(name) or re.match(r"https?://[^/]", url) is None:
            raise ValueError("must be name=url pairs, separated by commas, each url http(s)://…")
    return servers


def _notify_kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in text.split(",") if kind.strip())
    if not set(kinds) <= set(NOTIFY_KINDS):
        raise ValueError(f"must be some of {', '.join(NOTIFY_KINDS)}, separated by commas")
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a deployment may choose. The environment variable is the field's name in capitals."""

    redis_url: str = _setting(
        "redis://127.0.0.1:6379/0",
        _redis_url,
        "where Redis is; or `ssm:/path`, `secretsmanager:id` or `secretsmanager:id#key`, which holds the URL",
    )
    table_name: str = _setting("meanwhile", _matching(r"[\w.-]{3,255}", "a DynamoDB table name"), "the DynamoDB table")
    queue_prefix: str = _setting(
        "queue",
        _matching(r"[^{}\s:]{1,128}", "1 to 128 characters without braces, colons or spaces"),
        "first part of every Redis key",
    )
    default_provider: str = _setting(
        "example", _matching(r"[a-z0-9][a-z0-9_-]{0,63}", "a provider name"), "asked when a request names none"
    )
    providers_dir: str = _setting(
        "", _directory, "a further directory of provider files; its files win over shipped ones"
    )
    provider_servers: dict[str, str] = _setting(
        None, _servers, "`name=url,…`: replaces the first server in that provider's file (a staging or local one)"
    )
    callback_url: str = _setting(
        "",
        _matching(r"https?://[^/\s]+(/\S*)?", "the http:// or https:// URL that leads to the API"),
        "the base of the URLs that providers call back, as they reach it; empty: none are given away",
    )
    callback_secret: str = _setting(
        "",
        _matching(r"(ssm:/|secretsmanager:|env:).+", "a reference: ssm:/path, secretsmanager:id#key or env:NAME"),
        "the secret that makes those URLs unguessable, by reference; empty: none are given away",
    )
    notify: tuple[str, ...] = _setting(
        (), _notify_kinds, "which workflows requests may name in `notify`: stepFunctionsToken, durableCallbackId"
    )
    parallel_tasks: int = _setting(20, _number(1, 200, int), "attempts at once in one tick")
    max_workers: int = _setting(
        4,
        _number(1, 100, int),
        "a tick that cannot attempt all that is due invites so many more that this many share the work; 1: none",
    )
    tick_seconds: float = _setting(5.0, _number(0.01, 60), "how often a tick looks for due tasks")
    window_seconds: float = _setting(50.0, _number(1, 800), "how long a tick starts attempts")
    idle_seconds: float = _setting(15.0, _number(0, 800), "a tick ends when nothing falls due within this")
    attempt_seconds: float = _setting(
        20.0, _number(0.1, 600), "the longest that one attempt may take, all requests in it"
    )
    first_answer_seconds: float = _setting(
        5.0, _number(0, 20), "how long a new request waits for the provider; 0: not at all"
    )
    max_crashes: int = _setting(3, _number(0, 100, int), "a task that crashed its worker more often has failed")
    confirm_seconds: float = _setting(
        300.0, _number(0, 86400), "a waiting task's item is read again after so long, lest it has been cancelled"
    )
    retention_seconds: int = _setting(
        2_592_000, _number(60, 315_360_000, int), "how long a finished task is kept in DynamoDB"
    )
    spill_bucket: str = _setting(
        "",
        _matching(r"[A-Za-z0-9.-]{3,63}", "an S3 bucket name"),
        "the S3 bucket of data too large for DynamoDB; empty: none, such a task fails as too large",
    )
    spill_bytes: int = _setting(
        65_536, _number(4096, 256_000, int), "data that compressed takes more than this goes to that bucket"
    )
    spill_days: int = _setting(
        90, _number(2, 3660, int), "when that bucket's lifecycle removes an object; a day or more beyond the retention"
    )

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
            if not text:
                continue
            try:
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
