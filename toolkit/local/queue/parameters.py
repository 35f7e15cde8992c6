"""Parameters of listings: query parameters, ids in bodies, and the conditions in SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias, TypedDict

from msgspec import Meta
from starlette.requests import Request

from toolkit.local.api import ApiError, parse_json, read_body
from toolkit.local.operations import Query, Texts, Timestamp

_MOST_IDS: Final = 1000

Position: TypeAlias = tuple[int, int]
"""Where a row is in a listing, newest first: its timestamp (Unix ms), and its number."""

Bound: TypeAlias = Annotated[Timestamp, Meta(description="Unix milliseconds, inclusive.")]
TextOrTexts: TypeAlias = str | Annotated[list[str], Meta(max_length=_MOST_IDS)]


class Span(Query):
    """A span of time."""

    from_date: Bound | None = None
    to_date: Bound | None = None

    def __post_init__(self) -> None:
        since, until = self.from_date, self.to_date
        if since is not None and until is not None and since > until:
            raise ApiError(
                400, f"fromDate is after toDate; got {since} and {until}; expected the earlier one first"
            )


class ListQuery(Span):
    """A page of a listing."""

    cursor: Annotated[str, Meta(description="Of the page before; empty for the first.")] = ""
    count: Annotated[int, Meta(ge=1, le=100, description="Most entries a page.")] = 100


class DlqQuery(ListQuery):
    """Filters of the dead letter queues: an entry passes that matches all that are given."""

    workflow_url: Texts = ()
    workflow_run_id: Annotated[str, Meta(description="This one.")] = ""
    workflow_created_at: Timestamp | None = None
    label: Texts = ()
    failure_function_state: Texts = ()
    failure_callback_state: Annotated[Texts, Meta(description="Another name of failureFunctionState.")] = ()
    caller_ip: Texts = ()
    flow_control_key: Texts = ()
    message_id: Texts = ()
    response_status: Texts = ()
    topic_name: Texts = ()
    queue_name: Texts = ()
    schedule_id: Texts = ()
    dlq_ids: Annotated[Texts, Meta(description="These entries.")] = ()


class MessageDlqQuery(DlqQuery):
    """The same for plain messages."""

    url: Texts = ()


class DlqIds(TypedDict, total=False):
    """DLQ entries by their ids."""

    dlqIds: TextOrTexts


async def ids_in_body(request: Request, *names: str) -> dict[str, tuple[str, ...]]:
    """The ids in a body: nothing, or an object with text or arrays of text under these names."""
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
        if not isinstance(ids, list) or not all(map(_is_text, ids)):
            got = "an array with other values" if isinstance(ids, list) else type(ids).__name__
            raise ApiError(400, f"{name} in the body is not understood; got {got}; expected an array of text")
        if len(ids) > _MOST_IDS:
            raise ApiError(400, f"{name} are too many; got {len(ids)}; expected at most {_MOST_IDS}")
        found[name] = tuple(ids)
    return found


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be encoded: JSON can hold lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


Condition: TypeAlias = tuple[str, int | str | Sequence[int | str] | None]


def where(*conditions: Condition) -> tuple[str, list[int | str]]:
    """Conditions in SQL, and the values bound in them.

    Each is SQL with ``{}`` for the marks of its values. One without values (None or empty) is left out.

    Examples
    --------
    >>> where(("state IN ({})", ("a", "b")), ("time >= {}", None))
    ('1 AND state IN (?,?)', ['a', 'b'])
    """
    parts, bound = ["1"], list[int | str]()
    for sql, value in conditions:
        values = () if value is None else (value,) if isinstance(value, int | str) else tuple(value)
        if values:
            parts.append(sql.format(",".join("?" * len(values))))
            bound += values
    return " AND ".join(parts), bound


def starts_with(column: str, values: Sequence[str]) -> Condition:
    """The condition that a column starts with one of the values; `%` and `_` are plain text."""
    any_of = f"EXISTS (SELECT 1 FROM json_each({{}}) WHERE substr({column}, 1, length(value)) = value)"  # noqa: S608 - a name of this package
    return any_of, json.dumps(values) if values else None


def json_field(name: str) -> str:
    """The condition that a field of the JSON in the column `entry` has one of some values."""
    return f"CAST(json_extract(entry, '$.{name}') AS TEXT) IN ({{}})"
