"""What a section of a report consists of: values, described once, that every form renders alike.

Texts are plain and their secrets masked; the forms escape them. A new section is a function that returns a
`Section`, and its place in the list of its report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from matplotlib.axes import Axes

from toolkit.base.python_code import Code
from toolkit.base.time_zones import time_text
from toolkit.drawing.style import Theme
from toolkit.drawing.wording import counted, percent, span

Kind = Literal["text", "number", "digits", "share", "percent", "time", "hours", "id", "flag"]
"""What a column holds: texts; counts; numbers that are not counts; shares of 1, with a bar or without; times
in ISO 8601; hours; ids to copy; whether the name of the column applies to the row."""

_WHOLE: Final = 1_000
"""Numbers from here on are shown without decimals."""

NUMBERS: Final = frozenset({"number", "digits", "percent", "hours"})
"""Kinds that stand at the right."""


@dataclass(frozen=True)
class ReportColumn:
    """A column of a table: its heading, what it holds, and how a missing value is shown.

    What is `beneath` is shown in small print under the first column, where there is space, after its name
    where it is `named`.
    """

    name: str
    kind: Kind = "text"
    missing: str = "(none)"
    beneath: bool = False
    named: bool = False

    def shown(self, value: Any) -> str:
        """Return a value as people read it."""
        if self.kind == "flag":
            return self.name if value else ""
        if value is None or value == "":
            return self.missing
        match self.kind:
            case "number":
                whole = isinstance(value, int) or abs(value) >= _WHOLE
                number = f"{round(value):,}" if whole else f"{value:.4g}"
                return counted(value, self.name.removesuffix("s")) if self.beneath else number
            case "share" | "percent":
                return percent(value)
            case "time":
                return time_text(read_time(value))
            case "hours":
                return span(timedelta(hours=value))
        return str(value)


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows under a caption; how many more there are; whether a page folds them away."""

    caption: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    left_out: int = 0
    more: str = "more rows"
    folded: bool = False
    half: bool = False  # next to another one, if the page is wide enough


@dataclass(frozen=True, kw_only=True)
class ReportList:
    """Lines under a sentence: ids to copy, or sentences."""

    caption: str
    items: tuple[str, ...]
    ids: bool = False
    left_out: int = 0


@dataclass(frozen=True)
class ReportCode:
    """Python to run, or to read; a page folds it away, unless it is there to be copied."""

    code: Code
    folded: bool = True


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A drawing for pages of two widths; the height is in inches."""

    title: str
    description: str
    height: float
    draw: Callable[[Axes, Theme], Axes]


@dataclass(frozen=True)
class ReportText:
    """A paragraph."""

    text: str


Part: TypeAlias = ReportTable | ReportList | ReportCode | ReportFigure | ReportText


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report: a name for links, a heading, a sentence, and the contents."""

    name: str
    title: str
    sentence: str = ""
    parts: tuple[Part, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON-able values; a figure becomes words."""
        parts = list(map(_to_dict, self.parts))
        return {"name": self.name, "title": self.title, "sentence": self.sentence, "parts": parts}

    def masked(self, clean: Callable[[Any], Any], code: Callable[[str], str]) -> Section:
        """Return the section with all strings masked, also in the code."""
        return replace(
            self,
            title=clean(self.title),
            sentence=clean(self.sentence),
            parts=tuple(_masked(self.parts, clean, code)),
        )


def _to_dict(part: Part) -> dict[str, Any]:
    match part:
        case ReportTable():
            names, rows = [column.name for column in part.columns], [list(row) for row in part.rows]
            return {"table": part.caption, "columns": names, "rows": rows, "left_out": part.left_out}
        case ReportList():
            return {"list": part.caption, "items": list(part.items), "left_out": part.left_out}
        case ReportCode():
            return {"code": part.code}
        case ReportFigure():
            return {"figure": part.title, "description": part.description}
        case ReportText():
            return {"text": part.text}


def _masked(parts: Iterable[Part], clean: Callable[[Any], Any], code: Callable[[str], str]) -> Iterator[Part]:
    for part in parts:
        match part:
            case ReportTable():
                rows = tuple(tuple(map(clean, row)) for row in part.rows)
                yield replace(part, caption=clean(part.caption), rows=rows)
            case ReportList():
                yield replace(part, caption=clean(part.caption), items=tuple(map(clean, part.items)))
            case ReportText():
                yield replace(part, text=clean(part.text))
            case ReportCode():
                yield replace(part, code=Code(code(part.code)))  # masking keeps each literal one
            case _:
                yield part


@dataclass(frozen=True)
class Notice:
    """A sentence in the head of a report on how far to trust it."""

    text: str
    good: bool = False


def table(
    caption: str,
    columns: Iterable[object],
    rows: Iterable[Sequence[Any]],
    *,
    missing: str = "(none)",
    **options: Any,
) -> ReportTable:
    """A table; a column that is only named holds texts, or numbers where its name begins with ``#``."""
    made = []
    for column in columns:
        if isinstance(column, ReportColumn):
            made.append(column)
        else:
            name = str(column)
            kind: Kind = "number" if name.startswith("#") else "text"
            made.append(ReportColumn(name.removeprefix("#"), kind, missing))
    return ReportTable(caption=caption, columns=tuple(made), rows=tuple(map(tuple, rows)), **options)


def read_time(text: str) -> datetime:
    """Return a time of a report."""
    return datetime.fromisoformat(text).astimezone(UTC)


def number_text(value: int | None) -> str:
    """Return a number of the head; "?" if the data cannot tell it.

    >>> number_text(1234), number_text(None)
    ('1,234', '?')
    """
    return "?" if value is None else f"{value:,}"


def change_in_words(number: Mapping[str, Any]) -> str | None:
    """Return the change as a sign, a number and a share, read the same by eye and by ear.

    >>> change_in_words({"value": 120, "change": 30})
    '▲ up 30 (33 %)'
    >>> change_in_words({"value": 5, "change": 0})
    '= unchanged'
    """
    change = number["change"]
    if change is None:
        return None
    if change == 0:
        return "= unchanged"
    before = number["value"] - change
    share = f" ({percent(abs(change) / before)})" if before > 0 else ""
    return f"{'▲ up' if change > 0 else '▼ down'} {abs(change):,}{share}"
