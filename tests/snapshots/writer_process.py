"""Writers that are stopped: run as a program by the tests, each attempt in a process of its own.

``crash BASE OUT``: for each step of a sync, copies BASE, which may be missing, and kills the writer there.
``crash-parts BASE OUT``: the same with one index per data file.
``kept-sync BASE OUT``, ``kept-export BASE OUT``: the same with a checkpoint after each page.
``repair BASE OUT``: the same for a sync that repairs a snapshot which has lost files.
``limit BASE OUT``: the same for files that may not grow beyond ever more bytes; prints how the writers ended.
``hold FOLDER``: acquires the lock, says so, and keeps it until killed.
``race FOLDER COUNT``: syncs so many times, and prints how often it was refused.

The attempts are forks made before Arrow starts a thread, so that the imports are paid once.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from conftest import (
    PAGES,
    START,
    VECTORS,
    VECTORS_ARE,
    Clock,
    entries,
    entry,
    load_of,
    stop_at,
)
from toolkit.errors import SnapshotError, SnapshotLockedError
from toolkit.snapshots.exporting import export_load
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load


def second_sync(store: SnapshotStore, **options: int) -> None:
    """A sync that adds d, changes b, misses a, and finds c as it was."""
    pages = ([entry("b", body="new"), *entries("c")], entries("d"))
    clock = Clock(START + timedelta(days=1))
    sync_load(load_of(*pages), store, clock=clock, batch_bytes=1, **options)


def kept_sync(store: SnapshotStore) -> None:
    """A sync that writes a checkpoint after each of its pages."""
    sync_load(load_of(*PAGES), store, clock=Clock(START + timedelta(hours=1)), every=0)


def kept_export(store: SnapshotStore) -> None:
    """An export that writes a checkpoint after each of its pages."""
    export_load(
        load_of(*VECTORS, **VECTORS_ARE),
        store,
        clock=Clock(START + timedelta(hours=1)),
        every=0,
    )


def repair(store: SnapshotStore) -> None:
    """A sync that repairs, while the queue has c, d and f."""
    load = load_of(entries("c", "d", "f"))
    sync_load(
        load, store, clock=Clock(START + timedelta(days=3)), batch_bytes=1, repair=True
    )


def large_sync(store: SnapshotStore) -> None:
    """A sync that adds about 2 MB that do not compress."""
    rows = [
        entry(f"large-{number}", body=os.urandom(500).hex()) for number in range(2000)
    ]
    sync_load(load_of(rows), store, clock=Clock(START + timedelta(days=1)))


def attempt(
    base: Path,
    copy: Path,
    run: Callable[[SnapshotStore], int],
    step: Callable[[str], None],
) -> int:
    """The exit status of a process of its own that runs on a copy of `base`; negative for a signal."""
    if base.exists():
        shutil.copytree(base, copy)
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = run(SnapshotStore(copy, step=step))
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def crash(
    base: Path, out: Path, sync: Callable[[SnapshotStore], None] = second_sync
) -> None:
    """Kill a writer at each of its steps, until one comes through."""

    def run(store: SnapshotStore) -> int:
        sync(store)
        return 0

    for number in range(1, 1000):
        step = stop_at(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        status = attempt(base, out / str(number), run, step)
        if status != -signal.SIGKILL:
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            sys.exit(status)


def limit(base: Path, out: Path) -> None:
    """Let a writer's files grow to ever more bytes, until one comes through."""

    def run(size: int, store: SnapshotStore) -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            large_sync(store)
        except SnapshotError as error:
            return 3 if "File too large" in str(error) else 4
        return 0

    for number, size in enumerate(
        [100, 1000, 4096, 50_000, 200_000, 800_000, 10_000_000]
    ):
        status = attempt(base, out / str(number), partial(run, size), lambda _: None)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def hold(store: Path) -> None:
    """Acquire the lock and keep it."""
    with SnapshotStore(store).locked():
        sys.stdout.write("locked\n")
        sys.stdout.flush()
        time.sleep(60)


def race(store: Path, count: int) -> None:
    """Sync again and again."""
    refused = 0
    for number in range(count):
        try:
            rows = [*entries("a", "b"), entry("shared", body=f"{os.getpid()} {number}")]
            sync_load(load_of(rows), SnapshotStore(store))
        except SnapshotLockedError:
            refused += 1
    sys.stdout.write(f"{refused}\n")


WRITERS = {
    "crash": second_sync,
    "crash-parts": partial(second_sync, index_rows=0),
    "kept-sync": kept_sync,
    "kept-export": kept_export,
    "repair": repair,
}

if __name__ == "__main__":
    mode, first, *rest = sys.argv[1:]
    if mode in WRITERS:
        crash(Path(first), Path(rest[0]), WRITERS[mode])
    elif mode == "limit":
        limit(Path(first), Path(rest[0]))
    elif mode == "hold":
        hold(Path(first))
    else:
        race(Path(first), int(rest[0]))
