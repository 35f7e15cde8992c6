"""The values of a column of vectors: tuples of numbers that are short when they are shown."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

_SHOWN: Final = 3


class Vector(tuple[float, ...]):
    """A vector: an immutable tuple of Python numbers.

    Numbers of a float32 column have the fewest digits that read back to the same float32, as in the JSON of
    the service (0.1, not 0.10000000149011612). ``str`` returns JSON text with all numbers, ``repr`` is short.

    Examples
    --------
    >>> Vector([0.1, 0.2, 0.3, 0.4, 0.5])
    [0.1, 0.2, 0.3, … 5 numbers]
    >>> str(Vector([0.1, 0.2, 0.3, 0.4, 0.5]))
    '[0.1,0.2,0.3,0.4,0.5]'
    """

    __slots__ = ()

    def __repr__(self) -> str:
        shown = list(map(_short_number, self))
        if len(shown) <= _SHOWN + 1:
            return f"[{', '.join(shown)}]"

        return f"[{', '.join(shown[:_SHOWN])}, … {len(shown):,} numbers]"

    def __str__(self) -> str:
        return json.dumps(self, separators=(",", ":"))

    def _no_arithmetic(self, _other: object) -> Any:
        """Raise TypeError: as a tuple, the vector would be repeated or joined, with more numbers."""
        raise TypeError(
            "arithmetic with a cell of vectors, which is an immutable tuple: use as_matrix(frame) for all "
            "rows, or numpy.asarray(cell) for one"
        )

    __add__ = __radd__ = __mul__ = __rmul__ = _no_arithmetic
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = _no_arithmetic


class Float32Vector(Vector):
    """A vector of a float32 column: numpy makes an array of float32 of it, as of the column.

    Examples
    --------
    >>> np.stack([Float32Vector([0.1, 0.2]), Float32Vector([0.3, 0.4])]).dtype
    dtype('float32')
    """

    __slots__ = ()

    @property
    def __array_interface__(self) -> dict[str, object]:
        # A method `__array__` would do the same for numpy, but `pandas.isna` would then return an array.
        numbers = np.array(tuple(self), dtype="<f4")
        return {
            "version": 3,
            "shape": numbers.shape,
            "typestr": "<f4",
            "data": numbers.tobytes(),
        }


def _short_number(number: Any) -> str:
    if isinstance(number, float):
        return f"{number:.4g}"
    return str(number)
