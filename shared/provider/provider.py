"""A provider: one provider file at work. One finding leaves an attempt; nothing is raised."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shared.bounds import BOUNDS, fits
from shared.codec import Json, dumps
from shared.errors import SecretUnavailable, TransportError
from shared.logs import log
from shared.outcome import Failed, Pending, Retry
from shared.provider.attempt import Attempt
from shared.provider.credentials.credentials import Credentials
from shared.provider.delays import Delays, Finding
from shared.provider.exchange import Exchange
from shared.provider.language.rules import Rules
from shared.provider.shelf import Shelf
from shared.provider.wire.message import Reply
from shared.provider.wire.room import ROOM
from shared.reasons import Reason
from shared.record import Record
from shared.sink import Sink
from shared.task import Task

if TYPE_CHECKING:
    from shared.provider.wire.transport import Transport


def idempotency_key(task: Task, record: Record) -> str:
    """`${task.id}`: the same for every try of one submit, another for each generation and resubmit."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{task.id}@{record.generation}.{record.resubmits}"))


class Provider:
    """Asks about tasks. Safe to use from many threads."""

    def __init__(
        self,
        rules: Rules,
        transport: "Transport",
        credentials: Credentials,
        random: Random,
        key: Callable[[Task, Record], str] = idempotency_key,
        callback_url: Callable[[Task, int, int], str] | None = None,
        *,
        sink: Sink | None = None,
    ) -> None:
        self.rules = rules
        self.delays = Delays(rules, random)
        self._exchange = Exchange(rules.servers, transport, credentials, rules.links)
        self._key = key
        self._sink = sink
        self._callback_url = callback_url if rules.calls_back else None

    def submits(self, record: Record) -> bool:
        """Whether the next attempt would start a second job, if the first one's reply was never stored."""
        return bool(self.rules.poll) and record.outputs is None

    def attempt(self, task: Task, record: Record, *, now: int, seconds: float) -> Finding:
        """One attempt within `seconds`, at `now` (epoch ms): the submit if there is no job yet, else a poll."""
        begun = now if record.submitted_at is None else record.submitted_at
        record = replace(record, attempts=record.attempts + 1, asked_at=now, submitted_at=begun)
        context, url = self._context(task, record), self._url(task, record)
        exchange = self._exchange.begin(seconds, record.unauthorized_at, self._hidden(url))
        if self._callback_url and (record.outputs is None or not self.rules.poll):
            if url is None:
                return self.delays.retry(record, now, Reason.SECRET)
            context["callback"] = {"url": url}
        shelf = Shelf(self._sink, task, record.generation) if self._sink else None
        attempt = Attempt(self.rules, self.delays, exchange, context, record, now, shelf)
        finding = _bounded(task, record, attempt.run())
        if isinstance(finding.outcome, Failed) and finding.outcome.reason == Reason.TIMEOUT:
            self.cancel(task, finding.record, seconds=exchange.seconds_left())
        return finding

    def hear(self, task: Task, record: Record, payload: Reply, *, now: int) -> Finding | None:
        """What the payload of a callback says of the job; the provider is not asked. None where only asking can tell.

        Pending(0): ask now; Pending(inf): the next poll stays where it is.
        """
        context = self._context(task, record)
        exchange = self._exchange.begin(0, None, self._hidden(self._url(task, record)))
        finding = Attempt(self.rules, self.delays, exchange, context, record, now).hear(payload)
        if finding and isinstance(finding.outcome, Pending) and not fits(finding.record.outputs, "outputs"):
            return None
        return finding and _bounded(task, record, finding)

    def cancel(self, task: Task, record: Record, *, seconds: float) -> None:
        """Tell the provider that nobody waits any more; best effort, says nothing of success."""
        if not self.rules.cancel or record.outputs is None:
            return
        try:
            with suppress(TransportError):
                self._exchange.begin(seconds, None).send(self.rules.cancel, self._context(task, record))
        finally:
            ROOM.leave()

    def _url(self, task: Task, record: Record) -> str | None:
        """`${callback.url}` of this job; None where there is none, or it cannot be signed now."""
        with suppress(SecretUnavailable):
            return self._callback_url(task, record.generation, record.resubmits) if self._callback_url else None
        return None

    def _hidden(self, url: str | None) -> tuple[str, ...]:
        """What is hidden beside credentials: the token in the callback's URL, and what the provider signs with.

        A key that cannot be read now hides nothing: tasks do not wait for what only their callbacks need.
        """
        hidden = [] if url is None else [url.rpartition("/")[2]]
        if signature := self.rules.callback.signature:
            for reference in signature.secret:
                with suppress(SecretUnavailable):
                    key = self._exchange.credentials.read_secret(reference, fresh=False)
                    hidden += [key, key.removeprefix("whsec_")]  # as Standard Webhooks writes keys
        return tuple(hidden)

    def _context(self, task: Task, record: Record) -> dict[str, Json]:
        """What the placeholders and expressions of this task may use."""
        about = {"id": self._key(task, record), "name": task.name, "provider": task.provider}
        return {"input": record.input, "outputs": record.outputs or {}, "task": about}


def _bounded(task: Task, before: Record, finding: Finding) -> Finding:
    """The finding without what is larger than a record may hold; a task goes on without it, and with the outputs of
    before, if there were any.

    The record's reason says what was left out, and so does the log, once.
    """
    outcome, record = finding.outcome, finding.record
    large = [name for name in ("partial", "progress") if not fits(getattr(record, name), name)]
    left: dict[str, Any] = dict.fromkeys(large)
    if before.outputs is not None and not fits(record.outputs, "outputs"):
        large.append("outputs")
        left["outputs"] = _small(before.outputs, record.outputs or {})
    if large:
        record = replace(record, **left)
        if isinstance(outcome, Pending):
            outcome = Pending(outcome.delay_seconds, record.partial, record.progress)
            said = f"left out as too large: {', '.join(large)}"
            record = replace(record, reason=f"{record.reason}; {said}" if record.reason else said)
        if record.reason != before.reason:
            about = {"provider": task.provider, "task": task.name, "generation": record.generation}
            log.warning("left out", extra=about | {"fields": large})
    if not fits(record.outputs, "outputs"):
        record = replace(record, outputs=before.outputs)
        if isinstance(outcome, Pending | Retry):
            outcome = Failed(Reason.TOO_LARGE, f"outputs take more than {BOUNDS['outputs'].most} bytes")
    return Finding(outcome, record)


def _small(before: dict[str, Json], outputs: dict[str, Json]) -> dict[str, Json]:
    """As many of the outputs as fit, the smallest first, and what there was before in the place of the others."""
    kept = before
    for name in sorted(outputs, key=lambda name: len(dumps(outputs[name]))):
        if fits(kept | {name: outputs[name]}, "outputs"):
            kept = kept | {name: outputs[name]}
    return kept
