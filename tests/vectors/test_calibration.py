"""Calibrated thresholds: what chance reaches, what labels promise, and where none is promised."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.accuracy.ill_indexes import healthy_rows, to_frame
from toolkit.analysis import threshold_for_precision
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.vectors.exact_comparison import SIMILARITIES, pair_scores
from toolkit.vectors.query_scores import PairScores, scores_of_vectors
from toolkit_service.demo.local_service import LocalService


def labelled(count, *, seed=0):
    """Scores from 0.5 to 1, the share of matches rising from 0 to 1."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.5, 1, count)
    return pd.DataFrame({"score": scores, "match": rng.random(count) < 2 * scores - 1})


def test_without_labels_the_threshold_is_what_chance_does_not_reach():
    """One random pair in 1,000 is at or above it; pairs with the same text are."""
    rows = healthy_rows(1000, seed=1)
    for one, two in zip(rows[:40:2], rows[1:40:2], strict=True):
        two["data"], two["vector"] = one["data"], one["vector"]
    (row,) = tk.calibrate_threshold(to_frame(rows)).frame.to_dict("records")
    assert row["random_share"] == pytest.approx(0.001, rel=0.1)
    assert row["duplicate_share"] == 1
    assert 0.5 < row["random_median"] < row["random_high"] == row["threshold"] < 1


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_random_pairs_are_scored_without_copies_of_all_rows(similarity):
    """200,000 pairs of 128 numbers would be 200 MB; each score is that of the copied rows."""
    rng = np.random.default_rng(4)
    queries, rows = (
        rng.normal(size=(count, 128)).astype(np.float32) for count in (50, 700)
    )
    tracemalloc.start()
    scores = scores_of_vectors(queries, rows, similarity, seed=3).scores
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
    draws = np.random.default_rng([3, 6])
    first, second = (draws.integers(0, count, 200_000) for count in (50, 700))
    copied = pair_scores(queries[first], rows[second], similarity)
    assert np.array_equal(scores, np.sort(copied))


def test_labels_promise_a_precision_and_too_few_do_not():
    """From the threshold on at least 80 % are matches; twenty labels promise nothing."""
    vectors = to_frame(healthy_rows(300, seed=1))
    found = tk.calibrate_threshold(vectors, labelled(3000), precision=0.8)
    (row,) = found.frame.to_dict("records")
    fresh = labelled(20_000, seed=9)
    assert fresh["match"][fresh["score"] >= row["threshold"]].mean() >= 0.8
    assert "at least 80 % with 95 % confidence" in found.verdict
    precision = found.curve["precision"]
    assert precision.is_monotonic_increasing
    near = (found.curve["score"] - 0.75).abs().argmin()
    assert precision[near] == pytest.approx(0.5, abs=0.1)
    few = tk.calibrate_threshold(vectors, labelled(20), precision=0.8)
    assert few.frame["threshold"].isna().all()
    assert "no threshold: " in few.verdict


def test_namespaces_are_apart():
    """Labels of one say nothing of the other; an unknown one is an error."""
    rows = healthy_rows(400, seed=2)
    for row in rows[200:]:
        row["namespace"] = "other"
    found = tk.calibrate_threshold(
        to_frame(rows), labelled(3000).assign(namespace="other"), precision=0.8
    )
    threshold = found.frame.set_index("namespace")["threshold"]
    assert threshold.isna().to_dict() == {"": True, "other": False}
    with pytest.raises(InputError, match=r"'nope'.*'other'"):
        tk.calibrate_threshold(to_frame(rows), labelled(50).assign(namespace="nope"))


