"""How asynchronous peers ask the provider and write to DynamoDB: aiohttp and aiobotocore."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from benchmarks.peers.asked import CREDENTIALS, REGION, Asked, write


@asynccontextmanager
async def asking(what: Asked) -> AsyncIterator[Callable[[int, float], Awaitable[None]]]:
    """A function that does one task."""
    config = AioConfig(max_pool_connections=what.parallel, parameter_validation=False)
    made = get_session().create_client(
        "dynamodb", region_name=REGION, endpoint_url=what.dynamodb_url, config=config, **CREDENTIALS
    )
    async with made as dynamodb, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=what.parallel)) as session:

        async def ask(number: int, seconds: float) -> None:
            async with session.get(what.provider_url, params={"seconds": str(seconds)}) as reply:
                said = await reply.json()
            assert said["status"] == "completed"
            await dynamodb.update_item(**write(number, str(said["data"])))

        yield ask
