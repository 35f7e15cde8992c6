"""The section of a failure report on a redrive: what succeeded, what came back, what was left and why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from toolkit.arguments import file_path, wrong
from toolkit.plots.redrive_outcomes import draw_outcomes
from toolkit.redaction import Redactor
from toolkit.redrive.results import STATES, RedriveResult, redrive_status
from toolkit.reports.sections import Part, ReportCode, ReportColumn, ReportFigure, Section, table

_DONE: Final = ("succeeded", "called", "deleted")
_BACK: Final = ("failed again", "failed otherwise")
_MOST: Final = 20  # rows of a table
_DRAWN: Final = 12  # groups
_COUNT: Final = ReportColumn(name="entries", kind="number")
_WORKFLOW: Final = ReportColumn(name="workflow", beneath=True)


def redrive_of(redrive: RedriveResult | str | os.PathLike[str] | None) -> RedriveResult | None:
    """The argument ``redrive`` of a report: a result, or the latest plan of a ledger."""
    if redrive is None or isinstance(redrive, RedriveResult):
        return redrive
    if isinstance(redrive, str | os.PathLike):
        return redrive_status(file_path("redrive", redrive))
    raise wrong("redrive", redrive, "what run_redrive returns, or the path of its ledger")


def redrive_section(result: RedriveResult, redactor: Redactor) -> Section:
    """The section; its texts are masked afterwards, those of its figure here."""
    result = replace(result, frame=result.frame.assign(title=result.frame["title"].map(redactor.text)))
    groups = min(int(result.frame["title"].nunique()), _DRAWN)
    figure = ReportFigure(
        title="Outcomes of the redrive", description=result.verdict, height=1.4 + 0.5 * groups,
        draw=lambda ax, theme: draw_outcomes(result, ax, theme),
    )  # fmt: skip
    code = f'result = tk.redrive_status("redrive.sqlite", plan={result.plan.hash[:8]!r})\nresult.plot()'
    parts = (*([figure] if groups else []), *_tables(result.frame), ReportCode(code=code))
    return Section(name="redrive", title="Redrive", sentence=result.verdict, parts=parts)


def _tables(frame: pd.DataFrame) -> Iterator[Part]:
    done, back = frame[frame["state"].isin(_DONE)], frame[frame["state"].isin(_BACK)]
    left = frame[~frame["state"].isin((*_DONE, *_BACK))]
    yield from _table(
        "What was done", done, ["title", "workflow_url", "action", "state"],
        ["group", _WORKFLOW, ReportColumn(name="action", beneath=True), "outcome"],
    )  # fmt: skip
    same = back["new_group"].where(back["state"] != "failed again", "the same")
    yield from _table(
        "What came back, and with which signature", back.assign(came=same.fillna("not known")),
        ["title", "workflow_url", "reason", "came"],
        ["group", _WORKFLOW, ReportColumn(name="why", beneath=True, missing=""), "signature"],
        example="new_dlq_id",
    )  # fmt: skip
    yield from _table(
        "What was left, or has not ended, and why", left, ["title", "workflow_url", "reason", "state"],
        ["group", _WORKFLOW, ReportColumn(name="why", beneath=True, missing=""), "state"],
    )  # fmt: skip


def _table(
    caption: str, frame: pd.DataFrame, keys: list[str], columns: Sequence[str | ReportColumn],
    *, example: str = "dlq_id",
) -> Iterator[Part]:  # fmt: skip
    """The entries of a frame counted by keys, the most first, with the id of one of each."""
    if frame.empty:
        return
    order = {state: number for number, state in enumerate(STATES)}
    counts = frame.groupby(keys, sort=False, dropna=False)[example].agg(["size", "first"]).reset_index()
    counts["order"] = counts["state"].map(order) if "state" in counts else 0
    counts = counts.sort_values(["order", "size", *keys], ascending=[True, False, *[True] * len(keys)])
    plain = counts[[*keys, "first", "size"]].astype(object)
    rows = plain.where(plain.notna(), None).head(_MOST).to_numpy().tolist()
    one = ReportColumn(name="one of them", kind="id", beneath=True, missing="")
    left_out = max(len(counts) - _MOST, 0)
    yield table(caption, [*columns, one, _COUNT], rows, left_out=left_out)
