"""A page as PDF, printed by the Chromium of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from toolkit.children import program_variables
from toolkit.errors import ToolkitError

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