def test_labels_without_a_namespace_are_of_the_only_one():
    """Whatever its name; of several, the namespace is missing."""
    rows = healthy_rows(400, seed=2)
    for row in rows:
        row["namespace"] = "docs"
    found = tk.calibrate_threshold(to_frame(rows), labelled(3000), precision=0.8)
    assert found.frame[["namespace", "labels"]].to_numpy().tolist() == [["docs", 3000]]
    report = tk.report_index(to_frame(rows), labels=labelled(300), precision=0.6)
    assert "labelled scores are matches" in next(
        section.sentence for section in report.sections if section.name == "scores"
    )
    for row in rows[:100]:
        row["namespace"] = ""
    with pytest.raises(
        InputError, match=r"reading labels: got no column namespace.*Known: '', 'docs'"
    ):
        tk.calibrate_threshold(to_frame(rows), labelled(50))


@pytest.mark.parametrize("kind", ["boolean", "float64", "object", "Int8"])
def test_what_is_not_judged_is_left_out_and_said(kind):
    """Of every type that can miss a value; thresholds themselves need a label for each score."""
    vectors, labels = to_frame(healthy_rows(300, seed=1)), labelled(3000)
    some = labels.assign(match=labels["match"].astype(kind))
    some.loc[:3, "match"] = None
    found = tk.calibrate_threshold(vectors, some, precision=0.8)
    assert found.frame["labels"].tolist() == [2996]
    assert found.frame["threshold"].notna().all()
    assert found.verdict.endswith(" Left out: 4 rows of labels whose match is missing.")
    with pytest.raises(InputError, match=r"4 of 3,000 scores without a label.*dropna"):
        threshold_for_precision(some["score"], some["match"], precision=0.8)
    with pytest.raises(InputError, match="true or false for each score"):
        threshold_for_precision([0.5, 0.6], [np.zeros(2), pd.NaT], precision=0.8)
    none = tk.calibrate_threshold(vectors, labels.assign(match=None), precision=0.8)
    assert none.frame["labels"].tolist() == [0]


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, pd.Categorical([None] * 50)])
def test_missing_namespaces_of_labels_are_the_default_one(missing):
    """Whatever the type of the column, and without a warning of pandas."""
    vectors = to_frame(healthy_rows(100, seed=1))
    found = tk.calibrate_threshold(vectors, labelled(50).assign(namespace=missing))
    assert found.frame["labels"].tolist() == [50]


@pytest.mark.slow
def test_scores_are_those_of_the_service():
    """By each similarity, random pairs have the scores that queries return; other kinds are refused."""
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(60, 16)).astype(np.float32)
    specs = [
        f"{name.lower()}:dense:16:{name}"
        for name in ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")
    ]
    with LocalService(indexes=[*specs, "both:hybrid:16:COSINE"]) as local:
        services = {
            name: tk.connect(vector_url=url, vector_token=local.token)
            for name, url in local.vector_urls.items()
        }
        rows = [
            {"id": str(n), "vector": vector.tolist()} for n, vector in enumerate(matrix)
        ]
        for name in ("cosine", "euclidean", "dot_product"):
            tk.upsert_vectors(services[name], rows)
            (row,) = tk.calibrate_threshold(services[name]).frame.to_dict("records")
            hits = tk.query(services[name], vector=matrix, top_k=60)
            others = hits["score"][hits["id"] != hits["query"].astype("str")]
            assert row["similarity"] == name.upper()
            assert row["random_median"] == pytest.approx(others.median(), abs=0.02)
        with pytest.raises(InputError, match="fused scores"):
            tk.calibrate_threshold(services["both"])
        with pytest.raises(InputError, match="similarity"):
            tk.calibrate_threshold(services["cosine"], similarity="EUCLIDEAN")


@pytest.mark.parametrize(
    "labels",
    [
        pd.DataFrame({"score": [1.0]}),
        [0.5],
        pd.DataFrame({"score": ["a"], "match": [True]}),
    ],
)
def test_labels_that_cannot_be_read_are_an_error(labels):
    """Without a column, no frame, no numbers."""
    with pytest.raises(InputError):
        tk.calibrate_threshold(np.eye(20), labels)


