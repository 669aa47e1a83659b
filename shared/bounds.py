"""How large a value may be that goes into Redis, an item or an answer: one table, by its size before compression."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.codec import Json, dumps


@dataclass(frozen=True, slots=True)
class Bound:
    """The most bytes of UTF-8 that a value may take, what it is and where it stands, and what happens above that.

    Counted is the JSON text of a value, and the text itself of a name, a group and a target of `notify`; data and
    whole answers count as Lambda carries them, with each quote and backslash twice.
    """

    most: int
    what: str
    above: str


RESULT_BYTES = 32_768
MOST_REPEATED = 64  # characters
BOUNDS: Mapping[str, Bound] = {
    "name": Bound(256, "a task's name: everywhere", "400"),
    "group": Bound(256, "a request's group: record, item", "above 64 characters: 400"),
    "notify": Bound(2_067, "one of the 10 targets in `notify`: item", "400"),
    "input": Bound(32_768, "a request's input: record, item", "413"),
    "outputs": Bound(24_576, "what a provider file keeps of a job: record, item", "the last stay; else `too-large`"),
    "partial": Bound(65_536, "partial data: record, item, answer", "left out; `reason` and the log say so"),
    "progress": Bound(4_096, "progress: record, answer", "left out; `reason` and the log say so"),
    "reason": Bound(512, "why the last attempt brought nothing: record, answer", "a status is cut to 64 characters"),
    "result": Bound(RESULT_BYTES, "a result in hand that could not be stored: record", "not kept; the log says so"),
    "pages": Bound(16_384, "where the pages of a result are that are kept in S3: record", "no more are kept"),
    "detail": Bound(8_000, "what a provider or we say of a failure: item, answer", "cut, with a mark"),
    "error": Bound(8_192, "a failure, its reason and detail: item", "its detail is cut"),
    "field": Bound(512, "the part of a request that is at fault: answer", "cut, with a mark"),
    "data": Bound(5_000_000, "data: item, answer", "kept in S3, else the task fails: `too-large`; answered by a link"),
    "data in S3": Bound(50_000_000, "data: S3", "the task fails: `too-large`"),
    "results": Bound(5_000_000, "all results of a batch: answer", "303 instead of a result that has no room"),
    "answer": Bound(6_000_000, "a whole answer", "`data` is null, `data_url` is there, and the log says so"),
}
"""The bound of each value, by its name in the code."""


def fits(value: Json, name: str) -> bool:
    """Whether a value's JSON text is within the bound of that name."""
    return len(dumps(value).encode()) <= BOUNDS[name].most


def cut(value: Json, name: str) -> Json:
    """The value where it fits, else the beginning of its text, with a mark that says how long it was."""
    if fits(value, name):
        return value
    text = value if isinstance(value, str) else dumps(value)
    mark, kept = f"… (cut, {len(text)} characters)", text[: BOUNDS[name].most]
    while not fits(kept + mark, name):
        kept = kept[: len(kept) * 9 // 10]
    return kept + mark


def beginning(text: str) -> str:
    """As much of a text that somebody else chose as a message repeats: 64 characters, with a mark where it is cut."""
    return text if len(text) <= MOST_REPEATED else f"{text[:MOST_REPEATED]}…"
