"""Merging is for showing: stored data overlaid by the partial answer."""

from typing import Any

import pytest

from shared.api.merge import merge


@pytest.mark.parametrize(
    ("stored", "partial", "shown"),
    [
        (None, None, None),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": {"x": 1}}, {"a": {"x": None, "y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"x": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": 1}, {"a": 0}, {"a": 0}),
        ({"a": 1}, {"a": ""}, {"a": ""}),
        ({"a": 1}, {"a": False}, {"a": False}),
        ([1, 2], {"a": 1}, {"a": 1}),
        ({"a": 1}, [], []),
        ({"a": 1}, "text", "text"),
        ({}, {"a": None}, {"a": None}),
    ],
)
def test_objects_merge_key_by_key_null_never_overwrites_anything_else_replaces(
    stored: Any, partial: Any, shown: Any
) -> None:
    assert merge(stored, partial) == shown


def test_neither_side_is_changed() -> None:
    stored, partial = {"a": {"x": 1}}, {"a": {"y": 2}}
    assert merge(stored, partial) == {"a": {"x": 1, "y": 2}}
    assert (stored, partial) == ({"a": {"x": 1}}, {"a": {"y": 2}})
