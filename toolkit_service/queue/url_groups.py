"""URL groups: names that stand for several endpoints, each of which gets a message of its own."""

from __future__ import annotations

import sqlite3

from msgspec.structs import replace

from toolkit_service.api import ApiError, invalid
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.publishing import Publish


def endpoints_of(tx: QueueWrite, name: str) -> list[sqlite3.Row]:
    """Return URL and name of each endpoint of a group, in the order in which they were added."""
    return tx.rows("SELECT url, name FROM endpoints WHERE topic = ? ORDER BY seq", name)


def destinations(tx: QueueWrite, name: str) -> list[sqlite3.Row]:
    """Return URL and name of each endpoint of a group. Raise an `ApiError` if the group has none."""
    rows = endpoints_of(tx, name)
    if not rows:
        expected = (
            "http(s)://host[:port]/path, or the name of a group that has endpoints"
        )
        raise invalid(
            "destination is neither a URL nor a URL group", repr(name[:80]), expected
        )

    return rows


def spread(publish: Publish, group: str, endpoints: list[sqlite3.Row]) -> list[Publish]:
    """Return the publish once per endpoint of a group."""
    if publish.settings.workflow is not None:
        raise ApiError(
            400,
            f"URL group {group!r} got a step of a run; expected the URL of its one endpoint",
        )

    return [
        replace(
            publish,
            settings=replace(publish.settings, url=url),
            # each endpoint gets the message once
            deduplication=publish.deduplication
            and _deduplication(publish.deduplication, url, name),
            origin=replace(publish.origin, topic=group, endpoint=name or ""),
        )
        for url, name in endpoints
    ]


def _deduplication(given: str, url: str, name: str | None) -> str:
    """Return the deduplication id of one endpoint's message: endpoints of one URL have different names."""
    return f"{given} to {name} at {url}" if name else f"{given} to {url}"
