"""Put exploded columns of metadata together again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from toolkit.base.arguments import as_json, nearest, texts, wrong
from toolkit.base.errors import InputError
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.explode import KEPT_OF_HITS, PREFIX
from toolkit.tables.frames import checked_frame
from toolkit.tables.json_values import json_form

_DOING: Final = "collecting metadata"


def collect_metadata(
    frame: FrameLike,
    *,
    fields: Iterable[str] | None = None,
    json_fields: Iterable[str] | None = None,
) -> pd.Series:
    """Return metadata as JSON text, from one column per field: the inverse of `explode_metadata`.

    Parameters
    ----------
    frame : pandas.DataFrame
        A frame from `explode_metadata`, with values that you may have changed, or any frame of fields.
    fields : iterable of str, optional
        Columns to collect. Default: all except ``query``, ``rank``, ``namespace``, ``id`` and ``score``.
        Dotted names become nested objects, and ``metadata.id`` the field ``id``.
    json_fields : iterable of str, optional
        Columns that contain JSON text, for example arrays. Default: those in ``frame.attrs["json_fields"]``,
        which `explode_metadata` sets.

    Returns
    -------
    pandas.Series
        JSON text, with the name ``metadata`` and the index of the frame. Missing values are left out; a row
        without any value is missing.

    Raises
    ------
    InputError
        If a value has no JSON form, a column of `json_fields` has other text, or one field is also the
        object of another, for example ``a`` and ``a.b``.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": ["a"], "metadata": ['{"city":"Izmir","tags":["eu"]}']})
    >>> import toolkit as tk
    >>> exploded = tk.explode_metadata(frame)
    >>> exploded["city"] = "Oslo"
    >>> collect_metadata(exploded)[0]
    '{"city": "Oslo", "tags": ["eu"]}'
    """
    frame = checked_frame("frame", frame)
    columns = _collected_columns(frame, fields)
    json_columns = set(frame.attrs.get("json_fields", ()))
    if json_fields is not None:
        json_columns = set(texts("json_fields", json_fields))
    rows: list[dict[str, Any]] = [{} for _ in range(len(frame))]

    for name, column in columns.items():
        path = _path(name)
        for member in _members(name, column, is_json=name in json_columns):
            _put(rows[member.row], path, member)

    collected = [as_json(row) if row else np.nan for row in rows]
    return pd.Series(collected, index=frame.index, dtype="str", name="metadata")


def _collected_columns(
    frame: pd.DataFrame, fields: Iterable[str] | None
) -> dict[str, pd.Series[Any]]:
    """Return the columns to collect by name. Raise InputError if the frame lacks one."""
    places = {str(name): place for place, name in enumerate(frame.columns)}
    names = [name for name in places if name not in KEPT_OF_HITS]
    if fields is not None:
        names = list(dict.fromkeys(texts("fields", fields)))
    for name in names:
        if name not in places:
            suggestion = nearest(name, list(places))
            raise wrong("fields", name, "a column of the frame", suggestion)

    return {name: frame.iloc[:, places[name]] for name in names}


class _CollectedField(NamedTuple):
    """A field of the metadata of one row."""

    row: int
    value: Any
    """A value of JSON."""
    place: str
    """The place in the frame, for errors."""


def _members(
    name: str, column: pd.Series[Any], *, is_json: bool
) -> Iterator[_CollectedField]:
    """Yield the values of a column that are not missing. `is_json`: text in the column is JSON."""
    for row, cell in enumerate(column):
        place = f"frame, the field {name!r} of row {row:,}"
        value = json_form(place, cell)
        if value is None:
            continue
        if is_json and isinstance(cell, str):
            # this can be None: the text "null"
            value = _decoded(place, cell)

        yield _CollectedField(row, value, place)


def _path(name: str) -> list[str]:
    """Return the names of nested objects: ``a.b`` is the field ``b`` of ``a``."""
    kept = name.removeprefix(PREFIX)
    if kept in KEPT_OF_HITS:
        return [kept]

    return name.split(".")


def _decoded(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(
            f"{_DOING}, reading {place}",
            got=f"text that is not JSON: {text[:40]!r}",
            expected="JSON, because the column is one of json_fields",
            next_step="Write strings with json.dumps, or name the other columns of JSON.",
        ) from None


def _put(metadata: dict[str, Any], path: list[str], member: _CollectedField) -> None:
    """Set a field in nested objects. Raise InputError if the path is taken by another field."""
    *parents, last = path
    parent: Any = metadata
    for name in parents:
        if isinstance(parent, dict):
            parent = parent.setdefault(name, {})

    if not isinstance(parent, dict) or last in parent:
        raise InputError(
            f"{_DOING}, reading {member.place}",
            got="a field and an object of the same name",
            expected="one of them",
            next_step="Name the columns to collect in fields.",
        )

    parent[last] = member.value
