"""C12: each value that goes into Redis, an item or an answer is held to its bound: whole at it, not one byte above."""

import json
from collections.abc import Callable, Hashable

import pytest

from shared.api import batch
from shared.api.answer import Answer, problem
from shared.api.request import TaskRequest, from_body
from shared.bounds import BOUNDS, RESULT_BYTES, cut, fits
from shared.codec import Json, carried, dumps
from shared.errors import BadRequest, ContentTooLarge, StoreTooLarge
from shared.outcome import Completed, Failed, Pending
from shared.provider import Finding
from shared.reasons import Reason
from shared.record import Record
from shared.settings import MAX_BATCH
from shared.store.spill import Spill
from tests.support.api_events import rest_call
from tests.support.asking import DONE, POLLED, TASK, ask, provider, record, rules, submitted
from tests.support.servers import Says, Site


def text(size: int, quotes: int = 2) -> str:
    """A text whose JSON takes so many bytes, its quotes included."""
    return "x" * (size - quotes)


def emoji(size: int) -> str:
    return "😀" * (size // 4) + "x" * (size % 4)


def asked(reply: Json, **parts: Json) -> Finding:
    """What an attempt at a job finds whose submit is answered like that."""
    with Site(Says(200, {"id": "j", "status": "working"} | reply)) as site:
        return ask(provider(rules(site.url, **POLLED, status="body.status", **parts)))


def requested(**fields: Json) -> bool:
    """Whether a request with these fields is taken."""
    try:
        return isinstance(from_body(rest_call("POST", "/tasks", {"name": "a"} | fields), "example"), TaskRequest)
    except (BadRequest, ContentTooLarge):
        return False


def kept(data: Json, spill: Spill) -> bool:
    try:
        return bool(spill.keep(TASK, 1, data, 0))
    except StoreTooLarge:
        return False


def outputs(size: int) -> bool:
    finding = asked({"id": text(size - len('{"id":}'))})
    return isinstance(finding.outcome, Pending) and finding.record.outputs is not None


def shown_in_batch(size: int) -> bool:
    """Whether a result has room in the answer of a batch."""
    answer = Answer(status=200, body={"x": ""})
    answer = Answer(status=200, body={"x": "x" * (size - carried(answer.text))})
    return bool(batch._results([1], {1: answer})[0]["status"] == 200)


def whole(size: int) -> bool:
    data = text(size - len('{"data":}'), quotes=4 + 2)  # those of the name, too
    return bool(Answer(status=200, body={"data": data}).body["data"] == data)


DOORS: dict[str, Callable[[int], bool]] = {
    "name": lambda size: requested(name=emoji(size)),
    "group": lambda size: requested(group=emoji(size)),
    "notify": lambda size: requested(notify={"stepFunctionsToken": text(size, len("stepFunctionsToken:"))}),
    "input": lambda size: requested(input={"x": text(size - len('{"x":}'))}),
    "outputs": outputs,
    "partial": lambda size: asked({"data": text(size)}, partial="body.data").record.partial == text(size),
    "progress": lambda size: asked({"done": text(size)}, progress="body.done").record.progress == text(size),
    "detail": lambda size: cut(text(size), "detail") == text(size),
    "field": lambda size: problem(BadRequest("x", field=text(size))).body["field"] == text(size),
    "data": lambda size: kept(text(size, quotes=4), Spill()),
    "results": shown_in_batch,
    "answer": whole,
}
"""For each bound: whether a value of so many bytes passes whole."""
ELSEWHERE = {"reason", "result", "error", "data in S3", "pages"}
"""Never at its bound (`reason`), set by nobody yet (`result`), or tested beside what keeps it (the others)."""


def test_every_bound_has_its_test() -> None:
    assert DOORS.keys() | ELSEWHERE == BOUNDS.keys()
    assert BOUNDS["result"].most == RESULT_BYTES == 32_768


@pytest.mark.promise(
    "large", "each value has [a bound](architecture.md#how-large-a-value-may-be), by its size uncompressed"
)
@pytest.mark.parametrize("name", DOORS)
def test_a_value_is_taken_whole_at_its_bound_and_not_one_byte_above(name: str) -> None:
    most = BOUNDS[name].most
    assert DOORS[name](most)
    assert not DOORS[name](most + 1)


# --- what becomes of what is too large


VAST = "d" * 9_900_000
"""As much as a reply can hold; it compresses to ten kilobytes."""


@pytest.mark.parametrize("name", ["partial", "progress"])
def test_partial_data_and_progress_are_left_out_and_the_record_and_the_log_say_so_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Site(Says(200, {"id": "j", "status": "working", "x": VAST})) as site:
        parts: Json = {"partial": "body.none", "progress": "body.none"} | {name: "body.x"}
        parts |= {"acceptors": [DONE, {"state": "pending", "expected": "working"}]}
        found = provider(rules(site.url, **POLLED, **parts))
        first = ask(found)
        second = ask(found, first.record)
    for finding in (first, second):
        assert isinstance(finding.outcome, Pending)
        assert getattr(finding.record, name) is getattr(finding.outcome, name) is None
        assert finding.record.outputs == {"id": "j"}
        assert finding.record.reason == f"left out as too large: {name}"
        assert len(finding.record.to_text()) < 1000
    (line,) = caplog.records
    assert (line.message, vars(line)["fields"], vars(line)["task"]) == ("left out", [name], TASK.name)


def test_outputs_that_are_too_large_end_the_task_unless_it_is_completed_anyway() -> None:
    finding = asked({"id": VAST})
    assert isinstance(finding.outcome, Failed)
    assert finding.outcome.reason == Reason.TOO_LARGE
    assert finding.record.outputs is None
    kept = {"poll": POLLED["poll"] | {"outputs": {"log": "body.log"}}, "data": "body.data"}
    with Site(Says(200, {"status": "completed", "data": 1, "log": VAST})) as site:
        done = ask(provider(rules(site.url, **POLLED | kept)), submitted())
    assert done.outcome == Completed(1)
    assert done.record.outputs == submitted().outputs


def test_of_an_unknown_status_only_a_beginning_is_kept() -> None:
    for word in ("x", "😀", "\ud800", '"'):
        with Site(Says(200, {"status": word * 500_000})) as site:
            reason = ask(provider(rules(site.url, **POLLED, partial="body")), submitted()).record.reason
        assert reason
        assert reason.startswith(f"no acceptor matches {word}")
        assert reason.endswith("; left out as too large: partial")
        assert len(reason.encode(errors="surrogatepass")) <= BOUNDS["reason"].most


@pytest.mark.parametrize(
    "large", ["d" * 1_000_000, "😀" * 9_000, "\ud800é" * 9_000, "\0" * 9_000, {"a": ["x" * 9_000]}]
)
def test_what_is_cut_fits_keeps_its_beginning_and_says_how_long_it_was(large: Json) -> None:
    short = cut(large, "detail")
    assert fits(short, "detail")
    begun, _, mark = short.partition("… (cut, ")
    of = large if isinstance(large, str) else dumps(large)
    assert mark == f"{len(of)} characters)"
    assert of.startswith(begun)
    assert len(dumps(begun).encode()) > BOUNDS["detail"].most * 0.8


def test_a_problem_repeats_no_enormous_field() -> None:
    told = problem(BadRequest("\x01" * 10_000, field="\x01" * 10_000))
    assert len(told.text) < 10_000
    assert "(cut, " in told.body["field"]
    assert "(cut, " in told.body["detail"]


@pytest.mark.parametrize(
    "body",
    ['{"KEY": 1}', '{"KEY": 1, "KEY": 2}', '{"name": "a", "input": {"KEY": 1, "KEY": 2}}', '{"name": "KEY"}',
     '{"name": "a", "provider": "KEY"}', '{"name": "a", "notify": {"KEY": ""}}', '{"name": "a", "group": "KEY"}'],
)  # fmt: skip
def test_what_a_fault_repeats_of_a_request_is_cut(body: str) -> None:
    with pytest.raises(BadRequest) as caught:
        from_body(rest_call("POST", "/tasks", body.replace("KEY", "\\u0001" * 4_000)), "example")
    assert len(problem(caught.value).text) < 1_000


# --- all bounds together


def test_the_largest_stored_and_partial_data_and_all_beside_them_fit_into_an_answer() -> None:
    beside = ["partial", "progress", "reason", "detail", "name", "name"]
    assert BOUNDS["data"].most + sum(2 * BOUNDS[name].most for name in beside) + 10_000 < BOUNDS["answer"].most


def test_a_batch_whose_results_have_no_room_is_carried_too() -> None:
    named = {"task_id": '"' * 321, "provider": "x" * 64, "name": '"' * 256, "status": "cancelled"}
    full = Answer(status=200, body=named | {"data": "x" * BOUNDS["results"].most})
    answers: dict[Hashable, Answer] = dict.fromkeys(range(2), full)
    (first, second) = batch._results([0, 1], answers)
    assert (first["status"], second["status"]) == (303, 303)
    least = carried(dumps({"results": [first | {"retry_after_seconds": 10**9}] * MAX_BATCH}))
    assert BOUNDS["results"].most + least < BOUNDS["answer"].most


def test_an_answer_whose_other_fields_are_too_large_leaves_those_out(caplog: pytest.LogCaptureFixture) -> None:
    """As yesterday's records may be."""
    answer = Answer(status=200, body={"task_id": "example/a", "data": [1], "progress": VAST})
    assert answer.body == {"task_id": "example/a", "data": [1], "progress": None}
    assert json.loads(answer.text) == answer.body
    assert vars(caplog.records[0])["fields"] == ["progress"]


def test_a_record_whose_values_are_all_at_their_bounds_comes_back() -> None:
    values = {name: text(BOUNDS[name].most) for name in ("input", "partial", "progress", "reason", "result")}
    largest = record(**values, outputs={"id": text(BOUNDS["outputs"].most - 7)}, group="😀" * 64)
    assert Record.from_text(largest.to_text()) == largest
