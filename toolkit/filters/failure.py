"""Which failures to load: a frozen value that loaders accept, widgets make and receipts record."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, Literal

from toolkit.arguments import nearest, plain, plain_list, text, whole
from toolkit.errors import InputError
from toolkit.filters.error_text import binary_line, error_text
from toolkit.own_tokens import MASK_START
from toolkit.python_code import PublicCall
from toolkit.times import Time, milliseconds, parse_time

FAILURE_STATES: Final = ("CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED")
"""States of the failure function that the specification names. Others are sent as they are given."""

Comparison = Literal[">=", "<=", "=", "in", "contains"]


@dataclass(frozen=True, kw_only=True)
class FilterField:
    """One field of a `FailureFilter`, and its names everywhere.

    `parameter` is that of a request, empty where the service cannot filter by it; `members` those of an entry
    that it sends; `columns` those of a frame, by default the field's name. `known` and `typed` are the values
    offered and the pattern of others that a panel accepts. Without `option`, it is not on the command line.
    """

    name: str
    compare: Comparison
    kind: Literal["text", "time", "status"] = "text"
    parameter: str = ""
    members: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    title: str
    known: tuple[str, ...] = ()
    typed: str = "(?s:.+)"
    option: str = ""
    metavar: str = ""
    help: str = "repeatable"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or (self.name,))

    @property
    def many(self) -> bool:
        """Whether it accepts several values."""
        return self.compare in {"in", "contains"}


FIELDS: Final = {
    field.name: field
    for field in (
        FilterField(
            name="since", compare=">=", kind="time", parameter="fromDate", columns=("created_at",),
            title="From", option="--since", metavar="TIME",
            help="a date (2026-01-31, from its start in UTC), ISO 8601 (UTC where it has no offset), or an "
            "age: 7d, '24 hours', 30min",
        ),
        FilterField(
            name="until", compare="<=", kind="time", parameter="toDate", columns=("created_at",),
            title="Until", option="--until", metavar="TIME", help="the same; a date means up to its end",
        ),
        FilterField(
            name="workflow_url", compare="in", parameter="workflowUrl", members=("workflowUrl",),
            title="Workflow", option="--workflow-url", metavar="URL",
        ),
        FilterField(
            name="label", compare="in", parameter="label", members=("labels", "label"),
            columns=("label", "labels"), title="Label", option="--label", metavar="LABEL",
        ),
        FilterField(
            name="response_status", compare="in", kind="status", members=("responseStatus",),
            title="Status", typed="[1-9][0-9]{2}", option="--status", metavar="STATUS",
            help="HTTP status of the response, such as 500, compared here; repeatable",
        ),
        FilterField(
            name="error", compare="contains", members=("responseBody", "responseBodyBase64"),
            columns=("error", "response_body"), title="Error", option="--error", metavar="TEXT",
            help="text in the response's error line, compared here; repeatable",
        ),
        FilterField(
            name="failure_function_state", compare="in", parameter="failureFunctionState",
            members=("failureFunctionState",), title="Failure function's state", known=FAILURE_STATES,
            typed="(?!)", option="--state", metavar="STATE",
        ),
        FilterField(
            name="caller_ip", compare="in", parameter="callerIp", members=("callerIP",),
            title="Caller", option="--caller-ip", metavar="IP",
        ),
        FilterField(
            name="flow_control_key", compare="in", parameter="flowControlKey", members=("flowControlKey",),
            title="Flow-control key", option="--flow-control-key", metavar="KEY",
        ),
        FilterField(
            name="workflow_run_id", compare="=", parameter="workflowRunId", members=("workflowRunId",),
            title="Run id", option="--run-id", metavar="ID", help="id of one workflow run",
        ),
        FilterField(
            name="workflow_created_at", compare="=", kind="time", parameter="workflowCreatedAt",
            members=("workflowCreatedAt",), title="Run created at, exactly",
        ),
    )
}  # fmt: skip
"""The fields of a `FailureFilter`, in the order of panels. Requests, frames, panels and command line read it.

