"""Draw the failures since a fix, next to the failures that were expected."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes

from toolkit.drawing import axis
from toolkit.drawing.style import Theme

_SEEN, _EXPECTED = 3, 0  # colours
_DAY_MS: Final = 86_400_000


def draw_check(
    course: pd.DataFrame, state: str, title: str, ax: Axes, theme: Theme
) -> Axes:
    """Draw both curves: if failures continue, the curve of the seen ones follows the expected one."""
    milliseconds = course["time"].dt.tz_localize(None).astype("datetime64[ms]")
    days = milliseconds.astype("int64").to_numpy() / _DAY_MS
    seen = course["failures"].to_numpy(dtype=float)
    expected = course["expected"].to_numpy(dtype=float)
    lines: list[Any] = ax.step(
        days, seen, where="post", color=theme.series[_SEEN], linewidth=2
    )
    lines += ax.plot(
        days,
        expected,
        color=theme.series[_EXPECTED],
        linewidth=1.5,
        linestyle=(0, (5, 2)),
    )
    names = ["failures since the fix", "expected if nothing was fixed"]
    axis.limit(ax.xaxis, days[0], days[-1])
    axis.count_axis(ax, "failures", theme, max(1.0, seen.max(), expected.max()))
    taken, above = axis.legend(ax, lines, names, theme)
    axis.heading(ax, f"{state}: {title}", theme, above=above)
    axis.time_axis(ax, days[0], days[-1], taken=taken)

    return ax
