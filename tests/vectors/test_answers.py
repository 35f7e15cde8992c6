"""Pinned queries: rounding passes; another model, a deleted document and another filter do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.cli import main
from toolkit.errors import InputError
from toolkit.vectors.answers import rank_biased_overlap
from toolkit_service.demo.local_service import LocalService

ROWS, DIMENSION, QUERIES = 300, 32, 12


@pytest.fixture(scope="module")
def local() -> Iterator[LocalService]:
    """Run an embedded service with a dense index."""
    with LocalService(indexes=[f"docs:dense:{DIMENSION}:COSINE"]) as running:
        yield running


@pytest.fixture(scope="module")
def matrix() -> Any:
    """Return the vectors of the documents."""
    return np.random.default_rng(1).normal(size=(ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture
def pinned(local: LocalService, matrix: Any, tmp_path: Path) -> tuple[Any, Path]:
    """Store the documents, and pin queries with their answers."""
    service = tk.connect(vector_url=local.vector_urls["docs"], vector_token=local.token)
    store(service, matrix)
    path = tmp_path / "pinned.parquet"
    queries = np.random.default_rng(2).normal(size=(QUERIES, DIMENSION))
    asked = [
        tk.VectorQuery(vector=vector, filter="n < 200" if number < 3 else "")
        for number, vector in enumerate(queries)
    ]
    answers = tk.pin_queries(service, asked, path)
    assert len(answers) == QUERIES * 10
    return service, path


def store(service: Any, matrix: Any, *, first: int = 0) -> None:
    """Store documents with the number that a filter compares."""
    rows = [
        {
            "id": f"d{number}",
            "vector": vector.tolist(),
            "metadata": {"n": number + first},
        }
        for number, vector in enumerate(matrix)
    ]
    tk.upsert_vectors(service, rows)


@pytest.mark.parametrize("form", ["none", "float16", "4 decimals"])
def test_rounding_changes_no_answer(pinned: Any, matrix: Any, form: str) -> None:
    """The same vectors, and vectors that were rounded, give the same answers."""
    service, path = pinned
    if form == "float16":
        store(service, matrix.astype(np.float16))
    elif form == "4 decimals":
        store(service, np.round(matrix, 4))
    found = tk.check_queries(service, path)
    assert found.passes(0.9)
    assert not found.moved
    assert found.overlap.mean > 0.99


def test_another_model_fails(pinned: Any, matrix: Any) -> None:
    """Scores and order move, the verdict and the frame name how far."""
    service, path = pinned
    noise = np.random.default_rng(3).normal(size=matrix.shape)
    store(service, matrix + 0.5 * noise)
    found = tk.check_queries(service, path)
    assert found.moved
    assert not found.passes(0.1)
    assert found.order.high < 1
    assert "as with another model" in found.verdict
    assert len(found.worst(3)) == 3


def test_a_deleted_document_fails(pinned: Any) -> None:
    """It is named, once per query that had it, and in the verdict."""
    service, path = pinned
    answers = tk.check_queries(service, path).frame
    assert answers["lost"].map(len).sum() == 0
    gone = tk.query(service, vector=[1.0] * DIMENSION, top_k=300)["id"]
    first = tk.pin_queries(
        service, tk.VectorQuery(id="d7", top_k=5), path.with_name("one.parquet")
    )
    target = first["id"][1]
    assert target in set(gone)
    tk.delete_vectors(service, ids=[target], confirm=True)
    found = tk.check_queries(service, path.with_name("one.parquet"))
    assert found.deleted == (target,)
    assert found.frame["lost"][0] == (target,)
    assert len(found.frame["gained"][0]) == 1
    assert not found.passes(0.1)
    assert f"1 document no longer in the index: {target}" in found.verdict


def test_another_filter_fails(pinned: Any, matrix: Any) -> None:
    """If metadata changed, the queries with a filter have other answers; the others are the same."""
    service, path = pinned
    store(service, matrix, first=150)
    found = tk.check_queries(service, path)
    assert set(found.changed["query"]) == {0, 1, 2}
    assert not found.passes(0.9)
    assert not found.deleted
    assert not found.moved


def test_judgements_give_paired_differences(pinned: Any, matrix: Any) -> None:
    """Of nDCG and recall: zero without a change, below zero if relevant documents are not found."""
    service, path = pinned
    hits = tk.query(
        service, vector=np.random.default_rng(2).normal(size=(QUERIES, DIMENSION))
    )
    judged = hits[hits["rank"] <= 3][["query", "id"]]
    same = tk.check_queries(service, path, judgements=judged).judged
    assert same["difference"].tolist() == [0, 0]
    store(service, matrix[::-1])
    other = tk.check_queries(service, path, judgements=judged).judged
    assert other["measure"].tolist() == ["ndcg", "recall"]
    assert (other["high"] < 0).all()


def test_a_report_has_a_section_of_pinned_queries(pinned: Any, matrix: Any) -> None:
    """The queries are asked again. Changed answers are a step, and without a service there is a reason."""
    service, path = pinned
    vectors = tk.load_vectors(service, progress=False)
    same = tk.report_index(service, vectors, pinned=path, sample=5)
    sections = {section.name: section for section in same.sections}
    assert "are the same" in sections["answers"].sentence
    store(service, matrix[::-1])
    changed = tk.report_index(service, vectors, pinned=path, sample=5)
    assert changed.values["healthy"] is False  # noqa: PD011 - of a report
    assert "changed" in changed.verdict
    offline = tk.report_index(vectors, pinned=path)
    assert "pinned queries" in offline.values["not_checked"]  # noqa: PD011


def test_the_command_pins_queries_of_a_file(
    pinned: Any,
    tmp_path: Any,
    local: LocalService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without queries, or for a file that cannot be read, the status is 1 and no file is written."""
    monkeypatch.setenv("TOOLKIT_VECTOR_URL", local.vector_urls["docs"])
    monkeypatch.setenv("TOOLKIT_VECTOR_TOKEN", local.token)
    target = tmp_path / "new.parquet"
    assert main(["pin-queries", str(target)]) == 1
    missing = str(tmp_path / "missing.txt")
    assert main(["pin-queries", str(target), "--queries", missing]) == 1
    assert not target.exists()
    assert "one query per line" in capsys.readouterr().err