Another filter is another line here, and an attribute and argument of `FailureFilter`.
"""


@dataclass(frozen=True, init=False, repr=False)
class FailureFilter:
    """Which failures to load. Parts combine with AND, several values of one part with OR.

    Parameters
    ----------
    since, until : datetime, date, timedelta, str or int, optional
        First and last timestamp, both included. A datetime, pandas Timestamp or numpy datetime64 (UTC where
        it has no time zone); a date, or ISO 8601 text such as ``"2026-01-31"`` or
        ``"2026-01-31T12:00+02:00"``: `since` a date means from its first millisecond in UTC, `until` a date
        up to its last; an age such as ``"7d"``, ``"24 hours"``, ``"2 days ago"`` or a timedelta; or Unix
        milliseconds. An age is counted back from `now` once, here: the filter itself holds absolute times
        only.
    workflow_url, label, failure_function_state, caller_ip, flow_control_key : str or iterable of str
        Values to match exactly; none by default. Duplicates are dropped, the order is kept (sets are sorted).
        Known states are ``"CALLBACK_INPROGRESS"``, ``"CALLBACK_SUCCESS"``, ``"CALLBACK_FAIL"`` and
        ``"CALLBACK_CANCELED"``.
    response_status : int or iterable of int
        HTTP statuses of the response, 100 to 999.
    error : str or iterable of str
        Text in the error line of the response (see the column ``error``), ignoring case.
    workflow_run_id : str, optional
    workflow_created_at : datetime, str or int, optional
        Exact creation time of the run, in one of the forms above but an age or a date.
    now : datetime, optional
        What ages are counted back from. Default: the clock.

    Raises
    ------
    InputError
        For an invalid time or one before 1970, `since` after `until`, and values that are empty or not text.

    Notes
    -----
    The service does not document which of an entry's times `since` and `until` are compared with. It cannot
    filter by `response_status` and `error`: these are compared on this side, which the receipt says.

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
        **unknown: object,
    ) -> None:
        given = locals()  # of the arguments, which the table names, too
        for name in unknown:
            raise InputError(
                "making a failure filter",
                got=f"an argument {name!r}",
                expected="one of the arguments of FailureFilter",
                next_step=nearest(name, FIELDS),
            )
        now = datetime.now(UTC) if now is None else parse_time(now, name="now")
        for field in FIELDS.values():
            object.__setattr__(self, field.name, _read(field, given[field.name], now))
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InputError(
                "making a failure filter",
                got=f"since {_iso(self.since)} after until {_iso(self.until)}",
                expected="since not after until",
                next_step="Swap them; an age such as '7d' counts back from now.",
            )

    @property
    def is_empty(self) -> bool:
        """Whether every failure matches."""
        return not self._chosen()

    @property
    def unsendable(self) -> tuple[str, ...]:
        """Names of the parts that the service cannot compare: to be left out of the request.

        They are `response_status`, `error`, and parts of which a value has a comma, since the service reads
        it as several values, or a mask, which only this side can compare. Apply `matches` to its response.
        """
        return tuple(unsendable_reasons(self))

    def matches(self, row: Any) -> bool:
        """Whether an entry matches, apart from `since` and `until`.

        Parameters
        ----------
        row : mapping, pandas.Series or named tuple
            A row of a frame of failures, as of ``frame.iloc[0]``, ``frame.itertuples()`` or
            ``frame.to_dict("records")``; or an entry with the service's own names (``workflowUrl``,
            ``labels``, ``callerIP``, …). The deprecated ``label`` counts in addition to ``labels``.

        Returns
        -------
        bool
            A field that is missing matches no value.

        Raises
        ------
        InputError
            When it is not a row, or a row of a frame without a column that the filter compares.

        Examples
        --------
        >>> FailureFilter(label="a,b").matches({"labels": ["x", "a,b"]})
        True
        >>> FailureFilter(label="eu").matches({"dlq_id": "a", "labels": '["eu","beta"]', "label": None})
        True
        """
        row = self._checked_row(row)
        for field in FIELDS.values():
            wanted: Any = getattr(self, field.name)
            if not field.members or wanted in (None, ()):
                continue
            if field.compare == "contains":
                matched = names_error(_error_line(row), wanted)
            else:
                wanted = milliseconds(wanted) if field.kind == "time" else wanted
                choices = wanted if field.many else (wanted,)
                matched = any(value in choices for value in _row_values(row, field))
            if not matched:
                return False
        return True

    def _checked_row(self, row: Any) -> Mapping[str, Any]:
        """The row as a mapping; a row of a frame has the columns that are compared."""
        values = row._asdict() if hasattr(row, "_asdict") else row
        values = values if isinstance(values, Mapping) else getattr(values, "to_dict", lambda: None)()
        if not isinstance(values, Mapping):
            raise InputError(
                "matching a failure",
                got=type(row).__name__,
                expected="a row of a frame of failures, or an entry of the service",
                next_step="For a whole frame, match each of frame.to_dict('records').",
            )
        if _is_frame_row(values):
            chosen = [field for field in FIELDS.values() if field.members and getattr(self, field.name)]
            missing = [field.name for field in chosen if not values.keys() & {*field.columns}]
            if missing:
                raise InputError(
                    "matching a failure",
                    got=f"a row without {', '.join(missing)}",
                    expected="the columns that the filter compares",
                    next_step="Use rows of a frame made by load_failures.",
                )
        return values

    def scope(self) -> dict[str, Any]:
        """The chosen values, JSON-able: for receipts, which compare scopes."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in self._chosen().items()
        }

    def to_code(self) -> str:
        """Python that makes the same filter, with the toolkit imported as ``tk``."""
        return _CALL.write(**self._chosen())

    def __repr__(self) -> str:
        arguments = (f"{name}={_short(value)}" for name, value in self._chosen().items())
        return f"FailureFilter({', '.join(arguments)})"

    def _chosen(self) -> dict[str, str | tuple[str, ...] | tuple[int, ...]]:
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {
            name: _iso(value) if isinstance(value, datetime) else value
            for name, value in values
            if value not in (None, ())
        }


_CALL: Final = PublicCall("FailureFilter", tuple(item.name for item in fields(FailureFilter)))
_SHOWN: Final = 3


def _short(value: object) -> str:
    """The repr of a value, of at most three items."""
    if isinstance(value, tuple) and len(value) > _SHOWN:
        return f"({', '.join(map(repr, value[:_SHOWN]))}, … {len(value) - _SHOWN} more)"
    return repr(value)


def _iso(value: datetime) -> str:
    return f"{value.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def unsendable_reasons(wanted: FailureFilter) -> dict[str, str]:
    """Names of the fields of a filter that the service cannot compare, and why."""
    reasons = {}
    for field in FIELDS.values():
        values = getattr(wanted, field.name) if field.many else ()
        if values and not field.parameter:
            reasons[field.name] = "the service cannot filter by it"
        elif any(MASK_START in value for value in values):
            reasons[field.name] = "a masked value cannot be sent"
        elif any("," in value for value in values):
            reasons[field.name] = "a value with a comma cannot be sent"
    return reasons


def names_error(line: str, wanted: tuple[str, ...]) -> bool:
    """Whether an error line contains one of these texts, ignoring case."""
    folded = line.casefold()
    return any(text.casefold() in folded for text in wanted)


_FRAME_ONLY: Final = frozenset(
    {"dlq_id", "response_body_base64", *(column for field in FIELDS.values() for column in field.columns)}
) - {"label", "labels", "error"}
"""Columns of frames that are not members of an entry."""


def _is_frame_row(row: Mapping[str, Any]) -> bool:
    return not _FRAME_ONLY.isdisjoint(row) or isinstance(row.get("labels"), str)


def _row_values(row: Mapping[str, Any], field: FilterField) -> list[object]:
    """The values of a field, of a row of a frame or an entry."""
    values: list[object] = []
    for name in dict.fromkeys((*field.columns, *field.members)):
        value = _value(row.get(name))
        if name == "labels" and isinstance(value, str):
            value = json.loads(value)
        if isinstance(value, datetime):
            value = milliseconds(value)
        values.extend(value if isinstance(value, list | tuple) else (value,))
    return values


def _value(value: Any) -> Any:
    """A value of a frame, None where it is missing: NaN, NaT and NA are not equal to themselves."""
    try:
        return value if value == value else None  # noqa: PLR0124 - see above
    except TypeError:  # of pandas' NA
        return None


def _error_line(row: Mapping[str, Any]) -> str:
    """The line of a response that says what went wrong, as the column ``error`` has it."""
    if _is_frame_row(row) and "error" in row:
        return str(_value(row["error"]) or "")
    body = _value(row.get("responseBody", row.get("response_body")))
    encoded = _value(row.get("responseBodyBase64", row.get("response_body_base64")))
    if not (isinstance(body, str) and body) and isinstance(encoded, str) and encoded:
        try:
            body = base64.b64decode(encoded).decode()
        except UnicodeDecodeError:
            return binary_line(encoded)
        except ValueError:  # no base64
            body = None
    return error_text(body if isinstance(body, str) else None).text


def _read(field: FilterField, value: Any, now: datetime) -> object:
    """The value of a field, from what was given for it: several ones once each, those of a set sorted."""
    if field.many:
        value = () if value is None else plain_list(plain(value))
        single = isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)
        single = single or hasattr(value, "columns")  # a frame, whose names of columns would be iterated over
        given = [_one(field, item) for item in ((value,) if single else value)]
        if not given and not isinstance(value, tuple):
            raise InputError(
                "making a failure filter",
                got=f"no value for {field.name}",
                expected="at least one, as none at all matches every failure",
                next_step=f"Leave {field.name} out to match every value.",
            )
        return tuple(dict.fromkeys(sorted(given) if isinstance(value, set | frozenset) else given))
    if value is None:
        return None
    if field.kind == "time":
        end, exact = field.compare == "<=", field.compare == "="
        return parse_time(value, now=now, end=end, exact=exact, name=field.name)
    return _one(field, value)


def _one(field: FilterField, value: object) -> Any:
    """One text, or one status."""
    expected = "text, or several texts, each with at least one character"
    try:
        if field.kind != "status":
            return text(field.name, value, empty=False)
        expected = "an HTTP status from 100 to 999, such as 500, or several"
        return whole(field.name, value, least=100, most=999)
    except InputError as error:
        raise InputError(
            "making a failure filter",
            got=f"{error.got} for {field.name}",
            expected=expected,
            next_step=f"Leave {field.name} out to match every value.",
        ) from None
