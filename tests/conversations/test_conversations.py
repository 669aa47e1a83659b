"""Whole conversations with providers, replayed through the real client."""

from pathlib import Path

from local.provider.replay import Conversation, conversations, fixture

HERE = Path(__file__).parent

conversation = fixture(HERE)


def test_the_client_converses_as_written(conversation: Conversation) -> None:
    assert conversation.difference() is None


def test_every_conversation_has_a_name_of_its_own() -> None:
    names = [one.id for one in conversations(HERE)]
    assert len(names) == len(set(names)) > 27
