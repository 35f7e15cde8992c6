"""A metadata filter as text and as controls, each following the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import ipywidgets as widgets
import pandas as pd

from toolkit.errors import FilterSyntaxError, InputError
from toolkit.filters.metadata import And, MetadataFilter, Or, parse
from toolkit.redaction import Redactor, escape_html, is_secret_name
from toolkit.tables.metadata_fields import MetadataField, metadata_fields
from toolkit.widgets.controls import note
from toolkit.widgets.metadata_condition import typed
from toolkit.widgets.metadata_rows import Group
from toolkit.widgets.metadata_text import FilterText

_MOST: Final = 40  # conditions shown as controls; each is a handful of widgets
_DEEPEST: Final = 6
_VALUES: Final = 4  # of a field, in the table of fields
_PART: Final = re.compile(r"[.\[\]]+")


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
