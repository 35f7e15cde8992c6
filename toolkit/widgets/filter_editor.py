"""Edit a metadata filter as text and as rows. If you change one, the other follows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

import pandas as pd

from toolkit.base.errors import FilterSyntaxError, InputError
from toolkit.drawing.wording import counted
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.secrets.names import is_secret_name
from toolkit.secrets.redaction import Redactor, escape_html
from toolkit.tables.metadata_fields import MOST_READ, MetadataField, metadata_fields
from toolkit.widgets.fields import Changed, Completion, TextField
from toolkit.widgets.filter_conditions import FilterGroup, conditions_of
from toolkit.widgets.form_panel import FormPanel
from toolkit.widgets.metadata_condition import completions, typed_value
from toolkit.widgets.page_parts import note
from toolkit.widgets.panel import table_markup

_EXAMPLE: Final = "city = 'Izmir' AND (year >= 2024 OR tags CONTAINS 'new')"
_STAYS: Final = "The filter is unchanged until this is corrected."
_RETURN: Final = "The rows return when the text is a filter."
_CONTEXT: Final = 60  # characters shown on both sides of a mistake
_MOST: Final = 40  # conditions shown as rows; more of them are no help
_DEEPEST: Final = 6
_VALUES: Final = 4  # of a field, in the table of fields
_PART: Final = re.compile(r"[.\[\]]+")


class FilterEditor:
    """Edit a filter: text in the filter language. Empty text is no filter.

    `show` gets the parts of the state that change, for the page: the markup of the mistake (``note``), the
    reason why there are no rows (``hidden``), the table of fields (``fields``), and the arrangement of rows
    and groups (``tree``).

    Values are not offered if the redactor would mask them, or if a name above them is secret, for example
    ``auth.token``. `mistake` is the error if the text does not parse. An incomplete end is no mistake until
    Enter is pressed.
    """

    def __init__(
        self,
        panel: FormPanel,
        changed: Changed,
        *,
        show: Callable[[dict[str, Any]], object],
        redactor: Redactor,
    ) -> None:
        self._panel, self._changed, self._redactor = panel, changed, redactor
        self._show = show
        self._numbers = count(1)
        self._value = ""
        # of the text shown; None for no filter or a mistake
        self._tree: MetadataFilter | None = None
        self.fields: list[MetadataField] = []
        self.mistake: FilterSyntaxError | None = None
        self.text = panel.add_field(
            "filter",
            TextField(
                "Filter",
                self._text_changed,
                hint=_EXAMPLE,
                follows=True,
                complete=self._completions,
            ),
        )
        self.text.entered = self._entered
        self.rows = FilterGroup(self, None)
        self._send(note="", hidden="", fields="")
        self._show_rows()

    @property
    def value(self) -> str:
        """Return the filter. Text that does not parse is kept, with an explanation below it."""
        return self._value

    @value.setter
    def value(self, text: str) -> None:
        self._show_text(text)
        self._show_rows()

    def name_of(self, part: object) -> str:
        """Return a name that no other row or group had, for example ``FilterGroup-3``."""
        return f"{type(part).__name__}-{next(self._numbers)}"

    def add_field(self, name: str, field: Any) -> Any:
        """Add a field to the form of the panel."""
        return self._panel.add_field(name, field)

    def remove_field(self, name: str) -> None:
        """Remove a field from the form of the panel."""
        self._panel.remove_field(name)

    def learn(self, frame: pd.DataFrame) -> None:
        """Offer the fields that the metadata of a frame has, with their kinds and frequent values."""
        self.fields = [
            self._offered(field)
            for field in metadata_fields(frame)
            if self._redactor.text(field.name) == field.name
        ]
        self._send(fields=_described(self.fields, len(frame)))
        self.rows.learn()

    def _offered(self, field: MetadataField) -> MetadataField:
        """Return a field without values that are secret, or that look so."""
        if any(map(is_secret_name, _PART.split(field.name))):
            return replace(field, frequent=())

        shown = [pair for pair in field.frequent if not self._is_masked(pair[0])]
        return replace(field, frequent=tuple(shown))

    def _is_masked(self, value: object) -> bool:
        return isinstance(value, str) and self._redactor.text(value) != value

    def redraw(self) -> None:
        """Give rows and groups numbers, so that people can tell them apart, and send them."""
        self.rows.number(Counter())
        self._send(tree=self.rows.arrangement())

    def rows_changed(self) -> None:
        """Make the text of the rows. If a row has a problem, the filter stays."""
        try:
            made = self.rows.read()
        except InputError:
            return
        finally:
            # a row can have a new note
            self._send(tree=self.rows.arrangement())

        # Compare with the text in normal form, so that a person's
        # spelling is kept if the meaning is the same.
        text = "" if made is None else made.text()
        if text != _normal(self._value):
            self._show_text(text)
            self._changed()

    def _completions(self, text: str, head: str) -> Sequence[Completion]:
        return completions(text, head, self.fields)

    def _send(self, **state: Any) -> None:
        self._show(state)

    def _show_text(self, text: str) -> None:
        self._value = self.text.value = text
        self._check(text, entered=True, advice="")

    def _entered(self) -> None:
        self._check(self.text.value, entered=True)

    def _text_changed(self) -> None:
        text = self.text.value
        self._check(text)
        if self.mistake is None and text != self._value:
            self._value = text
            self._show_rows()
            self._changed()

    def _check(self, text: str, *, entered: bool = False, advice: str = _STAYS) -> None:
        self.mistake = self._tree = None
        explanation = ""
        try:
            self._tree = parse(text) if text.strip() else None
        except FilterSyntaxError as error:
            self.mistake = error
            explanation = _explained(error, text, entered=entered, advice=advice)

        self._send(note=explanation)

    def _show_rows(self) -> None:
        """Show the conditions of the text. If it does not parse or has too many, show no conditions."""
        tree = self._tree
        number, depth = conditions_of(tree), 0
        if tree is not None:
            depth = tree.depth

        hidden = ""
        if self.mistake is not None:
            hidden = _RETURN
        elif number > _MOST or depth > _DEEPEST:
            hidden = f"{number} conditions, {depth} deep: edit the text."

        self._send(hidden=hidden)
        self.rows.show(None if hidden else tree)
        self.redraw()


def _normal(text: str) -> str | None:
    """Return a filter in normal form, or None if it does not parse."""
    if not text.strip():
        return ""

    try:
        return parse(text).text()
    except FilterSyntaxError:
        return None


def _explained(
    error: FilterSyntaxError, text: str, *, entered: bool, advice: str
) -> str:
    """Return markup of a mistake: its place in the text, the error and the advice."""
    # A mistake at the very end is a filter that is still being typed, so it is a hint and not a problem.
    if error.position >= len(text.rstrip()) and not entered:
        return note(f"Next: {error.expected}.")

    marked = _marked(text, error.position)
    return marked + note(str(error), "problem") + note(advice)


def _marked(text: str, position: int) -> str:
    """Return the text around a position. The style shows a caret below the marked character."""
    first, last = max(0, position - _CONTEXT), position + _CONTEXT
    start = "…" if first else ""
    end = "…" if last < len(text) else ""
    before = _in_one_line(text[first:position])
    character = _in_one_line(text[position : position + 1] or " ")
    after = _in_one_line(text[position + 1 : last])
    shown = f"{start}{before}<mark>{character}</mark>{after}{end}"

    return f'<pre class="tk-where" aria-hidden="true">{shown}</pre>'


def _in_one_line(text: str) -> str:
    return escape_html(text.replace("\n", " ").replace("\t", " "))


def _described(fields: Sequence[MetadataField], vectors: int) -> str:
    """Return a folded table of the fields with their kinds and frequent values."""
    read = counted(min(vectors, MOST_READ), "vector")
    head = f"{counted(len(fields), 'field')} that a filter can name, in the metadata of {read}"
    if vectors > MOST_READ:
        head += f", drawn at random from {vectors:,}"
    if not fields:
        return note(head)

    names = ("Field", "Kind", "Vectors", "Frequent values")
    rows = [_row_of(field) for field in fields]
    table = table_markup(names, rows, ' class="tk-found"')

    return f"<details><summary>{escape_html(head)}</summary>{table}</details>"


def _row_of(field: MetadataField) -> tuple[str, str, str, str]:
    values = [
        f"{typed_value(value)[:40]} ({number:,})"
        for value, number in field.frequent[:_VALUES]
    ]
    return field.name, " or ".join(field.kinds), f"{field.rows:,}", " · ".join(values)
