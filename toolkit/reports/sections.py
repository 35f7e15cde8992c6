"""Define the parts of a report section: tables, lists, code, figures and paragraphs.

A section describes its contents once, and every form (HTML, Markdown, e-mail) renders them. Strings are plain
with masked secrets; each form escapes them. To add a section, write a function that returns a `Section`, and
add it to the list of the report.
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
from toolkit.reports.board import ReportBoard

Kind = Literal[
    "text",
    "number",
    "digits",
    "share",
    "percent",
    "time",
    "hours",
    "id",
    "flag",
    "trend",
]
"""The type of a column: strings ("text"), counts ("number"), other numbers, for example a status code
("digits"), shares between 0 and 1 with a bar ("share") or without ("percent"), ISO 8601 times, hours, ids
to copy, whether the column name applies to a row ("flag"), or counts per bar of a small trend ("trend").
Only pages and JSON contain trends."""

_WHOLE: Final = 1_000
"""Larger numbers are shown without decimals."""

NUMBERS: Final = frozenset({"number", "digits", "percent", "hours"})
"""Kinds that are aligned to the right."""


@dataclass(frozen=True)
class ReportColumn:
    """A column of a table: the heading, the kind of values, and the text for missing values.

    Set `below` to show the column in small print below the first column on wide pages. If the column is also
    `named`, the heading precedes each value. If it is `folded`, a page shows it there after a click.
    """

    name: str
    kind: Kind = "text"
    missing: str = "(none)"
    below: bool = False
    named: bool = False
    folded: bool = False

    @property
    def is_drawn(self) -> bool:
        """Return whether the column has no text, so that forms without drawings leave it out."""
        return self.kind in {"flag", "trend"}

    def shown(self, value: Any) -> str:
        """Return a value as readers see it, for example "12 %" for a share of 0.12."""
        if self.kind == "flag":
            return self.name if value else ""
        if value is None or value == "":
            return self.missing
        match self.kind:
            case "number":
                # small print has no heading, so the number needs a noun: "3 failures"
                if self.below:
                    return counted(value, self.name.removesuffix("s"))
                number = f"{value:.4g}"
                if isinstance(value, int) or abs(value) >= _WHOLE:
                    number = f"{round(value):,}"
                return number
            case "share" | "percent":
                return percent(value)
            case "time":
                return time_text(read_time(value))
            case "hours":
                return span(timedelta(hours=value))
        return str(value)


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A caption, rows, and the number of rows left out. Pages fold tables that only repeat a figure."""

    caption: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    left_out: int = 0
    more: str = "more rows"
    folded: bool = False
    half: bool = False  # shown next to another half table if the page is wide enough


@dataclass(frozen=True, kw_only=True)
class ReportList:
    """A list below a caption. The items are sentences, or ids to copy."""

    caption: str
    items: tuple[str, ...]
    ids: bool = False
    left_out: int = 0


@dataclass(frozen=True)
class ReportCode:
    """Python code. Pages fold it unless the code is the main content of the section."""

    code: Code
    folded: bool = True


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure that can be drawn at any width. The height is in inches."""

    title: str
    description: str
    height: float
    draw: Callable[[Axes, Theme], Axes]


@dataclass(frozen=True)
class ReportText:
    """A paragraph. If it has an `anchor`, other parts of the page can link to it."""

    text: str
    anchor: str = ""


Part: TypeAlias = (
    ReportTable | ReportList | ReportCode | ReportFigure | ReportText | ReportBoard
)


@dataclass(frozen=True, eq=False)
class Section:
    """A section of a report: a name for links, a heading, a sentence, and the parts.

    Pages fold a section that is `folded`, and show the heading with one line about the contents.
    """

    name: str
    title: str
    sentence: str = ""
    parts: tuple[Part, ...] = ()
    folded: bool = False

    @property
    def contents(self) -> str:
        """Return one line about the contents: the first caption, with the number of rows."""
        for part in self.parts:
            match part:
                case ReportTable() if part.rows and not part.folded:
                    return f"{part.caption}: {counted(len(part.rows), 'row')}"
                case ReportFigure() | ReportTable():
                    return _caption(part)
                case ReportList():
                    return part.caption.removesuffix(":")
        return self.sentence or "Python code"

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON-able values, with a description instead of each figure."""
        parts = list(map(_to_dict, self.parts))
        return {
            "name": self.name,
            "title": self.title,
            "sentence": self.sentence,
            "parts": parts,
        }

    def masked(
        self, clean: Callable[[Any], Any], code: Callable[[str], str]
    ) -> Section:
        """Return the section with all strings masked, including literals in code."""
        return replace(
            self,
            title=clean(self.title),
            sentence=clean(self.sentence),
            parts=tuple(_masked(self.parts, clean, code)),
        )


