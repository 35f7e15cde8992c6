"""Write the code that panels show and copy. Frames are named as in your notebook; long code is shortened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from IPython.core.getipython import get_ipython

from toolkit.base.errors import InputError
from toolkit.base.python_code import Code, fill, joined, variable
from toolkit.secrets.redaction import escape_wrapping
from toolkit.service.settings import Service

_LINES: Final = 300  # of code that is shown; the copied code is complete


def variable_of(given: object) -> Code | None:
    """Return the shortest name of the variable of the notebook that has this very value, or None."""
    names: dict[str, object] = dict(getattr(get_ipython(), "user_ns", {}))
    # IPython keeps results as `_`, `_3` and so on. Nobody chose these names, so they are left out.
    found = [
        name
        for name, value in names.items()
        if value is given and not str(name).startswith("_")
    ]
    for name in sorted(found, key=len):
        with suppress(InputError):  # a name that no variable can have
            return variable(name)

    return None


def named_code(write: Callable[[Code], Code], given: object, usual: str) -> Code:
    """Return code for the frame or service of a panel, with the name of the variable in the notebook.

    If no variable refers to it, the usual name is used, and the first line is a comment.

    >>> print(named_code(lambda name: fill("len({name})", name=name), pd.DataFrame(), "failures"))
    # failures: the frame this panel was made with
    len(failures)
    """
    name = variable_of(given)
    if name is not None:
        return write(name)

    named = variable(usual)
    what = fill("service") if isinstance(given, Service) else fill("frame")
    comment = fill(
        "# {named}: the {what} this panel was made with", named=named, what=what
    )

    return joined([comment, write(named)])


def code_markup(code: str) -> str:
    """Return markup of code to read and copy. A long list is shortened to the first items, one per line.

    The shortened list is still valid Python.
    """
    lines = code.split("\n")
    if (more := len(lines) - _LINES) > 0:
        # the last two end the list
        lines[_LINES - 2 : -2] = [f"    # … {more:,} more lines"]

    shown = escape_wrapping("\n".join(lines))
    return f'<pre class="tk-code" tabindex="0">{shown}</pre>'
