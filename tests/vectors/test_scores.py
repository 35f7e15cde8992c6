"""Scores of query results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.analysis import score_bins, score_summary
from toolkit.errors import InputError
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import hits
from toolkit.vectors.scores import score_curves, score_moves


def frame(scores):
    rows = [
        {"query": query, "rank": rank, "id": f"{query}-{rank}", "score": score}
        for query, values in enumerate(scores)
        for rank, score in enumerate(values, start=1)
    ]
    return frame_from_rows(rows, hits())


def test_summary_by_hand():
    """Best, median, worst and gap of each query, from pandas and from Arrow."""
    made = frame([[0.9, 0.7, 0.1, 0.3], [0.5]])
    for source in (made, to_table(made, hits())):
        found = score_summary(source)
        assert found["query"].tolist() == [0, 1]
        assert found["hits"].tolist() == [4, 1]
        assert found["best"].tolist() == [0.9, 0.5]
        assert found["median"].tolist() == [0.5, 0.5]
        assert found["worst"].tolist() == [0.1, 0.5]
        assert found["gap"].round(6).fillna(-1).tolist() == [0.2, -1]


def test_scores_that_are_not_finite_are_left_out():
    """NaN and infinity do not spoil a summary or the bins, and are counted."""
    made = frame([[np.inf, 0.5, np.nan], [np.nan]])
    found = score_summary(made)
    assert found["hits"].tolist() == [3, 1]
    assert found["best"].fillna(-1).tolist() == [0.5, -1]
    binned = score_bins(made)
    assert (binned.total, binned.left_out, binned.groups) == (1, 3, ("0",))


def test_bins_by_hand():
    """All groups share the edges; the highest score is in the last bin."""
    found = score_bins(frame([[0.0, 0.1, 1.0], [0.5]]), bins=4)
    assert found.edges.tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    assert found.counts.tolist() == [[2, 0, 0, 1], [0, 0, 1, 0]]
    assert score_bins(frame([[0.0, 1.0], [0.5]]), by=None, bins=1).counts.tolist() == [
        [3]
    ]


@pytest.mark.parametrize(
    ("scores", "most"),
    [
        ([0.9, 0.9000000000000001], 1),
        ([0.9, 0.9 + 1e-15], 1),
        ([-1e308, 1e308], 20),
        ([5e-324, 0.0], 1),
        ([1.0, 1.0], 1),
        ([0.9, 0.9 + 1e-12], 20),
    ],
)
def test_scores_that_nearly_or_hardly_fit_are_counted(scores, most):
    """Scores a last digit apart share a bin; of the largest numbers none is lost."""
    found = score_bins(pd.DataFrame({"score": scores}), by=None)
    assert found.total == len(scores)
    assert found.counts.shape[1] == most
    assert (np.diff(found.edges) > 0).all()


def test_many_queries_are_merged_in_number_order():
    """Queries are in the order of their numbers, and the others are one group."""
    found = score_bins(frame([[0.1, 0.2]] * 12), top=3)
    assert found.groups == ("0", "1", "2", "other (9)")
    assert found.counts.sum(axis=1).tolist() == [2, 2, 2, 18]


def test_an_index_named_like_a_column_is_left_out():
    """What hits are grouped by is the column, whatever the index is called."""
    made = frame([[0.9, 0.7], [0.5]]).rename_axis("query")
    assert score_summary(made)["hits"].tolist() == [2, 1]
    assert [curve.name for curve in score_curves(made)[0]] == ["0", "1"]


def test_no_hits():
    """Without hits there are no bins, and a summary without rows."""
    found = score_bins(frame([]))
    assert (found.total, found.groups) == (0, ())
    assert list(score_summary(frame([]))) == [
        "query",
        "hits",
        "best",
        "median",
        "worst",
        "gap",
    ]


@pytest.mark.parametrize(
    "options",
    [{"bins": 0}, {"bins": 1001}, {"top": 0}, {"by": "vector"}, {"by": "city"}],
)
def test_bad_options_are_refused(options):
    """Numbers out of bounds and ambiguous columns are errors."""
    with pytest.raises(InputError):
        score_bins(frame([[0.1]]), **options)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e6, 1e6, allow_nan=False), max_size=8), max_size=6),
    st.integers(1, 30),
    st.integers(1, 3),
)
def test_every_finite_score_is_in_one_bin(scores, bins, top):
    """For any scores, the counts add up to the hits."""
    made = frame(scores)
    before = made.copy(deep=True)
    found = score_bins(made, bins=bins, top=top)
    assert found.total == sum(map(len, scores))
    assert all(np.diff(found.edges) >= 0)
    pd.testing.assert_frame_equal(made, before)


@pytest.mark.parametrize("column", ["rank", "query"])
@pytest.mark.parametrize("value", [float("inf"), 1.5, 1e300])
def test_ranks_that_are_not_whole_are_refused(column, value):
    """Numbers that no query gives are said, not an error of pandas."""
    hits = pd.DataFrame(
        {"query": [0, 0], "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]}
    )
    with pytest.raises(InputError, match="not whole numbers"):
        score_moves(hits, hits.astype({column: float}).assign(**{column: [1.0, value]}))


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "Int64", "str", "datetime64[ns]", "category"]
)
def test_curves_are_grouped_by_a_column_of_any_type(dtype):
    """Pandas itself refuses to group by float16."""
    marks = pd.Series([2, 1, 2]).astype(dtype)
    made = pd.DataFrame({"mark": marks, "rank": [1, 1, 2], "score": [0.9, 0.7, 0.5]})
    curves, left_out = score_curves(made, by="mark")
    assert [curve.scores.tolist() for curve in curves] == [[0.9, 0.5], [0.7]]
    assert left_out == 0


def test_the_same_id_in_two_namespaces_is_two_hits():
    """Ranks are compared within a namespace; without the column in both, by query and id alone."""
    hits = pd.DataFrame(
        {
            "query": 0,
            "rank": [1, 2],
            "namespace": ["x", "y"],
            "id": "a",
            "score": [0.9, 0.8],
        }
    )
    assert score_moves(hits, hits)["moved"].tolist() == [0, 0]
    gone = score_moves(hits, hits.tail(1))
    assert gone[["namespace", "moved"]].fillna(-1).to_numpy().tolist() == [
        ["x", -1],
        ["y", 0],
    ]
    assert "namespace" not in score_moves(hits, hits.tail(1).drop(columns="namespace"))
