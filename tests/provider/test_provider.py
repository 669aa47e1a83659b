"""A provider at work: one outcome for every attempt, one key for every job, and nothing that crosses tasks."""

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from shared import wiring
from shared.outcome import Completed, Failed
from shared.provider.provider import idempotency_key
from shared.provider.wire.transport import Transport
from shared.reasons import Reason
from shared.record import Pages, Record
from shared.sink import Kept
from shared.store import Store
from shared.task import Task
from shared.work.keeper import record_of
from tests.support.asking import NO_JITTER, POLLED, TASK, ask, file_at, outcome, provider, record, rules, submitted
from tests.support.clock import START_MS
from tests.support.servers import GUARD_SECONDS, Cut, Peer, Says, Seen, Site, Wire

WORKING = Says(200, {"status": "working"})
KEYED: dict[str, Any] = POLLED | {"submit": POLLED["submit"] | {"headers": {"Idempotency-Key": "${task.id}"}}}


# --- the record that goes with an outcome


def test_an_attempt_is_counted_and_the_first_one_dates_the_submit() -> None:
    with Site(WORKING) as site:
        asked = provider(rules(site.url))
        first = ask(asked, now=START_MS + 5)
        second = ask(asked, first.record, now=START_MS + 9)
        assert (first.record.attempts, first.record.submitted_at) == (1, START_MS + 5)
        assert (second.record.attempts, second.record.submitted_at) == (2, START_MS + 5)


def test_a_poll_operation_makes_the_first_attempt_a_submit_that_must_not_be_repeated_lightly() -> None:
    polled, single = provider(rules("http://a.example", **POLLED)), provider(rules("http://a.example"))
    assert polled.submits(record())
    assert not polled.submits(submitted())
    assert not polled.submits(record(outputs={}))
    assert not single.submits(record())


WHOLE = Record(
    generation=3, created_at=START_MS, group="a tenant",
    input={"n": 30.40, "big": 2**70, "text": "ä\ud800", "list": [None, True, {}]},
    outputs={"id": 12345678901234567890, "deep": {"a": [1.5]}}, partial={"rows": [1, 2]}, progress=0.25,
    submitted_at=START_MS - 1000, job_at=START_MS - 500, asked_at=START_MS - 200, resubmits=1, polls=4, errors=2,
    attempts=9, reason="http", unauthorized_at=START_MS - 100, saved="0123456789abcdef", confirmed_at=START_MS - 50,
    result='{"a":1}', news=3,
    pages=Pages(next="http://a.example/?page=3", kept=(Kept("0" * 64, 7),), count=2, size=20, starts=("mark",), most=2),
)  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in structs.fields(Record)])
def test_every_field_of_the_state_survives_redis(name: str) -> None:
    default = next(field.default for field in structs.fields(Record) if field.name == name)
    assert getattr(WHOLE, name) != default, "the example must say something"
    assert getattr(Record.from_text(WHOLE.to_text()), name) == getattr(WHOLE, name)


def test_an_attempt_goes_on_from_the_item_when_redis_has_lost_everything(store: Store) -> None:
    begun = store.begin(TASK, None, {"a": 1}, START_MS)
    assert begun is not None
    known = Record(
        generation=begun.generation, created_at=START_MS, input={"a": 1}, outputs={"id": "j"}, partial={"a": 2},
        submitted_at=START_MS - 7000, resubmits=1,
    )  # fmt: skip
    assert store.save(TASK, known, START_MS) is None
    item = store.get(TASK, START_MS)
    assert item is not None
    resumed = record_of(item)
    assert (resumed.outputs, resumed.partial) == ({"id": "j"}, {"a": 2})
    assert (resumed.submitted_at, resumed.resubmits) == (START_MS - 7000, 1)
    with Site(Says(200, {"status": "lost"})) as site:
        lost = {"state": "resubmit", "expected": "lost"}
        found = ask(provider(rules(site.url, **POLLED, acceptors=[lost])), resumed)
        assert site.paths == ["/jobs/j"]
        assert found.outcome == Failed(Reason.TOO_MANY_RESUBMITS)


# --- the idempotency key


@pytest.mark.promise(
    "submits", "the key is the same for each try of one submit, another for each generation and resubmit"
)
def test_the_key_is_an_ascii_uuid_of_the_task_its_generation_and_its_resubmits() -> None:
    keys = [
        idempotency_key(Task(provider_name, name), record(generation=generation, resubmits=resubmits))
        for provider_name in ("a", "b")
        for name in ("x", "naïve ☃ 名前", "a/b?c#d")
        for generation in (1, 2)
        for resubmits in (0, 1)
    ]
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert str(uuid.UUID(key)) == key
        assert uuid.UUID(key).version == 5
    expected = uuid.uuid5(uuid.NAMESPACE_URL, "example/naïve@7.2")
    assert idempotency_key(Task("example", "naïve"), record(generation=7, resubmits=2)) == str(expected)


