"""What changed between two times: groups of failures that are new, grew, shrank, came back or are gone."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from toolkit.analysis.change_points import dispersion
from toolkit.analysis.gaps import Spans, gaps_of, inside, overlap
from toolkit.analysis.group_rules import LABELS, GroupRules
from toolkit.analysis.grouping import (
    FailureGroups,
    grouped_by_signature,
    grouped_columns,
    read_rules,
    with_learned,
)
from toolkit.analysis.outcomes import LEFT, retry_outcomes
from toolkit.analysis.selection import (
    opened,
    receipt_of,
    select,
    select_timed,
    timestamps,
    told_until,
    typed_frame,
    when_counted,
)
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import positive, wrong
from toolkit.drawing.wording import Plotted, counted, frame_table
from toolkit.errors import InputError
from toolkit.freshness import span_text
from toolkit.redaction import visible
from toolkit.signatures.signed_rows import SIGNATURE
from toolkit.snapshots import scan_snapshot
from toolkit.snapshots.data_files import STORED_FAILURES
from toolkit.tables.schemas import FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE, TIME
from toolkit.time_zones import time_text
from toolkit.times import Time, parse_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

CHANGES: Final = ("new", "back again", "growing", "missing before", "shrinking", "gone", "steady")
"""What can be said of a group, what needs attention first."""

_CONFIDENT: Final = 0.997  # three standard deviations
_MOST_BINS: Final = 2_000
_BUSY: Final = 8  # failures of a group from which on its own bursts are measured
_HOUR: Final = 3_600_000  # milliseconds
_LEAST_SPAN: Final = pd.Timedelta(hours=1)  # a shorter span of failures tells no rate
_SAME: Final = (0.95, 1.05)  # ratios of two spans that count as equally long
_SHOWN: Final = 50  # groups that a notebook shows
_OF_SNAPSHOT: Final = (FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE)
_TIME: Final = "datetime64[ms, UTC]"
_TYPES: Final = {
    "group": "str", "title": "str", "change": "str", "before": "Int64", "after": "Int64", "added": "Int64",
    "left": "Int64", "expected": "float64", "confidence": "float64", **dict.fromkeys(LEFT, "Int64"),
    "first_at": _TIME, "last_at": _TIME,
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class FailureComparison(Plotted):
    """How groups of failures changed; made by `compare_failures`. `plot` draws a line a group.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row a group, what needs attention first: `group`, `title` (str), `change` (str: new, back again,
        growing, missing before, shrinking, gone, steady), `before`, `after` (Int64, failures), `added`,
        `left` (Int64, those that are only in one of both), `expected` (float64, what `after` would be at the
        rate of before),
        `confidence` (float64, 0 to 1: that the rate changed), then what became of those that left:
        `succeeded` (retried and succeeded), `retried` (retried, and not succeeded), `deleted`, `expired`,
        `unknown` (Int64; the queue was not observed in between), and `first_at`, `last_at` (datetime64[ms,
        UTC], of all failures of the group that were given).
    notes : tuple of str
        What limits the comparison, such as a load that was not complete.
    rules : GroupRules
        The rules given, with what was learned: given again, they keep the id of every group.

    Examples
    --------
    >>> from toolkit import compare_failures, load_failures
    >>> failures = load_failures(service, progress=False)
    >>> compare_failures(failures, failures).frame["change"].unique().tolist()
    ['steady']
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    rules: GroupRules

    def __repr__(self) -> str:
        sizes = self.frame["change"].value_counts()
        counts = ", ".join(f"{sizes[change]:,} {change}" for change in CHANGES if change in sizes)
        text = f"{counted(len(self.frame), 'group')}{f': {counts}' * bool(counts)}"
        if len(self.frame) and self.frame["change"].iloc[0] != "steady":
            first = self.frame.iloc[0]
            numbers = f"{first['before']:,} to {first['after']:,}"
            text += f"; {first['change']}: {visible(first['title'])} ({numbers})"
        return visible("; ".join([text, *self.notes]))

    def _repr_html_(self) -> str:
        columns = ["title", "change", "before", "after", "added", "left", "expected", "confidence"]
        return frame_table(repr(self), self.frame[[*columns, "first_at", "last_at", "group"]].head(_SHOWN))

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_comparison  # noqa: PLC0415 - matplotlib is slow to import

        return draw_comparison(self.frame, ax, theme)


