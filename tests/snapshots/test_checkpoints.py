"""Loads that stop: the same call resumes them, and ends as one that never stopped."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import _MockFileSystem

from toolkit.errors import (
    AuthenticationError,
    SnapshotBindingError,
    SnapshotError,
    TransportError,
)
from toolkit.loading.load import Batch, Load
from toolkit.snapshots import read_snapshot, verify_snapshot, write_snapshot
from toolkit.snapshots.exporting import export_load
from toolkit.snapshots.merging import RowComparison
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.resumable import DelayedSignals, delayed_signals
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.snapshots.transaction import WriteOptions
from toolkit.tables.schemas import vectors

_ERROR = TransportError("reading")


def _rows(path: Path) -> pd.DataFrame:
    frame = read_snapshot(path)
    key = ["dlq_id"] if "dlq_id" in frame else ["namespace", "id"]
    return frame.sort_values(key, ignore_index=True)


def _checkpoint_files(store: SnapshotStore) -> list[str]:
    return sorted(name for name in store.names() if "checkpoint" in name)


class Seconds:
    """A monotonic clock that advances by a step at each call."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:  # noqa: D102 - the class says it
        self.now += self.step
        return self.now


@pytest.mark.parametrize(
    "error",
    [
        _ERROR,
        KeyboardInterrupt(),
        SystemExit(),
        AuthenticationError("reading", status=401, message="no"),
    ],
)
def test_a_sync_resumes_where_it_was_stopped(
    store: SnapshotStore,
    clock: Any,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    error: BaseException,
) -> None:
    """After any orderly end, pages that were read are not read again, and the snapshot is as it would be."""
    sync(made.entries("a", "b"))
    clock.forward(days=1)
    pages = [
        [*made.entries("a"), made.entry("b", body="new")],
        made.entries("c"),
        made.entries("d"),
    ]
    with pytest.raises(type(error)):
        sync(*pages[:2], error=error)
    assert read_snapshot(store.path)["dlq_id"].tolist() == ["a", "b"]
    assert verify_snapshot(store.path).unlisted == ()
    assert len(_checkpoint_files(store)) == 4
    began = clock.now
    clock.forward(hours=1)
    load = made.load(*pages)
    changes = sync_load(load, store, clock=clock)
    assert changes.counts == {"added": 2, "changed": 1, "gone": 0}
    assert (changes.receipt.rows, changes.receipt.pages, changes.receipt.resumed) == (
        4,
        3,
        1,
    )
    assert changes.receipt.complete
    assert changes.receipt.notes == ()
    assert changes.added["first_seen_at"].tolist() == [pd.Timestamp(began)] * 2
    assert _checkpoint_files(store) == []
    assert verify_snapshot(store.path).unlisted == ()


