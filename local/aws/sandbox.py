"""One execution environment of a function, seen from outside: a process that takes one event at a time."""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from typing import TextIO

from local import ROOT

Json = object

INIT_SECONDS = 30.0  # Lambda gives 10; this machine may be busy
EXIT_SECONDS = 5.0


class FunctionError(Exception):
    """What Lambda reports of an invocation that failed: errorType and errorMessage."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Sandbox:
    """Starts `python -m local.aws.environment` with one handler; what it prints goes to the log, line by line."""

    def __init__(self, name: str, handler: str, variables: Mapping[str, str], log: TextIO) -> None:
        self._name = name
        self._output = log
        self._broken = False
        self._connection, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "local.aws.environment", handler, str(theirs.fileno())]
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=variables,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,  # Ctrl-C is for the stack, which then ends this process
            )
        self._passing_on = threading.Thread(target=self._pass_on_output, daemon=True)
        self._passing_on.start()

    def initialise(self) -> None:
        """Waits for the import of the handler; FunctionError when that fails."""
        self._broken = True
        self._receive(INIT_SECONDS, "initialisation")
        self._broken = False

    def run(self, event: Json, seconds: float) -> Json:
        """The handler's answer. FunctionError: the handler raised, was too slow (and is dead now), or died."""
        request_id = str(uuid.uuid4())
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
        self._passing_on.join(timeout=2)
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
        try:
            status = self.process.wait(timeout=EXIT_SECONDS)
        except subprocess.TimeoutExpired:  # it closed the connection without exiting
            self.process.kill()
            status = self.process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return FunctionError("Runtime.ExitError", f"Runtime exited with error: {how}")

    def _pass_on_output(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                note(self._output, f"{self._name}[{self.process.pid}] {line.rstrip()}")


def note(log: TextIO, line: str) -> None:
    """Write a line to the log at once. If nobody reads the log any more, whoever opened it finds out."""
    with suppress(BrokenPipeError):
        log.write(f"{line}\n")
        log.flush()
