"""Which failures to load: a frozen value that loaders take, widgets make and receipts record."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, Final, NamedTuple

from toolkit.errors import InputError
from toolkit.filters.error_text import binary_line, error_text
from toolkit.times import Time, parse_time

FAILURE_STATES: Final = ("CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED")
"""States of the failure function that the specification names. Others are sent as they are given."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Values(NamedTuple):
    """A part of a filter that may have several values: where the service has them.

    Attributes
    ----------
    parameter : str
        Of a request that lists the DLQ.
    fields : tuple of str
        Of an entry.
    """

    parameter: str
    fields: tuple[str, ...]


VALUES: Final = {
    "workflow_url": Values("workflowUrl", ("workflowUrl",)),
    "label": Values("label", ("labels", "label")),
    "failure_function_state": Values("failureFunctionState", ("failureFunctionState",)),
    "caller_ip": Values("callerIp", ("callerIP",)),
    "flow_control_key": Values("flowControlKey", ("flowControlKey",)),
}
"""The parts of a filter with several values. Each is a column of the failures table, too."""


def milliseconds(value: datetime) -> int:
    """Unix milliseconds of a datetime that knows its time zone, without a detour over floats.

    >>> milliseconds(datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC))
    1767225600001
    """
    return (value - _EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, init=False, repr=False)
