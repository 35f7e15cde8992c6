"""What results of analyses share."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Plotted:
    """A result that can be drawn."""

    def plot(self, *, ax: Axes | None = None, theme: Literal["light", "dark"] = "light") -> Axes:
        """Draw it; its class says what is drawn.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Default: a new figure of pyplot's.
        theme : {"light", "dark"}

        Returns
        -------
        matplotlib.axes.Axes
            With a sentence where there is nothing to draw.

        Raises
        ------
        InputError
            When `ax` or `theme` is neither of these.
        """
        # imported by name, when it is first used: plots import analyses, and matplotlib is slow to import
        drawn: Axes = import_module("toolkit.plots.result_bars").plot_result(self, ax=ax, theme=theme)
        return drawn
