"""An HTTP answer: JSON for what a client asked, RFC 9457 problem details for what cannot be served."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from shared.codec import Json, dumps
from shared.errors import Problem, StoreUnavailable, Unavailable
from shared.preference import header
from shared.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status and body of an answer. `location` names the task whose status view tells more."""

    status: int
    body: dict[str, Json] | None
    content_type: str = "application/json"
    retry_after_seconds: int | None = None
    location: Task | None = None
    etag: str | None = None
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", "" if self.body is None else dumps(self.body))

    def unless_known(self, event: Mapping[str, Any]) -> "Answer":
        """304 without a body if the request names this answer's ETag in If-None-Match (RFC 9110), else the answer."""
        known = {tag.strip() for tag in header(event, "if-none-match").split(",")}
        if self.etag is not None and known & {self.etag, "*"}:
            return Answer(status=304, body=None, etag=self.etag)
        return self

    def headers(self, event: Mapping[str, Any]) -> dict[str, str]:
        """The headers, for the event that was answered: `Location` has its stage and base path."""
        headers = {"Cache-Control": "no-store"} if self.etag is None else {"Cache-Control": "private, no-cache"}
        if self.etag is not None:
            headers["ETag"] = self.etag
        if self.retry_after_seconds is not None:
            headers["Retry-After"] = str(self.retry_after_seconds)
        if self.location is not None:
            query = urlencode({"provider": self.location.provider, "name": self.location.name})
            headers["Location"] = f"{_base(event)}/tasks?{query}"
        return headers


def problem(error: Problem | StoreUnavailable) -> Answer:
    """The problem details of an error: RFC 9457, with `field` naming the part of the request at fault."""
    if isinstance(error, StoreUnavailable):
        error = Unavailable("the store does not answer; nothing was accepted, try again")
    body = {"type": "about:blank", "title": error.title, "status": error.status, "detail": error.detail}
    if error.field is not None:
        body["field"] = error.field
    return Answer(
        status=error.status,
        body=body,
        content_type="application/problem+json",
        retry_after_seconds=error.retry_after_seconds if isinstance(error, Unavailable) else None,
    )


def _base(event: Mapping[str, Any]) -> str:
    """What stands before the API's own paths: the stage, or the base path of a custom domain."""
    context = event.get("requestContext") or {}
    path = context.get("path") or event.get("rawPath") or event.get("path") or "/"
    base: str = re.split(r"/tasks(?:/|$)", path)[0]
    return base.rstrip("/")
