"""Read vectors from any container in batches, and summarize rows and metadata fields for audits."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.base.arguments import nearest, shown, wrong
from toolkit.base.errors import InputError
from toolkit.failures.selection import typed_frame
from toolkit.snapshots import Snapshot
from toolkit.tables.arrow_input import ArrowStream
from toolkit.tables.frame_parts import FrameParts
from toolkit.tables.schemas import UNFIT
from toolkit.tables.vectors import is_numbers
from toolkit.vectors.rounding import SKETCH, Precision, precision_of, sketches
from toolkit.vectors.similar_texts import TextSample
from toolkit.vectors.vector_sources import batches_of, opened_vectors

Matrix = npt.NDArray[np.float32]
Positions = npt.NDArray[np.intp]
Hashes = npt.NDArray[np.uint64]  # equal for equal values, 0 if a row has no value
VectorSource: TypeAlias = (
    pd.DataFrame
    | ArrowStream
    | ds.Dataset
    | Snapshot
    | str
    | os.PathLike[str]
    | npt.NDArray[Any]
)

BATCH: Final = 8_192
_SPARSE: Final = ("sparse_indices", "sparse_values")
_NAMES: Final = ("namespace", "id", "vector", *_SPARSE, "data", "metadata")


@dataclass(frozen=True, eq=False)
class VectorBatch:
    """Some rows of an index; missing text is an empty string."""

    namespaces: list[str]
    ids: list[str]
    # per dimension: the positions of rows, and their vectors
    dense: list[tuple[Positions, Matrix]]
    sparse: Hashes  # of sparse vectors
    data: list[str]
    metadata: list[str | None]


@dataclass(frozen=True)
class InNamespace:
    """Vectors that are read as vectors of one namespace, to compare them with another namespace."""

    vectors: VectorSource
    namespace: str


class VectorTables:
    """Rows of `vectors`, which are counted at once and read in batches on each iteration."""

    def __init__(
        self,
        vectors: VectorSource | InNamespace,
        *,
        doing: str,
        name: str = "vectors",
        with_ids: bool = False,
    ) -> None:
        self._doing, self._name = doing, name
        self._only_namespace: str | None = None
        if isinstance(vectors, InNamespace):
            self._only_namespace = vectors.namespace
            vectors = vectors.vectors
        given = vectors
        vectors = opened_vectors(vectors, doing=doing, name=name)
        if isinstance(vectors, pd.DataFrame) and is_matrix(vectors):
            vectors = vectors.to_numpy()
        if isinstance(vectors, np.ndarray):
            vectors = self._table_of_matrix(vectors)
        elif isinstance(vectors, pd.DataFrame):
            vectors = self._table_of_frame(vectors)
        if not isinstance(vectors, pa.Table | FrameParts):
            raise self._wrong(
                shown(vectors), "a frame, an Arrow table, a snapshot or a matrix"
            )
        names = [name for name in vectors.schema.names if name in _NAMES]
        if len(names) > len(set(names)):
            raise self._wrong(
                f"the columns {', '.join(names)[:200]}", "unique names of columns"
            )
        if "vector" not in names:
            raise self._wrong(
                "no column vector", "a frame with a column vector, or a matrix"
            )
        for column in ("vector", *_SPARSE):
            kind = vectors.schema.field(column).type if column in names else pa.null()
            if not (pa.types.is_null(kind) or is_numbers(kind)):
                raise self._wrong(
                    f"a column {column} of the type {str(kind)[:80]}",
                    "lists of numbers",
                )
        if with_ids and "id" not in names:
            raise wrong(
                name,
                given,
                "vectors with their ids",
                "Use load_vectors, or the path of a snapshot.",
            )
        self._source = vectors
        self.columns = [column for column in _NAMES if column in names]
        self.rows: int = vectors.num_rows

    def __iter__(self) -> Iterator[VectorBatch]:
        start = 0
        for batch in batches_of(self._source, self.columns, BATCH):
            if batch.num_rows:
                yield self._batch(batch, start)
            start += batch.num_rows

    def keys(self) -> pd.DataFrame:
        """Return the namespace and id of each row."""
        names = [name for name in ("namespace", "id") if name in self.columns]
        schema = pa.schema(
            [pa.field(name, self._source.schema.field(name).type) for name in names]
        )
        # batches of a dataset can be nullable where its schema is not
        parts = [
            pa.Table.from_batches([batch]).cast(schema)
            for batch in batches_of(self._source, names, BATCH)
        ]
        table = pa.concat_tables(parts) if parts else schema.empty_table()
        columns = {name: table[name].cast(pa.string()).fill_null("") for name in names}
        columns.setdefault("namespace", pa.array([""] * self.rows, pa.string()))
        if self._only_namespace is not None:
            columns["namespace"] = pa.array(
                [self._only_namespace] * self.rows, pa.string()
            )
        frame: pd.DataFrame = pa.table(columns).to_pandas()
        return frame

    def _table_of_matrix(self, matrix: npt.NDArray[Any]) -> pa.Table:
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":  # noqa: PLR2004 - rows and numbers
            raise self._wrong(
                f"an array of shape {matrix.shape}",
                "a matrix of numbers, one row per vector",
            )
        with np.errstate(over="ignore"):
            # numbers beyond float32 are not finite, as in other containers
            flat = pa.array(np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1))
        if not matrix.shape[1]:
            return pa.table({"vector": pa.nulls(len(matrix))})
        return pa.table(
            {"vector": pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])}
        )

    def _table_of_frame(self, frame: pd.DataFrame) -> pa.Table:
        places = np.flatnonzero(frame.columns.isin(list(_NAMES))).tolist()
        try:
            arrays = [
                pa.array(frame.iloc[:, place], from_pandas=True) for place in places
            ]
            return pa.Table.from_arrays(arrays, names=frame.columns[places].tolist())
        except UNFIT:
            raise self._wrong(
                "a frame with values of several types in a column", "one type"
            ) from None

    def _batch(self, batch: pa.RecordBatch, start: int) -> VectorBatch:
        rows = batch.num_rows
        if "id" in batch.schema.names:
            ids = _strings(batch, "id")
        else:
            ids = [str(start + row) for row in range(rows)]
        try:
            sparse = _sparse(batch)
        except ValueError:
            got = "rows with another number of sparse_indices than of sparse_values"
            raise self._wrong(got, "a value for each index") from None
        return VectorBatch(
            namespaces=self._namespaces(batch),
            ids=[vector_id or "" for vector_id in ids],
            dense=_dense(batch.column("vector")),
            sparse=sparse,
            data=[data or "" for data in _strings(batch, "data")],
            metadata=_strings(batch, "metadata"),
        )

    def _namespaces(self, batch: pa.RecordBatch) -> list[str]:
        if self._only_namespace is not None:
            return [self._only_namespace] * batch.num_rows
        return [namespace or "" for namespace in _strings(batch, "namespace")]

    def _wrong(self, got: str, expected: str) -> InputError:
        return InputError(
            self._doing,
            got=f"{got} for {self._name}",
            expected=expected,
            next_step="Use load_vectors, or the path of a snapshot that export_vectors wrote.",
        )


def is_matrix(frame: pd.DataFrame) -> bool:
    """Return whether a frame is a matrix: the names of the columns are numbers."""
    return len(frame.columns) > 0 and pd.api.types.is_integer_dtype(frame.columns.dtype)


def _strings(batch: pa.RecordBatch, name: str) -> list[str | None]:
    """Return a column as strings; all are None if the batch does not have the column."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    values: list[Any] = column.to_pylist()
    if pa.types.is_string(column.type):
        return values
    return [None if value is None else str(value) for value in values]


