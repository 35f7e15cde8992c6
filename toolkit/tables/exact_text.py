"""Text that is kept exactly and masked where pandas shows it: bodies, and what vectors carry.

The column is pandas' own, of the dtype ``str``, and so are its values; only how it is formatted differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pandas as pd
from pandas.arrays import ArrowStringArray

from toolkit.redaction import Redactor
from toolkit.tables.schemas import EXACT_COLUMNS

_LOOKED_AT: Final = 20_000  # characters of a text of which pandas shows less


class ExactText(ArrowStringArray):
    """The values of such a column.

    Examples
    --------
    >>> frame = pd.DataFrame({"body": ["password=hunter2", None]}, dtype="str")
    >>> mask_where_shown(frame).body.str.len().tolist()
    [16.0, nan]
    >>> "hunter2" in repr(frame), frame.body[0]
    (False, 'password=hunter2')
    """

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str | None]:  # noqa: FBT001, FBT002 - pandas' own
        """How values are written in frames, series and arrays alone."""
        show, mask = super()._formatter(boxed=boxed), Redactor().text  # type: ignore[misc]
        width = pd.get_option("display.max_colwidth")

        def shown(value: Any) -> str | None:
            if isinstance(value, str):
                # masked before it is cut, so that no half of a secret is left over
                value = mask(value if width is None else value[: max(_LOOKED_AT, 2 * width)])
            text: str | None = show(value)
            return text

        return shown


def mask_where_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame itself, its exact texts masked from now on where they are shown."""
    for name in EXACT_COLUMNS.intersection(frame.columns):
        found = frame[name].array
        if type(found) is ArrowStringArray:
            values = ExactText(found.__arrow_array__(), dtype=found.dtype)  # type: ignore[call-arg]
            frame[name] = pd.Series(values, index=frame.index, copy=False)
    return frame
