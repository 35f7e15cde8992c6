"""The column type of vectors: rows of numbers in Arrow memory, hashable tuples when looked at one by one."""

from __future__ import annotations

import builtins
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import (
    ExtensionArray,
    ExtensionDtype,
    register_extension_dtype,
)
from pandas.api.indexers import check_array_indexer

from toolkit.tables.vector_cells import Float32Vector, Vector

_NAME: Final = re.compile(r"vector\[(float32|float64|int64)(?:, ([1-9][0-9]{0,6}))?\]")
_NUMBERS: Final = {
    "float32": pa.float32(),
    "float64": pa.float64(),
    "int64": pa.int64(),
}
_USE_MATRIX: Final = "use as_matrix(frame) for all rows"


sqlite3.register_adapter(Vector, str)
sqlite3.register_adapter(Float32Vector, str)


@register_extension_dtype
class VectorDtype(ExtensionDtype):
    """Column type of vectors, for example ``vector[float32, 256]``, or ``vector[int64]`` for any dimension.

    Parameters
    ----------
    numbers : {"float32", "float64", "int64"}
        Type of the numbers.
    dimension : int, optional
        Number of numbers per vector. If omitted, vectors can have any length.

    Examples
    --------
    >>> pd.Series([[1, 2], None], dtype="vector[float32, 2]")
    0    [1, 2]
    1       NaN
    dtype: vector[float32, 2]
    """

    _metadata = ("numbers", "dimension")
    type = Vector
    kind = "O"
    na_value = float("nan")

    def __init__(self, numbers: str = "float32", dimension: int | None = None) -> None:
        if numbers not in _NUMBERS:
            raise TypeError(
                f"vectors of {numbers}: expected one of {', '.join(_NUMBERS)}"
            )

        self.numbers = numbers
        self.dimension = dimension

    @property
    def name(self) -> str:  # type: ignore[override]
        """As `construct_from_string` accepts it."""
        if self.dimension:
            return f"vector[{self.numbers}, {self.dimension}]"
        return f"vector[{self.numbers}]"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def arrow_type(self) -> pa.DataType:
        """Return the type in Parquet and Arrow: a plain list, of a fixed size if the dimension is known."""
        numbers = _NUMBERS[self.numbers]
        if self.dimension:
            return pa.list_(numbers, self.dimension)

        return pa.list_(numbers)

    @staticmethod
    def has_type_for(kind: pa.DataType) -> bool:
        """Return whether columns of this Arrow list type are vectors: lists of numbers, or without values."""
        number = kind.value_type
        return pa.types.is_null(number) or number in _NUMBERS.values()

    @classmethod
    def of(cls, kind: pa.DataType) -> Self:
        """Return the type for columns of this Arrow list type."""
        number = kind.value_type
        if pa.types.is_null(number):
            number = pa.float32()  # lists without values have no other type
        names = {arrow_type: name for name, arrow_type in _NUMBERS.items()}
        dimension = None
        if pa.types.is_fixed_size_list(kind):
            dimension = kind.list_size
        return cls(names.get(number, str(number)), dimension)

    @classmethod
    def construct_from_string(cls, string: str) -> Self:
        """Return the type with this name. Raise TypeError for other names, as pandas expects."""
        if not isinstance(string, str):
            raise TypeError(
                f"'construct_from_string' expects a string, got {type(string)}"
            )

        match = _NAME.fullmatch(string)
        if match is None:
            raise TypeError(f"Cannot construct a '{cls.__name__}' from '{string}'")

        dimension = None
        if match[2]:
            dimension = int(match[2])
        return cls(match[1], dimension)

    @classmethod
    def construct_array_type(cls) -> builtins.type[VectorArray]:
        """Return the array type."""
        return VectorArray

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> VectorArray:
        """Make a column from Arrow lists, for pandas and pyarrow when they read a Parquet file."""
        if array.type != self.arrow_type:
            array = array.cast(self.arrow_type)
        return VectorArray(array)

    def _get_common_dtype(self, dtypes: list[Any]) -> VectorDtype | None:
        if not all(isinstance(dtype, VectorDtype) for dtype in dtypes):
            return None

        dimensions = {dtype.dimension for dtype in dtypes}
        numbers = {dtype.numbers for dtype in dtypes}
        # float64 has all values of float32; vectors of several dimensions are a type without dimension
        common_numbers, common_dimension = "float64", None
        if len(numbers) == 1:
            common_numbers = numbers.pop()
        if len(dimensions) == 1:
            common_dimension = dimensions.pop()
        return VectorDtype(common_numbers, common_dimension)


