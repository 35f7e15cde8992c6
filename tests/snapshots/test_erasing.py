"""Rows that are erased from a snapshot are in no file of it, and everything else stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import toolkit as tk
from toolkit.errors import InputError, SnapshotError
from toolkit.snapshots import Changes, open_snapshot, read_snapshot, verify_snapshot
from toolkit.snapshots.store import SnapshotStore

from .conftest import read_by_all

Sync = Callable[..., Changes]


def test_erased_rows_are_in_no_file(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """Each reader finds the other rows, and no byte of the folder has the id or the body."""
    secret = made.entry("person", body="Ada Example")
    sync([secret, *made.entries("a", "b")])
    clock.forward(days=1)
    sync([secret, *made.entries("a", "b", "c")])
    assert tk.erase_failures(store.path, ["person", "unknown"], confirm=True) == 1
    assert read_by_all(open_snapshot(store.path)) == ["a", "b", "c"]
    assert verify_snapshot(store.path).rows == 3
    for file in Path(store.path).rglob("*"):
        if file.is_file():
            assert b"person" not in file.read_bytes()


def test_no_file_has_the_message_of_an_erased_row(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """Grouping has learned from the message; groups of other rows keep their ids, also in later syncs."""

    def failed(name: str, message: str) -> dict[str, Any]:
        return made.entry(name, response_body=message, response_status=500)

    names = ("anna", "bob", "carla", "david", "eve")
    others = [failed(f"d{n}", f"no user {name}") for n, name in enumerate(names)]
    others += [failed("e1", "disk full"), failed("e2", '{"error": "no stock"}')]
    sync([*others, failed("person", "Customer Ada Example has no address")])
    before = read_snapshot(store.path).set_index("dlq_id")["signature"]
    manifest = Path(store.path) / "_manifest.json"
    assert b"Ada Example" in manifest.read_bytes()

    assert tk.erase_failures(store.path, ["person"], confirm=True) == 1

    files = [file for file in Path(store.path).rglob("*") if file.is_file()]
    assert not [file.name for file in files if b"Ada" in file.read_bytes()]
    assert b"disk full" in manifest.read_bytes()
    clock.forward(hours=1)
    sync([*others, failed("d9", "no user frank"), failed("e3", "disk full")])
    after = read_snapshot(store.path).set_index("dlq_id")["signature"]
    assert (after[before.index.drop("person")] == before.drop("person")).all()
    assert after["d9"] == before["d0"]
    assert after["e3"] == before["e1"]


def test_what_a_later_sync_does(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """An entry that is still in the queue is added again; one that has left it stays erased."""
    sync(made.entries("a", "b", "c"))
    clock.forward(hours=1)
    first = sync(made.entries("a", "b"))
    assert list(first.gone["dlq_id"]) == ["c"]
    assert tk.erase_failures(store.path, ["b", "c"], confirm=True) == 2
    clock.forward(hours=1)
    later = sync(made.entries("a", "b"))
    assert list(later.added["dlq_id"]) == ["b"]
    assert sorted(read_snapshot(store.path)["dlq_id"]) == ["a", "b"]


def test_all_rows_can_be_erased(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """The snapshot then has no row, stays readable, and the next sync adds what is there."""
    added = sync(made.entries("a", "b")).added
    assert tk.erase_failures(store.path, added, confirm=True) == 2
    assert read_snapshot(store.path).empty
    assert len(sync(made.entries("a", "d")).added) == 2


def test_the_other_facts_of_the_snapshot_stay(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """The time of the last complete sync does not change, and the receipt names the erasure."""
    sync(made.entries("a", "b"))
    before = tk.get_receipt(read_snapshot(store.path))
    tk.erase_failures(store.path, "a", confirm=True)
    after = tk.get_receipt(read_snapshot(store.path))
    assert (after.started_at, after.complete) == (before.started_at, before.complete)
    assert "erased by request: 1 of 2 rows" in after.notes


@pytest.mark.parametrize(
    ("ids", "options", "error"),
    [
        (["a"], {}, InputError),
        ([], {"confirm": True}, InputError),
        ([""], {"confirm": True}, InputError),
    ],
)
def test_nothing_is_erased_without_ids_and_confirmation(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace, ids, options, error
) -> None:
    """The rows are still there after the error."""
    sync(made.entries("a"))
    with pytest.raises(error):
        tk.erase_failures(store.path, ids, **options)
    assert len(read_snapshot(store.path)) == 1


def test_other_places_are_refused(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace, tmp_path: Path
) -> None:
    """A folder without a snapshot is not created, and damaged files that were kept must go first."""
    with pytest.raises(SnapshotError, match="no snapshot"):
        tk.erase_failures(tmp_path / "none", ["a"], confirm=True)
    assert not (tmp_path / "none").exists()
    sync(made.entries("a"))
    kept = Path(store.path) / "_part-1.parquet.lost"
    kept.write_bytes(b"a")
    with pytest.raises(SnapshotError, match=r"part-1\.parquet\.lost"):
        tk.erase_failures(store.path, ["a"], confirm=True)
    kept.unlink()
    assert tk.erase_failures(store.path, ["a"], confirm=True) == 1
