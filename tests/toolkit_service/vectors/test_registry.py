"""Stored indexes: reopening, crashes, damage, specs, ranges while rows change."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import InputError, LocalServiceError
from toolkit_service.api import ApiError
from toolkit_service.vectors.bodies import (
    DeleteVectors,
    FetchVectors,
    Included,
    IndexQuery,
    RangePage,
)
from toolkit_service.vectors.index_database import IndexDatabase
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import HashingModel, IndexSpec, load_models

ALL = Included(include_metadata=True, include_vectors=True, include_data=True)
PLAIN = IndexSpec.parse("plain:dense:2:COSINE")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], IndexRegistry]]:
    """Opens the registry of one folder, closing the one before."""
    held: list[IndexRegistry] = []

    def open_again() -> IndexRegistry:
        if held:
            held.pop().close()
        held.append(IndexRegistry(tmp_path / "vectors", seed=1))
        return held[-1]

    yield open_again
    for registry in held:
        registry.close()


def test_reopening_keeps_everything(opened: Callable[[], IndexRegistry]) -> None:
    """Vectors, metadata, text, namespaces and order are there after reopening, and are searched."""
    index = opened().create(IndexSpec.parse("docs:dense:256:EUCLIDEAN:hashing"))
    index.upsert(
        [
            {
                "id": "v",
                "vector": np.linspace(0, 1, 256),
                "metadata": {"n": [1, {"x": None}]},
            }
        ]
    )
    index.upsert_data([{"id": "t", "data": "connection refused"}], namespace="texts")
    index.upsert_data(
        [{"id": "u", "data": "disk full", "metadata": {"n": 2}}], namespace="texts"
    )
    index.upsert_data([{"id": "t", "data": "connection reset"}], namespace="texts")
    before = [
        index.range(RangePage(cursor="0", limit=9), namespace=name)
        for name in ("", "texts")
    ]
    again = opened().get("docs")
    assert again.spec == index.spec
    for (cursor, rows), name in zip(before, ("", "texts"), strict=True):
        cursor_again, rows_again = again.range(
            RangePage(cursor="0", limit=9), namespace=name
        )
        assert cursor_again == cursor
        assert [row._replace(vector=None) for row in rows_again] == [
            row._replace(vector=None) for row in rows
        ]
        assert np.array_equal(
            [row.vector for row in rows_again], [row.vector for row in rows]
        )
    (hits,) = again.query(
        [IndexQuery("reset connection", 1, ALL, None)], namespace="texts"
    )
    assert [(hit.row.id, hit.row.data) for hit in hits] == [("t", "connection reset")]
    assert again.namespaces() == {"": 1, "texts": 2}


def test_what_was_accepted_survives_a_kill(tmp_path: Path) -> None:
    """A process killed while upserting leaves every batch it acknowledged, whole, and opens again."""
    program = f"""
        from pathlib import Path
        from toolkit_service.vectors.index_registry import IndexRegistry
        from toolkit_service.vectors.specs import IndexSpec
        index = IndexRegistry(Path({str(tmp_path)!r})).create(IndexSpec.parse("plain:dense:2:COSINE"))
        for batch in range(10_000):
            index.upsert([{{"id": f"{{batch}}-{{n}}", "vector": [batch, n + 1]}} for n in range(5)])
            print(batch, flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(8):
            accepted = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        accepted = max([accepted, *map(int, process.stdout.read().split())])
    registry = IndexRegistry(tmp_path)
    count = registry.get("plain").namespaces()[""]
    registry.close()
    assert count % 5 == 0
    assert count >= 5 * (accepted + 1)


def test_what_fails_halfway_is_not_written(tmp_path: Path) -> None:
    """An error between two writes rolls both back, and the file can be written again."""
    path = tmp_path / "plain.sqlite"
    IndexDatabase.make(path, PLAIN)
    database = IndexDatabase(path)

    def fail_halfway() -> None:
        with database.transaction():
            database.add_namespace("twice")
            database.add_namespace("twice")  # the name is taken

    with pytest.raises(sqlite3.IntegrityError):
        fail_halfway()
    assert list(database.namespaces()) == [""]
    with database.transaction():
        database.add_namespace("whole")
    assert list(database.namespaces()) == ["", "whole"]
    database.close()


def test_a_second_process_cannot_open_it(
    tmp_path: Path, opened: Callable[[], IndexRegistry]
) -> None:
    """Two registries on one folder would see different rows: the second is an error."""
    opened().create(PLAIN)
    with pytest.raises(LocalServiceError, match="no other process"):
        IndexRegistry(tmp_path / "vectors")


def test_a_file_that_is_no_index_is_named(tmp_path: Path) -> None:
    """A damaged or foreign file is a LocalServiceError with its name, and nothing stays open."""
    (tmp_path / "broken.sqlite").write_bytes(
        b"not a database, but long enough to be looked at as one" * 20
    )
    with pytest.raises(LocalServiceError, match=r"broken\.sqlite"):
        IndexRegistry(tmp_path)
    (tmp_path / "broken.sqlite").unlink()
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    with pytest.raises(LocalServiceError, match=r"empty\.sqlite"):
        IndexRegistry(tmp_path)


def test_a_draft_left_by_a_crash_is_no_index(tmp_path: Path) -> None:
    """An index that was not made to its end is not there, and its name can be used."""
    (tmp_path / "plain.sqlite.new").write_bytes(b"half")
    registry = IndexRegistry(tmp_path)
    assert registry.specs() == []
    registry.create(PLAIN)
    assert registry.specs() == [PLAIN]
    registry.close()


def test_files_are_for_this_user_only(tmp_path: Path) -> None:
    """The folder is 0700 and every file in it 0600."""
    registry = IndexRegistry(tmp_path / "vectors")
    registry.create(PLAIN).upsert([{"id": "a", "vector": [1, 2]}])
    assert stat.S_IMODE((tmp_path / "vectors").stat().st_mode) == 0o700
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "vectors").iterdir()
    }
    assert set(modes.values()) == {0o600}, modes
    registry.close()


