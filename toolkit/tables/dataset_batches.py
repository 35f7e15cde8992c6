"""Read a dataset of Parquet files in batches, of which only a few wait in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem


def dataset_batches(
    dataset: ds.Dataset,
    names: Sequence[str],
    *,
    rows: int,
    read_ahead: int,
    condition: ds.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with some columns in batches, in the order of the files.

    A scan of all files reads up to 2 GB ahead while a batch is processed, whatever the options. So files on
    this machine are scanned one after the other, and reading ahead ends with the file. On an object store,
    reading ahead saves a wait per file.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        The files.
    names : sequence of str
        Columns to read.
    rows : int
        Most rows of a batch.
    read_ahead : int
        Batches that are read ahead, and files on an object store. The default of Arrow, 16, takes a gigabyte.
    condition : pyarrow.dataset.Expression, optional
        Only rows for which this is true are returned. Parts of files without such rows are not read.

    Yields
    ------
    pyarrow.RecordBatch
        Batches with the types of the dataset.
    """
    options: dict[str, Any] = {
        "columns": list(names),
        "batch_size": rows,
        "batch_readahead": read_ahead,
        "filter": condition,
    }
    files = _local_files(dataset, condition)
    if files is None:
        yield from dataset.to_batches(fragment_readahead=read_ahead, **options)
        return

    for file in files:
        yield from file.to_batches(schema=dataset.schema, **options)


def _local_files(
    dataset: ds.Dataset, condition: ds.Expression | None
) -> list[ds.Fragment] | None:
    """Return the files of a dataset on this machine; None if the dataset has to be scanned as one."""
    if not isinstance(getattr(dataset, "filesystem", None), LocalFileSystem):
        return None

    try:
        return list(dataset.get_fragments(condition))
    except ValueError:
        # a dataset with a filter of its own has no list of files, because they also have other rows
        return None
