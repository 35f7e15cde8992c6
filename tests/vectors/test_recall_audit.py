"""Recall audits of the embedded service, exact and approximate."""

import json
import weakref

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.vectors.exact_comparison import ExactSearch
from toolkit.vectors.recall_audit import compare_hits
from toolkit.vectors.recall_judgement import recall_by_group, recall_over_queries
from toolkit.vectors.recall_queries import draw_queries
from toolkit.vectors.vector_batches import VectorBatch
from toolkit.vectors.vector_rows import VectorTables
from toolkit_service.demo.local_service import LocalService

ROWS, DIMENSION = 3000, 48


@pytest.fixture(scope="module")
def services():
    """Two indexes of one service with the same vectors, which have no structure: a graph misses many."""
    rng = np.random.default_rng(4)
    matrix = rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    with LocalService(
        indexes=[
            f"poor:dense:{DIMENSION}:COSINE",
            f"far:dense:{DIMENSION}:EUCLIDEAN",
            "words:sparse",
        ],
        approximate_above=500,
        approximate_expansion=8,
    ) as local:
        found = {}
        for name in ("poor", "far", "words"):
            found[name] = tk.connect(
                vector_url=local.vector_urls[name], vector_token=local.token
            )
        for name in ("poor", "far"):
            for namespace, count in (("", ROWS), ("small", 300)):
                tk.upsert_vectors(
                    found[name],
                    [
                        {
                            "id": f"v{number}",
                            "vector": matrix[number].tolist(),
                            "metadata": {"n": number},
                        }
                        for number in range(count)
                    ],
                    namespace=namespace,
                )
        yield found, matrix


def caught_up(service, matrix):
    """The graph takes in rows with each query."""
    for _ in range(15):
        tk.query(service, vector=matrix[:20], top_k=1)


def test_exact_and_approximate_namespaces_are_judged_apart(services):
    """A small namespace and a filter are searched exactly, a large namespace misses neighbours."""
    service, matrix = services[0]["poor"], services[1]
    caught_up(service, matrix)
    vectors = tk.load_vectors(service, namespace="all", progress=False)
    audit = tk.audit_recall(service, vectors, sample=120, filter=["", "n < 30"])
    by = audit.by.set_index(["namespace", "filter"])
    assert by.loc[("small", ""), "share"] == 1
    assert by.loc[("", ""), "share"] < 0.95
    assert by.loc[("", "n < 30"), "share"] == 1
    assert by.loc[("", "n < 30"), "selectivity"] == pytest.approx(30 / ROWS)
    assert (
        by.loc[("", ""), "low"] < by.loc[("", ""), "share"] < by.loc[("", ""), "high"]
    )
    assert by.loc[("", ""), "score_gap"] > 0
    assert audit.stored
    assert "misses neighbours" in audit.verdict
    worst = audit.worst(1).iloc[0]
    assert worst["share"] == audit.frame["share"].min()
    query = vectors[
        (vectors["namespace"] == worst["namespace"]) & (vectors["id"] == worst["query"])
    ]
    exact = matrix @ tk.as_matrix(query)[0] / np.linalg.norm(matrix, axis=1)
    nearest = [f"v{n}" for n in np.argsort(-exact) if f"v{n}" != worst["query"]][:10]
    assert set(worst["missed"]) <= set(nearest)
    assert len(worst["missed"]) == round(10 * (1 - worst["share"]))


def test_the_verdict_is_that_of_the_worst_group(services):
    """Filters with exact search do not hide a search that misses, and a stored vector counts once."""
    service, matrix = services[0]["poor"], services[1]
    caught_up(service, matrix)
    vectors = tk.load_vectors(service, namespace="", progress=False)
    filters = ["", *(f"n < {most}" for most in range(20, 32, 2))]
    audit = tk.audit_recall(service, vectors, sample=60, filter=filters)
    by = audit.by.set_index("filter")
    assert (by["share"].drop("") == 1).all()
    assert audit.worst_group["filter"] == ""
    assert not audit.trusted
    assert (
        f"misses neighbours: it returns {by.loc['', 'share']:.1%}".replace("%", " %")
        in audit.verdict
    )
    assert "of 60 stored vectors without a filter" in audit.verdict
    assert "the worst of 7 groups" in audit.verdict
    assert len(audit.overall.per_query) == 60


