"""Render a report as Markdown, and escape strings in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from toolkit.base.time_zones import time_text
from toolkit.reports.board import ReportBoard
from toolkit.reports.content import ReportContent
from toolkit.reports.link import is_web_link
from toolkit.reports.sections import (
    Part,
    ReportCode,
    ReportColumn,
    ReportFigure,
    ReportList,
    ReportTable,
    ReportText,
    board_table,
    change_in_words,
    number_text,
    read_time,
)
from toolkit.secrets.redaction import visible

_SIGNS: Final = re.compile(r"([`*_{}\[\]|~#!])")
# signs that would begin a list or underline a heading, but not the minus of a number
_LIST: Final = re.compile(r"^(\d*)([-+=](?!\d)|(?<=\d)[.)])")
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_.:-]+")
_PADDED: Final = ("`", " ")
_ENTITIES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}


def escape_markdown(value: object) -> str:
    r"""Return a string as one line of Markdown with only literal characters.

    If it contains ``$`` or a backslash, it is written as code, because pages typeset TeX everywhere else,
    even if these characters are escaped.

    >>> print(escape_markdown("a|b `c` <script>"))
    a\|b \`c\` &lt;script&gt;
    >>> print(escape_markdown("for $5|$6"))
    `for $5`\|`$6`
    """
    if value is None:
        return ""

    line = " ".join(visible(str(value)).split())
    if "$" in line or "\\" in line:
        # keep pipes outside of the code, because tables and paragraphs treat a pipe in code differently
        return r"\|".join(map(_as_code, line.split("|")))

    return _LIST.sub(r"\1\\\2", _SIGNS.sub(r"\\\1", line.translate(_ENTITIES)))


def _as_code(text: str) -> str:
    """Return text as code, between fences that are longer than any run of backticks in it."""
    if not text.strip():
        return text

    runs = map(len, re.findall("`+", text))
    fence = "".ljust(1 + max(runs, default=0), "`")
    # the renderer strips one space at both ends, which separates backticks from the fence
    pad = ""
    if text.startswith(_PADDED) or text.endswith(_PADDED):
        pad = " "
    return f"{fence}{pad}{text}{pad}{fence}"


def render_markdown(report: ReportContent) -> str:
    """Return the report as Markdown."""
    paragraphs = _head(report)
    for section in report.sections:
        paragraphs.append(f"## {escape_markdown(section.title)}")
        paragraphs.append(escape_markdown(section.sentence))
        paragraphs += chain.from_iterable(map(_part, section.parts))

    made_at = time_text(read_time(report.made_at))
    end = f"Made {made_at}; secrets are masked. {report.method}"
    paragraphs.append(end.strip())

    # a part without a caption or a rest has an empty paragraph
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _head(report: ReportContent) -> list[str]:
    """Return the paragraphs above the sections."""
    lead = " ".join(sentence for sentence, _ in report.lead)
    paragraphs = [
        f"# {escape_markdown(report.title)}",
        escape_markdown(report.about),
        f"**{escape_markdown(report.first_line)}**",
        escape_markdown(lead),
    ]
    paragraphs += [escape_markdown(notice.text) for notice in report.notices]
    # a report with a headline has a section with these numbers
    if not report.headline:
        paragraphs.append("\n".join(map(_number, report.numbers)))
    return paragraphs


def _part(part: Part) -> Iterator[str]:
    """Yield a part as paragraphs, without contents that the HTML page folds."""
    match part:
        case ReportBoard():
            yield from _part(board_table(part))
            yield escape_markdown(part.more)
        case ReportTable(folded=False):
            yield escape_markdown(part.caption)
            yield _table(part)
            yield part.rest
        case ReportFigure():
            about = f"{part.title}: {part.description} (drawn in the HTML form)."
            yield escape_markdown(about)
        case ReportList():
            yield escape_markdown(part.caption)
            yield _list(part)
        case ReportCode(folded=False):
            yield _code_block(part.code)
        case ReportText():
            yield escape_markdown(part.text)


def _code_block(code: str) -> str:
    """Return code as an indented block, so that no value in the code can end it."""
    lines = visible(code).split("\n")
    return "\n".join(f"    {line}" for line in lines)


def _list(part: ReportList) -> str:
    show: Callable[[str], str] = escape_markdown
    if part.ids:
        show = _code
    lines = [f"- {show(item)}" for item in part.items]
    if part.rest:
        lines.append(f"- {part.rest}")
    return "\n".join(lines)


def _table(table: ReportTable) -> str:
    names = [column.name for column in table.columns if not column.is_drawn]
    heading = _table_row(map(escape_markdown, names))
    rule = f"|{''.join(' --- |' for _ in names)}"
    rows = [_table_row(_row_cells(table, row)) for row in table.rows]

    return "\n".join([heading, rule, *rows])


def _table_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row_cells(table: ReportTable, row: Sequence[Any]) -> list[str]:
    """Return the cells of a row.

    A flag has no column of its own: the name precedes the first cell, for example "(new) timeout".
    """
    cells = [_cell(column, value) for column, value in table.cells(row)]
    flags = " ".join(table.flags(row))
    if flags:
        cells[0] = f"{escape_markdown(flags)} {cells[0]}"
    return cells


def _cell(column: ReportColumn, value: Any) -> str:
    if column.below:
        # a Markdown table has a heading for this column, so the cell needs no name
        column = replace(column, below=False, missing="")

    shown = column.shown(value)
    if column.kind == "id" and shown:
        return _code(shown)
    if column.kind == "link" and is_web_link(value):
        return f"<{value}>"

    return escape_markdown(shown)


def _code(identity: str) -> str:
    """Return an id as code, so that it can be copied from the rendered page and from the source."""
    if _PLAIN_ID.fullmatch(identity):
        return f"`{identity}`"
    return escape_markdown(identity)


def _number(number: Mapping[str, Any]) -> str:
    about = ", ".join(filter(None, (change_in_words(number), number["note"])))
    name = escape_markdown(number["name"])
    return f"- **{number_text(number['value'])}** {name}: {escape_markdown(about)}"
