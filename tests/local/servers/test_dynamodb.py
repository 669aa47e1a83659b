"""The local table is the deployed one, in a server that leaves nothing behind."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
import requests

from local.sam_template import table
from local.servers.dynamodb import BUCKET_NAME, TABLE_NAME, DynamoDB, table_definition, time_to_live
from shared import wiring
from shared.store import Store, Table
from shared.store.spill import Spill
from shared.task import Task


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[DynamoDB]:
    with DynamoDB() as dynamodb:
        yield dynamodb


def test_the_definition_has_the_keys_the_index_and_the_billing_of_the_template() -> None:
    definition = table_definition("other")
    assert definition["TableName"] == "other"
    assert definition["KeySchema"] == [{"AttributeName": "task_id", "KeyType": "HASH"}]
    [index] = definition["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "open"
    assert index["Projection"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["generation"]}
    assert definition["BillingMode"] == table()["BillingMode"] == "PAY_PER_REQUEST"
    assert time_to_live() == {"AttributeName": "expires_at", "Enabled": True}


def test_the_server_has_the_table_with_index_and_ttl(dynamodb: DynamoDB) -> None:
    client = dynamodb.client()
    description = client.describe_table(TableName=TABLE_NAME)["Table"]
    assert description["TableStatus"] == "ACTIVE"
    assert [index["IndexName"] for index in description["GlobalSecondaryIndexes"]] == ["open"]
    ttl = client.describe_time_to_live(TableName=TABLE_NAME)["TimeToLiveDescription"]
    assert ttl == {"AttributeName": "expires_at", "TimeToLiveStatus": "ENABLED"}


def test_it_keeps_items_and_large_data_in_its_bucket_and_a_link_leads_there(
    dynamodb: DynamoDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", dynamodb.url)
    store = Store(Table(dynamodb.client(), TABLE_NAME), 60, Spill(wiring.s3, BUCKET_NAME, spill_bytes=4096, days=2))
    task, data = Task("example", "a b/ü%"), {"x": Random(1).randbytes(3_000_000).hex()}
    item = store.begin(task, None, {}, 0)
    assert item
    store.complete(task, item.generation, data, 0)
    done = store.get(task, 0)
    assert done
    answered = requests.get(store.opened(done, 0).data.url, timeout=30)
    assert (answered.status_code, answered.headers["content-type"]) == (200, "application/json")
    assert answered.json() == data


def test_of_conditional_writes_at_the_same_time_exactly_one_succeeds(dynamodb: DynamoDB) -> None:
    client = dynamodb.client()

    def won(writer: int) -> int:
        item = {"task_id": {"S": f"example/{writer // 8}"}, "by": {"N": str(writer)}}
        try:
            client.put_item(TableName=TABLE_NAME, Item=item, ConditionExpression="attribute_not_exists(task_id)")
        except client.exceptions.ConditionalCheckFailedException:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(won, range(80))) == 10


def test_a_port_that_is_taken_is_said_clearly(dynamodb: DynamoDB, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=f"did not start on port {dynamodb.port}"):
        DynamoDB(dynamodb.port).start()
    capfd.readouterr()


def test_it_ends_with_the_process_that_started_it_and_then_answers_no_more() -> None:
    dynamodb = DynamoDB()
    dynamodb.start()
    process = dynamodb._process
    assert process
    assert process.stdin
    process.stdin.close()  # as the kernel does for a parent that was killed
    assert process.wait(timeout=30) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", dynamodb.port))
    dynamodb.stop()
    dynamodb.stop()  # harmless
