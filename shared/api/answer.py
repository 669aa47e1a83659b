"""An HTTP answer: JSON for what a client asked, RFC 9457 problem details for what cannot be served."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode

from msgspec import structs

from shared.bounds import BOUNDS, cut
from shared.codec import Json, carried, dumps
from shared.errors import DataUnavailable, ItemUnreadable, Problem, SecretUnavailable, StoreUnavailable, Unavailable
from shared.logs import log
from shared.task import Task

MAX_ANSWER_BYTES = BOUNDS["answer"].most  # of a body; Lambda carries 6 MiB, headers included
MAX_FIELD_BYTES = MAX_ANSWER_BYTES // 50  # what a field may take of an answer that is too large
_TAG = re.compile(r'(?:W/)?("[^"]*")')  # an ETag, of which weak comparison looks at the quoted part
PROBLEM = "application/problem+json"
OUTAGES: dict[type[Exception], str] = {
    DataUnavailable: "the stored data cannot be read; try again, or have it fetched anew: Cache-Control: no-cache",
    StoreUnavailable: "the store does not answer; nothing was accepted, try again",
    SecretUnavailable: "a secret cannot be read now; nothing was accepted, try again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status and body of an answer. `location` names the task whose status view tells more.

    `plain`: a text that is the whole answer, instead of `body`. `etag` tells whether it says anything new;
    `preference_applied` which of the request's preferences it follows. What makes an answer too large for Lambda is
    null, above all `data`; then `data_url` is there, null unless there is a link.
    """

    status: int
    body: dict[str, Json]
    content_type: str = "application/json"
    retry_after_seconds: int | None = None
    location: Task | None = None
    etag: str | None = None
    preference_applied: str | None = None
    plain: str | None = None
    text: str = field(init=False)

    def __post_init__(self) -> None:
        if self.plain is not None:
            object.__setattr__(self, "content_type", "text/plain; charset=utf-8")
            object.__setattr__(self, "text", self.plain)
            return
        text = "" if self.status == 304 else dumps(self.body)
        if carried(text) > MAX_ANSWER_BYTES:
            large = [name for name, value in self.body.items() if carried(dumps(value)) > MAX_FIELD_BYTES]
            log.warning("left out", extra={"id": self.body.get("task_id"), "fields": large})
            object.__setattr__(
                self, "body", ({"data_url": None} if "data" in large else {}) | self.body | dict.fromkeys(large)
            )
            text = dumps(self.body)
        object.__setattr__(self, "text", text)

    @property
    def is_problem(self) -> bool:
        """Whether it tells what is wrong, and nothing of a task."""
        return self.content_type == PROBLEM

    def is_known(self, if_none_match: str) -> bool | None:
        """Whether the request's If-None-Match (RFC 9110) names this answer's ETag; None where either is missing."""
        asked = if_none_match.strip()
        if self.etag is None or not asked:
            return None
        return asked == "*" or self.etag.removeprefix("W/") in _TAG.findall(asked)

    def unless_known(self, if_none_match: str) -> "Answer":
        """304 without a body if the request knows this answer, else the answer."""
        if not self.is_known(if_none_match):
            return self
        return Answer(status=304, body={}, etag=self.etag, preference_applied=self.preference_applied)

    def headers(self, base: str = "") -> dict[str, str]:
        """The headers; `Location` begins with the stage or base path of the call that is answered."""
        headers = {
            "Cache-Control": "private, no-cache" if self.etag else "no-store",
            "ETag": self.etag,
            "Preference-Applied": self.preference_applied,
            "Retry-After": self.retry_after_seconds,
            "X-Content-Type-Options": None if self.plain is None else "nosniff",  # no browser takes it for a page
            "Location": self.location and f"{base}/tasks?{urlencode(structs.asdict(self.location))}",
        }
        return {name: str(value) for name, value in headers.items() if value is not None}


def problem(error: Exception, **about: object) -> Answer:
    """The problem details of an error: RFC 9457, with `field` naming the part of the request at fault.

    An outage of the store or of secrets is 503; what is not the request's fault is 500, and nothing of it is told.
    These two are logged, as being `about` something; so is a stored item that is damaged.
    """
    if isinstance(error, StoreUnavailable):
        log.error("store unavailable", extra=about | {"reason": str(error)})
    elif isinstance(error, ItemUnreadable):
        log.error("item unreadable", extra=error.facts)
    elif not isinstance(error, Problem):
        log.error("request broke", exc_info=error, extra=about)
    if not isinstance(error, Problem):
        outage = next((told for kind, told in OUTAGES.items() if isinstance(error, kind)), None)
        broken = Problem("something broke while this was served; the task's status tells what became of it")
        error = Unavailable(outage) if outage else broken
    detail = cut(error.detail, "detail")
    body = {"type": error.type, "title": error.title, "status": error.status, "detail": detail}
    body |= {} if error.field is None else {"field": cut(error.field, "field")}
    body |= {"attribute": error.attribute} if isinstance(error, ItemUnreadable) else {}
    return Answer(
        status=error.status,
        body=body,
        content_type=PROBLEM,
        retry_after_seconds=error.retry_after_seconds if isinstance(error, Unavailable) else None,
    )