def _dense(column: pa.Array) -> list[tuple[Positions, Matrix]]:
    """Return the positions and vectors of each dimension; rows without a vector are left out."""
    if pa.types.is_null(column.type):
        return []
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    kept = column.drop_null()
    # missing numbers are NaN
    flat = kept.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        if not size or not len(present):
            return []
        return [(present, flat.reshape(-1, size))]
    lengths = kept.value_lengths().to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    parts = []
    for size in np.unique(lengths[lengths > 0]).tolist():
        chosen = lengths == size
        if chosen.all():
            parts.append((present, flat.reshape(-1, size)))
        else:
            places = (ends[chosen] - size)[:, None] + np.arange(size)
            parts.append((present[chosen], flat[places]))
    return parts


def _sparse(batch: pa.RecordBatch) -> Hashes:
    """Return a hash per sparse vector, which does not depend on the order of indices.

    Raise ValueError if a row has another number of indices than of values.
    """
    hashes = np.zeros(batch.num_rows, dtype=np.uint64)
    columns = [batch.column(name) for name in _SPARSE if name in batch.schema.names]
    if len(columns) < len(_SPARSE) or any(
        pa.types.is_null(column.type) for column in columns
    ):
        return hashes
    lengths, values = zip(*(_flat(column) for column in columns), strict=True)
    if (lengths[0] != lengths[1]).any():
        raise ValueError
    # -0.0 becomes 0.0
    bits = (values[1].astype(np.float32) + np.float32(0)).view(np.uint32)
    pairs = pd.util.hash_array(pd.util.hash_array(values[0].astype(np.float64)) + bits)
    np.add.at(hashes, np.repeat(np.arange(batch.num_rows), lengths[0]), pairs)
    hashes[lengths[0] > 0] |= np.uint64(1)  # 0 means no vector
    return hashes


