"""The page on reliability says only what a test proves: every test that it names is there."""

import ast
import re

import pytest

from local import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and " | " in line]


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_each_test_that_it_names_is_there(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith(("| promise", "| fault"))])
def test_each_promise_is_held_by_a_test(row: str) -> None:
    assert re.search(r"`tests/[\w/]+\.py::\w+`", row)
