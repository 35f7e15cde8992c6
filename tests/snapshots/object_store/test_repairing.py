"""Lost objects: a sync notices, and a repair brings back what it can, as on a disk."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from toolkit.errors import SnapshotDamagedError
from toolkit.snapshots import read_snapshot, verify_snapshot
from toolkit.snapshots.manifest import read_manifest
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

pytestmark = pytest.mark.slow

Damage = Callable[[Any, str], object]


def _write(filesystem: Any, address: str, content: bytes) -> None:
    with filesystem.open_output_stream(address, compression=None) as file:
        file.write(content)


def _read(filesystem: Any, address: str) -> bytes:
    with filesystem.open_input_file(address) as file:
        content: bytes = file.read()
    return content


DAMAGES: dict[str, Damage] = {
    "deleted": lambda s3, address: s3.delete_file(address),
    "emptied": lambda s3, address: _write(s3, address, b""),
    "truncated": lambda s3, address: _write(s3, address, _read(s3, address)[:-7]),
    "longer": lambda s3, address: _write(s3, address, _read(s3, address) + b"x"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_lost_object_is_noticed_and_repaired(
    s3: SimpleNamespace, made: SimpleNamespace, name: str
) -> None:
    """A sync raises over a lost object each time; a repair adds again what the queue still has."""
    bucket: SnapshotStore = open_store(s3.path, s3.filesystem)
    clock = made.clock(made.start)
    sync_load(made.load(made.entries("a", "b")), bucket, clock=clock)
    clock.forward(days=1)
    sync_load(made.load(made.entries("b", "c")), bucket, clock=clock)
    manifest = read_manifest(bucket)
    assert manifest is not None
    lost = manifest.files[0].path
    assert "2026-03-01" in lost
    DAMAGES[name](s3.filesystem, bucket.address(lost))
    for _ in range(2):
        with pytest.raises(
            SnapshotDamagedError, match="1 of 2 data files lost, with 2 of 3 rows"
        ):
            sync_load(made.load(made.entries("b", "c")), bucket, clock=clock)
    repaired = sync_load(
        made.load(made.entries("b", "c")), bucket, clock=clock, repair=True
    )
    frame = read_snapshot(s3.path, filesystem=s3.filesystem).set_index("dlq_id")
    assert set(frame.index) == ({"a", "b", "c"} if name == "longer" else {"b", "c"})
    assert repaired.counts["added"] == (0 if name == "longer" else 1)
    assert frame["first_seen_at"]["b"].isoformat() == "2026-03-01T12:00:00+00:00"
    verified = verify_snapshot(s3.path, filesystem=s3.filesystem)
    assert len(verified.repairs) == 1
    assert len(verified.unlisted) == (name in {"truncated", "longer"})
    again = sync_load(made.load(made.entries("b", "c")), bucket, clock=clock)
    assert again.counts == {"added": 0, "changed": 0, "gone": 0}


def test_an_object_replaced_in_place_is_compared_by_its_hash(
    s3: SimpleNamespace, made: SimpleNamespace
) -> None:
    """Other bytes of the same size are found where the store says that they came after the manifest."""
    bucket = open_store(s3.path, s3.filesystem)
    sync_load(made.load(made.entries("a", "b")), bucket)
    manifest = read_manifest(bucket)
    assert manifest is not None
    address = bucket.address(manifest.files[0].path)
    committed = bucket.states(["_manifest.json"])["_manifest.json"].changed_at
    content = bytes(manifest.files[0].bytes)
    while (
        bucket.states([manifest.files[0].path])[manifest.files[0].path].changed_at
        <= committed
    ):
        _write(s3.filesystem, address, content)  # times of a store are whole seconds
    with pytest.raises(SnapshotDamagedError, match="other bytes than were written"):
        sync_load(made.load(made.entries("a", "b")), bucket)
