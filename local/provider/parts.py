"""The parts of a provider file that tools look at one by one, each with its location."""

from collections.abc import Iterator

from shared.provider.language.expression import Expression
from shared.provider.language.operation import Operation
from shared.provider.language.part import ABSENT
from shared.provider.language.rules import Rules

ENVELOPE = ("statusCode", "headers", "body", "url", "links", "input", "outputs")
"""What an expression over a reply may read."""


def operations(rules: Rules) -> Iterator[tuple[str, Operation]]:
    """Every operation."""
    for key, steps in (("submit", rules.submit_steps), ("result", rules.result_steps)):
        yield from ((f"$.{key}[{i}]" if len(steps) > 1 else f"$.{key}", one) for i, one in enumerate(steps))
    yield from ((f"$.{key}", one) for key, one in (("poll", rules.poll), ("cancel", rules.cancel)) if one)


def expressions(rules: Rules) -> Iterator[tuple[str, Expression]]:
    """Every expression over a reply."""
    for key in ("status", "data", "require", "partial", "error", "progress"):
        if not (key == "partial" and rules.partial is rules.data):
            yield from _there(f"$.{key}", getattr(rules, key))
    for i, acceptor in enumerate(rules.acceptors):
        if acceptor.argument is not rules.status:
            yield from _there(f"$.acceptors[{i}].argument", acceptor.argument)
        yield from _there(f"$.acceptors[{i}].message", acceptor.message)
    for i, hint in enumerate(rules.polling.hints):
        yield f"$.polling.hints[{i}].argument", hint.argument
    for location, operation in operations(rules):
        yield from ((f"{location}.outputs.{name}", one) for name, one in operation.outputs.items())
        if operation.next is not ABSENT:
            yield from ((f"{location}.next", one) for one in operation.next.expressions)


def _there(location: str, one: Expression) -> Iterator[tuple[str, Expression]]:
    if one is not ABSENT:
        yield location, one
