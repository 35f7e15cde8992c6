"""Check the arguments of public functions, with errors of the form ``reading NAME: got …``."""

from __future__ import annotations

import json
import math
import operator
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

from toolkit.base.errors import InputError
from toolkit.base.own_tokens import MASK

T = TypeVar("T")

_LONGEST: Final = 80
_LONGEST_PATH: Final = 4_096  # the most that Linux accepts
_MOST_KNOWN: Final = 12
# a comparison takes time that grows with both, and a suggestion is worth milliseconds
_LONGEST_COMPARED: Final = 200
_MOST_COMPARED: Final = 5_000


def wrong(
    name: str, value: object, expected: str, next_step: str | None = None
) -> InputError:
    """Return the error for an argument that cannot be used."""
    return InputError(
        f"reading {name}", got=shown(value), expected=expected, next_step=next_step
    )


def shown(value: object) -> str:
    """Return a value as errors show it: short, and never a whole frame or the repr of an unknown object.

    >>> shown("x" * 100)[-4:], shown([1, 2]), shown(None)
    ("xxx'", 'list of 2', 'None')
    """
    if isinstance(value, str):
        return repr(value[:_LONGEST])
    # the repr of an integer with more than 4,300 digits raises ValueError
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return "an int of many digits"
    if isinstance(value, int | float | None):
        return repr(value)
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"{type(value).__name__} of {len(value):,}"

    return type(value).__name__


def nearest(value: object, known: Iterable[str], *, what: str = "Known") -> str:
    """Return suggestions for an unknown value, as the next step of an error or warning.

    >>> nearest("runbook", ["incidents", "runbooks"])
    "Did you mean 'runbooks'? Known: 'incidents', 'runbooks'."
    """
    names = list(dict.fromkeys(map(str, known)))
    known_names = f"{what}: {_first_of(names)}."
    candidates = [name[:_LONGEST_COMPARED] for name in names[:_MOST_COMPARED]]
    unknown = str(value)[:_LONGEST_COMPARED]
    close = get_close_matches(unknown, candidates, n=1, cutoff=0.6)
    if not close:
        return known_names

    return f"Did you mean {close[0][:_LONGEST]!r}? {known_names}"


def _first_of(names: list[str]) -> str:
    """Return the first names as an error shows them, and how many more there are."""
    if not names:
        return "none"

    listed = ", ".join(repr(name[:_LONGEST]) for name in names[:_MOST_KNOWN])
    others = len(names) - _MOST_KNOWN
    if others <= 0:
        return listed

    return f"{listed} and {others:,} more"


def plain(value: Any) -> Any:
    """Return a scalar of numpy as a value of Python, for example of an array; other values are unchanged.

    >>> import numpy as np
    >>> plain(np.int64(3)), plain(np.float64(0.5)), plain("text")
    (3, 0.5, 'text')
    """
    # not imported here: if it is not loaded, the value cannot come from it
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value

    if isinstance(value, numpy.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, numpy.bool_ | numpy.integer | numpy.floating | numpy.str_):
        return value.item()

    return value


