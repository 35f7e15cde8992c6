"""Define the fields of a panel that is one widget: each has a state that the page draws, and reads messages.

The page counts the messages of each field. A state names the last message that it follows (`seen`), so the
page does not replace text that was typed after that message. Messages of one widget arrive in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

from toolkit.base.errors import InputError
from toolkit.base.times import parse_time
from toolkit.secrets.redaction import visible
from toolkit.widgets.page_parts import is_count
from toolkit.widgets.short_names import short_names

_COMPLETIONS: Final = 40  # visible
_LONGEST_LIST: Final = 6  # visible values of a list
_EXPLAINED: Final = ("problem", "remark")

Changed: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], datetime]
Completion: TypeAlias = tuple[str, str, str]
"""The displayed text, and the text before and after the caret once it is chosen."""


def _nothing() -> None:
    """Do nothing: the action of a field that nobody listens to."""


class _Shown:
    """An attribute of a field that is a part of its state."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, field: Field | None, owner: type | None = None) -> Any:
        if field is None:
            return self
        return field.state[self._name]

    def __set__(self, field: Field, value: Any) -> None:
        field.update({self._name: value})


class Field:
    """A field with a label, and a problem or a remark below it. `changed` is called after a person's change.

    The form that the field belongs to sets `redraw`, and sends `state` to the page when it is called.
    """

    kind = ""
    label = _Shown()
    problem = _Shown()
    remark = _Shown()
    hidden = _Shown()

    def __init__(self, label: str, changed: Changed = _nothing, **state: Any) -> None:
        self._changed = changed
        self.redraw: Changed = _nothing
        self.state: dict[str, Any] = {
            "kind": self.kind,
            "label": label,
            "problem": None,
            "remark": "",
            "hidden": False,
            "seen": 0,
            **state,
        }

    def update(self, parts: dict[str, Any]) -> None:
        """Change parts of the state."""
        for name in _EXPLAINED:
            if parts.get(name):
                # text of data may have characters that cannot be seen
                parts[name] = visible(parts[name])

        self.state.update(parts)
        self.redraw()

    def receive(self, content: dict[str, Any]) -> None:
        """Process a message of the page. Messages that the page would not send change nothing."""
        number = content.get("number")
        if is_count(number) and self._process(content):
            self.update({"seen": number})

    def _process(self, content: dict[str, Any]) -> bool:
        """Process a message. Return False if the page would never send it."""
        raise NotImplementedError


class Button(Field):
    """A button inside a form. `description` is its text."""

    kind = "button"

    def __init__(self, label: str, pressed: Changed, *, tooltip: str = "") -> None:
        super().__init__(label, pressed, tooltip=tooltip, focused=0)

    def click(self) -> None:
        """Run the action, as a click does."""
        self._changed()

    def focus(self) -> None:
        """Put the keyboard focus on the button."""
        self.update({"focused": self.state["focused"] + 1})

    def _process(self, content: dict[str, Any]) -> bool:
        pressed = content.get("event") == "press"
        if pressed:
            self.click()
        return pressed


