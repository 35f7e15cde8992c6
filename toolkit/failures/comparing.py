"""Compare failures of two times: find groups that are new, growing, shrinking, back again or gone.

`comparable_rows.py` reads the rows of both sides, and `changed_rates.py` decides which groups changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.base.arguments import positive, wrong
from toolkit.base.errors import InputError
from toolkit.base.time_zones import time_text
from toolkit.base.times import Time, parse_time
from toolkit.drawing.result_tables import Plotted, frame_table
from toolkit.drawing.wording import counted
from toolkit.failures.gaps import Spans, gaps_of, inside, overlap
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups, grouped_by_signature
from toolkit.failures.outcome_names import LEFT
from toolkit.failures.outcomes import find_retry_outcomes, kept_length
from toolkit.failures.selection import (
    opened,
    receipt_of,
    scanned,
    select,
    timestamps,
    told_until,
    when_counted,
)
from toolkit.failures.signed_failures import (
    grouped_columns,
    read_rules,
    with_learned,
)
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import visible
from toolkit.snapshots import Snapshot, open_snapshot
from toolkit.tables.signed_rows import SIGNATURE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

from toolkit.failures.changed_rates import CHANGES, changes_of, count_changes
from toolkit.failures.comparable_rows import (
    Sides,
    are_spans,
    at_times,
    check_memory,
    check_order,
    check_times,
    comparable,
    has_signatures,
    in_queue,
    latest_signed,
    when_failed,
)
from toolkit.failures.compared_rates import Rates, observed_span
from toolkit.failures.counted_frames import CountedFrames
from toolkit.failures.counted_sides import DividedFrame, side_counts

_TIME: Final = "datetime64[ms, UTC]"
_TYPES: Final = {
    "group": "str", "title": "str", "change": "str", "before": "Int64", "after": "Int64", "added": "Int64",
    "left": "Int64", "expected": "float64", "confidence": "float64", **dict.fromkeys(LEFT, "Int64"),
    "first_at": _TIME, "last_at": _TIME,
}  # fmt: skip


@dataclass(frozen=True)
class ComparisonTuning:
    """Constants of comparisons, with their reasons."""

    shown: int = 50
    """Groups that a notebook shows. More lines are not read; `.frame` has all groups."""


_TUNING: Final = ComparisonTuning()


@dataclass(frozen=True, eq=False, repr=False)
class FailureComparison(Plotted):
    """Changes of groups of failures; made by `compare_failures`. `plot` draws one line per group.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per group, changes that need attention first: `group`, `title` (str), `change` (str: new, back
        again, growing, missing before, shrinking, gone, steady), `before`, `after` (Int64, failures),
        `added`, `left` (Int64, failures only in `after` or only in `before`), `expected` (float64, failures
        of `after` at the earlier rate; if several rates are possible, the nearest number to `after`),
        `confidence` (float64, 0 to 1: that the rate changed), then the outcomes of the failures that left:
        `succeeded` (retried and succeeded), `retried` (retried without success), `deleted`, `expired`,
        `unknown` (Int64; the queue was not observed in between), and `first_at`, `last_at`
        (datetime64[ms, UTC], of all failures of the group).
    notes : tuple of str
        Limits of the comparison, for example that a load was not complete.
    rules : GroupRules
        The rules that were passed, with the learned rules. Pass them again to keep the group ids.

    Examples
    --------
    >>> from toolkit import compare_failures, load_failures
    >>> failures = load_failures(service, limit=250)
    >>> compare_failures(failures, failures).frame["change"].unique().tolist()
    ['steady']
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    rules: GroupRules

    @property
    def verdict(self) -> str:
        """Return one sentence with the number of groups per kind of change, and the first one."""
        sizes = self.frame["change"].value_counts()
        counts = [
            f"{sizes[change]:,} {change}" for change in CHANGES if change in sizes
        ]
        sentence = counted(len(self.frame), "group")
        if counts:
            sentence += f": {', '.join(counts)}"
        parts = [sentence]

        if len(self.frame) and not self.frame["after"].any():
            parts.append("no failure is on the later side")
        for first in self.frame.head(1).to_dict("records"):
            if first["change"] != "steady":
                numbers = f"{first['before']:,} to {first['after']:,}"
                parts.append(
                    f"{first['change']}: {visible(first['title'])} ({numbers})"
                )

        return visible("; ".join([*parts, *self.notes]))

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        columns = [
            "title",
            "change",
            "before",
            "after",
            "added",
            "left",
            "expected",
            "confidence",
        ]
        return frame_table(
            repr(self),
            self.frame[[*columns, "first_at", "last_at", "group"]].head(_TUNING.shown),
        )

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_comparison  # noqa: PLC0415 - matplotlib is slow to import

        return draw_comparison(self.frame, ax, theme)


