"""Results as bars (groups, classes, explanations, redrives) and points (recall, differences, comparisons)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import FuncFormatter

from toolkit.analysis.classes import UNKNOWN, FailureClasses
from toolkit.analysis.comparing import FailureComparison
from toolkit.analysis.explaining import Explanation, describe
from toolkit.analysis.grouping import FailureGroups
from toolkit.analysis.run_log import RunSummary
from toolkit.analysis.wording import Plotted, counted, percent, short_number
from toolkit.plots.axis import heading, label_axis, legend, name_above, name_rows, number_axis, rows_that_fit
from toolkit.plots.failure_bars import draw_rows
from toolkit.plots.style import HATCHES, Theme, ThemeName, drawing, say, theme_named, without_prefix
from toolkit.plots.success_rates import draw_summary
from toolkit.redaction import Redactor
from toolkit.redrive.results import RedriveResult

_CONDITIONS: Final = 6
_LINES: Final = 1.9  # of a row and its name
_OBSERVED, _EXPECTED, _MERGED = 3, -1, -1  # colours
_CHANGED: Final = {"new": 3, "back again": 3, "growing": 3, "shrinking": 0, "gone": 0, "steady": 8}  # colours


def plot_result(result: Plotted, *, ax: Axes | None, theme: ThemeName) -> Axes:
    """Draw a result: what its method ``plot`` does."""
    colours = theme_named(theme)
    with drawing(ax, colours) as axes:
        match result:
            case FailureGroups():
                return _groups(result, axes, colours)
            case FailureClasses():
                return _classes(result, axes, colours)
            case Explanation():
                return _explanation(result, axes, colours)
            case FailureComparison():
                return _comparison(result, axes, colours)
            case RunSummary():
                return draw_summary(result, axes, colours)
            case RedriveResult():
                return draw_outcomes(result, axes, colours)
        raise NotImplementedError(type(result).__name__)


def _groups(groups: FailureGroups, ax: Axes, theme: Theme) -> Axes:
    """A bar a group, in the colours of `plot_failure_groups`."""
    ordered = groups.frame.sort_values(["count", "group"], ascending=[False, True])
    names, counts = ordered["title"].tolist(), [int(count) for count in ordered["count"]]
    fit = min(len(theme.series) - 1, rows_that_fit(ax, _LINES) - 1)
    colours = list(range(len(names)))
    if len(names) > fit:
        names = [*names[:fit], f"other ({len(names) - fit})"]
        counts, colours = [*counts[:fit], sum(counts[fit:])], [*colours[:fit], _MERGED]
    heading(ax, "Groups of failures", theme)
    if not names:
        return say(ax, "No failures", theme)
    notes = [f"{count:,} ({percent(count / sum(counts))})" for count in counts]
    _rows(ax, theme, names, [(counts, colours)], notes)
    label_axis(ax.xaxis, counted(sum(counts), "failure"), theme)
    return ax


def _classes(classes: FailureClasses, ax: Axes, theme: Theme) -> Axes:
    """A bar a class, those of unknown class in the colour of what is merged."""
    names, counts = classes.counts["class"].tolist(), [int(count) for count in classes.counts["count"]]
    heading(ax, "Classes of failures", theme)
    if not names:
        return say(ax, "No failures", theme)
    draw_rows(ax, names, counts, theme, [_MERGED if name == UNKNOWN else 0 for name in names])
    label_axis(ax.xaxis, counted(sum(counts), "failure"), theme)
    return ax


def _explanation(explanation: Explanation, ax: Axes, theme: Theme) -> Axes:
    """Two bars a condition, the likeliest at the top: what was observed, and what was expected."""
    title = "Observed and expected, by condition"
    change = f"{explanation.observed:,.0f} observed, {explanation.expected:,.0f} expected"
    if not explanation.stands_out:
        heading(ax, title, theme)
        return say(ax, f"Nothing stands out: {change}", theme)
    rows = explanation.frame.head(min(_CONDITIONS, rows_that_fit(ax, _LINES)))
    names, prefix = _named(rows["condition"].tolist())
    values = [rows["observed"].tolist(), rows["expected"].tolist()]
    notes = [
        f"{observed:,.0f} (expected {expected:,.{1 if expected else 0}f})"
        for observed, expected in zip(*values, strict=True)
    ]
    series = [(values[0], [_OBSERVED] * len(rows)), (values[1], [_EXPECTED] * len(rows))]
    _rows(ax, theme, names, series, notes)
    _, above = legend(ax, ax.containers, ["observed", "expected"], theme)
    heading(ax, title, theme, prefix=prefix, above=above)
    label_axis(ax.xaxis, f"{change} in all; conditions can hold the same failures", theme)
    return ax


def _comparison(comparison: FailureComparison, ax: Axes, theme: Theme) -> Axes:
    """A line a group, what needs attention at the top: from what was expected to what there is.

    On a logarithmic axis, so that one burst flattens no other group; it begins at 0.
    """
    title = "What changed, by group"
    rows = comparison.frame.head(rows_that_fit(ax, _LINES))
    if not len(rows):
        heading(ax, title, theme)
        return say(ax, "No failures", theme)
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
    name_above(ax, (positions - 0.24).tolist(), rows["title"].tolist(), theme, notes=notes)
    most = max(10.0, expected.max(), after.max())
    ticks = [0.0, *(10.0**power for power in range(int(np.log10(most)) + 1))]
    ax.set_xticks(ticks, [short_number(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set_xlim(-0.15, most * 1.5)
    ax.set_ylim(max(len(rows), 3) - 0.4, -0.5)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x", color=theme.grid, linewidth=0.6, linestyle="-", alpha=1.0)
    ax.spines["left"].set_visible(False)
    _, above = legend(ax, [before, now], ["at the rate of before", "after"], theme)
    heading(ax, title, theme, above=above)
    every = len(comparison.frame)
    shown = f"first {len(rows)} of {every:,} groups; " * (len(rows) < every)
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
    return [clean(describe(condition)) for condition in short], clean(prefix)


def _rows(
    ax: Axes,
    theme: Theme,
    names: Sequence[str],
    series: Sequence[tuple[Sequence[float], Sequence[int]]],
    notes: Sequence[str],
) -> None:
    """Rows of bars, the first at the top, under their names: of each series its values and colours."""
    high = 0.48 / len(series)
    for number, (values, colours) in enumerate(series):
        positions = np.arange(len(names)) + (number + 0.5) * high
        ax.barh(
            positions, values, height=high * 0.94, color=[theme.series[colour] for colour in colours],
            hatch=[HATCHES[colour] for colour in colours], edgecolor=theme.paper, linewidth=0,
        )  # fmt: skip
    name_above(ax, [position - 0.04 for position in range(len(names))], names, theme, notes=notes)
    ax.set_ylim(max(len(names), 3) - 0.4, -0.5)
    ax.set_xlim(0, max(max(values) for values, _ in series))
    ax.set_xticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.grid(visible=False)


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
    colours = theme_named(theme)
    with drawing(ax, colours) as axes:
        heading(axes, title, colours)
        if rows.empty:
            return say(axes, empty, colours)
        places = [-float(number) for number in range(len(rows))]
        axes.axvline(0, color=colours.ink, linewidth=1.0, linestyle=(0, (3.7, 1.6)))
        for place, difference, low, high in zip(
            places, rows["difference"], rows["low"], rows["high"], strict=True
        ):
            shown = low > 0 or high < 0
            # colour and shape: the style draws no edges of markers
            colour = colours.series[0] if shown else colours.muted
            axes.errorbar(
                [difference], [place], xerr=[[difference - low], [high - difference]],
                fmt="o" if shown else "s", color=colour, ecolor=colour, linewidth=1.6,
            )  # fmt: skip
        most = 1.1 * max(abs(rows["low"].min()), abs(rows["high"].max()), 1e-3)
        axes.set_xlim(-most, most)
        axes.set_ylim(places[-1] - 0.6, 0.6)
        name_rows(axes, places, rows["name"].tolist())
        number_axis(axes, axes.xaxis)
        label_axis(axes.xaxis, label, colours)
        return axes


def draw_recall(by: pd.DataFrame, title: str, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw a point and its interval for each row of `by` (`name`, `queries`, `share`, `low`, `high`)."""
    colours = theme_named(theme)
    known = by.dropna(subset="share")
    with drawing(ax, colours) as axes:
        heading(axes, title, colours)
        if known.empty:
            return say(axes, "No query has a neighbour", colours)
        rows = [-float(number) for number in range(len(known))]
        axes.errorbar(
            known["share"], rows, xerr=[known["share"] - known["low"], known["high"] - known["share"]],
            fmt="o", color=colours.series[0], ecolor=colours.series[0], capsize=4, linewidth=1.6,
        )  # fmt: skip
        low = min(0.9, float(known["low"].min()))
        axes.set_xlim(low - 0.03 * (1 - low), 1 + 0.03 * (1 - low))
        axes.set_ylim(rows[-1] - 0.6, 0.6)
        notes = [f"({number:,} queries)" for number in known["queries"]]
        prefix = name_rows(axes, rows, known["name"].tolist(), notes=notes)
        heading(axes, title, colours, prefix=prefix)
        number_axis(axes, axes.xaxis)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
        label_axis(axes.xaxis, "neighbours returned, with the 95 % interval over queries", colours)
        return axes


