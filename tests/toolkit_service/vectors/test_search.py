"""Exact search against a plain double-precision implementation, and approximate search against exact."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import InputError
from toolkit.filters.metadata import parse
from toolkit_service.vectors.bodies import Included, IndexQuery
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.rows import NamespaceRows
from toolkit_service.vectors.search import STEP, ApproximateSearch, nearest
from toolkit_service.vectors.specs import IndexSpec

SIMILARITIES = ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")
NOTHING = Included()


def naive_score(vector: list[float], query: list[float], similarity: str) -> float:
    """The documented formula, number by number."""
    dot = math.fsum(a * b for a, b in zip(vector, query, strict=True))
    if similarity == "DOT_PRODUCT":
        return (1 + dot) / 2
    if similarity == "EUCLIDEAN":
        return 1 / (
            1 + math.fsum((a - b) ** 2 for a, b in zip(vector, query, strict=True))
        )
    lengths = math.hypot(*vector) * math.hypot(*query)
    return (1 + (dot / lengths if lengths else 0.0)) / 2


def filled(vectors: np.ndarray) -> NamespaceRows:
    rows = NamespaceRows(vectors.shape[1], lambda: ())
    rows.put(
        [f"v{number}" for number in range(len(vectors))],
        range(1, len(vectors) + 1),
        vectors,
    )
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


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(searches(), st.sampled_from(SIMILARITIES), st.data())
def test_nearest_is_what_a_plain_search_finds(
    case: tuple[np.ndarray, np.ndarray, int], similarity: str, data: st.DataObject
) -> None:
    """Scores are the formula's, the best are found, best first, also among some rows only."""
    vectors, query, top_k = case
    chosen = data.draw(
        st.none() | st.lists(st.integers(0, len(vectors) - 1), unique=True).map(sorted)
    )
    allowed = list(range(len(vectors))) if chosen is None else chosen
    naive = {
        position: naive_score(vectors[position].tolist(), query.tolist(), similarity)
        for position in allowed
    }
    passing = None if chosen is None else np.array(chosen, dtype=np.intp)
    actual = nearest(filled(vectors), query, top_k, similarity, passing)
    assert len(actual) == min(top_k, len(allowed))
    assert len({position for position, _ in actual}) == len(actual)
    for position, score in actual:
        assert score == pytest.approx(naive[position], rel=2.0**-24, abs=1e-12)
    expected = sorted(naive.values(), reverse=True)[:top_k]
    assert [score for _, score in actual] == pytest.approx(
        expected, rel=2.0**-24, abs=1e-12
    )
    assert [score for _, score in actual] == sorted(
        (score for _, score in actual), reverse=True
    )


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_the_first_put_comes_first_among_equals(similarity: str) -> None:
    """Equal vectors are ordered by when they were first put, at whatever position they are."""
    rows = filled(np.ones((51, 7), dtype=np.float32))
    for name in ("v50", "v0"):  # the last row moves to the first position
        rows.remove(name)
    rows.put(["v2", "late"], [3, 52], np.ones((2, 7), dtype=np.float32))
    actual = nearest(rows, np.ones(7), 5, similarity)
    assert [rows.ids[position] for position, _ in actual] == [
        "v1",
        "v2",
        "v3",
        "v4",
        "v5",
    ]


@pytest.mark.parametrize("gone", [5, 260, 299])
def test_removed_rows_are_not_found(gone: int) -> None:
    """Rows that were removed are in no result, however near they were; few rows and many are searched."""
    vectors = np.random.default_rng(9).standard_normal((300, 5)).astype(np.float32)
    rows = filled(vectors)
    order = np.argsort(-(vectors @ np.ones(5)))
    for number in order[:gone]:
        rows.remove(f"v{number}")
    actual = nearest(rows, np.ones(5), 4, "DOT_PRODUCT")
    assert [rows.ids[position] for position, _ in actual] == [
        f"v{n}" for n in order[gone : gone + 4]
    ]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("order", ["near first", "near last", "shuffled"])
def test_the_best_are_found_wherever_they_lie(similarity: str, order: str) -> None:
    """All of the best beside each other, or far apart: they are found, among all rows and among half."""
    numbers = np.random.default_rng(11)
    vectors = numbers.standard_normal((6000, 6)).astype(np.float32)
    query = numbers.standard_normal(6)
    naive = np.array(
        [naive_score(item.tolist(), query.tolist(), similarity) for item in vectors]
    )
    turned = {
        "near first": np.argsort(-naive),
        "near last": np.argsort(naive),
        "shuffled": np.arange(6000),
    }
    vectors, naive = vectors[turned[order]], naive[turned[order]]
    rows = filled(vectors)
    for passing in (None, np.arange(0, 6000, 2), np.arange(5000)):
        among = np.arange(6000) if passing is None else passing
        for top_k in (1, 10, 300):
            best = among[np.argsort(-naive[among], kind="stable")[:top_k]]
            actual = nearest(rows, query, top_k, similarity, passing)
            assert [position for position, _ in actual] == best.tolist()


