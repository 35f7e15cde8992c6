"""The database of an index and the files of its vectors: together, and after every kind of end."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import LocalServiceError
from toolkit.local.vectors import matrix as matrix_module
from toolkit.local.vectors.database import IndexDatabase, NewRow
from toolkit.local.vectors.specs import IndexSpec

SPEC = IndexSpec.parse("plain:dense:3:COSINE")
DEFAULT = 1
"""Key of the default namespace."""


def row(name: str, first: float, metadata: str | None = None) -> NewRow:
    return NewRow(name, np.array([first, -first, 0.5], dtype=np.float32), metadata, None)


def shown(database: IndexDatabase, key: int = DEFAULT) -> dict[str, float]:
    """The first number of each row's vector, read in each way there is, which must agree."""
    held = database.held(key)
    vectors = database.matrix(key, int(held.places.max(initial=-1)) + 1)[held.places]
    by_place = {name: float(vector[0]) for name, vector in zip(held.ids, vectors, strict=True)}
    page = {one.id: float(one.vector[0]) for one in database.page(key, 0, 10_000, "")}
    found = {name: float(one.vector[0]) for name in held.ids if (one := database.find(key, name))}
    assert by_place == page == found
    assert len(set(held.places.tolist())) == len(held.ids)
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
        st.sampled_from(["put", "put", "put", "remove", "clear", "fail", "reopen", "drop"]),
        st.sampled_from(["", "other"]),
        st.lists(st.integers(0, 30), max_size=12),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_the_files_hold_what_a_dictionary_holds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, list[int]]]
) -> None:
    """Put, taken out, emptied, dropped, given up halfway or reopened: each row has its own vector."""
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
                with database.changing():
                    database.drop_namespace(keys[name])
                del plain[name]
        elif what == "put":
            with database.changing():
                key = keys[name] if name in keys else database.add_namespace(name)
                database.put(key, rows)
            plain.setdefault(name, {}).update({one.id: float(one.vector[0]) for one in rows})
        elif name in keys:
            try:
                with database.changing():
                    if what == "clear":
                        database.clear(keys[name])
                        database.put(keys[name], rows)
                        plain[name] = {one.id: float(one.vector[0]) for one in rows}
                    else:
                        database.remove(keys[name], [one.id for one in rows])
                        if what == "fail":
                            database.put(keys[name], rows)
                            stop()
                        for one in rows:
                            plain[name].pop(one.id, None)
            except Stop:
                pass
        assert {name: shown(database, key) for name, key in database.namespaces().items()} == plain
    database.close()


def test_what_was_accepted_survives_a_kill_with_its_own_vectors(path: Path) -> None:
    """A process killed at any moment while it writes the same rows again and again leaves whole batches.

    Every batch gives all of its rows one number, in all three places of the vector: after the kill all rows
    have the same number, at least the last one that was acknowledged.
    """
    program = f"""
        import numpy as np
        from pathlib import Path
        from toolkit.local.vectors.database import IndexDatabase, NewRow
        database = IndexDatabase(Path({str(path)!r}))
        for turn in range(1, 100_000):
            rows = [NewRow(f"r{{n}}", np.full(3, turn, dtype=np.float32), None, None) for n in range(40)]
            with database.changing():
                database.put({DEFAULT}, rows)
                database.remove({DEFAULT}, [f"r{{turn % 40}}"])
            print(turn, flush=True)
    """
    numbers = np.random.default_rng(4)
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(int(numbers.integers(3, 60))):
                acknowledged = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        with opened(path) as database:
            vectors = [one.vector.tolist() for one in database.page(DEFAULT, 0, 100, "")]
            assert len(vectors) == 39
            (turn,) = {number for vector in vectors for number in vector}
            assert turn in {acknowledged, acknowledged + 1}
            assert set(shown(database).values()) == {turn}


def test_a_place_is_not_written_again_before_its_row_has_gone(path: Path) -> None:
    """Whatever a change does, the vectors that were there before it lie untouched until it is committed."""
    with opened(path) as database:
        with database.changing():
            database.put(DEFAULT, [row(f"r{n}", n) for n in range(10)])
        before = database.matrix(DEFAULT, 10).copy()

        def change_and_stop() -> None:
            with database.changing():
                database.remove(DEFAULT, [f"r{n}" for n in range(10)])
                database.put(DEFAULT, [row(f"s{n}", 50 + n) for n in range(10)])
                database.put(DEFAULT, [row(f"s{n}", 60 + n) for n in range(10)])
                database.clear(DEFAULT)
                database.put(DEFAULT, [row(f"t{n}", 70 + n) for n in range(10)])
                assert np.array_equal(database.matrix(DEFAULT, 10), before)
                stop()

        with pytest.raises(Stop):
            change_and_stop()
        assert shown(database) == {f"r{n}": n for n in range(10)}
        with database.changing():  # the places that were given up are used now
            database.put(DEFAULT, [row(f"u{n}", n) for n in range(20)])
        assert int(database.held(DEFAULT).places.max()) == 39


def test_what_is_replaced_within_a_change_is_kept_until_its_end(path: Path) -> None:
    """Rows that are written again leave their places to no other row of the same change."""
    with opened(path) as database:
        with database.changing():
            database.put(DEFAULT, [row(f"r{n}", n) for n in range(10)])
        before = database.matrix(DEFAULT, 10).copy()
        with database.changing():
            database.put(DEFAULT, [row(f"r{n}", 30 + n) for n in range(10)])
            database.put(DEFAULT, [row(f"s{n}", 50 + n) for n in range(10)])
            assert np.array_equal(database.matrix(DEFAULT, 10), before)
        expected = {f"r{n}": 30 + n for n in range(10)} | {f"s{n}": 50 + n for n in range(10)}
        assert shown(database) == expected


