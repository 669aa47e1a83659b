"""A task played against a provider file from its submit to its end, by the real client, without a network."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from msgspec import UNSET, structs

from local.provider.planted import plant
from local.provider.replay import without_jitter
from local.provider.script import secret, token_urls
from local.provider.usual import CannotBePlayedError, Usual
from shared.codec import Json, dumps
from shared.errors import TransportError
from shared.outcome import Completed, Failed, Outcome, Pending, Retry
from shared.provider import Provider
from shared.provider.credentials.credentials import Credentials
from shared.provider.language.operation import Operation
from shared.provider.language.placeholder import lone
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Call, Reply
from shared.provider.wire.origin import Origin
from shared.provider.wire.transport import Transport
from shared.record import Record
from shared.task import Task

ATTEMPTS = 8  # within so many each script has come to its end
NOT_YET = "there is nothing yet"
"""A word of what is no data."""
_TAG = "X-Played"  # a header that tells which operation a request is
_START = 1_767_225_600_000

Script: TypeAlias = Mapping[str, Sequence[Reply | TransportError]]
"""What the first requests of an operation (submit0, poll, result0, …) are answered; then the usual."""


class Play(Transport):
    """One task, from its submit to its end, every request answered from here."""

    def __init__(self, rules: Rules, script: Script) -> None:
        super().__init__(1)
        self._usual = Usual(rules, rules.servers[0].rstrip("/"))
        self._rules = _tagged(without_jitter(rules))
        self._script = script
        self._asked: Counter[str] = Counter()

    def completes(self) -> bool:
        """Whether it completes with data, once all of the script was said."""
        *_, last = self._outcomes()
        if not isinstance(last, Completed) or any(self._asked[tag] < len(said) for tag, said in self._script.items()):
            return False
        return NOT_YET not in dumps(last.data) and (last.data is not None or self._rules.data.text == "null")

    def once(self, call: Call, seconds: float, allowed: frozenset[Origin]) -> Reply:  # noqa: ARG002 (nothing is sent)
        if call.url in token_urls(self._rules):
            return Reply(200, {}, b'{"access_token": "t", "expires_in": 86400}', call.url)
        tag = call.headers.get(_TAG, "")
        number, said = self._asked[tag], self._script.get(tag, ())
        self._asked[tag] += 1
        reply = said[number] if number < len(said) else self._usually(tag, number)
        if isinstance(reply, TransportError):
            raise reply
        return replace(reply, url=call.url)

    def _usually(self, tag: str, number: int) -> Reply:
        if tag.startswith("submit"):
            return self._usual.begun(int(tag[6:]))
        if tag.startswith("result"):
            return self._usual.fetched(int(tag[6:]))
        if tag == "poll":
            with suppress(CannotBePlayedError):  # to some files each 2xx says that the job is done
                return self._usual.done() if number else self._usual.running()
            return self._usual.done()
        raise CannotBePlayedError

    def _outcomes(self) -> Iterator[Outcome]:
        credentials = Credentials(self._rules.security, secret, self)
        provider = Provider(
            self._rules, self, credentials, random.Random(1), callback_url=lambda *_: "https://callback.example/played"
        )
        record, now = Record(generation=1, created_at=_START, input=_input(self._rules)), _START
        for _ in range(ATTEMPTS):
            finding = provider.attempt(Task("played", "played"), record, now=now, seconds=60)
            record = finding.record
            yield finding.outcome
            match finding.outcome:
                case Pending(delay_seconds=delay) | Retry(delay_seconds=delay):
                    now += round(delay * 1000)
                case Completed() | Failed():
                    return


def _tagged(rules: Rules) -> Rules:
    """The same rules, whose requests tell which operation they are."""

    def tagged(one: Operation, tag: str) -> Operation:
        return structs.replace(one, headers=one.headers | {_TAG: tag})

    *steps, last = rules.submit_steps
    submits = [tagged(one, f"submit{i}") for i, one in enumerate(steps)]
    submits.append(tagged(last, f"submit{len(steps)}" if rules.poll else "poll"))
    results = tuple(tagged(one, f"result{i}") for i, one in enumerate(rules.result_steps))
    poll = tagged(rules.poll, "poll") if rules.poll else UNSET
    made: Rules = structs.replace(rules, submit=tuple(submits), poll=poll, result=results or UNSET)
    return made


def _input(rules: Rules) -> dict[str, Json]:
    """An input that has all that the file reads of it."""
    root: dict[str, Json] = {"input": {}}
    for operation in (*rules.submit_steps, rules.asks_again, *rules.result_steps):
        whole = lone(operation.url)
        for part, one in operation.placed():
            if one.refers_to("input") and one.text != "input":
                is_link = part == "url" and whole is not None
                plant(one, f"{rules.servers[0].rstrip('/')}/played" if is_link else "p7", root)
    found: dict[str, Json] = root["input"]
    return found