class VectorArray(ExtensionArray):
    """A column of vectors in Arrow memory, which slices share: lists of float32, float64 or int64."""

    __array_priority__: ClassVar = 1000
    _readonly: bool = False

    def __init__(self, data: pa.Array | pa.ChunkedArray) -> None:
        whole = data
        if not isinstance(data, pa.ChunkedArray):
            whole = pa.chunked_array([data])
        self._dtype = VectorDtype.of(whole.type)
        if whole.type != self._dtype.arrow_type:
            whole = whole.cast(self._dtype.arrow_type)
        self._data = whole

    @classmethod
    def _from_sequence(
        cls,
        scalars: Any,
        *,
        dtype: Any = None,
        copy: bool = False,  # noqa: ARG003 - pandas' signature
    ) -> Self:
        wanted: Any = dtype
        if isinstance(dtype, str):
            wanted = pd.api.types.pandas_dtype(dtype)
        if isinstance(scalars, pd.Series | pd.Index):
            scalars = scalars.array
        if isinstance(scalars, VectorArray):
            if wanted is None:
                return cls(scalars._data)
            return cls(scalars._cast(wanted))

        rows = list(map(_numbers_of_cell, scalars))
        if wanted is None:
            wanted = _dtype_of(rows)
        try:
            return cls(pa.array(rows, wanted.arrow_type))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"not a column of {wanted}: {error}") from None

    @classmethod
    def _from_sequence_of_strings(
        cls,
        strings: Any,
        *,
        dtype: Any,
        copy: bool = False,  # noqa: ARG003
    ) -> Self:
        rows = list(map(_numbers_of_text, strings))
        return cls._from_sequence(rows, dtype=dtype)

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[VectorArray]) -> Self:
        chunks = list(chain.from_iterable(array._data.chunks for array in to_concat))
        return cls(pa.chunked_array(chunks, to_concat[0]._data.type))

    @property
    def dtype(self) -> VectorDtype:
        """Return the type of the column."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """Return the bytes of Arrow memory that the rows use."""
        return int(self._data.nbytes)

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Any:
        return iter(self._objects())

    def __getitem__(self, item: Any) -> Any:
        item = _without_ellipsis(item)
        item = check_array_indexer(self, item)
        if isinstance(item, int | np.integer):
            return self._row(int(item))
        if isinstance(item, slice):
            return self._slice(item)

        if not hasattr(item, "dtype"):
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
                "boolean arrays are valid indices"
            )

        if item.dtype == bool:
            item = np.flatnonzero(item)
        return self.take(item)

    def _row(self, index: int) -> Any:
        position = index
        if index < 0:
            position = index + len(self)
        if not 0 <= position < len(self):
            raise IndexError(
                f"index {index} is out of bounds for axis 0 with size {len(self)}"
            )

        return type(self)(self._data.slice(position, 1))._objects()[0]

    def _slice(self, item: slice) -> Self:
        """Return the rows of a slice. Consecutive rows share the Arrow memory."""
        rows = range(len(self))[item]
        if rows.step == 1:
            consecutive = self._data.slice(rows.start, len(rows))
            result = type(self)(consecutive)
        else:
            result = self.take(rows)

        result._readonly = self._readonly
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._readonly:
            raise ValueError("Cannot modify read-only array")

        if isinstance(value, str | bytes):
            # as a sequence, text would be several vectors of one character each
            raise TypeError(
                f"Invalid value {value[:40]!r} for dtype '{self.dtype}': expected a vector or None"
            )

        key = check_array_indexer(self, key)
        single = missing(value) or is_vector(value)
        if not single and isinstance(key, int | np.integer):
            raise ValueError("setting one row with several vectors")

        vectors = value
        if single:
            vectors = [value]
        new = self._from_sequence(vectors, dtype=self.dtype)
        # The new rows are appended, and `choice` tells which row to take for each position. For example, to
        # replace row 1 of three, rows 0, 3 and 2 of the four are taken.
        choice = np.arange(len(self))
        positions = choice[key]

        is_one_each = not single and np.ndim(positions) > 0
        if not is_one_each:
            choice[key] = len(self)
        elif len(new) == len(positions):
            choice[key] = len(self) + np.arange(len(new))
        else:
            raise ValueError(f"cannot set {len(positions)} rows to {len(new)} vectors")

        self._data = self._concat_same_type([self, new])._data.take(pa.array(choice))

    def __eq__(self, other: object) -> Any:
        if isinstance(other, pd.Series | pd.Index | pd.DataFrame):
            return NotImplemented

        others = _compared_with(other, len(self))
        if len(others) != len(self):
            raise ValueError("Lengths must match to compare")

        return np.array(
            [
                _comparable(mine) == _comparable(theirs)
                for mine, theirs in zip(self, others, strict=True)
            ],
            bool,
        )

    __hash__ = None  # type: ignore[assignment]  # as of every array that can change

    def _no_arithmetic(self, _other: object) -> Any:
        """Raise TypeError with the function that returns numbers to compute with."""
        raise TypeError(f"arithmetic with a column of vectors: {_USE_MATRIX}")

    __add__ = __radd__ = __mul__ = __rmul__ = _no_arithmetic
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = _no_arithmetic

    def _reduce(
        self, name: str, *, skipna: bool = True, keepdims: bool = False, **options: Any
    ) -> Any:
        """Raise TypeError for a reduction, for example the mean, with the function to use."""
        try:
            return super()._reduce(name, skipna=skipna, keepdims=keepdims, **options)
        except TypeError as error:
            raise TypeError(f"{error}: {_USE_MATRIX}") from None

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        # never two-dimensional: pandas counts on one object a row
        if dtype is None:
            return self._objects()
        return self._objects().astype(dtype)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.ChunkedArray:  # noqa: A002 - the protocol's
        """Return the Arrow memory of the column."""
        if type is None or type == self._data.type:
            return self._data
        return self._data.cast(type)

    def isna(self) -> npt.NDArray[np.bool_]:
        """Return which rows have no vector."""
        return np.asarray(self._data.is_null())

    def take(
        self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None
    ) -> Self:
        """Return the rows at these positions. With `allow_fill`, -1 is a missing row."""
        positions = np.asarray(indices, dtype=np.int64)
        whole, count = self._data, len(self)
        if allow_fill:
            if (positions < -1).any():
                raise ValueError("positions below -1 with allow_fill")
            if not missing(fill_value):
                filled = self._from_sequence([fill_value], dtype=self.dtype)
                whole = self._concat_same_type([self, filled])._data
                positions = np.where(positions < 0, count, positions)
                count += 1
        else:
            positions = np.where(positions < 0, positions + count, positions)

        if ((positions >= count) | (positions < -int(allow_fill))).any():
            if not count:
                raise IndexError("cannot do a non-empty take from an empty axes")
            raise IndexError("out of bounds value in 'indices'.")

        return type(self)(whole.take(pa.array(positions, mask=positions < 0)))

    def copy(self) -> Self:
        """Return the same rows.

        Arrow memory never changes, so it is shared until one of the two is assigned to.
        """
        return type(self)(self._data)

    def factorize(
        self, use_na_sentinel: bool = True
    ) -> tuple[npt.NDArray[np.intp], Self]:
        """Return codes of the rows in order of appearance, and the vector of each code.

        Equal bytes are equal vectors.
        """
        null_encoding = "encode"
        if use_na_sentinel:
            null_encoding = "mask"
        encoded = self._bytes().dictionary_encode(null_encoding)
        codes = np.asarray(encoded.indices.fill_null(-1), dtype=np.intp)
        there = np.flatnonzero(codes >= 0)

        return codes, self.take(there[np.unique(codes[there], return_index=True)[1]])

    def unique(self) -> Self:
        """Return every distinct vector, in the order of appearance."""
        return self.factorize(use_na_sentinel=False)[1]

    def duplicated(
        self, keep: Literal["first", "last"] | bool = "first"
    ) -> npt.NDArray[np.bool_]:
        """Return which rows are equal to another row."""
        codes = pd.Series(self.factorize()[0])
        return np.asarray(codes.duplicated(keep=keep), dtype=bool)  # type: ignore[arg-type]

    def equals(self, other: object) -> bool:
        """Return True if another array has the same type and rows."""
        return isinstance(other, VectorArray) and bool(
            self.dtype == other.dtype and self._data.equals(other._data)
        )

    def _cast(self, wanted: VectorDtype) -> pa.ChunkedArray:
        try:
            return self._data.cast(wanted.arrow_type)
        except pa.ArrowInvalid as error:
            raise ValueError(f"not a column of {wanted}: {error}") from None

    def _parts(self) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Return all numbers and the start of each row, followed by the end of the last row.

        Missing rows are empty.
        """
        whole = self._data.combine_chunks()
        lengths = (
            pc.list_value_length(whole).fill_null(0).to_numpy(zero_copy_only=False)
        )
        return whole.flatten(), np.append(0, np.cumsum(lengths, dtype=np.int64))

    def _objects(self) -> npt.NDArray[np.object_]:
        """Return one `Vector` per row, NaN for missing rows."""
        flat, positions = self._parts()
        vector_type: type[Vector] = Vector
        if pa.types.is_float32(flat.type):
            vector_type = Float32Vector
            # the fewest digits that read back to the same float32
            flat = flat.cast(pa.string()).cast(pa.float64())

        numbers, starts = flat.to_pylist(), positions.tolist()
        objects = np.empty(len(self), dtype=object)
        objects[:] = self.dtype.na_value
        for row in np.flatnonzero(~self.isna()).tolist():
            objects[row] = vector_type(numbers[starts[row] : starts[row + 1]])
        return objects

    def _bytes(self) -> pa.Array:
        """Return the numbers of each vector as bytes, equal for equal vectors."""
        flat, positions = self._parts()
        numbers = np.asarray(flat.to_numpy(zero_copy_only=False))
        if numbers.dtype.kind == "f":
            numbers = numbers + numbers.dtype.type(0)  # -0.0 is 0.0
        buffers = [
            pa.py_buffer(np.packbits(~self.isna(), bitorder="little")),
            pa.py_buffer(positions * numbers.itemsize),
            pa.py_buffer(np.ascontiguousarray(numbers)),
        ]

        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def _hash_pandas_object(
        self, *, encoding: str, hash_key: str, categorize: bool
    ) -> npt.NDArray[np.uint64]:
        values = np.array(self._bytes().fill_null(b"").to_pylist(), dtype=object)
        return pd.util.hash_array(
            values, encoding=encoding, hash_key=hash_key, categorize=categorize
        )

    def _explode(self) -> tuple[Any, npt.NDArray[np.uint64]]:
        flat, positions = self._parts()
        lengths = np.diff(positions)
        counts = np.maximum(lengths, 1)
        shifts = np.repeat(np.cumsum(counts) - counts - positions[:-1], counts)
        at = pa.array(
            np.arange(len(shifts)) - shifts, mask=np.repeat(lengths == 0, counts)
        )

        return pd.array(flat.take(at).to_pandas()), counts.astype(np.uint64)

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str | None]:  # noqa: ARG002
        return _cell_text


