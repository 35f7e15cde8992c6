"""Convert values of pandas and numpy to the JSON values that metadata can have."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import NoneType
from typing import Any, Final
from uuid import UUID

import numpy as np
import pandas as pd

from toolkit.base.errors import InputError
from toolkit.base.missing_values import is_missing

_DEEPEST: Final = 100


def json_form(field: str, value: Any) -> Any:
    """Return a value as JSON can write it; missing values (None, NaN, NaT, NA) are None.

    Times become ISO 8601, arrays and tuples lists, paths and UUIDs text, and scalars of numpy Python
    values. In objects, missing values are left out; in lists they are null.

    Parameters
    ----------
    field : str
        A name of the value for errors, for example "the metadata of row 3".
    value : any

    Raises
    ------
    InputError
        If a value has no obvious JSON form. The error names the field inside the value.

    Examples
    --------
    >>> json_form("the metadata", {"at": pd.Timestamp("2026-01-02"), "n": np.nan, "v": np.arange(2)})
    {'at': '2026-01-02T00:00:00', 'v': [0, 1]}
    """
    return _json_form(field, value, 0)


def _json_form(field: str, value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise _wrong(field, f"values nested more than {_DEEPEST} deep")

    for types, convert in _CONTAINERS_AND_NUMBERS:
        if isinstance(value, types):
            return convert(field, value, depth)

    return _scalar(field, value, depth)


def _as_it_is(_field: str, value: Any, _depth: int) -> Any:
    return value


def _enum_value(field: str, member: Enum, depth: int) -> Any:
    return _json_form(field, member.value, depth)


def _array(field: str, value: Any, depth: int) -> Any:
    # an array of numpy without axes is a scalar
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _json_form(field, value[()], depth)

    return [
        _json_form(f"{field}[{position}]", item, depth + 1)
        for position, item in enumerate(value)
    ]


def _number(field: str, value: float | Decimal, _depth: int) -> Any:
    """Return a finite number; NaN is missing, and infinity is an error."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        raise _wrong(field, f"the number {value}")

    return float(value)


def _object(field: str, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    members = {}
    for key, item in value.items():
        name = key
        if type(key) is int:
            name = str(key)
        if not isinstance(name, str):
            raise _wrong(field, f"the name {str(key)[:40]!r}, which is not a string")
        member = _json_form(f"{field}, field {name[:80]!r}", item, depth + 1)
        # null stays if it was written as None: an update removes fields by null
        if member is not None or item is None:
            members[name] = member

    return members


_CONTAINERS_AND_NUMBERS: Final[
    tuple[tuple[Any, Callable[[str, Any, int], Any]], ...]
] = (
    # first, because a member of an enumeration can also be an integer or a string
    (Enum, _enum_value),
    (NoneType | str | bool | int, _as_it_is),
    (float | Decimal, _number),
    (Mapping, _object),
    (list | tuple | np.ndarray | pd.Series | pd.Index, _array),
)
"""Types of Python and of containers, each with the function that converts a value."""

_FORMS: Final[tuple[tuple[Any, Callable[[Any], str]], ...]] = (
    (np.datetime64, lambda value: pd.Timestamp(value).isoformat()),
    (np.timedelta64 | dt.timedelta, lambda value: pd.Timedelta(value).isoformat()),
    (dt.date | dt.time, lambda value: str(value.isoformat())),
    (pd.Period | PurePath | UUID, str),
)
"""Types that become text; numpy has classes for times which are no times of Python."""


def _scalar(field: str, value: Any, depth: int) -> Any:
    """Return the JSON form of a time, a scalar of numpy, a path or a UUID."""
    if is_missing(value):
        return None

    for kinds, as_text in _FORMS:
        if isinstance(value, kinds):
            return as_text(value)

    if isinstance(value, np.generic):
        return _json_form(field, value.item(), depth)

    raise _wrong(field, f"a value of type {type(value).__name__}")


def _wrong(field: str, got: str) -> InputError:
    return InputError(
        f"reading {field}",
        got=got,
        expected="JSON values, or values of pandas that have one JSON form (missing values, times, arrays)",
    )
