"""Define the parts of all panels that go to the page: scripts, synced traits and notes."""

from __future__ import annotations

from functools import cache
from importlib import resources
from threading import RLock
from typing import Any, Final

import traitlets

from toolkit.secrets.redaction import escape_wrapping

MESSAGE_LOCK: Final = RLock()
"""Held while a message of the page is processed, and while it changes a panel's value.

JupyterLab delivers messages on another thread than the one that runs cells. Without the lock, a cell could
set a value while a message about the earlier one is still being processed.
"""


@cache
def script(name: str) -> str:
    """Return the text of a file in this package's ``js`` folder."""
    return resources.files("toolkit.widgets").joinpath("js", name).read_text("utf-8")


def synced(kind: traitlets.TraitType[Any, Any]) -> Any:
    """Return a trait that kernel and page share."""
    return kind.tag(sync=True)


def is_count(value: object) -> bool:
    """Return whether a value is a whole number from 0 that Python and JavaScript represent exactly.

    >>> is_count(3), is_count(True), is_count(10**30)
    (True, False, False)
    """
    # `isinstance` would accept True, which is an int in Python. Numbers in JavaScript are floats
    # of 64 bits, which are exact below 2**53.
    return type(value) is int and 0 <= value < 2**53


def note(text: str, kind: str = "note") -> str:
    """Return a line of markup: a ``note``, a ``count``, or a ``problem`` with a sign before it."""
    if not text:
        return ""

    sign, role = "", "status"
    if kind == "problem":
        sign, role = "⚠ ", "alert"
    return f'<div class="tk-{kind}" role="{role}">{sign}{escape_wrapping(text)}</div>'
