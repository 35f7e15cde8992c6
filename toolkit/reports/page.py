"""A report of any kind, in all forms: HTML (a page, or a part of a notebook's), PDF, Markdown, JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from toolkit.analysis.wording import time_text
from toolkit.arguments import file_path
from toolkit.children import program_variables
from toolkit.errors import InputError, ToolkitError
from toolkit.plots.style import drawing
from toolkit.plots.svg import inline_svg
from toolkit.private_files import write_file
from toolkit.redaction import escape_attribute, escape_html, visible
from toolkit.reports.sections import (
    NUMBERS,
    Notice,
    Part,
    ReportCode,
    ReportColumn,
    ReportFigure,
    ReportList,
    ReportTable,
    ReportText,
    Section,
    change_in_words,
    read_time,
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Report:
    """A page of sections beneath a verdict, as HTML, Markdown, JSON and PDF.

    Notebooks show it as a part of their page. It holds only numbers, and texts with their secrets masked.

    Attributes
    ----------
    schema : str
        Which kind of report its JSON is.
    title, verdict : str
        Its name, and what it says in a sentence or two.
    made_at : str
        The time that ages count from, in ISO 8601.
    notices : tuple of Notice
        How far to trust it.
    numbers : tuple of dict
        The numbers of the head: `name`, `value`, `change` against what the `note` names or None, `note`.
    sections : tuple of Section
        What it shows.
    values : dict
        Further values of its JSON.
    """

    schema: str
    title: str
    verdict: str
    made_at: str
    notices: tuple[Notice, ...] = ()
    numbers: tuple[Mapping[str, Any], ...] = ()
    sections: tuple[Section, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-able values; a copy. Numbers that JSON has not (NaN, infinity) are None."""
        values = {
            "schema": self.schema,
            "title": self.title,
            "verdict": self.verdict,
            "generated_at": self.made_at,
            "notices": [{"text": notice.text, "good": notice.good} for notice in self.notices],
            "numbers": self.numbers,
            **self.values,
            "sections": [section.to_dict() for section in self.sections],
        }
        return {name: _json_value(value) for name, value in values.items()}

    def to_json(self) -> str:
        """The report as JSON text, indented."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """A whole page: no script, nothing from the network, light and dark, printable."""
        return render_html("page.html", self, self._tag())

    def to_markdown(self) -> str:
        """The report for a chat or an issue, as GitHub-flavoured Markdown without HTML."""
        return render_markdown(self)

    def to_pdf(self) -> bytes:
        """The page as a PDF of A4, which needs a Chromium on the PATH; `ToolkitError` where there is none."""
        return print_page(self.to_html())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to a file only this user can read, replacing it as a whole or not at all.

        Parameters
        ----------
        path : path-like
            With the suffix ``.html``, ``.md``, ``.json``, or ``.pdf`` (which needs a Chromium on the PATH),
            in a folder that exists.

        Returns
        -------
        pathlib.Path
            The path of the file.

        Raises
        ------
        InputError
            For another suffix.
        ToolkitError
            When the file cannot be written or the PDF not be printed; an existing file is unchanged.
        """
        path = file_path("path", path)
        forms: dict[str, Callable[[], str | bytes]] = {
            ".html": self.to_html, ".md": self.to_markdown, ".json": self.to_json, ".pdf": self.to_pdf,
        }  # fmt: skip
        form = forms.get(path.suffix.lower())
        if form is None:
            expected = "a name that ends in .html, .md, .json or .pdf"
            raise InputError("saving a report", got=repr(path.name), expected=expected)
        content = form()
        data = content.encode() if isinstance(content, str) else content
        write_file(path, lambda file: file.write(data))
        return path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.verdict!r})"

    def _repr_html_(self) -> str:
        return render_html("fragment.html", self, self._tag())

    def _tag(self) -> str:
        """What ends every id: other in another report on the same page, and the same for the same report."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:8]


def _json_value(value: Any) -> Any:
    """A copy of a value, with None for the numbers that JSON has not."""
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_SIGNS: Final = re.compile(r"([`*_{}\[\]|~#!])")
# what would begin a list or underline a heading; not the sign in a number or date
_LIST: Final = re.compile(r"^(\d*)([-+=](?!\d)|(?<=\d)[.)])")
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_.:-]+")
_ENTITIES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}


def escape_markdown(value: object) -> str:
    r"""A text for a paragraph or table cell of Markdown: on one line, every character literal.

    A text that holds ``$`` or a backslash is written as code: pages typeset TeX in everything else, also
    where Markdown has these signs escaped.

    >>> print(escape_markdown("a|b `c` <script>"))
    a\|b \`c\` &lt;script&gt;
    >>> print(escape_markdown("for $5|$6"))
    `for $5`\|`$6`
    """
    line = " ".join(visible("" if value is None else str(value)).split())
    if "$" in line or "\\" in line:
        # outside of code, because tables and paragraphs do not agree on what a pipe in code is
        return r"\|".join(map(_as_code, line.split("|")))
    return _LIST.sub(r"\1\\\2", _SIGNS.sub(r"\\\1", line.translate(_ENTITIES)))


def _as_code(text: str) -> str:
    if not text.strip():
        return text
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    # the renderer strips one space at both ends, which separates backticks from the fence
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def render_markdown(report: Report) -> str:
    """The report as Markdown."""
    parts = [f"# {escape_markdown(report.title)}", f"**{escape_markdown(report.verdict)}**"]
    parts += [escape_markdown(notice.text) for notice in report.notices]
    parts.append("\n".join(map(_number, report.numbers)))
    for section in report.sections:
        parts += [f"## {escape_markdown(section.title)}", escape_markdown(section.sentence)]
        for part in section.parts:
            parts += _part(part)
    parts.append(f"Made {time_text(read_time(report.made_at))}; secrets are masked.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _part(part: Part) -> Iterator[str]:
    """A part as paragraphs; nothing of what a page folds away."""
    match part:
        case ReportTable(folded=False):
            yield escape_markdown(part.caption)
            yield _table(part)
            yield f"and {part.left_out:,} {part.more}" if part.left_out else ""
        case ReportFigure():
            yield escape_markdown(f"{part.title}: {part.description} (drawn in the HTML form).")
        case ReportList():
            yield escape_markdown(part.caption)
            more = [f"- and {part.left_out:,} more"] if part.left_out else []
            show = _code if part.ids else escape_markdown
            yield "\n".join([*(f"- {show(item)}" for item in part.items), *more])
        case ReportCode(folded=False):
            # an indented block, so that no value in the code can end it
            yield "\n".join(f"    {line}" for line in visible(part.code).split("\n"))
        case ReportText():
            yield escape_markdown(part.text)


def _table(table: ReportTable) -> str:
    columns = [column for column in table.columns if column.kind != "flag"]
    lines = [f"| {' | '.join(escape_markdown(column.name) for column in columns)} |"]
    lines.append(f"|{' --- |' * len(columns)}")
    for row in table.rows:
        pairs = list(zip(table.columns, row, strict=True))
        marks = "".join(f"({flag.name}) " for flag, applies in pairs if flag.kind == "flag" and applies)
        first, *others = (_cell(column, value) for column, value in pairs if column.kind != "flag")
        lines.append(f"| {' | '.join([escape_markdown(marks) + ' ' * bool(marks) + first, *others])} |")
    return "\n".join(lines)


def _cell(column: ReportColumn, value: Any) -> str:
    if column.beneath:  # there is a heading for what small print names
        column = replace(column, beneath=False, missing="")
    shown = column.shown(value)
    return _code(shown) if column.kind == "id" and shown else escape_markdown(shown)


def _code(identity: str) -> str:
    """An id that can be copied from the rendered page and from the source."""
    return f"`{identity}`" if _PLAIN_ID.fullmatch(identity) else escape_markdown(identity)


def _number(number: Mapping[str, Any]) -> str:
    change = change_in_words(number)
    words = ", ".join(text for text in (change, number["note"]) if text)
    return f"- **{number['value']:,}** {escape_markdown(number['name'])}: {escape_markdown(words)}"


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


_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS: Final = 120


def print_page(markup: str) -> bytes:
    """A whole page, which loads nothing, as a PDF of A4; `ToolkitError` where Chromium prints none."""
    # Windows searches the current folder first, where any chromium.exe may be
    browsers = (path for name in _BROWSERS if (path := shutil.which(name)) and Path(path).is_absolute())
    browser = next(browsers, None)
    doing = "printing a report as PDF"
    if browser is None:
        raise ToolkitError(
            doing,
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
            next_step = "Save the report as .html and print it from your browser."
            raise ToolkitError(doing, got=reason, expected="a PDF", next_step=next_step)
        return target.read_bytes()
