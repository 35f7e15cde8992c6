"""Vectors and hits: from a page's bytes to the tables of ``schemas.vectors`` and ``schemas.hits``.

Rows are decoded strictly where that is possible, leniently where it is not. Metadata and the numbers of dense
vectors stay JSON text until then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from toolkit.client.members import RawJson, elements, members, read_json, shown
from toolkit.client.pages import CUT, uncut
from toolkit.errors import InputError, ProtocolError
from toolkit.tables import schemas
from toolkit.tables.floats import BEYOND_FLOAT32, Singles, as_value, dense_column
from toolkit.tables.frames import checked_frame
from toolkit.tables.schemas import UNFIT
from toolkit.tables.text import clean, lenient, required_id, whole_number

_VECTORS: Final = "vectors"
_HITS: Final = "query results"
_NOTHING: Final = msgspec.Raw(b"")
_NULLS: Final = (b"", b"null")
_REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class VectorRow(msgspec.Struct, gc=False):
    """A vector or hit; where one was decoded leniently, its parts are what was there instead."""

    id: str
    vector: Any = None
    sparse: Any = None
    metadata: Any = None
    data: str | None = None
    score: Any = None


class _StrictRow(VectorRow, gc=False, rename={"sparse": "sparseVector"}):
    """A row as specified."""

    vector: msgspec.Raw = _NOTHING
    sparse: dict[str, list[float]] | None = None
    metadata: msgspec.Raw = _NOTHING
    score: float | None = None


# made here, because the first access to a struct is not thread-safe
_ROWS: Final = msgspec.json.Decoder(list[_StrictRow | None])


def decode_vectors(
    rows: bytes,
    cut: tuple[memoryview, ...] = (),
    *,
    namespace: str,
    dimension: int | None,
    want_vectors: bool = True,
    numbers: Singles | None = None,
) -> pa.Table:
    """The rows of a range or fetch as a table of ``schemas.vectors(dimension)``; nulls are left out.

    `cut` are the dense vectors where they were cut out of the rows (`Page.cut`), `numbers` their
    numbers where they were read before. A vector that cannot be used (null, of another dimension, not
    finite as float32) is null, and ``vector_problem`` says why; it also says where there is no vector, if
    those are wanted. ProtocolError where the bytes are not an array of objects with ids.
    """
    decoded = read_rows(rows, cut, what=_VECTORS)
    vectors = [row.vector for row in decoded]
    # where the cut was wrong, rows have other vectors than what was cut out
    are_cut = len(decoded) == len(cut) and all(map(is_, vectors, cut))
    try:
        dense, problems = dense_column(vectors, dimension, numbers if are_cut else None)
    except ValueError:
        if not cut:
            raise _unreadable(_VECTORS) from None
        # what was cut out is not JSON by itself, so the cut was wrong: read the whole page
        return decode_vectors(
            uncut(rows, cut), namespace=namespace, dimension=dimension, want_vectors=want_vectors
        )
    if want_vectors:
        for index, row in enumerate(decoded):
            if row.vector is None and not row.sparse:
                problems[index] = "no vector"
    columns = {
        "namespace": pa.array([namespace] * len(decoded), pa.string()),
        **_columns(decoded, dense, problems),
    }
    return pa.table(columns, schema=schemas.vectors(dimension))


def decode_hits(
    responses: Sequence[bytes], *, vectors: bool = True, metadata: bool = True, data: bool = True
) -> pa.Table:
    """The hits of a batch of queries, one JSON array a query, as a table of ``schemas.hits``."""
    pages = [read_rows(response, what=_HITS) for response in responses]
    hits = [row for page in pages for row in page]
    try:
        dimension = _first_dimension(hits)
        dense, problems = dense_column([row.vector for row in hits], dimension)
    except ValueError:
        raise _unreadable(_HITS) from None
    columns = {
        "query": pa.array([number for number, page in enumerate(pages) for _ in page], pa.int64()),
        "rank": pa.array([rank for page in pages for rank in range(1, len(page) + 1)], pa.int64()),
        "score": pa.array([_score(row.score, index) for index, row in enumerate(hits)], pa.float64()),
        **_columns(hits, dense, problems),
    }
    schema = schemas.hits(dimension, vectors=vectors, metadata=metadata, data=data)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def as_matrix(vectors: pd.DataFrame) -> npt.NDArray[np.float32]:
    """The dense vectors of a frame as one matrix, without copying where Arrow allows.

    Parameters
    ----------
    vectors : pandas.DataFrame
        With a ``vector`` column, as `load_vectors` or `query` (with vectors included) returns.

    Returns
    -------
    numpy.ndarray
        Shape (rows, dimension), float32, read-only where it is a view. Row i belongs to row i of the frame.

    Raises
    ------
    InputError
        When a row has no usable vector; its ``vector_problem`` says why.

    Examples
    --------
    >>> as_matrix(pd.DataFrame({"vector": [[1, 2], [1, 2]]}))
    array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    checked_frame("vectors", vectors, "vector")
    doing = "making a matrix of vectors"
    try:
        column = pa.array(vectors["vector"], from_pandas=True)
    except UNFIT:
        column = None
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind: Any = None if column is None else column.type
    if column is None or (len(column) and not (pa.types.is_null(kind) or is_numbers(kind))):
        raise InputError(
            doing,
            got=f"a column vector of the type {str(vectors['vector'].dtype)[:80]}",
            expected="lists of numbers",
            next_step="Use a frame made by load_vectors or query.",
        )
    if column.null_count:
        raise InputError(
            doing,
            got=f"{column.null_count:,} of {len(column):,} rows without a usable vector",
            expected="a vector in every row",
            next_step="Keep the usable rows: vectors[vectors['vector'].notna()]; vector_problem says why.",
        )
    if not is_numbers(kind):  # no rows, in a column that has no type of its own
        return np.empty((0, 0), dtype=np.float32)
    if pa.types.is_fixed_size_list(kind):
        dimension = kind.list_size
    else:
        lengths = set(column.value_lengths().unique().to_pylist()) if len(column) else {0}
        if len(lengths) > 1:
            raise InputError(doing, got=f"dimensions {sorted(lengths)}", expected="one")
        dimension = lengths.pop()
    flat = column.flatten()
    if flat.null_count:
        raise InputError(doing, got="vectors with missing numbers", expected="numbers alone")
    numbers = flat.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # beyond float32: infinite
        return np.asarray(numbers, dtype=np.float32).reshape(len(column), dimension)