def _flat(column: pa.Array) -> tuple[Positions, npt.NDArray[Any]]:
    """Return how many numbers each row has, and all numbers."""
    lengths = np.zeros(len(column), dtype=np.intp)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    kept = column.drop_null()
    if pa.types.is_fixed_size_list(column.type):
        lengths[present] = column.type.list_size
    else:
        lengths[present] = kept.value_lengths().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        return lengths, kept.flatten().to_numpy(zero_copy_only=False)


IDS: Final = 10_000  # ids in a finding at most
_KNOWN: Final = 20  # names in a message at most
_KINDS: Final = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
}
_MOST_FIELDS: Final = 2_000


@dataclass
class FieldCounts:
    """Counts of a field of metadata by the type of the values, with the first ids of each type."""

    counts: Counter[str] = field(default_factory=Counter)
    ids: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass(eq=False)
class IndexRows:
    """A summary of the rows of an index, as audits need it.

    `rows` has one row per vector: `namespace`, `id`, `dimension` (0 without a vector), `norm`, `finite`,
    `vector`, `sparse`, `text` and `metadata` (hashes, 0 if missing; the order of names in metadata does not
    count), `usable`. `usual` is the most frequent dimension of each namespace, or the largest of equally
    frequent ones. `sketches` has one row per row of `rows`, NaN if the vector is not usable (see
    `toolkit.vectors.rounding`). `sampled` contains, per namespace, the positions in `rows` and the vectors of
    usable rows of the usual dimension. `texts` has the text of some of these rows.
    """

    rows: pd.DataFrame
    sketches: Matrix
    usual: dict[str, int]
    sampled: dict[str, tuple[Positions, Matrix]]
    texts: TextSample
    fields: dict[str, dict[str, FieldCounts]]
    # by namespace: dimensions with one value in all rows
    constant: dict[str, dict[int, float]]
    columns: list[str]
    is_sample: bool

    @property
    def has_vectors(self) -> bool:
        """Return whether any row has a vector, dense or sparse."""
        return bool(
            (self.rows["dimension"] > 0).any() or (self.rows["sparse"] != 0).any()
        )

    def precision(self, namespace: str, positions: Positions) -> Precision:
        """Return the precision of the numbers of some rows."""
        sampled, matrix = self.sampled.get(
            namespace, (np.zeros(0, dtype=np.intp), np.zeros((0, 0), dtype=np.float32))
        )
        return precision_of(matrix[np.isin(sampled, positions)])


_COLUMNS: Final = (
    "namespace", "id", "dimension", "norm", "finite", "vector", "sparse", "text", "metadata", "usable",
)  # fmt: skip