@pytest.mark.slow
def test_a_query_with_several_filters_is_one_query():
    """The interval over all groups contains the true recall as often as it should."""
    true, contained = 0.9, 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        query_recall = rng.beta(1.8, 0.2, 60)
        frame = pd.DataFrame(
            {
                "namespace": "",
                "filter": np.repeat([f"n < {number}" for number in range(7)], 60),
                "query": np.tile(np.arange(60).astype(str), 7),
                "share": np.tile(query_recall, 7),
            }
        )
        found = recall_over_queries(frame, k=10, seed=seed)
        contained += found.low <= true <= found.high
    assert contained >= 184


@pytest.mark.parametrize(
    ("shares", "counts", "trusted"),
    [
        ([1.0, 1.0, 1.0], [100, 100, 6], True),
        ([1.0, 0.8, 1.0], [100, 100, 100], False),
        ([1.0, 1.0, 0.9], [200, 200, 4], True),
        ([1.0, 1.0, 0.0], [200, 200, 20], False),
        # all is found, but the interval of so few queries is wide
        ([1.0], [40], None),
        ([0.97], [60], None),
        ([1.0], [60], True),
        ([0.93], [40], False),
    ],
)
def test_small_groups_alarm_only_if_they_must_be_bad(shares, counts, trusted):
    """Four queries with one miss among them do not make a search doubtful; twenty without a hit do."""
    groups = []
    for number, (share, count) in enumerate(zip(shares, counts, strict=True)):
        queries = [str(query) for query in range(count)]
        groups.append(
            pd.DataFrame(
                {
                    "namespace": f"space {number}",
                    "filter": "",
                    "query": queries,
                    "share": share,
                }
            )
        )
    frame = pd.concat(groups, ignore_index=True)
    by = recall_by_group(frame, {}, k=10, seed=0)
    overall = recall_over_queries(frame, k=10, seed=0)
    audit = tk.results.RecallAudit(
        frame=frame.assign(score_gap=0.0, missed=[()] * len(frame)),
        by=by, overall=overall, stored=True, changed=0, unknown=0, k=10,
    )  # fmt: skip
    assert audit.trusted is trusted
    assert ("can be trusted" in audit.verdict) is (trusted is True)
    assert ("so few queries" in audit.verdict) is (trusted is None)


def test_queries_of_ones_own_and_a_snapshot(services, tmp_path):
    """A matrix of queries, against a snapshot; by Euclidean distance, as the service ranks."""
    service, _ = services[0]["far"], services[1]
    tk.write_snapshot(
        tk.load_vectors(service, namespace="all", progress=False), tmp_path / "index"
    )
    queries = np.random.default_rng(9).normal(size=(30, DIMENSION))
    frame = pd.DataFrame({"namespace": "small", "vector": queries.tolist()})
    audit = tk.audit_recall(service, tmp_path / "index", queries=frame, k=5)
    assert not audit.stored
    assert audit.by[["namespace", "queries", "share"]].to_numpy().tolist() == [
        ["small", 30, 1.0]
    ]
    assert "of the 5 nearest neighbours of 30 queries." in audit.verdict


def test_vectors_that_came_later_are_said(services):
    """They are counted, and left out: the search is not blamed for them."""
    service, matrix = services[0]["far"], services[1]
    vectors = tk.load_vectors(service, namespace="small", progress=False)
    near = [
        {"id": f"new{n}", "vector": (matrix[n] + 0.001).tolist()} for n in range(100)
    ]
    tk.upsert_vectors(service, near, namespace="small")
    audit = tk.audit_recall(service, vectors, sample=10)
    assert audit.unknown >= 10
    assert audit.overall.mean == 1
    assert f"; {audit.unknown} returned vectors" in audit.verdict
    tk.delete_vectors(
        service, ids=[row["id"] for row in near], namespace="small", confirm=True
    )
    tk.delete_vectors(
        service, ids=vectors["id"][:20].tolist(), namespace="small", confirm=True
    )
    assert (
        "20 vectors changed meanwhile"
        in tk.audit_recall(service, vectors, sample=10).verdict
    )
    tk.upsert_vectors(service, vectors, namespace="small")


