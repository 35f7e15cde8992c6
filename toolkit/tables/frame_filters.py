"""Apply a filter of failures to frames: find the matching rows, and the values that a filter can name."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.arguments import nearest
from toolkit.filters.failure import FailureFilter
from toolkit.filters.failure_fields import FIELDS, FilterField
from toolkit.filters.failure_rows import names_error
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.headlines import error_text
from toolkit.tables.frames import checked_frame, label_lists, texts_of

_COMPARISONS: Final = {">=": operator.ge, "<=": operator.le, "=": operator.eq}
_MOST_MEANT: Final = 3  # addresses that a suggestion names

_ColumnComparison: TypeAlias = Callable[
    ["pd.Series[Any]", FilterField, Any], NDArray[np.bool_]
]


def match_failures(
    frame: pd.DataFrame,
    filter: FailureFilter,  # noqa: A002 - as in `load_failures`
) -> NDArray[np.bool_]:
    """Return which rows of a frame of failures a filter matches. A missing value matches no value.

    Raise InputError if a column that the filter compares is missing.

    >>> rows = pd.DataFrame({"workflow_run_id": ["wfr_1", "wfr_2", None]})
    >>> match_failures(rows, FailureFilter(workflow_run_id="wfr_2")).tolist()
    [False, True, False]
    """
    matches = np.ones(len(frame), dtype=bool)
    for matched in _matched(frame, filter).values():
        matches &= matched
    return matches


def unknown_values(
    frame: pd.DataFrame,
    filter: FailureFilter,  # noqa: A002 - as in `load_failures`
    redactor: Redactor,
) -> list[str]:
    """Return a message per value of a filter that no row has, with the nearest value of the column.

    Empty columns are skipped. The redactor masks the values in messages as it masked the frame.

    >>> rows = pd.DataFrame({"caller_ip": ["10.0.0.1", "10.0.0.2"]})
    >>> unknown_values(rows, FailureFilter(caller_ip="10.0.01"), Redactor())
    ["no caller_ip '10.0.01'. Did you mean '10.0.0.1'? Known: '10.0.0.1', '10.0.0.2'."]
    """
    messages = []
    for name, field in FIELDS.items():
        values = getattr(filter, name)
        if field.many and values:
            masked_values = [_masked_value(name, value, redactor) for value in values]
            messages += _unknown_of_field(frame, field, masked_values)

    return messages


def _unknown_of_field(
    frame: pd.DataFrame, field: FilterField, values: list[str]
) -> list[str]:
    """Return a message per value of one field that no row has."""
    name = field.name
    # values that the service can have (`field.known`) are no typos, even if this frame has no such row
    in_frame = [value for value, _ in count_values(frame, name)]
    known = list(dict.fromkeys([*field.known, *in_frame]))
    if not known:
        return []

    return [
        f"no {name} {value!r}. {_suggestion(field, value, known)}"
        for value in values
        if not _is_known(name, value, known)
    ]


def _masked_value(name: str, value: object, redactor: Redactor) -> str:
    if name == "workflow_url":
        return redactor.url(str(value))
    return redactor.text(str(value))


def _suggestion(field: FilterField, value: str, known: list[str]) -> str:
    """Return the values of a column that a value of a filter may stand for."""
    if field.kind == "status":
        return nearest("", known)  # 429 is no mistyped 409

    suggestion = ""
    if field.name == "workflow_url":
        suggestion = _addresses_ending_with(value, known)
    return suggestion or nearest(value, known)


def _addresses_ending_with(value: str, addresses: list[str]) -> str:
    """Return a suggestion if a value is the end of an address, as panels and plots shorten addresses.

    >>> _addresses_ending_with("payments/capture", ["https://shop.example/payments/capture"])
    "Did you mean 'https://shop.example/payments/capture'? Addresses are compared as a whole."
    """
    ending = "/" + value.strip("/")
    meant = [address for address in addresses if address.endswith(ending)]
    if ending == "/" or not meant:
        return ""

    listed = " or ".join(map(repr, meant[:_MOST_MEANT]))
    return f"Did you mean {listed}? Addresses are compared as a whole."


def _is_known(name: str, value: str, known: list[str]) -> bool:
    if name == "error":
        return any(names_error(line, (value,)) for line in known)
    return value in known


def _matched(
    frame: pd.DataFrame,
    filter: FailureFilter,  # noqa: A002 - as in `load_failures`
) -> dict[str, NDArray[np.bool_]]:
    """Return which rows each field of a filter matches, by name of the field."""
    matched = {}
    for field in FIELDS.values():
        value = getattr(filter, field.name)
        if value not in (None, ()):
            matched[field.name] = _matching(frame, field, value)

    return matched


def _matching(frame: pd.DataFrame, field: FilterField, value: Any) -> NDArray[np.bool_]:
    """Return which rows have a value of one field."""
    if field.compare == "contains":
        return _with_error(frame, value)

    name = field.columns[0]
    column = checked_frame("frame", frame, name)[name]
    compare_column = _COLUMN_COMPARISONS.get(field.kind, _equal_text)
    matches = compare_column(column, field, value)

    if field.name == "label" and "labels" in frame.columns:
        labels, rows = _labels(frame)
        is_wanted = np.asarray(pc.is_in(labels, pa.array(value, pa.string())))
        matches[rows[is_wanted]] = True

    return matches


def _at_time(
    column: pd.Series[Any], field: FilterField, value: Any
) -> NDArray[np.bool_]:
    """Return which times are at, before or after a time; times without a zone are in UTC."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype) and column.dt.tz is None:
        column = column.dt.tz_localize("UTC")
    compare = _COMPARISONS[field.compare]
    return np.asarray(compare(column, pd.Timestamp(value)), dtype=bool)


