"""Checks of the arguments of public functions, with errors of the form ``reading NAME: got …``."""

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

from toolkit.errors import InputError
from toolkit.own_tokens import MASK

T = TypeVar("T")

_LONGEST: Final = 80
_LONGEST_PATH: Final = 4_096  # the most that Linux accepts
_MOST_KNOWN: Final = 12


def wrong(name: str, value: object, expected: str, next_step: str | None = None) -> InputError:
    """The error for an argument that cannot be used as given."""
    return InputError(f"reading {name}", got=shown(value), expected=expected, next_step=next_step)


def shown(value: object) -> str:
    """A value as an error shows it: short, and never a whole frame or an unknown object's repr.

    >>> shown("x" * 100)[-4:], shown([1, 2]), shown(None)
    ("xxx'", 'list of 2', 'None')
    """
    if isinstance(value, str):
        return repr(value[:_LONGEST])
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < 10**_LONGEST else "an int of many digits"
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"{type(value).__name__} of {len(value):,}"
    return type(value).__name__


def nearest(value: object, known: Iterable[str], *, what: str = "Known") -> str:
    """Suggestions for an unknown value, as the next step of an error or warning.

    >>> nearest("runbook", ["incidents", "runbooks"])
    "Did you mean 'runbooks'? Known: 'incidents', 'runbooks'."
    """
    names = list(dict.fromkeys(map(str, known)))
    close = get_close_matches(str(value)[:200], [name[:200] for name in names[:5_000]], n=1, cutoff=0.6)
    listed = ", ".join(repr(name[:_LONGEST]) for name in names[:_MOST_KNOWN]) or "none"
    more = f" and {len(names) - _MOST_KNOWN:,} more" if len(names) > _MOST_KNOWN else ""
    return f"{f'Did you mean {close[0][:_LONGEST]!r}? ' if close else ''}{what}: {listed}{more}."


def plain(value: Any) -> Any:
    """A scalar of numpy, as taken from an array or a frame, as Python's own; anything else as it is.

    >>> import numpy as np
    >>> plain(np.int64(3)), plain(np.float64(0.5)), plain("text")
    (3, 0.5, 'text')
    """
    numpy = sys.modules.get("numpy")  # not imported for this: without it, no value is one of its own
    if numpy is not None and isinstance(value, numpy.ndarray) and not value.ndim:
        value = value[()]
    if numpy is not None and isinstance(value, numpy.bool_ | numpy.integer | numpy.floating | numpy.str_):
        return value.item()
    return value


def plain_list(value: Any) -> Any:
    """The values of an Arrow array as a list of Python's own; anything else as it is."""
    pyarrow = sys.modules.get("pyarrow")
    return value.to_pylist() if pyarrow and isinstance(value, pyarrow.Array | pyarrow.ChunkedArray) else value


def as_json(value: object) -> str:
    """Any value as JSON text, numbers of numpy included.

    Raises ValueError for NaN and infinity, TypeError for what JSON cannot hold, and RecursionError.

    >>> import numpy as np
    >>> as_json({"count": np.int64(3)})
    '{"count": 3}'
    """

    def other(item: object) -> object:
        if (result := plain(item)) is item:
            raise TypeError(f"{type(item).__name__} is not a type of JSON")
        return result

    try:
        return json.dumps(value, allow_nan=False, default=other)
    except ValueError as error:
        if "JSON compliant" in str(error):
            raise ValueError("a number that is NaN or infinite, which JSON does not have") from None
        raise


def whole(name: str, value: object, *, least: int = 1, most: int = (1 << 63) - 1, optional: str = "") -> Any:
    """A whole number from `least` to `most`, or None with `optional`, which says what None means.

    >>> whole("limit", 5), whole("limit", None, optional="for all")
    (5, None)
    """
    if value is None and optional:
        return None
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        bounds = f"from {least}" + f" to {most:,}" * (most < 1 << 62)
        raise wrong(name, value, f"a whole number {bounds}" + f", or None {optional}" * bool(optional))
    return number


