"""Replies made up from a provider file: what an API says that does just as the file expects."""

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import structs

from local.provider.planted import plant
from shared.codec import Json, dumps
from shared.provider.language.acceptor import Acceptor, Stage, judge
from shared.provider.language.expression import Expression
from shared.provider.language.operation import Operation
from shared.provider.language.part import ABSENT
from shared.provider.language.placeholder import lone
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Reply

UNKNOWN = "a word that nobody knows"


class CannotBePlayedError(Exception):
    """The file's expressions are such that nobody here knows what would fit them."""


@dataclass(frozen=True)
class Usual:
    """What an API says that does as the file expects: made up from the file. Raises CannotBePlayedError."""

    rules: Rules
    links: str = ""  # what stands before a path where a whole link is given

    def begun(self, step: int, *, outputs: bool = True) -> Reply:
        """The reply to a submit operation that has begun the job."""
        polled = (_status(one, 0) for one in self.rules.acceptors if one.state == "pending" and "poll" in one.stages)
        usual = next((status for status in polled if 200 <= status <= 299 and status not in (204, 205)), 200)
        return self._pending(f"submit{step}", self.rules.submit_steps[step], {"submit"}, usual, outputs=outputs)

    def bare(self) -> Reply:
        """The reply to the last submit operation that has what is kept of it and nothing else."""
        last = len(self.rules.submit_steps) - 1
        operation = self.rules.submit_steps[last]
        envelope = self._made(operation, f"submit{last}", None, self.begun(last).status)
        if envelope is None:
            raise CannotBePlayedError
        return _reply(envelope, operation)

    def running(self, *, outputs: bool = True) -> Reply:
        """The reply to a poll while the job runs."""
        return self._pending("poll", self.rules.asks_again, self._polled, 200, outputs=outputs)

    def done(self, step: int | None = None, *, outputs: bool = True) -> Reply:
        """The reply to a poll when the job is done; it has what a submit operation keeps, if one is named."""
        operation = self.rules.asks_again if step is None else self.rules.submit_steps[step]
        return self._done(operation, outputs=outputs)[0]

    def fetched(self, step: int) -> Reply:
        """The reply to a result operation."""
        operation, is_last = self.rules.result_steps[step], step == len(self.rules.result_steps) - 1
        for acceptor in (*(one for one in self.rules.acceptors if one.state == "success"), None):
            if acceptor and "result" not in acceptor.stages:
                continue
            envelope = self._made(operation, f"result{step}", acceptor, 200)
            if envelope and is_last:
                self._with_data(envelope)
            if envelope and judge(self.rules.acceptors, {"result"}, envelope)[0] == "success":
                return _reply(envelope, operation)
        raise CannotBePlayedError

    def unknown(self) -> Reply | None:
        """The reply to a poll with a status that the file does not know; None where it reads none."""
        _, acceptor = self._done(self.rules.asks_again, outputs=True)
        if acceptor.matcher != "path" or not isinstance(acceptor.any_of[0], str):
            return None
        envelope = _envelope(200)
        self._with_what_is_needed(envelope)
        return _reply(envelope, self.rules.asks_again) if plant(acceptor.argument, UNKNOWN, envelope) else None

    @property
    def _polled(self) -> set[Stage]:
        return {"poll"} if self.rules.poll else {"submit", "poll"}

    def _done(self, operation: Operation, *, outputs: bool) -> tuple[Reply, Acceptor]:
        for acceptor in self.rules.acceptors:
            if acceptor.state == "success" and acceptor.stages & self._polled:
                envelope = self._made(operation, "poll", acceptor, _status(acceptor, 200), outputs=outputs)
                if envelope and not self.rules.result:
                    self._with_data(envelope)
                if envelope and judge(self.rules.acceptors, self._polled, envelope)[0] == "success":
                    return _reply(envelope, operation), acceptor
        raise CannotBePlayedError

    def _pending(self, tag: str, operation: Operation, stages: set[Stage], usual: int, *, outputs: bool) -> Reply:
        judging = [one for one in self.rules.acceptors if one.stages & stages]
        fitting = (one for one in judging if one.state == "pending")
        for acceptor in (*fitting, None, *_opposites(judging)):
            for status in (_status(acceptor, usual), 202, 201):
                envelope = self._made(operation, tag, acceptor, status)
                if envelope and judge(self.rules.acceptors, stages, envelope)[0] == "pending":
                    said = envelope if outputs else self._made(operation, tag, acceptor, status, outputs=False)
                    return _reply(said or envelope, operation)
        raise CannotBePlayedError

    def _made(
        self, operation: Operation, tag: str, acceptor: Acceptor | None, status: int, *, outputs: bool = True
    ) -> dict[str, Json] | None:
        """What the acceptor looks for, what the operation keeps, and what the operations after it read of the reply."""
        envelope = _envelope(status)
        if acceptor and not acceptor.is_about_status:
            value = acceptor.any_of[0] if acceptor.any_of else None
            if not plant(acceptor.argument, value if acceptor.matcher == "path" else [value], envelope):
                return None
        if outputs:
            for name, expression in operation.outputs.items():
                plant(expression, self._value(Expression(f"outputs.{json.dumps(name)}")), envelope)
        if outputs:
            self._with_what_is_needed(envelope)
        for other in self._after(tag):
            for _, one in other.placed():
                if one.refers_to("response"):
                    plant(one, self._value(one), {"response": envelope})
        return envelope

    def _with_what_is_needed(self, envelope: dict[str, Json]) -> None:
        """Where a failure is that something is null, it is there."""
        for one in self.rules.acceptors:
            if one.state == "failure" and one.matcher == "path" and one.expected is None:
                plant(one.argument, "p7", envelope)

    def _after(self, tag: str) -> list[Operation]:
        """The operations that read the reply to this one."""
        if tag == "poll":
            return [*self.rules.result_steps[:1]]
        steps = self.rules.submit_steps if tag.startswith("submit") else self.rules.result_steps
        return [*steps[int(tag[-1]) + 1 :][:1]]

    def _value(self, expression: Expression) -> Json:
        """A link where the expression is a whole URL somewhere in the file, else an id."""
        every = (*self.rules.submit_steps, self.rules.asks_again, *self.rules.result_steps, self.rules.cancel)
        whole = [one for operation in every if operation and (one := lone(operation.url))]
        is_link = any(one.expression.references >= expression.references for one in whole)
        return f"{self.links}/played" if is_link else "p7"

    def _with_data(self, envelope: dict[str, Json]) -> None:
        last = self.rules.result_steps[-1:]
        is_list = any(one.next is not ABSENT for one in last)
        bare = copy.deepcopy(envelope)
        plant(self.rules.data, value := ["whole"] if is_list else "whole", envelope)
        if not self.rules.satisfied(envelope, value) and any(
            plant(self.rules.require, one, bare) for one in ("whole", True)
        ):
            envelope["body"], envelope["headers"] = bare["body"], bare["headers"]
            plant(self.rules.data, value, envelope)


def _opposites(acceptors: Iterable[Acceptor]) -> Iterator[Acceptor]:
    """Acceptors that look for the opposite of a condition that these ask."""
    for one in acceptors:
        if one.matcher == "path" and isinstance(one.expected, bool):
            yield structs.replace(one, expected=not one.expected)


def _envelope(status: int) -> dict[str, Json]:
    return {"statusCode": status, "headers": {}, "body": None}


def _status(acceptor: Acceptor | None, usual: int) -> int:
    """The first status that an acceptor about statuses names."""
    if acceptor and acceptor.is_about_status:
        return next((status for status in range(200, 600) if acceptor.names(status)), usual)
    return usual


def _reply(envelope: dict[str, Json], operation: Operation) -> Reply:
    body, headers = envelope["body"], {name: str(value) for name, value in envelope["headers"].items()}
    if operation.decode in ("csv", "text", "jsonl"):
        return Reply(envelope["statusCode"], {"content-type": _TYPES[operation.decode]} | headers, b"1\n1\n", "")
    content = b"" if body is None else dumps(body).encode()
    return Reply(envelope["statusCode"], {"content-type": "application/json"} | headers, content, "")


_TYPES = {"csv": "text/csv", "text": "text/plain", "jsonl": "application/jsonl"}
