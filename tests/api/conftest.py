"""What answers here is held to docs/openapi.json."""

import pytest

from tests.support import described


@pytest.fixture(autouse=True)
def is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer but those that are described."""
    described.held(monkeypatch)
