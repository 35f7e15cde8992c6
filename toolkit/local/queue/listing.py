"""Operations that are one transaction, and listings: filters with their SQL, pages, and signed cursors."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError, parse_json, read_as, read_body, read_json
from toolkit.local.operations import Declared, Query, Texts, Timestamp, parameters_of
from toolkit.local.queue.database import QueueWrite

if TYPE_CHECKING:
    from toolkit.local.queue.scheduler import Queue

F = TypeVar("F", bound=Callable[..., Any])
Q = TypeVar("Q", bound=Query)
Position: TypeAlias = tuple[int, int]
"""Where a row is in a listing, newest first: its timestamp (Unix ms), and its number."""
Condition: TypeAlias = tuple[str, int | str | Sequence[int | str] | None]
TextOrTexts: TypeAlias = str | Annotated[list[str], Meta(max_length=1000)]

PUBLIC_PREFIX: Final = "Upstash-"
"""The prefix of header names of the public service, which stands for its dialect."""

_TAG: Final = 12  # bytes of the HMAC in a cursor


class QueueOperations(Declared["Queue"]):
    """Operations on the queue, declared by their handlers or, where one transaction does all, by that."""

    def transaction(
        self, method: str, path: str, name: str, returns: Any = None, **described: Any
    ) -> Callable[[F], F]:
        """Declare an operation that is one transaction, which only reads when the method is GET.

        The function gets the transaction, the names of the path and, where they are declared, the `body` and
        the `query`. It returns the JSON of the response, or None.
        """

        def declare(work: F) -> F:
            async def handler(queue: Queue, request: Request, query: Any) -> Response:
                given = dict(request.path_params)
                body = described.get("body")
                if body is bytes:
                    given["body"] = await read_body(request, queue.max_message)
                elif body is not None:
                    given["body"] = read_as(await read_json(request), body)
                if "query" in described:
                    given["query"] = query
                result = await (queue.store.read if method == "GET" else queue.write)(work, **given)
                status = described.get("status", 200)
                return Response(status_code=status) if result is None else JSONResponse(result, status)

            handler.__doc__ = work.__doc__
            self(method, path, name, returns, **described)(handler)
            return work

        return declare


def not_found(what: str, name: str, expected: str) -> ApiError:
    """The error for something that is not here."""
    return ApiError(404, f"{what} {name[:80]!r} not found; expected {expected}")


def sql(condition: str, description: str | None = None) -> Meta:
    """The condition in SQL of a filter, with ``{}`` for its values; "" where it has none."""
    return Meta(extra={"sql": condition}, description=description)


def json_field(name: str) -> str:
    """The condition that a field of the JSON in the column `entry` has one of some values."""
    return f"CAST(json_extract(entry, '$.{name}') AS TEXT) IN ({{}})"


def any_label(labels: str) -> str:
    """The condition that an array of labels, which is SQL for arguments of json_each, has one of some."""
    return f"EXISTS (SELECT 1 FROM json_each({labels}) WHERE value IN ({{}}))"  # noqa: S608 - SQL of this package


def of_host(url: str) -> Meta:
    """The condition that a URL, given as SQL, has one of some hosts, each with its port or without."""
    return sql(any_label(f"url_hosts({url})"), "Of the URL, with its port or without.")


def of_path(url: str) -> Meta:
    """The condition that a URL, given as SQL, has one of some paths."""
    return sql(f"url_path({url}) IN ({{}})", "Of the URL.")


FlowKey: TypeAlias = Annotated[Texts, sql("flow_key IN ({})")]
MostCanceled: TypeAlias = Annotated[
    int, Meta(ge=1, le=999_999_999, description="Most to cancel, the oldest first (all).")
]


class Span(Query):
    """A span of time."""

    from_date: Annotated[Timestamp, sql("created_at >= {}", "Unix milliseconds, inclusive.")] | None = None
    to_date: Annotated[Timestamp, sql("created_at <= {}", "Unix milliseconds, inclusive.")] | None = None

    def __post_init__(self) -> None:
        since, until = self.from_date, self.to_date
        if since is not None and until is not None and since > until:
            raise ApiError(
                400, f"fromDate is after toDate; got {since} and {until}; expected the earlier one first"
            )


class ListQuery(Span):
    """A page of a listing."""

    cursor: Annotated[str, sql("", "Of the page before; empty for the first.")] = ""
    count: Annotated[int, Meta(ge=1, le=100, description="Most entries a page.")] = 100


async def with_ids(request: Request, query: Q, body_type: type[msgspec.Struct]) -> Q:
    """The query, with the ids that the body, which may be empty, has under the same names."""
    body = await read_body(request)
    if not body.strip():
        return query
    given = msgspec.structs.asdict(read_as(parse_json(body), body_type))
    ids = {name: [value] if isinstance(value, str) else value for name, value in given.items()}
    joined = {name: (*getattr(query, name), *values) for name, values in ids.items()}
    return msgspec.structs.replace(query, **joined)


def conditions(query: Query) -> list[Condition]:
    """The conditions of a query's filters; filters of the same condition are one, of all their values."""
    merged: dict[str, list[int | str]] = {}
    for parameter in parameters_of(type(query)):
        value: Any = getattr(query, parameter.attribute)
        if parameter.sql and value not in (None, "", ()):
            merged.setdefault(parameter.sql, []).extend(value if isinstance(value, tuple) else (value,))
    return list(merged.items())


