"""Write stored vectors, scores and numbers as the JSON of responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import (
    Any,
    Final,
    Required,
    TypedDict,
)

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit_service.vectors import bodies
from toolkit_service.vectors.bodies import Included
from toolkit_service.vectors.index_database import IndexRow
from toolkit_service.vectors.vector_index import ScoredRow

_FLOAT32: Final = np.finfo(np.float32)
_EXPONENT_FROM: Final = 1e10  # Arrow writes larger whole numbers with an exponent


class VectorJson(TypedDict, total=False):
    """A vector, with the parts that the request includes."""

    id: Required[str]
    vector: bodies.Numbers
    sparseVector: bodies.SparseVector
    metadata: bodies.Metadata
    data: str


class ScoredVectorJson(VectorJson):
    """A vector and a similarity, for example 0.97."""

    score: float


def rows_as_json(rows: Sequence[IndexRow], include: Included) -> list[dict[str, Any]]:
    """Return rows for responses; numbers of vectors have the shortest digits of float32."""
    items: list[dict[str, Any]] = [{"id": row.id} for row in rows]
    if include.include_vectors:
        _add_vectors(items, rows)
    if include.include_metadata:
        _add_metadata(items, rows)
    if include.include_data:
        _add_data(items, rows)
    return items


def _add_metadata(items: list[dict[str, Any]], rows: Sequence[IndexRow]) -> None:
    for item, row in zip(items, rows, strict=True):
        if row.metadata is not None:
            # as stored: numbers keep their digits
            item["metadata"] = msgspec.Raw(row.metadata.encode())


def _add_data(items: list[dict[str, Any]], rows: Sequence[IndexRow]) -> None:
    for item, row in zip(items, rows, strict=True):
        if row.data is not None:
            item["data"] = row.data


def _add_vectors(items: list[dict[str, Any]], rows: Sequence[IndexRow]) -> None:
    """Add vectors to the items of a response. One call writes the numbers of all rows, which is faster."""
    with_dense = [row for row in rows if row.vector.size]
    dense = iter(json_arrays([row.vector for row in with_dense]))
    sparse_vectors = [row.sparse for row in rows if row.sparse is not None]
    sparse = iter(
        json_arrays([vector.values.astype(np.float32) for vector in sparse_vectors])
    )

    for item, row in zip(items, rows, strict=True):
        # the iterators contain only the rows that have such a vector
        if row.vector.size:
            item["vector"] = next(dense)
        if row.sparse is not None:
            item["sparseVector"] = {
                "indices": row.sparse.indices.tolist(),
                "values": next(sparse),
            }


def results_as_json(
    results: Sequence[ScoredRow], include: Included
) -> list[dict[str, Any]]:
    """Return the results of a query, each with the score."""
    scores = score_numbers([result.score for result in results])
    rows = rows_as_json([result.row for result in results], include)

    return [
        {"id": row.pop("id"), "score": score, **row}
        for row, score in zip(rows, scores, strict=True)
    ]


def score_numbers(scores: Sequence[float]) -> list[float]:
    """Round scores to float32 for responses; larger scores become the largest finite number.

    >>> score_numbers([1 / 3, 1e300])
    [0.33333334, 3.4028235e+38]
    """
    with np.errstate(under="ignore"):
        singles = np.clip(
            np.array(scores, dtype=np.float64), _FLOAT32.min, _FLOAT32.max
        ).astype(np.float32)

    numbers: list[float] = _digits(singles).cast(pa.float64()).to_pylist()
    return numbers


def json_arrays(arrays: Sequence[NDArray[np.float32]]) -> list[msgspec.Raw]:
    """Return each array, finite and not empty, as JSON with the shortest digits that read back to float32.

    For example, 0.1 is written 0.1, as the public service does. As a float64, it would be written
    0.10000000149011612. Arrow writes the digits: exactly, many at a time, and without the interpreter lock.

    >>> [bytes(one) for one in json_arrays([np.array([0.1, 1], dtype=np.float32)])]
    [b'[0.1,1.0]']
    """
    if not arrays:
        return []

    import pyarrow.compute as pc  # noqa: PLC0415 - a tenth of the start of the service, which may have no vectors

    ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int32)
    rows = pa.ListArray.from_arrays(pa.array(ends), _digits(np.concatenate(arrays)))

    return [
        msgspec.Raw(f"[{row}]".encode())
        for row in pc.binary_join(rows, ",").to_pylist()
    ]


def _digits(singles: NDArray[np.float32]) -> pa.StringArray:
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    digits = pa.array(singles).cast(pa.string())
    is_whole = (singles == np.rint(singles)) & (np.abs(singles) < _EXPONENT_FROM)
    if is_whole.any():
        # 1 becomes 1.0: some readers distinguish integers from floats
        mask = pa.array(is_whole)
        with_fraction = pc.binary_join_element_wise(digits.filter(mask), ".0", "")
        digits = pc.replace_with_mask(digits, mask, with_fraction)

    return digits
