"""The page at ``/`` for people: how many messages wait, how many failed, which indexes there are.

Without the token it shows counts alone, nothing that anybody named or sent.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from toolkit.local.operations import Operation, Query
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.scheduler import Queue
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.specs import IndexSpec
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
    template = Environment(
        loader=PackageLoader("toolkit.local", "templates"),
        finalize=lambda value: Markup(escape_html(value)),  # noqa: S704 - escaped right here
        autoescape=True,
        trim_blocks=True,
    ).get_template("status.html")

    def vectors() -> list[tuple[IndexSpec, int]]:
        return [(spec, sum(registry.get(spec.name).namespaces().values())) for spec in registry.specs()]

    async def page(request: Request, _: Query) -> Response:
        counts = await queue.store.read(_counted, queue.store.expired_before)
        indexes = await run_in_threadpool(vectors)
        counts += [("vector indexes", len(indexes)), ("vectors", sum(count for _, count in indexes))]
        render = partial(template.render, counts=counts, version=__version__)
        return HTMLResponse(render(indexes=indexes if request.scope.get(KNOWN) else None), headers=_HEADERS)

    return Operation("GET", "/", "status", "The status page.", page, str, tag="service", without_token=True)


def _counted(tx: QueueWrite, since: int) -> list[tuple[str, int]]:
    values = {"since": since}
    rows = {words: tx.connection.execute(sql, values).fetchone() for words, sql in _COUNTS.items()}
    return [(words, count) for words, (count,) in rows.items()]
