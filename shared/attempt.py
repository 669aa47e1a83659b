"""One attempt: the operations that ask a provider about one task, and what their answers mean."""

import dataclasses
from dataclasses import dataclass

from shared.acceptor import Acceptor, Stage, Verdict, judge
from shared.codec import Json
from shared.errors import TransportError
from shared.exchange import Answered, Exchange
from shared.hint import hinted_seconds
from shared.origin import origin_of
from shared.outcome import Completed, Failed, Retry
from shared.pace import Finding, Pace
from shared.record import Record
from shared.rules import Operation, Rules
from shared.template import Expression, expressions

HOPELESS = ("invalid-request", "refused-target", "too-large")
"""Troubles of the transport that another try would only meet again."""


@dataclass(slots=True)
class Attempt:
    """One attempt under way at `now` (epoch ms): `record` grows with every answer, `context` with its outputs."""

    rules: Rules
    pace: Pace
    exchange: Exchange
    context: dict[str, Json]
    record: Record
    now: int

    def run(self) -> Finding:
        first = self.record.outputs is None
        operations = self.rules.submit if first else (self.rules.asks_again,)
        stage: Stage = "submit" if first else "poll"
        response: Json = None
        for i, operation in enumerate(operations):
            answered = self.send(operation, stage, response)
            if isinstance(answered, Finding):
                return answered
            verdict, acceptor = self.judged(answered, stage)
            if verdict in ("pending", "success"):
                self.keep_outputs(operation, answered)
                if i + 1 < len(operations):
                    response = answered.envelope
                    continue
            return self.concluded(verdict, acceptor, answered, stage)
        raise AssertionError("a provider file has at least one submit operation")

    def send(self, operation: Operation, stage: Stage, response: Json) -> Answered | Finding:
        context = self.context | {"response": response}
        stays = [one for one in self.rules.acceptors if one.matcher == "status" and stage in one.on]
        try:
            answered = self.exchange.send(operation, context, stays)
        except TransportError as error:
            if error.reason in HOPELESS:
                return Finding(Failed(error.reason, str(error)), self.record)
            return self.pace.trouble(self.record, self.now, error.reason)
        if answered is None:
            if stage == "result" and operation.optional:
                return Finding(Completed(None), self.record)
            if stage == "result":
                return self.pace.trouble(self.record, self.now, "missing-link")
            return Finding(Failed("missing-output", None), self.record)
        if answered.status != 401:
            self.record = dataclasses.replace(self.record, unauthorized_at=None)
        if answered.undecodable and 200 <= answered.status <= 299:
            return self.pace.trouble(self.record, self.now, "undecodable")
        return answered

    def judged(self, answered: Answered, stage: Stage) -> tuple[Verdict, Acceptor | None]:
        """What an answer means in its stage; without a poll operation a submit counts as poll."""
        rules = self.rules
        stages: set[Stage] = {stage} if rules.poll or stage == "result" else {"submit", "poll"}
        return judge(rules.acceptors, stages, answered.envelope)

    def concluded(self, verdict: Verdict, acceptor: Acceptor | None, answered: Answered, stage: Stage) -> Finding:
        match verdict:
            case "pending":
                return self.pending(answered, stage)
            case "success":
                return self.success(answered, stage)
            case "failure":
                return self.failure(acceptor, answered, stage)
            case "resubmit":
                return self.resubmit(answered)
            case "retry":
                return self.trouble("http" if acceptor is None else "acceptor", answered)

    def pending(self, answered: Answered, stage: Stage) -> Finding:
        rules = self.rules
        partial = rules.partial.of(answered.envelope)
        self.record = dataclasses.replace(
            self.record,
            outputs=self.record.outputs or {},
            partial=self.record.partial if partial is None else partial,
            progress=rules.progress.of(answered.envelope) if rules.progress else None,
        )
        if stage != "result" and rules.poll and self.lacks_output(rules.poll):
            return Finding(Failed("missing-output", rules.error.of(answered.envelope)), self.record)
        return self.pace.pending(self.record, self.now, self.hinted(answered))

    def success(self, answered: Answered, stage: Stage) -> Finding:
        """The job is done: fetch its result in the same attempt; what goes wrong there returns to poll."""
        rules = self.rules
        if stage == "result" or not rules.result:
            return Finding(Completed(rules.data.of(answered.envelope)), self.record)
        self.record = dataclasses.replace(self.record, outputs=self.record.outputs or {})
        for operation in rules.result:
            found = self.send(operation, "result", answered.envelope)
            if isinstance(found, Finding):
                return found
            answered = found
            verdict, acceptor = self.judged(answered, "result")
            if verdict != "success":
                return self.concluded(verdict, acceptor, answered, "result")
            self.keep_outputs(operation, answered)
        last = rules.result[-1]
        if last.next is None:
            return Finding(
                Completed(answered.url if last.decode == "url" else rules.data.of(answered.envelope)), self.record
            )
        return self.pages(last, answered)

    def pages(self, operation: Operation, answered: Answered) -> Finding:
        """The pages of a result, joined."""
        rules = self.rules
        joined: list[Json] = []
        try:
            for page in self.exchange.pages(operation, answered):
                verdict, acceptor = self.judged(page, "result")
                if verdict != "success":
                    return self.concluded(verdict, acceptor, page, "result")
                data = rules.data.of(page.envelope)
                if not isinstance(data, list):
                    return Finding(Failed("not-a-list", "a page's data is not a list"), self.record)
                joined += data
        except TransportError as error:
            return self.pace.trouble(self.record, self.now, error.reason)
        return Finding(Completed(joined), self.record)

    def failure(self, acceptor: Acceptor | None, answered: Answered, stage: Stage) -> Finding:
        rules, record, status = self.rules, self.record, answered.status
        if acceptor is None:
            if self.renews(status):
                record = dataclasses.replace(record, unauthorized_at=self.now, reason="unauthorized")
                return Finding(Retry(0, "unauthorized", "reauthenticate"), record)
            if status == 404 and stage == "poll" and self.in_grace():
                return self.trouble("not-found-grace", answered)
            foreign = origin_of(answered.url) not in self.exchange.allowed
            if stage == "result" and status in (403, 404, 410) and foreign:
                return self.trouble("expired-link", answered)
        message = acceptor.message.of(answered.envelope) if acceptor and acceptor.message else None
        error = message if message is not None else rules.error.of(answered.envelope)
        record = dataclasses.replace(record, reason=f"HTTP {status}")
        return Finding(Failed("upstream", error), record)

    def renews(self, status: int) -> bool:
        """Whether a 401 asks for a new token: the first in a row, where there are tokens."""
        return status == 401 and self.exchange.renewable and self.record.unauthorized_at is None

    def resubmit(self, answered: Answered) -> Finding:
        if self.record.resubmits >= self.rules.max_resubmits:
            return Finding(Failed("too-many-resubmits"), self.record)
        self.record = dataclasses.replace(self.record, outputs=None, resubmits=self.record.resubmits + 1)
        finding = self.trouble("resubmit", answered)
        if isinstance(finding.outcome, Retry):
            return Finding(dataclasses.replace(finding.outcome, action="resubmit"), finding.record)
        return finding

    def trouble(self, reason: str, answered: Answered) -> Finding:
        return self.pace.trouble(self.record, self.now, reason, self.hinted(answered))

    def hinted(self, answered: Answered) -> float | None:
        """The answer's own delay, raised to the file's shortest."""
        seconds = hinted_seconds(self.rules.hints, answered.envelope, self.now)
        return None if seconds is None else max(seconds, self.rules.backoff.min_delay)

    def keep_outputs(self, operation: Operation, answered: Answered) -> None:
        """Outputs of an answer below 400, merged; null never overwrites."""
        if answered.status < 400:
            found = {name: expression.of(answered.envelope) for name, expression in operation.outputs.items()}
            kept = {name: value for name, value in found.items() if value is not None}
            self.record = dataclasses.replace(self.record, outputs=(self.record.outputs or {}) | kept)
            answered.envelope["outputs"] = self.context["outputs"] = self.record.outputs

    def lacks_output(self, operation: Operation) -> bool:
        """Whether a placeholder of the operation refers to an output that has no value."""
        texts = expressions([operation.url, operation.query, operation.headers, operation.body])
        return any("outputs" in text and Expression(text).of(self.context) is None for text in texts)

    def in_grace(self) -> bool:
        begun = self.now if self.record.submitted_at is None else self.record.submitted_at
        return self.now - begun <= self.rules.not_found_grace_seconds * 1000
