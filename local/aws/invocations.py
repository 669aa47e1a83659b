"""The one call of the Lambda service that Meanwhile makes: invoke a function and do not wait for it."""

import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from typing_extensions import override

from local.aws.function import Function
from local.running import Running

PATH = re.compile(r"/2015-03-31/functions/([^/?]+)/invocations")


class Invocations(Running):
    """Serves on a free loopback port; `functions` may be filled later. Names a function by its name or its ARN."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """What AWS_ENDPOINT_URL_LAMBDA is to say, once it serves."""
        assert self._server
        return f"http://127.0.0.1:{self._server.server_port}"

    def invoke(self, path: str, kind: str | None, event: bytes) -> int:
        """The status of the answer: 202 once the function has been started."""
        found = PATH.fullmatch(path)
        name = unquote(found[1]).rpartition(":")[2] if found else ""
        if kind != "Event" or name not in self.functions:
            return 404
        self.functions[name].start(json.loads(event))
        return 202

    @override
    def start(self) -> None:
        """Returns once it serves."""
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @override
    def stop(self) -> None:
        """Ends it; harmless when it is not running."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, invocations: Invocations) -> None:
        self.invocations = invocations
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        event = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = self.server.invocations.invoke(self.path, self.headers.get("X-Amz-Invocation-Type"), event)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    @override
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: the functions log what they do."""
