"""Render a report of any kind as HTML (a page or a notebook cell), PDF, Markdown, JSON or e-mail."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

from toolkit.base.arguments import file_path
from toolkit.base.children import program_variables
from toolkit.base.errors import InputError, ToolkitError
from toolkit.base.private_files import full_disk, is_full, write_file
from toolkit.base.time_zones import shown_in, time_zone
from toolkit.reports.content import ReportContent
from toolkit.reports.email_form import email_message
from toolkit.reports.html_form import render_html
from toolkit.reports.markdown_form import render_markdown
from toolkit.reports.short_form import short_form


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Report(ReportContent):
    """A verdict followed by sections, as HTML, Markdown, JSON, PDF, e-mail or a short message.

    Notebooks show it inline. It contains only numbers and masked strings, so you can share it.

    Attributes
    ----------
    schema : str
        Kind and version of the JSON form, for example ``"failure-report/7"``.
    title, verdict : str
        The title, and the result in one or two sentences.
    headline : str
        One line about the present state. If it is empty, the verdict is the first line.
    about : str
        The subject in a few words: number of failures, filter, times.
    lead : tuple of (str, str)
        Sentences below the headline, each with the name of the section that it links to, or "".
    made_at : str
        Time of the report in ISO 8601. Ages are relative to it.
    notices : tuple of Notice
        Sentences about how complete and recent the data are.
    numbers : tuple of dict
        The numbers in the head, each with `name`, `value`, `change` (or None) and `note`. The note names the
        value that the change is relative to.
    sections : tuple of Section
        The contents.
    values : dict
        Further values of the JSON form.
    tz : str
        Time zone of displayed times.
    """

    def to_html(self) -> str:
        """Return a printable page with a light and a dark theme, without scripts and network access."""
        with shown_in(time_zone(self.tz)):
            return render_html("page.html", self, self._tag())

    def to_markdown(self) -> str:
        """Return the report as GitHub-flavoured Markdown without HTML, for example for an issue."""
        with shown_in(time_zone(self.tz)):
            return render_markdown(self)

    def to_email(
        self,
        *,
        to: str | Sequence[str] = (),
        sender: str | None = None,
        link: str | None = None,
    ) -> EmailMessage:
        """Return the report as an e-mail that your own program or mail server can send.

        The message has a plain-text part, an HTML part without scripts and SVG, and the pictures as attached
        PNG files. The whole message has at most 90,000 bytes, because mail clients cut longer ones. Sections
        and pictures that do not fit are listed at the end, with the command that makes the whole report. The
        same report and options produce the same bytes.

        Parameters
        ----------
        to : str or sequence of str
            Plain addresses, for example ``"ops@example.com"``. If omitted, the message has no ``To`` header;
            the sending program adds it.
        sender : str, optional
            One plain address.
        link : str, optional
            Address of the complete report, for example the page of a CI run.

        Returns
        -------
        email.message.EmailMessage
            ``bytes(message)`` is the file that mail programs open.

        Raises
        ------
        InputError
            If an address or the link is not valid.

        Examples
        --------
        >>> from toolkit import report_failures, load_failures
        >>> report = report_failures(load_failures(service, limit=3, progress=False))
        >>> message = report.to_email(to="ops@example.com", sender="reports@example.com")
        >>> message.get_content_type(), message["To"]
        ('multipart/alternative', 'ops@example.com')
        """
        with shown_in(time_zone(self.tz)):
            return email_message(self, self._tag(), to=to, sender=sender, link=link)

    def to_short(self, *, markdown: bool = False, link: str | None = None) -> str:
        """Return the report in at most 1,500 characters, for example for a chat.

        The message lists new, growing and expiring groups and the notices of the report. Names such as
        ``@channel`` in the data notify nobody, and the message contains no link except yours.

        Parameters
        ----------
        markdown : bool
            Whether to use Markdown. Default: plain text.
        link : str, optional
            Address of the complete report, for example the page of a CI run.

        Raises
        ------
        InputError
            If the link is not valid.

        Examples
        --------
        >>> from toolkit import report_failures, load_failures
        >>> report = report_failures(load_failures(service, limit=3, progress=False))
        >>> report.to_short().splitlines()[0]
        'Failure report'
        """
        with shown_in(time_zone(self.tz)):
            return short_form(self, markdown=markdown, link=link)

    def to_pdf(self) -> bytes:
        """Return the page as an A4 PDF. Raise `ToolkitError` if no Chromium is on the PATH."""
        return print_page(self.to_html())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to a file that only this user can read. An existing file is replaced atomically.

        Parameters
        ----------
        path : path-like
            A path in an existing folder. The suffix selects the form: ``.html``, ``.md``, ``.json``, ``.eml``
            (an e-mail), ``.txt`` (the short form) or ``.pdf`` (needs a Chromium on the PATH).

        Returns
        -------
        pathlib.Path
            The path of the file.

        Raises
        ------
        InputError
            If the suffix is another one.
        ToolkitError
            If the file cannot be written or the PDF cannot be printed. An existing file is then unchanged.
        """
        path = file_path("path", path)
        forms: dict[str, Callable[[], str | bytes]] = {
            ".html": self.to_html, ".md": self.to_markdown, ".json": self.to_json, ".pdf": self.to_pdf,
            ".eml": lambda: bytes(self.to_email()), ".txt": self.to_short,
        }  # fmt: skip
        form = forms.get(path.suffix.lower())
        if form is None:
            expected = "a name that ends in .html, .md, .json, .eml, .txt or .pdf"
            raise InputError("saving a report", got=repr(path.name), expected=expected)

        content = form()
        if isinstance(content, str):
            content = content.encode()
        data = content
        write_file(path, lambda file: file.write(data))

        return path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.verdict!r})"

    def _repr_html_(self) -> str:
        with shown_in(time_zone(self.tz)):
            return render_html(
                "fragment.html",
                self,
                self._tag(),
                is_compact=bool(self.headline),
            )

    def _tag(self) -> str:
        """Return the suffix of all element ids, so that several reports on a page do not clash."""
        # a hash instead of a counter, so that the same report always has the same bytes
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:8]


