"""`make dev`: keeps the whole stack up, says how to try it, and shows the functions' logs until Ctrl-C.

Ports: third party 9001, gateway 9002 (REST API events), Redis 9003, DynamoDB 9004, gateway 9005 (HTTP API events).
local/sam-env.json needs 9001, 9003 and 9004.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from local.output import until_unread
from local.servers.redis_server import NoServerError, is_free
from local.stack import Ports, Schedules, Stack, ended_by_signals

PORTS = Ports(third_party=9001, gateway=9002, redis=9003, dynamodb=9004, http_gateway=9005)
SCHEDULES = Schedules(process_seconds=60, reconcile_seconds=300)


def guide(stack: Stack) -> str:
    """What to type."""
    flush = f"{sys.executable} -c 'import redis; redis.Redis(port={stack.redis.port}).flushall()'"
    return f"""
Meanwhile is up; Ctrl-C ends it. Ask, and ask again a little later:

  curl -i '{stack.url}/?task-name=acme'
  curl -i {stack.url}/tasks -d '{{"provider": "coin", "name": "heads or tails"}}'
  curl -s {stack.url}/tasks/example/acme
  curl -s {stack.url}/tasks/example/acme -H 'Prefer: wait=20'
  curl -s -X DELETE {stack.url}/tasks/example/acme
  curl -s {stack.third_party.url}/log

Let a workflow wait for the task, by its task token, and see that it is told of the end:

  curl -s {stack.url}/tasks -d '{{"name": "awaited", "notify": {{"stepFunctionsToken": "AAAAKgAAAAIAAAAA"}}}}'

Let the provider call back: the log shows "called back", and the task is completed without a poll:

  curl -s {stack.url}/tasks -d '{{"provider": "hook", "name": "called"}}'
  curl -s {stack.url}/tasks/hook/called

The same with HTTP API events: {stack.http_url}
Redis: {stack.redis.url}   DynamoDB and S3: {stack.dynamodb.url}

process runs every minute, reconcile every five. Empty Redis, and see that the tasks are finished all the same:

  {flush}
"""


def ports() -> Ports:
    """The usual ports; where one is taken, a free one, and a message about it."""
    taken = {name: port for name, port in asdict(PORTS).items() if not is_free(port)}
    for name, port in taken.items():
        print(f"port {port} is taken: {name} takes another (sam local will not find it)")
    return Ports(**{name: 0 if name in taken else port for name, port in asdict(PORTS).items()})


def run(chosen: Ports) -> None:
    """Runs until interrupted; prints which processes to kill, whenever they change."""
    with Stack(ports=chosen, schedules=SCHEDULES, log=sys.stdout) as stack:
        print(guide(stack), flush=True)
        told: list[int] = []
        while True:
            pids = stack.functions["ProcessFunction"].pids()
            if pids and pids != told:
                print(f"process runs as: kill -9 {' '.join(map(str, pids))}", flush=True)
                told = pids
            sys.stdout.flush()  # fails where a log line could not be written: nobody reads any more
            time.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after Ctrl-C or SIGTERM; 1 where there is no Redis server to start."""
    parser = argparse.ArgumentParser(prog="python -m local.dev", description="Keeps the local stack up.")
    parser.add_argument("--free-ports", action="store_true", help="any free ports instead of the usual ones")
    chosen = Ports() if parser.parse_args(arguments).free_ports else ports()
    try:
        with ended_by_signals():
            run(chosen)
    except KeyboardInterrupt:
        print("\neverything has ended")
    except NoServerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(until_unread(main))
