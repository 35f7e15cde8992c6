"""A report of any kind: its head and sections, in all forms."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit.arguments import file_path
from toolkit.errors import InputError
from toolkit.private_files import write_file
from toolkit.reports.rendering import print_page, render_html, render_markdown
from toolkit.reports.sections import Notice, Section


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
            raise InputError(
                "saving a report",
                got=repr(path.name),
                expected="a name that ends in .html, .md, .json or .pdf",
            )
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
