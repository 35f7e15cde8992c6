"""Functions of single rows read snapshots, DuckDB relations and Dask frames in parts, with one result."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import toolkit as tk
from tests.widgets.conftest import ordinary
from toolkit.errors import InputError
from toolkit.tables import frame_parts
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

ENGINES: dict[str, Callable[[Any], Any]] = {
    "snapshot": lambda snapshot: snapshot,
    "arrow dataset": lambda snapshot: snapshot.to_arrow(),
    "duckdb": lambda snapshot: snapshot.to_duckdb(duckdb.connect()),
    "dask": lambda snapshot: snapshot.to_dask().repartition(npartitions=2),
}
FUNCTIONS: dict[str, Callable[[Any, Path], pd.DataFrame]] = {
    "explode_headers": lambda frame, _: tk.explode_headers(frame),
    "explode_labels": lambda frame, _: tk.explode_labels(frame),
    "export_csv": lambda frame, folder: _exported(frame, folder / "a.csv"),
    "write_snapshot": lambda frame, folder: _written(frame, folder / "copy"),
}


def _exported(frame: Any, path: Path) -> pd.DataFrame:
    tk.export_csv(frame, path)
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    return pd.read_csv(path, dtype=str)


def _written(frame: Any, path: Path) -> pd.DataFrame:
    tk.write_snapshot(frame, path)
    written = tk.read_snapshot(path)
    # times of DuckDB have microseconds
    times = written.select_dtypes("datetimetz")
    return written.assign(**{str(name): times[name].dt.as_unit("ms") for name in times})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of failures with headers, labels and a value that a spreadsheet takes for a formula."""
    failures = frame_from_rows(ordinary(30), FAILURES)
    failures["labels"] = ['["eu","beta"]', None, '["=1+1"]'] * 10
    failures["headers"] = ['{"Accept":["x","y"]}', None, '{"A":["1"]}'] * 10
    path = tmp_path_factory.mktemp("parts") / "failures"
    tk.write_snapshot(failures, path)
    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_have_the_result_of_the_whole_frame(
    engine: str, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, their order, and the bytes of a file are those of a pandas frame, in parts of 7 rows."""
    monkeypatch.setattr(frame_parts, "MOST_ROWS", 7)
    frame = ENGINES[engine](tk.open_snapshot(stored))
    for name, function in FUNCTIONS.items():
        folders = [tmp_path / name / "whole", tmp_path / name / "parts"]
        for folder in folders:
            folder.mkdir(parents=True)
        expected = function(tk.read_snapshot(stored), folders[0])
        with dask.config.set(scheduler="synchronous"):
            found = function(frame, folders[1])
        shared = [column for column in expected if column in found]
        assert {*expected} ^ {*found} <= {"signature"}, name
        pd.testing.assert_frame_equal(found[shared], expected[shared])


def test_a_part_has_a_bounded_number_of_rows() -> None:
    """A batch of more rows is divided, and small batches are joined."""
    tables = [pa.table({"n": range(size)}) for size in (1, 120_000, 2)]
    parts = frame_parts.frame_parts(ds.dataset(pa.concat_tables(tables)))
    assert parts is not None
    sizes = list(parts.map(len, ["n"]))
    assert max(sizes) <= frame_parts.MOST_ROWS
    assert sum(sizes) == 120_003


def test_a_missing_column_is_named_before_rows_are_read(stored: Path) -> None:
    """The error for a snapshot is that for a frame."""
    dataset = tk.open_snapshot(stored).to_arrow()
    without = dataset.replace_schema(
        pa.schema([field for field in dataset.schema if field.name != "labels"])
    )
    with pytest.raises(InputError) as caught:
        tk.explode_labels(without)
    assert "labels" in str(caught.value)


def test_columns_of_other_lists_stay(tmp_path: Path) -> None:
    """A dataset may have lists of text next to the columns that a function reads."""
    rows = pa.table({"dlq_id": ["a"], "labels": ['["x"]'], "tags": [["u", "v"]]})
    assert tk.explode_labels(ds.dataset(rows))["label"].tolist() == ["x"]
    tk.export_csv(ds.dataset(rows), tmp_path / "a.csv")
    assert "tags" in pd.read_csv(tmp_path / "a.csv")


def test_few_files_are_in_memory_while_parts_are_processed(tmp_path):
    """If each part takes some time, files are not all read ahead: 16 files of 20 MB."""
    numbers = np.random.default_rng(1).random(50_000 * 100, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 100)
    for file in range(16):
        pq.write_table(pa.table({"vector": vectors}), tmp_path / f"{file:02}.parquet")
    parts = frame_parts.frame_parts(ds.dataset(tmp_path))
    before, most = pa.total_allocated_bytes(), 0

    def rows_of(part):
        nonlocal most
        time.sleep(0.05)
        most = max(most, pa.total_allocated_bytes() - before)
        return len(part)

    assert sum(parts.map(rows_of, ["vector"])) == 800_000
    assert most < 120e6


def test_a_dataset_with_a_filter_and_a_partitioned_one_are_read(tmp_path):
    """A filter of Arrow applies to rows of files, and values of a partition are only in names of folders."""
    table = pa.table({"id": ["a", "b", "c"], "lang": ["en", "de", "en"]})
    ds.write_dataset(
        table, tmp_path, format="parquet", partitioning=["lang"], partitioning_flavor="hive"
    )  # fmt: skip
    dataset = ds.dataset(tmp_path, partitioning="hive")
    for source, expected in (
        (dataset, {"a": "en", "b": "de", "c": "en"}),
        (dataset.filter(ds.field("lang") == "en"), {"a": "en", "c": "en"}),
    ):
        parts = frame_parts.frame_parts(source)
        found = pd.concat(parts.map(lambda part: part, ["id", "lang"]))
        assert dict(zip(found["id"], found["lang"], strict=True)) == expected
