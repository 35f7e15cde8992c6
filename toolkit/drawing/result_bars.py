"""Draw results as bars (groups, classes, explanations, runs, redrives) or points (recall, comparisons)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle

from toolkit.drawing.axis import (
    first_of,
    heading,
    label_axis,
    legend,
    limit,
    number_axis,
    show_sentence,
    with_finding,
)
from toolkit.drawing.counted_bars import draw_rows
from toolkit.drawing.row_names import NAMED_BAR, name_bars, name_rows, rows_that_fit
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.style import HATCHES, Theme, ThemeName, drawing
from toolkit.drawing.wording import counted, describe_condition, percent, short_number
from toolkit.secrets.redaction import Redactor

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
_REDRIVEN: Final = {
    "done": 0,
    "failed again": 3,
    "failed otherwise": 1,
    "open": 2,
    "stopped or left": -1,
}


_OUTCOME_OF_STATE: Final = {
    "succeeded": "done",
    "called": "done",
    "deleted": "done",
} | dict.fromkeys(("stopped", "left", "skipped", "refused"), "stopped or left")

Series = Sequence[tuple[Sequence[float], Sequence[int]]]
"""Per series, the values of the rows and their colours."""


def draw_groups(groups: pd.DataFrame, ax: Axes, theme: Theme) -> Axes:
    """Draw one bar per row (`group`, `title`, `count`), in the colours of `plot_failure_groups`."""
    ordered = groups.sort_values(["count", "group"], ascending=[False, True])
    names = ordered["title"].tolist()
    counts = ordered["count"].astype(int).tolist()
    fit = min(len(theme.series) - 1, rows_that_fit(ax, NAMED_BAR) - 1)
    colours = list(range(len(names)))

    if len(names) > fit:
        names = [*names[:fit], f"other ({len(names) - fit})"]
        counts = [*counts[:fit], sum(counts[fit:])]
        colours = [*colours[:fit], _MERGED]

    title = "Groups of failures"
    if not names:
        return show_sentence(ax, "No failures", theme, title)

    share = percent(ordered["count"].iloc[0] / ordered["count"].sum())
    finding = f"the largest of {len(ordered):,} has {share}"
    heading(ax, with_finding(title, finding), theme)
    notes = [f"{count:,} ({percent(count / sum(counts))})" for count in counts]
    _named_bars(ax, theme, names, [(counts, colours)], notes)
    label_axis(ax.xaxis, counted(sum(counts), "failure"), theme)

    return ax


def draw_classes(
    classes: pd.DataFrame, ax: Axes, theme: Theme, *, unknown: str
) -> Axes:
    """Draw one bar per row (`class`, `count`); the class `unknown` has the colour of merged rows."""
    names = classes["class"].tolist()
    counts = classes["count"].astype(int).tolist()
    title = "Classes of failures"
    if not names:
        return show_sentence(ax, "No failures", theme, title)

    draw_rows(
        ax, names, counts, theme, [_MERGED if name == unknown else 0 for name in names]
    )
    # after the names of rows, which take a part of the width
    heading(ax, with_finding(title, _first_shares(classes)), theme)
    label_axis(ax.xaxis, counted(sum(counts), "failure"), theme)

    return ax


def _first_shares(classes: pd.DataFrame) -> str:
    """Return the shares of the first two classes, for example "bug 27 %, unknown 23 %"."""
    total = classes["count"].sum()
    first = classes.head(2)
    shares = (first["count"] / total).map(percent)

    return ", ".join(first["class"] + " " + shares)


def draw_explanation(
    conditions: pd.DataFrame,
    ax: Axes,
    theme: Theme,
    *,
    observed: float,
    expected: float,
    stands_out: bool,
    part: str | None = None,
) -> Axes:
    """Draw two bars per row (`condition`, `observed`, `expected`), the likeliest condition at the top.

    `part` names the rows if they are a part of all, for example "changed vectors".
    """
    title = "Observed and expected, by condition"
    change = f"{observed:,.0f} observed, {expected:,.0f} expected"
    unit = "failures"
    if part is not None:
        change, unit = f"{observed:,.0f} {part}", "rows"
    if not stands_out:
        return show_sentence(ax, f"Nothing stands out: {change}", theme, title)

    rows = conditions.head(min(_CONDITIONS, rows_that_fit(ax, NAMED_BAR)))
    names, prefix = _condition_names(rows["condition"].tolist())
    observed_counts, expected_counts = (
        rows["observed"].tolist(),
        rows["expected"].tolist(),
    )
    notes = [
        _observed_note(*counts)
        for counts in zip(observed_counts, expected_counts, strict=True)
    ]
    observed_colours = [_OBSERVED for _ in observed_counts]
    expected_colours = [_EXPECTED for _ in expected_counts]
    series = [(observed_counts, observed_colours), (expected_counts, expected_colours)]
    _named_bars(ax, theme, names, series, notes)
    _, above = legend(ax, ax.containers, ["observed", "expected"], theme)
    heading(ax, with_finding(title, change), theme, prefix=prefix, above=above)
    label_axis(ax.xaxis, f"conditions can match the same {unit}", theme)

    return ax


def _observed_note(observed: float, expected: float) -> str:
    """Return a note, for example "980 (expected 10.3)"."""
    if not expected:
        return f"{observed:,.0f} (expected 0)"
    return f"{observed:,.0f} (expected {expected:,.1f})"


def draw_comparison(groups: pd.DataFrame, ax: Axes, theme: Theme) -> Axes:
    """Draw one line per row (`title`, `change`, `expected`, `after`), from the expected count to `after`.

    Urgent groups come first. The axis is logarithmic, so that one burst does not flatten other groups; it
    begins at 0.
    """
    title = "Changes, by group"
    rows = groups.head(rows_that_fit(ax, NAMED_BAR))
    if not len(rows):
        return show_sentence(ax, "No failures", theme, title)

    positions = np.arange(len(rows)) + 0.2
    expected = rows["expected"].to_numpy()
    after = rows["after"].to_numpy(dtype=np.float64)
    colours = [theme.series[_CHANGED[change]] for change in rows["change"]]
    ax.set_xscale("symlog", linthresh=1)
    ax.hlines(positions, expected, after, colors=colours, linewidth=2.5)
    # shapes and edges are passed because matplotlib's settings would decide otherwise
    before_points = ax.scatter(
        expected, positions, 36, marker=MarkerStyle("o", "full"), facecolors=theme.paper,
        edgecolors=theme.ink, linewidths=1.2, zorder=3,
    )  # fmt: skip
    after_points = ax.scatter(
        after, positions, 52, marker=MarkerStyle("D", "full"), facecolors=colours,
        edgecolors=colours, linewidths=1.0, zorder=4,
    )  # fmt: skip
    notes = [
        f"{change}, {short_number(round(before))} to {short_number(now)}"
        for change, before, now in zip(
            rows["change"], expected, rows["after"], strict=True
        )
    ]
    name_bars(ax, rows["title"].tolist(), theme, notes)
    most = max(10.0, expected.max(), after.max())
    ticks = [0.0, *(10.0**power for power in range(int(np.log10(most)) + 1))]
    ax.set_xticks(ticks, [short_number(tick) for tick in ticks])
    ax.minorticks_off()
    limit(ax.xaxis, -0.15, most * 1.5)
    _, above = legend(
        ax, [before_points, after_points], ["expected (earlier rate)", "after"], theme
    )
    heading(ax, with_finding(title, _changes_in_words(groups)), theme, above=above)
    shown = first_of(len(rows), len(groups), "groups")
    label_axis(ax.xaxis, f"{shown}failures, logarithmic", theme)

    return ax


def _changes_in_words(groups: pd.DataFrame) -> str:
    """Return the number of groups per change, for example "2 growing, 4 gone"."""
    numbers = groups["change"].value_counts(sort=False)
    return ", ".join(numbers.map("{:,} ".format) + numbers.index)


def _condition_names(conditions: list[dict[str, object]]) -> tuple[list[str], str]:
    """Return masked descriptions of conditions without the common prefix of addresses, and the prefix.

    The prefix is at least a host, for example ``https://flows.example.com/``.
    """
    addresses = []
    for condition in conditions:
        addresses += [str(value) for value in condition.values() if "://" in str(value)]
    hosts = ["/".join([*address.split("/")[:3], ""]) for address in addresses]
    _, prefix = without_prefix([*addresses, *hosts])
    clean = Redactor().text

    names = []
    for condition in conditions:
        short_values = [str(value).removeprefix(prefix) for value in condition.values()]
        short = dict(zip(condition, short_values, strict=True))
        names.append(clean(describe_condition(short)))

    return names, clean(prefix)


def draw_run_outcomes(
    workflows: pd.DataFrame, ax: Axes, theme: Theme, *, runs: int
) -> Axes:
    """Draw one stacked bar per workflow, of the outcomes of the runs.

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
        return show_sentence(ax, "No runs", theme, title)

    outcomes = [outcome for outcome in _RUNS if rows[outcome].sum()]
    names, prefix = without_prefix(
        [Redactor().url(str(url)) for url in rows["workflow_url"]]
    )
    notes = [_runs_note(row) for row in rows.to_dict("records")]
    above = _stacked(ax, theme, names, rows[outcomes], _RUNS, notes, height=0.42)
    succeeded = int(workflows["succeeded"].sum())
    ended = succeeded + int(workflows["failed"].sum())
    title = with_finding(title, f"{succeeded:,} of {ended:,} succeeded")
    heading(ax, title, theme, prefix=prefix, above=above)
    shown = first_of(len(rows), len(workflows), "workflows")
    label_axis(ax.xaxis, f"{shown}{counted(runs, 'run')} in all", theme)

    return ax


