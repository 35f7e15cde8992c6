"""Whether this process belongs to the toolkit, or is a program that imports it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

# the command, and the modules that it starts as child processes
_OWN_MODULE: Final = re.compile(r"toolkit|toolkit_service(\.\w+)+")


def is_own_process() -> bool:
    """Return whether this process is the command ``toolkit``, or a child process that it starts.

    The command is ``python -m toolkit``, or the script ``toolkit`` next to its Python. A program of the same
    name in another folder is a program of somebody else.
    """
    module = _started_module()
    if module is not None:
        return _OWN_MODULE.fullmatch(module) is not None

    started = Path(sys.argv[0] if sys.argv else "")
    return started.stem == "toolkit" and started.parent == Path(sys.executable).parent


def _started_module() -> str | None:
    """Return the name of the module that ``python -m`` runs, or None for a script or a line of Python."""
    if sys.argv[:1] == ["-m"]:
        # Python still imports the package of the module, so that only the command line has the name
        return "".join(sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1])

    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return None if spec is None else spec.name
