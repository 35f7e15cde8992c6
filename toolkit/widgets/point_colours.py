"""Compute the colours of points on a map: one byte per point, and the legend that explains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.secrets.redaction import Redactor, visible
from toolkit.vectors.point_values import MISSING, as_categories, as_numbers

NO_VALUE: Final = 255
"""The colour of a point without a value."""

_STEPS: Final = 254  # numbers are scaled to 0 to 254
_LONGEST_NAME: Final = 40


@dataclass(frozen=True)
class PointColours:
    """The colour of each point: the number of a category, or a number from 0 to 254 if they are `scaled`.

    `none` is the place of missing values in the legend, or -1 if no value is missing.
    """

    codes: bytes
    legend: tuple[str, ...] = ()
    none: int = -1
    scaled: bool = False


def one_colour(points: int) -> PointColours:
    """Return the same colour for all points.

    >>> list(one_colour(2).codes)
    [0, 0]
    """
    return PointColours(bytes(points))


def colours_of(
    name: str, values: pd.Series[Any], redactor: Redactor | None = None
) -> PointColours:
    """Return the colours of values: on a scale if they are numbers, otherwise of categories.

    >>> colours_of("kind", pd.Series(["a", "b", "a"])).legend
    ('a (2)', 'b (1)')
    """
    numbers = as_numbers(values)
    if numbers is None:
        return _of_categories(values, redactor)

    return of_numbers(name, numbers)


def of_numbers(name: str, numbers: npt.NDArray[np.float64]) -> PointColours:
    """Return colours on a scale from the lowest to the highest number; NaN is a missing value.

    >>> list(of_numbers("year", np.array([2000.0, np.nan, 2010.0])).codes)
    [0, 255, 254]
    """
    missing = np.isnan(numbers)
    if missing.all():
        return PointColours(bytes([NO_VALUE]) * len(numbers))

    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    span = (high - low) or 1.0
    steps = np.floor((np.nan_to_num(numbers, nan=low) - low) / span * _STEPS)
    codes = np.where(missing, NO_VALUE, steps)
    legend = f"{name}: {low:,.6g} to {high:,.6g}"

    return PointColours(_as_bytes(codes), (legend,), scaled=True)


def _of_categories(values: pd.Series[Any], redactor: Redactor | None) -> PointColours:
    """Return the number of the category of each value; the most frequent category is the first."""
    names, codes = as_categories(values, redactor)
    counts = np.bincount(codes, minlength=len(names)).tolist()
    legend = tuple(map(_entry, names, counts))
    if MISSING not in names:
        return PointColours(_as_bytes(codes), legend)

    none = names.index(MISSING)
    codes_with_missing = np.where(codes == none, NO_VALUE, codes)
    return PointColours(_as_bytes(codes_with_missing), legend, none)


def _entry(name: str, count: int) -> str:
    """Return an entry of the legend, for example "name lookup (93)"."""
    shown = visible(name).strip()[:_LONGEST_NAME] or "(empty)"
    return f"{shown} ({count:,})"


def _as_bytes(codes: npt.NDArray[Any]) -> bytes:
    return codes.astype(np.uint8).tobytes()
