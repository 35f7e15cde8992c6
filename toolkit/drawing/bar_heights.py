"""The height of an axis of bars."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def readable_top(heights: NDArray[Any]) -> float:
    """Return the height at the end of an axis of bars, which is truncated if few bars would flatten the rest.

    Few bars are a twentieth of them (at least one), if they are over five times as tall as the others.

    >>> readable_top(np.array([3, 5, 4, 2, 400])), readable_top(np.array([3, 5, 4, 2, 9]))
    (6.25, 9.0)
    """
    tall = np.sort(heights[heights > 0])
    few = max(1, len(tall) // 20)
    if len(tall) > 3 * few and tall[-1] > 5 * tall[-few - 1]:
        return float(tall[-few - 1] * 1.25)
    if not len(tall):
        return 1.0

    return float(tall[-1])