@pytest.mark.parametrize(
    "matrix",
    [np.zeros((0, 3)), np.zeros((5, 3)), np.ones((1, 3)), np.full((4, 2), np.nan)],
)
def test_odd_vectors_have_no_namespace_to_speak_of(matrix):
    """Nothing to compare gives empty frames."""
    found = tk.calibrate_threshold(matrix)
    assert found.frame.empty
    assert found.curve.empty
    assert found._repr_html_()


def test_it_is_drawn():
    """Random pairs and both kinds of labels have a row each."""
    ax = tk.calibrate_threshold(
        to_frame(healthy_rows(200, seed=1)), labelled(500)
    ).plot()
    names = [label.get_text().split(" (")[0] for label in ax.get_yticklabels()]
    assert names == ["labelled matches", "labelled others", "random pairs"]


def hits_of_queries(queries: int, *, seed: int) -> pd.DataFrame:
    """Return ten judged hits per query, best first; some queries have mostly matches, others few."""
    rng = np.random.default_rng([seed, 7])
    ease = rng.normal(0, 2, queries)[:, None]
    scores = -np.sort(-rng.uniform(size=(queries, 10)), axis=1) + 0.05 * ease
    chance = 1 / (1 + np.exp(-(5 * (scores - 0.6) + ease)))
    return pd.DataFrame(
        {
            "query": np.repeat(np.arange(queries), 10),
            "score": scores.ravel(),
            "match": (rng.random(scores.shape) < chance).ravel(),
        }
    )


@pytest.mark.slow
def test_a_promise_of_hits_of_queries_is_kept():
    """With queries, a lower precision than promised is as rare as it should be; without them it is not."""
    every = hits_of_queries(50_000, seed=999).sort_values("score", ascending=False)
    scores = -every["score"].to_numpy()
    precision = np.cumsum(every["match"].to_numpy()) / np.arange(1, len(every) + 1)
    broken = {"with": 0, "without": 0}
    for seed in range(100):
        labels = hits_of_queries(150, seed=seed)
        # in random order, labels without queries do not show that they are hits
        labels = labels.sample(frac=1, random_state=seed)
        for kind, queries in (("with", labels["query"]), ("without", None)):
            value = threshold_for_precision(
                labels["score"],
                labels["match"],
                precision=0.5,
                queries=queries,
                seed=seed,
            ).value
            if value is not None:
                at = np.searchsorted(scores, -value, side="right") - 1
                broken[kind] += int(precision[max(at, 0)] < 0.5)
    assert broken["with"] <= 5
    assert broken["without"] > 5


def test_labels_may_name_their_query():
    """The threshold with queries is higher, and the reason counts them; a few queries promise nothing."""
    vectors = to_frame(healthy_rows(300, seed=1))
    labels = hits_of_queries(150, seed=1)
    found = tk.calibrate_threshold(vectors, labels, precision=0.5)
    assert "queries are matches" in found.verdict
    assert not found.look_like_hits
    shuffled = labels.drop(columns="query").sample(frac=1, random_state=1)
    plain = tk.calibrate_threshold(vectors, shuffled, precision=0.5)
    assert found.frame["threshold"][0] > plain.frame["threshold"][0]
    few = tk.calibrate_threshold(vectors, labels[labels["query"] < 9], precision=0.5)
    assert "the labels are hits of 9 queries" in few.verdict
    one = labels["query"].where(labels["query"] > 150)
    assert threshold_for_precision(
        labels["score"], labels["match"], precision=0.3, queries=one
    ).value
    with pytest.raises(InputError, match="queries"):
        threshold_for_precision([0.5, 0.6], [True, False], precision=0.8, queries=[1])


def test_hits_without_their_queries_are_doubted():
    """Scores that fall again and again raise a warning, and the verdict repeats it."""
    vectors = to_frame(healthy_rows(300, seed=1))
    labels = hits_of_queries(150, seed=1).drop(columns="query")
    with pytest.warns(UnexpectedResultWarning, match="query of each label"):
        found = tk.calibrate_threshold(vectors, labels, precision=0.5)
    assert "The labels look like hits of queries" in found.verdict
    with pytest.warns(UnexpectedResultWarning, match="query of each label"):
        threshold_for_precision(labels["score"], labels["match"], precision=0.5)


