"""Exact search against a plain double-precision implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import nearest

SIMILARITIES = ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")


def naive_score(vector: list[float], query: list[float], similarity: str) -> float:
    """The documented formula, number by number."""
    dot = math.fsum(a * b for a, b in zip(vector, query, strict=True))
    if similarity == "DOT_PRODUCT":
        return (1 + dot) / 2
    if similarity == "EUCLIDEAN":
        return 1 / (1 + math.fsum((a - b) ** 2 for a, b in zip(vector, query, strict=True)))
    lengths = math.hypot(*vector) * math.hypot(*query)
    return (1 + (dot / lengths if lengths else 0.0)) / 2


def filled(vectors: np.ndarray) -> NamespaceRows:
    rows = NamespaceRows(vectors.shape[1], lambda: ())
    rows.put([f"v{number}" for number in range(len(vectors))], range(1, len(vectors) + 1), vectors)
    return rows


@st.composite
def searches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Vectors on a coarse grid (many ties) or of any size, a query, and how many to find."""
    dimension = draw(st.integers(1, 6))
    scale = draw(st.sampled_from([1.0, 1e-3, 1e15, 1e-25, 1e30]))
    numbers = draw(
        st.sampled_from(
            [
                st.integers(-2, 2).map(float),
                st.floats(-1, 1, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3),
            ]
        )
    )
    vector = st.lists(numbers, min_size=dimension, max_size=dimension)
    vectors = draw(st.lists(vector, min_size=1, max_size=40))
    return (
        (np.array(vectors) * scale).astype(np.float32),
        np.array(draw(vector)) * scale,
        draw(st.integers(1, 12)),
    )


@settings(max_examples=400, deadline=None)
@given(searches(), st.sampled_from(SIMILARITIES), st.data())
def test_nearest_is_what_a_plain_search_finds(
    case: tuple[np.ndarray, np.ndarray, int], similarity: str, data: st.DataObject
) -> None:
    """Scores are the formula's, the best are found, best first, also among some rows only."""
    vectors, query, top_k = case
    chosen = data.draw(st.none() | st.lists(st.integers(0, len(vectors) - 1), unique=True).map(sorted))
    allowed = list(range(len(vectors))) if chosen is None else chosen
    naive = {
        position: naive_score(vectors[position].tolist(), query.tolist(), similarity) for position in allowed
    }
    passing = None if chosen is None else np.array(chosen, dtype=np.intp)
    found = nearest(filled(vectors), query, top_k, similarity, passing)
    assert len(found) == min(top_k, len(allowed))
    assert len({position for position, _ in found}) == len(found)
    for position, score in found:
        assert score == pytest.approx(naive[position], rel=2.0**-24, abs=1e-12)
    expected = sorted(naive.values(), reverse=True)[:top_k]
    assert [score for _, score in found] == pytest.approx(expected, rel=2.0**-24, abs=1e-12)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_the_first_put_comes_first_among_equals(similarity: str) -> None:
    """Equal vectors are ordered by when they were first put, at whatever position they are."""
    rows = filled(np.ones((51, 7), dtype=np.float32))
    for name in ("v50", "v0"):  # the last row moves to the first position
        rows.remove(name)
    rows.put(["v2", "late"], [3, 52], np.ones((2, 7), dtype=np.float32))
    found = nearest(rows, np.ones(7), 5, similarity)
    assert [rows.ids[position] for position, _ in found] == ["v1", "v2", "v3", "v4", "v5"]


@pytest.mark.parametrize("gone", [5, 260, 299])
def test_removed_rows_are_not_found(gone: int) -> None:
    """Rows that were removed are in no result, however near they were; few rows and many are searched."""
    vectors = np.random.default_rng(9).standard_normal((300, 5)).astype(np.float32)
    rows = filled(vectors)
    order = np.argsort(-(vectors @ np.ones(5)))
    for number in order[:gone]:
        rows.remove(f"v{number}")
    found = nearest(rows, np.ones(5), 4, "DOT_PRODUCT")
    assert [rows.ids[position] for position, _ in found] == [f"v{n}" for n in order[gone : gone + 4]]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("order", ["near first", "near last", "shuffled"])
