"""Failures by two columns: which workflow fails with which status."""

from __future__ import annotations

from matplotlib.axes import Axes
from narwhals.typing import IntoFrame

from toolkit.analysis.counts import CountMatrix, count_matrix
from toolkit.analysis.wording import counted, fitting_numbers
from toolkit.arguments import whole
from toolkit.plots.axis import heading, inches, label_axis, name_rows, rows_that_fit
from toolkit.plots.heat import draw_cells
from toolkit.plots.style import Theme, ThemeName, drawing, theme_named
from toolkit.plots.texts import COLUMN, as_written, drawable, say

_COLUMN = 0.6  # inches that a column's name takes at least


def plot_failure_matrix(
    failures: IntoFrame,
    *,
    rows: str = "workflow_url",
    columns: str = "response_status",
    top: int = 12,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    r"""Draw how many failures there are by two columns, as cells coloured by count.

    Parameters
    ----------
    failures : frame
        With the two columns.
    rows, columns : str
        Columns of single values.
    top : int
        How many rows to tell apart; the rest is one row. Fewer where more do not fit the height.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of cells where there are no rows.

    Raises
    ------
    InputError
        When a column is missing or holds lists, maps or bytes, or `top` is below 1.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"workflow_url": ["a", "a", "b"], "response_status": [500, 404, 500]})
    >>> ax = plot_failure_matrix(frame, ax=Figure().add_subplot())
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['500\n2', '404\n1']
    """
    colours = theme_named(theme)
    with drawing(ax, colours) as axes:
        found = count_matrix(
            failures, rows, columns, top_rows=min(whole("top", top), rows_that_fit(axes) - 1),
            top_columns=max(1, int(inches(axes) * 0.6 / _COLUMN)),
        )  # fmt: skip
        return draw_matrix(found, axes, colours, columns=columns, title=f"Failures by {rows} and {columns}")


def draw_matrix(found: CountMatrix, ax: Axes, theme: Theme, *, columns: str, title: str = "") -> Axes:
    """Draw a computed matrix on Axes from `drawing`; `columns` is what the columns are."""
    if not found.total:
        heading(ax, title, theme)
        return say(ax, "No failures", theme)
    above = draw_cells(ax, found.counts, theme)
    totals = [f"{total:,}" for total in found.counts.sum(axis=1).tolist()]
    prefix = name_rows(ax, range(len(found.rows)), found.rows, notes=totals)
    heading(ax, title, theme, prefix=prefix, above=above)
    _name_columns(ax, found)
    total = counted(found.total, "failure")
    label_axis(ax.xaxis, f"{drawable(columns, longest=24)}, and failures; {total} in all", theme)
    return ax


def _name_columns(ax: Axes, found: CountMatrix) -> None:
    room = inches(ax) / len(found.columns)
    names = [drawable(name, longest=max(5, int(room / COLUMN) - 1)) for name in found.columns]
    totals = fitting_numbers(found.counts.sum(axis=0).tolist(), int(room / COLUMN))
    texts = [f"{name}\n{total}" for name, total in zip(names, totals, strict=True)]
    ax.set_xticks(range(len(texts)), texts)
    as_written(ax.get_xticklabels())
