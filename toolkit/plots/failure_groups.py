"""Groups of failures over time."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import get_args

import pyarrow as pa
from matplotlib.axes import Axes

from toolkit.analysis.group_rules import GroupRules
from toolkit.analysis.grouping import FailureGroups, grouped_rows, read_rows
from toolkit.analysis.over_time import failure_trend
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import choice, instance, whole
from toolkit.plots.failure_trend import Layout, draw_trend, groups_that_fit
from toolkit.plots.style import ThemeName, documented, drawing, theme_named


@documented
def plot_failure_groups(
    failures: AnyFrame,
    *,
    groups: FailureGroups | GroupRules | None = None,
    freq: str | timedelta | None = None,
    top: int = 6,
    layout: Layout = "facets",
    now: datetime | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw when the failures of which group happened: a row of bars a group, the largest at the top.

    Each row is named, has its own colour and scale, and carries its total, so that one burst flattens
    no other group. Not for comparing sizes of groups: `FailureGroups.plot` does that.

    Parameters
    ----------
    failures : frame
        With the columns that `group_failures` needs.
    groups : FailureGroups or GroupRules, optional
        By whose rules failures are grouped and named. Default: by what they say alone.
    freq : str or timedelta, optional
        Width of a bar, in whole minutes ("15min", "6h", "1d"). Default: chosen from the span.
    top : int
        Number of groups, 1 to 8; all others are one. Fewer where more do not fit the height.
    layout : {"facets", "stacked", "ranked"}
        As of `plot_failure_trend`: rows of bars, bars on one another, or rows of cells.
    now : datetime, optional
        The axis ends at this time. Default: to the last failure.
    {axes}
        With a sentence instead of bars where there is no failure with a time, or only one.

    Raises
    ------
    InputError
        When a column is missing or an option is out of bounds.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 12:30", "2026-01-01 12:40"], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "response_status": 500,
    ...     "failed_at": times, "created_at": times, "response_body_base64": None,
    ...     "response_body": ["no order 17", "no order 4711", "disk full"]})
    >>> ax = plot_failure_groups(frame, freq="1h", ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.texts if "  " in text.get_text()]
    ['no order <num>  2', 'disk full  1']
    """
    choice("layout", layout, get_args(Layout))
    colours = theme_named(theme)
    rules = groups.rules if isinstance(groups, FailureGroups) else groups
    rules = GroupRules() if rules is None else instance("groups", rules, GroupRules, "groups, or their rules")
    rows = read_rows(failures, rules)
    found, codes = grouped_rows(rows, rules)
    # by id: groups may have equal titles
    ids = found.frame["group"].to_numpy(dtype=object)
    table = rows.table.select(["failed_at", "created_at"]).append_column(
        "group", pa.array(ids[codes] if len(ids) else [], pa.string())
    )
    with drawing(ax, colours) as axes:
        drawn = "titled" if layout == "facets" else layout  # titles of groups are long
        top = min(whole("top", top), groups_that_fit(axes, drawn))
        trend = failure_trend(table, by="group", freq=freq, top=top, now=now)
        titles = dict(zip(ids, found.frame["title"], strict=True))
        named = dataclasses.replace(trend, groups=tuple(titles.get(group, group) for group in trend.groups))
        return draw_trend(named, axes, colours, layout=drawn, title="Groups of failures over time")
