"""Render a report as Markdown, and escape strings in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from toolkit.base.time_zones import time_text
from toolkit.reports.board import ReportBoard
from toolkit.reports.content import ReportContent
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
    if not text.strip():
        return text
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    # the renderer strips one space at both ends, which separates backticks from the fence
    pad = ""
    if text[0] in "` " or text[-1] in "` ":
        pad = " "
    return f"{fence}{pad}{text}{pad}{fence}"


def render_markdown(report: ReportContent) -> str:
    """Return the report as Markdown."""
    parts = [
        f"# {escape_markdown(report.title)}",
        escape_markdown(report.about),
        f"**{escape_markdown(report.first_line)}**",
        escape_markdown(" ".join(sentence for sentence, _ in report.lead)),
    ]
    parts += [escape_markdown(notice.text) for notice in report.notices]
    # a report with a headline has a section with these numbers
    if not report.headline:
        parts.append("\n".join(map(_number, report.numbers)))
    for section in report.sections:
        parts += [
            f"## {escape_markdown(section.title)}",
            escape_markdown(section.sentence),
        ]
        for part in section.parts:
            parts += _part(part)
    parts.append(
        f"Made {time_text(read_time(report.made_at))}; secrets are masked. {report.method}".strip()
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def _part(part: Part) -> Iterator[str]:
    """Yield a part as paragraphs, without contents that the HTML page folds."""
    match part:
        case ReportBoard():
            yield from _part(board_table(part))
            yield escape_markdown(part.more)
        case ReportTable(folded=False):
            yield escape_markdown(part.caption)
            yield _table(part)
            if part.left_out:
                yield f"and {part.left_out:,} {part.more}"
        case ReportFigure():
            yield escape_markdown(
                f"{part.title}: {part.description} (drawn in the HTML form)."
            )
        case ReportList():
            yield escape_markdown(part.caption)
            yield _list(part)
        case ReportCode(folded=False):
            # an indented block, so that no value in the code can end it
            yield "\n".join(f"    {line}" for line in visible(part.code).split("\n"))
        case ReportText():
            yield escape_markdown(part.text)


def _list(part: ReportList) -> str:
    show: Callable[[str], str] = escape_markdown
    if part.ids:
        show = _code
    lines = [f"- {show(item)}" for item in part.items]
    if part.left_out:
        lines.append(f"- and {part.left_out:,} more")
    return "\n".join(lines)


def _table(table: ReportTable) -> str:
    columns = [column for column in table.columns if not column.is_drawn]
    lines = [f"| {' | '.join(escape_markdown(column.name) for column in columns)} |"]
    lines.append(f"|{''.join(' --- |' for _ in columns)}")
    for row in table.rows:
        pairs = list(zip(table.columns, row, strict=True))
        # a flag has no column of its own: the name precedes the first cell, for example "(new) timeout"
        flags = [
            f"({flag.name})"
            for flag, applies in pairs
            if flag.kind == "flag" and applies
        ]
        first, *others = (
            _cell(column, value) for column, value in pairs if not column.is_drawn
        )
        if flags:
            first = f"{escape_markdown(' '.join(flags))} {first}"
        lines.append(f"| {' | '.join([first, *others])} |")
    return "\n".join(lines)


def _cell(column: ReportColumn, value: Any) -> str:
    if column.below:
        # a Markdown table has a heading for this column, so the cell needs no name
        column = replace(column, below=False, missing="")
    shown = column.shown(value)
    if column.kind == "id" and shown:
        return _code(shown)
    return escape_markdown(shown)


def _code(identity: str) -> str:
    """Return an id as code, so that it can be copied from the rendered page and from the source."""
    if _PLAIN_ID.fullmatch(identity):
        return f"`{identity}`"
    return escape_markdown(identity)


def _number(number: Mapping[str, Any]) -> str:
    change = change_in_words(number)
    words = ", ".join(text for text in (change, number["note"]) if text)
    return f"- **{number_text(number['value'])}** {escape_markdown(number['name'])}: {escape_markdown(words)}"