def compare_failures(
    before: Any,
    after: Any = None,
    *,
    since: Time | None = None,
    snapshot: str | os.PathLike[str] | ds.Dataset | None = None,
    history: AnyFrame | None = None,
    exposure: float | None = None,
    runs: AnyFrame | None = None,
    retried: Mapping[str, str] | None = None,
    retention: str | timedelta | None = None,
    now: datetime | None = None,
    rules: str | Path | GroupRules | None = None,
) -> FailureComparison:
    """Compare failures before and since a time, two loads, or two times of a snapshot, by group.

    With `since`, one frame is divided by time, and the rate since then is compared with the rate before.
    A failure without `failed_at` is placed at `created_at`, as in every analysis.

    Entries are matched by `dlq_id`, so that two loads of one queue can be compared as well as the failures of
    two spans of time (of one frame, the later all after the earlier). A group is growing if it fails more
    often per time than before, by more than its bursts of retries and batches explain. A queue to which a
    steady stream is added grows, and its group is steady. Not proof of a cause.

    A group that only `after` contains, and whose first failure precedes the last of `before`, is not new: it
    is missing before, for example because a condition on `failed_at` left its rows out.

    Rows of a snapshot with `gone_before` have left the queue. Of two loads they are not counted, so that the
    frames of two syncs say the same as the snapshot at their times. Of two spans of time every failure
    counts, those that have left since, too. Frames are spans when `exposure` is not 1, when they have one
    receipt, or, without receipts, when the later begins after the earlier ends and has no entry of it.

    Parameters
    ----------
    before, after : frame, or time with `snapshot`
        With the columns of `load_failures`. With `snapshot`, the times at which its queue is compared, as
        `FailureFilter` reads them (``"2d"`` ago, a date, a timestamp). With `since`, `before` contains all
        failures, and `after` is left out.
    since : str, datetime or timedelta, optional
        The time that divides the failures of one frame, as `FailureFilter` reads it. Ages are counted from
        `now`, or from when the data end if that is earlier. Gaps of a snapshot are left out of the rates.
    snapshot : str, Path or pyarrow.dataset.Dataset, optional
        Made by `sync_failures`, or what `scan_snapshot` returned. What had left by `before` is its history.
    history : frame, optional
        Failures from before `before`: a group that is only there and in `after` is back again.
    exposure : float, optional
        How many times longer the span of `before` is than that of `after`. Default: by the first and the
        last failure of each frame, which a note names, or by `since`.
    runs, retried, retention, now
        What is known of entries that left, as in `retry_outcomes`. `now` is also what ages count from.
    rules : str, Path or GroupRules, optional
        As in `group_failures`.

    Returns
    -------
    FailureComparison
        `.frame` has one row a group.

    Raises
    ------
    InputError
        When a column is missing, a time or option cannot be read, or `after` is earlier than `before`: of
        two frames, when every failure of `after` has a `failed_at` before the first of `before`.
    SnapshotError
        When the snapshot cannot be opened.

    Examples
    --------
    >>> def failures(*bodies):
    ...     times = pd.to_datetime(["2026-01-01"] * len(bodies), utc=True)
    ...     return pd.DataFrame({"dlq_id": list(bodies), "workflow_url": "u", "workflow_run_id": "w",
    ...         "failed_at": times, "created_at": times, "response_status": 500,
    ...         "response_body": [body.strip("0123456789") for body in bodies],
    ...         "response_body_base64": [None] * len(bodies)})
    >>> before = failures("disk full1", "disk full2", "no route1")
    >>> compare_failures(before, failures("disk full2", "disk full3", "bad token1"))
    3 groups: 1 new, 1 gone, 1 steady; new: bad token (0 to 1)
    """
    if exposure is not None:
        exposure = positive("exposure", exposure)
    given = read_rules(rules)
    retries = _Retries(runs, retried, retention, now)
    if since is not None:
        found = _since(before, after, since, given, retries, snapshot=snapshot, exposure=exposure)
    elif snapshot is None:
        found = _of_frames(before, after, given, retries, exposure)
    else:
        found = _of_snapshot(before, after, _opened(snapshot), given, retries, exposure)
    if history is not None and snapshot is None:
        found.earlier = pa.concat_tables([comparable(history, "history", given), found.earlier])
    groups, ids = grouped_by_signature(pa.concat_tables([found.earlier, *found.parts]), found.rules)
    frame = _counted(found, np.array(ids, dtype=object))
    missing = int((frame["change"] == "missing before").sum())
    if missing:
        found.notes.append(f"{counted(missing, 'group')} failed before that, and not in the earlier frame")
    return _compared(frame, groups, found.notes)


