"""Large data go to S3 before their item is written, and come back exactly or not at all."""

import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast
from unittest.mock import Mock

import pytest
from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shared.bounds import BOUNDS, Bound
from shared.codec import Json, carried, dumps
from shared.errors import DataUnavailable, StoreTooLarge, StoreUnavailable
from shared.provider.wire.message import MAX_RESPONSE_BYTES
from shared.settings import Settings
from shared.store import Ended, Item, Store, Superseded, Table
from shared.store import spill as module
from shared.store.item import LINK_ABOVE_BYTES, MAX_VALUE_BYTES, Spilled, checked, compressed
from shared.store.rows import parse
from shared.store.spill import LINK_SECONDS, Link, Spill
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
    "input": {"S": "{}"},
    **{name: {"N": "7"} for name in ("generation", "created_at", "updated_at")},
}
"""An item without data."""


@pytest.fixture
def spill(s3: Any) -> Spill:
    return Spill(lambda: s3, BUCKET, spill_bytes=SPILL_BYTES, days=DAYS)


@dataclass
class Shelf:
    """A store that spills, and what stands behind it."""

    store: Store
    clock: Clock
    dynamodb: "DynamoDBClient"
    s3: Any

    def over(self, make: Callable[[], Any] | None = None, bucket: str = BUCKET, spill_bytes: int = SPILL_BYTES) -> Self:
        """The same with another spill."""
        spill = Spill(make or (lambda: self.s3), bucket, spill_bytes=spill_bytes, days=DAYS)
        return replace(self, store=Store(Table(self.dynamodb, TABLE), RETENTION_SECONDS, spill))

    def bare(self) -> Self:
        """The same without a bucket."""
        return replace(self, store=Store(Table(self.dynamodb, TABLE), RETENTION_SECONDS))

    def begin(self) -> Item:
        item = self.store.begin(TASK, self.store.get(TASK, self.clock()), {}, self.clock())
        assert item
        return item

    def complete(self, item: Item, data: Json) -> Ended:
        return self.store.complete(TASK, item.generation, data, self.clock())

    def completed(self, data: Json = LARGE) -> Item:
        """The item after a generation that ended with that data, not opened."""
        assert isinstance(self.complete(self.begin(), data), Item)
        return self.there()

    def there(self) -> Item:
        item = self.store.get(TASK, self.clock())
        assert item
        return item

    def opened(self, item: Item) -> Json | Link:
        """Its data, as they are shown."""
        return self.store.opened(item, self.clock()).data

    def objects(self) -> dict[str, bytes]:
        """Every object in the bucket."""
        keys = [one["Key"] for one in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
        return {key: self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}

    def raw(self) -> dict[str, Any]:
        """The item's attributes as DynamoDB has them."""
        return dict(self.dynamodb.get_item(TableName=TABLE, Key={"task_id": {"S": TASK.id}})["Item"])

    def spoil(self, item: Item, how: str) -> None:
        """Make of its object what was not written."""
        where = {"Bucket": BUCKET, "Key": key_of(item)}
        body = self.s3.get_object(**where)["Body"].read()
        spoilt = {
            "foreign": gzip.compress(b'{"foreign":true}'),
            "changed": body[:-1] + bytes([body[-1] ^ 1]),
            "cut": body[:-1],
        }
        if how == "gone":
            self.s3.delete_object(**where)
        else:
            self.s3.put_object(**where, Body=spoilt[how])


@pytest.fixture
def shelf(clock: Clock, dynamodb: "DynamoDBClient", s3: Any, spill: Spill) -> Shelf:
    return Shelf(Store(Table(dynamodb, TABLE), RETENTION_SECONDS, spill), clock, dynamodb, s3)


def key_of(item: Item) -> str:
    assert isinstance(item.data, Spilled)
    return item.data.key


# --- there and back


@pytest.mark.promise("large", "large data come back as the same text")
def test_large_data_come_back_as_the_same_text(shelf: Shelf) -> None:
    opened = shelf.store.opened(shelf.completed(), shelf.clock())
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


def test_the_item_holds_where_the_data_are_and_the_object_is_named_after_its_content(shelf: Shelf) -> None:
    generation = shelf.completed().generation
    ((key, body),) = shelf.objects().items()
    name, content = hashlib.sha256(TASK.name.encode()).hexdigest(), hashlib.sha256(body).hexdigest()
    assert key == f"example/{name}/{generation}/data-{content}"
    assert gzip.decompress(body).decode() == dumps(LARGE)
    assert shelf.raw()["data"]["M"]["key"] == {"S": key}
    assert len(json.dumps(shelf.raw())) < 2_000


def test_the_longest_name_makes_a_key_that_s3_takes() -> None:
    assert len(f"{'p' * 64}/{'0' * 64}/{'9' * 16}/data-{'0' * 64}") < 1024


@pytest.mark.parametrize("over", [0, 1])
def test_what_compressed_takes_as_much_as_is_allowed_stays_in_the_item(shelf: Shelf, over: int) -> None:
    shelf = shelf.over(spill_bytes=len(compressed(checked(LARGE, "data"))) - over)
    item = shelf.completed()
    assert len(shelf.objects()) == over
    assert isinstance(item.data, Spilled) is bool(over)
    assert shelf.opened(item) == LARGE


def test_data_that_an_answer_could_not_hold_go_to_s3_however_well_they_compress(shelf: Shelf) -> None:
    item = shelf.completed(VAST)
    assert isinstance(item.data, Spilled)
    assert item.data.size < SPILL_BYTES
    assert item.data.in_answer == carried(dumps(VAST)) > LINK_ABOVE_BYTES


def test_what_completes_returns_the_data_themselves_unless_an_answer_needs_a_link(shelf: Shelf) -> None:
    done = shelf.complete(shelf.begin(), LARGE)
    assert isinstance(done, Item)
    assert (done.data, isinstance(shelf.there().data, Spilled)) == (LARGE, True)
    vast = shelf.complete(shelf.begin(), VAST)
    assert vast == shelf.there()


def test_without_a_bucket_data_stay_in_the_item_up_to_its_limit(shelf: Shelf) -> None:
    bare = shelf.bare()
    assert bare.store.opened(bare.completed(), bare.clock()).data == LARGE
    with pytest.raises(StoreTooLarge, match=f"the limit is {MAX_VALUE_BYTES['data']}"):
        bare.completed(noise(2 * MAX_VALUE_BYTES["data"]))


def test_data_over_the_limit_of_s3_are_refused_and_nothing_is_written(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C12: counted uncompressed, before it is compressed."""
    size = carried(dumps(LARGE))
    compress = Mock(side_effect=gzip.compress)
    monkeypatch.setattr("shared.store.item.gzip.compress", compress)
    item = shelf.begin()
    monkeypatch.setitem(cast("dict[str, Bound]", BOUNDS), "data in S3", replace(BOUNDS["data in S3"], most=size - 1))
    with pytest.raises(StoreTooLarge, match=rf"data in S3 takes {size} bytes uncompressed, the limit is {size - 1}"):
        shelf.complete(item, LARGE)
    assert shelf.there() == item
    assert shelf.objects() == {}
    compress.assert_not_called()
    monkeypatch.setitem(cast("dict[str, Bound]", BOUNDS), "data in S3", replace(BOUNDS["data in S3"], most=size))
    assert isinstance(shelf.complete(item, LARGE), Item)


def test_whatever_a_provider_may_answer_fits() -> None:
    assert BOUNDS["data in S3"].most >= 4 * MAX_RESPONSE_BYTES  # an array of empty texts counts twice, and more as JSON


# --- the first writer wins, here too


@pytest.mark.promise("large", "an object is named after its content: nothing is overwritten or stored twice")
@pytest.mark.parametrize("value", [[], [1, {"a": None}], [NOISE], ["x" * 100_000]])
def test_what_is_kept_for_the_next_attempt_comes_back_and_belongs_to_one_generation(
    spill: Spill, s3: Any, value: Json
) -> None:
    kept = spill.put(TASK, 7, value)
    assert spill.get(TASK, 7, kept) == value
    [there] = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    folder = hashlib.sha256(TASK.name.encode()).hexdigest()
    assert there["Key"] == f"example/{folder}/7/pages-{kept.digest}"
    assert there["Size"] == kept.size
    with pytest.raises(DataUnavailable):
        spill.get(TASK, 8, kept)


def test_what_is_kept_comes_back_exactly_or_not_at_all(spill: Spill, s3: Any) -> None:
    kept = spill.put(TASK, 7, [1])
    [there] = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    for body in (gzip.compress(b"[2]", mtime=0), b"", b"[1]"):
        s3.put_object(Bucket=BUCKET, Key=there["Key"], Body=body)
        with pytest.raises(DataUnavailable):
            spill.get(TASK, 7, kept)


def test_a_late_worker_of_an_older_generation_overwrites_nothing(shelf: Shelf) -> None:
    old = shelf.begin()
    shelf.store.cancel(TASK, old.generation, shelf.clock())
    new = shelf.completed()
    before = shelf.objects()
    assert shelf.complete(old, LARGE | {"late": True}) == Superseded(new)
    assert shelf.complete(new, LARGE | {"late": True}) == Superseded(new)
    assert shelf.opened(shelf.there()) == LARGE
    assert {key: body for key, body in shelf.objects().items() if key in before} == before
    assert len(shelf.objects()) == 3  # those of the late ones are orphans, which harm nobody


@pytest.mark.promise("large", "an object is named after its content: nothing is overwritten or stored twice")
def test_a_repeated_write_makes_no_second_object(shelf: Shelf) -> None:
    item = shelf.completed()
    assert shelf.complete(item, LARGE) == Superseded(item)
    assert len(shelf.objects()) == 1


@pytest.mark.promise("large", "no item points to a missing object: the object is written first")
def test_the_object_is_there_before_the_item_says_so(shelf: Shelf) -> None:
    steps = []
    item = shelf.begin()
    shelf.s3.meta.events.register("after-call.s3.PutObject", lambda **_: steps.append("object"))
    shelf.dynamodb.meta.events.register("before-call.dynamodb.UpdateItem", lambda **_: steps.append("item"))
    shelf.complete(item, LARGE)
    assert steps == ["object", "item"]


@pytest.mark.parametrize("error", [EndpointConnectionError, ReadTimeoutError])
def test_what_s3_does_not_take_leaves_the_item_as_it_was(shelf: Shelf, error: Any) -> None:
    item = shelf.begin()
    away = Mock(side_effect=error(endpoint_url="http://s3"))
    shelf.s3.meta.events.register("before-call.s3.PutObject", away)
    calls = DynamoDBOutage(shelf.dynamodb).calls
    with pytest.raises(StoreUnavailable, match=f"S3: {error.__name__}"):
        shelf.complete(item, LARGE)
    assert calls == []
    assert shelf.there() == item


def test_a_bucket_that_is_not_there_is_unavailable(shelf: Shelf) -> None:
    with pytest.raises(StoreUnavailable, match="S3: NoSuchBucket"):
        shelf.over(bucket="nobodys").completed()


# --- what is not what was written


SPOILT = ["gone", "foreign", "changed", "cut"]


@pytest.mark.promise("large", "an object that is not what was written is never shown")
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("data", [LARGE, VAST], ids=["fetched", "linked"])
def test_an_object_that_is_not_what_was_written_is_never_shown(shelf: Shelf, data: Json, how: str) -> None:
    item = shelf.completed(data)
    shelf.spoil(item, how)
    with pytest.raises(DataUnavailable, match=r"^S3: "):
        shelf.opened(item)


@pytest.mark.parametrize("how", SPOILT)
def test_a_task_in_progress_goes_on_without_stored_data_that_cannot_be_read(
    shelf: Shelf, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    item = shelf.completed()
    following = shelf.begin()
    assert following.data == item.data
    shelf.spoil(item, how)
    assert shelf.opened(following) == Link()
    assert [record.message for record in caplog.records] == ["data unavailable"]


def test_a_stream_that_breaks_is_unavailable(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise ReadTimeoutError(endpoint_url="http://s3")

    item = shelf.completed()
    assert isinstance(item.data, Spilled)
    body, size = Broken(), item.data.size
    monkeypatch.setattr(shelf.s3, "get_object", lambda **_: {"Body": body, "ContentLength": size})
    with pytest.raises(DataUnavailable, match="ReadTimeoutError"):
        shelf.opened(item)
    assert body.closed


def test_a_deployment_that_has_lost_its_bucket_says_so(shelf: Shelf) -> None:
    item = shelf.completed()
    bare = shelf.bare()
    with pytest.raises(DataUnavailable, match="SPILL_BUCKET names no bucket"):
        bare.opened(bare.there())
    assert bare.opened(replace(item, status="pending")) == Link()


# --- how long an object is needed


def test_the_next_generation_keeps_what_is_stored(shelf: Shelf) -> None:
    shelf.completed()
    shelf.clock.advance(20 * DAY)
    following = shelf.begin()
    assert shelf.opened(following) == LARGE
    shelf.store.fail(TASK, following.generation, {"reason": "upstream", "error": None, "refused": False}, shelf.clock())
    shelf.clock.advance(20 * DAY)
    assert shelf.opened(shelf.there()) == LARGE


def test_what_is_kept_from_generation_to_generation_is_absent_before_the_lifecycle_may_remove_it(shelf: Shelf) -> None:
    item = shelf.completed()
    shelf.clock.advance(RETENTION_SECONDS - 1)
    for _ in range(2):  # every item expires a retention after its end, but the data grow older than that
        shelf.store.cancel(TASK, shelf.begin().generation, shelf.clock())
        shelf.clock.advance(RETENTION_SECONDS - 1)
    shelf.clock.advance(((DAYS - 1) * DAY * 1000 + item.updated_at - shelf.clock()) / 1000 - 0.001)
    following = shelf.begin()
    assert shelf.opened(following) == LARGE
    shelf.spoil(item, "gone")
    shelf.clock.advance(0.001)
    assert shelf.opened(following) is None


@pytest.mark.promise("large", "an object outlives every completed item that points to it")
def test_with_the_default_settings_an_object_outlives_every_completed_item_that_points_to_it() -> None:
    settings = Settings.from_environment({"SPILL_BUCKET": BUCKET})
    assert settings.retention_seconds <= (settings.spill_days - 1) * DAY


# --- links


@pytest.mark.promise("large", "what Lambda cannot carry is answered with a link that expires")
def test_data_that_an_answer_cannot_hold_are_a_link_that_ends(shelf: Shelf) -> None:
    item = shelf.completed(VAST)
    link = shelf.opened(item)
    assert isinstance(link, Link)
    for part in (f"/{key_of(item)}?", f"X-Amz-Expires={LINK_SECONDS}", "X-Amz-Signature="):
        assert part in (link.url or "")
    assert link.expires_at == shelf.clock() + LINK_SECONDS * 1000


def test_a_linked_object_says_what_it_is(shelf: Shelf) -> None:
    stored = shelf.s3.get_object(Bucket=BUCKET, Key=key_of(shelf.completed(VAST)))
    assert (stored["ContentType"], stored["ContentEncoding"]) == ("application/json", "gzip")
    assert gzip.decompress(stored["Body"].read()).decode() == dumps(VAST)


# --- the client


def test_no_client_is_made_before_data_are_large(shelf: Shelf) -> None:
    make = Mock()
    shelf = shelf.over(make)
    assert shelf.opened(shelf.completed({"small": 1})) == {"small": 1}
    make.assert_not_called()


def test_32_threads_that_need_it_at_once_make_one_client(shelf: Shelf) -> None:
    make = Mock(return_value=shelf.s3)
    spill = Spill(make, BUCKET, spill_bytes=SPILL_BYTES, days=DAYS)
    with ThreadPoolExecutor(32) as pool:
        kept = list(pool.map(lambda number: spill.keep(TASK, number, LARGE, 0), range(32)))
    assert len({str(one) for one in kept}) == 32
    make.assert_called_once_with()


@pytest.mark.parametrize(("room", "spills"), [(0, False), (-1, True)])
def test_data_stay_in_their_item_up_to_what_an_answer_holds(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, room: int, spills: bool
) -> None:
    data = {"x": "y" * 1000}
    monkeypatch.setattr(module, "LINK_ABOVE_BYTES", carried(dumps(data)) + room)
    shelf.completed(data)
    assert bool(shelf.objects()) is spills
