"""Store a snapshot of vectors in an index again, in batches; resume if interrupted; compare afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem

from toolkit.base.arguments import file_path, wrong
from toolkit.base.errors import (
    InputError,
    SnapshotBindingError,
    UnexpectedResultWarning,
)
from toolkit.base.private_files import (
    make_folder,
    open_private,
    user_folder,
    write_file,
)
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.loading.options import LoadOptions
from toolkit.secrets.redaction import Redactor, escape_html, visible
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.service.vectors import fetch_bytes, read_info
from toolkit.snapshots.opening import Snapshot, open_snapshot
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_vectors
from toolkit.vectors.chosen_rows import ChosenRows
from toolkit.vectors.row_encoding import BATCH_ROWS, RowEncoder, WireRow
from toolkit.vectors.upserts import store_rows

_DOING: Final = "restoring vectors"
_PENDING: Final = 60.0  # seconds to wait until the stored vectors are indexed
_COUNTS: Final = ("rows", "verified", "missing", "different", "skipped", "extra")
_COMPARED: Final = ("vector", "sparse_indices", "sparse_values", "metadata", "data")


@dataclass(frozen=True, repr=False, eq=False)
class VectorRestore:
    """The result of `restore_vectors`: a comparison of the snapshot with the index afterwards.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per namespace: ``namespace``, ``rows`` (of the snapshot), ``verified`` (equal in the index),
        ``missing``, ``different``, ``skipped`` (cannot be stored), ``extra`` (further vectors in the index;
        missing if only a part of the snapshot was restored). Counts are Int64.
    problems : pandas.DataFrame
        One row per vector that is not verified: ``namespace``, ``id``, ``problem``.
    resumed_at : int
        Number of rows stored by an earlier call that was interrupted.

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
        """Return whether every row of the snapshot is in the index, and equal."""
        return self.problems.empty

    @property
    def verdict(self) -> str:
        """Return one sentence with the counts."""
        total = int(self.frame["rows"].sum())
        same = int(self.frame["verified"].sum())
        if self.complete:
            return f"All {total:,} vectors of the snapshot are in the index, compared one by one."

        counts = self.frame[["missing", "different", "skipped"]].sum()
        others = ", ".join(
            f"{count:,} {name}" for name, count in counts.items() if count
        )
        return f"{same:,} of {total:,} vectors of the snapshot are in the index: {others}; see .problems."

    def __repr__(self) -> str:
        shown = self.frame.replace({"namespace": {"": "(default)"}})
        if shown.empty:
            return visible(self.verdict)

        return visible(f"{self.verdict}\n{shown.to_string(index=False)}")

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
    snapshot: str | os.PathLike[str] | Snapshot | ds.Dataset,
    *,
    namespace: str | None = None,
    ids: str | Iterable[str] | None = None,
    prefix: str | None = None,
    from_namespaces: str | Sequence[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: ProgressOption = None,
    filesystem: FileSystem | None = None,
) -> VectorRestore:
    """Store a snapshot of vectors in an index, and compare the index with the snapshot.

    If a call is interrupted or killed, the same call continues after the last stored batch. Nothing is
    removed: vectors that the snapshot does not contain stay in the index, and are counted.

    Parameters
    ----------
    service : Service
    snapshot : str, path or Snapshot
        A snapshot of vectors, written by `export_vectors` or `write_snapshot`, or the value that
        `open_snapshot` returns for it.
    namespace : str, optional
        Namespace for all rows. If omitted, each row goes to the namespace that it came from. If several rows
        have the same id, the last one stays; the others are listed as different.
    ids : str, iterable of str, or DataFrame, optional
        Restore only these ids; an error names an id that the snapshot does not have.
    prefix : str, optional
        Restore only ids that start with it.
    from_namespaces : str or sequence of str, optional
        Restore only rows of these namespaces of the snapshot. With several conditions, rows satisfy all.
    checkpoint : str or path, optional
        File that stores the progress; it is removed at the end. If omitted, a file in your data folder is
        used, one per snapshot and index.
    progress : bool or callable, optional
        As in `load_vectors`; rows are counted when they are stored, and again when they are compared.
    filesystem : pyarrow.fs.FileSystem, optional
        File system of the path, if it is not on the local disk.

    Returns
    -------
    VectorRestore
        Counts by namespace, and the vectors that are missing or differ.

    Raises
    ------
    InputError
        If the snapshot has no vectors, or if the vectors have another dimension than the index.
    SnapshotBindingError
        If the checkpoint belongs to another snapshot, index or namespace.
    SnapshotError
        If the path contains no snapshot.
    ServiceError
        When a request fails; a note on the error tells where the same call continues.

    Warns
    -----
    UnexpectedResultWarning
        If some vectors are not in the index afterwards, for example rows that cannot be stored.

    Notes
    -----
    Memory does not depend on the size of the snapshot. Rows are compared by fetching them again: numbers as
    float32, metadata as JSON values, data as text. Rows without a usable vector, and rows in which your own
    token is masked, cannot be stored; they are skipped, and listed in ``.problems``.

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
    selection = ChosenRows.of(ids, prefix, from_namespaces)
    selection.check(dataset)
    total = dataset.count_rows()
    file_names = [Path(path).name for path in getattr(dataset, "files", ())]
    # The names of data files are random and each is written once, so they stand for the content. Another
    # snapshot, index or namespace has another hash.
    binding = hashlib.sha256(
        json.dumps(
            [file_names, total, endpoint.url, namespace, *selection.binding]
        ).encode()
    ).hexdigest()
    stored_rows = _RestoreCheckpoint(checkpoint, binding)
    start = stored_rows.read(most=total)

    with (
        Transport.to(service, "vector", progress=progress) as transport,
        ProgressBar(
            options.progress, title="restoring", unit="vectors", total=2 * total
        ) as bar,
    ):
        _check_dimension(dataset, read_info(transport).dimension)
        bar.add(start)
        done = start

        try:
            for batch in _batches(dataset, start):
                chosen = selection.rows(batch)
                rows = [
                    wire for wire, _ in _encoded(encoder, chosen) if wire is not None
                ]
                for _ in store_rows(transport, rows):
                    pass
                done += batch.num_rows
                # The order matters: rows are stored first and counted afterwards. If the process is killed in
                # between, one batch is stored again, which changes nothing, as an upsert replaces.
                stored_rows.write(done)
                bar.add(batch.num_rows)
        except (Exception, KeyboardInterrupt) as error:
            error.add_note(
                f"The first {done:,} of {total:,} rows are stored: the same call continues there."
            )
            raise

        _wait_until_indexed(transport)
        result = _compared(service, transport, dataset, encoder, bar, start, selection)

    stored_rows.remove()
    if not result.complete:
        warnings.warn(result.verdict, UnexpectedResultWarning, stacklevel=2)
    return result


def _check_dimension(dataset: ds.Dataset, index_dimension: int) -> None:
    """Raise InputError if the vectors cannot be stored in the index; 0 means that neither is known yet."""
    vector_type = dataset.schema.field("vector").type
    stored_dimension = 0
    if pa.types.is_fixed_size_list(vector_type):
        stored_dimension = vector_type.list_size
    if stored_dimension and index_dimension and stored_dimension != index_dimension:
        raise InputError(
            _DOING,
            got=f"a snapshot of vectors of {stored_dimension:,} dimensions",
            expected=f"the {index_dimension:,} dimensions of the index",
        )


def _wait_until_indexed(transport: Transport) -> None:
    """Wait until the index has no pending vectors, or for a minute."""
    until = time.monotonic() + _PENDING
    while read_info(transport).pending_count and time.monotonic() < until:
        time.sleep(0.5)


def _dataset(snapshot: Any, filesystem: FileSystem | None) -> ds.Dataset:
    """Return the rows of a snapshot. Raise InputError if they are not vectors."""
    if not isinstance(snapshot, str | os.PathLike | Snapshot | ds.Dataset):
        raise wrong(
            "snapshot",
            snapshot,
            "the path of a snapshot, or a value of open_snapshot",
        )

    dataset: Any = snapshot
    if isinstance(snapshot, Snapshot):
        dataset = snapshot.to_arrow()
    elif not isinstance(snapshot, ds.Dataset):
        try:
            dataset = open_snapshot(snapshot, filesystem=filesystem).to_arrow()
        except InputError as error:
            doing = f"reading snapshot ({error.doing})"
            raise InputError(doing, got=error.got, expected=error.expected) from None

    absent = [
        name
        for name in ("namespace", "id", "vector")
        if name not in dataset.schema.names
    ]
    if absent:
        raise InputError(
            f"{_DOING}, reading snapshot",
            got=f"a snapshot without the columns {', '.join(absent)}",
            expected="a snapshot of vectors",
            next_step="export_vectors writes a snapshot of vectors.",
        )

    return dataset


class _RestoreCheckpoint:
    """The number of rows that are stored, in a file that is replaced atomically.

    Several processes may restore the same snapshot at once, for example two kernels. Each stores rows before
    it writes their number, so at least this number of rows is stored, whichever process wrote last.
    """

    def __init__(self, path: str | os.PathLike[str] | None, binding: str) -> None:
        self._own_folder = user_folder("data") / "restores"
        self._path = self._own_folder / f"{binding[:32]}.json"
        if path is not None:
            self._path = file_path("checkpoint", path)
        self._binding = binding

    def read(self, *, most: int) -> int:
        """Return the number of rows stored by an earlier call; 0 without a checkpoint."""
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
                got="a checkpoint of another snapshot, index or namespace",
                expected="the checkpoint of this call",
                next_step="Name another file, or remove this one to start again.",
            )

        if type(rows) is not int or not 0 <= rows <= most:
            raise self._unusable(
                f"{str(rows)[:40]} as the number of stored rows", f"0 to {most:,}"
            )

        return rows

    def write(self, rows: int) -> None:
        content = json.dumps({"rows": rows, "binding": self._binding}).encode()
        try:
            self._make_folder()
        except (OSError, ValueError) as error:
            raise self._unusable(f"{type(error).__name__}") from None

        # each process has its own draft: two that restore the same snapshot share only the checkpoint
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
        self,
        got: str,
        expected: str = "a file of this user that can be written and read",
    ) -> InputError:
        return InputError(
            f"using the checkpoint {str(self._path)!r}",
            got=got,
            expected=expected,
            next_step="Name another file with checkpoint=, or remove this one to start again.",
        )


def _batches(dataset: ds.Dataset, start: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a dataset in order, except for the first `start`. Skipped files are not opened."""
    for fragment in dataset.get_fragments():
        rows = fragment.count_rows()
        if start >= rows:
            start -= rows
            continue
        for batch in fragment.to_batches(
            schema=dataset.schema, batch_size=BATCH_ROWS, batch_readahead=2
        ):
            skipped = min(start, batch.num_rows)
            start -= skipped
            if batch.num_rows > skipped:
                yield batch.slice(skipped)


