"""The failure report, on one page: counts, time, workflows, error texts and expiry."""

from __future__ import annotations

import copy
import json
import os
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis import count_matrix, expiry_bins, failure_calendar, failure_trend
from toolkit.analysis.lifetimes import times_left
from toolkit.analysis.selection import scanned, select, when_counted
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.analysis.wording import span
from toolkit.arguments import instance, text
from toolkit.errors import InputError, ToolkitError
from toolkit.redaction import Redactor
from toolkit.reports.charts import Charts
from toolkit.reports.findings import find
from toolkit.reports.html import render_fragment, render_page
from toolkit.reports.markdown import render_markdown
from toolkit.reports.pdf import print_page
from toolkit.times import parse_duration

_GROUPS: Final = 5  # workflows in the trend
_ROWS: Final = 8  # workflows and statuses in the matrix
_COLUMNS: Final = 6


@dataclass(frozen=True, eq=False, repr=False)
class FailureReport:
    """A report on failures; made by `failure_report`.

    Notebooks show it as a part of their page. It holds no frame: only numbers, and texts with their secrets
    masked.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import load_failures
    >>> report = failure_report(load_failures(service, limit=3, progress=False))
    >>> report.verdict[:30]
    'Incomplete: at least 3 failure'
    >>> with TemporaryDirectory() as folder:
    ...     report.save(f"{folder}/failures.md").name
    'failures.md'
    """

    _findings: dict[str, Any]
    _charts: Charts

    @property
    def verdict(self) -> str:
        """One sentence: how many failures, when, where most, what is new, what expires."""
        return str(self._findings["verdict"])

    def to_dict(self) -> dict[str, Any]:
        """The findings as JSON-able values, as ``docs/failure-report.schema.json`` describes them; a copy."""
        return copy.deepcopy(self._findings)

    def to_html(self) -> str:
        """A whole page: no script, nothing from the network, light and dark, printable."""
        return render_page(self._findings, self._charts)

    def to_markdown(self) -> str:
        """The findings for a chat or an issue, as GitHub-flavoured Markdown without HTML."""
        return render_markdown(self._findings)

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
            Where it lies.

        Raises
        ------
        InputError
            For another suffix.
        ToolkitError
            When the file cannot be written or the PDF not be printed; an existing file is unchanged.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix == ".html":
            content = self.to_html().encode()
        elif suffix == ".pdf":
            content = print_page(self.to_html())
        elif suffix == ".md":
            content = self.to_markdown().encode()
        elif suffix == ".json":
            content = json.dumps(self._findings, indent=2, allow_nan=False).encode() + b"\n"
        else:
            raise InputError(
                "saving a report",
                got=repr(path.name),
                expected="a name that ends in .html, .md, .json or .pdf",
            )
        _write_private(path, content)
        return path

    def __repr__(self) -> str:
        return f"FailureReport({self.verdict!r})"

    def _repr_html_(self) -> str:
        return render_fragment(self._findings, self._charts)


def failure_report(
    failures: AnyFrame,
    previous: AnyFrame | None = None,
    *,
    retention: str | timedelta = "7d",
    now: datetime | None = None,
    title: str | None = None,
    redactor: Redactor | None = None,
) -> FailureReport:
    """Report on failures: how many, how complete, when, where, in which words, what expires and what is new.

    The same frames, options and `now` produce the same bytes.

    Parameters
    ----------
    failures : pandas.DataFrame
        The failures table, as loaders return it; its receipt says whether it is complete.
    previous : pandas.DataFrame, optional
        An earlier one, to compare with.
    retention : str or timedelta
        How long the queue keeps an entry ("3d", "7d", … by plan); entries expire that long after `failed_at`.
    now : datetime, optional
        What "within 24 hours" counts from; without a time zone, UTC. Default: the clock.
    title : str, optional
    redactor : Redactor, optional
        Masks secrets in everything shown. Default: one with the user's key, which has no live tokens;
        loaders have masked those in the frames.

    Returns
    -------
    FailureReport

    Raises
    ------
    InputError
        When a column is missing, or an option cannot be read.

    Examples
    --------
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import FAILURES
    >>> report = failure_report(frame_from_rows([], FAILURES), redactor=Redactor(key=b"example"))
    >>> report.verdict
    'No failures.'
    """
    now = when_counted(now)
    length = parse_duration(retention, name="retention")
    redactor = Redactor() if redactor is None else instance("redactor", redactor, Redactor, "a Redactor")
    if title is not None:
        text("title", title)
    failures = scanned(failures, doing="making a report")
    if previous is not None:
        previous = scanned(previous, doing="comparing failures", name="previous")
    masked = _masked(failures, redactor)
    expiries = times_left(failures, length, now)
    charts = Charts(
        trend=failure_trend(masked, by="workflow_url", top=_GROUPS, now=now),
        expiry=expiry_bins(expiries, now),
        matrix=count_matrix(masked, "workflow_url", "response_status", top_rows=_ROWS, top_columns=_COLUMNS),
        calendar=failure_calendar(masked),
    )
    findings = find(
        failures, previous, charts=charts, retention=length, now=now, redactor=redactor,
        retention_text=retention if isinstance(retention, str) else span(retention).replace(" ", ""),
        title="Failure report" if title is None else title,
    )  # fmt: skip
    return FailureReport(findings, charts)


def _masked(failures: AnyFrame, redactor: Redactor) -> SelectedRows:
    """The columns that the figures need, secrets masked: names of groups are drawn."""
    columns = ["failed_at", "created_at", "workflow_url", "response_status"]
    rows = select(failures, columns, doing="making a report")
    urls = rows.choose(["workflow_url"]).count("workflow_url")["workflow_url"].drop_null()
    masked = pa.array(map(redactor.text, urls.to_pylist()), pa.string())
    return rows.then(partial(_with_urls, urls.combine_chunks(), masked))


def _with_urls(urls: pa.Array, masked: pa.Array, table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index("workflow_url")
    if position < 0:
        return table
    return table.set_column(position, "workflow_url", masked.take(pc.index_in(table["workflow_url"], urls)))


def _write_private(path: Path, content: bytes) -> None:
    """Write a new file beside the path and rename it: mode 0600, links not followed, atomic."""
    draft = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # which follows no link
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise ToolkitError(
            f"writing {path.name!r}",
            got=f"{type(error).__name__}: {error.strerror}",
            expected="an existing folder with free space",
            next_step="Make the folder, or choose another.",
        ) from None


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
