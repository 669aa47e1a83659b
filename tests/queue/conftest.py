"""The contract of the queue is held on every kind of Redis, and by the double."""

import pytest

from shared.queue import Queue
from tests.support.desk import Desk
from tests.support.keys import Bench
from tests.support.redis_servers import EVERY_KIND


@pytest.fixture(params=EVERY_KIND)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """Here the double too."""
    kind: str = request.param
    return kind


@pytest.fixture
def desk(queue: Queue, bench: Bench) -> Desk:
    """The queue, whose keys are checked at the end, and its keys."""
    return Desk(queue, bench.keys)
