"""Scores of query results: how they are spread, by rank, and of two configurations against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from numpy.typing import NDArray

from toolkit.analysis.scores import LARGEST, ScoreBins, score_bins, score_curves, score_moves
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import choice, whole, wrong
from toolkit.arguments import texts as checked_texts
from toolkit.drawing import axis
from toolkit.drawing.style import (
    COLUMN,
    Theme,
    ThemeName,
    documented,
    drawable,
    drawable_names,
    drawing,
)
from toolkit.drawing.wording import counted, percent, short_number

ScoreKind = Literal["histogram", "ecdf", "ridge"]

# line styles, in addition to colour, in order
_DASHES: Final = (
    "-", (0, (3.7, 1.6)), (0, (6.4, 1.6, 1, 1.6)), (0, (1, 1.65)),
    (0, (6, 1)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (4, 1, 1, 1, 1, 1)), (0, (1, 3)),
)  # fmt: skip
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", ".")
_LABEL: Final = 0.16  # inches from one label to the next
_MOST: Final = 8  # groups with a colour of their own
_FEW: Final = 40  # ranks up to which every one gets a marker


@documented
def plot_score_distribution(
    hits: AnyFrame,
    *,
    by: str | None = "query",
    kind: ScoreKind | None = None,
    bins: int = 20,
    top: int = 8,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw the distribution of scores, of one query or of several.

    Not for comparing scores of different indexes or query modes: only the order of scores of one kind means
    anything.

    Parameters
    ----------
    hits : frame
        With the columns `score` and `by`.
    by : str or None
        Column of single values to group by; None for all hits together.
    kind : {"histogram", "ecdf", "ridge"}, optional
        Bars (outlines, for several groups); the share of hits up to each score; or a row of bars a group.
        Default: bars for one group, rows for several.
    bins : int
        How many bars, 1 to 1,000, on the same edges for every group.
    top : int
        Number of groups, 1 to 8; all others are one group.
    {axes}
        With a sentence instead of bars where there is no finite score, or only one.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"query": [0, 0, 0], "score": [0.9, 0.8, 0.2]})
    >>> ax = plot_score_distribution(frame, bins=2, ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 2]
    """
    kind = choice("kind", kind, get_args(ScoreKind), optional=True)
    scores = score_bins(hits, by=by, bins=bins, top=min(whole("top", top), _MOST), largest=LARGEST)
    kind = kind or ("histogram" if len(scores.groups) <= 1 else "ridge")
    title = f"Scores of hits, by {by}" if by else "Scores of hits"
    with drawing(ax, theme) as (axes, colours):
        if scores.total <= 1:
            return axis.say(axes, _sentence(scores), colours, title)
        axis.label_axis(axes.xaxis, f"score (higher is nearer){_left_out(scores)}", colours)
        axis.number_axis(axes, axes.xaxis)
        axis.limit(axes.xaxis, scores.edges[0], scores.edges[-1])
        if kind == "ecdf":
            axis.heading(axes, title, colours)
            _shares(scores, axes, colours)
        elif kind == "ridge":
            _rows(scores, axes, colours, title, "hits")
        elif len(scores.groups) == 1:
            axis.heading(axes, title, colours)
            _bars(scores, 0, axes, colours)
            axis.count_axis(axes, "hits", colours, scores.counts.max())
        else:
            _outlines(scores, axes, colours, title)
        return axes


