"""Reading the rows of a Parquet file without taking more memory than there is, whatever the file claims.

A few megabytes of Parquet can hold 100 million rows, or one long text a million times. What a file says of
its counts and sizes is added up before anything is decoded, and rows are decoded in pieces of bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.loading.memory import available_memory, check_memory

PIECE_BYTES: Final = 256 << 20
"""A row group that may be larger than this when it is decoded is read in pieces of about this size."""

_FEW_PIECES: Final = 64
"""A row group that becomes so many pieces at most is read in them without a look at its longest texts."""

_WIDTHS: Final = {
    "BOOLEAN": 0.125,
    "INT32": 4,
    "INT64": 8,
    "INT96": 8,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 4,
}
"""Bytes of a value in memory; of a text, where it ends."""
_NESTED_TEXT: Final = 1 << 20
"""Bytes that a text within a list has at most, which cannot be looked at: those of a page."""


class DataFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A Parquet file whose pages are checked, and whose rows come in pieces of a bounded size.

    Parameters
    ----------
    source : file
        Open for reading. It stays open.
    """

    def __init__(self, source: BinaryIO | pa.BufferReader) -> None:
        super().__init__(source, page_checksum_verification=True)
        self._file = source

    @property
    def decoded_bytes(self) -> int:
        """Bytes that all rows take at least when they are decoded, as the file's own numbers say."""
        groups = (self.metadata.row_group(number) for number in range(self.metadata.num_row_groups))
        found = sum(_least(group.column(place)) for group in groups for place in range(group.num_columns))
        # an array in a list of fixed size takes its place where there is none
        return int(max(found, self.metadata.num_rows * self._fixed))

    def tables(self) -> Iterator[pa.Table]:
        """The rows in pieces: the row groups, those that may be large in several.

        Raises
        ------
        NotEnoughMemoryError
            When a single row would not fit.
        """
        for number in range(self.num_row_groups):
            rows, size = self.metadata.row_group(number).num_rows, self._rows_at_once(number)
            if rows <= size:
                yield self.read_row_group(number).replace_schema_metadata(None)
                continue
            for batch in self.iter_batches(size, row_groups=[number]):
                yield pa.Table.from_batches([batch]).replace_schema_metadata(None)

    @property
    def _fixed(self) -> float:
        return float(sum(_fixed(field.type) for field in self.schema_arrow))

    def _rows_at_once(self, number: int) -> int:
        """Rows of a group that are decoded at once: as many as fit, each text as long as it may be."""
        group = self.metadata.row_group(number)
        rows = max(1, group.num_rows)
        columns = [group.column(place) for place in range(group.num_columns)]
        texts = [column for column in columns if column.physical_type == "BYTE_ARRAY"]
        width: float = max(1.0, self._fixed, sum(map(_least, columns)) / rows)  # 1: there may be no columns
        # each text as long as all of its column: enough for small groups, without reading any dictionary
        most: float = width + sum(
            column.total_uncompressed_size * column.num_values / rows for column in texts
        )
        if rows * most <= _FEW_PIECES * PIECE_BYTES:
            return max(1, math.floor(PIECE_BYTES / most))
        nested = [column for column in texts if "." in column.path_in_schema]
        width += sum(
            min(_NESTED_TEXT, column.total_uncompressed_size) * column.num_values / rows for column in nested
        )
        width += self._longest(number, [column.path_in_schema for column in texts if column not in nested])
        check_memory(
            "reading a row of a data file",
            needed=width,
            limit=available_memory(),
            next_step="See that the file is one that the toolkit wrote.",
        )
        return max(1, math.floor(PIECE_BYTES / width))

    def _longest(self, number: int, names: list[str]) -> int:
        """Bytes of the longest texts in the dictionaries of some columns, read with a single row."""
        if not names:
            return 0
        again = pq.ParquetFile(self._file, metadata=self.metadata, read_dictionary=names)
        row = next(again.iter_batches(1, row_groups=[number], columns=names), None)
        if row is None:
            return 0
        found = (column.dictionary for column in row.columns if pa.types.is_dictionary(column.type))
        return sum(pc.max(pc.binary_length(texts)).as_py() or 0 for texts in found)


def _least(column: pq.ColumnChunkMetaData) -> float:
    """Bytes that the values of a column take: those it claims, and at least a number or an end each."""
    numbers = column.num_values * _WIDTHS.get(column.physical_type, 1)
    return max(float(numbers), float(column.total_uncompressed_size))


def _fixed(kind: pa.DataType) -> float:
    """Bytes that each row takes whatever is in it."""
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size) * _fixed(kind.value_type)
    return float(kind.bit_width) / 8 if pa.types.is_primitive(kind) else 4.0