@pytest.mark.parametrize(("condition", "changed"), [("", 90), ("part = 1", 50)])
def test_vectors_that_were_written_again_are_no_misses(condition: str, changed: int):
    """Exact search is not blamed if a third of the rows was embedded or deleted after they were read."""
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(300, 8)).astype(np.float32)
    rows = [
        {"id": f"r{n}", "vector": vector.tolist(), "metadata": {"part": n % 2}}
        for n, vector in enumerate(matrix)
    ]
    with LocalService(indexes=["busy:dense:8:COSINE"]) as local:
        service = tk.connect(
            vector_url=local.vector_urls["busy"], vector_token=local.token
        )
        tk.upsert_vectors(service, rows)
        vectors = tk.load_vectors(service, progress=False)
        again = rng.normal(size=(70, 8))
        tk.upsert_vectors(
            service,
            [row | {"vector": again[n].tolist()} for n, row in enumerate(rows[:70])],
        )
        tk.delete_vectors(service, [f"r{n}" for n in range(70, 90)], confirm=True)
        tk.update_vectors(
            service, [{"id": f"r{n}", "metadata": {"part": 2}} for n in range(90, 100)]
        )
        audit = tk.audit_recall(service, vectors, filter=condition)

    assert audit.overall.mean == 1
    assert audit.trusted
    assert audit.changed == changed
    assert f"{changed} vectors changed meanwhile" in audit.verdict


def test_a_part_of_an_index_does_not_blame_the_search(services):
    """Recall is that of the vectors passed; without their namespaces it is not known."""
    service = services[0]["far"]
    vectors = tk.load_vectors(service, namespace="small", progress=False)
    part = tk.audit_recall(service, vectors.iloc[::5], sample=60)
    assert part.overall.mean == 1
    assert part.changed == 0
    assert "are not among the passed ones" in part.verdict
    strangers = vectors.assign(id="other " + vectors["id"])
    assert "none of the returned vectors" in tk.audit_recall(service, strangers).verdict


def test_repeated_rows_count_once(services):
    """As neighbours and as queries, also where another batch repeats them."""
    service = services[0]["far"]
    vectors = tk.load_vectors(service, namespace="small", progress=False)
    once = tk.audit_recall(service, vectors, sample=300)
    repeated = tk.audit_recall(service, pd.concat([vectors] * 30), sample=300)
    assert once.overall.mean == repeated.overall.mean == 1
    assert len(repeated.frame) == len(once.frame) == 300


def test_one_namespace_is_loaded_by_name(services):
    """Recall, thresholds and the report of one namespace of a service; an unknown one is an error."""
    service = services[0]["far"]
    audit = tk.audit_recall(service, namespace="small", sample=10)
    assert audit.by["namespace"].tolist() == ["small"]
    assert tk.calibrate_threshold(service, namespace="small").frame[
        "namespace"
    ].tolist() == ["small"]
    report = tk.report_index(service, namespace=["small"], sample=10)
    assert "namespace=['small']" in report.sections[-1].parts[0].code
    with pytest.warns(
        UnexpectedResultWarning, match="no namespace 'smalll'. Did you mean 'small'"
    ):
        assert "not known" in tk.audit_recall(service, namespace="smalll").verdict
    vectors = tk.load_vectors(service, namespace="small", progress=False)
    for call in (tk.calibrate_threshold, tk.report_index):
        with pytest.raises(InputError, match=r"loaded earlier.*load_vectors"):
            call(vectors, namespace="small")


