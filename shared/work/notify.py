"""Notifying: workflows that wait for a task are told that it has ended, from the table's stream.

Meanwhile is their cheap wait state: a Step Functions task token or a durable function's callback id stands in the open
item (`notify`), and whatever ends the item, the stream tells of it; so no crash loses a notification. A workflow may be
told twice: the second time it waits no longer, and nothing happens.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from shared.codec import Json, dumps
from shared.errors import Forbidden, ItemUnreadable, NotifyUnavailable
from shared.logs import log
from shared.store import Item, read_whole
from shared.store.item import Spilled
from shared.store.rows import parse, waiting

MAX_RESULT_BYTES = 262_144  # what Step Functions takes as a task's output
MAX_CAUSE = 32_768
MAX_ERROR = 256
WAITS_NO_LONGER = (
    "TaskDoesNotExist", "TaskTimedOut", "InvalidToken", "ResourceNotFoundException", "CallbackTimeoutException",
    "InvalidParameterValueException", "ValidationException",
)  # fmt: skip
"""Answers that another try would only meet again: the token is used, expired, or never was one."""


@dataclass(frozen=True, slots=True)
class Notifier:
    """Tells of ends. `states` and `functions` are botocore's clients of Step Functions and Lambda."""

    states: Any
    functions: Any

    def tell_ends(self, records: Iterable[Any]) -> list[str]:
        """Tell of every end among a stream's records; the sequence numbers of those to be handed in again.

        A record without a number cannot be handed in again, and only stands in the log.
        """
        again = [_number(record) for record in records if not self._told(record)]
        return [number for number in again if number is not None]

    def _told(self, record: Any) -> bool:
        """Whether nothing is left to tell of this record; one that waits keeps no other waiting."""
        told = True
        try:
            for target, item in _ends(record["dynamodb"]):
                try:
                    self.tell(target, item)
                except NotifyUnavailable as error:
                    log.warning("notify unavailable", extra={"task": item.task.id, "reason": str(error)})
                    told = False
                except Forbidden as error:
                    log.warning("notify dropped", extra={"task": item.task.id, "reason": error.detail})
        except ItemUnreadable as error:
            log.error("item unreadable", extra=error.facts)
        except Exception:
            log.exception("stream record unreadable")
            return False
        return told

    def tell(self, target: str, item: Item) -> None:
        """Tell one target, `<kind>:<token>`, how the item's generation ended. Raises NotifyUnavailable.

        One that waits no longer is not an error. Forbidden: it is of a workflow that this deployment may not tell.
        """
        kind, _, token = target.partition(":")
        said = {"task": item.task.id, "generation": item.generation, "kind": kind}
        try:
            (self._tell_states if kind == "stepFunctionsToken" else self._tell_function)(token, item)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "AccessDeniedException":
                raise Forbidden("this deployment may not notify that workflow", field="notify") from error
            if code not in WAITS_NO_LONGER:
                raise NotifyUnavailable(f"{kind}: {code}") from error
            log.warning("notify dropped", extra=said | {"reason": code})
        except ParamValidationError:
            log.warning("notify dropped", extra=said | {"reason": "no such token"})
        except BotoCoreError as error:
            raise NotifyUnavailable(f"{kind}: {type(error).__name__}") from error
        else:
            log.info("notified", extra=said | {"status": item.status})

    def _tell_states(self, token: str, item: Item) -> None:
        if item.status == "completed":
            self.states.send_task_success(taskToken=token, output=_result(item))
        else:
            self.states.send_task_failure(taskToken=token, error=_reason(item)[:MAX_ERROR], cause=_cause(item))

    def _tell_function(self, token: str, item: Item) -> None:
        if item.status == "completed":
            self.functions.send_durable_execution_callback_success(CallbackId=token, Result=_result(item).encode())
        else:
            error = {"ErrorType": _reason(item), "ErrorMessage": _cause(item)}
            self.functions.send_durable_execution_callback_failure(CallbackId=token, Error=error)


def _number(record: Any) -> str | None:
    match record:
        case {"dynamodb": {"SequenceNumber": str(number)}}:
            return number
    return None


def _ends(change: Mapping[str, Any]) -> Iterator[tuple[str, Item]]:
    """Whom to tell of which end; nothing where no task ended. An open item that was deleted counts as cancelled."""
    old, new = change.get("OldImage", {}), change.get("NewImage", {})
    if "open" in old and "open" not in new and "notify" in old:
        item = parse(_image(new or old))
        assert item
        for target in sorted(waiting(old)):
            yield target, item if new else replace(item, status="cancelled")


def _image(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """An image as the client would give it: Lambda's events have bytes as base64."""
    return {name: _in_bytes(value) for name, value in attributes.items()}


def _in_bytes(attribute: Any) -> Any:
    try:
        return {"B": base64.b64decode(attribute["B"])}
    except (LookupError, TypeError, ValueError):  # of another kind, or damaged
        return attribute


def _result(item: Item) -> str:
    """Identity and data; identity alone where the whole would not be taken, as when it is in S3 for its size."""
    if isinstance(item.data, Spilled) or item.room_bytes > MAX_RESULT_BYTES:
        return _told_of(item)
    text = _told_of(item, data=read_whole(item).data)
    return text if len(text.encode()) <= MAX_RESULT_BYTES else _told_of(item)


def _reason(item: Item) -> str:
    return str(item.error["reason"]) if item.status == "failed" else item.status


def _cause(item: Item) -> str:
    """Identity and what the provider said; identity alone where that is too long."""
    text = _told_of(item, error=item.error["error"] if item.status == "failed" else None)
    return text if len(text) <= MAX_CAUSE else _told_of(item)


def _told_of(item: Item, **more: Json) -> str:
    identity = {"task_id": item.task.id, "provider": item.task.provider, "name": item.task.name}
    return dumps(identity | {"status": item.status, "generation": item.generation} | more)
