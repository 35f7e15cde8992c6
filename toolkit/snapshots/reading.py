"""Read snapshots as a frame, and verify them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeVar

import pandas as pd
import pyarrow as pa
from pyarrow.fs import FileSystem

from toolkit.base import arguments
from toolkit.base.errors import SnapshotDamagedError, SnapshotError, ToolkitError
from toolkit.base.visible_text import visible
from toolkit.loading.memory import available_memory, check_memory, memory_errors_named
from toolkit.snapshots.data_files import (
    RESTORE,
    current_columns,
    missing_file_error,
    open_data_file,
)
from toolkit.snapshots.manifest import (
    Kind,
    Manifest,
    read_manifest,
    repairs,
    stored_pauses,
)
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.row_index import read_index
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.sync_times import syncs_of
from toolkit.snapshots.transaction import unlisted
from toolkit.tables.frames import to_frame
from toolkit.tables.freshness import Clock, freshness
from toolkit.tables.receipt import Gap, Receipt, facts_html
from toolkit.tables.schemas import UNFIT
from toolkit.tables.signed_rows import SIGNATURE

_T = TypeVar("_T")
_ATTEMPTS: Final = 10
_COPIES: Final = 2
"""Copies of the rows in memory, at most: the rows as they were read, and the columns of the frame."""
_OLDER: Final = 4  # bytes of memory per byte of an older version while it is converted
_IN_BATCHES: Final = "Use open_snapshot, which reads columns and rows in batches"
_LONGEST: Final = 300  # characters of another error that an error shows


def read_snapshot(
    path: str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    memory_limit: float | None = None,
) -> pd.DataFrame:
    """Read a snapshot as a frame. Every byte is checked against the hash stored when it was written.

    Parameters
    ----------
    path : str or path
        Folder of a snapshot, or an address such as ``s3://bucket/prefix``.
    filesystem : pyarrow.fs.FileSystem, optional
        File system of the path, if it is not on the local disk.
    memory_limit : float, optional
        Bytes that the frame may take while it is made. If omitted, the free memory of the machine, the
        container and the process. ``math.inf`` tries in any case.

    Returns
    -------
    pandas.DataFrame
        The columns and types that were written; a frame of failures has `error` again. A snapshot made by
        `sync_failures` also has `first_seen_at`, `gone_after` and `gone_before` (null for entries that are
        still in the queue). ``attrs["receipt"]`` is the receipt of the latest load. It counts the rows of
        that load: after `sync_failures`, only the entries that were still in the queue. If a sync has joined
        groups of failures, or signed them by newer rules, ``attrs["renamed"]`` maps their earlier ids to the
        present ones, so that rules for them apply.

    Raises
    ------
    SnapshotError
        If the path contains no snapshot, or a newer version of the toolkit wrote it. Snapshots of every older
        version are read.
    SnapshotDamagedError
        If a file is missing, truncated or edited.
    NotEnoughMemoryError
        If the rows do not fit into memory. `open_snapshot` reads them in batches.

    Examples
    --------
    >>> read_snapshot("nowhere")
    Traceback (most recent call last):
    toolkit.errors.SnapshotError: opening the snapshot ...nowhere: got no manifest; expected a snapshot. ...
    """
    store = open_store(path, filesystem)
    limit = arguments.positive(
        "memory_limit", memory_limit, optional="the free memory", finite=False
    )
    if limit is None:
        limit = available_memory()

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
        memory_per_byte = 1
        if manifest.is_older:
            memory_per_byte = _OLDER
        check_fits(manifest.rows)

        for listed in manifest.files:
            with open_data_file(store, listed, schema) as parquet:
                schema = parquet.schema_arrow.remove_metadata()
                check_fits(size + parquet.decoded_bytes)
                tables.append(schema.empty_table())

                for table in parquet.tables():
                    size += table.nbytes * memory_per_byte
                    check_fits(size)
                    tables.append(table)

        table = pa.concat_tables(tables)
        if manifest.is_older:
            table = current_columns(table, manifest.kind)
        if manifest.kind == "frame" and SIGNATURE not in manifest.scope.get(
            "columns", [SIGNATURE]
        ):
            table = table.drop_columns(
                [name for name in table.column_names if name == SIGNATURE]
            )

        frame = to_frame(table, stored_receipt(manifest))
        if manifest.learned.renamed:
            frame.attrs["renamed"] = dict(manifest.learned.renamed)

        return frame

    return consistent(store, read)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of `verify_snapshot` for a snapshot without damage.

    Attributes
    ----------
    path : str
    kind : {"frame", "failures", "vectors"}
    generation : int
        Number of commits.
    files, rows, bytes : int
        Number of data files, and their rows and bytes.
    gone : int
        Rows of entries that are no longer in the DLQ.
    unlisted : tuple of str
        Files in the folder that are not part of the snapshot. The toolkit ignores them; other Parquet
        readers that open the folder may not.
    receipt : Receipt or None
        Receipt of the latest load.
    repairs : tuple of str
        A description of each repair of a damaged snapshot, with the rows that stayed lost.
    out_of_date : str
        Age of the data, if they are older than allowed; "" otherwise.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import load_failures, verify_snapshot, write_snapshot
    >>> with TemporaryDirectory() as folder:
    ...     _ = write_snapshot(load_failures(service, limit=250), f"{folder}/failures")
    ...     verified = verify_snapshot(f"{folder}/failures")
    >>> verified.kind, verified.files, verified.rows
    ('frame', 1, 250)
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
        """Return one sentence with the counts and the remarks."""
        rows = "1 row"
        if self.rows != 1:
            rows = f"{self.rows:,} rows"
        files = "1 file"
        if self.files != 1:
            files = f"{self.files:,} files"
        if self.gone:
            rows += f" ({self.gone:,} gone)"
        parts = [f"whole: {rows} in {files}, {self.bytes / 1e6:,.1f} MB"]
        if self.unlisted:
            parts.append(f"{len(self.unlisted):,} files do not belong to it")
        if self.repairs:
            parts.append(f"repaired {len(self.repairs):,} times, see .repairs")
        if self.out_of_date:
            parts.append(f"out of date: {self.out_of_date}")
        return "; ".join(parts)

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
    """Read every byte of a snapshot, and check that it is unchanged and not out of date.

    Parameters
    ----------
    path, filesystem
        As in `read_snapshot`.
    max_age : str or timedelta, optional
        Longest time since the latest complete sync, for example "2h" or "1d". If omitted, three times the
        usual time between two syncs, an hour at least. After fewer than two syncs, any age is accepted.
    now : datetime or callable, optional
        The time at which the age is measured. If omitted, the clock.

    Returns
    -------
    Verification
        Counts and remarks, if the snapshot is not damaged.

    Raises
    ------
    SnapshotError, SnapshotDamagedError
        As in `read_snapshot`; the latter names the damaged file and the damage.

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

        gone = 0
        if manifest.kind == "failures":
            gone = read_index(store, manifest).entries["gone"].sum()
        return Verification(
            path=str(store),
            kind=manifest.kind,
            generation=manifest.generation,
            files=len(manifest.files),
            rows=manifest.rows,
            bytes=sum(listed.bytes for listed in manifest.files),
            gone=int(gone),
            unlisted=unlisted(store, manifest),
            receipt=stored_receipt(manifest),
            repairs=repairs(manifest.receipts),
            out_of_date=_age_problem(stored_receipt(manifest), now, max_age),
        )

    return consistent(store, verify)


