"""Writes down a conversation as a vector that replay accepts, its secrets masked."""

from typing import Any

from typing_extensions import override

from local.provider.replay import described
from local.provider.script import TRANSPORT_ERRORS, token_urls
from local.provider.wiretap import Listener, shown_url
from shared.codec import Json, dumps, loads
from shared.errors import TransportError
from shared.outcome import Outcome
from shared.provider.credentials.mask import Mask
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Call, Reply
from shared.record import Record
from shared.task import Task

PASSING = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-encoding", "content-length", "server", "set-cookie"}
)
"""Headers that say something of the connection or of the machine, not of what was asked."""


class Recorder(Listener):
    """One conversation. Of token requests only those that failed are written: replay answers the others by itself."""

    def __init__(self, mask: Mask, rules: Rules) -> None:
        self.steps: list[dict[str, Any]] = []
        self._mask = mask
        self._token_urls = token_urls(rules)
        self._exchanges: list[dict[str, Any]] = []
        self._request: dict[str, Any] = {}
        self._is_for_token = False

    @override
    def asked(self, call: Call, *, authorised: bool) -> None:
        self._is_for_token = call.url in self._token_urls
        self._request = {"method": call.method, "url": self._mask.text(shown_url(call))}
        if not self._is_for_token:
            self._request |= self._details(call, authorised)

    @override
    def answered(self, reply: Reply) -> None:
        if not (self._is_for_token and reply.status == 200):
            self._exchanges.append({"request": self._request, "response": self._response(reply)})

    @override
    def unanswered(self, error: TransportError) -> None:
        if error.reason in TRANSPORT_ERRORS:  # else the client sent nothing, and a replay sends nothing either
            response = {"transportError": TRANSPORT_ERRORS[error.reason]}
            self._exchanges.append({"request": self._request, "response": response})

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

    def _details(self, call: Call, authorised: bool) -> dict[str, Any]:
        details: dict[str, Any] = {"auth": authorised}
        if call.headers:
            details["headers"] = self._mask.value(call.headers)
        if call.body is not None:
            details["body"] = self._mask.value(_form(call.body) if "form" in call.content_type else call.body)
        return details

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