def test_create_returns_the_same_index_or_raises(
    opened: Callable[[], IndexRegistry],
) -> None:
    """The same spec returns the same index; another under its name, or an unknown model, is an InputError."""
    registry = opened()
    assert registry.create(PLAIN) is registry.create(PLAIN)
    with pytest.raises(InputError, match=r"dimension=3.*dimension=2"):
        registry.create(IndexSpec.parse("plain:dense:3:COSINE"))
    with pytest.raises(InputError, match="hashing"):
        registry.create(IndexSpec.parse("other:dense:3:COSINE:no-such-model"))
    assert [spec.name for spec in registry.specs()] == ["plain"]
    with pytest.raises(ApiError, match="plain"):
        registry.get("other")


def test_an_invalid_row_leaves_nothing_of_its_batch(
    opened: Callable[[], IndexRegistry],
) -> None:
    """With one bad row nothing of the batch is written, and its namespace is not made."""
    index = opened().create(PLAIN)
    with pytest.raises(ApiError, match=r"row 1: vector\[1\]"):
        index.upsert(
            [{"id": "a", "vector": [1, 2]}, {"id": "b", "vector": [1, float("nan")]}],
            namespace="new",
        )
    assert index.namespaces() == {"": 0}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["", "a", "ab"]))
def test_range_is_complete_and_unique_while_rows_come_and_go(
    tmp_path_factory: pytest.TempPathFactory, seed: int, prefix: str
) -> None:
    """Rows present throughout are returned once; nothing is returned twice; for any page size."""
    numbers = random.Random(seed)
    registry = IndexRegistry(tmp_path_factory.mktemp("range"))
    index = registry.create(PLAIN)
    names = [numbers.choice(["a", "ab", "b"]) + str(number) for number in range(60)]
    index.upsert([{"id": name, "vector": [1, 2]} for name in names])
    always, seen, start = set(names), [], 0
    while True:
        cursor, rows = index.range(
            RangePage(cursor=str(start), limit=numbers.randint(1, 9), prefix=prefix)
        )
        seen += [row.id for row in rows]
        if cursor == "":
            break
        start = int(cursor)
        gone = numbers.sample(sorted(always), numbers.randint(0, 3))
        index.delete(DeleteVectors(ids=gone))
        always -= set(gone)
        index.upsert(
            [
                {
                    "id": f"{numbers.choice('ab')}new{numbers.randint(0, 20)}",
                    "vector": [3, 4],
                }
            ]
        )
        index.upsert(
            [
                {"id": name, "vector": [5, 6]}
                for name in numbers.sample(sorted(always), 2)
            ]
        )
    registry.close()
    assert {name for name in always if name.startswith(prefix)} <= set(seen)
    assert all(name.startswith(prefix) for name in seen)
    assert len(seen) == len(set(seen))


def test_batches_do_not_slow_down(opened: Callable[[], IndexRegistry]) -> None:
    """Capacity doubles: 3,000 rows cause a few copies, not one a row."""
    index = opened().create(PLAIN)
    for batch in range(30):
        index.upsert([{"id": f"{batch}-{n}", "vector": [n, batch]} for n in range(100)])
    rows = index._namespaces[""].rows
    assert len(rows) == 3000
    assert rows._norms.shape == (3200,)