def consistent(store: SnapshotStore, read: Callable[[Manifest], _T]) -> _T:
    """Read one generation. If a commit removed a file meanwhile, read the next generation."""
    with (
        store.os_errors_named("reading"),
        memory_errors_named(
            f"reading the snapshot {store}", next_step=f"{_IN_BATCHES}."
        ),
    ):
        manifest = _current(store)
        for _ in range(_ATTEMPTS):
            try:
                return read(manifest)
            except FileNotFoundError as error:
                superseded = error
                generation = manifest.generation
                manifest = _current(store)
                if manifest.generation == generation:
                    raise missing_file_error(store, error) from None
            except (ToolkitError, MemoryError):
                raise
            except (
                *UNFIT,
                KeyError,
                AttributeError,
                ArithmeticError,
                RuntimeError,
            ) as error:
                # a file that was edited and listed again can contain anything
                raise SnapshotDamagedError(
                    f"reading the snapshot {store}",
                    got=f"columns that no toolkit wrote ({type(error).__name__}: {error})"[
                        :_LONGEST
                    ],
                    expected="the columns of a snapshot",
                    next_step=RESTORE,
                ) from error

        raise SnapshotError(
            f"reading the snapshot {store}",
            got=f"{_ATTEMPTS} commits while it was read",
            expected="a pause between commits",
            next_step="Read it again.",
        ) from superseded


def _current(store: SnapshotStore) -> Manifest:
    manifest = read_manifest(store)
    if manifest is None and (bucket := store.missing_container()):
        raise SnapshotError(
            f"opening the snapshot {store}",
            got=f"no bucket {bucket!r}",
            expected="a bucket with a snapshot",
            next_step="Correct the name, or sync into an existing bucket first.",
        )

    if manifest is None or not manifest.generation:
        raise SnapshotError(
            f"opening the snapshot {store}",
            got="an unfinished first write" if manifest else "no manifest",
            expected="a snapshot",
            next_step="Name the folder that sync_failures, export_vectors or write_snapshot wrote.",
        )

    return manifest


def _age_problem(
    receipt: Receipt | None, now: Clock, max_age: str | timedelta | None
) -> str:
    """Return the problem with the age of a snapshot; "" if it is fresh, or if the age does not matter.

    The age matters if `max_age` is given, or if the snapshot is synced regularly.
    """
    is_synced = (
        receipt is not None
        and receipt.syncs is not None
        and receipt.syncs.every_seconds is not None
    )
    if max_age is None and not is_synced:
        return ""

    return freshness(receipt, now, max_age).problem


def stored_receipt(manifest: Manifest) -> Receipt | None:
    """Return the latest receipt, with the gaps and the times of syncs from the manifest."""
    if not manifest.receipts:
        return None

    gaps: tuple[Gap, ...] = ()
    if manifest.coverage:
        gaps = manifest.coverage.gaps
    syncs = None
    if manifest.kind != "frame":
        syncs = syncs_of(manifest)
    pauses = stored_pauses(manifest.receipts)

    return replace(
        Receipt.from_dict(manifest.receipts[-1]), gaps=gaps, pauses=pauses, syncs=syncs
    )
