"""The database: acknowledged means on disk, a failing write harms no other, reads see committed data."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toolkit.errors import LocalServiceError
from toolkit_service.queue.database import Database
from toolkit_service.queue.state import Store

INSERT = "INSERT INTO kept VALUES (?, ?)"


def names(path: Path) -> set[str]:
    """The content of the file, read by another connection."""
    with sqlite3.connect(path) as connection:
        actual = {name for (name,) in connection.execute("SELECT name FROM kept")}
    connection.close()
    return actual


def test_writes_that_wait_together_all_succeed_but_the_failing_one(
    tmp_path: Path,
) -> None:
    """One of many concurrent writes fails; it leaves nothing behind, the others are all there."""
    database = Database(tmp_path / "q.sqlite")

    async def write_all() -> list[object]:
        def bad(connection: sqlite3.Connection) -> None:
            connection.execute(INSERT, ("half", b""))
            raise ValueError("no")

        works = [
            lambda connection, n=n: connection.execute(INSERT, (f"n{n}", b"")) and None
            for n in range(500)
        ]
        works.insert(250, bad)
        return await asyncio.gather(
            *(database.write(work) for work in works), return_exceptions=True
        )

    outcomes = asyncio.run(write_all())
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [
        ValueError
    ]
    assert names(tmp_path / "q.sqlite") == {f"n{n}" for n in range(500)} | {"version"}
    database.close()


def test_what_was_acknowledged_survives_a_killed_process(tmp_path: Path) -> None:
    """A process that acknowledges each write on its output and is then killed has lost none of them."""
    program = (
        "import sys, pathlib\n"
        "from toolkit_service.queue.database import Database\n"
        "database = Database(pathlib.Path(sys.argv[1]))\n"
        "for n in range(100000):\n"
        "    row = (f'n{n}', b'')\n"
        "    database.submit(lambda c: c.execute('INSERT INTO kept VALUES (?, ?)', row)).result()\n"
        "    print(n, flush=True)\n"
    )
    path = tmp_path / "q.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        acknowledged = [int(child.stdout.readline()) for _ in range(200)]
        child.kill()
    assert {f"n{n}" for n in acknowledged} <= names(path)


def test_reads_see_the_writes_before_them(tmp_path: Path) -> None:
    """A read after an awaited write finds it, from many tasks at once."""
    database = Database(tmp_path / "q.sqlite")

    async def write_and_read(number: int) -> bool:
        await database.write(
            lambda connection: connection.execute(INSERT, (f"n{number}", b""))
        )
        row = await database.read(
            lambda connection: connection.execute(
                "SELECT 1 FROM kept WHERE name = ?", (f"n{number}",)
            ).fetchone()
        )
        return row is not None

    async def many() -> list[bool]:
        return await asyncio.gather(*(write_and_read(number) for number in range(100)))

    assert all(asyncio.run(many()))
    database.close()
    assert "queue-writer" not in {thread.name for thread in threading.enumerate()}


def test_the_file_is_private(tmp_path: Path) -> None:
    """Messages hold secrets: only the owner may read the files."""
    store = Store(tmp_path / "queue")
    store.insert_failures([{"dlqId": "a"}])
    modes = {
        stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "queue").iterdir()
    }
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "queue").stat().st_mode) == 0o700
    store.close()


def test_other_files_and_other_versions_are_refused(tmp_path: Path) -> None:
    """Something that is not a database, and tables of another version, are not touched."""
    (tmp_path / "no.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(LocalServiceError):
        Database(tmp_path / "no.sqlite")
    database = Database(tmp_path / "q.sqlite")
    database.submit(
        lambda connection: connection.execute("UPDATE kept SET value = 99")
    ).result()
    database.close()
    with pytest.raises(LocalServiceError, match="99"):
        Database(tmp_path / "q.sqlite")


def test_keys_are_kept_and_a_rotation_outlives_a_restart(tmp_path: Path) -> None:
    """Generated keys stay; given keys win; the same keys given again do not undo a rotation."""
    store = Store(tmp_path)
    generated = store.signing_keys
    store.close()
    store = Store(tmp_path)
    assert store.signing_keys == generated
    store.close()
    given = ("a" * 32, "b" * 32)
    store = Store(tmp_path, signing_keys=given)
    assert store.signing_keys == given
    rotated = asyncio.run(store.rotate_keys())
    store.close()
    store = Store(tmp_path, signing_keys=given)
    assert store.signing_keys == rotated
    store.close()
