"""What panels with a ``key`` keep while the kernel lives, so that running a cell again loses nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass
class Kept:
    """State of a panel.

    Attributes
    ----------
    value : object
        Its value now.
    given : object
        The value that the cell gave when the panel was made.
    frame : pandas.DataFrame or None
        Its last result.
    origin : object
        What the panel wants to know later of where the result came from.
    """

    value: Any = None
    given: Any = None
    frame: pd.DataFrame | None = None
    origin: Any = None


_KEPT: dict[tuple[str, str], Kept] = {}  # the one thing here that outlives a panel: that is its purpose


def kept(kind: str, key: str | None, given: Any) -> Kept:
    """The state for a panel of this kind and key, that of the one before where there was one.

    A value that the cell gives wins when it is not the one that it gave before: then its author changed it.
    """
    if key is None:
        return Kept(given, given)
    state = _KEPT.setdefault((kind, key), Kept(given, given))
    if state.given != given:
        state.value = state.given = given
    return state
