"""Select columns of a frame of any engine, with the types of the loaders; make small frames and samples.

A new analysis accepts every engine if it calls `select(frame, columns, doing="…")`, then `.then(step)` for
derived columns (Arrow, batch by batch) and `.count(*keys)` for a small Arrow table of counts. For example:

    select(failures, ["workflow_url"], doing="counting failures").count("workflow_url")
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from toolkit import snapshots  # loaded when a path is given
from toolkit.base.arguments import nearest, shown, whole, wrong
from toolkit.base.errors import InputError
from toolkit.base.times import parse_time
from toolkit.failures.pandas_columns import KINDS
from toolkit.failures.sources import (
    AnyFrame,
    SelectedRows,
    is_partitioned,
    is_polars,
    is_relation,
    open_rows,
)
from toolkit.failures.sql_results import SqlStep
from toolkit.tables.frames import in_index, made_visible, to_frame
from toolkit.tables.freshness import Clock, Freshness, freshness
from toolkit.tables.json_cells import JsonDict, JsonTuple
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import GONE_AFTER, GONE_BEFORE, TIME
from toolkit.tables.signed_rows import SIGNATURE

NONE: Final = "(none)"
"""Name of a missing value, if a string is needed."""

EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Limits of plausible times. Others are 0, or seconds read as milliseconds, and would squeeze each axis."""

_TYPES: Final = {
    "times": pa.timestamp("ms", "UTC"),
    "texts": pa.string(),
    "numbers": pa.float64(),
}
_STRINGS: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
_NUMBERS: Final = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def select(
    frame: AnyFrame,
    columns: Iterable[str],
    *,
    doing: str,
    name: str = "failures",
    chosen: Mapping[str, object] = MappingProxyType({}),
) -> SelectedRows:
    """Select columns of a frame of any engine, with times in UTC, strings and numbers of one type.

    Rows are read by `.count`, `.map` or `.table` of the result, not before. `chosen` maps the names of
    arguments to further columns of single values, for example ``{"by": "workflow_url"}``. `name` is the name
    of the argument with the frame, and `doing` the first words of an error. Raise `InputError` if the value
    is not a frame, or a column is missing, occurs twice or has values of another kind.
    """
    rows = opened(frame, doing=doing, name=name)
    for argument, column in chosen.items():
        if not isinstance(column, str) or column not in rows.names:
            raise wrong(
                argument,
                column,
                f"a column of {name}",
                nearest(column, rows.names, what="It has"),
            )

        if any(
            test(rows.schema.field(column).type)
            for test in (pa.types.is_nested, *_BYTES)
        ):
            raise InputError(
                doing,
                got=f"{column}, a column of lists, maps or bytes",
                expected="columns of single values",
                next_step="Use count_labels for labels, or explode_headers for headers.",
            )

    names = list(dict.fromkeys([*columns, *map(str, chosen.values())]))
    missing = [column for column in names if column not in rows.names]
    if missing:
        raise InputError(
            doing,
            got=f"{name} with the columns {', '.join(rows.names) or 'none'}",
            expected=f"also {', '.join(map(str, missing))}",
            next_step=in_index(frame, missing) or "Use a frame made by a loader.",
        )

    typed = SqlStep(partial(_typed, doing, name), "{rows}")
    return rows.choose(names).then(typed)


def opened(frame: AnyFrame, *, doing: str, name: str = "failures") -> SelectedRows:
    """Return all columns of a frame of any engine. Raise InputError for other values, or without columns."""
    rows = open_rows(scanned(frame, doing=doing, name=name))
    problem, expected = "", "a frame"
    if rows is not None:
        if not rows.names:
            problem, expected = ", without columns", "a frame with columns"
        elif len(set(rows.names)) < len(rows.names):
            problem, expected = (
                ", with two columns of one name",
                "a frame with different column names",
            )
        else:
            return rows

    raise InputError(
        doing,
        got=f"{shown(frame)} for {name}{problem}",
        expected=expected,
        next_step="Use a frame made by a loader.",
    )


