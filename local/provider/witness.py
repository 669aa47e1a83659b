"""Shows a trial on the terminal while it happens, with secrets masked."""

from collections.abc import Callable
from http import HTTPStatus
from textwrap import indent

from typing_extensions import override

from local.provider.explain import MEANS, span
from local.provider.recorder import PASSING
from local.provider.script import token_urls
from local.provider.wiretap import Listener, shown_url
from shared.codec import Json, dumps, loads
from shared.errors import TransportError
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider.credentials.mask import Mask
from shared.provider.language.acceptor import Acceptor
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Call, Reply
from shared.reasons import Reason
from shared.record import Record

SHOWN_CHARACTERS = 2000


class Witness(Listener):
    """Shows everything by `say`, one line at a time."""

    def __init__(self, say: Callable[[str], None], mask: Mask, rules: Rules) -> None:
        self._say = say
        self._mask = mask
        self._rules = rules
        self._token_urls = token_urls(rules)
        self._envelope: dict[str, Json] | None = None
        self._fetches_token = False
        self._unjudged: Reply | None = None

    @override
    def asked(self, call: Call, *, authorised: bool) -> None:
        self._judged_by_status(goes_on=True)
        self._fetches_token = call.url in self._token_urls
        url = self._mask.text(shown_url(call))
        if self._fetches_token:
            self._say(f"  → {call.method} {url} for a token")
            return
        self._say(f"  → {call.method} {url}{' with credentials' if authorised else ''}")
        for name, value in call.headers.items():
            self._say(f"    {name}: {self._mask.text(value)}")
        if call.body is not None:
            self._show(call.body)

    @override
    def answered(self, reply: Reply) -> None:
        self._say(f"  ← {reply.status} {_phrase(reply.status)}".rstrip())
        if self._fetches_token:
            self._learn_tokens(reply)
            return
        self._unjudged, self._envelope = reply, None
        for name, value in reply.headers.items():
            if name not in PASSING:
                self._say(f"    {name}: {self._mask.text(value)}")
        if reply.body:
            self._show(_read(reply.body))

    @override
    def unanswered(self, error: TransportError) -> None:
        self._say(f"  ← {self._mask.text(str(error))}")

    @override
    def compared(self, number: int, acceptor: Acceptor, envelope: dict[str, Json], *, fits: bool) -> None:
        self._envelope = envelope
        if fits:
            self._unjudged = None
            self._say(f"  $.acceptors[{number}] matches: {MEANS[acceptor.state]}")

    def concluded(self, outcome: Outcome, record: Record) -> None:
        """An attempt is over."""
        if isinstance(outcome, Retry) and outcome.reason == Reason.UNDECODABLE:
            self._unjudged = None
        self._judged_by_status(goes_on=False)
        if record.outputs:
            self._say(f"  outputs: {self._shown(record.outputs)}")
        match outcome:
            case Pending(delay, partial, progress):
                known = "" if partial is None else f", partial data {self._shown(partial)}"
                known += "" if progress is None else f", progress {self._shown(progress)}"
                self._say(f"  = still running{known}; next attempt in {span(delay)}")
            case Retry(delay, reason):
                begins = " with a new job" if reason is Reason.RESUBMIT else ""
                self._say(f"  = error: {reason}{_meaning(reason)}; tried again{begins} in {span(delay)}")
            case Completed(data):
                nothing = f" ({self._rules.data.text} finds nothing)" if data is None else ""
                self._say(f"  = completed: {self._shown(data)}{nothing}")
            case Failed(reason, error):
                said = "" if error is None else f": {self._shown(error)}"
                self._say(f"  = failed: {reason}{said}{_meaning(reason)}")

    def _judged_by_status(self, *, goes_on: bool) -> None:
        reply, self._unjudged = self._unjudged, None
        if reply is None:
            return
        if goes_on and 300 <= reply.status <= 399:
            self._say("  this redirect is followed: no acceptor names its status")
        elif self._envelope is None:
            self._say("  no acceptor is on this stage, so the HTTP status decides")
        else:
            status = self._rules.status
            found = self._shown(status.of(self._envelope))
            self._say(f"  no acceptor matches ({status.text} is {found}), so the HTTP status decides")

    def _learn_tokens(self, reply: Reply) -> None:
        told = _read(reply.body)
        for name in ("access_token", "refresh_token", "id_token"):
            if isinstance(told, dict) and isinstance(told.get(name), str):
                self._mask.learn(told[name])

    def _show(self, body: Json) -> None:
        self._say(indent(self._shown(body).rstrip(), "    "))

    def _shown(self, value: Json) -> str:
        masked = self._mask.value(value)
        text = masked if isinstance(masked, str) else dumps(masked)
        return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"


def _read(body: bytes) -> Json:
    try:
        return loads(body)
    except ValueError:
        return body.decode(errors="replace")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _meaning(reason: Reason) -> str:
    return f" ({reason.meaning.rstrip('.')})"