def draw_similarities(
    pairs: pd.DataFrame,
    title: str,
    label: str,
    *,
    what: str = "pairs",
    empty: str | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw the scores of pairs, a row for each value of the column `pair`, under a title of one's own."""
    scores = score_bins(pairs, by="pair", bins=30, top=_MOST, largest=LARGEST)
    with drawing(ax, theme) as (axes, colours):
        if not scores.total:
            return axis.say(axes, empty or f"No {what}", colours, title)
        axis.limit(axes.xaxis, scores.edges[0], scores.edges[-1])
        _rows(scores, axes, colours, title, what)
        axis.number_axis(axes, axes.xaxis)
        axis.label_axis(axes.xaxis, label, colours)
        return axes


def _sentence(scores: ScoreBins) -> str:
    left_out = f" ({counted(scores.left_out, 'hit')} without a finite score)" if scores.left_out else ""
    if not scores.total:
        return f"No hits{left_out}"
    return f"1 hit, score {(scores.edges[0] + scores.edges[-1]) / 2:g}{left_out}"


def _left_out(scores: ScoreBins) -> str:
    """A second line of a label, if any."""
    return f"\n{counted(scores.left_out, 'hit')} without a finite score left out" if scores.left_out else ""


def _bars(
    scores: ScoreBins, number: int, ax: Axes, theme: Theme, *, height: float = 1.0, bottom: float = 0.0
) -> None:
    last = len(theme.series) - 1
    sign = last if scores.merged and number == len(scores.groups) - 1 else number
    widths = scores.edges[1:] - scores.edges[:-1]
    heights = scores.counts[number] * height
    ax.bar(scores.edges[:-1], heights, widths * 0.94, bottom, align="edge", **theme.bar(sign))


def _line(theme: Theme, number: int) -> dict[str, Any]:
    return {"color": theme.series[number], "linestyle": _DASHES[number], "linewidth": 1.6}


def _outlines(scores: ScoreBins, ax: Axes, theme: Theme, title: str) -> None:
    """Lines that a legend names: most of them end at 0."""
    for number, counts in enumerate(scores.counts):
        ax.stairs(counts, scores.edges, baseline=None, **_line(theme, number))
    axis.count_axis(ax, "hits", theme, scores.counts.max())
    _, above = axis.legend(ax, ax.patches, _named(scores), theme, long=2.4)
    axis.heading(ax, title, theme, above=above)


def _shares(binned: ScoreBins, ax: Axes, theme: Theme) -> None:
    low, high = binned.edges[0], binned.edges[-1]
    for number, scores in enumerate(binned.scores):
        positions = np.concatenate([[low], scores, [high]])
        shares = np.concatenate([np.arange(len(scores) + 1) / len(scores), [1.0]])
        ax.plot(positions, shares, drawstyle="steps-post", **_line(theme, number))
    axis.limit(ax.yaxis, 0, 1.03)
    axis.number_axis(ax, ax.yaxis, percent)
    axis.label_axis(ax.yaxis, "share of hits up to this score", theme)
    if len(binned.groups) > 1:
        # all shares end at 100 %: names are in the order of the medians, the highest score at the bottom
        ends = [1 - (np.median(scores) - low) / (high - low) for scores in binned.scores]
        _name_lines(ax, ends, _named(binned), theme)


def _named(scores: ScoreBins) -> list[str]:
    names, totals = drawable_names(scores.groups, longest=26), scores.counts.sum(axis=1).tolist()
    return [f"{name} ({short_number(total)})" for name, total in zip(names, totals, strict=True)]


def _rows(scores: ScoreBins, ax: Axes, theme: Theme, title: str, what: str) -> None:
    tops = scores.counts.max(axis=1).clip(1).tolist()
    positions = [-number for number in range(len(tops))]
    for number, top in enumerate(tops):
        _bars(scores, number, ax, theme, height=0.85 / top, bottom=-number)
    totals = [f"({total:,})" for total in scores.counts.sum(axis=1).tolist()]
    prefix = axis.name_rows(ax, positions, scores.groups, notes=totals)
    axis.name_tops(ax, what, theme, positions, tops)
    axis.heading(ax, title, theme, prefix=prefix)


@documented
def plot_score_by_rank(
    hits: AnyFrame,
    *,
    by: str = "query",
    top: int = 8,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw the score of each hit against its rank, a line a query, named where it ends.

    A steep fall and then a flat tail means that few hits are near and the others are noise. Not for comparing
    scores of different indexes or query modes.

    Parameters
    ----------
    hits : frame
        With the columns `rank`, `score` and `by`.
    by : str
        Column of single values to group by.
    top : int
        Number of lines, 1 to 9; the label says how many groups, and how many hits without a finite score,
        were left out.
    {axes}
        With a sentence instead of lines where there is no finite score.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"query": 0, "rank": [1, 2], "score": [0.9, 0.4]})
    >>> plot_score_by_rank(frame, ax=Figure().add_subplot()).lines[0].get_ydata().tolist()
    [0.9, 0.4]
    """
    top = min(whole("top", top), _MOST + 1)
    curves, more = score_curves(hits, by=by, top=top, largest=LARGEST)
    scores = score_bins(hits, by=None, largest=LARGEST)
    with drawing(ax, theme) as (axes, colours):
        axis.heading(axes, f"Scores by rank, by {by}", colours)
        if not curves:
            return axis.say(axes, "No hits with a finite score", colours)
        for number, curve in enumerate(curves):
            marker = _MARKERS[number] if len(curve.ranks) <= _FEW else None
            axes.plot(curve.ranks, curve.scores, marker=marker, markersize=4, **_line(colours, number))
        axis.number_axis(axes, axes.yaxis)
        axis.whole_axis(axes, 0.5)
        last = max(int(curve.ranks[-1]) for curve in curves)
        # names follow the ends of several lines at once; the last point of one line is not cut
        axis.limit(axes.xaxis, 0.6, last if len(curves) > 1 else last + 0.4)
        low, high = (float(end(end(curve.scores) for curve in curves)) for end in (min, max))
        room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
        axis.limit(axes.yaxis, low - room, high + room)
        if len(curves) > 1:
            _name_lines(
                axes, [curve.scores[-1] for curve in curves], [curve.name for curve in curves], colours
            )
        note = f" (and {counted(more, 'more group')} not drawn)" if more else ""
        lines = f"; a line is a {drawable(by, longest=24)}" if len(curves) > 1 else ""
        axis.label_axis(axes.xaxis, f"rank (1 is the nearest){lines}{note}{_left_out(scores)}", colours)
        axis.label_axis(axes.yaxis, "score", colours)
        return axes


@documented
def plot_score_comparison(
    before: AnyFrame,
    after: AnyFrame,
    *,
    names: tuple[str, str] = ("before", "after"),
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw each hit's score in one configuration against its score in another.

    Hits of only one of the two are on its margin. What matters is whether the order changed; points that all
    lie off the diagonal only mean that the two use different scales.

    Parameters
    ----------
    before, after : frame
        Results of the same queries, with the columns `query`, `rank`, `id`, `score`.
    names : (str, str)
        Names of the two.
    {axes}
        With a sentence instead of points where there are no hits.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> before = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> after = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["b", "c"], "score": [0.7, 0.6]})
    >>> ax = plot_score_comparison(before, after, ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['1 in both', '1 only before', '1 only after', 'equal scores']
    """
    called = checked_texts("names", names)
    if len(called) != 2:  # noqa: PLR2004 - one each
        raise wrong("names", names, "two texts, for before and after")
    moves = score_moves(before, after)
    x, y = (
        moves[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in ("score_before", "score_after")
    )
    with drawing(ax, theme) as (axes, colours):
        # the legend names them behind a mark and a count
        space = max(6.0, min(24.0, axis.inches(axes) / COLUMN - 15))
        first, second = (drawable(name, longest=space) for name in called)
        lost, new = np.abs(x) <= LARGEST, np.abs(y) <= LARGEST
        both = lost & new
        values = np.concatenate([x[lost], y[new]])
        lost, new = lost & ~both, new & ~both
        title = f"Scores: {first} and {second}"
        texts = [f"{both.sum():,} in both", f"{lost.sum():,} only {first}", f"{new.sum():,} only {second}"]
        if not len(values):
            return axis.say(axes, "No hits with a finite score", colours, title)
        low, high = float(values.min()), float(values.max())
        space = (high - low) * 0.06 or 0.5
        margin = low - space  # where hits of only one of the two are
        axes.plot(
            [margin, high], [margin, high], color=colours.muted, linewidth=1, linestyle=(0, (4, 3)), zorder=0
        )
        x, y = np.where(new, margin, x), np.where(lost, margin, y)
        for drawn, marker, sign in ((both, "o", 0), (lost, "v", 3), (new, "<", 2)):
            dot, colour = MarkerStyle(marker, "full"), colours.series[sign]
            axes.scatter(x[drawn], y[drawn], s=28, marker=dot, color=colour, linewidths=0)
        axis.limit(axes.xaxis, margin - space, high + space)
        axis.limit(axes.yaxis, margin - space, high + space)
        axis.number_axis(axes, axes.xaxis)
        axis.number_axis(axes, axes.yaxis)
        axis.label_axis(axes.xaxis, f"score {first}", colours)
        axis.label_axis(axes.yaxis, f"score {second}", colours)
        handles = [*axes.collections, axes.lines[-1]]
        _, above = axis.legend(axes, handles, [*texts, "equal scores"], colours)
        axis.heading(axes, title, colours, above=above)
        return axes


def _name_lines(ax: Axes, ends: Sequence[float], names: Sequence[str], theme: Theme) -> None:
    """Write each line's name at the right edge, at the height where it ends, none over another."""
    longest = max(12, min(32, int(axis.inches(ax) * 0.34 / COLUMN)))
    names = drawable_names(names, longest=longest)
    low, high = ax.get_ylim()
    gap = _LABEL / max(axis.inches_high(ax), _LABEL) * (high - low)
    for number, position in enumerate(_spread(np.asarray(ends, dtype=np.float64), gap, low, high)):
        ax.annotate(
            names[number], xy=(1, position), xycoords=("axes fraction", "data"),
            xytext=(6, 0), textcoords="offset points", va="center", fontsize=9, annotation_clip=False,
            color=theme.ink, parse_math=False,
        )  # fmt: skip
        sign = min(number, len(theme.series) - 1)
        ax.plot(
            [1.0], [ends[number]], marker=_MARKERS[sign], color=theme.series[sign], markersize=5,
            clip_on=False, transform=ax.get_yaxis_transform(),
        )  # fmt: skip


def _spread(ends: NDArray[np.float64], gap: float, low: float, high: float) -> NDArray[np.float64]:
    """Heights at least `gap` apart, moved as little as possible, within the limits where they fit."""
    order, gaps = np.argsort(ends, kind="stable"), gap * np.arange(len(ends))
    positions = np.maximum.accumulate(ends[order] - gaps)  # up, then down again from the upper limit
    positions = np.minimum(positions, high - gaps[-1:]) + gaps
    spread: NDArray[np.float64] = np.maximum(positions, low - gap * len(positions))[np.argsort(order)]
    return spread
