"""Callbacks: what a provider says by itself ends a task once, makes it due, or changes nothing."""

import base64
import dataclasses
import gzip
import hashlib
import hmac
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest
from msgspec import structs

from handlers.callback import handler
from shared import wiring
from shared.api import request
from shared.api.answer import Answer
from shared.api.callback import Receiver
from shared.api.event import ApiCall
from shared.api.request import MAX_BODY_BYTES, Callback
from shared.errors import NotFound, StoreUnavailable, Unavailable
from shared.limits import Limits
from shared.provider.callback_signature import REREAD_SECONDS
from shared.provider.callback_url import CallbackUrls
from shared.queue import Add, Queue, Settle
from shared.store import Item, Store
from shared.task import Task
from shared.work.keeper import record_of
from shared.work.worker import Worker
from tests.conftest import TABLE
from tests.support.api_events import Context, Event, http, rest, rest_call, sample
from tests.support.asking import Secrets, submitted
from tests.support.backend import Backend
from tests.support.memory_queue import MemoryQueue
from tests.support.simulator import JOB, Simulator, pending, provider_at

TASK = Task("example", "Ünï/cødé 名")
BASE = "https://api.example.com/v1/"
SIGNED = {"signature": {"header": "X-Signature", "secret": "env:HOOK", "prefix": "sha256="}}
WHOLE = {"rating": 4.5}


