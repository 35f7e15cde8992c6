"""Read the values that colour points: as numbers on a scale, or as a few categories."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.secrets.redaction import Redactor

CATEGORIES: Final = 8
"""Values that have their own colour; all others share one."""

MISSING: Final = "(none)"

# a scale adds and multiplies: near the largest float it overflows
_TOO_LARGE: Final = 1e300

_Floats = npt.NDArray[np.float64]


def as_numbers(values: pd.Series[Any]) -> _Floats | None:
    """Return values as numbers, with NaN for missing ones. Return None if they are categories.

    Numbers with at most 8 different values are categories as well.

    >>> as_numbers(pd.Series(range(9)))[:3], as_numbers(pd.Series([1, 2, 2]))
    (array([0., 1., 2.]), None)
    """
    if not pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(
        values.dtype
    ):
        return None

    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = np.where(np.abs(numbers) < _TOO_LARGE, numbers, np.nan)
    if len(np.unique(numbers[~np.isnan(numbers)])) <= CATEGORIES:
        return None

    return numbers


def as_categories(
    values: pd.Series[Any], redactor: Redactor | None = None
) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Return the names of the most frequent values, and the position in them of each value.

    If there are more than 8 values, the last name is "other".

    >>> as_categories(pd.Series(["b", "a", "a", None]))
    (['a', '(none)', 'b'], array([2, 0, 0, 1]))
    """
    mask = (redactor or Redactor()).text
    strings = values.astype("object").where(values.notna(), MISSING).map(str)
    counts = strings.value_counts().rename_axis("value").reset_index(name="rows")
    by_frequency = counts.sort_values(["rows", "value"], ascending=[False, True])[
        "value"
    ].tolist()
    frequent = by_frequency[:CATEGORIES]
    position = {value: number for number, value in enumerate(frequent)}
    codes = strings.map(position).fillna(len(frequent)).to_numpy(dtype=np.intp)
    names = [mask(value) for value in frequent]
    if len(by_frequency) > len(frequent):
        names.append("other")
    return names, codes
