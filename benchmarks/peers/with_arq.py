"""arq: a sorted set of Redis, tasks in one event loop."""

import asyncio
from typing import Any

from arq import Worker, create_pool
from arq.connections import RedisSettings
from arq.worker import func

from benchmarks.peers.asked import Measured, asked
from benchmarks.peers.aws import asking


async def main() -> None:
    """Each round's tasks are there before its worker begins; it ends when none is left."""
    what, measured = asked(), Measured()
    settings = RedisSettings.from_dsn(what.redis_url)
    async with asking(what) as ask:

        async def fetch(_: dict[Any, Any], number: int, seconds: float) -> None:
            await ask(number, seconds)

        pool = await create_pool(settings)
        for tasks, seconds in what.rounds:
            for number in range(tasks):
                await pool.enqueue_job("fetch", number, seconds)
            worker = Worker(
                [func(fetch, name="fetch", keep_result=0)],
                redis_pool=pool,
                max_jobs=what.parallel,
                burst=True,
                handle_signals=False,
                poll_delay=0.05,
            )
            with measured.taking():
                await worker.async_run()
            assert worker.jobs_complete == tasks
        await pool.aclose()
    measured.tell("arq", "aiobotocore")


if __name__ == "__main__":
    asyncio.run(main())
