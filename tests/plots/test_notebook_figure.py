"""Plots follow the theme of the notebook, unless a theme is chosen."""

from __future__ import annotations

import base64
import io
import re

import pandas as pd
import pytest
from matplotlib import image
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import toolkit as tk
from toolkit.drawing.style import THEMES

FRAME = pd.DataFrame({"max_retries": [3, 3, 0]})


def html_of(**options):
    """The markup that a notebook shows for a new figure, which is closed."""
    figure = tk.plots.plot_retries_used(FRAME, **options).figure
    plt.close(figure)
    return figure._repr_html_()


def test_a_new_figure_follows_the_notebook():
    """The picture is light, has a description, and is inverted on pages that are marked as dark."""
    markup = html_of()
    assert re.search(r'\[data-jp-theme-light="false"\] \.tk-plot.*invert', markup)
    assert 'alt="Retries allowed to failures' in markup
    content = base64.b64decode(re.search(r"base64,([^\"]+)", markup)[1])
    pixels = image.imread(io.BytesIO(content))
    assert pixels[0, 0, :3].tolist() == [1, 1, 1]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chosen_theme_stays(theme):
    """With a theme, the notebook shows the picture alone, as before."""
    assert html_of(theme=theme) is None


def test_a_figure_that_was_made_dark_is_not_inverted():
    """A background that you set afterwards is shown unchanged."""
    figure = tk.plots.plot_retries_used(FRAME).figure
    figure.set_facecolor("black")
    plt.close(figure)
    assert figure._repr_html_() is None


@pytest.mark.parametrize(("background", "theme"), [("black", "dark"), ("w", "light")])
def test_own_axes_have_the_theme_of_their_figure(background, theme):
    """A dark figure gets light letters, and keeps the background."""
    figure = Figure(facecolor=background)
    ax = tk.plots.plot_retries_used(FRAME, ax=figure.add_subplot())
    assert to_hex(ax.get_facecolor()) == THEMES[theme].paper
    assert to_hex(figure.get_facecolor()) == to_hex(background)
