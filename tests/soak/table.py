"""The soak's DynamoDB, a process of its own: moto, one request at a time, with its troubles; every write is recorded.

What is recorded are images from before and after, taken beside moto's own store: whatever a request said, what it did
to the item is seen. `python -m tests.soak.table JOURNAL SEED`; a line on its input ends the troubles.
"""

import io
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from moto.dynamodb.models import dynamodb_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from local.servers.dynamodb import REGION, TABLE_NAME
from tests.soak.journal import Journal

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ACCOUNT = "123456789012"
SLOW_SECONDS = 1.2
"""Longer than the product's client waits for an answer."""
TROUBLES = {"throttled": 5, "error": 3, "lost reply": 5, "slow": 2}
"""What may happen to a request, and how often beside the others."""
SHARE = 0.03
"""Of the requests, in trouble."""
KILLED = 0.06
"""Of the writes, those after which whoever wrote dies: where what is stored and what Redis holds differ."""

OPERATIONS = ("GetItem", "BatchGetItem", "UpdateItem", "PutItem", "DeleteItem", "Query")


class Recorded:
    """moto behind a journal."""

    def __init__(self, application: "WSGIApplication", journal: Journal, random: Random) -> None:
        self.is_calm = False
        self._application = application
        self._journal = journal
        self._random = random
        self._lock = threading.Lock()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        operation = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")[2]
        worker = re.search(r"app/(\d+)-(\w+)", environ.get("HTTP_USER_AGENT", ""))
        if worker is None or operation not in OPERATIONS:
            with self._lock:
                return self._application(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        key = json.loads(body).get("Key", {})
        facts = {"operation": operation, "task": key.get("task_id", {}).get("S"), "worker": int(worker[1])}
        facts["function"] = worker[2]
        trouble = self._trouble(operation)
        if trouble and trouble != "kill":
            self._journal.write("fault", place="dynamodb", kind=trouble, **facts)
        if trouble in ("throttled", "error"):
            return _refused(trouble, start_response)
        answer = self._done(environ, start_response, key, facts, is_lost=trouble == "lost reply")
        if trouble == "slow":
            time.sleep(SLOW_SECONDS)
        if trouble == "kill":
            self._journal.write("kill", function="whoever asked DynamoDB", worker=facts["worker"])
            with suppress(ProcessLookupError):
                os.kill(facts["worker"], signal.SIGKILL)
        return answer

    def _trouble(self, operation: str) -> str | None:
        with self._lock:
            if self.is_calm:
                return None
            if operation == "UpdateItem" and self._random.random() < KILLED:
                return "kill"
            if self._random.random() > SHARE:
                return None
            return self._random.choices(list(TROUBLES), weights=list(TROUBLES.values()))[0]

    def _done(
        self, environ: "WSGIEnvironment", start_response: "StartResponse", key: Any, facts: Any, *, is_lost: bool
    ) -> Iterable[bytes]:
        said: list[Any] = []

        def listen(*arguments: Any) -> Any:
            said.extend(arguments)
            return io.BytesIO().write

        with self._lock:
            before = _image(key)
            answer = list(self._application(environ, listen))
            after = _image(key)
            if facts["operation"] == "GetItem" and not is_lost:
                self._journal.write("read", **facts)
            elif before != after:
                self._journal.write("write" if after else "deleted", old=before, new=after, **facts)
        if is_lost:
            return _refused("error", start_response)
        start_response(*said)
        return answer


def _image(key: Any) -> dict[str, Any] | None:
    """What the checker wants to know of an item."""
    item = dynamodb_backends[ACCOUNT][REGION].get_item(TABLE_NAME, key) if key else None
    if item is None:
        return None
    attributes = item.to_json()["Attributes"]
    values = {name: next(iter(attributes[name].values())) for name in attributes}
    resubmits = int(values.get("attempt", {}).get("resubmits", {"N": 0})["N"])
    image = {name: values.get(name) for name in ("status", "outputs", "data", "error", "updated_at")}
    return image | {"generation": int(values["generation"]), "resubmits": resubmits, "open": "open" in values}


def _refused(trouble: str, start_response: "StartResponse") -> list[bytes]:
    status, kind = "500 Internal Server Error", "InternalServerError"
    if trouble == "throttled":
        status, kind = "400 Bad Request", "ThrottlingException"
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{kind}", "message": "a soak"}).encode()
    start_response(status, [("Content-Type", "application/x-amz-json-1.0"), ("Content-Length", str(len(body)))])
    return [body]


def main(journal: str, seed: str) -> None:
    """Says its port, then serves until its input is closed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    application = Recorded(moto, Journal(Path(journal)), Random(f"{seed} table"))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    for _ in sys.stdin:
        application.is_calm = True


if __name__ == "__main__":
    main(*sys.argv[1:])
