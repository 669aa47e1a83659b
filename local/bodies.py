"""The bodies of requests and answers, as types: the schemas of docs/openapi.json are made of them."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from shared.api.request import MAX_GROUP
from shared.bounds import BOUNDS
from shared.reasons import Reason
from shared.settings import MAX_BATCH, NOTIFY_KINDS
from shared.task import MAX_NAME_BYTES, PROVIDER_NAME

Provider = Annotated[str, Meta(pattern=f"^{PROVIDER_NAME}$")]
Name = Annotated[
    str, Meta(min_length=1, max_length=3 * MAX_NAME_BYTES, description="docs/http.md says what it may hold.")
]
Instant = Annotated[str, Meta(description="RFC 3339, UTC.", extra_json_schema={"format": "date-time"})]
Whole = Annotated[int, Meta(ge=0)]
Status = Literal["pending", "completed", "failed", "cancelled"]
Schedule = Literal["waiting", "limited", "paused", "slow start", "processing", "dead letter", "lost", "unknown"]
Input = Annotated[
    dict[str, Any], Meta(description=f"What the provider is asked with: {BOUNDS['input'].most} bytes at the most.")
]


class Body(Struct, forbid_unknown_fields=True):
    """A JSON object with these fields and no others."""


class Notify(Body):
    """A workflow to tell of the end: one of the two."""

    stepFunctionsToken: Annotated[str, Meta(pattern=f"^{NOTIFY_KINDS['stepFunctionsToken'][0]}$")] | UnsetType = UNSET  # noqa: N815
    durableCallbackId: Annotated[str, Meta(pattern=f"^{NOTIFY_KINDS['durableCallbackId'][0]}$")] | UnsetType = UNSET  # noqa: N815


class TaskName(Body):
    """Which task: without `provider`, the default provider's."""

    name: Name
    provider: Provider | UnsetType = UNSET


class TaskRequest(TaskName):
    """A request for a task."""

    input: Input | UnsetType = UNSET
    group: Annotated[str, Meta(min_length=1, max_length=MAX_GROUP)] | UnsetType = UNSET
    notify: Notify | UnsetType = UNSET


class Batch(Body):
    """Many requests; each has its own answer."""

    tasks: Annotated[list[TaskRequest], Meta(min_length=1, max_length=MAX_BATCH)]


class Failure(Body):
    """Why a task failed."""

    reason: Annotated[str, Meta(examples=[*Reason])]
    detail: Any


class Names(Body):
    """Which task, and how it stands."""

    task_id: str
    provider: Provider
    name: str
    status: Status
    error: Failure | UnsetType = UNSET


class Task(Names, kw_only=True):
    """A task as it stands."""

    data: Annotated[Any, Meta(description="The data; until the task is completed, what is known of it.")]
    partial: bool
    deduplicated: bool
    generation: Whole
    created_at: Instant
    updated_at: Instant
    completed_at: Instant | UnsetType = UNSET
    erased_at: Annotated[Instant, Meta(description="When what it held was erased.")] | UnsetType = UNSET
    age_seconds: Whole
    data_url: Annotated[str | None, Meta(description="A link to data too large for an answer.")] | UnsetType = UNSET
    data_url_expires_at: Instant | UnsetType = UNSET
    revalidating: Literal[True] | UnsetType = UNSET
    schedule: Schedule | UnsetType = UNSET
    next_attempt_at: Instant | UnsetType = UNSET
    next_attempt_by: Instant | UnsetType = UNSET
    attempts: Whole | UnsetType = UNSET
    errors: Whole | UnsetType = UNSET
    progress: Any | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET


class Results(Body):
    """One result for each request of a batch, in their order."""

    results: list["Result"]


class Result(Struct):
    """One of a batch; written by hand in `openapi`, as its body is one of several."""


class Problem(Body):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    field: str | UnsetType = UNSET
    attribute: str | UnsetType = UNSET


class Message(Struct):
    """What API Gateway says itself."""

    message: str | UnsetType = UNSET


class Received(Body):
    """A callback was taken."""

    status: Literal["received"]


ALL = [TaskName, TaskRequest, Batch, Names, Task, Results, Problem, Message, Received]
"""Every body that a request or an answer may have."""