@dataclass(repr=False)
class Hook(Backend):
    """A task that waits with a job, and a provider that calls back."""

    generation: int = 0

    def __post_init__(self) -> None:
        self.secrets = Secrets({"env:KEY": "ours", "env:HOOK": "theirs"})
        self.urls = CallbackUrls(BASE, "env:KEY", self.secrets)
        self.provider = provider_at("http://127.0.0.1:1", JOB | {"callback": SIGNED})

    def wait(self, due_seconds: float = 60, **known: Any) -> Item:
        """The task is pending, submitted, and waits for its next poll."""
        item = self.begin(TASK)
        self.generation = item.generation
        record = submitted(generation=item.generation, submitted_at=self.clock(), **known)
        self.store.save(TASK, record, self.clock())
        self.queue.add([Add(TASK, item.generation, record.to_text(), due_seconds)], token="t")
        return self.item()

    def call(self, body: Any, *, signed_with: str | None = "theirs", about: int = 0, **changes: Any) -> Answer:
        """One callback, `about` the job after so many resubmits."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if signed_with is not None:
            headers["x-signature"] = "sha256=" + hmac.new(signed_with.encode(), raw, hashlib.sha256).hexdigest()
        said = {"provider": "example", "token": self.token(resubmits=about), "headers": headers, "body": raw}
        return self.receiver().receive(Callback(**said | changes))

    def token(self, task: Task = TASK, later: int = 0, resubmits: int = 0) -> str:
        """The end of the URL about that job of the task, of so many generations later."""
        return self.urls.url(task, self.generation + later, resubmits).rpartition("/")[2]

    def lose(self) -> Item:
        """The job `j` is lost, and another has been submitted."""
        lost = submitted(generation=self.generation, submitted_at=self.clock(), outputs=None, resubmits=1)
        self.store.save(TASK, lost, self.clock(), resubmit=True)
        self.store.save(TASK, structs.replace(lost, outputs={"id": "k"}), self.clock())
        return self.item()

    def receiver(self) -> Receiver:
        parts = self.parts({"example": self.provider})
        return Receiver(parts, Worker(parts), self.urls, self.secrets)

    def item(self) -> Item:
        return self.item_of(TASK)

    def place(self) -> tuple[str, bool]:
        """Where the one task is, and whether it is due."""
        ((name, (where, _)),) = self.state().items()
        return where, 0 < (self.bench.score(name) or 0) <= self.bench.keys.now()


@pytest.fixture
def hook(backend: Backend) -> Hook:
    return Hook(**vars(backend))


RECEIVED = {"status": "received"}
DUE, LATER = ("waiting", True), ("waiting", False)

# --- signed payloads


def test_a_signed_success_ends_the_task_and_redis_forgets_it(hook: Hook) -> None:
    hook.wait()
    assert hook.call({"status": "completed", "data": WHOLE}).body == RECEIVED
    assert (hook.item().status, hook.item().data) == ("completed", WHOLE)
    assert hook.state() == {}


RESULT: dict[str, Any] = {
    "poll": JOB["poll"] | {"outputs": {"link": "body.link"}},
    "result": {"url": "/results/${outputs.link}"},
    "data": "body",
    "callback": SIGNED,
}


@pytest.mark.parametrize("outputs", [{"id": "j"}, None], ids=["the job is known", "it is not"])
def test_where_a_result_is_to_be_fetched_the_news_is_kept_and_the_worker_does_the_rest(
    hook: Hook, simulator: Simulator, outputs: Any
) -> None:
    hook.provider = simulator.provider(JOB | RESULT)
    hook.wait(outputs=outputs)
    assert hook.call({"status": "completed", "link": "r"}).body == RECEIVED
    assert (hook.item().status, hook.place(), simulator.calls()) == ("pending", DUE, [])
    assert hook.item().outputs == (outputs and outputs | {"link": "r"})
    kept = hook.item()
    hook.clock.advance(5)
    hook.call({"status": "completed", "link": "r"})
    assert hook.item() == kept  # a repeated one writes nothing


def test_what_is_too_large_in_a_callback_is_left_out_and_the_provider_is_asked_about_the_rest(hook: Hook) -> None:
    """C12: whatever else it brings is kept; outputs, which a task cannot do without, are left to the next poll."""
    hook.provider = provider_at("http://127.0.0.1:1", JOB | {"callback": SIGNED, "poll": RESULT["poll"]})
    hook.wait()
    status = '{"status": "async processing in progress"'
    hook.call(f'{status}, "link": "r", "data": "{"é" * 20_000}\\ud800"}}'.encode())  # as JSON text three times as long
    assert (hook.item().outputs, hook.item().partial) == ({"id": "j", "link": "r"}, None)
    assert hook.place() == LATER
    hook.call(f'{status}, "link": "{"d" * 30_000}"}}'.encode())
    assert (hook.item().status, hook.item().outputs) == ("pending", {"id": "j", "link": "r"})
    assert hook.place() == DUE


@pytest.mark.promise("limits", "a callback asks the provider nothing")
def test_a_provider_is_never_asked_by_a_callback_not_even_to_cancel(hook: Hook, simulator: Simulator) -> None:
    hook.provider = simulator.provider(JOB | {"callback": SIGNED})
    assert hook.provider.rules.cancel
    hook.wait()
    cancels = partial(hook.store.cancel, TASK, hook.generation, hook.clock())
    hook.meanwhile(hook.store, "complete", before=cancels)
    hook.call({"status": "completed", "data": WHOLE})
    assert (hook.item().status, hook.item().data, simulator.calls()) == ("cancelled", None, [])


def test_a_signed_failure_makes_a_dead_letter_at_once(hook: Hook) -> None:
    hook.wait()
    hook.call({"status": "refused", "error": "no such customer"})
    item = hook.item()
    assert item.status == "failed"
    assert item.error == {"reason": "upstream", "error": "no such customer", "refused": False}
    assert hook.state() == {TASK.name: ("dead", hook.generation)}


@pytest.mark.promise("callbacks", "a callback that ends a task during an attempt wins, and the worker finds that out")
@pytest.mark.parametrize(
    ("payload", "left"),
    [({"status": "completed", "data": WHOLE}, {}), ({"status": "refused"}, {TASK.name: "dead"})],
    ids=["success", "failure"],
)
def test_a_task_that_ends_while_it_is_asked_about_keeps_its_place_until_then_and_is_not_asked_about_again(
    hook: Hook, payload: Any, left: Any
) -> None:
    hook.wait(due_seconds=0)
    limits = Limits(parallel=1)
    (claimed,) = hook.queue.claim("example", limit=1, lease_seconds=30, token="w", limits=limits).tasks
    hook.bench.seed("next")
    hook.call(payload)
    assert hook.queue.claim("example", limit=1, lease_seconds=30, token="v", limits=limits).tasks == ()
    assert hook.queue.settle([Settle(claimed.hold, "waiting")]) == [False]
    (following,) = hook.queue.claim("example", limit=2, lease_seconds=30, token="v", limits=limits).tasks
    assert following.hold.task.name == "next"
    assert {name: where for name, (where, _) in hook.state().items()} == left | {"next": "processing"}


@pytest.mark.parametrize(
    ("payload", "left"),
    [({"status": "completed", "data": WHOLE}, ""), ({"status": "refused"}, "dead")],
    ids=["success", "failure"],
)
def test_what_has_ended_under_a_worker_that_died_ends_with_its_lease_and_is_given_to_nobody(
    hook: Hook, payload: Any, left: str
) -> None:
    hook.wait(due_seconds=0)
    hook.queue.claim("example", limit=1, lease_seconds=30, token="w")
    hook.call(payload)
    hook.bench.rewind(31)
    claim = hook.queue.claim("example", limit=1, lease_seconds=30, token="v")
    assert (claim.tasks, claim.once, hook.state()) == ((), False, {TASK.name: (left, hook.generation)} if left else {})


def test_a_signed_pending_payload_is_kept_and_does_not_move_the_task(hook: Hook) -> None:
    hook.provider = provider_at("http://127.0.0.1:1", JOB | {"partial": "body.data", "callback": SIGNED})
    hook.wait()
    hook.call({"status": "async processing in progress", "data": {"rating": 4}})
    item = hook.item()
    assert (item.status, item.partial, item.outputs, hook.place()) == ("pending", {"rating": 4}, {"id": "j"}, LATER)


def test_a_pending_payload_before_the_job_is_known_makes_no_job(hook: Hook) -> None:
    hook.wait(outputs=None)
    hook.call({"status": "async processing in progress", "id": "j"})
    assert (hook.item().status, hook.item().outputs) == ("pending", None)


def test_a_pending_payload_that_is_too_large_changes_nothing(hook: Hook) -> None:
    hook.wait()
    noise = base64.b64encode(random.Random(1).randbytes(72_000)).decode()
    assert hook.call({"status": "async processing in progress", "data": noise}).body == RECEIVED
    assert (hook.item().status, hook.place()) == ("pending", LATER)


@pytest.mark.parametrize(
    "payload", [b"<html>", b'{"status": "lost"}', b'{"status": "again"}'], ids=["no JSON", "resubmit", "retry"]
)
def test_what_only_asking_can_tell_makes_the_task_due(hook: Hook, payload: bytes) -> None:
    acceptors = [*JOB["acceptors"], {"state": "retry", "expected": "again"}]
    hook.provider = provider_at("http://127.0.0.1:1", JOB | {"callback": SIGNED, "acceptors": acceptors})
    before = hook.wait()
    hook.call(payload)
    assert (hook.item(), hook.place()) == (before, DUE)


PAYLOADS: list[dict[str, Any]] = [
    {"status": "completed", "data": WHOLE},
    {"status": "refused", "error": "the job was evicted"},
    {"status": "async processing in progress", "id": "j", "data": {"rating": 1}},
]


@pytest.mark.promise("callbacks", "a callback about a lost job stores nothing of the job that followed")
@pytest.mark.parametrize("payload", PAYLOADS, ids=["success", "failure", "pending"])
def test_a_signed_payload_about_a_lost_job_stores_nothing_and_makes_the_one_that_followed_due(
    hook: Hook, payload: Any
) -> None:
    learns = {"poll": JOB["poll"] | {"outputs": {"id": "body.id"}}, "partial": "body.data", "callback": SIGNED}
    hook.provider = provider_at("http://127.0.0.1:1", JOB | learns)
    hook.wait()
    following = hook.lose()
    assert hook.call(payload).body == RECEIVED
    assert (hook.item(), hook.place()) == (following, DUE)


@pytest.mark.promise("once", "the failure of a lost job does not end the one that followed")
def test_a_job_that_is_lost_while_a_callback_says_so_does_not_end_the_one_that_followed(hook: Hook) -> None:
    """C1: between the callback's read and its write another job was submitted."""
    hook.wait()
    hook.meanwhile(hook.store, "fail", before=hook.lose)
    assert hook.call({"status": "refused", "error": "no such job"}).body == RECEIVED
    assert (hook.item().status, hook.item().outputs, hook.item().resubmits) == ("pending", {"id": "k"}, 1)
    assert hook.place() == DUE


