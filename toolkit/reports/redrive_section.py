"""Make the section of a failure report on a redrive: outcomes, returned and left entries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import pandas as pd

from toolkit.base.arguments import file_path, wrong
from toolkit.base.python_code import PublicCall, fill
from toolkit.redrive.results import STATES, RedriveResult, read_redrive_status
from toolkit.reports.section_figures import outcomes_figure
from toolkit.reports.sections import (
    Part,
    ReportCode,
    ReportColumn,
    ReportFigure,
    Section,
    table,
)
from toolkit.secrets.redaction import Redactor

_STATUS: Final = PublicCall("read_redrive_status", ("plan",))
_DONE: Final = ("succeeded", "called", "deleted")
_BACK: Final = ("failed again", "failed otherwise")
_MOST: Final = 20  # rows per table
_DRAWN: Final = 12  # groups
_WORKFLOW: Final = ReportColumn("workflow", below=True)
_WHY: Final = ReportColumn("why", below=True, missing="")


def redrive_of(
    redrive: RedriveResult | str | os.PathLike[str] | None,
) -> RedriveResult | None:
    """Return the argument ``redrive`` of a report: a result, or the latest plan of a ledger."""
    if redrive is None or isinstance(redrive, RedriveResult):
        return redrive
    if isinstance(redrive, str | os.PathLike):
        return read_redrive_status(file_path("redrive", redrive))

    raise wrong(
        "redrive", redrive, "what run_redrive returns, or the path of its ledger"
    )


def redrive_section(result: RedriveResult, redactor: Redactor) -> Section:
    """Return the section. Secrets are masked afterwards, but in the figure here."""
    result = replace(
        result,
        frame=result.frame.assign(title=result.frame["title"].map(redactor.text)),
    )
    groups = min(int(result.frame["title"].nunique()), _DRAWN)
    draw = partial(outcomes_figure, result.frame, result.verdict)
    figure = ReportFigure(
        "Outcomes of the redrive", result.verdict, 1.4 + 0.5 * groups, draw
    )
    status = _STATUS.write("redrive.sqlite", plan=result.plan.hash[:8])
    code = fill("result = {status}\nresult.plot()", status=status)
    parts: list[Part] = [*_tables(result.frame), ReportCode(code)]
    # a plan without entries has nothing to draw
    if groups:
        parts.insert(0, figure)
    return Section("redrive", "Redrive", result.verdict, tuple(parts))


def _tables(frame: pd.DataFrame) -> Iterator[Part]:
    done, back = frame[frame["state"].isin(_DONE)], frame[frame["state"].isin(_BACK)]
    left = frame[~frame["state"].isin((*_DONE, *_BACK))]
    action = ReportColumn("action", below=True)
    yield from _table("What was done", done, {"action": action, "state": "outcome"})
    same = back["new_group"].where(back["state"] != "failed again", "the same")
    yield from _table(
        "What came back, and with which signature", back.assign(came=same.fillna("not known")),
        {"reason": _WHY, "came": "signature"}, example="new_dlq_id",
    )  # fmt: skip
    yield from _table(
        "What was left, or has not ended, and why",
        left,
        {"reason": _WHY, "state": "state"},
    )


def _table(
    caption: str,
    frame: pd.DataFrame,
    more: Mapping[str, str | ReportColumn],
    *,
    example: str = "dlq_id",
) -> Iterator[Part]:
    """Count the entries of a frame by group, workflow and more, the most first, with one id of each."""
    if frame.empty:
        return

    columns = {"title": "group", "workflow_url": _WORKFLOW, **more}
    keys = list(columns)
    order = {state: number for number, state in enumerate(STATES)}
    counts = (
        frame.groupby(keys, sort=False, dropna=False)[example]
        .agg(["size", "first"])
        .reset_index()
    )
    # the states have an order of their own; the keys come last so that equal counts have a fixed order
    counts["order"] = 0
    if "state" in counts:
        counts["order"] = counts["state"].map(order)
    is_ascending = [True, False, *(True for _ in keys)]
    counts = counts.sort_values(["order", "size", *keys], ascending=is_ascending)
    plain = counts[[*keys, "first", "size"]].astype(object)
    rows = plain.where(plain.notna(), None).head(_MOST).to_numpy().tolist()
    example_id = ReportColumn("one of them", "id", below=True, missing="")
    left_out = max(len(counts) - _MOST, 0)
    yield table(
        caption, [*columns.values(), example_id, "#entries"], rows, left_out=left_out
    )
