"""Show the dead letter queue as a triage board: groups by state, and the failures of the chosen ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import traitlets

from toolkit.base.arguments import instance
from toolkit.base.errors import InputError, ToolkitError
from toolkit.base.time_zones import time_zone
from toolkit.drawing.wording import counted
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups
from toolkit.failures.selection import receipt_of
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import Service
from toolkit.tables.freshness import Clock, freshness
from toolkit.tables.receipt import shortfall
from toolkit.widgets.board_code import code_of_found, code_of_selection
from toolkit.widgets.failure_detail import detail_markup
from toolkit.widgets.failure_rows import SORTABLE, FailureRows, FailureView, Indices
from toolkit.widgets.group_board import GroupBoard
from toolkit.widgets.group_edits import CannotEdit, GroupEdits
from toolkit.widgets.page_panel import PagePanel, is_texts, kit_module
from toolkit.widgets.page_parts import MESSAGE_LOCK, is_count, note, script, synced
from toolkit.widgets.panel import STATIC_ROWS, Job, masked_table, on_loop
from toolkit.widgets.row_orders import RowOrders
from toolkit.widgets.shown_code import code_markup
from toolkit.widgets.shown_failures import shown_failures
from toolkit.widgets.view_words import counts_in_words, remarks_in_words

if TYPE_CHECKING:
    from toolkit.fixes.runbooks import RunbookSuggestions
    from toolkit.redrive.plan import RedrivePlan
    from toolkit.widgets.redrive_panel import RedrivePanel

_NOT_COPIED: Final = (
    "This page may not write to the clipboard: copy the code below. If it is shortened,"
    " .selection_code() returns all of it."
)
_PAGE: Final = 40  # rows sent with an order, before anybody scrolls
_MOST: Final = 200  # rows a message
# seconds until groups are read, so that the first rows are shown at once
_DELAY: Final = 0.3
_NO_FAILURE: Final = (
    '<div class="tk-detail"><p class="tk-note">No failure is found.</p></div>'
)


class FailurePanel(PagePanel):
    """Browse failures as a triage board: groups by state, what their failures share, and one failure in full.

    Parameters
    ----------
    failures : frame
        A frame of `load_failures`, or rows of one. 100,000 rows stay fluid. Of a snapshot, a DuckDB relation
        or a Dask frame with more failures, the latest 100,000 are read and shown; a note names the limit.
    value : FailureView, optional
        Initial search, order and selection.
    key : str, optional
        Keeps the value when the cell is run again in the same kernel.
    redactor : Redactor, optional
        ``service.redactor`` also masks the tokens of that service.
    rules : str, Path or GroupRules, optional
        Rules as in `group_failures`. If you pass a file, merging and splitting add lines to it; it need not
        exist yet.
    service : Service, optional
        Service on which "Plan a redrive" can run the plan. Otherwise the plan is shown with the code. "Find a
        runbook" searches the vector index of this service.
    max_age : str or timedelta, optional
        Age of the failures above which a line above the list warns, as in `report_failures`.
    now : datetime or callable, optional
        End of the measured age, as in `report_failures`.
    tz : str or tzinfo, optional
        Time zone for showing and searching times, for example ``"Europe/Berlin"``. If omitted, the
        environment variable ``TOOLKIT_TZ``, or UTC if it is not set. Frames stay in UTC.

    Attributes
    ----------
    value : FailureView
        Readable, settable, observable.
    runbooks : RunbookSuggestions or None
        The last result of "Find a runbook".

    Raises
    ------
    InputError
        If `failures` is not a frame of failures, or if the rules cannot be read.

    Notes
    -----
    Header values are shown by an allow-list; text and bodies are masked if they look like secrets. The frame
    is not changed. Keys in the table: arrows move, Space selects, Ctrl+A selects all matching rows, Ctrl+C
    copies the selected ids.

    A search finds failures that contain every word, in ids, addresses, times, error, labels, bodies and all
    other text except headers. A number that is a status of a failure is only compared with statuses; in
    quotation marks it is text, as a phrase is. If the time of a failure is not known, the time when the
    message was created is shown, marked with ``≥``.

    If the frame has the columns that `group_failures` needs, groups are listed first, ordered by state: new,
    back again, growing, steady, ended. The states are the same as in `report_failures`, from the counts of
    this frame alone. A click opens a group; with Ctrl, it adds one. Bars of the trend that you click or drag
    over select times; click the same bar again to show all times. The panel is one widget, without children.

    Examples
    --------
    >>> browser = FailurePanel(tk.load_failures(service, limit=250))
    >>> browser.value = tk.FailureView(search="timeout")
    >>> browser.select_found()
    >>> len(browser.frame()) == len(browser.value.selected)
    True
    """

    _esm = kit_module("board")
    _css = script("kit.css")
    view = synced(traitlets.Dict())
    table = synced(traitlets.Dict())
    trend = synced(traitlets.Dict())
    board = synced(traitlets.Dict())
    detail = synced(traitlets.Unicode())
    about = synced(traitlets.Dict())
    plan = synced(traitlets.Unicode())
    _value_type = FailureView
    _stop = ""

    def __init__(
        self,
        failures: AnyFrame,
        *,
        value: FailureView | None = None,
        key: str | None = None,
        redactor: Redactor | None = None,
        rules: str | Path | GroupRules | None = None,
        service: Service | None = None,
        max_age: str | timedelta | None = None,
        now: Clock = None,
        tz: str | tzinfo | None = None,
    ) -> None:
        if service is not None:
            instance("service", service, Service, "a Service")
            redactor = service.redactor if redactor is None else redactor

        redactor = (
            Redactor()
            if redactor is None
            else instance("redactor", redactor, Redactor, "a Redactor")
        )
        shown, total = shown_failures(failures)
        # before the rows are grouped, which takes minutes if they are many
        receipt = receipt_of(shown)
        self._shortfall = shortfall(receipt)
        self._freshness = partial(freshness, receipt, now, max_age)
        self._freshness()  # raises if an option cannot be read
        self._rows = FailureRows(shown, redactor, rules, time_zone(tz))
        self._grouping, self._service = self._rows.grouping, service
        self._groups = GroupBoard(self._rows, redactor)
        self._edits = GroupEdits(self._grouping)
        self._orders = RowOrders()
        self._arranged: FailureView | None = None  # of the order, without a selection
        self._active: int | None = None
        self.redrive: RedrivePanel | None = None
        self.runbooks: RunbookSuggestions | None = None
        given = FailureView() if value is None else value
        super().__init__("Failures", value=given, key=key, redactor=redactor)
        self.table = {
            "columns": [
                {"name": name, "label": label, "sortable": name in SORTABLE}
                for name, label in self._rows.columns.items()
            ],
            "order": 0,
            "version": 0,
        }
        self.board = {
            "possible": self._grouping.possible,
            "waiting": self._grouping.possible,
            "failed": False,
            "groups": [],
            "hits": None,
            "columns": self._grouping.columns,
            "rules": self._grouping.path,
            "zone": self._rows.zone.key,
        }
        self._actions: dict[str, Callable[[], object]] = {
            "Select all found": self.select_found,
            "Clear selection": self.clear_selection,
            "Copy ids": lambda: self._copy("ids"),
            "Copy code": lambda: self._copy("code"),
            "Plan a redrive": self.plan_redrive,
            "Find a runbook": self.find_runbooks,
            "More like this": self.more_like_this,
            "Merge groups": self._merge,
            "Split off this": self._split,
            "Undo": lambda: self._edit(self._edits.undo),
            "All groups": lambda: self._look_at(()),
        }
        self._begin()

        if len(shown) < total:
            self.announce(
                f"The latest {len(shown):,} of {total:,} failures are shown. For others, pass a part of the "
                "rows, for example the frame of select_failures."
            )

        if self._grouping.possible:
            self._read_groups()

    def _read_groups(self) -> None:
        """Read the failures to group them, on a separate thread."""
        after = on_loop()

        def read() -> None:
            try:
                _ = self._grouping.groups
            except Exception as error:  # noqa: BLE001 - shown in the panel
                after(partial(self._groups_failed, error))
            else:
                after(self._show_groups)

        # `groups` caches its result under a lock, so this thread only has to request it once.
        reading = threading.Timer(_DELAY, read)
        reading.daemon = True
        reading.start()

    def press(self, name: str) -> None:
        """Run the action of a button, for example ``"Copy code"``."""
        self._actions[name]()

    def groups(self) -> FailureGroups:
        """Return the groups of all failures of the frame, by the rules as they are now.

        Examples
        --------
        >>> browser = FailurePanel(tk.load_failures(service, limit=250))
        >>> int(browser.groups().frame["count"].sum()) == len(browser.found())
        True
        """
        return self._grouping.groups

    def more_like_this(self) -> None:
        """Show the group of the shown failure, and groups with similar messages."""
        with MESSAGE_LOCK:
            if self._active is None:
                self.announce("No failure is shown.", "problem")
                return
            groups = self._grouping.like(self._active)
            self._look_at(groups)

            shown = "The group of this failure"
            if len(groups) > 1:
                shown += (
                    f", and {counted(len(groups) - 1, 'group')} with similar messages"
                )

            self.announce(f"{shown}.")

    def _look_at(self, groups: Sequence[str]) -> None:
        with MESSAGE_LOCK:
            self._change(groups=groups)

    def _groups_failed(self, error: Exception) -> None:
        self._update("board", {"waiting": False, "failed": True})
        self._failed(error)

    def _show_groups(self) -> None:
        """Show the groups that have been read."""
        with MESSAGE_LOCK, self.hold_sync():
            self._regroup()
            self._show_trend()
            self._show_hits()
            self._show_about()

    def _regroup(self) -> None:
        """Send the rows of the board."""
        groups = self._groups.groups(self._freshness().end)
        state = {"waiting": False, "failed": False, "groups": groups}
        self._update("board", state | {"rules": self._grouping.path})
        self._show_code()

    def _show_trend(self) -> None:
        self._update("trend", self._groups.trend(self.value))

    def _show_hits(self) -> None:
        self._update("board", {"hits": self._groups.hits(self.value)})

    def _show_about(self) -> None:
        self.about = self._groups.about(self._active, self.about)

    @property
    def split_by(self) -> str:
        """Return the column that "Split off this" uses."""
        return self._edits.split_by

    @split_by.setter
    def split_by(self, column: str) -> None:
        self._edits.split_by = column

    def _merge(self) -> None:
        self._edit(lambda: self._edits.merge(self.value.groups))

    def _split(self) -> None:
        def split() -> str:
            group, done = self._edits.split(self._active)
            if chosen := self.value.groups:  # the failure stays in view
                self._change(groups=(*chosen, group))
            return done

        self._edit(split)

    def _choose_rules(self, path: str) -> None:
        def choose() -> str:
            self._grouping.choose(path)
            return ""

        self._edit(choose)

    def _edit(self, edit: Callable[[], str]) -> None:
        """Change the rules. An error is shown, together with changes that succeeded."""
        with MESSAGE_LOCK:
            try:
                done = edit()
            except CannotEdit as reason:
                self.announce(str(reason), "problem")
                return
            except ToolkitError as error:
                self._failed(error)
            else:
                if done and self._grouping.path:
                    done += f" Written to {self._grouping.path}."
                self.announce(done)

            known = set(self._grouping.groups.frame["group"])
            self._arranged = None  # the same groups may contain other failures
            with self.hold_sync():
                self._regroup()
                self._look_at([name for name in self.value.groups if name in known])
                self._show_about()

    def rules_code(self) -> str:
        """Return Python that makes the same groups of the same frame again, with `group_failures`."""
        return str(self._grouping.code())

    def found(self) -> pd.DataFrame:
        """Return the failures that the search finds, in the table's order: rows of the frame."""
        return self._rows.frame.iloc[self._orders.rows]

    def frame(self) -> pd.DataFrame:
        """Return the selected failures in the order of selection, as rows of the frame."""
        return self._rows.frame.iloc[self._rows.indices_of(self.value.selected)]

    def select_found(self) -> None:
        """Add all rows that the search finds to the selection."""
        with MESSAGE_LOCK:
            self._arrange(self._mark(self._orders.rows, on=True))

    def clear_selection(self) -> None:
        """Clear the selection."""
        with MESSAGE_LOCK:
            self._change(selected=())

    def plan_redrive(self) -> None:
        """Plan a redrive of the selected failures, or else of the chosen groups, and show it below."""
        value: FailureView = self.value
        if not (value.selected or value.groups):
            self.announce(
                "Select failures, or choose a group, to plan a redrive of.", "problem"
            )
            return

        # the panel is seen before it needs them
        from toolkit.redrive.planning import plan_redrive  # noqa: PLC0415 - slow to import
        from toolkit.widgets.redrive_panel import RedrivePanel  # noqa: PLC0415 - slow to import

        if value.selected:
            chosen, name = self.frame(), "selected"
            rows_code = code_of_selection(self._rows.frame, value.selected)
        else:
            chosen, name = self.found(), "found"
            rows_code = code_of_found(self._rows.frame, value, self._grouping)

        def show(plan: RedrivePlan) -> None:
            self.redrive = RedrivePanel(
                self._service, chosen, value=plan, redactor=self._redactor
            )
            self.redrive.show_rows_code(rows_code, name)
            self.plan = self.redrive.model_id
            self.announce(plan.verdict)

        self._start(lambda _, __: plan_redrive(chosen), show)

    def find_runbooks(self) -> None:
        """Find runbooks of the selected failures, or else of the chosen groups, with `suggest_runbooks`.

        The runbooks are documents in the namespace "runbooks" of the vector index of `service`. The result is
        `runbooks`.
        """
        service, value = self._service, self.value
        if service is None:
            self.announce(
                "Pass the service of your vector index: tk.FailurePanel(failures, service=service).",
                "problem",
            )
            return

        if not (value.selected or value.groups):
            self.announce(
                "Select failures, or choose a group, to find runbooks of.", "problem"
            )
            return

        from toolkit.fixes.runbooks import suggest_runbooks  # noqa: PLC0415 - slow to import
        from toolkit.widgets.runbook_notes import runbooks_markup  # noqa: PLC0415 - slow to import

        chosen = self.frame() if value.selected else self.found()

        def show(found: RunbookSuggestions) -> None:
            self.runbooks = found
            self._status.value = runbooks_markup(found)

        self._start(lambda _, __: suggest_runbooks(chosen, service), show)

    def selection_code(self) -> str:
        """Return Python that selects the same rows of the same frame again, by exact ids.

        Returns
        -------
        str
            The code uses the variable of the frame in the notebook, or ``failures``, with a comment.

        Examples
        --------
        >>> browser = FailurePanel(tk.load_failures(service, limit=3))
        >>> browser.value = tk.FailureView(selected=["dlq_1", "dlq_2"])
        >>> print(browser.selection_code())
        # failures: the frame this panel was made with
        ids = [
            'dlq_1',
            'dlq_2',
        ]
        selected = failures[failures["dlq_id"].isin(ids)]
        """
        return code_of_selection(self._rows.frame, self.value.selected)

    def show_failure(self, dlq_id: str) -> None:
        """Show one failure in full. Raise InputError if it is not in the frame."""
        indices = self._rows.indices_of([dlq_id])
        if not indices:
            raise InputError(
                "showing a failure",
                got=repr(dlq_id),
                expected="the id of a row of the frame",
            )

        self._active = indices[0]
        row = {
            str(name): value
            for name, value in self._rows.frame.iloc[indices[0]].items()
        }
        with self.hold_sync():
            self.detail = detail_markup(row, self._redactor, self._rows.zone)
            shown = self._orders.position_of(self._active)
            self._update("table", {"shown": shown})
            self._show_about()

    def page(self, start: int, stop: int) -> list[list[Any]]:
        """Return rows of the table: for each, True if it is selected, then the cells."""
        indices = self._orders.rows[start:stop].tolist()
        selected = set(self.value.selected)
        marks = [dlq_id in selected for dlq_id in self._rows.ids(indices)]

        return [
            [mark, *cells]
            for mark, cells in zip(marks, self._rows.cells(indices), strict=True)
        ]

    def _static(self) -> tuple[pd.DataFrame, str]:
        counts = counts_in_words(self._rows, self.value, self._orders.rows)
        # only the rows that are shown: all of 100,000 failures take most of a second to copy
        first = self._orders.rows[:STATIC_ROWS]
        return self._rows.frame.iloc[first], counts

    def _call(self, job: Job, requested: FailureView) -> pd.DataFrame:  # noqa: ARG002 - nothing here is slow
        return self.frame()

    def _arrived(self, frame: pd.DataFrame) -> str:
        return f"{counted(len(frame), 'failure')} selected"

    def _show(self, value: FailureView) -> None:
        with self.hold_sync():
            self._arrange(value)

    def _arrange(self, value: FailureView) -> None:
        """Search and sort if it is necessary, and send everything that depends on the value."""
        wanted = value.replace(selected=())
        # A change of the selection alone needs no new search and no new order.
        renewed = self._arranged != wanted
        # `hold_sync` sends all traits in one message. Otherwise, the page could draw the old rows under a new
        # order.
        with self.hold_sync():
            if renewed:
                self._orders.renew(self._rows.arranged(value))
                self._arranged = wanted
                self._show_first_if_needed()
                self._show_trend()
                self._show_hits()

            self._send_order(value)
            self._show_view()
            self._show_code()

    def _show_first_if_needed(self) -> None:
        """Show the first failure if the failure that is shown does not match."""
        if not len(self._orders.rows):
            self._active, self.detail = None, _NO_FAILURE
            self._show_about()
        elif self._orders.position_of(self._active) < 0:
            self.show_failure(self._id_at(0))

    def _send_order(self, value: FailureView) -> None:
        """Send the order of the rows, and the first rows."""
        version = self.table["version"] + 1
        state = {
            "total": len(self._orders.rows),
            "shown": self._orders.position_of(self._active),
            "sort_by": value.sort_by,
            "ascending": value.ascending,
            "order": self._orders.number,
            "version": version,
            "page": self._page(0, _PAGE, version),
        }
        self._update("table", state)

    def _show_view(self) -> None:
        """Send the search, the chosen groups, and the counts with their remarks."""
        value, found = self.value, self._orders.rows
        freshness = self._freshness()
        remarks = note(remarks_in_words(self._rows, value, found, freshness.end))
        problem = freshness.problem
        if problem:
            remarks = note(f"Out of date: {problem}.", "problem") + remarks
        if self._shortfall:
            missing = f"Not all failures are here: {self._shortfall}."
            remarks = note(missing, "problem") + remarks
        self.view = {
            "search": value.search,
            "groups": list(value.groups),
            "selected": len(value.selected),
            "found": len(found),
            "counts": counts_in_words(self._rows, value, found),
            "remarks": remarks,
        }

    def _id_at(self, position: int) -> str:
        return self._rows.ids([int(self._orders.rows[position])])[0]

    def _page(self, start: int, stop: int, version: int) -> dict[str, Any]:
        rows = self.page(start, min(stop, start + _MOST))
        return {"kind": "rows", "version": version, "from": start, "rows": rows}

    def _process(self, content: dict[str, Any]) -> None:
        match content:
            case {"kind": "press", "name": str(name)} if name in self._actions:
                self.press(name)
            case {"kind": "copied", "status": str(status)}:
                self._copied(status, done=content.get("done") is True)
            case {"kind": "split_by" | "rules"}:
                self._process_rules(content)
            case {"kind": "rows" | "active" | "select" | "all"}:
                self._receive_rows(content)
            case _:
                self._process_view(content)

    def _process_view(self, content: dict[str, Any]) -> None:
        """Change the search, the groups, the times or the order."""
        value: FailureView = self.value
        match content:
            case {"kind": "search", "text": str(text)}:
                self._change(search=text)
            case {"kind": "groups", "groups": groups} if is_texts(groups):
                self._change(groups=groups)
            case {"kind": "toggle", "group": str(group)}:
                self._change(groups=_toggled(value.groups, group))
            case {"kind": "range", "ends": []}:
                self._change(since=None, until=None)
            case {"kind": "range", "ends": [since, until]} if is_count(
                since
            ) and is_count(until):
                self._change(since=since, until=until + 1)
            case {"kind": "sort", "name": name} if name in list(SORTABLE):
                # by the same column again: the other way round
                ascending = value.sort_by != name or not value.ascending
                self._change(sort_by=name, ascending=ascending)

    def _process_rules(self, content: dict[str, Any]) -> None:
        match content:
            case {"kind": "split_by", "column": column} if (
                column in self._grouping.columns
            ):
                self._edits.split_by = str(column)
            case {"kind": "rules", "path": str(path)}:
                self._choose_rules(path)

    def _receive_rows(self, content: dict[str, Any]) -> None:
        """Check a message about rows of the table, and apply it.

        Positions in the message refer to the order that the page had when it sent the message, even if the
        next order was on the way to the page. So the rows that a person saw are the rows that are selected.
        """
        kind = content["kind"]
        order = self._orders.of(content.get("order", self._orders.number))
        if order is None:
            if kind != "rows":
                self.announce(
                    "The table has changed since then. Select once more.", "problem"
                )

            return

        positions = [content.get(name, 0) for name in ("position", "from", "to")]
        if not all(is_count(at) and at <= len(order) for at in positions):
            return

        position, start, stop = positions
        if kind in ("select", "all"):
            is_on = kind == "all" or content.get("on") is True
            self._select(kind, order, slice(start, stop), on=is_on)
        elif kind == "rows":
            self._send_rows(order, start, stop)
        elif position < len(order):
            # also if the row is no longer found: the person clicked it
            self.show_failure(self._rows.ids([int(order[position])])[0])

    def _send_rows(self, order: Indices, start: int, stop: int) -> None:
        """Send rows of the present order. Other rows are of no use: each order comes with its first rows."""
        if order is self._orders.rows:
            self.send(self._page(start, stop, self.table["version"]))

    def _select(self, kind: str, order: Indices, part: slice, *, on: bool) -> None:
        """Select a part of the rows of an order, or all of them."""
        if kind == "all":
            part = slice(None)
        value = self._mark(order[part], on=on)
        if kind == "select" and order is self._orders.rows:
            # the page has drawn the rows
            self._show_view()
            self._show_code()
        else:
            self._arrange(value)

    def _value_set(self, change: dict[str, Any]) -> None:
        # the status line is about another selection
        if change["new"].selected != change["old"].selected and self._job is None:
            self.announce("")
        super()._value_set(change)

    def _mark(self, rows: Indices, *, on: bool) -> FailureView:
        """Select rows of the frame, or remove them from the selection, without drawing them yet."""
        ids = self._rows.ids(rows.tolist())
        value: FailureView = self.value
        # Rows that are selected already keep their place in the order of selection:
        # `FailureView` removes later duplicates.
        out = set() if on else set(ids)
        kept = [dlq_id for dlq_id in value.selected if dlq_id not in out]
        value = value.replace(selected=[*kept, *ids] if on else kept)
        self._changed_to(value)

        return value

    def _copy(self, what: str) -> None:
        """Send ids or code to the page for the clipboard: of the selection, or else of the shown rows."""
        which = ""
        if what == "code" and not self.value.selected:
            number = counted(len(self._orders.rows), "failure")
            status = f"Code of {number} copied."
            self.send({"kind": "copy", "text": self.found_code(), "status": status})
            return

        if not self.value.selected and self._active is not None:
            self._change(selected=self._rows.ids([self._active]))
            which = ": the failure shown"

        selected = self.value.selected
        if not selected:
            self.announce("There is nothing to copy.", "problem")
            return

        number = counted(len(selected), "id")
        text, status = "\n".join(selected), f"{number} copied{which}."
        if what == "code":
            text, status = self.selection_code(), f"Code with {number} copied{which}."
        # Only the page can write to the clipboard. It reports whether the browser allowed it (`_copied`).
        self.send({"kind": "copy", "text": text, "status": status})

    def _copied(self, status: str, *, done: bool) -> None:
        if done:
            self.announce(status)
        else:
            self.announce(_NOT_COPIED, "problem")

    def _change(self, **parts: Any) -> None:
        """Change some parts of the value, keep the others, and draw it."""
        with MESSAGE_LOCK:
            self._changed_to(self.value.replace(**parts))
            self._arrange(self.value)

    def found_code(self) -> str:
        """Return Python that finds the same rows of the same frame: of the search, the groups and the times.

        Examples
        --------
        >>> browser = FailurePanel(tk.load_failures(service, limit=3))
        >>> browser.value = tk.FailureView(search="timeout")
        >>> print(browser.found_code())
        # failures: the frame this panel was made with
        found = tk.FailurePanel(failures, value=tk.FailureView(search='timeout')).found()
        """
        return code_of_found(self._rows.frame, self.value, self._grouping)

    def _show_code(self) -> None:
        """Show the code of the selection, or else of the rows that are found."""
        code = self.selection_code() if self.value.selected else self.found_code()
        self._code.value = code_markup(self._redactor.code(code))

    def _repr_mimebundle_(  # type: ignore[override] # a dict is as good for IPython
        self, **options: object
    ) -> dict[str, Any]:
        """Return the widget, and for pages without widgets the groups and the first rows."""
        bundle = super()._repr_mimebundle_(**options)
        facts = self._groups.facts
        if self._grouping.ready and facts is not None:
            columns = ["state", "title", "where", "count", "first", "last"]
            rows = pd.DataFrame(facts.board()).reindex(columns=columns)
            bundle["text/html"] += masked_table(rows, self._redactor)

        return bundle


def _toggled(groups: Sequence[str], group: str) -> list[str]:
    """Return chosen groups with one added, or without it if it was chosen."""
    if group in groups:
        return [name for name in groups if name != group]
    return [*groups, group]
