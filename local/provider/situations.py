"""What an API may well answer beside the usual: each situation is played against a provider file by the real client."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import structs

from local.provider.play import Play, Script
from local.provider.usual import CannotBePlayedError, Usual
from shared.codec import Json, dumps
from shared.errors import TransportError
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Reply
from shared.reasons import Reason

Mend: TypeAlias = tuple[str, Rules]
"""What to write into the file, and the rules with it."""


@dataclass(frozen=True)
class Situation:
    """What may happen and follow, how it is played (None: not with this file), and what helps a file that it harms."""

    happens: str
    follows: str
    script: Callable[[Rules, Usual], Script | None]
    mends: Callable[[Rules], Iterator[Mend]] = lambda _: iter(())


def harms(rules: Rules) -> Iterator[str]:
    """Each situation that ends a task wrongly, though a line in the file would see it through: with that line."""
    if survives(rules, _AS_USUAL):
        for situation in SITUATIONS:
            if survives(rules, situation) is False:
                for line, mended in situation.mends(rules):
                    if survives(mended, _AS_USUAL) and survives(mended, situation):
                        yield f"$.acceptors: where {situation.happens}, the task does not complete; {line}"
                        break


def survives(rules: Rules, situation: Situation) -> bool | None:
    """Whether the task completes with data, after all of the situation; None where it cannot be played."""
    try:
        script = situation.script(rules, Usual(rules, rules.servers[0].rstrip("/")))
        return None if script is None else Play(rules, script).completes()
    except CannotBePlayedError:
        return None


def _at_once(rules: Rules, usual: Usual) -> Script | None:
    if not rules.poll:
        return None
    last = len(rules.submit_steps) - 1
    reply = usual.done(last, outputs=_results_need_outputs(rules))
    return {f"submit{last}": [reply]} if 200 <= reply.status <= 299 else None


def _results_need_outputs(rules: Rules) -> bool:
    return any(one.refers_to("outputs") for step in rules.result_steps for _, one in step.placed())


def _without_job(rules: Rules) -> Iterator[Mend]:
    """A success of the submit by the status that a poll's success has, where nothing leads to a job."""
    read = {name for _, one in rules.asks_again.placed() for root, name in one.references if root == "outputs"}
    kept = [one.text for name, one in rules.submit_steps[-1].outputs.items() if name in read]
    lacks = " && ".join(f"!({text})" for text in kept)
    line = {"state": "success", "argument": f"statusCode == `200` && {lacks}", "expected": True, "on": ["submit"]}
    if kept:
        yield f"write {dumps(line)} first into $.acceptors", _with(rules, line, 0)


def _key_in_use(rules: Rules, _: Usual) -> Script | None:
    first = "submit0" if rules.poll or len(rules.submit_steps) > 1 else "poll"
    return {first: [_refused(409)]} if rules.carries_key else None


def _unknown(_: Rules, usual: Usual) -> Script | None:
    reply = usual.unknown()
    return {"poll": [reply, reply]} if reply else None


def _any_word(rules: Rules) -> Iterator[Mend]:
    one = next(one for one in rules.acceptors if one.state == "success" and one.matcher == "path")
    line = {"state": "pending", "argument": f"({one.argument.text}) != `null`", "expected": True}
    for i in reversed(range(len(rules.acceptors))):
        yield f"write {dumps(line)} before $.acceptors[{i}]", _with(rules, line, i)


def _early(rules: Rules, _: Usual) -> Script | None:
    building = replace(_refused(202), body=b'{"status": "building"}')
    return {tag: [_refused(404), _refused(409), building] for tag in _sent(rules)[-1:]} or None


def _empty(rules: Rules, _: Usual) -> Script:
    said = replace(_refused(200), body=b"")
    return {tag: [said] for tag in ["poll", *_sent(rules)[-1:]]}


def _sent(rules: Rules) -> list[str]:
    """The result operations that send a request."""
    return [f"result{i}" for i, one in enumerate(rules.result_steps) if one.decode != "url"]


def _late(rules: Rules, _: Usual) -> Script:
    late = TransportError("no whole reply in time", reason=Reason.DEADLINE)
    tags = ["poll", *(f"submit{i}" for i in range(len(rules.submit_steps) - (not rules.poll)))]
    return {tag: [late] for tag in [*tags, *_sent(rules)]}


def _no_location(_: Rules, usual: Usual) -> Script:
    return {"poll": [usual.running(outputs=False), usual.running(outputs=False)]}


def _relative(rules: Rules, _: Usual) -> Script | None:
    relative = Usual(rules, "")
    steps = enumerate(rules.submit_steps[: len(rules.submit_steps) - (not rules.poll)])
    return {f"submit{i}": [relative.begun(i)] for i, _ in steps} | {"poll": [relative.running()]}


def _not_known_yet(rules: Rules, _: Usual) -> Script | None:
    spans = rules.polling
    return {"poll": [_refused(404)]} if rules.poll and spans.first_delay <= spans.not_found_grace else None


def _refused(status: int) -> Reply:
    return Reply(status, {"content-type": "application/json"}, b'{"error": "played"}', "")


def _with(rules: Rules, line: dict[str, Json], at: int) -> Rules:
    """The rules with one more acceptor."""
    [one] = Rules.from_json({"servers": ["https://a.example"], "submit": {"url": "/"}, "acceptors": [line]}).acceptors
    made: Rules = structs.replace(rules, acceptors=(*rules.acceptors[:at], one, *rules.acceptors[at:]))
    return made


_AS_USUAL = Situation("all is as the file expects", "completed", lambda *_: {})
SITUATIONS = (
    Situation(
        "the submit is answered with the data, and no link or id",
        "completed at once; by a status, if an acceptor is on submit",
        _at_once,
        _without_job,
    ),
    Situation(
        "a submit is answered 409, as the one before with its key is not over", "retry, the same key", _key_in_use
    ),
    Situation(
        "a poll has a status that the file does not know", "pending; it is the task's `reason`", _unknown, _any_word
    ),
    Situation(
        "the first poll is answered 404, as the job is not known everywhere",
        "retry, within `notFoundGrace`",
        _not_known_yet,
    ),
    Situation("the result is answered 404, 409 or 202, as it is not there yet", "retry or pending", _early),
    Situation("a poll or the result is answered 200 with nothing", "pending, or retry (no-data)", _empty),
    Situation("each request is once not answered in time", "retry, a submit with the same key", _late),
    Situation("replies to polls have no link or id any more", "pending; those from before are kept", _no_location),
    Situation("links are relative", "they lead to the same server", _relative),
)