@dataclass(frozen=True)
class _Retries:
    """What is known of entries that left, as `retry_outcomes` takes it."""

    runs: AnyFrame | None
    retried: Mapping[str, str] | None
    retention: str | timedelta | None
    now: datetime | None

    def outcomes(self, before: Any, after: Any = None, *, now: bool = True) -> pd.DataFrame:
        return retry_outcomes(
            before, after, runs=self.runs, retried=self.retried, retention=self.retention,
            now=self.now if now else None,
        ).frame  # fmt: skip


@dataclass
class _Compared:
    """What is compared: the rows of both sides, those from before, and how their times relate.

    `exposure` is how many times longer the earlier span is. `growth` is how much longer the later one of two
    loads is than the earlier, as a share of it. `placed` are the times of the later rows that show a group to
    be older than `cut`.
    """

    parts: list[pa.Table]
    earlier: pa.Table
    outcome: NDArray[np.object_]
    rules: GroupRules
    notes: list[str]
    exposure: float = 1.0
    growth: float = 0.0
    placed: pd.Series | None = None
    cut: pd.Timestamp | None = None


def _since(
    failures: Any, after: Any, since: Time, rules: GroupRules, retries: _Retries, *, snapshot: object,
    exposure: float | None,
) -> _Compared:  # fmt: skip
    """One frame, divided at a time."""
    if after is not None or snapshot is not None:
        other = "after" if after is not None else "snapshot"
        raise wrong("since", since, f"no {other} next to it", "Give one frame with all failures.")
    rows = comparable(failures, "before", rules)
    when = when_failed(rows)
    end = told_until(failures, when_counted(retries.now))
    start = parse_time(since, now=end, name="since")
    if start >= end:
        raise wrong("since", since, f"a time before the data end, at {time_text(pd.Timestamp(end))}")
    recent, gaps = (when >= start).to_numpy(), gaps_of(failures)
    # too few were seen in a gap to tell a rate
    in_gap = (when < start).to_numpy() & inside(gaps, when)
    old = (when < start).to_numpy() & ~in_gap
    notes = _incomplete(failures, "before")
    untimed = int(when.isna().sum())
    if untimed:
        notes.append(f"{counted(untimed, 'failure')} without a time not compared")
    outcome = retries.outcomes(failures)["outcome"].to_numpy()[old]
    if exposure is None:
        exposure = _exposure(when[old].min(), pd.Timestamp(start), pd.Timestamp(end), gaps)
    parts = [rows.filter(pa.array(mask)) for mask in (old, recent)]
    return _Compared(parts, rows.filter(pa.array(in_gap)), outcome, rules, notes, exposure)


