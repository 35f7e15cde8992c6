"""A metadata filter as text and as controls, each following the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import ipywidgets as widgets
import pandas as pd

from toolkit.errors import FilterSyntaxError, InputError
from toolkit.filters.metadata import And, MetadataFilter, Or, parse
from toolkit.redaction import Redactor, escape_html, visible
from toolkit.secret_patterns import is_secret_name
from toolkit.tables.metadata_fields import MetadataField, metadata_fields
from toolkit.widgets.controls import Text, note
from toolkit.widgets.metadata_completion import offers
from toolkit.widgets.metadata_condition import typed
from toolkit.widgets.metadata_rows import Group

_EXAMPLE: Final = "city = 'Izmir' AND (year >= 2024 OR tags CONTAINS 'new')"
_STAYS: Final = "Until this is mended, the filter stays as it was."
_AROUND: Final = 60  # characters shown on both sides of a mistake
_MOST: Final = 40  # conditions shown as controls; each is a handful of widgets
_DEEPEST: Final = 6
_VALUES: Final = 4  # of a field, in the table of fields
_PART: Final = re.compile(r"[.\[\]]+")


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


class MetadataEditor:
    """Edits the text of a filter. Its value is text in the filter language; empty is no filter.

    Parameters
    ----------
    changed : callable
        Called after a person made another filter.
    redactor : Redactor
        Values that it would mask are not offered, nor any below a name that says it holds a secret.
    label : str
        Of the line of text.
    """

    def __init__(self, changed: Callable[[], None], *, redactor: Redactor, label: str = "Filter") -> None:
        self._changed, self._redactor = changed, redactor
        self._value = ""
        self._fields: Sequence[MetadataField] = ()
        self.text = FilterText(self._text_changed, label=label)
        self._found = widgets.HTML()
        self._many = widgets.HTML()
        self.rows = Group(self._rows_changed, None, lambda: self._fields)
        controls = [self.text.view, self.rows.view, self._many, self._found]
        self.view = widgets.VBox(controls).add_class("tk-control")

    @property
    def value(self) -> str:
        """The filter. What is set may be text that does not parse: the line says so, and keeps it."""
        return self._value

    @value.setter
    def value(self, text: str) -> None:
        self._value = text
        self.text.show(text)
        self._show_rows(text)

    def learn(self, frame: pd.DataFrame) -> None:
        """Offer the fields that the metadata of a frame has, with their kinds and frequent values."""
        mask = self._redactor.text
        self._fields = [
            MetadataField(
                found.name,
                found.kinds,
                found.rows,
                ()
                if any(map(is_secret_name, _PART.split(found.name)))
                else tuple(
                    one for one in found.frequent if not isinstance(one[0], str) or mask(one[0]) == one[0]
                ),
            )
            for found in metadata_fields(frame)
            if mask(found.name) == found.name
        ]
        self._found.value = _described(self._fields, len(frame))
        self.text.offer(self._fields)
        self.rows.learn()

    def _text_changed(self, text: str) -> None:
        if text != self._value:
            self._value = text
            self._show_rows(text)
            self._changed()

    def _rows_changed(self) -> None:
        try:
            made = self.rows.read()
        except InputError:
            return  # said beside its control; the filter stays
        text = "" if made is None else made.text()
        if text != _canonical(self._value):
            self._value = text
            self.text.show(text)
            self._changed()

    def _show_rows(self, text: str) -> None:
        try:
            tree = parse(text) if text.strip() else None
        except FilterSyntaxError:
            # controls of the filter before it would say that it is still asked
            self._many.value = note("The controls come back when the text is a filter.")
            self.rows.view.layout.display = "none"
            self.rows.show(None)
            return
        count, depth = 0 if tree is None else sum(1 for _ in _leaves(tree)), 0 if tree is None else tree.depth
        shown = count <= _MOST and depth <= _DEEPEST
        self._many.value = "" if shown else note(f"{count} conditions, {depth} deep: edit the text.")
        self.rows.view.layout.display = "" if shown else "none"
        self.rows.show(tree if shown else None)


def _canonical(text: str) -> str | None:
    """A filter in its one form; None for a text that does not parse."""
    try:
        return parse(text).text() if text.strip() else ""
    except FilterSyntaxError:
        return None


def _leaves(tree: MetadataFilter) -> Iterator[MetadataFilter]:
    if isinstance(tree, And | Or):
        for part in tree.parts:
            yield from _leaves(part)
    else:
        yield tree


def _described(fields: Sequence[MetadataField], rows: int) -> str:
    """The fields with their kinds and frequent values, as a table, folded away."""
    head = f"{len(fields):,} fields in the metadata of {rows:,} vectors"
    if not fields:
        return note(head)
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape_html(cell)}</td>"
            for cell in (
                field.name,
                " or ".join(field.kinds),
                f"{field.rows:,}",
                " · ".join(f"{typed(value)[:40]} ({count:,})" for value, count in field.frequent[:_VALUES]),
            )
        )
        + "</tr>"
        for field in fields
    )
    names = "".join(
        f'<th scope="col">{name}</th>' for name in ("Field", "Kind", "Vectors", "Frequent values")
    )
    table = f'<table class="tk-fields"><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>'
    return f"<details><summary>{escape_html(head)}</summary>{table}</details>"
