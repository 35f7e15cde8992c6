"""The dead letter queue as a table with one failure in full beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
import traitlets

from toolkit.analysis.wording import counted
from toolkit.errors import InputError
from toolkit.redaction import Redactor, escape_html
from toolkit.widgets.controls import Actions, TextField, note
from toolkit.widgets.failure_detail import detail_markup
from toolkit.widgets.failure_rows import FailureRows
from toolkit.widgets.failure_table import Grid
from toolkit.widgets.failure_view import FailureView
from toolkit.widgets.panel import Panel, must_be
from toolkit.widgets.work import Job


class FailureBrowser(Panel):
    """Browse failures: a table to search, sort and select in, and one failure in full beside it.

    Parameters
    ----------
    failures : pandas.DataFrame
        Of `load_failures`, or rows of one. 100,000 are fluid.
    value : FailureView, optional
        What is searched, sorted by and selected at first.
    key : str, optional
        Keeps the value when the cell is run again; see `toolkit.widgets`.
    redactor : Redactor, optional
        ``service.redactor`` masks that service's tokens too.

    Attributes
    ----------
    value : FailureView
        Readable, settable, observable.

    Raises
    ------
    InputError
        For what is no frame of failures.

    Notes
    -----
    Header values are shown by an allow-list; texts and bodies are masked where they look like secrets.
    The frame stays as it is. Keys in the table: arrows move, Space selects, Ctrl+A selects all that is found.

    Examples
    --------
    >>> browser = FailureBrowser(tk.load_failures(service, limit=250))
    >>> browser.value = tk.FailureView(search="timeout")
    >>> browser.select_found()
    >>> len(browser.frame()) == len(browser.value.selected)
    True
    """

    def __init__(
        self,
        failures: pd.DataFrame,
        *,
        value: FailureView | None = None,
        key: str | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        doing = "making a FailureBrowser"
        given = FailureView() if value is None else must_be(value, FailureView, doing)
        redactor = redactor if redactor is not None else Redactor()
        self._rows = FailureRows(must_be(failures, pd.DataFrame, doing), redactor)
        self._order = np.arange(0, dtype=np.int64)
        self._arranged: tuple[str, str, bool] | None = None
        self._active: int | None = None
        super().__init__("Failures", value=given, key=key, redactor=redactor)
        self._build()

    @traitlets.validate("value")
    def _checked(self, proposal: dict[str, Any]) -> FailureView:
        return must_be(proposal["value"], FailureView, "setting a FailureBrowser's value")

    def _build(self) -> None:
        self.search = TextField(
            "Search ids, addresses, labels and bodies", self._searched, hint="part of a text; press Enter"
        )
        self._said = widgets.HTML()
        self.detail = widgets.HTML().add_class("tk-beside")
        calls: dict[str, Callable[[], object]] = {
            "Select all found": self.select_found,
            "Clear selection": self.clear_selection,
        }
        self.actions = Actions(calls, self.hear, main=False)
        self.table = Grid(self)
        both = widgets.Box([self.table.view.add_class("tk-table"), self.detail]).add_class("tk-browser")
        head = widgets.HTML(f'<div class="tk-head">{escape_html(self._title)}</div>')
        self._compose(head, self.search.view, self._said, both, self.actions.view)

    # the view, as the kernel keeps it

    def found(self) -> pd.DataFrame:
        """The failures that the search finds, in the table's order.

        Returns
        -------
        pandas.DataFrame
            Rows of the frame.
        """
        return self._rows.frame.iloc[self._order]

    def frame(self) -> pd.DataFrame:
        """The failures that are selected, in the order in which they were.

        Returns
        -------
        pandas.DataFrame
            Rows of the frame, with all its columns; none, where nothing is selected.
        """
        return self._rows.frame.iloc[self._rows.places_of(self.value.selected)]

    def select_found(self) -> None:
        """Select all that the search finds, beside what is selected already."""
        self.value = self.value.but(selected=(*self.value.selected, *self._rows.ids(self._order.tolist())))

    def clear_selection(self) -> None:
        """Select nothing."""
        self.value = self.value.but(selected=())

    def show_failure(self, dlq_id: str) -> None:
        """Show one failure in full.

        Parameters
        ----------
        dlq_id : str

        Raises
        ------
        InputError
            When it is not in the frame.
        """
        places = self._rows.places_of([dlq_id])
        if not places:
            raise InputError("showing a failure", got=repr(dlq_id), expected="the id of a row of the frame")
        self._active = places[0]
        row = {str(name): value for name, value in self._rows.frame.iloc[places[0]].items()}
        self.detail.value = detail_markup(row, self._redactor)

    def _call(self, job: Job, value: FailureView) -> pd.DataFrame:  # noqa: ARG002 - nothing here is slow
        return self.frame()

    def _arrived(self, frame: pd.DataFrame) -> str:
        return f"{counted(len(frame), 'failure')} selected"

    def _show(self, value: FailureView) -> None:
        self.search.value = value.search
        self._arrange(value)

    def _arrange(self, value: FailureView) -> None:
        wanted = (value.search, value.sort_by, value.ascending)
        renewed = self._arranged != wanted
        if renewed:
            self._order = self._rows.arranged(
                search=value.search, sort_by=value.sort_by, ascending=value.ascending
            )
            self._arranged = wanted
        found = f"{len(self._order):,} of {len(self._rows):,} failures"
        self._said.value = (
            f'<div class="tk-count" role="status">{found} · {len(value.selected):,} selected</div>'
        )
        self.table.draw(renewed=renewed)
        if self._active is None and len(self._order):
            self.show_failure(self.id_at(0))

    def page(self, start: int, stop: int) -> list[list[Any]]:
        """Rows of the table from a place to another, each with whether it is selected before its cells."""
        places = self._order[start:stop].tolist()
        selected = set(self.value.selected)
        marks = [found in selected for found in self._rows.ids(places)]
        return [[mark, *cells] for mark, cells in zip(marks, self._rows.cells(places), strict=True)]

    def id_at(self, place: int) -> str:
        """The id of the failure at a place of the table."""
        return self._rows.ids([int(self._order[place])])[0]

    @property
    def total(self) -> int:
        """How many failures the table has: those that are found."""
        return len(self._order)

    # what is done with the table

    def _searched(self) -> None:
        self._taken(self.value.but(search=self.search.value))

    def sort(self, name: str) -> None:
        """Sort by a column; by the same one again, the other way round."""
        again = self.value.sort_by == name
        self._taken(self.value.but(sort_by=name, ascending=not self.value.ascending if again else True))

    def mark(self, start: int, stop: int, *, on: bool) -> None:
        """Select the rows from a place of the table to another, or take them out of the selection."""
        ids = self._rows.ids(self._order[start:stop].tolist())
        selected = self.value.selected
        if on:
            selected = (*selected, *ids)
        else:
            out = set(ids)
            selected = tuple(found for found in selected if found not in out)
        self._changed_to(self.value.but(selected=selected))
        count = (
            f"{len(self._order):,} of {len(self._rows):,} failures · {len(self.value.selected):,} selected"
        )
        self._said.value = f'<div class="tk-count" role="status">{count}</div>'

    def _count(self) -> None:
        found = f"{self.total:,} of {len(self._rows):,} failures"
        self._said.value = note(f"{found} · {len(self.value.selected):,} selected", "count")

    def _taken(self, value: FailureView) -> None:
        self._changed_to(value)
        self._arrange(value)