def _encoded(
    encoder: RowEncoder, batch: pa.RecordBatch
) -> Iterator[tuple[WireRow | None, tuple[dict[str, Any], str]]]:
    """Yield each row as it is sent, with the row itself and a problem.

    A row that cannot be stored is None as sent; the problem of others is empty.
    """
    for row in batch.to_pylist():
        try:
            yield encoder.encode("a row of the snapshot", row), (row, "")
        except InputError as error:
            yield (
                None,
                (row, f"cannot be stored: {row.get('vector_problem') or error}"[:200]),
            )


def _compared(
    service: Service,
    transport: Transport,
    dataset: ds.Dataset,
    encoder: RowEncoder,
    bar: ProgressBar,
    resumed_at: int,
    selection: ChosenRows,
) -> VectorRestore:
    """Fetch every row of the snapshot from the index, and compare."""
    comparison = _Comparison(transport, ColumnMasker(service.redactor))
    for batch in _batches(dataset):
        # lists, because rows of several namespaces that go to one can have the same id
        sent: dict[str, list[dict[str, Any]]] = {}
        for wire, (row, reason) in _encoded(encoder, selection.rows(batch)):
            space = encoder.namespace_of(row)
            comparison.counts.setdefault(space, Counter())["rows"] += 1
            if wire is None:
                comparison.add(space, row, "skipped", reason)
            else:
                sent.setdefault(space, []).append(row)

        for space, rows in sent.items():
            comparison.compare(space, rows)
        bar.add(batch.num_rows)

    if selection.is_whole:
        comparison.count_extra()
    return VectorRestore(
        comparison.counts_frame(service.redactor),
        comparison.problems_frame(),
        resumed_at,
    )


