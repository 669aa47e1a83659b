"""DynamoDB and S3 throttle, break, stay silent and lose answers; results wait, and no job is submitted twice.

The clients are the deployed ones, with their own tries; only the pauses between those are listed rather than slept.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore import endpoint
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from local import sam_template
from shared import aws
from shared.api.enqueue import RESERVE_SECONDS
from shared.settings import Settings
from shared.store.spill import CALL_SECONDS
from shared.work import reconcile
from shared.work.worker import STORE_RETRY_SECONDS
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service does and says, once it is asked for."""

    body: bytes
    ask: Callable[[], AWSResponse]

    def __call__(self) -> AWSResponse:
        return self.ask()


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
    "closed": raises(ConnectionClosedError),
    "refused": raises(EndpointConnectionError),
    "connect timeout": raises(ConnectTimeoutError),
    "read timeout": raises(ReadTimeoutError),
    "answer lost": lost,
}
OF_DYNAMODB = OF_THE_NETWORK | {
    "throughput": dynamodb_says(400, "ProvisionedThroughputExceededException"),
    "throttling": dynamodb_says(400, "ThrottlingException"),
    "request limit": dynamodb_says(400, "RequestLimitExceeded"),
    "500": dynamodb_says(500, "InternalServerError"),
    "503": answered(503, "<html>"),
}
OF_S3 = OF_THE_NETWORK | {
    "slow down": s3_says(503, "SlowDown"),
    "500": s3_says(500, "InternalError"),
    "503": answered(503, "<html>"),
}
FOR_GOOD = {"denied": s3_says(403, "AccessDenied"), "no bucket": s3_says(404, "NoSuchBucket")}
"""Answers that S3 gives a deployment whose rights or bucket are wrong; botocore does not try again."""


def of(faults: dict[str, Fault]) -> pytest.MarkDecorator:
    """One test for each."""
    return pytest.mark.parametrize("fault", faults.values(), ids=faults)


@dataclass
class Wire:
    """What lies between the clients and the services. `faults` are those of an operation's next requests, in turn."""

    faults: dict[str, list[Fault]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def breaks(self, operation: str, fault: Fault, times: int) -> None:
        self.faults[operation] = [fault] * times

    def send(self, operation: str, answer: Answer) -> AWSResponse:
        self.seen.append(operation)
        faults = self.faults.get(operation)
        return faults.pop(0)(answer) if faults else answer()

    def is_whole(self) -> bool:
        """Whether every fault has struck."""
        return not any(self.faults.values())


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, dynamodb: "DynamoDBClient") -> Iterator[Wire]:
    wire, send = Wire(), BotocoreStubber.__call__

    def sent(stubber: BotocoreStubber, event_name: str, request: Any, **more: Any) -> Any:
        def answer() -> Any:
            return send(stubber, event_name, request, **more)

        return wire.send(event_name.rpartition(".")[2], Answer(request.body, answer))

    monkeypatch.setattr(BotocoreStubber, "__call__", sent)
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(sleep=wire.pauses.append))
    yield wire
    assert wire.is_whole()
    assert max(wire.pauses, default=0) <= 1


@pytest.fixture(scope="session")
def session() -> Any:
    """One for all: it has read what is known of the services."""
    return boto3.session.Session(region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")


@pytest.fixture
def deployed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    simulator: Simulator,
    backend: Backend,
    s3: Any,
    wire: Wire,
    session: Any,
) -> Deployment:
    """The handlers with the clients that they have when deployed."""
    monkeypatch.setattr(boto3.session, "Session", lambda: session)
    monkeypatch.setenv("TABLE_NAME", TABLE)
    monkeypatch.setenv("SPILL_BUCKET", BUCKET)
    return deploy(monkeypatch, tmp_path, replace(backend, dynamodb_client=aws.client("dynamodb", 30)), simulator)


def ask(deployed: Deployment, name: str = "a") -> Answered:
    return deployed.call("POST", "/tasks", {"provider": "job", "name": name})


def look(deployed: Deployment, name: str = "a") -> Answered:
    return deployed.call("GET", f"/tasks/job/{name}")


