"""Filters applied to frames: the rows that they match, and the values and fields that they could name."""

from __future__ import annotations

import operator
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.arguments import as_json, nearest, shown, wrong
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.filters.conditions import is_path, parse_path, resolve
from toolkit.filters.error_text import error_text
from toolkit.filters.failure import FIELDS, FailureFilter, FilterField, names_error
from toolkit.filters.metadata import And, Comparison, Contains, Membership, MetadataFilter, Or, parse
from toolkit.redaction import Redactor
from toolkit.tables.frames import checked_frame, label_lists, texts_of
from toolkit.tables.text import json_value
from toolkit.tables.vector_dtype import missing

_COMPARED: Final = {">=": operator.ge, "<=": operator.le, "=": operator.eq}
_DEEPEST: Final = 8
_FREQUENT: Final = 12
_TRACKED: Final = 500  # different values of a field that are counted; ids would fill the memory
_LONGEST: Final = 200  # characters of a value worth offering
_KINDS: Final = {
    str: "text", int: "number", float: "number", bool: "boolean", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip

Value = str | int | float | bool


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
        values = getattr(wanted, name)
        if not field.many or not values:
            continue
        known = list(dict.fromkeys([*field.known, *(value for value, _ in count_values(frame, name))]))
        for value in values if known else ():
            shown = redactor.url(value) if name == "workflow_url" else redactor.text(str(value))
            there = any(names_error(line, (shown,)) for line in known) if name == "error" else shown in known
            if not there:
                meant = "" if field.kind == "status" else shown  # 429 is no mistyped 409
                messages.append(f"no {name} {shown!r}. {nearest(meant, known)}")
    return messages


def _matched(frame: pd.DataFrame, wanted: FailureFilter) -> dict[str, NDArray[np.bool_]]:
    """Which rows each field of a filter chooses, by the field's name."""
    chosen = ((field, getattr(wanted, field.name)) for field in FIELDS.values())
    return {field.name: _matching(frame, field, value) for field, value in chosen if value not in (None, ())}


def _matching(frame: pd.DataFrame, field: FilterField, value: Any) -> NDArray[np.bool_]:
    if field.compare == "contains":
        # each distinct line is compared once: most failures share theirs with many others
        codes, lines = pd.factorize(texts_of(error_lines(frame)).to_pandas())
        return np.array([*(names_error(line, value) for line in lines), False])[codes]
    name = field.columns[0]
    column = checked_frame("frame", frame, name)[name]
    if field.kind == "time":
        if pd.api.types.is_datetime64_any_dtype(column.dtype) and column.dt.tz is None:
            column = column.dt.tz_localize("UTC")  # times without a zone are in UTC
        return np.asarray(_COMPARED[field.compare](column, pd.Timestamp(value)), dtype=bool)
    if field.kind == "status":
        return column.isin(value).to_numpy(bool)
    values = pa.array(value if field.many else (value,), pa.string())
    matches = np.array(pc.is_in(texts_of(column), values), dtype=bool)
    if field.name == "label" and "labels" in frame.columns:
        labels, rows = _labels(frame)
        matches[rows[np.asarray(pc.is_in(labels, values))]] = True
    return matches


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
        pairs = _counted(values)
        if others := [mask for field, mask in matched.items() if field != name]:
            mask = np.logical_and.reduce(others)
            here = dict(_counted(values.filter(pa.array(mask if rows is None else mask[rows]))))
            pairs = [(value, here.get(value, 0)) for value, _ in pairs]
        choices[name] = sorted(pairs, key=lambda pair: -pair[1])
    return choices


def error_lines(frame: pd.DataFrame) -> pd.Series:
    """The line of each failure that says what went wrong: the column ``error``, or read from the bodies."""
    if "error" in frame.columns:
        return frame["error"]
    texts = [
        body if isinstance(body, str) else None
        for body in checked_frame("frame", frame, "response_body")["response_body"]
    ]
    codes, distinct = pd.factorize(np.array(texts, dtype=object), use_na_sentinel=False)
    lines = [error_text(body if isinstance(body, str) else None).text for body in distinct]
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
        return texts_of(error_lines(frame)), None
    if name in frame.columns:
        texts = texts_of(frame[name])
        if name == "response_status":  # 0 is none
            texts = pc.if_else(pc.equal(texts, "0"), pa.scalar(None, pa.string()), texts)
        return texts, None
    return pa.array([], pa.string()), np.array([], dtype=np.int64)


def _counted(values: pa.Array) -> list[tuple[str, int]]:
    counted = pc.value_counts(values)
    names, counts = counted.field(0).to_pylist(), counted.field(1).to_pylist()
    pairs = [(value, count) for value, count in zip(names, counts, strict=True) if value]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _labels(frame: pd.DataFrame) -> tuple[pa.Array, NDArray[np.int64]]:
    """All labels, and the row of each."""
    lists = label_lists(frame["labels"])
    return pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists), dtype=np.int64)


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


