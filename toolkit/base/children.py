"""Start child processes with few variables and safe imports, and end them with this process.

A child gets only the variables that it needs, because the variables of this process may contain tokens of
many services. A Python child does not import from the current folder: for example, a ``toolkit.py`` that
somebody has put there is ignored.
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

from toolkit.base.errors import LocalServiceError
from toolkit.base.private_files import open_private

_START: Final = 60.0  # seconds until a child must have started
# bytes; with less free space, a service cannot even write the log
_FULL: Final = 1 << 16
GRACE: Final = 10.0  # seconds until a child must have ended by itself

# folders, language and time zone: variables that most programs need, and no secrets
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
    """Return the variables of this process that any program needs, for example Chromium; none is a token."""
    return _kept(_PROGRAM)


def python_variables(*, jupyter: bool = False) -> dict[str, str]:
    """Return the variables for a Python process, with import paths, and for Jupyter with folders of files."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [item for item in paths if Path(item).is_absolute()]
    names = f"{_PROGRAM}|{_PYTHON}"
    if jupyter:
        names += f"|{_JUPYTER}"
    variables = _kept(names)
    if folders:
        variables["PYTHONPATH"] = os.pathsep.join(folders)
    return variables


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
    """Start a module of this toolkit as a child process that ends when standard input closes.

    Do not pass secrets as arguments: every user of the machine can read a command line. The child gets only
    `variables`: `python_variables`, and variables that are meant for it. With a log, standard error is
    appended to the log and standard output is a pipe; without a log, the child shares both with this process.
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
            start_new_session=True,  # Ctrl-C is for this process, which ends the children itself
        )


def _opened(log: Path) -> BinaryIO:
    try:
        return os.fdopen(
            open_private(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab"
        )
    except OSError as error:
        raise LocalServiceError(
            f"writing the log {log.name!r}",
            got=error.strerror,
            expected="a file of this user alone, or none yet",
            next_step="Use another folder.",
        ) from None


def first_line(
    process: subprocess.Popen[bytes], *, what: str, log: Path
) -> dict[str, Any]:
    """Return the JSON object on the first line of a child, which is printed once it can be reached."""
    too_slow = threading.Timer(_START, process.kill)
    too_slow.start()
    line = b""
    if process.stdout:
        line = process.stdout.readline()
    too_slow.cancel()
    result = None
    with suppress(ValueError):
        result = json.loads(line)
    if not isinstance(result, dict):
        status = end(process)
        output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = f"no address (exit status {status})"

        if output:
            # the last line of a traceback is the error message
            reason = output[-1]
        elif shutil.disk_usage(log.parent).free < _FULL:
            reason = (
                f"a full disk: {log.name} could not be written (exit status {status})"
            )

        raise LocalServiceError(
            f"starting {what}",
            got=reason,
            expected="a line with an address on standard output",
            next_step="Run `toolkit serve --sample` in a terminal to see whether it starts there.",
        )

    return result


def start_service(
    *options: str, variables: Mapping[str, str]
) -> tuple[str, Callable[[], None]]:
    """Start ``toolkit serve`` on a free port. Return the address, and a function that ends the service.

    It ends with this process at the latest. The state is in a temporary folder. The service gets only the
    tokens in `variables`.
    """
    words = ("serve", *options, "--with-parent", "--port", "0", "--temporary")
    with tempfile.TemporaryDirectory(prefix="toolkit-log-") as folder:
        log = Path(folder) / "serve.log"
        child = start_module(
            "toolkit", *words, variables={**python_variables(), **variables}, log=log
        )

        def close() -> None:
            atexit.unregister(close)
            end(child)

        atexit.register(close)

        try:
            return str(
                first_line(child, what="the embedded service", log=log)["queue_url"]
            ), close
        except BaseException:
            close()
            raise


def end(
    process: subprocess.Popen[bytes],
    *,
    grace: float | None = None,
    by: signal.Signals | None = None,
) -> int:
    """End a child by closing standard input, or by a signal. Wait for it, and return the exit status."""
    if grace is None:
        grace = GRACE
    if by is not None:
        process.send_signal(by)
    elif process.stdin:
        with suppress(BrokenPipeError):
            process.stdin.close()

    try:
        status = process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()

    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()

    return status


def end_with_parent() -> None:
    """Send SIGTERM to this process once standard input closes: the parent has ended, or ends this process."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def running(
    module: str, *arguments: str, variables: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module for the length of a ``with`` block; see `start_module`."""
    process = start_module(module, *arguments, variables=variables, log=log)
    try:
        yield process
    finally:
        end(process)