def plain_list(value: Any) -> Any:
    """Return the values of an Arrow array as a list of Python values; other values are unchanged."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None:
        return value
    if isinstance(value, pyarrow.Array | pyarrow.ChunkedArray):
        return value.to_pylist()

    return value


def as_json(value: object) -> str:
    """Return any value as JSON, also if it contains numbers of numpy.

    Raises ValueError for NaN and infinity, TypeError for values that JSON cannot express, for example a set,
    and RecursionError.

    >>> import numpy as np
    >>> as_json({"count": np.int64(3)})
    '{"count": 3}'
    """
    try:
        return json.dumps(value, allow_nan=False, default=_plain_or_error)
    except ValueError as error:
        # Python words this error, which is one of several with this class
        if "JSON compliant" not in str(error):
            raise
        raise ValueError(
            "a number that is NaN or infinite, which JSON does not have"
        ) from None


def _plain_or_error(item: object) -> object:
    """Return a scalar of numpy as a value of Python. Raise TypeError for other values."""
    converted = plain(item)
    if converted is item:
        raise TypeError(f"{type(item).__name__} is not a type of JSON")

    return converted


def whole(
    name: str,
    value: object,
    *,
    least: int = 1,
    most: int = (1 << 63) - 1,
    optional: str = "",
) -> Any:
    """Return a whole number from `least` to `most`, or None if `optional` names the meaning of None.

    >>> whole("limit", 5), whole("limit", None, optional="for all")
    (5, None)
    """
    if value is None and optional:
        return None

    # Without a whole number, the number below the least one is refused. True is an int, but not a count.
    number = least - 1
    if not isinstance(value, bool):
        with suppress(TypeError):
            number = operator.index(value)  # type: ignore[arg-type]

    if not least <= number <= most:
        expected = f"a whole number from {least}"
        if most < 1 << 62:
            expected += f" to {most:,}"
        raise wrong(name, value, expected + _or_none(optional))

    return number


def positive(
    name: str, value: object, *, optional: str = "", finite: bool = True
) -> Any:
    """Return a number above 0, or None if `optional` names the meaning of None."""
    if value is None and optional:
        return None

    number = _number_or_nan(value)
    greatest = math.inf
    if finite:
        greatest = sys.float_info.max
    if not 0 < number <= greatest:
        raise wrong(name, value, "a number above 0" + _or_none(optional))
    if isinstance(value, int):
        return value

    return number


def _number_or_nan(value: Any) -> float:
    """Return a value as a float, or NaN if it is no number; `float` would also read text."""
    number = math.nan
    if not isinstance(value, bool | str | bytes):
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)

    return number


def _or_none(meaning: str) -> str:
    """Return the end of an error message that allows None, for example ", or None for all"."""
    if meaning:
        return f", or None {meaning}"
    return ""


def flag(name: str, value: object) -> bool:
    """Return True or False. Raise InputError for values that are only truthy or falsy, for example 1."""
    value = plain(value)
    if not isinstance(value, bool):
        raise wrong(name, value, "True or False")

    return value


def confirmed(doing: str, confirm: object, next_step: str) -> None:
    """Raise the error of a destructive function, unless the caller has confirmed it."""
    if plain(confirm) is not True:
        got = f"confirm={shown(confirm)}"
        if confirm is False:
            got = "no confirmation"
        raise InputError(
            doing,
            got=got,
            expected="confirm=True",
            next_step=next_step,
        )


def choice(
    name: str, value: object, allowed: Iterable[str], *, optional: bool = False
) -> Any:
    """Return one of a few names, or None if that is allowed (`optional`)."""
    names = list(allowed)
    if value is None and optional:
        return None
    if isinstance(value, str) and value in names:
        return str(value)

    accepted = list(map(repr, names))
    if optional:
        accepted.append("None")
    raise wrong(name, value, _listed_with_or(accepted), _meant(value, names))


def _listed_with_or(accepted: list[str]) -> str:
    """Return a list in words.

    >>> _listed_with_or(["'a'", "'b'", "None"])
    "'a', 'b' or None"
    """
    *others, last = accepted
    if others:
        return f"{', '.join(others)} or {last}"

    return last


def _meant(value: object, names: list[str]) -> str | None:
    """Return a suggestion for a mistyped name, or None if no name is close."""
    by_lower_case = {name.lower(): name for name in names}
    close = get_close_matches(str(value)[:_LONGEST].lower(), by_lower_case, n=1)
    if not close:
        return None

    return f"Did you mean {by_lower_case[close[0]]!r}?"


def text(name: str, value: object, *, empty: bool = True) -> str:
    """Return a string that can be sent as UTF-8."""
    expected = "text"
    if not empty:
        expected = "text of at least one character"
    if not isinstance(value, str):
        raise wrong(name, value, expected)
    if not value and not empty:
        raise wrong(name, value, expected)

    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"reading {name}",
            got=f"a lone surrogate in {value[:_LONGEST]!r}",
            expected=expected,
        ) from None

    return str(value)


def texts(
    name: str, value: object, *, column: str | None = None, empty: bool = False
) -> list[str]:
    """Return the strings of one string, of an iterable, or of a column of a frame.

    Their order and duplicates are kept; a set is sorted. Without `column`, a frame is an error, because
    iterating over a frame gives the names of the columns.
    """
    expected = "text, or several texts"
    if column:
        expected += f", or a frame with a column {column!r}"
    if isinstance(value, str):
        return [text(name, value, empty=empty)]

    items = value
    if _is_frame(value):
        items = _column_of(name, value, column, expected)
    items = plain_list(items)
    if not isinstance(items, Iterable):
        raise wrong(name, items, expected)
    # these can be iterated over, but are no lists of texts
    if isinstance(items, bytes | bytearray | Mapping):
        raise wrong(name, items, expected)

    checked = [
        text(f"{name} at position {index:,}", item, empty=empty)
        for index, item in enumerate(items)
    ]
    if isinstance(items, set | frozenset):
        return sorted(checked)

    return checked


def _is_frame(value: object) -> bool:
    """Return whether a value has columns, as frames of pandas and polars, or only offers an Arrow stream."""
    if hasattr(value, "columns"):
        return True
    if isinstance(value, Iterable):
        return False

    return _is_stream(value)


def _is_stream(value: object) -> bool:
    """Return whether pyarrow has to read a frame; pandas offers a stream as well, but is read without it."""
    return hasattr(value, "__arrow_c_stream__") and not hasattr(value, "iloc")


def _column_of(name: str, frame: Any, column: str | None, expected: str) -> Any:
    """Return a column of a frame. Raise InputError if no column is wanted, or if it is missing."""
    if column is None:
        raise wrong(name, frame, expected)

    if _is_stream(frame):
        frame = import_module("pyarrow").table(frame)
    names: Any = getattr(frame, "column_names", None) or getattr(frame, "columns", ())
    if column not in names:
        raise InputError(
            f"reading {name}",
            got=f"a frame without the column {column!r}",
            expected=expected,
            next_step=nearest(column, names, what="It has"),
        )

    return frame[column]


def file_path(name: str, value: object) -> Path:
    """Return the path of a file that the system can encode."""
    expected = f"the path of a file, of at most {_LONGEST_PATH:,} characters"
    if not isinstance(value, str | os.PathLike):
        raise wrong(name, value, expected)

    try:
        path = os.fsdecode(os.fsencode(value))
    except UnicodeEncodeError:
        raise wrong(name, value, expected) from None

    if not 0 < len(path) <= _LONGEST_PATH:
        raise wrong(name, value, expected)
    # the system would cut the path at a null
    if "\0" in path:
        raise wrong(name, value, expected)

    return Path(path)


def unmasked(name: str, value: str) -> str:
    """Return a name. Raise InputError if it is masked, because another name can have the same mask.

    >>> unmasked("namespace", "docs")
    'docs'
    """
    if MASK.search(value):
        raise wrong(
            name,
            value,
            "text as the service has it",
            "A token of ours, or another secret, is masked in it, so the service does not know it.",
        )

    return value


def mapping(name: str, value: object) -> Mapping[Any, Any]:
    """Return a mapping, for example a dict."""
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a mapping")
    return value


def instance(
    name: str,
    value: object,
    kind: type[T],
    expected: str,
    next_step: str | None = None,
    *,
    optional: bool = False,
) -> T | Any:
    """Return a value of one class, or None if that is allowed (`optional`)."""
    if value is None and optional:
        return None
    if not isinstance(value, kind):
        raise wrong(name, value, expected, next_step)

    return value
