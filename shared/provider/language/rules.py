"""A provider file, read: how to submit and poll, which replies mean what, the pace, the credentials.

The language is described in docs/providers.md and by docs/provider.schema.json.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shared.codec import Json, loads
from shared.errors import ProviderFileError
from shared.limits import Limits
from shared.provider.language.acceptor import Acceptor, read_acceptor
from shared.provider.language.backoff import Backoff
from shared.provider.language.expression import Expression
from shared.provider.language.hint import Hint, read_hint
from shared.provider.language.operation import Operation, read_operation
from shared.provider.language.reader import Reader
from shared.provider.language.security import Scheme, read_scheme
from shared.provider.language.signature import Signature, read_signature
from shared.provider.wire.origin import has_origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A whole provider file. Spans are seconds."""

    servers: tuple[str, ...]
    security: tuple[Scheme, ...]
    submit: tuple[Operation, ...]
    poll: Operation | None
    result: tuple[Operation, ...]
    cancel: Operation | None
    status: Expression
    acceptors: tuple[Acceptor, ...]
    data: Expression
    partial: Expression
    progress: Expression | None
    error: Expression
    backoff: Backoff
    hints: tuple[Hint, ...]
    max_wait_seconds: float
    max_errors: int
    max_resubmits: int
    not_found_grace_seconds: float
    freshness_seconds: float
    freshness_failed_seconds: float
    first_answer_seconds: float | None
    limits: Limits
    signature: Signature | None

    @property
    def calls_back(self) -> bool:
        """Whether the provider is told a URL to call back."""
        return any(expression.refers_to("callback") for one in self.submit for _, expression in one.placed())

    @property
    def asks_again(self) -> Operation:
        """The operation that asks after a job: poll, or the last submit operation where the file has no poll."""
        return self.poll or self.submit[-1]

    def operations(self) -> list[tuple[str, Operation]]:
        """Every operation, each with its place in the file."""
        many = [("submit", self.submit), ("result", self.result)]
        places = [
            (f"$.{key}[{i}]" if len(few) > 1 else f"$.{key}", one) for key, few in many for i, one in enumerate(few)
        ]
        return places + [(f"$.{key}", one) for key, one in (("poll", self.poll), ("cancel", self.cancel)) if one]

    @classmethod
    def load(cls, path: Path, server: str | None = None) -> Self:
        """The file at `path`, its first server replaced by `server`. Raises ProviderFileError for every fault."""
        try:
            return cls.from_json(loads(path.read_bytes(), unique_keys=True), server)
        except ProviderFileError as error:
            raise ProviderFileError(*(f"{path.name}: {fault}" for fault in error.faults)) from error
        except (OSError, ValueError) as error:
            raise ProviderFileError(f"{path.name}: {error}") from error

    @classmethod
    def from_json(cls, value: Json, server: str | None = None) -> Self:
        """The rules that a decoded file states. Raises ProviderFileError naming every faulty place."""
        if not isinstance(value, dict):
            raise ProviderFileError("$: must be an object")
        top = Reader(value)
        status, data = top.expression("status", "body.status"), top.expression("data", "body")
        result = tuple(map(read_operation, top.one_or_many("result"))) if "result" in top else ()
        rules = cls(
            servers=_servers(top, server),
            security=tuple(filter(None, map(read_scheme, top.readers("security", [])))),
            submit=tuple(map(read_operation, top.one_or_many("submit"))),
            poll=read_operation(top.reader("poll")) if "poll" in top else None,
            result=result,
            cancel=read_operation(top.reader("cancel")) if "cancel" in top else None,
            status=status,
            acceptors=tuple(read_acceptor(reader, status) for reader in top.readers("acceptors", least=1)),
            data=data,
            partial=top.expression("partial") if "partial" in top else Expression("null") if result else data,
            progress=top.expression("progress") if "progress" in top else None,
            error=top.expression("error", "body.error"),
            **_polling(top.reader("polling", {})),
            freshness_seconds=top.number("freshness", 3600),
            freshness_failed_seconds=top.number("freshnessFailed", 60),
            first_answer_seconds=top.number("firstAnswer", most=20) if "firstAnswer" in top else None,
            limits=_limits(top.reader("limits", {})),
            signature=read_signature(top.reader("callback", {})),
        )
        _read_the_rest(top)
        if rules.submit:
            _refuse_misplaced(top, rules)
        if top.faults:
            raise ProviderFileError(*top.faults)
        return rules


def _servers(top: Reader, server: str | None) -> tuple[str, ...]:
    servers = top.texts("servers", least=1)
    if server:
        servers[:1] = [server]
    for i, url in enumerate(servers):
        if not has_origin(url):
            top.fault(f"servers[{i}]", "must be an absolute URL that begins with http:// or https://")
    return tuple(servers)


def _polling(reader: Reader) -> dict[str, Any]:
    min_delay = reader.number("minDelay", 2)
    polling = {
        "backoff": Backoff(
            initial_delay=reader.number("initialDelay", min_delay),
            min_delay=min_delay,
            max_delay=reader.number("maxDelay", 120),
            multiplier=reader.number("multiplier", 2, least=1),
            jitter=reader.one_of("jitter", "full", "none", default="full"),
        ),
        "hints": tuple(map(read_hint, reader.readers("hints", []))),
        "max_wait_seconds": reader.number("maxWaitTime", 86400, beyond=True),
        "max_errors": reader.whole("maxErrors", 10),
        "max_resubmits": reader.whole("maxResubmits", 1),
        "not_found_grace_seconds": reader.number("notFoundGrace", 30),
    }
    reader.done()
    return polling


def _limits(reader: Reader) -> Limits:
    """`rate` is so many requests in so many seconds, one at a time unless `burst` says how many may be saved up."""
    rate_seconds, burst = None, 1
    if "rate" in reader:
        rate = reader.reader("rate")
        requests = rate.whole("requests", least=1)
        rate_seconds = rate.number("seconds", beyond=True) / max(requests, 1)
        burst = rate.whole("burst", 1, least=1)
        rate.done()
    limits = Limits(
        rate_seconds=rate_seconds,
        burst=burst,
        parallel=reader.whole("parallel", least=1) if "parallel" in reader else None,
        open_jobs=reader.whole("openJobs", least=1) if "openJobs" in reader else None,
    )
    reader.done()
    return limits


def _read_the_rest(top: Reader) -> None:
    for key in ("$schema", "description"):
        top.get(key, str, "")
    top.done()


def _refuse_misplaced(top: Reader, rules: Rules) -> None:
    """What cannot work where it stands: the reply before an operation that has none, a link that is no result."""
    alone = {id(one) for one in (rules.submit[0], rules.asks_again, rules.cancel)}
    for place, operation in rules.operations():
        if operation.decode == "url" and not place.startswith("$.result"):
            top.faults.append(f"{place}.decode: url is for result operations: it sends no request")
        with suppress(ProviderFileError):  # a placeholder that is not JMESPath, which the reader has said
            for part, expression in operation.placed():
                if id(operation) in alone and expression.refers_to("response"):
                    reason = "uses response, but no answer goes before it; keep what it needs in outputs"
                    top.faults.append(f"{place}.{part}: ${{{expression.text}}} {reason}")
                if expression.refers_to("callback") and not place.startswith("$.submit"):
                    top.faults.append(f"{place}.{part}: ${{{expression.text}}} uses callback, which is for submit")
