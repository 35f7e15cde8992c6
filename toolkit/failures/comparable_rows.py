"""Read the rows of the two sides of a comparison, and tell how their times are related.

Two frames are spans of one history, or two loads of a queue, or a snapshot at two times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from toolkit.base.arguments import wrong
from toolkit.base.errors import InputError
from toolkit.base.time_zones import time_text
from toolkit.failures.group_rules import LABELS, GroupRules
from toolkit.failures.selection import (
    facts_of,
    opened,
    receipt_of,
    select,
    select_timed,
    timestamps,
)
from toolkit.failures.signed_failures import grouped_columns
from toolkit.failures.sources import SelectedRows
from toolkit.signatures.signing import continues
from toolkit.snapshots.data_files import STORED_FAILURES
from toolkit.tables.schemas import FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE, TIME
from toolkit.tables.signed_rows import SIGNATURE

_DOING: Final = "comparing failures"
_OF_SNAPSHOT: Final = (FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE)


@dataclass
class Sides:
    """The rows of both sides of a comparison, the earlier rows, and the relation of their times.

    `exposure` is the ratio of the earlier span to the later one. `growth` is the time that the later of two
    loads adds, as a share of the time of the earlier load. `placed` has the times of the later rows: if one
    is before `cut`, the group is not new. With `are_spans`, both sides are spans of one history, not two
    loads. `exposure_since` returns the exposure of a group whose first failure was at a time.
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
    are_spans: bool = False
    exposure_since: Callable[[pd.Timestamp], float] | None = None


def comparable(
    failures: Any, name: str, rules: GroupRules, *, signed: bool = False
) -> pa.Table:
    """Return the columns of a frame that are compared, with one schema. Rows without an id get an id.

    With `signed`, the result also has the stored signatures, if the frame has them.
    """
    columns, timed = _compared_rows(failures, name, rules, signed=signed)
    table = timed.whole_table(_DOING)
    if LABELS not in table.column_names:
        table = table.append_column(LABELS, pa.nulls(table.num_rows, pa.string()))
    columns += ["failed_at", "created_at"]
    numbers = {"response_status": pa.float64(), SIGNATURE: pa.string()}
    types = {field.name: field.type for field in STORED_FAILURES} | numbers
    schema = pa.schema([(column, types[column]) for column in columns])

    try:
        table = table.select(columns).cast(schema, safe=False)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"comparing failures, {name}",
            got=str(error)[:120],
            expected="columns as loaders write them",
        ) from None

    made_ids = pa.array([f"{name} {row}" for row in range(table.num_rows)], pa.string())
    ids = pc.coalesce(table["dlq_id"], made_ids)
    return table.set_column(columns.index("dlq_id"), "dlq_id", ids)


def _compared_rows(
    failures: Any, name: str, rules: GroupRules, *, signed: bool
) -> tuple[list[str], SelectedRows]:
    """Return the names of the columns that are compared, and the columns that the frame has."""
    columns = [*grouped_columns(rules, [LABELS]), "workflow_run_id"]
    rows = opened(failures, doing=_DOING, name=name)
    if signed and has_signatures(rows):
        columns.append(SIGNATURE)
    known = [column for column in columns if column != LABELS or column in rows.names]

    return columns, select_timed(rows, known, doing=_DOING, name=name)


def check_memory(rules: GroupRules, **frames: Any) -> None:
    """Raise NotEnoughMemoryError if one of several frames would not fit into memory, before any is read."""
    # one frame may be given for several arguments, and to count the rows of a Dask frame is to read a column
    fitting: list[Any] = []
    for name, frame in frames.items():
        if frame is None or any(frame is another for another in fitting):
            continue

        _, rows = _compared_rows(frame, name, rules, signed=True)
        rows.check_memory(_DOING)
        fitting.append(frame)


def has_signatures(rows: SelectedRows) -> bool:
    """Return whether rows have a column that may contain signatures."""
    if SIGNATURE not in rows.names:
        return False
    kind = rows.schema.field(SIGNATURE).type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def latest_signed(before: Any, after: Any) -> Any | None:
    """Return the frame that has learned more words, if signatures of both frames can be compared, else None.

    They can be compared if one frame continues the words of the other, as a later sync of a snapshot does:
    what was learned earlier does not change.
    """
    if not all(has_signatures(opened(one, doing=_DOING)) for one in (before, after)):
        return None

    words_before, words_after = (facts_of(one).get("learned") for one in (before, after))  # fmt: skip
    if words_before is None or words_after is None:
        return None
    if continues(words_after, words_before):
        return after
    if continues(words_before, words_after):
        return before

    return None


def check_order(before: pa.Table, after: pa.Table) -> None:
    """Raise InputError for two frames that can only have been swapped."""
    first, last = when_failed(before).min(), when_failed(after).max()
    check_times(first, last, have_failed_at=not after["failed_at"].null_count)


