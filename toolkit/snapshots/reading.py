"""Opening snapshots: as a frame, as a dataset read in batches, or only to verify them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from toolkit import arguments
from toolkit.errors import SnapshotDamagedError, SnapshotError, ToolkitError
from toolkit.freshness import Clock, freshness
from toolkit.loading.memory import available_memory, check_memory, memory_errors_named
from toolkit.receipt import Receipt, facts_html
from toolkit.signatures.signed_rows import SIGNATURE
from toolkit.snapshots.data_files import (
    RESTORE,
    check_data_file,
    check_metadata,
    current_columns,
    damage_error,
    missing_file_error,
    open_data_file,
)
from toolkit.snapshots.manifest import Kind, ListedFile, Manifest, read_manifest, repairs
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.row_index import read_index
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.sync_times import syncs_of
from toolkit.snapshots.transaction import unlisted
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import UNFIT
from toolkit.visible_text import visible

_T = TypeVar("_T")
_ATTEMPTS: Final = 10
_COPIES: Final = 2
"""How often the rows are in memory, at most: as they were read, and as the columns of the frame."""
_OLDER: Final = 4  # bytes of memory per byte of an older version while it is converted
_IN_BATCHES: Final = "Use scan_snapshot, which reads columns and rows in batches"
_LONGEST: Final = 300  # characters that an error shows of another


def read_snapshot(
    path: str | os.PathLike[str], *, filesystem: FileSystem | None = None, memory_limit: float | None = None
) -> pd.DataFrame:
    """A snapshot as a frame. Every byte read is checked against the hash it was written with.

    Parameters
    ----------
    path : str or path
        The folder of a snapshot, or an address such as ``s3://bucket/prefix``.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the path is, if not on the local disk.
    memory_limit : float, optional
        Bytes that the frame may take while it is made. Default: what the machine, the container and the
        process have left. ``math.inf`` tries in any case.

    Returns
    -------
    pandas.DataFrame
        The columns and types that were written; a frame of failures has `error` again. A snapshot made by
        `sync_failures` also has `first_seen_at`, `gone_after` and `gone_before` (null for entries still
        there). ``attrs["receipt"]`` is the latest load's: its `rows` are those that it read, which of a
        snapshot made by `sync_failures` are the entries that were still there.

    Raises
    ------
    SnapshotError
        When there is none, or a newer version of the toolkit wrote it; every older one is read.
    SnapshotDamagedError
        When a file is missing, truncated or edited.
    NotEnoughMemoryError
        When the rows would not fit. `scan_snapshot` reads them in batches.

    Examples
    --------
    >>> read_snapshot("nowhere")
    Traceback (most recent call last):
    toolkit.errors.SnapshotError: opening the snapshot ...nowhere: got no manifest; expected a snapshot. ...
    """
    store = open_store(path, filesystem)
    limit = arguments.positive("memory_limit", memory_limit, optional="what there is", finite=False)
    limit = available_memory() if limit is None else limit

    def check_fits(size: float) -> None:
        check_memory(
            f"reading the snapshot {store} into one frame",
            needed=_COPIES * size,
            limit=limit,
            next_step=f"{_IN_BATCHES}; memory_limit=math.inf tries in any case.",
        )

    def read(manifest: Manifest) -> pd.DataFrame:
        tables: list[pa.Table] = []
        schema: pa.Schema | None = None
        size = 0
        check_fits(manifest.rows)
        for listed in manifest.files:
            with open_data_file(store, listed, schema) as parquet:
                schema = parquet.schema_arrow.remove_metadata()
                check_fits(size + parquet.decoded_bytes)
                tables.append(schema.empty_table())
                for table in parquet.tables():
                    size += table.nbytes * (_OLDER if manifest.is_older else 1)
                    check_fits(size)
                    tables.append(table)
        table = pa.concat_tables(tables)
        if manifest.is_older:
            table = current_columns(table, manifest.kind)
        if manifest.kind == "frame" and SIGNATURE not in manifest.scope.get("columns", [SIGNATURE]):
            table = table.drop_columns([name for name in table.column_names if name == SIGNATURE])
        return to_frame(table, _receipt(manifest))

    return _consistent(store, read)


def scan_snapshot(path: str | os.PathLike[str], *, filesystem: FileSystem | None = None) -> ds.Dataset:
    """A snapshot as a dataset: columns and rows are read on demand, in batches.

    Names, sizes, rows and columns of all files are checked now, pages by their checksums when they are read.
    `verify_snapshot` checks every byte. A sync that runs before the dataset is read may replace files: scan
    again then. Where an older version of the toolkit wrote other columns, they are first written into
    temporary files, which are removed when Python ends; the next sync makes that unnecessary.

    Parameters
    ----------
    path, filesystem
        As in `read_snapshot`.

    Returns
    -------
    pyarrow.dataset.Dataset
        Files partitioned by the day first seen bring no column for it: `first_seen_at` says it exactly. Of
        failures that `write_snapshot` wrote, `signature`, by which analyses group them, is the last column.

    Raises
    ------
    SnapshotError
        As in `read_snapshot`.
    SnapshotDamagedError
        When a file is missing or truncated, or has other rows or columns than were written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import write_snapshot
    >>> with TemporaryDirectory() as folder:
    ...     write_snapshot(pd.DataFrame({"label": ["billing"]}), folder)
    ...     scan_snapshot(folder).count_rows()
    1
    """
    store = open_store(path, filesystem)

    def scan(manifest: Manifest) -> ds.Dataset:
        schema: pa.Schema | None = None
        for listed in manifest.files:
            schema = _schema_of_file(store, listed, schema)
        if manifest.is_older and schema is not None:
            current = current_columns(schema.empty_table(), manifest.kind).schema
            if not {*schema} <= {*current}:
                return _rewritten(store, manifest, current)
            schema = current  # columns that a file does not have are read as null
        if schema is not None:
            schema = schema.with_metadata({"toolkit": _facts(manifest)})
        return ds.dataset(
            [store.address(listed.path) for listed in manifest.files],
            filesystem=store.filesystem,
            schema=schema,
            format=ds.ParquetFileFormat(
                default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            ),
        )

    return _consistent(store, scan)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a whole snapshot holds.

    Attributes
    ----------
    path : str
    kind : {"frame", "failures", "vectors"}
    generation : int
        Commits so far.
    files, rows, bytes : int
        Data files, their rows and bytes.
    gone : int
        Rows of entries that are no longer in the DLQ.
    unlisted : tuple of str
        Files in the folder that are not part of the snapshot. The toolkit ignores them; other Parquet
        readers, given the folder, may not.
    receipt : Receipt or None
        Of the latest load.
    repairs : tuple of str
        What each repair of a damaged snapshot brought back, and what stayed lost.
    out_of_date : str
        How old the data are, if they are older than allowed; "" if they are not.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import load_failures, verify_snapshot, write_snapshot
    >>> with TemporaryDirectory() as folder:
    ...     _ = write_snapshot(load_failures(service, progress=False), f"{folder}/failures")
    ...     verified = verify_snapshot(f"{folder}/failures")
    >>> verified.kind, verified.files, verified.rows
    ('frame', 1, 5000)
    """

    path: str
    kind: Kind
    generation: int
    files: int
    rows: int
    bytes: int
    gone: int
    unlisted: tuple[str, ...]
    receipt: Receipt | None
    repairs: tuple[str, ...] = ()
    out_of_date: str = ""

    @property
    def verdict(self) -> str:
        """One sentence."""
        unlisted_files = f"; {len(self.unlisted):,} files do not belong to it" if self.unlisted else ""
        repaired = f"; repaired {len(self.repairs):,} times, see .repairs" if self.repairs else ""
        gone = f" ({self.gone:,} gone)" if self.gone else ""
        age = f"; out of date: {self.out_of_date}" if self.out_of_date else ""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        return f"whole: {rows}{gone} in {files}, {self.bytes / 1e6:,.1f} MB{unlisted_files}{repaired}{age}"

    def __str__(self) -> str:
        return visible(self.verdict)

    def _repr_html_(self) -> str:
        facts = {
            "snapshot": self.path,
            "kind": self.kind,
            "generation": str(self.generation),
            "not part of it": ", ".join(self.unlisted) or "nothing",
            "latest load": self.receipt.verdict if self.receipt else "none",
            "out of date": self.out_of_date or "no",
            "repaired": "; ".join(self.repairs) or "never",
        }
        return facts_html(self.verdict, facts.items())


