"""The table of a `FailureBrowser`: rows in sight alone are in the page; or pages of plain markup."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import ipywidgets as widgets
import traitlets

from toolkit.redaction import escape_html
from toolkit.widgets.controls import TextField
from toolkit.widgets.failure_rows import COLUMNS
from toolkit.widgets.failure_view import SORTABLE, FailureView
from toolkit.widgets.javascript import javascript_control

_PAGE: Final = 40  # rows sent with an order, before anybody scrolls
_MOST: Final = 200  # rows sent at once
_LINES: Final = 15  # rows of a page without JavaScript
_RANGE: Final = re.compile(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?")


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


class Grid:
    """The table drawn by JavaScript, which asks for the rows that are scrolled to.

    Parameters
    ----------
    browser : Browsed
    """

    def __init__(self, browser: Browsed) -> None:
        self._browser = browser
        self.view = javascript_control(
            "grid",
            columns=traitlets.List(traitlets.Dict()),
            total=traitlets.Int(),
            order=traitlets.Int(),
            version=traitlets.Int(),
            page=traitlets.Dict(),
            sort_by=traitlets.Unicode(),
            ascending=traitlets.Bool(),
        )()
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


class Pages:
    """The table where there is no JavaScript: a page of plain markup, and text fields to move in it."""

    def __init__(self, browser: Browsed) -> None:
        self._browser = browser
        self._page = 1
        self._table = widgets.HTML()
        orders = [*SORTABLE, *(f"{name} ascending" for name in SORTABLE)]
        self.sort = TextField("Sort by", self._sorted, suggestions=orders)
        self.number = TextField("Page", self._turned, hint="1")
        self.shown = TextField("Show row", self._opened, hint="1")
        self.marked = TextField("Select rows", self._marked, hint="1-5, 9")
        fields = [self.sort.view, self.number.view, self.shown.view, self.marked.view]
        self.view = widgets.VBox([self._table, widgets.Box(fields).add_class("tk-columns")])

    def draw(self, *, renewed: bool) -> None:
        """Draw the page that is looked at, the first one of a new order."""
        browser = self._browser
        if renewed:
            self._page = 1
        start = (self._page - 1) * _LINES
        rows = browser.page(start, start + _LINES)
        heads = "".join(f"<th>{escape_html(label)}</th>" for label in ("Row", "✓", *COLUMNS.values()))
        lines = "".join(
            f"<tr><td>{start + number}</td><td>{'☑' if mark else '☐'}</td>"
            f"{''.join(f'<td>{escape_html(cell)}</td>' for cell in cells)}</tr>"
            for number, (mark, *cells) in enumerate(rows, start=1)
        )
        self._table.value = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"

    def _sorted(self) -> None:
        name, _, way = self.sort.value.partition(" ")
        if name not in SORTABLE or way not in ("", "ascending"):
            self.sort.problem = f"Type one of {', '.join(SORTABLE)}, perhaps with ascending after it."
            return
        browser = self._browser
        browser.value = browser.value.but(sort_by=name, ascending=bool(way))

    def _turned(self) -> None:
        spans = self._spans(self.number)
        if spans:
            self._page = spans[0][0]
            self.draw(renewed=False)

    def _opened(self) -> None:
        spans = self._spans(self.shown)
        if spans and spans[0][0] <= self._browser.total:
            self._browser.show_failure(self._browser.id_at(spans[0][0] - 1))

    def _marked(self) -> None:
        for first, last in self._spans(self.marked):
            self._browser.mark(first - 1, last, on=True)
        self.draw(renewed=False)

    def _spans(self, field: TextField) -> list[tuple[int, int]]:
        """Ranges of row numbers out of a text such as ``1-5, 9``."""
        parts = [part.strip() for part in field.value.split(",") if part.strip()]
        found = [_RANGE.fullmatch(part) for part in parts]
        spans = [(int(match[1]), int(match[2] or match[1])) for match in found if match]
        if len(spans) < len(parts) or any(not 1 <= first <= last for first, last in spans):
            field.problem = "Type numbers from 1, such as 9 or 1-5."
            return []
        return spans
