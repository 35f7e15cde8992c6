"""Select the rows that meet a condition of an explanation, for example `{"response header x-region": "eu"}`.

A condition names columns, a label, a group (`signature`), fields of JSON, and steps of workflow runs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.base.arguments import nearest, shown
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.times import Time, parse_time
from toolkit.failures.attribute_values import (
    JSON_FIELDS,
    LABEL,
    column_texts,
    json_members,
    labels_of,
    masked_member,
    masked_text,
)
from toolkit.failures.failure_attributes import SIGNATURE
from toolkit.failures.grouping import grouped
from toolkit.failures.run_attributes import columns_of_steps, values_of_runs
from toolkit.failures.selection import NONE, opened, scanned, select_timed, timestamps
from toolkit.failures.signed_failures import present_ids
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import to_frame

_SELECTING: Final = "selecting failures"
_MET: Final = "met_"


def select_failures(
    failures: AnyFrame,
    condition: Mapping[str, str],
    *,
    since: Time | None = None,
    until: Time | None = None,
) -> pd.DataFrame:
    """Select the failures that meet a condition of an explanation, of an incident, or of your own.

    Parameters
    ----------
    failures : frame
        The failures table, or another frame with the columns that the condition names.
    condition : mapping of str to str
        Attributes and values that a row must have: a column; ``label``; ``signature``, the id of the group;
        or a field of a JSON column, as ``header``, ``response header``, ``body``, ``response body`` or
        ``extra``, a space and the name of the field. ``(none)`` is a missing or empty value. If the condition
        is empty, all rows meet it.
    since, until : str, datetime, date, timedelta or int, optional
        The time of the failures, by `failed_at` or, if that is missing, `created_at`; both ends included.

    Returns
    -------
    pandas.DataFrame
        The selected rows with all columns, in the order of the frame and with the same index.

    Raises
    ------
    InputError
        If the frame does not have the attribute, a column is missing, or a time cannot be read.

    Warns
    -----
    UnexpectedResultWarning
        If no row at all has a value of the condition. The warning lists the values that exist.

    See Also
    --------
    Explanation.select : the same for a ranked condition, limited to the time of the explanation.

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
    failures: AnyFrame,
    condition: Mapping[str, str],
    since: Time | None,
    until: Time | None,
) -> pd.DataFrame:
    """Return the rows of `select_failures` and `Explanation.select`; a warning points at their caller."""
    wanted = _checked(condition)
    span = (
        _milliseconds("since", since, end=False),
        _milliseconds("until", until, end=True),
    )
    source = scanned(failures, doing=_SELECTING)
    rows = opened(source, doing=_SELECTING)
    names = rows.names
    if SIGNATURE in wanted:
        # an id from before a sync joined the group with others leads to the present group
        renamed = present_ids(source)
        wanted[SIGNATURE] = renamed.get(wanted[SIGNATURE], wanted[SIGNATURE])
    if SIGNATURE in wanted and SIGNATURE not in names:
        rows.check_memory(_SELECTING)
        ids = pa.array(grouped(source)[1], pa.string())
        rows = opened(rows.table().append_column(SIGNATURE, ids), doing=_SELECTING)

    condition_columns = [_columns_of(name, rows.names) for name in wanted]
    needed = dict.fromkeys(chain.from_iterable(condition_columns))
    columns = (
        list(needed or names[:1]) if isinstance(source, pd.DataFrame) else rows.names
    )
    has_span = span != (None, None)
    selected = (
        select_timed(rows, columns, doing=_SELECTING)
        if has_span
        else rows.choose(columns)
    )

    if isinstance(source, pd.DataFrame):
        is_met = selected.then(partial(_marked, wanted, span)).table()[_MET].to_numpy()
        matching: pd.DataFrame = source.loc[is_met.astype(bool)]
    else:
        matching = to_frame(
            selected.then(partial(_meeting, wanted, span)).table().select(names)
        )

    if matching.empty:
        for message in _unknown_values(rows, wanted):
            warnings.warn(message, UnexpectedResultWarning, stacklevel=3)

    return matching


def _checked(condition: object) -> dict[str, str]:
    """Return a condition with values as strings, and ``label`` for ``labels``."""
    if not isinstance(condition, Mapping) or not all(
        isinstance(name, str) for name in condition
    ):
        raise InputError(
            _SELECTING,
            got=f"{shown(condition)} for condition",
            expected="a dict of attributes and their values, such as {'response_status': '429'}",
            next_step="The frame of an Explanation has conditions.",
        )

    wanted = {}
    for name, value in condition.items():
        text = NONE if value is None else str(value) or NONE
        # `labels` means one of the labels, unless the value is the JSON of the column
        attribute = LABEL if name == "labels" and not text.startswith("[") else name
        wanted[attribute] = text

    return wanted


