"""Writers that are killed, refused by the disk, or that meet another writer: old or new, never in between."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from toolkit.errors import SnapshotError, SnapshotLockedError
from toolkit.snapshots import open_snapshot, read_snapshot, verify_snapshot
from toolkit.snapshots.exporting import export_load
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

_PROGRAM = Path(__file__).with_name("writer_process.py")


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(_PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _run(*arguments: object) -> list[str]:
    with _start(*arguments) as process:
        out, _ = process.communicate(timeout=250)
        assert process.returncode == 0
    return out.split()


def _state(path: Path) -> dict[str, tuple[str, bool]]:
    """Body and whether it is there, by id."""
    frame = read_snapshot(path)
    return {
        row.dlq_id: (row.body, there)
        for row, there in zip(
            frame.itertuples(), frame["gone_before"].isna(), strict=True
        )
    }


_OLD = {name: (f"body of {name}", True) for name in "abc"}
_NEW = {
    "a": ("body of a", False),
    "b": ("new", True),
    "c": ("body of c", True),
    "d": ("body of d", True),
}


def _full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _second(made: SimpleNamespace) -> Any:
    return made.load(
        [made.entry("b", body="new"), *made.entries("c")], made.entries("d")
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["crash", "crash-parts"])
def test_a_writer_killed_at_any_step_leaves_the_old_snapshot_or_the_new_one(
    tmp_path: Path,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    store: SnapshotStore,
    mode: str,
) -> None:
    """After a kill at any operation every reader finds the old rows or the new ones, each once.

    The next sync ends the same. With one index per data file, it is the same.
    """
    options = {"index_rows": 0} if mode == "crash-parts" else {}
    sync(made.entries("a", "b", "c"))
    last = int(_run(mode, store.path, tmp_path / "out")[0])
    states = []
    doubled = 0
    is_repeated = made.repeated()
    for number in range(1, last + 1):
        path = tmp_path / "out" / str(number)
        if is_repeated(path):
            states.append(states[-1])
            continue
        verify_snapshot(path)
        states.append(_state(path))
        assert made.read_by_all(open_snapshot(path)) == sorted(states[-1])
        doubled += len(pq.read_table(path)) > len(states[-1])
        sync_load(_second(made), SnapshotStore(path), **options)
        assert _state(path) == _NEW
        assert verify_snapshot(path).unlisted == ()
        assert made.read_by_all(open_snapshot(path)) == ["a", "b", "c", "d"]
    assert doubled > 0  # a reader of the folder would count rows twice
    assert last > 30
    assert all(state in (_OLD, _NEW) for state in states)
    first_new = states.index(_NEW)
    assert 0 < first_new < last - 1
    assert states == [_OLD] * first_new + [_NEW] * (last - first_new)


@pytest.mark.slow
def test_a_first_writer_killed_at_any_step_leaves_no_snapshot_or_a_complete_one(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """A first write that was killed is not a snapshot, and is in nobody's way."""
    last = int(_run("crash", tmp_path / "missing", tmp_path / "out")[0])
    whole = 0
    is_whole = False
    is_repeated = made.repeated()
    for number in range(1, last + 1):
        path = tmp_path / "out" / str(number)
        if is_repeated(path):
            whole += is_whole
            continue
        is_whole = False
        try:
            is_whole = sorted(_state(path)) == ["b", "c", "d"]
        except SnapshotError as error:
            assert type(error) is SnapshotError  # noqa: PT017 - both ways are checked
        whole += is_whole
        sync_load(_second(made), SnapshotStore(path))
        assert sorted(_state(path)) == ["b", "c", "d"]
        assert verify_snapshot(path).unlisted == ()
    assert 1 < whole < last


def _read_on(load: Any) -> list[int]:
    """The numbers of the pages that a load reads, in a list that fills as it does."""
    numbers: list[int] = []
    tables = load.read

    def watched(work: Any) -> Iterator[Any]:
        for table in tables(work):
            numbers.append(work.position["pages"])
            yield table

    load.read = watched
    return numbers


