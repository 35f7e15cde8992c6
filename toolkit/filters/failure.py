"""Select failures with a frozen filter that loaders accept, widgets make and receipts record."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final, Literal

import numpy as np

from toolkit.base.arguments import nearest, plain, plain_list, text, whole, wrong
from toolkit.base.errors import InputError
from toolkit.base.own_tokens import MASK_START, map_json
from toolkit.base.python_code import PublicCall
from toolkit.base.times import Time, milliseconds, parse_time
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.headlines import binary_line, error_text

FAILURE_STATES: Final = (
    "CALLBACK_INPROGRESS",
    "CALLBACK_SUCCESS",
    "CALLBACK_FAIL",
    "CALLBACK_CANCELED",
)
"""States of the failure function in the specification. Other states are sent as you give them."""

Comparison = Literal[">=", "<=", "=", "in", "contains"]


@dataclass(frozen=True, kw_only=True)
class FilterField:
    """One field of a `FailureFilter`, with the names that it has in requests, entries, frames and panels.

    `parameter` is the name in a request; it is empty if the service cannot filter by the field. `members` are
    the names in an entry of the service. `columns` are the names in a frame; if omitted, the name of the
    field. `known` are the values that a panel offers, `typed` is the pattern of other values that it accepts.
    A field without `option` is not on the command line.
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
        """Return True if the field accepts several values."""
        return self.compare in {"in", "contains"}


