"""The process behind the local DynamoDB and S3: moto's server, for one request at a time, until its input is closed."""

import logging
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


class OneAtATime:
    """A WSGI application for one request at a time: moto's conditional updates are not atomic among threads."""

    def __init__(self, application: "WSGIApplication") -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        with self._lock:
            return self._application(environ, start_response)


def main(port: int) -> None:
    """Prints its port, then serves until the other end of its input is closed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