def test_a_callback_overwrites_nothing_of_which_it_tells_nothing(hook: Hook) -> None:
    """C1: a worker saves a new link between the callback's read and its write."""
    item = hook.wait()
    newer = structs.replace(record_of(item), outputs={"id": "newer"})
    hook.meanwhile(hook.store, "learn", before=lambda: hook.store.save(TASK, newer, hook.clock()))
    hook.provider = provider_at("http://127.0.0.1:1", JOB | {"partial": "body.data", "callback": SIGNED})
    hook.call({"status": "async processing in progress", "data": {"told": 1}})
    assert (hook.item().outputs, hook.item().partial) == ({"id": "newer"}, {"told": 1})


def test_the_job_that_followed_a_lost_one_may_end_the_task_by_its_own_url(hook: Hook) -> None:
    hook.wait()
    hook.lose()
    hook.call({"status": "completed", "data": WHOLE}, about=1)
    assert (hook.item().status, hook.item().data, hook.state()) == ("completed", WHOLE, {})


# --- only what is signed, and older news after newer

STANDARD = {"signature": {"scheme": "standard", "secret": "env:HOOK"}}
LEARNS = {"poll": JOB["poll"] | {"outputs": {"id": "body.id"}}, "partial": "body.data"}
RUNNING = "async processing in progress"