def metadata_values(column: pd.Series[Any]) -> Iterator[Any]:
    """The values of a column of JSON texts, or of mappings; None where a row has no metadata."""
    for row, given in enumerate(column):
        try:
            text = as_json(given) if isinstance(given, Mapping) else given
            if isinstance(text, str):
                yield json_value(text)
                continue
        except (TypeError, ValueError, RecursionError) as error:
            raise _unreadable_metadata("a value that is not JSON", row) from error
        if not missing(given):
            raise _unreadable_metadata(shown(given), row)
        yield None


def _unreadable_metadata(got: str, row: int) -> InputError:
    return InputError(
        "reading metadata",
        got=f"{got}, in row {row:,} (from 0)",
        expected="a JSON object, as text or as a mapping",
        next_step="Use the metadata column as load_vectors or query returns it.",
    )


@dataclass(frozen=True)
class MetadataField:
    """A field of the filter language, as metadata has it."""

    name: str  # such as address.city, tags or tags[0]
    kinds: tuple[str, ...]  # text, number, boolean, array, object and null, the most frequent first
    rows: int  # that have it
    frequent: tuple[tuple[Value, int], ...]  # values and how often each was seen; of an array, its elements


def metadata_fields(frame: pd.DataFrame, *, rows: int = 2_000, most: int = 200) -> list[MetadataField]:
    """The fields that a metadata filter can name, of the first rows of a frame, by name; those of most rows.

    Nested fields have dotted names; of arrays, the first and the last index are fields too (``tags[0]``,
    ``tags[#-1]``). Names that the filter language cannot write are left out.

    >>> frame = pd.DataFrame({"metadata": ['{"city": "Izmir", "tags": ["eu"]}', '{"city": "Izmir"}']})
    >>> [(found.name, found.kinds, found.frequent) for found in metadata_fields(frame)][:2]
    [('city', ('text',), (('Izmir', 2),)), ('tags', ('array',), (('eu', 1),))]
    """
    checked_frame("frame", frame, "metadata")
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    values: defaultdict[str, Counter[tuple[str, Value]]] = defaultdict(Counter)  # by kind, as 1 == True
    for read in metadata_values(frame["metadata"].head(rows)):
        for name, value in _walk(read, "", _DEEPEST):
            kinds[name][_KINDS[type(value)]] += 1
            counts = values[name]
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, int | float) or (isinstance(item, str) and len(item) <= _LONGEST):
                    key = _KINDS[type(item)], item
                    if key in counts or len(counts) < _TRACKED:
                        counts[key] += 1
    found = []
    for name in sorted(kinds, key=lambda name: (-kinds[name].total(), name))[:most]:
        ordered = sorted(values[name].items(), key=lambda item: (-item[1], item[0]))
        frequent = tuple((value, count) for (_, value), count in ordered[:_FREQUENT])
        of_rows = tuple(kind for kind, _ in kinds[name].most_common())
        found.append(MetadataField(name, of_rows, kinds[name].total(), frequent))
    return sorted(found, key=lambda field: field.name)


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
