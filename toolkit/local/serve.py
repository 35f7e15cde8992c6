"""The embedded service as a process: its options, its token, its one line on standard output, its end."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import platformdirs
import uvicorn
from starlette.types import ASGIApp

from toolkit.errors import InputError, LocalServiceError, SettingsError, ToolkitError
from toolkit.local.answers import MAX_BODY, Refusal, parse_json
from toolkit.local.app import build_app
from toolkit.local.faults.script import FaultScript
from toolkit.local.protocol import REQUEST_TIMEOUT, Http
from toolkit.local.queue.durations import duration_ms
from toolkit.local.queue.service import MAX_MESSAGE, Queue
from toolkit.local.queue.store import RETENTION_MS, Store
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.specs import IndexSpec
from toolkit.redaction import Secret

DEFAULT_INDEXES: Final = ("docs:dense:256:COSINE:hashing", "plain:dense:2:COSINE")
"""The indexes made when none is named."""

TOKEN_VARIABLE: Final = "TOOLKIT_SERVE_TOKEN"  # noqa: S105 - the name of a variable
KEY_VARIABLES: Final = ("TOOLKIT_SERVE_CURRENT_SIGNING_KEY", "TOOLKIT_SERVE_NEXT_SIGNING_KEY")

Fill: TypeAlias = Callable[[Store, IndexRegistry], None]
"""Puts sample history into a service that is about to start."""

# seconds; a busy event loop lets the databases' threads wait this long at each statement (Python's own: 5 ms)
_SWITCH_INTERVAL: Final = 0.0005
_SHORTEST_TOKEN: Final = 8
_SHORTEST_KEY: Final = 32  # bytes: RFC 7518 asks for as many as SHA-256 has
_HIGHEST_PORT: Final = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the service to a parser.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_arguments(parser)
    >>> parser.parse_args(["--port", "8080"]).port
    8080
    """
    parser.add_argument("--port", type=_port, default=0, help="port on 127.0.0.1 (0: a free one)")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where its state is kept (the user's data folder)"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help=f"file with the token, made when missing (DIR/token); {TOKEN_VARIABLE} comes first",
    )  # fmt: skip
    parser.add_argument(
        "--index", action="append", default=[], metavar="SPEC",
        help="a vector index, repeatable: NAME:dense:DIMENSION:SIMILARITY[:MODEL], "
        "NAME:hybrid:DIMENSION:SIMILARITY[:MODEL+MODEL] or NAME:sparse[:MODEL] "
        f"({' and '.join(DEFAULT_INDEXES)})",
    )  # fmt: skip
    parser.add_argument(
        "--approximate-above", type=int, metavar="N",
        help="search namespaces of more than N vectors approximately; needs usearch (every search is exact)",
    )  # fmt: skip
    parser.add_argument(
        "--time-factor", type=_factor, default=1.0, metavar="X",
        help="divide all waits between retries, delays and sleeps by this (1)",
    )  # fmt: skip
    parser.add_argument(
        "--retention", type=_duration, default=RETENTION_MS, metavar="AGE",
        help="how long failures, ended runs and events are kept, such as 7d (90d)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-destination", action="append", default=[], metavar="HOST",
        help="a host beyond this machine to which messages may go; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--max-message", type=_size, default=MAX_MESSAGE, metavar="BYTES",
        help=f"largest message; longer answers are cut off there, in callbacks, too ({MAX_MESSAGE})",
    )  # fmt: skip
    parser.add_argument(
        "--dialect", choices=("service", "upstash"), default="service",
        help="prefix of the headers of those messages whose publish used none (service)",
    )  # fmt: skip
    parser.add_argument(
        "--request-timeout", type=_seconds, default=REQUEST_TIMEOUT, metavar="SECONDS",
        help=f"within which a request must have arrived ({REQUEST_TIMEOUT:g})",
    )  # fmt: skip
    parser.add_argument(
        "--faults", type=Path, metavar="FILE",
        help="JSON script of what goes wrong on purpose; see toolkit.local.faults",
    )  # fmt: skip
    parser.add_argument("--with-parent", action="store_true", help="end when standard input closes")
    parser.add_argument("--sample", action="store_true", help="fill in sample history, once")


