"""A provider: one attempt asks it about one task and says what was found.

One outcome leaves this module, with the record as it stands after the attempt; nothing is raised.
"""

import dataclasses
import uuid
from dataclasses import dataclass
from random import Random
from urllib.parse import urljoin

from shared.acceptor import Acceptor, Stage, Verdict, judge
from shared.codec import Json, loads
from shared.errors import TransportError
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.record import Record
from shared.rules import Operation, Rules
from shared.task import Task
from shared.template import fill, fill_url
from shared.transport import Call, Reply, Transport


@dataclass(frozen=True, slots=True)
class Finding:
    """What an attempt found, and the record that goes with it."""

    outcome: Outcome
    record: Record


class Provider:
    """One provider file at work. Safe to use from many threads."""

    def __init__(self, rules: Rules, transport: Transport, random: Random) -> None:
        self.rules = rules
        self._transport = transport
        self._random = random

    def submits(self, record: Record) -> bool:
        """Whether the next attempt would start a second job, if the first one's answer was never stored."""
        return self.rules.poll is not None and record.outputs is None

    def ask(self, task: Task, record: Record, *, now: int, seconds: float) -> Finding:
        """One attempt within `seconds`, at `now` (epoch ms): the submit if there is no job yet, else a poll."""
        rules = self.rules
        first = record.outputs is None
        operation = rules.submit if first or rules.poll is None else rules.poll
        record = dataclasses.replace(
            record,
            attempts=record.attempts + 1,
            submitted_at=now if record.submitted_at is None else record.submitted_at,
        )
        context = _context(task, record)
        call = _call(operation, rules.servers[0], context)
        if call is None:
            return Finding(Failed("missing-output", f"no value for the URL {operation.url}"), record)
        try:
            reply = self._transport.send(call, seconds)
        except TransportError as error:
            return self.trouble(record, now, str(error))
        return self._read(operation, "submit" if first else "poll", record, context, reply, now)

    def cancel(self, task: Task, record: Record, *, seconds: float) -> None:
        """Tell the provider that nobody waits any more; best effort, says nothing of success."""
        context = _context(task, record)
        if self.rules.cancel is None or record.outputs is None:
            return
        call = _call(self.rules.cancel, self.rules.servers[0], context)
        try:
            if call is not None:
                self._transport.send(call, seconds)
        except TransportError:
            return

    def _read(
        self, operation: Operation, stage: Stage, record: Record, context: dict[str, Json], reply: Reply, now: int
    ) -> Finding:
        envelope = context | {"statusCode": reply.status, "headers": reply.headers, "url": reply.url, "body": None}
        try:
            envelope["body"] = loads(reply.body) if reply.body.strip() else None
        except ValueError:
            if 200 <= reply.status <= 299:
                return self.trouble(record, now, "the answer is not JSON")
        stages: set[Stage] = {stage} if self.rules.poll else {"submit", "poll"}
        verdict, acceptor = judge(self.rules.acceptors, stages, envelope)
        if acceptor is None and stage == "poll" and reply.status == 404 and self._in_grace(record, now):
            verdict = "retry"
        if reply.status < 400 and verdict in ("pending", "success"):
            record = _with_outputs(record, operation, envelope)
            envelope["outputs"] = record.outputs
        return self._conclude(verdict, acceptor, record, envelope, now)

    def _conclude(
        self, verdict: Verdict, acceptor: Acceptor | None, record: Record, envelope: dict[str, Json], now: int
    ) -> Finding:
        match verdict:
            case "pending":
                return self._pending(record, envelope, now)
            case "success":
                return Finding(Completed(self.rules.data.of(envelope)), record)
            case "failure":
                message = acceptor.message.of(envelope) if acceptor and acceptor.message else None
                error = message if message is not None else self.rules.error.of(envelope)
                return Finding(
                    Failed("upstream", error if error is not None else f"HTTP {envelope['statusCode']}"), record
                )
            case "retry":
                return self.trouble(record, now, f"HTTP {envelope['statusCode']}")
            case "resubmit":
                return self._resubmit(record, now)

    def _pending(self, record: Record, envelope: dict[str, Json], now: int) -> Finding:
        rules = self.rules
        partial = rules.partial.of(envelope)
        record = dataclasses.replace(
            record,
            outputs=record.outputs or {},
            partial=record.partial if partial is None else partial,
            progress=rules.progress.of(envelope) if rules.progress else None,
            polls=record.polls + 1,
            errors=0,
            reason=None,
        )
        context = {"input": record.input, "outputs": record.outputs}
        delay = self._until_deadline(record, now, rules.backoff.after_pending(record.polls, self._random))
        if delay is None:
            return Finding(Failed("timeout", "the provider did not finish in time"), record)
        if rules.poll and fill_url(rules.poll.url, envelope | context) is None:
            return Finding(Failed("missing-output", f"no value for the URL {rules.poll.url}"), record)
        return Finding(Pending(delay, record.partial, record.progress), record)

    def trouble(self, record: Record, now: int, reason: str) -> Finding:
        """What trouble that says nothing about the job leads to: another try, or the end after too much of it."""
        record = dataclasses.replace(record, errors=record.errors + 1, reason=reason)
        if record.errors > self.rules.max_errors:
            return Finding(Failed("too-many-errors", reason), record)
        delay = self._until_deadline(record, now, self.rules.backoff.after_error(record.errors, self._random))
        if delay is None:
            return Finding(Failed("timeout", reason), record)
        return Finding(Retry(delay, reason), record)

    def _resubmit(self, record: Record, now: int) -> Finding:
        if record.resubmits >= self.rules.max_resubmits:
            return Finding(Failed("too-many-errors", "the provider lost the job again"), record)
        record = dataclasses.replace(record, outputs=None, resubmits=record.resubmits + 1)
        finding = self.trouble(record, now, "the provider lost the job")
        if isinstance(finding.outcome, Retry):
            outcome = dataclasses.replace(finding.outcome, action="resubmit")
            return Finding(outcome, finding.record)
        return finding

    def _until_deadline(self, record: Record, now: int, delay: float) -> float | None:
        """The delay, cut so that one last poll falls on the deadline; None when that would be too soon."""
        begun = record.created_at if record.submitted_at is None else record.submitted_at
        left = (begun - now) / 1000 + self.rules.max_wait_seconds
        if delay <= left:
            return delay
        return left if left > 0 and left >= self.rules.backoff.min_delay else None

    def _in_grace(self, record: Record, now: int) -> bool:
        begun = now if record.submitted_at is None else record.submitted_at
        return now - begun <= self.rules.not_found_grace_seconds * 1000


def _context(task: Task, record: Record) -> dict[str, Json]:
    key = uuid.uuid5(uuid.NAMESPACE_URL, f"{task.id}@{record.generation}.{record.resubmits}")
    return {
        "input": record.input,
        "outputs": record.outputs or {},
        "task": {"id": str(key), "name": task.name, "provider": task.provider},
    }


def _call(operation: Operation, server: str, context: dict[str, Json]) -> Call | None:
    url = fill_url(operation.url, context)
    if url is None:
        return None
    query = {name: value for name, value in fill(operation.query, context).items() if value is not None}
    return Call(
        method=operation.method,
        url=urljoin(server.rstrip("/") + "/", url),
        query=query,
        headers={name: str(value) for name, value in fill(operation.headers, context).items() if value is not None},
        json=fill(operation.body, context),
    )


def _with_outputs(record: Record, operation: Operation, envelope: dict[str, Json]) -> Record:
    found = {name: expression.of(envelope) for name, expression in operation.outputs.items()}
    kept = {name: value for name, value in found.items() if value is not None}
    return dataclasses.replace(record, outputs=(record.outputs or {}) | kept)