def told(hook: Hook, body: Any, at: int, **headers: str) -> Answer:
    """A callback as Standard Webhooks signs it, `at` so many seconds after now by our clock."""
    raw, when = json.dumps(body).encode(), str(hook.clock() // 1000 + at)
    made = base64.b64encode(hmac.digest(b"theirs", f"id.{when}.".encode() + raw, "sha256")).decode()
    named = {"webhook-id": "id", "webhook-timestamp": when, "webhook-signature": f"v1,{made}"}
    return hook.call(raw, signed_with=None, headers=named | headers)


def running(data: Any) -> dict[str, Any]:
    return {"status": RUNNING, "data": data}


@pytest.fixture
def dated(hook: Hook) -> Hook:
    """Its callbacks say when they were signed, with a key in base64."""
    hook.secrets.values["env:HOOK"] = "whsec_" + base64.b64encode(b"theirs").decode()
    hook.provider = provider_at("http://127.0.0.1:1", JOB | LEARNS | {"callback": STANDARD})
    return hook


@pytest.mark.promise("callbacks", "older news never replaces newer")
def test_news_that_was_signed_before_other_news_replaces_nothing_and_the_provider_is_asked(dated: Hook) -> None:
    """C30."""
    dated.wait()
    dated.clock.advance(60)
    told(dated, running(2) | {"id": "two"}, at=-5)
    assert (dated.item().partial, dated.item().outputs, dated.place()) == (2, {"id": "two"}, LATER)
    kept = dated.item()
    told(dated, running(2) | {"id": "two"}, at=-5)
    assert (dated.item(), dated.place()) == (kept, LATER)  # the same again
    told(dated, running(1) | {"id": "one"}, at=-6)
    assert (dated.item(), dated.place()) == (kept, DUE)
    told(dated, running(3), at=-4)
    assert (dated.item().partial, dated.item().outputs) == (3, {"id": "two"})


@pytest.mark.promise("callbacks", "older news never replaces newer")
def test_news_that_was_signed_before_the_last_reply_replaces_nothing(dated: Hook) -> None:
    """C30."""
    item = dated.wait()
    dated.clock.advance(60)
    dated.store.save(TASK, structs.replace(record_of(item), partial="polled"), dated.clock())
    before = dated.item()
    for at in (-1, 0):
        told(dated, running("older"), at=at)
        assert (dated.item(), dated.place()) == (before, DUE)
    told(dated, running("newer"), at=1)
    assert dated.item().partial == "newer"


@pytest.mark.promise("callbacks", "older news never replaces newer")
def test_news_without_an_instant_adds_what_is_not_known_and_replaces_nothing(hook: Hook) -> None:
    """C30: a signature of the body alone."""
    poll = JOB["poll"] | {"outputs": {"id": "body.id", "link": "body.link"}}
    hook.provider = provider_at("http://127.0.0.1:1", JOB | LEARNS | {"poll": poll, "callback": SIGNED})
    hook.wait()
    hook.call(running(2) | {"link": "l"})
    assert (hook.item().partial, hook.item().outputs, hook.place()) == (2, {"id": "j", "link": "l"}, LATER)
    kept = hook.item()
    hook.call(running(2) | {"id": "j"})
    assert (hook.item(), hook.place()) == (kept, LATER)
    hook.call(running(1) | {"id": "other"})
    assert (hook.item(), hook.place()) == (kept, DUE)


@pytest.mark.parametrize("signature", ["dated", "undated"])
def test_news_does_not_replace_what_a_worker_stored_since_it_was_read(hook: Hook, dated: Hook, signature: str) -> None:
    """C30."""
    item = hook.wait()
    polled = structs.replace(record_of(item), partial="polled", outputs={"id": "newer"})
    hook.clock.advance(5)
    hook.meanwhile(hook.store, "learn", before=lambda: hook.store.save(TASK, polled, hook.clock()))
    if signature == "undated":
        hook.secrets.values["env:HOOK"] = "theirs"
        hook.provider = provider_at("http://127.0.0.1:1", JOB | LEARNS | {"callback": SIGNED})
        hook.call(running("told"))
    else:
        told(dated, running("told"), at=0)
    assert (hook.item().partial, hook.item().outputs, hook.place()) == ("polled", {"id": "newer"}, DUE)


def test_an_end_is_believed_whenever_it_was_signed(dated: Hook) -> None:
    dated.wait()
    dated.clock.advance(60)
    told(dated, running(2), at=0)
    told(dated, {"status": "completed", "data": WHOLE}, at=-50)
    assert (dated.item().status, dated.item().data) == ("completed", WHOLE)


@pytest.mark.promise("callbacks", "what was signed too long ago, or too far ahead, is refused")
@pytest.mark.parametrize("at", [-301, 301])
def test_what_was_signed_at_another_time_is_refused_and_changes_nothing(dated: Hook, at: int) -> None:
    before, parts = dated.wait(), dated.bench.parts()
    refusal(lambda: told(dated, {"status": "completed", "data": WHOLE}, at=at))
    assert (dated.item(), dated.bench.parts()) == (before, parts)


@pytest.mark.promise("callbacks", "only what is signed feeds a task")
def test_headers_that_are_not_signed_feed_nothing(dated: Hook) -> None:
    """C30: a signed callback that somebody sends again with headers of their own."""
    outputs = {"at": "headers.location", "id": 'headers."webhook-id"', "kind": 'headers."content-type"'}
    file = JOB | LEARNS | {"poll": JOB["poll"] | {"outputs": outputs}, "callback": STANDARD}
    dated.provider = provider_at("http://127.0.0.1:1", file)
    dated.wait()
    dated.clock.advance(5)
    told(dated, running(1), at=0, location="https://evil.example/", **{"content-type": "text/csv"})
    assert (dated.item().outputs, dated.item().partial) == ({"id": "id"}, 1)


@pytest.mark.promise("callbacks", "only what is signed feeds a task")
@pytest.mark.parametrize("acceptor", [
    {"state": "success", "matcher": "status", "expected": "2XX"},
    {"state": "failure", "matcher": "status", "expected": [200]},
    {"state": "success", "argument": "statusCode", "expected": 200},
])  # fmt: skip
def test_a_callback_has_no_status_that_an_acceptor_could_match(hook: Hook, acceptor: Any) -> None:
    file = JOB | {"callback": SIGNED, "acceptors": [acceptor], "partial": "body"}
    hook.provider = provider_at("http://127.0.0.1:1", file)
    before = hook.wait()
    hook.call({"status": "progress"})
    assert (hook.item(), hook.place()) == (before, DUE)


@pytest.mark.promise("callbacks", "a callback that no acceptor knows changes nothing, and the provider is asked")
@pytest.mark.parametrize(
    "payload", [{"type": "job.archived", "id": "x", "data": 1}, {"status": "new word", "id": "x"}, [], 7, None]
)
def test_an_event_that_no_acceptor_knows_changes_nothing_and_makes_the_task_due(dated: Hook, payload: Any) -> None:
    before = dated.wait()
    dated.clock.advance(5)
    told(dated, payload, at=0)
    assert (dated.item(), dated.place()) == (before, DUE)


# --- how it comes


def test_a_key_that_was_exchanged_a_minute_ago_is_read_anew(hook: Hook) -> None:
    """C30."""
    hook.wait()
    receiver = hook.receiver()
    hook.patch.setattr(hook, "receiver", lambda: receiver)
    hook.call({"status": RUNNING})
    hook.secrets.values["env:HOOK"] = "new"
    hook.call({"status": "completed", "data": WHOLE}, signed_with="new")
    assert hook.item().data == WHOLE
    for _ in range(9):
        with pytest.raises(Unavailable) as caught:
            hook.call({"status": RUNNING}, signed_with="forged")
        assert caught.value.retry_after_seconds == REREAD_SECONDS
    assert hook.secrets.reads.count(("env:HOOK", True)) == 1


def test_the_url_may_be_signed_and_is_the_one_that_was_given_away(hook: Hook) -> None:
    square = {"header": "X-Signature", "secret": "env:HOOK", "encoding": "base64", "signed": "${callback.url}${body}"}
    hook.provider = provider_at("http://127.0.0.1:1", JOB | {"callback": {"signature": square}})
    hook.wait()
    body = b'{"status": "completed", "data": 1}'

    def signed(url: str) -> Answer:
        made = base64.b64encode(hmac.digest(b"theirs", url.encode() + body, "sha256")).decode()
        return hook.call(body, signed_with=None, headers={"x-signature": made})

    refusal(lambda: signed(hook.urls.url(TASK, hook.generation, 1)))
    signed(hook.urls.url(TASK, hook.generation, 0))
    assert hook.item().data == 1


@pytest.mark.parametrize("over", ["what is sent", "what it is unpacked"])
def test_a_compressed_body_is_believed_whichever_of_the_two_is_signed(hook: Hook, over: str) -> None:
    hook.wait()
    plain = json.dumps({"status": "completed", "data": "Ünï" * 3000}).encode()
    sent = gzip.compress(plain)
    made = hmac.digest(b"theirs", sent if over == "what is sent" else plain, "sha256").hex()
    hook.call(sent, signed_with=None, headers={"x-signature": f"sha256={made}", "content-encoding": "gzip"})
    assert hook.item().data == "Ünï" * 3000


@pytest.mark.parametrize("body", [
    gzip.compress(b" " * (MAX_BODY_BYTES + 1)), gzip.compress(b"{}")[:-1], gzip.compress(b"{}") + b"x", b"\x1f\x8b",
    gzip.compress(b"{}")[:-6] + b"\0" * 6,
], ids=["too large", "cut", "not alone", "empty", "another checksum"])  # fmt: skip
def test_a_compressed_body_that_is_damaged_or_too_large_makes_the_task_due(hook: Hook, body: bytes) -> None:
    before = hook.wait()
    hook.call(body)
    assert (hook.item(), hook.place()) == (before, DUE)


# --- unsigned payloads


@pytest.mark.promise(
    "callbacks", "where the file asks for no signature, a payload is not believed: the provider is asked"
)
def test_an_unsigned_payload_is_not_believed_and_makes_the_task_due(hook: Hook) -> None:
    hook.provider = provider_at("http://127.0.0.1:1", JOB)
    before = hook.wait()
    assert hook.call({"status": "completed", "data": "forged"}, signed_with=None).body == RECEIVED
    assert (hook.item(), hook.place()) == (before, DUE)


@pytest.mark.promise(
    "callbacks", "where the file asks for no signature, a payload is not believed: the provider is asked"
)
def test_however_often_it_is_repeated_there_is_no_attempt_sooner_than_the_shortest_delay(
    hook: Hook, simulator: Simulator
) -> None:
    hook.provider = simulator.provider(JOB)
    shortest = hook.provider.rules.polling.min_delay
    hook.wait()
    attempts = 0
    for _ in range(20):
        hook.call(b"", signed_with=None)
        for claimed in hook.queue.claim("example", limit=1, lease_seconds=30, token="w").tasks:
            attempts += 1
            simulator.say(pending())
            worker = hook.receiver().worker
            done = worker.work(claimed, worker.instant())
            assert done.record
            hook.queue.settle([Settle(done.hold, "waiting", 60, done.record.to_text())])
    assert attempts == 1
    assert hook.place() == LATER
    assert (hook.bench.score(TASK.name) or 0) <= hook.bench.keys.now() + shortest * 1000
    hook.bench.rewind(shortest)
    assert hook.place() == DUE


def test_a_clock_that_was_ahead_at_the_last_attempt_puts_the_task_off_by_no_more_than_the_shortest_delay(
    hook: Hook,
) -> None:
    hook.provider = provider_at("http://127.0.0.1:1", JOB)
    shortest = hook.provider.rules.polling.min_delay
    hook.wait(due_seconds=7200, asked_at=hook.clock() + 3_600_000)
    hook.call(b"", signed_with=None)
    assert hook.place() == LATER
    hook.bench.rewind(shortest)
    assert hook.place() == DUE


def test_a_task_that_is_worked_on_is_left_to_its_worker(hook: Hook) -> None:
    hook.provider = provider_at("http://127.0.0.1:1", JOB)
    hook.wait(due_seconds=0)
    hook.queue.claim("example", limit=1, lease_seconds=30, token="w")
    before = hook.bench.parts()
    hook.call(b"", signed_with=None)
    assert hook.bench.parts() == before


# --- forged, late and repeated ones


def refusal(call: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(NotFound) as caught:
        call()
    return caught.value.detail, caught.value.field


@pytest.mark.promise("callbacks", "a payload without the signature that the file asks for changes nothing")
def test_whatever_is_wrong_the_answer_is_the_same_and_nothing_changes(hook: Hook) -> None:
    before, parts = hook.wait(), hook.bench.parts()
    done = {"status": "completed", "data": "forged"}
    forged = ["forged", hook.token()[:-1], hook.token(later=-1), hook.token(later=1), hook.token(Task("example", "b"))]
    calls: list[Callable[[], object]] = [
        lambda: hook.call(done, signed_with="another key"),
        lambda: hook.call(done, signed_with=None),
        *(partial(hook.call, done, token=token) for token in forged),
        lambda: hook.call(done, provider="coin"),
        lambda: hook.call(done, provider="no such"),
        lambda: request.callback(rest_call("POST", "/callbacks/example")),
    ]
    assert {refusal(call) for call in calls} == {("there is no such callback", "path")}
    assert (hook.item(), hook.bench.parts()) == (before, parts)


def test_without_a_secret_of_our_own_every_token_is_unknown(hook: Hook) -> None:
    hook.wait()
    bare = dataclasses.replace(hook.receiver(), urls=None)
    callback = Callback(provider="example", token=hook.token(), headers={}, body=b"")
    assert refusal(lambda: bare.receive(callback)) == ("there is no such callback", "path")


@pytest.mark.promise("callbacks", "a late or repeated callback, or one about an earlier generation, changes nothing")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_a_late_or_repeated_callback_changes_nothing(hook: Hook, end: str) -> None:
    hook.wait()
    match end:
        case "completed":
            hook.call({"status": "completed", "data": WHOLE})
        case "failed":
            hook.call({"status": "refused"})
        case _:
            hook.store.cancel(TASK, hook.generation, hook.clock())
    before = hook.item()
    hook.clock.advance(5)
    for late in ({"status": "completed", "data": "other"}, {"status": "refused"}, {"status": "x", "data": 1}):
        assert hook.call(late).body == RECEIVED
    assert hook.item() == before
    assert before.status == end


@pytest.mark.promise("callbacks", "a late or repeated callback, or one about an earlier generation, changes nothing")
def test_a_callback_about_an_earlier_generation_does_not_touch_the_next(hook: Hook) -> None:
    hook.wait()
    hook.call({"status": "completed", "data": WHOLE})
    begun = hook.store.begin(TASK, hook.item(), {}, hook.clock())
    assert begun
    refusal(lambda: hook.call({"status": "completed", "data": "late"}))
    assert hook.item() == begun


# --- errors


@pytest.mark.promise("callbacks", "an end that was taken is stored even while Redis is away")
def test_without_redis_a_success_is_stored_all_the_same(hook: Hook) -> None:
    hook.wait()
    hook.queue = MemoryQueue()  # type: ignore[assignment]
    hook.queue.unavailable = True  # type: ignore[attr-defined]
    assert hook.call({"status": "completed", "data": WHOLE}).body == RECEIVED
    assert hook.item().status == "completed"


@pytest.mark.promise("callbacks", "a callback that is lost or cannot be taken loses nothing: the task is still polled")
def test_what_cannot_be_stored_or_verified_now_is_to_be_sent_again(hook: Hook) -> None:
    hook.wait()
    with hook.patch.context() as patch:
        patch.setattr(Store, "complete", Mock(side_effect=StoreUnavailable("away")))
        with pytest.raises(Unavailable):
            hook.call({"status": "completed", "data": WHOLE})
    hook.secrets.kept = {"env:KEY": "ours"}
    hook.secrets.values = {}
    with pytest.raises(Unavailable):
        hook.call({"status": "completed", "data": WHOLE})
    assert (hook.item().status, hook.place()) == ("pending", LATER)


def test_no_payload_no_token_and_no_secret_is_logged(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "meanwhile")
    hook.wait()
    with pytest.raises(NotFound):
        hook.call({"status": "s3cr3t"}, signed_with="other")
    hook.call({"status": "completed", "data": "s3cr3t"})
    said = repr([vars(record) for record in caplog.records])
    assert [record.message for record in caplog.records] == ["callback refused", "called back"]
    assert not any(word in said for word in ("s3cr3t", hook.token(), "theirs", "ours"))


# --- the function

FILE: dict[str, Any] = JOB | {
    "servers": ["http://127.0.0.1:1"],
    "submit": JOB["submit"] | {"headers": {"Idempotency-Key": "${task.id}", "X-Hook": "${callback.url}"}},
    "callback": SIGNED,
}


@pytest.fixture
def deployed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dynamodb: Any, queue: Queue, hook: Hook
) -> Callable[..., Any]:
    """The handler, as deployed with one provider that calls back; `deployed(event)` answers."""
    (tmp_path / "example.json").write_text(json.dumps(FILE))
    settings = {"PROVIDERS_DIR": str(tmp_path), "CALLBACK_URL": BASE, "CALLBACK_SECRET": "env:KEY", "TABLE_NAME": TABLE}
    for name, value in (settings | {"KEY": "ours", "HOOK": "theirs"}).items():
        hook.patch.setenv(name, value)
    hook.patch.setattr(wiring, "queue", lambda: queue)
    hook.patch.setattr(wiring, "clock", hook.clock)
    return lambda event: handler(event, Context())  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [rest, http])
