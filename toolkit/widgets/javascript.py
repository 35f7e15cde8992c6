"""Controls drawn by JavaScript: the page sends user actions in numbered messages.

Every panel has a `KeyboardGuard`, as JupyterLab treats keys pressed in a panel as shortcuts: ``d d`` deletes
the cell (ipywidgets issue 3912). A press of a button can overtake text that was typed before it; therefore it
carries the messages that the kernel has not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from threading import RLock
from typing import Any, Final
from uuid import uuid4

import anywidget
import traitlets

from toolkit.redaction import visible

MESSAGE_LOCK: Final = RLock()
"""Held while a message of the page is processed, and while it changes a panel's value.

JupyterLab delivers messages of several controls on several threads. A press must not overtake a message whose
consequences are still being drawn.
"""

Changed = Callable[[], object]
ReceiveFields = Callable[[object], None]
"""Processes the unconfirmed messages of a panel's fields that came with a press."""


@cache
def script(name: str) -> str:
    """The text of a file in this package's ``js`` folder."""
    return resources.files("toolkit.widgets").joinpath("js", name).read_text("utf-8")


def module(name: str) -> str:
    """The JavaScript module ``js/<name>.js``, with the functions that all modules share."""
    return f"{script('shared.js')}{script(f'{name}.js')}"


def synced(kind: traitlets.TraitType[Any, Any]) -> Any:
    """A trait that kernel and page share."""
    return kind.tag(sync=True)


def is_count(value: object) -> bool:
    """Whether a value is a whole number from 0 that Python and JavaScript both hold exactly.

    >>> is_count(3), is_count(True), is_count(10**30)
    (True, False, False)
    """
    return type(value) is int and 0 <= value < 2**53


class KeyboardGuard(anywidget.AnyWidget):
    """Keeps keys pressed in a panel from the notebook's shortcuts."""

    _esm = module("guard")


class Control(anywidget.AnyWidget):
    """A control with a label, and a problem or a remark below it.

    `changed` is called after a person changed its value. `seq` is the number of the last message processed:
    older ones are ignored, as they have already come with a press.
    """

    key = synced(traitlets.Unicode())
    seq = synced(traitlets.Int())
    label = synced(traitlets.Unicode())
    problem = synced(traitlets.Unicode(None, allow_none=True))
    remark = synced(traitlets.Unicode())

    def __init__(self, label: str = "", changed: Changed = lambda: None, **traits: Any) -> None:
        self._changed = changed
        super().__init__(key=uuid4().hex, label=label, **traits)
        self.add_class("tk-control")
        self.on_msg(lambda _, content, __: self.receive(content))

    @traitlets.validate("problem", "remark")
    def _shown_text(self, proposal: dict[str, Any]) -> str | None:
        return proposal["value"] and visible(proposal["value"])

    def receive(self, content: object) -> None:
        """Process a message of the page, unless it is an older one, or none that the page would send."""
        if not isinstance(content, dict) or not is_count(content.get("seq")):
            return
        # the number is sent together with the changes: the page ignores older ones than its own
        with MESSAGE_LOCK, self.hold_sync():
            if content["seq"] > self.seq and self._process(content):
                self.seq = content["seq"]

    def _process(self, content: dict[str, Any]) -> bool:
        """Process a message; False for one that the page would never send."""
        raise NotImplementedError


class Actions(anywidget.AnyWidget):
    """The buttons of a panel; with `main`, the first is the main one."""

    _esm = module("buttons")
    names = synced(traitlets.List(traitlets.Unicode()))
    main = synced(traitlets.Bool())

    def __init__(
        self, calls: Mapping[str, Callable[[], object]], receive_fields: ReceiveFields, *, main: bool = True
    ) -> None:
        self._calls, self._receive_fields = calls, receive_fields
        super().__init__(names=list(calls), main=main)
        self.on_msg(lambda _, content, __: self.receive(content))

    def receive(self, content: object) -> None:
        """Process a press, after the values that it was made on."""
        if isinstance(content, dict) and content.get("press") in list(self._calls):
            with MESSAGE_LOCK:
                self._receive_fields(content.get("fields"))
                self.press(content["press"])

    def press(self, name: str) -> None:
        """Run the action of this button."""
        self._calls[name]()


def receive_all(root: Any, fields: object) -> None:
    """Process messages that came with a press, for controls inside a widget: pairs of a key and messages."""
    if not isinstance(fields, list) or not fields:
        return
    controls: dict[str, Control] = {}
    left = [root]
    while left:
        found = left.pop()
        left += getattr(found, "children", ())
        if isinstance(found, Control):
            controls[found.key] = found
    for pair in fields:
        match pair:
            case [str(key), list(messages)] if key in controls:
                for message in messages:
                    controls[key].receive(message)
