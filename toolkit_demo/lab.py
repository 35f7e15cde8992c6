"""JupyterLab on the notebooks, connected to an embedded service with sample data.

``python -m toolkit_demo.lab [--port N] [--no-browser]`` runs both until Ctrl-C. Jupyter and its kernels end
with this process, also when it is killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from toolkit.children import end, end_with_parent, start_module
from toolkit.errors import InputError, LocalServiceError, ToolkitError
from toolkit.settings.service import start_local
from toolkit_demo.run import environment_for

DEFAULT_PORT: Final = 8888
"""Where JupyterLab listens; it tries the next ones when the port is taken."""

_GRACE: Final = 20.0  # seconds Jupyter has to end its kernels


def run_lab(notebooks: Path, *, port: int = DEFAULT_PORT, browser: bool = True) -> int:
    """Run JupyterLab on a folder of notebooks until it ends or is interrupted; returns its exit status.

    >>> run_lab(Path("no-such-folder"))
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: opening the notebooks: got 'no-such-folder'; expected a folder. ...
    """
    if not notebooks.is_dir():
        raise InputError(
            "opening the notebooks",
            got=repr(str(notebooks)),
            expected="a folder",
            next_step="Run this in the project's own folder.",
        )
    if find_spec("jupyterlab") is None:
        raise LocalServiceError(
            "opening the notebooks",
            got="no JupyterLab",
            expected="it in the toolkit's environment",
            next_step="Install it: pip install jupyterlab.",
        )
    words = ["--with-parent", "--port", str(port), *([] if browser else ["--no-browser"])]
    with start_local() as service:
        # the project's own kernel, whatever others of its name this user has
        variables = environment_for(service) | {"JUPYTER_PREFER_ENV_PATH": "1"}
        jupyter = start_module("toolkit_demo.lab", *words, variables=variables, folder=notebooks)
        try:
            return jupyter.wait()
        finally:
            end(jupyter, grace=_GRACE)


def _run_jupyter(port: int, *, browser: bool) -> None:
    """Be JupyterLab on the working folder, until standard input closes."""
    # imported only in the process that is to be it
    from jupyterlab.labapp import LabApp  # type: ignore[import-untyped] # noqa: PLC0415

    end_with_parent()  # Jupyter's handler of SIGTERM ends the kernels first
    words = ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.root_dir=."]
    words += [] if browser else ["--no-browser"]
    # in containers everybody is root; it listens on this machine only, and asks for its token
    words += ["--allow-root"] if os.geteuid() == 0 else []
    LabApp.launch_instance(words)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it from a command line; see the module's docstring. Ctrl-C is the usual end, with status 0."""
    parser = argparse.ArgumentParser(
        prog="python -m toolkit_demo.lab",
        description="JupyterLab on the notebooks, connected to an embedded service with sample data.",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"port ({DEFAULT_PORT})")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.with_parent:
        _run_jupyter(given.port, browser=not given.no_browser)
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return run_lab(Path("notebooks"), port=given.port, browser=not given.no_browser)
    except KeyboardInterrupt:
        return 0
    except ToolkitError as error:
        print(error, file=sys.stderr)  # noqa: T201 - output of a command
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
