"""Recall with an interval, thresholds with a promise, and fused rankings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from toolkit.analysis import fuse, recall, threshold_for_precision
from toolkit.errors import InputError


@pytest.mark.parametrize("quality", [0.6, 0.9, 0.99])
def test_the_interval_holds_the_true_recall(quality: float) -> None:
    """In at least 93 % of 300 repetitions, with queries that differ in difficulty."""
    held = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        exact = [list(range(10))] * 40
        right = rng.random((40, 10)) < rng.beta(quality * 4, (1 - quality) * 4, (40, 1))
        found = [[n if ok else 100 + n for n, ok in enumerate(row)] for row in right]
        answer = recall(found, exact, seed=seed)
        held += answer.low <= quality <= answer.high
    assert held >= 0.93 * 300


def test_equal_scores_are_equally_good() -> None:
    """Hits that tie with the k-th exact neighbour count as found; worse ones do not."""
    exact = [("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.1)]
    assert recall([["a", "c"]], [exact], k=2).per_query == [1.0]
    assert recall([["a", "d"]], [exact], k=2).per_query == [0.5]
    assert recall([["c", "c"]], [exact], k=2).per_query == [0.5]


def test_frames_of_hits_are_their_ids() -> None:
    """In the order in which they stand, with their scores; column names are no ids."""
    first = pd.DataFrame(
        {"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.5]}
    )
    second = pd.DataFrame(
        {"query": 0, "rank": [1, 2], "id": ["c", "a"], "score": [0.8, 0.4]}
    )
    assert recall([first], [second], k=2).per_query == [0.5]
    tied = pd.DataFrame({"id": ["a", "x", "b"], "score": [0.9, 0.5, 0.5]})
    assert recall([first], [tied], k=2).per_query == [1.0]
    assert recall([first[["id"]]], [first[["id"]]], k=2).per_query == [1.0]
    assert fuse([first, ["c", "a"]])["id"].tolist() == ["a", "c", "b"]
    scored = [[("a", 0.9), ("b", 0.5)], [("c", 0.8), ("a", 0.4)]]
    pd.testing.assert_frame_equal(
        fuse([first, second], method="DBSF"), fuse(scored, method="DBSF")
    )
    both = pd.concat([first, second.assign(query=1)])
    for call in (lambda: fuse([both, first]), lambda: recall([both], [first])):
        with pytest.raises(InputError, match=r"hits of 2 queries.*groupby"):
            call()
    for call in (
        lambda: fuse([first[["score"]]]),
        lambda: recall([["a"]], [first[["score"]]]),
    ):
        with pytest.raises(InputError, match="without the column 'id'"):
            call()
    for call in (lambda: fuse(first), lambda: recall(first, [["a"]])):
        with pytest.raises(InputError, match=r"got DataFrame.*groupby"):
            call()


def test_queries_without_neighbours_are_left_out() -> None:
    """They have no recall; without any query there is none at all."""
    answer = recall([[], ["a"]], [[], ["a"]])
    assert math.isnan(answer.per_query[0])
    assert answer.mean == 1.0
    assert math.isnan(recall([], []).mean)


@pytest.mark.parametrize(
    ("found", "exact", "named"),
    [
        ([["a"]], [], "found"),
        ("ab", [["a"]], "found"),
        ([["a"]], ["a"], "exact"),
        (None, [], "found"),
    ],
)
def test_what_is_no_list_of_rankings_is_refused(
    found: Any, exact: Any, named: str
) -> None:
    """With an error that names the argument."""
    with pytest.raises(InputError, match=named):
        recall(found, exact)


@pytest.mark.slow
def test_a_promised_precision_holds() -> None:
    """In at least 95 % of 300 repetitions that return a threshold, which most do."""
    kept = given = 0
    population = np.random.default_rng(99)
    all_labels = population.random(100_000) < 0.4
    all_scores = np.where(
        all_labels,
        population.normal(0.7, 0.12, 100_000),
        population.normal(0.4, 0.12, 100_000),
    )
    for seed in range(300):
        rng = np.random.default_rng(seed)
        labels = rng.random(1000) < 0.4
        scores = np.where(
            labels, rng.normal(0.7, 0.12, 1000), rng.normal(0.4, 0.12, 1000)
        )
        value = threshold_for_precision(scores, labels, precision=0.9, seed=seed).value
        if value is not None:
            given += 1
            kept += bool(all_labels[all_scores >= value].mean() >= 0.9)
    assert given >= 200
    assert kept >= 0.95 * given


def test_too_few_labels_promise_nothing() -> None:
    """It returns none and says how many are needed."""
    answer = threshold_for_precision([0.9, 0.1], [True, False], precision=0.95)
    assert answer.value is None
    assert "needed" in answer.why


def test_scores_without_meaning_promise_nothing() -> None:
    """Labels that do not depend on the score have no threshold."""
    rng = np.random.default_rng(3)
    answer = threshold_for_precision(
        rng.random(2000), rng.random(2000) < 0.5, precision=0.9
    )
    assert answer.value is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"scores": ["a"]}, "scores"), ({"scores": [float("nan")]}, "scores"),
        ({"labels": [True, False]}, "labels"),
        ({"labels": ["yes"]}, "labels"), ({"precision": 1}, "precision"), ({"confidence": 0}, "confidence"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_label_or_score_is_refused(
    arguments: dict[str, Any], named: str
) -> None:
    """With an error that names the argument."""
    with pytest.raises(InputError, match=named):
        threshold_for_precision(
            **{"scores": [0.5], "labels": [True], "precision": 0.9} | arguments
        )


def test_reciprocal_ranks_are_summed() -> None:
    """Of each leg that has the id, ranks counted from one."""
    found = fuse([["a", "b"], ["b", "c"]], k=60)
    assert found["id"].tolist() == ["b", "a", "c"]
    assert found["score"].tolist() == [1 / 61 + 1 / 62, 1 / 61, 1 / 62]
    assert found["rank_1"].astype(object).fillna(0).tolist() == [2, 1, 0]


def test_scores_are_brought_together_by_their_distribution() -> None:
    """Each leg by its mean and three standard deviations; equal scores are in the middle."""
    found = fuse(
        [[("a", 0.9), ("b", 0.5)], [("b", 7.0), ("c", 7.0)]], method="DBSF"
    ).set_index("id")["score"]
    assert found.to_dict() == pytest.approx({"b": 1 / 3 + 0.5, "a": 2 / 3, "c": 0.5})


@pytest.mark.parametrize("legs", [[], [[]], [[], []]])
def test_nothing_fuses_to_nothing(legs: Any) -> None:
    """An empty frame with its columns."""
    assert list(fuse(legs).columns)[:3] == ["rank", "id", "score"]
    assert fuse(legs).empty


@pytest.mark.parametrize(
    ("legs", "method"),
    [([["a", "a"]], "RRF"), ([["a"]], "DBSF"), ("ab", "RRF"), ([["a"]], "MAX")],
)
def test_what_cannot_be_fused_is_refused(legs: Any, method: Any) -> None:
    """Ids twice, missing scores, no rankings, unknown methods."""
    with pytest.raises(InputError):
        fuse(legs, method=method)