def test_an_empty_namespace_finds_nothing() -> None:
    """Without rows, or with none that pass, the result is empty."""
    rows = filled(np.ones((3, 2), dtype=np.float32))
    assert nearest(rows, np.ones(2), 5, "COSINE", np.empty(0, dtype=np.intp)) == []
    for name in ("v0", "v1", "v2"):
        rows.remove(name)
    assert nearest(rows, np.ones(2), 5, "COSINE") == []
    assert (
        nearest(filled(np.ones((0, 2), dtype=np.float32)), np.ones(2), 5, "EUCLIDEAN")
        == []
    )


def test_differences_below_single_precision_are_seen() -> None:
    """Neighbours of a far-off point, which the single-precision product mixes up, are ranked right."""
    vectors = np.full((100, 8), 4096.0, dtype=np.float32)
    vectors[:, 0] += np.arange(100, dtype=np.float32)[::-1] / 512
    rows = filled(vectors)
    actual = nearest(rows, np.full(8, 4096.0), 3, "EUCLIDEAN")
    assert [rows.ids[position] for position, _ in actual] == ["v99", "v98", "v97"]
    assert actual[0][1] == 1.0


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_products_that_vanish_in_single_precision(similarity: str) -> None:
    """Among vectors so small that their products are rounded to nearly nothing, the best are found."""
    numbers = np.random.default_rng(5)
    vectors = (numbers.uniform(-1, 1, (2000, 8)) * 1e-44).astype(np.float32)
    query = numbers.uniform(-1, 1, 8)
    actual = nearest(filled(vectors), query, 5, similarity)
    naive = sorted(
        (naive_score(item.tolist(), query.tolist(), similarity) for item in vectors),
        reverse=True,
    )
    assert [score for _, score in actual] == pytest.approx(naive[:5], rel=2.0**-24)
    if similarity == "COSINE":
        exact = [
            naive_score(vectors[position].tolist(), query.tolist(), similarity)
            for position, _ in actual
        ]
        assert exact == pytest.approx(naive[:5], rel=1e-12)


def test_products_that_overflow_in_single_precision() -> None:
    """Vectors so large that their products overflow do not push the truly nearest out."""
    large = np.full((40, 8), 3e38, dtype=np.float32)
    large[:, 0] = -3e37
    aligned = np.ones((3, 8), dtype=np.float32)
    actual = nearest(filled(np.vstack([large, aligned])), np.ones(8), 3, "COSINE")
    assert [position for position, _ in actual] == [40, 41, 42]


def test_large_random_search_equals_the_plain_one() -> None:
    """On 20,000 random vectors the ten best are those of a double-precision sort."""
    numbers = np.random.default_rng(3)
    vectors = numbers.standard_normal((20_000, 24)).astype(np.float32)
    rows, query = filled(vectors), numbers.standard_normal(24)
    exact = vectors.astype(np.float64) @ query
    actual = nearest(rows, query, 10, "DOT_PRODUCT")
    assert [position for position, _ in actual] == np.argsort(-exact)[:10].tolist()


def clustered(count: int, dimension: int, *, seed: int) -> np.ndarray:
    """Vectors in clusters of clusters, as embeddings are: without structure no graph is any good."""
    numbers = np.random.default_rng(seed)
    topics = np.random.default_rng(0).standard_normal((20, dimension))
    kinds = topics[np.arange(200) % 20] + 0.5 * np.random.default_rng(
        1
    ).standard_normal((200, dimension))
    chosen = kinds[numbers.integers(200, size=count)]
    return (chosen + 0.3 * numbers.standard_normal((count, dimension))).astype(
        np.float32
    )