def _equal_number(
    column: pd.Series[Any], _: FilterField, numbers: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Return which numbers of a column are among the given ones."""
    return column.isin(numbers).to_numpy(bool)


def _equal_text(
    column: pd.Series[Any], field: FilterField, value: Any
) -> NDArray[np.bool_]:
    """Return which values of a column, as text, are among the values of a field."""
    wanted = (value,)
    if field.many:
        wanted = value
    is_wanted = pc.is_in(texts_of(column), pa.array(wanted, pa.string()))

    return np.array(is_wanted, dtype=bool)


_COLUMN_COMPARISONS: Final[dict[str, _ColumnComparison]] = {
    "time": _at_time,
    "status": _equal_number,
}
"""How a column is compared, by the kind of the field. Other kinds are compared as text."""


def _with_error(frame: pd.DataFrame, wanted: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which rows have one of these strings in the error line. Each distinct line is compared once."""
    codes, lines = pd.factorize(texts_of(error_lines(frame)).to_pandas())
    # the code of a missing line is -1, which is the last element
    matches = [*(names_error(line, wanted) for line in lines), False]
    return np.array(matches)[codes]


def count_choices(
    frame: pd.DataFrame,
    filter: FailureFilter,  # noqa: A002 - as in `load_failures`
    names: tuple[str, ...],
) -> dict[str, list[tuple[str, int]]]:
    """Count the rows that each value of some fields would match, together with the rest of a filter.

    The most frequent values come first. Other values of the same field do not matter for a count, because
    they are alternatives. The fields have to accept several values; see `count_values`.

    >>> rows = pd.DataFrame({"caller_ip": ["a", "b", "b"], "response_status": [500, 500, 429]})
    >>> count_choices(rows, FailureFilter(response_status=500, caller_ip="a"), ("caller_ip",))
    {'caller_ip': [('b', 1), ('a', 1)]}
    """
    matched = _matched(frame, filter)
    choices = {}
    for name in names:
        rest = [mask for field, mask in matched.items() if field != name]
        counts = _choices_of_field(frame, name, rest)
        choices[name] = sorted(counts, key=_descending_count)

    return choices


def _choices_of_field(
    frame: pd.DataFrame, name: str, rest: list[NDArray[np.bool_]]
) -> list[tuple[str, int]]:
    """Count the rows with each value of a field that the rest of a filter matches."""
    values, rows = _values(frame, name)
    counts = _counted(values)
    if not rest:
        return counts

    is_matched = np.logical_and.reduce(rest)
    if rows is not None:
        # from one element per row to one element per value
        is_matched = is_matched[rows]

    matching_counts = dict(_counted(values.filter(pa.array(is_matched))))
    # values that the rest excludes stay, with 0 rows
    return [(value, matching_counts.get(value, 0)) for value, _ in counts]


def _descending_count(pair: tuple[str, int]) -> int:
    return -pair[1]


def error_lines(frame: pd.DataFrame) -> pd.Series:
    """Return the error line of each failure: the column ``error``, or the lines of the bodies."""
    if "error" in frame.columns:
        return frame["error"]

    column = checked_frame("frame", frame, "response_body")["response_body"]
    bodies = np.array(list(map(_text_or_none, column)), dtype=object)
    # many failures have equal bodies
    codes, distinct_bodies = pd.factorize(bodies, use_na_sentinel=False)
    distinct_texts = map(_text_or_none, distinct_bodies)
    lines = np.array([error_text(body).text for body in distinct_texts], dtype=object)

    return pd.Series(lines[codes], index=frame.index, dtype=object)


def _text_or_none(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None


def count_values(frame: pd.DataFrame, name: str) -> list[tuple[str, int]]:
    """Return the values that a field of a filter can have in this frame, each with the number of rows.

    The most frequent come first, equal counts are sorted by value. If the frame has a column ``labels``,
    labels are read from it.

    >>> count_values(pd.DataFrame({"caller_ip": ["10.0.0.2", "10.0.0.1", "10.0.0.2", None]}), "caller_ip")
    [('10.0.0.2', 2), ('10.0.0.1', 1)]
    """
    return _counted(_values(frame, name)[0])


def _values(
    frame: pd.DataFrame, name: str
) -> tuple[pa.Array, NDArray[np.int64] | None]:
    """Return the values of a field of a filter, and the row of each if a row can have several values."""
    columns = set(frame.columns)
    if name == "label" and "labels" in columns:
        return _labels(frame)
    if name == "error" and not columns.isdisjoint({"error", "response_body"}):
        return texts_of(error_lines(frame)), None
    if name not in columns:
        no_rows = np.array([], dtype=np.int64)
        return pa.array([], pa.string()), no_rows

    texts = texts_of(frame[name])
    if name == "response_status":
        # 0 means that no response arrived
        no_text = pa.scalar(None, pa.string())
        texts = pc.if_else(pc.equal(texts, "0"), no_text, texts)

    return texts, None


def _counted(values: pa.Array) -> list[tuple[str, int]]:
    counted = pc.value_counts(values)
    names, counts = counted.field(0).to_pylist(), counted.field(1).to_pylist()
    pairs = filter(_has_value, zip(names, counts, strict=True))

    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _has_value(pair: tuple[str, int]) -> bool:
    return bool(pair[0])


def _labels(frame: pd.DataFrame) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return all labels, and the row of each."""
    lists = label_lists(frame["labels"])
    return pc.list_flatten(lists), np.asarray(
        pc.list_parent_indices(lists), dtype=np.int64
    )
