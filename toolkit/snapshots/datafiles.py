"""One Parquet file of a snapshot: written in bounded memory, proven by reading it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.errors import SnapshotDamagedError, SnapshotError
from toolkit.snapshots.columns import extension_column
from toolkit.snapshots.decoding import DataFile
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.hashing import HashingFile, digest
from toolkit.snapshots.manifest import SCHEMA_VERSION, Kind, ListedFile

METADATA: Final = b"toolkit"
"""Key of our JSON in a file's metadata."""

RESTORE: Final = (
    "Restore the file from a backup. Failures: sync_failures(..., repair=True) keeps the rows that can still "
    "be read and adds again what is still in the queue. Other snapshots: write them again."
)
"""What a user does about a file that is lost."""

GROUP_BYTES: Final = 64 << 20
"""Row groups are written when this many bytes of Arrow data are waiting."""


class RowWriter:
    """A Parquet file in the making: tables go in, row groups of about `group_bytes` come out.

    Parameters
    ----------
    file : HashingFile
    schema : pyarrow.Schema
        The columns, exactly.
    group_bytes : int
        Bytes of Arrow data in a row group.
    """

    def __init__(self, file: HashingFile, schema: pa.Schema, *, group_bytes: int = GROUP_BYTES) -> None:
        self.schema = schema
        self.rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._group_bytes = group_bytes
        plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
        self._parquet = pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=plain,  # floats of vectors do not repeat: trying costs time and gains nothing
            write_page_checksum=True,
        )

    def write(self, table: pa.Table) -> None:
        """Add rows; the table has the schema's columns."""
        self.rows += table.num_rows
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._group_bytes:
            self._write_group()

    def finish(self, facts: dict[str, Any]) -> None:
        """Write what waits, the facts as JSON metadata, and the footer."""
        self._write_group()
        text = json.dumps(facts, ensure_ascii=True, sort_keys=True)
        self._parquet.add_key_value_metadata({METADATA.decode(): text})
        self._parquet.close()

    def give_up(self) -> None:
        """Leave the file as it is. Without this, the encoder would write its footer when it is collected."""
        self._parquet.is_open = False

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
            if table.num_rows:
                self._parquet.write_table(table, row_group_size=table.num_rows)


def facts(kind: Kind, receipt: dict[str, Any] | None) -> dict[str, Any]:
    """What the metadata of a data file says."""
    return {"kind": kind, "schema_version": SCHEMA_VERSION, "receipt": receipt}


def prove(folder: SnapshotStore, draft: str, *, sha256: str, rows: int | None = None) -> None:
    """Read a file that was just written again, and raise unless it is what was meant.

    Parameters
    ----------
    folder : SnapshotStore
    draft : str
        Name of the file.
    sha256 : str
        Hash of what was written, in hex.
    rows : int, optional
        Rows that a data file has to have.

    Raises
    ------
    SnapshotError
        When the disk gave back something else.
    """
    with folder.open(draft) as file:
        found, _ = digest(file)
        if found == sha256 and (rows is None or pq.read_metadata(file).num_rows == rows):
            return
    raise SnapshotError(
        f"writing the snapshot {folder}",
        got="a file that reads back different from what was written",
        expected=f"the hash {sha256[:12]}…",
        next_step="Look after the disk. What was there before still is.",
    )


@contextmanager
def opened(folder: SnapshotStore, listed: ListedFile) -> Iterator[BinaryIO]:
    """Open a file the manifest lists, after seeing that every byte is as it was written.

    Raises
    ------
    FileNotFoundError
        When it is missing: gone, or superseded since the manifest was read.
    SnapshotDamagedError
        When it was cut or edited.
    """
    with folder.open(listed.path) as file:
        found, size = digest(file)
        if (found, size) != (listed.sha256, listed.bytes):
            raise damaged(
                folder,
                listed,
                f"{size:,} bytes with the hash {found[:12]}…",
                f"{listed.bytes:,} bytes with the hash {listed.sha256[:12]}…",
            )
        yield file


@contextmanager
def opened_parquet(folder: SnapshotStore, listed: ListedFile, schema: pa.Schema | None) -> Iterator[DataFile]:
    """Open a data file as `opened` does, and see that it has the rows listed and the schema expected.

    Raises
    ------
    SnapshotDamagedError
        Also for extension types and columns that do not belong there.
    """
    with opened(folder, listed) as file:
        try:
            parquet = DataFile(file)
            found = parquet.schema_arrow
        except (pa.ArrowInvalid, OSError) as error:
            raise damaged(folder, listed, str(error), "a Parquet file") from None
        if extension := extension_column(found):
            raise damaged(folder, listed, f"the extension type of {extension!r}", "plain Arrow types")
        if parquet.metadata.num_rows != listed.rows:
            raise damaged(folder, listed, f"{parquet.metadata.num_rows:,} rows", f"{listed.rows:,} rows")
        if schema is not None and not found.equals(schema, check_metadata=False):
            raise damaged(folder, listed, "other columns or types", "those of the snapshot's first file")
        yield parquet


def damaged(folder: SnapshotStore, listed: ListedFile, got: str, expected: str) -> SnapshotDamagedError:
    """The error for a listed file that is not what the manifest says."""
    return SnapshotDamagedError(
        f"reading {listed.path!r} of the snapshot {folder}",
        got=got,
        expected=expected,
        next_step=RESTORE,
    )


def missing(folder: SnapshotStore, error: FileNotFoundError) -> SnapshotDamagedError:
    """The error for a file that the manifest lists and the folder lacks."""
    return SnapshotDamagedError(
        f"reading the snapshot {folder}",
        got=f"no file {error.filename!r}",
        expected="every file that the manifest lists",
        next_step=RESTORE,
    )
