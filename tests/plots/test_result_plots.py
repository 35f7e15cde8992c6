"""Groups, classes and explanations as they are drawn: counts, colours, names in full, no secret."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import toolkit as tk
from toolkit.analysis import explain_change
from toolkit.drawing.result_bars import draw_recall
from toolkit.drawing.style import THEMES
from toolkit.errors import InputError

LONG = "TypeError: Cannot read properties of undefined (reading 'currency') at pricing.priceOf"


def axes(width=9.0, height=3.6):
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def failures(*bodies):
    """A failure an hour for each of the bodies."""
    when = pd.date_range("2026-03-01", periods=len(bodies), freq="h", tz="UTC").as_unit(
        "ms"
    )
    return pd.DataFrame(
        {
            "dlq_id": [f"d{number}" for number in range(len(bodies))],
            "workflow_url": "https://shop.example.com/pay",
            "response_status": 500,
            "failed_at": when,
            "created_at": when,
            "response_body": list(bodies),
            "response_body_base64": None,
        }
    )


def texts(ax):
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize(
    ("background", "theme", "expected"),
    [
        ("white", "dark", THEMES["dark"].paper),
        ("black", "light", THEMES["light"].paper),
        ("#f4f4f4", "light", "#f4f4f4"),
        ("#222222", "dark", "#222222"),
    ],
)
def test_texts_beside_the_axes_can_be_read_on_the_callers_figure(
    background, theme, expected
):
    """A figure that would hide them gets the theme's background; any other stays as it is."""
    figure = Figure(facecolor=background)
    tk.group_failures(failures("boom")).plot(ax=figure.add_subplot(), theme=theme)
    assert to_hex(figure.get_facecolor()) == to_hex(expected)


def test_names_of_recall_are_whole_where_there_is_room():
    """Half of wide Axes are for names."""
    name = "support-articles-of-2026"
    by = pd.DataFrame(
        {
            "name": [name],
            "queries": [300],
            "share": [0.9],
            "low": [0.85],
            "high": [0.95],
        }
    )
    ax = draw_recall(by, "Recall", ax=axes())
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        f"{name} (300 queries)"
    ]


def test_a_group_is_a_row_of_its_own_scale():
    """A burst of 50 times everything else leaves the other bars their height; names are whole."""
    steady = failures(*(["disk full"] * 100))
    burst = failures(*([LONG] * 5_000)).assign(failed_at=steady["failed_at"].iloc[40])
    burst["dlq_id"] += "-burst"
    both = pd.concat([steady, burst], ignore_index=True)
    ax = tk.plots.plot_failure_groups(both, ax=axes(11))
    assert texts(ax)[-2:] == [f"{LONG}  5,000", "disk full  100"]
    heights = {len(bars.heights): max(bars.heights) for bars in ax.patches}
    assert heights[1] == pytest.approx(max(heights.values()))
    assert min(heights.values()) == pytest.approx(max(heights.values()))


def test_groups_are_named_and_merged_by_rules():
    """A name of the rules is the row's, and merged groups are one row."""
    frame = failures(
        "disk full", "disk full", "no order 17", "no order 18", "quota reached"
    )
    first = tk.group_failures(frame).frame.set_index("title")["group"]
    rules = tk.GroupRules(
        f'name {first["disk full"]} "Disk"\nmerge {first["no order <num>"]} into {first["disk full"]}'
    )
    ax = tk.plots.plot_failure_groups(frame, groups=rules, ax=axes())
    assert [text for text in texts(ax) if "  " in text] == [
        "Disk  4",
        "quota reached  1",
    ]
    again = tk.plots.plot_failure_groups(
        frame, groups=tk.group_failures(frame, rules=rules), ax=axes()
    )
    assert texts(again) == texts(ax)
    with pytest.raises(InputError, match="groups"):
        tk.plots.plot_failure_groups(frame, groups="rules.txt")


def test_groups_of_equal_titles_stay_apart():
    """Two groups that say the same have a row each."""
    frame = failures("disk full", "disk full", "quota reached")
    first = tk.group_failures(frame).frame.set_index("title")["group"]
    rules = tk.GroupRules(f'name {first["quota reached"]} "disk full"')
    ax = tk.plots.plot_failure_groups(frame, groups=rules, ax=axes())
    assert [text for text in texts(ax) if "  " in text] == [
        "disk full  2",
        "disk full  1",
    ]


def test_the_largest_groups_have_a_bar_and_the_others_one():
    """Bars are as long as their counts, the text says count and share, other groups are one grey bar."""
    bodies = [
        f"{'abcdefghijkl'[number]} happened"
        for number in range(12)
        for _ in range(40 - number)
    ]
    groups = tk.group_failures(failures(*bodies))
    ax = groups.plot(ax=axes())
    widths = [bar.get_width() for bar in ax.patches]
    shown = len(widths) - 1
    counts = groups.frame["count"].tolist()
    assert 3 < shown < 9
    assert widths == [*counts[:shown], sum(counts[shown:])]
    assert texts(ax)[0] == f"a happened  40 ({40 / sum(counts):.0%}".replace("%", " %)")
    assert texts(ax)[shown].startswith(f"other ({12 - shown})  ")
    assert to_hex(ax.patches[-1].get_facecolor()) == THEMES["light"].series[-1]