def test_a_row_that_was_read_does_not_change(path: Path) -> None:
    """What was handed out stays as it was, whoever gets its place afterwards."""
    with opened(path) as database:
        with database.changing():
            database.put(DEFAULT, [row("a", 1)])
        read = database.find(DEFAULT, "a")
        (listed,) = database.page(DEFAULT, 0, 9, "")
        for turn in range(4):
            with database.changing():
                database.put(DEFAULT, [row("a", 10 + turn)])
        assert read is not None
        assert read.vector.tolist() == listed.vector.tolist() == [1, -1, 0.5]


def test_writing_again_takes_no_more_room(path: Path) -> None:
    """Writing the same rows over and over uses the places of the versions before."""
    with opened(path) as database:
        for turn in range(50):
            with database.changing():
                database.put(DEFAULT, [row(f"r{n}", turn) for n in range(32)])
        assert shown(database) == {f"r{n}": 49 for n in range(32)}
    assert path.with_name("plain.1.f32").stat().st_size == 64 * 12


def test_many_holes_are_closed_when_reopened(path: Path) -> None:
    """A file of which most rows went is shortened at the next opening, and every row keeps its vector."""
    with opened(path) as database:
        with database.changing():
            database.put(DEFAULT, [row(f"r{n}", n) for n in range(3000)])
        with database.changing():
            database.remove(DEFAULT, [f"r{n}" for n in range(3000) if n % 10])
        wide = database.size()
        # as a process leaves it that is killed while it moves vectors: free places hold anything
        free = sorted(set(range(3000)) - set(database.held(DEFAULT).places.tolist()))
        database._files.write(DEFAULT, free, np.full((len(free), 3), np.nan, dtype=np.float32))
    for _ in range(2):
        with opened(path) as database:
            assert shown(database) == {f"r{n}": n for n in range(0, 3000, 10)}
            assert int(database.held(DEFAULT).places.max()) == 299
            assert [one.id for one in database.page(DEFAULT, 0, 3, "")] == ["r0", "r10", "r20"]
            assert database.size() <= wide - 2700 * 12
    assert path.with_name("plain.1.f32").stat().st_size == 300 * 12


def test_files_of_namespaces_that_went_go_too(path: Path) -> None:
    """Emptying a namespace empties its file; dropping it, or a crash before it was committed, removes it."""
    stray = path.with_name("plain.77.f32")
    stray.write_bytes(b"of a namespace that was never committed")
    other = path.with_name("other.77.f32")
    other.write_bytes(b"of another index")
    with opened(path) as database:
        assert not stray.exists()
        assert other.exists()
        with database.changing():
            key = database.add_namespace("n")
            database.put(key, [row("a", 1)])
            database.put(DEFAULT, [row("a", 2)])
        with database.changing():
            database.clear(DEFAULT)
        assert path.with_name("plain.1.f32").stat().st_size == 0
        assert shown(database) == {}
        assert shown(database, key) == {"a": 1}
        with database.changing():
            database.drop_namespace(key)
        assert not path.with_name(f"plain.{key}.f32").exists()
        with database.changing():
            database.put(DEFAULT, [row("b", 3)])
        assert shown(database) == {"b": 3}


def test_more_namespaces_than_files_are_kept_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading from many namespaces in turn holds few files open, and gives each its own vectors."""
    monkeypatch.setattr(matrix_module, "_MOST_OPEN", 5)
    with opened(path) as database:
        with database.changing():
            keys = [database.add_namespace(f"n{number}") for number in range(30)]
            for key in keys:
                database.put(key, [row("a", key)])
        for _ in range(2):
            assert [shown(database, key)["a"] for key in keys] == keys
        assert len(database._files._mapped) == 5


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_file_that_lacks_vectors_is_named(path: Path, damage: str) -> None:
    """A vector file that is gone or too short is a LocalServiceError with its name, not a crash later on."""
    with opened(path) as database, database.changing():
        database.put(DEFAULT, [row(f"r{n}", n) for n in range(9)])
    vectors = path.with_name("plain.1.f32")
    if damage == "missing":
        vectors.unlink()
    else:
        os.truncate(vectors, 8 * 12)
    with pytest.raises(LocalServiceError, match=r"plain\.1\.f32"):
        IndexDatabase(path)


def test_an_index_of_another_layout_is_refused(path: Path) -> None:
    """Files of another version are left as they are, and the message says so."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(LocalServiceError, match="layout 1"):
        IndexDatabase(path)


def test_a_sparse_index_has_no_vector_files(tmp_path: Path) -> None:
    """Rows without a dense vector are kept, found and opened again without a matrix file."""
    path = tmp_path / "words.sqlite"
    IndexDatabase.make(path, IndexSpec.parse("words:sparse"))
    nothing = np.empty(0, dtype=np.float32)
    with opened(path) as database, database.changing():
        database.put(DEFAULT, [NewRow(f"r{n}", nothing, None, "text") for n in range(5)])
    with opened(path) as database:
        assert [one.id for one in database.page(DEFAULT, 0, 9, "")] == [f"r{n}" for n in range(5)]
        assert all(one.vector.shape == (0,) for one in database.page(DEFAULT, 0, 9, ""))
        assert database.matrix(DEFAULT, 5).shape == (5, 0)
    assert not list(tmp_path.glob("*.f32"))