def caught_up(rows: NamespaceRows, similarity: str) -> ApproximateSearch:
    """The search, queried until its graph has every row."""
    search = ApproximateSearch(above=100)
    for _ in range(-(-len(rows) // STEP)):
        search.nearest(rows, np.ones(rows.matrix.shape[1]), 1, similarity)
    assert search.is_complete(rows)
    return search


def recall(
    search: ApproximateSearch, rows: NamespaceRows, queries: np.ndarray, similarity: str
) -> float:
    """The share of the ten best that approximate search finds, scores being exact."""
    shares = []
    for query in queries.astype(np.float64):
        exact = dict(nearest(rows, query, 10, similarity))
        actual = dict(search.nearest(rows, query, 10, similarity))
        assert len(actual) == 10
        assert all(
            exact[position] == actual[position]
            for position in exact.keys() & actual.keys()
        )
        assert list(actual.values()) == sorted(actual.values(), reverse=True)
        shares.append(len(exact.keys() & actual.keys()) / 10)
    return float(np.mean(shares))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_nearly_all_of_the_exact_result_is_found(similarity: str) -> None:
    """On clustered vectors at least 95 of 100 of the ten best are found, also after a third was replaced."""
    vectors = clustered(3000, 48, seed=2)
    rows, queries = filled(vectors), clustered(30, 48, seed=3)
    search = caught_up(rows, similarity)
    assert recall(search, rows, queries, similarity) >= 0.95
    fresh = clustered(1000, 48, seed=4)
    for number in range(1000):
        rows.remove(f"v{number}")
        rows.put([f"w{number}"], [4000 + number], fresh[number : number + 1])
    assert recall(search, rows, queries, similarity) >= 0.95


def test_until_the_graph_is_complete_results_are_exact() -> None:
    """The first queries after many insertions have the results of exact search."""
    rows = filled(clustered(2 * STEP + 500, 16, seed=2))
    search = ApproximateSearch(above=100)
    for query in clustered(2, 16, seed=3).astype(np.float64):
        assert search.nearest(rows, query, 10, "COSINE") == nearest(
            rows, query, 10, "COSINE"
        )
        assert not search.is_complete(rows)
    search.nearest(rows, np.ones(16), 10, "COSINE")
    assert search.is_complete(rows)


def test_removed_rows_are_not_found_and_new_ones_are() -> None:
    """A removed row is in no result, a replaced one is found by its new vector, a new one at once."""
    vectors = clustered(1200, 16, seed=2)
    rows = filled(vectors)
    search = caught_up(rows, "EUCLIDEAN")
    query = vectors[5].astype(np.float64)
    assert search.nearest(rows, query, 1, "EUCLIDEAN") == [(5, 1.0)]
    rows.remove("v5")
    assert (
        search.nearest(rows, query, 1, "EUCLIDEAN")
        == nearest(rows, query, 1, "EUCLIDEAN")
        != [(5, 1.0)]
    )
    rows.put(["v7"], [8], -vectors[5:6])  # another vector
    rows.put(["new"], [2000], 2 * vectors[5:6])
    assert search.nearest(rows, -query, 1, "EUCLIDEAN") == [(7, 1.0)]
    assert search.nearest(rows, 2 * query, 1, "EUCLIDEAN") == [(1199, 1.0)]
    moved = vectors[1199].astype(np.float64)  # the last row, now at the position of v5
    assert search.nearest(rows, moved, 1, "EUCLIDEAN") == [(5, 1.0)]
    gone = {f"v{number}" for number in range(300, 800)}
    for name in gone:
        rows.remove(name)
    actual = search.nearest(rows, query, 50, "EUCLIDEAN")
    assert gone.isdisjoint(rows.ids[position] for position, _ in actual)
    assert len(search._positions) <= len(rows)  # rebuilt, without outdated rows


@pytest.mark.parametrize("case", ["few rows", "filter", "many results", "zero", "huge"])
def test_what_a_graph_does_badly_is_searched_exactly(case: str) -> None:
    """Small namespaces, filters, large results, and vectors that overflow get the exact result."""
    vectors = clustered(600, 8, seed=2)
    if case == "huge":
        vectors[17] = 3e38
    rows = filled(vectors)
    search = ApproximateSearch(above=1000 if case == "few rows" else 100)
    query = np.zeros(8) if case == "zero" else np.ones(8)
    passing = np.arange(0, 600, 3) if case == "filter" else None
    top_k = 200 if case == "many results" else 5
    actual = search.nearest(rows, query, top_k, "COSINE", passing)
    assert actual == nearest(rows, query, top_k, "COSINE", passing)
    assert search._graph is None


def test_zero_vectors_do_not_displace_others() -> None:
    """Vectors without a direction have cosine 0 in the graph too."""
    vectors = clustered(900, 16, seed=2)
    vectors[::2] = 0
    rows = filled(vectors)
    search = caught_up(rows, "COSINE")
    query = vectors[1].astype(np.float64)
    assert search.nearest(rows, query, 5, "COSINE") == nearest(rows, query, 5, "COSINE")


def test_the_registry_hands_it_on(tmp_path: Path) -> None:
    """A registry made with a threshold searches its larger namespaces by graph, also after a reset."""
    registry = IndexRegistry(tmp_path, approximate_above=100)
    index = registry.create(IndexSpec.parse("plain:dense:8:COSINE"))
    vectors = clustered(400, 8, seed=2)
    for _ in range(2):
        index.upsert(
            {"id": f"v{number}", "vector": vector, "metadata": {"n": number}}
            for number, vector in enumerate(vectors)
        )
        for chosen in (None, parse("n < 20")):
            (hits,) = index.query(
                [IndexQuery(vectors[3].astype(np.float64), 3, NOTHING, chosen)]
            )
            assert hits[0].row.id == "v3"
        assert index._namespaces[""].search.__self__.is_complete(
            index._namespaces[""].rows
        )
        index.reset()
        assert index.query(
            [IndexQuery(vectors[3].astype(np.float64), 3, NOTHING, None)]
        ) == [[]]
    registry.close()


def test_missing_parts_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without usearch, or with an invalid threshold, opening the registry is an error with the reason."""
    with pytest.raises(InputError, match="at least 1"):
        IndexRegistry(tmp_path, approximate_above=0)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(InputError, match="pip install usearch"):
        IndexRegistry(tmp_path, approximate_above=10)
    IndexRegistry(tmp_path).close()


def test_the_command_takes_the_threshold(tmp_path: Path) -> None:
    """`--approximate-above` reaches the registry: a threshold that is none ends the command, with why."""
    command = [sys.executable, "-m", "toolkit", "serve", "--data-dir", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--approximate-above", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "at least 1" in ended.stderr
