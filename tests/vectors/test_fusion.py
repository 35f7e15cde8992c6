"""Fusions compared on a hybrid index: where fusing helps, harms, and changes nothing that can be shown."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.vectors.retrieval import paired_difference
from toolkit_service.demo.local_service import LocalService

QUERIES, DOCUMENTS = 60, 400
RANKS = ["dense_rank", "sparse_rank", "rrf_rank", "dbsf_rank"]


@pytest.fixture(scope="module")
def running() -> Iterator[LocalService]:
    """Hybrid indexes: with ranks from 1 and from 0, with models, and one that is dense."""
    specs = [
        "both:hybrid:32:COSINE",
        "docs:hybrid:64:COSINE:hashing+bm25",
        "plain:dense:2:COSINE",
    ]
    with LocalService(indexes=specs) as service:
        yield service


@pytest.fixture(scope="module")
def services(running) -> dict[str, tk.Service]:
    return {
        name: tk.connect(vector_url=url, vector_token=running.token, environ={})
        for name, url in running.vector_urls.items()
    }


def legs(
    dense_noise: float, sparse_noise: float, seed: int = 0
) -> tuple[list[dict], list[tk.VectorQuery]]:
    """Documents and queries: document n answers query n, its similarity blurred by noise in each leg."""
    rng = np.random.default_rng(seed)
    topics = rng.standard_normal((DOCUMENTS, 32))
    rows = [
        {
            "id": f"d{n}",
            "vector": topics[n],
            "sparse": (list(range(32)), np.abs(topics[n]) + 0.01),
        }
        for n in range(DOCUMENTS)
    ]
    queries = [
        tk.VectorQuery(
            vector=topics[n] + dense_noise * rng.standard_normal(32),
            sparse=(
                list(range(32)),
                np.abs(topics[n]) + sparse_noise * np.abs(rng.standard_normal(32)),
            ),
        )
        for n in range(QUERIES)
    ]
    return rows, queries


JUDGED = pd.DataFrame(
    {"query": range(QUERIES), "id": [f"d{n}" for n in range(QUERIES)]}
)


@pytest.fixture(scope="module")
def stored(services) -> tk.Service:
    tk.upsert_vectors(services["both"], legs(0, 0)[0])
    return services["both"]


def ndcg(found: tk.results.FusionComparison) -> pd.DataFrame:
    return found.differences[found.differences["measure"] == "ndcg"].set_index(
        ["fusion", "leg"]
    )


@pytest.mark.slow
def test_two_legs_that_err_apart_are_better_together(stored):
    """Independent noise in each leg: fusing helps, and the interval says so."""
    rng = np.random.default_rng(5)
    topics = rng.standard_normal((DOCUMENTS, 32))
    indices = list(range(32))
    rows = [
        {"id": f"d{n}", "vector": topic, "sparse": (indices, topic)}
        for n, topic in enumerate(topics)
    ]
    tk.upsert_vectors(stored, rows, namespace="apart")
    noisy = topics[None, :QUERIES] + 1.6 * rng.standard_normal((2, QUERIES, 32))
    queries = [
        tk.VectorQuery(vector=dense, sparse=(indices, sparse), namespace="apart")
        for dense, sparse in zip(*noisy, strict=True)
    ]
    found = tk.compare_fusion(stored, queries, JUDGED)
    assert (ndcg(found)["low"] > 0).all()
    assert found.verdict.count("helps (nDCG@10 +0.") == 2
    assert found.by["agreement"].mean() < 0.5


@pytest.mark.slow
def test_a_leg_that_knows_nothing_harms(stored):
    """The dense leg is right, the sparse one nearly random: fusing harms against the better leg."""
    _, queries = legs(0.2, 40)
    found = tk.compare_fusion(stored, queries, JUDGED)
    assert ndcg(found).loc[("RRF", "dense"), "high"] < 0
    assert found.by["ndcg_dense"].mean() > 0.95
    assert "RRF against dense alone, the better leg: harms" in found.verdict


def test_no_difference_is_said_when_the_interval_holds_zero(services):
    """Two legs with one ranking, and a single query: nothing is shown, whatever the mean."""
    rng = np.random.default_rng(0)
    angles = np.sort(rng.uniform(0, np.pi / 2, 50))

    def both(angle: float) -> dict:
        pair = [np.cos(angle), np.sin(angle)]
        return {"vector": [*pair, *[0] * 30], "sparse": ([0, 1], pair)}

    rows = [{"id": f"d{n}", **both(angle)} for n, angle in enumerate(angles)]
    tk.upsert_vectors(services["both"], rows, namespace="same")
    queries = [
        tk.VectorQuery(**both(angle), namespace="same")
        for angle in rng.uniform(0, np.pi / 2, 20)
    ]
    judged = pd.DataFrame(
        {"query": range(20), "id": [f"d{n}" for n in rng.integers(0, 50, 20)]}
    )
    found = tk.compare_fusion(services["both"], queries, judged)
    assert (ndcg(found)[["low", "high"]].to_numpy() * [1, -1] <= 0).all()
    assert found.verdict.count("no difference shown") == 2
    assert found.by["agreement"].tolist() == [1.0] * 20
    one = tk.compare_fusion(services["both"], queries[0], judged[:1])
    assert one.verdict.count("no difference shown") == 2
    assert "over 1 query)" in one.verdict


@pytest.mark.parametrize("base", [0, 1])
def test_fused_scores_are_recomputed_and_the_rank_base_is_inferred(base):
    """Whether the service counts ranks from 0 or from 1 is found out from its scores."""
    rows, queries = legs(0.5, 0.5)
    with LocalService(indexes=[]) as running:
        import requests  # noqa: PLC0415

        url = f"{running.url}/vector/ranks"
        requests.put(
            url,
            json={
                "kind": "hybrid",
                "dimension": 32,
                "similarity": "COSINE",
                "rank_start": base,
            },
            headers={"Authorization": f"Bearer {running.token}"},
            timeout=10,
        ).raise_for_status()
        service = tk.connect(vector_url=url, vector_token=running.token, environ={})
        tk.upsert_vectors(service, rows)
        found = tk.compare_fusion(service, queries[:10])
    scores = found.scores.set_index("fusion")
    assert scores.loc["RRF", "rank_base"] == base
    assert scores["same"].tolist() == [1.0, 1.0]
    assert scores["hits"].tolist() == [100, 100]
    assert (scores["largest"] < 1e-4).all()
    assert f"ranks counted from {base}." in found.verdict
    assert "without judgements" in found.verdict
    assert found.differences.empty


def test_scores_that_are_not_those_of_the_legs_are_said(server):
    """A service that scores in another way: reported, and no rank base claimed."""
    info = b'{"result": {"indexType": "HYBRID", "namespaces": {}}}'
    leg = b'{"result": [{"id": "a", "score": 0.9}, {"id": "b", "score": 0.1}]}'

    def respond(asked):
        return info if asked.path == "/info" else leg

    server.responding(respond)
    found = tk.compare_fusion(server.service(), tk.VectorQuery(data="x"), k=2)
    assert found.scores["same"].tolist() == [0.0, 0.0]
    assert found.scores["rank_base"].isna().all()
    assert "RRF scores are not (0 % are); DBSF scores are not" in found.verdict


def test_ranks_and_measures_are_those_of_the_rankings(stored):
    """Against queries asked one by one, and formulas written out."""
    _, queries = legs(2.0, 2.0)
    judged = pd.DataFrame(
        {
            "query": [0, 0, 0, 1],
            "id": ["d0", "d1", "absent", "d1"],
            "relevance": [3, 1, 2, 0],
        }
    )
    found = tk.compare_fusion(stored, queries[:2], judged, k=5)
    dense = tk.query(stored, vector=queries[0].vector, top_k=400)["id"].tolist()
    first = found.frame[found.frame["query"] == 0].set_index("id")
    assert [first.loc[key, "dense_rank"] for key in dense[:5]] == [1, 2, 3, 4, 5]
    assert first.loc["d0", "dense_rank"] == dense.index("d0") + 1
    assert first.loc["absent", RANKS].isna().all()
    assert first.loc["absent", "relevance"] == 2
    gains = {"d0": 7, "d1": 1, "absent": 3}
    best = 7 / np.log2(2) + 3 / np.log2(3) + 1 / np.log2(4)
    expected = (
        sum(
            gains.get(key, 0) / np.log2(rank + 1)
            for rank, key in enumerate(dense[:5], 1)
        )
        / best
    )
    by = found.by.set_index("query")
    assert by.loc[0, "ndcg_dense"] == pytest.approx(expected)
    assert by.loc[0, "recall_dense"] == pytest.approx(
        len(gains.keys() & set(dense[:5])) / 3
    )
    assert np.isnan(by.loc[1, "ndcg_dense"])  # nothing relevant is judged
    assert set(found.differences["queries"]) == {1}


def test_texts_are_compared_by_the_models_of_the_index(services):
    """Each text as dense, sparse and both; judged by text."""
    texts = [
        "connection refused",
        "disk is full",
        "the token has expired",
        "queue is empty",
    ]
    rows = [{"id": f"t{n}", "data": text} for n, text in enumerate(texts)]
    tk.upsert_vectors(services["docs"], rows)
    judged = pd.DataFrame({"query": texts, "id": [f"t{n}" for n in range(4)]})
    found = tk.compare_fusion(services["docs"], texts, judged)
    assert (
        found.by[["mrr_dense", "mrr_sparse", "mrr_RRF"]].to_numpy().tolist()
        == [[1.0] * 3] * 4
    )
    assert found.scores["same"].tolist() == [1.0, 1.0]


def test_hostile_cases_have_an_answer(stored, services):
    """A zero vector (all ties), a leg without hits, an empty namespace, one query."""
    zero = tk.VectorQuery(vector=[0.0] * 32, sparse=([999], [1.0]))
    found = tk.compare_fusion(stored, zero)
    assert found.by["agreement"].tolist() == [0.0]
    assert found.frame["sparse_rank"].isna().all()
    assert found.scores["same"].tolist() == [1.0, 1.0]
    with pytest.warns(
        UnexpectedResultWarning, match="no namespace 'nothing here'"
    ) as warned:
        nothing = tk.compare_fusion(
            services["docs"], ["a", "b"], JUDGED[:1], namespace="nothing here"
        )
    assert len(warned) == 1
    assert nothing.frame["id"].tolist() == ["d0"]  # judged, and in no ranking
    assert nothing.by["agreement"].isna().all()
    for result in (found, nothing):
        assert result.verdict
        assert result.verdict in repr(result)
        assert "<table>" in result._repr_html_()
        for theme in ("light", "dark"):
            result.plot(theme=theme).figure.canvas.draw()


def test_judgements_of_ids_that_are_not_there_are_said(stored):
    """Ids of another index, and texts that no service stores: a result, and what is wrong with it."""
    _, queries = legs(0.2, 40)
    judged = pd.DataFrame({"query": [0, 1]}).assign(
        id=pd.Series(["elsewhere", "\ud800"], dtype=object)
    )
    found = tk.compare_fusion(stored, queries[:2], judged)
    says = "no relevant id is found by either leg: check that judgements name ids of this index"
    assert says in found.verdict
    known = tk.compare_fusion(
        stored, queries[:2], judged.assign(id=["d0", "elsewhere"])
    )
    assert says not in known.verdict


@pytest.mark.parametrize(
    ("queries", "judgements", "says"),
    [
        (5, None, "queries: got 5"),
        ([], None, "at least one query"),
        ([5], None, "queries at position 0"),
        (tk.VectorQuery(vector=[1.0]), None, "with both vector and sparse"),
        (tk.VectorQuery(id="d0"), None, "with both vector and sparse"),
        ("x", pd.DataFrame({"query": [1], "id": ["a"]}), "row 0: query: got 1"),
        ("x", pd.DataFrame({"query": ["y"], "id": ["a"]}), "row 0: query: got 'y'"),
        (
            "x",
            pd.DataFrame({"query": [0], "id": ["a"], "relevance": [np.nan]}),
            "relevance from 0",
        ),
        (
            "x",
            pd.DataFrame({"query": [0], "id": ["a"], "relevance": [-1]}),
            "relevance from 0",
        ),
        ("x", pd.DataFrame({"query": [0], "id": [5]}), "row 0: got 5"),
        ("x", pd.DataFrame({"query": [0]}), "without the column 'id'"),
        ("x", [("x", "a")], "expected a pandas frame"),
    ],
)
def test_what_cannot_be_compared_is_refused(stored, queries, judgements, says):
    """Before anything is asked."""
    with pytest.raises(InputError, match=says):
        tk.compare_fusion(stored, queries, judgements)


def test_other_indexes_are_refused(services):
    """A dense index has nothing to fuse; a NaN is refused by the query itself."""
    with pytest.raises(InputError, match="kind DENSE; expected a hybrid index"):
        tk.compare_fusion(services["plain"], "x")
    with pytest.raises(InputError, match="nan"):
        tk.VectorQuery(vector=[float("nan")], sparse=([1], [1.0]))


@pytest.mark.slow
def test_the_plot_marks_what_is_shown(stored):
    """Four rows with intervals about a line at zero."""
    _, queries = legs(0.2, 40)
    axes = tk.compare_fusion(stored, queries, JUDGED).plot()
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == 4
    assert len(axes.containers) == 4
    left, right = axes.get_xlim()
    assert left < 0 < right
    differences = tk.compare_fusion(stored, queries, JUDGED).differences
    shown = (
        differences[differences["measure"] == "ndcg"]
        .eval("low > 0 or high < 0")
        .tolist()
    )
    markers = [container.lines[0].get_marker() for container in axes.containers]
    assert markers == ["o" if item else "s" for item in shown]
    assert len(
        {container.lines[0].get_color() for container in axes.containers}
    ) == len(set(shown))


@pytest.mark.slow
def test_paired_intervals_hold_and_can_hold_zero():
    """In 200 collections of 50 queries without a difference, the interval leaves zero out in 5 % at most."""
    rng = np.random.default_rng(0)
    wrong = 0
    for seed in range(200):
        first, second = rng.beta(0.5, 0.5, (2, 50))
        mean, low, high = paired_difference(first, second, seed=seed)
        assert low <= mean <= high
        wrong += not low <= 0 <= high
    assert wrong <= 14
    assert np.isnan(paired_difference(np.zeros(0), np.zeros(0))).all()
