"""Controls that panels are made of: a value in Python, a view, and what is wrong with it said beside it.

Each has ``.value`` (set from Python without calling anybody), ``.view`` (to be put into a panel),
``.problem`` (text below it, or None), and calls ``changed`` when a person changed it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from toolkit.errors import InputError
from toolkit.redaction import escape_html, visible
from toolkit.times import parse_time
from toolkit.widgets.javascript import javascript_control
from toolkit.widgets.texts import shared_start

_SHOWN: Final = 6  # values of a multi-select that are seen at once

Changed = Callable[[], None]


def note(text: str, kind: str = "note") -> str:
    """A line of markup: a ``note``, a ``count``, or a ``problem`` with a sign before it."""
    if not text:
        return ""
    sign, role = ("⚠ ", "alert") if kind == "problem" else ("", "status")
    return f'<div class="tk-{kind}" role="{role}">{sign}{escape_html(text)}</div>'


def _wide() -> widgets.Layout:
    return widgets.Layout(width="auto")  # one each: they are changed later


class TextField:
    """One line of text.

    Parameters
    ----------
    label : str
    changed : callable
        Called after a person changed the text and pressed Enter or left the field.
    hint : str
        Shown while it is empty.
    suggestions : sequence of str, optional
        Offered for completion, until `suggest` gives others; may be empty at first.
    entered : callable, optional
        Called when Enter is pressed; gives whether the text that is there was what it needs. If not, it is
        called again when the text changes.
    """

    def __init__(
        self,
        label: str,
        changed: Changed,
        *,
        hint: str = "",
        suggestions: Sequence[str] | None = None,
        entered: Callable[[], bool] | None = None,
    ) -> None:
        self._changed, self._entered = changed, entered
        self._quiet = False
        self.text = self._made(label, hint, suggestions)
        self._note = widgets.HTML()
        self.view = widgets.VBox([self.text, self._note]).add_class("tk-control")
        self._value: Any = ""
        self.text.observe(self._typed, "value")
        self.text.on_msg(self._message)

    def _made(self, label: str, hint: str, suggestions: Sequence[str] | None) -> Any:
        """The widget that is typed into."""
        completed = suggestions is not None
        options = {"options": tuple(suggestions or ()), "ensure_option": False} if completed else {}
        kind = widgets.Combobox if completed else widgets.Text
        return kind(
            description=label,
            placeholder=hint,
            continuous_update=False,
            layout=_wide(),
            **options,
        ).add_class("tk-field")

    @property
    def value(self) -> Any:
        """The text; empty when there is none."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value
        self._show(str(value))

    @property
    def problem(self) -> str | None:
        """What is wrong with it."""
        return self._problem

    @problem.setter
    def problem(self, text: str | None) -> None:
        self._problem = text
        self._note.value = note(text or "", "problem")

    _problem: str | None = None
    _awaited = False

    def suggest(self, suggestions: Sequence[str]) -> None:
        """Offer these for completion, in a field that was made with suggestions."""
        self.text.options = tuple(suggestions)

    def _show(self, text: str) -> None:
        self._quiet = True
        self.text.value = visible(text)
        self._quiet = False
        self.problem = None

    def _typed(self, change: dict[str, Any]) -> None:
        if self._quiet:
            return
        self._take(change["new"].strip())
        if self._awaited and self._entered is not None:
            self._awaited = False
            self._entered()

    def _take(self, text: str) -> None:
        self._value = text
        self.problem = None
        self._changed()

    def _message(self, _: Any, content: dict[str, Any], __: Any) -> None:
        # Enter is told at once, the text that it ends perhaps later: then the text is waited for
        if content.get("event") == "submit" and self._entered is not None:
            self._awaited = not self._entered()


