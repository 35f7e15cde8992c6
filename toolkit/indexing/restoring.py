"""A snapshot of vectors stored in an index again: streamed, resumable, and compared afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem

from toolkit.arguments import file_path, wrong
from toolkit.client.transport import Transport
from toolkit.client.vectors import fetch_bytes, read_info
from toolkit.errors import InputError, SnapshotBindingError, UnexpectedResultWarning
from toolkit.indexing.upserts import BATCH_ROWS, RowEncoder, WireRow, store_rows
from toolkit.loading.options import LoadOptions
from toolkit.private_files import make_folder, open_private, user_folder, write_file
from toolkit.progress import ProgressBar, ProgressOption
from toolkit.redaction import escape_html, visible
from toolkit.settings.service import Service, endpoint_of
from toolkit.snapshots.reading import scan_snapshot
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_vectors

_DOING: Final = "restoring vectors"
_PENDING: Final = 60.0  # seconds to wait until what was stored is indexed
_COUNTS: Final = ("rows", "verified", "missing", "different", "skipped", "extra")
_COMPARED: Final = ("vector", "sparse_indices", "sparse_values", "metadata", "data")


@dataclass(frozen=True, repr=False, eq=False)
class VectorRestore:
    """What `restore_vectors` stored, compared with what the index then has.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row a namespace: ``namespace``, ``rows`` (of the snapshot), ``verified`` (in the index, and the
        same), ``missing``, ``different``, ``skipped`` (cannot be stored), ``extra`` (vectors that the index
        counts beyond them); counts are Int64.
    problems : pandas.DataFrame
        One row a vector that is not verified: ``namespace``, ``id``, ``problem``.
    resumed_at : int
        How many rows an earlier, interrupted call had stored.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = tk.export_vectors(service, f"{folder}/vectors", namespace="runbooks", progress=False)
    ...     restored = restore_vectors(service, f"{folder}/vectors", progress=False)
    >>> restored.verdict
    'All 1,000 vectors of the snapshot are in the index, compared one by one.'
    """

    frame: pd.DataFrame
    problems: pd.DataFrame
    resumed_at: int

    @property
    def complete(self) -> bool:
        """Whether every row of the snapshot is in the index, and the same."""
        return self.problems.empty

    @property
    def verdict(self) -> str:
        """One sentence."""
        total, same = int(self.frame["rows"].sum()), int(self.frame["verified"].sum())
        if self.complete:
            return f"All {total:,} vectors of the snapshot are in the index, compared one by one."
        counts = self.frame[["missing", "different", "skipped"]].sum()
        others = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        return f"{same:,} of {total:,} vectors of the snapshot are in the index: {others}; see .problems."

    def __repr__(self) -> str:
        shown = self.frame.replace({"namespace": {"": "(default)"}})
        return visible(self.verdict + ("" if shown.empty else f"\n{shown.to_string(index=False)}"))

    def _repr_html_(self) -> str:
        shown = self.frame.replace({"namespace": {"": "(default)"}}).astype(object)
        head = "".join(f'<th scope="col">{name}</th>' for name in shown.columns)
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape_html(visible(str(name)))}</th>'
            f"{''.join(f'<td>{count:,}</td>' for count in counts)}</tr>"
            for name, *counts in shown.itertuples(index=False)
        )
        verdict = escape_html(self.verdict)
        return f"<p>{verdict}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def restore_vectors(
    service: Service,
    snapshot: str | os.PathLike[str] | ds.Dataset,
    *,
    namespace: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: ProgressOption = None,
    filesystem: FileSystem | None = None,
) -> VectorRestore:
    """Store a snapshot of vectors in an index, and compare the index with it.

    Interrupted, or even killed, the same call continues after the last stored batch. Nothing is removed:
    vectors that the snapshot does not have stay, and are counted.

    Parameters
    ----------
    service : Service
    snapshot : str, path or pyarrow.dataset.Dataset
        What `export_vectors` or `write_snapshot` wrote vectors to, or what `scan_snapshot` returns for it.
    namespace : str, optional
        Where all rows go. Default: the namespace that each comes from. Of rows with the same id, the last
        one stays; the others are listed as different.
    checkpoint : str or path, optional
        The file that remembers how far it is; removed at the end. Default: one in the user's data folder, for
        this snapshot and index.
    progress : bool or callable, optional
        As in `load_vectors`; rows are counted when they are stored, and again when they are compared.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the path is, if not on the local disk.

    Returns
    -------
    VectorRestore
        Counts by namespace, and which vectors are missing or differ.

    Raises
    ------
    InputError
        When the snapshot has no vectors, or those of another dimension than the index.
    SnapshotBindingError
        When the checkpoint belongs to another snapshot, index or namespace.
    SnapshotError
        When there is no such snapshot.
    ServiceError
        When a request fails; a note on the error says that the same call continues.

    Warns
    -----
    UnexpectedResultWarning
        When not every vector is in the index afterwards: rows that cannot be stored, or that changed.

    Notes
    -----
    Memory does not depend on the size of the snapshot. Rows are compared by fetching them again: numbers as
    float32, metadata as JSON values, data as text. Rows that were stored without a usable vector, and texts
    in which our own token is masked, cannot be stored; they are skipped, and listed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = tk.export_vectors(service, f"{folder}/vectors", namespace="runbooks", progress=False)
    ...     restored = restore_vectors(service, f"{folder}/vectors", namespace="copy", progress=False)
    >>> restored.frame[["namespace", "rows", "verified", "extra"]]
      namespace  rows  verified  extra
    0      copy  1000      1000      0
    >>> tk.delete_namespace(service, "copy", confirm=True)
    1000
    """
    endpoint = endpoint_of(service, "vector")
    options = LoadOptions(progress=progress)
    encoder = RowEncoder(service, namespace)
    dataset = _dataset(snapshot, filesystem)
    total = dataset.count_rows()
    files = [Path(path).name for path in getattr(dataset, "files", ())]
    binding = hashlib.sha256(json.dumps([files, total, endpoint.url, namespace]).encode()).hexdigest()
    stored = _RestoreCheckpoint(checkpoint, binding)
    start = stored.read(most=total)
    with (
        Transport.to(service, "vector") as transport,
        ProgressBar(options.progress, title="restoring", unit="vectors", total=2 * total) as bar,
    ):
        kind, dimension = dataset.schema.field("vector").type, read_info(transport).dimension
        if pa.types.is_fixed_size_list(kind) and kind.list_size and dimension not in (0, kind.list_size):
            raise InputError(
                _DOING,
                got=f"a snapshot of vectors of {kind.list_size:,} dimensions",
                expected=f"the {dimension:,} of the index",
            )
        bar.add(start)
        done = start
        try:
            for batch in _batches(dataset, start):
                rows = [wire for wire, _ in _encoded(encoder, batch) if wire is not None]
                for _ in store_rows(transport, rows):
                    pass
                done += batch.num_rows
                stored.write(done)
                bar.add(batch.num_rows)
        except (Exception, KeyboardInterrupt) as error:
            error.add_note(f"The first {done:,} of {total:,} rows are stored: the same call continues there.")
            raise
        until = time.monotonic() + _PENDING
        while read_info(transport).pending_count and time.monotonic() < until:
            time.sleep(0.5)
        result = _compared(service, transport, dataset, encoder, bar, start)
    stored.remove()
    if not result.complete:
        warnings.warn(result.verdict, UnexpectedResultWarning, stacklevel=2)
    return result


def _dataset(snapshot: Any, filesystem: FileSystem | None) -> ds.Dataset:
    if not isinstance(snapshot, str | os.PathLike | ds.Dataset):
        raise wrong("snapshot", snapshot, "the path of a snapshot, or what scan_snapshot returns")
    dataset: Any = snapshot
    if not isinstance(snapshot, ds.Dataset):
        try:
            dataset = scan_snapshot(snapshot, filesystem=filesystem)
        except InputError as error:
            doing = f"reading snapshot ({error.doing})"
            raise InputError(doing, got=error.got, expected=error.expected) from None
    absent = [name for name in ("namespace", "id", "vector") if name not in dataset.schema.names]
    if absent:
        raise InputError(
            f"{_DOING}, reading snapshot",
            got=f"one without the columns {', '.join(absent)}",
            expected="a snapshot of vectors",
            next_step="export_vectors writes one.",
        )
    return dataset


class _RestoreCheckpoint:
    """The number of rows that are stored, in a file that is replaced atomically.

    Several processes may restore the same snapshot at once, for example two kernels. Each stores rows before
    it writes their number, so whichever number is in the file, so many rows are stored.
    """

    def __init__(self, path: str | os.PathLike[str] | None, binding: str) -> None:
        self._own_folder = user_folder("data") / "restores"
        self._path = (
            self._own_folder / f"{binding[:32]}.json" if path is None else file_path("checkpoint", path)
        )
        self._binding = binding

    def read(self, *, most: int) -> int:
        """Rows stored by an earlier call; 0 without a checkpoint."""
        try:
            with os.fdopen(open_private(self._path, os.O_RDONLY), "rb") as file:
                checkpoint = json.loads(file.read())
            rows, binding = checkpoint["rows"], str(checkpoint["binding"])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._unusable(f"{type(error).__name__}") from None
        if binding != self._binding:
            raise SnapshotBindingError(
                f"continuing to restore from the checkpoint {str(self._path)!r}",
                got="one of another snapshot, index or namespace",
                expected="the one of this call",
                next_step="Name another file, or remove this one to begin anew.",
            )
        if type(rows) is not int or not 0 <= rows <= most:
            raise self._unusable(f"{str(rows)[:40]} as the number of stored rows", f"0 to {most:,}")
        return rows

    def write(self, rows: int) -> None:
        content = json.dumps({"rows": rows, "binding": self._binding}).encode()
        try:
            self._make_folder()
        except (OSError, ValueError) as error:
            raise self._unusable(f"{type(error).__name__}") from None
        # each process has a draft of its own: two that restore the same snapshot share the checkpoint alone
        write_file(self._path, lambda file: file.write(content))

    def _make_folder(self) -> None:
        """Make the folder of checkpoints; the folder of a file that the caller names may be any."""
        if self._path.parent == self._own_folder:
            make_folder(self._own_folder)
        else:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def _unusable(
        self, got: str, expected: str = "a file of this user that can be written and read"
    ) -> InputError:
        return InputError(
            f"using the checkpoint {str(self._path)!r}",
            got=got,
            expected=expected,
            next_step="Name another file with checkpoint=, or remove this one to begin anew.",
        )


def _batches(dataset: ds.Dataset, start: int = 0) -> Iterator[pa.RecordBatch]:
    """The rows of a dataset in order, without the first `start`; files before them are not opened."""
    for fragment in dataset.get_fragments():
        rows = fragment.count_rows()
        if start >= rows:
            start -= rows
            continue
        for batch in fragment.to_batches(schema=dataset.schema, batch_size=BATCH_ROWS, batch_readahead=2):
            skipped = min(start, batch.num_rows)
            start -= skipped
            if batch.num_rows > skipped:
                yield batch.slice(skipped)


def _encoded(
    encoder: RowEncoder, batch: pa.RecordBatch
) -> Iterator[tuple[WireRow | None, tuple[dict[str, Any], str]]]:
    """Each row as it is sent, None where it cannot be, with the row and the reason."""
    for row in batch.to_pylist():
        try:
            yield encoder.encode("a row of the snapshot", row), (row, "")
        except InputError as error:
            yield None, (row, f"cannot be stored: {row.get('vector_problem') or error}"[:200])


def _compared(
    service: Service,
    transport: Transport,
    dataset: ds.Dataset,
    encoder: RowEncoder,
    bar: ProgressBar,
    resumed_at: int,
) -> VectorRestore:
    """Fetch every row of the snapshot from the index, and compare."""
    mask = ColumnMasker(service.redactor)
    counts: dict[str, Counter[str]] = {}
    problems: list[tuple[str, str, str]] = []
    for batch in _batches(dataset):
        # lists, as rows of several namespaces that go to one can have the same id
        expected: dict[str, list[dict[str, Any]]] = {}
        for wire, (row, reason) in _encoded(encoder, batch):
            space = encoder.namespace_of(row)
            counts.setdefault(space, Counter())["rows"] += 1
            if wire is None:
                counts[space]["skipped"] += 1
                problems.append((space, str(row["id"]), reason))
            else:
                expected.setdefault(space, []).append(row)
        for space, rows in expected.items():
            raw = fetch_bytes(transport, namespace=space, ids=list(dict.fromkeys(row["id"] for row in rows)))
            stored = mask.table(decode_vectors(raw, namespace=space, dimension=None)).to_pylist()
            there = {row["id"]: row for row in stored}
            for row in rows:
                kind, difference = _difference(row, there.get(row["id"]))
                counts[space][kind] += 1
                if difference:
                    problems.append((space, row["id"], difference))
        bar.add(batch.num_rows)
    info = read_info(transport)
    for space, count in counts.items():
        there_now = info.namespaces.get(space, 0)
        count["extra"] = max(0, there_now - count["verified"] - count["different"])
    names = sorted(counts)
    frame = pd.DataFrame(
        {"namespace": pd.Series(map(service.redactor.own, names), dtype="str")}
        | {name: pd.Series([counts[space][name] for space in names], dtype="Int64") for name in _COUNTS}
    )
    listed = pd.DataFrame(sorted(problems), columns=["namespace", "id", "problem"], dtype="str")
    return VectorRestore(frame, listed, resumed_at)


def _difference(row: dict[str, Any], stored: dict[str, Any] | None) -> tuple[str, str]:
    """What is counted of a row, and what is wrong with it."""
    if stored is None:
        return "missing", "not in the index"
    differing = [
        name
        for name in _COMPARED
        if (row.get(name) or None) != (stored[name] or None)
        and not (name == "metadata" and _as_json(row.get(name)) == _as_json(stored[name]))
    ]
    return ("different", f"differs in {', '.join(differing)}") if differing else ("verified", "")


def _as_json(metadata: str | None) -> str | None:
    """Metadata in one spelling: 1 and 1.0 stay different, as true and 1 do."""
    try:
        return None if metadata is None else json.dumps(json.loads(metadata), sort_keys=True)
    except (ValueError, RecursionError):
        return metadata
