"""A frame in a few lines: how many rows of what, over which time, and whether that is all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.overview import failure_overview
from toolkit.analysis.selection import collect, opened, receipt_of, scanned, select
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted, time_text
from toolkit.receipt import Receipt, facts_html
from toolkit.redaction import visible


@dataclass(frozen=True, kw_only=True)
class FrameSummary:
    """What a frame holds; made by `summary`.

    Attributes
    ----------
    what : str
        ``"failures"``, ``"vectors"``, ``"hits"``, or the kind in the receipt.
    rows : int
    lines : tuple of (str, str)
        Names and texts, as they are shown.
    complete : bool or None
        From the receipt; None without one, and where the frame has other rows than were loaded.

    Examples
    --------
    >>> from toolkit import load_failures, summary
    >>> found = summary(load_failures(service, progress=False))
    >>> found.what, found.rows, found.complete
    ('failures', 5000, True)
    """

    what: str
    rows: int
    lines: tuple[tuple[str, str], ...]
    complete: bool | None

    def __repr__(self) -> str:
        width = max((len(name) for name, _ in self.lines), default=0)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.lines)

    def _repr_html_(self) -> str:
        return facts_html(self.what, self.lines)


def summary(frame: AnyFrame) -> FrameSummary:
    """A frame in a few lines: rows, time or space, and completeness.

    Parameters
    ----------
    frame : frame
        Made by a loader, or derived from one. Frames without a receipt are summed up, too; whether they are
        complete is then not known.

    Returns
    -------
    FrameSummary
        Notebooks show it as a small table.

    Raises
    ------
    InputError
        When it is no frame.

    Examples
    --------
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import FAILURES
    >>> from datetime import UTC, datetime
    >>> failed = datetime(2026, 3, 1, 9, 5, tzinfo=UTC)
    >>> summary(frame_from_rows([{"dlq_id": "a", "workflow_url": "u", "failed_at": failed}], FAILURES))
    rows         1 failure in 1 workflow
    time         2026-03-01 09:05 UTC
    complete     not known: the frame has no receipt
    """
    frame = scanned(frame, doing="summing up a frame", name="frame")
    names = opened(frame, doing="summing up a frame", name="frame").names
    receipt = receipt_of(frame)
    if {"dlq_id", "failed_at", "workflow_run_id"} <= set(names):
        what, rows, lines = "failures", *_failures(frame)
    elif {"namespace", "vector_problem"} <= set(names):
        what, rows, lines = "vectors", *_vectors(frame)
    elif {"query", "rank", "score"} <= set(names):
        what, rows, lines = "hits", *_hits(frame)
    else:
        what = receipt.what if receipt else "rows"
        rows = select(frame, names[:1], doing="summing up a frame").count()["count_"][0].as_py()
        lines = [("rows", f"{rows:,} of {counted(len(names), 'column')}")]
    return FrameSummary(
        what=what,
        rows=rows,
        lines=tuple((name, visible(text)) for name, text in [*lines, ("complete", _complete(receipt, rows))]),
        complete=receipt.complete if receipt and receipt.rows == rows else None,
    )


def _complete(receipt: Receipt | None, rows: int) -> str:
    if receipt is None:
        return "not known: the frame has no receipt"
    loaded = "yes" if receipt.complete else f"no: {'; '.join(receipt.reasons) or 'it did not end'}"
    if receipt.rows == rows:
        return loaded
    whole = "which was complete" if receipt.complete else f"which was not complete: {loaded[4:]}"
    return f"{replace(receipt, frame_rows=rows).part} of the load, {whole}"


def _failures(frame: AnyFrame) -> tuple[int, list[tuple[str, str]]]:
    found = failure_overview(frame)
    lines = [("rows", f"{counted(found.count, 'failure')} in {counted(found.workflows, 'workflow')}")]
    if found.first_at and found.last_at:
        first, last = time_text(found.first_at), time_text(found.last_at)
        lines.append(("time", first if first == last else f"{first.removesuffix(' UTC')} to {last}"))
    if found.fell_back:
        lines.append(("placed by", f"created_at in {found.fell_back:,} rows without a failure time"))
    if found.gone:
        lines.append(("gone", f"{found.gone:,} have left the queue since they were stored"))
    return found.count, lines


def _vectors(frame: AnyFrame) -> tuple[int, list[tuple[str, str]]]:
    table = collect(
        select(frame, ["namespace", "vector", "vector_problem"], doing="summing up vectors", name="frame")
    )
    spaces = len(table["namespace"].unique())
    lines = [("rows", f"{counted(table.num_rows, 'vector')} in {counted(spaces, 'namespace')}")]
    kind = table.schema.field("vector").type
    if pa.types.is_fixed_size_list(kind):
        lines.append(("dimension", f"{kind.list_size:,}"))
    problems = table.num_rows - table["vector_problem"].null_count
    if problems:
        lines.append(("not usable", f"{problems:,}; vector_problem says why"))
    return table.num_rows, lines


def _hits(frame: AnyFrame) -> tuple[int, list[tuple[str, str]]]:
    table = collect(select(frame, ["query", "score"], doing="summing up hits"))
    queries = len(table["query"].unique())
    lines = [
        ("rows", f"{counted(table.num_rows, 'hit')} of {queries:,} {'query' if queries == 1 else 'queries'}")
    ]
    if table["score"].null_count < table.num_rows:
        span = pc.min_max(table["score"]).as_py()
        lines.append(("scores", f"{span['min']:.3g} to {span['max']:.3g}"))
    return table.num_rows, lines