def _runs_note(row: dict[Hashable, Any]) -> str:
    """Return a note, for example "12 runs, 75 % succeeded"; without a share if no run has ended."""
    runs = f"{int(row['runs']):,} runs"
    if pd.isna(row["success_rate"]):
        return runs

    return f"{runs}, {percent(row['success_rate'])} succeeded"


def draw_outcomes(
    entries: pd.DataFrame, ax: Axes, theme: Theme, *, verdict: str
) -> Axes:
    """Draw one stacked bar per group of a redrive, of the outcomes of the entries (`title`, `state`)."""
    title = "Outcomes of the redrive"
    outcomes = entries.assign(outcome=entries["state"].map(_outcome))
    counts = pd.crosstab(outcomes["title"], outcomes["outcome"])
    counts = counts.reindex(
        columns=[name for name in _REDRIVEN if name in counts.columns]
    )
    counts = counts.loc[
        counts.sum(axis=1).sort_values(ascending=False, kind="stable").index
    ]
    if counts.empty:
        return show_sentence(ax, "No entries", theme, title)

    counts = counts.head(rows_that_fit(ax, NAMED_BAR))
    names = [Redactor().text(str(name)) for name in counts.index]
    notes = [f"{total:,}" for total in counts.sum(axis=1)]
    above = _stacked(ax, theme, names, counts, _REDRIVEN, notes, height=0.45)
    heading(ax, title, theme, above=above)
    label_axis(ax.xaxis, verdict, theme)

    return ax


