"""Which files of a directory describe providers, and which hold conversations with them."""

from pathlib import Path

CONVERSATIONS = ".vectors.json"
"""How the name of a file of conversations ends; such a file may lie beside provider files."""


def provider_files(directory: Path) -> list[Path]:
    """The files NAME.json of a directory, but for NAME.vectors.json and NAME.schema.json, which editors read."""
    return [one for one in sorted(directory.glob("*.json")) if not one.name.endswith((CONVERSATIONS, ".schema.json"))]


def conversation_files(directory: Path) -> list[Path]:
    """The files NAME.vectors.json of a directory."""
    return sorted(directory.glob(f"*{CONVERSATIONS}"))
