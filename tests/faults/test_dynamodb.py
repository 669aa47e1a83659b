"""DynamoDB and S3 throttle, break, stay silent and lose answers; results wait, and no job is submitted twice.

The clients are the deployed ones, with their own tries; only the pauses between those are listed rather than slept.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from botocore import endpoint
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.session import get_session
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from local import sam_template
from shared import aws
from shared.api.enqueue import RESERVE_SECONDS
from shared.settings import Settings
from shared.store.spill import CALL_SECONDS
from shared.work import keeper, reconcile
from shared.work.keeper import STORE_RETRY_SECONDS
from tests.conftest import BUCKET, TABLE
from tests.support.backend import Backend
from tests.support.deployment import FILES, Answered, Deployment, deploy
from tests.support.redis_servers import SERVERS
from tests.support.simulator import DONE, PARTIAL, WHOLE, Simulator, completed, pending, says

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.slow

TRIES = 2
LARGE = {"x": random.Random(1).randbytes(100_000).hex()}


Answer: TypeAlias = "partial[Any]"
"""What the service does and says, once it is asked for; its third argument is the request."""
Fault = Callable[[Answer], AWSResponse]


# --- what may happen to a request


def answered(status: int, body: str, **headers: str) -> Fault:
    """The service refuses it and does nothing."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: AWSResponse("https://aws", status, named, MockRawResponse(body))  # type: ignore[arg-type]


def dynamodb_says(status: int, code: str) -> Fault:
    return answered(status, f'{{"__type": "com.amazonaws.dynamodb.v20120810#{code}", "message": "try later"}}')


def s3_says(status: int, code: str) -> Fault:
    return answered(status, f"<Error><Code>{code}</Code><Message>try later</Message></Error>")


def raises(error: type[Exception]) -> Fault:
    """It never gets there."""

    def fault(_: Answer) -> AWSResponse:
        raise error(endpoint_url="https://aws", error="reset")  # type: ignore[call-arg]

    return fault


def lost(answer: Answer) -> AWSResponse:
    """It takes effect, and its answer is lost."""
    answer()
    raise ReadTimeoutError(endpoint_url="https://aws")


OF_THE_NETWORK = {
    "closed": raises(ConnectionClosedError), "refused": raises(EndpointConnectionError),
    "connect timeout": raises(ConnectTimeoutError), "read timeout": raises(ReadTimeoutError), "answer lost": lost,
}  # fmt: skip
OF_DYNAMODB = OF_THE_NETWORK | {
    "throughput": dynamodb_says(400, "ProvisionedThroughputExceededException"),
    "throttling": dynamodb_says(400, "ThrottlingException"),
    "request limit": dynamodb_says(400, "RequestLimitExceeded"),
    "500": dynamodb_says(500, "InternalServerError"), "503": answered(503, "<html>"),
}  # fmt: skip
OF_S3 = OF_THE_NETWORK | {
    "slow down": s3_says(503, "SlowDown"), "500": s3_says(500, "InternalError"), "503": answered(503, "<html>"),
}  # fmt: skip
FOR_GOOD = {"denied": s3_says(403, "AccessDenied"), "no bucket": s3_says(404, "NoSuchBucket")}
"""Answers that S3 gives a deployment whose rights or bucket are wrong; botocore does not try again."""


def of(faults: dict[str, Fault]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fault", faults.values(), ids=faults)


@dataclass
class Wire:
    """What lies between the clients and the services. `faults` are those of an operation's next requests, in turn."""

    faults: dict[str, list[Fault]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def send(self, operation: str, answer: Answer) -> AWSResponse:
        self.seen.append(operation)
        faults = self.faults.get(operation)
        return faults.pop(0)(answer) if faults else answer()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, dynamodb: "DynamoDBClient") -> Iterator[Wire]:
    wire, send = Wire(), BotocoreStubber.__call__

    def sent(stubber: BotocoreStubber, event_name: str, request: Any, **more: Any) -> Any:
        return wire.send(event_name.rpartition(".")[2], partial(send, stubber, event_name, request, **more))

    monkeypatch.setattr(BotocoreStubber, "__call__", sent)
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(sleep=wire.pauses.append))
    yield wire
    assert not any(wire.faults.values())  # every fault has struck
    assert max(wire.pauses, default=0) <= 1