class FailureFilter:
    """Which failures to load. Parts combine with AND, several values of one part with OR.

    Parameters
    ----------
    since, until : datetime, date, timedelta, str or int, optional
        First and last moment, both included. A datetime, pandas Timestamp or numpy datetime64 (taken as UTC
        where it has no time zone); a date, or ISO 8601 text such as ``"2026-01-31"`` or
        ``"2026-01-31T12:00+02:00"``: `since` a date means from its first moment in UTC, `until` a date up to
        its last; an age such as ``"7d"``, ``"24 hours"``, ``"2 days ago"`` or a timedelta; or Unix
        milliseconds. An age is counted back from `now` once, here: the filter itself holds absolute times
        only.
    workflow_url, label, failure_function_state, caller_ip, flow_control_key : str or iterable of str
        Values to match exactly; none by default. Duplicates are dropped, the order is kept (sets are sorted).
        Known states are ``"CALLBACK_INPROGRESS"``, ``"CALLBACK_SUCCESS"``, ``"CALLBACK_FAIL"`` and
        ``"CALLBACK_CANCELED"``.
    response_status : int or iterable of int
        HTTP statuses of the response, 100 to 999.
    error : str or iterable of str
        Text in the line of the response that says what went wrong (see the column ``error``),
        ignoring case.
    workflow_run_id : str, optional
    workflow_created_at : datetime, str or int, optional
        Exact creation time of the run, in one of the forms above but an age or a date.
    now : datetime, optional
        What ages are counted back from. Default: the clock.

    Raises
    ------
    InputError
        For what is no time or before 1970, `since` after `until`, and values that are empty or no text.

    Notes
    -----
    The service does not document which of an entry's times `since` and `until` are compared with. It cannot
    filter by `response_status` and `error`: everything else that is chosen is loaded, and these two are
    compared here, which the receipt says.

    Examples
    --------
    >>> chosen = FailureFilter(since="7d", label=["billing", "eu"], now=datetime(2026, 1, 31, tzinfo=UTC))
    >>> chosen
    FailureFilter(since='2026-01-24T00:00:00.000Z', label=('billing', 'eu'))
    >>> print(chosen.to_code())
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
    ) -> None:
        now = datetime.now(UTC) if now is None else parse_time(now, name="now")
        times = {"since": since, "until": until, "workflow_created_at": workflow_created_at}
        several = {
            "workflow_url": workflow_url,
            "label": label,
            "failure_function_state": failure_function_state,
            "caller_ip": caller_ip,
            "flow_control_key": flow_control_key,
            "error": error,
        }
        values: dict[str, object] = {
            name: None
            if value is None
            else parse_time(
                value, now=now, end=name == "until", exact=name == "workflow_created_at", name=name
            )
            for name, value in times.items()
        }
        values |= {name: _texts(name, value) for name, value in several.items()}
        values["response_status"] = _statuses(response_status)
        values["workflow_run_id"] = (
            None if workflow_run_id is None else _text("workflow_run_id", workflow_run_id)
        )
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InputError(
                "making a failure filter",
                got=f"since {_iso(self.since)} after until {_iso(self.until)}",
                expected="since not after until",
                next_step="Swap them; an age such as '7d' counts back from now.",
            )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is chosen, so that every failure matches."""
        return not self._chosen()

    @property
    def unsendable(self) -> tuple[str, ...]:
        """Names of the parts that the service cannot compare: to be left out of the request.

        They are `response_status`, `error`, and parts with a comma in a value, since the service takes one
        comma-separated value for several values, or with a mask in one, which only this side can compare.
        Apply `matches` to what it returns.
        """
        ours = (
            name for name in VALUES if any("," in value or MASKED in value for value in getattr(self, name))
        )
        return (*ours, *(name for name in ("response_status", "error") if getattr(self, name)))

    def matches(self, row: Any) -> bool:
        """Whether an entry matches in everything but `since` and `until`.

        Parameters
        ----------
        row : mapping, pandas.Series or named tuple
            A row of a frame of failures, as of ``frame.iloc[0]``, ``frame.itertuples()`` or
            ``frame.to_dict("records")``; or an entry with the service's own names (``workflowUrl``,
            ``labels``, ``callerIP``, …). The deprecated ``label`` counts beside ``labels``.

        Returns
        -------
        bool
            A field that is missing matches no value.

        Raises
        ------
        InputError
            When it is no row, or a row of a frame without a column that the filter speaks of.

        Examples
        --------
        >>> FailureFilter(label="a,b").matches({"labels": ["x", "a,b"]})
        True
        >>> FailureFilter(label="eu").matches({"dlq_id": "a", "labels": '["eu","beta"]', "label": None})
        True
        """
        row = self._entry(row)
        for name, part in VALUES.items():
            wanted = getattr(self, name)
            if wanted and not any(
                value in wanted for place in part.fields for value in _values_of(row.get(place))
            ):
                return False
        if self.workflow_run_id is not None and row.get("workflowRunId") != self.workflow_run_id:
            return False
        if self.response_status and row.get("responseStatus") not in self.response_status:
            return False
        if self.error and not names_error(_error_line(row), self.error):
            return False
        created = self.workflow_created_at
        return created is None or row.get("workflowCreatedAt") == milliseconds(created)

    def _entry(self, row: Any) -> Mapping[str, Any]:
        """The row with the service's own names."""
        found = row._asdict() if hasattr(row, "_asdict") else row
        found = found if isinstance(found, Mapping) else getattr(found, "to_dict", lambda: None)()
        if not isinstance(found, Mapping):
            raise InputError(
                "matching a failure",
                got=type(row).__name__,
                expected="a row of a frame of failures, or an entry of the service",
                next_step="For a whole frame, match each of frame.to_dict('records').",
            )
        if not (_COLUMNS.keys() - _BOTH) & found.keys() and not isinstance(found.get("labels"), str):
            return found
        needed = [name for name in _COLUMNS if getattr(self, name, None)] + ["error"] * bool(self.error)
        lacking = [
            name for name in needed if name not in found and not (name == "label" and "labels" in found)
        ]
        if lacking == ["error"] and "response_body" in found:
            lacking = []
        if lacking:
            raise InputError(
                "matching a failure",
                got=f"a row without {', '.join(lacking)}",
                expected="the columns that the filter speaks of",
                next_step="Use rows of a frame made by load_failures.",
            )
        entry = {wire: _value(found.get(name)) for name, wire in _COLUMNS.items()}
        if isinstance(entry["labels"], str):
            entry["labels"] = json.loads(entry["labels"])
        created = entry["workflowCreatedAt"]
        if isinstance(created, datetime):
            entry["workflowCreatedAt"] = milliseconds(created)
        return entry | ({_LINE: _value(found["error"]) or ""} if "error" in found else {})

    def scope(self) -> dict[str, Any]:
        """What is chosen, as JSON-able values: for receipts, which compare scopes."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in self._chosen().items()
        }

    def to_code(self) -> str:
        """Python that makes the same filter again, with the toolkit imported as ``tk``."""
        return f"tk.{self._call(self._chosen())}"

    def __repr__(self) -> str:
        return self._call({name: _short(value) for name, value in self._chosen().items()})

    def _chosen(self) -> dict[str, str | tuple[str, ...] | tuple[int, ...]]:
        found = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {
            name: _iso(value) if isinstance(value, datetime) else value
            for name, value in found
            if value not in (None, ())
        }

    @staticmethod
    def _call(arguments: Mapping[str, object]) -> str:
        return f"FailureFilter({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


_SHOWN: Final = 3


class _Rest(str):
    """Text that stands for left-out values, shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _short(value: str | tuple[object, ...]) -> str | tuple[object, ...]:
    if isinstance(value, tuple) and len(value) > _SHOWN:
        return (*value[:_SHOWN], _Rest(f"… {len(value) - _SHOWN} more"))
    return value