@pytest.mark.promise("submits", "a submit whose answer is lost or cut in time is repeated under its key")
def test_a_submit_whose_answer_is_lost_is_repeated_with_the_same_key_and_makes_one_job() -> None:
    jobs: dict[str, str] = {}

    def answer(seen: Seen) -> Says | Cut:
        key = seen.headers["Idempotency-Key"]
        is_new = key not in jobs
        job = jobs.setdefault(key, f"j{len(jobs)}")
        return Cut(b"") if is_new else Says(202, {"id": job})

    with Site(answer) as site:
        asked = provider(rules(site.url, **KEYED))
        first = ask(asked)
        assert (outcome(first)["is"], outcome(first)["reason"]) == ("retry", "transport")
        second = ask(asked, Record.from_text(first.record.to_text()))
        assert second.record.outputs == {"id": "j0"}
        assert len(jobs) == 1


@pytest.mark.promise("submits", "a submit whose answer is lost or cut in time is repeated under its key")
def test_a_submit_that_is_cut_in_time_is_repeated_with_the_same_key() -> None:
    keys = []

    def script(peer: Peer) -> None:
        seen = peer.request()
        assert seen is not None
        keys.append(seen.headers["Idempotency-Key"])
        peer.wait()

    with Wire(script) as wire:
        asked = provider(rules(wire.url, **KEYED))
        first = ask(asked, seconds=0.1)
        ask(asked, first.record, seconds=0.1)
        assert outcome(first)["reason"] == "deadline"
        assert keys == [idempotency_key(TASK, record())] * 2


def test_another_job_of_the_same_task_has_another_key() -> None:
    with Site(lambda seen: Says(202, {"id": "j"}) if seen.method == "POST" else Says(200, {"status": "lost"})) as site:
        asked = provider(rules(site.url, **KEYED, acceptors=[{"state": "resubmit", "expected": "lost"}]))
        known = record()
        for _ in range(3):
            known = ask(asked, known).record
        ask(asked, record(generation=2))
        sent = [seen.headers["Idempotency-Key"] for seen in site.calls if seen.method == "POST"]
        assert len(set(sent)) == len(sent) == 3


# --- many tasks at once


def test_tasks_in_many_threads_share_a_client_and_nothing_else() -> None:
    threads = 32
    together = threading.Barrier(threads)

    def answer(seen: Seen) -> Says:
        name = seen.query.partition("=")[2]
        headers = {"Set-Cookie": f"session={name}; Path=/", "X-Name": name}
        return Says(200, {"status": "completed", "name": name}, headers)

    with Site(answer) as site, ThreadPoolExecutor(threads) as pool:
        submit = {"url": "/jobs", "query": {"name": "${task.name}"}, "outputs": {"name": 'headers."x-name"'}}
        asked = provider(rules(site.url, submit=submit, data="body.name"), transport=Transport(threads))

        def poll(number: int) -> list[Any]:
            together.wait(GUARD_SECONDS)
            task, found = Task("example", f"n{number}"), []
            for _ in range(3):
                finding = asked.attempt(task, record(), now=START_MS, seconds=GUARD_SECONDS)
                found.append((finding.outcome, finding.record.outputs))
            return found

        answers = list(pool.map(poll, range(threads)))
    assert answers == [[(Completed(f"n{number}"), {"name": f"n{number}"})] * 3 for number in range(threads)]
    assert len(site.calls) == 3 * threads
    assert [seen.headers.get("Cookie") for seen in site.calls] == [None] * 3 * threads


# --- the deadline, and the cancel that goes with it


CANCEL = {"method": "DELETE", "url": "/jobs/${outputs.id}", "headers": {"X-Key": "${task.id}"}}
SHORT = {"maxWaitTime": 60, "minDelay": 5, **NO_JITTER}


def test_a_task_out_of_time_is_cancelled_once_with_the_provider() -> None:
    with Site(WORKING) as site:
        asked = provider(rules(site.url, **POLLED, cancel=CANCEL, polling=SHORT))
        found = ask(asked, submitted(), now=START_MS + 60_000)
        assert found.outcome == Failed(Reason.TIMEOUT)
        assert [(seen.method, seen.path) for seen in site.calls] == [("GET", "/jobs/j"), ("DELETE", "/jobs/j")]
        assert site.calls[1].headers["X-Key"] == idempotency_key(TASK, submitted())