@cache
def session() -> Any:
    """One for all: it has read what is known of the services."""
    made = get_session()
    made.set_credentials("testing", "testing")
    return made


@dataclass(repr=False)
class Cloud(Deployment):
    """The handlers with the clients that they have when deployed, and the wire between these and their services."""

    wire: Wire = field(default_factory=Wire)
    s3: Any = None

    def breaks(self, operation: str, fault: Fault, times: int = TRIES) -> None:
        """The next requests of an operation; as many as one call makes."""
        self.wire.faults[operation] = [fault] * times

    def hurries(self) -> None:
        """No attempt has the time to store a result in hand once more."""
        self.patch.setattr(keeper, "STORE_PAUSE_SECONDS", math.inf)

    def ask(self, name: str = "a", **headers: str) -> Answered:
        return self.call("POST", "/tasks", {"provider": "job", "name": name}, headers)

    def look(self, name: str = "a") -> Answered:
        return self.call("GET", f"/tasks/job/{name}")

    def tick_later(self, seconds: float = 31) -> dict[str, int]:
        """The tally of a tick after everything has fallen due, leases too."""
        self.pass_(seconds)
        return self.process().get("job", {})

    def waits(self) -> dict[str, Any]:
        """What a client sees of a task whose result could not be stored."""
        seen = self.look()
        assert (seen.status, seen.body["status"], seen.body["schedule"]) == (200, "pending", "waiting")
        return seen.body

    def ends(self, data: Any, name: str = "a") -> None:
        """A client finds the whole, nothing is left in Redis, there is one job, and one object if it is large."""
        seen = self.look(name)
        assert (seen.status, seen.body["status"], seen.body["data"]) == (200, "completed", data)
        assert self.state("job") == {}
        assert self.simulator.calls(name).count("POST /jobs") == 1
        assert self.s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == (data is LARGE)


@pytest.fixture
def cloud(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, simulator: Simulator, backend: Backend, s3: Any, wire: Wire
) -> Cloud:
    known = session()
    monkeypatch.setattr(aws, "get_session", lambda: known)
    monkeypatch.setenv("TABLE_NAME", TABLE)
    monkeypatch.setenv("SPILL_BUCKET", BUCKET)
    deployed = replace(backend, dynamodb_client=aws.client("dynamodb", 30))
    return Cloud(**vars(deploy(monkeypatch, tmp_path, deployed, simulator)), wire=wire, s3=s3)


def longest_seconds(config: Any) -> float:
    """The longest that a call may take: every try to its timeouts, and the pauses between."""
    tries = config.retries["total_max_attempts"]
    return float(tries * (config.connect_timeout + config.read_timeout) + (tries - 1) * 1.0)


@pytest.mark.promise("faults", "no call to DynamoDB, S3 or Redis outlives its function")
def test_no_call_takes_longer_than_what_is_kept_for_it() -> None:
    dynamodb, s3 = (longest_seconds(aws.client(service, 2).meta.config) for service in ("dynamodb", "s3"))
    assert dynamodb <= RESERVE_SECONDS
    assert s3 <= CALL_SECONDS
    timeouts = {name: one.timeout_seconds for name, one in sam_template.functions().items()}
    settings = Settings.from_environment(sam_template.functions()["ProcessFunction"].environment)
    storing = dynamodb + s3
    assert settings.attempt_seconds + storing <= settings.lease_seconds
    assert settings.window_seconds + settings.attempt_seconds + storing <= timeouts["ProcessFunction"]
    longest_answer = sam_template.template()["Parameters"]["FirstAnswerSeconds"]["MaxValue"]
    assert longest_answer + storing <= timeouts["EnqueueFunction"]
    reading = 2 * dynamodb + s3  # cancel reads twice, and opens what it shows
    assert dynamodb + reading <= timeouts["EnqueueFunction"]
    assert dynamodb <= reconcile.STOP_SECONDS <= timeouts["ReconcileFunction"]


