"""Large data go to S3 before their item is written, and come back exactly or not at all."""

import dataclasses
import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shared.codec import Json, carried, dumps
from shared.errors import DataUnavailable, StoreTooLarge, StoreUnavailable
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.settings import Settings
from shared.store import Item, Store, Superseded
from shared.store import spill as module
from shared.store.item import LINK_ABOVE_BYTES, MAX_VALUE_BYTES, Spilled, encoded, parse
from shared.store.spill import LINK_SECONDS, MAX_SPILLED_BYTES, Link, Spill
from shared.task import Task
from tests.conftest import BUCKET, RETENTION_SECONDS, TABLE
from tests.support.clock import Clock
from tests.support.outage import DynamoDBOutage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TASK = Task("example", "a b/ü")
SPILL_BYTES = 65_536
DAYS = 90
DAY = 86_400
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


def noise(size: int, seed: int = 1) -> str:
    """Text that does not compress to less than `size` bytes."""
    return random.Random(seed).randbytes(size).hex()


NOISE = noise(70_000)
LARGE = {"rate": 30.40, "tiny": 5e-324, "long": int("9" * 39), "three": 3, "": [[], {}], "name": "名", "x": NOISE}
VAST = {"rows": ["0123456789"] * 450_000}
"""Of little size in S3, and too much for an answer."""


BARE: dict[str, Any] = {
    "task_id": {"S": TASK.id},
    "status": {"S": "completed"},
    "input_digest": {"S": ""},
    **{name: {"N": "7"} for name in ("generation", "created_at", "updated_at")},
}
"""An item without data."""


@pytest.fixture
def spill(s3: Any) -> Spill:
    return Spill(lambda: s3, BUCKET, spill_bytes=SPILL_BYTES, days=DAYS)


@pytest.fixture
def store(dynamodb: "DynamoDBClient", spill: Spill) -> Store:
    return Store(dynamodb, TABLE, RETENTION_SECONDS, spill)


@pytest.fixture
def objects(s3: Any) -> Callable[[], dict[str, bytes]]:
    """Every object in the bucket."""

    def objects() -> dict[str, bytes]:
        keys = [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
        return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}

    return objects


@pytest.fixture
def raw(dynamodb: "DynamoDBClient") -> Callable[[], dict[str, Any]]:
    """The item's attributes as DynamoDB has them."""
    return lambda: dynamodb.get_item(TableName=TABLE, Key={"task_id": {"S": TASK.id}})["Item"]


def begin(store: Store, clock: Clock) -> Item:
    item = store.begin(TASK, store.get(TASK, clock()), {}, clock())
    assert item
    return item


def completed(store: Store, clock: Clock, data: Json = LARGE) -> Item:
    """The item after a generation that ended with that data, not opened."""
    assert isinstance(store.complete(TASK, begin(store, clock).generation, data, clock()), Item)
    return there(store, clock)


def there(store: Store, clock: Clock) -> Item:
    item = store.get(TASK, clock())
    assert item
    return item


def key_of(item: Item) -> str:
    assert isinstance(item.data, Spilled)
    return item.data.key


# --- there and back


@pytest.mark.promise("large", "large data come back as the same text")
def test_large_data_come_back_as_the_same_text(store: Store, clock: Clock) -> None:
    opened = store.opened(completed(store, clock), clock())
    assert dumps(opened.data) == dumps(LARGE)
    assert opened.status == "completed"


@pytest.mark.promise("large", "large data come back as the same text")
@hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_value_comes_back_as_the_same_text(spill: Spill, value: Json) -> None:
    data = [value, NOISE]
    held = parse(BARE | {"data": TypeSerializer().serialize(spill.keep(TASK, 7, data, 0))})
    assert held
    assert isinstance(held.data, Spilled)
    assert dumps(spill.opened(held, 0).data) == dumps(data)


def test_the_item_holds_where_the_data_are_and_the_object_is_named_after_its_content(
    store: Store, clock: Clock, raw: Any, objects: Any
) -> None:
    generation = completed(store, clock).generation
    ((key, body),) = objects().items()
    name, content = hashlib.sha256(TASK.name.encode()).hexdigest(), hashlib.sha256(body).hexdigest()
    assert key == f"example/{name}/{generation}/data-{content}"
    assert gzip.decompress(body).decode() == dumps(LARGE)
    assert raw()["data"]["M"]["key"] == {"S": key}
    assert len(json.dumps(raw())) < 2_000


