"""CSV read without silent habits (RFC 4180): whatever stands in it is in the rows, or it is refused with its line."""

import csv
import io
from collections.abc import Iterator
from itertools import zip_longest

from shared.codec import Json
from shared.provider.wire.message import MAX_RESPONSE_BYTES

MAX_CELLS = 1_000_000  # a small body could make a huge table
MAX_NAMES = 20_000_000  # characters of a table's names, which each of its rows repeats
SURPLUS = "_rest"

csv.field_size_limit(MAX_RESPONSE_BYTES)
"""Of the whole process: 131,072 characters would end a table that is whole; no cell is larger than its body."""


class TableError(ValueError):
    """The text is no table that can be read whole; the message names the line."""


def rows(text: str, *, has_names: bool = True) -> list[Json]:
    """One object for each line after the first, which names the values; without names a list of values for each line.

    A value without a name stands in a list under `_rest`, with as many more underscores before it as it takes to be no
    column's name; a line that is shorter than the first is filled up with null. Raises TableError.
    """
    lines = _Lines(text)
    names = next((values for values in lines if values), []) if has_names else []
    if has_names and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise lines.fault(f"the name {twice[:64]!r} stands twice")
    surplus, characters, cells = SURPLUS, sum(map(len, names)), 0
    while surplus in names:
        surplus = f"_{surplus}"
    found: list[Json] = []
    is_short = False
    for values in lines:
        if not values and len(names) != 1:
            continue
        row = _row(names, values or [""], surplus) if has_names else values  # of one column a blank line is a value
        found.append(row)
        cells += max(len(names), len(values))
        if cells > MAX_CELLS or len(found) * characters > MAX_NAMES:
            raise lines.fault(f"more than {MAX_CELLS} cells, or {MAX_NAMES} characters of names")
        is_short = len(values) < len(names)
    if not text.endswith(("\n", "\r")) and (is_short or (names and not found)):
        raise lines.fault("the last line is cut: it has too few values, or is the first, and no end")
    return found


def _row(names: list[str], values: list[str], surplus: str) -> dict[str, Json]:
    row: dict[str, Json] = dict(zip_longest(names, values[: len(names)]))
    if len(values) > len(names):
        row[surplus] = values[len(names) :]
    return row


class _Lines:
    """The values of each line of a table, none for a blank one. Raises TableError where they cannot be told."""

    def __init__(self, text: str) -> None:
        ends = "" if "\n" not in text else "\n"  # where no line ends with LF, lone CRs end them; else they are a fault
        self._reader = csv.reader(io.StringIO(text, newline=ends), strict=True)

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        try:
            return next(self._reader)
        except csv.Error as error:
            raise self.fault(f"not CSV: {error}") from error

    def fault(self, reason: str) -> TableError:
        """What is wrong with the line that was read last."""
        return TableError(f"line {self._reader.line_num}: {reason}")
