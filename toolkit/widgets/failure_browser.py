"""The dead letter queue as a table with one failure in full beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anywidget
import ipywidgets as widgets
import numpy as np
import pandas as pd
import traitlets
from numpy.typing import NDArray

from toolkit.analysis.wording import counted
from toolkit.errors import InputError
from toolkit.redaction import Redactor, escape_html
from toolkit.tables.frames import checked_frame
from toolkit.widgets.controls import Actions, TextField, note
from toolkit.widgets.failure_detail import detail_markup
from toolkit.widgets.failure_rows import COLUMNS, FailureRows
from toolkit.widgets.failure_view import SORTABLE, FailureView
from toolkit.widgets.javascript import hearing, is_count, module, synced
from toolkit.widgets.panel import Panel, must_be
from toolkit.widgets.work import Job

_PAGE: Final = 40  # rows sent with an order, before anybody scrolls
_MOST: Final = 200  # rows sent at once
_CODE: Final = 10_000  # characters of code that are shown; what is copied is whole
_ORDERS: Final = 16  # that are kept: what was pressed on an earlier one arrives after at most a few


class Table(anywidget.AnyWidget):
    """The table in the page, which asks for the rows that are scrolled to; drawn by ``js/grid.js``."""

    _esm = module("grid")
    columns = synced(traitlets.List(traitlets.Dict()))
    total = synced(traitlets.Int())
    shown = synced(traitlets.Int())
    order = synced(traitlets.Int())
    version = synced(traitlets.Int())
    page = synced(traitlets.Dict())
    sort_by = synced(traitlets.Unicode())
    ascending = synced(traitlets.Bool())


class FailureBrowser(Panel):
    """Browse failures: a table to search, sort and select in, and one failure in full beside it.

    Parameters
    ----------
    failures : pandas.DataFrame
        Of `load_failures`, or rows of one. 100,000 are fluid.
    value : FailureView, optional
        What is searched, sorted by and selected at first.
    key : str, optional
        Keeps the value when the cell is run again in the same kernel.
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
    The frame stays as it is. Keys in the table: arrows move, Space selects, Ctrl+A selects all that is found,
    Ctrl+C copies the ids of what is selected.

    A search finds the failures in which every word is: in ids, addresses, times, error, labels, bodies and
    all other texts but headers. A number that is a status of a failure is compared with statuses alone; in
    quotation marks it is text, as a phrase is. A failure whose time is not known stands at the time its
    message was created, marked with ``≥``.

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
        redactor = Redactor() if redactor is None else must_be(redactor, Redactor, doing, "redactor")
        self._rows = FailureRows(checked_frame("failures", failures, distinct=True), redactor)
        self._order = np.arange(0, dtype=np.int64)
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._arranged: tuple[str, str, bool] | None = None
        self._active: int | None = None
        super().__init__("Failures", value=given, key=key, redactor=redactor)
        self._build()

    @traitlets.validate("value")
    def _checked(self, proposal: dict[str, Any]) -> FailureView:
        return must_be(proposal["value"], FailureView, "setting a FailureBrowser's value")

    def _build(self) -> None:
        self.search = TextField(
            "Search", self._searched, hint="words that are all in it, such as orders/fulfil 500; press Enter"
        )
        self._said, self._code = widgets.HTML(), widgets.HTML()
        self.detail = widgets.HTML().add_class("tk-beside")
        calls: dict[str, Callable[[], object]] = {
            "Select all found": self.select_found,
            "Clear selection": self.clear_selection,
            "Copy ids": lambda: self._copy("ids"),
            "Copy code": lambda: self._copy("code"),
        }
        self.actions = Actions(calls, self.hear, main=False)
        self.table = Table(
            columns=[
                {"name": name, "label": label, "sortable": name in SORTABLE}
                for name, label in COLUMNS.items()
            ]
        )
        self.table.on_msg(lambda _, content, __: self._asked(content))
        both = widgets.Box([self.table.add_class("tk-table"), self.detail]).add_class("tk-browser")
        head = widgets.HTML(f'<div class="tk-head">{escape_html(self._title)}</div>')
        self._compose(head, self.search.view, self._said, both, self.actions.view, self._code)

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
        with hearing:
            self._arrange(self._mark(self._order, on=True))

    def clear_selection(self) -> None:
        """Select nothing."""
        with hearing:
            self._taken(selected=())

    def selection_code(self) -> str:
        """Python that makes the selected rows again of the same frame, named ``failures``: with exact ids.

        Examples
        --------
        >>> browser = FailureBrowser(tk.load_failures(service, limit=3))
        >>> browser.value = tk.FailureView(selected=["dlq_1", "dlq_2"])
        >>> print(browser.selection_code())
        ids = [
            'dlq_1',
            'dlq_2',
        ]
        selected = failures[failures["dlq_id"].isin(ids)]
        """
        ids = "".join(f"    {found!r},\n" for found in self.value.selected)
        return f'ids = [\n{ids}]\nselected = failures[failures["dlq_id"].isin(ids)]'

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

    def _static(self) -> tuple[pd.DataFrame, str]:
        return self.found(), self._said_count()

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
            self._show_found()
        with self.table.hold_sync():
            self.table.total, self.table.shown = len(self._order), self._shown_place()
            self.table.sort_by, self.table.ascending = value.sort_by, value.ascending
            self.table.order += renewed
            self.table.page = self._page(0, _PAGE, self.table.version + 1)
            self.table.version += 1
        self._orders[self.table.order] = self._order
        self._orders.pop(self.table.order - _ORDERS, None)
        self._count()  # after the rows, so that whoever has read it sees them

    def _show_found(self) -> None:
        """Show a failure that is found: the one shown already, else the first; none, where none is."""
        if not len(self._order):
            self._active = None
            self.detail.value = '<div class="tk-detail"><p class="tk-note">No failure is found.</p></div>'
        elif self._shown_place() < 0:
            self.show_failure(self._id_at(0))

    def _shown_place(self) -> int:
        """The place in the table of the failure that is shown; -1 where it is not there."""
        places = np.flatnonzero(self._order == (-1 if self._active is None else self._active))
        return int(places[0]) if len(places) else -1

    def _said_count(self) -> str:
        value = self.value
        said = f"{len(self._order):,} of {len(self._rows):,} failures · {len(value.selected):,} selected"
        if value.selected and value.search:
            found = set(self._rows.ids(self._order.tolist()))
            out = sum(chosen not in found for chosen in value.selected)
            said += f", {out:,} of them not among those found" if out else ""
        return said

    def _count(self) -> None:
        value, remarks = self.value, []
        if statuses := [word for word in value.search.split() if self._rows.is_status(word)]:
            remarks.append(f"{', '.join(statuses)} as status; in quotation marks a number is found as text.")
        if not len(self._order):
            remarks.extend(self._rows.unknown_words(value.search))
        if self._rows.without_time:
            remarks.append("≥ is before the time of the message, where that of the failure is not known.")
        self._said.value = note(self._said_count(), "count") + note(" ".join(remarks))

    def page(self, start: int, stop: int) -> list[list[Any]]:
        """Rows of the table from a place to another, each with whether it is selected before its cells."""
        places = self._order[start:stop].tolist()
        selected = set(self.value.selected)
        marks = [found in selected for found in self._rows.ids(places)]
        return [[mark, *cells] for mark, cells in zip(marks, self._rows.cells(places), strict=True)]

    def _id_at(self, place: int) -> str:
        return self._rows.ids([int(self._order[place])])[0]

    def _page(self, start: int, stop: int, version: int) -> dict[str, Any]:
        rows = self.page(start, min(stop, start + _MOST))
        return {"kind": "rows", "version": version, "from": start, "rows": rows}

    # what is done with the table

    def _searched(self) -> None:
        self._taken(search=self.search.value)

    def _asked(self, content: Any) -> None:
        """A message of the table in the page: it is checked before it is used.

        Its places are those of the order that the page had when it was sent. The next one may have been on
        its way to the page by then; what was selected is what was seen.
        """
        if not isinstance(content, dict):
            return
        with hearing:
            kind, number = content.get("kind"), content.get("order", self.table.order)
            order = self._orders.get(number) if is_count(number) else None
            place, start, stop = (content.get(name, 0) for name in ("place", "from", "to"))
            if order is None:
                if kind in ("select", "all"):
                    self.say("The table has changed since then. Select once more.", "problem")
                return
            if not all(is_count(found) and found <= len(order) for found in (place, start, stop)):
                return
            self._do(content, order, place, slice(start, stop))

    def _do(self, content: dict[str, Any], order: NDArray[np.int64], place: int, part: slice) -> None:
        kind, now = content.get("kind"), order is self._order
        if kind == "rows" and now:
            self.table.send(self._page(part.start, part.stop, self.table.version))
        elif kind == "active" and now and place < len(order):
            self.show_failure(self._id_at(place))
        elif kind in ("select", "all"):
            on = kind == "all" or content.get("on") is True
            value = self._mark(order if kind == "all" else order[part], on=on)
            if now and kind == "select":
                self._count()  # the page has drawn it
            else:
                self._arrange(value)
        elif kind == "sort" and content.get("name") in list(SORTABLE):
            self._sort(content["name"])
        elif kind == "copy":
            self._copy("ids")
        elif kind == "copied" and isinstance(content.get("said"), str):
            self._copied(content["said"], done=content.get("done") is True)

    def _sort(self, name: str) -> None:
        """Sort by a column; by the same one again, the other way round."""
        again = self.value.sort_by == name
        self._taken(sort_by=name, ascending=not self.value.ascending if again else True)

    def _mark(self, rows: NDArray[np.int64], *, on: bool) -> FailureView:
        """Select rows of the frame, or take them out of the selection; not drawn yet."""
        ids = self._rows.ids(rows.tolist())
        selected = self.value.selected
        if on:
            selected = (*selected, *ids)
        else:
            out = set(ids)
            selected = tuple(found for found in selected if found not in out)
        value: FailureView = self.value.replace(selected=selected)
        self._changed_to(value)
        return value

    def _copy(self, what: str) -> None:
        """Give the page ids or code of the selection for the clipboard; without one, select what is shown."""
        if not self.value.selected and self._active is not None:
            self._taken(selected=self._rows.ids([self._active]))
        selected = self.value.selected
        if not selected:
            self.say("There is nothing to copy.", "problem")
            return
        text = "\n".join(selected) if what == "ids" else self.selection_code()
        self._code.value = "" if what == "ids" else _shown_code(self.selection_code())
        number = counted(len(selected), "id")
        said = f"{number} copied." if what == "ids" else f"Code with {number} copied."
        self.table.send({"kind": "copy", "text": text, "said": said})

    def _copied(self, said: str, *, done: bool) -> None:
        if done:
            self.say(said)
        else:
            self._code.value = _shown_code(self.selection_code())
            self.say("This page may not write to the clipboard: copy from the code above.", "problem")

    def _taken(self, **parts: Any) -> None:
        """Change some parts of the value, and draw it; all others are what they are at this moment."""
        with hearing:
            self._changed_to(self.value.replace(**parts))
            self._arrange(self.value)


def _shown_code(code: str) -> str:
    rest = f"\n… {len(code) - _CODE:,} more characters" if len(code) > _CODE else ""
    return f'<pre class="tk-code" tabindex="0">{escape_html(code[:_CODE] + rest)}</pre>'
