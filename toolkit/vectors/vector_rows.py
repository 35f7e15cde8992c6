"""Read vectors from any container in batches, and summarize rows and metadata fields for audits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.base.arguments import as_json, nearest, shown, wrong
from toolkit.base.errors import InputError
from toolkit.failures.selection import typed_frame
from toolkit.snapshots import Snapshot
from toolkit.tables.arrow_input import ArrowStream
from toolkit.tables.frame_parts import FrameParts
from toolkit.tables.schemas import UNFIT
from toolkit.tables.vector_matrix import is_numbers
from toolkit.vectors.rounding import SKETCH, Precision, precision_of
from toolkit.vectors.row_draws import draw_limit
from toolkit.vectors.row_summaries import (
    BATCH,
    Extremes,
    FieldCounts,
    Fields,
    RowSummary,
    Sketching,
    Summarizing,
    merge_extremes,
)
from toolkit.vectors.similar_texts import TextSample
from toolkit.vectors.vector_batches import (
    SPARSE,
    BatchReader,
    Hashes,
    Matrix,
    Positions,
    VectorBatch,
)
from toolkit.vectors.vector_sources import batches_of, opened_vectors

Result = TypeVar("Result")
VectorSource: TypeAlias = (
    pd.DataFrame
    | ArrowStream
    | ds.Dataset
    | Snapshot
    | str
    | os.PathLike[str]
    | npt.NDArray[Any]
)

_NAMES: Final = ("namespace", "id", "vector", *SPARSE, "data", "metadata")


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
        self.reader = BatchReader(doing, name, ())
        if isinstance(vectors, InNamespace):
            self.reader = replace(self.reader, only_namespace=vectors.namespace)
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
            raise self.reader.wrong(
                shown(vectors), "a frame, an Arrow table, a snapshot or a matrix"
            )

        names = [name for name in vectors.schema.names if name in _NAMES]
        if len(names) > len(set(names)):
            raise self.reader.wrong(
                f"the columns {', '.join(names)[:200]}", "unique names of columns"
            )

        if "vector" not in names:
            raise self.reader.wrong(
                "no column vector", "a frame with a column vector, or a matrix"
            )

        for column in ("vector", *SPARSE):
            kind = vectors.schema.field(column).type if column in names else pa.null()
            if not (pa.types.is_null(kind) or is_numbers(kind)):
                raise self.reader.wrong(
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
        self.reader = replace(self.reader, columns=tuple(self.columns))
        self.rows: int = vectors.num_rows

    def __iter__(self) -> Iterator[VectorBatch]:
        start = 0
        for batch in batches_of(self._source, self.columns, BATCH):
            if batch.num_rows:
                yield self.reader.read(batch, start)
            start += batch.num_rows

    def map(self, function: Callable[[pa.Table, int], Result]) -> Iterator[Result]:
        """Yield a result per part, of a function of the rows and the number of rows before them.

        The workers of a Dask frame compute the results of their partitions, and vectors stay with them.
        """
        if isinstance(self._source, FrameParts):
            yield from self._source.map_numbered(function, self.columns)
            return

        columns = self._source.select(self.columns)
        for start in range(0, self.rows, BATCH):
            yield function(columns.slice(start, BATCH), start)

    def namespaces(self) -> list[str]:
        """Return the namespaces, in the order of the rows. Only their column is read."""
        if self.reader.only_namespace is not None:
            return [self.reader.only_namespace]
        if "namespace" not in self.columns:
            return [""]

        names: dict[str, None] = {}
        for batch in batches_of(self._source, ["namespace"], BATCH):
            found = batch.column(0).cast(pa.string()).fill_null("").unique()
            names.update(dict.fromkeys(found.to_pylist()))

        return list(names)

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

        if self.reader.only_namespace is not None:
            columns["namespace"] = pa.array(
                [self.reader.only_namespace] * self.rows, pa.string()
            )

        frame: pd.DataFrame = pa.table(columns).to_pandas()
        return frame

    def _table_of_matrix(self, matrix: npt.NDArray[Any]) -> pa.Table:
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":  # noqa: PLR2004 - rows and numbers
            raise self.reader.wrong(
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
        if not len(frame):
            # an empty range: pandas then has columns of numbers, or no columns
            names = [name for name in _NAMES if name in frame.columns]
            if not len(frame.columns):
                names = ["id", "vector"]
            return pa.table({name: pa.nulls(0) for name in names})

        places = np.flatnonzero(frame.columns.isin(list(_NAMES))).tolist()
        try:
            columns = [_without_mappings(frame.iloc[:, place]) for place in places]
        except (TypeError, ValueError, RecursionError):
            raise self.reader.wrong(
                "metadata with a value that is not JSON", "JSON objects, or their text"
            ) from None
        try:
            arrays = [pa.array(column, from_pandas=True) for column in columns]
            return pa.Table.from_arrays(arrays, names=frame.columns[places].tolist())
        except UNFIT:
            raise self.reader.wrong(
                "a frame with values of several types in a column", "one type"
            ) from None


def _without_mappings(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of metadata with mappings as JSON, and any other column as it is.

    Arrow would give all mappings the same fields, and accepts one type per field.
    """
    if column.name != "metadata" or column.dtype != object:
        return column
    is_mapping = column.map(lambda cell: isinstance(cell, Mapping))
    return column.where(~is_mapping, column[is_mapping].map(as_json))


