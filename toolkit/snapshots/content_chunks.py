"""Cut rows into chunks whose ends depend on the rows, so that unchanged rows make the same chunks again.

An export writes one file per chunk, and keeps the file of an earlier export that has the same rows. If each
file had a fixed number of rows, a new row at the beginning would change all files. Therefore a chunk ends
after a row whose fingerprint is divisible by a number (content-defined chunking, as in backup programs):

    fingerprints, divisor 4      5 3 8 | 7 1 6 4 | 9 2
    with a new row 2 in front    2 5 3 8 | 7 1 6 4 | 9 2

Only the first chunk has changed. Source: Muthitacharoen, Chen and Mazières (2001), A low-bandwidth network
file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import numpy as np
import pyarrow as pa

from toolkit.snapshots.row_index import Ids, fingerprints

_LEAST_SHARE: Final = 4
"""A chunk has at least this part of the usual number of rows, so that no file is tiny."""

_OTHER_BYTES: Final = 512
"""Assumed bytes of a row without the vector: ids, metadata and text."""


@dataclass(frozen=True)
class ChunkRule:
    """When a chunk ends. The rule is made of the schema only, so that it is the same for each export."""

    usual_rows: int
    most_bytes: int

    @classmethod
    def of_schema(cls, schema: pa.Schema, most_bytes: int) -> ChunkRule:
        """Return a rule for chunks of usually half of a size."""
        row_bytes = _OTHER_BYTES
        if "vector" in schema.names:
            kind = schema.field("vector").type
            if pa.types.is_fixed_size_list(kind):
                row_bytes += kind.list_size * 4

        return cls(max(1, most_bytes // 2 // row_bytes), most_bytes)

    def first_end(self, row_fingerprints: Ids, rows_before: int) -> int | None:
        """Return the number of rows until a chunk ends that has some rows already; None if it goes on.

        >>> marks = np.array([5, 3, 8, 7, 1, 6, 4], dtype=np.uint64).repeat(2).view("S16")
        >>> ChunkRule(usual_rows=4, most_bytes=1).first_end(marks, 0)
        3
        """
        numbers = np.ascontiguousarray(row_fingerprints).view(np.uint64)[::2]
        ends = np.flatnonzero(numbers % np.uint64(self.usual_rows) == 0) + 1
        ends = ends[ends + rows_before >= self.usual_rows // _LEAST_SHARE]
        if len(ends):
            return int(ends[0])

        return None


@dataclass
class Chunk:
    """Rows that will be one file."""

    tables: list[pa.Table] = field(default_factory=list)
    row_fingerprints: list[bytes] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    @property
    def content(self) -> str:
        """Return a hash of all rows and their order."""
        return sha256(b"".join(self.row_fingerprints)).hexdigest()

    def add(self, table: pa.Table, row_fingerprints: Ids) -> None:
        """Add rows at the end."""
        self.tables.append(table)
        self.row_fingerprints.append(row_fingerprints.tobytes())
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def extend(self, other: Chunk) -> None:
        """Add the rows of another chunk."""
        self.tables += other.tables
        self.row_fingerprints += other.row_fingerprints
        self.rows += other.rows
        self.bytes += other.bytes


class WaitingChunks:
    """Rows of several namespaces that are read in turn: one chunk is open per namespace."""

    def __init__(self, rule: ChunkRule) -> None:
        self._rule = rule
        self._open: dict[str, Chunk] = {}

    @property
    def bytes(self) -> int:
        """Return the bytes of all rows that wait."""
        return sum(chunk.bytes for chunk in self._open.values())

    @property
    def tables(self) -> list[pa.Table]:
        """Return all rows that wait."""
        return [table for chunk in self._open.values() for table in chunk.tables]

    def add(self, table: pa.Table) -> Iterator[Chunk]:
        """Add rows of one namespace, and yield the chunks that end."""
        if not table.num_rows:
            return

        namespace = table["namespace"][0].as_py()
        marks = fingerprints(table)
        while table.num_rows:
            chunk = self._open.setdefault(namespace, Chunk())
            end = self._rule.first_end(marks, chunk.rows)
            chunk.add(table.slice(0, end), marks[:end])
            if end is None:
                break
            yield self._open.pop(namespace)
            table, marks = table.slice(end), marks[end:]

        still_open = self._open.get(namespace)
        if still_open is not None and still_open.bytes >= self._rule.most_bytes:
            yield self._open.pop(namespace)

    def close(self) -> Iterator[Chunk]:
        """Yield all rows that wait. Small namespaces share a chunk."""
        joined = Chunk()
        for namespace in list(self._open):
            joined.extend(self._open.pop(namespace))
            if joined.bytes >= self._rule.most_bytes:
                yield joined
                joined = Chunk()

        if joined.rows:
            yield joined
