"""A samconfig.toml that says no more than which stack it is."""

from pathlib import Path

import pytest

HEAD = '[default.deploy.parameters]\nstack_name = "meanwhile"\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "samconfig.toml"
    file.write_text(HEAD)
    return file