def compare_failures(
    before: Any,
    after: Any = None,
    *,
    since: Time | None = None,
    snapshot: str | os.PathLike[str] | Snapshot | ds.Dataset | None = None,
    history: AnyFrame | None = None,
    exposure: float | None = None,
    runs: AnyFrame | None = None,
    retried: Mapping[str, str] | None = None,
    retention: str | timedelta | None = None,
    now: datetime | None = None,
    rules: str | Path | GroupRules | None = None,
) -> FailureComparison:
    """Compare failures before and since a time, two loads, or two times of a snapshot, by group.

    With `since`, one frame is divided by time, and the rate since then is compared with the rate before. A
    group is growing only if it fails more often than in the whole time before, and more often than since it
    began. If it clearly began later than the frame, only the rate since it began counts. For example, the 302
    failures of an error that began 26 hours before a deploy are 11.6 per hour, however long the frame is. A
    group clearly began later if chance does not explain (0.3 %) that all its failures before are so late.
    Failures within an hour count once, and at least three such hours are needed. The failures of its first
    hour only show when the rate begins. If you pass `exposure`, it holds for all groups.
    If a failure has no `failed_at`, the analysis uses `created_at`, as everywhere.

    Entries are matched by `dlq_id`. You can compare two loads of one queue, or two spans of time of one
    frame, if all failures of the later span come after the earlier ones. A group is growing if it fails more
    often per time than before, by more than bursts of retries and batches explain. The more groups are
    compared, the more certain this has to be. For example, a queue grows if failures are added at a constant
    rate, but the group is steady. A change is not proof of a cause.

    If two spans of time are compared, a group without a later failure is gone only if failures were expected:
    about three, or more if the earlier ones came in bursts. Otherwise it is steady, as no failure is no
    evidence. For example, a group with three failures in five days is steady if it had none in the last hour.
    If you compare two loads, a group is gone if the queue has no failure of it.

    A group of `after` that is not in `before` is usually new. If the first failure precedes the last failure
    of `before`, the group is "missing before", for example because a condition on `failed_at` removed the
    rows.

    Rows of a snapshot with `gone_before` have left the queue. If you compare two loads, they are not counted,
    so that the frames of two syncs give the same result as the snapshot at their times. If you compare two
    spans of time, every failure counts, also after it has left. Frames are spans if `exposure` is not 1, if
    they have the same receipt, or, without receipts, if the later frame begins after the earlier one ends and
    shares no entry with it.

    Parameters
    ----------
    before, after : frame, or time with `snapshot`
        With the columns of `load_failures`. With `snapshot`, the two times to compare, as `FailureFilter`
        reads them (``"2d"`` ago, a date, a timestamp). With `since`, `before` contains all failures, and you
        omit `after`.
    since : str, datetime or timedelta, optional
        The time that divides the failures of one frame, as `FailureFilter` reads it. Ages are counted from
        `now`, or from the end of the data if that is earlier. Gaps of a snapshot are excluded from the rates.
    snapshot : str, Path or Snapshot, optional
        Made by `sync_failures`, or a value of `open_snapshot`. Entries that had left by `before` are the
        history.
    history : frame, optional
        Failures from before `before`. A group that is only in the history and in `after` is back again.
    exposure : float, optional
        Ratio of the span of `before` to the span of `after`. If omitted, it is estimated from the first and
        the last failure of each frame, which a note mentions, or from `since`.
    runs, retried, retention, now
        Facts about entries that left, as in `find_retry_outcomes`. Ages are counted from `now`.
    rules : str, Path or GroupRules, optional
        As in `group_failures`.

    Returns
    -------
    FailureComparison
        `.frame` has one row per group.

    Raises
    ------
    InputError
        If a column is missing, a time or option cannot be read, or `after` is earlier than `before`, that is,
        every failure of `after` has a `failed_at` before the first failure of `before`.
    SnapshotError
        If the snapshot cannot be opened.

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
    retries = _RetryFacts(runs, retried, retention, now)

    if since is not None:
        division = _Division.at(before, since, retries, after=after, snapshot=snapshot)
        if history is None:
            compared = _counted(before, division, given, retries, exposure)
            if compared is not None:
                return compared
        check_memory(given, before=before, history=history)
        sides = _since(
            before, division, given, retries, exposure=exposure, signed=history is None
        )
    elif snapshot is None:
        if history is None:
            compared = _counted_frames(before, after, given, retries, exposure)
            if compared is not None:
                return compared
        check_memory(given, before=before, after=after, history=history)
        sides = _of_frames(
            before, after, given, retries, exposure, signed=history is None
        )
    else:
        sides = _of_snapshot(before, after, _opened(snapshot), given, retries, exposure)

    if history is not None and snapshot is None:
        sides.earlier = pa.concat_tables(
            [comparable(history, "history", given), sides.earlier]
        )

    groups, ids = grouped_by_signature(
        pa.concat_tables([sides.earlier, *sides.parts]), sides.rules
    )
    frame = count_changes(sides, np.array(ids, dtype=object))

    return _compared(frame, groups, sides.notes)


@dataclass(frozen=True)
class _RetryFacts:
    """Facts about entries that left, as `find_retry_outcomes` accepts them."""

    runs: AnyFrame | None
    retried: Mapping[str, str] | None
    retention: str | timedelta | None
    now: datetime | None

    @property
    def are_given(self) -> bool:
        """Return whether retries are known, which are then looked up per entry."""
        return self.runs is not None or self.retried is not None

    def outcomes(
        self, before: Any, after: Any = None, *, now: bool = True
    ) -> pd.DataFrame:
        return find_retry_outcomes(
            before, after, runs=self.runs, retried=self.retried, retention=self.retention,
            now=self.now if now else None,
        ).frame  # fmt: skip


@dataclass(frozen=True)
class _Division:
    """The time that divides the failures of one frame, the end of the data, and the gaps of a snapshot."""

    start: datetime
    end: datetime
    gaps: Spans

    @classmethod
    def at(
        cls, failures: Any, since: Time, retries: _RetryFacts, **others: object
    ) -> _Division:
        """Return the division at `since`; raise if there are `others` next to it."""
        for name, argument in others.items():
            if argument is not None:
                raise wrong(
                    "since",
                    since,
                    f"no {name} next to it",
                    "Pass one frame with all failures.",
                )

        opened(failures, doing="comparing failures", name="before")
        end = told_until(failures, when_counted(retries.now))
        start = parse_time(since, now=end, name="since")
        if start >= end:
            found = time_text(pd.Timestamp(end))
            raise wrong("since", since, f"a time before the data end, at {found}")

        return cls(start, end, gaps_of(failures))

    def exposure(self, first: Any) -> float:
        """Return the ratio of the time from the first failure to `start` to the time after it."""
        times = pd.Timestamp(self.start), pd.Timestamp(self.end)
        return _exposure(first, *times, self.gaps)


def _notes_of_division(failures: Any, untimed: int) -> list[str]:
    notes = _incomplete(failures, "before")
    if untimed:
        notes.append(f"{counted(untimed, 'failure')} without a time not compared")
    return notes


def _needs_rows(rules: GroupRules, retries: _RetryFacts) -> bool:
    """Return whether the rows are needed: to split groups, or to look up a retry per entry."""
    has_splits = any(rule.action == "split" for rule in rules.rules)
    return has_splits or retries.are_given


def _counted(
    failures: AnyFrame,
    division: _Division,
    rules: GroupRules,
    retries: _RetryFacts,
    exposure: float | None,
) -> FailureComparison | None:
    """Compare by counts that are computed where the rows are; None if the rows have to be read."""
    failures = scanned(failures, doing="comparing failures")
    rows = opened(failures, doing="comparing failures", name="before")
    if rows.check is None or _needs_rows(rules, retries) or not has_signatures(rows):
        return None

    columns = [*grouped_columns(rules), "workflow_run_id"]
    select(failures, columns, doing="comparing failures", name="before")
    kept = kept_length(failures, retries.retention)
    divided = DividedFrame(failures, division.start, division.gaps, kept)
    counts = divided.counts()
    if counts is None or not divided.has_unique_ids():
        return None

    exposure_since = None
    if exposure is None:
        exposure = division.exposure(divided.first)
        exposure_since = division.exposure
    groups, by_signature = divided.groups(with_learned(rules, failures))
    changes = changes_of(
        side_counts(counts, by_signature),
        exposure,
        are_spans=True,
        exposure_since=exposure_since,
    )

    return _compared(changes, groups, _notes_of_division(failures, divided.untimed))


def _counted_frames(
    before: Any,
    after: Any,
    rules: GroupRules,
    retries: _RetryFacts,
    exposure: float | None,
) -> FailureComparison | None:
    """Compare two frames by counts that are computed where the rows are; None if the rows have to be read."""
    doing = "comparing failures"
    before, after = (
        scanned(frame, doing=doing, name=name)
        for frame, name in ((before, "before"), (after, "after"))
    )
    columns = [*grouped_columns(rules), "workflow_run_id"]
    for frame, name in ((before, "before"), (after, "after")):
        select(frame, columns, doing=doing, name=name)
    latest = latest_signed(before, after)
    if latest is None or _needs_rows(rules, retries):
        return None

    kept = kept_length(before, retries.retention)
    frames = CountedFrames.of(before, after, kept, retries.now)
    if frames is None or not frames.have_ids:
        return None

    check_times(frames.first[0], frames.last[1], have_failed_at=frames.have_failed_at)
    is_one_history = exposure not in {None, 1} or frames.are_spans()
    counts = frames.counts(is_one_history=is_one_history)
    if counts is None:
        return None

    rates = Rates(exposure or 1.0)
    if exposure is None:
        rates = Rates.of_counts(counts)
    groups, by_signature = frames.groups(
        with_learned(rules, latest), is_one_history=is_one_history
    )
    early = frames.early_groups(counts, by_signature, is_one_history=is_one_history)
    changes = changes_of(
        side_counts(counts, by_signature, early),
        rates.exposure,
        rates.growth,
        are_spans=is_one_history,
    )
    notes = [*_incomplete(before, "before"), *_incomplete(after, "after")]

    return _compared(changes, groups, [*notes, *rates.notes])


def _since(
    failures: Any,
    division: _Division,
    rules: GroupRules,
    retries: _RetryFacts,
    *,
    exposure: float | None,
    signed: bool,
) -> Sides:
    """Divide the rows of one frame at a time."""
    rows = comparable(failures, "before", rules, signed=signed)
    rules = with_learned(rules, failures)
    when = when_failed(rows)
    start = division.start
    is_recent, is_earlier = (when >= start).to_numpy(), (when < start).to_numpy()
    # failures in a gap do not count for the rate: most of them were not seen
    in_gap = is_earlier & inside(division.gaps, when)
    is_old = is_earlier & ~in_gap
    notes = _notes_of_division(failures, int(when.isna().sum()))
    outcome = retries.outcomes(failures)["outcome"].to_numpy()[is_old]
    exposure_since = None
    if exposure is None:
        exposure = division.exposure(when[is_old].min())
        exposure_since = division.exposure

    parts = [rows.filter(pa.array(is_old)), rows.filter(pa.array(is_recent))]
    return Sides(
        parts, rows.filter(pa.array(in_gap)), outcome, rules, notes, exposure,
        are_spans=True, exposure_since=exposure_since,
    )  # fmt: skip


def _exposure(first: Any, cut: pd.Timestamp, end: pd.Timestamp, gaps: Spans) -> float:
    """Return the ratio of the time before a cut to the time after it, without gaps; 1 if unknown.

    For example, 6 days before the cut and 2 days after it give 3.
    """
    if pd.isna(first):  # no row is older
        return 1.0

    before = cut - first - overlap(gaps, first, cut)
    after = end - cut - overlap(gaps, cut, end)
    if min(before.total_seconds(), after.total_seconds()) <= 0:
        return 1.0

    return float(before.total_seconds() / after.total_seconds())


def _of_frames(
    before: Any,
    after: Any,
    rules: GroupRules,
    retries: _RetryFacts,
    exposure: float | None,
    *,
    signed: bool,
) -> Sides:
    """Compare two frames: spans of one history, or two loads of a queue."""
    latest = latest_signed(before, after) if signed else None
    signed = latest is not None
    parts = [
        comparable(before, "before", rules, signed=signed),
        comparable(after, "after", rules, signed=signed),
    ]
    # the later frame comes last, because it knows more of the ids that groups have had
    for frame in (latest if signed else after, before, after):
        rules = with_learned(rules, frame)
    check_order(*parts)
    notes = [*_incomplete(before, "before"), *_incomplete(after, "after")]
    is_one_history = exposure not in {None, 1} or are_spans(before, after, parts)
    old, placed = (when_failed(part) for part in parts)
    cut = old.max()

    if is_one_history:
        outcomes = retries.outcomes(before)
    else:
        outcomes = retries.outcomes(before, after)
        if None not in (receipt_of(before), receipt_of(after)):
            # an entry that was created before the first load may have failed after it
            placed = timestamps(parts[1], "failed_at").astype(placed.dtype)

        in_queue_before, in_queue_after = in_queue(before), in_queue(after)
        parts = [parts[0].filter(in_queue_before), parts[1].filter(in_queue_after)]
        outcomes = outcomes[in_queue_before.to_numpy(zero_copy_only=False)]
        placed = placed[in_queue_after.to_numpy(zero_copy_only=False)]

    sides = Sides(
        parts, parts[0].slice(0, 0), outcomes["outcome"].to_numpy(), rules, notes, exposure or 1.0,
        placed=placed, cut=cut, are_spans=is_one_history,
    )  # fmt: skip
    if exposure is None:
        _compare_rates(sides)
    return sides


def _compare_rates(sides: Sides) -> None:
    """Set `exposure` or `growth` by the times of the rows on both sides."""
    times = [when_failed(part).dropna() for part in sides.parts]
    ids = (set(part["dlq_id"].to_pylist()) for part in sides.parts)
    rates = Rates.of_spans(
        *(observed_span(len(when), when.min(), when.max()) for when in times),
        are_apart=set.isdisjoint(*ids),
    )
    sides.exposure, sides.growth = rates.exposure, rates.growth
    sides.notes += rates.notes


def _of_snapshot(
    before: Any,
    after: Any,
    source: ds.Dataset,
    rules: GroupRules,
    retries: _RetryFacts,
    exposure: float | None,
) -> Sides:
    """Compare the queue of a snapshot at two times."""
    start = parse_time(before, now=retries.now, name="before")
    end = parse_time(after, now=retries.now, name="after")
    if end < start:
        raise wrong("after", after, "a time that is not earlier than before")

    parts, earlier, notes = at_times(source, start, end, rules)
    rules = with_learned(rules, source)
    outcome = retries.outcomes(parts[0], now=False)["outcome"].to_numpy()
    sides = Sides(parts, earlier, outcome, rules, notes, exposure or 1.0)
    if exposure is None:
        _compare_rates(sides)
    return sides


def compare_grouped(
    before: pd.DataFrame,
    after: pd.DataFrame,
    groups: FailureGroups,
    *,
    exposure: float,
    exposure_since: Callable[[pd.Timestamp], float] | None = None,
) -> FailureComparison:
    """Compare two spans of one frame as `compare_failures` does, with the groups that `groups` assigned."""
    parts = [
        comparable(before, "before", groups.rules),
        comparable(after, "after", groups.rules),
    ]
    ids = pd.concat([before[SIGNATURE], after[SIGNATURE]]).tolist()
    outcome = find_retry_outcomes(before).frame["outcome"].to_numpy()
    sides = Sides(
        parts, parts[0].slice(0, 0), outcome, groups.rules, [], exposure, are_spans=True,
        exposure_since=exposure_since,
    )  # fmt: skip

    return _compared(count_changes(sides, np.array(ids, dtype=object)), groups, [])


def _compared(
    counts: pd.DataFrame, groups: FailureGroups, notes: Iterable[str]
) -> FailureComparison:
    missing = int((counts["change"] == "missing before").sum())
    if missing:
        note = f"{counted(missing, 'group')} failed before that, and not in the earlier frame"
        notes = [*notes, note]
    titles = groups.frame.set_index("group")["title"]
    frame = counts.assign(title=counts["group"].map(titles))
    order = frame.assign(
        place=frame["change"].map(CHANGES.index),
        less=-(frame["after"] - frame["before"]).abs(),
    ).sort_values(["place", "less", "group"], ignore_index=True)

    return FailureComparison(
        order[list(_TYPES)].astype(_TYPES), tuple(notes), groups.rules
    )


def _incomplete(frame: Any, name: str) -> list[str]:
    receipt = receipt_of(frame)
    if receipt is None or receipt.complete:
        return []

    return [f"the load {name} was not complete"]


def _opened(snapshot: str | os.PathLike[str] | Snapshot | ds.Dataset) -> ds.Dataset:
    if isinstance(snapshot, ds.Dataset):
        return snapshot
    if isinstance(snapshot, Snapshot):
        return snapshot.to_arrow()

    try:
        return open_snapshot(snapshot).to_arrow()
    except InputError:
        raise wrong(
            "snapshot", snapshot, "the path of a snapshot, or a value of open_snapshot"
        ) from None
