"""Vectors and hits: from a page's bytes to the tables of ``schemas.vectors`` and ``schemas.hits``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from toolkit.errors import InputError, ProtocolError
from toolkit.tables import schemas
from toolkit.tables.text import clean, lenient, required_id, whole_number

_VECTORS: Final = "vectors"
_HITS: Final = "query results"
_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)

Row = dict[str, Any]


class _Wire(msgspec.Struct):
    """A row of a strict page; metadata stays the raw JSON that came."""

    id: str
    vector: list[float] | None = None
    sparseVector: dict[str, list[float]] | None = None  # noqa: N815 - the wire's name
    metadata: msgspec.Raw = msgspec.Raw(b"")
    data: str | None = None
    score: float | None = None


def decode_vectors(
    rows: bytes, *, namespace: str, dimension: int | None, want_vectors: bool = True
) -> pa.Table:
    """The rows of a range or fetch as a table of ``schemas.vectors(dimension)``.

    Parameters
    ----------
    rows : bytes
        A JSON array of vectors; null (an id that is not there) is left out.
    namespace : str
    dimension : int or None
        Dimension of the index's dense vectors; None when it has none or it is not known.
    want_vectors : bool
        Whether vectors were asked for. If so, a row without one says so in ``vector_problem``.

    Returns
    -------
    pyarrow.Table
        One row a vector. A vector that cannot be used (null, of another dimension, not finite as float32)
        is null, and ``vector_problem`` says why; the row stays. ``metadata`` is the JSON text that came.

    Raises
    ------
    ProtocolError
        When the bytes are no array of objects, or a row has no id.
    """
    found = [row for row in _rows(rows, what=_VECTORS) if row is not None]
    ids = [required_id(row, "id", what=_VECTORS, place=place) for place, row in enumerate(found)]
    dense, problems = _dense(found, dimension, want=want_vectors)
    return pa.table(
        {
            "namespace": pa.array([namespace] * len(ids), pa.string()),
            "id": pa.array(ids, pa.string()),
            "vector": dense,
            **_sparse_and_rest(found, problems),
            "vector_problem": pa.array(problems, pa.string()),
        },
        schema=schemas.vectors(dimension),
    )


def decode_hits(
    answers: Sequence[bytes], *, vectors: bool = True, metadata: bool = True, data: bool = True
) -> pa.Table:
    """The hits of a batch of queries as a table of ``schemas.hits``.

    Parameters
    ----------
    answers : sequence of bytes
        One JSON array of scored vectors a query.
    vectors, metadata, data : bool
        What was included with each hit. The vectors' dimension is that of the first one there.

    Returns
    -------
    pyarrow.Table
        One row a hit: ``query`` from 0, ``rank`` from 1 in the order the service gave, ``id``, ``score``.

    Raises
    ------
    ProtocolError
        When an answer is no array of objects, or a hit has no id or no score.
    """
    found: list[Row] = []
    queries: list[int] = []
    ranks: list[int] = []
    for number, answer in enumerate(answers):
        hits = [row for row in _rows(answer, what=_HITS) if row is not None]
        found += hits
        queries += [number] * len(hits)
        ranks += range(1, len(hits) + 1)
    for place, row in enumerate(found):
        score = row.get("score")
        if not isinstance(score, int | float) or isinstance(score, bool):
            got = f"score={score!r} in hit {place}"[:120]
            raise ProtocolError(f"decoding {_HITS}", got=got, expected="a number")
    ids = [required_id(row, "id", what=_HITS, place=place) for place, row in enumerate(found)]
    dimension = (
        next((len(row["vector"]) for row in found if isinstance(row.get("vector"), list)), None) or None
    )
    dense, problems = _dense(found, dimension, want=False)
    columns = {
        "query": pa.array(queries, pa.int64()),
        "rank": pa.array(ranks, pa.int64()),
        "id": pa.array(ids, pa.string()),
        "score": pa.array([float(row["score"]) for row in found], pa.float64()),
        "vector": dense,
        **_sparse_and_rest(found, problems),
    }
    schema = schemas.hits(dimension, vectors=vectors, metadata=metadata, data=data)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def as_matrix(vectors: pd.DataFrame) -> npt.NDArray[np.float32]:
    """The dense vectors of a frame as one matrix, without copying where Arrow allows.

    Parameters
    ----------
    vectors : pandas.DataFrame
        With a ``vector`` column, as `load_vectors` or `query` (with vectors included) gives.

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
    >>> from toolkit.tables.frames import frame_from_rows
    >>> rows = [{"namespace": "", "id": name, "vector": [1, 2]} for name in ("a", "b")]
    >>> as_matrix(frame_from_rows(rows, schemas.vectors(2)))
    array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    if "vector" not in vectors.columns:
        raise InputError(
            "making a matrix", got="a frame without a vector column", expected="a frame of vectors"
        )
    column = pa.Table.from_pandas(vectors[["vector"]], preserve_index=False)["vector"]
    if column.null_count:
        raise InputError(
            "making a matrix of vectors",
            got=f"{column.null_count:,} of {len(column):,} rows without a usable vector",
            expected="a vector in every row",
            next_step="Keep the usable rows: vectors[vectors['vector'].notna()]; vector_problem says why.",
        )
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        dimension = kind.list_size
    else:
        lengths = set(column.combine_chunks().value_lengths().unique().to_pylist()) if len(column) else {0}
        if len(lengths) > 1:
            raise InputError(
                "making a matrix of vectors", got=f"dimensions {sorted(lengths)}", expected="one"
            )
        dimension = lengths.pop()
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float32).reshape(len(column), dimension)