def _caption(part: ReportFigure | ReportTable) -> str:
    if isinstance(part, ReportFigure):
        return f"{part.title}: {part.description}"
    return part.caption


def board_table(board: ReportBoard) -> ReportTable:
    """Return problems as a table, for forms without trends."""
    rows = [
        (
            problem.title, problem.state, problem.where, problem.since_text, problem.failures,
            problem.rate_text, problem.failure_class, problem.action, problem.reason,
        )
        for problem in board.problems
    ]  # fmt: skip
    columns = [
        "problem", "state", "in", "since", "#failures", ReportColumn("rate", missing=""), "class",
        ReportColumn("do next", missing=""), ReportColumn("why", missing=""),
    ]  # fmt: skip
    return table(board.caption, columns, rows)


def _to_dict(part: Part) -> dict[str, Any]:
    match part:
        case ReportBoard():
            return _to_dict(board_table(part))
        case ReportTable():
            names, rows = (
                [column.name for column in part.columns],
                [list(row) for row in part.rows],
            )
            return {
                "table": part.caption,
                "columns": names,
                "rows": rows,
                "left_out": part.left_out,
            }
        case ReportList():
            return {
                "list": part.caption,
                "items": list(part.items),
                "left_out": part.left_out,
            }
        case ReportCode():
            return {"code": part.code}
        case ReportFigure():
            return {"figure": part.title, "description": part.description}
        case ReportText():
            return {"text": part.text}


def _masked(
    parts: Iterable[Part], clean: Callable[[Any], Any], code: Callable[[str], str]
) -> Iterator[Part]:
    for part in parts:
        match part:
            case ReportTable():
                rows = tuple(tuple(map(clean, row)) for row in part.rows)
                yield replace(part, caption=clean(part.caption), rows=rows)
            case ReportList():
                yield replace(
                    part,
                    caption=clean(part.caption),
                    items=tuple(map(clean, part.items)),
                )
            case ReportText():
                yield replace(part, text=clean(part.text))
            case ReportCode():
                # literals stay valid Python
                yield replace(part, code=Code(code(part.code)))
            case _:
                yield part


@dataclass(frozen=True)
class Notice:
    """A sentence in the head of a report about how complete or recent the data are."""

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
    """Return a table. A column given as a string contains text, or numbers if it begins with ``#``.

    >>> [column.kind for column in table("Groups", ["group", "#failures"], []).columns]
    ['text', 'number']
    """
    made = []
    for column in columns:
        if isinstance(column, ReportColumn):
            made.append(column)
        else:
            name = str(column)
            kind: Kind = "text"
            if name.startswith("#"):
                kind = "number"
            made.append(ReportColumn(name.removeprefix("#"), kind, missing))
    return ReportTable(
        caption=caption, columns=tuple(made), rows=tuple(map(tuple, rows)), **options
    )


def read_time(text: str) -> datetime:
    """Parse an ISO 8601 time of a report."""
    return datetime.fromisoformat(text).astimezone(UTC)


def number_text(value: int | None) -> str:
    """Return a number of the head, or "?" if it is unknown.

    >>> number_text(1234), number_text(None)
    ('1,234', '?')
    """
    if value is None:
        return "?"
    return f"{value:,}"


def change_in_words(number: Mapping[str, Any]) -> str | None:
    """Return the change as a sign, a word, a number and a share. Screen readers need the word.

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
    words = f"▲ up {change:,}"
    if change < 0:
        words = f"▼ down {-change:,}"
    before = number["value"] - change
    # a change from zero has no share
    if before > 0:
        words += f" ({percent(abs(change) / before)})"
    return words
