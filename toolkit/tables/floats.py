"""Arrays of numbers from their JSON text to float32.

Blocks of many vectors are read by pysimdjson, whose buffers numpy reads without a copy, or by Arrow where
that is not installed. What these refuse (NaN, 1e400, null, text) is read vector by vector by Python's
reader, which says what is wrong. All round alike: text to double, double to float32. Measured:
``docs/decisions/0008-decoding-vectors.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.members import is_deep, read_json

try:
    from simdjson import Parser
except ImportError:  # it has no wheel for every interpreter
    Parser = None  # type: ignore[assignment, misc]

BEYOND_FLOAT32: Final = 2.0**128 - 2.0**103
"""The least number that is rounded to infinity as float32."""
_FLOAT64_MAX: Final = float(np.finfo(np.float64).max)
_BLOCK: Final = 1 << 20 if Parser is None else 1 << 19
"""Bytes of text: what pysimdjson writes of them stays in the processor's cache; Arrow's calls cost more."""
_MOST_DIGITS: Final = 400
_DIGITS: Final = 10

Singles = npt.NDArray[np.float32]
Text = bytes | memoryview


def simdjson_block(texts: Sequence[Text], numbers: Singles) -> None:
    """Write the numbers of a block of vectors, each into its row; those beyond float32 are infinite.

    ValueError where one of them is not a flat array of as many numbers as a row has.
    """
    block = b"[" + b",".join(texts) + b"]"
    # an array within the array would be read as if its numbers were the outer one's
    end = 0
    for text in texts:
        end += 1 + len(text)
        if block.find(b"]", end - len(text)) + 1 != end:
            raise ValueError("not flat")
    try:
        # a parser each time: one that has failed keeps hold of what it failed at
        parsed: Any = Parser().parse(block)
        if set(map(len, parsed)) != {numbers.shape[1]}:
            raise ValueError("of another dimension")
        doubles = np.frombuffer(parsed.as_buffer(of_type="d"), dtype=np.float64)
    except (TypeError, RuntimeError) as error:
        raise ValueError(str(error)) from None
    with np.errstate(over="ignore"):
        numbers[:] = doubles.reshape(numbers.shape)


def arrow_block(texts: Sequence[Text], numbers: Singles) -> None:
    """The same with Arrow: slower, but other threads run meanwhile. ValueError also where it cannot tell."""
    if not all(text[:1] == b"[" and text[-1:] == b"]" for text in texts):
        raise ValueError("not an array")
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) - 2 for text in texts], out=ends[1:])
    whole = pa.py_buffer(b"".join(text[1:-1] for text in texts))
    column = pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), whole])
    split = pc.split_pattern(column, ", " if b", " in bytes(texts[0]) else ",")
    if (split.value_lengths().to_numpy() != numbers.shape[1]).any():
        raise ValueError("of another dimension")
    doubles = split.values.cast(pa.float64()).to_numpy()
    _, offsets, data = split.values.buffers()
    if _has_non_json_numbers(
        np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int32)[: len(doubles) + 1]
    ):
        raise ValueError("no JSON")
    with np.errstate(over="ignore"):
        numbers[:] = doubles.reshape(numbers.shape)


def _has_non_json_numbers(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32]) -> bool:
    """Whether JSON readers refuse a number that Arrow has read (+1, 01, .5, 5., 5.e1) or not as it (-0)."""
    zero, dot, minus, exponent = np.frombuffer(b"0.-e", np.uint8)  # whose differences wrap around
    start, after = ends[:-1].astype(np.int64), ends[1:].astype(np.int64)  # or each index is converted anew
    is_negative = text.take(start) == minus
    start += is_negative
    first = text.take(start, mode="clip") - zero
    start += 1
    is_digit = text.take(start, mode="clip") - zero < _DIGITS
    wrong_zero = (first == 0) & np.where(start < after, is_digit, is_negative)
    no_digit = (first >= _DIGITS) | (text.take(after - 1) == dot)
    exponents = np.flatnonzero(text | 32 == exponent)
    return bool((wrong_zero | no_digit).any() or (text[exponents - 1] == dot).any())


read_block: Callable[[Sequence[Text], Singles], None] = arrow_block if Parser is None else simdjson_block


def read_numbers(vectors: Sequence[Text | None], dimension: int) -> Singles:
    """The numbers of vectors, a row each; those of a block that cannot be read as one are NaN."""
    numbers = np.full((len(vectors), dimension), np.nan, np.float32)
    for start, block in _blocks(vectors):
        part = numbers[start : start + len(block)]
        try:
            read_block(block, part)
        except ValueError:
            part[:] = np.nan
    return numbers


def dense_column(
    vectors: Sequence[Text | None], dimension: int | None, numbers: Singles | None = None
) -> tuple[pa.Array, list[str | None]]:
    """A column of dense vectors from their JSON text, and for each vector why it cannot be used, or None.

    A vector that cannot be used, is not there or is not of this dimension is null. ValueError where bytes are
    not JSON. Without a dimension, vectors are read one by one. `numbers` are those that `read_numbers` has
    read before; they are written to.

    >>> column, problems = dense_column([b"[1, 0.5]", b"[1, NaN]", None], 2)
    >>> column.to_pylist(), problems
    ([[1.0, 0.5], None, None], [None, 'not finite at 1', None])
    """
    if not dimension:
        read = [as_singles(None if text is None else as_value(text), dimension) for text in vectors]
        rows = [singles for singles, _ in read]
        return pa.array(rows, pa.list_(pa.float32())), [problem for _, problem in read]
    if numbers is None:
        numbers = read_numbers(vectors, dimension)
    problems: list[str | None] = [None] * len(vectors)
    missing = np.zeros(len(vectors), bool)
    for row in np.flatnonzero(~np.isfinite(numbers).all(axis=1)).tolist():
        text = vectors[row]
        singles, problems[row] = as_singles(None if text is None else as_value(text), dimension)
        numbers[row], missing[row] = 0 if singles is None else singles, singles is None
    flat = pa.array(numbers.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, dimension, mask=pa.array(missing)), problems


def _blocks(vectors: Sequence[Text | None]) -> Iterator[tuple[int, list[Text]]]:
    """Vectors that follow each other, in blocks that are quick to read, and where each block begins."""
    block: list[Text] = []
    size = 0
    for index, vector in enumerate(vectors):
        if block and (vector is None or size >= _BLOCK):
            yield index - len(block), block
            block, size = [], 0
        if vector is not None:
            block.append(vector)
            size += len(vector)
    if block:
        yield len(vectors) - len(block), block


def as_value(text: Text) -> Any:
    """The value of a vector's JSON text, integers as the floats they will be; ValueError where it is none."""
    whole = bytes(text).decode("utf-8", "surrogateescape")
    return read_json(whole) if is_deep(whole) else json.loads(whole, parse_int=_whole)


def as_singles(vector: Any, dimension: int | None) -> tuple[Singles | None, str | None]:
    """A vector that Python's own reader read, as float32; or None and why it cannot be used."""
    if vector is None:
        return None, None
    if not isinstance(vector, list) or not set(map(type, vector)) <= {int, float}:
        return None, "not an array of numbers"
    if dimension is not None and len(vector) != dimension:
        return None, f"dimension {len(vector)}, expected {dimension}"
    for index, value in enumerate(vector):
        if not -BEYOND_FLOAT32 < value < BEYOND_FLOAT32:
            finite = isinstance(value, int) or math.isfinite(value)
            return None, f"{'beyond float32' if finite else 'not finite'} at {index}"
    return np.array(vector, dtype=np.float64).astype(np.float32), None


def _whole(text: str) -> float:
    """An integer of any length: one that no float can hold is far beyond float32, but finite."""
    largest = -_FLOAT64_MAX if text.startswith("-") else _FLOAT64_MAX
    if len(text) > _MOST_DIGITS:
        return largest
    try:
        return float(int(text))
    except OverflowError:
        return largest
