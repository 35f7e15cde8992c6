"""Axes that are shared: no plot hides what another one has drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import toolkit as tk

TRIANGLE = "\N{BLACK UP-POINTING TRIANGLE}"


def pair(**shared):
    return Figure(figsize=(9, 6), layout="constrained").subplots(1, 2, **shared)


def trend(counts, ax, **options):
    """So many failures on each of the days of March."""
    days = pd.date_range("2026-03-01", periods=len(counts), freq="D", tz="UTC")
    when = [day for day, count in zip(days, counts, strict=True) for _ in range(count)]
    frame = pd.DataFrame({"failed_at": when, "created_at": when})
    return tk.plots.plot_failure_trend(frame, freq="1d", ax=ax, **options)


def limits(ax):
    """Of both axes, as they run."""
    return np.array([ax.get_xlim(), ax.get_ylim()])


def test_the_data_of_axes_that_share_an_axis_stay_in_view(plot):
    """Beside a line that is twice as long and wide as what is drawn; axes run as they do alone."""
    own = limits(plot.draw(60, ax=pair()[1]))
    low, high = own.min(axis=1), own.max(axis=1)
    line = np.stack([low - (high - low) / 2, high + (high - low) / 2], axis=1)
    other, ax = pair(sharex=True, sharey=True)
    other.plot(*line)
    plot.draw(60, ax=ax)
    ax.figure.draw_without_rendering()
    shown = limits(other)
    assert (shown.min(axis=1) <= line[:, 0]).all()
    assert (shown.max(axis=1) >= line[:, 1]).all()
    assert ((shown[:, 0] < shown[:, 1]) == (own[:, 0] < own[:, 1])).all()


def test_a_plot_beside_a_smaller_one_shows_what_both_show(plot):
    """The limits hold those of both alone."""
    alone = [limits(plot.draw(count, ax=pair()[1])) for count in (60, 5)]
    first, second = pair(sharex=True, sharey=True)
    plot.draw(5, ax=first)
    plot.draw(60, ax=second)
    shown = limits(first)
    for one in alone:
        assert (shown.min(axis=1) <= one.min(axis=1)).all()
        assert (shown.max(axis=1) >= one.max(axis=1)).all()


def test_no_peak_is_cut_on_a_shared_axis():
    """A cut would be one of the other Axes, too, and its caption untrue after the next plot."""
    burst = [20] * 12 + [1_000]
    first, second = pair(sharey=True)
    trend(burst, first)
    trend([3, 4, 5], second)
    assert first.get_ylim() == second.get_ylim() == (0, 1_050)
    assert not any(TRIANGLE in text.get_text() for text in first.texts)
    assert "cut" not in first.get_ylabel()
    alone, _ = pair(sharex=True)
    assert "cut at 25" in trend(burst, alone).get_ylabel()


def test_ticks_are_those_of_all_that_is_shown():
    """Two days beside two weeks have the ticks of two weeks; both captions say their own time."""
    first, second = pair(sharex=True)
    label = trend([5] * 14, first).get_xlabel()
    trend([5, 5], second)
    assert np.ptp(first.get_xlim()) == 14
    assert np.ptp(second.get_xticks()) > 2
    assert first.get_xlabel() == label
    assert "01 to 02 Mar 2026" in second.get_xlabel().replace("\n", " ")


def test_a_sentence_leaves_the_ticks_of_other_axes():
    """Empty data beside others remove no tick labels but their own."""
    first, second = pair(sharex=True, sharey=True)
    trend([5] * 14, first)
    trend([], second)
    first.figure.draw_without_rendering()
    assert len(first.get_xticks()) > 2
    assert len(first.get_yticks()) > 2
    assert not any(
        label.get_visible()
        for label in second.get_xticklabels() + second.get_yticklabels()
    )
