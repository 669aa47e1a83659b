"""A stand-in for the Lambda service: runs a handler's events in processes of their own, warm ones first."""

import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar, Self, TextIO

from local.aws.sandbox import FunctionError, Json, Sandbox, note


class ThrottledError(FunctionError):
    """There is no room for another event now."""

    def __init__(self) -> None:
        super().__init__("TooManyRequestsException", "Rate Exceeded.")


class Function:
    """A Lambda function; a context manager. At most `concurrency` events are worked on at once, the others wait.

    Where it `throttles`, as Lambda does with a concurrency that is reserved, those fail instead: ThrottledError. When a
    process is killed, its current call fails, and the next call starts another process.
    """

    sandbox: ClassVar[type[Sandbox]] = Sandbox

    def __init__(
        self,
        name: str,
        handler: str,
        timeout_seconds: float,
        environment: Mapping[str, str],
        *,
        log: TextIO = sys.stderr,
        concurrency: int = 8,
        throttles: bool = False,
    ) -> None:
        self.name = name
        self.handler = handler
        self.timeout_seconds = timeout_seconds
        self.variables = variables(name, handler, environment)
        self.log = log
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=name)
        self._room = threading.Semaphore(concurrency) if throttles else None
        self._lock = threading.Lock()
        self._sandboxes: set[Sandbox] = set()
        self._idle: list[Sandbox] = []
        self._closed = False

    def start(self, event: Json) -> Future[Json]:
        """Invokes it without waiting; a failure is also logged."""
        if self._room and not self._room.acquire(blocking=False):
            call: Future[Json] = Future()
            call.set_exception(ThrottledError())
        else:
            call = self._threads.submit(self._run, event)
        call.add_done_callback(self._report)
        return call

    def invoke(self, event: Json) -> Json:
        """Invokes it and waits for the answer; FunctionError when it failed."""
        return self.start(event).result()

    def pids(self) -> list[int]:
        """The processes that are alive."""
        with self._lock:
            return sorted(sandbox.process.pid for sandbox in self._sandboxes if sandbox.alive())

    def close(self) -> None:
        """Kills every process, whatever it is doing."""
        with self._lock:
            self._closed = True
            sandboxes = list(self._sandboxes)
        for sandbox in sandboxes:
            sandbox.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for sandbox in sandboxes:
            sandbox.close()

    def _run(self, event: Json) -> Json:
        try:
            sandbox = self._take()
            try:
                return sandbox.run(event, self.timeout_seconds)
            finally:
                self._give_back(sandbox)
        finally:
            if self._room:
                self._room.release()

    def _take(self) -> Sandbox:
        """A warm process, else a new one."""
        with self._lock:
            while self._idle:
                sandbox = self._idle.pop()
                if sandbox.alive():
                    return sandbox
                self._discard(sandbox)
            if self._closed:
                raise FunctionError("ServiceException", "the function is closed")
            sandbox = self.sandbox(self.name, self.handler, self.variables, self.log)
            self._sandboxes.add(sandbox)
        try:
            sandbox.initialise()
        except FunctionError:
            self._give_back(sandbox)
            raise
        return sandbox

    def _give_back(self, sandbox: Sandbox) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(sandbox)

    def _report(self, call: Future[Json]) -> None:
        if not self._closed and (error := call.exception()):
            note(self.log, f"{self.name} {error}")

    def _discard(self, sandbox: Sandbox) -> None:
        self._sandboxes.discard(sandbox)
        sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def variables(name: str, handler: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of its processes: this one's without its AWS settings, Lambda's own, and the function's."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    lambdas = {
        "_HANDLER": handler,
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PYTHONUNBUFFERED": "1",
    }
    return {**inherited, **lambdas, **environment}