def positive(name: str, value: object, *, optional: str = "", finite: bool = True) -> Any:
    """A number above 0; with `optional`, None too."""
    if value is None and optional:
        return None
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not number > 0 or (finite and math.isinf(number)):
        raise wrong(name, value, "a number above 0" + f", or None {optional}" * bool(optional))
    return value if isinstance(value, int) else number


def flag(name: str, value: object) -> bool:
    """True or False, not a value that is only truthy or falsy."""
    value = plain(value)
    if not isinstance(value, bool):
        raise wrong(name, value, "True or False")
    return value


def confirmed(doing: str, confirm: object, next_step: str) -> None:
    """The error of what destroys something unless it is confirmed."""
    if plain(confirm) is not True:
        raise InputError(
            doing,
            got="no confirmation" if confirm is False else f"confirm={shown(confirm)}",
            expected="confirm=True",
            next_step=next_step,
        )


def choice(name: str, value: object, allowed: Iterable[str], *, optional: bool = False) -> Any:
    """One of a few names; with `optional`, None too."""
    names = list(allowed)
    if value is None and optional:
        return None
    if not isinstance(value, str) or value not in names:
        *others, last = [*map(repr, names), *(["None"] if optional else [])]
        expected = f"{', '.join(others)} or {last}" if others else last
        close = get_close_matches(str(value)[:_LONGEST].lower(), [item.lower() for item in names], n=1)
        meant = next((item for item in names if item.lower() in close), None)
        raise wrong(name, value, expected, meant and f"Did you mean {meant!r}?")
    return str(value)


def text(name: str, value: object, *, empty: bool = True) -> str:
    """Text that can be sent as UTF-8."""
    expected = "text" if empty else "text of at least one character"
    if not isinstance(value, str) or not (value or empty):
        raise wrong(name, value, expected)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"reading {name}", got=f"a lone surrogate in {value[:_LONGEST]!r}", expected=expected
        ) from None
    return str(value)


def texts(name: str, value: object, *, column: str | None = None, empty: bool = False) -> list[str]:
    """Texts from one text, from any iterable of them, or from a frame's column.

    Their order is kept, duplicates too; those of a set are sorted. Without `column`, a frame is an error:
    iterating over one gives the names of its columns.
    """
    expected = "text, or several texts" + f", or a frame with a column {column!r}" * bool(column)
    if isinstance(value, str):
        return [text(name, value, empty=empty)]
    is_stream = hasattr(value, "__arrow_c_stream__") and not hasattr(value, "iloc")
    if hasattr(value, "columns") or (is_stream and not isinstance(value, Iterable)):
        if column is None:
            raise wrong(name, value, expected)
        if is_stream:
            value = import_module("pyarrow").table(value)
        names: Any = getattr(value, "column_names", None) or getattr(value, "columns", ())
        if column not in names:
            raise InputError(
                f"reading {name}",
                got=f"a frame without the column {column!r}",
                expected=expected,
                next_step=nearest(column, names, what="It has"),
            )
        value = value[column]  # type: ignore[index]
    value = plain_list(value)
    if isinstance(value, bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise wrong(name, value, expected)
    items = enumerate(value)
    result = [text(f"{name} at position {index:,}", item, empty=empty) for index, item in items]
    return sorted(result) if isinstance(value, set | frozenset) else result


def file_path(name: str, value: object) -> Path:
    """The path of a file, which the system can encode."""
    text = ""
    if isinstance(value, str | os.PathLike):
        with suppress(UnicodeEncodeError):
            text = os.fsdecode(os.fsencode(value))
    if not text or "\0" in text or len(text) > _LONGEST_PATH:
        raise wrong(name, value, f"the path of a file, of at most {_LONGEST_PATH:,} characters")
    return Path(text)


def unmasked(name: str, value: str) -> str:
    """Text that names something; a masked name is an error, because another name can have the same mask.

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
    """A mapping, such as a dict."""
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
    """A value of one class; with `optional`, None too."""
    if value is None and optional:
        return None
    if not isinstance(value, kind):
        raise wrong(name, value, expected, next_step)
    return value
