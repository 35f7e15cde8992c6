"""Read row groups of a snapshot: units of work for every engine, with the times by which it skips some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from toolkit.base.errors import SnapshotError
from toolkit.tables.frames import plain_frame
from toolkit.tables.schemas import FAILED_AT, TIME


def parquet_format(filesystem: FileSystem) -> ds.ParquetFileFormat:
    """Return how Arrow reads files of a snapshot: pages are checked by their checksums.

    With `pre_buffer`, Arrow joins small reads to few large ones. An object store needs this, because each
    read is a request. But Arrow keeps all that it has read of a file until the end of the file: a scan of a
    file of 1.4 GB needs 2.0 GB of memory. Local files are read without it, in 0.6 GB and no slower.
    """
    return ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            pre_buffer=not isinstance(filesystem, LocalFileSystem),
            page_checksum_verification=True,
        )
    )


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """A unit of work: one row group of one file, which any process can read without the others.

    Attributes
    ----------
    path : str
        The file, as in `Snapshot.files`.
    number : int
        Position of the row group in the file, from 0.
    rows : int
    bytes : int
        Size of all columns before compression.
    earliest, latest : datetime or None
        First and last time of failure, in UTC. None for vectors, and if no row has a time.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import open_snapshot, write_snapshot
    >>> with TemporaryDirectory() as folder:
    ...     write_snapshot(pd.DataFrame({"label": ["billing", "shop"]}), folder)
    ...     tables = [unit.read() for unit in open_snapshot(folder).units()]
    >>> tables[0].to_pydict()
    {'label': ['billing', 'shop']}
    """

    path: str
    number: int
    rows: int
    bytes: int
    earliest: datetime | None = None
    latest: datetime | None = None
    _address: str = field(repr=False)
    _filesystem: FileSystem = field(repr=False)
    _schema: pa.Schema = field(repr=False)

    def __dask_tokenize__(self) -> tuple[str, int, str]:
        """Return the identity of the rows: a file never changes, and no name is used twice."""
        return self.path, self.number, str(self._schema)

    def check(self) -> None:
        """Read the end of the file. Raise an error if this process cannot read it."""
        with self._filesystem.open_input_file(self._address) as file:
            pq.read_metadata(file)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows as an Arrow table, with all columns or some.

        Raise SnapshotError if a later sync has replaced the file.
        """
        fragment = parquet_format(self._filesystem).make_fragment(
            self._address, filesystem=self._filesystem, row_groups=[self.number]
        )
        names = self._schema.names
        if columns is not None:
            names = list(columns)
        try:
            return fragment.to_table(schema=self._schema, columns=names)
        except FileNotFoundError:
            raise SnapshotError(
                f"reading {self.path}",
                got="no file",
                expected="the files of the snapshot as it was opened",
                next_step="A sync has replaced them: call open_snapshot again.",
            ) from None


def read_partition(
    unit: RowGroup,
    columns: Sequence[str] | None = None,
    *,
    first: datetime | None = None,
    last: datetime | None = None,
) -> pd.DataFrame:
    """Return the rows of a unit as a partition. Dask passes the columns that it needs."""
    names = None
    if columns is not None:
        names = [*columns]
        if (first or last) and FAILED_AT not in names:
            names.append(FAILED_AT)

    table = unit.read(names)
    if first is not None:
        times = table[FAILED_AT]
        table = table.filter(pc.greater_equal(times, pa.scalar(first, times.type)))

    if last is not None:
        times = table[FAILED_AT]
        table = table.filter(pc.less_equal(times, pa.scalar(last, times.type)))

    if columns is not None:
        table = table.select([*columns])
    return plain_frame(table)


def overlaps(unit: RowGroup, first: datetime | None, last: datetime | None) -> bool:
    """Return whether a unit can have rows of a time, by the statistics."""
    if first is not None and unit.latest is not None and unit.latest < first:
        return False
    return not (last is not None and unit.earliest is not None and unit.earliest > last)


def times_of(
    group: pq.RowGroupMetaData, column: int | None
) -> tuple[datetime | None, datetime | None]:
    """Return the first and last time of failure in a row group, by the statistics."""
    if column is None:
        return None, None

    statistics = group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return None, None

    return statistics.min, statistics.max


def bounds_of(metadata: pq.FileMetaData) -> pc.Expression | None:
    """Return the times of all rows in a file as an expression, so that a query can leave the file closed.

    None if a row has no time, or if the statistics do not tell.
    """
    names = metadata.schema.to_arrow_schema().names
    if FAILED_AT not in names:
        return None

    column = names.index(FAILED_AT)
    spans = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        earliest, latest = times_of(group, column)
        if earliest is None or latest is None:
            return None
        if group.column(column).statistics.null_count != 0:
            return None
        spans.append((earliest, latest))

    if not spans:
        return None

    first, last = (
        pa.scalar(time, TIME)
        for time in (min(span[0] for span in spans), max(span[1] for span in spans))
    )
    return (pc.field(FAILED_AT) >= first) & (pc.field(FAILED_AT) <= last)