def test_the_command_ends_with_a_status(
    pinned: Any,
    matrix: Any,
    local: LocalService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """0 if the answers are good enough, 7 if not; a file of another kind is an error."""
    service, path = pinned
    monkeypatch.setenv("TOOLKIT_VECTOR_URL", local.vector_urls["docs"])
    monkeypatch.setenv("TOOLKIT_VECTOR_TOKEN", local.token)
    assert main(["check-queries", str(path), "--fail-below", "0.9"]) == 0
    assert "The answers of 12 queries are the same" in capsys.readouterr().out
    store(service, matrix[::-1])
    assert main(["check-queries", str(path), "--fail-below", "0.9"]) == 7
    assert main(["check-queries", str(path)]) == 0
    other = path.with_name("other.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(other)
    assert main(["check-queries", str(other)]) == 1
    assert "pin_queries" in capsys.readouterr().err


def test_what_cannot_be_pinned_is_an_error(pinned: Any, tmp_path: Path) -> None:
    """No queries, numbers, a folder that does not exist, a file that is missing."""
    service, path = pinned
    with pytest.raises(InputError, match="at least one query"):
        tk.pin_queries(service, [], path)
    with pytest.raises(InputError, match="position 0"):
        tk.pin_queries(service, [3], path)  # type: ignore[list-item]
    with pytest.raises(InputError, match="folder"):
        tk.pin_queries(service, tk.VectorQuery(id="d1"), tmp_path / "no" / "x.parquet")
    with pytest.raises(InputError, match="pin_queries wrote"):
        tk.check_queries(service, tmp_path / "missing.parquet")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abc", "abc", 1.0),
        ("abc", "xyz", 0.0),
        ("", "", 1.0),
        ("ab", "ba", 0.9),
        ("ab", "", 0.0),
    ],
)
def test_rank_biased_overlap(first: str, second: str, expected: float) -> None:
    """Equal rankings have 1, disjoint ones 0; an exchange of the first two costs the weight of depth 1."""
    assert rank_biased_overlap(first, second) == pytest.approx(expected)
