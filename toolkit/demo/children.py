"""Child processes that never outlive this one: each holds the other end of a pipe and ends when it closes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from toolkit.errors import LocalServiceError

_GRACE: Final = 5.0  # seconds a child has to end by itself


@contextmanager
def child(
    module: str, *arguments: str, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run a module of this toolkit as a child process for the length of a ``with`` block.

    Parameters
    ----------
    module : str
        What stands after ``python -m``. It must end when its standard input closes.
    *arguments : str
        Nothing secret: every user of the machine can read a command line.
    environment : mapping
        The child's variables.
    log : Path
        Where its standard error goes.

    Yields
    ------
    subprocess.Popen
        With a readable ``stdout``.
    """
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(environment),
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal is for this process, which ends its children
        )
    try:
        yield process
    finally:
        if process.stdin:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def first_line(process: subprocess.Popen[str], *, what: str, log: Path) -> dict[str, Any]:
    """The JSON object on a child's first line, which it prints once it answers.

    Raises
    ------
    LocalServiceError
        When there is none; the last line of the child's log says why.
    """
    line = process.stdout.readline() if process.stdout else ""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise LocalServiceError(
            f"starting {what}",
            got=said[-1] if said else "no word from it",
            expected="a line with its address",
            next_step=f"The rest of its words are in {log}.",
        )
    return found
