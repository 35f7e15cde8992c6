"""Columns of a frame of any engine, with the types that loaders write; results as small frames; samples.

A new analysis takes every engine by `select(frame, columns, doing="…")`, then `.then(step)` for derived
columns (Arrow, batch by batch) and `.count(*keys)` for a small Arrow table of counts.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from toolkit.analysis.sources import KINDS, AnyFrame, SelectedRows, open_rows
from toolkit.arguments import nearest, shown, whole, wrong
from toolkit.errors import InputError
from toolkit.freshness import Clock, Freshness, freshness
from toolkit.receipt import Receipt
from toolkit.signatures.signed_rows import SIGNATURE
from toolkit.tables.frames import in_index, made_visible, to_frame
from toolkit.tables.schemas import GONE_AFTER, GONE_BEFORE
from toolkit.tables.text import JsonDict, JsonTuple
from toolkit.times import parse_time

NONE: Final = "(none)"
"""How a missing value is named where a text is needed."""

EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Times outside are not of failures, but 0, or seconds read as milliseconds: they would squeeze each axis."""

_TYPES: Final = {"times": pa.timestamp("ms", "UTC"), "texts": pa.string(), "numbers": pa.float64()}
_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)


def select(
    frame: AnyFrame,
    columns: Iterable[str],
    *,
    doing: str,
    name: str = "failures",
    chosen: Mapping[str, object] = MappingProxyType({}),
) -> SelectedRows:
    """The named columns of a frame of any engine: times in UTC, texts as texts, whatever types hold them.

    Nothing is read before `.count`, `.map` or `.table` of the result. `chosen` maps the names of the caller's
    arguments to further columns, of single values; `name` is what the frame's argument is called and `doing`
    begins the sentence of an error. A wrong frame, a column that is missing, there twice or holds values of
    another kind is an `InputError`.
    """
    rows = opened(frame, doing=doing, name=name)
    for argument, column in chosen.items():
        if not isinstance(column, str) or column not in rows.names:
            raise wrong(argument, column, f"a column of {name}", nearest(column, rows.names, what="It has"))
        if any(test(rows.schema.field(column).type) for test in (pa.types.is_nested, *_BYTES)):
            raise InputError(
                doing,
                got=f"{column}, which holds lists, maps or bytes",
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
    return rows.choose(names).then(partial(_typed, doing, name))


def opened(frame: AnyFrame, *, doing: str, name: str = "failures") -> SelectedRows:
    """All columns of a frame of any engine, as they are; InputError for what is not a frame, or has none."""
    rows = open_rows(scanned(frame, doing=doing, name=name))
    if rows is not None and rows.names and len(set(rows.names)) == len(rows.names):
        return rows
    got, expected = "", "a frame"
    if rows is not None and rows.names:
        got, expected = ", with two columns of one name", "a frame whose columns have names of their own"
    elif rows is not None:
        got, expected = ", without columns", "a frame with columns"
    raise InputError(
        doing,
        got=f"{shown(frame)} for {name}{got}",
        expected=expected,
        next_step="Use a frame made by a loader.",
    )


def scanned(frame: AnyFrame, *, doing: str, name: str = "failures") -> AnyFrame:
    """The dataset of a snapshot given by its path, so that it is opened once; any other frame as it is."""
    if not isinstance(frame, str | os.PathLike):
        return frame
    try:
        if "://" in str(frame) or Path(frame).is_dir():
            return snapshots.scan_snapshot(frame)
        raise FileNotFoundError
    except (InputError, OSError, ValueError):  # ValueError: null bytes and lone surrogates
        raise InputError(
            doing, got=f"{shown(frame)} for {name}", expected="a frame, or the path of a snapshot"
        ) from None


def _typed(doing: str, name: str, table: pa.Table, loose: Collection[str] = ()) -> pa.Table:
    """The columns that loaders write with the types that they have there; `loose` ones where they can."""
    for position, column in enumerate(table.column_names):
        kind, inner = KINDS.get(column), table[column].type
        if column in loose and not (pa.types.is_temporal(inner) or pa.types.is_null(inner)):
            kind = None
        if kind is not None:
            values = _cast(table[column], kind)
            if values is None:
                own = f'{name}["{column}"]'
                way = f": {own} = pd.to_datetime({own}, utc=True)" * (kind == "times")
                raise InputError(
                    doing,
                    got=f"{name} whose column {column} has the type {str(inner)[:80]}",
                    expected=f"{kind} there",
                    next_step=f"Use a frame made by a loader, or convert the column{way or '.'}",
                )
            table = table.set_column(position, column, values)
        elif pa.types.is_dictionary(inner):  # which Arrow does not sort
            table = table.set_column(position, column, table[column].cast(inner.value_type))
    return table


def _cast(values: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | None:
    """Values as times in UTC, texts or numbers; None where they are something else."""
    inner = values.type
    if pa.types.is_dictionary(inner):
        values = values.cast(inner := inner.value_type)
    if kind == "times" and pa.types.is_date(inner):
        return values.cast(pa.timestamp("ms")).cast(_TYPES["times"])
    if kind == "times" and pa.types.is_timestamp(inner):
        return values if inner.tz == "UTC" else values.cast(pa.timestamp(inner.unit, "UTC"))
    if kind == "texts" and (pa.types.is_large_string(inner) or pa.types.is_string_view(inner)):
        return values.cast(pa.string())
    numeric = pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_decimal(inner)
    if (kind == "texts" and pa.types.is_string(inner)) or (kind == "numbers" and numeric):
        return values
    nothing = values.null_count == len(values)
    return pa.chunked_array([pa.nulls(len(values), _TYPES[kind])]) if nothing else None


def select_retained(frame: AnyFrame, columns: Iterable[str], *, doing: str) -> SelectedRows:
    """The named columns of the rows still in the queue: a snapshot also stores those that left it."""
    names = list(columns)
    if GONE_BEFORE not in opened(frame, doing=doing).names:
        return select(frame, names, doing=doing)
    return select(frame, [*names, GONE_BEFORE], doing=doing).then(_retained)


def _retained(table: pa.Table) -> pa.Table:
    return table.filter(table[GONE_BEFORE].is_null()).drop_columns([GONE_BEFORE])


def with_time(table: pa.Table) -> pa.Table:
    """The rows with `when_` and `fell_back_`: when each counts as failed, and whether at `created_at`."""
    failed, created = table["failed_at"], table["created_at"]
    if failed.type != created.type:
        failed, created = (times.cast(pa.timestamp("us", "UTC"), safe=False) for times in (failed, created))
    when = pc.coalesce(failed, created)
    low, high = (pa.scalar(limit, when.type) for limit in (EARLIEST, LATEST))
    plausible = pc.and_(pc.greater_equal(when, low), pc.less(when, high))
    when = pc.if_else(plausible, when, pa.scalar(None, when.type))
    fell_back = pc.and_(failed.is_null(), when.is_valid())
    return table.append_column("when_", when).append_column("fell_back_", fell_back)


def when_counted(now: datetime | None) -> datetime:
    """The time that spans and ages are counted from: the clock's by default, UTC."""
    return datetime.now(UTC) if now is None else parse_time(now, exact=True, name="now")


def with_minute(table: pa.Table) -> pa.Table:
    """The rows with `minute_`: the minute of `when_`, counted from 1970, null where that is."""
    seconds = table["when_"].cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())
    return table.append_column("minute_", pc.divide(seconds, 60))


def select_timed(
    frame: AnyFrame, columns: Iterable[str], *, doing: str, name: str = "failures"
) -> SelectedRows:
    """The named columns, with `when_` and `fell_back_` of `with_time`."""
    return select(frame, [*columns, "failed_at", "created_at"], doing=doing, name=name).then(with_time)


def timestamps(table: pa.Table, column: str) -> pd.Series[pd.Timestamp]:
    """A column of times as a pandas Series in UTC."""
    return pd.Series(pd.to_datetime(table[column].to_pandas(), utc=True))


class Counted:
    """A result of counts."""

    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """All that were counted."""
        return int(self.counts.sum())


def typed_frame(**columns: tuple[str, Any]) -> pd.DataFrame:
    """Return a small frame of columns, each a dtype and its values: without rows it has all its types, too.

    Invisible characters in its texts are escaped where pandas shows them, because the texts are from data.
    """
    frame = pd.DataFrame(
        {
            name: pd.Series(list(map(hashable_json, values)) if dtype == "object" else values, dtype=dtype)
            for name, (dtype, values) in columns.items()
        }
    )
    return made_visible(frame)


def typed_rows(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """A small frame of rows, with the columns and dtypes of `types`; missing where a row has no value."""
    return typed_frame(**{name: (dtype, [row.get(name) for row in rows]) for name, dtype in types.items()})


def hashable_json(value: Any) -> Any:
    """The value with lists and dicts as those that pandas can hash, at any depth."""
    if isinstance(value, dict):
        return JsonDict({name: hashable_json(item) for name, item in value.items()})
    return JsonTuple(map(hashable_json, value)) if isinstance(value, list | tuple) else value


def tallied(values: pd.Series) -> pd.DataFrame:
    """The values of a column with `count` and `share`, the largest count first and equal ones by value."""
    name = str(values.name)
    counts = values.value_counts().reset_index().astype({name: "str", "count": "Int64"})
    counts = made_visible(counts.assign(share=(counts["count"] / max(len(values), 1)).astype("float64")))
    return counts.sort_values(["count", name], ascending=[False, True], ignore_index=True)


def facts_of(frame: object) -> Mapping[Any, Any]:
    """What a frame, or a snapshot, says of itself: ``"receipt"``, and ``"learned"`` of its signatures."""
    if isinstance(frame, str | os.PathLike):
        frame = scanned(frame, doing="opening a snapshot")
    metadata = getattr(getattr(frame, "schema", None), "metadata", None) or {}
    if b"toolkit" in metadata:
        facts = json.loads(metadata[b"toolkit"])
        return facts if isinstance(facts, Mapping) else {}
    attributes = getattr(frame, "attrs", None)
    return attributes if isinstance(attributes, Mapping) else {}


def receipt_of(frame: object) -> Receipt | None:
    """The receipt that a frame, or what was scanned of a snapshot, carries, or None."""
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
    if isinstance(frame, pa.Table):
        return frame.replace_schema_metadata({**(frame.schema.metadata or {}), **metadata})
    if isinstance(frame, ds.Dataset):
        return frame.replace_schema(frame.schema.with_metadata({**(frame.schema.metadata or {}), **metadata}))
    return frame


def freshness_of(frame: object, now: Clock = None, max_age: str | timedelta | None = None) -> Freshness:
    """Return how old the data of a frame are; see `toolkit.freshness`."""
    return freshness(receipt_of(frame), now, max_age)


def told_until(frame: object, now: datetime) -> datetime:
    """Return until when a frame can tell something: now, or when the data end if that is earlier."""
    return freshness_of(frame, now).end


def named(value: object) -> str:
    """The name of a group: its value as text, a status that was read from a CSV file without a fraction."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53
    return NONE if value is None else f"{value:.0f}" if whole else str(value)


def largest_groups(
    values: Sequence[object],
    counts: NDArray[np.int64],
    top: int,
    marked: Sequence[NDArray[np.bool_]] = (),
) -> tuple[tuple[str, ...], NDArray[np.int64], int]:
    """Names of groups, the largest first; the group of each value; how many were merged as ``other (n)``.

    Groups are kept in turns: the largest in total, then the largest in each of the `marked` selections of
    values, then the second largest in total, and so on. In a selection only groups with a tenth of it count.
    """
    totals = _totals(values, counts)
    ordered = sorted(totals, key=lambda value: (-totals[value], named(value)))
    merged = max(len(ordered) - top, 0)
    if merged and marked:
        rankings = [ordered, *(_largest_in(values, counts * chosen) for chosen in marked)]
        turns = chain.from_iterable(zip_longest(*rankings, fillvalue=ordered[0]))
        kept = set(islice(dict.fromkeys(turns), top))
        ordered.sort(key=lambda value: value not in kept)  # stable: the largest in total first
    positions = {value: min(position, top) for position, value in enumerate(ordered)}
    names = [named(value) for value in ordered[:top]] + ([f"other ({merged})"] if merged else [])
    return tuple(names), np.array([positions[value] for value in values], dtype=np.int64), merged


def _totals(values: Sequence[object], counts: NDArray[np.int64]) -> Counter[object]:
    totals: Counter[object] = Counter()
    for value, count in zip(values, counts.tolist(), strict=True):
        totals[value] += count
    return totals


def _largest_in(values: Sequence[object], counts: NDArray[np.int64]) -> list[object]:
    """The values with at least a tenth of these counts, the largest first."""
    totals = _totals(values, counts)
    least = max(int(counts.sum()) / 10, 1)
    large = [value for value, count in totals.items() if count >= least]
    return sorted(large, key=lambda value: (-totals[value], named(value)))


_DOING: Final = "sampling failures"
_SORTED: Final = ("dlq_id", "failed_at", "created_at")


def sample_failures(
    failures: AnyFrame, *, most: int = 20_000, columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Choose about so many failures by their ids, all of them where there are no more; the oldest first.

    The ids alone decide, so that the same failures are chosen of a snapshot, a frame and a later load. Not
    for counting: rare failures may be left out.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `failed_at`, `created_at`. Columns that loaders and snapshots do not write
        are left out. Other times, such as texts from a CSV file, may have any type, which they keep.
    most : int
        How many, at least 1.
    columns : collection of str, optional
        Which of them to read, as far as they are there. Default: all.

    Returns
    -------
    pandas.DataFrame
        The failures, sorted by `failed_at` (else `created_at`) and `dlq_id`.

    Raises
    ------
    InputError
        When a column is missing, or `most` is below 1.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01"] * 1000, utc=True)
    >>> frame = pd.DataFrame({"dlq_id": [f"{n:08}" for n in range(1000)], "failed_at": times,
    ...     "created_at": times})
    >>> len(sample_failures(frame)), len(sample_failures(frame, most=100))
    (1000, 114)
    """
    most = whole("most", most)
    total = int(select_timed(failures, ["dlq_id"], doing=_DOING).count()["count_"][0].as_py())
    known = {*KINDS, SIGNATURE, GONE_AFTER} if columns is None else {*columns}
    rows = opened(failures, doing=_DOING)
    kept = dict.fromkeys(["dlq_id", *(name for name in rows.names if name in known), *_SORTED])
    loose = {name for name in kept if KINDS.get(name) == "times"}.difference(_SORTED)
    rows = rows.choose(kept).then(partial(_typed, _DOING, "failures", loose=loose)).then(with_time)
    if total > most:
        rows = rows.then(partial(_chosen, np.uint64(int((1 << 64) * (most / total)) - 1)))
    table = rows.table().sort_by([("when_", "ascending"), ("dlq_id", "ascending")])
    return to_frame(table.drop_columns(["when_", "fell_back_"]))


def _chosen(below: np.uint64, table: pa.Table) -> pa.Table:
    """The rows whose id has a small hash."""
    ids = pc.fill_null(table["dlq_id"], "").to_numpy()
    return table.filter(pa.array(pd.util.hash_array(ids, categorize=False) <= below))
