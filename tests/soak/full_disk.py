"""Let the disk be full at every 4 KB of a write of 4 MB: a typed error, and the snapshot as it was.

    .venv/bin/python tests/soak/full_disk.py [--every 1] [--first 0] [--seed N]

The operating system refuses for real: a limit on the size of files lets a write through in part, and then no
more. Each attempt is a fork made before Arrow starts a thread. `--every 50` takes every fiftieth step,
`--first` begins at a step.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa

from toolkit.base.progress import ProgressBar
from toolkit.errors import SnapshotError
from toolkit.loading.load import Load, LoadPlan, LoadState
from toolkit.snapshots import read_snapshot, verify_snapshot
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.schemas import FAILURES

STEP = 4096
ROWS, ROW_BYTES = 1000, 4200  # that do not compress
LONGEST = 60  # seconds of a process, after which it hangs
HELD, CAME_THROUGH, BROKEN = 0, 10, 20


def load_of(rows: list[dict[str, object]]) -> Load:
    """A load of these rows."""

    def tables(_: LoadState) -> Iterator[pa.Table]:
        yield pa.Table.from_pylist(rows, schema=FAILURES)

    plan = LoadPlan(
        what="failures",
        source="http://127.0.0.1:1",
        scope={},
        schema=FAILURES,
        key=("dlq_id",),
    )
    return Load(plan, tables, lambda: ProgressBar(False, title="", unit=""))


def small() -> list[dict[str, object]]:
    """What is at rest."""
    return [{"dlq_id": f"small-{number}", "body": str(number)} for number in range(3)]


def forked(run: Callable[[], int]) -> int:
    """The exit status of a process of its own."""
    child = os.fork()
    if child == 0:
        status = BROKEN
        signal.alarm(LONGEST)  # the system ends it then, whatever it waits for
        try:
            status = run()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def attempt(path: Path, size: int, seed: int) -> int:
    """Write 4 MB onto a snapshot when no file may be larger than `size`, and look at it."""
    sync_load(load_of(small()), SnapshotStore(path))
    random = Random(seed)
    large = [
        {
            "dlq_id": f"large-{number}",
            "body_base64": b64encode(random.randbytes(ROW_BYTES)).decode(),
        }
        for number in range(ROWS)
    ]
    load = load_of([*small(), *large])
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    refused = False
    try:
        sync_load(load, SnapshotStore(path))
    except SnapshotError as error:
        refused = "File too large" in str(error)
        if not refused:
            raise
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    verify_snapshot(path)
    if len(read_snapshot(path)) != (len(small()) if refused else len(small()) + ROWS):
        return BROKEN
    # with space again, the same call succeeds, and no other file is left
    sync_load(load_of([*small(), *large]), SnapshotStore(path))
    whole = (
        len(read_snapshot(path)) == len(small()) + ROWS
        and not verify_snapshot(path).unlisted
    )
    return BROKEN if not whole else HELD if refused else CAME_THROUGH


def main() -> int:
    """Fill the disk, and say what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--every", type=int, default=1, help="take every so many steps of 4 KB (1)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first step (0)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    statuses = Counter[int]()
    fast = Path("/dev/shm")  # noqa: S108 - a private folder is made inside
    _say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as folder:
        enough = ROWS * ROW_BYTES // STEP + 100
        steps = [*range(options.first, ROWS * ROW_BYTES // STEP, options.every), enough]
        for done, number in enumerate(steps, 1):
            path = Path(folder) / str(number)
            status = forked(partial(attempt, path, number * STEP, options.seed))
            statuses[status] += 1
            if status not in (HELD, CAME_THROUGH):
                _say(f"WRONG: at {number * STEP:,} bytes: exit status {status}")
            shutil.rmtree(path)
            if done % 200 == 0:
                _say(
                    f"{done:,} of {len(steps):,}; to go on: --first {number + options.every}"
                )
    wrong = len(steps) - statuses[HELD] - statuses[CAME_THROUGH]
    _say(
        f"{len(steps):,} sizes of the disk: {statuses[HELD]:,} refused and nothing changed, "
        f"{statuses[CAME_THROUGH]:,} had room, {wrong} wrong; {time.monotonic() - begun:.0f} s"
    )
    return 1 if wrong or not statuses[HELD] or not statuses[CAME_THROUGH] else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