def _exposure(first: Any, cut: pd.Timestamp, end: pd.Timestamp, gaps: Spans) -> float:
    """How many times longer the time before a cut is than the time since, without gaps; 1 if unknown."""
    if pd.isna(first):  # no row is older
        return 1.0
    before = cut - first - overlap(gaps, first, cut)
    after = end - cut - overlap(gaps, cut, end)
    if min(before.total_seconds(), after.total_seconds()) <= 0:
        return 1.0
    return float(before.total_seconds() / after.total_seconds())


def _of_frames(
    before: Any, after: Any, rules: GroupRules, retries: _Retries, exposure: float | None
) -> _Compared:
    """Two frames: spans of one history, or two loads of a queue."""
    parts = [comparable(frame, name, rules) for frame, name in ((before, "before"), (after, "after"))]
    _check_order(*parts)
    notes = [*_incomplete(before, "before"), *_incomplete(after, "after")]
    spans = exposure not in {None, 1} or _are_spans(before, after, parts)
    outcomes = retries.outcomes(before, None if spans else after)
    old, later = (when_failed(part) for part in parts)
    cut = old.max()
    if spans or None in (receipt_of(before), receipt_of(after)):
        placed = later
    else:  # what was created before the first load may have failed since
        placed = timestamps(parts[1], "failed_at").astype(later.dtype)
    if not spans:
        there = [_is_there(frame) for frame in (before, after)]
        parts = [part.filter(mask) for part, mask in zip(parts, there, strict=True)]
        placed = placed[there[1].to_numpy(zero_copy_only=False)]
        outcomes = outcomes[there[0].to_numpy(zero_copy_only=False)]
    found = _Compared(
        parts, parts[0].slice(0, 0), outcomes["outcome"].to_numpy(), rules, notes, exposure or 1.0,
        placed=placed, cut=cut,
    )  # fmt: skip
    if exposure is None:
        _compare_rates(found)
    return found


def _compare_rates(found: _Compared) -> None:
    """Set how the spans relate, by the times of the rows on both sides."""
    before, after = (_span(when_failed(part)) for part in found.parts)
    if min(before, after) < _LEAST_SPAN:
        return
    ids = (set(part["dlq_id"].to_pylist()) for part in found.parts)
    if set.isdisjoint(*ids):
        found.exposure = float(before / after)
    else:
        found.growth = max(float(after / before) - 1, 0.0)
    if not _SAME[0] < before / after < _SAME[1]:
        found.notes.append(
            f"by rates: before spans {span_text(before)}, after {span_text(after)}, by their failures"
        )


def _span(when: pd.Series) -> pd.Timedelta:
    """How long failures were observed, by their times: from the first to the last, and a usual step more."""
    times = when.dropna()
    if len(times) <= 1:
        return pd.Timedelta(0)
    return pd.Timedelta((times.max() - times.min()) * (len(times) / (len(times) - 1)))


def _of_snapshot(
    before: Any, after: Any, source: ds.Dataset, rules: GroupRules, retries: _Retries, exposure: float | None
) -> _Compared:
    """The queue of a snapshot at two times."""
    start = parse_time(before, now=retries.now, name="before")
    end = parse_time(after, now=retries.now, name="after")
    if end < start:
        raise wrong("after", after, "a time that is not earlier than before")
    parts, earlier, notes = _at_times(source, start, end, rules)
    rules = with_learned(rules, source)
    outcome = retries.outcomes(parts[0], now=False)["outcome"].to_numpy()
    found = _Compared(parts, earlier, outcome, rules, notes, exposure or 1.0)
    if exposure is None:
        _compare_rates(found)
    return found


def compare_grouped(
    before: pd.DataFrame, after: pd.DataFrame, groups: FailureGroups, *, exposure: float
) -> FailureComparison:
    """`compare_failures` of two spans of one frame, each row with its group as `groups` assigned it."""
    parts = [comparable(frame, name, groups.rules) for frame, name in ((before, "before"), (after, "after"))]
    ids = pd.concat([before[SIGNATURE], after[SIGNATURE]]).tolist()
    outcome = retry_outcomes(before).frame["outcome"].to_numpy()
    found = _Compared(parts, parts[0].slice(0, 0), outcome, groups.rules, [], exposure)
    return _compared(_counted(found, np.array(ids, dtype=object)), groups, [])