def _rows(raw: bytes, *, what: str) -> list[Row | None]:
    try:
        strict = msgspec.json.decode(raw, type=list[_Wire | None])
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = lenient(raw, what=what)
    else:
        return [None if row is None else _plain(row) for row in strict]
    if not isinstance(found, list) or not all(isinstance(row, dict | None) for row in found):
        raise ProtocolError(f"decoding {what}", got="something else", expected="a JSON array of objects")
    for row in found:
        if row is not None and row.get("metadata") is not None:
            row["metadata"] = json.dumps(row["metadata"], separators=(",", ":"))
    return found


def _plain(row: _Wire) -> Row:
    metadata = bytes(row.metadata)
    return {
        "id": row.id,
        "vector": row.vector,
        "sparseVector": row.sparseVector,
        "metadata": None if metadata in (b"", b"null") else metadata.decode(),
        "data": row.data,
        "score": row.score,
    }


def _dense(found: list[Row], dimension: int | None, *, want: bool) -> tuple[pa.Array, list[str | None]]:
    """The dense column, null where a vector cannot be used, and why."""
    problems: list[str | None] = []
    usable: list[npt.NDArray[np.float32] | None] = []
    for row in found:
        vector, problem = _usable(row.get("vector"), dimension)
        missing = vector is None and problem is None
        problems.append("no vector" if missing and want and not row.get("sparseVector") else problem)
        usable.append(vector)
    if dimension is None:
        return pa.array(usable, pa.list_(pa.float32())), problems
    filler = np.zeros(dimension, dtype=np.float32)
    flat = (
        np.concatenate([filler if vector is None else vector for vector in usable]) if usable else filler[:0]
    )
    mask = pa.array([vector is None for vector in usable], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float32()), dimension, mask=mask), problems


def _usable(vector: Any, dimension: int | None) -> tuple[npt.NDArray[np.float32] | None, str | None]:
    if vector is None:
        return None, None
    if not isinstance(vector, list) or not set(map(type, vector)) <= {int, float}:
        return None, "not an array of numbers"
    if dimension is not None and len(vector) != dimension:
        return None, f"dimension {len(vector)}, expected {dimension}"
    fits = [-_FLOAT32_MAX <= value <= _FLOAT32_MAX for value in vector]
    if not all(fits):
        place = fits.index(False)
        finite = isinstance(vector[place], int) or math.isfinite(vector[place])
        return None, f"{'beyond float32' if finite else 'not finite'} at {place}"
    return np.array(vector, dtype=np.float32), None


def _sparse_and_rest(found: list[Row], problems: list[str | None]) -> dict[str, pa.Array]:
    """Sparse vectors, metadata and data; a sparse vector that cannot be used is noted in `problems`."""
    indices: list[list[int] | None] = []
    values: list[list[float] | None] = []
    for place, row in enumerate(found):
        sparse = _sparse(row.get("sparseVector"))
        if sparse is None and row.get("sparseVector") is not None:
            problems[place] = "; ".join(filter(None, (problems[place], "sparse vector not usable")))
        indices.append(sparse and sparse[0])
        values.append(sparse and sparse[1])
    return {
        "sparse_indices": pa.array(indices, pa.list_(pa.int64())),
        "sparse_values": pa.array(values, pa.list_(pa.float32())),
        "metadata": pa.array(_texts(row.get("metadata") for row in found), pa.string()),
        "data": pa.array(_texts(row.get("data") for row in found), pa.string()),
    }


def _sparse(value: Any) -> tuple[list[int], list[float]] | None:
    if not isinstance(value, dict):
        return None
    indices, values = value.get("indices"), value.get("values")
    if not isinstance(indices, list) or not isinstance(values, list) or len(indices) != len(values):
        return None
    whole = [whole_number(index) for index in indices]
    if any(index is None for index in whole) or not all(
        type(item) in (int, float) and -_FLOAT32_MAX <= item <= _FLOAT32_MAX for item in values
    ):
        return None
    return [index for index in whole if index is not None], [float(item) for item in values]


def _texts(values: Iterable[Any]) -> list[str | None]:
    return [
        None if value is None else clean(value if isinstance(value, str) else json.dumps(value))
        for value in values
    ]
