"""Summarise runs: success rates and durations per workflow and over time, and the deliveries of one run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.arguments import nearest, text
from toolkit.base.errors import InputError
from toolkit.base.time_zones import span_of_times
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import Plotted, frame_table
from toolkit.drawing.wording import counted, elapsed, percent
from toolkit.failures.selection import select
from toolkit.failures.sources import AnyFrame
from toolkit.failures.sql_results import SqlStep
from toolkit.failures.time_bins import bin_width, bins_of
from toolkit.secrets.redaction import Redactor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

_DOING: Final = "counting runs"
_OUTCOMES: Final = {
    "RUN_SUCCESS": "succeeded", "RUN_FAILED": "failed", "RUN_CANCELED": "cancelled",
    "RUN_CANCELLED": "cancelled",
}  # fmt: skip
OUTCOMES: Final = ("succeeded", "failed", "cancelled", "running")
_QUANTILES: Final = {"median": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class RunTuning:
    """Constants of summaries of runs, with their reasons."""

    shown: int = 20
    """Workflows in a notebook. `.frame` has all of them."""
    least_runs: int = 5
    """Ended runs of a workflow whose success rate is named. Of four runs, one failure is 25 %."""


_TUNING: Final = RunTuning()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RunSummary(Plotted):
    """Outcomes and durations of workflow runs; made by `summarize_runs`. `plot` draws one bar per workflow.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per workflow, the workflow with the most runs first, equal ones by name: ``workflow_url``
        (str), ``runs``, ``succeeded``, ``failed``, ``cancelled``, ``running`` (Int64; any other state counts
        as running), ``success_rate`` (float64: among succeeded and failed runs; missing without them),
        ``median``, ``p90``, ``p99`` (float64: quantiles of the seconds of successful runs; missing if no run
        has both times).
    total : pandas.Series
        The same values for all runs.
    verdict : str
        A few sentences, masked.

    Examples
    --------
    >>> import pandas as pd
    >>> start = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 10:01", "2026-01-01 10:02"], utc=True)
    >>> end = start + pd.to_timedelta([2, 4, 9], unit="s")
    >>> runs = {"workflow_url": ["a", "a", "b"], "state": ["RUN_SUCCESS", "RUN_SUCCESS", "RUN_FAILED"]}
    >>> summarize_runs(pd.DataFrame(runs | {"created_at": start, "completed_at": end})).verdict
    '3 runs of 2 workflows, 2026-01-01 10:00 to 2026-01-01 10:02 UTC: 67 % of those that ended succeeded...'
    """

    frame: pd.DataFrame
    total: pd.Series
    verdict: str

    def __repr__(self) -> str:
        return visible(f"{self.verdict}\n{self._shown().to_string(index=False)}")

    def _repr_html_(self) -> str:
        caption = self.verdict
        if len(self.frame) > _TUNING.shown:
            caption += (
                f" {len(self.frame) - _TUNING.shown:,} more workflows are in .frame."
            )

        return frame_table(caption, self._shown())

    def _shown(self) -> pd.DataFrame:
        shown = self.frame.head(_TUNING.shown)
        return shown.assign(workflow_url=shown["workflow_url"].map(_masked))

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_run_outcomes  # noqa: PLC0415 - matplotlib is slow to import

        return draw_run_outcomes(
            self.frame, ax, theme, runs=int(self.frame["runs"].sum())
        )


def summarize_runs(runs: AnyFrame) -> RunSummary:
    """Summarise the run log: success rate and durations, of all runs and of each workflow.

    Runs that are still running have no duration. The service may not keep old runs.

    Parameters
    ----------
    runs : frame
        As `load_runs` returns it: with the columns ``workflow_url``, ``state``, ``created_at`` and
        ``completed_at``.

    Returns
    -------
    RunSummary

    Raises
    ------
    InputError
        If a column is missing.

    Examples
    --------
    >>> summed = summarize_runs(tk.load_runs(service, progress=False))
    >>> int(summed.total["runs"]), int(summed.total["failed"])
    (9000, 5000)
    """
    rows = _read(runs)
    frame = _summed(rows, rows["workflow_url"])
    frame = frame.sort_values(
        ["runs", "workflow_url"], ascending=[False, True], ignore_index=True
    )
    total = _summed(rows, pd.Series("all", rows.index, dtype="str")).drop(
        columns="workflow_url"
    )
    all_runs = pd.Series(dtype="float64").reindex(total.columns)
    if len(total):
        all_runs = total.iloc[0]
    return RunSummary(
        frame=frame, total=all_runs, verdict=_verdict(rows, frame, all_runs)
    )


def run_rates(runs: AnyFrame, *, freq: str | timedelta = "1h") -> pd.DataFrame:
    """Count runs and their outcomes per workflow and hour of their start.

    Parameters
    ----------
    runs
        As in `summarize_runs`.
    freq : str or timedelta
        Width of a bin, in whole minutes ("15min", "1h", "1d"). Bins begin at multiples of their width in UTC;
        weeks begin on Mondays.

    Returns
    -------
    pandas.DataFrame
        One row per workflow and bin with a start of a run, by workflow and time: ``workflow_url`` (str),
        ``start`` (datetime64[ms, UTC]), ``runs``, ``succeeded``, ``failed``, ``cancelled``, ``running``
        (Int64), ``failure_rate`` (float64: failed runs among succeeded and failed ones; missing without
        them). Runs without a start are in no bin.

    Raises
    ------
    InputError
        If a column is missing, `freq` is not a width, or the result would have more than 5,000 bins.

    Examples
    --------
    >>> import pandas as pd
    >>> start = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 10:40", "2026-01-01 11:02"], utc=True)
    >>> runs = {"workflow_url": "a", "state": ["RUN_SUCCESS", "RUN_FAILED", "RUN_FAILED"]}
    >>> run_rates(pd.DataFrame(runs | {"created_at": start, "completed_at": start}))["failure_rate"].tolist()
    [0.5, 1.0]
    """
    return binned_rates(runs, bin_width(freq))[0]


def binned_rates(runs: AnyFrame, wanted: int | None) -> tuple[pd.DataFrame, timedelta]:
    """Return the rates of `run_rates` and the width of a bin, by default for at most 60 bins."""
    rows = _read(runs).dropna(subset="created_at")
    when = np.asarray(
        rows["created_at"].astype("datetime64[ms, UTC]").astype("int64"), dtype=np.int64
    )
    starts, width = bins_of(when, wanted, None, _DOING)
    first = int(starts[0]) if len(starts) else 0
    binned = pd.to_datetime(
        (when - first) // width * width + first, unit="ms", utc=True
    ).as_unit("ms")
    counts = _counts(
        rows, [rows["workflow_url"], pd.Series(binned, rows.index, name="start")]
    )
    ended = (
        (counts["succeeded"] + counts["failed"]).astype("float64").replace(0, np.nan)
    )
    table = counts.assign(
        failure_rate=counts["failed"].astype("float64") / ended
    ).reset_index()
    types = {"workflow_url": "str", "start": "datetime64[ms, UTC]"}

    return table.astype(types), timedelta(milliseconds=width)


def _read(runs: AnyFrame) -> pd.DataFrame:
    names = ["workflow_url", "state", "created_at", "completed_at"]
    chosen = select(runs, names, doing=_DOING, name="runs")
    rows = chosen.whole_table(_DOING).to_pandas()
    for name in ("created_at", "completed_at"):
        rows[name] = pd.to_datetime(rows[name], utc=True)
    rows["workflow_url"] = rows["workflow_url"].astype("str").fillna("(no workflow)")
    rows["outcome"] = rows["state"].map(_OUTCOMES).fillna("running")

    return pd.DataFrame(rows)


def _counts(rows: pd.DataFrame, keys: list[pd.Series]) -> pd.DataFrame:
    """Count the runs of each outcome, and all runs, by the keys."""
    outcomes = pd.get_dummies(rows["outcome"], dtype="int64").reindex(
        columns=OUTCOMES, fill_value=0
    )
    counts = outcomes.groupby(keys, sort=True).sum()
    counts.insert(0, "runs", counts.sum(axis=1))

    return counts.astype("Int64")


def _summed(rows: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    key = key.rename("workflow_url")
    counts = _counts(rows, [key])
    ended = (
        (counts["succeeded"] + counts["failed"]).astype("float64").replace(0, np.nan)
    )
    took = (rows["completed_at"] - rows["created_at"]).dt.total_seconds()
    took = took.where((rows["outcome"] == "succeeded") & (took >= 0))
    table = counts.assign(success_rate=counts["succeeded"].astype("float64") / ended)

    for name, share in _QUANTILES.items():
        table[name] = (
            took.groupby(key).quantile(share).reindex(table.index).astype("float64")
        )

    return table.reset_index().astype({"workflow_url": "str"})


def _verdict(rows: pd.DataFrame, frame: pd.DataFrame, total: pd.Series) -> str:
    if rows.empty:
        return "No runs."

    runs = f"{counted(len(rows), 'run')} of {counted(len(frame), 'workflow')}"
    first, last = rows["created_at"].min(), rows["created_at"].max()
    if pd.notna(first):
        runs += ", {} to {}".format(*span_of_times(first, last))
    rate = total["success_rate"]
    if pd.isna(rate):
        return f"{runs}: none has ended yet."

    outcomes = [f"{int(total['failed']):,} failed"]
    outcomes += [
        f"{int(total[name]):,} {name}"
        for name in ("cancelled", "running")
        if total[name]
    ]
    sentences = [
        f"{runs}: {percent(rate)} of those that ended succeeded ({', '.join(outcomes)})."
    ]
    sentences += _lowest_rate(frame)

    if pd.notna(total["median"]):
        half, most = elapsed(total["median"]), elapsed(total["p90"])
        sentences.append(
            f"Half of the successful runs took at most {half}, nine in ten at most {most}."
        )

    return " ".join(sentences)


def _lowest_rate(frame: pd.DataFrame) -> list[str]:
    """Return a sentence about the workflow with the lowest rate, if several have enough runs."""
    known = frame[frame["succeeded"] + frame["failed"] >= _TUNING.least_runs]
    if len(frame) <= 1 or known.empty:
        return []

    worst = known.sort_values(["success_rate", "runs"], ascending=[True, False]).iloc[0]
    url, ended = (
        _masked(worst["workflow_url"]),
        int(worst["succeeded"] + worst["failed"]),
    )

    return [
        f"The lowest rate is that of {url}: {percent(worst['success_rate'])} of {ended:,}."
    ]


def _masked(url: str) -> str:
    return Redactor().url(url)


_DELIVERIES: Final = "reading the deliveries of a run"
_ENDS: Final = {
    "DELIVERED": "delivered",
    "FAILED": "failed",
    "CANCELED": "cancelled",
    "CANCELLED": "cancelled",
}
_ATTEMPTS: Final = ("ACTIVE", "ERROR", "DELIVERED", "FAILED")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunDeliveries:
    """The deliveries of one run.

    `frame` has one row per message, in order: `message_id`, `name`, `start` and `end` (seconds since the
    first event), `outcome` (delivered, failed, cancelled, pending) and `retries`.
    """

    run_id: str
    begin: datetime | None
    frame: pd.DataFrame
    # row and second of each attempt that was followed by another
    tried: list[tuple[int, float]]


def run_deliveries(
    events: AnyFrame, steps: AnyFrame | None = None, run_id: str | None = None
) -> RunDeliveries:
    """Return the deliveries of a run, with names from `steps`; the id may be omitted for a single run."""
    names = ["time", "message_id", "state", "workflow_run_id"]
    known = select(events, names, doing=_DELIVERIES, name="events").then(_complete)
    runs = known.count("workflow_run_id")["workflow_run_id"].to_pylist()
    own = _chosen_run(run_id, sorted(runs))
    # the log of an engine may be large, but the events of one run are few
    rows = known.then(partial(_of_run, own)).table().to_pandas()
    rows["time"] = pd.to_datetime(rows["time"], utc=True)
    rows = rows.sort_values("time", kind="stable")
    step_names = _step_names(steps, own)
    begin, latest = rows["time"].min(), rows["time"].max()

    deliveries, tried = [], []
    for position, (message, own_rows) in enumerate(
        rows.groupby("message_id", sort=False)
    ):
        seconds = (own_rows["time"] - begin).dt.total_seconds()
        outcomes = own_rows["state"].map(_ENDS)
        outcome, end = "pending", (latest - begin).total_seconds()
        last = outcomes.last_valid_index()
        if last is not None:
            outcome, end = outcomes[last], seconds[last]
        failed_attempts = _repeated(seconds, own_rows["state"])
        tried += [(position, second) for second in failed_attempts]
        name = step_names.get(message, message)
        if outcome == "failed" and name.endswith(" →"):
            name += " (failed)"
        deliveries.append(
            (message, name, seconds.min(), end, outcome, len(failed_attempts))
        )

    columns = ["message_id", "name", "start", "end", "outcome", "retries"]
    first = begin.to_pydatetime(warn=False) if len(rows) else None
    frame = pd.DataFrame(deliveries, columns=columns)

    return RunDeliveries(run_id=own, begin=first, frame=frame, tried=tried)


def _without_gaps(table: pa.Table) -> pa.Table:
    is_complete = pc.and_(table["time"].is_valid(), table["message_id"].is_valid())
    return table.filter(pc.and_(is_complete, table["workflow_run_id"].is_valid()))


_complete: Final = SqlStep(
    _without_gaps,
    '(SELECT * FROM {rows} WHERE "time" IS NOT NULL AND message_id IS NOT NULL '
    "AND workflow_run_id IS NOT NULL)",
)
"""Omits the events without a time, a message or a run."""


def _of_run(run_id: str, table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["workflow_run_id"], run_id))


def _of_run_or_unknown(run_id: str, table: pa.Table) -> pa.Table:
    """Return the steps of a run, and the steps without an id of a run."""
    is_own = pc.equal(table["workflow_run_id"], run_id)
    return table.filter(pc.fill_null(is_own, fill_value=True))


def _chosen_run(run_id: str | None, runs: list[str]) -> str:
    """Return the id of a run, or of the only run if no id is given."""
    if run_id is None:
        if len(runs) <= 1:
            return "".join(runs)
        got = f"none, and events of {len(runs):,} runs"
    else:
        run_id = text("run_id", run_id)
        if run_id in runs:
            return run_id
        got = f"{run_id!r}"[:80]

    raise InputError(
        "reading run_id",
        got=got,
        expected="the id of a run of these events",
        next_step=nearest(run_id or "", runs, what="They are of"),
    )


def _repeated(seconds: pd.Series, states: pd.Series) -> list[float]:
    """Return the times of failed attempts that were repeated: RETRY events, or else ERRORs before others."""
    retries: list[float] = seconds[states == "RETRY"].tolist()
    latest = seconds[states.isin(_ATTEMPTS)].max()
    return retries or seconds[(states == "ERROR") & (seconds < latest)].tolist()


def _step_names(steps: AnyFrame | None, run_id: str) -> dict[str, str]:
    """Return a name for each message: the step that it reported, and the step that ran next."""
    if steps is None:
        return {}

    names = ["message_id", "step_name", "workflow_run_id", "position"]
    rows = (
        select(steps, names, doing=_DELIVERIES, name="steps")
        .then(partial(_of_run_or_unknown, run_id))
        .table()
        .to_pandas()
        .dropna(subset="message_id")
    )
    rows = rows.sort_values(["workflow_run_id", "position"], kind="stable")
    rows["step_name"] = rows["step_name"].fillna("(no name)")
    after = (
        rows.groupby("workflow_run_id", dropna=False)["step_name"].shift(-1).fillna("")
    )
    step_names = rows["step_name"] + " → " + after

    return dict(zip(rows["message_id"], step_names.str.strip(), strict=True))