class TextField(Field):
    """A line of text with completions. The page shows `text`; `value` is the meaning, for example a time.

    Completions come from `complete`, which gets the whole text and the part before the caret. If it is
    omitted, they are the `suggestions` that contain the typed text. With `several`, the text is a list with
    commas. With `follows`, the value follows every letter. Otherwise it changes if a person presses Enter,
    chooses a completion or leaves the field. Enter calls `entered`.
    """

    kind = "text"
    hint = _Shown()
    text = _Shown()
    offers = _Shown()

    def __init__(
        self,
        label: str,
        changed: Changed = _nothing,
        *,
        hint: str = "",
        suggestions: Sequence[str] | None = None,
        complete: Callable[[str, str], Sequence[Completion]] | None = None,
        follows: bool = False,
    ) -> None:
        self.suggestions = tuple(suggestions or ())
        self._complete = complete
        if suggestions is not None:
            self._complete = self._suggested
        self.several = False
        self.entered: Changed = _nothing
        self._value: Any = ""
        super().__init__(
            label,
            changed,
            hint=hint,
            text="",
            offers=[],
            follows=follows,
            completes=self._complete is not None,
            focused=0,
        )

    @property
    def value(self) -> Any:
        """Return the text without spaces around it, or an empty string."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value
        self.update({"text": visible(self._written(value)), "problem": None})

    def focus(self) -> None:
        """Put the keyboard focus into the field, once the page has drawn it."""
        self.update({"focused": self.state["focused"] + 1})

    def _written(self, value: Any) -> str:
        return str(value)

    def _read(self, text: str) -> Any:
        """Return the value of typed text. If it raises InputError, the field shows it and the value stays."""
        return text

    def _process(self, content: dict[str, Any]) -> bool:
        event, text, head = (content.get(name) for name in ("event", "text", "head"))
        if not (isinstance(text, str) and isinstance(head, str)):
            return False

        ended = event in ("changed", "submit")
        if (ended or self.state["follows"]) and text != self.text:
            self._take(text)
        offers: Sequence[Completion] = ()
        if event == "typed" and self._complete is not None:
            offers = self._complete(text, head)
        self.offers = [list(offer) for offer in offers[:_COMPLETIONS]]
        if event == "submit":
            self.entered()
        return True

    def _take(self, text: str) -> None:
        """Read typed text. If it cannot be read, the field keeps showing it, next to the problem."""
        self.update({"text": text, "problem": None})
        try:
            self._value = self._read(text.strip())
        except InputError as error:
            self.problem = str(error)
        else:
            self._changed()

    def _suggested(self, text: str, head: str) -> list[Completion]:
        """Return the suggestions that contain the typed text. If nothing was typed, return all of them."""
        kept, tail = "", ""
        if self.several:
            before, comma, head = head.rpartition(",")
            tail = text[len(before) + len(comma) + len(head) :]
            kept = f"{before}, " if comma else ""

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


class TimeField(TextField):
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

        local = value.astimezone(self._zone).isoformat(timespec="milliseconds")
        return local.replace("+00:00", "Z")

    def _read(self, text: str) -> datetime | None:
        if not text:
            return None

        return parse_time(
            text,
            now=self._clock(),
            end=self._comparison == "<=",
            exact=self._comparison == "=",
            zone=self._zone,
        )


class Dropdown(Field):
    """One of several names, at first the first; the chosen one stays when other `options` are set."""

    kind = "choice"
    options = _Shown()
    value = _Shown()

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


class CheckList(Field):
    """Several values out of many: found by searching, ticked, or added as they are typed.

    `offered` values are listed even if their count is 0. `literal` tells whether a typed value that is not
    listed can be added. Chosen values are always shown; of the others, the first few are shown.
    """

    kind = "ticks"
    rows = _Shown()
    literal = _Shown()

    def __init__(
        self,
        label: str,
        changed: Changed = _nothing,
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
        super().__init__(label, changed, searches=searches, rows=[], literal="")
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
        missing = {name: 0 for name in self._offered if name not in known}
        self._counts = {**known, **missing}
        self._draw()

    def _process(self, content: dict[str, Any]) -> bool:
        event, before = content.get("event"), self._value
        text = content.get("value" if event == "ticked" else "text")
        if not isinstance(text, str):
            return False

        match event:
            case "ticked":
                self._tick(text, on=content.get("on") is True)
            case "typed":
                self._sought = text.strip()
            case "enter" | "literal":
                self._add(text.strip(), matches=event == "enter")
            case _:
                return False

        if self._value != before:
            self.problem = None
        self._draw()
        if self._value != before:
            self._changed()
        return True

    def _tick(self, text: str, *, on: bool) -> None:
        """Add a value at the end, or remove it. A value that is chosen already keeps its place."""
        if not on:
            self._value = tuple(value for value in self._value if value != text)
        elif text not in self._value:
            self._value = (*self._value, text)

    def _add(self, typed: str, *, matches: bool) -> None:
        """Add the first match of typed text. Without a match, add the text if the field accepts it."""
        added: list[str] = []
        if typed and matches:
            added = self._found(typed)[:1]
        if typed and not added and self._literal(typed):
            added = [typed]
        self._value = tuple(dict.fromkeys([*self._value, *added]))
        self._sought = "" if added else typed

    def _found(self, sought: str) -> list[str]:
        """Return the values that contain `sought`. Values that begin with it come first."""
        names = list(dict.fromkeys([*self._counts, *self._value]))
        if names != list(self._short):
            self._short = dict(zip(names, short_names(names), strict=True))
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

    def _draw(self) -> None:
        sought = self._sought
        matches = self._found(sought)
        # chosen values are added at the end, so that no box moves under the pointer
        later = [name for name in matches[_LONGEST_LIST:] if name in self._value]
        later = later[: _LONGEST_LIST - 1]
        shown = [*matches[: _LONGEST_LIST - len(later)], *later]
        fits = bool(sought) and sought not in self._short and self._literal(sought)
        literal = ""
        if fits:
            literal = f"Add “{visible(sought)}” as typed"
        self.update(
            {
                "rows": [self._row(name) for name in shown],
                "literal": literal,
                "remark": self._remark(matches, len(shown), fits=fits),
            }
        )

    def _remark(self, matches: Sequence[str], shown: int, *, fits: bool) -> str:
        """Return the line below the list: how many are chosen and hidden, and the effect of Enter."""
        parts = []
        if self._value:
            parts.append(f"{len(self._value)} chosen")
        if len(matches) > shown:
            parts.append(f"{len(matches) - shown:,} more: search")
        if self._sought and not matches:
            parts.append("nothing found")
        if self._sought and matches:
            parts.append("Enter adds the first")
        elif fits:
            parts.append("Enter adds it as typed")

        return " · ".join(parts)

    def _row(self, name: str) -> dict[str, Any]:
        count = self._counts.get(name)
        return {
            "value": name,
            "text": visible(self._short[name]).replace("\n", "⏎").replace("\t", "⇥"),
            "title": visible(name),
            "count": "" if count is None else f" ({count:,})",
            "on": name in self._value,
        }
