"""A stand-in for the Lambda service: runs a handler's events in processes of their own, warm ones first."""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from typing import Self, TextIO

Json = object

ROOT = Path(__file__).parent.parent
INIT_SECONDS = 30.0  # Lambda gives 10; this machine may be busy


class FunctionError(Exception):
    """What Lambda reports of an invocation that failed: errorType and errorMessage."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Environment:
    """One process with one handler; it works on one event at a time."""

    def __init__(self, function: "Function") -> None:
        self._function = function
        self._broken = False
        self._connection, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "local.environment", function.handler, str(theirs.fileno())]
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=function.variables,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,  # Ctrl-C is for the stack, which then ends this
            )
        self._log = threading.Thread(target=self._pass_on_output, daemon=True)
        self._log.start()

    def initialise(self) -> None:
        """Waits for the import of the handler; FunctionError when that fails."""
        self._broken = True
        self._receive(INIT_SECONDS, "initialisation")
        self._broken = False

    def run(self, event: Json) -> Json:
        """The handler's answer. FunctionError: the handler raised, was too slow (and is dead now), or died."""
        seconds, request_id = self._function.timeout_seconds, str(uuid.uuid4())
        request = {"id": request_id, "deadline_ms": int((time.time() + seconds) * 1000), "event": event}
        try:
            self._connection.send_bytes(json.dumps(request).encode())
        except OSError:
            raise self._exited() from None
        return self._receive(seconds, request_id)

    def alive(self) -> bool:
        """Whether it can take another event."""
        return not self._broken and self.process.poll() is None

    def close(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.wait()
        self._log.join(timeout=2)
        self._connection.close()

    def _receive(self, seconds: float, what: str) -> Json:
        try:
            if not self._connection.poll(seconds):
                self._broken = True
                self.process.kill()
                raise FunctionError("Sandbox.Timedout", f"{what} Task timed out after {seconds:.2f} seconds")
            reply = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self._exited() from None
        if "error" in reply:
            raise FunctionError(reply["error"]["errorType"], reply["error"]["errorMessage"])
        return reply["result"]

    def _exited(self) -> FunctionError:
        self._broken = True
        status = self.process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return FunctionError("Runtime.ExitError", f"Runtime exited with error: {how}")

    def _pass_on_output(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                self._function.log.write(f"{self._function.name}[{self.process.pid}] {line.rstrip()}\n")
                self._function.log.flush()


class Function:
    """A Lambda function; a context manager. At most `concurrency` events are worked on at once, the others wait.

    A process that was killed fails the call it had in hand and is replaced at the next one.
    """

    def __init__(
        self,
        name: str,
        handler: str,
        timeout_seconds: float,
        environment: Mapping[str, str],
        *,
        log: TextIO = sys.stderr,
        concurrency: int = 8,
    ) -> None:
        self.name = name
        self.handler = handler
        self.timeout_seconds = timeout_seconds
        self.variables = variables(name, handler, environment)
        self.log = log
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._environments: set[Environment] = set()
        self._idle: list[Environment] = []
        self._closed = False

    def start(self, event: Json) -> Future[Json]:
        """Invokes it without waiting."""
        return self._threads.submit(self._run, event)

    def invoke(self, event: Json) -> Json:
        """Invokes it and waits for the answer; FunctionError when it failed."""
        return self.start(event).result()

    def pids(self) -> list[int]:
        """The processes that are alive, to be looked at or killed."""
        with self._lock:
            return sorted(environment.process.pid for environment in self._environments if environment.alive())

    def close(self) -> None:
        """Kills every process, whatever it is at."""
        with self._lock:
            self._closed = True
            environments = list(self._environments)
        for environment in environments:
            environment.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for environment in environments:
            environment.close()

    def _run(self, event: Json) -> Json:
        environment = self._take()
        try:
            return environment.run(event)
        finally:
            self._give_back(environment)

    def _take(self) -> Environment:
        """A warm process, else a new one."""
        with self._lock:
            while self._idle:
                environment = self._idle.pop()
                if environment.alive():
                    return environment
                self._discard(environment)
            if self._closed:
                raise FunctionError("ServiceException", "the function is closed")
            environment = Environment(self)
            self._environments.add(environment)
        try:
            environment.initialise()
        except FunctionError:
            self._give_back(environment)
            raise
        return environment

    def _give_back(self, environment: Environment) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(environment)

    def _discard(self, environment: Environment) -> None:
        self._environments.discard(environment)
        environment.close()

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
