"""The rows that a condition means: from what explains a rise to the failures themselves."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from toolkit.analysis.failure_attributes import (
    JSON_FIELDS,
    LABEL,
    SIGNATURE,
    attribute_columns,
    attribute_values,
)
from toolkit.analysis.grouping import grouped
from toolkit.analysis.selection import NONE, opened, scanned, select_timed, timestamps
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.arguments import nearest, shown
from toolkit.errors import InputError, UnexpectedResultWarning
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

    Warns
    -----
    UnexpectedResultWarning
        When no row has a value of the condition at all; it lists those that there are.

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
    return rows_meeting(failures, condition, since, until)


def rows_meeting(
    failures: AnyFrame, condition: Mapping[str, str], since: Time | None, until: Time | None
) -> pd.DataFrame:
    """What `select_failures` and `Explanation.select` return; a warning points at their caller."""
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
    read = select_timed(rows, columns, doing=_DOING) if timed else rows.choose(columns)
    if isinstance(source, pd.DataFrame):
        met = read.then(partial(_marked, wanted, span)).table()[_MET].to_numpy()
        chosen: pd.DataFrame = source.loc[met.astype(bool)]
    else:
        chosen = to_frame(read.then(partial(_selected, wanted, span)).table().select(names))
    if chosen.empty:
        _warn_of_unknown(rows, wanted)
    return chosen


def _warn_of_unknown(rows: SelectedRows, condition: Mapping[str, str]) -> None:
    """Say which value of a condition no row has at all, and which there are."""
    for name, value in condition.items():
        known: set[str] = set()
        for table in rows.choose(_read_for(name, rows.names)).map():
            values, codes = attribute_values(table, name)
            found = [values[code] for code in np.unique(codes)]
            if any(value in one.stated for one in found):
                break
            known = known.union(*(one.shown for one in found))
        else:
            if known:
                said = f"None of the failures has {name} = {value!r}. {nearest(value, sorted(known))}"
                warnings.warn(said, UnexpectedResultWarning, stacklevel=4)


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
    if not isinstance(condition, Mapping) or not all(isinstance(name, str) for name in condition):
        raise InputError(
            _DOING,
            got=f"{shown(condition)} for condition",
            expected="a dict of attributes and their values, such as {'response_status': '429'}",
            next_step="The frame of an Explanation has conditions.",
        )
    stated = {name: NONE if value is None else str(value) for name, value in condition.items()}
    # one of the labels, unless it is the text of the whole column
    return {
        LABEL if name == "labels" and not value.startswith("[") else name: value
        for name, value in stated.items()
    }


def _marked(condition: Mapping[str, str], span: Sequence[int | None], table: pa.Table) -> pa.Table:
    """Whether each row meets the condition in the time, as a table of one column."""
    met = np.ones(table.num_rows, dtype=bool)
    for name, value in condition.items():
        values, codes = attribute_values(table, name)
        met &= np.array([value in one.stated for one in values], dtype=bool)[codes]
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
