"""Reading a dataset in batches keeps only a few of them in memory, and returns all rows in order."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from toolkit.tables.dataset_batches import dataset_batches

FILES = 6
GROUPS = 4
ROWS = 500
"""Rows of a row group."""
BODY = 5_000
"""Characters of a body, so that a row group has 2.5 MB."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ds.Dataset:
    folder: Path = tmp_path_factory.mktemp("files")
    for number in range(FILES):
        first = number * GROUPS * ROWS
        numbers = range(first, first + GROUPS * ROWS)
        # zstd packs these bodies to almost nothing, so that files are read faster than batches are used
        table = pa.table({"number": numbers, "body": [f"{n:0{BODY}}" for n in numbers]})
        pq.write_table(
            table, folder / f"{number}.parquet", row_group_size=ROWS, compression="zstd"
        )
    return ds.dataset(folder)


def test_few_batches_wait_while_one_is_used_slowly(dataset):
    before = pa.total_allocated_bytes()
    most = rows = 0
    for batch in dataset_batches(dataset, ["number", "body"], rows=ROWS, read_ahead=2):
        time.sleep(0.02)
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)

    assert rows == FILES * GROUPS * ROWS
    one_file = GROUPS * ROWS * BODY
    assert most < 2 * one_file


def test_few_batches_wait_if_rows_are_chosen(dataset):
    before = pa.total_allocated_bytes()
    most = 0
    for _ in dataset_batches(
        dataset, ["body"], rows=ROWS, read_ahead=2, condition=ds.field("number") > 0
    ):
        time.sleep(0.02)
        most = max(most, pa.total_allocated_bytes() - before)

    assert most < 2 * GROUPS * ROWS * BODY


def test_all_rows_are_returned_in_order(dataset):
    batches = dataset_batches(dataset, ["number"], rows=70, read_ahead=2)
    assert _numbers(batches) == list(range(FILES * GROUPS * ROWS))


def test_chosen_rows_are_returned_in_order(dataset):
    chosen = ds.field("number") >= 1_500
    batches = dataset_batches(
        dataset, ["number"], rows=70, read_ahead=2, condition=chosen
    )
    of_filtered = dataset_batches(
        dataset.filter(chosen), ["number"], rows=70, read_ahead=2
    )
    expected = list(range(1_500, FILES * GROUPS * ROWS))
    assert _numbers(batches) == expected
    assert _numbers(of_filtered) == expected


def test_tables_in_memory_are_read_as_well():
    table = ds.dataset(pa.table({"a": [1, 2], "b": [3, 4]}))
    (batch,) = dataset_batches(table, ["b"], rows=10, read_ahead=2)
    assert batch.to_pydict() == {"b": [3, 4]}


def _numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch["number"].to_pylist()]
