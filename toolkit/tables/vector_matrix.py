"""Make one matrix of the dense vectors of a frame, without a copy if Arrow allows it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from toolkit.base.errors import InputError
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame
from toolkit.tables.schemas import UNFIT

_MAKING_A_MATRIX: Final = "making a matrix of vectors"


def as_matrix(vectors: FrameLike | pd.Series[Any]) -> npt.NDArray[np.float32]:
    """Return the dense vectors of a frame as one matrix, without a copy if Arrow allows it.

    Parameters
    ----------
    vectors : pandas.DataFrame or pandas.Series
        A frame with a ``vector`` column, from `load_vectors` or `query` (with vectors included), or a column
        of vectors.

    Returns
    -------
    numpy.ndarray
        Shape (rows, dimension), float32, read-only if it is a view. Row i belongs to row i of the frame.

    Raises
    ------
    InputError
        If a row has no usable vector; ``vector_problem`` gives the reason.

    Examples
    --------
    >>> as_matrix(pd.DataFrame({"vector": [[1, 2], [1, 2]]}))
    array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    if isinstance(vectors, pd.Series):
        column = _list_column(vectors)
    else:
        column = _list_column(checked_frame("vectors", vectors, "vector")["vector"])

    if column.null_count:
        raise InputError(
            _MAKING_A_MATRIX,
            got=f"{column.null_count:,} of {len(column):,} rows without a usable vector",
            expected="a vector in every row",
            next_step="Keep the usable rows: vectors[vectors['vector'].notna()]; see vector_problem for the "
            "reasons.",
        )

    if not is_numbers(column.type):  # no rows, in a column without a type
        return np.empty((0, 0), dtype=np.float32)

    dimension = _only_dimension(column)
    elements = column.flatten()
    if elements.null_count:
        raise InputError(
            _MAKING_A_MATRIX,
            got="vectors with missing numbers",
            expected="numbers only",
        )

    numbers = elements.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite
        return np.asarray(numbers, dtype=np.float32).reshape(len(column), dimension)


def _list_column(vectors: pd.Series[Any]) -> pa.Array:
    """Return a column of vectors as an Arrow array of lists. Raise InputError for other values."""
    try:
        column = pa.array(vectors, from_pandas=True)
    except UNFIT:
        raise _not_vectors(vectors) from None

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(column) and not (pa.types.is_null(column.type) or is_numbers(column.type)):
        raise _not_vectors(vectors)

    return column


def _not_vectors(vectors: pd.Series[Any]) -> InputError:
    return InputError(
        _MAKING_A_MATRIX,
        got=f"a column vector of the type {str(vectors.dtype)[:80]}",
        expected="lists of numbers",
        next_step="Use a frame made by load_vectors or query.",
    )


def _only_dimension(column: pa.Array) -> int:
    """Return the length of all lists. Raise InputError if they differ."""
    if pa.types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    if not len(column):
        return 0

    lengths = column.value_lengths().unique().to_pylist()
    if len(lengths) > 1:
        raise InputError(
            _MAKING_A_MATRIX,
            got=f"dimensions {sorted(lengths)}",
            expected="vectors of one dimension",
        )

    return int(lengths[0])


def is_numbers(kind: pa.DataType) -> bool:
    """Return True if values of this type are lists of numbers."""
    is_list = (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )
    if not is_list:
        return False

    return bool(
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )
