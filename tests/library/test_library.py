"""Files of real APIs: each is sound, and each of their conversations is replayed through the real client."""

import re
from pathlib import Path

import pytest

from local.provider.check import check
from local.provider.replay import Conversation, conversations, fixture
from shared.provider.language.rules import provider_files
from shared.settings import Settings

HERE = Path(__file__).parent
FILES = provider_files(HERE)
TABLE = (HERE / "README.md").read_text(encoding="utf-8")
SETTINGS = Settings(provider_servers={}, callback_url="https://me.example", callback_secret="env:CALLBACK_KEY")

conversation = fixture(HERE)


def test_the_client_converses_as_written(conversation: Conversation) -> None:
    assert conversation.difference() is None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_file_is_sound(file: Path) -> None:
    report = check(file, SETTINGS)
    assert (report.faults, report.warnings) == ((), ())


def test_each_file_stands_in_the_table_and_has_conversations_with_names_of_their_own() -> None:
    rows = re.findall(r"^\| [^|]+ \| \[([\w-]+)\]\(\1\.json\) \|", TABLE, re.MULTILINE)
    assert sorted(rows) == sorted(file.stem for file in FILES)
    assert all(conversations(file.with_suffix(".vectors.json")) for file in FILES)
    names = [one.id for one in conversations(HERE)]
    assert len(names) == len(set(names)) > 142


def test_what_the_table_says_cannot_be_said_at_all_has_its_reason() -> None:
    rows = re.findall(r"^\| [^|]+ \| [\w-]+ \| (\w+) \| ([^|]*) \|", TABLE, re.MULTILINE)
    assert [verdict for verdict, _ in rows] == ["not"] * len(rows)
    assert all(why for _, why in rows)
