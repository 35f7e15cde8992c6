"""Routes of the two logs: of workflow runs, and of what happened to messages."""

from __future__ import annotations

import json
import sqlite3
from typing import Final

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolkit.local.queue import runs
from toolkit.local.queue.parameters import Filter, count, moment, several, single, span
from toolkit.local.queue.service import Queue

MAX_EVENTS: Final = 1000
"""Most events of a page."""


def log_routes() -> list[BaseRoute]:
    """Routes under ``/v2``; they find the queue at ``app.state.queue``. Each log has another name, too."""
    return [
        Route("/v2/workflows/logs", RunLog),
        Route("/v2/workflows/events", RunLog),
        Route("/v2/logs", EventLog),
        Route("/v2/events", EventLog),
    ]


class RunLog(HTTPEndpoint):
    """``/v2/workflows/logs``."""

    async def get(self, request: Request) -> Response:
        """A page of runs, newest first, with their steps."""
        queue: Queue = request.app.state.queue
        since, until = span(request)
        created = moment(request, "workflowCreatedAt")
        conditions = Filter()
        conditions.least("created_at", since)
        conditions.most("created_at", until)
        conditions.any_of("created_at", () if created is None else (created,))
        conditions.any_of("id", several(request, "workflowRunId"))
        conditions.any_of("url", several(request, "workflowUrl"))
        conditions.any_of("state", several(request, "state", "workflowState"))
        conditions.any_of("caller_ip", several(request, "callerIp"))
        conditions.any_of("flow_key", several(request, "flowControlKey"))
        conditions.any_label(several(request, "label"))
        conditions.named_in(
            "id IN (SELECT run_id FROM steps WHERE message_id IN ({}))", several(request, "messageId")
        )
        rows, cursor = await _page(queue, request, "runs", "created_at", conditions, count(request))
        shown = await queue.store.database.read(
            lambda connection: [runs.shown(connection, row) for row in rows]
        )
        return JSONResponse({"cursor": cursor, "runs": shown})


class EventLog(HTTPEndpoint):
    """``/v2/logs``."""

    async def get(self, request: Request) -> Response:
        """A page of message events, newest first."""
        queue: Queue = request.app.state.queue
        since, until = span(request)
        conditions = Filter()
        conditions.least("time", since)
        conditions.most("time", until)
        conditions.any_of("message_id", several(request, "messageId", "messageIds"))
        conditions.any_of("run_id", several(request, "workflowRunId"))
        conditions.any_of("state", several(request, "state"))
        conditions.any_of("url", several(request, "url"))
        conditions.named_in(
            "EXISTS (SELECT 1 FROM json_each(entry, '$.labels') WHERE value IN ({}))",
            several(request, "label"),
        )
        for name, field in (
            ("callerIp", "callerIP"),
            ("flowControlKey", "flowControlKey"),
            ("topicName", "topicName"),
            ("queueName", "queueName"),
            ("scheduleId", "scheduleId"),
        ):
            conditions.field_of("entry", field, several(request, name))
        most = count(request, MAX_EVENTS)
        rows, cursor = await _page(queue, request, "events", "time", conditions, most)
        return JSONResponse({"cursor": cursor, "events": [json.loads(row["entry"]) for row in rows]})


async def _page(
    queue: Queue, request: Request, table: str, order: str, conditions: Filter, most: int
) -> tuple[list[sqlite3.Row], str]:
    """A page of a table, newest first, of rows that meet the conditions."""
    after = queue.store.cursors.read(table, single(request, "cursor") or "")
    conditions.behind(order, after)
    sql = f"SELECT * FROM {table} WHERE {conditions.where} ORDER BY {order} DESC, seq DESC LIMIT ?"  # noqa: S608 - names from above, values bound
    rows = await queue.store.database.read(
        lambda connection: connection.execute(sql, (*conditions.values, most + 1)).fetchall()
    )
    place = (rows[most - 1][order], rows[most - 1]["seq"]) if len(rows) > most else None
    return rows[:most], queue.store.cursors.make(table, place)
