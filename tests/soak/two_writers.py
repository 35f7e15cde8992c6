"""Let two writers write one snapshot at the same time, repeatedly: the result is one complete history.

    .venv/bin/python tests/soak/two_writers.py [--races 200]

In each race two processes sync different rows. Each commits or is refused with a typed error, and at least
one commits; the snapshot then holds exactly the history of those that did, and its generation counts them.
There is no seed: who is first, the operating system deals.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from full_disk import forked, load_of

from toolkit.errors import SnapshotLockedError
from toolkit.snapshots import read_snapshot, verify_snapshot
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

COMMITTED, REFUSED = 0, 3


def write(path: Path, race: int, writer: int, gate: int) -> int:
    """Wait at the gate, then sync a row of this writer's and one of this race's."""
    rows: list[dict[str, object]] = [
        {"dlq_id": "shared", "body": f"{race} {writer}"},
        {"dlq_id": f"of {race} {writer}", "body": "x"},
    ]
    load = load_of(rows)
    os.read(gate, 1)
    try:
        sync_load(load, SnapshotStore(path))
    except SnapshotLockedError:
        return REFUSED
    return COMMITTED


def look(path: Path, race: int, committed: list[int], generation: int) -> int:
    """Whether the snapshot is what those made of it that committed."""
    verified = verify_snapshot(path)
    frame = read_snapshot(path)
    there = frame[frame["gone_before"].isna()]
    last = [
        set(there["dlq_id"]) == {"shared", f"of {race} {writer}"}
        for writer in committed
    ]
    added = {f"of {race} {writer}" for writer in committed} <= set(frame["dlq_id"])
    right = (
        verified.generation == generation
        and not verified.unlisted
        and any(last)
        and added
    )
    return (
        0 if right and frame["dlq_id"].is_unique and len(frame) == generation + 1 else 1
    )


def main() -> int:
    """Race, and say what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--races", type=int, default=200)
    options = parser.parse_args()
    begun = time.monotonic()
    counts = Counter[str]()
    fast = Path("/dev/shm")  # noqa: S108 - a private folder is made inside
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as folder:
        path = Path(folder) / "snapshot"
        generation = 0
        for race in range(options.races):
            statuses = _race(path, race)
            committed = [
                writer for writer, status in enumerate(statuses) if status == COMMITTED
            ]
            generation += len(committed)
            counts["both committed" if len(committed) > 1 else "one was refused"] += 1
            fine = committed and set(statuses) <= {COMMITTED, REFUSED}
            if not fine or forked(partial(look, path, race, committed, generation)):
                counts["wrong"] += 1
                sys.stdout.write(f"WRONG: race {race} ended with {statuses}\n")
                sys.stdout.flush()
    sys.stdout.write(
        f"{options.races} races: in {counts['one was refused']} one was refused, in "
        f"{counts['both committed']} both committed in turn, {counts['wrong']} wrong; "
        f"{time.monotonic() - begun:.0f} s\n"
    )
    return 1 if counts["wrong"] or not counts["one was refused"] else 0


def _race(path: Path, race: int) -> list[int]:
    gate, key = os.pipe()
    children = []
    for writer in range(2):
        child = os.fork()
        if child == 0:
            status = 70
            try:
                status = write(path, race, writer, gate)
            finally:
                os._exit(status)
        children.append(child)
    # so that both are likely to stand at the gate; nothing depends on it
    time.sleep(0.005)
    os.write(key, b"go")
    os.close(gate)
    os.close(key)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


if __name__ == "__main__":
    sys.exit(main())
