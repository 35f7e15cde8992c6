"""Let a disk of its own run out of room at every 4 KB of a write of 4 MB: a typed error, and all as it was.

    .venv/bin/python tests/soak/no_space.py [--every 1] [--first 0] [--seed N]

In `full_disk.py` single files may not grow; here nothing may: neither the folders, the index, the
checkpoint nor the manifest. The disk is a small one in memory, mounted where only this program sees
it; a system that does not allow that is said to be left out, and the exit status is 77.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from pathlib import Path
from random import Random

from full_disk import ROW_BYTES, ROWS, STEP, load_of, small

from toolkit.errors import SnapshotError
from toolkit.snapshots import read_snapshot, verify_snapshot
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

DISK = 64 << 20
LEFT_OUT = 77


def leave(disk: Path, room: int) -> None:
    """Fill the disk until so many bytes are left."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    found = os.statvfs(disk)
    size = found.f_bavail * found.f_frsize - room
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def attempt(disk: Path, room: int, large: list[dict[str, object]]) -> str:
    """Write 4 MB onto a snapshot with so much room, and look at it."""
    path = disk / "snapshot"
    sync_load(load_of(small()), SnapshotStore(path))
    leave(disk, room)
    ended = "had room"
    try:
        sync_load(load_of([*small(), *large]), SnapshotStore(path))
    except SnapshotError as error:
        ended = "refused" if "No space left" in str(error) else f"said {error}"
    rows = len(small()) + (ROWS if ended == "had room" else 0)
    if len(read_snapshot(path)) != rows or verify_snapshot(path).rows != rows:
        ended = "neither old nor new"
    (disk / "ballast").unlink()
    # with space again, the same call succeeds, and no other file is left
    sync_load(load_of([*small(), *large]), SnapshotStore(path))
    if (
        len(read_snapshot(path)) != len(small()) + ROWS
        or verify_snapshot(path).unlisted
    ):
        ended = "not whole with room again"
    shutil.rmtree(path)
    return ended


def inside(disk: Path, every: int, first: int, seed: int) -> int:
    """Mount the disk, fill it in steps, and say what was found."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        return LEFT_OUT
    _say(f"seed {seed}")
    begun = time.monotonic()
    random = Random(seed)
    large = [
        {
            "dlq_id": f"large-{number}",
            "body_base64": b64encode(random.randbytes(ROW_BYTES)).decode(),
        }
        for number in range(ROWS)
    ]
    found = Counter[str]()
    rooms = (*range(first * STEP, ROWS * ROW_BYTES, every * STEP), DISK // 2)
    for done, room in enumerate(rooms, 1):
        ended = attempt(disk, room, large)
        found[ended] += 1
        if ended not in {"refused", "had room"}:
            _say(f"WRONG: with room for {room:,} bytes: {ended}")
        if done % 200 == 0:
            _say(
                f"{done:,} of {len(rooms):,}; to go on: --first {room // STEP + every}"
            )
    wrong = found.total() - found["refused"] - found["had room"]
    _say(
        f"{found.total():,} amounts of room: {found['refused']:,} refused and nothing changed, "
        f"{found['had room']:,} had room, {wrong} wrong; {time.monotonic() - begun:.0f} s"
    )
    return 1 if wrong or not found["refused"] or not found["had room"] else 0


def main() -> int:
    """Go where a disk can be mounted that nobody else sees."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--every", type=int, default=1, help="take every so many steps of 4 KB (1)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first step (0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disk", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.disk:
        return inside(options.disk, options.every, options.first, options.seed)
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    status = LEFT_OUT
    if (
        shutil.which(private[0])
        and not subprocess.run([*private, "true"], check=False).returncode
    ):
        with tempfile.TemporaryDirectory() as disk:
            numbers = [
                f"--every={options.every}",
                f"--first={options.first}",
                f"--seed={options.seed}",
            ]
            command = [*private, sys.executable, __file__, "--disk", disk, *numbers]
            status = subprocess.run(command, check=False).returncode
    if status == LEFT_OUT:
        _say("left out: this system does not let a program mount a disk of its own")
    return status


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
