"""taskiq: a stream of Redis with acknowledgements, tasks in one event loop."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.peers.asked import Measured, asked
from benchmarks.peers.aws import asking

what = asked()
broker = RedisStreamBroker(what.redis_url, queue_name="taskiq")
done = asyncio.Semaphore(0)
ask: Callable[[int, float], Awaitable[None]]


@broker.task
async def fetch(number: int, seconds: float) -> None:
    await ask(number, seconds)
    done.release()


async def main() -> None:
    """The tasks are there before the receiver begins, and the connections, which no task of its own opened."""
    global ask
    measured = Measured()
    async with asking(what) as ask:
        await broker.startup()
        [(warm, seconds), (tasks, each)] = what.rounds
        await asyncio.gather(*(ask(number, seconds) for number in range(warm)))
        for number in range(tasks):
            await fetch.kiq(number, each)
        with measured.taking():
            receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=what.parallel))
            for _ in range(tasks):
                await done.acquire()
        measured.tell("taskiq", "taskiq-redis", "aiobotocore")
        receiver.cancel()
    os._exit(0)  # its last read of the stream would wait


if __name__ == "__main__":
    asyncio.run(main())