def is_numbers(kind: pa.DataType) -> bool:
    """Whether values of this type are lists of numbers."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def read_rows(raw: bytes, cut: tuple[memoryview, ...] = (), *, what: str) -> list[VectorRow]:
    """The rows of a JSON array of vectors, with those that were cut out; nulls are left out."""
    try:
        rows: list[VectorRow] = [row for row in _ROWS.decode(raw) if row is not None]
        for index, row in enumerate(rows):
            row.id = row.id or required_id({}, "id", what=what, index=index)
            row.vector, metadata = bytes(row.vector), bytes(row.metadata)
            row.vector = None if row.vector in _NULLS else row.vector
            row.metadata = None if metadata in _NULLS else metadata.decode()
    except _REFUSED:
        return list(_lenient_rows(uncut(raw, cut), what=what))
    if cut:
        replaced = [row for row in rows if row.vector == CUT]
        if len(replaced) != len(cut):
            return read_rows(uncut(raw, cut), what=what)
        for row, view in zip(replaced, cut, strict=True):
            row.vector = view
    return rows


def _lenient_rows(raw: bytes, *, what: str) -> Iterator[VectorRow]:
    """The rows, each member as raw text; JSON as Python's own reader accepts it."""
    try:
        rows = [members(row)[0] for row in elements(raw.decode("utf-8", "surrogateescape")) if row != "null"]
    except ValueError:
        lenient(raw, what=what)  # says what is wrong, where it is not JSON at all
        raise ProtocolError(
            f"decoding {what}", got="something else", expected="a JSON array of objects"
        ) from None
    for index, row in enumerate(rows):
        present = {name: text for name, text in row.items() if text != "null"}
        text, vector = present.get("metadata"), present.get("vector")
        data = read_json(present["data"]) if "data" in present else None
        yield VectorRow(
            id=required_id({"id": read_json(row.get("id", "null"))}, "id", what=what, index=index),
            vector=None if vector is None else vector.encode("utf-8", "surrogateescape"),
            sparse=read_json(present["sparseVector"]) if "sparseVector" in present else None,
            metadata=None if text is None else clean(text),
            data=None if data is None else clean(data if isinstance(data, str) else present["data"]),
            score=read_json(present["score"]) if "score" in present else None,
        )


def _score(score: Any, index: int) -> float:
    """A score; one of more digits than a float has is infinite."""
    if isinstance(score, RawJson) and score.text[0] not in "[{":
        return float(score.text)
    if not isinstance(score, int | float) or isinstance(score, bool):
        got = f"score={shown(score)} in hit {index}"
        raise ProtocolError(f"decoding {_HITS}", got=got, expected="a number")
    try:
        return float(score)
    except OverflowError:
        return math.inf if score > 0 else -math.inf


def _unreadable(what: str) -> ProtocolError:
    return ProtocolError(f"decoding {what}", got="a vector that is not JSON", expected="an array of numbers")


def _first_dimension(rows: Sequence[VectorRow]) -> int | None:
    """Numbers in the first dense vector that is a list; None without one."""
    for row in rows:
        vector = None if row.vector is None else as_value(row.vector)
        if isinstance(vector, list):
            return len(vector) or None
    return None


def _columns(rows: Sequence[VectorRow], dense: pa.Array, problems: list[str | None]) -> dict[str, pa.Array]:
    """The columns that vectors and hits share; a sparse vector that cannot be used is a problem, too."""
    sparse = [None if row.sparse is None else _sparse(row.sparse) for row in rows]
    for index, (row, usable) in enumerate(zip(rows, sparse, strict=True)):
        if row.sparse is not None and usable is None:
            problems[index] = "; ".join(filter(None, (problems[index], "sparse vector not usable")))
    return {
        "id": pa.array([row.id for row in rows], pa.string()),
        "vector": dense,
        "sparse_indices": pa.array([pair and pair[0] for pair in sparse], pa.list_(pa.int64())),
        "sparse_values": pa.array([pair and pair[1] for pair in sparse], pa.list_(pa.float32())),
        "metadata": pa.array([row.metadata for row in rows], pa.string()),
        "data": pa.array([row.data for row in rows], pa.string()),
        "vector_problem": pa.array(problems, pa.string()),
    }


def _sparse(value: Any) -> tuple[list[int], list[float]] | None:
    if not isinstance(value, dict):
        return None
    indices, values = value.get("indices"), value.get("values")
    if not isinstance(indices, list) or not isinstance(values, list) or len(indices) != len(values):
        return None
    whole = [whole_number(index) for index in indices]
    if any(index is None for index in whole) or not all(
        type(item) in (int, float) and -BEYOND_FLOAT32 < item < BEYOND_FLOAT32 for item in values
    ):
        return None
    return [index for index in whole if index is not None], [float(item) for item in values]