def _outcome(state: str) -> str:
    """Return the outcome that a state of an entry counts as, for example "done" for "deleted"."""
    if state.startswith("failed"):
        return state
    return _OUTCOME_OF_STATE.get(state, "open")


def _named_bars(
    ax: Axes, theme: Theme, names: Sequence[str], series: Series, notes: Sequence[str],
    *, stacked: float = 0.0,
) -> None:  # fmt: skip
    """Draw rows of bars under their names, the first at the top.

    Each row has one bar per series, below one another. If `stacked` is a height, they form one bar of this
    height.
    """
    # A row is one unit high. The bars take 0.48 below the position of the row, and the name stands above it:
    #
    #     -0.5    name
    #      0.0    bars of all series, or one stacked bar
    #      0.48   space before the next name
    values = np.array([part for part, _ in series], dtype=np.float64)
    row_height = 0.48 / len(series)
    lefts = np.zeros_like(values)
    centres = (np.arange(len(series)) + 0.5) * row_height
    height = row_height * 0.94

    if stacked:
        lefts = np.cumsum(values, axis=0) - values
        centres = np.full(len(series), 0.24)
        height = stacked

    for number, (_, colours) in enumerate(series):
        ax.barh(
            np.arange(len(names)) + centres[number], values[number], left=lefts[number], height=height,
            color=[theme.series[colour] for colour in colours],
            hatch=[HATCHES[colour] for colour in colours], edgecolor=theme.paper, linewidth=0,
        )  # fmt: skip

    name_bars(ax, names, theme, notes, longest=float((lefts + values).max()))


