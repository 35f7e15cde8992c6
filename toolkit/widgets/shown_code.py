"""Code that panels show and copy. Frames are named as in the notebook, and long code is shortened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from IPython.core.getipython import get_ipython

from toolkit.base.errors import InputError
from toolkit.base.python_code import Code, fill, joined, variable
from toolkit.secrets.redaction import escape_wrapping
from toolkit.service.settings import Service

_LINES: Final = 300  # of code that is shown; what is copied is complete


def named_code(write: Callable[[Code], Code], given: object, usual: str) -> Code:
    """Code that finds what a panel was made with: by its name in the notebook, else by the usual one.

    >>> print(named_code(lambda name: fill("len({name})", name=name), pd.DataFrame(), "failures"))
    # failures: the frame this panel was made with
    len(failures)
    """
    names: dict[str, object] = dict(getattr(get_ipython(), "user_ns", {}))
    found = [name for name, value in names.items() if value is given and not str(name).startswith("_")]
    for name in sorted(found, key=len):
        with suppress(InputError):  # of a name that no variable can have
            return write(variable(name))
    named = variable(usual)
    what = fill("service") if isinstance(given, Service) else fill("frame")
    comment = fill("# {named}: the {what} this panel was made with", named=named, what=what)
    return joined([comment, write(named)])


def code_markup(code: str) -> str:
    """Code to read and copy. Of a long list, an item a line, the first items: it still is Python."""
    lines = code.split("\n")
    if (more := len(lines) - _LINES) > 0:
        lines[_LINES - 2 : -2] = [f"    # … {more:,} more lines"]  # the last two end the list
    shown = escape_wrapping("\n".join(lines))
    return f'<pre class="tk-code" tabindex="0">{shown}</pre>'
