"""An S3 server on loopback whose requests a test may watch, refuse, or act upon."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
from werkzeug.serving import make_server

Watch = Callable[[str, str], object]
"""Called with method and path before a request is served; a number is the status it is refused with."""


class ObjectServer:
    """A server in this process, for callers of this and of others.

    Attributes
    ----------
    port : int
    before, after : callable
        See `Watch`; after, the request was served, and its response is yet to be sent.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.free()

    def free(self) -> None:
        """Serve every request and watch none."""
        self.before: Watch = lambda _method, _path: None
        self.after: Watch = lambda _method, _path: None

    def filesystem(self, **options: Any) -> S3FileSystem:
        """A file system of this server."""
        asked = {
            "endpoint_override": f"127.0.0.1:{self.port}",
            "scheme": "http",
            "access_key": "key-of-the-test",
            "secret_key": "secret-of-the-test",
            "region": "us-east-1",
            "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=1),
            "request_timeout": 60,  # the default of 3 s is too short on a busy machine that tries once
        }
        return S3FileSystem(**asked | options)


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """A server on a port of its own, watched by nobody yet."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    s3 = DomainDispatcherApplication(create_backend_app)
    # two writes of one key at once are a 500 of moto, not of S3
    one_at_a_time = threading.Lock()

    def watched(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        status = server.before(*request)
        if status is not None:
            start(f"{status} refused", [("Content-Length", "0")])
            return []
        with one_at_a_time:
            response = s3(environ, start)
        server.after(*request)
        return response

    http = make_server("127.0.0.1", 0, watched, threaded=True)
    http.daemon_threads = True
    server = ObjectServer(http.port)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def s3(object_server: ObjectServer) -> Iterator[SimpleNamespace]:
    """The server, with an empty bucket of this test's own."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    object_server.filesystem(allow_bucket_creation=True).create_dir(bucket)
    yield SimpleNamespace(
        server=object_server,
        filesystem=object_server.filesystem(),
        bucket=bucket,
        path=f"{bucket}/snapshot",
    )
    object_server.free()
