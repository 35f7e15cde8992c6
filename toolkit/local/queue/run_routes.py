"""Routes of workflow runs, of the logs, and of the signing keys."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from collections.abc import Sequence
from typing import Final

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolkit.local.answers import Refusal
from toolkit.local.queue import runs
from toolkit.local.queue.parameters import count, several, single, span
from toolkit.local.queue.service import Queue

_FLAG: Final = re.compile(r"true|false")


def run_routes() -> list[BaseRoute]:
    """Routes under ``/v2``; they find the queue at ``app.state.queue``."""
    return [
        Route("/v2/workflows/runs/{run_id}", RunEndpoint),
        Route("/v2/workflows/logs", RunLog),
        Route("/v2/logs", EventLog),
        Route("/v2/keys", Keys),
        Route("/v2/keys/rotate", KeyRotation),
    ]


class RunEndpoint(HTTPEndpoint):
    """``/v2/workflows/runs/{id}``."""

    async def get(self, request: Request) -> Response:
        """The run's history, for endpoints that fetch it instead of having it delivered."""
        queue: Queue = request.app.state.queue
        run_id = request.path_params["run_id"]
        steps = await queue.store.database.read(lambda connection: runs.steps(connection, run_id))
        if not steps:
            raise Refusal(404, f"run {run_id[:80]!r} is not known; expected the id of a run")
        return JSONResponse(
            [
                {"messageId": message_id, "body": base64.b64encode(body).decode(), "callType": "step"}
                for message_id, body in steps
            ]
        )

    async def delete(self, request: Request) -> Response:
        """End the run: ``cancel=false`` as its endpoint does when it is through, else by canceling it."""
        queue: Queue = request.app.state.queue
        flag = single(request, "cancel") or "true"
        if not _FLAG.fullmatch(flag):
            raise Refusal(400, f"cancel is not understood; got {flag[:80]!r}; expected true or false")
        run_id, now = request.path_params["run_id"], queue.store.clock.now_ms()
        await queue.store.database.write(
            lambda connection: runs.end(connection, run_id, cancel=flag == "true", now_ms=now)
        )
        return JSONResponse({"workflowRunId": run_id})


class RunLog(HTTPEndpoint):
    """``/v2/workflows/logs``."""

    async def get(self, request: Request) -> Response:
        """A page of runs, newest first."""
        queue: Queue = request.app.state.queue
        since, until = span(request)
        conditions: list[tuple[str, Sequence[int | str]]] = [
            ("created_at >= ?", () if since is None else (since,)),
            ("created_at <= ?", () if until is None else (until,)),
            ("id IN ({})", several(request, "workflowRunId")),
            ("url IN ({})", several(request, "workflowUrl")),
            ("state IN ({})", several(request, "state", "workflowState")),
            ("EXISTS (SELECT 1 FROM json_each(labels) WHERE value IN ({}))", several(request, "label")),
        ]
        rows, cursor = await _page(queue, request, "runs", "created_at", conditions)
        return JSONResponse({"cursor": cursor, "runs": [runs.shown(row) for row in rows]})


class EventLog(HTTPEndpoint):
    """``/v2/logs``."""

    async def get(self, request: Request) -> Response:
        """A page of message events, newest first."""
        queue: Queue = request.app.state.queue
        since, until = span(request)
        conditions: list[tuple[str, Sequence[int | str]]] = [
            ("time >= ?", () if since is None else (since,)),
            ("time <= ?", () if until is None else (until,)),
            ("message_id IN ({})", several(request, "messageId")),
            ("run_id IN ({})", several(request, "workflowRunId")),
            ("state IN ({})", several(request, "state")),
            ("url IN ({})", several(request, "url")),
        ]
        rows, cursor = await _page(queue, request, "events", "time", conditions)
        return JSONResponse({"cursor": cursor, "events": [json.loads(row["entry"]) for row in rows]})


class Keys(HTTPEndpoint):
    """``/v2/keys``."""

    async def get(self, request: Request) -> Response:
        """The signing keys."""
        queue: Queue = request.app.state.queue
        current, following = queue.store.signing_keys
        return JSONResponse({"current": current, "next": following})


class KeyRotation(HTTPEndpoint):
    """``/v2/keys/rotate``."""

    async def post(self, request: Request) -> Response:
        """The next key becomes the current one."""
        queue: Queue = request.app.state.queue
        current, following = await queue.store.rotate_keys()
        return JSONResponse({"current": current, "next": following})


async def _page(
    queue: Queue, request: Request, table: str, order: str, conditions: list[tuple[str, Sequence[int | str]]]
) -> tuple[list[sqlite3.Row], str]:
    """A page of a table, newest first, of rows that meet every condition that has values."""
    parts, values = ["1"], list[int | str]()
    for condition, wanted in conditions:
        if wanted:
            parts.append(condition.format(",".join("?" * len(wanted))))
            values.extend(wanted)
    after = queue.store.cursors.read(table, single(request, "cursor") or "")
    if after is not None:
        parts.append(f"({order}, seq) < (?, ?)")
        values.extend(after)
    most = count(request)
    sql = f"SELECT * FROM {table} WHERE {' AND '.join(parts)} ORDER BY {order} DESC, seq DESC LIMIT ?"  # noqa: S608 - names from above, values bound
    rows = await queue.store.database.read(
        lambda connection: connection.execute(sql, (*values, most + 1)).fetchall()
    )
    place = (rows[most - 1][order], rows[most - 1]["seq"]) if len(rows) > most else None
    return rows[:most], queue.store.cursors.make(table, place)