def scanned(frame: AnyFrame, *, doing: str, name: str = "failures") -> AnyFrame:
    """Return the rows of a snapshot, given as a path or opened already. Return any other frame unchanged."""
    if isinstance(frame, pd.DataFrame | pa.Table | ds.Dataset):
        return frame

    if not isinstance(frame, str | os.PathLike):
        if isinstance(frame, snapshots.Snapshot):
            return frame.to_arrow()
        return frame

    try:
        if "://" in str(frame) or Path(frame).is_dir():
            return snapshots.open_snapshot(frame).to_arrow()
        raise FileNotFoundError
    except (
        InputError,
        OSError,
        ValueError,
    ):
        # ValueError: null bytes and lone surrogates
        raise InputError(
            doing,
            got=f"{shown(frame)} for {name}",
            expected="a frame, or the path of a snapshot",
        ) from None


def _typed(
    doing: str, name: str, table: pa.Table, loose: Collection[str] = ()
) -> pa.Table:
    """Convert the columns that loaders write to their types. `loose` columns may have other types."""
    for position, column in enumerate(table.column_names):
        values = table[column]
        if pa.types.is_dictionary(values.type):  # Arrow cannot sort dictionaries
            values = values.cast(values.type.value_type)
        kind = KINDS.get(column)

        is_loose = column in loose and not (
            pa.types.is_temporal(values.type) or pa.types.is_null(values.type)
        )
        if kind is not None and not is_loose:
            values = _cast(values, kind)
            if values is None:
                raise _wrong_type(doing, name, column, kind, table[column].type)

        table = table.set_column(position, column, values)

    return table


def _wrong_type(
    doing: str, name: str, column: str, kind: str, found: pa.DataType
) -> InputError:
    """Return the error for a column with another type than that of the loaders."""
    next_step = "Use a frame made by a loader, or convert the column."
    if kind == "times":
        own = f'{name}["{column}"]'
        next_step = f"{next_step[:-1]}: {own} = pd.to_datetime({own}, utc=True)"

    return InputError(
        doing,
        got=f"{name} with a column {column} of the type {str(found)[:80]}",
        expected=f"{kind} there",
        next_step=next_step,
    )


def _cast(values: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | None:
    """Return values as times in UTC, strings or numbers; None if they are something else."""
    converted = None
    if kind == "times":
        converted = _times(values)
    elif kind == "texts" and any(test(values.type) for test in _STRINGS):
        converted = values.cast(pa.string())
    elif kind == "numbers" and any(test(values.type) for test in _NUMBERS):
        converted = values

    if converted is None and values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values), _TYPES[kind])])

    return converted


