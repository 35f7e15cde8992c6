"""The database of an index: after every kind of change, kill and damage."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import LocalServiceError
from toolkit_service.vectors.index_database import IndexDatabase, IndexRow
from toolkit_service.vectors.specs import IndexSpec

SPEC = IndexSpec.parse("plain:dense:3:COSINE")
DEFAULT = 1
"""Key of the default namespace."""


def row(name: str, first: float, metadata: str | None = None) -> IndexRow:
    return IndexRow(
        name, np.array([first, -first, 0.5], dtype=np.float32), metadata, None
    )


def shown(database: IndexDatabase, key: int = DEFAULT) -> dict[str, float]:
    """The first number of each row's vector, read in each way there is, which must agree."""
    batches = [*database.vectors(key)]
    scanned = {
        name: float(item[0])
        for ids, _, vectors in batches
        for name, item in zip(ids, vectors, strict=True)
    }
    page = {
        item.id: float(item.vector[0]) for item in database.page(key, 0, 10_000, "")
    }
    actual = {
        name: float(item.vector[0])
        for name in scanned
        if (item := database.find(key, name))
    }
    assert scanned == page == actual
    assert list(scanned) == list(page)
    return page


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "plain.sqlite"
    IndexDatabase.make(made, SPEC)
    return made


@contextmanager
def opened(path: Path) -> Iterator[IndexDatabase]:
    database = IndexDatabase(path)
    try:
        yield database
    finally:
        database.close()


class Stop(Exception):  # noqa: N818 - it ends a change, and is no error
    """Ends a change halfway."""


def stop() -> None:
    raise Stop


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "put", "put", "remove", "clear", "fail", "reopen", "drop"]
        ),
        st.sampled_from(["", "other"]),
        st.lists(st.integers(0, 30), max_size=12),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_the_database_holds_what_a_dictionary_holds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, list[int]]]
) -> None:
    """Put, removed, cleared, dropped, rolled back or reopened: each row has its own vector."""
    path = tmp_path_factory.mktemp("model") / "plain.sqlite"
    IndexDatabase.make(path, SPEC)
    database, plain = IndexDatabase(path), {"": dict[str, float]()}
    for turn, (what, name, numbers) in enumerate(steps):
        keys = database.namespaces()
        rows = [row(f"r{number}", turn * 100 + number) for number in numbers]
        if what == "reopen":
            database.close()
            database = IndexDatabase(path)
        elif what == "drop":
            if name and name in keys:
                with database.transaction():
                    database.drop_namespace(keys[name])
                del plain[name]
        elif what == "put":
            with database.transaction():
                key = keys[name] if name in keys else database.add_namespace(name)
                database.put(key, rows)
            plain.setdefault(name, {}).update(
                {item.id: float(item.vector[0]) for item in rows}
            )
        elif name in keys:
            try:
                with database.transaction():
                    if what == "clear":
                        database.clear(keys[name])
                        database.put(keys[name], rows)
                        plain[name] = {item.id: float(item.vector[0]) for item in rows}
                    else:
                        database.remove(keys[name], [item.id for item in rows])
                        if what == "fail":
                            database.put(keys[name], rows)
                            stop()
                        for item in rows:
                            plain[name].pop(item.id, None)
            except Stop:
                pass
        assert {
            name: shown(database, key) for name, key in database.namespaces().items()
        } == plain
    database.close()


@pytest.mark.slow
def test_what_was_accepted_survives_a_kill_with_its_own_vectors(path: Path) -> None:
    """A process killed at any time while it writes the same rows again and again leaves whole batches.

    Every batch gives all of its rows one number, in all three numbers of the vector: after the kill all rows
    have the same number, at least the last one that was acknowledged.
    """
    program = f"""
        import numpy as np
        from pathlib import Path
        from toolkit_service.vectors.index_database import IndexDatabase, IndexRow
        database = IndexDatabase(Path({str(path)!r}))
        for turn in range(1, 100_000):
            rows = [IndexRow(f"r{{n}}", np.full(3, turn, dtype=np.float32), None, None) for n in range(40)]
            with database.transaction():
                database.put({DEFAULT}, rows)
                database.remove({DEFAULT}, [f"r{{turn % 40}}"])
            print(turn, flush=True)
    """
    numbers = np.random.default_rng(4)
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for _ in range(int(numbers.integers(3, 60))):
                acknowledged = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        with opened(path) as database:
            vectors = [
                item.vector.tolist() for item in database.page(DEFAULT, 0, 100, "")
            ]
            assert len(vectors) == 39
            (turn,) = {number for vector in vectors for number in vector}
            assert turn in {acknowledged, acknowledged + 1}
            assert set(shown(database).values()) == {turn}


def test_a_transaction_that_fails_changes_nothing(path: Path) -> None:
    """Rows removed, replaced, added and cleared in a transaction that raises are as they were before it."""
    with opened(path) as database:
        with database.transaction():
            database.put(DEFAULT, [row(f"r{n}", n) for n in range(10)])

        def change_and_stop() -> None:
            with database.transaction():
                database.remove(DEFAULT, [f"r{n}" for n in range(5)])
                database.put(DEFAULT, [row(f"r{n}", 50 + n) for n in range(5, 15)])
                database.clear(DEFAULT)
                database.put(DEFAULT, [row(f"t{n}", 70 + n) for n in range(10)])
                stop()

        with pytest.raises(Stop):
            change_and_stop()
        assert shown(database) == {f"r{n}": n for n in range(10)}
        with database.transaction():
            (sequence,) = database.put(DEFAULT, [row("next", 1)])
        assert sequence == 11


