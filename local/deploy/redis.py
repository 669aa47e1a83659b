"""Checks the Redis that a URL names, where it can be reached from here: as the functions will use it."""

import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError

from local.deploy.finding import Finding, fault, not_checked, ok
from shared.errors import QueueUnavailable, QueueUnreachable
from shared.queue import Queue
from shared.queue.client import TROUBLE, Client, client_of
from shared.settings import has_verified_tls, is_redis_url
from shared.task import Task

Resolve = Callable[[str], list[str]]
ABOUT = "Redis"


def addresses(host: str) -> list[str]:
    """The addresses of a host; none where nobody knows it."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def findings(
    url: str, prefix: str, provider: str, resolve: Resolve = addresses, *, plain: bool = False
) -> Iterator[Finding]:
    """What is to be said of that Redis, for the queue with that prefix; `provider` is any. No URL's secret is shown.

    `plain`: it may be reached without verified TLS.
    """
    if not is_redis_url(url):
        yield fault(ABOUT, "what says where it is holds no redis[s]:// or redis[s]-cluster:// URL")
        return
    if not plain and not has_verified_tls(url):
        yield fault(ABOUT, "its URL asks for no verified TLS (rediss://), which needs the parameter AllowPlainRedis")
        return
    parts = urlsplit(url)
    if parts.scheme == "unix":
        yield fault(ABOUT, "a socket of this machine is in no function's reach")
        return
    host = parts.hostname or ""
    found = [ip_address(address.partition("%")[0]) for address in resolve(host)]
    if found and all(address.is_loopback for address in found):
        yield fault(ABOUT, f"{host} is this machine, which no function reaches")
    elif not found:
        yield not_checked(ABOUT, f"{host} is not known here")
    elif not all(address.is_global for address in found):
        yield not_checked(ABOUT, f"{host} has a private address, which is not asked from here")
    else:
        yield from _asked(client_of(url), prefix, provider)


def _asked(client: Client, prefix: str, provider: str) -> Iterator[Finding]:
    """What it says to a call of a script that changes nothing, and to INFO if the user may."""
    try:
        Queue(client, prefix).look([Task(provider, "preflight")])
    except QueueUnreachable as error:
        is_refused = isinstance(error.__cause__, AuthenticationError) or "certificate" in str(error).lower()
        yield (fault if is_refused else not_checked)(ABOUT, f"it did not answer from here: {error}")
        return
    except QueueUnavailable as error:
        yield fault(ABOUT, str(error))
        return
    yield ok(ABOUT, "answers, is recent enough, and takes scripts")
    if (policy := _policy(client)) and policy.startswith("allkeys"):
        yield fault(ABOUT, f"its eviction policy is {policy}, which forgets tasks: set maxmemory-policy to noeviction")


def _policy(client: Client) -> str:
    """The eviction policy; empty where it is not told: the queue's user needs no right to ask."""
    call: Any = client.execute_command  # untyped
    try:
        told = call("INFO", "memory")
    except (*TROUBLE, KeyError, IndexError, TypeError, AttributeError):
        return ""
    return str(told.get("maxmemory_policy", "")) if isinstance(told, dict) else ""
