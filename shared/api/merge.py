"""Merging stored data with a partial answer: for showing while a task is pending, never for keeping."""

from shared.codec import Json


def merge(stored: Json, partial: Json) -> Json:
    """Stored data overlaid by the partial answer: objects key by key, null never overwrites, anything else replaces."""
    if partial is None:
        return stored
    if isinstance(stored, dict) and isinstance(partial, dict):
        return stored | {name: merge(stored.get(name), value) for name, value in partial.items()}
    return partial
