"""A report as HTML: the templates, and what fills them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from toolkit.base.time_zones import time_text
from toolkit.drawing.style import drawing
from toolkit.drawing.svg import inline_svg
from toolkit.reports.sections import (
    NUMBERS,
    ReportColumn,
    ReportFigure,
    change_in_words,
    number_text,
    read_time,
)
from toolkit.secrets.redaction import escape_attribute, escape_html

if TYPE_CHECKING:
    from toolkit.reports.page import Report

_WIDTHS: Final = {"wide": 9.6, "narrow": 4.0}  # inches


def render_html(template: str, report: Report, tag: str) -> str:
    """Return the report by a template; the tag ends every id, so that a page can have two reports."""
    return environment().get_template(template).render(report=report, tag=tag, numbers=NUMBERS)


def environment() -> Environment:
    """Return the templates with their filters, which escape every value."""
    templates = Environment(
        loader=PackageLoader("toolkit.reports", "templates"),
        # every value of a template passes `_escaped`; autoescape only verifies that
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
    """Return the figure as ``<svg>`` for wide and narrow pages."""
    drawn = {}
    said = {"title": figure.title, "description": figure.description}
    for size, width in _WIDTHS.items():
        canvas = Figure(figsize=(width, figure.height), layout="constrained")
        with drawing(canvas.add_subplot(), "light") as (ax, theme):
            figure.draw(ax, theme)
        svg = inline_svg(canvas, **said, prefix=f"{prefix}-{size}", theme=theme)
        drawn[size] = Markup(svg)  # noqa: S704 - every text in it is escaped
    return drawn


def _small(row: tuple[Any, ...], columns: tuple[ReportColumn, ...]) -> list[list[tuple[ReportColumn, str]]]:
    """What stands beneath the first cell, by line: texts on lines of their own, all else on one."""
    some = [
        (column, f"{column.name} {column.shown(value)}" if column.named else column.shown(value))
        for column, value in zip(columns, row, strict=True)
        if column.beneath and value not in (None, "")
    ]
    lines = [[pair] for pair in some if pair[0].kind == "text"]
    rest = [pair for pair in some if pair[0].kind != "text"]
    return [*lines, rest] if rest else lines


def _escaped(value: object) -> Markup:
    """Markup unchanged, everything else escaped; missing values are empty."""
    if isinstance(value, Markup):
        return value
    return Markup("" if value is None else escape_html(value))  # noqa: S704 - escaped right here


def _breakable(value: object) -> Markup:
    """A text that may also be broken behind a slash, where addresses are long."""
    parts = re.split("(?<=/)(?!/)", "" if value is None else str(value))
    return Markup("<wbr>".join(map(escape_html, parts)))  # noqa: S704 - escaped right here
