"""The index of a large snapshot has one file per data file, so that a sync writes only what changed."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import toolkit as tk
from toolkit.errors import SnapshotDamagedError
from toolkit.snapshots.manifest import Manifest, read_manifest
from toolkit.snapshots.row_index import ENTRY
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

DAYS = 4


def _manifest(store: SnapshotStore) -> Manifest:
    manifest = read_manifest(store)
    assert manifest is not None
    return manifest


def _sync(
    store: SnapshotStore,
    made: SimpleNamespace,
    rows: list[dict[str, Any]],
    day: int,
    **options: Any,
) -> Any:
    clock = made.clock(made.start + timedelta(days=day))
    return sync_load(made.load(rows), store, clock=clock, **{"index_rows": 0} | options)


@pytest.fixture
def days(store: SnapshotStore, made: SimpleNamespace) -> list[dict[str, Any]]:
    """Two rows of each of four days, all still in the queue, with one index per file."""
    rows: list[dict[str, Any]] = []
    for day in range(DAYS):
        rows += made.entries(f"a{day}", f"b{day}")
        _sync(store, made, rows, day)
    return rows


def test_a_sync_writes_the_index_of_the_files_that_it_writes(
    store: SnapshotStore, made: SimpleNamespace, days: list[dict[str, Any]]
) -> None:
    """A day that changes gets another data file and another index; the other days keep theirs."""
    before = _manifest(store)
    assert len(before.indexes) == len(before.files) == DAYS
    assert [index.rows for index in before.indexes] == [
        file.rows for file in before.files
    ]
    days[2]["body"] = "changed"  # of the second day
    changes = _sync(store, made, days, DAYS)
    assert len(changes.changed) == 1
    after = _manifest(store)
    kept = {*before.indexes} & {*after.indexes}
    assert len(kept) == DAYS - 1
    assert {*before.files} - {*after.files} == {before.files[1]}
    assert after.index_of_each.keys() == {file.path for file in after.files}
    again = _sync(store, made, days, DAYS)
    assert (len(again.added), len(again.changed), len(again.gone)) == (0, 0, 0)
    assert _manifest(store).indexes == after.indexes
    tk.verify_snapshot(store.path)


def test_a_small_snapshot_has_one_index(
    store: SnapshotStore, made: SimpleNamespace, days: list[dict[str, Any]]
) -> None:
    """Up to some number of rows, all entries are in one file; the form changes with the next change."""
    days[0]["body"] = "changed"
    _sync(store, made, days, DAYS, index_rows=10_000)
    manifest = _manifest(store)
    assert len(manifest.indexes) == 1
    assert manifest.indexes[0].bytes == ENTRY.itemsize * 2 * DAYS
    assert manifest.index_of_each == {}
    _sync(store, made, days, DAYS)
    assert _manifest(store).indexes == manifest.indexes  # no row changed
    days[1]["body"] = "changed"
    changes = _sync(store, made, days, DAYS)
    assert len(changes.changed) == 1
    assert len(_manifest(store).indexes) == DAYS


def test_a_manifest_with_one_index_of_format_2_is_read(
    store: SnapshotStore, made: SimpleNamespace, days: list[dict[str, Any]]
) -> None:
    """Its rows are recognised, and the next sync that changes a row writes the current format."""
    days[0]["body"] = "changed"
    _sync(store, made, days, DAYS, index_rows=10_000)
    path = store.path / "_manifest.json"
    body = json.loads(path.read_bytes())["manifest"]
    (index,) = body.pop("indexes")
    body |= {"format": 2, "index": index}
    content = msgspec.json.encode(body)
    digest = hashlib.sha256(content).hexdigest()
    path.write_bytes(b'{"sha256":"%s","manifest":%s}\n' % (digest.encode(), content))
    assert _manifest(store).index is not None
    tk.verify_snapshot(store.path)
    same = _sync(store, made, days, DAYS)
    assert (len(same.added), len(same.changed), len(same.gone)) == (0, 0, 0)
    assert _manifest(store).index is None
    changes = _sync(store, made, [*days, *made.entries("new")], DAYS + 1)
    assert changes.added["dlq_id"].tolist() == ["new"]
    assert len(_manifest(store).indexes) == DAYS + 1
    assert len(tk.read_snapshot(store.path)) == 2 * DAYS + 1


@pytest.mark.parametrize("with_data", [False, True], ids=["index", "index and data"])
def test_a_lost_index_of_one_file_is_repaired(
    store: SnapshotStore,
    made: SimpleNamespace,
    days: list[dict[str, Any]],
    *,
    with_data: bool,
) -> None:
    """A sync is refused; with `repair`, the index is made again, or lost rows come from the queue."""
    manifest = _manifest(store)
    (store.path / manifest.indexes[1].path).unlink()
    if with_data:
        (store.path / manifest.files[1].path).unlink()
    with pytest.raises(SnapshotDamagedError, match="lost"):
        _sync(store, made, days, DAYS)
    changes = _sync(store, made, days, DAYS, repair=True)
    assert len(changes.gone) == 0
    frame = tk.read_snapshot(store.path)
    assert sorted(frame["dlq_id"]) == sorted(row["dlq_id"] for row in days)
    assert frame["gone_before"].isna().all()
    assert tk.verify_snapshot(store.path).unlisted == ()
    same = _sync(store, made, days, DAYS)
    assert (len(same.added), len(same.changed), len(same.gone)) == (0, 0, 0)


def test_an_index_with_other_rows_than_its_file_is_refused(
    store: SnapshotStore, made: SimpleNamespace, days: list[dict[str, Any]]
) -> None:
    """Two indexes that change places would give rows the entries of others."""
    path = store.path / "_manifest.json"
    body = json.loads(path.read_bytes())["manifest"]
    body["indexes"] = body["indexes"][:-1]
    content = msgspec.json.encode(body)
    digest = hashlib.sha256(content).hexdigest()
    path.write_bytes(b'{"sha256":"%s","manifest":%s}\n' % (digest.encode(), content))
    with pytest.raises(SnapshotDamagedError, match="entries for 8 rows"):
        _sync(store, made, days, DAYS)


@pytest.mark.slow
def test_a_month_of_syncs_writes_little_more_than_it_stores(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """Over 30 daily syncs, at most 2.5 bytes are written per stored byte, although each day is rewritten.

    Every row leaves the queue on the next day, so that each data file is written twice.
    """
    store = SnapshotStore(tmp_path / "month")
    sizes: dict[str, int] = {}
    manifests = 0
    for day in range(30):
        rows = made.entries(*(f"{day}-{number}" for number in range(2_000)))
        _sync(store, made, rows, day, index_rows=10_000)
        for name in store.names():
            sizes[name] = (store.path / name).stat().st_size
        manifests += sizes.pop("_manifest.json")
    stored = sum((store.path / name).stat().st_size for name in store.names())
    written = sum(sizes.values()) + manifests
    assert written < 2.5 * stored, (written, stored)
