"""Every exception that Meanwhile raises, in one tree.

An error is an exception, "not ready" is a value (see `outcome.py`). Exceptions of redis, requests and botocore do
not leave the module that calls them: the exceptions below are raised `from` them.
"""

from shared.reasons import Reason, Trait


class MeanwhileError(Exception):
    """The root: `except MeanwhileError` catches whatever this package raises on purpose."""


class SettingsError(MeanwhileError):
    """The environment is not usable; the message names every faulty variable."""


class ProviderFileError(MeanwhileError):
    """A provider file is not usable; the message names its first fault: the file, the location in it, the reason."""


class QueueUnavailable(MeanwhileError):
    """Redis did not answer, or answered with an error; whether the command took effect is unknown."""


class QueueUnreachable(QueueUnavailable):
    """Redis did not answer: all that is asked of it next would wait as long."""


class StoreUnavailable(MeanwhileError):
    """DynamoDB did not answer, or answered with an error; whether the write took effect is unknown."""


class StoreUnreachable(StoreUnavailable):
    """DynamoDB did not answer: all that is asked of it next would wait as long."""


class DataUnavailable(StoreUnavailable):
    """Stored data cannot be read from S3, or what is there is not what was written."""


class StoreTooLarge(MeanwhileError):
    """A value is larger than the store keeps; nothing was written."""


class NotifyUnavailable(MeanwhileError):
    """A workflow that waits could not be told; try again."""


class TransportError(MeanwhileError):
    """The provider gave no usable reply, for a `reason`.

    `hint_seconds`: it says when to come back, to everybody; `url`: whom that request went to, where there was one;
    `passes`: a reply is at fault, the next may be better, whatever the reason alone says.
    """

    def __init__(
        self, detail: str, *, reason: Reason = Reason.TRANSPORT, hint_seconds: float | None = None, passes: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.hint_seconds = hint_seconds
        self.url = ""
        self.passes = passes

    @property
    def is_hopeless(self) -> bool:
        """Whether another try would only meet it again."""
        return Trait.HOPELESS in self.reason.traits and not self.passes


class SecretUnavailable(MeanwhileError):
    """A secret cannot be read; the message names the reference, never the value."""


class RecordError(MeanwhileError):
    """A record in Redis cannot be read; `newer` when a later version of this package wrote it."""

    def __init__(self, reason: str, *, newer: bool = False) -> None:
        super().__init__(reason)
        self.newer = newer


class Problem(MeanwhileError):
    """A request that cannot be served: an RFC 9457 problem. `field` names the part of the request at fault."""

    status = 500
    title = "Internal Server Error"
    type = "about:blank"

    def __init_subclass__(cls, status: int, title: str, type_: str = "about:blank") -> None:
        cls.status, cls.title, cls.type = status, title, type_

    def __init__(self, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field


class BadRequest(Problem, status=400, title="Bad Request"):
    """400: the request is malformed."""


class Forbidden(Problem, status=403, title="Forbidden"):
    """403: this deployment may not do what the request names."""


class NotFound(Problem, status=404, title="Not Found"):
    """404: there is no such task."""


class Conflict(Problem, status=409, title="Conflict"):
    """409: the task's state does not allow it: enqueue (in progress with another input), cancel, revive."""


class ItemUnreadable(Problem, status=409, title="Stored Task Unreadable", type_="urn:meanwhile:item-unreadable"):
    """409: an `attribute` of a task's stored item is missing or not as it must be; what stands there is not told."""

    def __init__(self, task_id: str, attribute: str) -> None:
        hint = "DELETE ends it, and another POST begins it anew"
        super().__init__(f"the stored task {task_id} cannot be read: its attribute {attribute!r} is damaged; {hint}")
        self.attribute = attribute
        self.facts: dict[str, object] = {"task_id": task_id, "attribute": attribute}


class ContentTooLarge(Problem, status=413, title="Content Too Large"):
    """413: the request or its input is over the limit."""


class Unavailable(Problem, status=503, title="Service Unavailable"):
    """503: try again after `retry_after_seconds`; nothing was accepted."""

    def __init__(self, detail: str, *, field: str | None = None, retry_after_seconds: int = 5) -> None:
        super().__init__(detail, field=field)
        self.retry_after_seconds = retry_after_seconds
