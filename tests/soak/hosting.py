"""The real handlers in processes of their own, forked from one that has imported them: a kill costs little.

Each process tells everybody its number: the provider by a header, DynamoDB by its agent, with its function.
"""

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TextIO

from typing_extensions import override

import handlers.callback
import handlers.enqueue
import handlers.process
import handlers.reconcile  # noqa: F401 (all of them imported before there is anything to fork)
from local.aws import environment
from local.aws.sandbox import Sandbox
from tests.soak.plan import WORKER

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


class Fork:
    """A forked process, with what a sandbox needs of subprocess.Popen."""

    def __init__(self, handler: str, theirs: Connection, variables: Mapping[str, str], log: str) -> None:
        arguments = (handler, theirs, dict(variables), log)
        self._process = FORKS.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a sandbox", timeout or 0)
        return self._process.exitcode


class ForkedSandbox(Sandbox):
    """A sandbox whose process is a fork; what it prints goes to the log's file by itself."""

    @override
    def __init__(self, name: str, handler: str, variables: Mapping[str, str], log: TextIO) -> None:
        self._name = name
        self._output = log
        self._broken = False
        self._connection, theirs = Pipe()
        with theirs:
            self.process = Fork(handler, theirs, variables, log.name)  # type: ignore[assignment]
        self._passing_on = threading.Thread(target=lambda: None)
        self._passing_on.start()


def _serve(handler: str, theirs: Connection, variables: Mapping[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.environ[WORKER] = str(os.getpid())
    os.environ["AWS_SDK_UA_APP_ID"] = f"{os.getpid()}-{handler.split('.')[1]}"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for output in (sys.stdout, sys.stderr):
        output.flush()
        os.dup2(descriptor, output.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    environment.main(handler, os.dup(theirs.fileno()))
