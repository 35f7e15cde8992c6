"""The few controls that need JavaScript, where anywidget is installed (`pip install '….[app]'`).

JupyterLab takes a key pressed in a focused button, checkbox, list or slider for a shortcut of the notebook:
``d d`` deletes the cell, arrows walk away (ipywidgets issue 3912). Only controls that text is typed into are
safe. A guard keeps keys inside a panel, and needs JavaScript; without it panels use text controls alone.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import Any

import traitlets


def has_javascript() -> bool:
    """Whether controls with JavaScript can be made."""
    return find_spec("anywidget") is not None


@cache
def script(name: str) -> str:
    """The text of a file of this room's ``js`` folder."""
    return resources.files("toolkit.widgets").joinpath("js", name).read_text("utf-8")


def javascript_control(name: str, **state: traitlets.TraitType[Any, Any]) -> type[Any]:
    """The class of a control drawn by ``js/<name>.js``.

    Parameters
    ----------
    name : str
        Of the module.
    **state : traitlets.TraitType
        What kernel and page share, by name.

    Returns
    -------
    type
        A subclass of ``anywidget.AnyWidget``, imported now.
    """
    import anywidget  # noqa: PLC0415 - optional

    shared = {trait: kind.tag(sync=True) for trait, kind in state.items()}
    return type(name.capitalize(), (anywidget.AnyWidget,), {"_esm": script(f"{name}.js"), **shared})


def is_count(value: object) -> bool:
    """Whether a value that the page sent is a whole number that both sides count exactly.

    >>> is_count(3), is_count(True), is_count(10**30)
    (True, False, False)
    """
    return type(value) is int and 0 <= value < 2**53


@cache
def guard_class() -> type[Any]:
    """The class of the control that keeps keys pressed in a panel from the notebook's shortcuts."""
    return javascript_control("guard")
