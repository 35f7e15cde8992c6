"""Read metadata of frames: match a filter without a request, and list the fields that a filter can name."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Final

import pandas as pd

from toolkit.base.arguments import as_json, shown, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.filters.conditions import is_path
from toolkit.filters.metadata import (
    MetadataFilter,
    parse,
)
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame
from toolkit.tables.json_rows import json_value
from toolkit.tables.unmatched_conditions import explain_no_match
from toolkit.tables.vector_dtype import missing

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

Value = str | int | float | bool


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
