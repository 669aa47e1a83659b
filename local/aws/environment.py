"""An execution environment, as Lambda's: imports one handler, then answers one event after the other.

local.aws.sandbox starts it with a connection for events and answers; the handler's own output goes to the log.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection

Json = object
Handler = Callable[[Json, object], Json]


class Context:
    """What a handler can learn about its invocation; the names are Lambda's."""

    def __init__(self, request_id: str, deadline_ms: int) -> None:
        self.aws_request_id = request_id
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.memory_limit_in_mb = int(os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"])
        self.log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.invoked_function_arn = (
            f"arn:aws:lambda:{os.environ['AWS_REGION']}:123456789012:function:{self.function_name}"
        )
        self.identity = None
        self.client_context = None
        self._deadline_ms = deadline_ms

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until this invocation is killed; never below 0."""
        return max(self._deadline_ms - time.time_ns() // 1_000_000, 0)


def load(name: str) -> Handler:
    """The function behind `package.module.function`."""
    module, _, function = name.rpartition(".")
    handler: Handler = getattr(import_module(module), function)
    return handler


def answer(handler: Handler, message: bytes) -> bytes:
    """Runs the handler on one event: {"result"} or {"error"}, as JSON."""
    request = json.loads(message)
    try:
        result = handler(request["event"], Context(request["id"], request["deadline_ms"]))
        return json.dumps({"result": result}).encode()
    except Exception as error:  # noqa: BLE001 - whatever it is, Lambda reports it to the caller and keeps the process
        return failure(error)


def failure(error: Exception) -> bytes:
    """An exception in Lambda's form; its traceback goes to the log."""
    lines = traceback.format_exception(error)
    print("".join(lines), file=sys.stderr, end="", flush=True)
    told = {"errorType": type(error).__name__, "errorMessage": str(error), "stackTrace": lines}
    return json.dumps({"error": told}).encode()


def main(name: str, descriptor: int) -> None:
    """Serves until the other side closes the connection."""
    with Connection(descriptor) as connection:
        try:
            handler = load(name)
        except Exception as error:  # noqa: BLE001 - a handler that cannot be imported is reported as well
            connection.send_bytes(failure(error))
            return
        connection.send_bytes(b'{"result": null}')
        while True:
            try:
                message = connection.recv_bytes()
            except (EOFError, OSError):
                return
            connection.send_bytes(answer(handler, message))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