_OUTCOMES: Final = {"done": 0, "failed again": 3, "failed otherwise": 1, "open": 2, "stopped or left": -1}
_LEFT: Final = ("stopped", "left", "skipped", "refused")


def draw_outcomes(result: RedriveResult, ax: Axes, theme: Theme) -> Axes:
    """A stacked bar a group: what became of its entries."""
    shown = result.frame.assign(outcome=result.frame["state"].map(_outcome))
    counts = pd.crosstab(shown["title"], shown["outcome"])
    counts = counts.reindex(columns=[name for name in _OUTCOMES if name in counts.columns])
    counts = counts.loc[counts.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    heading(ax, "Outcomes of the redrive", theme)
    if counts.empty:
        return say(ax, "No entries", theme)
    counts = counts.head(rows_that_fit(ax, _LINES))
    positions, left = np.arange(len(counts)) + 0.24, np.zeros(len(counts))
    for name in counts.columns:
        colour = _OUTCOMES[name]
        ax.barh(
            positions, counts[name], left=left, height=0.45, color=theme.series[colour],
            hatch=HATCHES[colour], edgecolor=theme.paper, linewidth=0,
        )  # fmt: skip
        left = left + counts[name].to_numpy()
    names = [Redactor().text(str(title)) for title in counts.index]
    notes = [f"{int(total):,}" for total in left]
    name_above(ax, [position - 0.04 for position in range(len(names))], names, theme, notes=notes)
    ax.set_ylim(max(len(names), 3) - 0.4, -0.5)
    ax.set_xlim(0, left.max())
    ax.set_xticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.grid(visible=False)
    _, above = legend(ax, ax.containers, list(counts.columns), theme)
    heading(ax, "Outcomes of the redrive", theme, above=above)
    label_axis(ax.xaxis, result.verdict, theme)
    return ax


def _outcome(state: str) -> str:
    """The outcome that a state of an entry counts as."""
    if state in ("succeeded", "called", "deleted"):
        return "done"
    return state if state.startswith("failed") else "stopped or left" if state in _LEFT else "open"