def _times(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return dates and times in UTC; a time without a zone is in UTC. None if they are something else."""
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp("ms")).cast(_TYPES["times"])
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp(values.type.unit, "UTC"))

    return None


def select_retained(
    frame: AnyFrame, columns: Iterable[str], *, doing: str
) -> SelectedRows:
    """Select columns of the entries that are still in the queue; a snapshot also has entries that left."""
    names = list(columns)
    if GONE_BEFORE not in opened(frame, doing=doing).names:
        return select(frame, names, doing=doing)

    return select(frame, [*names, GONE_BEFORE], doing=doing).then(_retained)


def _without_gone(table: pa.Table) -> pa.Table:
    return table.filter(table[GONE_BEFORE].is_null()).drop_columns([GONE_BEFORE])


_retained: Final = SqlStep(
    _without_gone,
    f"(SELECT * EXCLUDE ({GONE_BEFORE}) FROM {{rows}} WHERE {GONE_BEFORE} IS NULL)",  # noqa: S608 - a constant
)


def _with_time(table: pa.Table) -> pa.Table:
    """Add `when_` and `fell_back_`: the time of each failure, and whether it is that of `created_at`."""
    failed, created = table["failed_at"], table["created_at"]
    if failed.type != created.type:
        microseconds = pa.timestamp("us", "UTC")
        failed, created = (
            failed.cast(microseconds, safe=False),
            created.cast(microseconds, safe=False),
        )

    when = pc.coalesce(failed, created)
    not_early = pc.greater_equal(when, pa.scalar(EARLIEST, when.type))
    not_late = pc.less(when, pa.scalar(LATEST, when.type))
    when = pc.if_else(pc.and_(not_early, not_late), when, pa.scalar(None, when.type))
    fell_back = pc.and_(failed.is_null(), when.is_valid())

    return table.append_column("when_", when).append_column("fell_back_", fell_back)


_WHEN: Final = "coalesce(failed_at, created_at)"
_IS_USABLE: Final = (
    f"{_WHEN} >= TIMESTAMPTZ '{EARLIEST}' AND {_WHEN} < TIMESTAMPTZ '{LATEST}'"
)

with_time: Final = SqlStep(
    _with_time,
    f"(SELECT *, CASE WHEN {_IS_USABLE} THEN {_WHEN} END AS when_, "  # noqa: S608 - constants
    f"failed_at IS NULL AND coalesce({_IS_USABLE}, false) AS fell_back_ FROM {{rows}})",
)
"""Adds `when_` and `fell_back_`: the time of each failure, and whether it is that of `created_at`."""


def _only_timed(table: pa.Table) -> pa.Table:
    return table.filter(table["when_"].is_valid())


timed_only: Final = SqlStep(
    _only_timed, "(SELECT * FROM {rows} WHERE when_ IS NOT NULL)"
)
"""Omits the failures without a usable time."""


def in_milliseconds(table: pa.Table, column: str = "when_") -> pa.ChunkedArray:
    """Return the times of a batch in milliseconds since 1970."""
    return table[column].cast(TIME, safe=False).cast(pa.int64())


def when_counted(now: datetime | None) -> datetime:
    """Return the time from which spans and ages are counted, in UTC; by default the current time."""
    if now is None:
        return datetime.now(UTC)
    return parse_time(now, exact=True, name="now")


def _with_minute(table: pa.Table) -> pa.Table:
    """Add `minute_`: the minute of `when_`, counted from 1970, null if that is null."""
    seconds = table["when_"].cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())
    return table.append_column("minute_", pc.divide(seconds, 60))


with_minute: Final = SqlStep(
    _with_minute, "(SELECT *, epoch_us(when_) // 60000000 AS minute_ FROM {rows})"
)
"""Adds `minute_`: the minute of `when_`, counted from 1970."""


def select_timed(
    frame: AnyFrame, columns: Iterable[str], *, doing: str, name: str = "failures"
) -> SelectedRows:
    """Select columns, with `when_` and `fell_back_` of `with_time`."""
    return select(
        frame, [*columns, "failed_at", "created_at"], doing=doing, name=name
    ).then(with_time)


def timestamps(table: pa.Table, column: str) -> pd.Series[pd.Timestamp]:
    """Return a column of times as a pandas Series in UTC."""
    return pd.Series(pd.to_datetime(table[column].to_pandas(), utc=True))


class Counted:
    """A result of counts."""

    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Return the sum of all counts."""
        return int(self.counts.sum())


def typed_frame(**columns: tuple[str, Any]) -> pd.DataFrame:
    """Return a small frame from a dtype and values per column, which has these types even if it is empty.

    Invisible characters in strings are escaped when pandas shows them, because the strings are from data.
    """
    frame = pd.DataFrame({name: _column(*column) for name, column in columns.items()})
    return made_visible(frame)


def _column(dtype: str, values: Any) -> pd.Series[Any]:
    if dtype == "object":
        values = list(map(hashable_json, values))
    return pd.Series(values, dtype=dtype)


def typed_rows(
    rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]
) -> pd.DataFrame:
    """Return a small frame of rows, with the columns and dtypes of `types`; absent values are missing."""
    return typed_frame(
        **{
            name: (dtype, [row.get(name) for row in rows])
            for name, dtype in types.items()
        }
    )