def _iso(value: datetime) -> str:
    return f"{value.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def _statuses(value: int | Iterable[int] | None) -> tuple[int, ...]:
    given = () if value is None else value if isinstance(value, Iterable) else (value,)
    if isinstance(given, str | bytes | Mapping):
        raise _not_a_status(repr(value)[:80])
    statuses = []
    for item in given:
        try:
            status = index(item)
        except TypeError:
            raise _not_a_status(repr(item)[:80]) from None
        if isinstance(item, bool) or not 100 <= status <= 999:  # noqa: PLR2004 - statuses have three digits
            raise _not_a_status(repr(item)[:80])
        statuses.append(status)
    return tuple(dict.fromkeys(sorted(statuses) if isinstance(value, set | frozenset) else statuses))


def names_error(line: str, wanted: tuple[str, ...]) -> bool:
    """Whether a line that says what went wrong contains one of these texts, ignoring case.

    >>> names_error("TimeoutError: no response within 30 s", ("timeout",))
    True
    """
    folded = line.casefold()
    return any(text.casefold() in folded for text in wanted)


MASKED: Final = "[masked len="
"""Begins a mask: a value copied from a frame in which a part of it was masked."""

_LINE: Final = " error"  # the line of a frame's row; no field of the service begins with a space
_COLUMNS: Final = {
    "dlq_id": "dlqId",
    "workflow_url": "workflowUrl",
    "workflow_run_id": "workflowRunId",
    "workflow_created_at": "workflowCreatedAt",
    "label": "label",
    "labels": "labels",
    "failure_function_state": "failureFunctionState",
    "caller_ip": "callerIP",
    "flow_control_key": "flowControlKey",
    "response_status": "responseStatus",
    "response_body": "responseBody",
    "response_body_base64": "responseBodyBase64",
}
_BOTH: Final = frozenset({"label", "labels"})  # names of columns and of fields


def _value(value: Any) -> Any:
    """A value of a frame, None where it is missing: NaN, NaT and NA are not equal to themselves."""
    try:
        return value if value == value else None  # noqa: PLR0124 - as said
    except TypeError:  # of pandas' NA, which is neither
        return None


def _error_line(row: Mapping[str, Any]) -> str:
    """The line of an entry's response that says what went wrong, as the column ``error`` has it."""
    if _LINE in row:
        return str(row[_LINE])
    body, encoded = row.get("responseBody"), row.get("responseBodyBase64")
    if not (isinstance(body, str) and body) and isinstance(encoded, str) and encoded:
        try:
            body = base64.b64decode(encoded).decode()
        except UnicodeDecodeError:
            return binary_line(encoded)
        except ValueError:  # no base64
            body = None
    return error_text(body if isinstance(body, str) else None).text


def _texts(name: str, value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (_text(name, value),)
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise _not_text(name, type(value).__name__)
    texts = [_text(name, item) for item in value]
    return tuple(dict.fromkeys(sorted(texts) if isinstance(value, set | frozenset) else texts))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _not_text(name, type(value).__name__)
    if not value:
        raise _not_text(name, "an empty text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _not_text(name, f"a lone surrogate in {value[:80]!r}") from None
    return str(value)


def _values_of(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _not_text(name: str, got: str) -> InputError:
    return InputError(
        "making a failure filter",
        got=f"{got} for {name}",
        expected="text, or several texts, each with at least one character",
        next_step=f"Leave {name} out to match every value.",
    )


def _not_a_status(got: str) -> InputError:
    return InputError(
        "making a failure filter",
        got=f"{got} for response_status",
        expected="an HTTP status from 100 to 999, such as 500, or several",
        next_step="Leave response_status out to match every status.",
    )
