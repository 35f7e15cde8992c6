"""Single values of a request body, checked, and the limits they must keep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from toolkit.local.api import ApiError
from toolkit.local.vectors.sparse import MAX_INDEX, SparseArray

# those not publicly documented, and so assumed: all but those of metadata and text
MAX_ID: Final = 1024
"""Longest id, prefix and namespace, in characters."""
MAX_METADATA: Final = 48 * 1024
"""Most bytes of a vector's metadata."""
MAX_NESTING: Final = 100
"""Most levels of a vector's metadata."""
MAX_DATA: Final = 1024 * 1024
"""Most bytes of a vector's text."""

_LARGEST: Final = float(np.finfo(np.float32).max)
_SHOWN: Final = 80


def invalid(what: str, got: str, expected: str, *, status: int = 400) -> ApiError:
    """An error in the one form that all of this service's have."""
    return ApiError(status, f"{what}; got {got}; expected {expected}")


def shown(value: Any) -> str:
    """A value as a message shows it: containers by their size, text truncated when long."""
    if isinstance(value, list | tuple | dict):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def json_object(value: Any, what: str) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, Mapping):
        raise invalid(what, shown(value), "a JSON object")
    return value


def read_text(value: Any, what: str) -> str:
    """Text that can be written as UTF-8."""
    if not isinstance(value, str):
        raise invalid(what, shown(value), "text")
    try:
        value.encode()
    except UnicodeEncodeError:
        got = f"a lone surrogate in {shown(value)}"
        raise invalid(what, got, "text that can be written as UTF-8") from None
    return value


def read_name(value: Any, what: str) -> str:
    """An id, a prefix or a namespace that must not be empty."""
    name = read_text(value, what)
    if not 1 <= len(name) <= MAX_ID:
        raise invalid(what, f"{len(name)} characters", f"1 to {MAX_ID}")
    if "\0" in name:
        raise invalid(what, f"a NUL in {shown(name)}", "text without NUL")
    return name


def read_namespace(value: Any, what: str) -> str:
    """A namespace that is not the default one. It may have slashes, but no part that URLs resolve away."""
    name = read_name(value, what)
    if not {".", ".."}.isdisjoint(name.split("/")):
        raise invalid(what, shown(name), "no part between slashes that is '.' or '..'")
    return name


def read_data(value: Any, what: str) -> str:
    """Text that is not empty."""
    text = read_text(value, what)
    size = len(text.encode())
    if not 1 <= size <= MAX_DATA:
        raise invalid(what, f"{size} bytes", f"1 to {MAX_DATA}")
    return text


def whole(value: Any) -> Any:
    """An integer for a number without a fraction, such as 2.0; anything else as it is."""
    return int(value) if type(value) is float and value.is_integer() else value


def read_vector(value: Any, dimension: int, what: str) -> NDArray[np.float32]:
    """A vector of finite numbers that fit single precision."""
    numbers = _read_array(value, what, float)
    if len(numbers) != dimension:
        raise ApiError(422, f"Invalid vector dimension: {len(numbers)}, expected: {dimension}")
    return _single_precision(numbers, what)


def read_sparse(value: Any, what: str) -> SparseArray:
    """A sparse vector: as many indices as values, at least one; no index is negative."""
    given = json_object(value, what)
    indices = _read_array(given.get("indices"), f"{what}.indices", int)
    values = _read_array(given.get("values"), f"{what}.values", float)
    if not indices or len(indices) != len(values):
        expected = "as many of both, and at least one"
        raise invalid(what, f"{len(indices)} indices and {len(values)} values", expected, status=422)
    for number, index in enumerate(indices):
        if not 0 <= index <= MAX_INDEX:
            raise invalid(f"{what}.indices[{number}]", shown(index), f"0 to {MAX_INDEX}", status=422)
    singles = _single_precision(values, f"{what}.values")
    return SparseArray(np.array(indices, dtype=np.int64), singles.astype(np.float64))


def _read_array(value: Any, what: str, kind: type[int | float]) -> list[Any]:
    """An array of numbers; of whole numbers, such as 2 or 2.0, when the kind is int."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise invalid(what, shown(value), "an array of numbers")
    if kind is int:
        value = [whole(number) for number in value]
    allowed = {int, kind}
    if not allowed.issuperset(map(type, value)):
        index = next(index for index, number in enumerate(value) if type(number) not in allowed)
        wanted = "a whole number" if kind is int else "a number"
        raise invalid(f"{what}[{index}]", shown(value[index]), wanted)
    return list(value)


def _single_precision(numbers: list[Any], what: str) -> NDArray[np.float32]:
    try:
        vector = np.array(numbers, dtype=np.float64)
        fits = bool((np.abs(vector) <= _LARGEST).all())
    except OverflowError:
        fits = False
    if not fits:
        index = next(index for index, number in enumerate(numbers) if not abs(number) <= _LARGEST)
        raise invalid(f"{what}[{index}]", shown(numbers[index]), "a finite number that fits single precision")
    with np.errstate(under="ignore"):
        return vector.astype(np.float32)


def read_metadata(value: Any, what: str) -> dict[str, Any] | None:
    """Metadata, nested at most `MAX_NESTING` deep; None where there is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid(what, shown(value), "a JSON object")
    level: list[Any] = [value]
    for _ in range(MAX_NESTING):
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for items in inner for child in items if isinstance(child, dict | list)]
        if not level:
            return value
    raise invalid(what, "deeper nesting", f"at most {MAX_NESTING} levels")


def metadata_text(metadata: dict[str, Any] | None, what: str) -> str | None:
    """Metadata as compact JSON text, within its limit."""
    if metadata is None:
        return None
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError) as error:  # lone surrogates; in process, values that are not JSON
        raise invalid(what, str(error)[:_SHOWN], "JSON values that can be written as UTF-8") from None
    if size > MAX_METADATA:
        raise invalid(what, f"{size} bytes", f"at most {MAX_METADATA}")
    return text
