"""Tell missing values of pandas from other values."""

from __future__ import annotations

from typing import Any

import pandas as pd


def is_missing(value: Any) -> bool:
    """Return whether a cell of a frame is missing; lists, maps and arrays never are.

    >>> is_missing(None), is_missing(float("nan")), is_missing([])
    (True, True, False)
    """
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))
