"""Convert values to the types of columns: integers of 64 bits, times, and text that is UTF-8.

For example, ``3.0`` is the integer 3, the time 0 is the first millisecond of 1970, and ``True`` is neither.
"""

from __future__ import annotations

from typing import Any, Final

LATEST: Final = 253_402_300_799_999
"""Last millisecond of the year 9999."""
INT64: Final = 1 << 63


def is_clean(text: str) -> bool:
    """Return True if text can be written as UTF-8."""
    if text.isascii():
        return True

    try:
        text.encode()
    except UnicodeEncodeError:
        return False

    return True


def clean(text: str) -> str:
    r"""Return text that can be written as UTF-8.

    Lone surrogates become visible escapes, for example ``\\udc80``.
    """
    if is_clean(text):
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def whole_number(value: Any) -> int | None:
    """Return the value as a 64-bit integer, or None if it is not an integer.

    True and False are not integers.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= 1 << 53:
        return int(value)
    # a subclass is a boolean, or an enumeration
    if type(value) is int and -INT64 <= value < INT64:
        return value

    return None


def unix_ms(value: Any) -> int | None:
    """Return Unix milliseconds for a timestamp column, or None outside the years 1970 to 9999."""
    number = whole_number(value)
    if number is not None and 0 <= number <= LATEST:
        return number

    return None