FIELDS: Final = {
    field.name: field
    for field in (
        FilterField(
            name="since", compare=">=", kind="time", parameter="fromDate", columns=("created_at",),
            title="From", option="--since", metavar="TIME",
            help="a date (2026-01-31, from the start of the day in UTC), ISO 8601 (UTC if it has no offset), "
            "or an age: 7d, '24 hours', 30min",
        ),
        FilterField(
            name="until", compare="<=", kind="time", parameter="toDate", columns=("created_at",),
            title="Until", option="--until", metavar="TIME",
            help="the same; a date means until the end of the day",
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
            help="HTTP status of the response, for example 500; compared after the download; repeatable",
        ),
        FilterField(
            name="error", compare="contains", members=("responseBody", "responseBodyBase64"),
            columns=("error", "response_body"), title="Error", option="--error", metavar="TEXT",
            help="text in the error line of the response; compared after the download; repeatable",
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
"""The fields of a `FailureFilter`, in the order of panels, for requests, frames, panels and the command line.

To add a filter, add a line here, and an attribute and an argument of `FailureFilter`.
"""


@dataclass(frozen=True, kw_only=True)
class LoadFilter:
    """The parts of a filter that a load needs besides the request."""

    keep: Callable[[dict[str, Any]], bool] | None
    """Returns whether an entry matches; None if the service compares all fields."""
    compared_here: Mapping[str, str]
    """The fields that the service cannot compare, each with the reason."""
    scope: Mapping[str, Any]
    """The fields that are set, masked, because a receipt is stored with frames and Parquet files."""


@dataclass(frozen=True, init=False, repr=False)
class FailureFilter:
    """Which failures to load. Fields combine with AND, several values of one field with OR.

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
            raise _filter_error(
                got=f"an argument {name!r}",
                expected="one of the arguments of FailureFilter",
                next_step=_nearest_argument(name),
            )
        now = datetime.now(UTC) if now is None else parse_time(now, name="now")
        for field in FIELDS.values():
            object.__setattr__(
                self, field.name, _read(field, arguments[field.name], now)
            )
        self._check_order()

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
        as_time = isinstance(filter, _TIMES)
        if since is not None or (until is not None and not as_time):
            raise InputError(
                "reading filter",
                got="a filter together with since= or until=",
                expected="one of them",
                next_step="Put the times into the filter: FailureFilter(since=…, until=…).",
            )
        if isinstance(filter, FailureFilter):
            return filter
        if not as_time:
            expected = "a FailureFilter, for example FailureFilter(since='7d', label='billing')"
            raise wrong("filter", filter, expected)
        return cls(since=parse_time(filter, name="filter, as a time"), until=until)

    def _check_order(self) -> None:
        if self.since is None or self.until is None or self.since <= self.until:
            return
        raise _filter_error(
            got=f"since {_iso(self.since)} after until {_iso(self.until)}",
            expected="a since that is not after until",
            next_step="Swap them; an age such as '7d' counts back from now.",
        )

    @property
    def is_empty(self) -> bool:
        """Return True if every failure matches."""
        return not self._set_fields()

    @property
    def span(self) -> tuple[int | None, int | None]:
        """Return the first and the last Unix millisecond, each None if it is open."""
        first = None if self.since is None else milliseconds(self.since)
        last = None if self.until is None else milliseconds(self.until)
        return first, last

    def for_load(self, redactor: Redactor) -> LoadFilter:
        """Return the parts that a load needs besides the request."""
        compared_here = unsendable_reasons(self)
        scope = map_json(
            self.scope(),
            lambda leaf, _: redactor.text(leaf) if isinstance(leaf, str) else leaf,
            str,
        )
        keep = None
        if compared_here:
            keep = _comparing(self, redactor)
        return LoadFilter(keep=keep, compared_here=compared_here, scope=scope)

    @property
    def unsendable(self) -> tuple[str, ...]:
        """Return the names of the fields that the service cannot compare.

        They are `response_status`, `error`, and fields with a value that contains a comma (the service reads
        it as several values) or a mask. Leave them out of the request, and apply `matches` to the response.
        """
        return tuple(unsendable_reasons(self))

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
        values = _row_mapping(row)
        compared = self._compared_fields()
        if _is_frame_row(values):
            _check_columns(values, compared)
        return all(self._field_matches(field, values) for field in compared)

    def _compared_fields(self) -> list[FilterField]:
        """Return the fields that the filter sets and that an entry has, so without `since` and `until`."""
        return [
            field
            for field in _WITH_MEMBERS
            if getattr(self, field.name) not in (None, ())
        ]

    def _field_matches(self, field: FilterField, row: Mapping[str, Any]) -> bool:
        wanted: Any = getattr(self, field.name)
        if field.compare == "contains":
            return names_error(_error_line(row), wanted)
        if field.kind == "time":
            wanted = milliseconds(wanted)
        accepted = wanted
        if not field.many:
            accepted = (wanted,)
        return any(value in accepted for value in _row_values(row, field))

    def scope(self) -> dict[str, Any]:
        """Return the fields that are set as JSON values, for receipts, which compare scopes."""
        return {name: _as_list(value) for name, value in self._set_fields().items()}

    def to_code(self) -> str:
        """Return Python code that makes the same filter, with the toolkit imported as ``tk``."""
        return _CALL.write(**self._set_fields())

    def __repr__(self) -> str:
        arguments = (
            f"{name}={_short(value)}" for name, value in self._set_fields().items()
        )
        return f"FailureFilter({', '.join(arguments)})"

    def _set_fields(self) -> dict[str, str | tuple[str, ...] | tuple[int, ...]]:
        """Return the values of the fields that are set, times as ISO 8601."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: _as_iso(value)
            for name, value in values.items()
            if value not in (None, ())
        }


_CALL: Final = PublicCall(
    "FailureFilter", tuple(item.name for item in fields(FailureFilter))
)
_MOST_SHOWN: Final = 3
_TIMES: Final = (str, int, date, timedelta, np.datetime64, np.timedelta64)


def _row_mapping(row: Any) -> Mapping[str, Any]:
    """Return a row (a named tuple, Series or mapping) as a mapping."""
    values = row
    if hasattr(row, "_asdict"):
        values = row._asdict()
    elif hasattr(row, "to_dict"):
        values = row.to_dict()
    if not isinstance(values, Mapping):
        raise InputError(
            "matching a failure",
            got=type(row).__name__,
            expected="a row of a frame of failures, or an entry of the service",
            next_step="To match each row of a frame, loop over frame.to_dict('records').",
        )
    return values


def _check_columns(row: Mapping[str, Any], compared: list[FilterField]) -> None:
    """Raise InputError if a row of a frame lacks the columns of a field."""
    missing = [field.name for field in compared if row.keys().isdisjoint(field.columns)]
    if missing:
        raise InputError(
            "matching a failure",
            got=f"a row without {', '.join(missing)}",
            expected="the columns that the filter compares",
            next_step="Use rows of a frame made by load_failures.",
        )


def _as_list(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return value


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


_UNSENDABLE: Final = {
    MASK_START: "a masked value cannot be sent",
    # the service splits the parameter at commas
    ",": "a value with a comma cannot be sent",
}
"""Reasons by the sign in a value."""


def _comparing(
    filter: FailureFilter,  # noqa: A002 - as in `load_failures`
    redactor: Redactor,
) -> Callable[[dict[str, Any]], bool]:
    """Return `matches`, with masked values accepted as well.

    A frame shows a secret in a URL as a mask. If you copy that URL into a filter, the masked entries are
    compared.
    """
    fields = [field for field in FIELDS.values() if field.many and field.parameter]
    values = chain.from_iterable(getattr(filter, field.name) for field in fields)
    if not any(MASK_START in value for value in values):
        return filter.matches

    def matches(entry: dict[str, Any]) -> bool:
        shown = dict(entry)
        for field in fields:
            mask = redactor.url if field.name == "workflow_url" else redactor.text
            for member in field.members:
                values = _comparable_values(entry.get(member))
                texts = [text for text in values if isinstance(text, str)]
                # the filter accepts a value in either form
                shown[member] = [*texts, *map(mask, texts)]
        return filter.matches(shown)

    return matches


def unsendable_reasons(
    filter: FailureFilter,  # noqa: A002 - as in `load_failures`
) -> dict[str, str]:
    """Return the names of the fields that the service cannot compare, each with the reason."""
    reasons = {}
    for field in FIELDS.values():
        if not field.many:
            continue
        reason = _unsendable_reason(field, getattr(filter, field.name))
        if reason is not None:
            reasons[field.name] = reason
    return reasons


def _unsendable_reason(field: FilterField, values: tuple[Any, ...]) -> str | None:
    """Return why the service cannot compare these values, or None if it can."""
    if not values:
        return None
    if not field.parameter:
        return "the service cannot filter by it"
    joined_values = "\n".join(values)
    signs = filter(joined_values.__contains__, _UNSENDABLE)
    return next(map(_UNSENDABLE.__getitem__, signs), None)


def names_error(line: str, wanted: tuple[str, ...]) -> bool:
    """Return True if an error line contains one of the strings, ignoring case."""
    folded_line = line.casefold()
    return any(part.casefold() in folded_line for part in wanted)


_WITH_MEMBERS: Final = tuple(field for field in FIELDS.values() if field.members)
_COMPARED_COLUMNS: Final = frozenset().union(
    *(field.columns for field in FIELDS.values())
)
_FRAME_ONLY: Final = (_COMPARED_COLUMNS | {"dlq_id", "response_body_base64"}) - {
    "label",
    "labels",
    "error",
}
"""Columns of frames that are not members of an entry."""


def _is_frame_row(row: Mapping[str, Any]) -> bool:
    """Return True for a row of a frame, False for an entry of the service, where labels are an array."""
    return not _FRAME_ONLY.isdisjoint(row) or isinstance(row.get("labels"), str)


def _row_values(row: Mapping[str, Any], field: FilterField) -> list[object]:
    """Return the values of a field in a row of a frame or in an entry."""
    values: list[object] = []
    for name in dict.fromkeys((*field.columns, *field.members)):
        value = _none_if_missing(row.get(name))
        if name == "labels" and isinstance(value, str):
            value = _labels_of_text(value)
        values += _comparable_values(value)
    return values


def _labels_of_text(text: str) -> object:
    """Return the labels of a cell of a frame, which is a JSON array."""
    try:
        return json.loads(text)
    except ValueError:
        raise InputError(
            "cannot compare the column 'labels' of this row: got text that is not JSON;"
            ' expected a JSON list of strings, for example ["eu","beta"]'
        ) from None


def _comparable_values(value: Any) -> Iterable[object]:
    """Return the items of an array, or one value; a time in milliseconds."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, datetime):
        return [milliseconds(value)]
    return [value]


def _none_if_missing(value: Any) -> Any:
    """Return a value of a frame, or None if it is NaN, NaT or NA."""
    try:
        # NaN and NaT are not equal to themselves
        return value if value == value else None  # noqa: PLR0124 - see above
    except TypeError:
        # NA can be neither true nor false
        return None


def _error_line(row: Mapping[str, Any]) -> str:
    """Return the line of the response that describes the error, as in the column ``error``."""
    if _is_frame_row(row) and "error" in row:
        return str(_none_if_missing(row["error"]) or "")
    # an entry of the service, or a row without the column
    body = _text_member(row, "responseBody", "response_body")
    encoded = _text_member(row, "responseBodyBase64", "response_body_base64")
    if encoded is not None and body is None:
        return _encoded_error_line(encoded)
    return error_text(body).text


def _text_member(row: Mapping[str, Any], member: str, column: str) -> str | None:
    """Return the text of an entry or of a row of a frame, or None if it is empty or missing."""
    value = row.get(member, row.get(column))
    if isinstance(value, str):
        return value or None
    return None


def _encoded_error_line(encoded: str) -> str:
    """Return the error line of a body in base64."""
    try:
        body = base64.b64decode(encoded).decode()
    except UnicodeDecodeError:
        return binary_line(encoded)
    except ValueError:  # not base64
        return error_text(None).text
    return error_text(body).text


def _read(field: FilterField, argument: Any, now: datetime) -> object:
    """Check an argument of `FailureFilter` and return the value of the field."""
    if field.many:
        return _read_several(field, argument)
    if argument is None:
        return None
    if field.kind == "time":
        end_of_day, exact = field.compare == "<=", field.compare == "="
        return parse_time(
            argument, now=now, end=end_of_day, exact=exact, name=field.name
        )
    return _read_one(field, argument)


def _read_several(field: FilterField, argument: Any) -> tuple[Any, ...]:
    """Return the values of a field without duplicates. The values of a set are sorted."""
    if argument is None:
        return ()
    argument = plain_list(plain(argument))
    items = argument
    if _is_single(argument):
        items = [argument]
    # an error names the value that cannot be used
    values = [_read_one(field, item) for item in items]
    if not values and not isinstance(argument, tuple):
        raise _filter_error(
            got=f"no value for {field.name}",
            expected="at least one value, because a filter without values matches every failure",
            next_step=f"Leave {field.name} out to match every value.",
        )
    if isinstance(argument, set | frozenset):
        values.sort()
    return tuple(dict.fromkeys(values))


def _is_single(argument: Any) -> bool:
    """Return True if an argument is one value. A frame counts as one, since it iterates over column names."""
    if isinstance(argument, str | bytes | Mapping) or hasattr(argument, "columns"):
        return True
    return not isinstance(argument, Iterable)


def _read_one(field: FilterField, value: object) -> Any:
    """Return one string or one status."""
    read, expected = _VALUE_READERS[field.kind]
    try:
        return read(field.name, value)
    except InputError as error:
        raise _filter_error(
            got=f"{error.got} for {field.name}",
            expected=expected,
            next_step=f"Leave {field.name} out to match every value.",
        ) from None


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


def _nearest_argument(name: str) -> str:
    """Return a suggestion for an argument that does not exist; a part of one name means that name.

    >>> _nearest_argument("status")[:31]
    "Did you mean 'response_status'?"
    """
    containing = [known for known in FIELDS if name in known]
    if len(containing) == 1:
        return nearest(containing[0], FIELDS)
    return nearest(name, FIELDS)


def _filter_error(*, got: str, expected: str, next_step: str) -> InputError:
    return InputError(
        "making a failure filter", got=got, expected=expected, next_step=next_step
    )