def test_queries_without_a_namespace_are_of_the_only_one(services):
    """Of that loaded or passed; of several it is missing, and one that is not there is an error."""
    service, matrix = services[0]["far"], services[1]
    vectors = tk.load_vectors(service, namespace=["", "small"], progress=False)
    small = vectors[vectors["namespace"] == "small"]
    for audit in (
        tk.audit_recall(service, queries=matrix[:5], namespace="small"),
        tk.audit_recall(
            service, small, queries=pd.DataFrame({"vector": matrix[:5].tolist()})
        ),
    ):
        assert audit.by[["namespace", "queries", "share"]].to_numpy().tolist() == [
            ["small", 5, 1.0]
        ]
    with pytest.raises(
        InputError,
        match=r"no column namespace; expected a column.*2 namespaces.*'', 'small'",
    ):
        tk.audit_recall(service, vectors, queries=matrix[:5])
    named = pd.DataFrame({"namespace": "smalls", "vector": matrix[:5].tolist()})
    with pytest.raises(
        InputError, match=r"reading queries: got 'smalls'.*Did you mean 'small'"
    ):
        tk.audit_recall(service, vectors, queries=named)
    report = tk.report_index(service, small, queries=matrix[:5])
    assert "neighbours of 5 queries" in report.verdict


def test_a_frame_of_numbers_is_a_matrix_of_queries(services):
    """As for a query; and no more neighbours are spoken of than there are."""
    service, matrix = services[0]["far"], services[1]
    small = tk.load_vectors(service, namespace="small", progress=False)
    given, frame = (
        tk.audit_recall(service, small, queries=q)
        for q in (matrix[:5], pd.DataFrame(matrix[:5]))
    )
    pd.testing.assert_frame_equal(frame.frame, given.frame)
    audit = tk.audit_recall(service, small, k=500, sample=5)
    assert audit.k == 299
    assert "of the 299 nearest neighbours of 5 stored vectors" in audit.verdict
    assert audit.overall.mean == 1
    assert tk.audit_recall(service, small.iloc[::6], k=290, sample=5).overall.mean == 1
    with pytest.raises(
        InputError, match=r"got no column vector for queries; expected a frame"
    ):
        tk.audit_recall(service, small, queries=pd.DataFrame({"a": [1.0]}))


def test_the_effect_of_a_zero_vector_is_what_the_service_does(services):
    """It is found, with one score for every query, as its finding says."""
    service, matrix = services[0]["poor"], services[1]
    rows = [
        {"id": "zero", "vector": [0.0] * DIMENSION},
        {"id": "one", "vector": matrix[0].tolist()},
    ]
    tk.upsert_vectors(service, rows, namespace="zero")
    hits = tk.query(service, vector=matrix[:5], namespace="zero")
    assert set(hits["score"][hits["id"] == "zero"]) == {0.5}
    found = tk.audit_vectors(
        tk.load_vectors(service, namespace="zero", progress=False)
    ).frame
    effect = found.set_index("finding").loc["zero vector", "effect"]
    assert (
        effect
        == "A vector of length 0 has no direction: its cosine score is the same for every query."
    )


def test_equal_vectors_are_no_misses(services):
    """All rows are equally near: any of them is right."""
    service = services[0]["far"]
    same = [{"id": f"s{n}", "vector": [1.0] * DIMENSION} for n in range(100)]
    tk.upsert_vectors(service, same, namespace="same")
    vectors = tk.load_vectors(service, namespace="same", progress=False)
    assert tk.audit_recall(service, vectors, sample=20).overall.mean == 1


def test_what_cannot_be_audited_is_an_error(services):
    """A sparse index, texts as queries, vectors without ids, NaN."""
    service = services[0]["far"]
    vectors = tk.load_vectors(service, namespace="small", limit=20, progress=False)
    with pytest.raises(InputError, match="without a similarity"):
        tk.audit_recall(services[0]["words"])
    with pytest.raises(InputError, match="omit queries"):
        tk.audit_recall(service, vectors, queries=["red shoes"])
    with pytest.raises(InputError, match="with their ids"):
        tk.audit_recall(service, tk.as_matrix(vectors))
    with pytest.raises(InputError, match="finite numbers"):
        tk.audit_recall(service, vectors, queries=[[float("nan")] * DIMENSION])
    with pytest.raises(InputError, match="k"):
        tk.audit_recall(service, vectors, k=0)
    with pytest.raises(InputError, match=r"loaded earlier.*load_vectors"):
        tk.audit_recall(service, vectors, namespace="small")
    empty = tk.audit_recall(service, vectors.head(0))
    assert "not known" in empty.verdict


