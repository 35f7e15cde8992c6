"""Run a change of the queue's database and end with SIGKILL before its nth statement, for every n there is.

Every line of the output is what a reader finds afterwards: how many rows each table holds, the states of
events, DLQ entries and runs. The first line is what there was before, the last one that of a change that was
not stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.messages import (
    Attempt,
    DestinationResponse,
    Sent,
    decode_message,
)
from toolkit_service.queue.outcomes import record_outcome
from toolkit_service.queue.publishing import read_publish
from toolkit_service.queue.state import Store
from toolkit_service.queue.steps import accept

URL = "http://127.0.0.1:9/a"
NOW = 1_800_000_000_000
ALL = [
    ("Service-Callback", URL), ("Service-Failure-Callback", URL), ("Service-Retries", "0"),
    ("Service-Deduplication-Id", "first"),
]  # fmt: skip
RUN = [
    ("Service-Workflow-RunId", "wfr_1"),
    ("Service-Workflow-Init", "true"),
    *ALL[1:3],
]


def publish(connection: sqlite3.Connection) -> None:
    """Take a batch in: a message that is deduplicated and a run's start."""
    for headers in (
        [*ALL[:3], ("Service-Deduplication-Id", "new")],
        [("Service-Workflow-RunId", "wfr_2"), *RUN[1:]],
    ):
        given = read_publish(URL, headers, b"body")
        accept(QueueWrite(connection, NOW), given, caller_ip="")


def response_recorded(status: int, kind: str) -> Callable[[sqlite3.Connection], None]:
    """Record a response to the message of this kind."""

    def work(connection: sqlite3.Connection) -> None:
        for (spec,) in connection.execute("SELECT spec FROM messages").fetchall():
            message = decode_message(spec)
            if message.kind == kind:
                response = DestinationResponse(status, (), b"response")
                record_outcome(
                    QueueWrite(connection, NOW),
                    Attempt(message, Sent((), b""), response, 0),
                )

    return work


CHANGES = {
    "publish": publish,
    "delivered": response_recorded(200, "message"),
    "given up": response_recorded(500, "message"),
    "run given up": response_recorded(500, "step"),
}


def prepare(folder: Path) -> None:
    """A store with a message and a run."""
    store = Store(folder)

    def work(connection: sqlite3.Connection) -> None:
        for headers in (ALL, RUN):
            accept(
                QueueWrite(connection, NOW),
                read_publish(URL, headers, b"body"),
                caller_ip="",
            )

    store.database.submit(work).result()
    store.close()


def stopped(
    folder: Path, change: Callable[[sqlite3.Connection], None], before: int
) -> bool:
    """Whether the change, made in a child process, was stopped before this statement."""
    child = os.fork()
    if child == 0:
        store, seen = Store(folder), 0

        def count(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen == before:
                os.kill(os.getpid(), signal.SIGKILL)

        store.database._writing.set_trace_callback(count)
        store.database.submit(change).result()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("the change failed")
    return os.WIFSIGNALED(status)


def content(folder: Path) -> str:
    """The content of a store that is opened afterwards."""
    store = Store(folder)

    def look(connection: sqlite3.Connection) -> dict[str, object]:
        rows = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        counts = {
            name: _one_column(connection, f'SELECT count(*) FROM "{name}"')  # noqa: S608 - our own tables
            for (name,) in rows
        }
        states = {
            name: _one_column(connection, f"SELECT state FROM {name} ORDER BY seq")  # noqa: S608 - three names
            for name in ("events", "dlq", "runs")
        }
        return {"rows": counts, "states": states}

    # reads use the writing thread here, so that the process has no second thread when it forks
    shown = json.dumps(store.database.submit(look).result()) + "\n"
    store.close()
    return shown


def _one_column(connection: sqlite3.Connection, query: str) -> list[object]:
    return [value for (value,) in connection.execute(query)]


def main() -> None:
    """Stop the named change everywhere."""
    folder, change = Path(sys.argv[1]), CHANGES[sys.argv[2]]
    prepare(folder / "start")
    sys.stdout.write(content(folder / "start"))
    number, going_on = 0, True
    while going_on:
        number += 1
        copy = shutil.copytree(folder / "start", folder / str(number))
        going_on = stopped(copy, change, number)
        sys.stdout.write(content(copy))


if __name__ == "__main__":
    main()
