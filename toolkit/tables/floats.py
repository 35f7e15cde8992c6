"""Arrays of numbers from their JSON text to float32.

Blocks of many vectors are read by pysimdjson, whose buffers numpy reads without a copy, or by msgspec where
pysimdjson is not installed. What these refuse (NaN, 1e400, null, text) is read vector by vector by Python's
own reader, which says what is wrong with it. All round alike: text to double, double to float32. Measured:
``docs/decisions/0008-decoding-vectors.md``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.client.members import is_deep, read

try:
    from simdjson import Parser
except ImportError:  # it has no wheel for every interpreter
    Parser = None  # type: ignore[assignment, misc]

BEYOND_FLOAT32: Final = 2.0**128 - 2.0**103
"""The least number that is rounded to infinity as float32."""
_FLOAT64_MAX: Final = float(np.finfo(np.float64).max)
_BLOCK: Final = 1 << 19  # bytes of text: what the parser writes of them stays in the processor's cache
_MOST_DIGITS: Final = 400
_FLOATS: Final = msgspec.json.Decoder(tuple[float, ...])

Singles = npt.NDArray[np.float32]
Text = bytes | memoryview


def simdjson_block(texts: Sequence[Text]) -> tuple[Singles, list[int]]:
    """The numbers of all vectors of a block, and how many each has; those beyond float32 are infinite.

    ValueError where one of them is not a flat array of numbers.
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
        found: Any = Parser().parse(block)
        lengths = list(map(len, found))
        numbers = np.frombuffer(found.as_buffer(of_type="d"), dtype=np.float64)
    except (TypeError, RuntimeError) as error:
        raise ValueError(str(error)) from None
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32), lengths


def msgspec_block(texts: Sequence[Text]) -> tuple[Singles, list[int]]:
    """The same with msgspec."""
    packed, lengths = [], []
    try:
        for text in texts:
            numbers = _FLOATS.decode(text)
            lengths.append(len(numbers))
            # to float32 at once: numpy is slower with Python floats, and a column of doubles with its pages
            packed.append(_packer(len(numbers)).pack(*numbers))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return np.frombuffer(b"".join(packed), dtype=np.float32), lengths


read_block: Callable[[Sequence[Text]], tuple[Singles, list[int]]] = (
    msgspec_block if Parser is None else simdjson_block
)


@lru_cache(64)
def _packer(length: int) -> struct.Struct:
    return struct.Struct(f"{length}f")


def dense_column(vectors: Sequence[Text | None], dimension: int | None) -> tuple[pa.Array, list[str | None]]:
    """A column of dense vectors from their JSON text, and for each vector why it cannot be used, or None.

    A vector that cannot be used, is not there or is not of this dimension is null. ValueError where bytes are
    not JSON.

    >>> column, problems = dense_column([b"[1, 0.5]", b"[1, NaN]", None], 2)
    >>> column.to_pylist(), problems
    ([[1.0, 0.5], None, None], [None, 'not finite at 1', None])
    """
    numbers = [np.empty(0, np.float32)]
    lengths: list[int] = []
    usable: list[int] = []
    problems: list[str | None] = [None] * len(vectors)
    for block in _blocks(vectors):
        texts = [text for index in block if (text := vectors[index]) is not None]
        if (found := _all_usable(texts, dimension)) is not None:
            numbers.append(found[0])
            lengths += found[1]
            usable += block
            continue
        for index, text in zip(block, texts, strict=True):
            vector, problems[index] = as_singles(as_value(text), dimension)
            if vector is not None:
                numbers.append(vector)
                lengths.append(len(vector))
                usable.append(index)
    flat = pa.array(np.concatenate(numbers), pa.float32())
    if dimension is None:
        column = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), flat)
    else:
        column = pa.FixedSizeListArray.from_arrays(flat, dimension)
    if len(usable) < len(vectors):
        rows = np.full(len(vectors), -1)
        rows[usable] = np.arange(len(usable))
        column = column.take(pa.array(rows, mask=rows < 0))
    return column, problems


def _blocks(vectors: Sequence[Text | None]) -> Iterator[list[int]]:
    """The indices of the vectors that are there, in blocks that are quick to read."""
    block: list[int] = []
    size = 0
    for index, vector in enumerate(vectors):
        if vector is not None:
            block.append(index)
            size += len(vector)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _all_usable(texts: Sequence[Text], dimension: int | None) -> tuple[Singles, list[int]] | None:
    """The numbers of a block and their lengths, or None where its vectors have to be read one by one."""
    try:
        numbers, lengths = read_block(texts)
    except ValueError:
        return None
    if dimension and set(lengths) != {dimension}:
        return None
    return None if max(numbers.max(initial=0), -numbers.min(initial=0)) == math.inf else (numbers, lengths)


def as_value(text: Text) -> Any:
    """The value of a vector's JSON text, integers as the floats they will be; ValueError where it is none."""
    whole = bytes(text).decode("utf-8", "surrogateescape")
    return read(whole) if is_deep(whole) else json.loads(whole, parse_int=_whole)


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
