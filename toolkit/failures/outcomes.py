"""Find out what happened to entries of the queue: still there, retried, deleted, expired or unknown.

Only facts of the frames are used. For example, an entry that a sync showed at 10:00 and the sync at 11:00 did
not show is deleted, if the retention had not ended and no run of the workflow started in that hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.base.arguments import mapping
from toolkit.drawing.result_tables import frame_table
from toolkit.failures.expired_entries import outcomes_without_runs
from toolkit.failures.outcome_names import (
    CANCELED,
    DELETED,
    EXPIRED,
    FAILED_AGAIN,
    OUTCOME_OF_STATE,
    RETRIED,
    SEEN_LATE,
    STILL_THERE,
    SUCCEEDED,
    UNKNOWN,
)
from toolkit.failures.retention import retention_of
from toolkit.failures.selection import (
    opened,
    receipt_of,
    select,
    select_timed,
    tallied,
    timestamps,
    typed_frame,
    when_counted,
)
from toolkit.failures.sources import (
    AnyFrame,
    SelectedRows,
    is_relation,
    read_errors_named,
)
from toolkit.failures.sql_outcomes import LOOKS, OutcomeFacts, outcome_query
from toolkit.tables.freshness import stated_retention
from toolkit.tables.vector_dtype import missing

_TIME: Final = "datetime64[ms, UTC]"

_Times = pd.Series  # of timestamps in UTC
_Nanoseconds: TypeAlias = NDArray[np.int64]  # since 1970


@dataclass(frozen=True, eq=False, repr=False)
class RetryOutcomes:
    """Outcomes of entries; made by `find_retry_outcomes`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per entry, in the order of the failures: `dlq_id`, `workflow_url`, `outcome` (str: still
        there, retried and succeeded, retried and failed again, retried and canceled, "retried, not ended",
        deleted, expired, unknown), `run` (str: the run or message that retried it, missing if unknown),
        `left_after`, `left_before` (datetime64[ms, UTC]: when it was last seen, and first missing; empty
        while it is in the queue), `expires_at` (datetime64[ms, UTC]; missing without `retention`).
    counts : pandas.DataFrame
        `outcome` (str), `count` (Int64), `share` (float64), the largest count first and equal ones by name.

    Examples
    --------
    >>> from toolkit import load_failures, find_retry_outcomes
    >>> failures = load_failures(service, limit=250)
    >>> find_retry_outcomes(failures, failures)
    250 entries: 250 still there
    """

    frame: pd.DataFrame
    counts: pd.DataFrame

    @property
    def verdict(self) -> str:
        """Return one sentence with the number of entries per outcome."""
        entries = "1 entry" if len(self.frame) == 1 else f"{len(self.frame):,} entries"
        parts = [
            f"{count:,} {outcome}"
            for outcome, count, _ in self.counts.itertuples(index=False)
        ]
        if not parts:
            return entries

        return f"{entries}: {', '.join(parts)}"

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return frame_table(repr(self), self.counts)


def find_retry_outcomes(
    before: AnyFrame,
    after: AnyFrame | None = None,
    *,
    runs: AnyFrame | None = None,
    callbacks: AnyFrame | None = None,
    retried: Mapping[str, str] | None = None,
    retention: str | timedelta | None = None,
    now: datetime | None = None,
) -> RetryOutcomes:
    """Find out what happened to each entry of the dead letter queue.

    Only facts of the frames are used. An entry that left is

    - `expired`, if the retention ended while it was missing and it was seen until shortly before;
    - `deleted`, if it left earlier and no run of the workflow started in between, or `retried` lacks it;
    - `unknown` otherwise: the queue was not observed in between.

    Parameters
    ----------
    before : frame
        Failures with the columns `dlq_id`, `workflow_url`, `workflow_run_id`, `failed_at`, `created_at`. In a
        snapshot, `gone_after` and `gone_before` tell when an entry left.
    after : frame, optional
        A later load: entries that are missing there, or have `gone_before` there, have left. If omitted, the
        column `gone_before` of the failures is used; without that column, it is not known which entries left.
    runs : frame, optional
        The run log, from `load_runs`: it shows how retries ended, and which workflows ran.
    callbacks : frame, optional
        From `load_callbacks`: it shows how retried messages ended.
    retried : mapping, optional
        All retries, as `resume_failures` and `restart_failures` return them: from each DLQ id to the id of
        the new run or message. If an entry is missing there, it was not retried.
    retention : str or timedelta, optional
        How long the queue keeps an entry: ``"3d"``, ``"7d"``, … by plan. If omitted, the retention of the
        last sync of the snapshot, or ``TOOLKIT_RETENTION``. If neither is known, no entry counts as expired
        or deleted.
    now : datetime, optional
        When `after` was loaded. If omitted, the time of the receipt, or the latest failure.

    Returns
    -------
    RetryOutcomes
        `.frame` has one row per entry, `.counts` one row per outcome.

    Raises
    ------
    InputError
        If a column is missing, or an option cannot be read.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-05 10:00", "2026-01-05 11:00", "2026-01-05 12:00"], utc=True)
    >>> before = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "failed_at": times,
    ...     "workflow_run_id": ["wfr_1", "wfr_2", "wfr_3"], "created_at": times})
    >>> runs = pd.DataFrame({"workflow_run_id": ["wfr_9"], "workflow_url": "u", "state": "RUN_SUCCESS",
    ...     "created_at": pd.to_datetime(["2026-01-05 13:00"], utc=True)})
    >>> find_retry_outcomes(before, before[2:], runs=runs, retried={"a": "wfr_9"}, retention="7d")
    3 entries: 1 deleted, 1 retried and succeeded, 1 still there
    """
    doing = "finding out what became of entries"
    columns = ["dlq_id", "workflow_url", "workflow_run_id"]
    select(before, columns, doing=doing, name="before")  # raises if it is not a frame
    names = opened(before, doing=doing, name="before").names
    history = [name for name in LOOKS if name in names]
    rows = select_timed(before, [*columns, *history], doing=doing, name="before")

    if is_relation(before):
        # the result has a row per entry, so that it has to fit into memory as well
        if rows.check is not None:
            rows.check(rows.names, doing=doing)
        facts = retry_facts(
            before, after, runs=runs, callbacks=callbacks, retried=retried, retention=retention, now=now,
            doing=doing,
        )  # fmt: skip
        computed = _computed(before, tuple(history), facts, doing)
        if computed is not None:
            return computed

    if after is None and runs is None and callbacks is None and retried is None:
        return _of_entries_alone(before, rows, retention, now, doing)

    table = rows.whole_table(doing)
    frame = pd.DataFrame(
        {name: table[name].to_pylist() for name in columns}, dtype=object
    )
    when = timestamps(table, "when_")
    presence = _presence(table)
    if now is not None:
        when_counted(now)  # raises if it is not a time
    if after is not None:
        presence = _compared(
            presence, frame["dlq_id"], after, start=_loaded_at(before, when), now=now
        )

    expires = pd.Series(pd.NaT, index=frame.index, dtype=_TIME)
    kept = kept_length(before, retention)
    if kept is not None:
        expires = (when + kept).astype(_TIME)
    assumed = _without_retry(frame, presence, expires, _starts(runs, doing), retried)
    is_gone = presence["missing"].notna()
    not_gone = UNKNOWN if after is None and not history else STILL_THERE
    outcomes = pd.DataFrame(
        {"outcome": assumed.where(is_gone, not_gone), "run": None}, dtype=object
    )
    _set_outcomes_of_runs(
        outcomes, frame, is_gone, _ended(runs, callbacks, doing), _new_runs(retried)
    )
    result = typed_frame(
        dlq_id=("str", frame["dlq_id"]),
        workflow_url=("str", frame["workflow_url"]),
        outcome=("str", outcomes["outcome"]),
        run=("str", outcomes["run"]),
        left_after=(_TIME, presence["seen"]),
        left_before=(_TIME, presence["missing"]),
        expires_at=(_TIME, expires),
    )

    return RetryOutcomes(result, tallied(result["outcome"]))


def _of_entries_alone(
    before: AnyFrame,
    rows: SelectedRows,
    retention: str | timedelta | None,
    now: datetime | None,
    doing: str,
) -> RetryOutcomes:
    """Return the outcomes that the entries show by themselves; workers of Dask compute their partitions."""
    if now is not None:
        when_counted(now)  # raises if it is not a time
    not_gone = UNKNOWN
    if any(name in rows.names for name in LOOKS):
        not_gone = STILL_THERE
    kept = kept_length(before, retention)
    table = rows.then(outcomes_without_runs(kept, not_gone)).whole_table(doing)
    result = typed_frame(
        dlq_id=("str", table["dlq_id"].to_pandas()),
        workflow_url=("str", table["workflow_url"].to_pandas()),
        outcome=("str", table["outcome"].to_pandas()),
        run=("str", [None] * table.num_rows),
        left_after=(_TIME, timestamps(table, "seen")),
        left_before=(_TIME, timestamps(table, "missing")),
        expires_at=(_TIME, timestamps(table, "expires")),
    )

    return RetryOutcomes(result, tallied(result["outcome"]))


def retry_facts(
    before: AnyFrame, after: AnyFrame | None, *, runs: AnyFrame | None, callbacks: AnyFrame | None,
    retried: Mapping[str, str] | None, retention: str | timedelta | None, now: datetime | None, doing: str,
) -> OutcomeFacts:  # fmt: skip
    """Return the facts of `find_retry_outcomes` for a query, with the times of both loads."""
    if now is not None:
        when_counted(now)  # raises if it is not a time
    names = opened(before, doing=doing, name="before").names
    start = end = None

    after_looks: tuple[str, ...] = ()
    if after is not None:
        later = opened(after, doing=doing, name="after").names
        after_looks = tuple(name for name in LOOKS if name in later)
        latest = _latest(before, "before", doing), _latest(after, "after", doing)
        start, end = times_of_loads(before, after, *latest, now)

    not_gone = STILL_THERE
    if after is None and not any(name in names for name in LOOKS):
        not_gone = UNKNOWN
    return OutcomeFacts(
        after=after, after_looks=after_looks, runs=runs, callbacks=callbacks, new_runs=_new_runs(retried),
        all_retries_known=retried is not None, start=start, end=end, kept=kept_length(before, retention),
        not_gone=not_gone,
    )  # fmt: skip


def times_of_loads(
    before: AnyFrame, after: AnyFrame, failed_before: _Times, failed_after: _Times, now: datetime | None
) -> tuple[pd.Timestamp, pd.Timestamp]:  # fmt: skip
    """Return when two frames were loaded, by the times of their failures if they have no receipt."""
    start = _loaded_at(before, failed_before)
    return start, _end_of_load(after, start, failed_after, now)


def _latest(frame: AnyFrame, name: str, doing: str) -> _Times:
    """Return the time of the latest failure."""
    latest = select_timed(frame, [], doing=doing, name=name).count(
        latest=("when_", "max")
    )
    return timestamps(latest, "latest")


def _computed(
    before: AnyFrame, history: tuple[str, ...], facts: OutcomeFacts, doing: str
) -> RetryOutcomes | None:
    """Return the outcomes of a DuckDB relation; None if SQL could give another result."""
    query = outcome_query(before, history, facts, doing=doing)
    if query is None:
        return None

    with read_errors_named():
        table = query.table(before)
    if table is None:
        return None

    times = {
        name: pd.Series(
            table[name].cast(pa.timestamp("us", "UTC")).to_pandas(), dtype="datetime64[us, UTC]"
        )
        for name in ("seen", "missing", "expires")
    }  # fmt: skip
    result = typed_frame(
        dlq_id=("str", table["dlq_id"].to_pandas()),
        workflow_url=("str", table["workflow_url"].to_pandas()),
        outcome=("str", table["outcome"].to_pandas()),
        run=("str", table["run"].to_pandas()),
        left_after=(_TIME, times["seen"].astype(_TIME)),
        left_before=(_TIME, times["missing"].astype(_TIME)),
        expires_at=(_TIME, times["expires"].astype(_TIME)),
    )
    return RetryOutcomes(result, tallied(result["outcome"]))


def _presence(table: pa.Table) -> pd.DataFrame:
    """Return when each entry was last seen (`seen`) and first missing (`missing`); NaT if it has not left."""
    presence = {}
    for column, stored in (("seen", "gone_after"), ("missing", "gone_before")):
        if stored in table.column_names:
            presence[column] = timestamps(table, stored).astype(_TIME)
        else:
            presence[column] = pd.Series(
                pd.NaT, index=range(table.num_rows), dtype=_TIME
            )

    return pd.DataFrame(presence)


def _compared(
    presence: pd.DataFrame,
    ids: pd.Series,
    after: AnyFrame,
    *,
    start: pd.Timestamp,
    now: datetime | None,
) -> pd.DataFrame:
    """Return the presence of entries, with entries that are missing in a later load, or gone there."""
    doing = "finding out what became of entries"
    names = opened(after, doing=doing, name="after").names
    looks = [name for name in LOOKS if name in names]
    later = select_timed(after, ["dlq_id", *looks], doing=doing, name="after")
    table = later.whole_table(doing)
    end = _end_of_load(after, start, timestamps(table, "when_"), now)
    has_left = ~ids.isin(table["dlq_id"].to_pylist()) & presence["missing"].isna()
    presence = presence.assign(
        seen=presence["seen"].mask(has_left, start),
        missing=presence["missing"].mask(has_left, end),
    )
    if looks != [*LOOKS]:
        return presence

    # a snapshot knows when an entry left better than two loads do
    stored = (
        _presence(table)
        .assign(id=table["dlq_id"].to_pylist())
        .dropna(subset=["id", "missing"])
    )
    stored = stored.drop_duplicates("id").set_index("id")
    has_left = ids.isin(stored.index) & presence["missing"].isna()
    stored = stored.reindex(ids).set_index(ids.index)

    return presence.assign(
        seen=presence["seen"].mask(has_left, stored["seen"]),
        missing=presence["missing"].mask(has_left, stored["missing"]),
    )


def _new_runs(retried: Mapping[str, str] | None) -> dict[Any, str]:
    """Return the run or message that retried each entry, if it is known."""
    if retried is None:
        return {}

    runs = mapping("retried", retried)
    return {entry: str(run) for entry, run in runs.items() if not missing(run)}


def _set_outcomes_of_runs(
    outcomes: pd.DataFrame, frame: pd.DataFrame, is_gone: pd.Series, ended: Mapping[str, str],
    new_runs: Mapping[Any, str],
) -> None:  # fmt: skip
    """Set the outcomes of entries that were retried, by a new run or, if the entry is gone, by the same."""
    own_outcomes = frame["workflow_run_id"].map(ended)
    # a failed run is no news: the entry exists because the run had failed
    by_own_run = is_gone & own_outcomes.isin((SUCCEEDED, CANCELED))
    outcomes.loc[by_own_run, "outcome"] = own_outcomes[by_own_run]
    outcomes.loc[by_own_run, "run"] = frame["workflow_run_id"][by_own_run]
    runs = frame["dlq_id"].map(new_runs)
    by_new_run = runs.notna()
    outcomes.loc[by_new_run, "outcome"] = [
        ended.get(run, RETRIED) for run in runs[by_new_run]
    ]
    outcomes.loc[by_new_run, "run"] = runs[by_new_run]


def kept_length(failures: AnyFrame, given: str | timedelta | None) -> timedelta | None:
    """Return how long the queue keeps entries; None if nobody stated it, or an entry contradicts it."""
    if given is not None:
        return stated_retention(given, None)

    receipt = receipt_of(failures)
    stated = stated_retention(None, None if receipt is None else receipt.retention)
    if stated is None or not retention_of(failures, stated).is_known:
        return None

    return stated


def _loaded_at(frame: AnyFrame, when: _Times) -> pd.Timestamp:
    """Return when a frame was loaded: the time of the receipt, or the latest failure."""
    receipt = receipt_of(frame)
    if receipt is not None:
        ended_at = pd.to_datetime(receipt.ended_at, utc=True, errors="coerce")
        if pd.notna(ended_at):
            return pd.Timestamp(ended_at)

    return pd.Timestamp(when.max())


def _end_of_load(
    after: AnyFrame, start: pd.Timestamp, when: _Times, now: datetime | None
) -> pd.Timestamp:
    """Return when the later load was made, which is not before the earlier one."""
    end = _loaded_at(after, when)
    if now is not None:
        end = pd.Timestamp(when_counted(now))
    if pd.notna(start):
        end = max(start, end)
    return end


def _ended(
    runs: AnyFrame | None, callbacks: AnyFrame | None, doing: str
) -> dict[str, str]:
    """Return the outcome of each run and message."""
    ended: dict[str, str] = {}
    if callbacks is not None:
        names = ["source_message_id", "delivered", "exhausted"]
        rows = (
            select(callbacks, names, doing=doing, name="callbacks")
            .whole_table(doing)
            .to_pydict()
        )
        for message, delivered, exhausted in zip(*rows.values(), strict=True):
            if delivered:
                ended[message] = SUCCEEDED
            elif exhausted:
                ended[message] = FAILED_AGAIN

    if runs is not None:
        rows = (
            select(runs, ["workflow_run_id", "state"], doing=doing, name="runs")
            .whole_table(doing)
            .to_pydict()
        )
        pairs = zip(rows["workflow_run_id"], rows["state"], strict=True)
        ended |= {run: OUTCOME_OF_STATE.get(state, RETRIED) for run, state in pairs}

    return ended


@dataclass(frozen=True)
class _Starts:
    """Start times of runs in nanoseconds, sorted: of all runs, and of each workflow."""

    all_runs: _Nanoseconds
    by_workflow: dict[str, _Nanoseconds]


def _starts(runs: AnyFrame | None, doing: str) -> _Starts | None:
    """Return the start times of the run log; None if it is not given or empty."""
    if runs is None:
        return None

    started = select(runs, ["workflow_url", "created_at"], doing=doing, name="runs")
    table = started.whole_table(doing)
    frame = pd.DataFrame(
        {
            "url": table["workflow_url"].to_pylist(),
            "at": timestamps(table, "created_at"),
        }
    )
    frame = frame.dropna()
    if frame.empty:
        return None

    frame = frame.assign(at=_nanoseconds(frame["at"])).sort_values("at")
    by_workflow = {str(url): at.to_numpy() for url, at in frame.groupby("url")["at"]}
    return _Starts(frame["at"].to_numpy(), by_workflow)


def _nanoseconds(times: _Times) -> _Nanoseconds:
    return np.asarray(
        times.astype("datetime64[ns, UTC]").astype("int64"), dtype=np.int64
    )


def _without_retry(
    frame: pd.DataFrame, presence: pd.DataFrame, expires: _Times,
    starts: _Starts | None, retried: Mapping[str, str] | None,
) -> pd.Series:  # fmt: skip
    """Return the outcomes of entries that left without a known retry: deleted, expired or unknown."""
    seen, missed = presence["seen"], presence["missing"]
    # An entry left at an unknown time between `seen` and `missed`. If it was last seen more than a day before
    # it expired, somebody may have deleted it earlier, so it stays unknown.
    is_expired = (expires <= missed) & (
        (expires <= seen) | (expires - seen <= SEEN_LATE)
    )
    left_early = missed.notna() & (expires > missed)

    if retried is not None:  # all retries are known
        had_no_run = pd.Series(data=True, index=frame.index)
    elif starts is None:
        had_no_run = pd.Series(data=False, index=frame.index)
    else:
        had_no_run = _had_no_run(
            frame, _nanoseconds(seen), _nanoseconds(missed), starts
        )

    outcomes = pd.Series(UNKNOWN, index=frame.index, dtype=object)
    return outcomes.mask(left_early & had_no_run, DELETED).mask(is_expired, EXPIRED)


def _had_no_run(
    frame: pd.DataFrame, seen: _Nanoseconds, missed: _Nanoseconds, starts: _Starts
) -> pd.Series:
    """Return whether the run log shows that no run of the workflow started while an entry left."""
    # A run log that begins later than the entry was last seen proves nothing about the time before.
    log_reaches_back = seen >= starts.all_runs[0]
    had_no_run = pd.Series(log_reaches_back, index=frame.index)
    for url, rows in frame.groupby("workflow_url").indices.items():
        times = starts.by_workflow.get(str(url), np.zeros(0, dtype=np.int64))
        # runs between the two times: the difference of the counts of runs until each of them
        runs = np.searchsorted(times, missed[rows], "right") - np.searchsorted(
            times, seen[rows], "right"
        )
        had_no_run.iloc[rows] &= runs == 0

    return had_no_run