def test_an_export_resumes_where_it_was_stopped(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Rows that wait for their file are kept, and the rows are those of an export that never stopped."""
    pages = [
        [{"namespace": "", "id": f"{page}-{row}", "data": "x" * 50} for row in range(9)]
        for page in range(6)
    ]

    def load(count: int, error: BaseException | None = None) -> Load:
        return made.load(
            *pages[:count], error=error, schema=vectors(), key=("namespace", "id")
        )

    for count in (2, 4):
        with pytest.raises(TransportError):
            export_load(load(count, _ERROR), store)
        with pytest.raises(SnapshotError, match="unfinished"):
            read_snapshot(store.path)
    resumed = load(6)
    receipt = export_load(resumed, store)
    assert (receipt.rows, receipt.pages, receipt.resumed) == (54, 6, 2)
    assert read_snapshot(store.path)["id"].tolist() == [
        row["id"] for page in pages for row in page
    ]
    assert verify_snapshot(store.path).files == 1
    assert verify_snapshot(store.path).unlisted == ()


def test_a_load_into_an_object_store_resumes_as_well(made: SimpleNamespace) -> None:
    """Where files have no drafts and no names to be given, stops end as they do on a disk."""
    store = _MockFileSystem()
    pages = [made.entries("a", "b"), made.entries("c"), [made.entry("a", body="later")]]
    for number, cut in enumerate((1, 2)):
        with pytest.raises(TransportError):
            sync_load(
                made.load(*pages[:cut], error=_ERROR), open_store("bucket/sync", store)
            )
        with pytest.raises(TransportError):
            export_load(
                made.load(*made.vectors[:cut], error=_ERROR, **made.vectors_are),
                open_store("bucket/export", store),
            )
        assert (
            len(_checkpoint_files(open_store("bucket/sync", store))) == 4 + 2 * number
        )
    changes = sync_load(made.load(*pages), open_store("bucket/sync", store))
    assert (
        changes.counts["added"],
        changes.receipt.resumed,
        changes.receipt.changed,
    ) == (3, 2, 1)
    receipt = export_load(
        made.load(*made.vectors, **made.vectors_are), open_store("bucket/export", store)
    )
    assert (receipt.rows, receipt.resumed) == (4, 2)
    for name in ("sync", "export"):
        assert verify_snapshot(f"bucket/{name}", filesystem=store).unlisted == ()
    found = (
        read_snapshot("bucket/sync", filesystem=store)
        .set_index("dlq_id")["body"]
        .to_dict()
    )
    assert found == {"a": "later", "b": "body of b", "c": "body of c"}


def test_a_short_load_writes_no_checkpoint(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """No checkpoint is stored while a load takes less than the time between checkpoints."""
    seen: list[str] = []
    step = SnapshotStore(
        store.path, step=lambda _: seen.extend(_checkpoint_files(store))
    )
    sync_load(made.load(made.entries("a"), made.entries("b")), step)
    assert seen == []


def test_a_long_load_writes_one_now_and_then(
    store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """By the clock, a checkpoint holds everything read until then: what a kill at that time leaves."""
    left: list[dict[str, Any]] = []
    pages = [made.entries(str(number)) for number in range(8)]

    def tables(work: Any) -> Iterator[pa.Table]:
        for number, page in enumerate(pages):
            path = store.path / "_checkpoint.json"
            left.append(
                json.loads(path.read_bytes().partition(b"\n")[2])
                if path.exists()
                else {}
            )
            work.position = {"pages": number + 1}
            yield made.failures(page)

    load = made.load()
    load.read = tables
    sync_load(load, store, clock=clock, monotonic=Seconds(WriteOptions.every / 2))
    found = [state.get("position", {}).get("pages", 0) for state in left]
    assert found == sorted(found)
    assert len(set(found)) > 3
    # ids are written once: each checkpoint adds those that are new
    assert sum(file["rows"] for file in left[-1]["identities"]) == found[-1]
    assert len(left[-1]["identities"]) == len(set(found)) - 1
    assert _checkpoint_files(store) == []


@pytest.mark.parametrize(
    ("what", "note"),
    [
        ("older", "older than a day"),
        ("younger", "from the future"),
        ("cut", "damaged"),
        ("edited", "damaged"),
        ("missing", "damaged"),
        ("version", "of another version"),
        ("scope", "of another service or scope"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_cleared_away(
    store: SnapshotStore,
    clock: Any,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    what: str,
    note: str,
) -> None:
    """It is not resumed, the receipt says why, and nothing of it is left."""
    with pytest.raises(TransportError):
        sync(made.entries("a"), made.entries("b"), error=_ERROR)
    path = store.path / "_checkpoint.json"
    rows = next(store.path.glob("_checkpoint*.arrow"))
    if what == "older":
        clock.forward(days=1, seconds=1)
    elif what == "younger":
        clock.forward(days=-1)
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    elif what == "edited":
        rows.write_bytes(rows.read_bytes().replace(b"body of a", b"body of z"))
        rows.write_bytes(rows.read_bytes() + b"x")
    elif what == "missing":
        rows.unlink()
    elif what == "version":
        _edit(path, version=99)
    scope = {"kind": "workflows", "label": ["x"]} if what == "scope" else None
    changes = sync(made.entries("c"), made.entries("d"), scope=scope)
    assert note in changes.receipt.notes[0]
    assert changes.receipt.resumed == 0
    assert sorted(changes.added["dlq_id"]) == ["c", "d"]
    assert _checkpoint_files(store) == []
    assert sync(made.entries("c"), made.entries("d"), scope=scope).receipt.notes == ()


def _edit(path: Path, **values: Any) -> None:
    """Change a checkpoint as another version of the toolkit would have written it."""
    body = json.dumps(
        json.loads(path.read_bytes().partition(b"\n")[2]) | values
    ).encode()
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def test_a_checkpoint_cannot_lead_elsewhere(
    store: SnapshotStore,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Names outside the folder, and links in a file's place, are not followed or removed."""
    outside = tmp_path / "outside.arrow"
    outside.write_bytes(b"precious")
    for way in ("name", "link"):
        with pytest.raises(TransportError):
            sync(made.entries("a"), error=_ERROR)
        path = store.path / "_checkpoint.json"
        if way == "name":
            files = json.loads(path.read_bytes().partition(b"\n")[2])["files"]
            _edit(path, files=[{**files[0], "path": "../outside.arrow"}])
        else:
            rows = next(store.path.glob("_checkpoint*.arrow"))
            rows.unlink()
            rows.symlink_to(outside)
        assert "damaged" in sync(made.entries("b")).receipt.notes[0]
        assert outside.read_bytes() == b"precious"


def test_another_call_leaves_the_checkpoint_of_a_bound_snapshot(
    store: SnapshotStore, made: SimpleNamespace, sync: Callable[..., Any]
) -> None:
    """A refused call leaves the checkpoint for the one that will be repeated."""
    sync(made.entries("a"))
    with pytest.raises(TransportError):
        sync(made.entries("a"), made.entries("b"), error=_ERROR)
    with pytest.raises(SnapshotBindingError):
        sync(made.entries("z"), scope={"kind": "messages"})
    assert (
        sync(made.entries("a"), made.entries("b"), made.entries("c")).receipt.resumed
        == 1
    )


def test_a_checkpoint_of_an_earlier_generation_is_forgotten_quietly(
    store: SnapshotStore, made: SimpleNamespace, sync: Callable[..., Any]
) -> None:
    """What a writer left that was killed right after its commit is no news."""
    with pytest.raises(TransportError):
        sync(made.entries("a"), error=_ERROR)
    kept = {name: (store.path / name).read_bytes() for name in _checkpoint_files(store)}
    sync(made.entries("a"), made.entries("b"))
    for name, content in kept.items():
        (store.path / name).write_bytes(content)
    changes = sync(made.entries("a"), made.entries("b"))
    assert (changes.receipt.notes, changes.receipt.resumed) == ((), 0)
    assert _checkpoint_files(store) == []


def test_a_write_of_a_frame_clears_a_checkpoint_away(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """A folder that an unfinished first load was begun in can be used for something else."""
    with pytest.raises(TransportError):
        sync_load(made.load(made.entries("a"), error=_ERROR), store)
    other = store.path.with_name("other")
    sync_load(made.load(made.entries("a")), SnapshotStore(other))
    write_snapshot(read_snapshot(other), store.path)
    assert _checkpoint_files(store) == []


def test_a_checkpoint_lists_only_what_is_on_the_disk(
    store: SnapshotStore, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files and the folder are flushed to disk before it gets its name, itself before and after."""
    on_disk: set[int] = set()
    named: list[int] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        fsync(handle)
        on_disk.add(os.fstat(handle).st_ino)

    def watched_replace(old: str, new: str, **options: Any) -> None:
        if os.fspath(new) == "_checkpoint.json":
            files = [
                store.path / name
                for name in _checkpoint_files(store)
                if name != os.fspath(new)
            ]
            assert {path.stat().st_ino for path in (*files, store.path)} <= on_disk
            named.append(len(files))
        on_disk.discard(store.path.stat().st_ino)
        replace(old, new, **options)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    with pytest.raises(TransportError):
        sync_load(
            made.load(made.entries("a"), made.entries("b"), error=_ERROR),
            store,
            every=0,
        )
    assert len(named) == 3
    assert store.path.stat().st_ino in on_disk


def test_files_of_a_checkpoint_are_for_this_user_only(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Every one is 0600."""
    with pytest.raises(TransportError):
        sync_load(made.load(made.entries("a"), error=_ERROR), store)
    assert {
        (store.path / name).stat().st_mode & 0o777 for name in _checkpoint_files(store)
    } == {0o600}


def test_the_later_version_of_an_entry_is_written(
    store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """An entry that changed while it was read is kept as it was last, wherever it was first stored."""
    sync_load(made.load(made.entries("same", "old", "back")), store, clock=clock)
    before = [
        *made.entries("same", "new"),
        made.entry("old", body="2"),
        made.entry("back", body="2"),
    ]
    after = [
        made.entry("same", body="3"),
        made.entry("new", body="3"),
        made.entry("old", body="3"),
        *made.entries("back"),
    ]
    for stop in (None, _ERROR):
        path = store.path.with_name(f"copy-{stop}")
        sync_load(
            made.load(made.entries("same", "old", "back")),
            SnapshotStore(path),
            clock=clock,
        )
        if stop:
            with pytest.raises(TransportError):
                sync_load(
                    made.load(before, after, error=stop),
                    SnapshotStore(path),
                    clock=clock,
                )
        changes = sync_load(made.load(before, after), SnapshotStore(path), clock=clock)
        bodies = dict(
            zip(*(_rows(path)[name] for name in ("dlq_id", "body")), strict=True)
        )
        assert bodies == {"same": "3", "new": "3", "old": "3", "back": "body of back"}
        assert changes.counts == {"added": 1, "changed": 2, "gone": 0}
        assert changes.receipt.changed == 4
        assert changes.receipt.duplicates == 0


def test_the_later_version_of_a_vector_is_written(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """In its position, in whichever file it is stored, after a stop as well."""
    schema, key = vectors(), ("namespace", "id")
    pages = [
        [{"namespace": "", "id": f"{page}-{row}", "data": "1"} for row in range(9)]
        for page in range(3)
    ]
    later = [{**pages[0][4], "data": "2"}, {**pages[2][0], "data": "2"}]
    with pytest.raises(TransportError):
        export_load(made.load(*pages[:2], error=_ERROR, schema=schema, key=key), store)
    receipt = export_load(made.load(*pages, later, schema=schema, key=key), store)
    frame = read_snapshot(store.path)
    assert receipt.changed == 2
    assert frame["id"].tolist() == [row["id"] for page in pages for row in page]
    assert frame["id"][frame["data"] == "2"].tolist() == ["0-4", "2-0"]
    assert verify_snapshot(store.path).unlisted == ()


@pytest.mark.parametrize("number", range(1, 6))
def test_an_interrupt_as_a_batch_is_yielded_loses_no_later_version(
    store: SnapshotStore,
    made: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """The load has yielded the batch, and nobody has it: no checkpoint may say that it was written."""
    pages = [
        made.entries("a", "b"),
        [made.entry("a", body="new")],
        [made.entry("b", body="new")],
    ]
    enter, entered = DelayedSignals.__enter__, []

    def interrupted(hold: DelayedSignals) -> Any:
        entered.append(hold)
        if len(entered) == number:
            signal.raise_signal(signal.SIGINT)
        return enter(hold)

    def sync_until_interrupted() -> None:
        while True:  # the last numbers are of a second sync
            sync_load(made.load(*pages), store)

    monkeypatch.setattr(DelayedSignals, "__enter__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sync_until_interrupted()
    sync_load(made.load(*pages), store)
    assert _rows(store.path)["body"].tolist() == ["new", "new"]


def test_batches_are_written_before_they_take_much_memory(
    store: SnapshotStore, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches are joined up to a number of bytes: those of new rows and of later versions."""
    added: list[tuple[int, int]] = []
    add = RowComparison.add

    def watched(comparison: RowComparison, batch: Batch) -> None:
        later = 0 if batch.later_versions is None else batch.later_versions.nbytes
        added.append((batch.table.num_rows, batch.table.nbytes + later))
        add(comparison, batch)

    monkeypatch.setattr(RowComparison, "add", watched)
    pages = [[made.entry(f"{number}", body="x" * 100_000)] for number in range(40)]
    sync_load(made.load(*pages, *pages), store, batch_bytes=500_000)
    assert sum(rows for rows, _ in added) == 40
    assert 16 <= len(added) <= 20
    assert max(size for _, size in added) < 700_000


def test_repeated_rows_do_not_accumulate_in_memory(
    store: SnapshotStore, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is added by the batch, like what is new, however often everything is read again."""
    taken: list[int] = []
    monkeypatch.setattr(
        RowComparison, "add_later", lambda _, table: taken.append(table.num_rows)
    )
    load = made.load(*[made.entries("a", "b")] * 20)
    assert len(sync_load(load, store, batch_bytes=1).added) == 2
    assert taken == [2] * 19


def test_a_second_pass_that_finds_the_same_changes_nothing(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Rows that come again as they were are neither kept nor counted as changed."""
    pages = [made.entries("a", "b"), made.entries("c")]
    changes = sync_load(made.load(*pages, *pages), store, batch_bytes=1, spool_bytes=1)
    assert changes.counts == {"added": 3, "changed": 0, "gone": 0}
    assert (changes.receipt.changed, changes.receipt.duplicates) == (0, 3)
    assert sync_load(made.load(*pages, *pages), store).counts == {
        "added": 0,
        "changed": 0,
        "gone": 0,
    }
    export, rows = SnapshotStore(store.path.with_name("export")), made.vectors[0]
    done: list[str] = []
    watched = SnapshotStore(export.path, step=done.append)
    receipt = export_load(made.load(rows, rows, **made.vectors_are), watched)
    assert (receipt.changed, receipt.rows) == (0, 2)
    assert done.count("create file") == 3  # the first manifest, the data, the manifest
    assert read_snapshot(export.path)["id"].tolist() == [row["id"] for row in rows]


def test_an_interrupt_waits_for_the_end_of_a_batch(
    store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """Ctrl-C while rows are written loses none: the checkpoint holds the batch, the call resumes after it."""
    pages = [made.entries("a"), made.entries("b"), made.entries("c")]
    ids = []

    def interrupt(name: str) -> None:
        if name == "create file" and not ids:
            ids.append(name)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sync_load(
            made.load(*pages),
            SnapshotStore(store.path, step=interrupt),
            clock=clock,
            monotonic=Seconds(WriteOptions.every),
        )
    # the first file is the first manifest's: the load had not begun
    assert ids
    ids.clear()
    sync_load(made.load(), store, clock=clock)
    with pytest.raises(KeyboardInterrupt):
        sync_load(
            made.load(*pages),
            SnapshotStore(store.path, step=interrupt),
            clock=clock,
            monotonic=Seconds(WriteOptions.every),
        )
    changes = sync_load(made.load(*pages), store, clock=clock)
    assert (changes.receipt.resumed, sorted(changes.added["dlq_id"])) == (
        1,
        ["a", "b", "c"],
    )


def test_interrupts_are_held_and_then_let_go() -> None:
    """The block ends, then the interrupt comes; without one nothing happens."""
    done = []

    with delayed_signals() as hold:

        def interrupted() -> None:
            with hold:
                signal.raise_signal(signal.SIGINT)
                done.append("the block")

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with hold:
            done.append("another")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert done == ["the block", "another"]


def test_another_thread_has_no_signals_to_hold() -> None:
    """Python delivers signals to the main thread: elsewhere the handlers stay as they are."""
    found = []

    def hold() -> None:
        with delayed_signals() as hold, hold:
            found.append(signal.getsignal(signal.SIGINT))

    thread = Thread(target=hold)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


_PAGES = st.lists(
    st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=4),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    base=st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5),
    pages=_PAGES,
    bodies=st.lists(st.sampled_from("xy"), min_size=30, max_size=30),
    stops=st.lists(st.integers(0, 5), max_size=3),
)
def test_any_number_of_stops_ends_as_none(
    base: list[str],
    pages: list[list[str]],
    bodies: list[str],
    stops: list[int],
    made: SimpleNamespace,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever was stored and wherever the load stops, it ends in the rows of one that never stopped."""
    draw = iter(bodies)
    rows = [[made.entry(name, body=next(draw)) for name in page] for page in pages]
    ends = []
    for number, cuts in enumerate(([], sorted(stops))):
        clock = made.clock(made.start)
        store = SnapshotStore(tmp_path_factory.mktemp(f"stops{number}"))
        sync_load(
            made.load([made.entry(name, body="x") for name in base]), store, clock=clock
        )
        for cut in cuts:
            load = made.load(*rows[:cut], error=_ERROR)
            with pytest.raises(TransportError):
                sync_load(
                    load, store, clock=clock, batch_bytes=1 if cut % 2 else 4 << 20
                )
        changes = sync_load(made.load(*rows), store, clock=clock)
        frame = _rows(store.path)
        gone = frame.pop("gone_before").notna()
        assert frame.pop("gone_after").notna().equals(gone)
        ends.append((frame.assign(gone=gone), changes.counts, changes.receipt.complete))
        assert verify_snapshot(store.path).unlisted == ()
    pd.testing.assert_frame_equal(ends[0][0], ends[1][0])
    assert ends[0][1:] == ends[1][1:]


def test_a_checkpoint_is_not_written_where_counts_differ(
    store: SnapshotStore, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that says it yielded more than was added would lose rows: then there is no checkpoint."""
    original = Load.checkpoint

    def more(self: Load) -> Any:
        found = original(self)
        return type(found)(
            position=found.position,
            identities=found.identities + b"\0" * 16,
            receipt=found.receipt,
        )

    monkeypatch.setattr(Load, "checkpoint", more)
    with pytest.raises(TransportError):
        sync_load(made.load(made.entries("a"), error=_ERROR), store)
    assert _checkpoint_files(store) == []


@pytest.mark.parametrize("room", [0, 4, 5, 9])
def test_a_disk_that_is_full_leaves_the_checkpoint_before(
    store: SnapshotStore, made: SimpleNamespace, room: int
) -> None:
    """A checkpoint that could not be written as a whole is none; the load resumes from the one before it."""
    sync_load(made.load(), store)
    pages = [made.entries(name) for name in "abc"]
    files = iter([True] * room)

    def full(operation: str) -> None:
        if operation == "create file" and not next(files, False):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SnapshotError, match="No space"):
        sync_load(made.load(*pages), SnapshotStore(store.path, step=full), every=0)
    assert verify_snapshot(store.path).unlisted == ()
    changes = sync_load(made.load(*pages), store)
    assert changes.receipt.resumed == (room >= 4)
    assert changes.receipt.notes == ()
    assert sorted(changes.added["dlq_id"]) == ["a", "b", "c"]
    assert _checkpoint_files(store) == []


def test_rows_beyond_memory_are_spooled_to_files(
    store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Rows that do not fit wait on the disk, and end in the snapshot in their order."""
    pages = [
        [made.entry(f"{page}-{row}", body="x" * 1000) for row in range(50)]
        for page in range(8)
    ]
    waiting: list[int] = []
    watched = SnapshotStore(
        store.path,
        step=lambda _: waiting.append(len(list(store.path.glob("_checkpoint*.arrow")))),
    )
    sync_load(made.load(*pages), watched, batch_bytes=1, spool_bytes=100_000)
    assert max(waiting) > 2
    assert read_snapshot(store.path)["dlq_id"].tolist() == [
        row["dlq_id"] for page in pages for row in page
    ]
    assert verify_snapshot(store.path).unlisted == ()
