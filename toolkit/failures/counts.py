"""Count failures by column, label, state, error and stored signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.arguments import texts, whole, wrong
from toolkit.drawing.wording import shorten
from toolkit.failures.partial_results import Counts, FirstRows
from toolkit.failures.partitions import Step
from toolkit.failures.selection import (
    Counted,
    largest_groups,
    opened,
    scanned,
    select,
    select_timed,
    timestamps,
    typed_frame,
    with_minute,
)
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.failures.sql_results import SqlStep
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.document import masked_part
from toolkit.signatures.headlines import ErrorText, binary_line, error_text, mask_text
from toolkit.signatures.readable_bodies import readable_body
from toolkit.tables.frames import label_lists, to_frame
from toolkit.tables.signed_rows import SIGNATURE, are_signed

CALLBACK_STATES: Final = {
    "CALLBACK_FAIL": "the failure function failed to run",
    "CALLBACK_INPROGRESS": "the failure function is in progress",
    "CALLBACK_CANCELED": "the failure function was manually canceled",
    "CALLBACK_SUCCESS": "the failure function ran successfully",
}
"""The documented states with their meaning. States that need a person come first."""

SHORT_STATES: Final = {
    "CALLBACK_INPROGRESS": "in progress",
    "CALLBACK_SUCCESS": "succeeded",
    "CALLBACK_FAIL": "failed",
    "CALLBACK_CANCELED": "canceled",
}
"""The same states in a word or two."""

_UNKNOWN: Final = "a state unknown to this toolkit"
_ABSENT: Final = "no failure function, or no state yet"
_LONGEST: Final = 300  # characters of an error text or example


def count_by(failures: AnyFrame, column: str | Sequence[str]) -> pd.DataFrame:
    """Count rows by the values of one column, or by the combinations of several.

    Parameters
    ----------
    failures : frame
    column : str or sequence of str
        Columns of single values. A missing value counts as a value.

    Returns
    -------
    pandas.DataFrame
        The columns named, then `count` (Int64) and `share` (float64, of all rows), the largest count first
        and equal ones by value.

    Raises
    ------
    InputError
        If a column is missing or contains lists, maps or bytes.

    Examples
    --------
    >>> import pandas as pd
    >>> count_by(pd.DataFrame({"response_status": [500, 404, 500]}), "response_status")
       response_status  count     share
    0              500      2  0.666667
    1              404      1  0.333333
    """
    doing = "counting failures by column"
    columns = list(dict.fromkeys(texts("column", column)))
    if not columns:
        raise wrong("column", column, "a column, or several")

    for one in columns:
        # raises an error that names the argument
        select(failures, [], doing=doing, chosen={"column": one})

    counted = select(failures, columns, doing=doing).count(*columns)
    counted = counted.sort_by(
        [("count_", "descending"), *((name, "ascending") for name in columns)]
    )
    numbers = counted["count_"].to_numpy()
    frame = to_frame(pa.table({name: counted[name] for name in columns}))

    return frame.assign(
        count=pd.Series(numbers, dtype="Int64"),
        share=pd.Series(numbers / max(numbers.sum(), 1), dtype="float64"),
    )


def count_labels(failures: AnyFrame) -> pd.DataFrame:
    """Count failures by label. One with two labels counts under both, one without under a missing label.

    Parameters
    ----------
    failures : frame
        With the column `labels` (lists of text).

    Returns
    -------
    pandas.DataFrame
        `label` (str), `count` (Int64), `share` (float64, of all failures: the shares can add up to more than
        1), the largest count first and equal ones by label.

    Raises
    ------
    InputError
        When it is not a frame, or has no `labels`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> count_labels(pa.table({"labels": ['["a","b"]', '["a"]', None]}))
      label  count     share
    0     a      2  0.666667
    1     b      1  0.333333
    2   NaN      1  0.333333
    """
    counted = select(failures, ["labels"], doing="counting labels").count("labels")
    counts = counted["count_"].to_pylist()

    totals: Counter[str | None] = Counter()
    for labels, count in zip(
        label_lists(counted["labels"]).to_pylist(), counts, strict=True
    ):
        # a label that a failure has twice counts once, and a failure without labels counts as missing
        for label in {label for label in labels or () if label is not None} or {None}:
            totals[label] += count

    ordered = sorted(
        totals.items(), key=lambda item: (-item[1], item[0] is None, item[0] or "")
    )
    return typed_frame(
        label=("str", [label for label, _ in ordered]),
        count=("Int64", [count for _, count in ordered]),
        share=("float64", [count / sum(counts) for _, count in ordered]),
    )


def count_states(failures: AnyFrame) -> pd.DataFrame:
    """Count failures by the state of their failure callback. States that need a person come first.

    Parameters
    ----------
    failures : frame
        With the column `failure_function_state`.

    Returns
    -------
    pandas.DataFrame
        `state` (str), `count` (Int64), `share` (float64, of all failures), `meaning` (str). Documented states
        first in the order failed, in progress, canceled, succeeded; then unknown ones as they came; then
        none.

    Raises
    ------
    InputError
        When it is not a frame, or has no `failure_function_state`.

    Examples
    --------
    >>> import pandas as pd
    >>> states = pd.DataFrame({"failure_function_state": ["CALLBACK_SUCCESS", "CALLBACK_FAIL"]})
    >>> count_states(states)["state"].tolist()
    ['CALLBACK_FAIL', 'CALLBACK_SUCCESS']
    """
    counted = count_by(failures, "failure_function_state")
    # the service omits it, or sends it empty
    states = counted["failure_function_state"].fillna("")
    found = counted.groupby(states, sort=False)[["count", "share"]].sum()
    known = [state for state in CALLBACK_STATES if state in found.index]
    others = [state for state in found.index if state not in CALLBACK_STATES]
    # as they came, then none
    order = [
        *known,
        *sorted(others, key=lambda state: state == ""),
    ]

    return typed_frame(
        state=("str", [state or None for state in order]),
        count=("Int64", found["count"].loc[order].array),
        share=("float64", found["share"].loc[order].array),
        meaning=(
            "str",
            [
                CALLBACK_STATES.get(state, _UNKNOWN) if state else _ABSENT
                for state in order
            ],
        ),
    )


def count_errors(
    failures: AnyFrame,
    *,
    top: int | None = None,
    clean: Callable[[str], str] | None = None,
) -> pd.DataFrame:
    """Count failures by error, with the latest example of each.

    The error is the column ``error`` with placeholders. Use `group_failures` to compare errors with one
    another: it also learns which words are values, and knows the frames of stack traces. If all signatures
    are stored (a snapshot made by `sync_failures`), failures of one signature count under the error of the
    latest.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at`, `response_body`,
        `response_body_base64`.
    top : int, optional
        Number of errors to return, at least 1. Default: all.
    clean : callable, optional
        Applied to each body, and again to the error line in it. By default, everything that looks like a
        secret is masked. Pass ``str`` to see the original messages.

    Returns
    -------
    pandas.DataFrame
        One row per error, the most frequent first (ties are sorted by `text`): `text` (str: the error line
        with placeholders such as ``<num>``, as in the titles of groups), `kind` (str: ``json``, ``html``,
        ``trace``, ``message``, ``empty`` or ``binary``), `count` (Int64),
        `share` (float64, of all failures), `workflows` (Int64, number of workflows), `dlq_id`, `example`
        (str: id and complete message of the latest failure), `last_at` (datetime64[ms, UTC], when that was).

    Raises
    ------
    InputError
        When a column is missing, or `top` is below 1.

    Examples
    --------
    >>> import pandas as pd
    >>> bodies = ['{"error": "no user 1"}', '{"error": "no user 2"}', "timeout"]
    >>> times = pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "failed_at": times,
    ...     "created_at": times, "response_body": bodies, "response_body_base64": [None] * 3})
    >>> count_errors(frame)[["text", "count", "dlq_id"]]
                text  count dlq_id
    0  no user <num>      2      b
    1        timeout      1      c
    """
    doing = "counting error texts"
    top = whole("top", top, optional="for all")
    if clean is not None and not callable(clean):
        raise wrong("clean", clean, "a callable, or None")

    columns = ["dlq_id", "workflow_url", "response_body", "response_body_base64"]
    if clean is None:
        clean = Redactor().text
    # a snapshot has stored signatures, so that only one body per signature has to be read
    stored = _stored_errors(failures, columns, clean, doing)
    if stored is not None:
        return stored[:top]

    table = select_timed(failures, columns, doing=doing).whole_table(doing)
    read = _error_texts(table, clean).assign(last_at=timestamps(table, "when_"))
    rows = read.assign(
        workflow_url=pd.Series(table["workflow_url"].to_pylist(), dtype="str"), count_=1
    )

    return _by_text(read, rows)[:top]


def _stored_errors(
    failures: AnyFrame, columns: list[str], clean: Callable[[str], str], doing: str
) -> pd.DataFrame | None:
    """Return the errors of failures with stored signatures, read from the latest failure per signature."""
    failures = scanned(failures, doing=doing)
    if SIGNATURE not in opened(failures, doing=doing).names:
        return None

    counts = stored_counts(failures, (), (), doing=doing)
    if counts is None:
        return None

    latest = latest_rows(
        select_timed(failures, [*columns, SIGNATURE], doing=doing), [SIGNATURE], most=1
    )
    ids = pd.Series(latest[SIGNATURE].to_pylist(), dtype="str")
    read = _error_texts(latest, clean).assign(signature=ids)
    rows = counts.to_pandas().merge(read, on="signature")
    last = rows.groupby("signature")["last_"].max().astype("datetime64[ms, UTC]")

    return _by_text(read.assign(last_at=ids.map(last)), rows)


def _error_texts(table: pa.Table, clean: Callable[[str], str]) -> pd.DataFrame:
    """Return the error, the kind and an example for each row, read from the body."""
    bodies = list(
        zip(
            table["response_body"].to_pylist(),
            table["response_body_base64"].to_pylist(),
            strict=True,
        )
    )
    # most bodies repeat
    read = {body: _read(*body, clean) for body in dict.fromkeys(bodies)}

    return typed_frame(
        text=("str", [read[body][0] for body in bodies]),
        kind=("str", [read[body][1].kind for body in bodies]),
        example=("str", [read[body][1].text for body in bodies]),
        dlq_id=("str", [found_id or "" for found_id in table["dlq_id"].to_pylist()]),
    )


def _by_text(read: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `count_errors`. The example is the latest failure, or the greater id in a tie."""
    latest = read.sort_values(["last_at", "dlq_id"], ascending=False).drop_duplicates(
        "text"
    )
    groups = rows.groupby("text")
    counted = latest.set_index("text").assign(
        count=groups["count_"].sum(),
        workflows=groups["workflow_url"].nunique(dropna=False),
    )
    ordered = counted.reset_index().sort_values(
        ["count", "text"], ascending=[False, True], ignore_index=True
    )
    ordered = ordered.assign(share=ordered["count"] / max(ordered["count"].sum(), 1))
    names = [
        "text",
        "kind",
        "count",
        "share",
        "workflows",
        "dlq_id",
        "example",
        "last_at",
    ]
    types = {
        "count": "Int64",
        "share": "float64",
        "workflows": "Int64",
        "last_at": "datetime64[ms, UTC]",
    }

    return ordered[names].astype(types)


def _read(
    body: str | None, raw: str | None, clean: Callable[[str], str]
) -> tuple[str, ErrorText]:
    """Return the error line of a body with placeholders, and the line itself, both masked and shortened."""
    text = readable_body(body, raw)
    if raw and not text:
        found = ErrorText("binary", binary_line(raw))
    elif not text:
        found = error_text(text)
    else:
        # twice: a secret can be whole in the body only, or readable only once JSON is decoded
        found = error_text(clean(masked_part(text)))
        found = ErrorText(found.kind, clean(found.text))

    return shorten(mask_text(found.text), _LONGEST), ErrorText(
        found.kind, shorten(found.text, _LONGEST)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class CountMatrix(Counted):
    """Counts by the values of two columns; where values were merged, the last name is ``other (n)``."""

    rows: tuple[str, ...]  # names of the values, largest count first
    columns: tuple[str, ...]
    counts: NDArray[np.int64]  # shape (rows, columns)
    merged_rows: int  # number of values in the last row, or 0 if none were merged
    merged_columns: int

    def to_frame(self) -> pd.DataFrame:
        """Return the counts as a frame (Int64) with named rows and columns."""
        return pd.DataFrame(
            self.counts,
            index=list(self.rows),
            columns=list(self.columns),
            dtype="Int64",
        )


def count_matrix(
    frame: AnyFrame,
    rows: str,
    columns: str,
    *,
    top_rows: int = 12,
    top_columns: int = 8,
) -> CountMatrix:
    """Count rows by two columns of single values; the rarest beyond `top_rows` and `top_columns` are merged.

    Parameters
    ----------
    frame : frame
    rows, columns : str
        Columns of single values. A missing value counts as a value.
    top_rows, top_columns : int
        Number of values to keep, at least 1. Rarer values are merged.

    Returns
    -------
    CountMatrix

    Raises
    ------
    InputError
        If a column is missing or contains lists, maps or bytes, or if a number is not an integer.

    Examples
    --------
    >>> frame = pd.DataFrame({"workflow_url": ["a", "a", "b"], "response_status": [500, 404, 500]})
    >>> count_matrix(frame, "workflow_url", "response_status").to_frame()
       500  404
    a    1    1
    b    1    0
    """
    doing = "counting by two columns"
    top_rows = whole("top_rows", top_rows)
    top_columns = whole("top_columns", top_columns)
    selected = select(frame, [], doing=doing, chosen={"rows": rows, "columns": columns})
    counted = selected.count(*selected.names)
    numbers = np.array(counted["count_"].to_pylist(), dtype=np.int64)
    row_names, row_positions, merged_rows = largest_groups(
        counted[rows].to_pylist(), numbers, top_rows
    )
    column_names, column_positions, merged_columns = largest_groups(
        counted[columns].to_pylist(), numbers, top_columns
    )
    # several merged values share a cell, so their counts are added instead of assigned
    counts = np.zeros((len(row_names), len(column_names)), dtype=np.int64)
    np.add.at(counts, (row_positions, column_positions), numbers)

    return CountMatrix(
        rows=row_names, columns=column_names, counts=counts, merged_rows=merged_rows,
        merged_columns=merged_columns,
    )  # fmt: skip


LATEST_ROWS: Final = 200
"""Number of rows per kind of failure that titles, examples and cohesion are based on."""

_KEY: Final = "key_"
_NULL: Final = "\x00"


def stored_counts(
    failures: AnyFrame, columns: Iterable[str], parts: Iterable[str], *, doing: str
) -> pa.Table | None:
    """Count failures by stored signature, status, workflow, further columns, and parts of their bodies.

    The result also has the columns `contains_` (the `parts` that occur in the bodies, joined), `count_`,
    `first_` and `last_`. Return None if a failure has no signature by the current rules, or no rows match.
    """
    keys = list(dict.fromkeys([SIGNATURE, "response_status", "workflow_url", *columns]))
    parts, read = tuple(parts), list(keys)
    # bodies are large, so they are only read if a part is searched in them
    if parts:
        read.append("response_body")
    rows = _divided(select_timed(failures, read, doing=doing), parts)
    counts = rows.count(
        *keys, "contains_", first_=("when_", "min"), last_=("when_", "max")
    )
    if counts.num_rows and are_signed(counts[SIGNATURE]):
        return counts

    return None


def latest_rows(
    rows: SelectedRows,
    keys: Iterable[str],
    parts: Iterable[str] = (),
    most: int = LATEST_ROWS,
    *,
    needed: Iterable[str] = (),
) -> pa.Table:
    """Return the latest rows of each combination of keys and `parts` of bodies, by `when_`, then by id.

    `needed` are further columns that earlier steps of the rows use.

    The frame is read twice: first only the keys and times, then the rows since the earliest minute needed.
    Both readings keep a bounded number of rows per key. DuckDB finds the rows in one query.
    """
    keys, parts = tuple(keys), tuple(parts)
    order = (("when_", "descending"), ("dlq_id", "descending"))
    counted_columns = [*keys, "failed_at", "created_at", *needed]
    if parts:
        counted_columns.append("response_body")
        rows, keys = _divided(rows, parts), (*keys, "contains_")

    if rows.in_database:
        found = rows.computed_elsewhere(FirstRows(order, most, keys))
        if found is not None:
            return found.select(list(rows.names))

    # first reading: per key, find the earliest minute that is needed for the latest `most` rows
    timed = rows.then(partial(_with_key, keys)).then(with_minute)
    # bodies are by far the largest column, and most are not among the latest
    counted = timed.choose(dict.fromkeys(counted_columns))
    minutes = counted.reduce(
        Counts((_KEY, "minute_"), keep=partial(_latest_minutes, most))
    )
    starts = minutes.to_pandas().fillna({"minute_": -1}).groupby(_KEY)["minute_"].min()
    known, since = pa.array(starts.index, pa.string()), pa.array(starts.astype("int64"))
    # second reading: the rows since then, which are few, sorted exactly
    first_minute = int(starts.min()) if len(starts) else -1
    if first_minute >= 0:
        start = datetime.fromtimestamp(60 * first_minute, UTC)
        timed = timed.skip_before("failed_at", start)

    latest = timed.then(partial(_since, known, since)).reduce(
        FirstRows(order, most, (_KEY,))
    )
    return latest.select(list(rows.names))


def _latest_minutes(most: int, counts: pa.Table) -> pa.Table:
    """Return the minutes of each key that contain the latest `most` rows.

    A minute that some of the rows make superfluous is not needed for all rows either: these have no fewer
    rows after it. Leaving minutes out of partial counts therefore does not change the result.
    """
    frame = counts.to_pandas().sort_values(
        [_KEY, "minute_"], ascending=[True, False], na_position="last"
    )
    later = frame.groupby(_KEY)["count_"].cumsum() - frame["count_"]
    return counts.take(pa.array(frame.index[later < most]))


def _divided(rows: SelectedRows, parts: tuple[str, ...]) -> SelectedRows:
    """Return rows with `contains_`, which is empty without parts."""
    step: Step = partial(_with_parts, parts)
    if not parts:
        step = SqlStep(step, "(SELECT *, '' AS contains_ FROM {rows})")
    return rows.then(step)


def _with_parts(parts: tuple[str, ...], table: pa.Table) -> pa.Table:
    found = pa.array(np.full(table.num_rows, ""), pa.string())
    for part in parts:
        here = pc.fill_null(
            pc.match_substring(table["response_body"], part), fill_value=False
        )
        found = pc.binary_join_element_wise(found, pc.if_else(here, part, ""), _NULL)

    return table.append_column("contains_", found)


def _with_key(keys: tuple[str, ...], table: pa.Table) -> pa.Table:
    texts = [table[key].cast(pa.string()) for key in keys]
    joined = pc.binary_join_element_wise(
        *texts, _NULL, null_handling="replace", null_replacement=_NULL
    )
    return table.append_column(_KEY, joined)


def _since(known: pa.Array, since: pa.Array, table: pa.Table) -> pa.Table:
    """Return the rows since the minute of their key. If it is -1, rows without a time are included."""
    starts = since.take(pc.index_in(table[_KEY], known))
    return table.filter(pc.greater_equal(pc.fill_null(table["minute_"], -1), starts))