def tick_later(deployed: Deployment, seconds: float = 31) -> dict[str, int]:
    """The tally of a tick after everything has fallen due, leases too."""
    deployed.pass_(seconds)
    return deployed.process().get("job", {})


def ends(deployed: Deployment, data: Any, name: str = "a") -> None:
    """Assert that a client finds the whole, that nothing is left in Redis, and that the provider has one job."""
    seen = look(deployed, name)
    assert (seen.status, seen.body["status"], seen.body["data"]) == (200, "completed", data)
    assert deployed.state("job") == {}
    assert deployed.simulator.calls(name).count("POST /jobs") == 1


# --- no call outlives its handler


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
def test_a_service_cannot_ask_for_a_longer_pause(deployed: Deployment, wire: Wire) -> None:
    wire.breaks("GetItem", answered(503, "", x_amz_retry_after="5000"), 1)
    assert ask(deployed).status == 202
    assert len(wire.pauses) == 1  # and Wire holds it to a second


# --- one fault is not noticed


@pytest.mark.promise("faults", "DynamoDB throttles, fails or does not answer, once")
@of(OF_DYNAMODB)
@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_one_fault_of_dynamodb_is_not_noticed_by_a_request(
    deployed: Deployment, wire: Wire, operation: str, fault: Fault
) -> None:
    wire.breaks(operation, fault, 1)
    answer = ask(deployed)
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    deployed.simulator.say(DONE)
    assert tick_later(deployed) == {"claimed": 1, "completed": 1}
    ends(deployed, WHOLE)


@pytest.mark.promise("faults", "DynamoDB throttles, fails or does not answer, once")
@of(OF_DYNAMODB)
def test_one_fault_of_dynamodb_is_not_noticed_by_a_result(deployed: Deployment, wire: Wire, fault: Fault) -> None:
    ask(deployed)
    deployed.simulator.say(DONE)
    wire.breaks("UpdateItem", fault, 1)
    tally = tick_later(deployed)
    assert tally.pop("claimed") == 1
    assert tally in ({"completed": 1}, {"forgotten": 1})  # forgotten: the second try found the first one's write
    ends(deployed, WHOLE)


@pytest.mark.promise("faults", "S3 fails once, or for longer")
@of(OF_S3)
def test_one_fault_of_s3_is_not_noticed_by_a_large_result(
    deployed: Deployment, wire: Wire, s3: Any, fault: Fault
) -> None:
    ask(deployed)
    deployed.simulator.say(completed(LARGE))
    wire.breaks("PutObject", fault, 1)
    assert tick_later(deployed) == {"claimed": 1, "completed": 1}
    wire.breaks("GetObject", fault, 1)
    ends(deployed, LARGE)
    assert len(s3.list_objects_v2(Bucket=BUCKET)["Contents"]) == 1


# --- DynamoDB stays away from a request


@pytest.mark.promise("faults", "DynamoDB fails for longer while requests come")
@of(OF_DYNAMODB)
def test_a_request_that_cannot_read_is_503_and_nothing_was_done(deployed: Deployment, wire: Wire, fault: Fault) -> None:
    wire.breaks("GetItem", fault, TRIES)
    answer = ask(deployed)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert wire.seen == ["GetItem"] * TRIES
    assert deployed.simulator.calls() == []
    assert deployed.state("job") == {}


@pytest.mark.promise("faults", "DynamoDB fails for longer while requests come")
@of(OF_DYNAMODB)
def test_a_request_that_cannot_be_written_down_is_503_and_the_provider_is_not_asked(
    deployed: Deployment, wire: Wire, fault: Fault
) -> None:
    wire.breaks("UpdateItem", fault, TRIES)
    assert ask(deployed).status == 503
    assert deployed.simulator.calls() == []
    assert deployed.state("job") == {}
    again = ask(deployed)
    assert again.status == 202
    if fault is lost:  # it had been written down all the same, and whoever asks is told
        assert (again.body["deduplicated"], again.body["schedule"]) == (True, "lost")
        deployed.pass_(31)
        assert deployed.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    deployed.simulator.say(pending(id="j-1"), DONE)
    for _ in range(3):
        tick_later(deployed, 100)
    ends(deployed, WHOLE)


