"""Exporting vectors: streamed, whole, and bound to the index."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import SnapshotBindingError, TransportError
from toolkit.snapshots import open_snapshot, read_snapshot, verify_snapshot
from toolkit.snapshots.content_chunks import ChunkRule, WaitingChunks
from toolkit.snapshots.exporting import export_load
from toolkit.snapshots.store import SnapshotStore
from toolkit.tables.schemas import vectors

_KEY = ("namespace", "id")
_CHUNK = 60_000
"""Most bytes of a file in these tests: about 50 rows."""


def _rows(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(start)
    return [
        {
            "namespace": "",
            "id": f"v{number}",
            "vector": [draw.random() for _ in range(8)],
            "data": "text",
        }
        for number in range(start, start + count)
    ]


def _load(made: SimpleNamespace, *pages: list[dict[str, Any]], **options: Any) -> Any:
    return made.load(*pages, schema=vectors(8), key=_KEY, **options)


def test_an_export_holds_every_vector_in_order(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Rows of all pages are returned with the dimension in the type, from us and from plain pyarrow."""
    pages = [_rows(100, start=start) for start in (0, 100, 200)]
    receipt = export_load(_load(made, *pages), store)
    expected = pa.Table.from_pylist(
        [row for page in pages for row in page], schema=vectors(8)
    )
    assert receipt.complete
    assert receipt.rows == 300
    assert pq.read_table(store.path).equals(expected)
    assert open_snapshot(store.path).to_arrow().to_table().equals(expected)
    assert read_snapshot(store.path)["id"].tolist() == expected["id"].to_pylist()
    assert verify_snapshot(store.path).kind == "vectors"


def test_an_export_streams_files(store: SnapshotStore, made: SimpleNamespace) -> None:
    """While pages still come, earlier ones are on the disk already: little is ever waiting."""
    sizes = []

    def watched() -> Iterator[list[dict[str, Any]]]:
        for start in range(0, 2000, 100):
            sizes.append(
                sum(path.stat().st_size for path in store.path.glob("_part*.tmp"))
            )
            yield _rows(100, start=start)

    load = _load(made)
    load.read = lambda _: (
        pa.Table.from_pylist(page, schema=vectors(8)) for page in watched()
    )
    export_load(load, store, chunk_bytes=_CHUNK)
    assert len(set(sizes)) > 5
    assert len(list(store.path.glob("*.parquet"))) > 5


def _files(store: SnapshotStore) -> dict[str, int]:
    """The files of the rows, with the time when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in store.path.glob("*.parquet")}


def _exported(
    made: SimpleNamespace, store: SnapshotStore, rows: list[dict[str, Any]]
) -> tuple[int, int]:
    """Export rows in pages of 100, in small files; return how many files were written, and are there."""
    before = _files(store)
    pages = [rows[start : start + 100] for start in range(0, len(rows), 100)]
    export_load(_load(made, *pages), store, chunk_bytes=_CHUNK)
    after = _files(store)
    assert read_snapshot(store.path)["id"].tolist() == [row["id"] for row in rows]
    return len(after.items() - before.items()), len(after)


def test_an_unchanged_index_writes_the_manifest_alone(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """No other file is made, by an export with other pages, and the receipt is that of the second export."""
    rows = _rows(2000)
    written, files = _exported(made, store, rows)
    assert written == files > 10
    done: list[str] = []
    watched = SnapshotStore(store.path, step=done.append)
    pages = [rows[:700], rows[700:]]
    export_load(_load(made, *pages), watched, chunk_bytes=_CHUNK)
    assert done.count("create file") == 1
    snapshot = open_snapshot(store.path)
    assert (snapshot.generation, snapshot.rows) == (2, 2000)
    assert snapshot.receipt is not None
    assert snapshot.receipt.pages == 2
    assert verify_snapshot(store.path).unlisted == ()


def test_a_changed_vector_writes_the_file_with_it(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """A row that is changed, added or removed changes at most two of many files."""
    rows = _rows(2000)
    _exported(made, store, rows)
    changed = [*rows[:1000], {**rows[1000], "data": "other"}, *rows[1001:]]
    added = [*_rows(1, start=9000), *changed]
    removed = [*added[:500], *added[501:]]
    for step in (changed, added, removed):
        written, files = _exported(made, store, step)
        assert 1 <= written <= 2 < files


def test_namespaces_have_files_of_their_own(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Pages of two namespaces come in turn; a change of one leaves the full files of the other."""

    def pages(first: int, count: int) -> list[list[dict[str, Any]]]:
        listed = []
        for start in range(0, 1000, 100):
            other = [row | {"namespace": "b"} for row in _rows(100, start=start)]
            page = _rows(min(100, max(0, count - start)), start=first + start)
            listed += [page, other]
        return listed

    def names(namespace: str) -> set[str]:
        return {
            path.name
            for path in store.path.glob("*.parquet")
            if pq.read_table(path)["namespace"].unique().to_pylist() == [namespace]
        }

    export_load(_load(made, *pages(0, 1000)), store, chunk_bytes=_CHUNK)
    before = names("b")
    export_load(_load(made, *pages(5000, 300)), store, chunk_bytes=_CHUNK)
    assert len(before) > 5
    assert before <= names("b")
    assert len(read_snapshot(store.path)) == 1300


