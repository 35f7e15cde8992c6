"""The rows that a condition means: from what explains a rise to the failures themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from toolkit.analysis.failure_attributes import JSON_FIELDS, LABEL, SIGNATURE, attribute_columns, meets
from toolkit.analysis.grouping import grouped
from toolkit.analysis.selection import opened, scanned, select_timed, timestamps
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import nearest, shown
from toolkit.errors import InputError
from toolkit.tables.frames import to_frame
from toolkit.times import Time, parse_time

_DOING: Final = "selecting failures"
_MET: Final = "met_"


def select_failures(
    failures: AnyFrame,
    condition: Mapping[str, str],
    *,
    since: Time | None = None,
    until: Time | None = None,
) -> pd.DataFrame:
    """Select the failures that meet a condition, as explanations and incidents state it.

    Parameters
    ----------
    failures : frame
        The failures table, or any other frame whose columns the condition names.
    condition : mapping of str to str
        Attributes and their values, all of which a row must have: a column; ``label``; ``signature``, the id
        of its group; ``header``, ``response header``, ``body``, ``response body`` or ``extra``, and behind a
        space the name of a field. ``(none)`` is a missing value. An empty condition is met by all.
    since, until : str, datetime, date, timedelta or int, optional
        When the failures were, by `failed_at` (else `created_at`); both ends included.

    Returns
    -------
    pandas.DataFrame
        These rows of the frame with all columns, in its order, with its index.

    Raises
    ------
    InputError
        When the frame has no such attribute, a column is missing, or a time cannot be read.

    See Also
    --------
    Explanation.select : the same for a ranked condition, in its time.

    Examples
    --------
    >>> failures = tk.load_failures(service, progress=False)
    >>> throttled = tk.select_failures(failures, {"response_status": "429", "label": "payments"})
    >>> bool((throttled["response_status"] == 429).all())
    True
    >>> incident = tk.analysis.find_incidents(failures).iloc[0]
    >>> chosen = tk.select_failures(
    ...     failures, incident["condition"], since=incident["from_at"], until=incident["until_at"])
    >>> bool(len(chosen) == incident["observed"])
    True
    """
    wanted = _checked(condition)
    span = [
        None if time is None else round(parse_time(time, end=end, name=name).timestamp() * 1000)
        for name, time, end in (("since", since, False), ("until", until, True))
    ]
    source = scanned(failures, doing=_DOING)
    rows = opened(source, doing=_DOING)
    names = rows.names
    if SIGNATURE in wanted and SIGNATURE not in names:
        ids = pa.array(grouped(source)[1], pa.string())
        rows = opened(rows.table().append_column(SIGNATURE, ids), doing=_DOING)
    needed = dict.fromkeys(column for name in wanted for column in _read_for(name, rows.names))
    columns = list(needed or names[:1]) if isinstance(source, pd.DataFrame) else rows.names
    timed = span != [None, None]
    rows = select_timed(rows, columns, doing=_DOING) if timed else rows.choose(columns)
    if isinstance(source, pd.DataFrame):
        met = rows.then(partial(_marked, wanted, span)).table()[_MET].to_numpy()
        chosen: pd.DataFrame = source.loc[met.astype(bool)]
        return chosen
    return to_frame(rows.then(partial(_selected, wanted, span)).table().select(names))


def _read_for(name: str, names: Sequence[str]) -> list[str]:
    """The columns that an attribute is read from."""
    columns = attribute_columns(name, names)
    if not columns:
        raise InputError(
            _DOING,
            got=f"{shown(name)} in condition",
            expected="an attribute of the failures",
            next_step=nearest(name, [*names, LABEL, SIGNATURE, *JSON_FIELDS.values()], what="They have"),
        )
    return columns


def _checked(condition: object) -> dict[str, str]:
    if isinstance(condition, Mapping) and all(isinstance(name, str) for name in condition):
        return {name: value if isinstance(value, str) else str(value) for name, value in condition.items()}
    raise InputError(
        _DOING,
        got=f"{shown(condition)} for condition",
        expected="a dict of attributes and their values, such as {'response_status': '429'}",
        next_step="The frame of an Explanation has conditions.",
    )


def _marked(condition: Mapping[str, str], span: Sequence[int | None], table: pa.Table) -> pa.Table:
    """Whether each row meets the condition in the time, as a table of one column."""
    met = np.ones(table.num_rows, dtype=bool)
    for name, value in condition.items():
        met &= meets(table, name, value)
    since, until = span
    if since is not None or until is not None:
        when = timestamps(table, "when_")
        times = when.astype("datetime64[ms, UTC]").astype("int64").to_numpy()
        met &= when.notna().to_numpy()
        met &= (times >= (since if since is not None else times)) & (
            times <= (until if until is not None else times)
        )
    return pa.table({_MET: met})


def _selected(condition: Mapping[str, str], span: Sequence[int | None], table: pa.Table) -> pa.Table:
    return table.filter(_marked(condition, span, table)[_MET])
