"""A report as HTML, a whole page or a part of a notebook's page; a page as PDF, printed by Chromium."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from toolkit.analysis.wording import time_text
from toolkit.plots.style import THEMES, drawing
from toolkit.plots.svg import inline_svg
from toolkit.redaction import escape_attribute, escape_html
from toolkit.reports.sections import NUMBERS, ReportColumn, ReportFigure, change_in_words, read_time

if TYPE_CHECKING:
    from toolkit.reports.page import Report
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from toolkit.children import program_variables
from toolkit.errors import ToolkitError

_WIDTHS: Final = {"wide": 9.6, "narrow": 4.0}  # inches


def render_html(template: str, report: Report, tag: str) -> str:
    """The report by a template; the tag ends every id, so that two reports can be on one page."""
    environment = Environment(
        loader=PackageLoader("toolkit.reports", "templates"),
        # every value of a template passes `_escaped`; autoescape only verifies that
        finalize=_escaped,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "exact": "{:,}".format,
        "breakable": _breakable,
        "attribute": lambda value: Markup(escape_attribute(value)),  # noqa: S704 - escaped right here
        "time": lambda text: time_text(read_time(text)),
        "change": change_in_words,
        "kind": lambda part: type(part).__name__,
        "drawings": _drawings,
        "small": _small,
        "zipped": lambda columns, row: list(zip(columns, row, strict=True)),
    }
    return environment.get_template(template).render(report=report, tag=tag, numbers=NUMBERS)


def _drawings(figure: ReportFigure, prefix: str) -> Mapping[str, Markup]:
    """The figure as ``<svg>`` for wide and narrow pages."""
    drawn, theme = {}, THEMES["light"]
    for size, width in _WIDTHS.items():
        canvas = Figure(figsize=(width, figure.height), layout="constrained")
        with drawing(canvas.add_subplot(), theme) as ax:
            figure.draw(ax, theme)
        svg = inline_svg(
            canvas, title=figure.title, description=figure.description, prefix=f"{prefix}-{size}", theme=theme
        )
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


_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS: Final = 120


def print_page(markup: str) -> bytes:
    """A whole page, which loads nothing, as a PDF of A4; `ToolkitError` where Chromium prints none."""
    # Windows searches the current folder first, where any chromium.exe may be
    found = (path for name in _BROWSERS if (path := shutil.which(name)) and Path(path).is_absolute())
    browser = next(found, None)
    if browser is None:
        raise ToolkitError(
            "printing a report as PDF",
            got="no Chromium on the PATH",
            expected=f"one of {', '.join(_BROWSERS)}",
            next_step="Install Chromium, or save the report as .html and print it from your browser.",
        )
    with TemporaryDirectory(prefix="toolkit-pdf-") as folder:  # for this user only
        page, target = Path(folder, "report.html"), Path(folder, "report.pdf")
        page.write_text(markup, encoding="utf-8")
        command = [
            browser, "--headless", "--disable-gpu", "--disable-background-networking", "--no-first-run",
            "--no-pdf-header-footer", f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}",
            page.as_uri(),
        ]  # fmt: skip
        # Chromium refuses its sandbox to root, as in a container; there is none on Windows
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        reason = ""
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_SECONDS, check=False, env=program_variables()
            )
            reason = f"Chromium ended with {done.returncode} and no PDF"
        except subprocess.TimeoutExpired:
            reason = f"no PDF from Chromium within {_SECONDS} s"
        except OSError as error:
            reason = f"Chromium could not be started ({error.strerror})"
        if not target.is_file() or not target.read_bytes().startswith(b"%PDF-"):
            raise ToolkitError(
                "printing a report as PDF",
                got=reason,
                expected="a PDF",
                next_step="Save the report as .html and print it from your browser.",
            )
        return target.read_bytes()
