"""Controls that panels are made of: a value in Python, a view, and what is wrong with it said beside it.

Each has ``.value`` (set from Python without calling anybody), ``.view`` (to be put into a panel),
``.problem`` (text below it, or None), and calls ``changed`` when a person changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from toolkit.errors import InputError
from toolkit.redaction import escape_html, visible
from toolkit.times import parse_time
from toolkit.widgets.javascript import Control, hearing, module, synced
from toolkit.widgets.texts import short_names

_SHOWN: Final = 6  # values of a multi-select that are seen at once
_MOST: Final = 40  # completions at once

Changed = Callable[[], None]
Hear = Callable[[object], None]

Offer = tuple[str, str, str]
"""A completion: what is shown, and what then stands before and after the caret."""

Complete = Callable[[str, str], Sequence[Offer]]


def note(text: str, kind: str = "note") -> str:
    """A line of markup: a ``note``, a ``count``, or a ``problem`` with a sign before it."""
    if not text:
        return ""
    sign, role = ("⚠ ", "alert") if kind == "problem" else ("", "status")
    return f'<div class="tk-{kind}" role="{role}">{sign}{escape_html(text)}</div>'


class Text(Control):
    """Text that is completed while it is typed, drawn by ``js/text.js``.

    Parameters
    ----------
    label, hint : str
    complete : callable, optional
        Given the whole text and the part of it before the caret; returns completions.
    follows : bool
        True: its value follows every letter, and long text has several lines. False: its value is the text
        that was entered, chosen or left.

    Attributes
    ----------
    entered : callable
        Called after Enter, with the messages that came with it.
    """

    _esm = module("text")
    label = synced(traitlets.Unicode())
    hint = synced(traitlets.Unicode())
    value = synced(traitlets.Unicode())
    offers = synced(traitlets.List())
    lines = synced(traitlets.Bool())
    follows = synced(traitlets.Bool())
    completes = synced(traitlets.Bool())
    wanted = synced(traitlets.Bool())

    def __init__(
        self, label: str, *, hint: str = "", complete: Complete | None = None, follows: bool = False
    ) -> None:
        self.complete = complete
        self.entered: Hear = lambda _: None
        super().__init__(
            label=label, hint=hint, lines=follows, follows=follows, completes=complete is not None
        )

    def _take(self, content: dict[str, Any]) -> bool:
        event, text, head = (content.get(name) for name in ("event", "text", "head"))
        if not (isinstance(text, str) and isinstance(head, str)):
            return False
        if self.follows or event in ("changed", "submit"):
            self.value = text
        offers = self.complete(text, head) if self.complete is not None and event == "typed" else ()
        self.offers = [list(offer) for offer in offers[:_MOST]]
        if event == "submit":
            self.entered(content.get("fields"))
        return True


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

    Attributes
    ----------
    several : bool
        Whether the text is several with commas between: then the last before the caret is completed.
    """

    def __init__(
        self, label: str, changed: Changed, *, hint: str = "", suggestions: Sequence[str] | None = None
    ) -> None:
        self._changed = changed
        self._quiet = False
        self._suggestions = tuple(suggestions or ())
        self.several = False
        self.text = Text(label, hint=hint, complete=None if suggestions is None else self._completed)
        self._note = widgets.HTML()
        self.view = widgets.VBox([self.text, self._note]).add_class("tk-control")
        self._value: Any = ""
        self.text.observe(self._typed, "value")

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

    def suggest(self, suggestions: Sequence[str]) -> None:
        """Offer these for completion, in a field that was made with suggestions."""
        self._suggestions = tuple(suggestions)

    def _show(self, text: str) -> None:
        self._quiet = True
        self.text.value = visible(text)
        self._quiet = False
        self.problem = None

    def _typed(self, change: dict[str, Any]) -> None:
        if not self._quiet:
            self._take(change["new"].strip())

    def _take(self, text: str) -> None:
        self._value = text
        self.problem = None
        self._changed()

    def _completed(self, text: str, head: str) -> list[Offer]:
        """The suggestions that contain what is typed; all of them in a field that was not touched."""
        kept, tail = "", ""
        if self.several:
            kept = head[: len(head.rpartition(",")[0])] + ", " if "," in head else ""
            head, tail = head.rpartition(",")[2], text[len(head) :]
        untouched = text == self.text.value and not kept
        sought = "" if untouched else head.strip().casefold()
        found = [name for name in self._suggestions if sought in name.casefold()]
        # a name that cannot be shown as it is would be another one when it was chosen
        found = [name for name in found if visible(name) == name and "\n" not in name]
        found.sort(key=lambda name: not name.casefold().startswith(sought))
        return [(name, f"{kept}{name}", tail) for name in found]


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


class Choosing(Control):
    """A control for one of several names, drawn by ``js/choosing.js``.

    Parameters
    ----------
    options : sequence of str
        All there can be; the first is chosen at first. May be set to some of them later: what is chosen
        stays, also when it is not among these.
    label : str
    """

    _esm = module("choosing")
    label = synced(traitlets.Unicode())
    options = synced(traitlets.List(traitlets.Unicode()))
    value = synced(traitlets.Unicode())

    def __init__(self, options: Sequence[str], *, label: str = "") -> None:
        self._names = frozenset(options)
        super().__init__(options=list(options), value=options[0], label=label)

    def _take(self, content: dict[str, Any]) -> bool:
        value = content.get("value")
        if not isinstance(value, str) or value not in self._names:
            return False
        self.value = value
        return True


