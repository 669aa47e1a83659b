"""A provider file: how to submit and poll, which replies mean what, the delays, the credentials.

The language is said once, here and beside: editors, docs/providers.md and `check` know it from these types.
"""

import re
from pathlib import Path
from typing import Annotated, Self, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from shared.codec import Json, loads
from shared.errors import ProviderFileError
from shared.limits import Limits
from shared.provider.language.acceptor import Acceptor
from shared.provider.language.expression import Expression
from shared.provider.language.faults import faults, operations
from shared.provider.language.limits import Allowance
from shared.provider.language.operation import Operation
from shared.provider.language.part import ABSENT, Part, Seconds, Url, by_default, made, says
from shared.provider.language.placeholder import leading
from shared.provider.language.polling import Polling
from shared.provider.language.security import Scheme
from shared.provider.language.signature import Callback

STATUS, BODY = Expression("body.status"), Expression("body")
ERROR = Expression(
    "type(body.error) == 'object' && body.error || body.error_description || body.message || body.error || "
    "body.detail || body.title || body.error_message || body.errorMessage || "
    "body.errors[0].message || body.errors[0].detail || body.errors[0].title || "
    "body.errors || body[0].message || (to_array(body)[?type(@) == 'string'] | [0])"
)
"""Where APIs say what is wrong: an object whole, a sentence for people before a code, RFC 9457's `detail`."""
FirstAnswer: TypeAlias = Annotated[float, Meta(ge=0, le=20)]
Steps: TypeAlias = Operation | Annotated[tuple[Operation, ...], Meta(min_length=1)]


CONVERSATIONS = ".vectors.json"  # how the name of a file of conversations ends; it may lie beside provider files


def provider_files(directory: Path) -> list[Path]:
    """The files NAME.json of a directory, but for NAME.vectors.json and NAME.schema.json, which editors read."""
    return [one for one in sorted(directory.glob("*.json")) if not one.name.endswith((CONVERSATIONS, ".schema.json"))]