def test_the_longest_name_makes_a_key_that_s3_takes() -> None:
    longest = f"{'p' * 64}/{'0' * 64}/{'9' * 16}/data-{'0' * 64}"
    assert len(longest) < 1024


@pytest.mark.parametrize("over", [0, 1])
def test_what_compressed_takes_as_much_as_is_allowed_stays_in_the_item(
    s3: Any, dynamodb: "DynamoDBClient", clock: Clock, objects: Any, over: int
) -> None:
    size = len(encoded(LARGE)[1])
    spill = Spill(lambda: s3, BUCKET, spill_bytes=size - over, days=DAYS)
    store = Store(dynamodb, TABLE, RETENTION_SECONDS, spill)
    item = completed(store, clock)
    assert len(objects()) == over
    assert isinstance(item.data, Spilled) is bool(over)
    assert store.opened(item, clock()).data == LARGE


def test_data_that_an_answer_could_not_hold_go_to_s3_however_well_they_compress(store: Store, clock: Clock) -> None:
    item = completed(store, clock, VAST)
    assert isinstance(item.data, Spilled)
    assert item.data.size < SPILL_BYTES
    assert item.data.in_answer == carried(dumps(VAST)) > LINK_ABOVE_BYTES


def test_what_completes_returns_the_data_themselves_unless_an_answer_needs_a_link(store: Store, clock: Clock) -> None:
    done = store.complete(TASK, begin(store, clock).generation, LARGE, clock())
    assert isinstance(done, Item)
    assert (done.data, isinstance(there(store, clock).data, Spilled)) == (LARGE, True)
    vast = store.complete(TASK, begin(store, clock).generation, VAST, clock())
    assert vast == there(store, clock)


def test_without_a_bucket_data_stay_in_the_item_up_to_its_limit(dynamodb: "DynamoDBClient", clock: Clock) -> None:
    store = Store(dynamodb, TABLE, RETENTION_SECONDS)
    assert completed(store, clock).data == LARGE
    generation = begin(store, clock).generation
    with pytest.raises(StoreTooLarge, match=f"the limit is {MAX_VALUE_BYTES['data']}"):
        store.complete(TASK, generation, noise(2 * MAX_VALUE_BYTES["data"]), clock())