@pytest.mark.parametrize("as_base64", [False, True])
def test_each_event_shape_is_answered(hook: Hook, deployed: Any, shape: Any, as_base64: bool) -> None:
    hook.wait()
    body = json.dumps({"status": "completed", "data": "Ünï"}, ensure_ascii=False)
    signature = hmac.new(b"theirs", body.encode(), hashlib.sha256).hexdigest()
    path = f"/callbacks/example/{hook.token()}"
    headers = {"X-SIGNATURE": f"sha256={signature}"}
    answer = deployed(shape("POST", path, body, headers, as_base64=as_base64))
    assert (answer["statusCode"], json.loads(answer["body"])) == (200, RECEIVED)
    assert hook.item().data == "Ünï"


@pytest.mark.promise("callbacks", "a callback by GET is never believed: the provider is asked")
@pytest.mark.parametrize("shape", [rest, http])
@pytest.mark.parametrize("query", ["", "?status=done", "?validationToken=a", "?status=completed&status=refused"])
def test_a_get_makes_the_task_due_and_is_not_believed(hook: Hook, deployed: Any, shape: Any, query: str) -> None:
    before = hook.wait()
    path = f"/callbacks/example/{hook.token()}{query}"
    for _ in range(2):
        answer = deployed(shape("GET", path, headers={"X-Signature": "sha256=00"}))
        assert (answer["statusCode"], json.loads(answer["body"])) == (200, RECEIVED)
        assert answer["headers"]["Cache-Control"] == "no-store"
        assert (hook.item(), hook.place()) == (before, DUE)
    assert deployed(shape("GET", f"/callbacks/example/forged{query}"))["statusCode"] == 404


