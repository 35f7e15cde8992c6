"""Whether this process is the command ``toolkit``, or a program that imports the toolkit."""

from __future__ import annotations

import sys
from pathlib import Path


def is_own_command() -> bool:
    """Return whether this process is ``python -m toolkit``, or the script ``toolkit`` next to its Python.

    A program of the same name in another folder is not the command.
    """
    if sys.argv[:1] == ["-m"]:
        # while the package of ``python -m`` is imported, argv does not name it yet
        following = sys.orig_argv[sys.orig_argv.index("-m") + 1 :]
        return following[:1] == ["toolkit"]

    started = Path(sys.argv[0] if sys.argv else "")
    return started.stem == "toolkit" and started.parent == Path(sys.executable).parent
