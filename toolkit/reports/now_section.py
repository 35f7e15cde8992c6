"""Make the first section of a failure report, "Now", and the section with the numbers of the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from toolkit.drawing.wording import counted
from toolkit.reports.board import Problem, ReportBoard
from toolkit.reports.problems import Scale, step_text
from toolkit.reports.sections import (
    ReportColumn,
    Section,
    change_in_words,
    table,
)

_ONGOING: Final = 5  # rows that fit into the first screen
_ENDED: Final = 3
_ENDED_CAPTION: Final = "Also in this period"


def now_section(problems: Sequence[Problem], scale: Scale) -> Iterator[Section]:
    """Return the section with ongoing problems, and with problems that ended.

    `scale` are the bars of their trends.
    """
    if not problems:
        return

    ongoing = [problem for problem in problems if problem.is_ongoing]
    ended = [problem for problem in problems if not problem.is_ongoing]
    ended_caption = _ENDED_CAPTION if ongoing else "In this period"

    parts: list[ReportBoard] = []
    for caption, rows, most, is_quiet in (
        ("Now", ongoing, _ONGOING, False),
        (ended_caption, ended, _ENDED, True),
    ):
        if not rows:
            continue
        parts.append(ReportBoard(
            caption=caption, problems=tuple(islice(rows, most)), period=scale.length, bar=step_text(scale),
            more=_left_out(rows[most:]), is_quiet=is_quiet,
        ))  # fmt: skip

    yield Section("now", parts[0].caption, "", tuple(parts))


def _left_out(problems: Sequence[Problem]) -> str:
    """Return a sentence about problems without a row; empty if there are none."""
    if not problems:
        return ""

    names = ", ".join(problem.title for problem in problems[:2])
    more = ""
    if len(problems) > 2:  # noqa: PLR2004 - as many as are named
        more = f" and {len(problems) - 2:,} more"
    return f"{counted(len(problems), 'other problem')}: {names}{more}."


def numbers_section(sentence: str, numbers: Sequence[Mapping[str, Any]]) -> Section:
    """Return the section with the verdict and the four numbers."""
    rows = [
        (number["name"], number["value"], change_in_words(number), number["note"])
        for number in numbers
    ]
    columns = [
        "number",
        ReportColumn("value", "number", missing="?"),
        ReportColumn("change", missing=""),
        "note",
    ]

    return Section(
        "numbers", "In numbers", sentence, (table("Four numbers", columns, rows),)
    )