def _without_ellipsis(item: Any) -> Any:
    """Return an index without an ellipsis. For example, ``array[..., 2]`` is ``array[2]``."""
    if item is Ellipsis:
        return slice(None)
    if not isinstance(item, tuple):
        return item

    indices = [part for part in item if part is not Ellipsis]
    if len(indices) > 1:
        raise IndexError("too many indices for array.")
    if indices:
        return indices[0]

    return slice(None)


def missing(value: Any) -> bool:
    """Return True for a missing value of pandas."""
    return (
        value is None or value is pd.NA or (isinstance(value, float) and value != value)  # noqa: PLR0124 - NaN
    )


def _numbers_of_cell(value: Any) -> list[Any] | None:
    if missing(value):
        return None
    return list(value)


def _numbers_of_text(text: Any) -> list[Any] | None:
    """Return the numbers of a cell of JSON text, or None for a missing one."""
    if missing(text):
        return None

    numbers: list[Any] = json.loads(text)
    return numbers


def _cell_text(value: Any) -> str:
    if missing(value):
        return "NaN"
    return repr(value)


def _compared_with(other: object, rows: int) -> list[Any]:
    """Return the values that the rows of a column are compared with: one value each, or one for all."""
    is_text = isinstance(other, str | bytes)
    if is_text or is_vector(other) or not isinstance(other, Iterable):
        return [other] * rows

    return list(other)


def is_vector(value: Any) -> bool:
    """Return True for one vector, False for a column of vectors."""
    if isinstance(value, Vector):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype != object and value.ndim == 1
    if not isinstance(value, list | tuple) or not value:
        return False

    return all(map(_is_number, value))


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float | np.number) and not missing(item)


def _comparable(value: Any) -> Any:
    """Return a value in the form that is compared: numbers, or NaN, which equals nothing."""
    if isinstance(value, tuple | list | np.ndarray):
        return tuple(value)
    return float("nan")


def _dtype_of(rows: list[list[Any] | None]) -> VectorDtype:
    """Return the type of vectors: integers keep their type, and everything else becomes floats."""
    types = set(map(type, chain.from_iterable(filter(None, rows))))
    if types and all(issubclass(kind, int | np.integer) for kind in types):
        return VectorDtype("int64")

    return VectorDtype("float64")
