"""Put exploded columns of metadata together again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

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
    columns = {str(name): place for place, name in enumerate(frame.columns)}
    names = [name for name in columns if name not in KEPT_OF_HITS]
    if fields is not None:
        names = list(dict.fromkeys(texts("fields", fields)))
    for name in names:
        if name not in columns:
            raise wrong(
                "fields", name, "a column of the frame", nearest(name, list(columns))
            )
    as_written = set(frame.attrs.get("json_fields", ()))
    if json_fields is not None:
        as_written = set(texts("json_fields", json_fields))
    rows: list[dict[str, Any]] = [{} for _ in range(len(frame))]
    for name in names:
        path = _path(name)
        for row, value in enumerate(frame.iloc[:, columns[name]]):
            field = f"frame, the field {name!r} of row {row:,}"
            present = json_form(field, value)
            if present is None:
                continue
            if name in as_written and isinstance(value, str):
                present = _decoded(field, value)
            _put(rows[row], path, present, field)
    collected = [as_json(row) if row else np.nan for row in rows]
    return pd.Series(collected, index=frame.index, dtype="str", name="metadata")


def _path(name: str) -> list[str]:
    """Return the names of nested objects: ``a.b`` is the field ``b`` of ``a``."""
    kept = name.removeprefix(PREFIX)
    if kept in KEPT_OF_HITS:
        return [kept]
    return name.split(".")


def _decoded(field: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(
            f"{_DOING}, reading {field}",
            got=f"text that is not JSON: {text[:40]!r}",
            expected="JSON, because the column is one of json_fields",
            next_step="Write strings with json.dumps, or name the other columns of JSON.",
        ) from None


def _put(row: dict[str, Any], path: list[str], value: Any, field: str) -> None:
    """Set a field in nested objects. Raise InputError if another field is at its place."""
    *parents, last = path
    place: Any = row
    for parent in parents:
        if isinstance(place, dict):
            place = place.setdefault(parent, {})
    if not isinstance(place, dict) or last in place:
        raise InputError(
            f"{_DOING}, reading {field}",
            got="a field and an object of the same name",
            expected="one of them",
            next_step="Name the columns to collect in fields.",
        )
    place[last] = value