def _compared(counted: pd.DataFrame, groups: FailureGroups, notes: list[str]) -> FailureComparison:
    titles = groups.frame.set_index("group")["title"]
    frame = counted.assign(title=counted["group"].map(titles))
    order = frame.assign(
        place=frame["change"].map(CHANGES.index), less=-(frame["after"] - frame["before"]).abs()
    ).sort_values(["place", "less", "group"], ignore_index=True)
    return FailureComparison(order[list(_TYPES)].astype(_TYPES), tuple(notes), groups.rules)


def comparable(failures: Any, name: str, rules: GroupRules) -> pa.Table:
    """What is compared of a frame, of one schema whatever it is made of; rows without an id get one."""
    columns = [*grouped_columns(rules, [LABELS]), "workflow_run_id"]
    rows = opened(failures, doing="comparing failures", name=name)
    known = [column for column in columns if column != LABELS or column in rows.names]
    table = select_timed(rows, known, doing="comparing failures", name=name).table()
    if len(known) < len(columns):
        table = table.append_column(LABELS, pa.nulls(table.num_rows, pa.string()))
    columns += ["failed_at", "created_at"]
    numbers = {"response_status": pa.float64()}
    types = {field.name: field.type for field in STORED_FAILURES} | numbers
    schema = pa.schema([(column, types[column]) for column in columns])
    try:
        table = table.select(columns).cast(schema, safe=False)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"comparing failures, {name}", got=str(error)[:120], expected="columns as loaders write them"
        ) from None
    ids = [id_ if id_ is not None else f"{name} {row}" for row, id_ in enumerate(table["dlq_id"].to_pylist())]
    return table.set_column(columns.index("dlq_id"), "dlq_id", pa.array(ids, pa.string()))


def _incomplete(frame: Any, name: str) -> list[str]:
    receipt = receipt_of(frame)
    return [f"the load {name} was not complete"] if receipt is not None and not receipt.complete else []


def _opened(snapshot: str | os.PathLike[str] | ds.Dataset) -> ds.Dataset:
    if isinstance(snapshot, ds.Dataset):
        return snapshot
    try:
        return scan_snapshot(snapshot)
    except InputError:
        raise wrong("snapshot", snapshot, "the path of a snapshot, or what scan_snapshot returned") from None


def _check_order(before: pa.Table, after: pa.Table) -> None:
    """The error for two frames that can only have been swapped."""
    first, last = when_failed(before).min(), when_failed(after).max()
    # at `created_at` a failure counts as earlier than it was
    if not after["failed_at"].null_count and last < first:  # never of NaT
        raise InputError(
            "comparing failures",
            got=f"failures until {time_text(last)} as after, and from {time_text(first)} on as before",
            expected="the earlier failures first",
            next_step="Swap them: compare_failures(before, after).",
        )


def _are_spans(before: Any, after: Any, parts: list[pa.Table]) -> bool:
    """Whether two frames are spans of one history, so that what is missing in the later has not left."""
    receipts = receipt_of(before), receipt_of(after)
    if None not in receipts:
        return receipts[0] == receipts[1]
    last, first = when_failed(parts[0]).max(), when_failed(parts[1]).min()
    earlier, later = (set(part["dlq_id"].to_pylist()) for part in parts)
    return bool(first > last) and earlier.isdisjoint(later)


def _is_there(failures: Any) -> pa.ChunkedArray:
    """Which rows had not left the queue when they were loaded."""
    gone = GONE_BEFORE in opened(failures, doing="comparing failures").names
    rows = select(failures, [GONE_BEFORE if gone else "dlq_id"], doing="comparing failures").table()
    return (
        pc.is_null(rows[GONE_BEFORE])
        if gone
        else pa.chunked_array([pa.array([True] * rows.num_rows, pa.bool_())])
    )


