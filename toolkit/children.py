"""Child processes: what they may import, which variables they get, and that none outlives this process.

A child gets only the variables that it needs, because those of this process hold tokens of many services. A
Python child does not import from the current folder, where anybody's ``toolkit.py`` may lie.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from toolkit.errors import LocalServiceError
from toolkit.private_files import open_private

_START: Final = 60.0  # seconds a child has to come up
_FULL: Final = 1 << 16  # bytes; with less room on its disk, a service cannot even write its log
GRACE: Final = 10.0  # seconds a child has to end by itself

# where things lie, in which language and time zone: nothing secret, and what most programs need
_PROGRAM: Final = (
    "PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|TMP|TEMP|LD_LIBRARY_PATH"
    "|DYLD_(FALLBACK_)?LIBRARY_PATH|XDG_((CACHE|CONFIG|DATA|STATE)_HOME|(CONFIG|DATA)_DIRS|RUNTIME_DIR)"
    "|FONTCONFIG_(FILE|PATH)|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT"
    "|USERPROFILE|USERNAME|HOMEDRIVE|HOMEPATH|APPDATA|LOCALAPPDATA|PROGRAMDATA|PROGRAMFILES"
)
_PYTHON: Final = (
    "PYTHON(DEVMODE|DONTWRITEBYTECODE|FAULTHANDLER|HASHSEED|HOME|IOENCODING|NOUSERSITE|PYCACHEPREFIX"
    "|UNBUFFERED|USERBASE|UTF8|WARNINGS)|VIRTUAL_ENV|CONDA_PREFIX|(MKL|OMP|OPENBLAS)_NUM_THREADS"
)
_JUPYTER: Final = (
    "BROWSER|IPYTHONDIR|JUPYTERLAB_(SETTINGS|WORKSPACES)_DIR|MPLBACKEND|MPLCONFIGDIR"
    "|JUPYTER_(CONFIG_DIR|CONFIG_PATH|DATA_DIR|PATH|PLATFORM_DIRS|PREFER_ENV_PATH|RUNTIME_DIR|TOKEN)"
)


def program_variables() -> dict[str, str]:
    """The variables of this process that any program needs, such as Chromium; no token is among them."""
    return _kept(_PROGRAM)


def python_variables(*, jupyter: bool = False) -> dict[str, str]:
    """The same for a Python process, with where it imports from; for Jupyter with where its files lie."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [item for item in paths if Path(item).is_absolute()]
    variables = _kept(f"{_PROGRAM}|{_PYTHON}|{_JUPYTER}" if jupyter else f"{_PROGRAM}|{_PYTHON}")
    return variables | ({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})


def _kept(names: str) -> dict[str, str]:
    wanted = re.compile(names, re.IGNORECASE)  # Windows has Path and SystemRoot
    return {name: value for name, value in os.environ.items() if wanted.fullmatch(name)}


def start_module(
    module: str,
    *arguments: str,
    variables: Mapping[str, str],
    log: Path | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a module of this toolkit as a child process; it must end when its standard input closes.

    The arguments hold nothing secret: every user of the machine can read a command line. `variables` are all
    that it gets: `python_variables`, and what is meant for it. With a log, its standard error is appended to
    it, and its standard output is a pipe; without one both are those of this process.
    """
    # -P: "python -m" would import from the current folder first
    command = [sys.executable, "-P", "-m", module, *arguments]
    with ExitStack() as files:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=None if log is None else subprocess.PIPE,
            stderr=None if log is None else files.enter_context(_opened(log)),
            env=dict(variables),
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for this process, which ends its children itself
        )


def _opened(log: Path) -> BinaryIO:
    try:
        return os.fdopen(open_private(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError as error:
        raise LocalServiceError(
            f"writing the log {log.name!r}",
            got=error.strerror,
            expected="a file of this user alone, or none yet",
            next_step="Use another folder.",
        ) from None


def first_line(process: subprocess.Popen[bytes], *, what: str, log: Path) -> dict[str, Any]:
    """The JSON object on a child's first line, which it prints once it can be reached."""
    too_slow = threading.Timer(_START, process.kill)
    too_slow.start()
    line = process.stdout.readline() if process.stdout else b""
    too_slow.cancel()
    result = None
    with suppress(ValueError):
        result = json.loads(line)
    if not isinstance(result, dict):
        status = end(process)
        output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = output[-1] if output else f"no address (exit status {status})"
        if not output and shutil.disk_usage(log.parent).free < _FULL:
            reason = f"a full disk: {log.name} could not be written (exit status {status})"
        raise LocalServiceError(
            f"starting {what}",
            got=reason,
            expected="a line with its address on standard output",
            next_step="Run `toolkit serve --sample` in a terminal to see whether it starts there.",
        )
    return result


def start_service(*options: str, variables: Mapping[str, str]) -> tuple[str, Callable[[], None]]:
    """Start ``toolkit serve`` on a free port, until this process ends: its address, and what ends it before.

    Its state is in a temporary folder. Of variables with a token, it gets only these.
    """
    words = ("serve", *options, "--with-parent", "--port", "0", "--temporary")
    with tempfile.TemporaryDirectory(prefix="toolkit-log-") as folder:
        log = Path(folder) / "serve.log"
        child = start_module("toolkit", *words, variables={**python_variables(), **variables}, log=log)

        def close() -> None:
            atexit.unregister(close)
            end(child)

        atexit.register(close)
        try:
            return str(first_line(child, what="the embedded service", log=log)["queue_url"]), close
        except BaseException:
            close()
            raise


def end(
    process: subprocess.Popen[bytes], *, grace: float | None = None, by: signal.Signals | None = None
) -> int:
    """End a child by closing its standard input, or by a signal, and wait for it; returns its exit status."""
    if by is not None:
        process.send_signal(by)
    elif process.stdin:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        status = process.wait(GRACE if grace is None else grace)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    return status


def end_with_parent() -> None:
    """Send SIGTERM to this process once its standard input closes: its parent has ended, or wants its end."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def running(
    module: str, *arguments: str, variables: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """`start_module` for the length of a ``with`` block."""
    process = start_module(module, *arguments, variables=variables, log=log)
    try:
        yield process
    finally:
        end(process)
