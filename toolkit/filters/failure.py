"""Select failures with a frozen filter that loaders accept, widgets make and receipts record.

Arguments are read and checked once, when a filter is made. Everything that follows from them, for example the
parameters of requests and the fields that the service cannot compare, is computed then and only read later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import numpy as np

from toolkit.base.arguments import wrong
from toolkit.base.errors import InputError
from toolkit.base.own_tokens import MASK_START, map_json
from toolkit.base.python_code import PublicCall
from toolkit.base.times import Time, milliseconds, parse_time
from toolkit.filters.failure_arguments import filter_error, read_field, unknown_argument
from toolkit.filters.failure_fields import FIELDS, FilterField
from toolkit.filters.failure_rows import (
    check_columns,
    comparable_values,
    has_value,
    row_mapping,
)
from toolkit.secrets.redaction import Redactor

_MOST_SHOWN: Final = 3
_TIMES: Final = (str, int, date, timedelta, np.datetime64, np.timedelta64)
_UNSENDABLE: Final = {
    MASK_START: "a masked value cannot be sent",
    # the service splits the parameter at commas
    ",": "a value with a comma cannot be sent",
}
"""Reasons by the sign in a value."""
_MASKABLE: Final = tuple(
    field for field in FIELDS.values() if field.many and field.parameter
)
"""Fields of texts that the service compares. A frame can show a part of such a text as a mask."""


@dataclass(frozen=True, kw_only=True)
class LoadFilter:
    """The parts of a filter that a load needs besides the request."""

    keep: Callable[[dict[str, Any]], bool] | None
    """Returns whether an entry matches; None if the service compares all fields."""
    compared_here: Mapping[str, str]
    """The fields that the service cannot compare, each with the reason."""
    scope: Mapping[str, Any]
    """The fields that are set, masked, because a receipt is stored with frames and Parquet files."""


class _DerivedValues:
    """Values that follow from the fields of a filter. They are computed when the filter is made."""

    is_empty: bool
    """Whether every failure matches."""
    span: tuple[int | None, int | None]
    """The first and the last Unix millisecond, each None if it is open."""
    parameters: tuple[tuple[str, str], ...]
    """The query parameters of a listing, without dates and without `unsendable` fields."""
    unsendable: tuple[str, ...]
    """The names of the fields that the service cannot compare.

    They are `response_status`, `error`, and fields with a value that contains a comma (the service reads it
    as several values) or a mask. Leave them out of the request, and apply `matches` to the response.
    """
    _compared_here: Mapping[str, str]
    """The reasons for `unsendable`, by name."""
    _compared: tuple[FilterField, ...]
    """The fields that are set and that an entry has, so without `since` and `until`."""
    _written: Mapping[str, Any]
    """The values of the fields that are set, times as ISO 8601."""


@dataclass(frozen=True, init=False, repr=False)
class FailureFilter(_DerivedValues):
    """Select failures to load: all fields that are set must match, each by any of the given values.

    Parameters
    ----------
    since, until : datetime, date, timedelta, str or int, optional
        First and last timestamp, both included. You can give a datetime, pandas Timestamp or numpy datetime64
        (UTC if it has no time zone); a date or ISO 8601 text, for example ``"2026-01-31"`` or
        ``"2026-01-31T12:00+02:00"``; an age, for example ``"7d"``, ``"24 hours"``, ``"2 days ago"`` or a
        timedelta; or Unix milliseconds. `since` a date means from the first millisecond of the day in UTC,
        `until` a date means to the last. An age is subtracted from `now` when the filter is made: the filter
        contains absolute times only.
    workflow_url, label, failure_function_state, caller_ip, flow_control_key : str or iterable of str
        Values to match exactly. If omitted, every value matches. Duplicates are dropped, the order is kept
        (sets are sorted). Known states are ``"CALLBACK_INPROGRESS"``, ``"CALLBACK_SUCCESS"``,
        ``"CALLBACK_FAIL"`` and ``"CALLBACK_CANCELED"``.
    response_status : int or iterable of int
        HTTP statuses of the response, 100 to 999.
    error : str or iterable of str
        Text in the error line of the response (see the column ``error``), ignoring case.
    workflow_run_id : str, optional
    workflow_created_at : datetime, str or int, optional
        Exact creation time of the run, in one of the forms above except an age or a date.
    now : datetime, optional
        Time from which ages are subtracted. Default: the clock.

    Raises
    ------
    InputError
        If a time is invalid or before 1970, if `since` is after `until`, or if a value is empty or not a
        string.

    Notes
    -----
    The service does not document which time of an entry it compares with `since` and `until`. It cannot
    filter by `response_status` and `error`: they are compared after the download, and the receipt records
    this.

    Examples
    --------
    >>> billing = FailureFilter(since="7d", label=["billing", "eu"], now=datetime(2026, 1, 31, tzinfo=UTC))
    >>> billing
    FailureFilter(since='2026-01-24T00:00:00.000Z', label=('billing', 'eu'))
    >>> print(billing.to_code())
    tk.FailureFilter(since='2026-01-24T00:00:00.000Z', label=('billing', 'eu'))
    """

    since: datetime | None
    until: datetime | None
    workflow_url: tuple[str, ...]
    label: tuple[str, ...]
    failure_function_state: tuple[str, ...]
    caller_ip: tuple[str, ...]
    flow_control_key: tuple[str, ...]
    response_status: tuple[int, ...]
    error: tuple[str, ...]
    workflow_run_id: str | None
    workflow_created_at: datetime | None

    def __init__(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        workflow_url: str | Iterable[str] | None = (),
        label: str | Iterable[str] | None = (),
        failure_function_state: str | Iterable[str] | None = (),
        caller_ip: str | Iterable[str] | None = (),
        flow_control_key: str | Iterable[str] | None = (),
        response_status: int | Iterable[int] | None = (),
        error: str | Iterable[str] | None = (),
        workflow_run_id: str | None = None,
        workflow_created_at: Time | None = None,
        now: datetime | None = None,
        **unknown: object,
    ) -> None:
        # the fields of the table are arguments with the same names
        arguments = locals()
        for name in unknown:
            raise unknown_argument(name)
        if now is None:
            now = datetime.now(UTC)
        now = parse_time(now, name="now")
        values = {
            name: read_field(field, arguments[name], now)
            for name, field in FIELDS.items()
        }
        for name, value in (values | _derived(values)).items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls,
        filter: FailureFilter | Time | None,  # noqa: A002 - as in `load_failures`
        since: Time | None = None,
        until: Time | None = None,
    ) -> FailureFilter:
        """Return the filter that the first arguments of a loader mean: a filter, or times."""
        if filter is None:
            return cls(since=since, until=until)
        if isinstance(filter, _TIMES) and since is None:
            first = parse_time(filter, name="filter, as a time")
            return cls(since=first, until=until)

        if since is not None or until is not None:
            raise InputError(
                "reading filter",
                got="a filter together with since= or until=",
                expected="one of them",
                next_step="Put the times into the filter: FailureFilter(since=…, until=…).",
            )

        if not isinstance(filter, FailureFilter):
            expected = "a FailureFilter, for example FailureFilter(since='7d', label='billing')"
            raise wrong("filter", filter, expected)

        return filter

    def for_load(self, redactor: Redactor) -> LoadFilter:
        """Return the parts that a load needs besides the request."""

        def masked(leaf: Any, _: bool) -> Any:  # noqa: FBT001 - as `map_json` calls it
            if isinstance(leaf, str):
                return redactor.text(leaf)
            return leaf

        keep = None
        if self._compared_here:
            keep = _keep_function(self.matches, self._written, redactor)
        return LoadFilter(
            keep=keep,
            compared_here=self._compared_here,
            scope=map_json(_as_json(self._written), masked, str),
        )

    def matches(self, row: Any) -> bool:
        """Return True if an entry matches. `since` and `until` are not compared.

        Parameters
        ----------
        row : mapping, pandas.Series or named tuple
            A row of a frame of failures, from ``frame.iloc[0]``, ``frame.itertuples()`` or
            ``frame.to_dict("records")``; or an entry with the names of the service (``workflowUrl``,
            ``labels``, ``callerIP``, …). The deprecated ``label`` is compared in addition to ``labels``.

        Returns
        -------
        bool
            A missing field matches no value.

        Raises
        ------
        InputError
            If it is not a row, or if a row of a frame lacks a column that the filter compares.

        Examples
        --------
        >>> FailureFilter(label="a,b").matches({"labels": ["x", "a,b"]})
        True
        >>> FailureFilter(label="eu").matches({"dlq_id": "a", "labels": '["eu","beta"]', "label": None})
        True
        """
        values = row_mapping(row)
        check_columns(values, self._compared)

        return all(
            has_value(values, field, getattr(self, field.name))
            for field in self._compared
        )

    def scope(self) -> dict[str, Any]:
        """Return the fields that are set as JSON values, for receipts, which compare scopes."""
        return _as_json(self._written)

    def to_code(self) -> str:
        """Return Python code that makes the same filter, with the toolkit imported as ``tk``."""
        return _CALL.write(**self._written)

    def __repr__(self) -> str:
        arguments = (f"{name}={_short(value)}" for name, value in self._written.items())
        return f"FailureFilter({', '.join(arguments)})"


_ARGUMENTS: Final = tuple(item.name for item in fields(FailureFilter))
_CALL: Final = PublicCall("FailureFilter", _ARGUMENTS)


def _derived(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_DerivedValues` of the fields. Raise InputError if `since` is after `until`."""
    _check_order(values["since"], values["until"])
    set_values = {
        name: value for name, value in values.items() if value not in (None, ())
    }
    reasons = _reasons_to_compare_here(set_values)

    parameters: list[tuple[str, str]] = []
    for name, value in set_values.items():
        if name not in reasons and name not in ("since", "until"):
            texts = _parameter_texts(value)
            parameters += ((FIELDS[name].parameter, text) for text in texts)

    return {
        "is_empty": not set_values,
        "span": (_unix_time(values["since"]), _unix_time(values["until"])),
        "parameters": tuple(parameters),
        "unsendable": tuple(reasons),
        "_compared_here": reasons,
        "_compared": tuple(FIELDS[name] for name in set_values if FIELDS[name].members),
        "_written": {
            name: _as_iso(values[name]) for name in _ARGUMENTS if name in set_values
        },
    }


