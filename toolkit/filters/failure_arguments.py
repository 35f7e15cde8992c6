"""Check the arguments of a filter of failures, and return the values of the fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from toolkit.base.arguments import nearest, plain, plain_list, text, whole
from toolkit.base.errors import InputError
from toolkit.base.times import parse_time
from toolkit.filters.failure_fields import FIELDS, FilterField


def read_field(field: FilterField, argument: Any, now: datetime) -> object:
    """Check an argument of `FailureFilter` and return the value of the field."""
    if field.many:
        return _read_several(field, argument)
    if argument is None:
        return None
    if field.kind != "time":
        return _read_one(field, argument)

    return parse_time(
        argument,
        now=now,
        # a date means until the end of the day, and an exact time cannot be a date
        end=field.compare == "<=",
        exact=field.compare == "=",
        name=field.name,
    )


def _read_several(field: FilterField, argument: Any) -> tuple[Any, ...]:
    """Return the values of a field without duplicates. The values of a set are sorted."""
    if argument is None:
        return ()

    items = plain_list(plain(argument))
    if _is_single(items):
        items = [items]

    # an error names the value that cannot be used
    values = [_read_one(field, item) for item in items]
    # an empty tuple is the default, but an empty list is a selection that matched nothing
    if not values and not isinstance(items, tuple):
        raise filter_error(
            got=f"no value for {field.name}",
            expected="at least one value, because a filter without values matches every failure",
            next_step=_leave_out(field),
        )

    if isinstance(items, set | frozenset):
        values.sort()
    return tuple(dict.fromkeys(values))


def _is_single(argument: Any) -> bool:
    """Return True if an argument is one value. A frame counts as one, since it iterates over column names."""
    if isinstance(argument, str | bytes | Mapping):
        return True
    if hasattr(argument, "columns"):
        return True

    return not isinstance(argument, Iterable)


def _read_one(field: FilterField, value: object) -> Any:
    """Return one string or one status."""
    read, expected = _VALUE_READERS[field.kind]
    try:
        return read(field.name, value)
    except InputError as error:
        raise filter_error(
            got=f"{error.got} for {field.name}",
            expected=expected,
            next_step=_leave_out(field),
        ) from None


def _leave_out(field: FilterField) -> str:
    return f"Leave {field.name} out to match every value."


_VALUE_READERS: Final[dict[str, tuple[Callable[[str, object], Any], str]]] = {
    "text": (
        partial(text, empty=False),
        "a string of at least one character, or several of them",
    ),
    "status": (
        partial(whole, least=100, most=999),
        "an HTTP status from 100 to 999, for example 500, or several of them",
    ),
}
"""The function for one value of a kind of field, and the description of values."""


def unknown_argument(name: str) -> InputError:
    """Return the error for an argument that no field of the table has."""
    return filter_error(
        got=f"an argument {name!r}",
        expected="one of the arguments of FailureFilter",
        next_step=_nearest_argument(name),
    )


def _nearest_argument(name: str) -> str:
    """Return a suggestion for an argument that does not exist; a part of one name means that name.

    >>> _nearest_argument("status")[:31]
    "Did you mean 'response_status'?"
    """
    containing = [known for known in FIELDS if name in known]
    if len(containing) == 1:
        return nearest(containing[0], FIELDS)

    return nearest(name, FIELDS)


def filter_error(*, got: str, expected: str, next_step: str) -> InputError:
    """Return the error for arguments that make no filter."""
    return InputError(
        "making a failure filter", got=got, expected=expected, next_step=next_step
    )