def test_queries_as_vectors_are_compared_with_stored_rows():
    """Questions score lower than stored rows do, and the threshold is that of questions."""
    rng = np.random.default_rng(1)
    shared = rng.normal(size=64)
    topics = rng.normal(size=(2000, 64))
    rows = 2 * shared + topics
    questions = topics[:50] + 0.3 * shared + 0.3 * rng.normal(size=(50, 64))
    stored = tk.calibrate_threshold(rows).frame.iloc[0]
    found = tk.calibrate_threshold(rows, queries=questions)
    row = found.frame.iloc[0]
    assert (stored["pairs"], row["pairs"]) == ("stored rows", "queries and rows")
    assert (stored["queries"], row["queries"]) == (0, 50)
    assert row["random_high"] < row["best_median"] < stored["random_high"]
    assert row["random_share"] == pytest.approx(0.001, rel=0.1)
    assert f"{row['best_low']:.2f}" in found.verdict
    with pytest.raises(InputError, match="queries"):
        tk.calibrate_threshold(rows, queries=questions[:, :3])
    with pytest.raises(InputError, match=r"queries.*vectors"):
        tk.calibrate_threshold(rows, queries=["why does it fail?"])


def test_texts_are_queries_of_an_index_with_a_model(sample_service):
    """Scores are those that the service returns; without queries a warning says what was compared."""
    questions = ["connection refused", "the disk is full", "restart the worker"]
    found = tk.calibrate_threshold(
        sample_service, queries=questions, namespace="runbooks"
    )
    hits = tk.query_text(sample_service, questions, namespace="runbooks", top_k=1000)
    row = found.frame.iloc[0]
    best = hits[hits["rank"] == 1]["score"]
    assert row["best_median"] == pytest.approx(best.median())
    assert row["random_median"] == pytest.approx(hits["score"].median())
    assert row["random_high"] == pytest.approx(hits["score"].quantile(0.999))
    with pytest.warns(UnexpectedResultWarning, match="queries=texts"):
        alone = tk.calibrate_threshold(sample_service, namespace="runbooks")
    assert alone.frame["pairs"].tolist() == ["stored rows"]


def test_only_the_highest_scores_of_many_rows_are_known():
    """The score that one pair in 1,000 reaches needs the highest scores alone, and the median all."""
    scores = np.sort(np.random.default_rng(0).random(10_000))
    every, highest = PairScores(scores, 10_000), PairScores(scores[-100:], 10_000)
    assert highest.reached_by(0.001) == pytest.approx(every.reached_by(0.001), abs=1e-3)
    assert np.isnan(highest.median)
    assert highest.share_from(scores[-50]) == every.share_from(scores[-50]) == 0.005


@pytest.mark.parametrize(
    "vectors",
    [np.ones((400, 8)), np.random.default_rng(0).normal(size=(3, 8))],
    ids=["all alike", "three pairs"],
)
def test_a_score_that_many_random_pairs_reach_is_no_threshold(vectors):
    """If a third or all of the random pairs reach the highest score, no threshold separates anything."""
    found = tk.calibrate_threshold(vectors)
    assert found.frame["threshold"].isna().all()
    assert "no threshold: " in found.verdict
    assert "1,000" not in found.verdict
    assert "reach the highest score" in found.frame["why"].iloc[0]
    # with labels, the reason of the threshold is another one
    labels = pd.DataFrame({"score": [0.9, 0.1], "match": [True, False]})
    labelled = tk.calibrate_threshold(vectors, labels)
    assert "the highest score of pairs is" in labelled.verdict
    assert "1,000" not in labelled.verdict
    found.plot()
