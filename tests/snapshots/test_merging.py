"""Days and their files: few, however many syncs there were, and quick to open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from toolkit.errors import SnapshotError
from toolkit.snapshots import open_snapshot, read_snapshot, verify_snapshot
from toolkit.snapshots.day_files import MOST_FILES
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

Sync = Callable[..., Any]


def _files(store: SnapshotStore) -> dict[str, int]:
    """Data files by day."""
    return dict(
        Counter(
            name.split("/")[1] for name in store.names() if name.endswith(".parquet")
        )
    )


def test_a_day_under_way_has_few_files_and_ends_as_one(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """Hourly syncs add a file each until they are merged; the first sync of the next day leaves one."""
    names = [f"e{number:02}" for number in range(30)]
    clock.forward(hours=-12)
    counts = []
    for hour in range(20):
        sync(made.entries(*names[: hour + 1]))
        counts.append(_files(store)["2026-03-01"])
        clock.forward(hours=1)
    assert max(counts) == MOST_FILES
    assert counts.count(1) > 2
    before = read_snapshot(store.path)
    clock.forward(days=1)
    sync(made.entries(*names[:20]))
    assert _files(store) == {"2026-03-01": 1}
    after = read_snapshot(store.path)
    pd.testing.assert_frame_equal(before, after)
    generation = verify_snapshot(store.path)
    sync(made.entries(*names[:20]))
    assert verify_snapshot(store.path).files == generation.files


def test_merged_files_keep_what_is_known_of_their_rows(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """After a merge, a sync still reports what changed, disappeared and reappeared, and when it was seen."""
    for hour in range(MOST_FILES + 2):
        sync(made.entries(*"abcdefghij"[: hour + 1]))
        clock.forward(minutes=1)
    changes = sync([made.entry("a", body="new"), *made.entries(*"cdefghij")])
    assert changes.counts == {"added": 0, "changed": 1, "gone": 1}
    assert changes.changed["dlq_id"].tolist() == ["a"]
    assert changes.gone["dlq_id"].tolist() == ["b"]
    assert _files(store) == {"2026-03-01": 1}
    back = sync(made.entries(*"abcdefghij"))
    assert back.counts == {"added": 0, "changed": 2, "gone": 0}
    frame = read_snapshot(store.path).sort_values("dlq_id")
    assert frame["first_seen_at"].is_monotonic_increasing
    assert frame["gone_before"].isna().all()


def test_added_changed_and_gone_rows_of_one_file_are_separated(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Rows added, changed, gone and left alone may end in one file; each frame has its own."""
    sync(made.entries("stays", "changes", "goes"))
    changes = sync([*made.entries("stays", "comes"), made.entry("changes", body="new")])
    assert _files(store) == {"2026-03-01": 1}
    found = [
        getattr(changes, name)["dlq_id"].tolist()
        for name in ("added", "changed", "gone")
    ]
    assert found == [["comes"], ["changes"], ["goes"]]


def test_large_files_are_not_merged(
    sync: Sync,
    store: SnapshotStore,
    clock: Any,
    made: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large file is left alone until a row in it changes, and a full one is followed by another."""
    monkeypatch.setattr("toolkit.snapshots.day_files.SMALL_BYTES", 1)
    for hour in range(MOST_FILES + 3):
        sync(made.entries(*"abcdefghijkl"[: hour + 1]))
        clock.forward(minutes=1)
    assert _files(store) == {"2026-03-01": MOST_FILES + 3}
    monkeypatch.setattr("toolkit.snapshots.day_files.PART_BYTES", 1)
    other = SnapshotStore(store.path.with_name("other"))
    pages = [made.entries(f"{page}") for page in range(3)]
    sync_load(made.load(*pages), other, clock=clock, batch_bytes=1, group_bytes=1)
    assert _files(other) == {"2026-03-01": 3}
    assert read_snapshot(other.path)["dlq_id"].tolist() == ["0", "1", "2"]


@pytest.mark.slow
def test_a_year_of_daily_syncs_is_opened_file_by_file(
    tmp_path: Path, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file a day, whatever came and went; counting reads no rows."""
    # a year of waiting for the disk shows nothing more
    monkeypatch.setattr("os.fsync", lambda _: None)
    store, clock = SnapshotStore(tmp_path / "year"), made.clock(made.start)
    days = 60
    for day in range(days):
        ids = [
            f"{earlier}-{number}"
            for earlier in range(max(0, day - 6), day + 1)
            for number in range(3)
        ]
        sync_load(made.load(made.entries(*ids)), store, clock=clock)
        clock.forward(days=1)
    assert _files(store).keys() == {
        (made.start + pd.Timedelta(days=day)).date().isoformat() for day in range(days)
    }
    assert set(_files(store).values()) == {1}
    assert open_snapshot(store.path).to_arrow().count_rows() == 3 * days
    assert verify_snapshot(store.path).gone == 3 * (days - 7)


def test_a_merge_that_stops_changes_nothing(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """Readers see the small files until the manifest lists the merged one."""
    for hour in range(MOST_FILES):
        sync(made.entries(*"abcdefgh"[: hour + 1]))
    before = {
        name: (store.path / name).read_bytes()
        for name in store.names()
        if "part" in name
    }

    def full(operation: str) -> None:
        if operation == "rename":
            raise OSError(28, "No space left on device")

    with pytest.raises(SnapshotError):
        sync_load(
            made.load(made.entries(*"abcdefghi")),
            SnapshotStore(store.path, step=full),
            clock=clock,
        )
    assert len(read_snapshot(store.path)) == 8
    assert (
        before.items()
        <= {name: (store.path / name).read_bytes() for name in store.names()}.items()
    )
    assert sync(made.entries(*"abcdefghi")).counts["added"] == 1
    assert _files(store) == {"2026-03-01": 1}