class TimeField(TextField):
    """A point in time: a date, ISO 8601, or an age such as ``7d``, counted back when it is typed.

    Its value is a datetime in UTC, or None. `end` and `exact` are those of `parse_time`.
    """

    def __init__(
        self,
        label: str,
        changed: Changed,
        *,
        clock: Callable[[], datetime],
        end: bool = False,
        exact: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(label, changed, **options)
        self._clock, self._end, self._exact = clock, end, exact
        self._value = None

    @property
    def value(self) -> datetime | None:
        """The time."""
        found: datetime | None = self._value
        return found

    @value.setter
    def value(self, value: datetime | None) -> None:
        self._value = value
        self._show("" if value is None else written(value))

    def _take(self, text: str) -> None:
        try:
            self._value = (
                parse_time(text, now=self._clock(), end=self._end, exact=self._exact) if text else None
            )
        except InputError as error:
            self.problem = str(error)
            return
        self.problem = None
        self._changed()


def written(value: datetime) -> str:
    """A time as a field shows it.

    >>> written(datetime(2026, 1, 31, 12, tzinfo=UTC))
    '2026-01-31T12:00:00.000Z'
    """
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


class Choices:
    """Several texts out of many: found by searching, ticked, or typed freely.

    Parameters
    ----------
    label : str
    changed : callable
    javascript : bool
        False makes it of text controls alone: one value a line.
    offered : sequence of str
        Values offered where no counts are known.

    Notes
    -----
    Only the first few values are seen; the search field finds the others. What is chosen stays in sight.
    """

    def __init__(
        self, label: str, changed: Changed, *, javascript: bool, offered: Sequence[str] = ()
    ) -> None:
        self.label = label
        self._changed = changed
        self._value: tuple[str, ...] = ()
        self._offered = tuple(offered)
        self._options: dict[str, int | None] = dict.fromkeys(offered)
        self._quiet = False
        self._note = widgets.HTML()
        if javascript:
            self._rows = [self._row() for _ in range(_SHOWN)]
            self.search = javascript_control(
                "entry", label=traitlets.Unicode(), hint=traitlets.Unicode(), value=traitlets.Unicode()
            )(label=label, hint="search, or type a value and press Enter")
            self.search.observe(lambda _: self._draw(), "value")
            self.search.on_msg(lambda _, content, __: self._entered(content))
            self.lines = None
            controls = [self.search, widgets.VBox(self._rows).add_class("tk-ticks")]
        else:
            self._rows = []
            self.search = None
            self.lines = widgets.Textarea(
                description=label,
                placeholder="one value a line",
                rows=2,
                continuous_update=False,
                layout=_wide(),
            ).add_class("tk-field")
            self.lines.observe(self._lines_changed, "value")
            controls = [self.lines]
        self.view = widgets.VBox([*controls, self._note]).add_class("tk-control")
        self._draw()

    @property
    def value(self) -> tuple[str, ...]:
        """What is chosen, in the order in which it was."""
        return self._value

    @value.setter
    def value(self, value: Sequence[str]) -> None:
        self._value = tuple(value)
        self.problem = None

    @property
    def problem(self) -> str | None:
        """What is wrong with what is chosen."""
        return self._problem

    @problem.setter
    def problem(self, text: str | None) -> None:
        self._problem = text
        self._draw()

    _problem: str | None = None

    def offer(self, counted: Sequence[tuple[str, int]]) -> None:
        """Offer these values, with how often each was seen; the most frequent first."""
        known = dict(counted)
        self._options = {**known, **{name: 0 for name in self._offered if name not in known}}
        self._draw()

    def _row(self) -> widgets.Checkbox:
        row = widgets.Checkbox(indent=False, layout=_wide())
        row.meaning = None  # the value it stands for now
        row.observe(lambda change: self._ticked(row, ticked=change["new"]), "value")
        return row

    def _ticked(self, row: Any, *, ticked: bool) -> None:
        if self._quiet or row.meaning is None:
            return
        if ticked:
            self._value = (*self._value, row.meaning)
        else:
            self._value = tuple(value for value in self._value if value != row.meaning)
        self._problem = None
        self._draw()
        self._changed()

    def _entered(self, content: dict[str, Any]) -> None:
        typed = content.get("text")
        if isinstance(typed, str) and typed.strip() and typed.strip() not in self._value:
            self._value = (*self._value, typed.strip())
            self._problem = None
            self._draw()
            self._changed()

    def _lines_changed(self, change: dict[str, Any]) -> None:
        if self._quiet:
            return
        try:
            values = [_from_line(line) for line in change["new"].split("\n") if line.strip()]
        except ValueError:
            self.problem = "A line that begins with a quotation mark has to be one JSON text."
            return
        self._value = tuple(dict.fromkeys(values))
        self._problem = None
        self._draw()
        self._changed()

    def _draw(self) -> None:
        self._quiet = True
        try:
            rest = self._draw_lines() if self.lines is not None else self._draw_rows()
        finally:
            self._quiet = False
        self._note.value = note(self._problem or "", "problem") + note(rest)

    def _draw_rows(self) -> str:
        sought = self.search.value.strip().casefold() if self.search is not None else ""
        names = [*self._options, *(value for value in self._value if value not in self._options)]
        found = [name for name in names if sought in name.casefold()] if sought else names
        # what is chosen comes into sight; else nothing moves under the pointer when it is ticked
        seen = found[:_SHOWN]
        missing = [name for name in found[_SHOWN:] if name in self._value][:_SHOWN]
        seen = [*missing, *seen[: _SHOWN - len(missing)]]
        shared = shared_start(names)
        for row, name in zip(self._rows, [*seen, *[None] * (_SHOWN - len(seen))], strict=True):
            row.meaning = name
            row.layout.display = "none" if name is None else ""
            if name is not None:
                row.description = f"{_one_line(name.removeprefix(shared))}{_times(self._options.get(name))}"
                row.tooltip = visible(name)
                row.value = name in self._value
        hidden = len(found) - len(seen)
        parts = [f"{len(self._value)} chosen"] if self._value else []
        parts += [f"{hidden:,} more: search"] if hidden else []
        parts += ["nothing found: Enter adds what you typed"] if sought and not found else []
        return " · ".join(parts)

    def _draw_lines(self) -> str:
        if self.lines is not None:
            self.lines.value = "\n".join(map(_line, self._value))
        seen = [f"{_one_line(name)}{_times(count)}" for name, count in list(self._options.items())[:_SHOWN]]
        return f"seen: {', '.join(seen)}" if seen else ""


def _times(count: int | None) -> str:
    return "" if count is None else f" ({count:,})"


def _one_line(name: str) -> str:
    return visible(name).replace("\n", "⏎").replace("\t", "⇥")


def _line(value: str) -> str:
    """A value as a line: itself, or JSON where reading it back would give another one."""
    odd = value != value.strip() or not value.isprintable() or value.startswith('"')
    return json.dumps(value) if odd else value


def _from_line(line: str) -> str:
    line = line.strip()
    value = json.loads(line) if line.startswith('"') else line
    if not isinstance(value, str):  # what starts with a quotation mark is a text, or no JSON
        raise ValueError(line)  # noqa: TRY004 - to be explained beside the control
    return value


class Actions:
    """What a panel can do: buttons, or without JavaScript a line to type the name of an action into.

    Parameters
    ----------
    calls : mapping of str to callable
    javascript : bool
    main : bool
        Whether the first is the main one.
    """

    def __init__(
        self, calls: dict[str, Callable[[], object]], *, javascript: bool, main: bool = True
    ) -> None:
        self._calls = calls
        self.buttons: dict[str, widgets.Button] = {}
        if javascript:
            for number, (name, call) in enumerate(calls.items()):
                button = widgets.Button(description=name, layout=_wide())
                button.add_class("tk-button" if number or not main else "tk-main-button")
                button.on_click(lambda _, call=call: call())
                self.buttons[name] = button
            self.view = widgets.HBox([*self.buttons.values()]).add_class("tk-actions")
            return
        names = ", ".join(calls)
        self._line = TextField(
            "Action", lambda: None, hint=f"{names}: type one, press Enter", suggestions=list(calls),
            entered=self._entered,
        )  # fmt: skip
        self.view = self._line.view

    def press(self, name: str) -> None:
        """What pressing the button of this name does."""
        self._calls[name]()

    def _entered(self) -> bool:
        typed = self._line.text.value.strip().casefold()
        for name, call in self._calls.items():
            if name.casefold() == typed:
                self._line.value = ""
                call()
                return True
        if typed:
            self._line.problem = f"Type one of {', '.join(self._calls)}."
        return False
