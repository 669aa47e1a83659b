"""Writes down a conversation as a vector that replay accepts, its secrets masked."""

from typing import Any

from typing_extensions import override

from local.provider.replay import described
from local.provider.wiretap import Listener
from shared.codec import Json, dumps, loads
from shared.errors import TransportError
from shared.outcome import Outcome
from shared.provider.credentials.mask import Mask
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.transport import url_of
from shared.record import Record
from shared.task import Task

PASSING = frozenset(
    {
        "connection",
        "keep-alive",
        "transfer-encoding",
        "content-encoding",
        "content-length",
        "date",
        "server",
        "set-cookie",
    }
)
"""Headers of the connection, the machine or the moment: no part of what an answer says."""


class Recorder(Listener):
    """One conversation. Token requests are left out: replay answers them by itself."""

    def __init__(self, mask: Mask, token_urls: frozenset[str]) -> None:
        self.steps: list[dict[str, Any]] = []
        self.gap: str | None = None
        self._mask = mask
        self._token_urls = token_urls
        self._exchanges: list[dict[str, Any]] = []
        self._request: dict[str, Any] | None = None

    @override
    def asked(self, call: Call, *, authorised: bool) -> None:
        self._request = None if call.url in self._token_urls else self._written(call, authorised)

    @override
    def answered(self, reply: Reply) -> None:
        if self._request:
            self._exchanges.append({"request": self._request, "response": self._response(reply)})

    @override
    def unanswered(self, error: TransportError) -> None:
        self.gap = self.gap or f"a request without an answer ({error.reason}) has no place in a vector"

    def step(self, at: float, outcome: Outcome, record: Record) -> None:
        """An attempt is over."""
        told = {name: value for name, value in described(outcome, record).items() if value is not None}
        ours = ("state", "delay", "reason", "action")
        expect = {name: value if name in ours else self._mask.value(value) for name, value in told.items()}
        self.steps.append({"at": at, "exchanges": self._exchanges, "expect": expect})
        self._exchanges = []

    def vector(self, task: Task, config: Json, input_: Json, start_epoch: int) -> dict[str, Any]:
        """The conversation so far."""
        return {
            "id": f"{task.provider}-{start_epoch}",
            "title": "recorded by local.provider try",
            "config_name": task.provider,
            "config": config,
            "task_name": task.name,
            "input": self._mask.value(input_),
            "start_epoch": start_epoch,
            "steps": self.steps,
        }

    def _written(self, call: Call, authorised: bool) -> dict[str, Any]:
        request: dict[str, Any] = {"method": call.method, "url": self._mask.text(url_of(call)), "auth": authorised}
        if call.headers:
            request["headers"] = self._mask.value(call.headers)
        if call.body is not None:
            request["body"] = self._mask.value(_form(call.body) if "form" in call.content_type else call.body)
        return request

    def _response(self, reply: Reply) -> dict[str, Any]:
        headers = {name: value for name, value in reply.headers.items() if name not in PASSING}
        return {"statusCode": reply.status, "headers": self._mask.value(headers), "body": self._body(reply)}

    def _body(self, reply: Reply) -> Json:
        """Decoded JSON where it is an object or a list, else raw text."""
        try:
            value = loads(reply.body)
        except ValueError:
            value = None
        if isinstance(value, dict | list):
            return self._mask.value(value)
        return self._mask.text(reply.body.decode(errors="replace"))


def _form(body: Json) -> Json:
    """The fields of a form as they arrive: texts."""
    if not isinstance(body, dict):
        return body
    fields = {name: value if isinstance(value, list) else [value] for name, value in body.items() if value is not None}
    texts = {name: [one if isinstance(one, str) else dumps(one) for one in values] for name, values in fields.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in texts.items() if values}
