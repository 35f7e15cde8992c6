"""Writes the checkpoint of a restore many times, as a process that restores the same snapshot as another."""

from __future__ import annotations

import sys

from toolkit.vectors.restoring import _RestoreCheckpoint


def main(path: str, writes: int) -> None:
    """Write and read the checkpoint so many times."""
    checkpoint = _RestoreCheckpoint(path, "the same snapshot and index")
    for rows in range(writes):
        checkpoint.write(rows)
        checkpoint.read(most=writes)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