def test_the_best_are_found_wherever_they_lie(similarity: str, order: str) -> None:
    """All of the best beside each other, or far apart: they are found, among all rows and among half."""
    numbers = np.random.default_rng(11)
    vectors = numbers.standard_normal((6000, 6)).astype(np.float32)
    query = numbers.standard_normal(6)
    naive = np.array([naive_score(one.tolist(), query.tolist(), similarity) for one in vectors])
    turned = {"near first": np.argsort(-naive), "near last": np.argsort(naive), "shuffled": np.arange(6000)}
    vectors, naive = vectors[turned[order]], naive[turned[order]]
    rows = filled(vectors)
    for passing in (None, np.arange(0, 6000, 2), np.arange(5000)):
        among = np.arange(6000) if passing is None else passing
        for top_k in (1, 10, 300):
            best = among[np.argsort(-naive[among], kind="stable")[:top_k]]
            found = nearest(rows, query, top_k, similarity, passing)
            assert [position for position, _ in found] == best.tolist()


def test_an_empty_namespace_finds_nothing() -> None:
    """Without rows, or with none that pass, the answer is empty."""
    rows = filled(np.ones((3, 2), dtype=np.float32))
    assert nearest(rows, np.ones(2), 5, "COSINE", np.empty(0, dtype=np.intp)) == []
    for name in ("v0", "v1", "v2"):
        rows.remove(name)
    assert nearest(rows, np.ones(2), 5, "COSINE") == []
    assert nearest(filled(np.ones((0, 2), dtype=np.float32)), np.ones(2), 5, "EUCLIDEAN") == []


def test_differences_below_single_precision_are_seen() -> None:
    """Neighbours of a far-off point, which the single-precision product mixes up, are ranked right."""
    vectors = np.full((100, 8), 4096.0, dtype=np.float32)
    vectors[:, 0] += np.arange(100, dtype=np.float32)[::-1] / 512
    rows = filled(vectors)
    found = nearest(rows, np.full(8, 4096.0), 3, "EUCLIDEAN")
    assert [rows.ids[position] for position, _ in found] == ["v99", "v98", "v97"]
    assert found[0][1] == 1.0


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_products_that_vanish_in_single_precision(similarity: str) -> None:
    """Among vectors so small that their products are rounded to nearly nothing, the best are found."""
    numbers = np.random.default_rng(5)
    vectors = (numbers.uniform(-1, 1, (2000, 8)) * 1e-44).astype(np.float32)
    query = numbers.uniform(-1, 1, 8)
    found = nearest(filled(vectors), query, 5, similarity)
    naive = sorted((naive_score(one.tolist(), query.tolist(), similarity) for one in vectors), reverse=True)
    assert [score for _, score in found] == pytest.approx(naive[:5], rel=2.0**-24)
    if similarity == "COSINE":
        exact = [naive_score(vectors[position].tolist(), query.tolist(), similarity) for position, _ in found]
        assert exact == pytest.approx(naive[:5], rel=1e-12)


def test_products_that_overflow_in_single_precision() -> None:
    """Vectors so large that their products overflow do not push the truly nearest out."""
    large = np.full((40, 8), 3e38, dtype=np.float32)
    large[:, 0] = -3e37
    aligned = np.ones((3, 8), dtype=np.float32)
    found = nearest(filled(np.vstack([large, aligned])), np.ones(8), 3, "COSINE")
    assert [position for position, _ in found] == [40, 41, 42]


def test_large_random_search_equals_the_plain_one() -> None:
    """On 20,000 random vectors the ten best are those of a double-precision sort."""
    numbers = np.random.default_rng(3)
    vectors = numbers.standard_normal((20_000, 24)).astype(np.float32)
    rows, query = filled(vectors), numbers.standard_normal(24)
    exact = vectors.astype(np.float64) @ query
    found = nearest(rows, query, 10, "DOT_PRODUCT")
    assert [position for position, _ in found] == np.argsort(-exact)[:10].tolist()
