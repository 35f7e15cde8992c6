"""Wrong arguments of vector functions: errors name the id, the row or the field, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning, UnprocessableError
from toolkit_service.demo.local_service import LocalService

ROWS = [
    {
        "id": f"doc-{number}",
        "data": f"text {number} about topic {number % 4}",
        "metadata": {"topic": f"t{number % 4}"},
    }
    for number in range(20)
]


@pytest.fixture(scope="module")
def indexes():
    """An index with a model and one without, each with vectors in the namespace docs."""
    names = ["texts:dense:64:COSINE:hashing", "numbers:dense:64:COSINE"]
    with LocalService(indexes=names) as local:
        services = {
            name: tk.connect(vector_url=address, vector_token=local.token, environ={})
            for name, address in local.vector_urls.items()
        }
        tk.upsert_vectors(services["texts"], ROWS, namespace="docs", progress=False)
        tk.upsert_vectors(
            services["numbers"], _rows(1), namespace="docs", progress=False
        )
        yield services


def _rows(seed: int) -> list[dict[str, Any]]:
    vectors = np.random.default_rng(seed).normal(size=(len(ROWS), 64))
    return [row | {"vector": vector} for row, vector in zip(ROWS, vectors, strict=True)]


@pytest.mark.parametrize(
    ("namespace", "reason"), [("doc", "Did you mean 'docs'"), ("", "Name one that has")]
)
def test_queries_without_any_answer_are_not_pinned(
    indexes, tmp_path, namespace, reason
):
    """The answers would stay the same for ever; the error explains why there is none."""
    path = tmp_path / "pinned.parquet"
    with pytest.raises(InputError, match=f"got no answer to 2 queries.*{reason}"):
        tk.pin_queries(
            indexes["texts"], ["topic 1", "text 3"], path, namespace=namespace
        )
    assert not path.exists()


def test_some_queries_without_an_answer_are_named(indexes, tmp_path):
    """When they are pinned, and in the verdict of each check."""
    path = tmp_path / "pinned.parquet"
    queries = [
        tk.VectorQuery(data="topic 1", namespace="docs", filter=condition)
        for condition in ("topic = 't1'", "topic = 'T1'")
    ]
    with pytest.warns(
        UnexpectedResultWarning, match=r"1 of 2 queries have no answer: 1 \("
    ):
        tk.pin_queries(indexes["texts"], queries, path)
    found = tk.check_queries(indexes["texts"], path)
    assert found.unanswered == 1
    assert "1 query had no answer when pinned" in found.verdict
    assert found.passes()


def test_vectors_of_another_model_are_no_misses(indexes):
    """If scores are not those of the passed vectors, the recall is not known."""
    others = pd.DataFrame(_rows(2)).assign(namespace="docs")
    audit = tk.audit_recall(indexes["numbers"], others)
    assert audit.trusted is None
    assert audit.scored_otherwise > audit.hits / 2 > 0
    assert "not the vectors of the index" in audit.verdict
    assert audit.by["judged"].tolist() == ["unknown"]
    assert "worst queries" not in audit._repr_html_()
    own = tk.audit_recall(
        indexes["numbers"], pd.DataFrame(_rows(1)).assign(namespace="docs")
    )
    assert own.scored_otherwise == 0
    assert own.overall.mean == 1


def test_some_vectors_that_changed_are_counted(indexes):
    """If a few rows are stale, the verdict counts the hits with another score."""
    rows = _rows(1)
    rows[3]["vector"] = -rows[3]["vector"]
    audit = tk.audit_recall(
        indexes["numbers"], pd.DataFrame(rows).assign(namespace="docs")
    )
    assert 0 < audit.scored_otherwise < audit.hits / 2
    assert "returned hits have another score than the passed vectors" in audit.verdict


def test_a_rejected_length_is_that_of_a_row(indexes):
    """The service names the length alone, so the note has the position and the id."""
    rows = _rows(3)
    rows[7]["vector"] = rows[7]["vector"][:63]
    with pytest.raises(UnprocessableError) as raised:
        tk.upsert_vectors(indexes["numbers"], rows, namespace="new", progress=False)
    notes = " ".join(raised.value.__notes__)
    assert "position 7, id 'doc-7', with 63" in notes


def test_an_update_of_unknown_ids_names_the_namespace(indexes):
    """A misspelt namespace looks like ids that are missing."""
    change = {"id": "doc-1", "metadata": {"seen": True}}
    with pytest.warns(
        UnexpectedResultWarning, match="'doc-1' of namespace 'doc'.*mean 'docs'"
    ):
        assert tk.update_vectors(indexes["texts"], change, namespace="doc") == 0


def test_a_deletion_of_unknown_ids_names_them(indexes):
    """If the namespace has vectors, the ids are misspelt."""
    with pytest.warns(UnexpectedResultWarning, match="none with these ids: 'doc-99'"):
        tk.delete_vectors(indexes["texts"], "doc-99", namespace="docs", confirm=True)


def _of_document(key: str) -> str:
    return key.split("!")[1]


HITS = pd.DataFrame(
    {"rank": [1], "id": ["doc-1"], "score": [0.9], "metadata": ['{"topic": "t1"}']}
)
JUDGED = pd.DataFrame({"query": [0], "ids": ["doc-1"]})
STATE = pd.DataFrame(_rows(1)).assign(namespace="docs")
MANY = pd.concat([STATE] * 4, ignore_index=True)
MANY["id"] = [f"doc-{number}" for number in range(len(MANY))]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: tk.group_hits(HITS, _of_document), "the id 'doc-1'.*IndexError"),
        (lambda: tk.group_hits(HITS, "topc"), "Did you mean 'topic'"),
        (lambda: tk.score_hits(HITS, JUDGED), "Did you mean 'ids'"),
        (
            lambda: tk.compare_vectors(MANY.head(40), MANY, groups=_of_document),
            "the id 'doc-[0-9]+'.*IndexError",
        ),
        (
            lambda: tk.calibrate_threshold(STATE, precision=90),
            "For 90 %, pass precision=0.9",
        ),
        (
            lambda: tk.calibrate_threshold(STATE, confidence=95),
            "For 95 %, pass confidence=0.95",
        ),
        (
            lambda: tk.calibrate_threshold(
                STATE, pd.DataFrame({"score": [0.1, 0.2], "match": [True, "no"]})
            ),
            "labels at position 1: got 'no'",
        ),
    ],
)
def test_an_error_names_the_value_and_what_to_do(call, reason):
    """Functions that fail for an id, misspelt fields and columns, percents, labels that are words."""
    with pytest.raises(InputError, match=reason):
        call()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": 7, "vector": [1.0]}, r"str\(id\)"),
        ({"id": "a", "vector": [1.0], "colour": "red"}, "belong in metadata"),
    ],
)
def test_a_row_of_another_form_has_a_next_step(indexes, row, reason):
    """Numbers as ids, and columns that no row has."""
    with pytest.raises(InputError, match=reason):
        tk.upsert_vectors(indexes["numbers"], [row], namespace="new")


def test_queries_of_an_audit_of_recall_are_named(indexes):
    """One vector is one query; the position of a vector that is not finite is named."""
    stored = pd.DataFrame(_rows(1)).assign(namespace="docs")
    one = np.asarray(_rows(1)[0]["vector"], dtype=np.float32)
    assert len(tk.audit_recall(indexes["numbers"], stored, queries=one).frame) == 1
    unusable = np.stack([one, one * np.nan])
    with pytest.raises(InputError, match="queries at position 1"):
        tk.audit_recall(indexes["numbers"], stored, queries=unusable)


def test_judgements_of_pinned_queries_name_the_missing_column(indexes, tmp_path: Path):
    """A column that is misspelt is suggested."""
    path = tmp_path / "pinned.parquet"
    tk.pin_queries(indexes["texts"], "topic 1", path, namespace="docs")
    with pytest.raises(InputError, match=r"without the column 'id'.*'ids'"):
        tk.check_queries(indexes["texts"], path, judgements=JUDGED)
