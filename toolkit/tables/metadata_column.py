"""The metadata column of a frame: its values, the fields they have, and the rows that a filter matches."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from toolkit.arguments import nearest, wrong
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.filters.metadata import And, Comparison, Contains, Membership, MetadataFilter, Or, parse
from toolkit.filters.metadata.tree import is_path, parse_path, resolve
from toolkit.tables.frames import checked_frame
from toolkit.tables.text import json_value

_DEEPEST: Final = 8
_FREQUENT: Final = 12
_TRACKED: Final = 500  # different values of a field that are counted; ids would fill the memory
_LONGEST: Final = 200  # characters of a value worth offering

Value = str | int | float | bool


def match_metadata(frame: pd.DataFrame, filter: str | MetadataFilter) -> pd.Series[bool]:  # noqa: A002 - the service's own name
    """Which rows a metadata filter matches, without asking the service.

    Parameters
    ----------
    frame : pandas.DataFrame
        With a ``metadata`` column (JSON text), as `load_vectors` or `query` returns.
    filter : str or MetadataFilter
        In the service's language, such as ``"city = 'Izmir' AND year >= 2024"``.

    Returns
    -------
    pandas.Series
        bool, with the frame's index: True where the filter matches. A row without metadata has no field, so
        only ``HAS NOT FIELD`` can match it.

    Raises
    ------
    FilterSyntaxError
        When the filter does not parse; it says where.
    InputError
        When the frame has no metadata column, or a row's metadata is no JSON.

    Warns
    -----
    UnexpectedResultWarning
        When nothing matches and the filter speaks of a field that no metadata has.

    Notes
    -----
    The service filters with a budget, so that a very selective filter can find fewer rows there than here.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": ["a", "b"], "metadata": ['{"city": "Izmir"}', None]})
    >>> frame[match_metadata(frame, "city = 'Izmir'")]["id"].tolist()
    ['a']
    """
    checked_frame("frame", frame, "metadata")
    if not isinstance(filter, str | MetadataFilter):
        raise wrong("filter", filter, "text in the filter language, or a MetadataFilter")
    wanted = parse(filter) if isinstance(filter, str) else filter
    values = list(metadata_values(frame["metadata"]))
    matches = [wanted.matches(read) for read in values]
    if not any(matches):
        for unknown in unknown_fields(values, wanted):
            warnings.warn(f"Nothing matches: {unknown}", UnexpectedResultWarning, stacklevel=2)
    return pd.Series(matches, index=frame.index, dtype=bool)


def unknown_fields(metadata: Iterable[Any], wanted: MetadataFilter) -> list[str]:
    """Which fields of a filter no metadata has, each with the nearest that there are.

    >>> unknown_fields([{"city": "Izmir"}, None], parse("citi = 'Izmir' AND city = 'Oslo'"))
    ["no metadata has a field 'citi'. Did you mean 'city'? Known: 'city'."]
    """
    rows = [read for read in metadata if isinstance(read, dict)]
    messages = []
    for field in wanted.fields():
        path = parse_path(field)
        for depth, step in enumerate(path):
            holders = [holder for read in rows if isinstance(holder := resolve(read, path[:depth]), dict)]
            known = sorted({name for holder in holders for name in holder})
            if not known or not isinstance(step, str):
                break  # an index of an array, or a value that is not an object
            if step not in known:
                inside = f" in {'.'.join(map(str, path[:depth]))!r}" if depth else ""
                messages.append(f"no metadata has a field {step!r}{inside}. {nearest(step, known)}")
                break
    return list(dict.fromkeys(messages))


def unknown_texts(metadata: Iterable[Any], wanted: MetadataFilter) -> list[str]:
    """Which texts that a field has to equal or contain it never does, each with the nearest that there are.

    >>> unknown_texts([{"city": "Izmir"}, {"city": "Oslo"}], parse("city = 'Izmr' OR city = 'Oslo'"))
    ["no metadata has city 'Izmr'. Did you mean 'Izmir'? Known: 'Izmir', 'Oslo'."]
    """
    rows = list(metadata)
    messages = []
    for field, value in _conditions(wanted):
        values = [resolve(read, parse_path(field)) for read in rows]
        held = [item for read in values for item in (read if isinstance(read, list) else [read])]
        counts = Counter(item for item in held if isinstance(item, str))
        if counts and isinstance(value, str) and value not in counts:
            known = [text for text, _ in counts.most_common()]
            messages.append(f"no metadata has {field} {value[:80]!r}. {nearest(value, known)}")
    return list(dict.fromkeys(messages))


def _conditions(wanted: MetadataFilter) -> Iterator[tuple[str, Any]]:
    """The values that a filter asks fields for, those of negated conditions left out."""
    match wanted:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _conditions(part)
        case Comparison(op="=") | Contains(negated=False):
            yield wanted.field, wanted.value
        case Membership(field, values, False):
            yield from ((field, value) for value in values)
        case _:
            return


def metadata_values(texts: pd.Series[str]) -> Iterator[Any]:
    """The values of a column of JSON texts, None where a row has no metadata."""
    for row, text in enumerate(texts):
        try:
            yield json_value(text) if isinstance(text, str) else None
        except (ValueError, RecursionError) as error:
            raise InputError(
                "reading metadata",
                got=f"text that is no JSON, in row {row:,} (from 0)",
                expected="a JSON object, as the service stores it",
                next_step="Use the metadata column as load_vectors or query returns it.",
            ) from error


@dataclass(frozen=True)
class MetadataField:
    """A field of the filter language, as metadata has it."""

    name: str  # such as address.city, tags or tags[0]
    kinds: tuple[str, ...]  # text, number, boolean, array, object and null, the most frequent first
    rows: int  # that have it
    frequent: tuple[tuple[Value, int], ...]  # values and how often each was seen; of an array, its elements


class _FieldCounts:
    """What was seen of one field."""

    def __init__(self) -> None:
        self.rows = 0
        self.kinds: Counter[str] = Counter()
        self.counts: Counter[tuple[str, Value]] = Counter()  # by kind, as 1 == True

    def add(self, value: Any) -> None:
        self.rows += 1
        self.kinds[_kind(value)] += 1
        for item in value if isinstance(value, list) else [value]:
            key = (_kind(item), item) if isinstance(item, str | int | float) else None
            short = not isinstance(item, str) or len(item) <= _LONGEST
            if key is not None and short and (key in self.counts or len(self.counts) < _TRACKED):
                self.counts[key] += 1


def metadata_fields(frame: pd.DataFrame, *, rows: int = 2_000, most: int = 200) -> list[MetadataField]:
    """The fields that a metadata filter can name, of the first rows of a frame, by name; those of most rows.

    Nested fields have dotted names; of arrays, the first and the last index are fields too (``tags[0]``,
    ``tags[#-1]``). Names that the filter language cannot write are left out.

    >>> frame = pd.DataFrame({"metadata": ['{"city": "Izmir", "tags": ["eu"]}', '{"city": "Izmir"}']})
    >>> [(found.name, found.kinds, found.frequent) for found in metadata_fields(frame)][:2]
    [('city', ('text',), (('Izmir', 2),)), ('tags', ('array',), (('eu', 1),))]
    """
    checked_frame("frame", frame, "metadata")
    seen: dict[str, _FieldCounts] = {}
    for read in metadata_values(frame["metadata"].head(rows)):
        for name, value in _walk(read, "", _DEEPEST):
            seen.setdefault(name, _FieldCounts()).add(value)
    kept = sorted(seen.items(), key=lambda item: (-item[1].rows, item[0]))[:most]
    return sorted((_made(name, field) for name, field in kept), key=lambda field: field.name)


def _walk(value: Any, name: str, deeper: int) -> Iterator[tuple[str, Any]]:
    """Every field below a value, and the value itself."""
    if name:
        yield name, value
    if not deeper:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{name}.{key}" if name else key
            if "." not in key and "[" not in key and is_path(path):
                yield from _walk(inner, path, deeper - 1)
    elif isinstance(value, list) and value and name:
        yield from _walk(value[0], f"{name}[0]", deeper - 1)
        yield from _walk(value[-1], f"{name}[#-1]", deeper - 1)


def _made(name: str, seen: _FieldCounts) -> MetadataField:
    kinds = tuple(kind for kind, _ in seen.kinds.most_common())
    frequent = sorted(seen.counts.items(), key=lambda item: (-item[1], item[0][0], item[0][1]))[:_FREQUENT]
    return MetadataField(name, kinds, seen.rows, tuple((value, count) for (_, value), count in frequent))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = ((str, "text"), (int | float, "number"), (list, "array"), (dict, "object"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")
