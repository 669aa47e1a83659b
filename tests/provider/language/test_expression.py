"""What an expression has found: something, or what it made itself of nothing."""

from typing import Any

import pytest

from shared.provider.language.expression import Expression

MAKES = [
    "body.{rows: rows, total: total}", "body | {rows: rows}", "body.[a, b]", "{m: {a: body.a}, rows: body.rows}",
    "merge({a: body.a}, {b: body.b})", "to_array(body.a)", "to_string(body.a)", "[[body.a]]", "body.x.{a: a}",
    "to_string({a: body.a})", "to_array([body.a])", "{a: body.a, kind: 'x'}", "{m: {kind: 'x'}, a: body.a}",
    "body.x || {a: body.a}", "body.error && {a: body.a}", "[body.a, body.b][]", "{a: body.a}.{b: a}",
    "[{a: body.a}][*].a",
]  # fmt: skip


def is_nothing(text: str, body: Any) -> bool:
    expression, envelope = Expression(text), {"body": body}
    return expression.is_nothing(expression.of(envelope), envelope)


@pytest.mark.parametrize("text", MAKES)
def test_what_an_expression_makes_of_nothing_is_nothing(text: str) -> None:
    assert is_nothing(text, {"status": "done", "error": "expired"})


@pytest.mark.parametrize("text", MAKES)
@pytest.mark.parametrize("value", [0, "", False, [], {}, [1], {"a": 1}, "null", {"a": None}])
def test_one_value_that_is_there_is_something_however_little(text: str, value: Any) -> None:
    names = ("a", "b", "rows", "total")
    body = dict.fromkeys(names, value) | {"x": {"a": value}, "error": "no"}
    assert not is_nothing(text, body)


@pytest.mark.parametrize("text", [
    "{a: body.a, error: body.error}", "body.[a, error]", "{m: {a: body.a}, e: body.error}", "{a: body.a || `[]`}",
    "merge({a: body.a}, {b: body.error})", "merge(body, {a: body.a})", "to_array(body.error)", "to_string(body.error)",
    "`{}`", "{ok: 'yes'}", "[`1`, `[2]`]", "body.a || `[]`", "length(body.a || `[]`)", "!(body.a)", "body.rows[]",
    "body.rows[*].{a: a}", "body.nulls", "[body.a] | `[0]`",
])  # fmt: skip
def test_what_was_found_or_is_said_by_the_expression_is_something(text: str) -> None:
    assert not is_nothing(text, {"error": "expired", "rows": [{"b": 1}], "nulls": {"a": None, "b": [None]}})


def test_what_is_no_finding_of_the_expression_is_something() -> None:
    """A link that is kept instead of the data behind it."""
    assert not Expression("{a: body.a}").is_nothing("https://a/b", {"body": "https://a/b"})