def _kept_pages(path: Path) -> int:
    """How many pages the checkpoint holds that lies there, 0 for none."""
    checkpoint = path / "_checkpoint.json"
    if not checkpoint.exists():
        return 0
    return int(
        json.loads(checkpoint.read_bytes().partition(b"\n")[2])["position"]["pages"]
    )


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.slow
def test_a_sync_killed_at_any_step_resumes_from_its_checkpoint(
    tmp_path: Path,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    store: SnapshotStore,
    *,
    resumes: bool,
) -> None:
    """The old snapshot stays readable, and the same call reads on, each page once, to the same end.

    So does a call that was killed while it resumed from the checkpoint of an earlier one.
    """
    sync(made.entries("a", "b", "c"))
    if resumes:
        with pytest.raises(KeyboardInterrupt):
            sync(made.pages[0], error=KeyboardInterrupt())
    last = int(_run("kept-sync", store.path, tmp_path / "out")[0])
    # c was read twice: nothing is marked gone, before a stop or after it
    new = {
        "a": ("body of a", True),
        "b": ("new", True),
        "c": ("later", True),
        "d": ("body of d", True),
    }
    kept = []
    is_repeated = made.repeated()
    for number in range(1, last + 1):
        path = tmp_path / "out" / str(number)
        if is_repeated(path):
            continue
        state = _state(path)
        assert state in (_OLD, new)
        load = made.load(*made.pages)
        pages = _read_on(load)
        kept.append(_kept_pages(path) if state == _OLD else 0)
        changes = sync_load(
            load, SnapshotStore(path), clock=made.clock(made.start + timedelta(hours=2))
        )
        assert pages == list(range(kept[-1] + 1, 3))
        assert bool(changes.receipt.resumed) == bool(kept[-1])
        assert (changes.receipt.complete, changes.receipt.notes) == (False, ())
        assert _state(path) == new
        assert verify_snapshot(path).unlisted == ()
    assert last > 40
    assert set(kept) == {0, 1, 2}
    assert not (resumes and 0 in kept[: kept.index(2)])


@pytest.mark.slow
def test_an_export_killed_at_any_step_resumes_from_its_checkpoint(
    tmp_path: Path, made: SimpleNamespace, store: SnapshotStore
) -> None:
    """The previous export stays readable, and the same call reads on, each page once, to the same end."""
    export_load(made.load(made.vectors[0][:1], **made.vectors_are), store)
    last = int(_run("kept-export", store.path, tmp_path / "out")[0])
    new = [row["id"] for page in made.vectors for row in page]
    kept = []
    is_repeated = made.repeated()
    for number in range(1, last + 1):
        path = tmp_path / "out" / str(number)
        if is_repeated(path):
            continue
        there = read_snapshot(path)["id"].tolist()
        assert there in (["0a"], new)
        load = made.load(*made.vectors, **made.vectors_are)
        pages = _read_on(load)
        kept.append(_kept_pages(path) if there != new else 0)
        receipt = export_load(
            load, SnapshotStore(path), clock=made.clock(made.start + timedelta(hours=2))
        )
        assert pages == list(range(kept[-1] + 1, 3))
        assert (receipt.resumed, receipt.notes) == (bool(kept[-1]), ())
        assert read_snapshot(path)["id"].tolist() == new
        assert verify_snapshot(path).unlisted == ()
    assert last > 30
    assert set(kept) == {0, 1, 2}


@pytest.mark.slow
def test_a_file_that_may_not_grow_keeps_the_previous_snapshot(
    tmp_path: Path,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    store: SnapshotStore,
) -> None:
    """With too little space a writer fails with a typed error and changes nothing."""
    sync(made.entries("a", "b", "c"))
    statuses = _run("limit", store.path, tmp_path / "out")
    assert statuses == ["3"] * 6 + ["0"]
    for number in range(6):
        path = tmp_path / "out" / str(number)
        assert _state(path) == _OLD
        assert verify_snapshot(path).unlisted == ()
    assert len(_state(tmp_path / "out" / "6")) == 2003