def run(options: argparse.Namespace, *, fill: Fill | None = None) -> int:
    """Run the service until it is told to end.

    Parameters
    ----------
    options : argparse.Namespace
        As `add_arguments` defines them. The token and the signing keys come from the environment
        (``TOOLKIT_SERVE_TOKEN``, ``TOOLKIT_SERVE_CURRENT_SIGNING_KEY``, ``TOOLKIT_SERVE_NEXT_SIGNING_KEY``),
        or else are made and kept.
    fill : callable, optional
        Puts the sample history in, for ``--sample``.

    Returns
    -------
    int
        0 after SIGTERM, SIGINT or the end of standard input.

    Raises
    ------
    ToolkitError
        When it cannot start.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    sys.setswitchinterval(_SWITCH_INTERVAL)
    faults = _faults(options.faults)
    folder = options.data_dir or Path(platformdirs.user_data_dir("workflow-vector-toolkit")) / "local"
    _make_folder(folder)
    with _locked(folder):
        token, token_file = _token(options.token_file or folder / "token")
        listening = _listen(options.port)
        store = Store(folder / "queue", retention_ms=options.retention, signing_keys=_signing_keys())
        try:
            registry = IndexRegistry(folder / "vectors", approximate_above=options.approximate_above)
            try:
                _prepare(folder, store, registry, options, fill)
                queue = Queue(
                    store,
                    time_factor=options.time_factor,
                    allowed=options.allow_destination,
                    max_message=options.max_message,
                    prefix=f"{options.dialect.title()}-",
                )
                app = build_app(queue, registry, token, faults=faults)
                _serve(app, registry, listening, token_file, options)
            finally:
                registry.close()
        finally:
            store.close()
            listening.close()
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the service from a command line of its own, without sample history."""
    parser = argparse.ArgumentParser(
        prog="python -m toolkit.local.serve", description="The embedded service."
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except ToolkitError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _prepare(
    folder: Path, store: Store, registry: IndexRegistry, options: argparse.Namespace, fill: Fill | None
) -> None:
    specs = [*options.index] or [*DEFAULT_INDEXES]
    known = {spec.name for spec in registry.specs()}
    for text in specs:
        spec = IndexSpec.parse(text)
        if spec.name not in known or options.index:
            registry.create(spec)
    if not options.sample:
        return
    if fill is None:
        raise SettingsError(
            "starting with --sample",
            got="no sample history beside this command",
            expected="the command that has it",
            next_step="Use: toolkit serve --sample.",
        )
    filled = folder / "sample-filled-in"
    if not filled.exists():
        if "docs" not in {spec.name for spec in registry.specs()}:
            registry.create(IndexSpec.parse(DEFAULT_INDEXES[0]))
        fill(store, registry)
        filled.touch(mode=0o600)


def _serve(
    app: ASGIApp,
    registry: IndexRegistry,
    listening: socket.socket,
    token_file: Path | None,
    options: argparse.Namespace,
) -> None:
    class Connection(Http):
        request_timeout = options.request_timeout

    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the caller is who connects
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
    )
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"

    async def serve() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0.005)
        if server.started:
            line = {
                "queue_url": address,
                "vector_urls": {spec.name: f"{address}/vector/{spec.name}" for spec in registry.specs()},
                "token_file": str(token_file) if token_file else None,
                "pid": os.getpid(),
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            if options.with_parent:
                threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
        await serving

    # the server has its own handlers while it serves, and hands the signal on to these when it is through
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(serve())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not server.started:
        raise LocalServiceError(
            "starting the embedded service", got="a failure of its own", expected="a start"
        )


def _end_with_parent(server: uvicorn.Server) -> None:
    while os.read(0, 4096):
        pass
    server.should_exit = True


def _faults(file: Path | None) -> FaultScript:
    script = FaultScript()
    if file is None:
        return script
    try:
        script.put(parse_json(file.read_bytes()))
    except (OSError, Refusal, InputError) as error:
        raise SettingsError(
            f"reading the fault script {file.name!r}",
            got=error.strerror if isinstance(error, OSError) else str(error),
            expected="a JSON file as toolkit.local.faults describes it",
        ) from None
    return script


def _listen(port: int) -> socket.socket:
    # asyncio switches Nagle's delay off only for sockets that are TCP by name: 40 ms an answer otherwise
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise LocalServiceError(
            f"listening on port {port}",
            got=str(error.strerror),
            expected="a free port",
            next_step="Use --port 0.",
        ) from None
    return listening


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalServiceError(
            f"opening the data folder {folder.name!r}",
            got=str(error.strerror),
            expected="a folder this user may write",
            next_step="Name another folder with --data-dir.",
        ) from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; the lock goes with the process, however it ends."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise LocalServiceError(
            f"opening the data folder {folder.name!r}",
            got="a folder that another embedded service holds",
            expected="one service a folder",
            next_step="Name another folder with --data-dir, or end the other service.",
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def _token(file: Path) -> tuple[Secret, Path | None]:
    """The token, and the file it is in; from the environment, from the file, or new and then in the file."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None:
        return Secret(_checked(given, TOKEN_VARIABLE, _SHORTEST_TOKEN)), None
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+") as opened:
            text = opened.read(4096).strip()
            if not text:
                text = secrets.token_urlsafe(32)
                opened.write(f"{text}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"reading the token file {file.name!r}",
            got=type(error).__name__,
            expected="a file of one line, or none yet",
            next_step="Name another with --token-file.",
        ) from None
    return Secret(_checked(text, f"the token file {file.name!r}", _SHORTEST_TOKEN)), file


def _signing_keys() -> tuple[str, str] | None:
    current, following = (os.environ.get(name) for name in KEY_VARIABLES)
    if current is None and following is None:
        return None
    if current is None or following is None:
        raise SettingsError(
            "reading the signing keys",
            got="one of them",
            expected=f"both {' and '.join(KEY_VARIABLES)}, or neither",
        )
    return (
        _checked(current, KEY_VARIABLES[0], _SHORTEST_KEY),
        _checked(following, KEY_VARIABLES[1], _SHORTEST_KEY),
    )


def _checked(value: str, source: str, shortest: int) -> str:
    if len(value) < shortest or not value.isascii() or not value.isprintable() or " " in value:
        raise SettingsError(
            f"reading {source}",
            got=f"{len(value)} characters",
            expected=f"at least {shortest}, all printable ASCII without spaces",
        )
    return value


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port; expected 0 to {_HIGHEST_PORT}")
    return port


def _factor(text: str) -> float:
    factor = float(text)
    if not 1e-6 <= factor <= 1e9:  # noqa: PLR2004 - generous, and neither 0 nor NaN
        raise argparse.ArgumentTypeError(f"{text} is out of range; expected 0.000001 to 1000000000")
    return factor


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.01 <= seconds <= 86_400:  # noqa: PLR2004 - a day; neither 0 nor NaN
        raise argparse.ArgumentTypeError(f"{text} is out of range; expected 0.01 to 86400 seconds")
    return seconds


def _size(text: str) -> int:
    size = int(text)
    if not 1 <= size <= MAX_BODY:
        raise argparse.ArgumentTypeError(f"{text} is out of range; expected 1 to {MAX_BODY} bytes")
    return size


def _duration(text: str) -> int:
    found = duration_ms(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; expected one such as 7d or 12h")
    return found


if __name__ == "__main__":
    sys.exit(main())