def verify_snapshot(
    path: str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    max_age: str | timedelta | None = None,
    now: Clock = None,
) -> Verification:
    """Read every byte of a snapshot and see that it is as it was written, and not out of date.

    Parameters
    ----------
    path, filesystem
        As in `read_snapshot`.
    max_age : str or timedelta, optional
        How long ago the latest complete sync may be: "2h", "1d", … Default: three times the usual time
        between two, an hour at least, and any time if there were fewer than two.
    now : datetime or callable, optional
        What the age is counted to. Default: the clock.

    Returns
    -------
    Verification
        What it holds, when it is whole.

    Raises
    ------
    SnapshotError, SnapshotDamagedError
        As in `read_snapshot`; the latter says which file is damaged, and how.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import write_snapshot
    >>> with TemporaryDirectory() as folder:
    ...     write_snapshot(pd.DataFrame({"label": ["billing"]}), folder)
    ...     verify_snapshot(folder).verdict
    'whole: 1 row in 1 file, 0.0 MB'
    """
    store = open_store(path, filesystem)

    def verify(manifest: Manifest) -> Verification:
        schema: pa.Schema | None = None
        for listed in manifest.files:
            with open_data_file(store, listed, schema) as parquet:
                schema = parquet.schema_arrow
        gone = read_index(store, manifest).entries["gone"].sum() if manifest.kind == "failures" else 0
        return Verification(
            path=str(store),
            kind=manifest.kind,
            generation=manifest.generation,
            files=len(manifest.files),
            rows=manifest.rows,
            bytes=sum(listed.bytes for listed in manifest.files),
            gone=int(gone),
            unlisted=unlisted(store, manifest),
            receipt=_receipt(manifest),
            repairs=repairs(manifest.receipts),
            out_of_date=_age_problem(_receipt(manifest), now, max_age),
        )

    return _consistent(store, verify)


