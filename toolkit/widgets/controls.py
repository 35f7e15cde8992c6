"""Controls drawn by JavaScript (fields, lists, buttons): the page sends user actions in numbered messages.

Every panel has a `KeyboardGuard`, because JupyterLab treats keys pressed in a panel as shortcuts: if you type
``d d``, it deletes the cell (ipywidgets issue 3912). A press of a button can overtake text that was typed
before. Therefore the press repeats the messages that the kernel has not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import uuid4
from zoneinfo import ZoneInfo

import anywidget
import traitlets

from toolkit.base.errors import InputError
from toolkit.base.times import parse_time
from toolkit.secrets.redaction import visible
from toolkit.widgets.page_parts import MESSAGE_LOCK, is_count, script, synced
from toolkit.widgets.short_names import short_names

Changed = Callable[[], object]
ReceiveFields = Callable[[object], None]
"""Processes the unconfirmed messages of a panel's fields that came with a press."""


def module(name: str) -> str:
    """Return the JavaScript module ``js/<name>.js``, with the functions that all modules share."""
    return f"{script('shared.js')}{script(f'{name}.js')}"


class KeyboardGuard(anywidget.AnyWidget):
    """Keep keys pressed in a panel from triggering shortcuts of the notebook."""

    _esm = module("guard")


class PageWidget(anywidget.AnyWidget):
    """A part of a panel that is drawn in the page. Messages are processed one at a time."""

    def __init__(
        self, process: Callable[[dict[str, Any]], object], **traits: Any
    ) -> None:
        super().__init__(**traits)
        self._process = process
        self.on_msg(lambda _, content, __: self.receive(content))

    def receive(self, content: object) -> None:
        """Process a message of the page."""
        if isinstance(content, dict):
            with MESSAGE_LOCK:
                self._process(content)


class Control(anywidget.AnyWidget):
    """A control with a label, and a problem or a remark below it.

    `changed` is called after a person changed the value. `seq` is the number of the last message processed.
    Older messages are ignored, because they have already arrived with a press.
    """

    key = synced(traitlets.Unicode())
    seq = synced(traitlets.Int())
    label = synced(traitlets.Unicode())
    problem = synced(traitlets.Unicode(None, allow_none=True))
    remark = synced(traitlets.Unicode())

    def __init__(
        self, label: str = "", changed: Changed = lambda: None, **traits: Any
    ) -> None:
        self._changed = changed
        # A press carries messages of other controls as well; the key tells which control each is for.
        super().__init__(key=uuid4().hex, label=label, **traits)
        self.add_class("tk-control")
        self.on_msg(lambda _, content, __: self.receive(content))

    @traitlets.validate("problem", "remark")
    def _shown_text(self, proposal: dict[str, Any]) -> str | None:
        return proposal["value"] and visible(proposal["value"])

    def receive(self, content: object) -> None:
        """Process a message of the page. Ignore it if it is older, or if the page would not send it."""
        if not isinstance(content, dict) or not is_count(content.get("seq")):
            return
        # the number is sent together with the changes: the page ignores changes with a lower number
        with MESSAGE_LOCK, self.hold_sync():
            if content["seq"] > self.seq and self._process(content):
                self.seq = content["seq"]

    def _process(self, content: dict[str, Any]) -> bool:
        """Process a message. Return False if the page would never send it."""
        raise NotImplementedError


class Actions(PageWidget):
    """The buttons of a panel; `main` names the main one: True for the first, False for none."""

    _esm = module("buttons")
    names = synced(traitlets.List(traitlets.Unicode()))
    main = synced(traitlets.Unicode())

    def __init__(
        self,
        calls: Mapping[str, Callable[[], object]],
        receive_fields: ReceiveFields,
        *,
        main: str | bool = True,
    ) -> None:
        self._calls, self._receive_fields = calls, receive_fields
        names = list(calls)
        if isinstance(main, bool):
            main = names[0] if main and names else ""
        super().__init__(self._pressed, names=names, main=main)

    def _pressed(self, content: dict[str, Any]) -> None:
        """Process a press, after the field values that arrived with it."""
        if content.get("press") in list(self._calls):
            self._receive_fields(content.get("fields"))
            self.press(content["press"])

    def press(self, name: str) -> None:
        """Run the action of this button."""
        self._calls[name]()


def receive_all(root: Any, fields: object) -> None:
    """Process messages that came with a press, for controls inside a widget: pairs of a key and messages."""
    controls: dict[str, Control] = {}
    # Most presses carry no messages, and then there is no need to look for the controls.
    left = [root] if fields else []
    while left:
        widget = left.pop()
        left += getattr(widget, "children", ())
        if isinstance(widget, Control):
            controls[widget.key] = widget
    for pair in fields if isinstance(fields, list) else ():
        match pair:
            case [str(key), list(messages)] if key in controls:
                for message in messages:
                    controls[key].receive(message)


