"""Query parameters of listings: read strictly, with refusals that name the parameter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request

from toolkit.local.answers import ApiError, parse_json, read_body
from toolkit.local.queue.dlq import Conditions, Place

MAX_COUNT: Final = 100
_HIGHEST: Final = 2**63 - 1
_LOOKS_LIKE_SECONDS: Final = range(10**9, 10**10)
_SHOWN: Final = 80
_MOST_IDS: Final = 1000


def single(request: Request, name: str) -> str | None:
    """The value of a parameter that may come once; None when absent or empty."""
    given = request.query_params.getlist(name)
    if len(given) > 1:
        raise ApiError(400, f"{name} is not clear; got it {len(given)} times; expected it once")
    return given[0] if given and given[0] else None


def several(request: Request, *names: str) -> tuple[str, ...]:
    """The values of a parameter that may be repeated, or hold several with commas, under any of its names."""
    given = (
        part.strip()
        for name in names
        for text in request.query_params.getlist(name)
        for part in text.split(",")
    )
    return tuple(dict.fromkeys(part for part in given if part))


def whole(request: Request, name: str, low: int, high: int) -> int | None:
    """A whole number within bounds."""
    text = single(request, name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,30}", text) or not low <= int(text) <= high:
        raise ApiError(
            400,
            f"{name} is out of range; got {text[:_SHOWN]!r}; expected a whole number from {low} to {high}",
        )
    return int(text)


def count(request: Request, most: int = MAX_COUNT) -> int:
    """How many entries a page has at most."""
    return whole(request, "count", 1, most) or most


def moment(request: Request, name: str) -> int | None:
    """A moment in Unix milliseconds."""
    found = whole(request, name, 0, _HIGHEST)
    if found is not None and found in _LOOKS_LIKE_SECONDS:  # None would be searched for one by one
        raise ApiError(
            400, f"{name} looks like seconds; got {found}; expected Unix milliseconds, such as {found}000"
        )
    return found


def span(request: Request) -> tuple[int | None, int | None]:
    """The span from ``fromDate`` to ``toDate``, both inclusive."""
    since, until = moment(request, "fromDate"), moment(request, "toDate")
    if since is not None and until is not None and since > until:
        raise ApiError(
            400, f"fromDate is after toDate; got {since} and {until}; expected the earlier one first"
        )
    return since, until


async def dlq_conditions(request: Request, *, workflow: bool) -> Conditions:
    """What entries a request is about: the filters of the list, ``dlqIds`` in the query or the body."""
    since, until = span(request)
    in_body = () if request.method == "GET" else (await ids_in_body(request, "dlqIds"))["dlqIds"]
    return Conditions(
        workflow=workflow,
        since=since,
        until=until,
        workflow_created_at=moment(request, "workflowCreatedAt"),
        run_id=single(request, "workflowRunId"),
        workflow_url=several(request, "workflowUrl"),
        url=() if workflow else several(request, "url"),
        label=several(request, "label"),
        state=several(request, "failureFunctionState", "failureCallbackState"),
        caller_ip=several(request, "callerIp"),
        flow_key=several(request, "flowControlKey"),
        ids=(*several(request, "dlqIds"), *in_body),
        fields=tuple(
            (name, found)
            for name in ("messageId", "responseStatus", "topicName", "queueName", "scheduleId")
            if (found := several(request, name))
        ),
    )


async def ids_in_body(request: Request, *names: str) -> dict[str, tuple[str, ...]]:
    """What the body names: nothing, or an object with text or arrays of text under these names."""
    body = await read_body(request)
    given = parse_json(body) if body.strip() else {}
    if not isinstance(given, dict):
        raise ApiError(
            400,
            f"body is not understood; got {type(given).__name__}; "
            f"expected nothing, or an object with {' or '.join(names)}",
        )
    found = {}
    for name in names:
        ids = given.get(name, [])
        ids = [ids] if isinstance(ids, str) else ids
        if not isinstance(ids, list) or not all(map(is_text, ids)):
            got = "an array with other values" if isinstance(ids, list) else type(ids).__name__
            raise ApiError(400, f"{name} in the body is not understood; got {got}; expected an array of text")
        if len(ids) > _MOST_IDS:
            raise ApiError(400, f"{name} are too many; got {len(ids)}; expected at most {_MOST_IDS}")
        found[name] = tuple(ids)
    return found


def is_text(value: Any) -> bool:
    """Whether a value of a body is text that can be written down: JSON can hold halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


class Filter:
    """Conditions of a listing, put together for SQL: names are of this package, values are bound.

    A condition without values is none.

    Examples
    --------
    >>> wanted = Filter()
    >>> wanted.any_of("state", ("a", "b"))
    >>> wanted.least("time", None)
    >>> wanted.where, wanted.values
    ('1 AND state IN (?,?)', ['a', 'b'])
    """

    def __init__(self) -> None:
        self._parts = ["1"]
        self.values: list[int | str] = []

    @property
    def where(self) -> str:
        """The conditions in SQL."""
        return " AND ".join(self._parts)

    def least(self, column: str, value: int | None) -> None:
        """At least this."""
        self._add(f"{column} >= ?", () if value is None else (value,))

    def most(self, column: str, value: int | None) -> None:
        """At most this."""
        self._add(f"{column} <= ?", () if value is None else (value,))

    def any_of(self, column: str, values: Sequence[int | str]) -> None:
        """One of these."""
        self.named_in(f"{column} IN ({{}})", values)

    def named_in(self, condition: str, values: Sequence[int | str]) -> None:
        """A condition with ``{}`` where the values belong."""
        self._add(condition.format(",".join("?" * len(values))), values)

    def starts_with(self, column: str, values: Sequence[str]) -> None:
        """Starts with one of these."""
        each = " OR ".join([f"substr({column}, 1, length(?)) = ?"] * len(values))
        self._add(f"({each})", [value for one in values for value in (one, one)])

    def any_label(self, values: Sequence[str]) -> None:
        """Has one of these labels, in the array in the column `labels`."""
        self.named_in("EXISTS (SELECT 1 FROM json_each(labels) WHERE value IN ({}))", values)

    def field_of(self, column: str, field: str, values: Sequence[str]) -> None:
        """Has one of these in a field of its JSON; what has no such field never matches."""
        self.named_in(f"CAST(json_extract({column}, '$.{field}') AS TEXT) IN ({{}})", values)

    def behind(self, order: str, after: Place | None) -> None:
        """Stands behind a place, newest first."""
        self._add(f"({order}, seq) < (?, ?)", after or ())

    def _add(self, condition: str, values: Sequence[int | str]) -> None:
        if values:
            self._parts.append(condition)
            self.values.extend(values)
