"""Writers to an object store, killed, refused, interrupted, or not alone: old or new, and never silent."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from moto.backends import get_backend

from toolkit.errors import SnapshotConflictError, SnapshotDamagedError, SnapshotError
from toolkit.snapshots import (
    open_snapshot,
    read_snapshot,
    verify_snapshot,
)
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.syncing import sync_load

_PROGRAM = Path(__file__).parents[1] / "store_writer_process.py"
_CHANGING = {"PUT", "POST", "DELETE"}

_OLD = {name: (f"body of {name}", True) for name in "abc"}
_NEW = {
    "a": ("body of a", False),
    "b": ("new", True),
    "c": ("body of c", True),
    "d": ("body of d", True),
}


@pytest.fixture
def place(s3: SimpleNamespace, made: SimpleNamespace) -> SimpleNamespace:
    """Syncs to one snapshot, and what it holds."""
    # small objects in one request
    quick = s3.server.filesystem(allow_delayed_open=True)

    def sync(
        *rows: Any,
        path: str = s3.path,
        filesystem: Any = quick,
        step: Callable[[str], None] = lambda _: None,
    ) -> Any:
        store = open_store(path, filesystem, step=step)
        return sync_load(
            made.load(*rows), store, clock=made.clock(made.start), batch_bytes=1
        )

    def second(**options: Any) -> Any:
        return sync(
            [made.entry("b", body="new"), *made.entries("c")],
            made.entries("d"),
            **options,
        )

    def state(path: str = s3.path) -> dict[str, tuple[str, bool]]:
        frame = read_snapshot(path, filesystem=s3.filesystem)
        there = frame["gone_before"].isna()
        return {
            row.dlq_id: (row.body, here)
            for row, here in zip(frame.itertuples(), there, strict=True)
        }

    def whole(path: str = s3.path) -> Any:
        return verify_snapshot(path, filesystem=s3.filesystem)

    return SimpleNamespace(
        first=lambda **options: sync(made.entries("a", "b", "c"), **options),
        second=second, sync=sync, state=state, whole=whole,
    )  # fmt: skip


def _once(act: Callable[[], Any]) -> Callable[[], None]:
    """Act when called for the first time."""
    turns = itertools.count()

    def call() -> None:
        if next(turns) == 0:
            act()

    return call


def _objects(s3: SimpleNamespace) -> dict[str, bytes]:
    """Everything in the bucket, read from the server's memory."""
    keys = get_backend("s3")["123456789012"]["aws"].buckets[s3.bucket].keys
    return {name: key.value for name, key in keys.items()}


