"""Hits by document, and rankings measured with judgements."""

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError


def _hits() -> pd.DataFrame:
    """Two queries whose first document has several chunks."""
    ids = ["a#1", "a#2", "b#1", "c#1", "b#2", "b#3", "c#1", "a#9"]
    return pd.DataFrame(
        {
            "query": pd.array([0] * 4 + [1] * 4, "Int64"),
            "rank": pd.array([1, 2, 3, 4] * 2, "Int64"),
            "id": ids,
            "score": [0.9, 0.8, 0.7, 0.6] * 2,
            "metadata": [f'{{"document": "{key[0]}"}}' for key in ids],
        }
    )


def _document(key: str) -> str:
    return key.partition("#")[0]


@pytest.mark.parametrize("by", ["document", _document])
def test_the_best_hit_of_each_document_is_kept(by):
    """By a field of the metadata and by a function of the id; ranks count documents."""
    found = tk.group_hits(_hits(), by)
    assert found["document"].tolist() == ["a", "b", "c", "b", "c", "a"]
    assert found["rank"].tolist() == [1, 2, 3, 1, 2, 3]
    assert found["ids"].tolist()[:2] == [("a#1", "a#2"), ("b#1",)]
    assert found["hits"].sum() == 8


def test_hits_without_a_document_are_kept():
    """Each is a row of its own, so that no hit is lost."""
    hits = _hits().drop(columns="query").head(4).assign(document=["a", None, None, "a"])
    assert tk.group_hits(hits)["ids"].tolist() == [("a#1", "c#1"), ("a#2",), ("b#1",)]
    assert tk.group_hits(hits.head(0)).empty


def test_hits_are_scored_by_documents_and_ids():
    """The rank of an expected id is that of the first relevant hit; a query without it has no rank."""
    judged = pd.DataFrame({"query": [0, 1, 1], "document": ["c", "a", "z"]})
    found = tk.score_hits(_hits(), judged, by="document")
    assert found["rank"].tolist() == [3, 3]
    assert found["recall"].tolist() == [1.0, 0.5]
    assert found["ndcg"][0] == pytest.approx(1 / np.log2(4))
    absent = tk.score_hits(_hits(), pd.DataFrame({"query": [1], "id": ["no"]}))
    assert absent["rank"].isna().all()
    assert absent["ndcg"].tolist() == [0.0]


def test_two_models_are_compared_across_namespaces(local_indexes):
    """The ids of both namespaces differ, and their documents do not."""
    service = local_indexes["dense"]
    angles = np.linspace(0.1, 1.2, 8)
    for namespace, order in (("model a", angles), ("model b", angles[::-1])):
        rows = [
            {
                "id": f"{namespace}-{number}",
                "vector": [float(np.cos(angle)), float(np.sin(angle))],
                "metadata": {"document": f"d{number}"},
            }
            for number, angle in enumerate(order)
        ]
        tk.upsert_vectors(service, rows, namespace=namespace, progress=False)
    before, after = (
        tk.query(
            service, vector=[[1.0, 0.0]] * 5, namespace=namespace, include_metadata=True
        )
        for namespace in ("model a", "model b")
    )
    judged = pd.DataFrame({"query": range(5), "document": ["d7"] * 5})
    found = tk.compare_hits(before, after, judged, by="document").set_index("measure")
    assert found.loc["reciprocal_rank", "before"] == pytest.approx(1 / 8)
    assert found.loc["reciprocal_rank", "after"] == 1
    assert found.loc["ndcg", "difference"] > 0
    assert found["queries"].tolist() == [5, 5, 5]
    for namespace in ("model a", "model b"):
        tk.delete_namespace(service, namespace, confirm=True)


@pytest.mark.parametrize("value", [-1, "much", None])
def test_a_relevance_that_is_no_number_is_named(value):
    """The error has the number of the row."""
    judged = pd.DataFrame({"query": [0], "id": ["a#1"], "relevance": [value]})
    with pytest.raises(InputError, match="row 0"):
        tk.score_hits(_hits(), judged)
    with pytest.raises(InputError, match="page"):
        tk.group_hits(_hits(), "page")
