"""Operations on URL groups: list and delete them, and add or remove endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NotRequired, TypedDict

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit_service.api import checked_name, invalid, read_as, read_json
from toolkit_service.operations import Query
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.destinations import check_url
from toolkit_service.queue.listing import not_found
from toolkit_service.queue.queue_operations import QueueOperations
from toolkit_service.queue.url_groups import endpoints_of

if TYPE_CHECKING:
    from toolkit_service.queue.scheduler import Queue

MAX_GROUPS: Final = 1000
MAX_ENDPOINTS: Final = 100
"""Most endpoints of a group: each publish to it makes as many messages."""


class EndpointEntry(TypedDict):
    """An endpoint of a group."""

    url: str
    name: NotRequired[str]


class UrlGroup(TypedDict):
    """A group and its endpoints, in the order in which they were added."""

    name: str
    createdAt: int
    updatedAt: int
    endpoints: list[EndpointEntry]


class AddedEndpoint(msgspec.Struct):
    """An endpoint to add, or to change by its name or URL."""

    url: str
    name: str = ""


class RemovedEndpoint(msgspec.Struct):
    """An endpoint to remove, by its name or URL."""

    url: str = ""
    name: str = ""


class AddedEndpoints(msgspec.Struct):
    """Endpoints of a group."""

    endpoints: Annotated[
        list[AddedEndpoint], Meta(min_length=1, max_length=MAX_ENDPOINTS)
    ]


class RemovedEndpoints(msgspec.Struct):
    """Endpoints of a group."""

    endpoints: Annotated[
        list[RemovedEndpoint], Meta(min_length=1, max_length=MAX_ENDPOINTS)
    ]


url_group_operations: Final = QueueOperations()
"""The operations below ``/v2/topics``."""


@url_group_operations.transaction("GET", "/v2/topics", "urlGroups", list[UrlGroup])
def _list(tx: QueueWrite) -> list[UrlGroup]:
    """All URL groups, by name."""
    return [
        _one(tx, row["name"])
        for row in tx.rows("SELECT name FROM url_groups ORDER BY name")
    ]


@url_group_operations.transaction(
    "GET", "/v2/topics/{url_group}", "urlGroup", UrlGroup, errors=(404,)
)
def _one(tx: QueueWrite, url_group: str) -> UrlGroup:
    """Return a URL group."""
    row = tx.first("SELECT * FROM url_groups WHERE name = ?", url_group)
    if row is None:
        raise not_found("URL group", url_group, "one that has endpoints")

    return {
        "name": url_group,
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
        "endpoints": [
            {"url": url, "name": name} if name else {"url": url}
            for url, name in endpoints_of(tx, url_group)
        ],
    }


@url_group_operations.transaction("DELETE", "/v2/topics/{url_group}", "deleteUrlGroup")
def _delete(tx: QueueWrite, url_group: str) -> None:
    """Delete a URL group, if there is one of this name; its messages stay."""
    tx.execute("DELETE FROM url_groups WHERE name = ?", url_group)


@url_group_operations(
    "POST",
    "/v2/topics/{url_group}/endpoints",
    "addEndpoints",
    UrlGroup,
    body=AddedEndpoints,
    errors=(412,),
)
async def _add(queue: Queue, request: Request, _: Query) -> Response:
    """Add endpoints to a URL group, which is made when it is new, or change them."""
    name = checked_name(request.path_params["url_group"], "name of the URL group")
    added = read_as(await read_json(request), AddedEndpoints).endpoints
    for endpoint in added:
        await queue.destinations.address(check_url(endpoint.url, "URL of an endpoint"))
        if endpoint.name:
            checked_name(endpoint.name, "name of an endpoint")

    return JSONResponse(await queue.write(_added, name, added))


def _added(tx: QueueWrite, name: str, added: list[AddedEndpoint]) -> UrlGroup:
    sql = "INSERT INTO url_groups VALUES (?1, ?2, ?2) ON CONFLICT (name) DO UPDATE SET updated_at = ?2"
    tx.execute(sql, name, tx.now_ms)
    for endpoint in added:
        _add_endpoint(tx, name, endpoint)

    count = len(endpoints_of(tx, name))
    if count > MAX_ENDPOINTS:
        expected = f"at most {MAX_ENDPOINTS}"
        raise invalid(
            "too many endpoints in one URL group", str(count), expected, status=412
        )

    tx.check_count("url_groups", MAX_GROUPS, "URL groups")
    return _one(tx, name)


def _add_endpoint(tx: QueueWrite, group: str, endpoint: AddedEndpoint) -> None:
    """Add or change one endpoint.

    A name identifies an endpoint, so that several names can have one URL. Without a name, the URL
    identifies it. An endpoint without a name gets the name that a request gives its URL.
    """
    if not endpoint.name:
        known = tx.first(
            "SELECT 1 FROM endpoints WHERE topic = ? AND url = ?", group, endpoint.url
        )
        if known is None:
            tx.insert("endpoints", topic=group, url=endpoint.url)
        return

    named = tx.value(
        "SELECT seq FROM endpoints WHERE topic = ? AND name = ?", group, endpoint.name
    )
    nameless_sql = (
        "SELECT seq FROM endpoints WHERE topic = ? AND url = ? AND name IS NULL"
    )
    nameless = tx.value(nameless_sql, group, endpoint.url)

    if named is not None:
        tx.execute("UPDATE endpoints SET url = ? WHERE seq = ?", endpoint.url, named)
        tx.execute("DELETE FROM endpoints WHERE seq = ?", nameless)
    elif nameless is not None:
        tx.execute(
            "UPDATE endpoints SET name = ? WHERE seq = ?", endpoint.name, nameless
        )
    else:
        tx.insert("endpoints", topic=group, url=endpoint.url, name=endpoint.name)


@url_group_operations.transaction(
    "DELETE",
    "/v2/topics/{url_group}/endpoints",
    "removeEndpoints",
    body=RemovedEndpoints,
    errors=(404,),
)
def _remove(tx: QueueWrite, url_group: str, body: RemovedEndpoints) -> None:
    """Remove endpoints from a URL group, which is deleted with its last one."""
    if not all(endpoint.url or endpoint.name for endpoint in body.endpoints):
        raise invalid(
            "endpoints", "one with neither url nor name", "one of them in each"
        )

    _one(tx, url_group)  # 404 where there is none
    for endpoint in body.endpoints:
        tx.execute(
            "DELETE FROM endpoints WHERE topic = ?1 AND ?2 IN ('', url) AND ?3 IN ('', name)",
            *(url_group, endpoint.url, endpoint.name),
        )

    tx.execute(
        "UPDATE url_groups SET updated_at = ? WHERE name = ?", tx.now_ms, url_group
    )
    if not endpoints_of(tx, url_group):
        tx.execute("DELETE FROM url_groups WHERE name = ?", url_group)
