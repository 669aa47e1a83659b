"""Errors that no acceptor knows and that end no job all the same, by where they come from."""

from shared.provider.envelope import Decoded
from shared.provider.language.acceptor import Stage
from shared.provider.language.rules import Rules
from shared.reasons import Reason
from shared.record import Record

EXPIRED = (401, 403, 404, 410)
"""What a link that a reply gave is answered with when its time is over, be it signed or not."""


def passing(rules: Rules, record: Record, now: int, reply: Decoded, stage: Stage) -> Reason | None:
    """Why another try may be answered otherwise; None where the status says the same to each."""
    if stage == "result":
        if reply.linked and reply.status in EXPIRED:
            return Reason.EXPIRED_LINK
        return Reason.NOT_YET if reply.status in (404, 409) else None  # made, but not there everywhere yet
    if reply.status == 404 and stage == "poll" and _in_grace(rules, record, now):
        return Reason.NOT_FOUND_GRACE
    is_submit = stage == "submit" or not rules.poll
    # the submit that carries this key is not over yet, as the IETF's draft of Idempotency-Key says
    return Reason.NOT_YET if reply.status == 409 and is_submit and rules.carries_key else None


def _in_grace(rules: Rules, record: Record, now: int) -> bool:
    """Whether the job is so young that a provider may not know it yet."""
    begun = record.job_at or record.submitted_at or now
    return now - begun <= rules.polling.not_found_grace * 1000


def may_begin_twice(rules: Rules, record: Record) -> bool:
    """Whether another try may begin a second job beside the one that the lost reply was about."""
    if record.outputs is not None:
        return False
    posts = any(one.method in ("POST", "PATCH") and not one.repeatable for one in rules.submit_steps)
    return bool(rules.poll) or (posts and not rules.carries_key)
