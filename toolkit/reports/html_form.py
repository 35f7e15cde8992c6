"""Render a report as HTML with the Jinja templates in `templates/`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from toolkit.base.time_zones import time_text
from toolkit.reports.board import Problem, ReportBoard
from toolkit.reports.content import ReportContent
from toolkit.reports.link import is_web_link
from toolkit.reports.sections import (
    NUMBERS,
    ReportColumn,
    ReportFigure,
    change_in_words,
    number_text,
    read_time,
)
from toolkit.secrets.redaction import escape_attribute, escape_html

_WIDTHS: Final = {"wide": 9.6, "narrow": 4.0}  # inches

# A report is often displayed and then saved, and drawing takes most of the time of either.
_DRAWN: Final[WeakKeyDictionary[ReportFigure, dict[str, Mapping[str, Markup]]]] = (
    WeakKeyDictionary()
)
"""The drawings of figures by the prefix of their ids, as long as the report exists."""


def render_html(
    template: str, report: ReportContent, tag: str, *, is_compact: bool = False
) -> str:
    """Render a template. Every element id ends with the tag, so that a page can contain several reports.

    A compact report shows the first screen, and folds everything else into one part.
    """
    return (
        environment()
        .get_template(template)
        .render(
            report=report,
            tag=tag,
            numbers=NUMBERS,
            names=frozenset(section.name for section in report.sections),
            is_compact=is_compact,
        )
    )


@cache  # compiling the templates takes as long as drawing a figure
def environment() -> Environment:
    """Return a Jinja environment with the filters of the templates. It escapes every value."""
    templates = Environment(
        loader=PackageLoader("toolkit.reports", "templates"),
        # `_escaped` already escapes every value; autoescape is a second line of defence
        finalize=_escaped,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "exact": number_text,
        "breakable": _breakable,
        "attribute": lambda value: Markup(escape_attribute(value)),  # noqa: S704 - escaped right here
        "time": lambda text: time_text(read_time(text)),
        "change": change_in_words,
        "full_time": time_text,
        "iso": lambda when: when.isoformat(timespec="seconds"),
        "spark": _spark,
        "bars": _bars,
        "is_link": is_web_link,
        "kind": lambda part: type(part).__name__,
        "drawings": _drawings,
        "small": _small,
        "zipped": lambda columns, row: list(zip(columns, row, strict=True)),
    }
    return templates


def _drawings(figure: ReportFigure, prefix: str) -> Mapping[str, Markup]:
    """Return the figure as two ``<svg>`` elements, for wide and for narrow pages. It is drawn once."""
    by_prefix = _DRAWN.setdefault(figure, {})
    if prefix not in by_prefix:
        by_prefix[prefix] = _draw(figure, prefix)
    return by_prefix[prefix]


def _draw(figure: ReportFigure, prefix: str) -> Mapping[str, Markup]:
    # matplotlib is slow to import, and other forms of a report need no figure
    from matplotlib.figure import Figure  # noqa: PLC0415

    from toolkit.drawing.fonts import for_browser  # noqa: PLC0415
    from toolkit.drawing.style import drawing  # noqa: PLC0415
    from toolkit.drawing.svg import inline_svg  # noqa: PLC0415

    drawn = {}
    labels = {"title": figure.title, "description": figure.description}
    for size, width in _WIDTHS.items():
        canvas = Figure(figsize=(width, figure.height), layout="constrained")
        with for_browser(), drawing(canvas.add_subplot(), "light") as (ax, theme):
            figure.draw(ax, theme)
        svg = inline_svg(canvas, **labels, prefix=f"{prefix}-{size}", theme=theme)
        drawn[size] = Markup(svg)  # noqa: S704 - every text in it is escaped

    return drawn


_SPARK: Final = (168, 28)  # width and height of a small trend, in pixels


def _spark(problem: Problem, board: ReportBoard) -> Markup:
    """Return the trend of a problem: bars before the problem are grey, the bars of the problem colored."""
    hot_from = len(problem.bars)
    if problem.is_ongoing:
        hot_from = problem.hot_from
    label = f"{problem.about}{problem.failures:,} failures, in bars of {board.bar} over {board.period}"
    state = problem.state.replace(" ", "-")

    return _bars(problem.bars, hot_from=hot_from, state=f"is-{state}", label=label)


def _bars(
    counts: Sequence[int],
    *,
    hot_from: int | None = None,
    state: str = "",
    label: str = "failures over time",
) -> Markup:
    """Return counts as bars of a small ``<svg>``. Each has a scale of its own."""
    width, height = _SPARK
    step = width / max(len(counts), 1)
    scale = (height - 2) / max(max(counts, default=0), 1)

    paths = {"rest": "", "hot": ""}
    for number, count in enumerate(counts):
        if not count:
            continue
        name = "rest"
        if hot_from is not None and number >= hot_from:
            name = "hot"
        # the shortest bar can still be seen
        tall = max(count * scale, 1.5)
        wide = max(step - 0.8, 1.2)
        paths[name] += (
            f"M{number * step:.1f} {height}v-{tall:.1f}h{wide:.1f}v{tall:.1f}z"
        )

    return Markup(  # noqa: S704 - only numbers and fixed words
        f'<svg class="spark {state}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" '
        f'role="img" aria-label="{label}">'
        f'<path class="base" d="M0 {height - 0.5}h{width}"/>'
        f'<path class="rest" d="{paths["rest"]}"/><path class="hot" d="{paths["hot"]}"/></svg>'
    )


def _small(
    row: tuple[Any, ...],
    columns: tuple[ReportColumn, ...],
    folded: bool = False,  # noqa: FBT001, FBT002 - a filter of a template
) -> list[list[tuple[ReportColumn, str]]]:
    """Return the small print below the first cell, or the folded part of it, line by line.

    Each text column has a line of its own; all other columns share the last line.
    """
    lines: list[list[tuple[ReportColumn, str]]] = []
    rest: list[tuple[ReportColumn, str]] = []
    for column, value in zip(columns, row, strict=True):
        if not column.below or column.folded is not folded or value in (None, ""):
            continue
        shown = column.shown(value)
        if column.named:
            shown = f"{column.name} {shown}"
        # text can be long, for example an error message, so it needs the whole width
        if column.kind == "text":
            lines.append([(column, shown)])
        else:
            rest.append((column, shown))

    if rest:
        lines.append(rest)
    return lines


def _escaped(value: object) -> Markup:
    """Return markup unchanged and everything else escaped. None becomes an empty string."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup()

    return Markup(escape_html(value))  # noqa: S704 - escaped right here


def _breakable(value: object) -> Markup:
    """Return an escaped string that may wrap after a slash or dot, so that long names fit into a cell."""
    if value is None:
        return Markup()

    # a break after "https:/" would split the "//", so only the last slash of a run counts
    parts = re.split(r"(?<=/)(?!/)|(?<=\w\.)(?=[^\W\d])", str(value))
    return Markup("<wbr>".join(map(escape_html, parts)))  # noqa: S704 - escaped right here
