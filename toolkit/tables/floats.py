"""Read the numbers of dense vectors from JSON text as float32.

Most vectors are flat arrays of numbers, so blocks of many vectors are read by one call:

1. `simdjson_block` uses pysimdjson. Its parser writes doubles into a buffer that numpy reads without a copy.
2. `msgspec_block` is used if pysimdjson is not installed (it has no wheels for Python 3.14 and newer).

If a block contains anything else, for example NaN, 1e400, null or a string, the block is refused. Its vectors
are then read one by one by the standard library (`as_value`, `as_singles`), which finds the reason for each
vector.

All readers give the same bits: the text is rounded to double precision, then to single precision.
Measurements: ``docs/decisions/0008-decoding-vectors.md`` and ``docs/decisions/0052-floats-and-globs.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.base.members import is_deep, read_json

try:
    from simdjson import Parser
except ImportError:  # it has no wheel for every interpreter
    Parser = None  # type: ignore[assignment, misc]

BEYOND_FLOAT32: Final = 2.0**128 - 2.0**103
"""The smallest number that is rounded to infinity as float32."""

_FLOAT64_MAX: Final = float(np.finfo(np.float64).max)
# Bytes of text per block. The numbers of half a megabyte stay in the processor cache.
_BLOCK_SIZE: Final = 1 << 19
# Integers with more digits are beyond every float. Converting them would take quadratic time.
_MOST_DIGITS: Final = 400

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Text = bytes | memoryview

# made here, because a decoder is expensive to make
_VECTORS: Final = msgspec.json.Decoder(list[list[float]])


def simdjson_block(texts: Sequence[Text], numbers: Singles) -> None:
    """Read one vector per row of `numbers` with pysimdjson. Numbers beyond float32 become infinite.

    Raise ValueError if one of the vectors is not a flat array with one number per column.
    """
    block = b"[" + b",".join(texts) + b"]"
    _check_flat(block, texts)
    try:
        # A parser that has failed keeps a reference to its input, so each block has a parser of its own.
        parsed: Any = Parser().parse(block)
        if set(map(len, parsed)) != {numbers.shape[1]}:
            raise ValueError("vectors of another dimension")
        doubles = np.frombuffer(parsed.as_buffer(of_type="d"), dtype=np.float64)
    except (TypeError, RuntimeError) as error:
        raise ValueError(str(error)) from None

    _round_to_singles(doubles, numbers)


def _check_flat(block: bytes, texts: Sequence[Text]) -> None:
    """Raise ValueError if a vector contains an array.

    The buffer of pysimdjson flattens nested arrays: ``[[1, 2], 3]`` would be read like ``[1, 2, 3]``. In a
    flat vector, the first closing bracket is the last character.
    """
    end = 0
    for text in texts:
        start = end + 1  # after the opening bracket of the block, or a comma
        end = start + len(text)
        if block.find(b"]", start) + 1 != end:
            raise ValueError("a vector that is not flat")


def msgspec_block(texts: Sequence[Text], numbers: Singles) -> None:
    """Read one vector per row of `numbers` with msgspec. See `simdjson_block`."""
    try:
        rows = _VECTORS.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None

    if set(map(len, rows)) != {numbers.shape[1]}:
        raise ValueError("vectors of another dimension")

    _round_to_singles(np.array(rows, dtype=np.float64), numbers)


def _round_to_singles(doubles: Doubles, numbers: Singles) -> None:
    with np.errstate(over="ignore"):
        # beyond float32: infinite, which `dense_column` reports
        numbers[:] = doubles.reshape(numbers.shape)


read_block: Callable[[Sequence[Text], Singles], None] = (
    msgspec_block if Parser is None else simdjson_block
)


def read_numbers(vectors: Sequence[Text | None], dimension: int) -> Singles:
    """Return the numbers of vectors, one row per vector. The rows of a refused block are NaN."""
    numbers = np.full((len(vectors), dimension), np.nan, np.float32)
    for start, block in _blocks(vectors):
        block_rows = numbers[start : start + len(block)]
        try:
            read_block(block, block_rows)
        except ValueError:
            block_rows[:] = np.nan

    return numbers


def dense_column(
    vectors: Sequence[Text | None],
    dimension: int | None,
    numbers: Singles | None = None,
) -> tuple[pa.Array, list[str | None]]:
    """Return a column of dense vectors from JSON text, and for each vector the problem with it, or None.

    A vector that is missing, unusable or of another dimension is null. Raise ValueError if bytes are not
    JSON. Without a dimension, vectors are read one by one. `numbers` are the result of an earlier
    `read_numbers`; they are written to.

    >>> column, problems = dense_column([b"[1, 0.5]", b"[1, NaN]", None], 2)
    >>> column.to_pylist(), problems
    ([[1.0, 0.5], None, None], [None, 'not finite at 1', None])
    """
    if not dimension:
        return _column_of_any_dimension(vectors)

    if numbers is None:
        numbers = read_numbers(vectors, dimension)
    problems: list[str | None] = [None for _ in vectors]
    missing = np.zeros(len(vectors), bool)

    # NaN marks vectors of refused blocks, infinity marks numbers beyond float32
    unread_rows = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    for row in unread_rows.tolist():
        singles, problems[row] = _read_one(vectors[row], dimension)
        if singles is None:
            missing[row] = True
            numbers[row] = 0
        else:
            numbers[row] = singles

    flat_numbers = pa.array(numbers.reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(
        flat_numbers, dimension, mask=pa.array(missing)
    )
    return column, problems


def _column_of_any_dimension(
    vectors: Sequence[Text | None],
) -> tuple[pa.Array, list[str | None]]:
    rows: list[Singles | None] = []
    problems: list[str | None] = []
    for text in vectors:
        singles, problem = _read_one(text, None)
        rows.append(singles)
        problems.append(problem)

    return pa.array(rows, pa.list_(pa.float32())), problems


def _read_one(
    text: Text | None, dimension: int | None
) -> tuple[Singles | None, str | None]:
    if text is None:
        return None, None
    return as_singles(as_value(text), dimension)


def _blocks(vectors: Sequence[Text | None]) -> Iterator[tuple[int, list[Text]]]:
    """Yield blocks of consecutive vectors, each with the index of the first. Missing vectors end a block."""
    block: list[Text] = []
    block_start = block_size = 0
    for index, vector in enumerate(vectors):
        if block and (vector is None or block_size >= _BLOCK_SIZE):
            yield block_start, block
            block = []

        if vector is None:
            continue
        if not block:
            block_start = index
            block_size = 0

        block.append(vector)
        block_size += len(vector)

    if block:
        yield block_start, block


def as_value(text: Text) -> Any:
    """Return the value of a vector, integers as floats. Raise ValueError if the text is not JSON."""
    decoded = bytes(text).decode("utf-8", "surrogateescape")
    if is_deep(decoded):
        return read_json(decoded)

    return json.loads(decoded, parse_int=_as_float)


def as_singles(vector: Any, dimension: int | None) -> tuple[Singles | None, str | None]:
    """Return a vector that `as_value` read as float32, or None and the problem with it."""
    if vector is None:
        return None, None

    problem = _problem_of(vector, dimension)
    if problem is not None:
        return None, problem

    return np.array(vector, dtype=np.float64).astype(np.float32), None


def _problem_of(vector: Any, dimension: int | None) -> str | None:
    """Return why a value is no vector of float32, or None if it is one."""
    if not isinstance(vector, list) or not set(map(type, vector)) <= {int, float}:
        return "not an array of numbers"
    if dimension is not None and len(vector) != dimension:
        return f"dimension {len(vector)}, expected {dimension}"

    for index, number in enumerate(vector):
        if not -BEYOND_FLOAT32 < number < BEYOND_FLOAT32:  # also true for NaN
            return f"{_range_problem(number)} at {index}"

    return None


def _range_problem(number: float) -> str:
    if isinstance(number, int) or math.isfinite(number):
        return "beyond float32"
    return "not finite"


def _as_float(digits: str) -> float:
    """Return an integer of any length as a float.

    An integer beyond float64 becomes the largest float64, because it is finite: ``"beyond float32"``, for
    example, is the problem of 10**400, not ``"not finite"``.
    """
    largest = _FLOAT64_MAX
    if digits.startswith("-"):
        largest = -_FLOAT64_MAX
    if len(digits) > _MOST_DIGITS:
        return largest

    try:
        return float(int(digits))
    except OverflowError:
        return largest