def test_data_over_the_limit_of_s3_are_refused_and_nothing_is_written(
    store: Store, clock: Clock, objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SPILLED_BYTES", SPILL_BYTES + 1)
    item = begin(store, clock)
    with pytest.raises(StoreTooLarge, match=r"data takes \d+ bytes, the limit is 65537"):
        store.complete(TASK, item.generation, LARGE, clock())
    assert there(store, clock) == item
    assert objects() == {}


def test_whatever_a_provider_may_answer_fits() -> None:
    assert MAX_SPILLED_BYTES >= MAX_RESPONSE_BYTES


# --- the first writer wins, here too


@pytest.mark.promise("large", "an object is named after its content: nothing is overwritten or stored twice")
def test_a_late_worker_of_an_older_generation_overwrites_nothing(store: Store, clock: Clock, objects: Any) -> None:
    old = begin(store, clock)
    store.cancel(TASK, old.generation, clock())
    new = completed(store, clock)
    before = objects()
    assert store.complete(TASK, old.generation, LARGE | {"late": True}, clock()) == Superseded(new)
    assert store.complete(TASK, new.generation, LARGE | {"late": True}, clock()) == Superseded(new)
    assert store.opened(there(store, clock), clock()).data == LARGE
    assert {key: body for key, body in objects().items() if key in before} == before
    assert len(objects()) == 3  # those of the late ones are orphans, which harm nobody


@pytest.mark.promise("large", "an object is named after its content: nothing is overwritten or stored twice")
def test_a_repeated_write_makes_no_second_object(store: Store, clock: Clock, objects: Any) -> None:
    item = completed(store, clock)
    assert store.complete(TASK, item.generation, LARGE, clock()) == Superseded(item)
    assert len(objects()) == 1


@pytest.mark.promise("large", "no item points to a missing object: the object is written first")
def test_the_object_is_there_before_the_item_says_so(store: Store, clock: Clock, s3: Any, dynamodb: Any) -> None:
    steps = []
    item = begin(store, clock)
    s3.meta.events.register("after-call.s3.PutObject", lambda **_: steps.append("object"))
    dynamodb.meta.events.register("before-call.dynamodb.UpdateItem", lambda **_: steps.append("item"))
    store.complete(TASK, item.generation, LARGE, clock())
    assert steps == ["object", "item"]


@pytest.mark.parametrize("error", [EndpointConnectionError, ReadTimeoutError])
def test_what_s3_does_not_take_leaves_the_item_as_it_was(
    store: Store, clock: Clock, s3: Any, dynamodb: "DynamoDBClient", error: Any
) -> None:
    def away(**_: object) -> None:
        raise error(endpoint_url="http://s3")

    item = begin(store, clock)
    s3.meta.events.register("before-call.s3.PutObject", away)
    calls = DynamoDBOutage(dynamodb).calls
    with pytest.raises(StoreUnavailable, match=f"S3: {error.__name__}"):
        store.complete(TASK, item.generation, LARGE, clock())
    assert calls == []
    assert there(store, clock) == item


def test_a_bucket_that_is_not_there_is_unavailable(dynamodb: "DynamoDBClient", s3: Any, clock: Clock) -> None:
    store = Store(dynamodb, TABLE, RETENTION_SECONDS, Spill(lambda: s3, "nobodys", spill_bytes=SPILL_BYTES, days=DAYS))
    with pytest.raises(StoreUnavailable, match="S3: NoSuchBucket"):
        store.complete(TASK, begin(store, clock).generation, LARGE, clock())


# --- what is not what was written


def spoil(s3: Any, item: Item, how: str) -> None:
    key = key_of(item)
    body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    match how:
        case "gone":
            s3.delete_object(Bucket=BUCKET, Key=key)
        case "foreign":
            s3.put_object(Bucket=BUCKET, Key=key, Body=gzip.compress(b'{"foreign":true}'))
        case "changed":
            s3.put_object(Bucket=BUCKET, Key=key, Body=body[:-1] + bytes([body[-1] ^ 1]))
        case "cut":
            s3.put_object(Bucket=BUCKET, Key=key, Body=body[:-1])
        case _:
            raise ValueError(how)


SPOILT = ["gone", "foreign", "changed", "cut"]


@pytest.mark.promise("large", "an object that is not what was written is never shown")
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("data", [LARGE, VAST], ids=["fetched", "linked"])
def test_an_object_that_is_not_what_was_written_is_never_shown(
    store: Store, clock: Clock, s3: Any, data: Json, how: str
) -> None:
    item = completed(store, clock, data)
    spoil(s3, item, how)
    with pytest.raises(DataUnavailable, match=r"^S3: "):
        store.opened(item, clock())


@pytest.mark.parametrize("how", SPOILT)
def test_a_task_in_progress_goes_on_without_stored_data_that_cannot_be_read(
    store: Store, clock: Clock, s3: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    item = completed(store, clock)
    following = begin(store, clock)
    assert following.data == item.data
    spoil(s3, item, how)
    assert store.opened(following, clock()).data == Link()
    assert [record.message for record in caplog.records] == ["data unavailable"]


def test_a_stream_that_breaks_is_unavailable(
    store: Store, clock: Clock, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise ReadTimeoutError(endpoint_url="http://s3")

    item = completed(store, clock)
    assert isinstance(item.data, Spilled)
    body, size = Broken(), item.data.size
    monkeypatch.setattr(s3, "get_object", lambda **_: {"Body": body, "ContentLength": size})
    with pytest.raises(DataUnavailable, match="ReadTimeoutError"):
        store.opened(item, clock())
    assert body.closed


def test_a_deployment_that_has_lost_its_bucket_says_so(dynamodb: "DynamoDBClient", store: Store, clock: Clock) -> None:
    item = completed(store, clock)
    bare = Store(dynamodb, TABLE, RETENTION_SECONDS)
    with pytest.raises(DataUnavailable, match="SPILL_BUCKET names no bucket"):
        bare.opened(there(bare, clock), clock())
    assert bare.opened(dataclasses.replace(item, status="pending"), clock()).data == Link()


# --- how long an object is needed


def test_the_next_generation_keeps_what_is_stored(store: Store, clock: Clock) -> None:
    completed(store, clock)
    clock.advance(20 * DAY)
    following = begin(store, clock)
    assert store.opened(following, clock()).data == LARGE
    store.fail(TASK, following.generation, {"reason": "upstream", "error": None, "refused": False}, clock())
    clock.advance(20 * DAY)
    assert store.opened(there(store, clock), clock()).data == LARGE


def test_what_is_kept_from_generation_to_generation_is_absent_before_the_lifecycle_may_remove_it(
    store: Store, clock: Clock, s3: Any
) -> None:
    item = completed(store, clock)
    clock.advance(RETENTION_SECONDS - 1)
    for _ in range(2):  # every item expires a retention after its end, but the data grow older than that
        store.cancel(TASK, begin(store, clock).generation, clock())
        clock.advance(RETENTION_SECONDS - 1)
    clock.advance(((DAYS - 1) * DAY * 1000 + item.updated_at - clock()) / 1000 - 0.001)
    following = begin(store, clock)
    assert store.opened(following, clock()).data == LARGE
    spoil(s3, item, "gone")
    clock.advance(0.001)
    assert store.opened(following, clock()).data is None


@pytest.mark.promise("large", "an object outlives every completed item that points to it")
def test_with_the_default_settings_an_object_outlives_every_completed_item_that_points_to_it() -> None:
    settings = Settings.from_environment({"SPILL_BUCKET": BUCKET})
    assert settings.retention_seconds <= (settings.spill_days - 1) * DAY


# --- links


@pytest.mark.promise("large", "what Lambda cannot carry is answered with a link that expires")
def test_data_that_an_answer_cannot_hold_are_a_link_that_ends(store: Store, clock: Clock, s3: Any) -> None:
    item = completed(store, clock, VAST)
    link = store.opened(item, clock()).data
    assert isinstance(link, Link)
    assert link.url
    assert f"/{key_of(item)}?" in link.url
    assert f"X-Amz-Expires={LINK_SECONDS}" in link.url
    assert "X-Amz-Signature=" in link.url
    assert link.expires_at == clock() + LINK_SECONDS * 1000


def test_a_linked_object_says_what_it_is(store: Store, clock: Clock, s3: Any) -> None:
    stored = s3.get_object(Bucket=BUCKET, Key=key_of(completed(store, clock, VAST)))
    assert (stored["ContentType"], stored["ContentEncoding"]) == ("application/json", "gzip")
    assert gzip.decompress(stored["Body"].read()).decode() == dumps(VAST)


# --- the client


def test_no_client_is_made_before_data_are_large(dynamodb: "DynamoDBClient", clock: Clock) -> None:
    def unwanted() -> Any:
        raise AssertionError("a client was made")

    store = Store(dynamodb, TABLE, RETENTION_SECONDS, Spill(unwanted, BUCKET, spill_bytes=SPILL_BYTES, days=DAYS))
    item = completed(store, clock, {"small": 1})
    assert store.opened(item, clock()).data == {"small": 1}


def test_32_threads_that_need_it_at_once_make_one_client(s3: Any) -> None:
    made = []

    def make() -> Any:
        made.append(s3)
        return s3

    spill = Spill(make, BUCKET, spill_bytes=SPILL_BYTES, days=DAYS)
    with ThreadPoolExecutor(32) as pool:
        kept = list(pool.map(lambda number: spill.keep(TASK, number, LARGE, 0), range(32)))
    assert len({str(one) for one in kept}) == 32
    assert made == [s3]


@pytest.mark.parametrize(("room", "spills"), [(0, False), (-1, True)])
def test_data_stay_in_their_item_up_to_what_an_answer_holds(
    store: Store, s3: Any, monkeypatch: pytest.MonkeyPatch, room: int, spills: bool
) -> None:
    data = {"x": "y" * 1000}
    monkeypatch.setattr(module, "LINK_ABOVE_BYTES", carried(dumps(data)) + room)
    item = store.begin(TASK, None, {}, 0)
    assert item
    store.complete(TASK, item.generation, data, 0)
    assert ("Contents" in s3.list_objects_v2(Bucket=BUCKET)) is spills