def _at_times(
    source: ds.Dataset, start: datetime, end: datetime, rules: GroupRules
) -> tuple[list[pa.Table], pa.Table, list[str]]:
    """What was in the queue at each of two times, what had left it before the first, and what limits that."""
    columns = [*grouped_columns(rules, source.schema.names), "workflow_run_id", "failed_at", "created_at"]
    columns += _OF_SNAPSHOT
    missing = [name for name in columns if name not in source.schema.names]
    if missing:
        raise wrong("snapshot", source, f"a snapshot with {', '.join(missing)}", "sync_failures makes one.")
    columns += [SIGNATURE] * (SIGNATURE in source.schema.names)
    table = source.to_table(columns=columns)
    known = _entered(table)
    there = []
    for when in (start, end):
        at = pa.scalar(when, TIME)
        left = pc.fill_null(pc.less_equal(table[GONE_BEFORE], at), False)
        there.append(pc.and_(pc.fill_null(pc.less_equal(known, at), False), pc.invert(left)))
    gone = pc.fill_null(pc.less_equal(table[GONE_BEFORE], pa.scalar(start, TIME)), False)
    first = pc.min(table[FIRST_SEEN_AT]).as_py()
    notes = []
    if first is not None and first > start:
        notes.append(f"the queue was not observed before {first:%Y-%m-%d %H:%M} UTC")
    return [table.filter(mask) for mask in there], table.filter(gone), notes


def _entered(table: pa.Table) -> pa.Array:
    """Since when each entry was in the queue for certain.

    Since its failure; where a look at the queue after that did not show it, since it was seen.
    """
    failed, seen, gone = (
        timestamps(table, name).astype("datetime64[ms, UTC]")
        for name in ("failed_at", FIRST_SEEN_AT, GONE_BEFORE)
    )
    failed = failed.fillna(timestamps(table, "created_at").astype(failed.dtype)).fillna(seen)
    looks = pd.concat([seen, gone]).dropna().drop_duplicates().sort_values(ignore_index=True)
    earlier = looks.searchsorted(seen.fillna(pd.Timestamp(0, tz="UTC")))
    previous = pd.concat([pd.Series([pd.NaT], dtype=looks.dtype), looks]).take(earlier)
    missed = pd.Series(previous.to_numpy() >= failed.to_numpy(), index=failed.index)
    return pa.array(failed.mask(missed, seen), TIME)