def test_a_class_is_a_bar():
    """As long as its count, unknown in grey."""
    ax = tk.classify_failures(
        failures("connection refused", "connection refused", "hm")
    ).plot(ax=axes())
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "dependency down",
        "unknown",
    ]
    assert [bar.get_width() for bar in ax.patches] == [2, 1]
    assert to_hex(ax.patches[1].get_facecolor()) == THEMES["light"].series[-1]


def test_an_explanation_shows_observed_against_expected():
    """Two bars a condition; addresses without what all of them begin with, which is said above."""
    host = "https://shop.example.com/flows/"
    before = pd.DataFrame(
        {
            "workflow": [f"{host}pay", f"{host}ship"] * 40,
            "region": ["eu", "eu", "us", "us"] * 20,
        }
    )
    after = pd.concat(
        [before, pd.DataFrame({"workflow": f"{host}pay", "region": ["eu", "us"] * 45})]
    )
    explanation = explain_change(before, after)
    ax = explanation.plot(ax=axes())
    rows = len(explanation.frame)
    first = explanation.frame.iloc[0]
    assert [ax.patches[0].get_width(), ax.patches[rows].get_width()] == [
        first["observed"],
        first["expected"],
    ]
    assert "workflow = flows/pay  130 (expected 40.0)" in texts(ax)
    assert "names begin with https://shop.example.com/" in texts(ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "observed",
        "expected",
    ]
    quiet = explain_change(before, before).plot(ax=axes())
    assert texts(quiet) == ["Nothing stands out: 80 observed, 80 expected"]


def test_no_secret_is_drawn():
    """What looks like a secret in a condition is masked."""
    secret = "Bearer " + "abcdef0123456789" * 3
    before = pd.DataFrame({"caller": [secret, "me"] * 40})
    after = pd.concat([before, pd.DataFrame({"caller": [secret] * 90})])
    drawn = " ".join(texts(explain_change(before, after).plot(ax=axes())))
    assert "caller = " in drawn
    assert "abcdef0123456789" not in drawn


def test_the_id_of_a_group_is_drawn():
    """It is no secret, although its column is called as the signature of a message is."""
    before = pd.DataFrame({"signature": ["s5-0123456789ab", "s5-ba9876543210"] * 40})
    after = pd.concat([before, pd.DataFrame({"signature": ["s5-0123456789ab"] * 90})])
    drawn = texts(
        explain_change(before, after, attributes=["signature"]).plot(ax=axes())
    )
    assert any(text.startswith("group = s5-0123456789ab  130") for text in drawn)


@pytest.mark.parametrize("size", [(9, 3.6), (4, 3), (3, 2)])
def test_names_lie_above_their_bars(size):
    """At every size no name lies on another one, and none is wider than the Axes."""
    bodies = [
        f"{LONG} {'abcdefghijkl'[number]}"
        for number in range(12)
        for _ in range(40 - number)
    ]
    for draw in (
        tk.group_failures(failures(*bodies)).plot,
        lambda ax: tk.plots.plot_failure_groups(failures(*bodies), ax=ax),
    ):
        ax = draw(ax=axes(*size))
        ax.figure.draw_without_rendering()
        names = [
            text.get_window_extent() for text in ax.texts if "  " in text.get_text()
        ]
        assert len(names) >= 2
        ordered = sorted(names, key=lambda box: box.y0)
        assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(ordered))
        assert max(box.x1 for box in names) <= ax.figure.bbox.x1 + 1
        assert np.isfinite([box.y0 for box in names]).all()


def test_a_comparison_is_a_line_a_group_that_one_burst_does_not_flatten():
    """From expected to after, what needs attention first; a group fifty times the others leaves them long."""
    bodies = ["disk full"] * 40 + ["quota reached"] * 90 + ["no route"] * 5
    before = failures(*bodies).assign(workflow_run_id="w")
    bodies = ["disk full"] * 2_000 + ["quota reached"] * 9 + ["bad token"] * 31
    after = failures(*bodies).assign(workflow_run_id="w")
    compared = tk.compare_failures(
        before, after.assign(dlq_id="later-" + after["dlq_id"]), exposure=1
    )
    ax = compared.plot(ax=axes())
    lines, expected, now = ax.collections
    frame = compared.frame
    assert expected.get_offsets()[:, 0].tolist() == frame["expected"].tolist()
    assert now.get_offsets()[:, 0].tolist() == frame["after"].tolist()
    assert [to_hex(colour) for colour in lines.get_colors()] == [
        THEMES["light"].series[number] for number in (3, 3, 0, 0)
    ]
    assert [text for text in texts(ax) if "  " in text] == [
        "bad token  new, 0 to 31",
        "disk full  growing, 40 to 2k",
        "quota reached  shrinking, 90 to 9",
        "no route  gone, 5 to 0",
    ]
    drawn = [ax.transData.transform(segment)[:, 0] for segment in lines.get_segments()]
    widths = [abs(end - start) / ax.get_window_extent().width for start, end in drawn]
    assert min(widths) > 0.1
    assert texts(tk.compare_failures(before[:0], before[:0]).plot(ax=axes())) == [
        "No failures"
    ]


def test_a_comparison_names_as_many_groups_as_fit():
    """The axis says how many are not drawn."""
    bodies = [f"{'abcdefghijkl'[number]} happened" for number in range(12)]
    many = failures(*bodies).assign(workflow_run_id="w")
    ax = tk.compare_failures(many[:0], many).plot(ax=axes(4, 3))
    rows = len(ax.collections[1].get_offsets())
    assert 2 <= rows < 12
    assert f"first {rows} of 12 groups" in ax.get_xlabel().replace("\n", " ")