@pytest.mark.promise("faults", "DynamoDB fails for longer while requests come")
@of(OF_DYNAMODB)
def test_a_first_answer_that_cannot_be_stored_is_shown_and_its_job_is_not_lost(
    deployed: Deployment, wire: Wire, fault: Fault
) -> None:
    fine: Fault = lambda answer: answer()  # noqa: E731
    wire.faults["UpdateItem"] = [fine, *[fault] * TRIES]  # begin, then the write of what was learned
    answer = ask(deployed)
    assert (answer.status, answer.body["data"]) == (202, PARTIAL)
    deployed.simulator.say(DONE)
    assert tick_later(deployed) == {"claimed": 1, "completed": 1}
    assert deployed.simulator.calls() == ["POST /jobs", "GET /jobs/j-1"]
    ends(deployed, WHOLE)


# --- results wait


@pytest.mark.promise("faults", "DynamoDB fails for longer while results come or reconcile runs")
@of(OF_DYNAMODB)
def test_a_result_that_cannot_be_stored_stays_queued_and_makes_no_second_job(
    deployed: Deployment, wire: Wire, fault: Fault
) -> None:
    ask(deployed)
    deployed.simulator.say(DONE)
    wire.breaks("UpdateItem", fault, TRIES)
    tally = tick_later(deployed)
    seen = look(deployed)
    if fault is lost:  # the first try ended it, the second found that
        assert tally == {"claimed": 1, "released": 1}
        assert (seen.body["status"], seen.body["data"]) == ("completed", WHOLE)
        assert tick_later(deployed) == {"claimed": 1, "forgotten": 1}
    else:
        assert tally == {"claimed": 1, "released": 1}
        assert (seen.status, seen.body["status"], seen.body["schedule"]) == (200, "pending", "waiting")
        assert (seen.body["data"], seen.body["errors"]) == (PARTIAL, 0)
        assert tick_later(deployed, STORE_RETRY_SECONDS) == {"claimed": 1, "completed": 1}
    ends(deployed, WHOLE)


@pytest.mark.promise("faults", "DynamoDB fails for longer while results come or reconcile runs")
@pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)
def test_of_five_results_the_one_that_is_throttled_waits_alone(deployed: Deployment, wire: Wire) -> None:
    names = [f"task {number}" for number in range(5)]
    for name in names:
        ask(deployed, name)
    deployed.simulator.say(DONE)
    throttled: list[bytes] = []

    def one_of_them(answer: Answer) -> AWSResponse:
        """Throttles whichever comes first, and its second try."""
        throttled.append(answer.body)
        return OF_DYNAMODB["throughput"](answer) if throttled[0] == answer.body else answer()

    wire.faults["UpdateItem"] = [one_of_them] * 6
    assert tick_later(deployed) == {"claimed": 5, "completed": 4, "released": 1}
    assert len(deployed.state("job")) == 1
    assert tick_later(deployed, STORE_RETRY_SECONDS) == {"claimed": 1, "completed": 1}
    for name in names:
        ends(deployed, WHOLE, name)


@pytest.mark.promise("faults", "S3 fails once, or for longer")
@of(OF_S3 | FOR_GOOD)
def test_a_large_result_that_s3_does_not_take_stays_queued_and_makes_no_second_job(
    deployed: Deployment, wire: Wire, s3: Any, fault: Fault
) -> None:
    ask(deployed)
    deployed.simulator.say(completed(LARGE))
    wire.breaks("PutObject", fault, 1 if fault in FOR_GOOD.values() else TRIES)
    wire.seen.clear()
    assert tick_later(deployed) == {"claimed": 1, "released": 1}
    assert "UpdateItem" not in wire.seen  # no item points to what may not be there
    seen = look(deployed)
    assert (seen.status, seen.body["status"], seen.body["schedule"]) == (200, "pending", "waiting")
    assert tick_later(deployed, STORE_RETRY_SECONDS) == {"claimed": 1, "completed": 1}
    ends(deployed, LARGE)
    assert len(s3.list_objects_v2(Bucket=BUCKET)["Contents"]) == 1


