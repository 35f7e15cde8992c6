"""What became of entries: still there, retried and how that ended, deleted, expired, or not observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pandas as pd

from toolkit.analysis.retention import retention_of
from toolkit.analysis.selection import (
    opened,
    receipt_of,
    select,
    select_timed,
    tallied,
    timestamps,
    typed_frame,
    when_counted,
)
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import mapping
from toolkit.drawing.wording import frame_table
from toolkit.freshness import stated_retention
from toolkit.tables.vector_dtype import missing

STILL_THERE: Final = "still there"
SUCCEEDED: Final = "retried and succeeded"
FAILED_AGAIN: Final = "retried and failed again"
RETRIED: Final = "retried, not ended"
CANCELED: Final = "retried and canceled"
DELETED: Final = "deleted"
EXPIRED: Final = "expired"
UNKNOWN: Final = "unknown"
OUTCOMES: Final = (STILL_THERE, SUCCEEDED, FAILED_AGAIN, RETRIED, CANCELED, DELETED, EXPIRED, UNKNOWN)
"""All that can have become of an entry."""

LEFT: Final = {
    "succeeded": (SUCCEEDED,),
    "retried": (FAILED_AGAIN, RETRIED, CANCELED),
    "deleted": (DELETED,),
    "expired": (EXPIRED,),
    "unknown": (UNKNOWN, STILL_THERE),
}
"""The columns of a comparison that say what became of the entries that left."""

_STATES: Final = {"RUN_SUCCESS": SUCCEEDED, "RUN_FAILED": FAILED_AGAIN, "RUN_CANCELED": CANCELED}
_LOOKS: Final = ("gone_after", "gone_before")
_SEEN_LATE: Final = timedelta(days=1)
"""An entry that expired, and was seen so shortly before, is taken to have stayed until then."""

_Times = pd.Series  # of timestamps in UTC


@dataclass(frozen=True, eq=False, repr=False)
class RetryOutcomes:
    """What became of entries; made by `retry_outcomes`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row an entry, in the order of the failures: `dlq_id`, `workflow_url`, `outcome` (str: still there,
        retried and succeeded, retried and failed again, retried and canceled, "retried, not ended", deleted,
        expired, unknown), `run` (str: the run or message that retried it, missing where none is known),
        `left_after`, `left_before` (datetime64[ms, UTC]: it was seen last, and first missed; missing while it
        is there), `expires_at` (datetime64[ms, UTC]; missing without `retention`).
    counts : pandas.DataFrame
        `outcome` (str), `count` (Int64), `share` (float64), the largest count first and equal ones by name.

    Examples
    --------
    >>> from toolkit import load_failures, retry_outcomes
    >>> failures = load_failures(service, progress=False)
    >>> retry_outcomes(failures, failures)
    5,000 entries: 5,000 still there
    """

    frame: pd.DataFrame
    counts: pd.DataFrame

    def __repr__(self) -> str:
        parts = [f"{count:,} {outcome}" for outcome, count, _ in self.counts.itertuples(index=False)]
        entries = f"{len(self.frame):,} {'entry' if len(self.frame) == 1 else 'entries'}"
        return entries + f": {', '.join(parts)}" * bool(parts)

    def _repr_html_(self) -> str:
        return frame_table(repr(self), self.counts)


def retry_outcomes(
    failures: AnyFrame,
    later: AnyFrame | None = None,
    *,
    runs: AnyFrame | None = None,
    callbacks: AnyFrame | None = None,
    retried: Mapping[str, str] | None = None,
    retention: str | timedelta | None = None,
    now: datetime | None = None,
) -> RetryOutcomes:
    """Find out what became of each entry of the dead letter queue.

    Only what the frames show is claimed. An entry that left is `expired` when its retention ended while it
    was away and it had been seen until shortly before; `deleted` when it left earlier and no run of its
    workflow started meanwhile, or `retried` lacks it; otherwise `unknown`: the queue was not observed in
    between.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `workflow_run_id`, `failed_at`, `created_at`; of a
        snapshot, `gone_after` and `gone_before` say when an entry left.
    later : frame, optional
        A later load: entries that are missing in it, or have `gone_before` there, have left. Default: what
        `gone_before` of the failures says; without that column, nobody knows which entries left.
    runs : frame, optional
        The run log, from `load_runs`: how retries ended, and which workflows ran.
    callbacks : frame, optional
        From `load_callbacks`: how retried messages ended.
    retried : mapping, optional
        All retries, as `resume_failures` and `restart_failures` return them: from each DLQ id to the id of
        the new run or message. An entry without one was not retried.
    retention : str or timedelta, optional
        How long the queue keeps an entry: ``"3d"``, ``"7d"``, … by plan. Default: what a sync of the snapshot
        was told, else ``TOOLKIT_RETENTION``. Without any of them, nothing is known to have expired or been
        deleted.
    now : datetime, optional
        When `later` was loaded. Default: what its receipt says, else its latest failure.

    Returns
    -------
    RetryOutcomes
        `.frame` has one row an entry, `.counts` one row an outcome.

    Raises
    ------
    InputError
        When a column is missing, or an option cannot be read.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-05 10:00", "2026-01-05 11:00", "2026-01-05 12:00"], utc=True)
    >>> before = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "failed_at": times,
    ...     "workflow_run_id": ["wfr_1", "wfr_2", "wfr_3"], "created_at": times})
    >>> runs = pd.DataFrame({"workflow_run_id": ["wfr_9"], "workflow_url": "u", "state": "RUN_SUCCESS",
    ...     "created_at": pd.to_datetime(["2026-01-05 13:00"], utc=True)})
    >>> retry_outcomes(before, before[2:], runs=runs, retried={"a": "wfr_9"}, retention="7d")
    3 entries: 1 deleted, 1 retried and succeeded, 1 still there
    """
    doing = "finding out what became of entries"
    columns = ["dlq_id", "workflow_url", "workflow_run_id"]
    select(failures, columns, doing=doing)  # raises where it is not a frame
    names = opened(failures, doing=doing).names
    history = [name for name in _LOOKS if name in names]
    table = select_timed(failures, [*columns, *history], doing=doing).table()
    frame = pd.DataFrame({name: table[name].to_pylist() for name in columns}, dtype=object)
    when = timestamps(table, "when_")
    nothing = pd.Series(pd.NaT, index=frame.index, dtype="datetime64[ms, UTC]")
    seen, missed = (
        (timestamps(table, name) if name in history else nothing).astype(nothing.dtype) for name in _LOOKS
    )
    if later is not None:
        stored = opened(later, doing=doing, name="later").names
        looks = [name for name in _LOOKS if name in stored]
        loaded = select_timed(later, ["dlq_id", *looks], doing=doing, name="later").table()
        end = _looked(later, timestamps(loaded, "when_")) if now is None else pd.Timestamp(when_counted(now))
        left = ~frame["dlq_id"].isin(loaded["dlq_id"].to_pylist()) & missed.isna()
        start = _looked(failures, when)
        seen = seen.mask(left, start)
        missed = missed.mask(left, max(start, end) if pd.notna(start) else end)
        if looks == [*_LOOKS]:  # of a snapshot, which knows more of the queue than two looks at it do
            times = pd.DataFrame({name: timestamps(loaded, name) for name in looks})
            times = times.assign(id=loaded["dlq_id"].to_pylist()).dropna(subset=["id", "gone_before"])
            times = times.drop_duplicates("id").set_index("id")
            left = frame["dlq_id"].isin(times.index) & missed.isna()
            own = times.reindex(frame["dlq_id"]).astype(nothing.dtype).set_index(frame.index)
            seen, missed = (
                was.mask(left, own[name]) for was, name in zip((seen, missed), looks, strict=True)
            )
    elif now is not None:
        when_counted(now)  # raises where it is none
    expires = nothing
    kept = _kept(failures, retention)
    if kept is not None:
        expires = (when + kept).astype(nothing.dtype)
    runs_of = {} if retried is None else mapping("retried", retried)
    known = {entry: run for entry, run in runs_of.items() if not missing(run)}
    ended = _ended(runs, callbacks, doing)
    assumed = _without_retry(frame, seen, missed, expires, _starts(runs, doing), retried)
    present_or_not = STILL_THERE if later is not None or history else UNKNOWN
    outcomes: list[tuple[str, str | None]] = []
    ids = zip(frame["dlq_id"], frame["workflow_run_id"], missed.notna(), assumed, strict=True)
    for entry, own, gone, otherwise in ids:
        if (run := known.get(entry)) is not None:
            outcomes.append((ended.get(str(run), RETRIED), str(run)))
        elif gone and ended.get(own) in (SUCCEEDED, CANCELED):  # that it failed is why there is an entry
            outcomes.append((ended[own], own))
        else:
            outcomes.append((otherwise if gone else present_or_not, None))
    result = typed_frame(
        dlq_id=("str", frame["dlq_id"]),
        workflow_url=("str", frame["workflow_url"]),
        outcome=("str", [outcome for outcome, _ in outcomes]),
        run=("str", [run for _, run in outcomes]),
        left_after=("datetime64[ms, UTC]", seen),
        left_before=("datetime64[ms, UTC]", missed),
        expires_at=("datetime64[ms, UTC]", expires),
    )
    return RetryOutcomes(result, tallied(result["outcome"]))


def _kept(failures: AnyFrame, given: str | timedelta | None) -> timedelta | None:
    """Return how long the queue keeps entries, if that was stated and no entry contradicts it."""
    if given is not None:
        return stated_retention(given, None)
    loaded = receipt_of(failures)
    stated = stated_retention(None, None if loaded is None else loaded.retention)
    if stated is None or not retention_of(failures, stated).is_known:
        return None
    return stated


def _looked(frame: AnyFrame, when: _Times) -> pd.Timestamp:
    """When a frame was loaded: what its receipt says, else its latest failure."""
    receipt = receipt_of(frame)
    ended = pd.to_datetime(receipt.ended_at if receipt else "", utc=True, errors="coerce")
    return pd.Timestamp(ended if pd.notna(ended) else when.max())


def _ended(runs: AnyFrame | None, callbacks: AnyFrame | None, doing: str) -> dict[str, str]:
    """How each run and message ended."""
    ended: dict[str, str] = {}
    if callbacks is not None:
        names = ["source_message_id", "delivered", "exhausted"]
        rows = select(callbacks, names, doing=doing, name="callbacks").table().to_pydict()
        for message, delivered, exhausted in zip(*rows.values(), strict=True):
            if delivered or exhausted:
                ended[message] = SUCCEEDED if delivered else FAILED_AGAIN
    if runs is not None:
        rows = select(runs, ["workflow_run_id", "state"], doing=doing, name="runs").table().to_pydict()
        pairs = zip(rows["workflow_run_id"], rows["state"], strict=True)
        ended |= {run: _STATES.get(state, RETRIED) for run, state in pairs}
    return ended


def _starts(runs: AnyFrame | None, doing: str) -> dict[str | None, Any] | None:
    """When the runs of each workflow started, sorted, as nanoseconds; those of all under None."""
    if runs is None:
        return None
    table = select(runs, ["workflow_url", "created_at"], doing=doing, name="runs").table()
    frame = pd.DataFrame({"url": table["workflow_url"].to_pylist(), "at": timestamps(table, "created_at")})
    frame = frame.dropna().assign(at=lambda rows: rows["at"].astype("datetime64[ns, UTC]").astype("int64"))
    frame = frame.sort_values("at")
    starts: dict[str | None, Any] = {str(url): at.to_numpy() for url, at in frame.groupby("url")["at"]}
    return starts | {None: frame["at"].to_numpy()}


def _without_retry(
    frame: pd.DataFrame, seen: _Times, missed: _Times, expires: _Times,
    starts: dict[str | None, Any] | None, retried: Mapping[str, str] | None,
) -> pd.Series:  # fmt: skip
    """What became of entries that left, where no retry of them is known."""
    expired = (expires <= missed) & ((expires <= seen) | (expires - seen <= _SEEN_LATE))
    early = expires > missed
    if retried is not None:
        idle = pd.Series(data=True, index=frame.index)
    elif starts is None or not len(starts[None]):
        idle = pd.Series(data=False, index=frame.index)
    else:
        from_, to = (
            column.astype("datetime64[ns, UTC]").astype("int64").to_numpy() for column in (seen, missed)
        )
        idle = pd.Series(from_ >= starts[None][0], index=frame.index)  # the log reaches back as far
        for url, rows in frame.groupby("workflow_url").indices.items():
            times = starts.get(str(url), np.zeros(0, dtype=np.int64))
            ran = np.searchsorted(times, to[rows], "right") > np.searchsorted(times, from_[rows], "right")
            idle.iloc[rows] &= ~ran
    named = pd.Series(UNKNOWN, index=frame.index, dtype=object)
    return named.mask(early & idle & missed.notna(), DELETED).mask(expired, EXPIRED)
