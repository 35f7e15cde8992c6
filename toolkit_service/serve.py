"""The embedded service as a process: the data folder, the line on standard output, and the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final, TypeAlias

import h11
import pyarrow as pa
import uvicorn
from starlette.types import ASGIApp

from toolkit.base.children import end_with_parent
from toolkit.base.errors import LocalServiceError
from toolkit.base.private_files import (
    check_private,
    make_folder,
    open_private,
    user_folder,
)
from toolkit.base.serving import (
    ACCEPTED_AT_ONCE,
    BoundedHttp,
    Strangers,
    listen,
    listen_longer,
)
from toolkit.secrets.redaction import Secret
from toolkit_service.api import error_body
from toolkit_service.app import Interception, build_app
from toolkit_service.queue.scheduler import Queue
from toolkit_service.queue.state import Store
from toolkit_service.startup import DEFAULT_INDEXES, read_signing_keys, read_token
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import IndexSpec

Fill: TypeAlias = Callable[[Store, IndexRegistry], None]
"""Adds sample history to a service that is about to start."""
Application: TypeAlias = Callable[
    [str, Secret], AbstractContextManager[Mapping[str, int]]
]
"""Runs the application of the sample, from address and token of the queue. The value has ports by host."""

_FOLDERS: Final = ("queue", "vectors")  # in the data folder; none of them may be a link
# seconds that the threads of the databases wait for a busy event loop at each statement (5 ms by default)
_SWITCH_INTERVAL: Final = 0.0005


def run(
    options: argparse.Namespace,
    *,
    fill: Fill,
    application: Application,
    interception: Interception,
) -> int:
    """Run the service until SIGTERM, SIGINT or the end of standard input, and return the exit status.

    `fill` and `application` are for ``--sample``.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(name)s %(message)s",
    )
    sys.setswitchinterval(_SWITCH_INTERVAL)
    # Arrow's own pool keeps about 14 MB per thread that ever wrote numbers: 560 MB with 40 threads
    pa.set_memory_pool(pa.system_memory_pool())

    with ExitStack() as opened:
        folder = _folder(options, opened)
        _lock(folder, opened)
        token, token_file = read_token(options.token_file or folder / "token")
        listening = opened.enter_context(listen(options.port))
        queue_folder, vectors_folder = (folder / name for name in _FOLDERS)
        store = Store(
            queue_folder,
            retention_ms=options.retention,
            signing_keys=read_signing_keys(),
        )
        opened.callback(store.close)
        registry = IndexRegistry(
            vectors_folder,
            approximate_above=options.approximate_above,
            expansion=options.approximate_expansion,
        )
        opened.callback(registry.close)
        # the history of the sample needs the indexes, and the application the address of the queue
        _make_indexes(registry, options)

        ports: Mapping[str, int] = {}
        if options.sample:
            _fill_once(folder, store, registry, fill)
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            ports = opened.enter_context(application(address, token))

        queue = Queue(
            store,
            on_this_machine=ports,
            time_factor=options.time_factor,
            allowed=options.allow_destination,
            max_message=options.max_message,
            prefix=f"{options.dialect.title()}-",
            drop_unknown_steps=options.drop_unknown_steps,
        )
        app = build_app(queue, registry, token, interception=interception)
        _serve(app, registry, listening, token_file, options)

    return 0


def _make_indexes(registry: IndexRegistry, options: argparse.Namespace) -> None:
    """Make the indexes of the options. Without the option, make the default indexes that are missing."""
    if options.index:
        # an existing index with other settings is an error: the user named it
        for text in options.index:
            registry.create(IndexSpec.parse(text))
        return

    known = {spec.name for spec in registry.specs()}
    for text in DEFAULT_INDEXES:
        spec = IndexSpec.parse(text)
        if spec.name not in known:
            registry.create(spec)


def _fill_once(folder: Path, store: Store, registry: IndexRegistry, fill: Fill) -> None:
    """Add the sample history, unless a file in the folder tells that it was added."""
    marker = folder / "sample-filled-in"
    if marker.exists():
        return

    if "docs" not in {spec.name for spec in registry.specs()}:
        registry.create(IndexSpec.parse(DEFAULT_INDEXES[0]))
    fill(store, registry)
    os.close(open_private(marker, os.O_WRONLY | os.O_CREAT))  # not through a link