@pytest.mark.parametrize("said", [Says(500), Cut(b""), Says(302, b"", {"Location": "http://["}), Says(200, "<html>")])
def test_a_cancel_that_fails_changes_nothing(said: Any) -> None:
    with Site(lambda seen: WORKING if seen.method == "GET" else said) as site:
        asked = provider(rules(site.url, **POLLED, cancel=CANCEL, polling=SHORT))
        assert ask(asked, submitted(), now=START_MS + 60_000).outcome == Failed(Reason.TIMEOUT)
        assert len(site.calls) == 2


def test_nothing_is_cancelled_before_there_is_a_job_or_without_an_operation_for_it() -> None:
    with Site(Says(503)) as site:
        with_cancel = provider(rules(site.url, **POLLED, cancel=CANCEL, polling=SHORT))
        assert ask(with_cancel, now=START_MS + 60_000).outcome != Failed(Reason.TIMEOUT)
        late = record(submitted_at=START_MS)
        assert ask(with_cancel, late, now=START_MS + 60_000).outcome == Failed(Reason.TIMEOUT)
        without = provider(rules(site.url, **POLLED, polling=SHORT))
        assert ask(without, submitted(), now=START_MS + 60_000).outcome == Failed(Reason.TIMEOUT)
        assert "DELETE" not in [seen.method for seen in site.calls]


def test_a_cancel_has_only_the_time_that_the_attempt_left() -> None:
    with Site(WORKING, seconds=30) as site:
        file = rules(site.url, **POLLED, cancel=CANCEL, polling=SHORT)
        asked = provider(file, transport=Transport(2, clock=site.clock))
        asked._exchange.clock = site.clock
        assert ask(asked, submitted(), now=START_MS + 60_000).outcome == Failed(Reason.TIMEOUT)
        assert [seen.method for seen in site.calls] == ["GET"]


def test_a_cancel_on_request_is_sent_within_its_time() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.drip(b"H")

    with Wire(script) as wire:
        asked = provider(rules(wire.url, **POLLED, cancel=CANCEL))
        asked.cancel(TASK, submitted(), seconds=0.1)
        assert wire.was_cut()


# --- faulty files stop only themselves


FAULTY = {
    "no-json": "{", "no-object": "[]", "twice": '{"servers": ["http://a.example"], "servers": ["http://b.example"]}',
    "not-a-number": '{"servers": ["http://a.example"], "freshness": NaN}', "deep": '{"a": ' * 10_000, "empty": "{}",
    "no-url": json.dumps(file_at("http://user:pw@a.example")),
    "jmespath": json.dumps(file_at("http://a.example", data="a[")),
    "huge": json.dumps(file_at("http://a.example", polling={"minDelay": 10**400})),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_file_is_named_with_its_reason_and_stops_only_its_own_provider(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{name}.json").write_text(FAULTY[name])
    (tmp_path / "latin.json").write_bytes(b'{"description": "\xe4"}')
    (tmp_path / "Not A Name.json").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "sound.json").write_text(json.dumps(file_at("http://a.example")))
    monkeypatch.setenv("PROVIDERS_DIR", str(tmp_path))
    assert set(wiring.providers()) == {"coin", "example", "sound"}
    told = [str(vars(line).get("reason")) for line in caplog.records if line.getMessage() == "provider file faulty"]
    for file in (f"{name}.json", "latin.json", "Not A Name.json", "folder.json"):
        assert sum(reason.startswith(file) for reason in told) >= 1, (file, told)


@pytest.mark.parametrize("text", [FAULTY["jmespath"], FAULTY["no-url"]])
def test_the_log_line_of_a_faulty_file_names_the_place(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad.json").write_text(text)
    monkeypatch.setenv("PROVIDERS_DIR", str(tmp_path))
    wiring.providers()
    [reason] = [str(vars(line)["reason"]) for line in caplog.records]
    assert reason.startswith(("bad.json: $.data: 'a[' is not JMESPath", "bad.json: $.servers[0]: must be"))


def test_a_server_from_the_settings_replaces_the_first_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with Site(Says(200, {"status": "completed", "data": {"a": 1}})) as site:
        monkeypatch.setenv("PROVIDER_SERVERS", f"example={site.url}")
        assert ask(wiring.providers()["example"]).outcome == Completed({"a": 1})
        assert site.calls[0].target == "/example?task-name=a"