def check_times(
    first: pd.Timestamp, last: pd.Timestamp, *, have_failed_at: bool
) -> None:
    """Raise InputError if the last later failure precedes the first earlier one."""
    # without `failed_at`, a failure counts as earlier than it was; a comparison with NaT is False
    if have_failed_at and last < first:
        raise InputError(
            _DOING,
            got=f"failures until {time_text(last)} as after, and since {time_text(first)} as before",
            expected="the earlier failures first",
            next_step="Swap them: compare_failures(before, after).",
        )


def are_spans(before: Any, after: Any, parts: list[pa.Table]) -> bool:
    """Return whether two frames are spans of one history, so that missing entries have not left."""
    # Two parts of one load have the same receipt. Without receipts, parts are recognized by their times and
    # ids: the later one begins after the earlier one, and they share no entry.
    receipts = receipt_of(before), receipt_of(after)
    if None not in receipts:
        return receipts[0] == receipts[1]

    last, first = when_failed(parts[0]).max(), when_failed(parts[1]).min()
    earlier, later = (set(part["dlq_id"].to_pylist()) for part in parts)
    return bool(first > last) and earlier.isdisjoint(later)


def in_queue(failures: Any) -> pa.ChunkedArray:
    """Return which rows had not left the queue when they were loaded."""
    if GONE_BEFORE in opened(failures, doing=_DOING).names:
        rows = select(failures, [GONE_BEFORE], doing=_DOING).table()
        return pc.is_null(rows[GONE_BEFORE])

    rows = select(failures, ["dlq_id"], doing=_DOING).table()
    return pa.chunked_array([pa.array(np.ones(rows.num_rows, dtype=bool))])


def at_times(
    source: ds.Dataset, start: datetime, end: datetime, rules: GroupRules
) -> tuple[list[pa.Table], pa.Table, list[str]]:
    """Return the entries of the queue at two times, the entries that had left before, and notes on limits."""
    columns = [
        *grouped_columns(rules, source.schema.names),
        "workflow_run_id",
        "failed_at",
        "created_at",
    ]
    columns += _OF_SNAPSHOT

    missing = [name for name in columns if name not in source.schema.names]
    if missing:
        raise wrong(
            "snapshot",
            source,
            f"a snapshot with {', '.join(missing)}",
            "sync_failures makes one.",
        )

    if SIGNATURE in source.schema.names:
        columns.append(SIGNATURE)
    opened(source, doing=_DOING).choose(columns).check_memory(_DOING)
    table = source.to_table(columns=columns)
    entered = _entered(table)

    def at_or_before(times: Any, when: datetime) -> Any:
        return pc.fill_null(pc.less_equal(times, pa.scalar(when, TIME)), False)

    parts = []
    for when in (start, end):
        has_left = at_or_before(table[GONE_BEFORE], when)
        parts.append(table.filter(pc.and_not(at_or_before(entered, when), has_left)))

    earlier = table.filter(at_or_before(table[GONE_BEFORE], start))
    first = pc.min(table[FIRST_SEEN_AT]).as_py()
    notes = []
    if first is not None and first > start:
        notes.append(f"the queue was not observed before {first:%Y-%m-%d %H:%M} UTC")
    return parts, earlier, notes


def _entered(table: pa.Table) -> pa.Array:
    """Return the time since each entry was in the queue for certain.

    This is the time of the failure. If a sync after that time did not show the entry, it is the time at which
    a sync first showed it.
    """
    failed, seen, gone = (
        timestamps(table, name).astype("datetime64[ms, UTC]")
        for name in ("failed_at", FIRST_SEEN_AT, GONE_BEFORE)
    )
    failed = failed.fillna(timestamps(table, "created_at").astype(failed.dtype)).fillna(
        seen
    )
    # These are the times of syncs that the snapshot shows: at each,
    # some entry was first seen or first missed.
    looks = (
        pd.concat([seen, gone])
        .dropna()
        .drop_duplicates()
        .sort_values(ignore_index=True)
    )
    earlier = looks.searchsorted(seen.fillna(pd.Timestamp(0, tz="UTC")))
    previous = pd.concat([pd.Series([pd.NaT], dtype=looks.dtype), looks]).take(earlier)
    missed = pd.Series(previous.to_numpy() >= failed.to_numpy(), index=failed.index)

    return pa.array(failed.mask(missed, seen), TIME)


def when_failed(table: pa.Table) -> pd.Series:
    """Return the time of each failure of `comparable`; missing if it is not plausible."""
    when = timestamps(select_timed(table, [], doing=_DOING).table(), "when_")
    return when.astype("datetime64[ms, UTC]")
