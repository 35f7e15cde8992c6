"""Plot scores of query results: their distribution, by rank, and of two configurations compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from numpy.typing import NDArray

from toolkit.base.arguments import choice, whole, wrong
from toolkit.base.arguments import texts as checked_texts
from toolkit.drawing import axis, row_names
from toolkit.drawing.drawable import COLUMN, drawable, drawable_names
from toolkit.drawing.style import Theme, ThemeName, documented, drawing
from toolkit.drawing.wording import counted, percent, short_number
from toolkit.failures.sources import AnyFrame
from toolkit.vectors.scores import (
    LARGEST,
    ScoreBins,
    ScoreCurve,
    score_bins,
    score_curves,
    score_moves,
)

ScoreKind = Literal["histogram", "ecdf", "ridge"]

# line styles, in addition to colour, in order
_DASHES: Final = (
    "-", (0, (3.7, 1.6)), (0, (6.4, 1.6, 1, 1.6)), (0, (1, 1.65)),
    (0, (6, 1)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (4, 1, 1, 1, 1, 1)), (0, (1, 3)),
)  # fmt: skip
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", ".")
_LABEL: Final = 0.16  # inches from one label to the next
_MOST: Final = 8  # groups with their own colour
_FEW: Final = 40  # every rank has a marker if a curve has at most this number of ranks


@documented
def plot_score_distribution(
    hits: AnyFrame,
    *,
    by: str | None = "query",
    kind: ScoreKind | None = None,
    bins: int = 20,
    top: int = 8,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the distribution of scores, of one query or of several.

    Do not compare scores of different indexes or query modes: only the order of scores of one kind has a
    meaning.

    Parameters
    ----------
    hits : frame
        With the columns `score` and `by`.
    by : str or None
        Column of single values to group by; None for all hits together.
    kind : {"histogram", "ecdf", "ridge"}, optional
        Bars (outlines, for several groups); the share of hits up to each score; or a row of bars per group.
        If omitted, one group has bars, and several groups have rows.
    bins : int
        Number of bars, 1 to 1,000, with the same edges for every group.
    top : int
        Number of groups, 1 to 8; all others are one group.
    {axes}
        If fewer than two scores are finite, they show a sentence instead of bars.

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
    scores = score_bins(
        hits, by=by, bins=bins, top=min(whole("top", top), _MOST), largest=LARGEST
    )
    if kind is None:
        kind = "histogram" if len(scores.groups) <= 1 else "ridge"
    title = f"Scores of hits, by {by}" if by else "Scores of hits"

    with drawing(ax, theme) as (axes, colours):
        if scores.total <= 1:
            return axis.show_sentence(axes, _sentence(scores), colours, title)
        axis.label_axis(
            axes.xaxis, f"score (higher is nearer){_left_out(scores)}", colours
        )
        axis.number_axis(axes, axes.xaxis)
        axis.limit(axes.xaxis, scores.edges[0], scores.edges[-1])
        _DRAW[kind](scores, axes, colours, axis.with_finding(title, _range(scores)))
        return axes


def draw_similarities(
    pairs: pd.DataFrame,
    title: str,
    label: str,
    *,
    what: str = "pairs",
    empty: str | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the scores of pairs under a title, with one row per value of the column `pair`."""
    scores = score_bins(pairs, by="pair", bins=30, top=_MOST, largest=LARGEST)
    with drawing(ax, theme) as (axes, colours):
        if not scores.total:
            return axis.show_sentence(axes, empty or f"No {what}", colours, title)
        axis.limit(axes.xaxis, scores.edges[0], scores.edges[-1])
        title = axis.with_finding(title, _medians(scores))
        _rows(scores, axes, colours, title, what)
        axis.number_axis(axes, axes.xaxis)
        axis.label_axis(axes.xaxis, label, colours)
        return axes


