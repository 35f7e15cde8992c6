"""The table of a `FailureBrowser`: rows in sight alone are in the page."""

from __future__ import annotations

from typing import Any, Final, Protocol

import anywidget
import traitlets

from toolkit.widgets.failure_rows import COLUMNS
from toolkit.widgets.failure_view import SORTABLE, FailureView
from toolkit.widgets.javascript import module, synced

_PAGE: Final = 40  # rows sent with an order, before anybody scrolls
_MOST: Final = 200  # rows sent at once


class Browsed(Protocol):
    """What a table asks of its browser."""

    value: FailureView
    total: int

    def page(self, start: int, stop: int) -> list[list[Any]]:
        """Rows from a place to another."""

    def id_at(self, place: int) -> str:
        """The id at a place."""

    def show_failure(self, dlq_id: str) -> None:
        """Show one in full."""

    def mark(self, start: int, stop: int, *, on: bool) -> None:
        """Select rows, or not."""

    def sort(self, name: str) -> None:
        """Sort by a column."""

    def select_found(self) -> None:
        """Select all."""


class Table(anywidget.AnyWidget):
    """The table in the page, drawn by ``js/grid.js``."""

    _esm = module("grid")
    columns = synced(traitlets.List(traitlets.Dict()))
    total = synced(traitlets.Int())
    order = synced(traitlets.Int())
    version = synced(traitlets.Int())
    page = synced(traitlets.Dict())
    sort_by = synced(traitlets.Unicode())
    ascending = synced(traitlets.Bool())


class Grid:
    """The table, which asks for the rows that are scrolled to.

    Parameters
    ----------
    browser : Browsed
    """

    def __init__(self, browser: Browsed) -> None:
        self._browser = browser
        self.view = Table()
        self.view.columns = [
            {"name": name, "label": label, "sortable": name in SORTABLE} for name, label in COLUMNS.items()
        ]
        self.view.on_msg(lambda _, content, __: self._asked(content))

    def draw(self, *, renewed: bool) -> None:
        """Draw the rows anew; from the top where their order is another one."""
        view, value = self.view, self._browser.value
        with view.hold_sync():
            view.total, view.sort_by, view.ascending = self._browser.total, value.sort_by, value.ascending
            view.order += renewed
            view.page = self._rows(0, _PAGE, view.version + 1)
            view.version += 1

    def _rows(self, start: int, stop: int, version: int) -> dict[str, Any]:
        rows = self._browser.page(start, min(stop, start + _MOST))
        return {"kind": "rows", "version": version, "from": start, "rows": rows}

    def _asked(self, content: dict[str, Any]) -> None:
        """A message of the page: it is checked before it is used."""
        browser = self._browser
        kind, place = content.get("kind"), content.get("place", 0)
        start, stop = content.get("from", 0), content.get("to", 0)
        numbers = (place, start, stop)
        if not all(isinstance(number, int) and 0 <= number <= browser.total for number in numbers):
            return
        # places in an order that is no more are other rows
        if content.get("order", self.view.order) != self.view.order:
            return
        if kind == "rows":
            self.view.send(self._rows(start, stop, self.view.version))
        elif kind == "active" and place < browser.total:
            browser.show_failure(browser.id_at(place))
        elif kind == "select":
            browser.mark(start, stop, on=content.get("on") is True)
        elif kind == "sort" and content.get("name") in SORTABLE:
            browser.sort(content["name"])
        elif kind == "all":
            browser.select_found()