def hashable_json(value: Any) -> Any:
    """Return a value with lists and dicts in types that pandas can hash, at any depth."""
    if isinstance(value, dict):
        return JsonDict({name: hashable_json(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return JsonTuple(map(hashable_json, value))

    return value


def tallied(values: pd.Series) -> pd.DataFrame:
    """Return the values of a column with `count` and `share`, the largest count first, ties by value."""
    name = str(values.name)
    counts = values.value_counts().reset_index().astype({name: "str", "count": "Int64"})
    counts = made_visible(
        counts.assign(share=(counts["count"] / max(len(values), 1)).astype("float64"))
    )

    return counts.sort_values(
        ["count", name], ascending=[False, True], ignore_index=True
    )


def facts_of(frame: object) -> Mapping[Any, Any]:
    """Return the facts of a frame or a snapshot.

    These are ``"receipt"``, and ``"learned"`` of the signatures of a snapshot, or ``"renamed"`` of a frame
    that was read from one.
    """
    if isinstance(frame, str | os.PathLike):
        frame = scanned(frame, doing="opening a snapshot")
    if is_polars(frame):
        # its frames have no metadata, and asking for the columns warns
        return {}

    metadata = getattr(getattr(frame, "schema", None), "metadata", None) or {}
    if b"toolkit" in metadata:
        facts = json.loads(metadata[b"toolkit"])
        return facts if isinstance(facts, Mapping) else {}
    if is_relation(frame):
        return snapshots.facts_of_relation(frame)

    if is_partitioned(frame):
        frame = frame._meta  # type: ignore[attr-defined]  # noqa: SLF001 - as in `open_rows`
    attributes = getattr(frame, "attrs", None)
    return attributes if isinstance(attributes, Mapping) else {}


def receipt_of(frame: object) -> Receipt | None:
    """Return the receipt of a frame or of a scanned snapshot, or None."""
    values = facts_of(frame).get("receipt")
    return Receipt.from_dict(values) if isinstance(values, Mapping) else None


def with_receipt(frame: AnyFrame, receipt: Receipt) -> AnyFrame:
    """Return a frame of a loader with another receipt; the frame that is passed keeps its own."""
    facts = {**facts_of(frame), "receipt": receipt.to_dict()}
    if isinstance(frame, pd.DataFrame):
        changed = frame.copy(deep=False)
        changed.attrs = facts
        return changed

    metadata = {b"toolkit": json.dumps(facts).encode()}
    if isinstance(frame, SelectedRows):
        return replace(frame, schema=frame.schema.with_metadata(metadata))

    if isinstance(frame, pa.Table):
        return frame.replace_schema_metadata(
            {**(frame.schema.metadata or {}), **metadata}
        )

    if isinstance(frame, ds.Dataset):
        return frame.replace_schema(
            frame.schema.with_metadata({**(frame.schema.metadata or {}), **metadata})
        )

    return frame


def freshness_of(
    frame: object, now: Clock = None, max_age: str | timedelta | None = None
) -> Freshness:
    """Return how old the data of a frame are; see `toolkit.tables.freshness`."""
    return freshness(receipt_of(frame), now, max_age)


def told_until(frame: object, now: datetime) -> datetime:
    """Return the time until which a frame has data: now, or the end of the data if that is earlier."""
    return freshness_of(frame, now).end


def named(value: object) -> str:
    """Return the name of a group, for example "500" for a status that was read as 500.0 from a CSV file."""
    if value is None:
        return NONE
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return f"{value:.0f}"

    return str(value)


def largest_groups(
    values: Sequence[object],
    counts: NDArray[np.int64],
    top: int,
    marked: Sequence[NDArray[np.bool_]] = (),
) -> tuple[tuple[str, ...], NDArray[np.int64], int]:
    """Return the names of groups, the largest first, the group of each value, and how many were merged.

    The merged groups are ``other (n)``. Groups are kept in turns: the largest in total, then the largest in
    each of the `marked` selections of values, then the second largest in total, and so on. In a selection,
    only groups with at least a tenth of the counts are kept.
    """
    totals = _totals(values, counts)
    ordered = sorted(totals, key=lambda value: (-totals[value], named(value)))

    merged = max(len(ordered) - top, 0)
    if merged and marked:
        rankings = [
            ordered,
            *(_largest_in(values, counts * chosen) for chosen in marked),
        ]
        turns = chain.from_iterable(zip_longest(*rankings, fillvalue=ordered[0]))
        kept = set(islice(dict.fromkeys(turns), top))
        # stable: the largest in total first
        ordered.sort(key=lambda value: value not in kept)

    positions = {value: min(position, top) for position, value in enumerate(ordered)}
    names = [named(value) for value in ordered[:top]]
    if merged:
        names.append(f"other ({merged})")
    return (
        tuple(names),
        np.array([positions[value] for value in values], dtype=np.int64),
        merged,
    )


def _totals(values: Sequence[object], counts: NDArray[np.int64]) -> Counter[object]:
    totals: Counter[object] = Counter()
    for value, count in zip(values, counts.tolist(), strict=True):
        totals[value] += count
    return totals


def _largest_in(values: Sequence[object], counts: NDArray[np.int64]) -> list[object]:
    """Return the values with at least a tenth of these counts, the largest first."""
    totals = _totals(values, counts)
    least = max(int(counts.sum()) / 10, 1)
    large = [value for value, count in totals.items() if count >= least]

    return sorted(large, key=lambda value: (-totals[value], named(value)))


SAMPLING: Final = "sampling failures"
_SORTED: Final = ("dlq_id", "failed_at", "created_at")


def sample_failures(
    failures: AnyFrame, *, most: int = 20_000, columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Choose about `most` failures by a hash of their ids, or all if they are fewer; the oldest first.

    Only the ids decide, so that a snapshot, a frame and a later load give the same failures. Do not count the
    sample: it may have none of the rare failures.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `failed_at`, `created_at`. Columns that loaders and snapshots do not write
        are omitted. Other times, for example strings from a CSV file, may have any type, and keep it.
    most : int
        About the number of failures, at least 1.
    columns : collection of str, optional
        Columns to read, if they exist. If omitted, all columns are read.

    Returns
    -------
    pandas.DataFrame
        The failures, sorted by `failed_at` (or `created_at` if that is missing) and `dlq_id`.

    Raises
    ------
    InputError
        If a column is missing, or `most` is below 1.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01"] * 1000, utc=True)
    >>> frame = pd.DataFrame({"dlq_id": [f"{n:08}" for n in range(1000)], "failed_at": times,
    ...     "created_at": times})
    >>> len(sample_failures(frame)), len(sample_failures(frame, most=100))
    (1000, 114)
    """
    most = whole("most", most)
    counted = select_timed(failures, ["dlq_id"], doing=SAMPLING).count()
    return sample_of(failures, counted["count_"][0].as_py(), most, columns)


def sample_of(
    failures: AnyFrame, total: int, most: int, columns: Collection[str] | None
) -> pd.DataFrame:
    """Return the sample of `sample_failures` of a frame whose number of failures is known."""
    known = {*KINDS, SIGNATURE, GONE_AFTER} if columns is None else {*columns}
    rows = opened(failures, doing=SAMPLING)
    kept = dict.fromkeys(
        ["dlq_id", *(name for name in rows.names if name in known), *_SORTED]
    )
    loose = {name for name in kept if KINDS.get(name) == "times"}.difference(_SORTED)
    rows = (
        rows.choose(kept)
        .then(partial(_typed, SAMPLING, "failures", loose=loose))
        .then(with_time)
    )

    if total > most:
        rows = rows.then(
            partial(_chosen, np.uint64(int((1 << 64) * (most / total)) - 1))
        )

    table = rows.table().sort_by([("when_", "ascending"), ("dlq_id", "ascending")])
    return to_frame(table.drop_columns(["when_", "fell_back_"]))


def _chosen(below: np.uint64, table: pa.Table) -> pa.Table:
    """Return the rows with a small hash of the id."""
    ids = pc.fill_null(table["dlq_id"], "").to_numpy()
    return table.filter(pa.array(pd.util.hash_array(ids, categorize=False) <= below))
