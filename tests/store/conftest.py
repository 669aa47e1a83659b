"""The store and its double, side by side."""

from typing import Any

import pytest

from shared.store import Store, Table
from tests.conftest import RETENTION_SECONDS, TABLE
from tests.support.memory_store import MemoryStore


@pytest.fixture(params=["memory", "moto"])
def store(request: pytest.FixtureRequest) -> Any:
    """A store with nothing in it."""
    if request.param == "memory":
        return MemoryStore(RETENTION_SECONDS)
    return Store(Table(request.getfixturevalue("dynamodb"), TABLE), RETENTION_SECONDS)
