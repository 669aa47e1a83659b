"""Callbacks: a provider says by itself that there is news of a task.

Polling alone would finish every task; a callback only makes that sooner. A signed payload is read like a poll's reply,
and may end the task: the item first, then Redis. Else (it is unsigned, about a lost job, or a result is to be fetched)
the task is due at once, within `_rest_seconds` and the limits. One that is lost, forged or late changes nothing.
"""

from dataclasses import dataclass

from shared.api.answer import Answer
from shared.api.request import Callback
from shared.errors import NotFound, RecordError, SecretUnavailable, Unavailable
from shared.logs import facts, log
from shared.outcome import Completed, Failed
from shared.provider.callback_url import CallbackUrls
from shared.provider.credentials.credentials import ReadSecret
from shared.provider.wire.message import Reply
from shared.queue import End, without_redis
from shared.record import Record
from shared.store import Item
from shared.task import Task
from shared.work.parts import Parts
from shared.work.worker import Worker


@dataclass(frozen=True, slots=True)
class Receiver:
    """Takes callbacks. `urls` None: this deployment gives no URLs away."""

    parts: Parts
    worker: Worker
    urls: CallbackUrls | None
    read_secret: ReadSecret

    def receive(self, callback: Callback) -> Answer:
        """Take a callback; the provider is not asked.

        Raises NotFound, always the same, for whatever is not from the provider or no longer about this generation;
        Unavailable and StoreUnavailable when it should be sent again.
        """
        unknown = NotFound("there is no such callback", field="path")
        try:
            verified = self._verified(callback)
        except SecretUnavailable as error:
            raise Unavailable("the callback cannot be verified now") from error
        if verified is None:
            raise unknown
        task, generation, resubmits, is_signed = verified
        item = self.parts.item(task)
        if item is None or item.generation != generation:
            raise unknown
        if item.status == "pending":
            # what is said of a job that has been lost since says nothing of the job after it
            body = callback.body if is_signed and item.resubmits == resubmits else None
            self._heed(item, None if body is None else Reply(200, callback.headers, body, ""))
        return Answer(status=200, body={"status": "received"})

    def _verified(self, callback: Callback) -> tuple[Task, int, int, bool] | None:
        """Task, generation and resubmits it is about, and whether it is signed; None: it is from somebody else.

        A body too large to be read cannot be believed, so its signature does not matter: the task is asked about.
        """
        provider = self.parts.providers.get(callback.provider)
        found = self.urls.find(callback.provider, callback.token) if self.urls and provider else None
        if provider is None or found is None:
            return None
        signature = provider.rules.callback.signature
        if signature and callback.body is not None:
            key = self.read_secret(signature.secret, fresh=False)
            if not key or not signature.fits(callback.headers, callback.body, key):
                log.warning("callback refused", extra={"provider": callback.provider, "reason": "signature"})
                return None
        return (*found, bool(signature))

    def _heed(self, item: Item, payload: Reply | None) -> None:
        """Store what a signed payload says, then move the task: ended, it leaves Redis; else it is due, or stays."""
        settlement = self.worker.hear(item, payload) if payload else None
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