class Ticks(Control):
    """The lines of `Choices` in the page, drawn by ``js/ticks.js``."""

    _esm = module("ticks")
    label = synced(traitlets.Unicode())
    hint = synced(traitlets.Unicode())
    searches = synced(traitlets.Bool())
    rows = synced(traitlets.List(traitlets.Dict()))
    literal = synced(traitlets.Unicode())

    def __init__(self, told: Callable[[str, str, bool], None], **traits: Any) -> None:
        self._told = told
        super().__init__(**traits)

    def _take(self, content: dict[str, Any]) -> bool:
        event = content.get("event")
        text = content.get("value" if event == "ticked" else "text")
        if not isinstance(text, str) or event not in ("typed", "enter", "literal", "ticked"):
            return False
        self._told(event, text, content.get("on") is True)
        return True


class Choices:
    """Several texts out of many: found by searching, ticked, or added as they are typed.

    Parameters
    ----------
    label : str
    changed : callable
    offered : sequence of str
        Values offered where no counts are known.
    literal : callable, optional
        Whether a text that is typed can be a value although it is not in the list; it is offered then. By
        default none can.
    searches : bool
        False leaves out the line to search in, for a few values.

    Notes
    -----
    Only the first few values are seen; the search field finds the others, and Enter takes the first of them.
    What is chosen stays in sight.
    """

    def __init__(
        self,
        label: str,
        changed: Changed,
        *,
        offered: Sequence[str] = (),
        literal: Callable[[str], bool] = lambda _: False,
        searches: bool = True,
    ) -> None:
        self.label = label
        self._changed, self._literal = changed, literal
        self._value: tuple[str, ...] = ()
        self._offered = tuple(offered)
        self._options: dict[str, int | None] = dict.fromkeys(offered)
        self._sought = ""
        self._short: dict[str, str] = {}
        self._note = widgets.HTML()
        self.ticks = Ticks(self._told, label=label, hint="search", searches=searches)
        self.view = widgets.VBox([self.ticks, self._note]).add_class("tk-control")
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

    def _told(self, event: str, text: str, on: bool) -> None:  # noqa: FBT001 - as the page says it
        before = self._value
        self._sought = text.strip() if event == "typed" else "" if event != "ticked" else self._sought
        if event == "ticked":
            rest = tuple(value for value in self._value if value != text)
            self._value = ((*self._value, text) if text not in rest else self._value) if on else rest
        elif event in ("enter", "literal") and text.strip():
            found = self._found(text.strip())
            first = found[:1] if event == "enter" else []
            added = first or [text.strip()] * self._literal(text.strip())
            self._value = tuple(dict.fromkeys([*self._value, *added]))
            self._sought = "" if added else text.strip()
        if self._value != before:
            self._problem = None
        self._draw()
        if self._value != before:
            self._changed()

    def _found(self, sought: str) -> list[str]:
        """The values that contain a text, those that begin with it first; all without one."""
        names = [*self._options, *(value for value in self._value if value not in self._options)]
        if names != list(self._short):
            self._short = dict(zip(names, short_names(names), strict=True))
        folded = sought.casefold()
        found = [name for name in names if folded in name.casefold()]
        return sorted(found, key=lambda name: not self._short[name].casefold().startswith(folded))

    def _draw(self) -> None:
        sought = self._sought
        found = self._found(sought)
        # what is chosen comes into sight; else nothing moves under the pointer when it is ticked
        missing = [name for name in found[_SHOWN:] if name in self._value][: _SHOWN - 1]
        seen = [*found[: _SHOWN - len(missing)], *missing]
        self.ticks.rows = [
            {
                "value": name,
                "text": _one_line(self._short[name]),
                "title": visible(name),
                "count": _times(self._options.get(name)),
                "on": name in self._value,
            }
            for name in seen
        ]
        fits = bool(sought) and sought not in self._short and self._literal(sought)
        self.ticks.literal = f"Add “{visible(sought)}” as typed" if fits else ""
        hidden = len(found) - len(seen)
        parts = [f"{len(self._value)} chosen"] if self._value else []
        parts += [f"{hidden:,} more: search"] if hidden else []
        if sought:
            enter = "the first" if found else "it as typed" if fits else ""
            parts += ["nothing found"] * (not found) + [f"Enter adds {enter}"] * bool(enter)
        self._note.value = note(self._problem or "", "problem") + note(" · ".join(parts))


def _times(count: int | None) -> str:
    return "" if count is None else f" ({count:,})"


def _one_line(name: str) -> str:
    return visible(name).replace("\n", "⏎").replace("\t", "⇥")


class Buttons(Control):
    """The buttons of `Actions` in the page, drawn by ``js/buttons.js``."""

    _esm = module("buttons")
    names = synced(traitlets.List(traitlets.Unicode()))
    main = synced(traitlets.Bool())

    def __init__(self, pressed: Callable[[str], None], hear: Hear, **traits: Any) -> None:
        self._pressed, self._hear = pressed, hear
        super().__init__(**traits)

    def hear(self, content: object) -> None:
        """Take a press, after the values it was made on."""
        if isinstance(content, dict) and content.get("press") in list(self.names):
            with hearing:
                self._hear(content.get("fields"))
                self._pressed(content["press"])


class Actions:
    """What a panel can do, as buttons.

    Parameters
    ----------
    calls : mapping of str to callable
    hear : callable
        Takes the values of the panel's fields that come with a press (`Panel.hear`).
    main : bool
        Whether the first is the main one.
    """

    def __init__(self, calls: Mapping[str, Callable[[], object]], hear: Hear, *, main: bool = True) -> None:
        self._calls = calls
        self.view = Buttons(self.press, hear, names=list(calls), main=main)

    def press(self, name: str) -> None:
        """What pressing the button of this name does."""
        self._calls[name]()
