"""Audits of vectors have one result for a frame, a snapshot, a DuckDB relation and a Dask frame."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import dask
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.tables import frame_parts
from toolkit.vectors.row_draws import draw_limit, row_draws
from toolkit.vectors.row_summaries import BATCH, Summarizing
from toolkit.vectors.vector_rows import VectorTables

ENGINES: dict[str, Callable[[Any], Any]] = {
    "snapshot": lambda snapshot: snapshot,
    "duckdb": lambda snapshot: snapshot.to_duckdb(duckdb.connect()),
    "dask": lambda snapshot: snapshot.to_dask().repartition(npartitions=3),
}
AUDITS: dict[str, Callable[[Any], Any]] = {
    "audit_vectors": lambda vectors: tk.audit_vectors(vectors).frame,
    "audit of a sample": lambda vectors: (
        tk.audit_vectors(vectors, sample=20).similarities
    ),
    "compare_vectors": lambda vectors: (
        tk.compare_vectors(_frame(seed=2), vectors).frame
    ),
    "project_vectors": lambda vectors: tk.project_vectors(vectors).frame,
}


def _frame(seed: int) -> pd.DataFrame:
    """Sixty vectors, of which two are equal and one is missing."""
    random = np.random.default_rng(seed)
    rows: list[Any] = list(random.normal(size=(60, 3)).astype(np.float32))
    rows[7], rows[59] = rows[3], None
    frame = pd.DataFrame(
        {"namespace": "", "id": [f"v{number}" for number in range(60)]}
    )
    frame["vector"] = pd.array(rows, dtype="vector[float32, 3]")
    frame["metadata"] = [f'{{"n": {number % 4}}}' for number in range(60)]
    frame["data"] = [f"text {number % 50}" for number in range(60)]
    return frame


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The vectors as a snapshot."""
    path = tmp_path_factory.mktemp("vectors") / "index"
    tk.write_snapshot(_frame(seed=1), path)
    return tk.open_snapshot(path)


@pytest.mark.parametrize("engine", ENGINES)
def test_audits_have_the_result_of_the_frame(
    engine: str, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of the result are equal, in the same order, if vectors are read in parts of 16."""
    monkeypatch.setattr(frame_parts, "MOST_ROWS", 16)
    vectors = ENGINES[engine](snapshot)
    with dask.config.set(scheduler="synchronous"):
        for audit in AUDITS.values():
            pd.testing.assert_frame_equal(audit(vectors), audit(_frame(seed=1)))


def test_a_summary_is_much_smaller_than_the_vectors() -> None:
    """The workers send a few bytes per row, and vectors of drawn rows only."""
    rows = 2_000
    random = np.random.default_rng(0)
    table = pa.table({
        "id": [f"v{number}" for number in range(rows)],
        "vector": pa.FixedSizeListArray.from_arrays(
            pa.array(random.normal(size=rows * 384).astype(np.float32)), 384
        ),
    })  # fmt: skip
    tables = VectorTables(table, doing="testing")
    limit = draw_limit(rows, 5, seed=0)
    summary = Summarizing(tables.reader, limit, seed=0)(table, 0)
    drawn = sum(len(positions) for positions, _ in summary.sampled)
    assert drawn == 5
    assert len(pickle.dumps(summary)) < 200 * rows < table.nbytes / 7


@pytest.mark.parametrize("sample", [1, 7, 60, 100])
def test_workers_draw_the_rows_that_one_process_draws(sample: int) -> None:
    """The number of drawn rows is exact, and the draw of a row does not depend on the parts."""
    limit = draw_limit(60, sample, seed=3)
    drawn = row_draws(np.arange(60), 3) < limit
    assert drawn.sum() == min(sample, 60)
    parts = [row_draws(np.arange(start, start + 20), 3) for start in (0, 20, 40)]
    np.testing.assert_array_equal(np.concatenate(parts) < limit, drawn)


def test_vectors_of_another_engine_are_read_in_batches(
    snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relation is counted without its vectors, and no batch has more rows than a part."""
    monkeypatch.setattr(frame_parts, "MOST_ROWS", 16)
    tables = VectorTables(ENGINES["duckdb"](snapshot), doing="testing")
    assert tables.rows == 60
    sizes = [len(batch.ids) for batch in tables]
    assert sum(sizes) == 60
    assert max(sizes) <= 16 < BATCH


def test_metadata_can_be_mappings():
    """Rows as your program makes them, with other fields and types by row, are read as those of a service."""
    rng = np.random.default_rng(0)
    fields = [{"topic": "a", "n": {"m": [1]}}, {"topic": 3}, None, {}]
    frame = pd.DataFrame(
        {
            "id": [f"k{row}" for row in range(40)],
            "vector": list(rng.normal(size=(40, 8)).astype(np.float32)),
            "metadata": fields * 10,
        }
    )
    stored = frame.assign(
        metadata=[
            None if cell is None else json.dumps(cell) for cell in frame["metadata"]
        ]
    )
    mixed = frame.assign(
        metadata=stored["metadata"].where(frame.index % 3 > 0, frame["metadata"])
    )

    for given in (frame, mixed):
        assert tk.compare_vectors(stored, given).frame.empty
        pd.testing.assert_frame_equal(
            tk.audit_vectors(given).frame, tk.audit_vectors(stored).frame
        )
        topics = tk.project_vectors(given).values("topic")
        assert (
            topics.tolist()[:2]
            == tk.project_vectors(stored).values("topic").tolist()[:2]
        )

    with pytest.raises(InputError, match="metadata"):
        tk.audit_vectors(frame.assign(metadata=[{"n": float("nan")}] * 40))