def _sentence(scores: ScoreBins) -> str:
    """Return the sentence that replaces a distribution of at most one score."""
    remark = axis.left_out(scores.left_out, "hit", "without a finite score")
    if not scores.total:
        return f"No hits{remark}"

    return f"1 hit, score {(scores.edges[0] + scores.edges[-1]) / 2:g}{remark}"


def _range(scores: ScoreBins) -> str:
    """Return the lowest and the highest score, for example "from 0.31 to 0.95"."""
    low = min(float(own.min()) for own in scores.scores if len(own))
    high = max(float(own.max()) for own in scores.scores if len(own))
    return f"from {low:.3g} to {high:.3g}"


def _medians(scores: ScoreBins) -> str:
    """Return the medians of one or two groups, for example "medians 0.97 and 0.38"."""
    medians = [f"{np.median(own):.3g}" for own in scores.scores]
    if len(medians) == 1:
        return f"median {medians[0]}"
    if len(medians) == 2:  # noqa: PLR2004 - more are in the rows, not in a title
        return f"medians {medians[0]} and {medians[1]}"

    return ""


def _left_out(scores: ScoreBins) -> str:
    """Return a second line of a label about hits without a finite score; an empty string without them."""
    if not scores.left_out:
        return ""
    return f"\n{counted(scores.left_out, 'hit')} without a finite score left out"


def _histogram(scores: ScoreBins, ax: Axes, theme: Theme, title: str) -> None:
    """Draw bars for one group, or outlines for several."""
    if len(scores.groups) > 1:
        _outlines(scores, ax, theme, title)
        return

    axis.heading(ax, title, theme)
    _bars(scores, 0, ax, theme)
    axis.count_axis(ax, "hits", theme, scores.counts.max())


def _bars(
    scores: ScoreBins,
    number: int,
    ax: Axes,
    theme: Theme,
    *,
    height: float = 1.0,
    bottom: float = 0.0,
) -> None:
    sign = number
    if scores.merged and number == len(scores.groups) - 1:
        sign = len(theme.series) - 1
    widths = scores.edges[1:] - scores.edges[:-1]
    heights = scores.counts[number] * height
    ax.bar(
        scores.edges[:-1],
        heights,
        widths * 0.94,
        bottom,
        align="edge",
        **theme.bar(sign),
    )


def _line(theme: Theme, number: int) -> dict[str, Any]:
    return {
        "color": theme.series[number],
        "linestyle": _DASHES[number],
        "linewidth": 1.6,
    }


def _outlines(scores: ScoreBins, ax: Axes, theme: Theme, title: str) -> None:
    """Draw outlines of histograms. They are named by a legend, because most of them end at 0."""
    for number, counts in enumerate(scores.counts):
        ax.stairs(counts, scores.edges, baseline=None, **_line(theme, number))
    axis.count_axis(ax, "hits", theme, scores.counts.max())
    _, above = axis.legend(ax, ax.patches, _named(scores), theme, long=2.4)
    axis.heading(ax, title, theme, above=above)


def _shares(binned: ScoreBins, ax: Axes, theme: Theme, title: str) -> None:
    """Draw the share of hits up to each score (an empirical distribution function), one line per group."""
    axis.heading(ax, title, theme)
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
        ends = [
            1 - (np.median(scores) - low) / (high - low) for scores in binned.scores
        ]
        _name_lines(ax, ends, _named(binned), theme)


def _named(scores: ScoreBins) -> list[str]:
    names = drawable_names(scores.groups, longest=26)
    totals = scores.counts.sum(axis=1).tolist()

    return [
        f"{name} ({short_number(total)})"
        for name, total in zip(names, totals, strict=True)
    ]


