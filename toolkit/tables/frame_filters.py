"""Apply filters to frames: find the matching rows, and the values and fields that a filter can name."""

from __future__ import annotations

import operator
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.arguments import as_json, nearest, shown, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.filters.conditions import is_path
from toolkit.filters.failure import FailureFilter
from toolkit.filters.failure_fields import FIELDS, FilterField
from toolkit.filters.failure_rows import names_error
from toolkit.filters.metadata import (
    MetadataFilter,
    parse,
)
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.headlines import error_text
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame, label_lists, texts_of
from toolkit.tables.json_rows import json_value
from toolkit.tables.unmatched_conditions import explain_no_match
from toolkit.tables.vector_dtype import missing

_COMPARISONS: Final = {">=": operator.ge, "<=": operator.le, "=": operator.eq}
_NO_NAME: Final = frozenset(".[")  # signs that are no part of a name
_MOST_LEVELS: Final = 8
MOST_READ: Final = 20_000
"""Rows whose fields are listed; reading them takes about a second."""
_MOST_FREQUENT: Final = 12
# distinct values of a field that are counted; ids would fill the memory
_MOST_COUNTED: Final = 500
_LONGEST_OFFERED: Final = 200  # characters of a value that a panel offers
_KINDS: Final = {
    str: "text", int: "number", float: "number", bool: "boolean", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip

_MOST_MEANT: Final = 3  # addresses that a suggestion names

Value = str | int | float | bool
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


def match_metadata(frame: FrameLike, filter: str | MetadataFilter) -> pd.Series[bool]:  # noqa: A002 - the service's own name
    """Return which rows a metadata filter matches, without a request to the service.

    Parameters
    ----------
    frame : pandas.DataFrame
        A frame with a ``metadata`` column (JSON text), from `load_vectors` or `query`.
    filter : str or MetadataFilter
        In the filter language of the service, for example ``"city = 'Izmir' AND year >= 2024"``.

    Returns
    -------
    pandas.Series
        bool, with the index of the frame: True if the filter matches. A row without metadata has no fields,
        so only ``HAS NOT FIELD`` can match it.

    Raises
    ------
    FilterSyntaxError
        If the filter cannot be parsed. The error contains the position.
    InputError
        If the frame has no metadata column, or if the metadata of a row are not JSON.

    Warns
    -----
    UnexpectedResultWarning
        If no rows match because of a mistake: an unknown field, a value of another type or a misspelt one.
        The warning names the condition, the types and values of the field, and a condition that would match.

    Notes
    -----
    The service filters with a budget, so a very selective filter can find fewer rows there than here.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": ["a", "b"], "metadata": ['{"city": "Izmir"}', None]})
    >>> frame[match_metadata(frame, "city = 'Izmir'")]["id"].tolist()
    ['a']
    """
    frame = checked_frame("frame", frame, "metadata")
    if not isinstance(filter, str | MetadataFilter):
        raise wrong(
            "filter", filter, "text in the filter language, or a MetadataFilter"
        )
    wanted = parse(filter) if isinstance(filter, str) else filter
    values = list(metadata_values(frame["metadata"]))
    matches = [wanted.matches(read) for read in values]
    if not any(matches):
        for reason in explain_no_match(values, wanted):
            warnings.warn(
                f"Nothing matches: {reason}", UnexpectedResultWarning, stacklevel=2
            )
    return pd.Series(matches, index=frame.index, dtype=bool)


def _items(value: Any) -> list[Any]:
    """Return the elements of an array, or another value as the only one."""
    if isinstance(value, list):
        return value
    return [value]


def metadata_values(column: pd.Series[Any]) -> Iterator[Any]:
    """Yield the values of a column of JSON strings or mappings, None for rows without metadata."""
    for row, cell in enumerate(column):
        if isinstance(cell, str | Mapping):
            yield _metadata_value(cell, row)
        elif missing(cell):
            yield None
        else:
            raise _unreadable_metadata(shown(cell), row)


def _metadata_value(cell: str | Mapping[Any, Any], row: int) -> Any:
    try:
        if isinstance(cell, Mapping):
            cell = as_json(cell)
        return json_value(cell)
    except (TypeError, ValueError, RecursionError) as error:
        raise _unreadable_metadata("a value that is not JSON", row) from error


def _unreadable_metadata(got: str, row: int) -> InputError:
    return InputError(
        "reading metadata",
        got=f"{got}, in row {row:,} (from 0)",
        expected="a JSON object, as text or as a mapping",
        next_step="Use the metadata column as load_vectors or query returns it.",
    )


@dataclass(frozen=True)
class MetadataField:
    """A field of metadata that a filter can name."""

    name: str
    """For example ``address.city``, ``tags`` or ``tags[0]``."""
    kinds: tuple[str, ...]
    """Of text, number, boolean, array, object and null. The most frequent come first."""
    rows: int
    """Number of rows with the field."""
    frequent: tuple[tuple[Value, int], ...]
    """Values with their counts. For an array, the elements are counted."""


def metadata_fields(
    frame: pd.DataFrame, *, rows: int = MOST_READ, most: int = 200
) -> list[MetadataField]:
    """Return the fields that a metadata filter can name, sorted by name.

    They are those of all rows, or of a random sample if the frame has more than `rows` rows. If there are
    more than `most` fields, the most frequent are returned. Nested fields have dotted names. The first and
    the last element of an array are fields as well (``tags[0]``, ``tags[#-1]``). Names that the filter
    language cannot write are left out.

    >>> frame = pd.DataFrame({"metadata": ['{"city": "Izmir", "tags": ["eu"]}', '{"city": "Izmir"}']})
    >>> [(field.name, field.kinds, field.frequent) for field in metadata_fields(frame)][:2]
    [('city', ('text',), (('Izmir', 2),)), ('tags', ('array',), (('eu', 1),))]
    """
    frame = checked_frame("frame", frame, "metadata")
    counts: defaultdict[str, _FieldCounts] = defaultdict(_FieldCounts)
    read = frame["metadata"]
    if len(read) > rows:
        read = read.sample(rows, random_state=0)
    for metadata in metadata_values(read):
        for name, value in _walk(metadata, "", _MOST_LEVELS):
            counts[name].add(value)
    most_frequent = sorted(
        counts.items(), key=lambda item: (-item[1].kinds.total(), item[0])
    )[:most]
    fields = [field_counts.summary(name) for name, field_counts in most_frequent]
    return sorted(fields, key=lambda field: field.name)


@dataclass
class _FieldCounts:
    """Counts of the values of one field of metadata."""

    kinds: Counter[str] = dataclass_field(default_factory=Counter)
    # by kind and value, because 1 == True
    values: Counter[tuple[str, Value]] = dataclass_field(default_factory=Counter)

    def add(self, value: Any) -> None:
        """Count the kind of a value, and the value, or the elements of an array."""
        self.kinds[_KINDS[type(value)]] += 1
        for item in filter(_can_be_offered, _items(value)):
            key = _KINDS[type(item)], item
            if key in self.values or len(self.values) < _MOST_COUNTED:
                self.values[key] += 1

    def summary(self, name: str) -> MetadataField:
        """Return the kinds, rows and most frequent values of the field."""
        by_frequency = sorted(self.values.items(), key=lambda item: (-item[1], item[0]))
        frequent = tuple(
            (value, count) for (_, value), count in by_frequency[:_MOST_FREQUENT]
        )
        kind_names = tuple(kind for kind, _ in self.kinds.most_common())
        return MetadataField(name, kind_names, self.kinds.total(), frequent)


def _can_be_offered(item: Any) -> bool:
    """Return whether a value is a number, a boolean or a short text."""
    if isinstance(item, str):
        return len(item) <= _LONGEST_OFFERED
    return isinstance(item, int | float)


def _walk(value: Any, name: str, deeper: int) -> Iterator[tuple[str, Any]]:
    """Yield every field below a value, and the value itself."""
    if name:
        yield name, value
    if not deeper:
        return
    if isinstance(value, dict):
        inner_fields = _members_as_fields(value, name)
    elif isinstance(value, list) and name:
        inner_fields = _ends_as_fields(value, name)
    else:
        return
    for path, inner in inner_fields:
        yield from _walk(inner, path, deeper - 1)


def _members_as_fields(members: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object that the filter language can write."""
    for key, inner in members.items():
        path = f"{name}.{key}".removeprefix(".")
        if _NO_NAME.isdisjoint(key) and is_path(path):
            yield path, inner


def _ends_as_fields(items: list[Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the first and the last element of a list, which show the fields of all elements.

    Filters address the last element as ``[#-1]``.
    """
    if items:
        yield f"{name}[0]", items[0]
        yield f"{name}[#-1]", items[-1]
