"""Join the entries of two frames by their ids, and count them: on workers by a hash of the id, or in DuckDB.

For example, entry a left, b is in both loads, and c was added:

    first load  a, b        signature  side_  shared_  count_
    second load b, c        no order   0      false    1
                            no order   0      true     1
                            no order   1      true     1
                            no order   1      false    1

Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.failures.expired_entries import expired_sql, is_expired
from toolkit.failures.partial_results import Counts, divided_by_hash
from toolkit.failures.selection import in_milliseconds
from toolkit.failures.sql_results import SqlStep
from toolkit.failures.united_frames import SIDE
from toolkit.tables.schemas import GONE_AFTER, GONE_BEFORE
from toolkit.tables.signed_rows import SIGNATURE

_Floats = NDArray[np.float64]
_Booleans = NDArray[np.bool_]

_ID: Final = "dlq_id"
_COUNTS: Final = Counts(
    (SIGNATURE, SIDE, "shared_", "expired_", "repeated_", "bin_"),
    (
        ("first_", ("at_", "min")),
        ("last_", ("at_", "max")),
        ("failed_", ("failed_", "min")),
    ),
)


def _with_numbers(table: pa.Table) -> pa.Table:
    columns = {name: table[name] for name in (_ID, SIGNATURE, SIDE)}
    columns |= {
        "at_": in_milliseconds(table),
        "failed_": in_milliseconds(table, "failed_at"),
        "seen_": in_milliseconds(table, GONE_AFTER),
        "missed_": in_milliseconds(table, GONE_BEFORE),
        "has_id_": table[_ID].is_valid(),
        "has_failed_": table["failed_at"].is_valid(),
    }
    return pa.table(columns)


in_numbers: Final = SqlStep(
    _with_numbers,
    f"(SELECT {_ID}, {SIGNATURE}, {SIDE}, epoch_ms(when_) AS at_, epoch_ms(failed_at) AS failed_,"  # noqa: S608 - constants
    f" epoch_ms({GONE_AFTER}) AS seen_, epoch_ms({GONE_BEFORE}) AS missed_, {_ID} IS NOT NULL AS has_id_,"
    " failed_at IS NOT NULL AS has_failed_ FROM {rows})",
)
"""Keeps the columns of a join: id, signature and side, times as numbers, and whether id and time exist."""


def _in_queue_only(table: pa.Table) -> pa.Table:
    return table.filter(table[GONE_BEFORE].is_null())


in_queue_only: Final = SqlStep(
    _in_queue_only,
    f"(SELECT * FROM {{rows}} WHERE {GONE_BEFORE} IS NULL)",  # noqa: S608 - a constant
)
"""Omits the entries that had left the queue."""


@dataclass(frozen=True, kw_only=True)
class IdJoin:
    """Counts of entries per signature, side, bin of time, and whether the other frame also has them.

    The result has `shared_`, `expired_` (an entry of the first frame that left because it expired),
    `repeated_` (the id occurs twice in a frame), `bin_`, `count_`, the times `first_` and `last_`, and
    `failed_`, the earliest `failed_at`.
    """

    first: int
    """Where the first bin begins."""
    width: int
    """Length of a bin."""
    kept: timedelta | None
    """How long the queue keeps entries; None if unknown."""
    is_one_history: bool
    """Whether both frames are spans of one history, in which entries that left also count."""
    start: int | None
    """When the first frame was loaded."""
    end: int | None
    """When the second frame was loaded."""

    def of_batch(self, table: pa.Table) -> pa.Table:
        """Return the rows: an entry of another batch may have the same id."""
        return table

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of all parts."""
        return pa.concat_tables(parts, promote_options="permissive")

    def split(self, state: pa.Table, number: int) -> list[pa.Table]:
        """Divide rows by a hash of the id."""
        return divided_by_hash(state, _ID, number)

    def total(self, results: Sequence[pa.Table]) -> pa.Table:
        """Add the counts of the parts of `split`."""
        return _COUNTS.merge(results)

    def result(self, merged: pa.Table) -> pa.Table:
        """Join the entries by their ids, and count them."""
        entries = _Entries.of(merged, is_one_history=self.is_one_history)
        shared = entries.shared()
        seen, missed = entries.seen, entries.missed
        if not self.is_one_history:
            seen = entries.of_second(seen, _number(self.start))
            missed = entries.of_second(missed, _number(self.end))
        left = entries.is_first & ~shared
        at, seen, missed = (
            pa.array(times, from_pandas=True) for times in (entries.at, seen, missed)
        )
        columns = {
            SIGNATURE: merged[SIGNATURE],
            SIDE: merged[SIDE],
            "shared_": shared,
            "expired_": pc.and_(
                pa.array(left), is_expired(at, seen, missed, self.kept)
            ),
            "repeated_": entries.repeated(),
            "bin_": pa.array((entries.at - self.first) // self.width, from_pandas=True),
            "at_": merged["at_"],
            "failed_": merged["failed_"],
        }
        counted = pa.table(columns).filter(pa.array(entries.stays))

        return _COUNTS.of_batch(counted)

    def sql(self, rows: str) -> str:
        """Return the same counts as a query."""
        stays = "missed_ IS NULL"
        seen, missed = (
            f"CASE WHEN in_second THEN second_{name} ELSE {_sql_number(load)} END"
            for name, load in (("seen", self.start), ("missed", self.end))
        )
        if self.is_one_history:
            stays, seen, missed = "true", "seen_", "missed_"

        expired = expired_sql("at_", seen, missed, self.kept)
        keys = ", ".join(_COUNTS.keys)
        return f"""
            WITH rows_of_join AS (SELECT *, {stays} AS stays FROM {rows}),
            ids AS (
                SELECT {_ID},
                    bool_or({SIDE} = 1) AS in_second,
                    bool_or({SIDE} = 0 AND stays) AS stays_in_first,
                    bool_or({SIDE} = 1 AND stays) AS stays_in_second,
                    max(seen_) FILTER ({SIDE} = 1) AS second_seen,
                    max(missed_) FILTER ({SIDE} = 1) AS second_missed,
                    count(*) > count(DISTINCT {SIDE}) AS repeated_
                FROM rows_of_join GROUP BY {_ID}
            ),
            joined AS (
                SELECT *, CASE WHEN {SIDE} = 0 THEN stays_in_second ELSE stays_in_first END AS shared_
                FROM rows_of_join JOIN ids USING ({_ID}) WHERE stays
            ),
            counted AS (
                SELECT *, (at_ - {self.first}) // {self.width} AS bin_,
                    {SIDE} = 0 AND NOT shared_ AND {expired} AS expired_
                FROM joined
            )
            SELECT {keys}, count(*) AS count_, min(at_) AS first_, max(at_) AS last_, min(failed_) AS failed_
            FROM counted GROUP BY {keys} ORDER BY {keys}
        """  # noqa: S608 - names and numbers only


@dataclass(frozen=True)
class _Entries:
    """Columns of the rows of both frames. Ids are numbers from 0."""

    ids: NDArray[np.int64]
    is_first: _Booleans
    stays: _Booleans
    """Whether an entry is counted: it had not left the queue, or all entries are counted."""
    at: _Floats
    seen: _Floats
    missed: _Floats

    @classmethod
    def of(cls, table: pa.Table, *, is_one_history: bool) -> _Entries:
        # dictionaries of strings of more than 2 GB need large strings
        ids = table[_ID].cast(pa.large_string()).combine_chunks().dictionary_encode()
        at, seen, missed = (
            table[name].cast(pa.float64()).to_numpy()
            for name in ("at_", "seen_", "missed_")
        )
        return cls(
            ids=ids.indices.to_numpy().astype(np.int64),
            is_first=table[SIDE].to_numpy() == 0,
            stays=np.isnan(missed) | is_one_history,
            at=at,
            seen=seen,
            missed=missed,
        )

    def shared(self) -> _Booleans:
        """Return which entries are also counted in the other frame."""
        in_first = self._numbers(self.is_first & self.stays) > 0
        in_second = self._numbers(~self.is_first & self.stays) > 0
        return np.where(self.is_first, in_second[self.ids], in_first[self.ids])

    def repeated(self) -> _Booleans:
        """Return which entries have an id that occurs twice in a frame."""
        most = np.maximum(self._numbers(self.is_first), self._numbers(~self.is_first))
        return np.asarray(most > 1)[self.ids]

    def of_second(self, times: _Floats, otherwise: float) -> _Floats:
        """Return the times of the same ids in the second frame, and another time for absent ids."""
        by_id = np.full(len(self.ids), otherwise)
        by_id[self.ids[~self.is_first]] = times[~self.is_first]
        return by_id[self.ids]

    def _numbers(self, chosen: _Booleans) -> NDArray[np.int64]:
        """Return how often each id occurs in the chosen rows."""
        return np.bincount(self.ids[chosen], minlength=len(self.ids))


def _number(milliseconds: int | None) -> float:
    return np.nan if milliseconds is None else float(milliseconds)


def _sql_number(milliseconds: int | None) -> str:
    return "NULL::BIGINT" if milliseconds is None else str(milliseconds)