def test_random_is_seeded(tmp_path: Path) -> None:
    """The same seed shows the same rows."""
    shown = []
    for _ in range(2):
        registry = IndexRegistry(tmp_path, seed=5)
        index = registry.create(PLAIN)
        index.upsert([{"id": str(n), "vector": [1, n]} for n in range(50)])
        shown.append([row.id for _ in range(5) if (row := index.random())])
        registry.close()
    assert shown[0] == shown[1]
    assert len(set(shown[0])) > 1


def test_fetch_of_many_ids(opened: Callable[[], IndexRegistry]) -> None:
    """Fetching more ids than SQLite's limit of variables returns each at its position."""
    index = opened().create(PLAIN)
    index.upsert([{"id": str(n), "vector": [1, n]} for n in range(2000)])
    wanted = tuple(str(n) for n in range(1999, -500, -1))
    actual = index.fetch(FetchVectors(ids=wanted))
    assert [row and row.id for row in actual] == [
        name if int(name) >= 0 else None for name in wanted
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("docs", "NAME:dense"),
        ("docs:dense:256", "NAME:dense"),
        ("docs:dense:256:COSINE:hashing:more", "NAME:dense"),
        ("docs:dense:0:COSINE", "1 to 5376"),
        ("docs:dense:5377:COSINE", "1 to 5376"),
        ("docs:dense:many:COSINE", "'many'"),
        ("docs:dense:2:MANHATTAN", "DOT_PRODUCT"),
        ("docs:flat:2:COSINE", "'flat'"),
        ("../docs:dense:2:COSINE", "letters"),
        (":dense:2:COSINE", "letters"),
        ("docs:dense:2:COSINE:", "model"),
        ("docs:dense:2:COSINE:hashing+bm25", "one model"),
        ("docs:hybrid:2:COSINE:hashing", "two names"),
        ("docs:hybrid:2", "NAME:hybrid"),
        ("docs:hybrid:0:COSINE", "1 to 5376"),
        ("words:sparse:", "model"),
        ("words:sparse:256:COSINE", "no dimension"),
        ("words:sparse::COSINE:bm25", "no dimension"),
        ("words:sparse:::", "model"),
    ],
)
def test_specs_that_cannot_be_read_say_why(text: str, says: str) -> None:
    """A wrong spec is an InputError that names what is wrong and shows an example."""
    with pytest.raises(InputError, match=says) as caught:
        IndexSpec.parse(text)
    assert "docs:dense:256:COSINE:hashing" in str(caught.value)


def test_specs_are_read() -> None:
    """All parts of a spec are read, the similarity in any case."""
    assert IndexSpec.parse("w:dense:5376:dot_product") == IndexSpec(
        "w", 5376, "DOT_PRODUCT"
    )
    assert IndexSpec.parse("w:sparse") == IndexSpec("w", kind="sparse")
    for text in ("w:sparse:bm25", "w:sparse:::bm25"):
        assert IndexSpec.parse(text) == IndexSpec("w", model="bm25", kind="sparse")
    both = IndexSpec.parse("docs:hybrid:256:cosine:hashing+bm25")
    assert both == IndexSpec("docs", 256, "COSINE", "hashing+bm25", "hybrid")
    assert IndexSpec.from_dict(both.to_dict()) == both
    spec = IndexSpec.parse("docs:dense:8:EUCLIDEAN:hashing")
    assert spec == IndexSpec("docs", 8, "EUCLIDEAN", "hashing")
    assert IndexSpec.from_dict(spec.to_dict()) == spec


def test_hashing_model_is_stable_and_near_for_similar_texts() -> None:
    """The model's numbers never change, vectors have length 1, and similar texts are nearer than others."""
    model = load_models(IndexSpec.parse("docs:dense:384:COSINE:hashing")).dense
    assert isinstance(model, HashingModel)
    texts = [
        "Connection refused by host",
        "the host refused the connection",
        "disk quota exceeded",
        "!!!",
        "café",
    ]
    vectors = model.embed(texts, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(5), abs=1e-6)
    assert vectors[0] @ vectors[1] > 0.5
    assert abs(vectors[0] @ vectors[2]) < 0.2
    assert np.array_equal(model.embed(texts[::-1], 384)[::-1], vectors)
    assert model.embed(["cafe\u0301 "], 384)[0] @ vectors[4] == pytest.approx(1)
    assert model.embed(["alpha beta"], 4)[0].tolist() == pytest.approx(
        [-0.7040734, -0.6801388, 0.0239347, 0.2027782]
    )


@settings(deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=5),
    st.integers(1, 40),
)
def test_hashing_model_takes_any_text(texts: list[str], dimension: int) -> None:
    """For any text and dimension, vectors are finite and of length 1."""
    vectors = HashingModel().embed(texts, dimension)
    assert vectors.shape == (len(texts), dimension)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(
        np.ones(len(texts)), abs=1e-6
    )
