"""Why an attempt did not bring what was asked for: every such word there is, what it means and what follows from it."""

from enum import Enum, StrEnum
from functools import cache
from typing import Self


class Trait(Enum):
    """What follows from a reason."""

    HOPELESS = "another try would only meet it again, unless a reply alone is at fault"
    REPLY_LOST = "the provider may have taken the job all the same"
    WHOLE_PROVIDER = "it tells of the provider, not of one job: several in a row pause the provider"
    KEEPS_JOB = "it says nothing of the job: `revive` goes on with the same one"
    NAMED = "the provider language fixes the word: a conversation must name it"


class Reason(StrEnum):
    """A reason, as JSON and logs have it; `meaning` in one sentence, and its `traits`."""

    meaning: str
    traits: frozenset[Trait]

    def __new__(cls, word: str, meaning: str, *traits: Trait) -> Self:
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.meaning, reason.traits = meaning, frozenset(traits)
        return reason

    # the end of a task
    UPSTREAM = "upstream", "The provider refused the task, or its job has failed.", Trait.HOPELESS
    TIMEOUT = "timeout", "There was no result within `maxWaitTime` after the first submit."
    TOO_MANY_ERRORS = "too-many-errors", "More than `maxErrors` attempts in a row met an error.", Trait.KEEPS_JOB
    TOO_MANY_RESUBMITS = "too-many-resubmits", "The provider lost its job more than `maxResubmits` times."
    CRASHED = "crashed", "The worker died during the attempt more than MAX_CRASHES times.", Trait.KEEPS_JOB
    MISSING_INPUT = "missing-input", "A URL needs an input that the request did not give.", Trait.HOPELESS
    MISSING_OUTPUT = "missing-output", "The next request needs an output that no reply contains.", Trait.HOPELESS
    TOO_LARGE = "too-large", "What is larger than may be read or stored.", Trait.HOPELESS, Trait.REPLY_LOST
    INVALID_REQUEST = "invalid-request", "A value makes a URL or header that cannot be sent.", Trait.HOPELESS
    REFUSED_TARGET = "refused-target", "The URL leads to an address neither public nor in `servers`.", Trait.HOPELESS

    # there is another try
    TRANSPORT = "transport", "No connection, or a broken one.", Trait.REPLY_LOST, Trait.WHOLE_PROVIDER
    DEADLINE = "deadline", "There was no whole reply in time.", Trait.REPLY_LOST, Trait.WHOLE_PROVIDER
    HTTP = "http", "A status that may pass, such as 429 or 503.", Trait.WHOLE_PROVIDER, Trait.NAMED
    ACCEPTOR = "acceptor", "An acceptor of the provider's file says `retry`."
    UNDECODABLE = "undecodable", "The body is not what it is declared to be (see `decode`).", Trait.REPLY_LOST
    NO_ROOM = "no-room", "Other large answers took the memory; it counts as error of a submit alone.", Trait.REPLY_LOST
    NO_DATA = "no-data", "A success without data: `data` finds nothing, or `require` is not met."
    REDIRECTS = "redirects", "More redirects than are followed, or one that cannot be."
    MISSING_LINK = "missing-link", "The URL of the result has no value yet.", Trait.NAMED
    EXPIRED_LINK = "expired-link", "A link that a reply gave leads nowhere; the next poll may give another."
    NOT_A_LIST = "not-a-list", "Pages are joined by `next`, but the data of one is not a list."
    PAGES_WITHOUT_END = "pages-without-end", "The `next` links lead in a circle, or to too many pages."
    MORE_PAGES = "more-pages", "The pages take longer than one attempt; the next goes on where it stopped."
    LOST_PAGES = "lost-pages", "What was kept of earlier pages is no longer there; they are asked for anew."
    NOT_FOUND_GRACE = "not-found-grace", "A 404 so soon after the submit that it may pass.", Trait.NAMED
    NOT_YET = "not-yet", "A 409 to a key that is in use, a 404 or 409 to a result that is not there.", Trait.REPLY_LOST
    RESUBMIT = "resubmit", "The provider has lost its job; the next attempt submits a new one."
    UNAUTHORIZED = "unauthorized", "A 401; the next attempt comes with a new token."
    SECRET = "secret", "A secret cannot be read, or is not a line of text."
    TOKEN = "token", "The token endpoint (`tokenUrl`) gave no token.", Trait.WHOLE_PROVIDER
    BROKEN = "the attempt broke", "A fault in Meanwhile itself; the log has its traceback."


@cache
def having(trait: Trait) -> frozenset[str]:
    """The reasons with a trait; other text, such as `HTTP 404`, is never among them."""
    return frozenset(reason for reason in Reason if trait in reason.traits)