def is_matrix(frame: pd.DataFrame) -> bool:
    """Return whether a frame is a matrix: the names of the columns are numbers."""
    return len(frame.columns) > 0 and pd.api.types.is_integer_dtype(frame.columns.dtype)


_KNOWN: Final = 20  # names in a message at most


@dataclass(eq=False)
class IndexRows:
    """A summary of the rows of an index, as audits need it.

    `rows` has one row per vector: `namespace`, `id`, `dimension` (0 without a vector), `norm`, `finite`,
    `padding` (zeros at the end of the vector), `vector`, `sparse`, `text` and `metadata` (hashes, 0 if
    missing; the order of names in metadata does not count), `unreadable` (whether the metadata is not JSON),
    `usable`. `usual` is the most frequent dimension of each namespace, or the largest of equally frequent
    ones. `sketches` has one row per row of `rows`, NaN if the vector is not usable (see
    `toolkit.vectors.rounding`), or no row if they are not kept. `sampled` contains, per namespace, the
    positions in `rows` and the vectors of usable rows of the usual dimension. `texts` has the text of some of
    these rows.
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


def read_rows(
    tables: VectorTables, *, sample: int, seed: int = 0, with_sketches: bool = True
) -> IndexRows:
    """Read all rows once, and keep the vectors of at most `sample` rows, drawn at random."""
    merged = _MergedSummary(tables.rows, seed, with_sketches=with_sketches)
    limit = draw_limit(tables.rows, sample, seed)
    summarizing = Summarizing(tables.reader, limit, seed, with_sketches=with_sketches)
    for summary in tables.map(summarizing):
        merged.add(summary)
    rows = merged.rows()
    usual = _usual_dimensions(rows)

    return IndexRows(
        rows=rows,
        sketches=merged.sketches,
        usual=usual,
        sampled=_by_namespace(rows, usual, merged.sampled),
        texts=merged.texts,
        fields=merged.fields.counts,
        constant={
            name: {
                int(place): float(low[place]) for place in np.flatnonzero(low == high)
            }
            for (name, size), (low, high) in merged.extremes.items()
            if usual.get(name) == size
        },
        columns=tables.columns,
        is_sample=tables.rows > sample,
    )


def chosen_rows(rows: pd.DataFrame, chosen: pd.Series[bool]) -> pd.DataFrame:
    """Return the chosen rows; if these are all rows, the same frame, as a copy takes memory."""
    return rows if chosen.all() else rows[chosen]


def repeated(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return which hashes occur more than once; 0 stands for a missing value.

    >>> repeated(np.array([5, 7, 5, 0, 0], dtype=np.uint64)).tolist()
    [True, False, True, False, False]
    """
    ordered = np.sort(hashes)
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    # pandas looks values up in a table of the repeated ones, and does not sort all of them again
    return pd.Series(hashes).isin(several[several != 0]).to_numpy()