def test_replacing_keeps_the_sequence_number_and_uses_up_none(path: Path) -> None:
    """A row that is written again has the number of its first insertion; the next new row the next one."""
    with opened(path) as database, database.transaction():
        assert database.put(DEFAULT, [row("a", 1), row("b", 2), row("a", 3)]) == [
            1,
            2,
            1,
        ]
        assert database.put(DEFAULT, [row("b", 4), row("c", 5)]) == [2, 3]
        database.remove(DEFAULT, ["c", "gone"])
        assert database.put(DEFAULT, [row("c", 6)]) == [4]
        assert database.last_sequence() == 4
        assert shown(database) == {"a": 3, "b": 4, "c": 6}


def test_a_row_that_was_read_does_not_change(path: Path) -> None:
    """Returned rows do not change by later writes."""
    with opened(path) as database:
        with database.transaction():
            database.put(DEFAULT, [row("a", 1)])
        read = database.find(DEFAULT, "a")
        (listed,) = database.page(DEFAULT, 0, 9, "")
        for turn in range(4):
            with database.transaction():
                database.put(DEFAULT, [row("a", 10 + turn)])
        assert read is not None
        assert read.vector.tolist() == listed.vector.tolist() == [1, -1, 0.5]


def test_rewriting_needs_no_more_space(path: Path) -> None:
    """Writing the same rows over and over uses the pages of the versions before."""
    sizes = []
    with opened(path) as database:
        for turn in range(50):
            with database.transaction():
                database.put(DEFAULT, [row(f"r{n}", turn) for n in range(32)])
            sizes.append(database.size())
        assert shown(database) == {f"r{n}": 49 for n in range(32)}
    assert len(set(sizes)) == 1


LAYOUT_2 = """
    CREATE TABLE spec (text TEXT NOT NULL);
    CREATE TABLE namespaces (key INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
    CREATE TABLE vectors (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, namespace INTEGER NOT NULL, place INTEGER NOT NULL,
        id TEXT NOT NULL, metadata TEXT, data TEXT, sparse BLOB, UNIQUE (namespace, id)
    );
    CREATE INDEX by_sequence ON vectors (namespace, sequence, place, id);
    INSERT INTO namespaces (name) VALUES (''), ('other'), ('empty');
    INSERT INTO vectors (namespace, place, id, metadata) VALUES
        (1, 3, 'a', '{"n":1}'), (2, 0, 'a', NULL), (1, 1, 'b', NULL), (1, 0, 'gone', NULL), (1, 2, 'c', NULL);
    DELETE FROM vectors WHERE id = 'gone';
    PRAGMA user_version = 2;
"""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """An index of layout 2: vectors in files beside the database, with unused rows in them."""
    path = tmp_path / "older.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(LAYOUT_2)
        connection.execute("INSERT INTO spec VALUES (?)", (json.dumps(SPEC.to_dict()),))
        connection.commit()
    np.arange(64 * 3, dtype="<f4").tofile(tmp_path / "older.1.f32")
    np.full(64 * 3, 7, dtype="<f4").tofile(tmp_path / "older.2.f32")
    (tmp_path / "older.77.f32").write_bytes(b"of a namespace that was never committed")
    return path


def test_an_index_with_vector_files_is_upgraded(older: Path) -> None:
    """Each row keeps its vector, metadata and sequence number; the files are removed, and it opens again."""
    for _ in range(2):
        with opened(older) as database:
            assert shown(database) == {"a": 9, "b": 3, "c": 6}
            assert shown(database, 2) == {"a": 7}
            assert shown(database, 3) == {}
            assert [item.sequence for item in database.page(DEFAULT, 0, 9, "")] == [
                1,
                3,
                5,
            ]
            assert list(database.metadata(DEFAULT)) == [("a", '{"n":1}')]
            assert not list(older.parent.glob("*.f32"))
    with opened(older) as database, database.transaction():
        assert database.put(DEFAULT, [row("d", 1)]) == [6]


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_file_that_lacks_vectors_is_named(older: Path, damage: str) -> None:
    """Without all of its vector files an index is not upgraded; with them put back it is."""
    vectors = older.with_name("older.1.f32")
    whole = vectors.read_bytes()
    if damage == "missing":
        vectors.unlink()
    else:
        os.truncate(vectors, 3 * 12)
    with pytest.raises(LocalServiceError, match=r"older\.1\.f32"):
        IndexDatabase(older)
    vectors.write_bytes(whole)
    with opened(older) as database:
        assert shown(database) == {"a": 9, "b": 3, "c": 6}


def test_an_index_of_another_layout_is_rejected(path: Path) -> None:
    """Files of another version are not changed, and the message says so."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(LocalServiceError, match="layout 1"):
        IndexDatabase(path)


def test_a_sparse_index_has_no_dense_vectors(tmp_path: Path) -> None:
    """Rows without a dense vector are stored, found and opened again."""
    path = tmp_path / "words.sqlite"
    IndexDatabase.make(path, IndexSpec.parse("words:sparse"))
    nothing = np.empty(0, dtype=np.float32)
    with opened(path) as database, database.transaction():
        database.put(
            DEFAULT, [IndexRow(f"r{n}", nothing, None, "text") for n in range(5)]
        )
    with opened(path) as database:
        assert [item.id for item in database.page(DEFAULT, 0, 9, "")] == [
            f"r{n}" for n in range(5)
        ]
        assert all(
            item.vector.shape == (0,) for item in database.page(DEFAULT, 0, 9, "")
        )
        ((_, _, vectors),) = database.vectors(DEFAULT)
        assert vectors.shape == (5, 0)