def _counted(found: _Compared, groups: NDArray[np.object_]) -> pd.DataFrame:
    """Counts by group, and what they say."""
    earlier, parts, outcome, exposure = found.earlier, found.parts, found.outcome, found.exposure
    bounds = np.cumsum([earlier.num_rows, *(part.num_rows for part in parts)])
    known, *of_parts = np.split(groups, bounds[:-1])
    old, later = (
        pd.DataFrame({"group": group, "id": part["dlq_id"].to_pylist(), "at": when_failed(part)})
        for group, part in zip(of_parts, parts, strict=True)
    )
    old, later = old.assign(outcome=outcome).drop_duplicates("id"), later.drop_duplicates("id")
    left, added = old[~old["id"].isin(later["id"])], later[~later["id"].isin(old["id"])]
    names = sorted({*old["group"], *later["group"]})
    every = pd.concat([old, later]).drop_duplicates("id", keep="last")
    times = every.groupby("group")["at"].agg(["min", "max"]).reindex(names)

    def sizes(rows: pd.DataFrame) -> NDArray[np.float64]:
        counts = rows["group"].value_counts().reindex(names, fill_value=0)
        return np.asarray(counts, dtype=np.float64)

    before, after = sizes(old), sizes(later)
    bursts = _bursts(every, names)
    confidence = _confidence(sizes(added), sizes(left), before, after, exposure, bursts)
    rate = before / exposure
    if found.growth:  # more in a queue is growth only if more was added per time, too
        rising = _confidence_of_added(sizes(added), before, found.growth, bursts)
        confidence = np.where(after > before, np.minimum(confidence, rising), confidence)
        rate = before * (1 + found.growth)
    grown, more = confidence >= _CONFIDENT, after > before / exposure
    back = pd.Index(names).isin(known)
    missing = np.zeros(len(names), dtype=bool)
    if found.placed is not None and len(of_parts[1]):
        first = found.placed.reset_index(drop=True).groupby(of_parts[1]).min().reindex(names)
        missing = (first < found.cut).to_numpy()
    change = np.select(
        [(before == 0) & back, (before == 0) & missing, before == 0, after == 0, grown & more, grown],
        ["back again", "missing before", "new", "gone", "growing", "shrinking"],
        "steady",
    )
    return typed_frame(
        group=("str", names),
        change=("str", change),
        before=("Int64", before),
        after=("Int64", after),
        added=("Int64", sizes(added)),
        left=("Int64", sizes(left)),
        expected=("float64", rate),
        confidence=("float64", confidence),
        **{name: ("Int64", sizes(left[left["outcome"].isin(those)])) for name, those in LEFT.items()},
        first_at=("datetime64[ms, UTC]", times["min"].to_numpy()),
        last_at=("datetime64[ms, UTC]", times["max"].to_numpy()),
    )


def when_failed(table: pa.Table) -> pd.Series:
    """When each row of `comparable` counts as failed, as everywhere: none where that is not plausible."""
    when = timestamps(select_timed(table, [], doing="comparing failures").table(), "when_")
    return when.astype("datetime64[ms, UTC]")


def _bursts(rows: pd.DataFrame, names: list[str]) -> NDArray[np.float64]:
    """How many times more than by chance the counts of each group vary; of small groups, those of all."""
    dated = rows.dropna(subset="at")
    at = dated["at"].astype("int64").to_numpy()
    if not len(at):
        return np.ones(len(names))
    width = max(_HOUR, math.ceil((at.max() - at.min() + 1) / _MOST_BINS))
    bins = (at - at.min()) // width
    length = int(bins.max()) + 1

    def measured(rows: Any) -> float:
        counts = np.bincount(bins[rows], minlength=length).astype(np.float64)
        return dispersion(counts, np.ones(length))

    busy = {
        name: measured(rows) for name, rows in dated.groupby("group").indices.items() if len(rows) >= _BUSY
    }
    typical = float(np.median([*busy.values()])) if busy else 1.0
    return np.array([busy.get(name, typical) for name in names])


def _confidence_of_added(
    added: NDArray[np.float64], before: NDArray[np.float64], growth: float, bursts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """That more was added per time than before: none unless it is more; two-sided, normal, as below.

    For example, 980 in 14 days and 70 more in a day: growth is 1/14, and 70 more are expected.
    """
    expected = before * growth
    per_span = (before + added) / (1 + growth)  # in as long a time as before
    deviation = np.sqrt(bursts * np.maximum(added + per_span * growth * growth, 1e-9))
    z = np.maximum(added - expected - 0.5, 0) / deviation
    return np.array([math.erf(score / math.sqrt(2)) for score in z])


def _confidence(
    added: NDArray[np.float64], left: NDArray[np.float64], before: NDArray[np.float64],
    after: NDArray[np.float64], exposure: float, bursts: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """That a rate changed: two-sided, normal, by what was added and left, with the variance of bursts."""
    usual = (added + left) / (1 + exposure)
    deviation = np.sqrt(bursts * np.maximum(usual, 1e-9) * (1 + 1 / exposure))
    z = np.maximum(np.abs(after - before / exposure) - 0.5, 0) / deviation
    return np.array([math.erf(score / math.sqrt(2)) for score in z])
