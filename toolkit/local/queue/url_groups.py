"""URL groups: names that stand for several endpoints, each of which gets a message of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NotRequired, TypedDict

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError, checked_name, invalid, read_as, read_json
from toolkit.local.operations import Declared, Operation, Query
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.publishing import Publish
from toolkit.local.queue.sender import check_url

if TYPE_CHECKING:
    from toolkit.local.queue.scheduler import Queue

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

    endpoints: Annotated[list[AddedEndpoint], Meta(min_length=1, max_length=MAX_ENDPOINTS)]


class RemovedEndpoints(msgspec.Struct):
    """Endpoints of a group."""

    endpoints: Annotated[list[RemovedEndpoint], Meta(min_length=1, max_length=MAX_ENDPOINTS)]


def urls(tx: QueueWrite, name: str) -> list[str]:
    """The URLs of a group; none where there is no such group."""
    return [row["url"] for row in tx.rows("SELECT url FROM endpoints WHERE topic = ? ORDER BY seq", name)]


def spread(tx: QueueWrite, publish: Publish, name: str) -> list[Publish]:
    """The publish once for each endpoint of a group; an `ApiError` where it has none."""
    if publish.settings.workflow is not None:
        raise ApiError(400, f"URL group {name!r} got a step of a run; expected the URL of its one endpoint")
    rows = tx.rows("SELECT url, name FROM endpoints WHERE topic = ? ORDER BY seq", name)
    if not rows:
        raise no_destination(name)
    return [
        msgspec.structs.replace(
            publish,
            settings=msgspec.structs.replace(publish.settings, url=row["url"]),
            # each endpoint gets the message once
            deduplication=publish.deduplication and f"{publish.deduplication} to {row['url']}",
            origin=msgspec.structs.replace(publish.origin, topic=name, endpoint=row["name"] or ""),
        )
        for row in rows
    ]


def no_destination(name: str) -> ApiError:
    """The error for a destination that is the name of no group."""
    return ApiError(
        400,
        f"destination is neither a URL nor a URL group; got {name[:80]!r}; "
        "expected http(s)://host[:port]/path, or the name of a group that has endpoints",
    )


_operation: Declared[Queue] = Declared()


def url_group_operations(queue: Queue) -> list[Operation]:
    """The operations below ``/v2/topics``."""
    return _operation.of(queue)


@_operation("GET", "/v2/topics", "urlGroups", list[UrlGroup])
async def _list(queue: Queue, _: Request, __: Query) -> Response:
    """All URL groups, by name."""

    def read(tx: QueueWrite) -> list[UrlGroup]:
        return [_shown(tx, row["name"]) for row in tx.rows("SELECT name FROM url_groups ORDER BY name")]

    return JSONResponse(await queue.store.read(read))


@_operation("GET", "/v2/topics/{url_group}", "urlGroup", UrlGroup, errors=(404,))
async def _one(queue: Queue, request: Request, _: Query) -> Response:
    """A URL group."""
    return JSONResponse(await queue.store.read(_shown, request.path_params["url_group"]))


@_operation("DELETE", "/v2/topics/{url_group}", "deleteUrlGroup")
async def _delete(queue: Queue, request: Request, _: Query) -> Response:
    """Delete a URL group, if there is one of this name; its messages stay."""
    name = request.path_params["url_group"]
    await queue.store.write(QueueWrite.execute, "DELETE FROM url_groups WHERE name = ?", name)
    return Response()


@_operation(
    "POST", "/v2/topics/{url_group}/endpoints", "addEndpoints", UrlGroup, body=AddedEndpoints, errors=(412,)
)
async def _add(queue: Queue, request: Request, _: Query) -> Response:
    """Add endpoints to a URL group, which is made when it is new, or change them."""
    name = checked_name(request.path_params["url_group"], "name of the URL group")
    added = read_as(await read_json(request), AddedEndpoints).endpoints
    for endpoint in added:
        await queue.destinations.address(check_url(endpoint.url, "URL of an endpoint"))
        if endpoint.name:
            checked_name(endpoint.name, "name of an endpoint")
    return JSONResponse(await queue.store.write(_added, name, added))


@_operation(
    "DELETE",
    "/v2/topics/{url_group}/endpoints",
    "removeEndpoints",
    body=RemovedEndpoints,
    errors=(404,),
)
async def _remove(queue: Queue, request: Request, _: Query) -> Response:
    """Remove endpoints from a URL group, which is deleted with its last one."""
    removed = read_as(await read_json(request), RemovedEndpoints).endpoints
    if not all(endpoint.url or endpoint.name for endpoint in removed):
        raise invalid("endpoints", "one with neither url nor name", "one of them in each")
    await queue.store.write(_removed, request.path_params["url_group"], removed)
    return Response()


def _added(tx: QueueWrite, name: str, added: list[AddedEndpoint]) -> UrlGroup:
    sql = "INSERT INTO url_groups VALUES (?1, ?2, ?2) ON CONFLICT (name) DO UPDATE SET updated_at = ?2"
    tx.execute(sql, name, tx.now_ms)
    for endpoint in added:
        # the name says which endpoint it is, else the URL
        known = endpoint.name and tx.first(
            "SELECT seq FROM endpoints WHERE topic = ? AND name = ?", name, endpoint.name
        )
        if known:
            other = "DELETE FROM endpoints WHERE topic = ? AND url = ? AND seq != ?"
            tx.execute(other, name, endpoint.url, known["seq"])
            tx.execute("UPDATE endpoints SET url = ? WHERE seq = ?", endpoint.url, known["seq"])
        else:
            tx.execute(
                "INSERT INTO endpoints (topic, url, name) VALUES (?, ?, ?) "
                "ON CONFLICT (topic, url) DO UPDATE SET name = coalesce(excluded.name, name)",
                *(name, endpoint.url, endpoint.name or None),
            )
    for what, most, count in (
        ("endpoints in one URL group", MAX_ENDPOINTS, len(urls(tx, name))),
        ("URL groups", MAX_GROUPS, tx.rows("SELECT count(*) FROM url_groups")[0][0]),
    ):
        if count > most:
            raise ApiError(412, f"too many {what}; got {count}; expected at most {most}")
    return _shown(tx, name)


def _removed(tx: QueueWrite, name: str, removed: list[RemovedEndpoint]) -> None:
    _shown(tx, name)  # 404 where there is none
    for endpoint in removed:
        matching = "topic = ? AND (? = '' OR url = ?) AND (? = '' OR name = ?)"
        values = (name, endpoint.url, endpoint.url, endpoint.name, endpoint.name)
        tx.execute(f"DELETE FROM endpoints WHERE {matching}", *values)  # noqa: S608 - SQL from above
    tx.execute("UPDATE url_groups SET updated_at = ? WHERE name = ?", tx.now_ms, name)
    if not urls(tx, name):
        tx.execute("DELETE FROM url_groups WHERE name = ?", name)


def _shown(tx: QueueWrite, name: str) -> UrlGroup:
    row = tx.first("SELECT * FROM url_groups WHERE name = ?", name)
    if row is None:
        raise ApiError(404, f"URL group {name[:80]!r} is not here; expected one that has endpoints")
    return {
        "name": name,
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
        "endpoints": [
            {"url": endpoint["url"], "name": endpoint["name"]}
            if endpoint["name"]
            else {"url": endpoint["url"]}
            for endpoint in tx.rows("SELECT url, name FROM endpoints WHERE topic = ? ORDER BY seq", name)
        ],
    }
