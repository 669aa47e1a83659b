"""docs/providers.md: its files work as it says, its examples too."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from local import ROOT
from local.provider.check import check
from local.provider.replay import Conversation, conversations
from shared.provider.language.acceptor import REQUEST_AT_FAULT, TRANSIENT
from shared.provider.language.expression import Expression
from shared.provider.language.part import Part
from shared.settings import Settings
from tests.support.provider_tools import JOB

PAGE = (ROOT / "docs/providers.md").read_text(encoding="utf-8")
SETTINGS = Settings(provider_servers={})
STYLES_SECTION = PAGE.partition("## A file for each style")[2].partition("\n## ")[0]
FILES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", STYLES_SECTION, re.DOTALL)]

Json = Any


def exchange(request: str, status: int, body: Json = "", *, auth: bool = True, **headers: str) -> Json:
    """One exchange of a vector: `request` is METHOD URL."""
    method, _, url = request.partition(" ")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {
        "request": {"method": method, "url": url, "auth": auth},
        "response": {"statusCode": status, "headers": named, "body": body},
    }


def pending(delay: float, exchange: Json, **more: Json) -> Json:
    """A step after which it is asked again."""
    return {"exchanges": [exchange], "expect": {"state": "in_progress", "delay": delay} | more}


def completed(*exchanges: Json) -> Json:
    """The last step."""
    return {"exchanges": list(exchanges), "expect": {"state": "completed", "data": "whole"}}


ACME = "https://api.acme.example"
COGNITIVE = "https://acme.cognitive.example"
SCAN = "https://scan.acme.example"
DOCUMENTS = "https://documents.acme.example/v1"
SPEECH = "https://speech.acme.example"

STYLES: dict[str, tuple[Json, list[Json]]] = {
    "The same request again": (
        {"id": "r-7"},
        [
            pending(
                30,
                exchange(f"GET {ACME}/v1/records/r-7", 200, {"status": "Async processing in progress", "data": [1]}),
                partial=[1],
            ),
            completed(exchange(f"GET {ACME}/v1/records/r-7", 200, {"status": "completed", "data": "whole"})),
        ],
    ),
    "A Location header": (
        {"table": "t"},
        [
            pending(2, exchange(f"POST {ACME}/exports", 202, auth=False, Location="/exports/1")),
            pending(4, exchange(f"GET {ACME}/exports/1", 202, auth=False, Location="/exports/1/b")),
            completed(exchange(f"GET {ACME}/exports/1/b", 200, {"rows": "whole"}, auth=False)),
        ],
    ),
    "Operation-Location and a word": (
        {"model": "layout", "url": "https://files.example/a.pdf"},
        [
            pending(
                2,
                exchange(
                    f"POST {COGNITIVE}/models/layout:analyze?api-version=2024-11-30",
                    202,
                    Operation_Location=f"{COGNITIVE}/results/9",
                ),
            ),
            pending(4, exchange(f"GET {COGNITIVE}/results/9", 200, {"status": "running"})),
            completed(exchange(f"GET {COGNITIVE}/results/9", 200, {"status": "Succeeded", "analyzeResult": "whole"})),
        ],
    ),
    "404 until ready": (
        {"url": "https://a.example"},
        [
            pending(10, exchange(f"POST {SCAN}/scans", 200, {"api": f"{SCAN}/scans/1"})),
            pending(5, exchange(f"GET {SCAN}/scans/1", 404, {"message": "not yet"})),
            completed(exchange(f"GET {SCAN}/scans/1", 200, {"page": "whole"})),
        ],
    ),
    "done and error": (
        {"files": ["a"]},
        [
            pending(2, exchange(f"POST {DOCUMENTS}/batches", 200, {"name": "operations/1"})),
            pending(4, exchange(f"GET {DOCUMENTS}/operations/1", 200, {"metadata": {"percent": 50}}), progress=50),
            completed(exchange(f"GET {DOCUMENTS}/operations/1", 200, {"done": True, "response": "whole"})),
        ],
    ),
    "A result in two hops": (
        {"url": "https://a.example/a.wav"},
        [
            pending(60, exchange(f"POST {SPEECH}/transcriptions", 201, {"self": f"{SPEECH}/transcriptions/1"})),
            completed(
                exchange(f"GET {SPEECH}/transcriptions/1", 200, {"status": "Succeeded", "links": {"files": "/files"}}),
                exchange(f"GET {SPEECH}/files", 200, {"values": [{"link": "https://blob.example/1?sig=a"}]}),
                exchange("GET https://blob.example/1?sig=a", 200, {"phrases": "whole"}, auth=False),
            ),
        ],
    ),
}
"""The styles of the page, in its order, each with an input and what is said."""


def test_there_is_a_worked_file_for_each_style() -> None:
    assert re.findall(r"^\*\*([^*]+)\*\*", STYLES_SECTION, re.MULTILINE) == list(STYLES)
    assert len(FILES) == len(STYLES)


@pytest.mark.parametrize("file", FILES, ids=STYLES)
def test_each_worked_file_is_sound(file: Json, tmp_path: Path) -> None:
    path = tmp_path / "acme.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    assert check(path, SETTINGS).faults == ()


@pytest.mark.parametrize(("file", "style"), list(zip(FILES, STYLES.values(), strict=True)), ids=STYLES)
def test_each_worked_file_sees_its_style_through(file: Json, style: tuple[Json, list[Json]]) -> None:
    input_, steps = style
    numbered = [step | {"at": i} for i, step in enumerate(steps)]
    vector = {"config": file, "input": input_, "start_epoch": 1_767_225_600, "steps": numbered}
    assert Conversation("worked", vector).difference() is None


# --- the rest of the page


def test_the_tables_are_of_every_part_of_the_language() -> None:
    made = set(re.findall(r"<!-- made by make docs: fields-of-(\w+) -->", PAGE))
    assert made == {part.__name__ for part in Part.__subclasses__()}


def block(after: str) -> Json:
    """The next block of JSON."""
    return json.loads(PAGE.partition(after)[2].partition("```json\n")[2].partition("```")[0])


def test_the_whole_vector_is_played(tmp_path: Path) -> None:
    path = tmp_path / "acme.vectors.json"
    path.write_text(json.dumps(block("A whole vector")), encoding="utf-8")
    (conversation,) = conversations(path)
    assert conversation.difference() is None


def test_pages_are_counted() -> None:
    file = JOB | {"result": block("**Counting pages**"), "data": "body.items"}
    items = "https://api.acme.example/jobs/7/items?page="
    exchanges = [
        exchange("GET https://api.acme.example/jobs/7", 200, {"status": "succeeded"}),
        *(exchange(f"GET {items}{n}", 200, {"page": n, "pages": 3, "items": [n]}) for n in (1, 2, 3)),
    ]
    steps = [
        {"at": 0} | pending(2, exchange("POST https://api.acme.example/jobs", 200, {"id": 7})),
        {"at": 2, "exchanges": exchanges, "expect": {"state": "completed", "data": [1, 2, 3]}},
    ]
    vector = {"config": file, "input": {}, "start_epoch": 1_767_225_600, "steps": steps}
    assert Conversation("pages", vector).difference() is None


def test_what_is_said_of_quoting_holds() -> None:
    said = PAGE.partition("## JMESPath in five lines")[2].partition("**Counting")[0]
    found = [json.loads(text) for text in re.findall(r'`("(?:[^"\\]|\\.)*")(?:`|``)(?=[,:;. ]|\.)', said)]
    assert len(found) >= 5
    for text in found:
        assert Expression(text).references <= {("headers", "retry-after"), ("headers", "location"), ("body", "kind"),
            ("body", "done"), ("body", "left"), ("body", "url"), ("body", "files")}  # fmt: skip


def test_the_statuses_that_pass_are_those_of_the_code() -> None:
    row = next(line for line in PAGE.splitlines() if "a broken connection" in line)
    assert {int(status) for status in re.findall(r"\d{3}", row)} == TRANSIENT | REQUEST_AT_FAULT