@pytest.mark.parametrize("shape", [rest, http])
def test_a_handshake_is_answered_with_its_text_and_changes_nothing(hook: Hook, deployed: Any, shape: Any) -> None:
    before, parts = hook.wait(), hook.bench.parts()
    text = "Validation: Testing <script>&+ é"
    path = f"/callbacks/example/{hook.token()}"
    answer = deployed(shape("POST", f"{path}?{urlencode({'validationToken': text})}"))
    assert (answer["statusCode"], answer["body"]) == (200, text)
    assert answer["headers"]["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["headers"]["X-Content-Type-Options"] == "nosniff"
    assert deployed(shape("POST", f"{path}A?validationToken=a"))["statusCode"] == 404
    assert deployed(shape("POST", f"{path}?validationToken=a", "{}"))["statusCode"] == 404  # a body, and not signed
    assert (hook.item(), hook.bench.parts()) == (before, parts)


@pytest.mark.parametrize("shape", [rest, http])
def test_a_header_that_comes_twice_and_in_any_case_is_read_as_one(hook: Hook, deployed: Any, shape: Any) -> None:
    hook.wait()
    body = '{"status": "completed", "data": 1}'
    good = f"sha256={hmac.new(b'theirs', body.encode(), hashlib.sha256).hexdigest()}"
    event = shape("POST", f"/callbacks/example/{hook.token()}", body, {"x-SIGNATURE": f"{good},sha256=00"})
    if shape is rest:
        event["multiValueHeaders"]["x-SIGNATURE"] = [good, "sha256=00"]
        event["headers"]["x-SIGNATURE"] = "sha256=00"
    assert deployed(event)["statusCode"] == 200
    assert hook.item().data == 1


@pytest.mark.promise("callbacks", "no forged, altered or guessed URL leads to a task")
@pytest.mark.parametrize("shape", [rest, http])
def test_a_forged_token_and_a_path_without_one_are_answered_alike(
    deployed: Any, shape: Any, caplog: pytest.LogCaptureFixture
) -> None:
    paths = ("/callbacks/example/forged", "/callbacks/x", "/", "/callbacks/unknown/forged")
    answers = [deployed(shape("POST", path, "{}")) for path in paths]
    refused = [vars(line) for line in caplog.records if line.message == "callback refused"]
    assert [(line["provider"], line["reason"]) for line in refused] == [("example", "token"), (None, "token")]
    assert "forged" not in str([line["provider"] for line in refused])
    assert {(answer["statusCode"], answer["body"]) for answer in answers} == {(404, answers[0]["body"])}
    assert answers[0]["headers"]["Content-Type"] == "application/problem+json"


def test_the_sample_events_are_understood_and_found_forged(deployed: Any) -> None:
    for name in ("callback-rest-post", "callback-http-post", "callback-rest-get", "callback-http-get"):
        event: Event = sample(name)
        assert request.callback(ApiCall.of(event)).provider == "example"
        assert deployed(event)["statusCode"] == 404


def test_a_body_beyond_the_limit_is_not_read_and_makes_the_task_due_if_the_token_is_ours(
    deployed: Any, hook: Hook
) -> None:
    before = hook.wait()
    path = f"/callbacks/example/{hook.token()}"
    large, forged = "x" * (MAX_BODY_BYTES + 1), "/callbacks/example/x"
    answers = [deployed(rest("POST", path, body)) for path, body in ((forged, large), (forged, "{}"))]
    assert answers[0]["statusCode"] == 404
    assert answers[0]["body"] == answers[1]["body"]
    assert hook.place() == LATER
    assert deployed(rest("POST", path, large[1:]))["statusCode"] == 404  # it can be read, and is not signed
    assert deployed(rest("POST", path, large))["statusCode"] == 200
    assert (hook.item(), hook.place()) == (before, DUE)


def test_a_file_that_needs_callbacks_is_faulty_where_they_are_not_set_up(
    deployed: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert "example" in wiring.providers()
    wiring.providers.cache_clear()
    wiring.rules.cache_clear()
    wiring.settings.cache_clear()
    wiring.callback_urls.cache_clear()
    monkeypatch.delenv("CALLBACK_SECRET")
    assert set(wiring.providers()) == {"coin"}
    reasons = [vars(line)["reason"] for line in caplog.records]
    assert "example.json: $.submit: ${callback.url} needs CALLBACK_URL and CALLBACK_SECRET" in reasons
