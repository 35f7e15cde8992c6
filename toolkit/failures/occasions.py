"""Count occasions: failures of one value that are further apart than a span of time, for rows of any order.

Failures of a value whose times differ by at most the span are one occasion (single linkage in one dimension).
An occasion is kept as the first and last time and the number of failures. Two occasions become one if the gap
between them is at most the span, so that partial results of any batches can be merged:

    batch 1, minutes     0, 20                 one occasion     0 to 20     2 failures
    batch 2, minutes     70, 200               two occasions    70          1 failure
                                                                200         1 failure
    merged, span 60                            two occasions    0 to 70     3 failures
                                                                200         1 failure
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

_KEYS: Final = ["kind", "field", "value"]
_NEVER: Final = np.iinfo(np.int64).max
"""Stands for a missing time. Failures without a time come last, count, and are no occasion."""
_STATE: Final = pa.schema(
    {
        "kind": pa.int8(),
        "field": pa.string(),
        "value": pa.large_string(),
        "first": pa.int64(),
        "last": pa.int64(),
        "count": pa.int64(),
    }
)
_RESULT: Final = {
    "kind": pa.int8(),
    "field": pa.string(),
    "value": pa.large_string(),
    "count": pa.int64(),
    "occasions": pa.int64(),
    "first": pa.int64(),
    "last": pa.int64(),
}


@dataclass(frozen=True)
class Occasions:
    """Values with at least `least` failures on two occasions or more, at most `top` of each kind.

    A batch has the columns `kind` (int8), `field`, `value` (strings) and `at` (milliseconds since 1970). The
    result has the values, and per kind and field a row without `value`: `count` is then the number of
    failures, and `occasions` the number of different values.
    """

    apart: timedelta
    least: int
    top: int

    def of_batch(self, table: pa.Table) -> pa.Table:
        """Return the occasions of a batch."""
        times = pa.array(table["at"].fill_null(_NEVER))
        counts = pa.array(np.ones(table.num_rows, dtype=np.int64))
        columns = [*table.select(_KEYS).columns, times, times, counts]

        return self._joined(
            pa.table(columns, names=_STATE.names).cast(_STATE).combine_chunks()
        )

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Join the occasions of several parts."""
        return self._joined(pa.concat_tables(parts).combine_chunks())

    def result(self, merged: pa.Table) -> pa.Table:
        """Return the values, and the sums per kind and field."""
        by_value = _by_value(merged)
        sums = by_value.groupby(["kind", "field"], as_index=False).agg(
            count=("count", "sum"), occasions=("value", "size")
        )
        is_offender = (by_value["count"] >= self.least) & (by_value["occasions"] > 1)

        return self._together(sums, by_value[is_offender])

    def split(self, state: pa.Table, number: int) -> list[pa.Table]:
        """Divide a partial result by a hash of the values. Equal values are always in the same part."""
        values = state["value"].to_numpy()
        parts = pd.util.hash_array(values, categorize=False) % np.uint64(number)
        return [state.filter(pa.array(parts == part)) for part in range(number)]

    def total(self, results: Sequence[pa.Table]) -> pa.Table:
        """Merge the results of the parts of `split`."""
        rows = pa.concat_tables(results).to_pandas()
        is_sum = rows["value"].isna()
        sums = rows[is_sum].groupby(["kind", "field"], as_index=False)
        added = sums[["count", "occasions"]].sum()

        return self._together(added, rows[~is_sum])

    def _joined(self, state: pa.Table) -> pa.Table:
        """Join occasions of a value whose gap is at most the span."""
        if not state.num_rows:
            return state

        codes = _codes(state)
        first, last, counts = (
            state[name].to_numpy() for name in ("first", "last", "count")
        )
        order = np.lexsort((first, codes))
        codes, first, counts = codes[order], first[order], counts[order]
        # An earlier occasion can end later than the next one, so the latest end so far decides.
        last = pd.Series(last[order]).groupby(codes).cummax().to_numpy()
        begins = np.ones(len(codes), dtype=bool)
        span = self.apart // timedelta(milliseconds=1)
        begins[1:] = (codes[1:] != codes[:-1]) | (first[1:] - last[:-1] > span)
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(codes)) - 1
        keys = state.select(_KEYS).take(pa.array(order[starts]))
        columns = [*keys.columns, first[starts], last[ends]]
        columns.append(np.add.reduceat(counts, starts))

        return pa.table(columns, schema=_STATE)

    def _together(self, sums: pd.DataFrame, offenders: pd.DataFrame) -> pa.Table:
        """Return the sums, and the offenders of each kind with the most occasions."""
        ordered = offenders.sort_values(
            ["kind", "occasions", "count", "value"],
            ascending=[True, False, False, True],
        )
        most = ordered.groupby("kind", sort=False).head(self.top)
        rows = pd.concat([sums.assign(value=None, first=0, last=0), most])
        columns = {
            name: pa.array(rows[name], kind, from_pandas=True)
            for name, kind in _RESULT.items()
        }

        return pa.table(columns)


def _codes(state: pa.Table) -> NDArray[np.int64]:
    """Return a number per row: equal keys have equal numbers."""
    codes = np.zeros(state.num_rows, dtype=np.int64)
    for name in _KEYS:
        encoded = state[name].combine_chunks().dictionary_encode()
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()

    return codes


def _by_value(merged: pa.Table) -> pd.DataFrame:
    """Return one row per value, with the number of failures and of occasions."""
    occasions = merged.to_pandas()
    has_time = occasions["first"] != _NEVER
    times = occasions[["first", "last"]].astype("float64").where(has_time)
    timed = occasions.assign(
        occasions=has_time, first=times["first"], last=times["last"]
    )
    by_value: pd.DataFrame = timed.groupby(_KEYS, as_index=False).agg(
        count=("count", "sum"),
        occasions=("occasions", "sum"),
        first=("first", "min"),
        last=("last", "max"),
    )

    return by_value
