"""The text of a metadata filter in a field: completed while it is typed, mistakes marked where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ipywidgets as widgets

from toolkit.errors import FilterSyntaxError
from toolkit.filters.metadata import parse
from toolkit.redaction import escape_html, visible
from toolkit.tables.metadata_fields import MetadataField
from toolkit.widgets.controls import Text, note
from toolkit.widgets.metadata_completion import offers

_EXAMPLE: Final = "city = 'Izmir' AND (year >= 2024 OR tags CONTAINS 'new')"
_STAYS: Final = "Until this is mended, the filter stays as it was."
_AROUND: Final = 60  # characters shown on both sides of a mistake


class FilterText:
    """The filter as one line of text.

    Parameters
    ----------
    changed : callable
        Called with every text that a person types and that is a filter, or is empty.
    label : str

    Notes
    -----
    While somebody types, the end of a filter that is not yet whole is no mistake: the line below says what
    can follow. Enter asks for a verdict.
    """

    def __init__(self, changed: Callable[[str], None], *, label: str = "Filter") -> None:
        self._changed = changed
        self._fields: Sequence[MetadataField] = ()
        self._quiet = False
        self.text = Text(
            label, complete=lambda text, head: offers(text, head, self._fields), hint=_EXAMPLE, follows=True
        )
        self.text.entered = lambda _: self._judge(self.text.value.strip(), whole=True)
        self._note = widgets.HTML()
        self.view = widgets.VBox([self.text, self._note]).add_class("tk-control")
        self.problem: FilterSyntaxError | None = None
        self.text.observe(self._typed, "value")

    def offer(self, fields: Sequence[MetadataField]) -> None:
        """Complete the names and values of these fields."""
        self._fields = fields

    def show(self, text: str) -> None:
        """Show a filter, whether it parses or not."""
        self._quiet = True
        self.text.value = visible(text)
        self._quiet = False
        self._judge(text, whole=True, shown=True)

    def _typed(self, change: dict[str, Any]) -> None:
        if self._quiet:
            return
        text = change["new"].strip()
        self._judge(text, whole=False)
        if self.problem is None:
            self._changed(text)

    def _judge(self, text: str, *, whole: bool, shown: bool = False) -> None:
        self.problem = None
        self._note.value = ""
        if not text.strip():
            return
        try:
            parse(text)
        except FilterSyntaxError as error:
            self.problem = error
            if error.position >= len(text.rstrip()) and not whole:
                self._note.value = note(f"Next: {error.expected}.")
            else:
                said = note(str(error), "problem") + note("" if shown else _STAYS)
                self._note.value = f"{_marked(text, error.position)}{said}"


def _marked(text: str, position: int) -> str:
    """The text around a position, the character there marked: with a caret under it, by the style."""
    first, last = max(0, position - _AROUND), position + _AROUND
    line = [
        escape_html(part.replace("\n", " ").replace("\t", " "))
        for part in (text[first:position], text[position : position + 1] or " ", text[position + 1 : last])
    ]
    start, end = "…" if first else "", "…" if last < len(text) else ""
    return (
        f'<pre class="tk-where" aria-hidden="true">{start}{line[0]}<mark>{line[1]}</mark>{line[2]}{end}</pre>'
    )