def read_rows(tables: VectorTables, *, sample: int, seed: int = 0) -> IndexRows:
    """Read all rows once, and keep the vectors of at most `sample` rows, drawn at random."""
    rng = np.random.default_rng([seed, 1])
    drawn = np.ones(tables.rows, dtype=bool)
    if tables.rows > sample:
        drawn[:] = False
        drawn[rng.choice(tables.rows, sample, replace=False)] = True
    parts: list[pd.DataFrame] = []
    sketched: list[Matrix] = [np.empty((0, SKETCH), dtype=np.float32)]
    kept: list[tuple[Positions, Matrix]] = []
    fields: dict[str, dict[str, FieldCounts]] = defaultdict(dict)
    extremes: dict[tuple[str, int], tuple[Matrix, Matrix]] = {}
    texts = TextSample(seed)
    start = 0
    for batch in tables:
        values, spellings = _decoded(batch.metadata)
        part = _per_row(batch, spellings, extremes)
        usable = part["usable"].to_numpy()
        sketch = np.full((len(part), SKETCH), np.nan, dtype=np.float32)
        for positions, matrix in batch.dense:
            sketch[positions] = sketches(matrix)
            chosen = drawn[start + positions] & usable[positions]
            kept.append((start + positions[chosen], matrix[chosen]))
            texts.add(batch.namespaces, batch.data, positions[chosen], start)
        _count_fields(batch, values, fields)
        parts.append(part)
        sketched.append(sketch)
        start += len(part)
    rows = (
        pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_COLUMNS)
    )
    rows = rows.astype({"namespace": "category"})
    usual = _usual_dimensions(rows)
    return IndexRows(
        rows=rows,
        sketches=np.concatenate(sketched),
        usual=usual,
        sampled=_by_namespace(rows, usual, kept),
        texts=texts,
        fields=dict(fields),
        constant={
            name: {
                int(place): float(low[place]) for place in np.flatnonzero(low == high)
            }
            for (name, size), (low, high) in extremes.items()
            if usual.get(name) == size
        },
        columns=tables.columns,
        is_sample=tables.rows > sample,
    )


def _per_row(
    batch: VectorBatch,
    metadata: list[str],
    extremes: dict[tuple[str, int], tuple[Matrix, Matrix]],
) -> pd.DataFrame:
    size = len(batch.ids)
    dimension, norm = np.zeros(size, dtype=np.int32), np.zeros(size)
    finite, vector = np.zeros(size, dtype=bool), np.zeros(size, dtype=np.uint64)
    names = np.array(batch.namespaces, dtype=object)
    for positions, matrix in batch.dense:
        dimension[positions] = matrix.shape[1]
        ok = np.isfinite(matrix).all(axis=1)
        finite[positions] = ok
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)
        norm[positions] = np.sqrt(np.where(ok, squares, 0))
        vector[positions] = _hashes(matrix)
        for name in pd.unique(names[positions]):
            inside = matrix[ok & (names[positions] == name)]
            if len(inside):
                low, high = inside.min(axis=0), inside.max(axis=0)
                key = str(name), matrix.shape[1]
                if key in extremes:
                    low, high = (
                        np.minimum(low, extremes[key][0]),
                        np.maximum(high, extremes[key][1]),
                    )
                extremes[key] = low, high
    return pd.DataFrame({
        "namespace": batch.namespaces,
        "id": batch.ids,
        "dimension": dimension,
        "norm": norm,
        "finite": finite,
        "vector": vector,
        "sparse": batch.sparse,
        "text": _text_hashes(batch.data),
        "metadata": _text_hashes(metadata),
        "usable": finite & (norm > 0),
    })  # fmt: skip


def _text_hashes(texts: list[str]) -> Hashes:
    hashes: Hashes = pd.util.hash_array(np.array(texts, dtype=object), categorize=False)
    hashes[[not text for text in texts]] = 0
    return hashes


def _hashes(matrix: Matrix) -> Hashes:
    """Return a hash of 64 bits per row, which is equal for equal rows."""
    # -0.0 becomes 0.0
    bits = (
        np.ascontiguousarray(matrix + np.float32(0)).view(np.uint32).astype(np.uint64)
    )
    factors = np.random.default_rng(0).integers(
        0, 2**64, matrix.shape[1], dtype=np.uint64
    ) | np.uint64(1)
    sums: Hashes = (bits * factors).sum(axis=1, dtype=np.uint64)
    return sums | np.uint64(1)  # 0 means no vector