def _consistent(store: SnapshotStore, read: Callable[[Manifest], _T]) -> _T:
    """Read one generation. If a writer's commit removed a file meanwhile, read the next one."""
    with (
        store.os_errors_named("reading"),
        memory_errors_named(f"reading the snapshot {store}", next_step=f"{_IN_BATCHES}."),
    ):
        manifest = _current(store)
        for _ in range(_ATTEMPTS):
            try:
                return read(manifest)
            except FileNotFoundError as error:
                superseded, manifest, before = error, _current(store), manifest
                if manifest.generation == before.generation:
                    raise missing_file_error(store, error) from None
            except (ToolkitError, MemoryError):
                raise
            except (*UNFIT, KeyError, AttributeError, ArithmeticError, RuntimeError) as error:
                # a file that was edited and listed again can hold anything
                raise SnapshotDamagedError(
                    f"reading the snapshot {store}",
                    got=f"columns that no toolkit wrote ({type(error).__name__}: {error})"[:_LONGEST],
                    expected="those of a snapshot",
                    next_step=RESTORE,
                ) from error
        raise SnapshotError(
            f"reading the snapshot {store}",
            got=f"{_ATTEMPTS} commits while it was read",
            expected="a pause between them",
            next_step="Read it again.",
        ) from superseded


def _current(store: SnapshotStore) -> Manifest:
    manifest = read_manifest(store)
    if manifest is None or not manifest.generation:
        raise SnapshotError(
            f"opening the snapshot {store}",
            got="a first write that was not finished" if manifest else "no manifest",
            expected="a snapshot",
            next_step="Name the folder that sync_failures, export_vectors or write_snapshot wrote.",
        )
    return manifest


def _rewritten(store: SnapshotStore, manifest: Manifest, schema: pa.Schema) -> ds.Dataset:
    """The rows of an older version with today's columns, in files that are removed when Python exits."""
    target = tempfile.mkdtemp(prefix="toolkit-snapshot-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    for number, listed in enumerate(manifest.files):
        with (
            open_data_file(store, listed, None) as parquet,
            pq.ParquetWriter(f"{target}/{number:06d}.parquet", schema, compression="zstd") as written,
        ):
            for table in parquet.tables():
                written.write_table(current_columns(table, manifest.kind))
    return ds.dataset(target, schema=schema, format="parquet")


def _schema_of_file(store: SnapshotStore, listed: ListedFile, first: pa.Schema | None) -> pa.Schema:
    """The columns of a data file, from its last bytes; they have to be those of the first."""
    with store.open_partial(listed.path) as file:
        size = file.seek(0, os.SEEK_END)
        if size != listed.bytes:
            raise damage_error(store, listed, f"{size:,} bytes", f"{listed.bytes:,} bytes")
        try:
            metadata = pq.read_metadata(file)
            check_metadata(metadata)
            schema = metadata.schema.to_arrow_schema().remove_metadata()
        except (*UNFIT, OSError) as error:
            raise damage_error(store, listed, str(error), "a Parquet file") from None
    if first is None or metadata.num_rows != listed.rows or not schema.equals(first, check_metadata=True):
        # not for each of the hundreds of files of a year
        check_data_file(store, listed, metadata.num_rows, schema, first)
    return first or schema


def _facts(manifest: Manifest) -> bytes:
    """What a dataset says of its snapshot: the latest receipt, and what its signatures taught."""
    receipt = _receipt(manifest)
    facts = {"receipt": receipt.to_dict() if receipt else None, "learned": manifest.learned}
    return msgspec.json.encode(facts)


def _age_problem(receipt: Receipt | None, now: Clock, max_age: str | timedelta | None) -> str:
    """Return what is wrong with the age of a snapshot that is synced, or whose age is to be checked."""
    is_synced = receipt is not None and receipt.syncs is not None and receipt.syncs.every_seconds is not None
    if max_age is None and not is_synced:
        return ""
    return freshness(receipt, now, max_age).problem


def _receipt(manifest: Manifest) -> Receipt | None:
    """The latest receipt, with what the manifest tells about gaps and syncs."""
    if not manifest.receipts:
        return None
    gaps = manifest.coverage.gaps if manifest.coverage else ()
    syncs = None if manifest.kind == "frame" else syncs_of(manifest)
    return replace(Receipt.from_dict(manifest.receipts[-1]), gaps=gaps, syncs=syncs)
