"""Approximate search: how much it finds of what exact search finds, while rows come and go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toolkit.errors import InputError
from toolkit.filters.metadata import parse
from toolkit.local.vectors.bodies import IncludedFields, IndexQuery
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import STEP, ApproximateSearch, nearest
from toolkit.local.vectors.specs import IndexSpec

SIMILARITIES = ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")
NOTHING = IncludedFields(metadata=False, vectors=False, data=False)


def clustered(count: int, dimension: int, *, seed: int) -> np.ndarray:
    """Vectors in clusters of clusters, as embeddings are: without structure no graph is any good."""
    numbers = np.random.default_rng(seed)
    topics = np.random.default_rng(0).standard_normal((20, dimension))
    kinds = topics[np.arange(200) % 20] + 0.5 * np.random.default_rng(1).standard_normal((200, dimension))
    chosen = kinds[numbers.integers(200, size=count)]
    return (chosen + 0.3 * numbers.standard_normal((count, dimension))).astype(np.float32)


def filled(vectors: np.ndarray) -> NamespaceRows:
    rows = NamespaceRows(vectors.shape[1], lambda: ())
    rows.put([f"v{number}" for number in range(len(vectors))], range(1, len(vectors) + 1), vectors)
    return rows


def caught_up(rows: NamespaceRows, similarity: str) -> ApproximateSearch:
    """The search, asked until its graph has every row."""
    search = ApproximateSearch(above=100)
    for _ in range(-(-len(rows) // STEP)):
        search.nearest(rows, np.ones(rows.matrix.shape[1]), 1, similarity)
    assert search._is_complete(rows)
    return search


def recall(search: ApproximateSearch, rows: NamespaceRows, queries: np.ndarray, similarity: str) -> float:
    """The share of the ten best that approximate search finds, scores being exact."""
    shares = []
    for query in queries.astype(np.float64):
        exact = dict(nearest(rows, query, 10, similarity))
        found = dict(search.nearest(rows, query, 10, similarity))
        assert len(found) == 10
        assert all(exact[position] == found[position] for position in exact.keys() & found.keys())
        assert list(found.values()) == sorted(found.values(), reverse=True)
        shares.append(len(exact.keys() & found.keys()) / 10)
    return float(np.mean(shares))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_nearly_all_of_the_exact_answer_is_found(similarity: str) -> None:
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


def test_until_the_graph_is_whole_answers_are_exact() -> None:
    """The first queries after many rows came are answered as exact search answers them."""
    rows = filled(clustered(2 * STEP + 500, 16, seed=2))
    search = ApproximateSearch(above=100)
    for query in clustered(2, 16, seed=3).astype(np.float64):
        assert search.nearest(rows, query, 10, "COSINE") == nearest(rows, query, 10, "COSINE")
        assert not search._is_complete(rows)
    search.nearest(rows, np.ones(16), 10, "COSINE")
    assert search._is_complete(rows)


def test_rows_that_went_are_not_found_and_new_ones_are() -> None:
    """A removed row is in no answer, a replaced one is found by its new vector, a new one at once."""
    vectors = clustered(1200, 16, seed=2)
    rows = filled(vectors)
    search = caught_up(rows, "EUCLIDEAN")
    query = vectors[5].astype(np.float64)
    assert search.nearest(rows, query, 1, "EUCLIDEAN") == [(5, 1.0)]
    rows.remove("v5")
    assert search.nearest(rows, query, 1, "EUCLIDEAN") == nearest(rows, query, 1, "EUCLIDEAN") != [(5, 1.0)]
    rows.put(["v7"], [8], -vectors[5:6])  # another vector
    rows.put(["new"], [2000], 2 * vectors[5:6])
    assert search.nearest(rows, -query, 1, "EUCLIDEAN") == [(7, 1.0)]
    assert search.nearest(rows, 2 * query, 1, "EUCLIDEAN") == [(1199, 1.0)]
    moved = vectors[1199].astype(np.float64)  # the last row, which took the position of v5
    assert search.nearest(rows, moved, 1, "EUCLIDEAN") == [(5, 1.0)]
    gone = {f"v{number}" for number in range(300, 800)}
    for name in gone:
        rows.remove(name)
    found = search.nearest(rows, query, 50, "EUCLIDEAN")
    assert gone.isdisjoint(rows.ids[position] for position, _ in found)
    assert len(search._positions) <= len(rows)  # rebuilt, without what is outdated


@pytest.mark.parametrize("case", ["few rows", "filter", "many results", "zero", "huge"])
def test_what_a_graph_does_badly_is_answered_exactly(case: str) -> None:
    """Small namespaces, filters, large answers, and vectors that overflow get the exact answer."""
    vectors = clustered(600, 8, seed=2)
    if case == "huge":
        vectors[17] = 3e38
    rows = filled(vectors)
    search = ApproximateSearch(above=1000 if case == "few rows" else 100)
    query = np.zeros(8) if case == "zero" else np.ones(8)
    passing = np.arange(0, 600, 3) if case == "filter" else None
    top_k = 200 if case == "many results" else 5
    found = search.nearest(rows, query, top_k, "COSINE", passing)
    assert found == nearest(rows, query, top_k, "COSINE", passing)
    assert search._graph is None


def test_zero_vectors_do_not_crowd_the_answer_out() -> None:
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
            (hits,) = index.query([IndexQuery(vectors[3].astype(np.float64), 3, NOTHING, chosen)])
            assert hits[0].row.id == "v3"
        assert index._namespaces[""].search.__self__._is_complete(index._namespaces[""].rows)
        index.reset()
        assert index.query([IndexQuery(vectors[3].astype(np.float64), 3, NOTHING, None)]) == [[]]
    registry.close()


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without usearch, or with a threshold that is none, the registry does not open, and says why."""
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
        [*command, "--approximate-above", "0"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "at least 1" in ended.stderr