def _check_order(since: datetime | None, until: datetime | None) -> None:
    if since is None or until is None or since <= until:
        return

    raise filter_error(
        got=f"since {_iso(since)} after until {_iso(until)}",
        expected="a since that is not after until",
        next_step="Swap them; an age such as '7d' counts back from now.",
    )


def _reasons_to_compare_here(set_values: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the fields that the service cannot compare, each with the reason."""
    reasons = {}
    for name, value in set_values.items():
        field = FIELDS[name]
        if not field.many:
            continue
        if not field.parameter:
            reasons[name] = "the service cannot filter by it"
            continue
        joined = "\n".join(value)
        for sign, reason in _UNSENDABLE.items():
            if sign in joined:
                reasons.setdefault(name, reason)

    return reasons


def _parameter_texts(value: Any) -> tuple[str, ...]:
    """Return the values of a field as they are sent; a time in milliseconds."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, datetime):
        return (str(milliseconds(value)),)

    return (str(value),)


def _unix_time(time: datetime | None) -> int | None:
    if time is None:
        return None
    return milliseconds(time)


def _keep_function(
    matches: Callable[[dict[str, Any]], bool],
    written: Mapping[str, Any],
    redactor: Redactor,
) -> Callable[[dict[str, Any]], bool]:
    """Return the function that tells whether a filter matches an entry, with masked values accepted as well.

    A frame shows a secret in a URL as a mask. If you copy that URL into a filter, the masked entries are
    compared.
    """
    texts = [text for field in _MASKABLE for text in written.get(field.name, ())]
    if MASK_START not in "\n".join(texts):
        return matches

    return lambda entry: matches(_with_masked_values(entry, redactor))


def _with_masked_values(entry: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return an entry with each text also as a frame shows it, so that a filter accepts both forms."""
    both_forms = dict(entry)
    for field in _MASKABLE:
        mask: Callable[[str], str] = redactor.text
        if field.name == "workflow_url":
            mask = redactor.url
        for member in field.members:
            values = comparable_values(entry.get(member))
            texts = [value for value in values if isinstance(value, str)]
            both_forms[member] = [*texts, *map(mask, texts)]

    return both_forms


def _as_json(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with lists instead of tuples."""
    values = dict(written)
    for name, value in written.items():
        if isinstance(value, tuple):
            values[name] = list(value)

    return values


def _short(value: object) -> str:
    """Return the repr of a value, with at most three items."""
    if not isinstance(value, tuple) or len(value) <= _MOST_SHOWN:
        return repr(value)

    shown = ", ".join(map(repr, value[:_MOST_SHOWN]))
    return f"({shown}, … {len(value) - _MOST_SHOWN} more)"


def _iso(value: datetime) -> str:
    return f"{value.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def _as_iso(value: Any) -> Any:
    """Return a time as ISO 8601, and another value as it is."""
    if isinstance(value, datetime):
        return _iso(value)
    return value
