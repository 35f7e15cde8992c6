"""A sync over a snapshot that has lost files: it says what is lost, and a repair brings back what it can."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import SnapshotDamagedError, SnapshotError, TransportError
from toolkit.snapshots import Changes, read_snapshot, verify_snapshot
from toolkit.snapshots.exporting import export_load
from toolkit.snapshots.manifest import KEPT_RECEIPTS, MANIFEST
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

pytestmark = pytest.mark.slow

Damage = Callable[[Path], object]


def _truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _replaced(file: Path) -> None:
    """Other bytes of the same size."""
    content = file.read_bytes()
    file.write_bytes(bytes(len(content)))


def _linked(file: Path) -> None:
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


DAMAGES: dict[str, Damage] = {
    "deleted": Path.unlink,
    "emptied": lambda file: os.truncate(file, 0),
    "truncated": _truncated,
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "replaced": _replaced,
    "a link": _linked,
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "its folder deleted": lambda file: shutil.rmtree(file.parent),
}


class History:
    """A snapshot of three days, of which a test damages a file; the DLQ has forgotten the first day."""

    def __init__(self, path: Path, made: SimpleNamespace) -> None:
        self.store = SnapshotStore(path)
        self.made = made
        self.clock = made.clock(made.start)
        self.sync("a", "b", "c")
        self.clock.forward(days=1)
        self.sync("b", "c", "d", "e")
        self.clock.forward(days=1)
        self.sync("c", "d", "e", "f")
        self.clock.forward(days=1)

    def sync(
        self, *names: str, error: BaseException | None = None, **options: Any
    ) -> Changes:
        """A sync that finds these entries."""
        load = self.made.load(self.made.entries(*names), error=error)
        return sync_load(load, self.store, clock=self.clock, batch_bytes=1, **options)

    def file(self, day: int) -> Path:
        """The data file of a day."""
        (found,) = self.store.path.glob(f"first_seen/2026-03-0{day}/part-*.parquet")
        return found

    @property
    def index(self) -> Path:
        """The index."""
        (found,) = self.store.path.glob("_index-*.bin")
        return found

    def rows(self) -> dict[str, tuple[Any, Any]]:
        """By id, when each row was first seen and since when it is gone."""
        frame = read_snapshot(self.store.path)
        assert frame["dlq_id"].is_unique
        gone = frame["gone_before"].notna()
        return dict(
            zip(
                frame["dlq_id"],
                zip(frame["first_seen_at"], gone, strict=True),
                strict=True,
            )
        )


@pytest.fixture
def history(tmp_path: Path, made: SimpleNamespace) -> History:
    return History(tmp_path / "snapshot", made)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_sync_over_a_lost_file_raises_each_time(
    history: History, damage: Damage
) -> None:
    """It says which file, how many rows and of which day, and how to bring them back; nothing changes."""
    file = history.file(2)
    damage(file)
    before = (history.store.path / MANIFEST).read_bytes()
    for _ in range(2):
        with pytest.raises(SnapshotError) as caught:
            history.sync("c", "d", "e", "f")
        text = str(caught.value)
        assert f"first_seen/2026-03-02/{file.name}" in text
        assert "1 of 3 data files lost, with 2 of 6 rows first seen 2026-03-02:" in text
        assert "repair=True" in text
    assert (history.store.path / MANIFEST).read_bytes() == before


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_repair_adds_again_what_the_queue_still_has(
    history: History, damage: Damage
) -> None:
    """Rows keep the time they were first seen; what the queue no longer has is recorded as lost."""
    before = history.rows()
    damage(history.file(2))
    repaired = history.sync("c", "d", "f", repair=True)
    after = history.rows()
    found = set(repaired.added["dlq_id"])
    if damage is DAMAGES["longer"]:  # all its rows can still be read
        assert not found
        assert after["e"][1]
    else:
        assert found == {"d"}
        assert "e" not in after
        assert (
            "1 were added again from the queue; 1 stayed lost (first seen 2026-03-02T12:00:00+00:00)"
            in repr(repaired)
        )
    assert {name: row[0] for name, row in after.items()} == {
        name: before[name][0] for name in after
    }
    assert {name for name, row in after.items() if row[1]} >= {"a", "b"}
    (note,) = verify_snapshot(history.store.path).repairs
    assert "1 of 3 data files were lost, with 2 rows" in note
    assert history.sync("c", "d", "f").counts == {"added": 0, "changed": 0, "gone": 0}


def test_a_repair_of_an_intact_snapshot_is_a_sync(history: History) -> None:
    """It compares every byte and changes nothing, and no receipt speaks of a repair."""
    changes = history.sync("c", "d", "e", "f", repair=True)
    assert changes.counts == {"added": 0, "changed": 0, "gone": 0}
    assert verify_snapshot(history.store.path).repairs == ()
    assert len(history.rows()) == 6


def test_a_lost_file_stays_next_to_the_snapshot(history: History) -> None:
    """What no reader can use now, somebody may be able to use later: a repair removes no bytes of it."""
    content = history.file(2).read_bytes()
    cut = content[:-9]
    history.file(2).write_bytes(cut)
    history.sync("c", repair=True)
    (kept,) = verify_snapshot(history.store.path).unlisted
    assert kept.startswith("first_seen/2026-03-02/_part-")
    assert (history.store.path / kept).read_bytes() == cut
    # other readers of the folder ignore it
    assert pq.read_table(history.store.path).num_rows == 4
    assert kept in verify_snapshot(history.store.path).repairs[0]


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, _truncated, _replaced],
    ids=["deleted", "truncated", "replaced"],
)
def test_a_lost_index_is_made_again_from_the_rows(
    history: History, damage: Damage
) -> None:
    """No row is lost with it: a sync refuses, a repair keeps every row, its times and its marks."""
    before = history.rows()
    damage(history.index)
    with pytest.raises(SnapshotError, match="the index lost"):
        history.sync("c", "d", "e", "f")
    changes = history.sync("c", "d", "e", "f", repair=True)
    assert changes.counts == {"added": 0, "changed": 0, "gone": 0}
    assert history.rows() == before
    assert history.sync("c", "d", "e", "f").counts == {
        "added": 0,
        "changed": 0,
        "gone": 0,
    }


def test_index_and_data_lost_together(history: History) -> None:
    """The rest stays, the queue returns what it has, and the record says that the lost rows are not known."""
    history.index.unlink()
    history.file(2).unlink()
    changes = history.sync("c", "d", "f", repair=True)
    assert set(history.rows()) == {"a", "b", "c", "d", "f"}
    assert set(changes.added["dlq_id"]) == {"d"}
    assert (
        "2 are lost unless the queue still had them"
        in verify_snapshot(history.store.path).repairs[0]
    )


def test_rows_before_a_damaged_page_are_kept(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """Of a file with one bad page, the rows that still decode to what was stored are recovered."""
    store = SnapshotStore(tmp_path / "snapshot")
    rows = [
        made.entry(f"{number:05d}", body=os.urandom(600).hex())
        for number in range(6_000)
    ]
    sync_load(made.load(rows), store, clock=made.clock(made.start))
    (file,) = store.path.glob("first_seen/*/part-*.parquet")
    content = file.read_bytes()
    metadata = pq.ParquetFile(file).metadata.row_group(0)
    (body,) = (
        metadata.column(i)
        for i in range(metadata.num_columns)
        if metadata.column(i).path_in_schema == "body"
    )
    position = body.data_page_offset + body.total_compressed_size * 3 // 4
    file.write_bytes(content[:position] + b"damaged!" + content[position + 8 :])
    sync_load(made.load(rows[-10:]), store, clock=made.clock(made.start), repair=True)
    kept = read_snapshot(store.path)
    assert 1_000 < len(kept) < 6_000
    whole = {row["dlq_id"]: row["body"] for row in rows}
    assert dict(zip(kept["dlq_id"], kept["body"], strict=True)).items() <= whole.items()


def test_rows_that_were_put_there_instead_are_not_recovered(history: History) -> None:
    """A Parquet file with other rows, or the same ids and other content, instead of a lost one adds none."""
    file = history.file(2)
    table = pq.read_table(file, partitioning=None)
    forged = table.set_column(
        table.schema.get_field_index("body"),
        table.schema.field("body"),
        [["forged"] * 2],
    )
    pq.write_table(forged, file)
    history.sync("c", "d", "f", repair=True)
    frame = read_snapshot(history.store.path)
    assert set(frame["dlq_id"]) == set("abcdf")
    assert "forged" not in set(frame["body"])


def test_rows_read_by_a_stopped_sync_are_kept(history: History) -> None:
    """Rows of its checkpoint that have left the queue since are added, though nothing else has them."""
    with pytest.raises(TransportError):
        history.sync("c", "d", "g", error=TransportError("reading"))
    history.file(2).unlink()
    with pytest.raises(SnapshotDamagedError):
        history.sync("c", "d")
    with pytest.raises(TransportError):
        # a repair that stops leaves everything as it was
        history.sync("d", error=TransportError("reading"), repair=True)
    history.sync("c", "d", repair=True)
    assert set(history.rows()) == {"a", "b", "c", "d", "f", "g"}


def test_a_repair_that_stops_changes_nothing(history: History) -> None:
    """The next one finds what the first did, from the lost file too."""
    file = history.file(2)
    file.write_bytes(file.read_bytes() + b"x")
    manifest = (history.store.path / MANIFEST).read_bytes()
    with pytest.raises(TransportError):
        history.sync("c", error=TransportError("reading"), repair=True)
    assert (history.store.path / MANIFEST).read_bytes() == manifest
    assert not [name for name in history.store.names() if "checkpoint" in name]
    history.sync("c", "f", repair=True)
    assert set(history.rows()) == set("abcdef")


def test_a_repair_killed_at_any_step_can_be_made_again(
    history: History, tmp_path: Path, made: SimpleNamespace
) -> None:
    """After a kill the snapshot is as lossy as before or repaired, and a repair ends in the same rows."""
    longer = history.file(2)
    longer.write_bytes(longer.read_bytes() + b"x")
    history.file(3).unlink()
    history.index.unlink()
    program = Path(__file__).with_name("writer_process.py")
    done = subprocess.run(
        [sys.executable, str(program), "repair", str(history.store.path), str(tmp_path / "out")],
        capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip
    last = int(done.stdout)
    repaired = 0
    is_repeated = made.repeated()
    for number in range(1, last + 1):
        if is_repeated(tmp_path / "out" / str(number)):
            continue
        history.store = SnapshotStore(tmp_path / "out" / str(number))
        try:
            repaired += verify_snapshot(history.store.path).rows == 6
        except SnapshotDamagedError:
            with pytest.raises(SnapshotDamagedError):
                history.sync("c", "d", "f")
        history.sync("c", "d", "f", repair=True)
        assert set(history.rows()) == set("abcdef")
        (kept,) = verify_snapshot(history.store.path).unlisted
        assert kept.endswith(".lost")
    assert 0 < repaired < last
    assert last > 20


def test_an_export_over_a_lost_file_restores_the_snapshot(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """What replaces all rows, as an export and a written frame do, needs none of those before."""
    store = SnapshotStore(tmp_path / "vectors")
    for _ in range(2):
        export_load(made.load(*made.vectors, **made.vectors_are), store)
        assert verify_snapshot(store.path).rows == 4
        (file,) = store.path.glob("part-*.parquet")
        file.unlink()


def test_a_file_lost_during_the_load_is_found_before_the_commit(
    history: History, made: SimpleNamespace
) -> None:
    """What was there when the sync began is looked at again before the new manifest lists it."""
    load = made.load(made.entries("c", "d", "e", "f", "g"))
    batches = load.batches

    def losing(**options: Any) -> Any:
        history.file(1).unlink()
        yield from batches(**options)

    load.batches = losing
    with pytest.raises(SnapshotDamagedError, match="1 of 3 data files lost"):
        sync_load(load, history.store, clock=history.clock)


def test_an_older_snapshot_is_repaired(tmp_path: Path, made: SimpleNamespace) -> None:
    """Rows of older versions that are left become current ones; those that are lost come from the queue."""
    older = Path(__file__).parents[1] / "data" / "snapshots" / "version-4" / "failures"
    store = SnapshotStore(shutil.copytree(older, tmp_path / "snapshot"))
    before = read_snapshot(store.path)
    files = sorted(store.path.glob("first_seen/*/part-*.parquet"))
    files[0].unlink()
    manifest = tk.verify_snapshot(older)
    assert manifest.receipt is not None
    bound = {"source": manifest.receipt.source, "scope": manifest.receipt.scope}
    with pytest.raises(SnapshotDamagedError):
        sync_load(made.load(made.entries("new"), **bound), store)
    sync_load(made.load(made.entries("new"), **bound), store, repair=True)
    after = read_snapshot(store.path)
    assert len(after) < len(before) + 1
    assert set(after["dlq_id"]) <= {*before["dlq_id"], "new"}
    assert verify_snapshot(store.path).unlisted == ()


def test_lost_rows_stay_on_record(history: History) -> None:
    """The receipt of a repair is kept when those of its time are long gone."""
    history.file(2).unlink()
    history.sync("c", "d", repair=True)
    for _ in range(KEPT_RECEIPTS + 3):
        history.sync("c", "d")
    assert len(verify_snapshot(history.store.path).repairs) == 1


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_readable_row_is_lost(
    tmp_path_factory: pytest.TempPathFactory, made: SimpleNamespace, data: st.DataObject
) -> None:
    """Whatever is damaged and whatever the queue still has: rows of whole files and of the queue stay."""
    history = History(tmp_path_factory.mktemp("any") / "snapshot", made)
    before = history.rows()
    by_day = {1: "abc", 2: "de", 3: "f"}
    lost = data.draw(
        st.dictionaries(
            st.sampled_from([1, 2, 3]), st.sampled_from(sorted(DAMAGES)), min_size=1
        )
    )
    for day, damage in lost.items():
        DAMAGES[damage](history.file(day))
    if data.draw(st.booleans()):
        history.index.unlink()
    queue = data.draw(st.sets(st.sampled_from("abcdefgh")))
    history.sync(*sorted(queue), repair=True)
    after = history.rows()
    readable = {
        name
        for day, names in by_day.items()
        if lost.get(day, "longer") == "longer"
        for name in names
    }
    assert set(after) == readable | queue
    assert all(after[name][0] == before[name][0] for name in readable)
    assert not any(after[name][1] for name in queue)
    assert history.sync(*sorted(queue)).counts == {"added": 0, "changed": 0, "gone": 0}