@pytest.mark.slow
def test_an_error_of_the_disk_at_any_step_is_typed_and_leaves_old_or_new(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """Whatever the disk refuses, a SnapshotError is raised and the snapshot is whole."""
    states = []
    for number in range(1, 1000):
        path = tmp_path / str(number)
        sync_load(made.load(made.entries("a", "b", "c")), SnapshotStore(path))
        try:
            sync_load(
                _second(made),
                SnapshotStore(path, step=made.stop_at(number, _full)),
                batch_bytes=1,
            )
        except SnapshotError as error:
            assert "No space left" in str(error)  # noqa: PT017 - the last attempt raises nothing
            verify_snapshot(path)
            states.append(_state(path))
        else:
            break
    first_new = states.index(_NEW)
    assert states == [_OLD] * first_new + [_NEW] * (len(states) - first_new)
    assert 15 < first_new < len(states)


def test_everything_is_on_the_disk_before_the_manifest_says_so(
    store: SnapshotStore,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are flushed to disk before they get their names, folders before the commit and after it."""
    sync(made.entries("a", "b", "c"))
    done: list[tuple[str, int | str]] = []
    fsync, replace, unlink = os.fsync, os.replace, os.unlink

    def watched_fsync(handle: int) -> None:
        done.append(("fsync", os.fstat(handle).st_ino))
        fsync(handle)

    def watched_replace(old: str, new: str, **options: Any) -> None:
        done.append(("rename", os.fspath(new)))
        replace(old, new, **options)

    def watched_unlink(name: str, **options: Any) -> None:
        done.append(("remove", os.fspath(name)))
        unlink(name, **options)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(os, "unlink", watched_unlink)
    sync_load(_second(made), store)

    commit = done.index(("rename", "_manifest.json"))
    root = store.path.stat().st_ino
    written = list(store.path.rglob("*-000002-*"))
    assert len(written) == 3
    for path in written:
        named = done.index(("rename", path.name))
        assert done.index(("fsync", path.stat().st_ino)) < named
        assert ("fsync", path.parent.stat().st_ino) in done[named:commit]
    assert ("fsync", root) in done[:commit]
    assert ("fsync", (store.path / "_manifest.json").stat().st_ino) in done[:commit]
    removed = [number for number, (what, _) in enumerate(done) if what == "remove"]
    assert len(removed) == 2
    assert ("fsync", root) in done[commit : removed[0]]


@pytest.mark.parametrize("pattern", ["first_seen/*/_part*.tmp", "_index*.tmp"])
def test_a_disk_that_returns_other_bytes_is_detected_before_the_commit(
    tmp_path: Path,
    made: SimpleNamespace,
    sync: Callable[..., Any],
    store: SnapshotStore,
    pattern: str,
) -> None:
    """What was written is read again: a byte that turned on the way is an error, and nothing is committed."""
    sync(made.entries("a", "b", "c"))

    def turn_a_byte(operation: str) -> None:
        for path in store.path.glob(pattern) if operation == "fsync file" else ():
            content = bytearray(path.read_bytes())
            if content:
                content[len(content) // 2] ^= 1
                path.write_bytes(content)

    with pytest.raises(SnapshotError, match="other bytes than were written"):
        sync_load(_second(made), SnapshotStore(store.path, step=turn_a_byte))
    assert _state(store.path) == _OLD
    assert verify_snapshot(store.path).unlisted == ()


def test_a_second_writer_is_refused_until_the_first_is_dead(
    made: SimpleNamespace, sync: Callable[..., Any], store: SnapshotStore
) -> None:
    """The lock names its holder, and vanishes with a process that was killed."""
    sync(made.entries("a"))
    with _start("hold", store.path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(SnapshotLockedError, match=f"process {holder.pid}"):
            sync(made.entries("a", "b"))
        assert len(read_snapshot(store.path)) == 1
        holder.kill()
    assert sync(made.entries("a", "b")).counts["added"] == 1


@pytest.mark.slow
def test_two_processes_that_sync_at_once_leave_one_complete_history(
    store: SnapshotStore,
) -> None:
    """Each of many colliding syncs commits or is refused: generations count the commits exactly."""
    with (
        _start("race", store.path, 20) as first,
        _start("race", store.path, 20) as second,
    ):
        refused = [
            int(process.communicate(timeout=250)[0]) for process in (first, second)
        ]
    verified = verify_snapshot(store.path)
    assert verified.generation == 40 - sum(refused)
    assert (verified.rows, verified.unlisted) == (3, ())


def test_a_reader_whose_files_are_replaced_reads_the_next_generation(
    made: SimpleNamespace,
    sync: Callable[..., Any],
    store: SnapshotStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit between reading the manifest and opening its files is not damage: the reader begins again."""
    sync(made.entries("a", "b", "c"))
    opened, commits = SnapshotStore.open, []

    def after_a_commit(self: SnapshotStore, name: str) -> Any:
        if name.endswith(".parquet") and not commits:
            commits.append(name)
            sync_load(_second(made), SnapshotStore(store.path))
        return opened(self, name)

    monkeypatch.setattr(SnapshotStore, "open", after_a_commit)
    assert _state(store.path) == _NEW
    assert commits


def test_a_reader_concurrent_with_a_writer_sees_complete_generations(
    made: SimpleNamespace, sync: Callable[..., Any], store: SnapshotStore
) -> None:
    """While every sync replaces the file, each read returns all rows of one sync."""
    rounds = 30

    def rows(number: int) -> list[dict[str, Any]]:
        return [made.entry(name, body=str(number)) for name in "abc"]

    sync(rows(0))
    writer = threading.Thread(
        target=lambda: [sync(rows(number)) for number in range(1, rounds)]
    )
    writer.start()
    seen = set()
    while writer.is_alive():
        bodies = read_snapshot(store.path)["body"].tolist()
        assert len(bodies) == 3
        assert len(set(bodies)) == 1
        seen.add(bodies[0])
    writer.join()
    assert len(seen) > 1