def sketches_of(tables: VectorTables, hashes: Hashes) -> Matrix:
    """Read the rows again, and return the sketch of the vector of each hash.

    Hashes find the vectors, because an engine can return the rows in another order.
    """
    wanted, places = np.unique(hashes, return_inverse=True)
    known = np.full((len(wanted), SKETCH), np.nan, dtype=np.float32)
    for found, sketch in tables.map(Sketching(tables.reader, wanted)):
        known[np.searchsorted(wanted, found)] = sketch

    return known[places]


_NUMBERS: Final = {
    "dimension": np.int32,
    "norm": np.float64,
    "finite": np.bool_,
    "padding": np.int32,
    "vector": np.uint64,
    "sparse": np.uint64,
    "text": np.uint64,
    "metadata": np.uint64,
    "unreadable": np.bool_,
    "usable": np.bool_,
}
"""Columns of `IndexRows.rows` that are numbers."""


class _MergedSummary:
    """The summaries of all parts. Arrays have their final size, so that millions of rows exist once."""

    def __init__(self, rows: int, seed: int, *, with_sketches: bool) -> None:
        sketched = rows if with_sketches else 0
        self.sketches: Matrix = np.full((sketched, SKETCH), np.nan, dtype=np.float32)
        self.sampled: list[tuple[Positions, Matrix]] = []
        self.texts = TextSample(seed)
        self.fields = Fields()
        self.extremes: Extremes = {}
        self._numbers: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(rows, kind) for name, kind in _NUMBERS.items()
        }
        # one array at least: Arrow cannot convert a column without arrays
        self._ids: list[pa.Array] = [pa.array([], pa.large_string())]
        self._codes = np.zeros(rows, dtype=np.int32)
        self._code_of: dict[str, int] = {}
        self._rows = 0

    def add(self, summary: RowSummary) -> None:
        """Add the rows that follow."""
        start = self._rows
        for sketch in summary.sketches:
            self.sketches[start : start + len(sketch)] = sketch
            start += len(sketch)

        for part in summary.rows:
            rows = slice(self._rows, self._rows + len(part))
            self._rows = rows.stop
            for name, column in self._numbers.items():
                values = part[name].to_numpy()
                # pages of memory that nobody writes to take none, for example without sparse vectors
                if values.any():
                    column[rows] = values
            self._ids.append(pa.array(part["id"], pa.large_string()))
            self._codes[rows] = self._namespace_codes(part["namespace"])

        self.sampled += summary.sampled
        self.texts.merge(summary.texts)
        self.fields.merge(summary.fields)
        merge_extremes(self.extremes, summary.extremes)

    def rows(self) -> pd.DataFrame:
        """Return the summary of each row."""
        ids = pa.chunked_array(self._ids, pa.large_string())
        names = np.array(list(self._code_of), dtype=object)
        order = np.argsort(names, kind="stable")
        sorted_code = np.empty(len(names), dtype=np.int32)
        sorted_code[order] = np.arange(len(names))
        codes = sorted_code[self._codes] if len(names) else self._codes
        namespaces = pd.Categorical.from_codes(
            codes, categories=pd.Index(names[order], dtype="str")
        )
        columns = {"namespace": namespaces, "id": ids.to_pandas().array}

        return pd.DataFrame(columns | self._numbers, copy=False)

    def _namespace_codes(self, namespaces: pd.Series[str]) -> npt.NDArray[np.int32]:
        codes, names = pd.factorize(namespaces)
        known = [self._code_of.setdefault(name, len(self._code_of)) for name in names]
        return np.array(known, dtype=np.int32)[codes]


def _by_namespace(
    rows: pd.DataFrame, usual: dict[str, int], kept: list[tuple[Positions, Matrix]]
) -> dict[str, tuple[Positions, Matrix]]:
    """Return the sampled vectors of the usual dimension by namespace, in the order of rows."""
    names = rows["namespace"]
    sampled = {
        name: ([np.zeros(0, dtype=np.intp)], [np.zeros((0, size), dtype=np.float32)])
        for name, size in usual.items()
    }
    for positions, matrix in kept:
        inside = names.iloc[positions].to_numpy(dtype=object)
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
        rows.loc[rows["dimension"] > 0, ["namespace", "dimension"]]
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
