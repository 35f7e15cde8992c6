"""Define the base of panels with fields and buttons, and of panels that choose rows. Each is one widget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pandas as pd
import traitlets

from toolkit.service.settings import Service
from toolkit.widgets.fields import Field
from toolkit.widgets.page_panel import PagePanel
from toolkit.widgets.page_parts import MESSAGE_LOCK, script, synced
from toolkit.widgets.panel import Call, static_table

NOT_COPIED: Final = (
    "This page may not write to the clipboard: copy the code below, or use .to_code()."
)
"""The message if the browser refuses to copy."""

FieldType = TypeVar("FieldType", bound=Field)


class FormPanel(PagePanel):
    """A panel with fields and buttons. Subclasses add fields and call `_begin`.

    `form` has the states of the fields by name, `buttons` the buttons below them. If a person presses a
    button, the page first sends the fields that the person has not left, in the same order.
    """

    _css = script("kit.css") + script("form.css")
    form = synced(traitlets.Dict())
    buttons = synced(traitlets.List())
    idle = synced(traitlets.List(help="Names of buttons that can do nothing now."))

    def __init__(self, title: str, **options: Any) -> None:
        self._parts: dict[str, Field] = {}
        self._calls: dict[str, Call] = {}
        self._drawings = 0
        super().__init__(title, **options)

    def add_field(self, name: str, field: FieldType) -> FieldType:
        """Add a field under a name that no other field of the panel has."""
        field.redraw = self._send_form
        self._parts[name] = field
        return field

    def remove_field(self, name: str) -> None:
        """Remove a field: the page draws it no more, and late messages for it are ignored."""
        self._parts.pop(name).redraw = lambda: None

    def add_buttons(self, calls: Mapping[str, Call], *, main: str) -> None:
        """Add the buttons of the panel. `main` is the primary one."""
        self._calls = dict(calls)
        self.buttons = [{"name": name, "main": name == main} for name in calls]
        self._show_idle()

    def _idle_buttons(self) -> list[str]:
        """Return the names of buttons that can do nothing now. The page hides them."""
        return [self._stop] if self._job is None else []

    def _show_idle(self) -> None:
        self.idle = self._idle_buttons()

    def press(self, name: str) -> None:
        """Run the action of a button, for example ``"Load"``."""
        self._calls[name]()

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Send everything that changes inside as one message."""
        with self.hold_sync():
            self._drawings += 1
            try:
                yield
            finally:
                self._drawings -= 1
                self._send_form()

    def _send_form(self) -> None:
        if self._drawings:
            return
        # traitlets sends a new dict only if it differs
        self.form = {name: dict(field.state) for name, field in self._parts.items()}

    def _begin(self) -> None:
        with self._drawing():
            super()._begin()

    def _value_set(self, change: dict[str, Any]) -> None:
        # one message for all fields that the value changes
        with MESSAGE_LOCK, self._drawing():
            super()._value_set(change)

    def _process(self, content: dict[str, Any]) -> None:
        with self._drawing():
            match content:
                case {"kind": "field", "name": str(name)} if name in self._parts:
                    self._parts[name].receive(content)
                case {"kind": "press", "name": "Copy code"}:
                    # only the page can write to the clipboard
                    self.send({"kind": "copy", "text": self.to_code()})
                case {"kind": "press", "name": str(name)} if name in self._calls:
                    self.press(name)
                case {"kind": "copied", "done": bool(done)}:
                    self._copied(done=done)
                case _:
                    self._process_other(content)

    def _process_other(self, content: dict[str, Any]) -> None:
        """Process a message that is neither of a field nor of a button."""

    def _copied(self, *, done: bool) -> None:
        if done:
            self.announce("Code copied.")
        else:
            self.announce(NOT_COPIED, "problem")


class RowsPanel(FormPanel):
    """A panel with a value that chooses rows. A service is only read if you press a button.

    Subclasses define `_matching`, which returns the matching rows of a frame, and `matching`, which returns a
    sentence with their number. `requests` are the buttons besides Load that send requests.
    """

    matches = synced(traitlets.Unicode())
    first_rows = synced(traitlets.Unicode())

    def __init__(
        self,
        title: str,
        source: Any,
        frame: Any,
        *,
        requests: Mapping[str, Call],
        **options: Any,
    ) -> None:
        self._service: Service | None = None
        self._known: pd.DataFrame | None = source
        redactor = None
        if isinstance(source, Service):
            self._service, self._known = source, frame
            redactor = source.redactor

        super().__init__(title, redactor=redactor, **options)
        calls: dict[str, Call] = {"Apply": self._start_run}
        if self._service is not None:
            calls = {"Load": self._start_run, **requests}
        calls["Clear"] = self.clear
        if self._service is not None:
            # the last one, because it is hidden if nothing is loaded
            calls["Cancel"] = self.cancel

        self.add_buttons(calls, main=next(iter(calls)))

    def clear(self) -> None:
        """Choose everything."""
        self.value = self._value_type()

    def frame(self) -> pd.DataFrame:
        """Return the chosen rows: rows of a frame that match now, or rows that `run` loaded last."""
        if self._service is None and self._known is not None:
            return self._matching(self._known)
        return super().frame()

    def matching(self) -> str:
        """Return a sentence with the number of matching rows. No request is sent."""
        raise NotImplementedError

    def _matching(self, frame: pd.DataFrame) -> pd.DataFrame:
        raise NotImplementedError

    def _show_counts(self) -> None:
        """Update the code and the number of matching rows."""
        self._show_code()
        self.matches = self.matching()

    def _show_first(self, frame: pd.DataFrame) -> None:
        """Show the first rows of a result."""
        self.first_rows = static_table(frame, self._redactor)