class _Comparison:
    """Counts of the rows of a snapshot by namespace, and their problems, while they are compared."""

    def __init__(self, transport: Transport, mask: ColumnMasker) -> None:
        self._transport = transport
        self._mask = mask
        self.counts: dict[str, Counter[str]] = {}
        self._problems: list[tuple[str, str, str]] = []

    def add(
        self, namespace: str, row: dict[str, Any], outcome: str, problem: str
    ) -> None:
        """Count a row under an outcome, for example "different", and note the problem if it has one."""
        self.counts[namespace][outcome] += 1
        if problem:
            self._problems.append((namespace, str(row["id"]), problem))

    def compare(self, namespace: str, rows: list[dict[str, Any]]) -> None:
        """Fetch the vectors of some rows, and compare them."""
        unique_ids = list(dict.fromkeys(row["id"] for row in rows))
        raw = fetch_bytes(self._transport, namespace=namespace, ids=unique_ids)
        vectors = self._mask.table(
            decode_vectors(raw, namespace=namespace, dimension=None)
        ).to_pylist()
        by_id = {vector["id"]: vector for vector in vectors}
        for row in rows:
            outcome, problem = _difference(row, by_id.get(row["id"]))
            self.add(namespace, row, outcome, problem)

    def count_extra(self) -> None:
        """Count the vectors of each namespace that are in the index and not in the snapshot."""
        totals = read_info(self._transport).namespaces
        for namespace, count in self.counts.items():
            total = totals.get(namespace, 0)
            count["extra"] = max(0, total - count["verified"] - count["different"])

    def counts_frame(self, redactor: Redactor) -> pd.DataFrame:
        """Return one row per namespace, with the counts as columns."""
        namespaces = sorted(self.counts)
        columns = {"namespace": pd.Series(map(redactor.own, namespaces), dtype="str")}
        for outcome in _COUNTS:
            counts = [self.counts[namespace].get(outcome) for namespace in namespaces]
            if outcome != "extra":
                counts = [count or 0 for count in counts]
            columns[outcome] = pd.Series(counts, dtype="Int64")

        return pd.DataFrame(columns)

    def problems_frame(self) -> pd.DataFrame:
        """Return one row per vector that is not verified, by namespace and id."""
        return pd.DataFrame(
            sorted(self._problems), columns=["namespace", "id", "problem"], dtype="str"
        )


def _difference(row: dict[str, Any], stored: dict[str, Any] | None) -> tuple[str, str]:
    """Return the outcome of a row, for example "different", and the problem, which is empty if verified."""
    if stored is None:
        return "missing", "not in the index"

    differing = [
        name for name in _COMPARED if not _is_same(name, row.get(name), stored[name])
    ]
    if differing:
        return "different", f"differs in {', '.join(differing)}"

    return "verified", ""


def _is_same(name: str, before: Any, after: Any) -> bool:
    # an empty value and a missing one are the same to the service
    if (before or None) == (after or None):
        return True
    return name == "metadata" and _normal_json(before) == _normal_json(after)


def _normal_json(metadata: str | None) -> str | None:
    """Return metadata with sorted keys and without spaces. 1 and 1.0 stay different, as true and 1 do."""
    if metadata is None:
        return None

    try:
        return json.dumps(json.loads(metadata), sort_keys=True)
    except (ValueError, RecursionError):
        return metadata
