"""Results as bars (groups, classes, explanations, runs, redrives) and points (recall, comparisons)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle

from toolkit.drawing.axis import (
    NAMED_BAR,
    heading,
    label_axis,
    legend,
    limit,
    name_bars,
    name_rows,
    number_axis,
    rows_that_fit,
    say,
)
from toolkit.drawing.counted_bars import draw_rows
from toolkit.drawing.style import HATCHES, Theme, ThemeName, drawing, without_prefix
from toolkit.drawing.wording import counted, describe_condition, percent, short_number
from toolkit.redaction import Redactor

_CONDITIONS: Final = 6
_OBSERVED, _EXPECTED, _MERGED = 3, -1, -1  # colours
_CHANGED: Final = {
    "new": 3,
    "back again": 3,
    "growing": 3,
    "missing before": 8,
    "shrinking": 0,
    "gone": 0,
    "steady": 8,
}
_RUNS: Final = {"succeeded": 0, "failed": 3, "cancelled": 8, "running": 4}
_REDRIVEN: Final = {"done": 0, "failed again": 3, "failed otherwise": 1, "open": 2, "stopped or left": -1}
_LEFT: Final = ("stopped", "left", "skipped", "refused")

Series = Sequence[tuple[Sequence[float], Sequence[int]]]
"""Of each series the values of its rows, and their colours."""


def draw_groups(groups: pd.DataFrame, ax: Axes, theme: Theme) -> Axes:
    """Draw a bar per row (`group`, `title`, `count`), in the colours of `plot_failure_groups`."""
    ordered = groups.sort_values(["count", "group"], ascending=[False, True])
    names, counts = ordered["title"].tolist(), [int(count) for count in ordered["count"]]
    fit = min(len(theme.series) - 1, rows_that_fit(ax, NAMED_BAR) - 1)
    colours = list(range(len(names)))
    if len(names) > fit:
        names = [*names[:fit], f"other ({len(names) - fit})"]
        counts, colours = [*counts[:fit], sum(counts[fit:])], [*colours[:fit], _MERGED]
    heading(ax, "Groups of failures", theme)
    if not names:
        return say(ax, "No failures", theme)
    notes = [f"{count:,} ({percent(count / sum(counts))})" for count in counts]
    _named_bars(ax, theme, names, [(counts, colours)], notes)
    label_axis(ax.xaxis, counted(sum(counts), "failure"), theme)
    return ax


def draw_classes(classes: pd.DataFrame, ax: Axes, theme: Theme, *, unknown: str) -> Axes:
    """Draw a bar per row (`class`, `count`); the class `unknown` has the color of merged rows."""
    names, counts = classes["class"].tolist(), [int(count) for count in classes["count"]]
    heading(ax, "Classes of failures", theme)
    if not names:
        return say(ax, "No failures", theme)
    draw_rows(ax, names, counts, theme, [_MERGED if name == unknown else 0 for name in names])
    label_axis(ax.xaxis, counted(sum(counts), "failure"), theme)
    return ax


def draw_explanation(
    conditions: pd.DataFrame, ax: Axes, theme: Theme, *, observed: float, expected: float, stands_out: bool
) -> Axes:
    """Draw two bars per row (`condition`, `observed`, `expected`), the likeliest condition at the top."""
    title = "Observed and expected, by condition"
    change = f"{observed:,.0f} observed, {expected:,.0f} expected"
    if not stands_out:
        return say(ax, f"Nothing stands out: {change}", theme, title)
    rows = conditions.head(min(_CONDITIONS, rows_that_fit(ax, NAMED_BAR)))
    names, prefix = _named(rows["condition"].tolist())
    values = [rows["observed"].tolist(), rows["expected"].tolist()]
    notes = [
        f"{seen:,.0f} (expected {usual:,.{1 if usual else 0}f})" for seen, usual in zip(*values, strict=True)
    ]
    series = [(values[0], [_OBSERVED] * len(rows)), (values[1], [_EXPECTED] * len(rows))]
    _named_bars(ax, theme, names, series, notes)
    _, above = legend(ax, ax.containers, ["observed", "expected"], theme)
    heading(ax, title, theme, prefix=prefix, above=above)
    label_axis(ax.xaxis, f"{change} in all; conditions can hold the same failures", theme)
    return ax


def draw_comparison(groups: pd.DataFrame, ax: Axes, theme: Theme) -> Axes:
    """Draw a line per row (`title`, `change`, `expected`, `after`), from the expected count to `after`.

    Groups that need attention come first. The axis is logarithmic, so that one burst flattens no other group,
    and begins at 0.
    """
    title = "What changed, by group"
    rows = groups.head(rows_that_fit(ax, NAMED_BAR))
    if not len(rows):
        return say(ax, "No failures", theme, title)
    positions = np.arange(len(rows)) + 0.2
    expected, after = rows["expected"].to_numpy(), rows["after"].to_numpy(dtype=np.float64)
    colours = [theme.series[_CHANGED[change]] for change in rows["change"]]
    ax.set_xscale("symlog", linthresh=1)
    ax.hlines(positions, expected, after, colors=colours, linewidth=2.5)
    # shapes and edges are given: matplotlib's settings would decide otherwise
    before = ax.scatter(
        expected, positions, 36, marker=MarkerStyle("o", "full"), facecolors=theme.paper,
        edgecolors=theme.ink, linewidths=1.2, zorder=3,
    )  # fmt: skip
    now = ax.scatter(
        after, positions, 52, marker=MarkerStyle("D", "full"), facecolors=colours,
        edgecolors=colours, linewidths=1.0, zorder=4,
    )  # fmt: skip
    notes = [
        f"{change}, {short_number(round(was))} to {short_number(is_)}"
        for change, was, is_ in zip(rows["change"], expected, rows["after"], strict=True)
    ]
    name_bars(ax, rows["title"].tolist(), theme, notes)
    most = max(10.0, expected.max(), after.max())
    ticks = [0.0, *(10.0**power for power in range(int(np.log10(most)) + 1))]
    ax.set_xticks(ticks, [short_number(tick) for tick in ticks])
    ax.minorticks_off()
    limit(ax.xaxis, -0.15, most * 1.5)
    _, above = legend(ax, [before, now], ["at the rate of before", "after"], theme)
    heading(ax, title, theme, above=above)
    shown = f"first {len(rows)} of {len(groups):,} groups; " if len(rows) < len(groups) else ""
    label_axis(ax.xaxis, f"{shown}failures, logarithmic", theme)
    return ax


def _named(conditions: list[dict[str, object]]) -> tuple[list[str], str]:
    """Conditions as masked texts, and what all addresses in them begin with, which is left out."""
    values = [str(value) for condition in conditions for value in condition.values()]
    addresses = [value for value in values if "://" in value]
    hosts = ["/".join([*address.split("/")[:3], ""]) for address in addresses]
    _, prefix = without_prefix([*addresses, *hosts])
    clean = Redactor().text
    short = [
        {name: str(value).removeprefix(prefix) for name, value in condition.items()}
        for condition in conditions
    ]
    return [clean(describe_condition(condition)) for condition in short], clean(prefix)


def draw_run_outcomes(workflows: pd.DataFrame, ax: Axes, theme: Theme, *, runs: int) -> Axes:
    """Draw a stacked bar per workflow: how the runs ended.

    Parameters
    ----------
    workflows : DataFrame
        The frame of a `RunSummary`.
    runs : int
        Number of all runs, named below the bars.
    """
    title = "Runs by workflow and outcome"
    rows = workflows.head(rows_that_fit(ax, NAMED_BAR))
    if rows.empty:
        return say(ax, "No runs", theme, title)
    known = [outcome for outcome in _RUNS if rows[outcome].sum()]
    names, prefix = without_prefix([Redactor().url(str(url)) for url in rows["workflow_url"]])
    notes = [
        f"{int(row['runs']):,} runs"
        + ("" if pd.isna(row["success_rate"]) else f", {percent(row['success_rate'])} succeeded")
        for row in rows.to_dict("records")
    ]
    above = _stacked(ax, theme, names, rows[known], _RUNS, notes, height=0.42)
    heading(ax, title, theme, prefix=prefix, above=above)
    shown = f"first {len(rows)} of {len(workflows):,} workflows; " if len(rows) < len(workflows) else ""
    label_axis(ax.xaxis, f"{shown}{counted(runs, 'run')} in all", theme)
    return ax


def draw_outcomes(entries: pd.DataFrame, ax: Axes, theme: Theme, *, verdict: str) -> Axes:
    """Draw a stacked bar per group of a redrive: what became of the entries (`title`, `state`)."""
    title = "Outcomes of the redrive"
    shown = entries.assign(outcome=entries["state"].map(_outcome))
    counts = pd.crosstab(shown["title"], shown["outcome"])
    counts = counts.reindex(columns=[name for name in _REDRIVEN if name in counts.columns])
    counts = counts.loc[counts.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    if counts.empty:
        return say(ax, "No entries", theme, title)
    counts = counts.head(rows_that_fit(ax, NAMED_BAR))
    names = [Redactor().text(str(name)) for name in counts.index]
    notes = [f"{total:,}" for total in counts.sum(axis=1)]
    above = _stacked(ax, theme, names, counts, _REDRIVEN, notes, height=0.45)
    heading(ax, title, theme, above=above)
    label_axis(ax.xaxis, verdict, theme)
    return ax


def _outcome(state: str) -> str:
    """The outcome that a state of an entry counts as."""
    if state in ("succeeded", "called", "deleted"):
        return "done"
    return state if state.startswith("failed") else "stopped or left" if state in _LEFT else "open"


def _named_bars(
    ax: Axes, theme: Theme, names: Sequence[str], series: Series, notes: Sequence[str],
    *, stacked: float = 0.0,
) -> None:  # fmt: skip
    """Rows of bars under their names, the first at the top: of each series one, or all `stacked` so high."""
    values, high = np.array([part for part, _ in series], dtype=np.float64), 0.48 / len(series)
    lefts = np.cumsum(values, axis=0) - values if stacked else np.zeros_like(values)
    for number, (_, colours) in enumerate(series):
        ax.barh(
            np.arange(len(names)) + (0.24 if stacked else (number + 0.5) * high), values[number],
            left=lefts[number], height=stacked or high * 0.94,
            color=[theme.series[colour] for colour in colours],
            hatch=[HATCHES[colour] for colour in colours], edgecolor=theme.paper, linewidth=0,
        )  # fmt: skip
    name_bars(ax, names, theme, notes, longest=float((lefts + values).max()))


def _stacked(
    ax: Axes, theme: Theme, names: Sequence[str], counts: pd.DataFrame, colours: dict[str, int],
    notes: Sequence[str], *, height: float,
) -> float:  # fmt: skip
    """Draw a stacked bar a row of counts, with a legend of the columns; inches used above the Axes."""
    series = [(counts[name].tolist(), [colours[name]] * len(counts)) for name in list(counts.columns)]
    _named_bars(ax, theme, names, series, notes, stacked=height)
    return legend(ax, ax.containers, list(counts.columns), theme)[1]


def draw_differences(
    rows: pd.DataFrame,
    title: str,
    label: str,
    *,
    empty: str,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw a point and its interval for each row (`name`, `difference`, `low`, `high`), grey around zero."""
    with drawing(ax, theme) as (axes, colours):
        heading(axes, title, colours)
        if rows.empty:
            return say(axes, empty, colours)
        axes.axvline(0, color=colours.ink, linewidth=1.0, linestyle=(0, (3.7, 1.6)))
        # colour and shape: the style draws no edges of markers
        differs = (rows["low"] > 0) | (rows["high"] < 0)
        looks = [("o", colours.series[0]) if shown else ("s", colours.muted) for shown in differs]
        positions = _intervals(axes, rows, "difference", looks)
        most = 1.1 * max(abs(rows["low"].min()), abs(rows["high"].max()), 1e-3)
        limit(axes.xaxis, -most, most)
        name_rows(axes, positions, rows["name"].tolist())
        number_axis(axes, axes.xaxis)
        label_axis(axes.xaxis, label, colours)
        return axes