def test_a_stopped_export_keeps_the_files_of_the_snapshot(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """A checkpoint that lists files of the snapshot is dropped or resumed, and no row of either is lost."""
    rows = _rows(2000)
    _exported(made, store, rows)
    before = _files(store)
    pages = [rows[start : start + 100] for start in range(0, 2000, 100)]
    error = TransportError("reading")
    with pytest.raises(TransportError):
        export_load(_load(made, *pages[:12], error=error), store, chunk_bytes=_CHUNK)
    # a day later, the checkpoint is too old to be resumed
    tomorrow = datetime.now(UTC) + timedelta(days=2)
    with pytest.raises(TransportError):
        export_load(
            _load(made, *pages[:3], error=error),
            store,
            chunk_bytes=_CHUNK,
            clock=lambda: tomorrow,
        )
    assert _files(store).items() >= before.items()
    assert len(read_snapshot(store.path)) == 2000
    receipt = export_load(
        _load(made, *pages), store, chunk_bytes=_CHUNK, clock=lambda: tomorrow
    )
    assert receipt.resumed == 1
    assert _files(store) == before
    assert verify_snapshot(store.path).unlisted == ()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    others=st.lists(st.integers(1, 40), min_size=1, max_size=12),
)
def test_chunks_depend_on_the_rows_alone(sizes: list[int], others: list[int]) -> None:
    """All rows arrive once and in order, and pages of other sizes make the same chunks."""
    rows = min(sum(sizes), sum(others))
    table = pa.Table.from_pylist(_rows(rows), schema=vectors(8))
    contents = []
    for pages in (sizes, others):
        waiting = WaitingChunks(ChunkRule(usual_rows=8, most_bytes=1 << 30))
        chunks = []
        start = 0
        for size in pages:
            chunks += waiting.add(table.slice(start, min(size, rows - start)))
            start = min(rows, start + size)
        chunks += waiting.close()
        tables = [part for chunk in chunks for part in chunk.tables]
        assert pa.concat_tables(tables).equals(table)
        contents.append([chunk.content for chunk in chunks])
    assert contents[0] == contents[1]


def test_a_later_export_replaces_the_rows(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """There is no history: the index as it is now replaces the earlier one."""
    export_load(_load(made, _rows(5)), store)
    export_load(_load(made, _rows(3, start=4)), store)
    assert read_snapshot(store.path)["id"].tolist() == ["v4", "v5", "v6"]
    assert len(list(store.path.glob("*.parquet"))) == 1


def test_a_failing_export_keeps_the_previous_one(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Rows that came before the failure do not count, and no file of them is left."""
    export_load(_load(made, _rows(5)), store)
    with pytest.raises(TransportError):
        export_load(_load(made, _rows(2), error=TransportError("reading")), store)
    assert len(read_snapshot(store.path)) == 5
    assert verify_snapshot(store.path).unlisted == ()


def test_an_empty_index_is_a_snapshot(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """No vectors, but all columns."""
    export_load(_load(made), store)
    assert pq.read_table(store.path).schema.equals(vectors(8))


def test_an_export_belongs_to_its_index_and_scope(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Another index or namespace is refused; every namespace stays every namespace when one is added."""
    export_load(
        _load(made, _rows(1), scope={"namespaces": ["a"]}), store, all_namespaces=True
    )
    export_load(
        _load(made, _rows(2), scope={"namespaces": ["a", "b"]}),
        store,
        all_namespaces=True,
    )
    for other in (
        {"source": "http://127.0.0.1:2", "scope": {"namespaces": ["a"]}},
        {"scope": {"namespaces": ["a"]}},
    ):
        with pytest.raises(SnapshotBindingError):
            export_load(_load(made, _rows(3), **other), store)
    assert len(read_snapshot(store.path)) == 2