_BROWSERS: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
_SECONDS: Final = 120
_PRINTING: Final = "printing a report as PDF"
# in bytes; Chromium needs this much for the profile and the PDF
_LEAST_SPACE: Final = 4 << 20


def print_page(markup: str) -> bytes:
    """Print a self-contained HTML page as an A4 PDF. Raise `ToolkitError` if Chromium fails."""
    try:
        return _printed(markup)
    except OSError as error:
        folder = gettempdir()
        if is_full(error):
            raise full_disk(
                _PRINTING, error, f"for temporary files in {folder!r}"
            ) from None

        raise ToolkitError(
            _PRINTING,
            got=f"{type(error).__name__}: {error.strerror}",
            expected=f"a folder for temporary files in {folder!r} that can be written to",
            next_step="Set TMPDIR to another folder, or save the report as .html.",
        ) from None


def _printed(markup: str) -> bytes:
    # Windows searches the current folder first, which may contain an unrelated chromium.exe
    browsers = (
        path
        for name in _BROWSERS
        if (path := shutil.which(name)) and Path(path).is_absolute()
    )
    browser = next(browsers, None)
    if browser is None:
        raise ToolkitError(
            _PRINTING,
            got="no Chromium on the PATH",
            expected=f"one of {', '.join(_BROWSERS)}",
            next_step="Install Chromium, or save the report as .html and print it from your browser.",
        )

    with TemporaryDirectory(prefix="toolkit-pdf-") as folder:
        # readable by this user only
        page, target = Path(folder, "report.html"), Path(folder, "report.pdf")
        page.write_text(markup, encoding="utf-8")
        command = [
            browser, "--headless", "--disable-gpu", "--disable-background-networking", "--no-first-run",
            "--no-pdf-header-footer", f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}",
            page.as_uri(),
        ]  # fmt: skip
        # as root, for example in a container, Chromium only starts without the sandbox; Windows has no root
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")

        reason = ""
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                env=program_variables(),
            )
            reason = f"Chromium ended with {done.returncode} and no PDF"
        except subprocess.TimeoutExpired:
            reason = f"no PDF from Chromium within {_SECONDS} s"
        except OSError as error:
            reason = f"Chromium could not be started ({error.strerror})"

        if not target.is_file() or not target.read_bytes().startswith(b"%PDF-"):
            next_step = "Save the report as .html and print it from your browser."
            if shutil.disk_usage(folder).free < _LEAST_SPACE:
                # Chromium gives no reason
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise ToolkitError(
                _PRINTING, got=reason, expected="a PDF", next_step=next_step
            )

        return target.read_bytes()