def _stacked(
    ax: Axes, theme: Theme, names: Sequence[str], counts: pd.DataFrame, colours: dict[str, int],
    notes: Sequence[str], *, height: float,
) -> float:  # fmt: skip
    """Draw one stacked bar per row of counts, and a legend of the columns; return the inches used above."""
    series = []
    for name in list(counts.columns):
        colour_of_rows = [colours[name] for _ in counts.index]
        series.append((counts[name].tolist(), colour_of_rows))

    _named_bars(ax, theme, names, series, notes, stacked=height)
    return legend(ax, ax.containers, list(counts.columns), theme)[1]


def draw_differences(
    rows: pd.DataFrame,
    title: str,
    label: str,
    *,
    empty: str,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw a point with an interval per row (`name`, `difference`, `low`, `high`).

    Rows whose interval contains zero are grey.
    """
    with drawing(ax, theme) as (axes, colours):
        heading(axes, title, colours)
        if rows.empty:
            return show_sentence(axes, empty, colours)
        axes.axvline(0, color=colours.ink, linewidth=1.0, linestyle=(0, (3.7, 1.6)))
        # colour and shape: the style draws no edges of markers
        differs = (rows["low"] > 0) | (rows["high"] < 0)
        looks = [
            ("o", colours.series[0]) if shown else ("s", colours.muted)
            for shown in differs
        ]
        positions = _intervals(axes, rows, "difference", looks)
        most = 1.1 * max(abs(rows["low"].min()), abs(rows["high"].max()), 1e-3)
        limit(axes.xaxis, -most, most)
        name_rows(axes, positions, rows["name"].tolist())
        number_axis(axes, axes.xaxis)
        label_axis(axes.xaxis, label, colours)
        return axes


def draw_recall(
    by: pd.DataFrame, title: str, *, ax: Axes | None = None, theme: ThemeName = "auto"
) -> Axes:
    """Draw a point with an interval per row of `by` (`name`, `queries`, `share`, `low`, `high`)."""
    known = by.dropna(subset="share")
    with drawing(ax, theme) as (axes, colours):
        if known.empty:
            return show_sentence(axes, "No query has a neighbour", colours, title)
        looks = [("o", colours.series[0]) for _ in known.index]
        positions = _intervals(axes, known, "share", looks)
        low = min(0.9, float(known["low"].min()))
        limit(axes.xaxis, low - 0.03 * (1 - low), 1 + 0.03 * (1 - low))
        notes = [f"({number:,} queries)" for number in known["queries"]]
        prefix = name_rows(axes, positions, known["name"].tolist(), notes=notes)
        finding = percent(known["share"].min())
        if len(known) > 1:
            finding = f"the lowest is {finding}"
        heading(axes, with_finding(title, finding), colours, prefix=prefix)
        number_axis(axes, axes.xaxis, percent)
        label_axis(
            axes.xaxis,
            "neighbours returned, with the 95 % interval over queries",
            colours,
        )
        return axes


def _intervals(
    ax: Axes, rows: pd.DataFrame, column: str, looks: Sequence[tuple[str, str]]
) -> list[float]:
    """Draw a point with an interval per row, the first at the top, and return the positions of the rows.

    `looks` are the shape and the colour of each point.
    """
    positions = [-float(number) for number in range(len(rows))]
    known = zip(positions, rows[column], rows["low"], rows["high"], looks, strict=True)
    for position, middle, low, high, (shape, colour) in known:
        ax.errorbar(
            [middle], [position], xerr=[[middle - low], [high - middle]], fmt=shape, color=colour,
            ecolor=colour, capsize=0, linewidth=1.6, markersize=6,
        )  # fmt: skip

    limit(ax.yaxis, positions[-1] - 0.6, 0.6)
    return positions
