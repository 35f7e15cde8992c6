"""Exporting vectors: streamed, whole, and bound to the index."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.errors import SnapshotBindingError, TransportError
from toolkit.snapshots import open_snapshot, read_snapshot, verify_snapshot
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.writing import export_load
from toolkit.tables.schemas import vectors

_KEY = ("namespace", "id")


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


def test_an_export_streams_row_groups(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
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
    export_load(load, store, group_bytes=20_000)
    assert len(set(sizes)) > 5
    (path,) = store.path.glob("*.parquet")
    assert pq.read_metadata(path).num_row_groups > 5


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