def _decoded(metadata: list[str | None]) -> tuple[list[Any], list[str]]:
    """Return the decoded metadata, and a normal form of each, with sorted names; 1 and 1.0 stay different.

    If metadata is not JSON, the decoded value is None and the normal form is the original.
    """
    values: list[Any] = []
    spellings = []
    for text in metadata:
        value, spelling = None, text or ""
        if text:
            with suppress(
                msgspec.DecodeError, ValueError, OverflowError, RecursionError
            ):
                value = msgspec.json.decode(text)
                spelling = msgspec.json.encode(value, order="deterministic").decode()
        values.append(value)
        spellings.append(spelling)
    return values, spellings


def metadata_fields(text: str | None) -> set[str] | None:
    """Return the names of the fields that have a value; None without metadata, or if it is no object."""
    if not text:
        return None
    (value,), _ = _decoded([text])
    if not isinstance(value, dict):
        return set()
    return {name for name, item in value.items() if item is not None}


def _count_fields(
    batch: VectorBatch, values: list[Any], fields: dict[str, dict[str, FieldCounts]]
) -> None:
    for namespace, key, value in zip(batch.namespaces, batch.ids, values, strict=True):
        if not isinstance(value, dict):
            continue
        known = fields[namespace]
        for name, item in value.items():
            if item is not None and (name in known or len(known) < _MOST_FIELDS):
                found, kind = known.setdefault(name, FieldCounts()), _KINDS[type(item)]
                found.counts[kind] += 1
                if len(found.ids[kind]) < IDS:
                    found.ids[kind].append(key)


def _by_namespace(
    rows: pd.DataFrame, usual: dict[str, int], kept: list[tuple[Positions, Matrix]]
) -> dict[str, tuple[Positions, Matrix]]:
    """Return the sampled vectors of the usual dimension by namespace, in the order of rows."""
    names = rows["namespace"].to_numpy(dtype=object)
    sampled = {
        name: ([np.zeros(0, dtype=np.intp)], [np.zeros((0, size), dtype=np.float32)])
        for name, size in usual.items()
    }
    for positions, matrix in kept:
        inside = names[positions]
        for name in pd.unique(inside):
            if usual.get(name) == matrix.shape[1]:
                sampled[name][0].append(positions[inside == name])
                sampled[name][1].append(matrix[inside == name])
    return {
        name: (np.concatenate(places), np.concatenate(found))
        for name, (places, found) in sampled.items()
    }


def _usual_dimensions(rows: pd.DataFrame) -> dict[str, int]:
    counts = (
        rows[rows["dimension"] > 0]
        .groupby(["namespace", "dimension"], observed=True)
        .size()
    )
    ordered = counts.reset_index(name="rows").sort_values(
        ["namespace", "rows", "dimension"]
    )
    last = ordered.drop_duplicates("namespace", keep="last")
    return {
        str(name): int(size)
        for name, size in zip(last["namespace"], last["dimension"], strict=True)
    }


def only_namespace(name: str, known: Sequence[str]) -> str:
    """Return the only namespace, for an argument without namespaces. Raise InputError if several exist."""
    if len(known) > 1:
        raise InputError(
            f"reading {name}",
            got="no column namespace",
            expected=f"a column namespace, because the vectors are of {len(known):,} namespaces",
            next_step=f"Known: {', '.join(map(repr, known[:_KNOWN]))}.",
        )
    if known:
        return known[0]
    return ""


def check_namespaces(name: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise InputError if an argument names a namespace that the vectors do not have."""
    for unknown in sorted(set(given) - set(known)):
        raise wrong(
            name, unknown, "namespaces that the vectors have", nearest(unknown, known)
        )


def typed_tuples(rows: Sequence[tuple[Any, ...]], /, **kinds: str) -> pd.DataFrame:
    """Return a small frame of rows, which are tuples; `kinds` are the dtypes of the columns by name."""
    columns = zip(*rows, strict=True) if rows else repeat((), len(kinds))
    named = zip(kinds.items(), columns, strict=True)
    return typed_frame(**{name: (kind, list(values)) for (name, kind), values in named})


def with_default_named(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame for display: the namespace without a name is shown as ``(default)``."""
    return frame.replace({"namespace": {"": "(default)"}})
