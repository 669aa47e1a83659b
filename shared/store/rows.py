"""Reading a task's item, in DynamoDB's wire form: no attribute is trusted, and what is damaged is named.

Anybody may have written to the table, or an earlier or later version of this package. What one item has of another
shape must be the trouble of its task alone, so everything is checked here, by the types of `Item`.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any, TypeAlias

import msgspec

from shared.codec import OWN_DEPTH, Json, loads
from shared.errors import BadRequest, ItemUnreadable
from shared.store.item import (
    MAX_TEXT_BYTES,
    MAX_VALUE_BYTES,
    ZIPPED_ABOVE_BYTES,
    Attempt,
    Failure,
    Item,
    Spilled,
    Zipped,
    open_keys,
)
from shared.task import Task

Attributes: TypeAlias = Mapping[str, Any]  # an item, or some of it

_FIELDS = {one.name: one for one in fields(Item) if one.name not in {"task", *Attempt.__annotations__}}
_SHAPES: dict[str, Any] = {"task_id": Task} | {name: one.type for name, one in _FIELDS.items()}
_SHAPES |= {"input": dict[str, Json], "error": Failure | None, "attempt": Attempt, "open": str}
_REQUIRED = {"task_id", "input"} | {name for name, one in _FIELDS.items() if one.default is MISSING}
_FAULTS = (LookupError, ValueError, TypeError, AttributeError, BadRequest)  # what reading another shape raises


def parse(attributes: Attributes | None) -> Item | None:
    """The item that stands there, or None for none. Raises ItemUnreadable with the first attribute at fault."""
    if not attributes:
        return None
    known, faulty = read(attributes)
    if faulty:
        raise _unreadable(attributes, faulty[0])
    known.pop("open", None)
    return Item(task=known.pop("task_id"), **known.pop("attempt", {}), **known)


def parse_row(row: Attributes, provider: str) -> tuple[Task, int]:
    """Task and generation of a row of a provider's index. Raises ItemUnreadable."""
    known, faulty = _each(row, ("task_id", "generation"))
    if not faulty and known["task_id"].provider != provider:
        faulty = ["open"]
    if faulty:
        raise _unreadable(row, faulty[0])
    return known["task_id"], known["generation"]


def waiting(image: Attributes) -> frozenset[str]:
    """Whom the end of a task is to be told, as an image of its open item says. Raises ItemUnreadable."""
    known, faulty = _each(image, ["notify"])
    if faulty:
        raise _unreadable(image, "notify")
    return frozenset(known["notify"])


def read(attributes: Attributes, *, whole: bool = False) -> tuple[dict[str, Any], list[str]]:
    """What can be read of an item, by attribute, and which attributes are missing or not as they must be.

    Large data are only looked at for the `whole` of it.
    """
    known, faulty = _each(attributes, [name for name in _SHAPES if name in attributes or name in _REQUIRED])
    if whole and isinstance(data := known.get("data"), Zipped):
        try:
            _unzipped(data)
        except ValueError:
            faulty.append("data")
    return known, faulty + [name for name in _contradictions(known) if name not in faulty]


def _unzipped(data: Zipped) -> Json:
    return loads(inflated(data.body), max_depth=OWN_DEPTH)


def inflated(body: bytes) -> bytes:
    """The text of a compressed body. Raises ValueError where that is cut, changed or longer than MAX_TEXT_BYTES."""
    stream = zlib.decompressobj(wbits=31)  # gzip
    try:
        text = stream.decompress(body, MAX_TEXT_BYTES + 1)
        if stream.eof and not stream.unused_data and len(text) <= MAX_TEXT_BYTES:
            return text
    except zlib.error as error:
        raise ValueError(f"not gzip: {error}") from error
    raise ValueError("the compressed text is cut, too long, or not alone")


def read_whole(item: Item) -> Item:
    """The item with its large data, which are not read with the rest. Raises ItemUnreadable."""
    if not isinstance(item.data, Zipped):
        return item
    try:
        return replace(item, data=_unzipped(item.data))
    except ValueError as error:
        raise ItemUnreadable(item.task.id, "data") from error


def wired(value: Any) -> dict[str, Any]:
    """A value in DynamoDB's wire form, of the kinds that an item has. Raises ValueError for any other."""
    match value:
        case str():
            return {"S": value}
        case int():
            return {"N": str(value)}
        case bytes():
            return {"B": value}
        case set() if value and all(isinstance(one, str) for one in value):
            return {"SS": sorted(value)}
        case dict():
            return {"M": {name: wired(one) for name, one in value.items()}}
    raise ValueError(f"no attribute is {type(value).__name__}")


def _each(attributes: Attributes, names: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """These attributes, as far as they can be read, and the names of the others."""
    known: dict[str, Any] = {}
    faulty = []
    for name in names:
        try:
            known[name] = _value(name, attributes[name])
        except _FAULTS:
            faulty.append(name)
    return known, faulty


def _value(name: str, attribute: dict[str, Any]) -> Any:
    value, is_packed = _plain(attribute), name in MAX_VALUE_BYTES
    if name == "task_id":
        return Task.from_id(value)
    if name == "data" and isinstance(value, dict):
        if unknown := value.keys() - {one.name for one in fields(Spilled)}:
            raise ValueError(f"data in S3 has no {min(unknown)}")
        return msgspec.convert(value, Spilled)
    if name == "data" and isinstance(value, bytes) and ZIPPED_ABOVE_BYTES < Zipped(value).size <= MAX_TEXT_BYTES:
        return Zipped(value)
    if is_packed:
        value = loads(inflated(value) if isinstance(value, bytes) else value, max_depth=OWN_DEPTH)
    return msgspec.convert(value, _SHAPES[name])


def _plain(attribute: dict[str, Any]) -> Any:
    """The value of one attribute in DynamoDB's wire form. Raises ValueError for kinds that no item has."""
    [(kind, value)] = attribute.items()
    match kind:
        case "S" if isinstance(value, str):
            return value
        case "B" if isinstance(value, bytes):
            return value
        case "N":
            return int(value)
        case "SS":
            return frozenset(value)
        case "M":
            return {name: _plain(one) for name, one in value.items()}
    raise ValueError(f"no attribute is of kind {kind}")


def _contradictions(known: dict[str, Any]) -> Iterator[str]:
    """Attributes that do not fit the others: what an end must leave, and a pending item's key in the index."""
    status, task, key = known.get("status"), known.get("task_id"), known.get("open")
    if status == "completed" and "data" not in known:
        yield "data"
    if status == "failed" and known.get("error") is None:
        yield "error"
    if task and status and (key in open_keys(task.provider) if status == "pending" else key is None) is False:
        yield "open"


def _unreadable(attributes: Attributes, attribute: str) -> ItemUnreadable:
    match attributes.get("task_id"):
        case {"S": str(task_id)}:
            return ItemUnreadable(task_id, attribute)
    return ItemUnreadable("?", attribute)
