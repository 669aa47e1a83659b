"""Redis and DynamoDB that go away and come back when a test says so, and that list what they were asked."""

from typing import TYPE_CHECKING, Any

from botocore.exceptions import EndpointConnectionError
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBOutage:
    """Operations of this client that stand in `away` fail as on a closed port; `calls` lists all that were tried."""

    def __init__(self, client: "DynamoDBClient") -> None:
        self.away: set[str] = set()
        self.calls: list[str] = []
        client.meta.events.register("before-call.dynamodb", self._call)

    def _call(self, model: Any, **_: object) -> None:
        self.calls.append(model.name)
        if model.name in self.away:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


class RedisOutage:
    """While `away`, every command of this client fails as on a closed port; `calls` lists all that were tried."""

    def __init__(self, client: "Redis") -> None:
        self.away = False
        self.calls: list[str] = []
        self._execute: Any = client.execute_command
        client.execute_command = self._run  # type: ignore[method-assign]

    def _run(self, *arguments: Any, **options: Any) -> Any:
        self.calls.append(arguments[0])
        if self.away:
            raise RedisConnectionError("Connection refused")
        return self._execute(*arguments, **options)
