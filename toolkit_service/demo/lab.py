"""JupyterLab on the notebooks, connected to an embedded service with sample data.

``python -m toolkit_service.demo.lab [--port N] [--no-browser]`` runs both until you press Ctrl-C. Jupyter and
the kernels end with this process, even if it is killed.
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

from toolkit.base.children import end, end_with_parent, start_module
from toolkit.base.errors import InputError, LocalServiceError, ToolkitError
from toolkit.service.connecting import start_local
from toolkit_service.demo.run import environment_for

DEFAULT_PORT: Final = 8888
"""The port of JupyterLab. If it is in use, JupyterLab tries the next ports."""

_GRACE: Final = 20.0  # seconds that Jupyter has to end the kernels


def run_lab(notebooks: Path, *, port: int = DEFAULT_PORT, browser: bool = True) -> int:
    """Run JupyterLab on a folder of notebooks until it ends or is interrupted. Return the exit status.

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
            next_step="Run this in the folder of the project.",
        )

    if find_spec("jupyterlab") is None:
        raise LocalServiceError(
            "opening the notebooks",
            got="no JupyterLab",
            expected="the package jupyterlab in this environment",
            next_step="Install it: pip install jupyterlab.",
        )

    arguments = ["--with-parent", "--port", str(port)]
    if not browser:
        arguments.append("--no-browser")
    with start_local() as service:
        # the kernel of this environment, even if the user has another one of the same name
        variables = environment_for(service) | {"JUPYTER_PREFER_ENV_PATH": "1"}
        jupyter = start_module(
            "toolkit_service.demo.lab",
            *arguments,
            variables=variables,
            folder=notebooks,
        )
        try:
            return jupyter.wait()
        finally:
            end(jupyter, grace=_GRACE)


def _run_jupyter(port: int, *, browser: bool) -> None:
    """Become JupyterLab on the working folder, until standard input closes."""
    # imported only in the process that becomes JupyterLab
    from jupyterlab.labapp import LabApp  # type: ignore[import-untyped] # noqa: PLC0415

    end_with_parent()  # the handler of SIGTERM in Jupyter ends the kernels first
    arguments = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.root_dir=.",
    ]
    if not browser:
        arguments.append("--no-browser")
    if os.geteuid() == 0:
        # usual in containers; JupyterLab listens on this machine only, and asks for a token
        arguments.append("--allow-root")

    # JupyterLab prints the address at any level
    arguments.append("--ServerApp.log_level=ERROR")
    first_notebook = min(Path().glob("*.ipynb"), default=None)
    if first_notebook is not None:
        arguments.append(str(first_notebook))
        line = f"JupyterLab opens {first_notebook}. Ctrl-C ends it and the embedded service."
        print(line, flush=True)  # noqa: T201 - output of a command

    LabApp.launch_instance(arguments)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run JupyterLab from a command line; see the module. Ctrl-C is the usual end, with status 0."""
    parser = argparse.ArgumentParser(
        prog="python -m toolkit_service.demo.lab",
        description="JupyterLab on the notebooks, connected to an embedded service with sample data.",
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"port ({DEFAULT_PORT})"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="only print the address"
    )
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.with_parent:
        _run_jupyter(options.port, browser=not options.no_browser)
        return 0

    # an exception, so that the blocks above end Jupyter and the service
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return run_lab(
            Path("notebooks"), port=options.port, browser=not options.no_browser
        )
    except KeyboardInterrupt:
        return 0
    except ToolkitError as error:
        print(error, file=sys.stderr)  # noqa: T201 - output of a command
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
