"""How many failures by the values of columns, by label, and by the state of the failure callback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import narwhals as nw
import pandas as pd
import pyarrow as pa
from narwhals.typing import IntoFrame

from toolkit.analysis.columns import check_scalar, collect, select
from toolkit.arguments import texts, wrong
from toolkit.tables.explode import label_lists
from toolkit.tables.frames import to_frame

CALLBACK_STATES: Final = {
    "CALLBACK_FAIL": "the failure function failed to run",
    "CALLBACK_INPROGRESS": "the failure function is in progress",
    "CALLBACK_CANCELED": "the failure function was manually canceled",
    "CALLBACK_SUCCESS": "the failure function ran successfully",
}
"""The states the service documents and what they mean, those that need a person first."""

_UNKNOWN: Final = "a state this toolkit does not know"
_ABSENT: Final = "no failure function, or no state yet"


def count_by(failures: IntoFrame, column: str | Sequence[str]) -> pd.DataFrame:
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
        When a column is missing, or holds lists, maps or bytes.

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
    lazy = select(failures, [], doing=doing)
    for one in columns:
        lazy = select(failures, columns, doing=doing, chosen={"column": one})
    check_scalar(lazy, columns, doing=doing)
    counted = collect(lazy.group_by(*columns).agg(nw.len().alias("count_")))
    total = sum(counted["count_"].to_pylist())
    order = [("count_", "descending"), *((name, "ascending") for name in columns)]
    counted = counted.sort_by(order)
    frame = to_frame(pa.table({name: counted[name] for name in columns}))
    numbers = counted["count_"].to_pylist()
    return frame.assign(
        count=pd.Series(numbers, dtype="Int64"),
        share=pd.Series([number / total for number in numbers], dtype="float64"),
    )


def count_labels(failures: IntoFrame) -> pd.DataFrame:
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
        When it is no frame, or has no `labels`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> count_labels(pa.table({"labels": ['["a","b"]', '["a"]', None]}))
      label  count     share
    0     a      2  0.666667
    1     b      1  0.333333
    2   NaN      1  0.333333
    """
    lists = label_lists(collect(select(failures, ["labels"], doing="counting labels"))["labels"]).to_pylist()
    totals: Counter[str | None] = Counter()
    for labels in lists:
        totals.update({label for label in labels or () if label is not None} or {None})
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0] is None, item[0] or ""))
    return pd.DataFrame(
        {
            "label": pd.Series([label for label, _ in ordered], dtype="str"),
            "count": pd.Series([count for _, count in ordered], dtype="Int64"),
            "share": pd.Series([count / len(lists) for _, count in ordered], dtype="float64"),
        }
    )


def count_states(failures: IntoFrame) -> pd.DataFrame:
    """Count failures by the state of their failure callback, those that need a person first.

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
        When it is no frame, or has no `failure_function_state`.

    Examples
    --------
    >>> import pandas as pd
    >>> states = pd.DataFrame({"failure_function_state": ["CALLBACK_SUCCESS", "CALLBACK_FAIL"]})
    >>> count_states(states)["state"].tolist()
    ['CALLBACK_FAIL', 'CALLBACK_SUCCESS']
    """
    known = list(CALLBACK_STATES)
    rows: list[tuple[int, str | None, int, float, str]] = []
    absent, absent_share = 0, 0.0  # the service leaves the field out or sends it empty
    for state, count, share in count_by(failures, "failure_function_state").itertuples(
        index=False, name=None
    ):
        if isinstance(state, str) and state:
            rank = known.index(state) if state in known else len(known)
            rows.append((rank, state, count, share, CALLBACK_STATES.get(state, _UNKNOWN)))
        else:
            absent, absent_share = absent + count, absent_share + share
    rows.sort(key=lambda row: row[0])  # stable: unknown states stay by count
    if absent:
        rows.append((len(known) + 1, None, absent, absent_share, _ABSENT))
    return pd.DataFrame(
        {
            "state": pd.Series([row[1] for row in rows], dtype="str"),
            "count": pd.Series([row[2] for row in rows], dtype="Int64"),
            "share": pd.Series([row[3] for row in rows], dtype="float64"),
            "meaning": pd.Series([row[4] for row in rows], dtype="str"),
        }
    )
