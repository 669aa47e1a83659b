"""One attempt: the operations that ask a provider about one task, and what their replies mean."""

import dataclasses
import math
from collections.abc import Sequence

from msgspec import structs
from msgspec.structs import replace

from shared.codec import Json
from shared.errors import TransportError
from shared.logs import log
from shared.outcome import Completed, Failed, Pending
from shared.provider.delays import Delays, Finding
from shared.provider.envelope import Decoded, enveloped
from shared.provider.exchange import Exchange
from shared.provider.language.acceptor import Acceptor, Stage, Verdict, deciding, judge
from shared.provider.language.hint import is_for_all, says_when
from shared.provider.language.operation import Operation
from shared.provider.language.part import ABSENT
from shared.provider.language.placeholder import text_of, without_value
from shared.provider.language.rules import Rules
from shared.provider.pages import gathered
from shared.provider.patience import may_begin_twice, passing
from shared.provider.shelf import Shelf
from shared.provider.wire.message import Reply
from shared.reasons import Reason
from shared.record import Record

WORD_CHARACTERS = 64  # what is kept of a status that no acceptor knows


@dataclasses.dataclass(slots=True)
class Attempt:
    """One attempt under way at `now` (epoch ms): `record` grows with every reply, `context` with its outputs."""

    rules: Rules
    delays: Delays
    exchange: Exchange
    context: dict[str, Json]
    record: Record
    now: int
    shelf: Shelf | None = None

    def run(self) -> Finding:
        """Ask, and tell what the replies mean."""
        try:
            if self.record.outputs is None:
                return self.through(self.rules.submit_steps, "submit")
            return self.through([self.rules.asks_again], "poll")
        except TransportError as error:
            return self.broken(error)

    def broken(self, error: TransportError) -> Finding:
        """What it means that there is no reply."""
        if error.is_hopeless:
            return Finding(Failed(error.reason, str(error)), self.record)
        return self.unanswered(error)

    def through(self, steps: Sequence[Operation], stage: Stage, response: Json = None) -> Finding:
        """What the reply to the last of these operations means, or the first that does not lead on to the next.

        Raises TransportError.
        """
        while True:
            operation, *others = steps
            if stage == "result" and not others and self.record.pages and self.record.pages.next:
                return gathered(self, operation, self.context | {"response": response}, None)
            reply = self.send(operation, stage, response)
            if isinstance(reply, Finding):
                return reply
            verdict, acceptor = self.judged(reply, stage)
            leads_on = verdict == "success" or (verdict == "pending" and stage == "submit")
            if not others or not leads_on:
                break
            steps, response = others, reply.envelope  # no more is recorded: an error in a later one repeats them all
        if stage == "submit" and leads_on:
            self.record = replace(self.record, outputs=self.context["outputs"], job_at=self.now)
        if stage == "result" and leads_on:
            return self.result(operation, self.context | {"response": response}, reply)
        return self.concluded(verdict, acceptor, reply, stage)

    def hear(self, payload: Reply) -> Finding | None:
        """What a signed callback says, read as a poll's reply; nothing is asked. Its result is the worker's to fetch.

        It has no status, for nobody has signed one. What no acceptor knows tells nothing.
        """
        operation = structs.replace(self.rules.asks_again, decode="auto")
        decoded = enveloped(payload, operation, self.context, self.exchange.hiding())
        heard = dataclasses.replace(decoded, envelope=decoded.envelope | {"statusCode": None})
        acceptor = deciding(self.rules.acceptors, self.stages("poll"), heard.envelope)
        if heard.undecodable or acceptor is None or acceptor.state in ("retry", "resubmit"):
            return None
        self.keep(heard)
        if acceptor.state == "pending" or (acceptor.state == "success" and self.rules.result_steps):
            self.learn(heard)
            return Finding(Pending(0 if acceptor.state == "success" else math.inf), self.record)
        match finding := self.concluded(acceptor.state, acceptor, heard, "poll"):
            case Finding(Completed() | Failed(reason=Reason.UPSTREAM)):
                return finding
        return None

    def send(self, operation: Operation, stage: Stage, response: Json) -> Decoded | Finding:
        """The reply to an operation, its outputs kept; or what it means that there is none. Raises TransportError."""
        context = self.context | {"response": response}
        acceptors = [one for one in self.rules.acceptors if one.stages & self.stages(stage)]
        try:
            reply = self.exchange.send(operation, context, acceptors)
        except TransportError as error:
            error.passes = error.passes or (error.reason is Reason.TOO_LARGE and stage != "result")
            raise
        if reply is None:
            return self.without_url(operation, context, stage)
        self.keep(reply)
        return self.unbelieved(reply) if reply.says_nothing else reply

    def unbelieved(self, reply: Decoded) -> Finding:
        """A retry, since the body is not whole, or not what it is declared to be; the log says why."""
        about = {"provider": self.context["task"]["provider"], "task": self.context["task"]["name"]}
        log.warning("undecodable", extra=about | {"status": reply.status, "reason": reply.undecodable})
        return self.retry(Reason.UNDECODABLE, reply, reply.undecodable)

    def without_url(self, operation: Operation, context: dict[str, Json], stage: Stage) -> Finding:
        """A URL without a value: in the result stage the link is not there yet, elsewhere it never will be."""
        if stage == "result":
            if operation.optional:
                return Finding(Completed(None), self.record)
            hint = self.rules.polling.hinted(context["response"], self.now)
            return self.delays.retry(self.record, self.now, Reason.MISSING_LINK, hint)
        lacking = without_value(operation.url, context)
        reason = Reason.MISSING_OUTPUT if any(one.refers_to("outputs") for one in lacking) else Reason.MISSING_INPUT
        return Finding(Failed(reason, f"no value for {', '.join(one.text for one in lacking)}"), self.record)

    def stages(self, stage: Stage) -> set[Stage]:
        """The stages whose acceptors judge a reply: without a poll operation a submit counts as poll."""
        return {stage} if self.rules.poll or stage == "result" else {"submit", "poll"}

    def judged(self, reply: Decoded, stage: Stage) -> tuple[Verdict, Acceptor | None]:
        """What a reply means; no error that says itself that it passes is the end, unless an acceptor says so."""
        verdict, acceptor = judge(self.rules.acceptors, self.stages(stage), reply.envelope)
        if verdict == "failure" and acceptor is None and says_when(reply.envelope, self.now / 1000):
            return "failure" if self.renews(reply) else "retry", None
        return verdict, acceptor

    def renews(self, reply: Decoded) -> bool:
        """Whether it is a 401, the first in a row, that a new token may mend."""
        return reply.refused and self.exchange.credentials.renewable and self.record.unauthorized_at is None

    def concluded(self, verdict: Verdict, acceptor: Acceptor | None, reply: Decoded, stage: Stage) -> Finding:
        match verdict:
            case "failure" | "retry" if acceptor is None and reply.foreign:
                return self.retry(Reason.EXPIRED_LINK, reply)
            case "pending":
                return self.pending(acceptor, reply, stage)
            case "success" if self.rules.result_steps:  # in the same attempt; what goes wrong there returns to poll
                return self.through(self.rules.result_steps, "result", reply.envelope)
            case "success":
                return self.completed(reply, self.rules.data.of(reply.envelope))
            case "failure":
                return self.failure(acceptor, reply, stage)
            case "resubmit":
                return self.resubmit(reply)
            case "retry":
                return self.retry(Reason.ACCEPTOR if acceptor else self.passing(reply, stage) or Reason.HTTP, reply)

    def pending(self, acceptor: Acceptor | None, reply: Decoded, stage: Stage) -> Finding:
        rules = self.rules
        self.learn(reply)
        if stage != "result":  # the job goes on: the pages of its result may be others then
            self.record = replace(self.record, pages=None)
        if stage != "result" and rules.poll and (lacking := self.lacking_outputs(rules.poll)):
            said = rules.error.of(reply.envelope)
            error = f"no value for {', '.join(lacking)}" if said is None else said
            if (
                stage == "submit" and not reply.envelope["body"] and rules.carries_key
            ):  # the same key begins no second job
                self.record = replace(self.record, outputs=None, job_at=None)
                return self.retry(Reason.MISSING_OUTPUT, reply, error)
            return Finding(Failed(Reason.MISSING_OUTPUT, error), self.record)
        finding = self.delays.pending(self.record, self.now, rules.polling.hinted(reply.envelope, self.now))
        word = rules.status.of(reply.envelope)
        if acceptor is None and word is not None and "poll" in self.stages(stage):  # for whoever looks at the task
            unknown = f"no acceptor matches {text_of(word)[:WORD_CHARACTERS]}"
            return Finding(finding.outcome, replace(finding.record, reason=unknown))
        return finding

    def learn(self, reply: Decoded) -> None:
        """Keep what a pending reply tells: partial data, where there is any, and progress."""
        partial = self.rules.partial.of(reply.envelope)
        if self.rules.partial.is_nothing(partial, reply.envelope):
            partial = self.record.partial
        progress = self.rules.progress.of(reply.envelope)
        self.record = replace(self.record, partial=partial, progress=progress, unauthorized_at=None)

    def result(self, operation: Operation, context: dict[str, Json], reply: Decoded) -> Finding:
        """The data in the reply to the last operation, or those of its pages, joined."""
        if operation.next is ABSENT:
            return self.completed(reply, reply.url if operation.decode == "url" else self.rules.data.of(reply.envelope))
        return gathered(self, operation, context, reply)

    def completed(self, reply: Decoded, data: Json) -> Finding:
        """The end of the task with this data: a reply that is what it is declared to be, and has what a success has."""
        if reply.undecodable:
            return self.unbelieved(reply)
        if not self.rules.satisfied(reply.envelope, data):
            return self.retry(Reason.NO_DATA, reply)
        return Finding(Completed(data), self.record)

    def failure(self, acceptor: Acceptor | None, reply: Decoded, stage: Stage) -> Finding:
        rules, status = self.rules, reply.status
        if acceptor is None:
            if self.renews(reply):  # at once, with a token younger than this 401
                record = replace(self.record, unauthorized_at=self.now)
                return self.delays.retry(record, self.now, Reason.UNAUTHORIZED, 0)
            if reason := self.passing(reply, stage):
                return self.retry(reason, reply)
        message = acceptor.message.of(reply.envelope) if acceptor else None
        error = message if message is not None else rules.error.of(reply.envelope)
        return Finding(Failed(Reason.UPSTREAM, error), replace(self.record, reason=f"HTTP {status}"))

    def passing(self, reply: Decoded, stage: Stage) -> Reason | None:
        return passing(self.rules, self.record, self.now, reply, stage)

    def resubmit(self, reply: Decoded) -> Finding:
        """A retry that begins with a new job; its delays and its 404s begin anew, not the deadline."""
        if self.record.resubmits >= self.rules.polling.max_resubmits:
            return Finding(Failed(Reason.TOO_MANY_RESUBMITS, self.rules.error.of(reply.envelope)), self.record)
        resubmits = self.record.resubmits + 1
        self.record = replace(self.record, outputs=None, job_at=None, polls=0, resubmits=resubmits, pages=None)
        return self.retry(Reason.RESUBMIT, reply)

    def retry(self, reason: Reason, reply: Decoded, why: str | None = None) -> Finding:
        """Another try; `why` is kept with the end where the provider itself says nothing."""
        record, is_busy = replace(self.record, unauthorized_at=None), reply.status in (429, 503)
        said, hint = self.rules.error.of(reply.envelope), self.rules.polling.hinted(reply.envelope, self.now)
        hint = None if reply.foreign and reply.status >= 400 and not is_busy else hint  # a fresh link is there at once
        pause = hint if hint and not reply.foreign and is_for_all(reply.envelope, self.now / 1000) else 0
        return self.delays.retry(record, self.now, reason, hint, why if said is None else said, pause)

    def unanswered(self, error: TransportError) -> Finding:
        """A retry; what the token endpoint says of it is kept with the end, and its hint is a pause for all."""
        if error.reason is Reason.NO_ROOM and not may_begin_twice(self.rules, self.record):
            return self.delays.postponed(self.record, self.now, error.reason)
        hint, said = error.hint_seconds, str(error) if error.reason is Reason.TOKEN else None
        hint = None if hint is None else self.rules.polling.bounded(hint)
        return self.delays.retry(self.record, self.now, error.reason, hint, said, hint or 0)

    def keep(self, reply: Decoded) -> None:
        """Keep the outputs so far; before there is a job none is recorded. What cannot be sent replaces nothing."""
        asked, found = (self.rules.asks_again, *self.rules.result_steps), reply.envelope["outputs"]
        self.context["outputs"] = outputs = self.exchange.sendable(asked, self.context, found)
        if self.record.outputs is not None:
            self.record = replace(self.record, outputs=outputs)

    def lacking_outputs(self, operation: Operation) -> list[str]:
        """The placeholders of the operation that refer to an output and have no value."""
        lacking = [one for part, one in operation.placed() if part != "url" and one.of(self.context) is None]
        lacking += without_value(operation.url, self.context)
        return [one.text for one in lacking if one.refers_to("outputs")]