def draw_recall(by: pd.DataFrame, title: str, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw a point and its interval for each row of `by` (`name`, `queries`, `share`, `low`, `high`)."""
    known = by.dropna(subset="share")
    with drawing(ax, theme) as (axes, colours):
        if known.empty:
            return say(axes, "No query has a neighbour", colours, title)
        positions = _intervals(axes, known, "share", [("o", colours.series[0])] * len(known))
        low = min(0.9, float(known["low"].min()))
        limit(axes.xaxis, low - 0.03 * (1 - low), 1 + 0.03 * (1 - low))
        notes = [f"({number:,} queries)" for number in known["queries"]]
        prefix = name_rows(axes, positions, known["name"].tolist(), notes=notes)
        heading(axes, title, colours, prefix=prefix)
        number_axis(axes, axes.xaxis, percent)
        label_axis(axes.xaxis, "neighbours returned, with the 95 % interval over queries", colours)
        return axes


def _intervals(ax: Axes, rows: pd.DataFrame, column: str, looks: Sequence[tuple[str, str]]) -> list[float]:
    """A point and its interval for each row, the first at the top, in shape and colour; their positions."""
    positions = [-float(number) for number in range(len(rows))]
    known = zip(positions, rows[column], rows["low"], rows["high"], looks, strict=True)
    for position, middle, low, high, (shape, colour) in known:
        ax.errorbar(
            [middle], [position], xerr=[[middle - low], [high - middle]], fmt=shape, color=colour,
            ecolor=colour, capsize=0, linewidth=1.6, markersize=6,
        )  # fmt: skip
    limit(ax.yaxis, positions[-1] - 0.6, 0.6)
    return positions