def _serve(
    app: ASGIApp,
    registry: IndexRegistry,
    listening: socket.socket,
    token_file: Path | None,
    options: argparse.Namespace,
) -> None:
    class ServedConnection(BoundedHttp):
        request_timeout = options.request_timeout
        strangers = Strangers()

        def error_body(self, status: int, message: str) -> bytes:
            path = ""
            # the path is known when the head has been read
            if self.scope and self.conn.their_state is h11.SEND_BODY:
                path = self.scope["path"]
            return error_body(status, message, path)

    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=ServedConnection,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the caller is the other end of the connection
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=1,
            backlog=ACCEPTED_AT_ONCE,
        )
    )

    async def serve() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0.005)
        if server.started:
            listen_longer(listening)
            _announce(registry, listening, token_file)
            if options.with_parent:
                end_with_parent()

        await serving

    # uvicorn sets other handlers while it serves, and then raises the signal again for these handlers
    signals = (signal.SIGTERM, signal.SIGINT)
    previous_handlers = {
        number: signal.signal(number, lambda *_: None) for number in signals
    }

    try:
        asyncio.run(serve())
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

    if not server.started:
        raise LocalServiceError(
            "starting the embedded service",
            got="an internal error",
            expected="a running service",
        )


def _announce(
    registry: IndexRegistry, listening: socket.socket, token_file: Path | None
) -> None:
    """Write addresses and the token file to standard output, as one line of JSON."""
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    vector_urls = {
        spec.name: f"{address}/vector/{spec.name}" for spec in registry.specs()
    }
    line = {
        "queue_url": address,
        "vector_urls": vector_urls,
        "token_file": str(token_file) if token_file else None,
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    if sys.stderr.isatty():
        sys.stderr.write("\n".join(_exports(address, vector_urls, token_file)) + "\n")
        sys.stderr.flush()


def _exports(
    address: str, vector_urls: Mapping[str, str], token_file: Path | None
) -> list[str]:
    """Return the lines of a shell that lead to this service. They read the token from its file."""
    token = (
        f'"$(cat {shlex.quote(str(token_file))})"'
        if token_file
        else '"$TOOLKIT_SERVE_TOKEN"'
    )
    lines = [
        "To use it, export these lines in another terminal:",
        f"export TOOLKIT_QUEUE_URL={address} TOOLKIT_QUEUE_TOKEN={token}",
    ]

    first_index = next(iter(vector_urls.values()), None)
    if first_index is not None:
        lines.append(
            f"export TOOLKIT_VECTOR_URL={first_index} TOOLKIT_VECTOR_TOKEN={token}"
        )

    return lines


def _folder(options: argparse.Namespace, opened: ExitStack) -> Path:
    """Return the data folder. A temporary folder is removed at the end."""
    if options.temporary:
        temporary = tempfile.TemporaryDirectory(
            prefix="toolkit-local-", ignore_cleanup_errors=True
        )
        return Path(opened.enter_context(temporary))

    folder: Path = options.data_dir or user_folder("data") / "local"
    try:
        if options.data_dir is None:
            make_folder(folder)
        else:
            # a link is allowed here: the user named it
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(
            folder, str(error.strerror), "a folder this user may write"
        ) from None

    return folder


def _lock(folder: Path, opened: ExitStack) -> None:
    """Lock the folder for this process; the lock ends with the process."""
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        raise LocalServiceError(
            "starting the embedded service",
            got="a system without POSIX file locks",
            expected="Linux or macOS",
            next_step="On Windows, run it in the Windows Subsystem for Linux, and connect to the address.",
        ) from None

    try:
        handle = open_private(folder / "lock", os.O_RDWR | os.O_CREAT)
        opened.callback(os.close, handle)
        for name in _FOLDERS:
            make_folder(folder / name)
        # before SQLite opens them: closing a file afterwards would release the locks of SQLite
        check_private(*folder.glob("*/*.sqlite*"), *folder.glob("*/*.f32"))
    except OSError as error:
        got = f"{Path(error.filename).name!r}: {error.strerror}"
        raise _unusable(
            folder, got, "files and folders of this user alone, and no links"
        ) from None

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        got = "a folder that another embedded service uses"
        raise _unusable(
            folder, got, "one service per folder", ", or end the other service"
        ) from None


def _unusable(
    folder: Path, got: str, expected: str, other: str = ""
) -> LocalServiceError:
    return LocalServiceError(
        f"opening the data folder {str(folder)!r}",
        got=got,
        expected=expected,
        next_step=f"Name another folder with --data-dir{other}.",
    )
