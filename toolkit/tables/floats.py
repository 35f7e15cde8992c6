"""Arrays of numbers from their JSON text to float32.

Blocks of many vectors are read by pysimdjson, whose buffers numpy reads as they are, or by msgspec where
pysimdjson is not installed. What these refuse (NaN, 1e400, null, text) is read vector by vector by Python's
own reader, which says what is wrong with it. All give the same numbers: text is rounded to a double, the
double to a float32. Measured: ``docs/decisions/0008-decoding-vectors.md``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
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

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Text = bytes | memoryview
BlockReader = Callable[[Sequence[Text]], tuple[Singles, list[int]]]
"""Returns the numbers of all vectors of a block, and how many each has; what is beyond float32 is infinite.

Raises ValueError where one of them is not a flat array of numbers.
"""

_FLOATS: Final = msgspec.json.Decoder(tuple[float, ...])


def dense_column(
    vectors: Sequence[Any], dimension: int | None, *, reader: BlockReader | None = None
) -> tuple[pa.Array, list[str | None]]:
    """A column of dense vectors, and what is wrong with those that cannot be used.

    Parameters
    ----------
    vectors : sequence
        The JSON text of each vector (bytes, or a view of them), None where there is none, or what a lenient
        reader made of it.
    dimension : int or None
        Numbers that each has to have; None when that is not known.
    reader : callable, optional
        Reads blocks. Default: pysimdjson where it is installed, else msgspec.

    Returns
    -------
    tuple
        An array of float32 lists (of fixed size, where there is a dimension), null where a vector cannot be
        used or is not there; and for each vector why it cannot be used, or None.

    Raises
    ------
    ValueError
        When bytes are not JSON.

    Examples
    --------
    >>> column, problems = dense_column([b"[1, 0.5]", b"[1, NaN]", None], 2)
    >>> column.to_pylist()
    [[1.0, 0.5], None, None]
    >>> problems
    [None, 'not finite at 1', None]
    """
    column = _Column(dimension, reader or READERS[0])
    for text, some in groupby(vectors, key=lambda vector: isinstance(vector, Text)):
        if text:
            for block in _blocks(some):
                column.add_block(block)
        else:
            for vector in some:
                column.add(*as_singles(vector, dimension))
    return column.array(), column.problems


def simdjson_block(texts: Sequence[Text]) -> tuple[Singles, list[int]]:
    """Read a block with pysimdjson."""
    block = b"[" + b",".join(texts) + b"]"
    # an array within the array would be read as if its numbers stood in the outer one
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
    """Read a block with msgspec."""
    decode = _FLOATS.decode
    packed, lengths = [], []
    try:
        for text in texts:
            numbers = decode(text)
            lengths.append(len(numbers))
            # to float32 at once: numpy takes longer for Python floats, and a column of doubles for its pages
            packed.append(_packer(len(numbers)).pack(*numbers))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return np.frombuffer(b"".join(packed), dtype=np.float32), lengths


@lru_cache(64)
def _packer(length: int) -> struct.Struct:
    return struct.Struct(f"{length}f")


READERS: Final[tuple[BlockReader, ...]] = (
    (msgspec_block,) if Parser is None else (simdjson_block, msgspec_block)
)
"""The readers that are installed, the quickest first."""


def _blocks(texts: Iterable[Text]) -> Iterator[list[Text]]:
    block: list[Text] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


class _Column:
    """The numbers of a column so far, one vector behind the other."""

    def __init__(self, dimension: int | None, reader: BlockReader) -> None:
        self.problems: list[str | None] = []
        self._dimension = dimension
        self._reader = reader
        self._filler = np.zeros(dimension or 0, dtype=np.float32)
        self._numbers = [self._filler[:0]]
        self._lengths: list[int] = []
        self._holes: list[bool] = []

    def add(self, vector: Singles | None, problem: str | None) -> None:
        """Add a vector, or why there is none."""
        numbers = self._filler if vector is None else vector
        self._numbers.append(numbers)
        self._lengths.append(len(numbers))
        self._holes.append(vector is None)
        self.problems.append(problem)

    def add_block(self, texts: list[Text]) -> None:
        """Add vectors from their JSON text: all at once, or one by one where that cannot be."""
        try:
            numbers, lengths = self._reader(texts)
        except ValueError:
            lengths = []
        if (
            not lengths
            or (self._dimension and set(lengths) != {self._dimension})
            or max(numbers.max(initial=0), -numbers.min(initial=0)) == math.inf
        ):
            for text in texts:
                self.add(*as_singles(as_value(text), self._dimension))
            return
        self._numbers.append(numbers)
        self._lengths += lengths
        self._holes += [False] * len(texts)
        self.problems += [None] * len(texts)

    def array(self) -> pa.Array:
        """All vectors as one array, null where there is none."""
        flat = pa.array(np.concatenate(self._numbers), pa.float32())
        mask = pa.array(self._holes, pa.bool_())
        if self._dimension is not None:
            return pa.FixedSizeListArray.from_arrays(flat, self._dimension, mask=mask)
        offsets = pa.array(np.cumsum([0, *self._lengths]), pa.int32())
        return pa.ListArray.from_arrays(offsets, flat, mask=mask)


def as_value(text: Text) -> Any:
    """What stands in the JSON text of a vector; integers as the floats they will be.

    Raises
    ------
    ValueError
        When it is not JSON.
    """
    whole = bytes(text).decode("utf-8", "surrogateescape")
    return read(whole) if is_deep(whole) else json.loads(whole, parse_int=_whole)


def as_singles(vector: Any, dimension: int | None) -> tuple[Singles | None, str | None]:
    """A vector that a lenient reader read, as float32; or None and why it cannot be used."""
    if vector is None:
        return None, None
    if not isinstance(vector, list) or not set(map(type, vector)) <= {int, float}:
        return None, "not an array of numbers"
    if dimension is not None and len(vector) != dimension:
        return None, _other_dimension(len(vector), dimension)
    for place, value in enumerate(vector):
        if not -BEYOND_FLOAT32 < value < BEYOND_FLOAT32:
            finite = isinstance(value, int) or math.isfinite(value)
            return None, f"{'beyond float32' if finite else 'not finite'} at {place}"
    return np.array(vector, dtype=np.float64).astype(np.float32), None


def _other_dimension(length: int, dimension: int) -> str:
    return f"dimension {length}, expected {dimension}"


def _whole(text: str) -> float:
    """An integer of any length: one that no float can hold is far beyond float32, but finite."""
    if len(text) > _MOST_DIGITS:
        return -_FLOAT64_MAX if text.startswith("-") else _FLOAT64_MAX
    try:
        return float(int(text))
    except OverflowError:
        return -_FLOAT64_MAX if text.startswith("-") else _FLOAT64_MAX