@pytest.mark.promise("faults", "S3 fails once, or for longer")
@of({name: OF_DYNAMODB[name] for name in ("throughput", "read timeout")})
def test_a_large_result_whose_item_cannot_be_written_leaves_one_object_when_it_ends(
    deployed: Deployment, wire: Wire, s3: Any, fault: Fault
) -> None:
    ask(deployed)
    deployed.simulator.say(completed(LARGE))
    wire.breaks("UpdateItem", fault, TRIES)
    assert tick_later(deployed) == {"claimed": 1, "released": 1}
    assert tick_later(deployed, STORE_RETRY_SECONDS) == {"claimed": 1, "completed": 1}
    ends(deployed, LARGE)
    assert len(s3.list_objects_v2(Bucket=BUCKET)["Contents"]) == 1


@pytest.mark.promise("faults", "S3 fails once, or for longer")
def test_a_large_first_answer_that_s3_does_not_take_is_shown_and_stored_later(deployed: Deployment, wire: Wire) -> None:
    deployed.simulator.say(completed(LARGE))
    wire.breaks("PutObject", OF_S3["slow down"], TRIES)
    answer = deployed.call("GET", "/?task-name=a")
    assert (answer.status, answer.body["status"], answer.body["data"]) == (202, "pending", LARGE)
    deployed.pass_(STORE_RETRY_SECONDS)
    assert deployed.process() == {"example": {"claimed": 1, "completed": 1}}
    assert deployed.call("GET", "/?task-name=a").body["data"] == LARGE


# --- somebody else was first


@pytest.mark.promise("faults", "a result whose task was cancelled meanwhile: a conditional conflict")
@pytest.mark.parametrize("data", [WHOLE, LARGE], ids=["small", "large"])
def test_a_result_of_a_task_that_was_cancelled_meanwhile_changes_nothing_and_its_job_is_cancelled(
    deployed: Deployment, wire: Wire, data: Any
) -> None:
    ask(deployed)
    deployed.simulator.say(completed(data).after(lambda: deployed.call("DELETE", "/tasks/job/a")), says(200, {}))
    deployed.pass_(31)
    assert deployed.process() == {"job": {"claimed": 1, "forgotten": 1}}
    seen = look(deployed)
    assert (seen.body["status"], seen.body["data"]) == ("cancelled", PARTIAL)
    assert deployed.simulator.calls()[-1] == "DELETE /jobs/j-1"
    assert deployed.state("job") == {}


# --- S3 does not give back


@pytest.mark.promise("faults", "S3 fails once, or for longer")
@of(OF_S3)
def test_stored_data_that_s3_does_not_give_are_503_and_hinder_no_new_generation(
    deployed: Deployment, wire: Wire, fault: Fault
) -> None:
    ask(deployed)
    deployed.simulator.say(completed(LARGE), pending(PARTIAL, id="j-2"))
    tick_later(deployed)
    wire.breaks("GetObject", fault, TRIES)
    assert look(deployed).status == 503
    wire.breaks("GetObject", fault, TRIES)
    body = {"provider": "job", "name": "a"}
    anew = deployed.call("POST", "/tasks", body, {"Cache-Control": "no-cache"})
    assert (anew.status, anew.body["data"], anew.body["data_url"]) == (202, PARTIAL, None)
    seen = look(deployed)  # S3 is there again
    assert (seen.body["status"], seen.body["data"]) == ("pending", LARGE | PARTIAL)


# --- reconcile


@pytest.mark.promise("faults", "DynamoDB fails for longer while results come or reconcile runs")
@of(OF_DYNAMODB)
@pytest.mark.parametrize("operation", ["Query", "GetItem"])
def test_a_reconcile_that_cannot_read_says_so_and_the_next_one_repairs(
    deployed: Deployment, wire: Wire, operation: str, fault: Fault
) -> None:
    ask(deployed)
    deployed.redis_client.flushall()
    deployed.pass_(31)
    wire.breaks(operation, fault, TRIES * (len(FILES) if operation == "Query" else 1))  # each provider's first query
    tally = deployed.reconcile()
    assert tally["job"]["unreachable"] == 1
    assert deployed.state("job") == {}
    assert deployed.reconcile() == {"job": {"seen": 1, "requeued": 1}}
    assert [place for place, _ in deployed.state("job").values()] == ["waiting"]
