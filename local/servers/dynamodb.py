"""DynamoDB, S3, SQS on this machine: a server in a process of its own, with the template's table, a bucket, a queue."""

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, cast

import boto3

from local import ROOT, sam_template
from local.running import Running

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import CreateTableInputTypeDef, TimeToLiveSpecificationTypeDef

TABLE_NAME = "meanwhile"
BUCKET_NAME = "meanwhile-spill"
WAKE_QUEUE_NAME = "meanwhile-wake"
REGION = "us-east-1"
DUMMY_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


def table_definition(name: str = TABLE_NAME) -> "CreateTableInputTypeDef":
    """The arguments of create_table: keys, index, billing and stream as the template has them."""
    parts = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
    stream = {"StreamEnabled": True, **sam_template.table()["StreamSpecification"]}
    kept = {part: sam_template.table()[part] for part in parts}
    definition = {"TableName": name, **kept, "StreamSpecification": stream}
    return cast("CreateTableInputTypeDef", definition)


def time_to_live() -> "TimeToLiveSpecificationTypeDef":
    """The template's TTL attribute, for update_time_to_live."""
    return cast("TimeToLiveSpecificationTypeDef", sam_template.table()["TimeToLiveSpecification"])


def create_table(client: "DynamoDBClient", name: str = TABLE_NAME) -> None:
    """Creates the table as deployed; returns when it can be used."""
    client.create_table(**table_definition(name))
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 20})
    client.update_time_to_live(TableName=name, TimeToLiveSpecification=time_to_live())


class DynamoDB(Running):
    """The server with an empty table; a context manager. `port` 0 takes a free one."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.wake_queue_url = ""
        self._process: subprocess.Popen[str] | None = None
        self._client: DynamoDBClient | None = None

    @property
    def url(self) -> str:
        """The value for AWS_ENDPOINT_URL_DYNAMODB, …_S3 and …_SQS."""
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> "DynamoDBClient":
        """A client of this server, always the same."""
        if self._client is None:
            self._client = self._made("dynamodb")
        return self._client

    def streams(self) -> Any:
        """A client that reads the table's stream; the caller closes it."""
        return self._made("dynamodbstreams")

    def s3(self) -> Any:
        """A client of its S3; the caller closes it."""
        return self._made("s3")

    def sqs(self) -> Any:
        """A client of its SQS; the caller closes it."""
        return self._made("sqs")

    def _made(self, service: Literal["dynamodb", "dynamodbstreams", "s3", "sqs"]) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=DUMMY_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=DUMMY_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def start(self) -> None:
        """Starts it and creates table and bucket; RuntimeError when it does not come up."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "local.servers.dynamodb_server", str(self.port)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert self._process.stdout
        said = self._process.stdout.readline()
        if not said:
            self.stop()
            raise RuntimeError(f"moto's DynamoDB did not start on port {self.port or '(any)'}")
        self.port = int(said)
        create_table(self.client())
        with closing(self.s3()) as s3:
            s3.create_bucket(Bucket=BUCKET_NAME)
        with closing(self.sqs()) as sqs:
            made = sqs.create_queue(QueueName=WAKE_QUEUE_NAME, Attributes=sam_template.wake_queue())
            self.wake_queue_url = made["QueueUrl"]

    def stop(self) -> None:
        """Ends it; its data is gone. Harmless when it is not running."""
        if self._client is not None:
            self._client.close()
            self._client = None
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # waits for its end and closes its pipes
                pass