_COMPLETIONS: Final = 40  # visible

Clock = Callable[[], datetime]
Completion = tuple[str, str, str]
"""The displayed text, and the text before and after the caret once it is chosen."""


class TextControl(Control):
    """A line of text with completions. The page shows `text`; `value` is the meaning, for example a time.

    Completions come from `complete`, which gets the whole text and the part before the caret. If it is
    omitted, they are the `suggestions` that contain the typed text. With `several`, the text is a list with
    commas. With `follows`, the value follows every letter. Otherwise it changes if a person presses Enter,
    chooses a completion or leaves the field. Enter calls `entered`.
    """

    _esm = module("text")
    hint = synced(traitlets.Unicode())
    text = synced(traitlets.Unicode())
    offers = synced(traitlets.List())
    follows = synced(traitlets.Bool())
    completes = synced(traitlets.Bool())
    wanted = synced(traitlets.Bool())  # True puts the keyboard focus into it

    def __init__(
        self,
        label: str,
        changed: Changed,
        *,
        hint: str = "",
        suggestions: Sequence[str] | None = None,
        complete: Callable[[str, str], Sequence[Completion]] | None = None,
        follows: bool = False,
    ) -> None:
        self.suggestions = tuple(suggestions or ())
        self._complete = self._suggested if suggestions is not None else complete
        self.several = False
        self.entered: ReceiveFields = lambda _: None
        self._value: Any = ""
        super().__init__(
            label,
            changed,
            hint=hint,
            follows=follows,
            completes=self._complete is not None,
        )

    @property
    def value(self) -> Any:
        """Return the text without spaces around it, or an empty string."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value
        self.text = visible(self._written(value))
        self.problem = None

    def _written(self, value: Any) -> str:
        return str(value)

    def _read(self, text: str) -> Any:
        """Return the value of typed text. If it raises InputError, the field shows it and the value stays."""
        return text

    def _process(self, content: dict[str, Any]) -> bool:
        event, text, head = (content.get(name) for name in ("event", "text", "head"))
        if not (isinstance(text, str) and isinstance(head, str)):
            return False
        if (self.follows or event in ("changed", "submit")) and text != self.text:
            # The text is set before it is read: if it cannot be read, the
            # field keeps showing it next to the problem.
            self.text, self.problem = text, None
            try:
                self._value = self._read(text.strip())
            except InputError as error:
                self.problem = str(error)
            else:
                self._changed()
        offers = (
            self._complete(text, head)
            if self._complete is not None and event == "typed"
            else ()
        )
        self.offers = [list(offer) for offer in offers[:_COMPLETIONS]]
        if event == "submit":
            self.entered(content.get("fields"))
        return True

    def _suggested(self, text: str, head: str) -> list[Completion]:
        """Return the suggestions that contain the typed text. If nothing was typed, return all of them."""
        kept, tail = "", ""
        if self.several:
            kept = head[: len(head.rpartition(",")[0])] + ", " if "," in head else ""
            head, tail = head.rpartition(",")[2], text[len(head) :]
        # A person who enters a field that has a value wants to see the other values,
        # so the value does not narrow the list.
        untouched = text == self.text and not kept
        sought = "" if untouched else head.strip().casefold()
        names = [name for name in self.suggestions if sought in name.casefold()]
        # a name that is not shown exactly would become another one when it is chosen
        names = [name for name in names if visible(name) == name and "\n" not in name]
        # The sort is stable: within both halves, the order of the suggestions stays.
        names.sort(key=lambda name: not name.casefold().startswith(sought))
        return [(name, f"{kept}{name}", tail) for name in names]


class TimeControl(TextControl):
    """A timestamp, or None: a date, ISO 8601, or an age such as ``7d``, counted back when typed.

    Dates and times without a zone are in `zone`. The field also writes the timestamp in this zone.

    `compare` is the comparison of the filter. If it is "<=", a date includes the whole day. If it is
    "=", only timestamps are accepted, and no ages.
    """

    def __init__(
        self,
        *args: Any,
        clock: Clock,
        compare: str = ">=",
        zone: ZoneInfo,
        **options: Any,
    ) -> None:
        self._clock, self._comparison, self._zone = clock, compare, zone
        super().__init__(*args, **options)
        self._value = None

    def _written(self, value: datetime | None) -> str:
        if value is None:
            return ""
        return (
            value.astimezone(self._zone)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )

    def _read(self, text: str) -> datetime | None:
        end, exact = self._comparison == "<=", self._comparison == "="
        return (
            parse_time(text, now=self._clock(), end=end, exact=exact, zone=self._zone)
            if text
            else None
        )


class DropdownControl(Control):
    """One of several names, at first the first; the chosen one stays when other `options` are set."""

    _esm = module("choosing")
    options = synced(traitlets.List(traitlets.Unicode()))
    value = synced(traitlets.Unicode())

    def __init__(self, label: str, changed: Changed, options: Sequence[str]) -> None:
        self._names = frozenset(options)
        super().__init__(label, changed, options=list(options), value=options[0])

    def _process(self, content: dict[str, Any]) -> bool:
        value = content.get("value")
        if not isinstance(value, str) or value not in self._names:
            return False
        if value != self.value:
            self.value = value
            self._changed()
        return True


class CheckListControl(Control):
    """Several values out of many: found by searching, ticked, or added as they are typed.

    `offered` values are listed even if their count is 0. `literal` tells whether a typed value that is not
    listed can be added. Chosen values are always shown; of the others, the first few are shown.
    """

    _esm = module("ticks")
    _longest = 6  # visible values
    hint = synced(traitlets.Unicode("search"))
    searches = synced(traitlets.Bool())
    rows = synced(traitlets.List(traitlets.Dict()))
    literal = synced(traitlets.Unicode())

    def __init__(
        self,
        label: str,
        changed: Changed,
        *,
        offered: Sequence[str] = (),
        literal: Callable[[str], bool] = lambda _: False,
        searches: bool = True,
    ) -> None:
        self._literal = literal
        self._value: tuple[str, ...] = ()
        self._offered = offered
        self._counts: dict[str, int | None] = dict.fromkeys(offered)
        self._sought = ""
        self._short: dict[str, str] = {}
        super().__init__(label, changed, searches=searches)
        self._draw()

    @property
    def value(self) -> tuple[str, ...]:
        """Return the chosen values, in the order of choosing."""
        return self._value

    @value.setter
    def value(self, value: Sequence[str]) -> None:
        self._value = tuple(value)
        self.problem = None
        self._draw()

    def offer(self, counted: Sequence[tuple[str, int]]) -> None:
        """Offer these values with their counts, the most frequent first."""
        known = dict(counted)
        self._counts = {
            **known,
            **{name: 0 for name in self._offered if name not in known},
        }
        self._draw()

    def _process(self, content: dict[str, Any]) -> bool:
        event = content.get("event")
        text = content.get("value" if event == "ticked" else "text")
        if not isinstance(text, str) or event not in (
            "typed",
            "enter",
            "literal",
            "ticked",
        ):
            return False
        before, typed = self._value, text.strip()
        if event == "ticked":
            self._value = tuple(value for value in before if value != text)
            if content.get("on") is True:
                self._value = before if text in before else (*before, text)
        elif event == "typed" or not typed:
            self._sought = typed
        else:
            # Enter takes the first match. Without a match, the text itself is added if the field accepts it.
            added: list[str] = []
            if event == "enter":
                added = self._found(typed)[:1]
            if not added and self._literal(typed):
                added = [typed]
            self._value = tuple(dict.fromkeys([*before, *added]))
            self._sought = "" if added else typed
        if self._value != before:
            self.problem = None
        self._draw()
        if self._value != before:
            self._changed()
        return True

    def _found(self, sought: str) -> list[str]:
        """Return the values that contain `sought`. Values that begin with it come first."""
        names = [
            *self._counts,
            *(value for value in self._value if value not in self._counts),
        ]
        if names != list(self._short):
            self._short = dict(zip(names, self._named(names), strict=True))
        folded = sought.casefold()
        matches = [
            name
            for name in names
            if folded in f"{name}\n{self._short[name]}".casefold()
        ]
        return sorted(
            matches,
            key=lambda name: not self._short[name].casefold().startswith(folded),
        )

    def _named(self, names: Sequence[str]) -> list[str]:
        """Return the values as they are shown."""
        return short_names(names)

    def _draw(self) -> None:
        sought = self._sought
        matches = self._found(sought)
        # chosen values are added at the end, so that no box moves under the pointer
        missing = [name for name in matches[self._longest :] if name in self._value][
            : self._longest - 1
        ]
        shown = [*matches[: self._longest - len(missing)], *missing]
        fits = bool(sought) and sought not in self._short and self._literal(sought)
        remarks = {
            f"{len(self._value)} chosen": self._value,
            f"{len(matches) - len(shown):,} more: search": len(matches) > len(shown),
            "nothing found": sought and not matches,
            f"Enter adds {'the first' if matches else 'it as typed'}": sought
            and (matches or fits),
        }
        with self.hold_sync():
            self.rows = [self._row(name) for name in shown]
            self.literal = f"Add “{visible(sought)}” as typed" if fits else ""
            self.remark = " · ".join(
                remark for remark, applies in remarks.items() if applies
            )

    def _row(self, name: str) -> dict[str, Any]:
        count = self._counts.get(name)
        return {
            "value": name,
            "text": visible(self._short[name]).replace("\n", "⏎").replace("\t", "⇥"),
            "title": visible(name),
            "count": "" if count is None else f" ({count:,})",
            "on": name in self._value,
        }
