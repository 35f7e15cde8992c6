"""Listings: filters with their SQL, pages and signed cursors."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import sqlite3
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from toolkit_service.api import ApiError, parse_json, read_as, read_body
from toolkit_service.operations import Query, Texts, Timestamp, parameters_of
from toolkit_service.queue.database import QueueWrite, marks

Q = TypeVar("Q", bound=Query)
Position: TypeAlias = tuple[int, int]
"""The position of a row in a listing, newest first: timestamp (Unix ms) and row number."""
Condition: TypeAlias = tuple[str, int | str | Sequence[int | str] | None]
TextOrTexts: TypeAlias = str | Annotated[list[str], Meta(max_length=1000)]

PUBLIC_PREFIX: Final = "Upstash-"
"""The prefix of header names of the public service. It stands for the dialect of that service."""

_TAG: Final = 12  # bytes of the HMAC in a cursor


def not_found(noun: str, name: str, expected: str) -> ApiError:
    """Return the error for something that does not exist, for example a queue."""
    return ApiError(404, f"{noun} {name[:80]!r} not found; expected {expected}")


def sql(condition: str, description: str | None = None) -> Meta:
    """Attach SQL to a filter, with ``{}`` for the values. It is empty if the parameter is no filter."""
    return Meta(extra={"sql": condition}, description=description)


def json_field(name: str) -> str:
    """Return the condition that a field of the JSON in the column `entry` has one of several values."""
    return f"CAST(json_extract(entry, '$.{name}') AS TEXT) IN ({{}})"


def any_label(labels: str) -> str:
    """Return the condition that an array contains one of several labels.

    `labels` is SQL, the arguments of json_each, for example ``entry, '$.labels'``.
    """
    return f"EXISTS (SELECT 1 FROM json_each({labels}) WHERE value IN ({{}}))"  # noqa: S608 - SQL of this package


def of_host(url: str) -> Meta:
    """Attach the condition that a URL (SQL) has one of several hosts, each with or without the port."""
    return sql(
        any_label(f"url_hosts({url})"), "Host of the URL, with or without the port."
    )


def of_path(url: str) -> Meta:
    """Attach the condition that a URL (SQL) has one of several paths."""
    return sql(f"url_path({url}) IN ({{}})", "Path of the URL.")


FlowKey: TypeAlias = Annotated[Texts, sql("flow_key IN ({})")]
MostCanceled: TypeAlias = Annotated[
    int,
    Meta(ge=1, le=999_999_999, description="Most to cancel, the oldest first (all)."),
]


class Span(Query):
    """A span of time."""

    from_date: (
        Annotated[Timestamp, sql("created_at >= {}", "Unix milliseconds, inclusive.")]
        | None
    ) = None
    to_date: (
        Annotated[Timestamp, sql("created_at <= {}", "Unix milliseconds, inclusive.")]
        | None
    ) = None

    def __post_init__(self) -> None:
        since, until = self.from_date, self.to_date
        if since is not None and until is not None and since > until:
            problem = f"fromDate is after toDate; got {since} and {until}"
            raise ApiError(400, f"{problem}; expected the earlier one first")


class ListQuery(Span):
    """A page of a listing."""

    cursor: Annotated[
        str, sql("", "Cursor of the previous page; empty for the first page.")
    ] = ""
    count: Annotated[int, Meta(ge=1, le=100, description="Most entries per page.")] = (
        100
    )


async def with_ids(request: Request, query: Q, body_type: type[msgspec.Struct]) -> Q:
    """Return the query, extended by the ids in the body, which may be empty."""
    body = await read_body(request)
    if not body.strip():
        return query

    extended = {}
    for name, listed in msgspec.structs.asdict(
        read_as(parse_json(body), body_type)
    ).items():
        ids = [listed] if isinstance(listed, str) else listed
        extended[name] = (*getattr(query, name), *ids)

    return msgspec.structs.replace(query, **extended)


def conditions(query: Query) -> list[Condition]:
    """Return the conditions of the filters in a query.

    Filters with the same SQL are merged: an entry matches if it has a value of any of them.
    """
    merged: dict[str, list[int | str]] = {}
    for parameter in parameters_of(type(query)):
        wanted: Any = getattr(query, parameter.attribute)
        if not parameter.sql or wanted in (None, "", ()):
            continue
        bound = merged.setdefault(parameter.sql, [])
        bound += wanted if isinstance(wanted, tuple) else (wanted,)

    return list(merged.items())


def where(*wanted: Condition) -> tuple[str, list[int | str]]:
    """Join conditions into SQL, and return it with the values to bind. Conditions without values are omitted.

    >>> where(("state IN ({})", ("a", "b")), ("time >= {}", None))
    ('1 AND state IN (?,?)', ['a', 'b'])
    """
    parts, bound = ["1"], list[int | str]()
    for condition, wanted_values in wanted:
        values = _as_tuple(wanted_values)
        if values:
            parts.append(condition.format(marks(values)))
            bound += values

    return " AND ".join(parts), bound


def _as_tuple(
    wanted_values: int | str | Sequence[int | str] | None,
) -> tuple[int | str, ...]:
    if wanted_values is None:
        return ()
    if isinstance(wanted_values, int | str):
        return (wanted_values,)

    return tuple(wanted_values)


def starts_with(column: str, prefixes: Sequence[str]) -> Condition:
    """Return the condition that a column starts with one of the prefixes; `%` is a plain character."""
    any_of = f"EXISTS (SELECT 1 FROM json_each({{}}) WHERE substr({column}, 1, length(value)) = value)"  # noqa: S608 - a name of this package
    return any_of, json.dumps(prefixes) if prefixes else None


class CursorSigner:
    """Makes and reads cursors: signed positions in a listing, which stay valid when entries change.

    A cursor is base64 of an HMAC and the position, so that a cursor of another listing, or an edited one, is
    refused. For example, the position ``[1800000000000, 42]`` is the row 42, which has that timestamp.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, listing: str, position: Position) -> str:
        """Return the cursor of the page after `position`."""
        raw = json.dumps(position).encode()
        return (
            base64.urlsafe_b64encode(self._tag(listing, raw) + raw).decode().rstrip("=")
        )

    def read(self, listing: str, cursor: str) -> Position | None:
        """Return the position before the first row of the page; None for the first page.

        Raise an `ApiError` if the cursor is not from this listing.
        """
        if not cursor:
            return None

        padding = "=" * (-len(cursor) % 4)
        try:
            data = base64.b64decode(cursor + padding, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""

        tag, raw = data[:_TAG], data[_TAG:]
        # accept only the spelling that `make` returns: base64 has others for the same bytes
        same_spelling = base64.urlsafe_b64encode(data).decode().rstrip("=") == cursor
        if (
            not raw
            or not same_spelling
            or not hmac.compare_digest(tag, self._tag(listing, raw))
        ):
            problem = f"cursor is not known; got {cursor[:40]!r}"
            raise ApiError(
                400, f"{problem}; expected a cursor from this listing, unchanged"
            )

        first, second = json.loads(raw)
        return first, second

    def _tag(self, listing: str, raw: bytes) -> bytes:
        return hmac.digest(self._key, listing.encode() + b"\0" + raw, "sha256")[:_TAG]


def page(
    tx: QueueWrite,
    cursors: CursorSigner,
    table: str,
    query: ListQuery,
    *more: Condition,
    listing: str = "",
) -> tuple[list[sqlite3.Row], str]:
    """Return a page of a table, newest first, and the cursor of the next page.

    `listing` is the name of the listing in cursors. If omitted, it is the table.
    """
    listing = listing or table
    order = _ORDERS[table]
    # Keyset pagination: the next page continues after the last row, so that new rows do not shift it. SQL
    # compares rows of values like tuples: by time, and by `seq` if the times are equal.
    after = (f"({order}, seq) < ({{}})", cursors.read(listing, query.cursor))
    condition, bound = where(*conditions(query), *more, after)
    # one row more than requested tells whether a next page exists
    rows = tx.rows(
        f"SELECT * FROM {table} WHERE {condition} ORDER BY {order} DESC, seq DESC LIMIT ?",  # noqa: S608 - SQL of this package, values bound
        *(*bound, query.count + 1),
    )
    if len(rows) <= query.count:
        return rows, ""

    last = rows[query.count - 1]
    return rows[: query.count], cursors.make(listing, (last[order], last["seq"]))


_ORDERS: Final = {"runs": "created_at", "events": "time", "dlq": "entered_at"}
