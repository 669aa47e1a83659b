"""Lines that see a provider file through a situation which ends its tasks wrongly."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import structs

from shared.codec import Json, dumps
from shared.provider.language.acceptor import Stage, Verdict
from shared.provider.language.polling import Polling
from shared.provider.language.rules import Rules

Mend: TypeAlias = tuple[str, Rules]
"""What to write into the file, and the rules with it."""


def without_job(rules: Rules) -> Iterator[Mend]:
    """A success of the submit by the status that a poll's success has, where nothing leads to a job."""
    read = {name for _, one in rules.asks_again.placed() for root, name in one.references if root == "outputs"}
    kept = [one.text for name, one in rules.submit_steps[-1].outputs.items() if name in read]
    lacks = " && ".join(f"!({text})" for text in kept)
    line = {"state": "success", "argument": f"statusCode == `200` && {lacks}", "expected": True, "on": ["submit"]}
    if kept:
        yield _first(rules, line)
    if lacking := {
        name: one for name, one in rules.asks_again.outputs.items() if name not in rules.submit_steps[-1].outputs
    }:
        *steps, last = rules.submit_steps
        submit = (*steps, structs.replace(last, outputs={**last.outputs, **lacking}))
        line = {name: one.text for name, one in lacking.items()}
        yield f"write {dumps(line)} into the outputs of the submit", structs.replace(rules, submit=submit)


def any_word(rules: Rules) -> Iterator[Mend]:
    """A pending for a word that nobody knows; what an error says is none."""
    one = next(one for one in rules.acceptors if one.state == "success" and one.matcher == "path")
    argument = f"statusCode < `300` && ({one.argument.text}) != `null`"
    line = {"state": "pending", "argument": argument, "expected": True}
    for i in reversed(range(len(rules.acceptors))):
        yield f"write {dumps(line)} before $.acceptors[{i}]", _with(rules, line, i)


def no_word(rules: Rules) -> Iterator[Mend]:
    """A pending for what has no status; an error has none either, and stays one."""
    argument = f"statusCode < `300` && ({rules.status.text}) == `null`"
    yield _first(rules, {"state": "pending", "argument": argument, "expected": True})


def by_status(state: Verdict, stage: Stage, *statuses: int) -> Callable[[Rules], Iterator[Mend]]:
    """An acceptor for these statuses of the stage."""
    line = {
        "state": state,
        "matcher": "status",
        "expected": [*statuses] if statuses[1:] else statuses[0],
        "on": [stage],
    }
    return lambda rules: iter([_first(rules, line)])


def more_errors(rules: Rules) -> Iterator[Mend]:
    """As many errors in a row as usual."""
    most, usual = rules.polling.max_errors, Polling().max_errors
    if most < usual:
        mended: Rules = structs.replace(rules, polling=structs.replace(rules.polling, max_errors=usual))
        yield f"raise $.polling.maxErrors, which is {most:g}", mended


def _first(rules: Rules, line: dict[str, Json]) -> Mend:
    return f"write {dumps(line)} first into $.acceptors", _with(rules, line, 0)


def _with(rules: Rules, line: dict[str, Json], at: int) -> Rules:
    """The rules with one more acceptor."""
    [one] = Rules.from_json({"servers": ["https://a.example"], "submit": {"url": "/"}, "acceptors": [line]}).acceptors
    made: Rules = structs.replace(rules, acceptors=(*rules.acceptors[:at], one, *rules.acceptors[at:]))
    return made
