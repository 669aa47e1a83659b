"""The store: one item per task in DynamoDB, and in S3 what is too large for it."""

from shared.store.item import Item
from shared.store.store import Store, Superseded

__all__ = ["Item", "Store", "Superseded"]
