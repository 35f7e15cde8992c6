"""Failures whose signatures are stored: counted by signature, and the latest rows of each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.selection import select_timed, with_minute
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.signatures.signed_rows import SIGNATURE, are_signed

LATEST_ROWS: Final = 200
"""Of each kind of failures, the rows that titles, examples and cohesion are taken from."""

_KEY: Final = "key_"
_NULL: Final = "\x00"


def stored_counts(
    failures: AnyFrame, columns: Iterable[str], parts: Iterable[str], *, doing: str
) -> pa.Table | None:
    """Failures counted by stored signature, status, workflow, further columns and what their bodies contain.

    The columns of the counts are these, `contains_` (the `parts` of bodies that are there, joined), `count_`,
    `first_` and `last_`. None where there is no failure, or one without a signature of today's rules.
    """
    keys = [SIGNATURE, "response_status", "workflow_url", *columns]
    keys = list(dict.fromkeys(keys))
    read = [*keys, "response_body"] if (parts := tuple(parts)) else keys
    rows = select_timed(failures, read, doing=doing).then(partial(_with_parts, parts))
    counts = rows.count(*keys, "contains_", first_=("when_", "min"), last_=("when_", "max"))
    return counts if counts.num_rows and are_signed(counts[SIGNATURE]) else None


def latest_rows(
    rows: SelectedRows, keys: Iterable[str], parts: Iterable[str] = (), most: int = LATEST_ROWS
) -> pa.Table:
    """The latest rows of each combination of keys, at most so many: by `when_`, of equal ones the greater id.

    `parts` of bodies count as keys, too.

    Read twice: first the times alone, by the minute, then the rows since the minute that is early enough.
    """
    keys = tuple(keys)
    if parts := tuple(parts):
        rows, keys = rows.then(partial(_with_parts, parts)), (*keys, "contains_")
    timed = rows.then(partial(_with_key, keys)).then(with_minute)
    minutes = timed.count(_KEY, "minute_").to_pandas()
    minutes = minutes.sort_values([_KEY, "minute_"], ascending=[True, False], na_position="last")
    before = minutes.groupby(_KEY)["count_"].cumsum() - minutes["count_"]
    starts = minutes[before < most].fillna({"minute_": -1}).groupby(_KEY)["minute_"].min()
    known, since = pa.array(starts.index, pa.string()), pa.array(starts.astype("int64"))
    found = timed.then(partial(_since, known, since)).table()
    order = found.sort_by([(_KEY, "ascending"), ("when_", "descending"), ("dlq_id", "descending")])
    rank = order.select([_KEY]).to_pandas().groupby(_KEY).cumcount().to_numpy()
    return order.filter(pa.array(rank < most)).select(list(rows.names))


def _with_parts(parts: tuple[str, ...], table: pa.Table) -> pa.Table:
    found = pa.array([""] * table.num_rows, pa.string())
    for part in parts:
        here = pc.fill_null(pc.match_substring(table["response_body"], part), fill_value=False)
        found = pc.binary_join_element_wise(found, pc.if_else(here, part, ""), _NULL)
    return table.append_column("contains_", found)


def _with_key(keys: tuple[str, ...], table: pa.Table) -> pa.Table:
    texts = [table[key].cast(pa.string()) for key in keys]
    joined = pc.binary_join_element_wise(*texts, _NULL, null_handling="replace", null_replacement=_NULL)
    return table.append_column(_KEY, joined)


def _since(known: pa.Array, since: pa.Array, table: pa.Table) -> pa.Table:
    """The rows not before the minute of their key; those without a time where that is -1."""
    starts = since.take(pc.index_in(table[_KEY], known))
    return table.filter(pc.greater_equal(pc.fill_null(table["minute_"], -1), starts))