@pytest.mark.promise("faults", "no call to DynamoDB, S3 or Redis outlives its function")
def test_a_service_cannot_ask_for_a_longer_pause(cloud: Cloud) -> None:
    cloud.breaks("GetItem", answered(503, "", x_amz_retry_after="5000"), 1)
    assert cloud.ask().status == 202
    assert len(cloud.wire.pauses) == 1  # and Wire holds it to a second


@pytest.mark.promise("faults", "DynamoDB throttles, fails or does not answer, once")
@of(OF_DYNAMODB)
@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_one_fault_of_dynamodb_is_not_noticed_by_a_request(cloud: Cloud, operation: str, fault: Fault) -> None:
    cloud.breaks(operation, fault, 1)
    answer = cloud.ask()
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    cloud.simulator.say(DONE)
    assert cloud.tick_later() == {"claimed": 1, "completed": 1}
    cloud.ends(WHOLE)


@pytest.mark.promise("faults", "DynamoDB throttles, fails or does not answer, once")
@of(OF_DYNAMODB)
def test_one_fault_of_dynamodb_is_not_noticed_by_a_result(cloud: Cloud, fault: Fault) -> None:
    cloud.ask()
    cloud.simulator.say(DONE)
    cloud.breaks("UpdateItem", fault, 1)
    tally = cloud.tick_later()
    assert tally.pop("claimed") == 1
    assert tally in ({"completed": 1}, {"forgotten": 1})  # forgotten: the second try found the first one's write
    cloud.ends(WHOLE)


@pytest.mark.promise("faults", "S3 fails once, or for longer")
@of(OF_S3)
def test_one_fault_of_s3_is_not_noticed_by_a_large_result(cloud: Cloud, fault: Fault) -> None:
    cloud.ask()
    cloud.simulator.say(completed(LARGE))
    cloud.breaks("PutObject", fault, 1)
    assert cloud.tick_later() == {"claimed": 1, "completed": 1}
    cloud.breaks("GetObject", fault, 1)
    cloud.ends(LARGE)


@pytest.mark.promise("faults", "DynamoDB fails for longer while requests come")
@of(OF_DYNAMODB)
def test_a_request_that_cannot_read_is_503_and_nothing_was_done(cloud: Cloud, fault: Fault) -> None:
    cloud.breaks("GetItem", fault)
    answer = cloud.ask()
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert cloud.wire.seen == ["GetItem"] * TRIES
    assert cloud.simulator.calls() == []
    assert cloud.state("job") == {}


@pytest.mark.promise("faults", "DynamoDB fails for longer while requests come")
@of(OF_DYNAMODB)
def test_a_request_that_cannot_be_written_down_is_503_and_the_provider_is_not_asked(cloud: Cloud, fault: Fault) -> None:
    cloud.breaks("UpdateItem", fault)
    assert cloud.ask().status == 503
    assert cloud.simulator.calls() == []
    assert cloud.state("job") == {}
    again = cloud.ask()
    assert again.status == 202
    if fault is lost:  # it had been written down all the same, and whoever asks is told
        assert (again.body["deduplicated"], again.body["schedule"]) == (True, "lost")
        cloud.pass_(31)
        assert cloud.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    cloud.simulator.say(pending(id="j-1"), DONE)
    for _ in range(3):
        cloud.tick_later(100)
    cloud.ends(WHOLE)


@pytest.mark.promise("faults", "DynamoDB fails for longer while requests come")
@of(OF_DYNAMODB)
def test_a_first_answer_that_cannot_be_stored_is_shown_and_its_job_is_not_lost(cloud: Cloud, fault: Fault) -> None:
    fine: Fault = lambda answer: answer()  # noqa: E731
    cloud.wire.faults["UpdateItem"] = [fine, *[fault] * TRIES]  # begin, then the write of what was learned
    answer = cloud.ask()
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    cloud.simulator.say(DONE)
    assert cloud.tick_later() == {"claimed": 1, "completed": 1}
    assert cloud.simulator.calls() == ["POST /jobs", "GET /jobs/j-1"]
    cloud.ends(WHOLE)