@contextmanager
def _writers(port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(_PROGRAM), str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writers:
        yield writers
        assert writers.stdin is not None
        writers.stdin.close()
        assert writers.wait(timeout=60) == 0


def _ending(
    writers: subprocess.Popen[str], s3: SimpleNamespace, path: str, number: int
) -> int:
    """How a writer ended that was killed before this one of its requests that change something."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    turns = itertools.count(1)
    writer: SimpleQueue[int] = SimpleQueue()

    def kill(method: str, _: str) -> int | None:
        if method not in _CHANGING or next(turns) != number:
            return None
        os.kill(writer.get(), signal.SIGKILL)
        return 500  # to nobody

    s3.server.before = kill
    writers.stdin.write(f"{path}\n")
    writers.stdin.flush()
    writer.put(int(writers.stdout.readline()))
    ended = int(writers.stdout.readline())
    s3.server.free()
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("old", [{}, _OLD], ids=["a first sync", "a second sync"])
def test_a_writer_killed_at_any_request_leaves_the_old_snapshot_or_the_new_one(
    s3: SimpleNamespace,
    place: SimpleNamespace,
    made: SimpleNamespace,
    old: dict[str, tuple[str, bool]],
) -> None:
    """After a kill before any request that changes something, all is whole; the next sync clears up."""
    if old:
        place.first()
    base = _objects(s3)
    backend = get_backend("s3")["123456789012"]["aws"]
    states = []
    with _writers(s3.server.port) as writers:
        for number in itertools.count(1):
            path = f"{s3.bucket}/{number}"
            for name, content in base.items():
                backend.put_object(
                    s3.bucket, name.replace("snapshot", str(number), 1), content
                )
            ended = _ending(writers, s3, path, number)
            try:
                states.append(place.state(path))
                opened = open_snapshot(path, filesystem=s3.filesystem)
                assert made.read_by_all(opened) == sorted(states[-1])
            except SnapshotError as error:
                assert (type(error), old) == (SnapshotError, {})  # noqa: PT017 - both ways are checked
                states.append({})
            place.second(path=path)
            assert place.whole(path).unlisted == ()
            if ended == 0:
                break
            assert ended == -signal.SIGKILL
    new = _NEW if old else {name: _NEW[name] for name in "bcd"}
    place_of_commit = states.index(new)
    assert states == [old] * place_of_commit + [new] * (len(states) - place_of_commit)
    assert place_of_commit > 2


@pytest.mark.slow
def test_a_store_that_refuses_any_request_keeps_old_or_new(
    s3: SimpleNamespace, place: SimpleNamespace
) -> None:
    """Whatever the store refuses, a typed error is raised, and the snapshot is whole."""
    states = []
    for number in itertools.count(1):
        path = f"{s3.bucket}/{number}"
        place.first(path=path)
        turns = itertools.count(1)
        s3.server.before = lambda method, _, turns=turns, number=number: (
            500 if method in _CHANGING and next(turns) == number else None
        )
        try:
            place.second(path=path)
        except SnapshotError as error:
            assert "store can be reached" in str(error)  # noqa: PT017 - the last attempt raises nothing
            s3.server.free()
            states.append(place.state(path))
        else:
            break
    place_of_commit = states.index(_NEW)
    assert states == [_OLD] * place_of_commit + [_NEW] * (len(states) - place_of_commit)
    assert 2 < place_of_commit < len(states)


def test_a_commit_by_another_is_found_before_ours(
    s3: SimpleNamespace, place: SimpleNamespace, made: SimpleNamespace
) -> None:
    """Another writer's commit while we write is a typed error; what we wrote is removed, theirs is whole."""
    place.first()
    other = _once(lambda: place.sync(made.entries("a", "b", "c", "x")))
    with pytest.raises(SnapshotConflictError, match="another writer"):
        place.second(step=lambda name: other() if name == "upload" else None)
    assert sorted(place.state()) == ["a", "b", "c", "x"]
    whole = place.whole()
    assert (whole.generation, whole.unlisted) == (2, ())
    assert place.second().counts == {"added": 1, "changed": 1, "gone": 2}


def test_of_two_first_writers_one_wins(
    s3: SimpleNamespace, place: SimpleNamespace, made: SimpleNamespace
) -> None:
    """In an empty bucket, the later commit fails with an error, and nothing of it is left."""
    other = _once(place.first)
    with pytest.raises(SnapshotConflictError):
        place.second(step=lambda name: other() if name == "upload" else None)
    assert place.state() == _OLD
    assert place.whole().unlisted == ()


def test_an_interrupted_writer_removes_nothing(
    s3: SimpleNamespace, place: SimpleNamespace, made: SimpleNamespace
) -> None:
    """What another has uploaded and not committed looks left behind; it is not removed at the start."""
    place.first()

    @_once
    def other() -> None:
        load = made.load(made.entries("x"), error=ConnectionError("lost"))
        with pytest.raises(SnapshotError, match="lost"):
            sync_load(load, open_store(s3.path, s3.filesystem), every=1e9)

    place.second(step=lambda name: other() if name == "replace" else None)
    assert place.state() == _NEW
    assert place.whole().unlisted == ()


def test_a_stopped_load_resumes_in_a_bucket(
    s3: SimpleNamespace, place: SimpleNamespace, made: SimpleNamespace
) -> None:
    """What was read is stored as objects beside the snapshot; the same call resumes, and removes them."""
    place.first()
    store = open_store(s3.path, s3.filesystem)
    clock = made.clock(made.start)
    stopped = made.load(*made.pages, error=ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        sync_load(stopped, store, clock=clock, batch_bytes=1, spool_bytes=1)
    assert place.state() == _OLD
    assert any("_checkpoint" in name for name in _objects(s3))
    resumed = made.load(*made.pages)
    changes = sync_load(resumed, store, clock=clock, batch_bytes=1, spool_bytes=1)
    assert changes.receipt.resumed == 1
    assert sorted(place.state()) == ["a", "b", "c", "d"]
    assert place.whole().unlisted == ()
    assert not any("_checkpoint" in name for name in _objects(s3))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_by_another_at_the_same_time_is_never_silent(
    s3: SimpleNamespace, place: SimpleNamespace, moment: str
) -> None:
    """Between the look at the manifest and its replacement no lock helps: the later writer finds out."""
    place.first()
    turns = itertools.count(1)
    other = _once(place.second)

    def act(method: str, path: str) -> None:
        # beginning, part and end: the end is what replaces the manifest
        if method in _CHANGING and path.endswith("_manifest.json") and next(turns) == 3:
            other()

    setattr(s3.server, moment, act)
    with pytest.raises(SnapshotConflictError, match="verify the snapshot"):
        place.second(filesystem=s3.filesystem)
    if moment == "after":
        assert place.state() == _NEW
        assert place.whole().generation == 3
    else:
        with pytest.raises(SnapshotDamagedError):
            place.whole()


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_an_interrupt_during_the_manifest_upload_leaves_a_complete_one(
    s3: SimpleNamespace, place: SimpleNamespace, turn: int
) -> None:
    """Ctrl-C at any request of the commit ends the call, and never leaves an empty or a half manifest."""
    place.first()
    turns = itertools.count(1)

    def interrupt(method: str, path: str) -> None:
        if (
            method in _CHANGING
            and path.endswith("_manifest.json")
            and next(turns) == turn
        ):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    s3.server.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        place.second(filesystem=s3.filesystem)
    s3.server.free()
    assert place.state() == _NEW
    place.second()
    assert place.whole().unlisted == ()


def test_an_interrupt_while_the_thread_of_an_upload_starts_leaves_no_upload_behind(
    s3: SimpleNamespace, place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that Ctrl-C ended has ended: nothing is written to the store afterwards."""
    place.first()
    asked, ended, late = threading.Event(), threading.Event(), threading.Event()
    start = threading.Thread.start

    def watch(method: str, path: str) -> None:
        if method in _CHANGING and path.endswith("_manifest.json"):
            asked.set()
            ended.wait(1)
            if ended.is_set():
                late.set()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("toolkit upload"):
            asked.wait(1)  # until the thread, if it had work, is in the middle of it
            signal.raise_signal(signal.SIGINT)

    s3.server.before = watch
    store = open_store(s3.path, s3.filesystem)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.replace("_manifest.json", b"{}")
    monkeypatch.undo()
    ended.set()
    assert not late.wait(1)
    s3.server.free()
    assert place.state() == _OLD


def test_a_manifest_that_is_replaced_while_it_is_read_is_read_again(
    s3: SimpleNamespace, place: SimpleNamespace
) -> None:
    """A longer manifest between its size and its bytes is not damage."""
    place.first()
    commit = _once(place.second)
    s3.server.before = lambda method, path: (
        commit() if method == "GET" and path.endswith("_manifest.json") else None
    )
    assert place.state() == _NEW


def test_a_reader_whose_objects_are_replaced_reads_the_next_generation(
    s3: SimpleNamespace, place: SimpleNamespace
) -> None:
    """Objects go with the commit that supersedes them: readers begin again, a dataset names what is gone."""
    place.first()
    dataset = open_snapshot(s3.path, filesystem=s3.filesystem).to_arrow()
    commit = _once(place.second)
    s3.server.before = lambda method, path: (
        commit() if method in {"GET", "HEAD"} and path.endswith(".parquet") else None
    )
    assert place.state() == _NEW
    with pytest.raises(FileNotFoundError, match=r"part-000001-.*\.parquet"):
        dataset.to_table()