def where(*wanted: Condition) -> tuple[str, list[int | str]]:
    """Conditions in SQL, with ``{}`` for their values, and the values; those without values are left out.

    >>> where(("state IN ({})", ("a", "b")), ("time >= {}", None))
    ('1 AND state IN (?,?)', ['a', 'b'])
    """
    parts, bound = ["1"], list[int | str]()
    for condition, value in wanted:
        values = () if value is None else (value,) if isinstance(value, int | str) else tuple(value)
        if values:
            parts.append(condition.format(",".join("?" * len(values))))
            bound += values
    return " AND ".join(parts), bound


def starts_with(column: str, values: Sequence[str]) -> Condition:
    """The condition that a column starts with one of the values; `%` and `_` are plain text."""
    any_of = f"EXISTS (SELECT 1 FROM json_each({{}}) WHERE substr({column}, 1, length(value)) = value)"  # noqa: S608 - a name of this package
    return any_of, json.dumps(values) if values else None


class CursorSigner:
    """Makes and reads cursors: signed positions in a listing, which stay valid while entries change."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, listing: str, position: Position) -> str:
        """The cursor of the page after `position`."""
        raw = json.dumps(position).encode()
        return base64.urlsafe_b64encode(self._tag(listing, raw) + raw).decode().rstrip("=")

    def read(self, listing: str, cursor: str) -> Position | None:
        """The position after which the page begins; None for the start. An `ApiError` when it is foreign."""
        if not cursor:
            return None
        try:
            data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        tag, raw = data[:_TAG], data[_TAG:]
        # only the spelling that `make` returns: base64 has others for the same bytes
        ours = base64.urlsafe_b64encode(data).decode().rstrip("=") == cursor
        if not raw or not ours or not hmac.compare_digest(tag, self._tag(listing, raw)):
            raise ApiError(
                400, f"cursor is not known; got {cursor[:40]!r}; expected one from this listing, unchanged"
            )
        first, second = json.loads(raw)
        return first, second

    def _tag(self, listing: str, raw: bytes) -> bytes:
        return hmac.digest(self._key, listing.encode() + b"\0" + raw, "sha256")[:_TAG]


def with_cursor(queue: Queue, response: dict[str, Any], cursor: str) -> dict[str, Any]:
    """The response with the cursor of the next page.

    On the last page it is empty or, in the public dialect, left out: clients in JavaScript read pages until
    it is undefined.
    """
    if not cursor and queue.prefix == PUBLIC_PREFIX:
        return response
    return {"cursor": cursor, **response}


def page(
    tx: QueueWrite, cursors: CursorSigner, table: str, query: ListQuery, *more: Condition, listing: str = ""
) -> tuple[list[sqlite3.Row], str]:
    """A page of a table, newest first, and the cursor of the next one; `listing` names it in cursors."""
    listing, order = listing or table, _ORDERS[table]
    after = (f"({order}, seq) < ({{}})", cursors.read(listing, query.cursor))
    wanted, values = where(*conditions(query), *more, after)
    rows = tx.rows(
        f"SELECT * FROM {table} WHERE {wanted} ORDER BY {order} DESC, seq DESC LIMIT ?",  # noqa: S608 - SQL of this package, values bound
        *(*values, query.count + 1),
    )
    if len(rows) <= query.count:
        return rows, ""
    last = rows[query.count - 1]
    return rows[: query.count], cursors.make(listing, (last[order], last["seq"]))


_ORDERS: Final = {"runs": "created_at", "events": "time", "dlq": "entered_at"}
