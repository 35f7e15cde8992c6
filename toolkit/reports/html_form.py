"""Render a report as HTML with the Jinja templates in `templates/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from toolkit.base.time_zones import time_text
from toolkit.drawing.fonts import for_browser
from toolkit.drawing.style import drawing
from toolkit.drawing.svg import inline_svg
from toolkit.reports.content import ReportContent
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


def render_html(template: str, report: ReportContent, tag: str) -> str:
    """Render a template. Every element id ends with the tag, so that a page can contain several reports."""
    return (
        environment()
        .get_template(template)
        .render(report=report, tag=tag, numbers=NUMBERS)
    )


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
        "kind": lambda part: type(part).__name__,
        "drawings": _drawings,
        "small": _small,
        "zipped": lambda columns, row: list(zip(columns, row, strict=True)),
    }
    return templates


def _drawings(figure: ReportFigure, prefix: str) -> Mapping[str, Markup]:
    """Return the figure as two ``<svg>`` elements, for wide and for narrow pages."""
    drawn = {}
    labels = {"title": figure.title, "description": figure.description}
    for size, width in _WIDTHS.items():
        canvas = Figure(figsize=(width, figure.height), layout="constrained")
        with for_browser(), drawing(canvas.add_subplot(), "light") as (ax, theme):
            figure.draw(ax, theme)
        svg = inline_svg(canvas, **labels, prefix=f"{prefix}-{size}", theme=theme)
        drawn[size] = Markup(svg)  # noqa: S704 - every text in it is escaped
    return drawn


def _small(
    row: tuple[Any, ...], columns: tuple[ReportColumn, ...]
) -> list[list[tuple[ReportColumn, str]]]:
    """Return the small print below the first cell, line by line.

    Each text column has a line of its own; all other columns share the last line.
    """
    lines: list[list[tuple[ReportColumn, str]]] = []
    rest: list[tuple[ReportColumn, str]] = []
    for column, value in zip(columns, row, strict=True):
        if not column.below or value in (None, ""):
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
    """Return an escaped string that may wrap after a slash, so that long addresses fit into a cell."""
    if value is None:
        return Markup()
    # a break after "https:/" would split the "//", so only the last slash of a run counts
    parts = re.split("(?<=/)(?!/)", str(value))
    return Markup("<wbr>".join(map(escape_html, parts)))  # noqa: S704 - escaped right here
