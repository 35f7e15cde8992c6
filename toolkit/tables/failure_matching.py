"""Failure filters applied to frames: the rows they choose, and the values that they could have."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.arguments import nearest
from toolkit.errors import InputError
from toolkit.filters.error_text import error_text
from toolkit.filters.failure import FIELDS, FailureFilter, FilterField, names_error
from toolkit.redaction import Redactor
from toolkit.tables.frames import label_lists
from toolkit.tables.schemas import UNFIT

_COMPARED: Final = {">=": operator.ge, "<=": operator.le, "=": operator.eq}


def match_failures(frame: pd.DataFrame, wanted: FailureFilter) -> NDArray[np.bool_]:
    """Which rows of a frame of failures a filter chooses; a missing value matches nothing.

    Columns that the filter does not need may be missing; without one that it needs, InputError.

    >>> rows = pd.DataFrame({"workflow_run_id": ["wfr_1", "wfr_2", None]})
    >>> match_failures(rows, FailureFilter(workflow_run_id="wfr_2")).tolist()
    [False, True, False]
    """
    matches = np.ones(len(frame), dtype=bool)
    for matched in _matched(frame, wanted).values():
        matches &= matched
    return matches


def unknown_values(frame: pd.DataFrame, wanted: FailureFilter, redactor: Redactor) -> list[str]:
    """Which values of a filter no row of a frame has, each with the nearest that there are.

    None for a column that is empty. The redactor masks what is named, as it masked the frame.

    >>> rows = pd.DataFrame({"caller_ip": ["10.0.0.1", "10.0.0.2"]})
    >>> unknown_values(rows, FailureFilter(caller_ip="10.0.01"), Redactor())
    ["no caller_ip '10.0.01'. Did you mean '10.0.0.1'? Known: '10.0.0.1', '10.0.0.2'."]
    """
    messages = []
    for name, field in FIELDS.items():
        values = getattr(wanted, name) if field.many else ()
        known = [value for value, _ in count_values(frame, name)] if values else []
        known = list(dict.fromkeys([*field.known, *known])) if values else []
        for value in values if known else ():
            shown = redactor.url(value) if name == "workflow_url" else redactor.text(str(value))
            there = any(names_error(line, (shown,)) for line in known) if name == "error" else shown in known
            if not there:
                messages.append(f"no {name} {shown!r}. {nearest(shown, known)}")
    return messages


def _matched(frame: pd.DataFrame, wanted: FailureFilter) -> dict[str, NDArray[np.bool_]]:
    """Which rows each field of a filter chooses, by the field's name."""
    chosen = ((field, getattr(wanted, field.name)) for field in FIELDS.values())
    return {field.name: _matching(frame, field, value) for field, value in chosen if value not in (None, ())}


def _matching(frame: pd.DataFrame, field: FilterField, value: Any) -> NDArray[np.bool_]:
    """Which rows one field of a filter chooses."""
    if field.compare == "contains":
        # each distinct line is compared once: most failures share theirs with many others
        codes, lines = pd.factorize(_arrow(error_lines(frame)).cast(pa.string()).to_pandas())
        return np.array([*(names_error(line, value) for line in lines), False])[codes]
    column = _column(frame, field.columns[0])
    if field.kind == "time":
        if pd.api.types.is_datetime64_any_dtype(column.dtype) and column.dt.tz is None:
            column = column.dt.tz_localize("UTC")  # times without a zone are in UTC
        return np.asarray(_COMPARED[field.compare](column, pd.Timestamp(value)), dtype=bool)
    if field.kind == "status":
        return column.isin(value).to_numpy(bool)
    values = value if field.many else (value,)
    matches = _among(column, values)
    return matches | _labelled(frame, values) if "labels" in field.columns else matches