@pytest.mark.promise("faults", "DynamoDB fails for longer while results come or reconcile runs")
@of(OF_DYNAMODB)
def test_a_result_that_cannot_be_stored_stays_queued_and_makes_no_second_job(cloud: Cloud, fault: Fault) -> None:
    cloud.hurries()
    cloud.ask()
    cloud.simulator.say(DONE)
    cloud.breaks("UpdateItem", fault)
    assert cloud.tick_later() == {"claimed": 1, "released": 1}
    if fault is lost:  # the first try ended it, the second found that
        seen = cloud.look()
        assert (seen.body["status"], seen.body["data"]) == ("completed", WHOLE)
        assert cloud.tick_later() == {"claimed": 1, "forgotten": 1}
    else:
        shown = cloud.waits()
        assert (shown["data"], shown["errors"]) == (PARTIAL, 0)
        assert cloud.tick_later(STORE_RETRY_SECONDS) == {"claimed": 1, "completed": 1}
    cloud.ends(WHOLE)


@pytest.mark.promise("faults", "DynamoDB fails for longer while results come or reconcile runs")
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
def test_of_five_results_the_one_that_is_throttled_waits_alone(cloud: Cloud) -> None:
    cloud.hurries()
    names = [f"task {number}" for number in range(5)]
    for name in names:
        cloud.ask(name)
    cloud.simulator.say(DONE)
    throttled: list[bytes] = []

    def one_of_them(answer: Answer) -> AWSResponse:
        """Throttles whichever comes first, and its second try."""
        throttled.append(answer.args[2].body)
        return OF_DYNAMODB["throughput"](answer) if throttled[0] == throttled[-1] else answer()

    cloud.wire.faults["UpdateItem"] = [one_of_them] * 6
    assert cloud.tick_later() == {"claimed": 5, "completed": 4, "released": 1}
    assert len(cloud.state("job")) == 1
    assert cloud.tick_later(STORE_RETRY_SECONDS) == {"claimed": 1, "completed": 1}
    for name in names:
        cloud.ends(WHOLE, name)


HELD_UP = {f"PutObject {name}": ("PutObject", fault) for name, fault in (OF_S3 | FOR_GOOD).items()} | {
    f"UpdateItem {name}": ("UpdateItem", OF_DYNAMODB[name]) for name in ("throughput", "read timeout")
}


@pytest.mark.promise("faults", "S3 fails once, or for longer")
@pytest.mark.parametrize(("operation", "fault"), HELD_UP.values(), ids=HELD_UP)
def test_a_large_result_that_cannot_be_stored_stays_queued_and_makes_no_second_job_or_object(
    cloud: Cloud, operation: str, fault: Fault
) -> None:
    cloud.hurries()
    cloud.ask()
    cloud.simulator.say(completed(LARGE))
    cloud.breaks(operation, fault, 1 if fault in FOR_GOOD.values() else TRIES)
    cloud.wire.seen.clear()
    assert cloud.tick_later() == {"claimed": 1, "released": 1}
    assert ("UpdateItem" in cloud.wire.seen) == (operation == "UpdateItem")  # no item points to what may not be there
    cloud.waits()
    assert cloud.tick_later(STORE_RETRY_SECONDS) == {"claimed": 1, "completed": 1}
    cloud.ends(LARGE)


@pytest.mark.promise("faults", "S3 fails once, or for longer")
def test_a_large_first_answer_that_s3_does_not_take_is_shown_and_stored_later(cloud: Cloud) -> None:
    cloud.hurries()
    cloud.simulator.say(completed(LARGE))
    cloud.breaks("PutObject", OF_S3["slow down"])
    answer = cloud.call("GET", "/?task-name=a")
    assert (answer.status, answer.body["status"], answer.body["data"]) == (202, "pending", LARGE)
    cloud.pass_(STORE_RETRY_SECONDS)
    assert cloud.process() == {"example": {"claimed": 1, "completed": 1}}
    assert cloud.call("GET", "/?task-name=a").body["data"] == LARGE