def _milliseconds(name: str, time: Time | None, *, end: bool) -> int | None:
    if time is None:
        return None
    return round(parse_time(time, end=end, name=name).timestamp() * 1000)


def _columns_of(name: str, names: Sequence[str]) -> list[str]:
    """Return the columns among these names that an attribute is read from."""
    candidates = [
        column
        for column, prefix in JSON_FIELDS.items()
        if name.startswith(f"{prefix} ")
    ]
    if name in names:
        candidates = [name]
    if name == LABEL:
        candidates = ["labels", LABEL]
    columns = [column for column in candidates if column in names]
    columns = columns or columns_of_steps(name, names)
    if not columns:
        raise InputError(
            _SELECTING,
            got=f"{shown(name)} in condition",
            expected="an attribute of the failures",
            next_step=nearest(
                name,
                [*names, LABEL, SIGNATURE, *JSON_FIELDS.values()],
                what="They have",
            ),
        )

    return columns


_Span: TypeAlias = tuple[int | None, int | None]
"""First and last millisecond since 1970; None if there is no limit."""


def _marked(condition: Mapping[str, str], span: _Span, table: pa.Table) -> pa.Table:
    """Return whether each row meets the condition and is in the span, as a table with one column."""
    is_met = np.ones(table.num_rows, dtype=bool)
    for name, value in condition.items():
        values, codes = _values(table, name)
        is_met &= np.array([value in known.stated for known in values], dtype=bool)[
            codes
        ]

    since, until = span
    if since is not None or until is not None:
        when = timestamps(table, "when_")
        times = when.astype("datetime64[ms, UTC]").astype("int64").to_numpy()
        is_met &= when.notna().to_numpy()
        if since is not None:
            is_met &= times >= since
        if until is not None:
            is_met &= times <= until

    return pa.table({_MET: is_met})


def _meeting(condition: Mapping[str, str], span: _Span, table: pa.Table) -> pa.Table:
    return table.filter(_marked(condition, span, table)[_MET])


class _Value(NamedTuple):
    """A value of an attribute: the forms that a condition may have, and the forms that may be shown."""

    stated: frozenset[str]
    shown: frozenset[str]

    @classmethod
    def masked(cls, *shown: str) -> _Value:
        """Return a value that a condition names by the masked form only."""
        return cls(frozenset(shown), frozenset(shown))


def _values(table: pa.Table, name: str) -> tuple[list[_Value], NDArray[np.int64]]:
    """Return the distinct values of an attribute, and the number of the value of each row."""
    redactor = Redactor()
    if name == LABEL and "labels" in table.column_names:
        codes, labels = pd.factorize(labels_of(table, redactor))
        return [_Value.masked(*(own or [NONE])) for own in labels], codes.astype(
            np.int64
        )

    if name in table.column_names:
        texts = column_texts(table[name].to_pandas(integer_object_nulls=True))
        return [
            _value(text, redactor) for text in texts.categories
        ], texts.codes.astype(np.int64)

    if columns_of_steps(name, table.column_names):
        codes, of_runs = pd.factorize(values_of_runs(table, name))
        return [_Value.masked(*own) for own in of_runs], codes.astype(np.int64)

    (column,) = _columns_of(name, table.column_names)
    objects = np.array(table[column].to_pylist(), dtype=object)
    codes, distinct = pd.factorize(objects, use_na_sentinel=False)
    field = name.removeprefix(f"{JSON_FIELDS[column]} ")

    return [_member(json, field, redactor) for json in distinct], codes.astype(np.int64)


def _value(text: str, redactor: Redactor) -> _Value:
    """Return a value of a column: as it is, masked and cut, and "500" for "500.0"."""
    masked = frozenset({masked_text(text, redactor) or NONE})
    # pandas turns a column of whole numbers with missing values into floats, so 500 may be shown as 500.0.
    whole_number = re.sub(r"\A(-?\d+)\.0\Z", r"\1", text)
    return _Value(masked | {text, whole_number}, masked)


def _member(json: object, field: str, redactor: Redactor) -> _Value:
    """Return the value of a field of a JSON object, ``(none)`` if it has no such field."""
    members = json_members(json)
    if field not in members:
        return _Value.masked(NONE)

    masked = frozenset({masked_member(field, members[field], redactor)})
    return _Value(masked | {members[field]}, masked)


def _unknown_values(rows: SelectedRows, condition: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each value of a condition that no row has, with the values that exist."""
    for name, value in condition.items():
        stated: set[str] = set()
        existing: set[str] = set()
        for table in rows.choose(_columns_of(name, rows.names)).map():
            values, codes = _values(table, name)
            for code in np.unique(codes):
                stated |= values[code].stated
                existing |= values[code].shown

            if value in stated:
                break

        if existing and value not in stated:
            yield f"None of the failures has {name} = {value!r}. {nearest(value, sorted(existing))}"
