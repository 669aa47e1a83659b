"""The pages say what the code says: what is made from it is fresh, and every link leads to a file."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from handlers.process import METRICS
from local import ROOT, docs
from shared.reasons import Reason, Trait
from shared.store import Item

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def test_what_is_made_from_code_is_fresh() -> None:
    assert [str(path.relative_to(ROOT)) for path in docs.stale()] == [], "run `make docs`"


def test_a_part_that_is_not_as_its_maker_says_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "PARTS", {"words": lambda: "new"})
    page = "by hand\n<!-- made by make docs: words -->\n\nold\n\n<!-- end of words -->\nby hand"
    assert docs.renewed(page) == page.replace("old", "new")
    assert docs.renewed(docs.renewed(page)) == docs.renewed(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page: Path) -> None:
    for link, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), f"{link}#{anchor}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_the_architecture_page_says_is_there_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (\[[^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    assert len(rows) > 20
    missing = []
    for files, there in rows:
        code = "".join((ROOT / "docs" / path).read_text(encoding="utf-8") for path in re.findall(r"\]\((.+?)\)", files))
        names = re.findall(r"\w+", " ".join(re.findall(r"`([\w.]+)`", there)))
        defined = rf"(?:\b(?:def|class|function|raise)|^(?:--)?) ?({'|'.join(names)})\b"
        missing += sorted(set(names) - set(re.findall(defined, code, re.MULTILINE)))
    assert missing == []


def test_the_architecture_page_tells_of_every_attribute_of_an_item() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    dynamodb = page.split("## What stands in DynamoDB")[1].split("\n## ")[0]
    assert [name for name in Item.__slots__ if f"`{name}`" not in dynamodb] == ["task"]


def test_the_table_of_reasons_has_every_reason_with_its_meaning_and_what_follows() -> None:
    rows = docs.reasons().splitlines()[2:]
    assert len(rows) == len(Reason)
    assert f"| `{Reason.CRASHED}` | {Reason.CRASHED.meaning} | {Trait.KEEPS_JOB.value} |" in rows


def test_every_section_of_the_page_on_reliability_has_promises_and_every_promise_stands_in_one() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- made by make docs: promises-(\w+) -->", page) == list(docs.PROMISES)
    assert [section for section in docs.PROMISES if "`tests/" not in docs.promises(section)] == []


@pytest.mark.parametrize("section", ["ends", "breakfast"])
def test_a_promise_of_an_unknown_section_is_refused(tmp_path: Path, section: str) -> None:
    test = f'@pytest.mark.promise("{section}", "tea at five")\ndef test_tea() -> None: ...\n'
    (tmp_path / "test_tea.py").write_text(test, encoding="utf-8")
    refused = pytest.raises(ValueError, match="unknown section, breakfast") if section == "breakfast" else nullcontext()
    with refused:
        assert f"| tea at five | `{tmp_path.name}/test_tea.py::test_tea` |" in docs.promises("ends", tmp_path)


def test_the_page_on_operations_has_every_metric_and_every_message_of_the_log() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    modules = [path for room in ("handlers", "shared") for path in (ROOT / room).rglob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in modules)
    messages = re.findall(r'log(?:ger\(\))?\.(?:info|warning|error|exception)\(\s*"([^"]+)"', code)
    assert len(messages) > 20
    assert [word for word in (*METRICS, *sorted(set(messages))) if f"`{word}`" not in page] == []


def test_each_test_that_the_threat_model_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in named}
    assert [f"{path}::{name}" for path, name in named if f"def {name}(" not in texts[path]] == []


def test_each_line_of_the_threat_model_names_one() -> None:
    _, _, table = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("|---|---|---|---|\n")
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert rows
    assert [row for row in rows if "::" not in row] == []