def _rows(
    scores: ScoreBins, ax: Axes, theme: Theme, title: str, what: str = "hits"
) -> None:
    """Draw one row of bars per group, each on its own scale; `what` is counted, for example "pairs"."""
    tops = scores.counts.max(axis=1).clip(1).tolist()
    positions = [-number for number in range(len(tops))]
    for number, top in enumerate(tops):
        _bars(scores, number, ax, theme, height=0.85 / top, bottom=-number)
    totals = [f"({total:,})" for total in scores.counts.sum(axis=1).tolist()]
    # names are at half the height of the bars: between two rows, they could belong to either
    middles = [position + 0.42 for position in positions]
    prefix = row_names.name_rows(ax, middles, scores.groups, notes=totals)
    row_names.name_tops(ax, what, theme, positions, tops)
    axis.heading(ax, title, theme, prefix=prefix)


_DRAW: Final[dict[str, Callable[[ScoreBins, Axes, Theme, str], None]]] = {
    "histogram": _histogram,
    "ecdf": _shares,
    "ridge": _rows,
}


@documented
def plot_score_by_rank(
    hits: AnyFrame,
    *,
    by: str = "query",
    top: int = 8,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the score of each hit by rank, with one line per query, named at the end.

    A steep fall and then a flat tail means that few hits are near and the others are noise. Do not compare
    scores of different indexes or query modes.

    Parameters
    ----------
    hits : frame
        With the columns `rank`, `score` and `by`.
    by : str
        Column of single values to group by.
    top : int
        Number of lines, 1 to 9. The label counts the groups, and the hits without a finite score, that are
        not drawn.
    {axes}
        If no score is finite, they show a sentence instead of lines.

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
        title = f"Scores by rank, by {by}"
        if not curves:
            return axis.show_sentence(
                axes, "No hits with a finite score", colours, title
            )

        axis.heading(axes, axis.with_finding(title, _range(scores)), colours)
        for number, curve in enumerate(curves):
            marker = _MARKERS[number] if len(curve.ranks) <= _FEW else None
            axes.plot(
                curve.ranks,
                curve.scores,
                marker=marker,
                markersize=4,
                **_line(colours, number),
            )

        axis.number_axis(axes, axes.yaxis)
        axis.whole_axis(axes, 0.5)
        _limit_to_curves(axes, curves)

        label = "rank (1 is the nearest)"
        if len(curves) > 1:
            ends = [curve.scores[-1] for curve in curves]
            _name_lines(axes, ends, [curve.name for curve in curves], colours)
            label += f"; a line is a {drawable(by, longest=24)}"

        if more:
            label += f" (and {counted(more, 'more group')} not drawn)"
        axis.label_axis(axes.xaxis, f"{label}{_left_out(scores)}", colours)
        axis.label_axis(axes.yaxis, "score", colours)
        return axes


def _limit_to_curves(ax: Axes, curves: Sequence[ScoreCurve]) -> None:
    """Set the ends of both axes so that all curves fit, with a margin."""
    last = float(max(curve.ranks[-1] for curve in curves))
    if len(curves) == 1:
        # the names of several lines follow their ends at once; the last point of one line must not be cut
        last += 0.4

    axis.limit(ax.xaxis, 0.6, last)
    low = min(float(min(curve.scores)) for curve in curves)
    high = max(float(max(curve.scores)) for curve in curves)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    axis.limit(ax.yaxis, low - margin, high + margin)


@documented
def plot_score_comparison(
    before: AnyFrame,
    after: AnyFrame,
    *,
    names: tuple[str, str] = ("before", "after"),
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the score of each hit in one configuration against the score in another.

    Hits of only one of the two are on the margin. Look at whether the order changed: points that all lie off
    the diagonal only mean that the two use different scales.

    Parameters
    ----------
    before, after : frame
        Results of the same queries, with the columns `query`, `rank`, `id`, `score`.
    names : (str, str)
        Names of the two configurations.
    {axes}
        Without hits, they show a sentence instead of points.

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
    configurations = checked_texts("names", names)
    if len(configurations) != 2:  # noqa: PLR2004 - one each
        raise wrong("names", names, "two names, for before and after")

    moves = score_moves(before, after)
    x = moves["score_before"].to_numpy(dtype=np.float64, na_value=np.nan)
    y = moves["score_after"].to_numpy(dtype=np.float64, na_value=np.nan)

    with drawing(ax, theme) as (axes, colours):
        # in the legend, a mark and a count stand before the names
        columns = max(6.0, min(24.0, axis.inches(axes) / COLUMN - 15))
        first, second = (drawable(name, longest=columns) for name in configurations)
        has_x, has_y = np.abs(x) <= LARGEST, np.abs(y) <= LARGEST
        both, lost, new = has_x & has_y, has_x & ~has_y, has_y & ~has_x
        scores = np.concatenate([x[has_x], y[has_y]])
        title = f"Scores: {first} and {second}"

        if not len(scores):
            return axis.show_sentence(
                axes, "No hits with a finite score", colours, title
            )

        low, high = float(scores.min()), float(scores.max())
        space = (high - low) * 0.06 or 0.5
        margin = low - space  # the position of hits of only one of the two
        axes.plot(
            [margin, high],
            [margin, high],
            color=colours.muted,
            linewidth=1,
            linestyle=(0, (4, 3)),
            zorder=0,
        )
        x, y = np.where(new, margin, x), np.where(lost, margin, y)

        for drawn, marker, sign in ((both, "o", 0), (lost, "v", 3), (new, "<", 2)):
            dot, colour = MarkerStyle(marker, "full"), colours.series[sign]
            axes.scatter(
                x[drawn], y[drawn], s=28, marker=dot, color=colour, linewidths=0
            )

        axis.limit(axes.xaxis, margin - space, high + space)
        axis.limit(axes.yaxis, margin - space, high + space)
        axis.number_axis(axes, axes.xaxis)
        axis.number_axis(axes, axes.yaxis)
        axis.label_axis(axes.xaxis, f"score {first}", colours)
        axis.label_axis(axes.yaxis, f"score {second}", colours)
        handles = [*axes.collections, axes.lines[-1]]
        labels = [
            f"{both.sum():,} in both",
            f"{lost.sum():,} only {first}",
            f"{new.sum():,} only {second}",
            "equal scores",
        ]
        _, above = axis.legend(axes, handles, labels, colours)
        if both.any():
            title += f", median change {np.median((y - x)[both]):+.2g}"
        axis.heading(axes, title, colours, above=above)
        return axes


def _name_lines(
    ax: Axes, ends: Sequence[float], names: Sequence[str], theme: Theme
) -> None:
    """Write the name of each line at the right edge, near the end of the line, without overlaps."""
    longest = max(12, min(32, int(axis.inches(ax) * 0.34 / COLUMN)))
    names = drawable_names(names, longest=longest)
    low, high = ax.get_ylim()

    gap = _LABEL / max(axis.inches_high(ax), _LABEL) * (high - low)
    for number, position in enumerate(
        _spread(np.asarray(ends, dtype=np.float64), gap, low, high)
    ):
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


def _spread(
    ends: NDArray[np.float64], gap: float, low: float, high: float
) -> NDArray[np.float64]:
    """Return heights at least `gap` apart, close to the given ones, and within the limits if they fit.

    From the lowest to the highest, each is moved up until it has its distance; then all that are above the
    limit are moved down. For example, 0.9, 0.9, 0.9 with a gap of 0.1 and the limit 1 become 0.8, 0.9, 1.
    """
    order = np.argsort(ends, kind="stable")
    # without the gaps, "at least a gap apart" means "not below the one before"
    gaps = gap * np.arange(len(ends))
    without_gaps = np.maximum.accumulate(ends[order] - gaps)
    positions = np.minimum(without_gaps, high - gaps[-1:]) + gaps
    spread: NDArray[np.float64] = np.maximum(positions, low - gap * len(positions))[
        np.argsort(order)
    ]

    return spread
