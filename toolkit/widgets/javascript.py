"""Controls drawn by JavaScript: what a person does comes in numbered messages, in the order it was done in.

JupyterLab takes a key pressed in a focused button, checkbox, list or slider for a shortcut of the notebook:
``d d`` deletes the cell, arrows walk away (ipywidgets issue 3912). Every panel has a `Guard` against that.
Controls of ipywidgets send a value when the kernel is free and the press of a button at once, so that a press
overtakes what was typed before it: those that matter are drawn here, and each press carries the messages that
the kernel has not confirmed.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from threading import RLock
from typing import Any, Final
from uuid import uuid4

import anywidget
import traitlets

hearing: Final = RLock()
"""Held while a message of a page is taken, and while a panel's value is changed by one.

JupyterLab brings messages of several controls on several threads: a press must not pass a message whose
consequences are still being drawn, and what is written must follow from what was read.
"""


@cache
def script(name: str) -> str:
    """The text of a file of this package's ``js`` folder."""
    return resources.files("toolkit.widgets").joinpath("js", name).read_text("utf-8")


def module(name: str) -> str:
    """The JavaScript module ``js/<name>.js``, with what all modules share."""
    return f"{script('shared.js')}{script(f'{name}.js')}"


def synced(kind: traitlets.TraitType[Any, Any]) -> Any:
    """A trait that kernel and page share."""
    return kind.tag(sync=True)


def is_count(value: object) -> bool:
    """Whether a value that the page sent is a whole number that both sides count exactly.

    >>> is_count(3), is_count(True), is_count(10**30)
    (True, False, False)
    """
    return type(value) is int and 0 <= value < 2**53


class Guard(anywidget.AnyWidget):
    """Keeps keys pressed in a panel from the notebook's shortcuts."""

    _esm = module("guard")


class Control(anywidget.AnyWidget):
    """A control whose page tells of changes in numbered messages.

    Attributes
    ----------
    key : str
        What the page calls it by, when a press carries its messages.
    seq : int
        Number of the last message that was taken. Older ones are ignored: they have come with a press.
    """

    key = synced(traitlets.Unicode())
    seq = synced(traitlets.Int())

    def __init__(self, **traits: Any) -> None:
        super().__init__(key=uuid4().hex, **traits)
        self.on_msg(lambda _, content, __: self.hear(content))

    def hear(self, content: object) -> None:
        """Take a message of the page, unless it is an older one, or none that the page would send."""
        if not isinstance(content, dict) or not is_count(content.get("seq")):
            return
        # the number goes with what it brings about: the page passes over what is older than its own
        with hearing, self.hold_sync():
            if content["seq"] > self.seq and self._take(content):
                self.seq = content["seq"]

    def _take(self, content: dict[str, Any]) -> bool:
        """Take a message; False for one that the page would never send."""
        raise NotImplementedError


def hear_all(root: Any, fields: object) -> None:
    """Take the messages that came with a press, for the controls inside a widget.

    Parameters
    ----------
    root : ipywidgets.Widget
    fields : object
        As the page sent them: pairs of a control's key and its unconfirmed messages.
    """
    if not isinstance(fields, list) or not fields:
        return
    known: dict[str, Control] = {}
    left = [root]
    while left:
        found = left.pop()
        left += getattr(found, "children", ())
        if isinstance(found, Control):
            known[found.key] = found
    for pair in fields:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], list):  # noqa: PLR2004 - a pair
            for control in (known[pair[0]],) if pair[0] in list(known) else ():
                for message in pair[1]:
                    control.hear(message)
