"""Open a snapshot for any engine: one list of committed files, read by Arrow, DuckDB, Dask or Polars.

A folder can contain files that do not belong to the snapshot, for example after a sync was killed between
the renaming of new files and the removal of the files that these replace. A reader of the whole folder
counts such rows twice. `open_snapshot` therefore asks the manifest, and each engine gets exactly the files
of one generation:

    manifest ── files ── row groups ──┬── Arrow dataset ──┬── DuckDB, Polars (columns and filters pushed down)
                                      │                   └── analyses of the toolkit
                                      └── one Dask partition per row group
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from toolkit.base.errors import InputError, SettingsError
from toolkit.base.times import Time, parse_time
from toolkit.base.visible_text import visible
from toolkit.snapshots.data_files import (
    check_data_file,
    check_metadata,
    current_columns,
    damage_error,
    open_data_file,
)
from toolkit.snapshots.manifest import Kind, ListedFile, Manifest
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.reading import consistent, stored_receipt
from toolkit.snapshots.row_groups import (
    RowGroup,
    bounds_of,
    overlaps,
    parquet_format,
    read_partition,
    times_of,
)
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.workers import check_access, check_versions
from toolkit.tables.frames import plain_frame
from toolkit.tables.receipt import Receipt, facts_html
from toolkit.tables.schemas import FAILED_AT, UNFIT

_SCHEMES: Final = {"gcs": "gs"}
"""Schemes of addresses, if pyarrow has another name for the file system."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """The committed files of one generation of a snapshot, for the toolkit and for other engines.

    Made by `open_snapshot`. Every analysis accepts it. The methods read nothing but the ends of the files;
    rows are read when the engine needs them. If a sync replaces files before that, reading raises an error:
    open the snapshot again.

    Attributes
    ----------
    path : str
    kind : {"frame", "failures", "vectors"}
    generation : int
        Number of commits.
    rows, bytes : int
        Rows and bytes of all files.
    receipt : Receipt or None
        Receipt of the latest load, as in `read_snapshot`.
    schema : pyarrow.Schema
        Columns and types.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import load_failures, open_snapshot, write_snapshot
    >>> with TemporaryDirectory() as folder:
    ...     _ = write_snapshot(load_failures(service, limit=250), f"{folder}/failures")
    ...     snapshot = open_snapshot(f"{folder}/failures")
    ...     rows = snapshot.to_duckdb().aggregate("count(*)").fetchall()
    >>> rows, len(snapshot.files()), len(snapshot.units())
    ([(250,)], 1, 1)
    """

    path: str
    kind: Kind
    generation: int
    rows: int
    bytes: int
    receipt: Receipt | None
    schema: pa.Schema
    _files: tuple[_OpenedFile, ...] = field(repr=False)
    _filesystem: FileSystem = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the dataset, which this function returned under an earlier name."""
        if name.startswith("_") or not hasattr(ds.Dataset, name):
            raise AttributeError(f"'Snapshot' object has no attribute {name!r}")

        warnings.warn(
            f"snapshot.{name} is now snapshot.to_arrow().{name}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(self.to_arrow(), name)

    def __str__(self) -> str:
        files = "1 file"
        if len(self._files) != 1:
            files = f"{len(self._files):,} files"
        return visible(
            f"{self.path}: {self.rows:,} rows in {files}, {self.bytes / 1e6:,.1f} MB"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = {
            "snapshot": self.path,
            "kind": self.kind,
            "generation": str(self.generation),
            "latest load": self.receipt.verdict if self.receipt else "none",
        }
        return facts_html(str(self), facts.items())

    def files(self) -> list[str]:
        """Return the files for any other reader: local paths, or addresses such as ``s3://bucket/key``.

        Snapshots that version 4 or an older one wrote have other columns; sync or write them once before.

        Returns
        -------
        list of str
            For example for ``polars.read_parquet`` or ``spark.read.parquet``. No other file in the folder
            belongs to the snapshot, so do not pass the folder itself.
        """
        return [file.path for file in self._files]

    def units(
        self, *, since: Time | None = None, until: Time | None = None
    ) -> list[RowGroup]:
        """Return the units of work: one per row group of each file.

        Parameters
        ----------
        since, until : datetime, str or number, optional
            Leave out row groups without a failure in this time, by the statistics in the files. Accepted as
            by `FailureFilter`; both ends are included.

        Returns
        -------
        list of RowGroup
            Their rows are all rows of the snapshot, each once, if no time is given.
        """
        first, last = self._span(since, until)
        return [unit for unit in self._units() if overlaps(unit, first, last)]

    def to_arrow(self) -> ds.Dataset:
        """Return the rows as a dataset. Columns and rows are read on demand, in batches.

        Returns
        -------
        pyarrow.dataset.Dataset
            Pages are checked by their checksums when they are read. A filter on ``failed_at`` reads only row
            groups with such a time.
        """
        parquet = parquet_format(self._filesystem)
        fragments = [
            parquet.make_fragment(
                file.address,
                filesystem=self._filesystem,
                partition_expression=bounds_of(file.metadata),
            )
            for file in self._files
        ]
        return ds.FileSystemDataset(fragments, self.schema, parquet, self._filesystem)

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return the rows as a DuckDB relation. Columns and filters of a query are pushed into the files.

        Parameters
        ----------
        connection : duckdb.DuckDBPyConnection, optional
            If omitted, the default connection, so that ``duckdb.sql`` finds the relation by the name of your
            variable.

        Returns
        -------
        duckdb.DuckDBPyRelation
            Analyses of the toolkit find the receipt of the snapshot in it.

        Raises
        ------
        SettingsError
            If duckdb is not installed.
        """
        duckdb = _needed("duckdb", "opening a snapshot with DuckDB")
        if connection is None:
            connection = duckdb.default_connection()
        # A relation has no attributes, but a view has a comment, which contains the receipt.
        name = f"snapshot_{secrets.token_hex(8)}"
        connection.register(name, self.to_arrow())
        comment = self._facts().replace("'", "''")
        connection.execute(f"COMMENT ON VIEW {name} IS '{comment}'")

        return connection.table(name)

    def to_dask(self, *, since: Time | None = None, until: Time | None = None) -> Any:
        """Return the rows as a Dask frame, with one partition per row group.

        The partitions are as small as the row groups, whatever the size of a file. Workers need the toolkit,
        and access to the files: credentials in their environment, or the ones that you pass in `filesystem=`.

        Parameters
        ----------
        since, until : datetime, str or number, optional
            Read only failures of this time (both ends are included), from the row groups that contain some.

        Returns
        -------
        dask.dataframe.DataFrame
            Columns of pandas types, as in `read_snapshot`; ``error`` is not among them.

        Raises
        ------
        SettingsError
            If dask is not installed, or a worker of the current cluster has another version of the toolkit.
        SnapshotError
            If a worker cannot read the files.
        """
        dask = _needed("dask.dataframe", "opening a snapshot with Dask")
        first, last = self._span(since, until)
        units = self.units(since=since, until=until)
        empty = plain_frame(self.schema.remove_metadata().empty_table())
        empty.attrs = json.loads(self._facts())
        if not units:
            return dask.from_pandas(empty, npartitions=1)

        check_versions()
        check_access(units[0].check, str(self.path))

        return dask.from_map(
            read_partition,
            units,
            meta=empty,
            first=first,
            last=last,
            enforce_metadata=False,
            label="open-snapshot",
        )

    def to_polars(self) -> Any:
        """Return the rows as a lazy Polars frame. Columns and filters are pushed into the files.

        Returns
        -------
        polars.LazyFrame

        Raises
        ------
        SettingsError
            If polars is not installed.
        """
        polars = _needed("polars", "opening a snapshot with Polars")
        return polars.scan_pyarrow_dataset(self.to_arrow())

    def _facts(self) -> str:
        facts: bytes = self.schema.metadata[b"toolkit"]
        return facts.decode()

    def _span(
        self, since: Time | None, until: Time | None
    ) -> tuple[datetime | None, datetime | None]:
        """Return two times of arguments. Raise InputError if the rows have no time of failure."""
        if (since is not None or until is not None) and not self._has_times:
            raise InputError(
                "choosing rows of a snapshot by time",
                got=f"a snapshot without the column {FAILED_AT}",
                expected="a snapshot of failures",
                next_step="Leave since and until out.",
            )

        first = last = None
        if since is not None:
            first = parse_time(since, name="since")
        if until is not None:
            last = parse_time(until, end=True, name="until")
        return first, last

    @property
    def _has_times(self) -> bool:
        return FAILED_AT in self.schema.names

    def _units(self) -> Iterator[RowGroup]:
        schema = self.schema.remove_metadata()
        for file in self._files:
            names = file.metadata.schema.to_arrow_schema().names
            column = None
            if FAILED_AT in names:
                column = names.index(FAILED_AT)
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                earliest, latest = times_of(group, column)
                yield RowGroup(
                    path=file.path,
                    number=number,
                    rows=group.num_rows,
                    bytes=group.total_byte_size,
                    earliest=earliest,
                    latest=latest,
                    _address=file.address,
                    _filesystem=self._filesystem,
                    _schema=schema,
                )


@dataclass(frozen=True)
class _OpenedFile:
    """A file of a snapshot: the name for other readers, the path on the file system, and the metadata."""

    path: str
    address: str
    metadata: pq.FileMetaData


def open_snapshot(
    path: str | os.PathLike[str], *, filesystem: FileSystem | None = None
) -> Snapshot:
    """Open a snapshot for this toolkit, Arrow, DuckDB, Dask, Polars, or any other reader of Parquet files.

    The manifest tells which files belong to the snapshot. Names, sizes, rows and columns of all of them are
    checked at once; pages are checked by their checksums when they are read. `verify_snapshot` checks every
    byte. If an older version of the toolkit wrote other columns, the current columns are first written to
    temporary files, which are removed when Python ends; after the next sync, this is not necessary.

    Parameters
    ----------
    path, filesystem
        As in `read_snapshot`.

    Returns
    -------
    Snapshot
        With `to_arrow`, `to_duckdb`, `to_dask`, `to_polars`, `files` and `units`. Files in folders of days
        have no column for the day; use `first_seen_at`. If `write_snapshot` wrote failures, the last column
        is `signature`, which analyses use to group them.

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
    ...     open_snapshot(folder).to_arrow().to_table().to_pydict()
    {'label': ['billing']}
    """
    store = open_store(path, filesystem)

    def opened(manifest: Manifest) -> Snapshot:
        files = []
        schema: pa.Schema | None = None
        for listed in manifest.files:
            metadata, schema = _checked_metadata(store, listed, schema)
            address = store.address(listed.path)
            files.append(_OpenedFile(_path_of(store, address), address, metadata))

        found = store.filesystem
        if manifest.is_older and schema is not None:
            current = current_columns(schema.empty_table(), manifest.kind).schema
            if not {*schema} <= {*current}:
                files = list(_rewritten(store, manifest, current))
                found = LocalFileSystem()

            schema = current  # columns that a file does not have are read as null

        facts = {b"toolkit": _facts(manifest)}
        return Snapshot(
            path=str(store),
            kind=manifest.kind,
            generation=manifest.generation,
            rows=manifest.rows,
            bytes=sum(listed.bytes for listed in manifest.files),
            receipt=stored_receipt(manifest),
            schema=(schema or pa.schema([])).with_metadata(facts),
            _files=tuple(files),
            _filesystem=found,
        )

    return consistent(store, opened)


def facts_of_relation(relation: Any) -> dict[str, Any]:
    """Return the facts of the snapshot that a DuckDB relation reads; an empty dict if it reads none.

    A query with several snapshots has no facts, because they have different receipts.
    """
    names = set(re.findall(r"\bsnapshot_[0-9a-f]{16}\b", relation.sql_query()))
    if len(names) != 1:
        return {}

    query = f"SELECT comment FROM duckdb_views() WHERE view_name = '{names.pop()}'"  # noqa: S608 - the name has only letters and digits
    rows = relation.query("relation_", query).fetchall()
    if not rows or rows[0][0] is None:
        return {}

    facts = json.loads(rows[0][0])
    if isinstance(facts, dict):
        return facts

    return {}


def _needed(module: str, doing: str) -> Any:
    """Import a module of an optional package. Raise SettingsError with the command to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise SettingsError(
            doing,
            got=f"no module {error.name or package} in this environment",
            expected=f"the package {package}",
            next_step=f'Install it: pip install "{package}".',
        ) from None


def _path_of(store: SnapshotStore, address: str) -> str:
    """Return a file as other readers name it, for example ``s3://bucket/key``."""
    # for example s3, or py::fsspec+('s3', 's3a') for a file system of fsspec
    scheme = re.findall(r"\w+", store.filesystem.type_name.rpartition("+")[2])[0]
    if scheme in {"local", "file"}:
        return address

    return f"{_SCHEMES.get(scheme, scheme)}://{address}"


def _rewritten(
    store: SnapshotStore, manifest: Manifest, schema: pa.Schema
) -> Iterator[_OpenedFile]:
    """Write the rows of an older version with the current columns to files, removed when Python ends."""
    target = tempfile.mkdtemp(prefix="toolkit-snapshot-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    for number, listed in enumerate(manifest.files):
        path = f"{target}/{number:06d}.parquet"
        with (
            open_data_file(store, listed, None) as parquet,
            pq.ParquetWriter(path, schema, compression="zstd") as written,
        ):
            for table in parquet.tables():
                written.write_table(current_columns(table, manifest.kind))

        yield _OpenedFile(path, path, pq.read_metadata(path))


def _checked_metadata(
    store: SnapshotStore, listed: ListedFile, first: pa.Schema | None
) -> tuple[pq.FileMetaData, pa.Schema]:
    """Read the end of a data file: the metadata and columns. Raise if they differ from the `first` file."""
    with store.open_partial(listed.path) as file:
        size = file.seek(0, os.SEEK_END)
        if size != listed.bytes:
            raise damage_error(
                store, listed, f"{size:,} bytes", f"{listed.bytes:,} bytes"
            )

        try:
            metadata = pq.read_metadata(file)
            check_metadata(metadata)
            schema = metadata.schema.to_arrow_schema().remove_metadata()
        except (*UNFIT, OSError) as error:
            raise damage_error(store, listed, str(error), "a Parquet file") from None

    if (
        first is None
        or metadata.num_rows != listed.rows
        or not schema.equals(first, check_metadata=True)
    ):
        # only then, because a snapshot of a year has hundreds of files
        check_data_file(store, listed, metadata.num_rows, schema, first)

    return metadata, first or schema


def _facts(manifest: Manifest) -> bytes:
    """Return the metadata of a dataset: the latest receipt, and the words that signatures have learned."""
    receipt = stored_receipt(manifest)
    facts = {
        "receipt": receipt.to_dict() if receipt else None,
        "learned": manifest.learned,
    }
    return msgspec.json.encode(facts)