@pytest.mark.slow
def test_it_is_shown_and_drawn(services):
    """HTML escapes names; the plot has a row for each namespace and filter."""
    service = services[0]["far"]
    vectors = tk.load_vectors(service, namespace="small", progress=False)
    audit = tk.audit_recall(
        service, vectors, sample=30, filter=["", "n < 200 AND n != 7"]
    )
    assert "n &lt; 200" in audit._repr_html_()
    ax = audit.plot()
    assert "neighbours returned" in ax.get_xlabel()
    assert "Recall@10 of stored vectors" in ax.get_title(loc="left")
    assert len(ax.get_yticklabels()) == 2
    assert json.loads(audit.frame.to_json(orient="records"))


def test_equal_vectors_in_batches_of_other_sizes_are_no_misses():
    """The same vector has slightly different float32 scores in a batch of 300 rows and in one of one row."""
    rng = np.random.default_rng(3)
    stored = rng.normal(size=(300, 384)).astype(np.float32)
    queries = (stored[:100] + rng.normal(0, 0.5, (100, 384))).astype(np.float32)
    copies = [f"copy {number}" for number in range(100)]
    returned = [{key: 0.9} for key in copies]
    search = ExactSearch(
        queries, namespace="", similarity="COSINE", k=1, returned=returned
    )
    rows = [(stored, [f"row {number}" for number in range(300)])]
    rows += [(stored[[number]], [key]) for number, key in enumerate(copies)]
    for matrix, ids in rows:
        frame = pd.DataFrame({"id": ids, "vector": list(matrix)})
        for batch in VectorTables(frame, doing="testing", with_ids=True):
            search.add(batch, np.ones(len(ids), dtype=bool))
    compared = list(compare_hits(search, copies, returned, 1))
    assert [row[3] for row in compared] == [1.0] * 100


@pytest.mark.parametrize(
    ("mean", "shown"), [(1.0, "100.0 %"), (0.9998, "99.9 %"), (0.5, "50.0 %")]
)
def test_a_recall_below_all_is_never_shown_as_all(mean, shown):
    """A single miss in many queries is not rounded to 100 %."""
    queries = 5000
    misses = round((1 - mean) * queries)
    frame = pd.DataFrame(
        {
            "namespace": "",
            "filter": "",
            "query": [str(number) for number in range(queries)],
            "share": [0.0] * misses + [1.0] * (queries - misses),
        }
    )
    overall = recall_over_queries(frame, k=10, seed=0)
    by = recall_by_group(frame, {}, k=10, seed=0)
    audit = tk.results.RecallAudit(
        frame=frame, by=by, overall=overall, stored=True, changed=0, unknown=0, k=10
    )
    assert shown in audit.verdict


class _WatchedTables:
    """Batches of one vector each that count how many of them are still in memory."""

    rows = 20

    def __init__(self):
        self.in_memory = []
        self._matrices = []

    def __iter__(self):
        for number in range(self.rows):
            matrix = np.full((1, DIMENSION), number, dtype=np.float32)
            self._matrices.append(weakref.ref(matrix))
            alive = [reference() is not None for reference in self._matrices]
            self.in_memory.append(sum(alive))
            positions = np.zeros(1, dtype=np.intp)
            yield VectorBatch(
                namespaces=[""],
                ids=[f"v{number}"],
                dense=[(positions, matrix)],
                sparse=np.zeros(1, dtype=np.uint64),
                data=[""],
                metadata=[None],
            )


def test_drawn_queries_do_not_keep_their_batches_in_memory():
    tables = _WatchedTables()
    usable = np.ones(tables.rows, dtype=bool)
    drawn = draw_queries(tables, usable, DIMENSION, sample=20, seed=0, queries=None)
    assert drawn[""][1][:, 0].tolist() == list(range(tables.rows))
    assert max(tables.in_memory) <= 2
