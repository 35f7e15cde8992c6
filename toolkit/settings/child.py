"""`connect("local")`: the embedded service as a child process that ends with this one."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from toolkit.errors import LocalServiceError
from toolkit.settings.service import Service, local_service

DEFAULT_INDEX: Final = "docs"
_START: Final = 60.0  # seconds the child has to come up
_GRACE: Final = 10.0  # seconds the child has to end by itself once its standard input is closed


def start_local(*options: str) -> Service:
    """Start ``toolkit serve`` as a child process and connect to it.

    The child reads its token and signing keys from the environment, never from its command line, and
    ends when its standard input closes: also when this process is killed. Its state lies in a temporary
    folder, removed at the end.

    Parameters
    ----------
    *options : str
        Of ``toolkit serve``. Default: ``--sample``.

    Raises
    ------
    LocalServiceError
        When the child does not come up; its own words are in the message.
    """
    token, keys = secrets.token_urlsafe(32), tuple(f"sig_{secrets.token_urlsafe(32)}" for _ in range(2))
    folder = Path(tempfile.mkdtemp(prefix="toolkit-local-"))
    command = [
        sys.executable,
        "-m",
        "toolkit",
        "serve",
        *(options or ("--sample",)),
        "--with-parent",
        "--port",
        "0",
    ]
    environment = os.environ | {
        "TOOLKIT_SERVE_TOKEN": token,
        "TOOLKIT_SERVE_CURRENT_SIGNING_KEY": keys[0],
        "TOOLKIT_SERVE_NEXT_SIGNING_KEY": keys[1],
    }
    log = (folder / "serve.log").open("w+b")
    child = subprocess.Popen(
        [*command, "--data-dir", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
    )

    def close() -> None:
        atexit.unregister(close)
        _end(child)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(close)
    too_slow = threading.Timer(_START, child.kill)
    too_slow.start()
    first = child.stdout.readline() if child.stdout else b""
    too_slow.cancel()
    try:
        address = str(json.loads(first)["queue_url"])
    except (ValueError, KeyError, TypeError):
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
        close()
        raise LocalServiceError(
            "starting the embedded service",
            got=said[-1] if said else f"no address (exit status {child.returncode})",
            expected="a line with its addresses on standard output",
            next_step="Run `toolkit serve --sample` to see it by itself.",
        ) from None
    return local_service(address, token, DEFAULT_INDEX, keys, close)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin and not child.stdin.closed:
        child.stdin.close()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout:
        child.stdout.close()