def count_choices(
    frame: pd.DataFrame, wanted: FailureFilter, names: tuple[str, ...]
) -> dict[str, list[tuple[str, int]]]:
    """How many rows each value of some fields would choose, with all other conditions of a filter.

    Those of most rows come first. A count does not depend on other values of its own field, which are
    alternatives to it. Fields are those of several values; see `count_values`.

    >>> rows = pd.DataFrame({"caller_ip": ["a", "b", "b"], "response_status": [500, 500, 429]})
    >>> count_choices(rows, FailureFilter(response_status=500, caller_ip="a"), ("caller_ip",))
    {'caller_ip': [('b', 1), ('a', 1)]}
    """
    matched = _matched(frame, wanted)
    choices = {}
    for name in names:
        values, rows = _values(frame, name)
        everywhere = _counted(values)
        others = [mask for field, mask in matched.items() if field != name]
        here = None
        if others:
            mask = np.logical_and.reduce(others)
            here = dict(_counted(values.filter(pa.array(mask if rows is None else mask[rows]))))
        pairs = everywhere if here is None else [(value, here.get(value, 0)) for value, _ in everywhere]
        choices[name] = sorted(pairs, key=lambda pair: -pair[1])
    return choices


def error_lines(frame: pd.DataFrame) -> pd.Series:
    """The line of each failure that says what went wrong: the column ``error``, or read from the bodies."""
    if "error" in frame.columns:
        return frame["error"]
    texts = [body if isinstance(body, str) else None for body in _column(frame, "response_body")]
    codes, bodies = pd.factorize(np.array(texts, dtype=object), use_na_sentinel=False)
    lines = [error_text(body if isinstance(body, str) else None).text for body in bodies]
    return pd.Series(np.array(lines, dtype=object)[codes], index=frame.index, dtype=object)


def count_values(frame: pd.DataFrame, name: str) -> list[tuple[str, int]]:
    """The values that a field of a filter could have in this frame, and in how many rows each is.

    The most frequent first, equal ones by value. Labels are those of ``labels``, where that column is there.

    >>> count_values(pd.DataFrame({"caller_ip": ["10.0.0.2", "10.0.0.1", "10.0.0.2", None]}), "caller_ip")
    [('10.0.0.2', 2), ('10.0.0.1', 1)]
    """
    return _counted(_values(frame, name)[0])


def _values(frame: pd.DataFrame, name: str) -> tuple[pa.Array, NDArray[np.int64] | None]:
    """The values of a field of a filter, and the row of each where a row can have several."""
    if name == "label" and "labels" in frame.columns:
        return _labels(frame)
    if name == "error" and {"error", "response_body"} & set(frame.columns):
        return _arrow(error_lines(frame)), None
    if name in frame.columns:
        return _arrow(frame[name]), None
    return pa.array([], pa.string()), np.array([], dtype=np.int64)


def _counted(values: pa.Array) -> list[tuple[str, int]]:
    counted = pc.value_counts(values)
    names, counts = counted.field(0).to_pylist(), counted.field(1).to_pylist()
    pairs = [(str(value), count) for value, count in zip(names, counts, strict=True) if value]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame.columns:
        raise InputError(
            "choosing failures of a frame",
            got=f"a frame without {name}",
            expected="the columns that the filter needs",
            next_step="Use a frame made by load_failures.",
        )
    return frame[name]


def _arrow(column: pd.Series) -> pa.Array:
    """A column as texts or numbers, whatever type holds them."""
    try:
        array = pa.array(column, from_pandas=True)
    except UNFIT:
        raise _unfit(column) from None
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    kind = array.type
    if pa.types.is_null(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.string())  # a column with nothing in it has no type of its own
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise _unfit(column)
    return array


def _unfit(column: pd.Series) -> InputError:
    return InputError(
        "choosing failures of a frame",
        got=f"values of the type {str(column.dtype)[:80]} in the column {column.name}",
        expected="texts or numbers, as load_failures gives them",
        next_step="Use a frame made by load_failures.",
    )


def _among(column: pd.Series, values: tuple[str, ...]) -> NDArray[np.bool_]:
    held = _arrow(column)
    try:
        matches = pc.is_in(held, pa.array(values, pa.string()).cast(held.type))
    except UNFIT:
        raise _unfit(column) from None
    return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)


def _labels(frame: pd.DataFrame) -> tuple[pa.Array, NDArray[np.int64]]:
    """All labels, and the row of each."""
    lists = label_lists(frame["labels"])
    return pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists), dtype=np.int64)


def _labelled(frame: pd.DataFrame, values: tuple[str, ...]) -> NDArray[np.bool_]:
    matches = np.zeros(len(frame), dtype=bool)
    if "labels" in frame.columns:
        labels, rows = _labels(frame)
        matches[rows[np.asarray(pc.is_in(labels, pa.array(values, labels.type)), dtype=bool)]] = True
    return matches
