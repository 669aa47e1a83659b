"""The store: one item per task in DynamoDB, and in S3 what is too large for it."""

from shared.store.clock import Clock
from shared.store.item import Item, digest
from shared.store.rows import read_whole
from shared.store.spill import CALL_SECONDS, Link
from shared.store.store import Ended, Store
from shared.store.table import Superseded, Table
from shared.store.turns import LEAP, Holder

__all__ = [
    "CALL_SECONDS",
    "LEAP",
    "Clock",
    "Ended",
    "Holder",
    "Item",
    "Link",
    "Store",
    "Superseded",
    "Table",
    "digest",
    "read_whole",
]
