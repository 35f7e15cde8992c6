"""Values in the database that the service cannot have stored: the error names the table and the row."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.toolkit_service.queue.conftest import Service, serving
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import IndexSpec

LISTINGS = (
    "/v2/logs",
    "/v2/dlq",
    "/v2/workflows/dlq",
    "/v2/workflows/dlq?messageId=msg_1",
    "/v2/workflows/logs",
    "/v2/schedules",
    "/v2/topics",
    "/v2/queues",
    "/v2/flowControl",
    "/",
)
DAMAGES: dict[str, tuple[Any, ...]] = {
    "INTEGER": ("text", b"\xff", 1.5),
    "TEXT": (b"\xff\xfe",),
    "JSON": ("{", "[1]", "", "{}", "null", b"\xff"),
    "BLOB": ("text", b"\xff", b"", 5),
}
JSON_COLUMNS = (
    ("dlq", "entry"),
    ("events", "entry"),
    ("runs", "labels"),
    ("schedules", "last_messages"),
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path]]:
    """A queue with a row in most tables, and its file."""
    folder = tmp_path_factory.mktemp("damaged")
    with serving(folder) as service:
        nobody = "http://127.0.0.1:9/x"
        service.publish(
            nobody, Retries="0", Failure_Callback=nobody, Failure_Callback_Retries="0"
        )
        service.wait(service.dlq)
        service.publish(
            nobody,
            Delay="1d",
            Flow_Control_Key="key",
            Flow_Control_Value="parallelism=2",
        )
        trigger = {"Service-Retries": "0", "Service-Failure-Callback": nobody}
        service.http.post(
            f"/v2/trigger/{nobody}", headers=trigger, content=b"{}"
        ).raise_for_status()
        service.wait(lambda: service.dlq("workflows/dlq"))
        service.http.post(
            f"/v2/schedules/{nobody}", headers={"Service-Cron": "* * * * *"}
        ).raise_for_status()
        service.http.post(
            "/v2/topics/group/endpoints", json={"endpoints": [{"url": nobody}]}
        ).raise_for_status()
        service.http.post(
            "/v2/queues", json={"queueName": "line", "parallelism": 1}
        ).raise_for_status()
        service.http.post("/v2/flowControl/key/pause").raise_for_status()
        yield service, folder / "queue" / "queue.sqlite"


@contextmanager
def damaged(file: Path, table: str, column: str, value: object) -> Iterator[bool]:
    """Put a value in the newest row of a table; afterwards the row is as before. False if it has none."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        key = str(
            database.execute(
                f"SELECT name FROM pragma_table_info('{table}')"  # noqa: S608 - names of the tables
            ).fetchone()[0]
        )
        stored = f"SELECT {key}, {column} FROM {table} ORDER BY {key} DESC LIMIT 1"  # noqa: S608 - names of the tables
        before = database.execute(stored).fetchone()
        if before is None:
            yield False
            return
        change = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"  # noqa: S608 - names of the tables
        database.execute(change, (value, before[0]))
        try:
            yield True
        finally:
            database.execute(change, (before[1], before[0]))


@pytest.mark.slow
def test_each_damaged_value_of_the_queue_is_named(filled: tuple[Service, Path]) -> None:
    """A listing that a value breaks names its table and column; no listing ends as an internal error."""
    service, file = filled
    with closing(sqlite3.connect(file)) as database:
        tables = [
            name
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        ]
        columns = [
            (table, row[1], row[2])
            for table in tables
            if table != "kept" and not table.startswith("sqlite")
            for row in database.execute(f"PRAGMA table_info({table})")
            if not row[5]
        ]
    named = set()
    for table, column, declared in columns:
        kind = "JSON" if (table, column) in JSON_COLUMNS else declared
        for value in DAMAGES[kind]:
            with damaged(file, table, column, value) as is_damaged:
                for path in LISTINGS if is_damaged else ():
                    response = service.http.get(path)
                    if response.status_code == 200:
                        continue
                    error = response.json()["error"]
                    assert "queue.sqlite" in error, (table, column, value, path, error)
                    assert repr(table) in error, (table, column, value, path, error)
                    assert repr(column) in error, (table, column, value, path, error)
                    named.add((table, column))
    assert (
        set(JSON_COLUMNS) | {("schedules", "spec"), ("queues", "parallelism")} <= named
    )
    assert {service.http.get(path).status_code for path in LISTINGS} == {200}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("metadata", "{"),
        ("metadata", "[1]"),
        ("metadata", b"\xff"),
        ("data", b"\xff\xfe"),
    ],
    ids=["cut JSON", "an array", "bytes as metadata", "bytes as data"],
)
def test_each_damaged_value_of_an_index_is_named(
    tmp_path: Path, column: str, value: object
) -> None:
    """Reading such a row names the file, the column and the row; the other rows are still served."""
    folder = tmp_path / "vectors"
    registry = IndexRegistry(folder)
    index = registry.create(IndexSpec.parse("plain:dense:2:COSINE"))
    index.upsert(
        [
            {"id": str(row), "vector": [row, 1], "metadata": {"n": row}, "data": "x"}
            for row in range(5)
        ]
    )
    registry.close()
    with closing(
        sqlite3.connect(folder / "plain.sqlite", isolation_level=None)
    ) as database:
        database.execute(f"UPDATE vectors SET {column} = ? WHERE id = '3'", (value,))  # noqa: S608 - names from above
    with serving(tmp_path) as service:
        query = {
            "vector": [1, 1],
            "topK": 5,
            "includeMetadata": True,
            "includeData": True,
        }
        for path, body in (
            ("fetch", {"ids": ["3"], "includeMetadata": True, "includeData": True}),
            (
                "range",
                {
                    "cursor": "0",
                    "limit": 10,
                    "includeMetadata": True,
                    "includeData": True,
                },
            ),
            ("query", query),
        ):
            response = service.http.post(f"/vector/plain/{path}", json=body)
            assert response.status_code == 500
            error = response.json()["error"]
            assert "vectors/plain.sqlite" in error
            assert (
                f"{column!r} of the table 'vectors', in the row with sequence = 4"
                in error
            )
        rest = service.http.post(
            "/vector/plain/fetch", json={"ids": ["2", "4"], "includeMetadata": True}
        )
        assert [row["metadata"] for row in rest.json()["result"]] == [
            {"n": 2},
            {"n": 4},
        ]


def test_a_damaged_message_does_not_stop_the_others(
    filled: tuple[Service, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the row once, and messages that come after it are delivered."""
    service, file = filled
    nobody = "http://127.0.0.1:9/x"
    last = service.publish(nobody, Delay="1d", Retries="0")["messageId"]
    with caplog.at_level(logging.ERROR), damaged(file, "messages", "spec", b"\xc1"):
        ids = [service.publish(nobody, Retries="0")["messageId"] for _ in range(3)]
        service.clock.advance(seconds=2 * 86_400)
        service.wait(
            lambda: {entry["messageId"] for entry in service.dlq()} >= set(ids)
        )
        lines = service.wait(
            lambda: [line for line in caplog.messages if "'messages'" in line]
        )
    assert len(lines) == 1
    assert "'spec'" in lines[0]
    assert "seq = " in lines[0]
    assert last not in {entry["messageId"] for entry in service.dlq()}