@pytest.mark.promise("faults", "a result whose task was cancelled meanwhile: a conditional conflict")
@pytest.mark.parametrize("data", [WHOLE, LARGE], ids=["small", "large"])
def test_a_result_of_a_task_that_was_cancelled_meanwhile_changes_nothing_and_its_job_is_cancelled(
    cloud: Cloud, data: Any
) -> None:
    cloud.ask()
    cloud.simulator.say(completed(data).after(lambda: cloud.call("DELETE", "/tasks/job/a")), says(200, {}))
    cloud.pass_(31)
    assert cloud.process() == {"job": {"claimed": 1, "forgotten": 1}}
    seen = cloud.look()
    assert (seen.body["status"], seen.body["data"]) == ("cancelled", PARTIAL)
    assert cloud.simulator.calls()[-1] == "DELETE /jobs/j-1"
    assert cloud.state("job") == {}


@pytest.mark.promise("once", "what was erased does not come back: whoever still works on the task stores nothing")
@pytest.mark.parametrize("data", [WHOLE, LARGE], ids=["small", "large"])
def test_a_result_of_a_task_that_was_erased_meanwhile_changes_nothing_and_its_job_is_cancelled(
    cloud: Cloud, data: Any
) -> None:
    cloud.ask()
    cloud.simulator.say(completed(data).after(lambda: cloud.call("DELETE", "/erase/job/a")), says(200, {}))
    cloud.pass_(31)
    assert cloud.process() == {"job": {"claimed": 1, "forgotten": 1}}
    assert (cloud.look().body["status"], cloud.look().body["data"]) == ("cancelled", None)
    assert cloud.simulator.calls()[-1] == "DELETE /jobs/j-1"
    assert cloud.bench.keys.dump() == {}
    assert cloud.s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == (data is LARGE)  # it came late, and is nobody's
    assert cloud.call("DELETE", "/erase/job/a").status == 200
    assert cloud.s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 0


@pytest.mark.promise("faults", "each step of an erasure failing: it is told, and a repetition does the rest")
@of(OF_S3)
@pytest.mark.parametrize("operation", ["ListObjectsV2", "DeleteObjects"])
def test_an_erasure_that_s3_does_not_do_is_503_and_a_repetition_does_it(
    cloud: Cloud, operation: str, fault: Fault
) -> None:
    cloud.ask()
    cloud.simulator.say(completed(LARGE))
    cloud.tick_later()
    cloud.breaks(operation, fault)
    refused = cloud.call("DELETE", "/erase/job/a")
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "erased_at" not in cloud.look().body
    assert cloud.call("DELETE", "/erase/job/a").body["erased_at"]
    assert cloud.s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 0


@pytest.mark.promise("faults", "S3 fails once, or for longer")
@of(OF_S3)
def test_stored_data_that_s3_does_not_give_are_503_and_hinder_no_new_generation(cloud: Cloud, fault: Fault) -> None:
    cloud.ask()
    cloud.simulator.say(completed(LARGE), pending(PARTIAL, id="j-2"))
    cloud.tick_later()
    cloud.breaks("GetObject", fault)
    assert cloud.look().status == 503
    cloud.breaks("GetObject", fault)
    anew = cloud.ask(**{"Cache-Control": "no-cache"})
    assert (anew.status, anew.body["data"], anew.body["data_url"]) == (202, PARTIAL, None)
    seen = cloud.look()  # S3 is there again
    assert (seen.body["status"], seen.body["data"]) == ("pending", LARGE | PARTIAL)


@pytest.mark.promise("faults", "DynamoDB fails for longer while results come or reconcile runs")
@of(OF_DYNAMODB)
@pytest.mark.parametrize("operation", ["Query", "GetItem"])
def test_a_reconcile_that_cannot_read_says_so_and_the_next_one_repairs(
    cloud: Cloud, operation: str, fault: Fault
) -> None:
    cloud.ask()
    cloud.redis_client.flushall()
    cloud.pass_(31)
    is_met_once = operation == "GetItem" or fault in OF_THE_NETWORK.values()  # GetItem asks what time it is
    cloud.breaks(operation, fault, TRIES * (1 if is_met_once else len(FILES)))
    said = cloud.reconcile()
    assert sum(counts.get("unreachable", 0) for counts in said.values()) == (1 if is_met_once else len(FILES))
    was_before = said.get("job", {}).get("requeued", 0)  # the one that was unreachable came after it
    assert cloud.reconcile() == {"job": {"seen": 1} if was_before else {"seen": 1, "requeued": 1}}
    assert [place for place, _ in cloud.state("job").values()] == ["waiting"]