class Rules(Part, frozen=True, kw_only=True):
    """How to ask one slow API: docs/providers.md explains it, `python -m local.provider check FILE` checks it."""

    schema: Annotated[str, says("for editors: a URL, or a path from this file")] = field(name="$schema", default="")
    description: Annotated[str, says("for people")] = ""
    servers: Annotated[
        tuple[Url, ...], Meta(min_length=1), says("base URLs, the first for relative URLs; secrets go to these alone")
    ]
    security: Annotated[tuple[Scheme, ...], says("credentials; all of them are applied")] = ()
    submit: Annotated[Steps, says("begins the job; of several the next may use the `response`; an error repeats all")]
    poll: Annotated[Operation | UnsetType, says("asks after the job; absent: the last submit operation again")] = UNSET
    result: Annotated[
        Steps | UnsetType, says("sent in order after success, in the same attempt; data is read from the last reply")
    ] = UNSET
    cancel: Annotated[Operation | UnsetType, says("sent once, best effort, at a cancellation or timeout")] = UNSET
    acceptors: Annotated[tuple[Acceptor, ...], Meta(min_length=1), says("what replies mean: the first match decides")]
    status: Annotated[Expression, says("what acceptors look at unless they say otherwise")] = by_default(STATUS)
    data: Annotated[Expression, says("the data of a completed task; `null`: it has none")] = by_default(BODY)
    require: Annotated[
        Expression, says("what a success must have, over its last reply; absent: `data` finds something")
    ] = by_default(ABSENT)
    partial: Annotated[
        Expression,
        says("what is known while the job runs; null keeps the last; absent: as data, where a poll's reply holds that"),
    ] = by_default(ABSENT)
    progress: Annotated[Expression, says("how far the job is, in the provider's own words")] = by_default(ABSENT)
    error: Annotated[Expression, says("what the provider says of a failure; absent: where most APIs say it")] = (
        by_default(ABSENT)
    )
    polling: Annotated[Polling, says("the delays, and when it is enough")] = Polling()
    freshness: Annotated[Seconds, says("seconds during which completed data answers a new request")] = 3600
    freshness_failed: Annotated[Seconds, says("seconds during which a failure answers a new request")] = 60
    first_answer: Annotated[
        FirstAnswer | UnsetType, says("seconds that a new request waits; 0: not at all; absent: `FIRST_ANSWER_SECONDS`")
    ] = UNSET
    allowance: Annotated[Allowance, says("for all workers together")] = field(name="limits", default=Allowance())
    callback: Annotated[Callback, says("how the provider signs what it sends to `${callback.url}`")] = Callback()

    def __post_init__(self) -> None:
        """Put in what stands elsewhere in the file, or in most replies, where an expression is absent."""
        acceptors = (
            msgspec.structs.replace(one, argument=self.status) if one.argument is ABSENT else one
            for one in self.acceptors
        )
        msgspec.structs.force_setattr(self, "acceptors", tuple(acceptors))
        if self.error is ABSENT:
            msgspec.structs.force_setattr(self, "error", ERROR)
        is_said = self.data is not BODY or not self.poll  # else a poll's reply is mostly the job's state, not its data
        if self.partial is ABSENT and not self.result and is_said:
            msgspec.structs.force_setattr(self, "partial", self.data)

    @property
    def submit_steps(self) -> tuple[Operation, ...]:
        """The operations that begin a job, in order."""
        return self.submit if isinstance(self.submit, tuple) else (self.submit,)

    @property
    def result_steps(self) -> tuple[Operation, ...]:
        """The operations that fetch what a job has made, in order."""
        return self.result if isinstance(self.result, tuple) else (self.result,) if self.result else ()

    def first_answer_seconds(self, usual: float) -> float:
        """How long a new request may wait for the reply to the submit: as the file says, else as is `usual`."""
        return usual if self.first_answer is UNSET else self.first_answer

    def satisfied(self, envelope: dict[str, Json], data: Json) -> bool:
        """Whether a success with this reply and `data` is one: `require` is met or, without it, there are data.

        None are needed where `data` is `null`, or where an acceptor calls just this status without content a success.
        """
        if self.require is not ABSENT:
            met = self.require.of(envelope)
            return met is not None and met is not False
        if not self.data.is_nothing(data, envelope) or self.data.text.strip("`") == "null":
            return True
        status = envelope["statusCode"]
        named = (one.any_of for one in self.acceptors if one.state == "success" and one.is_about_status)
        return status in (204, 205) and any(status in any_of for any_of in named)

    @property
    def limits(self) -> Limits:
        """What all workers together may ask of the provider, as the queue counts."""
        return self.allowance.limits()

    @property
    def calls_back(self) -> bool:
        """Whether the provider is told a URL to call back."""
        return any(expression.refers_to("callback") for one in self.submit_steps for _, expression in one.placed())

    @property
    def carries_key(self) -> bool:
        """Whether a submit carries the idempotency key, `${task.id}`."""
        placed = (one for step in self.submit_steps for _, one in step.placed())
        return any(("task", "id") in one.references for one in placed)

    @property
    def asks_again(self) -> Operation:
        """The operation that asks after a job: poll, or the last submit operation where the file has no poll."""
        return self.poll or self.submit_steps[-1]

    @property
    def links(self) -> tuple[Expression, ...]:
        """What URLs of the file begin with that is kept in outputs."""
        ways = (self.poll or None, self.cancel or None, *self.submit_steps, *self.result_steps)
        found = (leading(one.url) for one in ways if one)
        return tuple(one.expression for one in found if one and one.expression.refers_to("outputs"))

    @classmethod
    def load(cls, path: Path, server: str | None = None) -> Self:
        """The file at `path`, its first server replaced by `server`. Raises ProviderFileError for its first fault."""
        try:
            return cls.from_json(loads(path.read_bytes(), unique_keys=True), server)
        except (OSError, ValueError, ProviderFileError) as error:
            raise ProviderFileError(f"{path.name}: {error}") from error

    @classmethod
    def from_json(cls, value: Json, server: str | None = None) -> Self:
        """The rules that a decoded file states. Raises ProviderFileError for the first fault, with its location."""
        value = served(value, server)
        try:
            rules = msgspec.convert(value, cls, dec_hook=made)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # half a character where a word is meant
            raise ProviderFileError(_fault(str(error), value)) from error
        for fault in faults(value):
            raise ProviderFileError(fault)
        return rules


def served(file: Json, server: str | None) -> Json:
    """The decoded file with `server` in place of its first, if there is one."""
    match file:
        case {"servers": [str(), *others]} if server:
            return file | {"servers": [server, *others]}
    return file


def _fault(said: str, file: Json) -> str:
    """A fault as msgspec says it, its location first; msgspec does not say which of several outputs it is."""
    reason, _, location = said.partition(" - at `")
    location = location.removesuffix("`") or "$"
    for at, one, _ in operations(file) if location.endswith(".outputs[...]") else ():
        if location in (f"{at}.outputs[...]", f"{at}[0].outputs[...]"):
            bad = (k for k, x in one["outputs"].items() if not isinstance(x, str) or reason.startswith(repr(x)))
            location = f"{at}.outputs.{next(bad, '?')}"
    if named := re.fullmatch("Object (missing required|contains unknown) field `(.*)`", reason):
        return f"{location}.{named[2]}: is {'missing' if named[1].startswith('missing') else 'not known'}"
    return f"{location}: {reason}"
