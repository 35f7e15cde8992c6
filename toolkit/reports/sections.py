"""Define the parts of a report section: tables, lists, code, figures and paragraphs.

A section describes its contents once, and every form (HTML, Markdown, e-mail) renders them. Strings are plain
with masked secrets; each form escapes them. To add a section, write a function that returns a `Section`, and
add it to the list of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from toolkit.base.python_code import Code
from toolkit.base.time_zones import time_text
from toolkit.drawing.wording import counted, percent, span
from toolkit.reports.board import ReportBoard

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

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
    "link",
]
"""The type of a column: strings ("text"), counts ("number"), other numbers, for example a status code
("digits"), shares between 0 and 1 with a bar ("share") or without ("percent"), ISO 8601 times, hours, ids
to copy, whether the column name applies to a row ("flag"), counts per bar of a small trend ("trend"), or
addresses ("link"). Only pages and JSON contain trends."""

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
        if self.kind == "number":
            return self._number(value)

        return _TEXTS.get(self.kind, str)(value)

    def _number(self, value: float) -> str:
        """Return a number with separators, or with four digits if it is a small fraction."""
        if self.below:
            # small print has no heading, so the number needs a noun: "3 failures"
            return counted(int(value), self.name.removesuffix("s"))
        if isinstance(value, int) or abs(value) >= _WHOLE:
            return f"{round(value):,}"

        return f"{value:.4g}"


def _rest(left_out: int, things: str) -> str:
    if not left_out:
        return ""
    return f"and {left_out:,} {things}"


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

    @property
    def rest(self) -> str:
        """Return the number of rows left out in words, for example "and 3 more rows"; "" without any."""
        return _rest(self.left_out, self.more)

    def cells(self, row: Sequence[Any]) -> list[tuple[ReportColumn, Any]]:
        """Return the columns and values of a row that are text, not drawings."""
        pairs = zip(self.columns, row, strict=True)
        return [(column, value) for column, value in pairs if not column.is_drawn]

    def flags(self, row: Sequence[Any]) -> list[str]:
        """Return the names of the flags that apply to a row, in parentheses, for example "(new)"."""
        pairs = zip(self.columns, row, strict=True)
        return [
            f"({column.name})"
            for column, applies in pairs
            if column.kind == "flag" and applies
        ]


@dataclass(frozen=True, kw_only=True)
class ReportList:
    """A list below a caption. The items are sentences, or ids to copy."""

    caption: str
    items: tuple[str, ...]
    ids: bool = False
    left_out: int = 0

    @property
    def rest(self) -> str:
        """Return the number of items left out in words, for example "and 3 more"; "" without any."""
        return _rest(self.left_out, "more")


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
        for line in map(_contents_line, self.parts):
            if line is not None:
                return line
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
        parts = tuple(_masked(part, clean, code) for part in self.parts)
        return replace(
            self, title=clean(self.title), sentence=clean(self.sentence), parts=parts
        )


def _contents_line(part: Part) -> str | None:
    """Return one line about a table, figure or list; None for other parts."""
    match part:
        case ReportTable() if part.rows and not part.folded:
            return f"{part.caption}: {counted(len(part.rows), 'row')}"
        case ReportTable():
            return part.caption
        case ReportFigure():
            return f"{part.title}: {part.description}"
        case ReportList():
            return part.caption.removesuffix(":")

    return None


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
            return {
                "table": part.caption,
                "columns": [column.name for column in part.columns],
                "rows": list(map(list, part.rows)),
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
    part: Part, clean: Callable[[Any], Any], code: Callable[[str], str]
) -> Part:
    """Return a part with all strings masked."""
    match part:
        case ReportTable():
            rows = tuple(tuple(map(clean, row)) for row in part.rows)
            return replace(part, caption=clean(part.caption), rows=rows)
        case ReportList():
            items = tuple(map(clean, part.items))
            return replace(part, caption=clean(part.caption), items=items)
        case ReportText():
            return replace(part, text=clean(part.text))
        case ReportCode():
            # literals stay valid Python
            return replace(part, code=Code(code(part.code)))

    return part


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
    return ReportTable(
        caption=caption,
        columns=tuple(_column(column, missing) for column in columns),
        rows=tuple(map(tuple, rows)),
        **options,
    )


def _column(column: object, missing: str) -> ReportColumn:
    """Return a column that is given as such, or by a name that begins with ``#`` for numbers."""
    if isinstance(column, ReportColumn):
        return column

    name = str(column)
    kind: Kind = "text"
    if name.startswith("#"):
        kind = "number"
    return ReportColumn(name.removeprefix("#"), kind, missing)


def read_time(text: str) -> datetime:
    """Parse an ISO 8601 time of a report."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _time_text(value: str) -> str:
    return time_text(read_time(value))


def _span_text(hours: float) -> str:
    return span(timedelta(hours=hours))


_TEXTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "share": percent,
    "percent": percent,
    "time": _time_text,
    "hours": _span_text,
}
"""How a value of a column is shown, by the kind of the column. Other kinds are shown by `str`."""


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
