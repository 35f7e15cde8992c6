"""Read the values of attributes: columns, labels, and fields of JSON, as masked and short text.

For example, the response headers `{"X-Region": ["eu"]}` have the field `X-Region` with the value `eu`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from toolkit.drawing.wording import value_text
from toolkit.failures.selection import NONE
from toolkit.secrets.redaction import Redactor

LABEL: Final = "label"

JSON_FIELDS: Final = {
    "headers": "header",
    "response_headers": "response header",
    "body": "body",
    "response_body": "response body",
    "extra": "extra",
}
"""Columns of JSON objects, and the first words of the attributes that are their fields."""


@dataclass(frozen=True)
class AttributeTuning:
    """Limits of the fields of JSON columns that are compared as attributes."""

    most_rows: int = 100_000
    """If a frame has more rows, JSON columns are not read."""
    longest: int = 20_000
    """Characters of a JSON value that is read."""
    most_values: int = 40
    """Different values, at most, of a field that is an attribute. Ids have more."""
    present: float = 0.02
    """Share of the rows, at least, that have a field that is an attribute."""
    most_fields: int = 12
    """Fields that are kept, the most frequent first."""


_TUNING: Final = AttributeTuning()
_CUT: Final = 200  # characters of a value


def most_rows_with_json() -> int:
    """Return the number of rows above which fields of JSON columns are no attributes."""
    return _TUNING.most_rows


def column_texts(column: pd.Series) -> pd.Categorical:
    """Return any values as categories of strings, missing and empty values as ``(none)``."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:  # lists and maps have no hash
        codes, values = pd.factorize(column.map(str, na_action="ignore"))

    names = [str(value) or NONE for value in values]
    return pd.Categorical(np.array([*names, NONE], dtype=object)[codes])  # -1: missing


def masked_column(column: pa.ChunkedArray, redactor: Redactor) -> pd.Categorical:
    """Return the values of a column as masked strings, numbers without a fraction."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [
        NONE if value in (None, "") else masked_text(value, redactor)
        for value in encoded.dictionary.to_pylist()
    ]
    names.append(NONE)
    missing = len(names) - 1
    codes = encoded.indices.fill_null(missing).to_pylist()

    return categories([names[code] for code in codes])


def categories(names: list[str]) -> pd.Categorical:
    """Return a column of categories, sorted by name, with ``(none)`` among them."""
    return pd.Categorical(np.array([NONE, *names], dtype=object))[1:]


def masked_text(value: object, redactor: Redactor) -> str:
    """Return a value as short text without secrets."""
    return redactor.text(value_text(value))[:_CUT]


def labels_of(table: pa.Table, redactor: Redactor) -> pd.Series[Any]:
    """Return the labels of each row as a tuple of masked strings."""
    labels_of_pair: dict[tuple[str | None, str | None], tuple[str, ...]] = {}
    rows = []
    for pair in zip(_column(table, "labels"), _column(table, LABEL), strict=True):
        if pair not in labels_of_pair:
            several, single = pair
            labels = [
                label
                for label in [*_list(several), single]
                if isinstance(label, str) and label
            ]
            labels_of_pair[pair] = tuple(
                dict.fromkeys(masked_text(label, redactor) for label in labels)
            )

        rows.append(labels_of_pair[pair])

    return pd.Series(rows, dtype=object)


def _column(table: pa.Table, name: str) -> list[Any]:
    """Return the values of a column, missing ones if the table does not have it."""
    if name in table.column_names:
        return list(table[name].to_pylist())
    return [None for _ in range(table.num_rows)]


def json_fields(
    column: pa.ChunkedArray, prefix: str, redactor: Redactor
) -> Iterator[tuple[str, pd.Categorical]]:
    """Yield the frequent fields of JSON objects that have few values, as ``prefix name``."""
    if len(column) > _TUNING.most_rows:
        return

    # each different text is decoded once: headers are often the same in all rows
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    text_of_row = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    text_count = len(encoded.dictionary)
    rows_of_text = np.bincount(text_of_row[text_of_row >= 0], minlength=text_count)
    # the value that each field has in each text
    values: dict[str, dict[int, str]] = defaultdict(dict)
    distinct: dict[str, set[str]] = defaultdict(set)

    for text, json in enumerate(encoded.dictionary.to_pylist()):
        for name, value in json_members(json).items():
            # a field with too many values, for example an id, is given up
            if len(distinct[name]) <= _TUNING.most_values:
                distinct[name].add(value)
                values[name][text] = value

    present = {
        name: int(rows_of_text[list(of_text)].sum()) for name, of_text in values.items()
    }
    kept = [
        name
        for name, rows in present.items()
        if len(distinct[name]) <= _TUNING.most_values
        and rows >= _TUNING.present * len(column)
    ]
    for name in sorted(kept, key=lambda name: (-present[name], name))[
        : _TUNING.most_fields
    ]:
        masked = {
            value: masked_member(name, value, redactor)
            for value in sorted(distinct[name])
        }
        # the last place is for rows without a text, which have the number -1
        shown = np.full(text_count + 1, NONE, dtype=object)
        shown[list(values[name])] = [masked[value] for value in values[name].values()]
        yield f"{prefix} {name}", categories(shown[text_of_row].tolist())


def json_members(json: object) -> dict[str, str]:
    """Return the fields of a JSON object as text; none if the value is something else."""
    return dict(_scalars(_object(json)))


def masked_member(name: str, value: str, redactor: Redactor) -> str:
    """Return the value of a field without secrets, by the name of the field and by the value."""
    return redactor.header(name, redactor.text(value))[:_CUT]


def _scalars(members: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of an object: strings, numbers and lists of one string.

    For example, ``{"order": {"id": 17}, "tags": ["eu"]}`` gives ("order.id", "17") and ("tags", "eu").
    """
    for name, value in members.items():
        if isinstance(value, dict):
            for inner, item in value.items():
                if _is_scalar(item):
                    yield f"{name}.{inner}", _short(item)
        elif isinstance(value, list):
            if len(value) == 1 and isinstance(value[0], str) and value[0]:
                yield name, _short(value[0])
        elif _is_scalar(value):
            yield name, _short(value)


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, int)) and value != ""


def _short(value: str | int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)[: 2 * _CUT]


def _object(json: object) -> dict[str, Any]:
    """Return a JSON object, empty if the value is something else."""
    decoded = _decoded(json)
    return decoded if isinstance(decoded, dict) else {}


def _list(json: object) -> list[Any]:
    """Return a JSON list, empty if the value is something else."""
    decoded = _decoded(json)
    return decoded if isinstance(decoded, list) else []


def _decoded(json: object) -> object:
    if (
        not isinstance(json, str)
        or not json.startswith(("[", "{"))
        or len(json) > _TUNING.longest
    ):
        return None

    with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
        return msgspec.json.decode(json)
    return None
