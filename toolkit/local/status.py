"""The page at ``/`` for people: how many messages wait, how many failed, which indexes there are.

Without the token it shows counts alone, nothing that anybody named or sent; with it (``/?queue_token=…``) the
indexes by name, too. It needs no script and loads nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from toolkit.local.operations import Operation, Query
from toolkit.local.queue.scheduler import Queue
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.redaction import escape_html
from toolkit.version import __version__

KNOWN: Final = "toolkit.known"
"""Key of the ASGI scope: whether the request was authenticated."""

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5a6169; --ground: #fff; --line: #d5d9de; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a8b0b8; --ground: #16191d; --line: #3a4047; }
}
body { margin: 2rem auto; max-width: 46rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--ground); }
table { border-collapse: collapse; width: 100%; margin-bottom: 2rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-top: 1px solid var(--line); }
th { font-weight: 400; overflow-wrap: anywhere; }
thead th, footer { color: var(--soft); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
a { color: inherit; }
"""
_COLUMNS: Final = {
    "name": "text",
    "kind": "text",
    "dimensions": "number",
    "similarity": "text",
    "model": "text",
    "vectors": "number",
}
_COUNTS: Final = {
    "messages waiting or on their way": "SELECT count(*) FROM messages",
    "failed workflow runs in the DLQ": "SELECT count(*) FROM dlq WHERE workflow AND entered_at >= :since",
    "failed messages in the DLQ": "SELECT count(*) FROM dlq WHERE NOT workflow AND entered_at >= :since",
    "workflow runs in progress": "SELECT count(*) FROM runs WHERE state = 'RUN_STARTED'",
    "workflow runs succeeded": "SELECT count(*) FROM runs WHERE state = 'RUN_SUCCESS'",
    "workflow runs failed": "SELECT count(*) FROM runs WHERE state = 'RUN_FAILED'",
    "workflow runs canceled": "SELECT count(*) FROM runs WHERE state = 'RUN_CANCELED'",
}


def status_operation(queue: Queue, registry: IndexRegistry) -> Operation:
    """The operation that shows the state of the queue and the indexes."""

    def indexes() -> list[tuple[str, str, int, str, str, int]]:
        return [
            (
                spec.name,
                spec.kind,
                spec.dimension,
                spec.similarity or "",
                spec.model or "",
                sum(registry.get(spec.name).namespaces().values()),
            )
            for spec in registry.specs()
        ]

    async def page(request: Request, _: Query) -> Response:
        since = queue.store.expired_before

        def counted(connection: sqlite3.Connection) -> list[tuple[str, int]]:
            return [
                (words, connection.execute(sql, {"since": since}).fetchone()[0])
                for words, sql in _COUNTS.items()
            ]

        counts = await queue.store.database.read(counted)
        made = await run_in_threadpool(indexes)
        counts += [("vector indexes", len(made)), ("vectors", sum(row[-1] for row in made))]
        tables = _table("Queue and vectors", {}, counts)
        if request.scope.get(KNOWN):
            tables += _table("Indexes", _COLUMNS, made)
        return HTMLResponse(_document(tables), headers=_HEADERS)

    return Operation("GET", "/", "status", "The status page.", page, str, tag="service", without_token=True)


def _table(caption: str, names: Mapping[str, str], rows: Iterable[Iterable[str | int]]) -> str:
    head = "".join(f'<th scope="col" class="{kind}">{escape_html(name)}</th>' for name, kind in names.items())
    body = "".join(f"<tr>{_cells(*row)}</tr>" for row in rows)
    return (
        f"<table><caption>{escape_html(caption)}</caption>"
        f"{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
    )


def _cells(first: str | int, *others: str | int) -> str:
    cells = [f'<th scope="row">{escape_html(first)}</th>']
    for cell in others:
        if isinstance(cell, int):
            cells.append(f'<td class="number">{cell:,}</td>')
        else:
            cells.append(f"<td>{escape_html(cell)}</td>")
    return "".join(cells)


def _document(tables: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Embedded service</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>Embedded service</h1>{tables}</main>"
        f'<footer>Version {escape_html(__version__)}. Interface: <a href="openapi.json">openapi.json</a>. '
        "With the token, the indexes are shown by name.</footer></body></html>"
    )
