"""What an API may well answer beside the usual: each situation is played against a provider file by the real client."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from local.provider.mends import Mend, any_word, by_status, more_errors, no_word, without_job
from local.provider.play import NOT_YET, Play, Script
from local.provider.usual import CannotBePlayedError, Usual
from shared.codec import dumps
from shared.errors import TransportError
from shared.provider.language.acceptor import Stage
from shared.provider.language.rules import Rules
from shared.provider.wire.message import Reply
from shared.reasons import Reason


@dataclass(frozen=True)
class Situation:
    """What may happen and follow, how it is played (None: not with this file), and what helps a file that it harms."""

    happens: str
    follows: str
    script: Callable[[Rules, Usual], Script | None]
    mends: Callable[[Rules], Iterator[Mend]] = lambda _: iter(())


def harms(rules: Rules) -> Iterator[str]:
    """Each situation that ends a task wrongly, with the line of the file that would see it through, where one does."""
    if not survives(rules, AS_USUAL):
        return
    for situation in SITUATIONS:
        if survives(rules, situation) is False:
            mends = (*situation.mends(rules), *more_errors(rules))
            lines = (line for line, mended in mends if _helps(mended, situation))
            said = next(lines, "no line is known that helps")
            yield f"$.acceptors: where {situation.happens}, the task does not complete; {said}"


def unplayed(rules: Rules) -> Iterator[str]:
    """What nobody here knows of a file: what may happen to it, but no replies can be made up for."""
    if not survives(rules, AS_USUAL):
        yield "what APIs may answer could not be played: no replies can be made up that lead a task to its end"
        return
    for situation in SITUATIONS:
        try:
            _survives(rules, situation)
        except CannotBePlayedError:
            yield f"could not be played: {situation.happens}"


def survives(rules: Rules, situation: Situation) -> bool | None:
    """Whether the task completes with data, after all of the situation; None where it cannot be played."""
    try:
        return _survives(rules, situation)
    except CannotBePlayedError:
        return None


def _survives(rules: Rules, situation: Situation) -> bool | None:
    """The same; None where it cannot happen to this file. Raises CannotBePlayedError."""
    script = situation.script(rules, Usual(rules, rules.servers[0].rstrip("/")))
    return None if script is None else Play(rules, script).completes()


def _helps(mended: Rules, situation: Situation) -> bool:
    return bool(survives(mended, AS_USUAL) and survives(mended, situation))


def _at_once(rules: Rules, usual: Usual) -> Script | None:
    if not rules.poll:
        return None
    last = len(rules.submit_steps) - 1
    reply = usual.done(last, outputs=_results_need_outputs(rules))
    return {f"submit{last}": [reply]} if 200 <= reply.status <= 299 else None


def _results_need_outputs(rules: Rules) -> bool:
    return any(one.refers_to("outputs") for step in rules.result_steps for _, one in step.placed())


def _key_in_use(rules: Rules, _: Usual) -> Script | None:
    first = "submit0" if rules.poll or len(rules.submit_steps) > 1 else "poll"
    return {first: [_refused(409)]} if rules.carries_key else None


def _unknown(_: Rules, usual: Usual) -> Script | None:
    reply = usual.unknown()
    return {"poll": [reply, reply]} if reply else None


def _bare(rules: Rules, usual: Usual) -> Script | None:
    return {f"submit{len(rules.submit_steps) - 1}": [usual.bare()]} if rules.poll else None


def _early(rules: Rules, _: Usual) -> Script | None:
    return {tag: [_refused(404), _refused(409)] for tag in _sent(rules)[-1:]} or None


def _accepted(rules: Rules, _: Usual) -> Script | None:
    return {tag: [_building()] for tag in _sent(rules)[-1:] if not _names_202(rules, "result")} or None


def _still_accepted(rules: Rules, _: Usual) -> Script | None:
    is_status = any(one.state == "success" and "poll" in one.stages and one.names(200) for one in rules.acceptors)
    return {"poll": [_building()]} if rules.poll and is_status and not _names_202(rules, "poll") else None


def _building() -> Reply:
    return replace(_refused(202), body=dumps({"status": NOT_YET}).encode())


def _names_202(rules: Rules, stage: Stage) -> bool:
    """Whether the file says itself that 202 is a success: it names it, or means it and not 200."""
    judging = (one for one in rules.acceptors if one.state == "success" and stage in one.stages)
    return any(one.names(202) and (202 in one.any_of or not one.names(200)) for one in judging)


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


AS_USUAL = Situation("all is as the file expects", "completed", lambda *_: {})
SITUATIONS = (
    Situation(
        "the submit is answered with the data, and no link or id",
        "completed at once; by a status, if an acceptor is on submit",
        _at_once,
        without_job,
    ),
    Situation(
        "the submit is answered with a link or id and nothing else, not even a status",
        "pending: the job has begun",
        _bare,
        no_word,
    ),
    Situation(
        "a submit is answered 409, as the one before with its key is not over",
        "retry, the same key",
        _key_in_use,
        by_status("retry", "submit", 409),
    ),
    Situation(
        "a poll has a status that the file does not know", "pending; it is the task's `reason`", _unknown, any_word
    ),
    Situation(
        "the first poll is answered 404, as the job is not known everywhere",
        "retry, within `notFoundGrace`",
        _not_known_yet,
        by_status("retry", "poll", 404),
    ),
    Situation(
        "a poll is answered 202, where another status says that the job is done",
        "pending, unless an acceptor names 202",
        _still_accepted,
        by_status("pending", "poll", 202),
    ),
    Situation(
        "the result is answered 404 or 409, as it is not there yet",
        "retry",
        _early,
        by_status("retry", "result", 404, 409),
    ),
    Situation(
        "the result is answered 202, as it is not there yet",
        "pending, unless an acceptor names 202",
        _accepted,
        by_status("pending", "result", 202),
    ),
    Situation("a poll or the result is answered 200 with nothing", "pending, or retry (no-data)", _empty, no_word),
    Situation("each request is once not answered in time", "retry, a submit with the same key", _late),
    Situation("replies to polls have no link or id any more", "pending; those from before are kept", _no_location),
    Situation("links are relative", "they lead to the same server", _relative),
)
