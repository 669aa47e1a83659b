"""dramatiq: a list of Redis with acknowledgements, tasks in threads."""

import threading

import boto3
import dramatiq
import requests
from botocore.config import Config
from dramatiq.brokers.redis import RedisBroker
from requests.adapters import HTTPAdapter

from benchmarks.peers.asked import CREDENTIALS, REGION, Measured, asked, write

what = asked()
broker = RedisBroker(url=what.redis_url, namespace="dramatiq")
dramatiq.set_broker(broker)
session = requests.Session()
session.mount("http://", HTTPAdapter(pool_maxsize=what.parallel))
dynamodb = boto3.client(
    "dynamodb",
    region_name=REGION,
    endpoint_url=what.dynamodb_url,
    config=Config(max_pool_connections=what.parallel, parameter_validation=False),
    **CREDENTIALS,
)
done = threading.Semaphore(0)


@dramatiq.actor
def fetch(number: int, seconds: float) -> None:
    said = session.get(what.provider_url, params={"seconds": str(seconds)}, timeout=20).json()
    assert said["status"] == "completed"
    dynamodb.update_item(**write(number, str(said["data"])))
    done.release()


def main() -> None:
    """Each round's tasks are there before its worker begins, or goes on."""
    measured, worker = Measured(), dramatiq.Worker(broker, worker_threads=what.parallel)
    worker.start()
    for tasks, seconds in what.rounds:
        worker.pause()
        for number in range(tasks):
            fetch.send(number, seconds)
        with measured.taking():
            worker.resume()
            for _ in range(tasks):
                done.acquire()
    worker.stop()
    measured.tell("dramatiq", "boto3")


if __name__ == "__main__":
    main()
