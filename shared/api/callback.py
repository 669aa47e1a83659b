"""Callbacks: a provider says by itself that there is news of a task.

Polling alone would finish every task; a callback only makes that sooner. A signed payload is read like a poll's reply,
and may end the task: the item first, then Redis. Only what is signed is read: the body, and headers that its signature
covers. Else (it is unsigned, a GET, about a lost job, or a result is to be fetched) the task is due at once, within
`_rest_seconds` and the limits. One that is lost, forged or late changes nothing.
"""

from dataclasses import dataclass, field

from shared.api.answer import Answer
from shared.api.request import Callback
from shared.errors import NotFound, RecordError, SecretUnavailable, Unavailable
from shared.logs import facts, log
from shared.outcome import Completed, Failed
from shared.provider.callback_signature import REREAD_SECONDS, Verifier
from shared.provider.callback_url import CallbackUrls
from shared.provider.credentials.credentials import ReadSecret
from shared.provider.language.signature import Callback as File
from shared.provider.wire.message import Reply
from shared.queue import End, without_redis
from shared.record import Record
from shared.store import Item
from shared.task import Task
from shared.work.parts import Parts
from shared.work.worker import Worker


@dataclass(frozen=True, slots=True)
class Told:
    """What a signature vouches for: body and headers as a reply, and when they were signed, if it says (epoch ms)."""

    payload: Reply
    at: int | None


@dataclass(slots=True)
class Receiver:
    """Takes callbacks. `urls` None: this deployment gives no URLs away."""

    parts: Parts
    worker: Worker
    urls: CallbackUrls | None
    read_secret: ReadSecret
    verifier: Verifier = field(init=False)

    def __post_init__(self) -> None:
        self.verifier = Verifier(self.read_secret, self.parts.clock)

    def receive(self, callback: Callback) -> Answer:
        """Take a callback; the provider is not asked.

        Raises NotFound, always the same, for whatever is not from the provider or no longer about this generation;
        Unavailable and StoreUnavailable when it should be sent again.
        """
        provider = self.parts.providers.get(callback.provider)
        try:
            found = self.urls.find(callback.provider, callback.token) if self.urls and provider else None
            if provider is None or found is None:
                known = callback.provider if provider else None
                log.warning("callback refused", extra={"provider": known, "reason": "token"})
                raise _unknown()
            told = self._told(callback, provider.rules.callback, found)
        except SecretUnavailable as error:
            log.warning("callback put off", extra={"provider": callback.provider, "reason": str(error)})
            raise Unavailable("the callback cannot be verified now", retry_after_seconds=REREAD_SECONDS) from error
        task, generation, resubmits = found
        item = self.parts.item(task)
        if item is None or item.generation != generation:
            raise _unknown()
        if callback.handshake is not None:
            return Answer(status=200, body={}, plain=callback.handshake)
        if item.status == "pending":
            # what is said of a job that has been lost since says nothing of the job after it
            self._heed(item, told if item.resubmits == resubmits else None)
        return Answer(status=200, body={"status": "received"})

    def _told(self, callback: Callback, file: File, about: tuple[Task, int, int]) -> Told | None:
        """What is signed; None: nothing is that can be read, so the task is asked about.

        A body too large to be read cannot be believed, so its signature does not matter. Raises NotFound for what is
        not from the provider, and SecretUnavailable.
        """
        signature, body, unpacked = file.signature, callback.body, callback.unpacked
        if not signature or body is None or unpacked is None or callback.handshake is not None:
            return None
        assert self.urls
        headers = signature.read(callback.headers)
        if reason := self.verifier.refusal(signature, headers, {body, unpacked}, self.urls.url(*about)):
            log.warning("callback refused", extra={"provider": callback.provider, "reason": reason})
            raise _unknown()
        payload = Reply(200, signature.signed_headers(headers), unpacked, "")
        return Told(payload, signature.signed_at(headers))

    def _heed(self, item: Item, told: Told | None) -> None:
        """Store what a signed payload says, then move the task: ended, it leaves Redis; else it is due, or stays."""
        settlement = self.worker.hear(item, told.payload, told.at) if told else None
        becomes = settlement.becomes if settlement else "hastened"
        log.info("called back", extra=facts(item) | {"then": becomes})
        limits = self.parts.limits(item.task)
        with without_redis(then="the next attempt finds it"):
            if becomes == "hastened":
                self.parts.queue.hasten([(item.task, item.generation)], self._rest_seconds(item), limits)
            elif becomes != "waiting":
                ended = End(item.task, item.generation, "buried" if becomes == "buried" else "forgotten")
                self.parts.queue.end([ended], limits)
        if settlement and becomes == "waiting" and isinstance(settlement.outcome, Completed | Failed):
            raise Unavailable("the store does not answer; send it again")

    def _rest_seconds(self, item: Item) -> float:
        """How long to wait before the next attempt, so that many callbacks cause no more attempts than polling does."""
        shortest = self.parts.providers[item.task.provider].rules.polling.min_delay
        if shortest == 0:
            return 0
        (place,) = self.parts.queue.look([item.task], records=True)
        try:
            asked_at = Record.from_text(place.record).asked_at or 0
        except RecordError:
            return shortest
        return min(shortest, max(0, asked_at / 1000 + shortest - self.parts.clock() / 1000))


def _unknown() -> NotFound:
    """The one error for whatever is wrong, which tells nothing of what it was."""
    return NotFound("there is no such callback", field="path")
