"""After a crash: acknowledged writes are stored, changes are atomic, and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.publishing import read_publish
from toolkit_service.queue.state import Store
from toolkit_service.queue.steps import accept

CRASHING = Path(__file__).with_name("crashing_process.py")
SOAK = Path(__file__).parents[2] / "soak" / "soak.py"
URL = "http://127.0.0.1:9/a"

# the fixtures' classes live in conftest; only their shapes matter here
Service = Any
Server = Any


def publish(store: Store, count: int, *, now_ms: int = 1_800_000_000_000) -> list[str]:
    """Store messages in one transaction; returns their ids."""
    request = [read_publish(URL, [], b"body %d" % number) for number in range(count)]
    responses = store.database.submit(
        lambda connection: [
            accept(QueueWrite(connection, now_ms), each, caller_ip="")
            for each in request
        ]
    ).result()
    return [response["messageId"] for response in responses]


@pytest.mark.slow
def test_twenty_kills_lose_nothing() -> None:
    """The soak, briefly: killed at random times under load; it checks everything it counts."""
    command = [
        sys.executable,
        str(SOAK),
        "--cycles",
        "20",
        "--messages",
        "800",
        "--minutes",
        "4",
    ]
    soak = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=280
    )
    assert soak.returncode == 0, soak.stdout + soak.stderr
    accepted = re.search(r"([\d,]+) messages accepted", soak.stdout)
    assert accepted
    assert int(accepted[1].replace(",", "")) >= 800


@pytest.mark.parametrize("change", ["publish", "delivered", "given up", "run given up"])
def test_a_change_that_is_killed_at_any_statement_is_there_wholly_or_not_at_all(
    tmp_path: Path, change: str
) -> None:
    """Messages, events, callbacks, DLQ entries, runs and steps of one change are stored atomically."""
    child = subprocess.run(
        [sys.executable, str(CRASHING), str(tmp_path), change],
        capture_output=True,
        text=True,
        check=True,
    )
    before, *stopped, after = map(json.loads, child.stdout.splitlines())
    assert len(stopped) >= 5
    assert before != after
    assert [state for state in stopped if state not in (before, after)] == []
    assert before in stopped


def test_every_commit_is_flushed_to_disk(tmp_path: Path) -> None:
    """Both connections are in WAL mode; the writing one flushes the log with each commit (FULL is 2)."""
    store = Store(tmp_path)
    for pragma, expected in (("journal_mode", "wal"), ("synchronous", 2)):
        actual = store.database.submit(
            lambda connection, pragma=pragma: connection.execute(
                f"PRAGMA {pragma}"
            ).fetchone()[0]
        ).result()
        assert actual == expected
    store.close()


def test_no_response_is_sent_before_the_commit(tmp_path: Path) -> None:
    """When COMMIT begins, no thread and no task that waits for its write has returned."""
    store, answered_at_commit = Store(tmp_path), []

    async def both() -> None:
        task = asyncio.ensure_future(store.database.write(lambda _: "task"))
        await asyncio.sleep(0)
        thread = store.database.submit(lambda _: "thread")

        def watch(statement: str) -> None:
            if statement == "COMMIT":
                answered_at_commit.append((task.done(), thread.done()))

        store.database._writing.set_trace_callback(watch)
        again = (
            store.database.write(lambda _: "again"),
            store.database.write(lambda _: "too"),
        )
        assert await asyncio.gather(*again) == ["again", "too"]
        assert await task == "task"
        assert thread.result() == "thread"

    asyncio.run(both())
    store.close()
    assert answered_at_commit


def test_a_full_disk_refuses_and_loses_nothing(
    service: Service, server: Server
) -> None:
    """While the disk is full, publishes get 500; what was accepted before is delivered afterwards."""
    server.always(b"fine")

    def room(pages: int) -> None:
        service.store.database.submit(
            lambda connection: connection.execute(
                f"PRAGMA max_page_count = {pages}"
            ).fetchall()
        ).result()

    accepted, refused = {}, 0
    room(200)
    while refused < 3:
        body = b"%d " % (len(accepted) + refused) + b"x" * 50_000
        response = service.http.post(
            f"/v2/publish/{server.url}/", content=body, headers={"Service-Delay": "1h"}
        )
        assert response.status_code in (200, 500), response.text
        if response.status_code == 200:
            accepted[response.json()["messageId"]] = body
        refused += response.status_code == 500
    room(1_000_000)
    assert service.publish(f"{server.url}/after")["messageId"]
    service.clock.advance(seconds=3600)
    service.wait(lambda: len(server.requests) > len(accepted))
    arrived = {
        request.headers["Service-Message-Id"]: request.body
        for request in server.requests
        if request.path == "/"
    }
    assert accepted
    assert arrived == accepted


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """A store's files as a kill leaves them, every change still in the log; and each change's message ids."""
    folder = tmp_path_factory.mktemp("killed")
    store = Store(folder / "live")
    published = [publish(store, count) for count in (1, 3, 1, 10, 2, 1, 30, 1)]
    shutil.copytree(folder / "live", folder / "left")
    store.close()
    return folder / "left", published


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(share=st.floats(0, 1), garbage=st.binary(max_size=64))
def test_a_log_that_ends_anywhere_holds_the_first_changes_whole(
    killed: tuple[Path, list[list[str]]],
    tmp_path_factory: pytest.TempPathFactory,
    share: float,
    garbage: bytes,
) -> None:
    """Truncated at any byte, with garbage behind, as after a power cut: no change is partly there."""
    left, published = killed
    copy = shutil.copytree(
        left,
        tmp_path_factory.mktemp("cut") / "queue",
        ignore=shutil.ignore_patterns("*-shm"),
    )
    log = copy / "queue.sqlite-wal"
    whole = log.read_bytes()
    log.write_bytes(whole[: round(share * len(whole))] + garbage)
    store = Store(copy)

    def look(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
        return (
            [
                row["id"]
                for row in connection.execute("SELECT id FROM messages ORDER BY seq")
            ],
            [
                row["message_id"]
                for row in connection.execute(
                    "SELECT message_id FROM events ORDER BY seq"
                )
            ],
        )

    messages, events = store.database.submit(look).result()
    store.close()
    shutil.rmtree(copy.parent)
    prefixes = [list(chain(*published[:count])) for count in range(len(published) + 1)]
    assert messages in prefixes
    assert events == messages
    if share == 1:
        assert messages == prefixes[-1]
